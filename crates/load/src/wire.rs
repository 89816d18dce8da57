//! Messages as lines of JSON, from a child process to its parent through a pipe. Both ends are the
//! same program, so the form has no version.

use std::io::{self, BufRead, Read, Write};

use loadline_record::from_json;
use thiserror::Error;

use crate::Message;

/// Bytes of a line. An interval has six histograms of at most 22 * 1024 counts, each of at most 9
/// bytes before compression and base64, which is 1.6 MB in the worst case; usual is 2 KB.
pub const LINE_BYTES_MAX: u64 = 2 << 20;

/// Why a line is not a message.
#[derive(Debug, Error)]
pub enum WireError {
    /// The pipe cannot be read.
    #[error("a report cannot be read: {0}")]
    Io(#[from] io::Error),
    /// More than [`LINE_BYTES_MAX`].
    #[error("a report is longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
    /// The sender ended in the middle of a line.
    #[error("a report was cut: its process has ended in the middle")]
    Cut,
    /// Not the JSON of a message.
    #[error("a report is not in the form expected: {0}")]
    Json(#[from] serde_json::Error),
}

/// Writes a message as one line, in one piece.
///
/// # Errors
/// The pipe cannot be written: the parent has gone, most likely.
pub fn write(message: &Message, to: &mut impl Write) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(message).map_err(io::Error::other)?;
    bytes.push(b'\n');
    to.write_all(&bytes)?;
    to.flush()
}

/// Reads messages.
#[derive(Debug)]
pub struct Reader<R> {
    from: R,
    line: Vec<u8>,
}

impl<R: BufRead> Reader<R> {
    /// Of a pipe.
    pub fn new(from: R) -> Self {
        let line = Vec::new();
        Self { from, line }
    }

    /// The next message; `None`: the sender has ended in good order.
    ///
    /// # Errors
    /// What comes is not a message; the rest is not worth reading.
    pub fn next_message(&mut self) -> Result<Option<Message>, WireError> {
        self.line.clear();
        let mut bounded = (&mut self.from).take(LINE_BYTES_MAX);
        if bounded.read_until(b'\n', &mut self.line)? == 0 {
            return Ok(None);
        }
        if self.line.last() != Some(&b'\n') {
            let is_long = self.line.len() as u64 == LINE_BYTES_MAX;
            return Err(match is_long {
                true => WireError::TooLong,
                false => WireError::Cut,
            });
        }
        Ok(Some(from_json(&self.line)?))
    }
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;
    use loadline_record::histogram::LATENCY_US_MAX;
    use loadline_record::{ErrorKind, StepReport, Tally};
    use proptest::prelude::*;

    use super::*;
    use crate::message::TimeHistogram;
    use crate::{Interval, Share, ThreadReport};

    fn histograms() -> impl Strategy<Value = TimeHistogram> {
        let value = prop_oneof![1..1_000_u64, 1..LATENCY_US_MAX, Just(LATENCY_US_MAX)];
        prop::collection::vec((value, 1..u64::from(u32::MAX)), 0..20).prop_map(|counts| {
            let mut histogram = TimeHistogram::default();
            for (value, count) in counts {
                histogram.saturating_record_n(value, count);
            }
            histogram
        })
    }

    fn shares() -> impl Strategy<Value = Share> {
        (any::<u32>(), any::<u32>()).prop_map(|(index, of)| Share { index, of })
    }

    fn tallies() -> impl Strategy<Value = Tally> {
        let counts = prop::array::uniform8(any::<u64>());
        (counts, any::<[u64; 5]>(), 0..15_usize).prop_map(|(counts, statuses, kind)| {
            let mut tally = Tally {
                offered: counts[0],
                sent: counts[1],
                completed: counts[2],
                good: counts[3],
                bytes_received: counts[4],
                stalled_ns: counts[5],
                statuses,
                status_codes: vec![(200, counts[6]), (599, counts[7])],
                ..Tally::default()
            };
            tally.error(ErrorKind::ALL[kind]);
            tally
        })
    }

    fn messages() -> impl Strategy<Value = Message> {
        let ready = any::<u64>().prop_map(|connections| Message::Ready { connections });
        let numbers = (any::<[u16; 3]>(), any::<(u32, bool, u64, u128)>());
        let interval = (numbers, tallies(), prop::array::uniform6(histograms())).prop_map(
            |((indexes, (second, after_end, lag_max_us, in_flight_ns)), tally, times)| {
                let [latency, service, first_byte, connect, handshake, failure] = times;
                Message::Interval(Box::new(Interval {
                    second,
                    phase: indexes[0],
                    at_phase: indexes[1],
                    group: indexes[2],
                    after_end,
                    tally,
                    in_flight_ns,
                    lag_max_us,
                    latency,
                    service,
                    first_byte,
                    connect,
                    handshake,
                    failure,
                }))
            },
        );
        let finished = (
            shares(),
            any::<String>(),
            any::<(u16, u128)>(),
            any::<[u64; 9]>(),
            (histograms(), histograms()),
        )
            .prop_map(|(share, name, (group, in_flight_ns), numbers, times)| {
                Message::Finished(Box::new(ThreadReport {
                    share,
                    name,
                    group,
                    wall_ns: numbers[0],
                    cpu_ns: numbers[1],
                    waited_ns: numbers[2],
                    run_delay_ns: numbers[3],
                    turns: numbers[4],
                    events: numbers[5],
                    after_end_ns: numbers[6],
                    in_flight_max: numbers[6],
                    held_back: numbers[7],
                    connecting: numbers[7],
                    held_ns: numbers[8],
                    in_flight_ns,
                    lag: times.0,
                    read_lag: times.1,
                }))
            });
        let step = (any::<String>(), any::<[u64; 3]>(), any::<Option<String>>());
        let step = step.prop_map(
            |(name, [requests, failures, successes], first)| StepReport {
                name,
                requests,
                failures,
                successes,
                first_failure: first,
            },
        );
        let steps = prop::collection::vec(step, 0..4).prop_map(Message::Steps);
        prop_oneof![ready, interval, finished, steps]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_is_written_is_read(sent in prop::collection::vec(messages(), 0..4)) {
            let mut pipe = Vec::new();
            for message in &sent {
                write(message, &mut pipe).unwrap();
            }
            prop_assert_eq!(pipe.iter().filter(|byte| **byte == b'\n').count(), sent.len());
            let mut reader = Reader::new(&pipe[..]);
            for message in &sent {
                let read = reader.next_message().unwrap();
                prop_assert_eq!(read.as_ref(), Some(message));
            }
            prop_assert!(reader.next_message().unwrap().is_none());
        }

        #[test]
        fn nothing_makes_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut reader = Reader::new(&bytes[..]);
            while let Ok(Some(_)) = reader.next_message() {}
        }

        #[test]
        fn a_damaged_line_is_an_error_or_another_message(
            message in messages(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
        ) {
            let mut pipe = Vec::new();
            write(&message, &mut pipe).unwrap();
            let at = at.index(pipe.len());
            pipe[at] = byte;
            let mut reader = Reader::new(&pipe[..]);
            while let Ok(Some(_)) = reader.next_message() {}
        }
    }

    #[test]
    fn the_largest_message_fits() {
        let mut full = TimeHistogram::default();
        let mut value = 1;
        while value < LATENCY_US_MAX {
            full.saturating_record_n(value, (value << 32) | ((0x5555_5555 ^ value) << 1));
            value = full.next_non_equivalent(value);
        }
        let interval = Interval {
            second: u32::MAX,
            in_flight_ns: u128::MAX,
            latency: full.clone(),
            service: full.clone(),
            first_byte: full.clone(),
            connect: full.clone(),
            handshake: full.clone(),
            failure: full,
            ..Interval::default()
        };
        let mut pipe = Vec::new();
        write(&Message::Interval(Box::new(interval)), &mut pipe).unwrap();
        assert!((pipe.len() as u64) < LINE_BYTES_MAX, "{}", pipe.len());
        assert!(Reader::new(&pipe[..]).next_message().unwrap().is_some());
    }

    #[test]
    fn errors_say_what_came() {
        let error = |bytes: &[u8]| Reader::new(bytes).next_message().unwrap_err().to_string();
        assert!(error(b"{\"ready\":").contains("was cut"));
        assert!(error(b"hello\n").contains("not in the form expected"));
        let long = vec![b'x'; usize::try_from(LINE_BYTES_MAX).unwrap() + 1];
        assert!(error(&long).contains("longer than"));
        let mut foreign = Histogram::<u64>::new_with_bounds(1, 1000, 2).unwrap();
        foreign.saturating_record(5);
        let report = ThreadReport {
            lag: TimeHistogram(foreign),
            ..ThreadReport::default()
        };
        let mut pipe = Vec::new();
        write(&Message::Finished(Box::new(report)), &mut pipe).unwrap();
        assert!(error(&pipe).contains("bounds"));
    }
}
