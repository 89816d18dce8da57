//! The open loop with a schedule for each connection, as wrk2 has it: what is due on one waits for it
//! alone, whatever the others do.
//!
//! Each connection has a share of the schedule, and threads take turns with them: of two threads, the
//! connections of the first have shares 0, 2, 4 and so on. So constant arrivals of all connections
//! together are evenly spaced, those of each are as well, and no thread has more to send at one moment
//! than at another. Poisson arrivals of each connection are independent of the others.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use loadline_record::ErrorKind;

use super::open::SENT_MAX;
use super::retries::Attempt;
use super::starts::{IntendedStarts, Source};
use super::{Driver, Engine};
use crate::pacer::Pacer;
use crate::{Arrivals, Plan, Schedule, Share};

/// The schedules of a thread's connections.
#[derive(Debug)]
pub(super) struct OwnSchedules {
    connections: Vec<OwnSchedule>,
    /// Connections that can be given a request, by when their next one is due. One that no longer can
    /// stays until it comes first.
    free: BinaryHeap<Reverse<(u64, u32)>>,
    offered: Offered,
    /// When the first request on a free connection is due; `u64::MAX`: there is none.
    next_ns: u64,
}

/// The schedule of one connection.
#[derive(Debug)]
struct OwnSchedule {
    queue: IntendedStarts,
    /// Since when the connection can be given a request; `None`: it cannot.
    free_since_ns: Option<u64>,
    /// Whether it stands in `OwnSchedules::free`.
    is_listed: bool,
}

/// A request that is due on a connection that is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DueRequest {
    connection: u32,
    due_ns: u64,
    free_since_ns: u64,
}

impl OwnSchedules {
    /// For `count` connections of a thread, none of which is free yet.
    pub(super) fn new(
        plan: &Plan,
        schedule: &Schedule,
        arrivals: Arrivals,
        share: Share,
        count: usize,
    ) -> Self {
        let starts = (0..count as u32).map(|index| {
            let own = Share {
                index: index * share.of + share.index,
                of: plan.connections,
            };
            let pacer = Pacer::new(schedule, arrivals, own, plan.seed);
            let requests_max = plan.requests_max.map_or(u64::MAX, |all| own.count(all));
            IntendedStarts::new(Source::Paced(pacer), requests_max)
        });
        Self::of(starts.collect())
    }

    fn of(starts: Vec<IntendedStarts>) -> Self {
        let connection = |queue: &IntendedStarts| OwnSchedule {
            queue: queue.clone(),
            free_since_ns: None,
            is_listed: false,
        };
        Self {
            connections: starts.iter().map(connection).collect(),
            free: BinaryHeap::with_capacity(starts.len()),
            offered: Offered::new(starts),
            next_ns: u64::MAX,
        }
    }

    /// The run starts.
    pub(super) fn start(&mut self, start_ns: u64) {
        for connection in &mut self.connections {
            connection.queue.start(start_ns);
        }
        self.offered.start(start_ns);
        self.list_all();
    }

    /// When the next request can be sent; `u64::MAX`: not before a connection becomes free.
    #[inline]
    pub(super) fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Whether no request is due any more.
    pub(super) fn is_exhausted(&self) -> bool {
        let mut queues = self.connections.iter().map(|connection| &connection.queue);
        queues.all(IntendedStarts::is_exhausted)
    }

    /// How many requests became due before `until_ns` since the last time.
    pub(super) fn offered_until(&mut self, until_ns: u64) -> u64 {
        self.offered.count_until(until_ns)
    }

    /// This connection can be given a request from now on, if it could not before.
    pub(super) fn put(&mut self, index: u32, now_ns: u64) {
        let connection = &mut self.connections[index as usize];
        if connection.free_since_ns.is_some() {
            return;
        }
        connection.free_since_ns = Some(now_ns);
        if !connection.is_listed && !connection.queue.is_exhausted() {
            connection.is_listed = true;
            let first = (connection.queue.next_ns(), index);
            self.free.push(Reverse(first));
        }
        self.look_at_first();
    }

    /// This connection can be given none.
    pub(super) fn remove(&mut self, index: u32) {
        self.connections[index as usize].free_since_ns = None;
        self.look_at_first();
    }

    /// Takes the request that is due first on a free connection, which is not free any more; `None`:
    /// none is due by now.
    fn take(&mut self, now_ns: u64) -> Option<DueRequest> {
        if self.next_ns > now_ns {
            return None;
        }
        let Reverse((due_ns, index)) = self.free.pop()?;
        let connection = &mut self.connections[index as usize];
        connection.is_listed = false;
        connection.queue.pop();
        let free_since_ns = connection.free_since_ns.take().unwrap_or(now_ns);
        self.look_at_first();
        Some(DueRequest {
            connection: index,
            due_ns,
            free_since_ns,
        })
    }

    /// Takes all that was due before `until_ns` and is not sent, each due time for `each`; returns how
    /// many of those had no free connection.
    fn give_up(&mut self, until_ns: u64, mut each: impl FnMut(u64)) -> u64 {
        let mut held_back = 0;
        for connection in &mut self.connections {
            while connection.queue.next_ns() < until_ns {
                each(connection.queue.next_ns());
                connection.queue.pop();
                held_back += u64::from(connection.free_since_ns.is_none());
            }
        }
        self.list_all();
        held_back
    }

    fn list_all(&mut self) {
        self.free.clear();
        for (index, connection) in (0..).zip(&mut self.connections) {
            let is_free = connection.free_since_ns.is_some();
            connection.is_listed = is_free && !connection.queue.is_exhausted();
            if connection.is_listed {
                let first = (connection.queue.next_ns(), index);
                self.free.push(Reverse(first));
            }
        }
        self.look_at_first();
    }

    /// Whatever is due first on a free connection is next.
    fn look_at_first(&mut self) {
        self.next_ns = u64::MAX;
        while let Some(Reverse((due_ns, index))) = self.free.peek().copied() {
            let connection = &mut self.connections[index as usize];
            if connection.free_since_ns.is_some() {
                self.next_ns = due_ns;
                return;
            }
            connection.is_listed = false;
            self.free.pop();
        }
    }
}

/// What becomes due on all connections by time alone, whatever is sent.
#[derive(Debug)]
struct Offered {
    starts: Vec<IntendedStarts>,
    /// Connections with more to come, by when their next request is due.
    order: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Offered {
    fn new(starts: Vec<IntendedStarts>) -> Self {
        let order = BinaryHeap::with_capacity(starts.len());
        Self { starts, order }
    }

    fn start(&mut self, start_ns: u64) {
        for (index, starts) in (0..).zip(&mut self.starts) {
            starts.start(start_ns);
            if !starts.is_exhausted() {
                self.order.push(Reverse((starts.next_ns(), index)));
            }
        }
    }

    fn count_until(&mut self, until_ns: u64) -> u64 {
        let mut count = 0;
        while let Some(mut first) = self.order.peek_mut() {
            let Reverse((due_ns, index)) = *first;
            if due_ns >= until_ns {
                break;
            }
            count += 1;
            let starts = &mut self.starts[index as usize];
            starts.pop();
            if starts.is_exhausted() {
                PeekMut::pop(first);
            } else {
                *first = Reverse((starts.next_ns(), index));
            }
        }
        count
    }
}

impl Engine<'_> {
    /// Sends what is due on connections that are free.
    pub(super) fn send_own(&mut self) {
        for _ in 0..SENT_MAX {
            let now_ns = self.time.now_ns;
            let Driver::OwnSchedules(own) = &mut self.driver else {
                return;
            };
            let Some(due) = own.take(now_ns) else {
                return;
            };
            let late_ns = now_ns - due.due_ns;
            let phase = self.time.calendar.phase_of(due.due_ns);
            if self.plan.deadline_ns.is_some_and(|most| late_ns > most) {
                own.put(due.connection, due.free_since_ns);
                self.recorder.failed(phase, ErrorKind::Late, late_ns);
                continue;
            }
            let server = self.clients[due.connection as usize].server;
            let Some(request) = self.choices.next_for(server) else {
                // None of the next ones is for the server of this connection.
                own.put(due.connection, due.free_since_ns);
                self.recorder.tally(phase).unfinished += 1;
                continue;
            };
            if due.free_since_ns <= due.due_ns {
                self.lagged(late_ns);
            }
            let attempt = Attempt::first(request, due.due_ns, phase);
            self.take_up(due.connection, attempt);
            self.time.look_at_clock();
        }
    }

    /// Gives up what was due before `until_ns` and not sent; returns how many of those had no free
    /// connection.
    pub(super) fn give_up_own(&mut self, until_ns: u64) -> u64 {
        let Driver::OwnSchedules(own) = &mut self.driver else {
            return 0;
        };
        let (calendar, recorder) = (&self.time.calendar, &mut self.recorder);
        own.give_up(until_ns, |due_ns| {
            recorder.tally(calendar.phase_of(due_ns)).unfinished += 1;
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Prepared;

    const MS: u64 = 1_000_000;
    const START_NS: u64 = 1_000 * MS;

    /// Ten requests a second on each of so many connections for a second, all of them free from the
    /// start.
    fn schedules(connections: u32) -> OwnSchedules {
        let rate = f64::from(connections) * 10.0;
        let schedule = Schedule::constant(rate, Duration::from_secs(1)).unwrap();
        let starts = (0..connections).map(|index| {
            let own = Share {
                index,
                of: connections,
            };
            let pacer = Pacer::new(&schedule, Arrivals::Constant, own, 1);
            IntendedStarts::new(Source::Paced(pacer), u64::MAX)
        });
        let mut schedules = OwnSchedules::of(starts.collect());
        for index in 0..connections {
            schedules.put(index, START_NS - MS);
        }
        schedules.start(START_NS);
        schedules
    }

    /// A server that answers at once, but for one connection, which it answers at `stall_end_ms`. The
    /// delay of each request, by connection, in milliseconds.
    fn delays_ms(schedules: &mut OwnSchedules, slow: u32, stall_end_ms: u64) -> Vec<Vec<u64>> {
        let mut delays = vec![Vec::new(); schedules.connections.len()];
        for ms in 0..=1000 {
            let now_ns = START_NS + ms * MS;
            if ms == stall_end_ms {
                schedules.put(slow, now_ns);
            }
            while let Some(due) = schedules.take(now_ns) {
                delays[due.connection as usize].push((now_ns - due.due_ns) / MS);
                if due.connection != slow || ms >= stall_end_ms {
                    schedules.put(due.connection, now_ns);
                }
            }
        }
        delays
    }

    #[test]
    fn a_slow_connection_delays_its_own_requests_alone() {
        let delays = delays_ms(&mut schedules(4), 1, 500);
        // Due at 12.5, 37.5, 62.5 and 87.5 ms, by connection, and each 100 ms after that.
        for quick in [0, 2, 3] {
            assert_eq!(delays[quick], [0; 10], "{quick}");
        }
        // The first is sent in time. Those of the next 400 ms wait for its answer: each its own time.
        assert_eq!(delays[1], [0, 362, 262, 162, 62, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn the_schedules_of_all_connections_are_one_even_schedule() {
        let mut schedules = schedules(4);
        let mut taken = Vec::new();
        while let Some(due) = schedules.take(START_NS + 1000 * MS) {
            taken.push((due.due_ns - START_NS, due.connection));
            schedules.put(due.connection, START_NS);
        }
        let right: Vec<(u64, u32)> = (0..40)
            .map(|n| (n * 25 * MS + 25 * MS / 2, (n % 4) as u32))
            .collect();
        assert_eq!(taken, right);
        assert!(schedules.is_exhausted() && schedules.next_ns() == u64::MAX);
    }

    /// The requests of a thread, one of two, by their numbers: each 20 ms one is due.
    fn of_thread(thread: u32, connections: u32) -> Vec<u64> {
        let server = ([127, 0, 0, 1], 80).into();
        let mut plan = Plan::new(server, Prepared::get("a", "/"), Vec::new());
        plan.connections = connections;
        let schedule = Schedule::constant(50.0, Duration::from_secs(1)).unwrap();
        let share = Share {
            index: thread,
            of: 2,
        };
        let count = share.count(u64::from(connections)) as u32;
        let evenly = Arrivals::Constant;
        let mut schedules = OwnSchedules::new(&plan, &schedule, evenly, share, count as usize);
        for index in 0..count {
            schedules.put(index, 0);
        }
        schedules.start(0);
        let mut taken = Vec::new();
        while let Some(due) = schedules.take(1000 * MS) {
            taken.push(due.due_ns / (20 * MS));
            schedules.put(due.connection, 0);
        }
        taken
    }

    #[test]
    fn threads_take_turns() {
        for thread in 0..2 {
            let every_other: Vec<u64> = (u64::from(thread)..50).step_by(2).collect();
            assert_eq!(of_thread(thread, 4), every_other);
        }
        let mut all = [of_thread(0, 5), of_thread(1, 5)].concat();
        all.sort_unstable();
        assert_eq!(all, (0..50).collect::<Vec<u64>>());
    }

    #[test]
    fn what_is_offered_goes_on_whatever_is_sent() {
        let mut schedules = schedules(4);
        assert_eq!(schedules.offered_until(START_NS + 250 * MS), 10);
        for index in 0..4 {
            schedules.remove(index);
        }
        assert_eq!(schedules.take(START_NS + 900 * MS), None);
        assert_eq!(schedules.offered_until(START_NS + 2000 * MS), 30);
        assert_eq!(schedules.offered_until(START_NS + 3000 * MS), 0);
    }

    #[test]
    fn a_connection_that_is_gone_is_given_nothing_until_it_is_back() {
        let mut schedules = schedules(2);
        schedules.remove(0);
        assert_eq!(schedules.next_ns(), START_NS + 75 * MS);
        schedules.put(0, START_NS + 60 * MS);
        schedules.put(0, START_NS + 70 * MS); // it has been free since 60
        let first = schedules.take(START_NS + 80 * MS);
        let right = DueRequest {
            connection: 0,
            due_ns: START_NS + 25 * MS,
            free_since_ns: START_NS + 60 * MS,
        };
        assert_eq!(first, Some(right));
        assert_eq!(schedules.take(START_NS + 80 * MS).unwrap().connection, 1);
        assert_eq!(schedules.take(START_NS + 999 * MS), None);
    }

    #[test]
    fn what_waits_for_a_busy_connection_is_held_back() {
        let mut schedules = schedules(2);
        schedules.remove(1);
        let mut count = 0;
        let held_back = schedules.give_up(START_NS + 500 * MS, |_| count += 1);
        assert_eq!((count, held_back), (10, 5));
        // What is due later goes on.
        assert_eq!(schedules.next_ns(), START_NS + 525 * MS);
        schedules.put(1, START_NS + 500 * MS);
        let next = [(); 2].map(|()| schedules.take(START_NS + 600 * MS).unwrap().due_ns);
        assert_eq!(next, [START_NS + 525 * MS, START_NS + 575 * MS]);
    }
}
