//! What a client may do that costs the server something and brings nobody anything: resets, settings,
//! priorities, empty frames. Pings are bounded by the output: clients of gRPC send one each round trip.

use loadline_base::Millis;

/// So many at once: a browser that leaves a page resets all of its streams.
const AT_ONCE: u64 = 500;
/// So many a second later on.
const PER_S: u64 = 50;

/// Counts down, and comes back with time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    left: u64,
    /// Until when time was counted.
    at: Millis,
}

impl Budget {
    pub(super) fn new(now: Millis) -> Self {
        Self {
            left: AT_ONCE,
            at: now,
        }
    }

    /// One more; `false`: that was too much.
    pub(super) fn spend(&mut self, now: Millis) -> bool {
        let more = now.since(self.at) * PER_S / 1000;
        if more > 0 {
            self.left = (self.left + more).min(AT_ONCE);
            self.at = now;
        }
        let is_enough = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_spent_and_comes_back() {
        let mut budget = Budget::new(Millis(1_000));
        assert!((0..AT_ONCE).all(|_| budget.spend(Millis(1_000))));
        assert!(!budget.spend(Millis(1_010)));
        assert!(budget.spend(Millis(1_020)), "one in 20 ms");
        assert!(!budget.spend(Millis(1_020)));
        let later = Millis(1_000_000);
        assert!((0..AT_ONCE).all(|_| budget.spend(later)));
        assert!(!budget.spend(later));
    }
}
