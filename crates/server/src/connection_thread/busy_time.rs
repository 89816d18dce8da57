//! How long a thread was busy with connections.

use crate::fairness::lanes::Lane;

/// How long a thread was busy with connections, without what it waited for them. Times in which it refused their
/// requests say nothing of others, and do not count.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BusyTime {
    /// Times that it had something to do.
    pub(crate) periods: u64,
    pub(crate) us: u64,
    /// It has waited for its client since the last one, and nothing else was to be done.
    pub(crate) has_rested: bool,
    /// Of them, those that began before a handshake.
    handshake_periods: u64,
    pub(crate) handshake_us: u64,
}

impl BusyTime {
    /// It had something to do for so long, which began before a handshake or behind one.
    pub(super) fn add(&mut self, us: u64, is_before_handshake: bool) {
        self.periods += 1;
        self.us += us;
        self.has_rested = false;
        if is_before_handshake {
            self.handshake_periods += 1;
            self.handshake_us += us;
        }
    }

    /// It has nothing to do, and nothing else waits for the thread.
    pub(super) fn rests(&mut self) {
        self.has_rested = true;
    }

    /// Of a connection that was taken from this lane: what counts for that.
    pub(crate) fn of(self, lane: Lane) -> u64 {
        match lane {
            Lane::Handshakes => self.handshake_us,
            Lane::Files | Lane::Apps => self.us,
        }
    }

    /// Periods that came behind a handshake, and how long they were.
    pub(crate) fn behind_handshake(self) -> (u64, u64) {
        let periods = self.periods.saturating_sub(self.handshake_periods);
        (periods, self.us.saturating_sub(self.handshake_us))
    }
}
