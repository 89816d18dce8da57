//! Connections that wait for a thread: a bounded queue. One thread pushes, many pop.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use loadline_proto::ConnectionRecord;
use loadline_sys::{Accepted, Waker, has_hung_up};

use crate::overload::QueueControl;
use crate::telemetry::counters::Row;

/// A connection in the queue.
pub(crate) struct Waiting {
    pub(crate) accepted: Accepted,
    pub(crate) since_us: u64,
    /// Of the journal of connections, where the accepting thread has noted it.
    pub(crate) record: Option<Box<ConnectionRecord>>,
}

/// How long a thread was busy with connections, without what it waited for them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BusyTime {
    /// Times that it had something to do.
    pub(crate) visits: u64,
    pub(crate) us: u64,
}

/// A connection for a thread.
pub(crate) struct Popped {
    pub(crate) waiting: Waiting,
    pub(crate) waited_us: u64,
    /// It has waited for long, and its client has left.
    pub(crate) has_left: bool,
}

/// The queue.
pub(crate) struct ConnectionQueue {
    state: Mutex<State>,
    some: Condvar,
    /// Readable when there may be room again, after `has_room` has said no.
    room: Waker,
    max: usize,
    /// How many wait; written under the lock.
    depth: AtomicUsize,
    /// How long a connection may keep its thread while others wait: together they take a latency goal.
    share_ms: Option<u64>,
    row: Arc<Row>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// Threads that wait for a connection.
    asleep: usize,
    closed: bool,
    pusher_waits: bool,
    control: Option<QueueControl>,
}

impl ConnectionQueue {
    /// At most `max` connections before `threads`, of which none waits longer than the goal allows.
    pub(crate) fn new(
        max: usize,
        threads: usize,
        goal: Option<Duration>,
        row: Arc<Row>,
    ) -> io::Result<Self> {
        let share_ms = goal.map(|goal| {
            let share_ms = goal.as_millis().saturating_mul(threads as u128);
            u64::try_from(share_ms).unwrap_or(u64::MAX)
        });
        Ok(Self {
            state: Mutex::new(State {
                control: goal.map(|goal| QueueControl::new(goal, threads)),
                ..State::default()
            }),
            some: Condvar::new(),
            room: Waker::new()?,
            max,
            depth: AtomicUsize::new(0),
            share_ms,
            row,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is readable once there is room.
    pub(crate) fn room_fd(&self) -> BorrowedFd<'_> {
        self.room.as_fd()
    }

    /// Whether one more fits. If not, `room_fd` becomes readable once one does.
    pub(crate) fn has_room(&self) -> bool {
        let mut state = self.lock();
        state.pusher_waits = state.waiting.len() >= self.max;
        if state.pusher_waits {
            self.room.clear();
        }
        !state.pusher_waits
    }

    /// Whether one more would be served in time.
    pub(crate) fn is_in_time(&self, now_us: u64) -> bool {
        let mut state = self.lock();
        // Less those that threads are about to take.
        let ahead = state.waiting.len().saturating_sub(state.asleep);
        let control = state.control.as_mut();
        control.is_none_or(|control| control.offer(now_us, ahead).is_ok())
    }

    /// Queues a connection.
    pub(crate) fn push(&self, waiting: Waiting) {
        self.row.queue_depth.add(1);
        let mut state = self.lock();
        state.waiting.push_back(waiting);
        self.depth.store(state.waiting.len(), Ordering::Relaxed);
        drop(state);
        self.some.notify_one();
    }

    /// The next one, for a thread that was `busy` since its last; `None` when the queue is
    /// closed and empty.
    pub(crate) fn pop(&self, busy: BusyTime, now_us: impl Fn() -> u64) -> Option<Popped> {
        let mut state = self.lock();
        if let Some(control) = &mut state.control
            && busy.visits > 0
        {
            control.done_many(now_us(), busy.visits, busy.us);
        }
        loop {
            if let Some(next) = state.waiting.pop_front() {
                let depth = state.waiting.len();
                self.depth.store(depth, Ordering::Relaxed);
                let now_us = now_us();
                let waited_us = now_us.saturating_sub(next.since_us);
                let control = state.control.as_mut();
                let is_long = control.is_some_and(|control| {
                    let _ = control.take(now_us, waited_us, 0); // it is served, however late
                    control.is_long(waited_us)
                });
                if std::mem::take(&mut state.pusher_waits) {
                    self.room.wake();
                }
                drop(state);
                self.row.queue_depth.sub(1);
                return Some(Popped {
                    has_left: is_long && has_hung_up(next.accepted.socket.as_fd()),
                    waiting: next,
                    waited_us,
                });
            }
            if state.closed {
                return None;
            }
            state.asleep += 1;
            state = self
                .some
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.asleep -= 1;
        }
    }

    /// Whether any connection waits, about.
    pub(crate) fn is_waiting(&self) -> bool {
        self.depth.load(Ordering::Relaxed) > 0
    }

    /// Whether a connection that has kept its thread for so long, in ms, is to let others have it.
    pub(crate) fn is_share_used_up(&self, kept_ms: u64) -> bool {
        let depth = self.depth.load(Ordering::Relaxed) as u64;
        match self.share_ms {
            Some(share_ms) if depth > 0 => kept_ms >= share_ms / depth,
            _ => false,
        }
    }

    /// No more will come.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.some.notify_all();
    }
}
