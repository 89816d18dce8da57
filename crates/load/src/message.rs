//! What a thread reports: it is ready, what happened in an interval, how busy it was in all.

use std::ops::{Deref, DerefMut};

use hdrhistogram::Histogram;
use loadline_record::distribution::{from_text, to_text};
use loadline_record::histogram::{LATENCY_US_MAX, SIGNIFICANT_DIGITS};
use loadline_record::{StepReport, Tally, latencies};
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Share;

/// From a thread to the merge. The memory of one is allocated once a second, not per request.
///
/// Through a pipe (`wire`) it goes with its kind as the outermost name: serde reads a tag inside by
/// way of a buffer without 128-bit numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// Connections are open as far as they can be; the thread waits for the start.
    Ready {
        /// Connections that are open.
        connections: u64,
    },
    /// What happened in a stretch of time; several for the same second add up.
    Interval(Box<Interval>),
    /// The end of a thread.
    Finished(Box<ThreadReport>),
    /// Results of the steps of the scenario in a process that ends.
    Steps(Vec<StepReport>),
}

/// One group of clients in at most one second of one phase, on one thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Whole seconds since the start; what comes after the end belongs to the last one.
    pub second: u32,
    /// Index into `Plan::phases`: that in which the requests were due.
    pub phase: u16,
    /// The phase that it was when this was recorded: `phase`, or a later one.
    pub at_phase: u16,
    /// Index into `Plan::groups`.
    pub group: u16,
    /// Whether these answers came after the end, while waiting for what was still out.
    pub after_end: bool,
    /// Counts.
    pub tally: Tally,
    /// The sum over time of requests in flight, in request-nanoseconds.
    pub in_flight_ns: u128,
    /// The largest lag, in microseconds, of the requests sent while a connection was free for them.
    pub lag_max_us: u64,
    /// From due to the last byte, of complete answers.
    pub latency: TimeHistogram,
    /// From sent to the last byte, of complete answers.
    pub service: TimeHistogram,
    /// From sent to the first byte, of complete answers.
    pub first_byte: TimeHistogram,
    /// From when a connection was begun to when it was there.
    pub connect: TimeHistogram,
    /// From then to the end of the handshake of TLS.
    pub handshake: TimeHistogram,
    /// From due (or sent) to the failure, of requests that failed.
    pub failure: TimeHistogram,
}

/// How busy and how late a thread was: was it the limit? Times in nanoseconds, over the counted phases.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadReport {
    /// Whose.
    pub share: Share,
    /// Its name in results: "engine 0", say.
    pub name: String,
    /// Index of the group it belongs to.
    pub group: u16,
    /// From the start of the first counted phase to the end of the last.
    pub wall_ns: u64,
    /// CPU time of the thread.
    pub cpu_ns: u64,
    /// Time spent waiting for events, by the clock: what is left of `wall_ns` was work, or being
    /// kept from it.
    pub waited_ns: u64,
    /// Time in which the thread could have run and did not (`/proc/thread-self/schedstat`).
    pub run_delay_ns: u64,
    /// Turns of the loop.
    pub turns: u64,
    /// Events handled in them: divided by the turns, the batch size.
    pub events: u64,
    /// How long it waited, after its last request was due or the run was ended, for what was out.
    pub after_end_ns: u64,
    /// Requests that could be out at one time: one for each connection, or for each stream of HTTP/2 that
    /// the servers take.
    pub in_flight_max: u64,
    /// Requests that were due and never sent, since at the end (nearly) no connection was free.
    pub held_back: u64,
    /// Requests that were never sent, since at the end their connections were still being made.
    pub connecting: u64,
    /// Time in which a request was due and waited for a connection: all of the thread's were out.
    pub held_ns: u64,
    /// The sum over time of requests in flight, in request-nanoseconds, taken from samples at each
    /// turn (independent of the latencies: for Little's law).
    pub in_flight_ns: u128,
    /// Of each request sent while a connection was free for it: how much later than due, in
    /// microseconds.
    pub lag: TimeHistogram,
    /// Of a sample of the answers: how long after the kernel had received their end it was read, in
    /// microseconds.
    pub read_lag: TimeHistogram,
}

/// Times in microseconds. In JSON a text: base64 of the compressed form, or nothing without a sample.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeHistogram(pub Histogram<u64>);

impl Default for TimeHistogram {
    /// Nothing was recorded.
    fn default() -> Self {
        Self(latencies())
    }
}

impl Deref for TimeHistogram {
    type Target = Histogram<u64>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for TimeHistogram {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl Serialize for TimeHistogram {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.is_empty() {
            true => to.serialize_str(""),
            false => to.serialize_str(&to_text(self).map_err(S::Error::custom)?),
        }
    }
}

impl<'de> Deserialize<'de> for TimeHistogram {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        if text.is_empty() {
            return Ok(Self::default());
        }
        let histogram = from_text(&text).map_err(D::Error::custom)?;
        let bounds = (histogram.low(), histogram.high(), histogram.sigfig());
        match bounds == (1, LATENCY_US_MAX, SIGNIFICANT_DIGITS) {
            true => Ok(Self(histogram)),
            false => Err(D::Error::custom("a histogram with other bounds")),
        }
    }
}
