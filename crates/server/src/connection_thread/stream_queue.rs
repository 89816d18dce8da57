//! Requests of one connection that wait for its thread: blocking steps of streams (HTTP/2), and tasks of apps
//! that are to begin.
//!
//! The thread carries them out one after the other, first in, first out. What could not be answered within
//! the latency goal is refused when it comes, by how many wait before it and how long they take, or when its
//! turn comes, by how long it has waited. It is pure: times are arguments.
//!
//! A task has been carried out when it was polled once. If it waits then, it goes on beside the queue when it
//! is woken. What the thread does beside the queue while requests wait counts as time of the next one.
//!
//! After a step, and after other work that took long, the thread reads its socket. What it finds has come
//! meanwhile: the kernel says how long ago the last bytes came, and requests are taken to have come evenly from the
//! beginning of that work until then.

use std::collections::VecDeque;
use std::time::Duration;

use loadline_proto::{Exchange, StreamId, spread_retry_after_s};

use crate::overload::{Beside, QueueControl, Waited};

/// So much of the goal is kept in reserve: a thread's turn among others comes later than in the mean now and then,
/// a step takes longer, and the age of a request is an estimate.
const RESERVE_DIVISOR: u32 = 32;

/// Requests that wait, with what is to be done for them. No more than the connection may have streams
/// (`Limits::streams_max`).
#[derive(Debug)]
pub(super) struct StreamQueue<W> {
    waiting: VecDeque<Waiting<W>>,
    /// `None`: there is no goal.
    control: Option<QueueControl>,
    /// When the work began behind which the socket was read last; `None`: the thread has waited for its client
    /// since.
    busy_since_us: Option<u64>,
    /// Requests that have come since one was taken, those that were refused among them.
    came: u64,
    /// Since when the thread does something else though requests wait.
    beside_since_us: Option<u64>,
    /// For how long it did so since a request was done.
    beside_us: u64,
    reserve_us: u64,
}

#[derive(Debug)]
struct Waiting<W> {
    exchange: Box<Exchange>,
    work: W,
    since_us: u64,
    for_cpu_us: u64,
    /// Among those that have come since one was taken, from 1 on; `None`: it came before.
    place: Option<u64>,
}

impl<W> Waiting<W> {
    /// Nobody reads the response.
    fn is_gone(&self) -> bool {
        self.exchange.hang_up.is_gone()
    }
}

/// What becomes of the next request.
#[derive(Debug)]
pub(super) enum Next<W> {
    /// It is to be carried out. It had waited for so long, with the reserve.
    Run {
        exchange: Box<Exchange>,
        work: W,
        waited: Waited,
    },
    /// It has waited for too long, and has its 503.
    Late(Box<Exchange>, W),
    /// Its client has left; it has a 503 in case that it reads it.
    Abandoned(Box<Exchange>, W),
}

impl<W> StreamQueue<W> {
    pub(super) fn new(goal: Option<Duration>) -> Self {
        let reserve = goal.unwrap_or_default() / RESERVE_DIVISOR;
        Self {
            waiting: VecDeque::new(),
            control: goal.map(|goal| QueueControl::new(goal - reserve, 1)),
            busy_since_us: None,
            came: 0,
            beside_since_us: None,
            beside_us: 0,
            reserve_us: reserve.as_micros() as u64,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Requests that wait though their client has left, or their connection is closed.
    pub(super) fn abandoned(&self) -> usize {
        self.waiting.iter().filter(|it| it.is_gone()).count()
    }

    /// A request comes. Gives it back with a 503 if it could not be answered in time.
    pub(super) fn offer(
        &mut self,
        mut exchange: Box<Exchange>,
        work: W,
        now_us: u64,
        waited: Waited,
    ) -> Option<Box<Exchange>> {
        self.came += 1;
        if let Some(control) = &mut self.control {
            let depth = self.waiting.iter().filter(|it| !it.is_gone()).count();
            if let Err(retry_after_s) = control.offer(now_us, depth, Beside::default()) {
                exchange.refuse(retry_after_s);
                return Some(exchange);
            }
        }
        if self.waiting.is_empty() {
            self.beside_since_us = Some(now_us);
        }
        self.waiting.push_back(Waiting {
            exchange,
            work,
            since_us: now_us.saturating_sub(waited.in_all_us),
            for_cpu_us: waited.for_cpu_us,
            place: Some(self.came),
        });
        None
    }

    /// The request of this stream is cancelled. Gives it back if it waits.
    pub(super) fn cancel(&mut self, stream: StreamId) -> Option<Box<Exchange>> {
        let mut waiting = self.waiting.iter();
        let at = waiting.position(|it| it.exchange.stream == stream)?;
        self.waiting.remove(at).map(|it| it.exchange)
    }

    /// The thread waits for its client: what comes from now on has waited for no other.
    pub(super) fn rest(&mut self) {
        self.busy_since_us = None;
        self.came = 0;
        self.beside_since_us = None;
        self.beside_us = 0;
    }

    /// The thread turns to its socket, after work that has begun then: what comes from now on has come since.
    pub(super) fn was_busy(&mut self, since_us: u64, now_us: u64) {
        self.spread();
        self.busy_since_us = Some(since_us);
        self.count_beside(now_us);
        self.beside_since_us = (!self.is_empty()).then_some(now_us);
    }

    fn count_beside(&mut self, now_us: u64) {
        if let Some(since_us) = self.beside_since_us.take() {
            self.beside_us += now_us.saturating_sub(since_us);
        }
    }

    /// Those that were read after such work have come one after the other, the first when it began, the last when
    /// the kernel says. So one may be taken to be older than it is, which costs less than an answer that is late.
    fn spread(&mut self) {
        let count = std::mem::take(&mut self.came);
        if count == 0 {
            return;
        }
        for one in &mut self.waiting {
            if let (Some(place), Some(from_us)) = (one.place.take(), self.busy_since_us) {
                let span_us = one.since_us.saturating_sub(from_us);
                let later = count - place;
                one.since_us -= span_us * later / (count - 1).max(1);
            }
        }
    }

    /// The next one. Those that were reset come first: each counts as a stream of its client's until it is
    /// given back.
    pub(super) fn next(&mut self, now_us: u64) -> Option<Next<W>> {
        self.spread();
        self.count_beside(now_us);
        if let Some(at) = self.waiting.iter().position(Waiting::is_gone) {
            let gone = self.waiting.remove(at)?;
            let (mut exchange, work) = (gone.exchange, gone.work);
            exchange.refuse(spread_retry_after_s(now_us));
            return Some(Next::Abandoned(exchange, work));
        }
        let Waiting {
            mut exchange,
            work,
            since_us,
            for_cpu_us,
            ..
        } = self.waiting.pop_front()?;
        let wait_us = now_us.saturating_sub(since_us);
        let waited = Waited {
            in_all_us: wait_us + self.reserve_us,
            for_cpu_us,
            handshake_us: 0, // it is part of the wait
            reserve_us: self.reserve_us,
        };
        let Some(control) = &mut self.control else {
            return Some(Next::Run {
                exchange,
                work,
                waited,
            });
        };
        let taken = control.take(now_us, wait_us, self.waiting.len());
        Some(match taken {
            _ if exchange.hang_up.has_left(control.is_long(wait_us)) => {
                if taken.is_ok() {
                    control.not_taken();
                }
                exchange.refuse(spread_retry_after_s(now_us));
                Next::Abandoned(exchange, work)
            }
            Err(retry_after_s) => {
                exchange.refuse(retry_after_s);
                Next::Late(exchange, work)
            }
            Ok(()) => Next::Run {
                exchange,
                work,
                waited,
            },
        })
    }

    /// One is done, which has kept the thread for so long.
    pub(super) fn done(&mut self, now_us: u64, took_us: u64) {
        let beside_us = std::mem::take(&mut self.beside_us);
        if let Some(control) = &mut self.control {
            control.done(now_us, took_us + beside_us);
        }
    }
}

#[cfg(test)]
mod tests {
    use loadline_proto::Status;

    use super::*;

    type StreamQueue = super::StreamQueue<()>;
    type Next = super::Next<()>;

    const GOAL: Duration = Duration::from_secs(1);
    const SERVICE_US: u64 = 10_000;
    const RESERVE_US: u64 = 31_250;
    const NOT_KNOWN: Waited = Waited {
        in_all_us: 0,
        for_cpu_us: 0,
        handshake_us: 0,
        reserve_us: 0,
    };

    fn offer(queue: &mut StreamQueue, now_us: u64) -> bool {
        let refused = queue.offer(Box::default(), (), now_us, NOT_KNOWN);
        if let Some(exchange) = &refused {
            assert_eq!(exchange.response.status, Status::SERVICE_UNAVAILABLE);
        }
        refused.is_none()
    }

    /// A second of steps of 10 ms is behind it.
    fn after_some_steps() -> StreamQueue {
        let mut queue = StreamQueue::new(Some(GOAL));
        for index in 0..100 {
            let now_us = index * SERVICE_US;
            assert!(offer(&mut queue, now_us));
            assert!(matches!(queue.next(now_us), Some(Next::Run { .. })));
            queue.done(now_us + SERVICE_US, SERVICE_US);
        }
        queue.rest();
        queue
    }

    #[test]
    fn what_cannot_be_answered_in_time_is_refused_when_it_comes() {
        let mut queue = after_some_steps();
        let mut now_us = 1_000_000;
        let taken = (0..128).filter(|_| offer(&mut queue, now_us)).count();
        assert_eq!(taken, 96, "950 ms of waiting, and 10 ms of its own");
        while let Some(next) = queue.next(now_us) {
            assert!(matches!(next, Next::Run { .. }), "{next:?}");
            now_us += SERVICE_US;
            queue.done(now_us, SERVICE_US);
        }
        assert_eq!(now_us, 1_960_000);
        assert!(offer(&mut queue, now_us));
    }

    #[test]
    fn what_is_too_late_when_its_turn_comes_is_refused_unless_nothing_else_waits() {
        let mut queue = StreamQueue::new(Some(GOAL));
        assert!((0..128).all(|_| offer(&mut queue, 0)), "nothing is known");
        let (mut now_us, mut run, mut late) = (0, 0, 0);
        while let Some(next) = queue.next(now_us) {
            match next {
                Next::Run { .. } => {
                    run += 1;
                    now_us += 50_000;
                    queue.done(now_us, 50_000);
                }
                Next::Late(..) => late += 1,
                Next::Abandoned(..) => panic!("nobody has left"),
            }
        }
        assert_eq!((run, late), (20, 108), "19, and the last one");
    }

    #[test]
    fn what_the_kernel_has_had_for_long_is_as_old_as_that() {
        let mut queue = after_some_steps();
        let waited = Waited {
            in_all_us: 995_000,
            for_cpu_us: 7,
            ..NOT_KNOWN
        };
        for _ in 0..2 {
            assert!(queue.offer(Box::default(), (), 2_000_000, waited).is_none());
        }
        assert!(matches!(queue.next(2_000_000), Some(Next::Late(..))));
        let last = queue.next(2_000_000);
        let Some(Next::Run { waited, .. }) = last else {
            panic!("{last:?}");
        };
        assert_eq!(
            (waited.in_all_us, waited.for_cpu_us),
            (995_000 + RESERVE_US, 7)
        );
    }

    #[test]
    fn what_came_during_a_step_has_come_one_after_the_other() {
        let mut queue = after_some_steps();
        let waits = |queue: &mut StreamQueue, now_us| -> Vec<u64> {
            (0..4).for_each(|_| assert!(offer(queue, now_us)));
            let nexts = std::iter::from_fn(|| queue.next(now_us));
            let waits = nexts.map(|next| match next {
                Next::Run { waited, .. } => waited.in_all_us - RESERVE_US,
                other => panic!("{other:?}"),
            });
            waits.collect()
        };
        queue.was_busy(1_000_000, 1_090_000);
        assert_eq!(waits(&mut queue, 1_090_000), [90_000, 60_000, 30_000, 0]);
        queue.rest();
        assert_eq!(waits(&mut queue, 1_200_000), [0; 4]);
    }

    /// What was cancelled before the thread rested counted among what came then: that was younger than it is.
    #[test]
    fn what_came_before_the_thread_rested_does_not_count_in_what_comes_after() {
        let mut queue = after_some_steps();
        for number in 1..=4 {
            let mut exchange = Box::<Exchange>::default();
            exchange.stream = StreamId(number);
            assert!(queue.offer(exchange, (), 1_000_000, NOT_KNOWN).is_none());
            assert!(queue.cancel(StreamId(number)).is_some());
        }
        queue.rest();
        queue.was_busy(2_000_000, 2_200_000);
        (0..2).for_each(|_| assert!(offer(&mut queue, 2_200_000)));
        let Some(Next::Run { waited, .. }) = queue.next(2_200_000) else {
            panic!("{queue:?}");
        };
        assert_eq!(waited.in_all_us, 200_000 + RESERVE_US);
    }

    /// Some work beside the queue came between what was read and its turn.
    #[test]
    fn what_was_read_keeps_its_age_when_the_thread_is_busy_again() {
        let mut queue = after_some_steps();
        queue.was_busy(1_000_000, 1_200_000);
        (0..2).for_each(|_| assert!(offer(&mut queue, 1_200_000)));
        queue.was_busy(1_200_000, 1_250_000);
        assert!(offer(&mut queue, 1_250_000));
        let nexts = std::iter::from_fn(|| queue.next(1_250_000));
        let waits = nexts.map(|next| match next {
            Next::Run { waited, .. } => waited.in_all_us - RESERVE_US,
            other => panic!("{other:?}"),
        });
        assert!(waits.eq([250_000, 50_000, 0]));
    }

    /// Apps that wait first and compute afterwards, for 30 ms between two steps of 10 ms.
    #[test]
    fn what_the_thread_does_beside_the_queue_counts_while_requests_wait() {
        let mut queue = StreamQueue::new(Some(GOAL));
        let mut now_us = 0;
        for _ in 0..100 {
            assert!(offer(&mut queue, now_us));
            now_us += 30_000;
            assert!(matches!(queue.next(now_us), Some(Next::Run { .. })));
            now_us += SERVICE_US;
            queue.done(now_us, SERVICE_US);
            queue.was_busy(now_us - SERVICE_US, now_us);
            now_us += 1_000_000; // while none waits
        }
        queue.rest();
        let taken = (0..128).filter(|_| offer(&mut queue, now_us)).count();
        assert_eq!(taken, 24, "920 ms of waiting, and 40 ms of its own");
    }

    /// The first ones are let in, which have waited longest.
    #[test]
    fn what_was_refused_has_come_during_the_step_too() {
        let mut queue = StreamQueue::new(Some(GOAL));
        queue.done(200_000, 200_000);
        queue.was_busy(0, 200_000);
        let taken = (0..10).filter(|_| offer(&mut queue, 200_000)).count();
        assert_eq!(taken, 4, "600 ms of waiting, and 200 ms of its own");
        // The first of ten since the step began, so the second a ninth of it later.
        for expected_us in [200_000, 177_777] {
            let Some(Next::Run { waited, .. }) = queue.next(200_000) else {
                panic!("{queue:?}");
            };
            assert_eq!(waited.in_all_us, expected_us + RESERVE_US);
        }
    }

    #[test]
    fn what_is_cancelled_before_its_turn_is_given_back_and_keeps_out_no_other() {
        let mut queue = after_some_steps();
        let now_us = 1_000_000;
        for number in 1..=96 {
            let mut exchange = Box::<Exchange>::default();
            exchange.stream = StreamId(number);
            assert!(queue.offer(exchange, (), now_us, NOT_KNOWN).is_none());
        }
        assert!(!offer(&mut queue, now_us), "they take the whole goal");
        for number in 11..=90 {
            let cancelled = queue.cancel(StreamId(number)).unwrap();
            assert_eq!(cancelled.stream, StreamId(number));
            assert!(queue.cancel(StreamId(number)).is_none(), "no longer there");
        }
        assert!(offer(&mut queue, now_us));
        let nexts = std::iter::from_fn(|| queue.next(now_us));
        let streams = nexts.map(|next| match next {
            Next::Run { exchange, .. } => exchange.stream.0,
            other => panic!("{other:?}"),
        });
        let expected = (1..=10).chain(91..=96).chain([0]);
        assert!(streams.eq(expected));
    }

    #[test]
    fn without_a_goal_all_of_them_wait() {
        let mut queue = StreamQueue::new(None);
        assert!((0..128).all(|_| offer(&mut queue, 0)));
        let run = |next: Option<Next>| matches!(next, Some(Next::Run { .. }));
        assert!((0..128).all(|index| run(queue.next(index * 1_000_000))));
        assert!(queue.next(0).is_none() && queue.is_empty());
    }

    /// What came of requests, by when they were due.
    #[derive(Debug, Default)]
    struct Seen {
        good: u64,
        late: u64,
        refused: u64,
        /// When the last one was refused.
        refused_us: u64,
    }

    /// A thread with one connection over which requests come by chance (Poisson), so many times as fast as it
    /// can answer, each pair for so long. It receives what has come when a step has ended.
    fn serve(loads: &[(f64, u64)], service_us: u64, mut random: u64) -> Seen {
        let mut next = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 11) as f64 / (1_u64 << 53) as f64
        };
        let (mut arrivals, mut from_us) = (VecDeque::new(), 0);
        for (load, lasts_us) in loads {
            let mut at_us = from_us as f64;
            from_us += lasts_us;
            loop {
                at_us -= service_us as f64 / load * (1.0 - next()).ln();
                if at_us as u64 >= from_us {
                    break;
                }
                arrivals.push_back(at_us as u64);
            }
        }
        let (mut queue, mut seen) = (StreamQueue::new(Some(GOAL)), Seen::default());
        // When those came that wait, by the number in their exchange.
        let mut came_us = Vec::new();
        let mut now_us = 0;
        loop {
            if queue.is_empty() {
                let Some(first_us) = arrivals.front() else {
                    return seen;
                };
                if *first_us > now_us {
                    queue.rest();
                    now_us = *first_us;
                }
            }
            let new = arrivals.partition_point(|at_us| *at_us <= now_us);
            let new: Vec<u64> = arrivals.drain(..new).collect();
            for at_us in &new {
                let mut exchange = Box::<Exchange>::default();
                exchange.listener = came_us.len() as u32;
                came_us.push(*at_us);
                let waited = Waited {
                    in_all_us: now_us - new[new.len() - 1],
                    ..Waited::default()
                };
                if queue.offer(exchange, (), now_us, waited).is_some() {
                    seen.refused += 1;
                    seen.refused_us = now_us;
                }
            }
            match queue.next(now_us) {
                Some(Next::Run { exchange, .. }) => {
                    let began_us = now_us;
                    now_us += service_us;
                    queue.done(now_us, service_us);
                    queue.was_busy(began_us, now_us);
                    let took_us = now_us - came_us[exchange.listener as usize];
                    seen.good += 1;
                    seen.late += u64::from(took_us > 1_000_000);
                }
                Some(Next::Late(..)) => {
                    seen.refused += 1;
                    seen.refused_us = now_us;
                }
                Some(Next::Abandoned(..)) => panic!("nobody has left"),
                None => {}
            }
        }
    }

    #[test]
    fn goodput_stays_at_capacity_whatever_is_offered_and_is_in_time() {
        for load in [2.0, 5.0, 10.0] {
            for seed in 1..=10 {
                // 100 a second, and 5 a second beside 19 threads that compute, too.
                for (service_us, good_min) in [(SERVICE_US, 1_980), (200_000, 98)] {
                    let seen = serve(&[(load, 20_000_000)], service_us, seed << 32 | 7);
                    assert!(seen.good > good_min, "{load} {seed}: {seen:?}");
                    assert!(seen.late * 100 <= seen.good, "{load} {seed}: {seen:?}");
                }
            }
        }
    }

    #[test]
    fn nothing_is_refused_at_four_fifths_of_the_capacity() {
        for seed in 1..=20 {
            let seen = serve(&[(0.8, 20_000_000)], SERVICE_US, seed << 32 | 7);
            assert_eq!((seen.refused, seen.late), (0, 0), "{seed}");
        }
    }

    #[test]
    fn all_is_good_two_seconds_after_the_load_has_fallen() {
        for seed in 1..=20 {
            let seen = serve(
                &[(10.0, 5_000_000), (0.8, 10_000_000)],
                SERVICE_US,
                seed << 32 | 7,
            );
            assert!(seen.refused_us < 7_000_000, "{seed}: {seen:?}");
        }
    }
}
