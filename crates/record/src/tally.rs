//! What is counted: requests in their four rates, errors by kind, bytes, connections.

use serde::{Deserialize, Serialize};

/// Declares the kinds of errors: each with its name in results and its words for people.
macro_rules! error_kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal $words:literal,)+) => {
        /// Why a request did not end well, or a connection was not established. Each is counted apart.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum ErrorKind {
            $($(#[$doc])* #[serde(rename = $name)] $kind,)+
        }

        impl ErrorKind {
            /// All kinds, in the order of their numbers.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$kind),+];

            /// As it stands in results.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                }
            }

            /// As people say it, with its cause where that is known.
            #[must_use]
            pub fn words(self) -> &'static str {
                match self {
                    $(Self::$kind => $words,)+
                }
            }
        }
    };
}

error_kinds! {
    /// The connection was refused.
    Refused "refused" "connection refused",
    /// The connection was not established within the timeout.
    ConnectTimeout "connect_timeout" "no connection within the timeout",
    /// The connection failed for another reason (no route, no port left, no descriptor left).
    ConnectFailed "connect_failed" "connection failed (no route, port or descriptor)",
    /// The server's certificate was not accepted.
    Certificate "certificate" "certificate that was not accepted",
    /// The handshake of TLS failed for another reason, or a connection broke the rules of TLS.
    Handshake "handshake" "failed TLS handshake",
    /// The peer reset the connection.
    Reset "reset" "connection reset by the server",
    /// The peer closed the connection before the first byte of a response.
    ClosedEarly "closed_early" "connection closed before a response",
    /// The peer reset the stream of a request (RST_STREAM of HTTP/2); the connection goes on.
    StreamReset "stream_reset" "stream reset by the server",
    /// The response ended before its announced length.
    ShortBody "short_body" "response shorter than announced",
    /// There were bytes behind the response, or the length is not the expected one and larger.
    LongBody "long_body" "response longer than announced or expected",
    /// The response is not HTTP.
    Malformed "malformed" "response that is not HTTP",
    /// The content is not the expected one (checked on a sample).
    WrongContent "wrong_content" "response with wrong content",
    /// A complete response whose status is not among those expected: 1xx and 3xx.
    OtherStatus "other_status" "unexpected status below 400",
    /// A complete response with a status 400 to 499 that was not expected.
    Status4xx "status_4xx" "unexpected status 400 to 499",
    /// A complete response with a status 500 to 599 that was not expected.
    Status5xx "status_5xx" "unexpected status 500 to 599",
    /// No complete response within the timeout after the request was sent.
    Timeout "timeout" "no complete response within the timeout",
    /// A good response, but later than the deadline after it was due; or given up unsent for that.
    Late "late" "later than the deadline",
    /// Never sent: no connection was free, and queueing was not wanted.
    Dropped "dropped" "never sent: no connection was free",
}

impl ErrorKind {
    /// Whether it is about the status of a complete answer.
    #[must_use]
    pub fn is_of_status(self) -> bool {
        matches!(self, Self::OtherStatus | Self::Status4xx | Self::Status5xx)
    }

    /// The kind of an error that is about this status.
    #[must_use]
    pub fn of_status(status: u16) -> Self {
        match status {
            400..500 => Self::Status4xx,
            500..600 => Self::Status5xx,
            _ => Self::OtherStatus,
        }
    }
}

/// Counts of one group of clients in one stretch of time.
///
/// A request that was due is `offered`; it becomes `sent`, then `completed` (a complete answer of
/// any status), then `good` (expected status, length and content, in time). What is not good is one
/// of `errors`, once.
///
/// A request that is tried again is due and sent once: its further attempts are `retries`, and the
/// errors of all attempts but its last are in `retried`. Complete answers are those of all attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tally {
    /// Requests that became due.
    pub offered: u64,
    /// Requests of which the first byte was given to the kernel.
    pub sent: u64,
    /// Requests that were tried and not sent, by what the server did: it refused or did not accept
    /// their connections, or ended them, in the handshake for instance.
    pub not_accepted: u64,
    /// Complete answers, of any status.
    pub completed: u64,
    /// Complete answers that were as expected and in time.
    pub good: u64,
    /// Those of them that came within the latency goal after their attempt was due; 0 without a goal.
    pub in_goal: u64,
    /// Further attempts of requests that had been sent before, of which the first byte was sent.
    pub retries: u64,
    /// Complete answers by the first digit of their status; `[0]` is 1xx.
    pub statuses: [u64; 5],
    /// The same by exact status, in the order of the statuses: usually one or two entries.
    pub status_codes: Vec<(u16, u64)>,
    /// Those of them that were errors for their status, in the same order.
    pub unexpected_statuses: Vec<(u16, u64)>,
    /// By kind, in the order of `ErrorKind::ALL`; in JSON by name, without those that did not occur.
    #[serde(with = "by_name")]
    pub errors: [u64; ErrorKind::ALL.len()],
    /// Errors of attempts that were followed by another attempt, in the same form.
    #[serde(with = "by_name")]
    pub retried: [u64; ErrorKind::ALL.len()],
    /// Connections that were established.
    pub connections: u64,
    /// Handshakes of TLS that were done, with certificate and signature.
    pub handshakes_full: u64,
    /// Handshakes that went on with an earlier session.
    pub handshakes_resumed: u64,
    /// Requests given up because the run ended: neither completed nor an error.
    pub unfinished: u64,
    /// Bytes received, heads included.
    pub bytes_received: u64,
    /// Bytes of content received, as framed by the answers.
    pub content_bytes: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Connections without a request that the server closed or broke though they were to stay: of
    /// idle clients alone.
    pub closes: u64,
    /// Connections of idle clients that were open at the end.
    pub held: u64,
    /// Times a player ran out of video.
    pub stalls: u64,
    /// Nanoseconds that players stood still.
    pub stalled_ns: u64,
}

impl Tally {
    /// Counts a complete answer: its content, and its status by the first digit and exactly.
    #[inline]
    pub fn answered(&mut self, status: u16, content_bytes: u64) {
        self.completed += 1;
        self.content_bytes += content_bytes;
        self.count_status(status);
    }

    /// Counts what a complete answer with this status was found to be: good, or one error.
    #[inline]
    pub fn judged(&mut self, fault: Option<ErrorKind>, status: u16) {
        match fault {
            None => self.good += 1,
            Some(kind) => {
                self.error(kind);
                if kind.is_of_status() {
                    add(&mut self.unexpected_statuses, status, 1);
                }
            }
        }
    }

    #[inline]
    fn count_status(&mut self, status: u16) {
        let index = usize::from(status / 100).wrapping_sub(1); // of no class below 100
        if let Some(count) = self.statuses.get_mut(index) {
            *count += 1;
        }
        add(&mut self.status_codes, status, 1);
    }

    /// Counts an error.
    pub fn error(&mut self, kind: ErrorKind) {
        self.errors[kind as usize] += 1;
    }

    /// Counts an error of an attempt that is followed by another.
    pub fn retried(&mut self, kind: ErrorKind) {
        self.retried[kind as usize] += 1;
    }

    /// Attempts that failed and were followed by another.
    #[must_use]
    pub fn retried_total(&self) -> u64 {
        self.retried.iter().sum()
    }

    /// Complete answers that were followed by another attempt: all of them for their status.
    #[must_use]
    pub fn answers_retried(&self) -> u64 {
        let kinds = ErrorKind::ALL.into_iter();
        let of_status = kinds.filter(|kind| kind.is_of_status());
        of_status.map(|kind| self.retried[kind as usize]).sum()
    }

    /// Requests that ended with a complete answer, of any status.
    #[must_use]
    pub fn requests_completed(&self) -> u64 {
        self.completed.saturating_sub(self.answers_retried())
    }

    /// How many errors of a kind there were.
    #[must_use]
    pub fn errors_of(&self, kind: ErrorKind) -> u64 {
        self.errors[kind as usize]
    }

    /// Errors of all kinds.
    #[must_use]
    pub fn errors_total(&self) -> u64 {
        self.errors.iter().sum()
    }

    /// The part of the handshakes that went on with an earlier session; `None`: there were none of these.
    #[must_use]
    pub fn resumed_share(&self) -> Option<f64> {
        let all = self.handshakes_full + self.handshakes_resumed;
        (self.handshakes_resumed > 0).then(|| self.handshakes_resumed as f64 / all as f64)
    }

    /// Adds what another thread or stretch of time counted.
    pub fn merge(&mut self, other: &Self) {
        self.combine(other, |sum, part| *sum += part);
        for &(status, count) in &other.status_codes {
            add(&mut self.status_codes, status, count);
        }
        for &(status, count) in &other.unexpected_statuses {
            add(&mut self.unexpected_statuses, status, count);
        }
    }

    /// These counts without a part of them; those by exact status stay.
    #[must_use]
    pub(crate) fn without(&self, part: &Self) -> Self {
        let mut rest = self.clone();
        rest.combine(part, |count, part| *count = count.saturating_sub(part));
        rest
    }

    /// Changes each count, but those by exact status, by that of another tally.
    fn combine(&mut self, other: &Self, change: impl Fn(&mut u64, u64)) {
        let counts = [
            (&mut self.offered, other.offered),
            (&mut self.sent, other.sent),
            (&mut self.not_accepted, other.not_accepted),
            (&mut self.completed, other.completed),
            (&mut self.good, other.good),
            (&mut self.in_goal, other.in_goal),
            (&mut self.retries, other.retries),
            (&mut self.connections, other.connections),
            (&mut self.handshakes_full, other.handshakes_full),
            (&mut self.handshakes_resumed, other.handshakes_resumed),
            (&mut self.unfinished, other.unfinished),
            (&mut self.bytes_received, other.bytes_received),
            (&mut self.content_bytes, other.content_bytes),
            (&mut self.bytes_sent, other.bytes_sent),
            (&mut self.closes, other.closes),
            (&mut self.held, other.held),
            (&mut self.stalls, other.stalls),
            (&mut self.stalled_ns, other.stalled_ns),
        ];
        let statuses = self.statuses.iter_mut().zip(other.statuses);
        let errors = self.errors.iter_mut().zip(other.errors);
        let retried = self.retried.iter_mut().zip(other.retried);
        let by_kind = statuses.chain(errors).chain(retried);
        for (count, other) in counts.into_iter().chain(by_kind) {
            change(count, other);
        }
    }
}

/// Adds to the count of a status, in the order of the statuses.
#[inline]
fn add(counts: &mut Vec<(u16, u64)>, status: u16, count: u64) {
    match counts.iter_mut().find(|one| one.0 == status) {
        Some(one) => one.1 += count,
        None => {
            let place = counts.partition_point(|one| one.0 < status);
            counts.insert(place, (status, count));
        }
    }
}

/// Counts of errors as an object of names. A kind that a later version has added is passed over.
mod by_name {
    use std::collections::BTreeMap;

    use serde::ser::SerializeMap;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::ErrorKind;

    type Counts = [u64; ErrorKind::ALL.len()];

    pub(super) fn serialize<S: Serializer>(counts: &Counts, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        for kind in ErrorKind::ALL {
            let count = counts[kind as usize];
            if count > 0 {
                map.serialize_entry(kind.name(), &count)?;
            }
        }
        map.end()
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Counts, D::Error> {
        let named = BTreeMap::<String, u64>::deserialize(from)?;
        Ok(ErrorKind::ALL.map(|kind| named.get(kind.name()).copied().unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_written_by_name_and_unknown_ones_passed_over() {
        let mut tally = Tally::default();
        tally.error(ErrorKind::Status5xx);
        let text = serde_json::to_string(&tally).unwrap();
        assert!(text.contains(r#""errors":{"status_5xx":1}"#), "{text}");
        let later = text.replace(r#""status_5xx":1"#, r#""status_5xx":1,"abducted":9"#);
        assert_eq!(serde_json::from_str::<Tally>(&later).unwrap(), tally);
    }

    #[test]
    fn kinds_stand_at_their_numbers_under_their_names() {
        for (index, kind) in ErrorKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
            let name = serde_json::to_string(&kind).unwrap();
            assert_eq!(name, format!("\"{}\"", kind.name()));
        }
    }

    #[test]
    fn the_share_of_resumed_handshakes_is_one_of_all() {
        for (full, resumed, share) in [(1, 3, Some(0.75)), (0, 2, Some(1.0)), (4, 0, None)] {
            let tally = Tally {
                handshakes_full: full,
                handshakes_resumed: resumed,
                ..Tally::default()
            };
            assert_eq!(tally.resumed_share(), share, "{full} and {resumed}");
        }
        assert_eq!(Tally::default().resumed_share(), None);
    }

    #[test]
    fn merging_adds() {
        let mut one = Tally {
            sent: 3,
            statuses: [0, 2, 0, 1, 0],
            ..Tally::default()
        };
        one.error(ErrorKind::Reset);
        let mut sum = one.clone();
        sum.merge(&one);
        assert_eq!((sum.sent, sum.statuses[1]), (6, 4));
        assert_eq!(sum.errors_of(ErrorKind::Reset), 2);
        assert_eq!(sum.errors_total(), 2);
    }

    #[test]
    fn answers_that_were_tried_again_end_no_request() {
        let mut tally = Tally {
            completed: 10,
            ..Tally::default()
        };
        tally.retried(ErrorKind::Status5xx);
        tally.retried(ErrorKind::Status4xx);
        tally.retried(ErrorKind::Timeout);
        assert_eq!(tally.requests_completed(), 8);
    }

    #[test]
    fn statuses_that_were_not_expected_are_counted_apart() {
        let mut one = Tally::default();
        one.judged(None, 200);
        one.judged(Some(ErrorKind::Status4xx), 415);
        one.judged(Some(ErrorKind::Late), 200);
        let mut sum = one.clone();
        sum.merge(&one);
        assert_eq!(sum.unexpected_statuses, [(415, 2)]);
    }

    #[test]
    fn statuses_are_counted_exactly_and_by_class() {
        let mut one = Tally::default();
        for status in [503, 200, 404, 200, 999] {
            one.count_status(status);
        }
        let mut sum = one.clone();
        sum.merge(&one);
        assert_eq!(sum.statuses, [0, 4, 0, 2, 2]);
        let expected = vec![(200, 4), (404, 2), (503, 2), (999, 2)];
        assert_eq!(sum.status_codes, expected);
    }
}
