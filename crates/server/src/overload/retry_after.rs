//! When clients that were refused are to come back (`Retry-After`, RFC 9110 section 10.2.3).

/// The times over which they are spread.
const SPREAD_MIN_S: u64 = 2;
const SPREAD_MAX_S: u64 = 60;

/// Spreads clients over as much time as the server needs for them, so that they do not come back
/// together.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetryAfter {
    /// When the current second of counting began.
    since_us: u64,
    refused: u64,
    /// In the second before.
    refused_before: u64,
    random: u64,
}

impl RetryAfter {
    pub(super) fn new() -> Self {
        Self {
            since_us: 0,
            refused: 0,
            refused_before: 0,
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// One more is refused by a server that would need `service_us` for it, all its workers together.
    /// In seconds.
    pub(super) fn next_s(&mut self, now_us: u64, service_us: u64) -> u32 {
        let passed_us = now_us.saturating_sub(self.since_us);
        if passed_us >= 1_000_000 {
            self.refused_before = match passed_us < 2_000_000 {
                true => self.refused,
                false => 0,
            };
            self.refused = 0;
            self.since_us = now_us;
        }
        self.refused += 1;
        let refused = self.refused.max(self.refused_before);
        let needed_us = refused.saturating_mul(service_us);
        let spread_s = needed_us
            .div_ceil(1_000_000)
            .clamp(SPREAD_MIN_S, SPREAD_MAX_S);
        u32::try_from(1 + self.draw(now_us) % spread_s).unwrap_or(1)
    }

    /// Xorshift* (Marsaglia, Vigna): nobody gains by guessing it. The time is mixed in, since there may be one of these
    /// for each connection, and all begin alike.
    fn draw(&mut self, now_us: u64) -> u64 {
        self.random = (self.random ^ now_us).max(1);
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_come_back_soon_and_many_are_spread_over_the_time_that_they_need() {
        let mut retry = RetryAfter::new();
        for index in 0..10 {
            let after_s = retry.next_s(index * 100_000, 5_000);
            assert!((1..=2).contains(&after_s), "{after_s}");
        }
        let mut seen = [0; 8];
        for index in 0..4_000_u64 {
            // 1000 a second of 5 ms each: five seconds of work
            let after_s = retry.next_s(2_000_000 + index * 1000, 5_000);
            if index >= 2_000 {
                seen[after_s as usize] += 1;
            }
        }
        assert_eq!((seen[0], seen[6], seen[7]), (0, 0, 0), "{seen:?}");
        assert!(seen[1..=5].iter().all(|count| *count > 300), "{seen:?}");
        let after_s = retry.next_s(90_000_000, 5_000);
        assert!((1..=2).contains(&after_s), "long after: {after_s}");
    }

    /// As of 100 connections over HTTP/2. All of them came back in the same second.
    #[test]
    fn clients_are_spread_where_each_has_a_state_of_its_own() {
        for (service_us, bound_s) in [(5_000, 2), (5_000_000, 5)] {
            let mut seen = [0; 7];
            for index in 0..100 {
                let after_s = RetryAfter::new().next_s(1_000_000 + index, service_us);
                seen[after_s as usize] += 1;
            }
            assert_eq!((seen[0], seen[bound_s + 1]), (0, 0), "{seen:?}");
            let is_spread = seen[1..=bound_s].iter().all(|count| *count >= 10);
            assert!(is_spread, "{seen:?}");
        }
    }
}
