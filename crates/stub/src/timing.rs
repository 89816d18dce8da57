//! When an answer is due, as a function of when its request arrived.
//!
//! A request waits in one queue for one of the servers, if their number is bounded, and is served
//! for a time that is drawn. While the whole responder stalls nothing goes on: so waiting and
//! serving happen in *worked* time, which stands still in a stall, and all of it is arithmetic.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::latency::Sampler;

/// A pause of the whole responder that comes again and again: nothing is served and nothing is
/// answered until it is over. The first one begins `every_ns` after the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// How long it lasts, in nanoseconds; below `every_ns`.
    pub length_ns: u64,
    /// From the begin of one to the begin of the next, in nanoseconds.
    pub every_ns: u64,
}

impl Stall {
    /// How much of the time from the start to `at_ns` was no stall.
    #[must_use]
    pub fn worked_ns(&self, at_ns: u64) -> u64 {
        let (round, within) = (at_ns / self.every_ns, at_ns % self.every_ns);
        match round {
            0 => at_ns,
            _ => at_ns - (round - 1) * self.length_ns - within.min(self.length_ns),
        }
    }

    /// The moment, from the start, at which `worked_ns` are done; what is not done when a stall
    /// begins is done after it.
    #[must_use]
    pub fn at_ns(&self, worked_ns: u64) -> u64 {
        match worked_ns.checked_sub(self.every_ns) {
            None => worked_ns,
            Some(beyond_ns) => {
                let stalls = 1 + beyond_ns / (self.every_ns - self.length_ns);
                worked_ns + stalls * self.length_ns
            }
        }
    }
}

/// Says when answers are due.
#[derive(Debug)]
pub(crate) struct Timing {
    begin_ns: u64,
    stall: Option<Stall>,
    sampler: Sampler,
    /// When each server is free, in worked time; `None`: there is always one.
    servers: Option<BinaryHeap<Reverse<u64>>>,
}

impl Timing {
    /// Begins at `begin_ns` of the clock, with this number of servers.
    pub(crate) fn new(
        begin_ns: u64,
        stall: Option<Stall>,
        sampler: Sampler,
        servers: Option<u32>,
    ) -> Self {
        let free = |servers| (0..servers).map(|_| Reverse(0)).collect();
        Self {
            begin_ns,
            stall,
            sampler,
            servers: servers.map(free),
        }
    }

    /// When the answer to a request that arrived at `arrived_ns` is due. Requests are given in the
    /// order in which they arrived.
    pub(crate) fn due_ns(&mut self, arrived_ns: u64) -> u64 {
        let service_ns = self.sampler.next_ns();
        let at_ns = arrived_ns.saturating_sub(self.begin_ns);
        let mut worked_ns = self.stall.map_or(at_ns, |stall| stall.worked_ns(at_ns));
        match &mut self.servers {
            None => worked_ns = worked_ns.saturating_add(service_ns),
            Some(servers) => {
                if let Some(mut free_ns) = servers.peek_mut() {
                    worked_ns = worked_ns.max(free_ns.0).saturating_add(service_ns);
                    free_ns.0 = worked_ns;
                }
            }
        }
        let due_ns = self.stall.map_or(worked_ns, |stall| stall.at_ns(worked_ns));
        self.begin_ns.saturating_add(due_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Draw, Latency};

    const STALL: Stall = Stall {
        length_ns: 2,
        every_ns: 10,
    };

    #[test]
    fn worked_time_stands_still_in_a_stall() {
        // Stalls are [10, 12), [20, 22), ...
        for (at_ns, worked_ns) in [
            (0, 0),
            (9, 9),
            (10, 10),
            (11, 10),
            (12, 10),
            (13, 11),
            (20, 18),
            (22, 18),
            (23, 19),
            (35, 29),
        ] {
            assert_eq!(STALL.worked_ns(at_ns), worked_ns, "{at_ns}");
        }
        for (worked_ns, at_ns) in [(0, 0), (9, 9), (10, 12), (11, 13), (17, 19), (18, 22)] {
            assert_eq!(STALL.at_ns(worked_ns), at_ns, "{worked_ns}");
        }
    }

    #[test]
    fn what_is_done_is_done_again_at_the_same_moment() {
        for at_ns in 0..100 {
            let is_stalled = at_ns >= 10 && at_ns % 10 < 2;
            if !is_stalled {
                assert_eq!(STALL.at_ns(STALL.worked_ns(at_ns)), at_ns);
            }
        }
    }

    fn timing(ns: u64, stall: Option<Stall>, servers: Option<u32>) -> Timing {
        let sampler = Sampler::new(Latency::Constant { ns }, Draw::Independent, 1);
        Timing::new(1000, stall, sampler, servers)
    }

    #[test]
    fn requests_queue_for_servers() {
        let due = |servers| {
            let mut timing = timing(5, None, servers);
            [1000, 1001, 1002, 1030].map(|at_ns| timing.due_ns(at_ns))
        };
        assert_eq!(due(None), [1005, 1006, 1007, 1035]);
        assert_eq!(due(Some(1)), [1005, 1010, 1015, 1035]);
        assert_eq!(due(Some(2)), [1005, 1006, 1010, 1035]);
    }

    #[test]
    fn a_stall_holds_up_the_queue_and_who_is_served() {
        let mut timing = timing(3, Some(STALL), Some(1));
        let due = [1000, 1008, 1009, 1011, 1030].map(|at_ns| timing.due_ns(at_ns));
        assert_eq!(due, [1003, 1013, 1016, 1019, 1035]);
    }
}
