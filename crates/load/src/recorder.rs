//! Where a thread puts its measurements: no lock, no allocation per request.
//!
//! A thread records into the stretch of time at hand, one recorder for each group of clients. Once a
//! second what was recorded goes out as a `Message`. Answers are booked to the phase in which they
//! were due; an answer that outlives its phase opens a record of its own beside the current one.

use hdrhistogram::Histogram;
use loadline_record::tally::{ErrorKind, Tally};

use crate::message::{Interval, Message};
use crate::secure_link::Handshake;

/// What one group of clients did on this thread since the last flush.
#[derive(Debug)]
pub struct GroupRecorder {
    group: u16,
    current: Book,
    /// Of earlier phases, whose last answers are still coming; usually none.
    earlier: Vec<Book>,
}

#[derive(Debug, Default)]
struct Book {
    touched: bool,
    lag_max_ns: u64,
    sums: Interval,
}

impl Book {
    fn new(phase: u16) -> Self {
        let mut book = Self::default();
        book.sums.phase = phase;
        book
    }
}

/// When things happened to one request, in nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamps {
    /// When it was to be sent.
    pub due_ns: u64,
    /// When its first byte was given to the kernel.
    pub sent_ns: u64,
    /// When the first byte of the answer was seen.
    pub first_ns: u64,
    /// When the last byte of the answer was seen.
    pub last_ns: u64,
}

impl GroupRecorder {
    /// A recorder of a group that begins in phase 0.
    #[must_use]
    pub fn new(group: u16) -> Self {
        Self {
            group,
            current: Book::new(0),
            earlier: Vec::new(),
        }
    }

    /// The counts of a phase, to add to.
    #[inline]
    pub fn tally(&mut self, phase: u16) -> &mut Tally {
        &mut self.book(phase).sums.tally
    }

    /// Records a complete answer, good or not: its times. Counts are the caller's.
    #[inline]
    pub fn completed(&mut self, phase: u16, stamps: &Stamps) {
        let latency_ns = stamps.last_ns.saturating_sub(stamps.due_ns);
        record(&mut self.book(phase).sums.latency, latency_ns);
        self.attempt_completed(phase, stamps);
    }

    /// Records a complete answer after which the request is tried again: latency is that of its last
    /// attempt.
    #[inline]
    pub fn attempt_completed(&mut self, phase: u16, stamps: &Stamps) {
        let book = self.book(phase);
        let service_ns = stamps.last_ns.saturating_sub(stamps.sent_ns);
        record(&mut book.sums.service, service_ns);
        let first_ns = stamps.first_ns.saturating_sub(stamps.sent_ns);
        record(&mut book.sums.first_byte, first_ns);
    }

    /// Counts a connection that came to be, `took_ns` after it was begun.
    #[inline]
    pub fn connected(&mut self, phase: u16, took_ns: u64) {
        let sums = &mut self.book(phase).sums;
        sums.tally.connections += 1;
        record(&mut sums.connect, took_ns);
    }

    /// Counts a handshake that is done.
    pub fn handshake(&mut self, phase: u16, handshake: Handshake) {
        let sums = &mut self.book(phase).sums;
        match handshake.is_resumed {
            true => sums.tally.handshakes_resumed += 1,
            false => sums.tally.handshakes_full += 1,
        }
        record(&mut sums.handshake, handshake.took_ns);
    }

    /// Records an attempt that failed without an answer, `after_ns` after it was due; the request is
    /// tried again.
    pub fn attempt_failed(&mut self, phase: u16, after_ns: u64) {
        record(&mut self.book(phase).sums.failure, after_ns);
    }

    /// Counts a request whose last attempt failed, `after_ns` after that was due.
    pub fn failed(&mut self, phase: u16, kind: ErrorKind, after_ns: u64) {
        self.tally(phase).error(kind);
        record(&mut self.book(phase).sums.failure, after_ns);
    }

    /// Adds to the requests in flight, summed over time: `requests` of them for `for_ns`. Not tied
    /// to a request: it belongs to the phase at hand.
    #[inline]
    pub fn in_flight(&mut self, requests: u64, for_ns: u64) {
        if requests > 0 {
            self.current.touched = true;
            self.current.sums.in_flight_ns += u128::from(requests) * u128::from(for_ns);
        }
    }

    /// A request was sent `ns` after it was due though a connection was free for it.
    #[inline]
    pub fn lagged(&mut self, ns: u64) {
        if ns > self.current.lag_max_ns {
            self.current.touched = true;
            self.current.lag_max_ns = ns;
        }
    }

    #[inline]
    fn book(&mut self, phase: u16) -> &mut Book {
        if phase != self.current.sums.phase {
            return self.other_book(phase);
        }
        self.current.touched = true;
        &mut self.current
    }

    #[cold]
    fn other_book(&mut self, phase: u16) -> &mut Book {
        let mut earlier = self.earlier.iter();
        let index = earlier.position(|book| book.sums.phase == phase);
        let index = index.unwrap_or_else(|| {
            self.earlier.push(Book::new(phase));
            self.earlier.len() - 1
        });
        self.earlier[index].touched = true;
        &mut self.earlier[index]
    }

    /// Hands out what was recorded since the last time, as of `second`, and begins anew in `phase`.
    pub fn flush(
        &mut self,
        second: u32,
        phase: u16,
        after_end: bool,
        out: &mut dyn FnMut(Message),
    ) {
        let group = self.group;
        let current = std::mem::replace(&mut self.current, Book::new(phase));
        let at_phase = current.sums.phase;
        for book in std::iter::once(current).chain(self.earlier.drain(..)) {
            if !book.touched {
                continue;
            }
            out(Message::Interval(Box::new(Interval {
                second,
                at_phase,
                group,
                after_end,
                lag_max_us: book.lag_max_ns / 1000,
                ..book.sums
            })));
        }
    }
}

/// Records nanoseconds as whole microseconds, rounded to the nearest, at least 1; beyond the
/// largest value as that.
#[inline]
pub fn record(histogram: &mut Histogram<u64>, ns: u64) {
    let us = ns.saturating_add(500) / 1000;
    histogram.saturating_record(us.max(1));
}

/// The recorders of all groups that a thread has.
#[derive(Debug)]
pub struct Recorder {
    groups: Vec<GroupRecorder>,
}

impl Recorder {
    /// Recorders for these groups.
    #[must_use]
    pub fn new(groups: impl IntoIterator<Item = u16>) -> Self {
        Self {
            groups: groups.into_iter().map(GroupRecorder::new).collect(),
        }
    }

    /// The recorder of a group.
    ///
    /// # Panics
    /// If the group was not among those given.
    pub fn group(&mut self, group: u16) -> &mut GroupRecorder {
        let found = self.groups.iter_mut().find(|one| one.group == group);
        found.unwrap_or_else(|| panic!("group {group} has no recorder"))
    }

    /// Flushes every group.
    pub fn flush(
        &mut self,
        second: u32,
        phase: u16,
        after_end: bool,
        out: &mut dyn FnMut(Message),
    ) {
        for group in &mut self.groups {
            group.flush(second, phase, after_end, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use loadline_record::latencies;

    use super::*;

    fn flushed(recorder: &mut GroupRecorder) -> Vec<Interval> {
        let mut intervals = Vec::new();
        recorder.flush(7, 2, false, &mut |message| match message {
            Message::Interval(interval) => intervals.push(*interval),
            _ => unreachable!("only intervals"),
        });
        intervals
    }

    #[test]
    fn an_answer_is_booked_where_it_was_due() {
        let mut recorder = GroupRecorder::new(3);
        recorder.tally(0).sent += 1;
        assert_eq!(flushed(&mut recorder).len(), 1); // from here on in phase 2
        let stamps = Stamps {
            due_ns: 1_000_000,
            sent_ns: 2_000_000,
            first_ns: 4_000_000,
            last_ns: 6_000_000,
        };
        recorder.completed(1, &stamps);
        recorder.in_flight(2, 1_500);
        recorder.lagged(70_000);
        recorder.lagged(50_000);
        recorder.failed(2, ErrorKind::Timeout, 2_000_000_000);
        recorder.connected(2, 100_000);
        for is_resumed in [false, true, true] {
            let handshake = Handshake {
                took_ns: 900_000,
                is_resumed,
            };
            recorder.handshake(2, handshake);
        }
        let intervals = flushed(&mut recorder);
        let phases: Vec<u16> = intervals.iter().map(|interval| interval.phase).collect();
        assert_eq!(phases, [2, 1]);
        assert!(intervals.iter().all(|interval| interval.at_phase == 2));
        let in_flight: Vec<u128> = intervals.iter().map(|one| one.in_flight_ns).collect();
        assert_eq!(in_flight, [3_000, 0]);
        let (now, late) = (&intervals[0], &intervals[1]);
        assert_eq!(now.lag_max_us, 70);
        assert_eq!(now.tally.errors_of(ErrorKind::Timeout), 1);
        assert_eq!(now.failure.len(), 1);
        let tally = &now.tally;
        let handshakes = (tally.handshakes_full, tally.handshakes_resumed);
        assert_eq!((tally.connections, handshakes), (1, (1, 2)));
        assert!(now.connect.equivalent(now.connect.max(), 100));
        assert!(now.handshake.equivalent(now.handshake.min(), 900));
        let times = |h: &Histogram<u64>| h.value_at_quantile(1.0);
        assert!(late.latency.equivalent(times(&late.latency), 5_000));
        assert!(late.service.equivalent(times(&late.service), 4_000));
        assert!(late.first_byte.equivalent(times(&late.first_byte), 2_000));
        assert!(flushed(&mut recorder).is_empty());
    }

    #[test]
    fn times_beyond_the_bounds_count_at_the_bounds() {
        let mut histogram = latencies();
        record(&mut histogram, 0);
        record(&mut histogram, u64::MAX);
        assert_eq!(histogram.min(), 1);
        assert!(histogram.max() >= 600_000_000);
    }
}
