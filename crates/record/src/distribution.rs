//! A distribution of times as it stands in results: the whole histogram, and what people look for
//! in it. A percentile that is not backed by enough samples is not a number.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{
    DeserializeError, Deserializer as HdrDeserializer, Serializer as _, V2DeflateSerializeError,
    V2DeflateSerializer,
};
use loadline_base::sorting::to_map;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::latencies;

/// The samples that have to lie beyond a percentile: with fewer, it is an
/// anecdote of single requests (`10 / (1 - p)` samples in all).
pub const SAMPLES_BEYOND_MIN: f64 = 10.0;

/// The parts of a percent that are distinguished.
const PARTS_OF_A_PERCENT: f64 = 1e9;

/// Bytes of a histogram in compressed form that are taken from a file or a pipe. The largest
/// histogram of this program has fewer than 200 KB before it is compressed.
pub const COMPRESSED_BYTES_MAX: usize = 1 << 20;

/// Times of one kind. In JSON: `count`, `mean_us`, `stdev_us`, `min_us`, `max_us`, `percentiles`
/// and `histogram`; all but the last are taken from it, and not read back.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    histogram: Histogram<u64>,
}

/// The percentiles that are given in results, in percent: "p50" to "p99_99" there.
pub const PERCENTS: [f64; 7] = [50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99];

impl Default for Distribution {
    fn default() -> Self {
        Self::new(latencies())
    }
}

impl Distribution {
    /// Of a histogram in microseconds.
    #[must_use]
    pub fn new(histogram: Histogram<u64>) -> Self {
        Self { histogram }
    }

    /// Everything that was recorded, in microseconds.
    #[must_use]
    pub fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }

    /// Samples.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Mean in microseconds; `None` without a sample.
    #[must_use]
    pub fn mean_us(&self) -> Option<f64> {
        self.backed(1).then(|| self.histogram.mean())
    }

    /// Standard deviation in microseconds; `None` with fewer than two samples.
    #[must_use]
    pub fn stdev_us(&self) -> Option<f64> {
        self.backed(2).then(|| self.histogram.stdev())
    }

    /// The smallest, in microseconds.
    #[must_use]
    pub fn min_us(&self) -> Option<u64> {
        self.backed(1).then(|| self.histogram.min())
    }

    /// The largest, in microseconds (to three digits, the upper end).
    #[must_use]
    pub fn max_us(&self) -> Option<u64> {
        self.backed(1).then(|| self.histogram.max())
    }

    /// The value in microseconds below which `percent` of the samples lie; `None`: not enough
    /// samples.
    #[must_use]
    pub fn percentile_us(&self, percent: f64) -> Option<u64> {
        percentile_us(&self.histogram, percent)
    }

    fn backed(&self, count: u64) -> bool {
        self.count() >= count
    }
}

/// The value below which `percent` of the samples lie; `None`: not enough samples.
#[must_use]
pub fn percentile_us(histogram: &Histogram<u64>, percent: f64) -> Option<u64> {
    let is_backed = histogram.len() >= samples_min(percent);
    is_backed.then(|| value_at_percent(histogram, percent))
}

/// The sample of the rank that `percent` of all come to, rounded up, however few there are; 0
/// without a sample.
///
/// The rank is worked out in whole numbers: 99.9 / 100 is a little more than 0.999, and with 10,000
/// samples the next rank would be taken.
#[must_use]
pub fn value_at_percent(histogram: &Histogram<u64>, percent: f64) -> u64 {
    value_at_rank(histogram, rank(histogram.len(), percent)).unwrap_or(0)
}

/// Which of `count` samples in order a percentile is, from 1.
#[must_use]
pub fn rank(count: u64, percent: f64) -> u64 {
    let parts = (percent.clamp(0.0, 100.0) * PARTS_OF_A_PERCENT).round() as u128;
    let whole = (100.0 * PARTS_OF_A_PERCENT) as u128;
    let rank = (u128::from(count) * parts).div_ceil(whole).max(1);
    u64::try_from(rank).unwrap_or(u64::MAX)
}

/// The sample of a rank, from 1; `None`: there are fewer.
#[must_use]
pub fn value_at_rank(histogram: &Histogram<u64>, rank: u64) -> Option<u64> {
    let count = histogram.len();
    // From the middle below the rank, the histogram's own rounding up leads to it.
    let quantile = (rank as f64 - 0.5) / count as f64;
    (rank <= count).then(|| histogram.value_at_quantile(quantile))
}

/// How many samples a percentile needs: `10 / (1 - p)`.
#[must_use]
pub fn samples_min(percent: f64) -> u64 {
    let beyond = (1.0 - percent / 100.0).max(f64::EPSILON);
    // Rounded to the nearest: 1 - 0.999 is not exactly a thousandth.
    (SAMPLES_BEYOND_MIN / beyond).round() as u64
}

/// Why a histogram is not taken in or handed out.
#[derive(Debug, Error)]
pub enum HistogramError {
    /// A count beyond 2^63, which no run reaches.
    #[error("a histogram cannot be compressed: {0}")]
    Compress(#[from] V2DeflateSerializeError),
    /// Longer than [`COMPRESSED_BYTES_MAX`].
    #[error("a histogram of {0} bytes: more than {COMPRESSED_BYTES_MAX}")]
    TooLong(usize),
    /// Not the compressed form.
    #[error("not a compressed histogram: {0}")]
    Decompress(#[from] DeserializeError),
    /// Not the text form.
    #[error("not base64: {0}")]
    Base64(#[from] base64::DecodeError),
}

/// A histogram in compressed form (V2, deflate).
///
/// # Errors
/// [`HistogramError::Compress`].
pub fn compressed(histogram: &Histogram<u64>) -> Result<Vec<u8>, HistogramError> {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(histogram, &mut bytes)?;
    Ok(bytes)
}

/// Back from the compressed form.
///
/// # Errors
/// It is not one, or too long.
pub fn decompressed(bytes: &[u8]) -> Result<Histogram<u64>, HistogramError> {
    match bytes.len() {
        0..=COMPRESSED_BYTES_MAX => Ok(HdrDeserializer::new().deserialize(&mut &bytes[..])?),
        len => Err(HistogramError::TooLong(len)),
    }
}

/// As text.
///
/// # Errors
/// As [`compressed`].
pub fn to_text(histogram: &Histogram<u64>) -> Result<String, HistogramError> {
    Ok(STANDARD.encode(compressed(histogram)?))
}

/// Back from text.
///
/// # Errors
/// Not base64, or as [`decompressed`].
pub fn from_text(text: &str) -> Result<Histogram<u64>, HistogramError> {
    decompressed(&STANDARD.decode(text)?)
}

#[derive(Serialize)]
struct Written {
    count: u64,
    mean_us: Option<f64>,
    stdev_us: Option<f64>,
    min_us: Option<u64>,
    max_us: Option<u64>,
    /// Null: not enough samples.
    percentiles: BTreeMap<String, Option<u64>>,
    histogram: String,
}

#[derive(Deserialize)]
struct Read {
    histogram: String,
}

impl Serialize for Distribution {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let written = Written {
            count: self.count(),
            mean_us: self.mean_us(),
            stdev_us: self.stdev_us(),
            min_us: self.min_us(),
            max_us: self.max_us(),
            percentiles: to_map(PERCENTS.map(|percent| {
                let name = format!("p{percent}").replace('.', "_");
                (name, self.percentile_us(percent))
            })),
            histogram: to_text(&self.histogram).map_err(serde::ser::Error::custom)?,
        };
        written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Distribution {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = Read::deserialize(deserializer)?;
        from_text(&read.histogram)
            .map(Self::new)
            .map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against the sorted samples; values that the histogram keeps exactly.
        #[test]
        fn a_percentile_is_the_sample_of_its_rank(
            samples in prop::collection::vec(1_u64..1_000, 1..300),
            times in prop_oneof![Just(1_u64), 1..500_u64, Just(1_000)],
            percent in prop_oneof![
                prop::sample::select(&[50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99, 99.999][..]),
                (0_u32..=100_000).prop_map(|thousandths| f64::from(thousandths) / 1000.0),
            ],
        ) {
            let mut histogram = latencies();
            for sample in &samples {
                histogram.saturating_record_n(*sample, times);
            }
            let mut sorted = samples;
            sorted.sort_unstable();
            // In whole thousandths of a percent, which all of these are.
            let thousandths = (percent * 1000.0).round() as u64;
            let rank = (sorted.len() as u64 * times * thousandths).div_ceil(100_000).max(1);
            let right = sorted[((rank - 1) / times) as usize];
            prop_assert_eq!(value_at_percent(&histogram, percent), right);
        }
    }

    #[test]
    fn the_last_ten_of_ten_thousand_are_beyond_p99_9() {
        let mut histogram = latencies();
        histogram.saturating_record_n(7, 9_990);
        histogram.saturating_record_n(900, 10);
        assert_eq!(percentile_us(&histogram, 99.9), Some(7));
        assert_eq!(value_at_percent(&latencies(), 99.9), 0);
    }

    #[test]
    fn a_percentile_needs_ten_samples_beyond_it() {
        let needed = PERCENTS.map(samples_min);
        assert_eq!(needed, [20, 40, 100, 200, 1_000, 10_000, 100_000]);
        for (percent, samples) in PERCENTS.into_iter().zip(needed) {
            let mut histogram = latencies();
            histogram.saturating_record_n(7, samples - 1);
            assert_eq!(percentile_us(&histogram, percent), None);
            histogram.saturating_record(7);
            assert_eq!(percentile_us(&histogram, percent), Some(7));
        }
    }

    #[test]
    fn what_is_read_is_what_was_written() {
        let mut histogram = latencies();
        (1..=1000).for_each(|us| histogram.saturating_record(us));
        let written = Distribution::new(histogram);
        let text = serde_json::to_string(&written).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["count"], 1000);
        assert_eq!(json["percentiles"]["p99"], 990);
        assert_eq!(json["percentiles"]["p99_9"], serde_json::Value::Null);
        assert_eq!(json["mean_us"], 500.5);
        assert_eq!(
            serde_json::from_str::<Distribution>(&text).unwrap(),
            written
        );
    }

    #[test]
    fn of_nothing_there_is_no_figure() {
        let none = Distribution::default();
        assert_eq!((none.mean_us(), none.stdev_us()), (None, None));
        assert_eq!((none.min_us(), none.max_us()), (None, None));
        assert_eq!(none.percentile_us(50.0), None);
    }

    #[test]
    fn what_is_no_histogram_is_refused() {
        let why = |error: HistogramError| error.to_string();
        assert!(why(from_text("no base64!").unwrap_err()).contains("base64"));
        assert!(why(from_text("aGVsbG8=").unwrap_err()).contains("histogram"));
        let long = vec![0; COMPRESSED_BYTES_MAX + 1];
        assert!(why(decompressed(&long).unwrap_err()).contains("more than"));
    }
}
