//! What is added up of one group of clients: by phase, and by second.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use loadline_record::distribution::{Distribution, compressed, decompressed};
use loadline_record::{Rates, Results, SecondBlobs, SecondRecord, Tally, latencies};

use crate::Interval;

/// Seconds of a run with figures of their own, two weeks; what comes later counts in the last of them.
pub(super) const SECONDS_MAX: u32 = 14 * 24 * 3600;

/// Seconds that are kept open at the end of the series, since threads and processes report at
/// slightly different times. Older ones are compressed, and opened again if something comes.
const OPEN_SECONDS: u32 = 3;

/// A histogram that takes its 170 KB only when there is something in it.
#[derive(Clone, Debug, Default)]
struct Times(Option<Box<Histogram<u64>>>);

impl Times {
    fn add(&mut self, other: &Histogram<u64>) {
        if other.is_empty() {
            return;
        }
        let sum = self.0.get_or_insert_with(|| Box::new(latencies()));
        let _ = sum.add(other); // of the same bounds
    }

    fn merge(&mut self, other: &Self) {
        if let Some(other) = &other.0 {
            self.add(other);
        }
    }

    fn into_distribution(self) -> Distribution {
        self.0
            .map_or_else(Distribution::default, |sum| Distribution::new(*sum))
    }
}

/// One group in one phase.
#[derive(Clone, Debug, Default)]
pub(super) struct PhaseSums {
    /// Of what was due in it.
    pub(super) tally: Tally,
    pub(super) after_end: Tally,
    latency: Times,
    service: Times,
    first_byte: Times,
    connect: Times,
    handshake: Times,
    failure: Times,
    /// Of what happened in it.
    during: Tally,
    in_flight_ns: u128,
}

impl PhaseSums {
    /// Adds what was due in this phase.
    pub(super) fn due(&mut self, interval: &Interval) {
        self.tally.merge(&interval.tally);
        if interval.after_end {
            self.after_end.merge(&interval.tally);
        }
        self.latency.add(&interval.latency);
        self.service.add(&interval.service);
        self.first_byte.add(&interval.first_byte);
        self.connect.add(&interval.connect);
        self.handshake.add(&interval.handshake);
        self.failure.add(&interval.failure);
    }

    /// Adds what happened in this phase.
    pub(super) fn add_during(&mut self, interval: &Interval) {
        if !interval.after_end {
            self.during.merge(&interval.tally);
            self.in_flight_ns += interval.in_flight_ns;
        }
    }

    /// Adds another phase.
    pub(super) fn merge(&mut self, other: &Self) {
        self.tally.merge(&other.tally);
        self.after_end.merge(&other.after_end);
        self.latency.merge(&other.latency);
        self.service.merge(&other.service);
        self.first_byte.merge(&other.first_byte);
        self.connect.merge(&other.connect);
        self.handshake.merge(&other.handshake);
        self.failure.merge(&other.failure);
        self.during.merge(&other.during);
        self.in_flight_ns += other.in_flight_ns;
    }

    /// As it stands in the record.
    pub(super) fn into_results(self, seconds: f64) -> Results {
        let per_s = |count: u64| match seconds > 0.0 {
            true => count as f64 / seconds,
            false => 0.0,
        };
        let in_flight = (self.in_flight_ns > 0 && seconds > 0.0)
            .then(|| self.in_flight_ns as f64 / 1e9 / seconds);
        Results {
            seconds,
            rates: Rates {
                offered_per_s: per_s(self.during.offered),
                sent_per_s: per_s(self.during.sent),
                completed_per_s: per_s(self.during.completed),
                good_per_s: per_s(self.during.good),
                in_goal_per_s: per_s(self.during.in_goal),
                retries_per_s: per_s(self.during.retries),
                bytes_received_per_s: per_s(self.during.bytes_received),
                bytes_sent_per_s: per_s(self.during.bytes_sent),
            },
            tally: self.tally,
            after_end: self.after_end,
            in_flight,
            latency: self.latency.into_distribution(),
            service: self.service.into_distribution(),
            first_byte: self.first_byte.into_distribution(),
            connect: self.connect.into_distribution(),
            handshake: self.handshake.into_distribution(),
            failure: self.failure.into_distribution(),
        }
    }
}

/// One group, second by second.
#[derive(Clone, Debug, Default)]
pub(super) struct Series {
    seconds: BTreeMap<u32, Second>,
    newest: u32,
    after_end: OpenSecond,
    /// The same of requests that were due in the warm-up.
    warm_up_after_end: OpenSecond,
}

#[derive(Clone, Debug, Default)]
struct Second {
    record: SecondRecord,
    in_flight_ns: u128,
    /// While it is open; otherwise what was in them is in the record's blobs.
    open: Option<Box<OpenSecond>>,
}

#[derive(Clone, Debug, Default)]
struct OpenSecond {
    latency: Times,
    service: Times,
}

impl Series {
    /// Adds what happened in a second. `is_counted`: so is the phase in which the requests were due.
    pub(super) fn add(&mut self, interval: &Interval, is_counted: bool) {
        if interval.after_end {
            // It is not part of the run's time.
            match is_counted {
                true => self.after_end.add(interval),
                false => self.warm_up_after_end.add(interval),
            }
            return;
        }
        let at = interval.second.min(SECONDS_MAX - 1);
        self.seconds.entry(at).or_default().add(at, interval);
        if at > self.newest {
            let before = self.newest.saturating_sub(OPEN_SECONDS);
            self.newest = at;
            let since = at.saturating_sub(OPEN_SECONDS);
            for (_, second) in self.seconds.range_mut(before..since) {
                second.close();
            }
        } else if at + OPEN_SECONDS < self.newest {
            self.seconds.entry(at).and_modify(Second::close);
        }
    }

    /// How a second stands; nothing happened in it: a record of zeros.
    pub(super) fn second(&self, at: u32) -> SecondRecord {
        let found = self.seconds.get(&at).map(Second::record);
        found.unwrap_or_else(|| empty(at))
    }

    /// Complete answers in a second.
    pub(super) fn completed(&self, at: u32) -> u64 {
        self.seconds
            .get(&at)
            .map_or(0, |second| second.record.completed)
    }

    /// What came after the end, of requests that count.
    pub(super) fn after_end(&self) -> SecondBlobs {
        self.after_end.packed()
    }

    /// The same of requests of the warm-up.
    pub(super) fn warm_up_after_end(&self) -> SecondBlobs {
        self.warm_up_after_end.packed()
    }

    /// All seconds, at least `len` of them, in order and without a gap. What happened later than that
    /// is there too.
    pub(super) fn into_records(mut self, len: u32) -> Vec<SecondRecord> {
        let after_last = self.seconds.keys().next_back().map_or(0, |last| last + 1);
        let mut record = |at| match self.seconds.remove(&at) {
            Some(mut second) => {
                second.close();
                second.record()
            }
            None => empty(at),
        };
        (0..len.min(SECONDS_MAX).max(after_last))
            .map(&mut record)
            .collect()
    }
}

impl Second {
    fn add(&mut self, at: u32, interval: &Interval) {
        let record = &mut self.record;
        let tally = &interval.tally;
        record.second = at;
        record.offered += tally.offered;
        record.sent += tally.sent;
        record.completed += tally.completed;
        record.good += tally.good;
        record.in_goal += tally.in_goal;
        record.retries += tally.retries;
        record.errors += tally.errors_total();
        record.bytes_received += tally.bytes_received;
        record.lag_max_us = record.lag_max_us.max(interval.lag_max_us);
        self.in_flight_ns += interval.in_flight_ns;
        if interval.latency.is_empty() && interval.service.is_empty() {
            return;
        }
        let blobs = std::mem::take(&mut self.record.blobs);
        let open = self
            .open
            .get_or_insert_with(|| Box::new(OpenSecond::reopened(&blobs)));
        open.add(interval);
    }

    /// Takes the figures out of the histograms and compresses them.
    fn close(&mut self) {
        let Some(open) = self.open.take() else {
            return;
        };
        if let Some(latency) = &open.latency.0 {
            self.record.set_latency(latency);
        }
        self.record.blobs = open.packed();
    }

    fn record(&self) -> SecondRecord {
        let mut record = self.record.clone();
        let open = self.open.as_ref();
        if let Some(latency) = open.and_then(|open| open.latency.0.as_ref()) {
            record.set_latency(latency);
        }
        if self.in_flight_ns > 0 {
            record.in_flight = Some(self.in_flight_ns as f64 / 1e9);
        }
        record
    }
}

impl OpenSecond {
    fn reopened(blobs: &SecondBlobs) -> Self {
        let times = |blob: &[u8]| {
            let histogram = (!blob.is_empty()).then(|| decompressed(blob));
            Times(histogram.and_then(Result::ok).map(Box::new))
        };
        Self {
            latency: times(&blobs.latency),
            service: times(&blobs.service),
        }
    }

    fn add(&mut self, interval: &Interval) {
        self.latency.add(&interval.latency);
        self.service.add(&interval.service);
    }

    fn packed(&self) -> SecondBlobs {
        let packed = |times: &Times| {
            let packed = times.0.as_deref().map(compressed);
            packed.and_then(Result::ok).unwrap_or_default()
        };
        SecondBlobs {
            latency: packed(&self.latency),
            service: packed(&self.service),
        }
    }
}

fn empty(at: u32) -> SecondRecord {
    SecondRecord {
        second: at,
        ..SecondRecord::default()
    }
}
