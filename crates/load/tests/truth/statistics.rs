//! A little statistics: quantiles of what was seen, confidence intervals of what is correlated.

/// The value that a share `p` of the sorted values does not exceed, as HDR histograms have it.
pub(crate) fn quantile(sorted: &[u64], p: f64) -> u64 {
    let rank = (p * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// A mean and how far the true one may be from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interval {
    pub(crate) mean: f64,
    pub(crate) half: f64,
}

/// Batches of a run.
const BATCHES: usize = 30;
/// Student's t with 29 degrees of freedom, beyond which either side one in two million is. A suite
/// that runs every day with a new seed must not fail by chance.
const T: f64 = 6.2;

impl Interval {
    /// Of values in their order, which may depend on their neighbours: by batch means (A. Law,
    /// *Simulation Modeling and Analysis*, 9.5.3). The batches have to be long against the time for
    /// which a busy spell is felt.
    pub(crate) fn of(values: &[f64]) -> Self {
        let size = values.len() / BATCHES;
        let batches = values.chunks_exact(size).take(BATCHES);
        let means: Vec<f64> = batches.map(mean).collect();
        let mean = mean(&means);
        let squares = means.iter().map(|one| (one - mean).powi(2)).sum::<f64>();
        let deviation = (squares / (BATCHES - 1) as f64).sqrt();
        Self {
            mean,
            half: T * deviation / (BATCHES as f64).sqrt(),
        }
    }

    /// The half width where one batch alone is out of line, by so much that the mean is by `added`.
    pub(crate) fn half_of_outlier(added: f64) -> f64 {
        T * added
    }
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

#[test]
fn intervals_are_as_wide_as_chance() {
    // A sawtooth: each batch of 10 has the same mean, so the mean is certain.
    let values: Vec<f64> = (0..300).map(|n| f64::from(n % 10)).collect();
    let interval = Interval::of(&values);
    assert_eq!((interval.mean, interval.half), (4.5, 0.0));
    // Batch means 0, 1, 0, 1, ...: their deviation is a little above one half.
    let values: Vec<f64> = (0..300).map(|n| f64::from(n / 10 % 2)).collect();
    let interval = Interval::of(&values);
    let half = T * (0.25 * 30.0 / 29.0_f64).sqrt() / 30.0_f64.sqrt();
    assert_eq!(interval.mean, 0.5);
    assert!((interval.half - half).abs() < 1e-12);
    // All in one batch: the mean is one thirtieth of it.
    let values: Vec<f64> = (0..300).map(|n| f64::from(u8::from(n < 10))).collect();
    let half = Interval::half_of_outlier(1.0 / 30.0);
    assert!((Interval::of(&values).half - half).abs() < 1e-12);
}

#[test]
fn quantiles_are_values_that_were_seen() {
    let sorted: Vec<u64> = (1..=1000).collect();
    assert_eq!(quantile(&sorted, 0.5), 500);
    assert_eq!(quantile(&sorted, 0.999), 999);
    assert_eq!(quantile(&sorted, 1.0), 1000);
    assert_eq!(quantile(&[7], 0.0), 7);
}
