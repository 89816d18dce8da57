//! Bytes by the clock: a number a second, in portions of a tenth of that, or of one byte.
//!
//! Portions follow a grid from the begin on, so that the rate does not drift by late wake-ups. What
//! was not used (because the other end was slower) may be made up for by one portion, not more.

/// A rate and how much of it was used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    bytes_per_second: u64,
    /// Moved later when more was left unused than may be made up for.
    begin_ns: u64,
    used_bytes: u64,
}

const NS_PER_S: u128 = 1_000_000_000;

impl Pace {
    /// From `now_ns` on; a portion is allowed at once. At least one byte per second.
    pub(crate) fn new(bytes_per_second: u64, now_ns: u64) -> Self {
        let bytes_per_second = bytes_per_second.clamp(1, 1 << 40);
        let mut pace = Self {
            bytes_per_second,
            begin_ns: 0,
            used_bytes: 0,
        };
        let portion_ns = pace.worth_ns(pace.portion());
        pace.begin_ns = now_ns.saturating_sub(portion_ns);
        pace
    }

    /// What moves at once.
    fn portion(&self) -> u64 {
        (self.bytes_per_second / 10).max(1)
    }

    /// How long `bytes` take, rounded up.
    fn worth_ns(&self, bytes: u64) -> u64 {
        let ns = (u128::from(bytes) * NS_PER_S).div_ceil(u128::from(self.bytes_per_second));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// Bytes that may move now; 0 until a whole portion may.
    pub(crate) fn allowed(&mut self, now_ns: u64) -> u64 {
        let for_ns = u128::from(now_ns.saturating_sub(self.begin_ns));
        let earned = for_ns * u128::from(self.bytes_per_second) / NS_PER_S;
        let earned = u64::try_from(earned).unwrap_or(u64::MAX);
        let unused = earned.saturating_sub(self.used_bytes);
        let most = 2 * self.portion();
        if unused > most {
            let forgiven_ns = self.worth_ns(unused - most);
            self.begin_ns = self.begin_ns.saturating_add(forgiven_ns);
            return most;
        }
        match unused >= self.portion() {
            true => unused,
            false => 0,
        }
    }

    /// `bytes` moved.
    pub(crate) fn used(&mut self, bytes: u64) {
        self.used_bytes += bytes;
    }

    /// When the next portion may move.
    pub(crate) fn next_ns(&self) -> u64 {
        let bytes = self.used_bytes.saturating_add(self.portion());
        self.begin_ns.saturating_add(self.worth_ns(bytes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// Uses all that is allowed, waking late by what `late_ns` says.
    fn moved(bytes_per_second: u64, seconds: u64, mut late_ns: impl FnMut() -> u64) -> u64 {
        let (mut now_ns, mut bytes) = (7 * SECOND_NS, 0);
        let end_ns = now_ns + seconds * SECOND_NS;
        let mut pace = Pace::new(bytes_per_second, now_ns);
        while now_ns < end_ns {
            let allowed = pace.allowed(now_ns);
            pace.used(allowed);
            bytes += allowed;
            now_ns = pace.next_ns().max(now_ns) + late_ns();
        }
        bytes
    }

    #[test]
    fn slow_rates_move_byte_by_byte() {
        assert_eq!(moved(1, 5, || 0), 5);
        assert_eq!(moved(3, 4, || 0), 12);
    }

    #[test]
    fn what_was_left_unused_is_forgiven_but_for_one_portion() {
        let mut pace = Pace::new(1000, 0);
        let first = pace.allowed(0);
        pace.used(first);
        assert_eq!(pace.allowed(100 * SECOND_NS), 200);
        pace.used(200);
        assert_eq!(pace.allowed(100 * SECOND_NS), 0);
        assert_eq!(pace.next_ns(), 100 * SECOND_NS + 100_000_000);
    }

    proptest! {
        /// However late it wakes (by less than a portion), the rate is kept.
        #[test]
        fn late_wake_ups_do_not_slow_it(rate in 1_u64..10_000_000, late_ns in prop::collection::vec(0_u64..90_000_000, 1..20)) {
            let mut late = late_ns.iter().cycle();
            let bytes = moved(rate, 10, || late.next().copied().unwrap_or(0));
            let portion = (rate / 10).max(1);
            prop_assert!(bytes.abs_diff(10 * rate) <= 2 * portion, "{bytes} of {}", 10 * rate);
        }

        /// Never more than the rate and two portions.
        #[test]
        fn it_is_a_bound(rate in 1_u64..1_000_000, waits_ns in prop::collection::vec(0_u64..2_000_000_000, 1..50)) {
            let mut pace = Pace::new(rate, 0);
            let (mut now_ns, mut bytes) = (0, 0);
            for wait_ns in waits_ns {
                now_ns += wait_ns;
                let allowed = pace.allowed(now_ns);
                pace.used(allowed);
                bytes += allowed;
                let earned = u128::from(rate) * u128::from(now_ns) / NS_PER_S;
                prop_assert!(u128::from(bytes) <= earned + 2 * u128::from((rate / 10).max(1)) + 1);
            }
        }
    }
}
