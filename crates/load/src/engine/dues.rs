//! When requests of an open loop are due, and how fast a thread that was held up may catch up.

use std::sync::Arc;

use crate::Share;
use crate::pacer::Pacer;

/// Due times of one thread, on the monotonic clock, never decreasing. A clone goes on from where
/// the original is.
#[derive(Clone, Debug)]
pub(super) struct Dues {
    source: Source,
    start_ns: u64,
    /// Requests that may still be taken.
    left: u64,
    /// The next one; `u64::MAX`: there is none.
    next_ns: u64,
}

#[derive(Clone, Debug)]
enum Source {
    Paced(Pacer),
    Listed {
        due_ns: Arc<[u64]>,
        at: usize,
        step: usize,
    },
}

impl Dues {
    /// As the pacer has it, at most `count_max` of them.
    pub(super) fn paced(pacer: Pacer, count_max: u64) -> Self {
        Self::new(Source::Paced(pacer), count_max)
    }

    /// The share's lines of a log, at most `count_max` of them.
    pub(super) fn listed(due_ns: Arc<[u64]>, share: Share, count_max: u64) -> Self {
        let source = Source::Listed {
            due_ns,
            at: share.index as usize,
            step: share.of.max(1) as usize,
        };
        Self::new(source, count_max)
    }

    fn new(source: Source, count_max: u64) -> Self {
        Self {
            source,
            start_ns: 0,
            left: count_max,
            next_ns: u64::MAX,
        }
    }

    /// The run starts.
    pub(super) fn start(&mut self, start_ns: u64) {
        self.start_ns = start_ns;
        self.look_ahead();
    }

    /// Takes the next one.
    #[inline]
    pub(super) fn pop(&mut self) {
        self.left = self.left.saturating_sub(1);
        match &mut self.source {
            Source::Paced(pacer) => {
                let _ = pacer.next(); // looked at already
            }
            Source::Listed { at, step, .. } => *at = at.saturating_add(*step),
        }
        self.look_ahead();
    }

    /// When the next one is due; `u64::MAX`: none is.
    #[inline]
    pub(super) fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Whether all that were allowed have been taken.
    pub(super) fn is_exhausted(&self) -> bool {
        self.next_ns == u64::MAX
    }

    #[inline]
    fn look_ahead(&mut self) {
        let next = match &self.source {
            _ if self.left == 0 => None,
            Source::Paced(pacer) => pacer.peek(),
            Source::Listed { due_ns, at, .. } => due_ns.get(*at).copied(),
        };
        self.next_ns = next.map_or(u64::MAX, |ns| self.start_ns.saturating_add(ns));
    }
}

/// Lateness up to which a thread is on time: timers and turns are no more exact than that, and
/// Poisson arrivals come in bunches.
const LATE_NS_MIN: u64 = 10_000_000;
/// What may be sent at once while catching up, as time at the allowed rate: timers are no finer.
const BURST_NS: u64 = 1_000_000;

/// Keeps a thread that is behind its schedule from sending a storm: at most twice its part of the
/// rate that is scheduled at the moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Throttle {
    allowed_ns: u64,
    /// Threads that carry the schedule together.
    shares: f64,
}

impl Throttle {
    /// Nothing has been sent late yet, by a thread that carries `share` of the schedule.
    pub(super) fn new(share: Share) -> Self {
        Self {
            allowed_ns: 0,
            shares: f64::from(share.of.max(1)),
        }
    }

    /// Whether a request that was due at `due_ns` is so late that it has to be throttled.
    #[inline]
    pub(super) fn concerns(due_ns: u64, now_ns: u64) -> bool {
        now_ns.saturating_sub(due_ns) > LATE_NS_MIN
    }

    /// Allows a late request at `now_ns`, or says from when on it is allowed. `rate`: what is
    /// scheduled now for all threads together, in requests per second.
    pub(super) fn ask(&mut self, now_ns: u64, rate: f64) -> Result<(), u64> {
        if now_ns < self.allowed_ns {
            return Err(self.allowed_ns);
        }
        // Where nothing is scheduled any more, what is late is sent as it comes.
        let gap_ns = match rate > 0.0 {
            true => (1e9 * self.shares / (2.0 * rate)) as u64,
            false => 0,
        };
        let from_ns = self.allowed_ns.max(now_ns.saturating_sub(BURST_NS));
        self.allowed_ns = from_ns.saturating_add(gap_ns);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(dues: &mut Dues) -> Vec<u64> {
        let mut taken = Vec::new();
        while !dues.is_exhausted() {
            taken.push(dues.next_ns());
            dues.pop();
        }
        taken
    }

    #[test]
    fn shares_of_a_log_take_turns() {
        let due_ns: Arc<[u64]> = Arc::new([1, 2, 3, 4, 5]);
        let share = |index| Share { index, of: 2 };
        let mut first = Dues::listed(Arc::clone(&due_ns), share(0), u64::MAX);
        let mut second = Dues::listed(Arc::clone(&due_ns), share(1), u64::MAX);
        let mut bounded = Dues::listed(due_ns, share(0), 2);
        for dues in [&mut first, &mut second, &mut bounded] {
            assert!(dues.is_exhausted());
            dues.start(100);
        }
        assert_eq!(taken(&mut first), [101, 103, 105]);
        assert_eq!(taken(&mut second), [102, 104]);
        assert_eq!(taken(&mut bounded), [101, 103]);
    }

    #[test]
    fn who_is_behind_catches_up_at_twice_the_rate() {
        assert!(!Throttle::concerns(5, 5));
        assert!(!Throttle::concerns(50, 5));
        assert!(Throttle::concerns(0, 10_000_001));
        let sent = sent_in_a_second(Share::WHOLE);
        assert!((1990..=2003).contains(&sent), "{sent}");
    }

    #[test]
    fn threads_that_are_behind_catch_up_at_twice_the_rate_together() {
        let sent: u32 = (0..4)
            .map(|index| sent_in_a_second(Share { index, of: 4 }))
            .sum();
        assert!((1960..=2012).contains(&sent), "{sent}");
    }

    /// At 1000 requests a second scheduled, by a thread that is behind all the time.
    fn sent_in_a_second(share: Share) -> u32 {
        let (mut throttle, rate, begin_ns) = (Throttle::new(share), 1000.0, 1 << 40);
        let (mut now_ns, mut sent) = (begin_ns, 0);
        while now_ns < begin_ns + 1_000_000_000 {
            match throttle.ask(now_ns, rate) {
                Ok(()) => sent += 1,
                Err(at_ns) => {
                    assert!(at_ns > now_ns);
                    now_ns = at_ns + 70_000; // as late as timers are
                }
            }
        }
        sent
    }

    #[test]
    fn where_nothing_is_scheduled_the_rest_goes_out() {
        let mut throttle = Throttle::new(Share::WHOLE);
        for now_ns in [5, 5, 6] {
            assert_eq!(throttle.ask(now_ns, 0.0), Ok(()));
        }
    }
}
