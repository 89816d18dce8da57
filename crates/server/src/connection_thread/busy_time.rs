//! How long a thread was busy with connections.

use crate::fairness::lanes::Lane;

/// How long a thread was busy with connections, without what it waited for them. Times in which it refused their
/// requests say nothing of others, and do not count. Nor do slow apps of HTTP/1, which have a lane of their own while
/// jobs wait.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BusyTime {
    /// Times that it had something to do.
    pub(crate) periods: u64,
    pub(crate) us: u64,
    /// Of that, the last part: since it waited for its client, while nothing else was to be done.
    since_rest_us: u64,
    /// It has waited for its client since the last one, and nothing else was to be done.
    pub(crate) has_rested: bool,
    /// Of them, those that began before a handshake.
    handshake_periods: u64,
    pub(crate) handshake_us: u64,
    /// Times that it has waited for its client in this way.
    pub(crate) rests: u64,
}

impl BusyTime {
    /// It had something to do for so long, which began before a handshake or behind one.
    pub(super) fn add(&mut self, us: u64, is_before_handshake: bool) {
        self.periods += 1;
        self.us += us;
        if std::mem::take(&mut self.has_rested) {
            self.since_rest_us = 0;
        }
        self.since_rest_us += us;
        if is_before_handshake {
            self.handshake_periods += 1;
            self.handshake_us += us;
        }
    }

    /// It has nothing to do, and nothing else waits for the thread.
    pub(super) fn rests(&mut self) {
        self.has_rested = true;
        self.rests += 1;
    }

    /// Of a connection that was taken from this lane: what counts for that and for its client. What came before the
    /// thread rested kept nobody from being served.
    pub(crate) fn of(self, lane: Lane) -> u64 {
        match lane {
            Lane::Handshakes => self.handshake_us,
            Lane::Files | Lane::Apps => self.since_rest_us,
        }
    }

    /// Periods that came behind a handshake, and how long they were.
    pub(crate) fn behind_handshake(self) -> (u64, u64) {
        let periods = self.periods.saturating_sub(self.handshake_periods);
        (periods, self.us.saturating_sub(self.handshake_us))
    }
}

/// How long requests keep their thread busy. What it does until a response begins is for that one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ServiceTime {
    served: u64,
    refused: u64,
    us: u64,
    /// Of what is added next, how long requests have waited until they could begin.
    waited_us: u64,
}

impl ServiceTime {
    /// Of a thread that has served and refused so many requests before.
    pub(super) fn new(served: u64, refused: u64) -> Self {
        Self {
            served,
            refused,
            ..Self::default()
        }
    }

    /// A request has waited for so long until it could begin, on its thread.
    pub(super) fn waited(&mut self, us: u64) {
        self.waited_us += us;
    }

    /// The thread was busy for so long, and has served and refused so many requests by then. Returns how long it was
    /// busy for those that have come to the others; `None`: there are none.
    pub(super) fn add(&mut self, us: u64, served: u64, refused: u64) -> Option<u64> {
        self.us += us.saturating_sub(std::mem::take(&mut self.waited_us));
        let (has_served, has_refused) = (served > self.served, refused > self.refused);
        (self.served, self.refused) = (served, refused);
        if !has_served && !has_refused {
            return None;
        }
        let us = std::mem::take(&mut self.us);
        has_served.then_some(us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_takes_what_its_thread_does_until_the_response_begins() {
        let mut service = ServiceTime::new(7, 2);
        assert_eq!(service.add(300, 7, 2), None, "content comes slowly");
        assert_eq!(service.add(40, 8, 2), Some(340));
        assert_eq!(service.add(5, 10, 2), Some(5), "two at once");
        assert_eq!(service.add(6, 9, 2), None);
    }

    /// What a request had waited in vain counted for the next one of its connection.
    #[test]
    fn refusals_and_waits_until_a_request_can_begin_are_no_service() {
        let mut service = ServiceTime::new(7, 2);
        assert_eq!(service.add(900, 7, 3), None, "refused");
        service.waited(30);
        assert_eq!(service.add(40, 8, 3), Some(10));
        assert_eq!(service.add(40, 9, 3), Some(40));
    }

    /// All that a connection had taken in the hours for which a thread kept it was charged to its client at once:
    /// others with jobs came first until they had had as much.
    #[test]
    fn what_came_before_the_thread_rested_is_not_held_against_the_client() {
        let mut busy = BusyTime::default();
        for _ in 0..1_000 {
            busy.add(10_000, false);
            busy.rests();
        }
        assert_eq!(busy.of(Lane::Files), 10_000);
        busy.add(3_000, false);
        busy.add(4_000, false); // others waited by then
        assert_eq!(busy.of(Lane::Files), 7_000);
        assert_eq!((busy.periods, busy.us), (1_002, 10_007_000));
    }

    #[test]
    fn a_handshake_counts_for_its_lane_whenever_it_was() {
        let mut busy = BusyTime::default();
        busy.add(500, true);
        busy.rests();
        busy.add(10_000, false);
        assert_eq!(busy.of(Lane::Handshakes), 500);
        assert_eq!(busy.behind_handshake(), (1, 10_000));
    }
}
