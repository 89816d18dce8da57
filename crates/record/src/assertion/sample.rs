//! The times that a condition is about, with the requests that have none.

use hdrhistogram::Histogram;

use super::{Statistic, Times};
use crate::distribution::{rank, value_at_rank};
use crate::report::number::{count, percent as share};
use crate::{Distribution, Results, TrialRecord, latencies};

/// Of all threads together.
fn lag(record: &TrialRecord) -> Histogram<u64> {
    let mut merged = latencies();
    for thread in &record.threads {
        for bucket in thread.lag.histogram().iter_recorded() {
            merged.saturating_record_n(bucket.value_iterated_to(), bucket.count_at_value());
        }
    }
    merged
}

/// Why there is no number to compare.
pub(super) struct Lack {
    pub(super) why: String,
    pub(super) is_known: bool,
}

impl Lack {
    pub(super) fn of(why: String) -> Self {
        let is_known = true;
        Self { why, is_known }
    }
}

/// Times of complete answers, and the requests that had none.
pub(super) struct Sample {
    pub(super) times: Histogram<u64>,
    /// Requests without a complete answer: each took longer than any of the times.
    pub(super) missing: u64,
    /// What these requests were.
    stage: &'static str,
}

impl Sample {
    pub(super) fn of(times: Times, record: &TrialRecord, results: &Results) -> Self {
        let tally = &results.tally;
        let of = |times: &Distribution| times.histogram().clone();
        let attempts = tally.sent + tally.retries; // each has its times
        let (times, all, stage) = match times {
            Times::Latency => (of(&results.latency), tally.offered, "due"),
            Times::Service => (of(&results.service), attempts, "sent"),
            Times::FirstByte => (of(&results.first_byte), attempts, "sent"),
            // Of what was sent, answered or not; and of what was done, whatever was not.
            Times::Lag => (lag(record), 0, "sent"),
            Times::Connect => (of(&results.connect), 0, "sent"),
            Times::Handshake => (of(&results.handshake), 0, "sent"),
        };
        Self {
            missing: all.saturating_sub(times.len()),
            times,
            stage,
        }
    }

    pub(super) fn statistic(&self, which: Statistic) -> Result<(f64, String), Lack> {
        let samples = match which {
            Statistic::Percentile(_) => self.times.len() + self.missing,
            _ => self.times.len(),
        };
        let needed = which.samples_min();
        if samples < needed {
            return Err(Lack {
                why: format!(
                    "not enough samples: {} of the {} that are needed",
                    count(samples),
                    count(needed)
                ),
                is_known: false,
            });
        }
        let value = match which {
            Statistic::Percentile(percent) => {
                let value = value_at_rank(&self.times, rank(samples, percent));
                let value = value.ok_or_else(|| {
                    let without = self.without_answer();
                    Lack::of(format!("p{percent} was no response in time: {without}"))
                })?;
                return Ok((value as f64, String::new()));
            }
            Statistic::Mean => self.times.mean(),
            Statistic::Stdev => self.times.stdev(),
            Statistic::Min => self.times.min() as f64,
            Statistic::Max => self.times.max() as f64,
        };
        let remark = match self.missing {
            0 => String::new(),
            _ => format!(", of complete responses: {}", self.without_answer()),
        };
        Ok((value, remark))
    }

    fn without_answer(&self) -> String {
        let all = self.times.len() + self.missing;
        format!(
            "{} of the {} requests {} ({}) never got one",
            count(self.missing),
            count(all),
            self.stage,
            share(self.missing as f64, all as f64)
        )
    }
}
