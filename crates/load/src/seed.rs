//! From one seed to independent generators: one for each purpose and each share of the load.
//!
//! The generator is PCG XSL 128/64 (MCG) of `rand_pcg`, <https://www.pcg-random.org/>, whose
//! sequence is documented; its state is two outputs of SplitMix64. So a seed repeats a run, on every
//! machine and with every later version that keeps these constants.

use rand::Rng;
use rand_pcg::Pcg64Mcg;

use crate::Share;

/// What a generator is for: the same seed gives different numbers for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// When requests are due.
    Arrivals = 1,
    /// Which request comes next.
    Choices = 2,
    /// What users with a scenario do; the share stands for the user.
    Users = 3,
    /// How long a request waits before it is tried again.
    Retries = 4,
}

/// The generator of one share for one purpose.
#[must_use]
pub fn generator(seed: u64, purpose: Purpose, share: Share) -> Pcg64Mcg {
    let share = u64::from(share.of) << 32 | u64::from(share.index);
    let stream = mixed(mixed(mixed(seed) ^ purpose as u64) ^ share);
    let (high, low) = (mixed(stream), mixed(stream ^ GAMMA));
    Pcg64Mcg::new(u128::from(high) << 64 | u128::from(low))
}

/// A number in (0, 1], so that its logarithm is finite.
#[inline]
pub(crate) fn unit_above_zero(generator: &mut Pcg64Mcg) -> f64 {
    const STEP: f64 = 1.0 / (1_u64 << 53) as f64;
    ((generator.next_u64() >> 11) + 1) as f64 * STEP
}

/// The step of SplitMix64: 2^64 divided by the golden ratio.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// One step of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
/// 2014) from `state`.
#[must_use]
pub fn mixed(state: u64) -> u64 {
    let mut z = state.wrapping_add(GAMMA);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn splitmix_as_published() {
        // The first outputs of the reference implementation for the seed 1234567.
        assert_eq!(mixed(1_234_567), 6_457_827_717_110_365_317);
        assert_eq!(
            mixed(1_234_567_u64.wrapping_add(GAMMA)),
            3_203_168_211_198_807_973
        );
    }

    #[test]
    fn every_share_and_purpose_has_numbers_of_its_own() {
        let mut seen = HashSet::new();
        for seed in [0, 1, u64::MAX] {
            for purpose in [Purpose::Arrivals, Purpose::Choices] {
                for (index, of) in [(0, 1), (0, 2), (1, 2), (7, 100)] {
                    let share = Share { index, of };
                    let mut first = generator(seed, purpose, share);
                    let mut again = generator(seed, purpose, share);
                    let number = first.next_u64();
                    assert_eq!(number, again.next_u64());
                    assert!(seen.insert(number));
                }
            }
        }
    }
}
