//! What a thread reports: it is ready, what happened in an interval, how busy it was in all.

use hdrhistogram::Histogram;
use loadline_record::{StepReport, Tally, latencies};
use serde::{Deserialize, Serialize};

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
        /// Whose.
        share: Share,
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    #[serde(with = "as_text")]
    pub latency: Histogram<u64>,
    /// From sent to the last byte, of complete answers.
    #[serde(with = "as_text")]
    pub service: Histogram<u64>,
    /// From sent to the first byte, of complete answers.
    #[serde(with = "as_text")]
    pub first_byte: Histogram<u64>,
    /// From when a connection was begun to when it was there.
    #[serde(with = "as_text")]
    pub connect: Histogram<u64>,
    /// From then to the end of the handshake of TLS.
    #[serde(with = "as_text")]
    pub handshake: Histogram<u64>,
    /// From due (or sent) to the failure, of requests that failed.
    #[serde(with = "as_text")]
    pub failure: Histogram<u64>,
}

/// How busy and how late a thread was: was it the limit? Times in nanoseconds, over the counted phases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    #[serde(with = "as_text")]
    pub lag: Histogram<u64>,
    /// Of a sample of the answers: how long after the kernel had received their end it was read, in
    /// microseconds.
    #[serde(with = "as_text")]
    pub read_lag: Histogram<u64>,
}

impl Default for Interval {
    /// Nothing happened.
    fn default() -> Self {
        Self {
            second: 0,
            phase: 0,
            at_phase: 0,
            group: 0,
            after_end: false,
            tally: Tally::default(),
            in_flight_ns: 0,
            lag_max_us: 0,
            latency: latencies(),
            service: latencies(),
            first_byte: latencies(),
            connect: latencies(),
            handshake: latencies(),
            failure: latencies(),
        }
    }
}

impl Default for ThreadReport {
    /// Nothing was measured.
    fn default() -> Self {
        Self {
            share: Share::WHOLE,
            name: String::new(),
            group: 0,
            wall_ns: 0,
            cpu_ns: 0,
            waited_ns: 0,
            run_delay_ns: 0,
            turns: 0,
            events: 0,
            after_end_ns: 0,
            in_flight_max: 0,
            held_back: 0,
            connecting: 0,
            held_ns: 0,
            in_flight_ns: 0,
            lag: latencies(),
            read_lag: latencies(),
        }
    }
}

/// A histogram as base64 of its compressed form; one without a sample as an empty text.
mod as_text {
    use hdrhistogram::Histogram;
    use serde::de::Error as _;
    use serde::ser::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    use loadline_record::distribution::{from_text, to_text};
    use loadline_record::histogram::{LATENCY_US_MAX, SIGNIFICANT_DIGITS, latencies};

    pub(super) fn serialize<S: Serializer>(
        histogram: &Histogram<u64>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match histogram.is_empty() {
            true => to.serialize_str(""),
            false => to.serialize_str(&to_text(histogram).map_err(S::Error::custom)?),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Histogram<u64>, D::Error> {
        let text = String::deserialize(from)?;
        if text.is_empty() {
            return Ok(latencies());
        }
        let histogram = from_text(&text).map_err(D::Error::custom)?;
        let bounds = (histogram.low(), histogram.high(), histogram.sigfig());
        match bounds == (1, LATENCY_US_MAX, SIGNIFICANT_DIGITS) {
            true => Ok(histogram),
            false => Err(D::Error::custom("a histogram with other bounds")),
        }
    }
}
