//! Connections that wait for a thread: a bounded queue. One thread pushes, many pop.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use loadline_proto::ConnectionRecord;
use loadline_sys::{Accepted, Waker};

use crate::telemetry::counters::ThreadStats;

/// A connection in the queue.
pub(crate) struct Waiting {
    pub(crate) accepted: Accepted,
    pub(crate) since_us: u64,
    /// Of the connection log, where the accepting thread has noted it.
    pub(crate) record: Option<Box<ConnectionRecord>>,
}

/// The queue.
pub(crate) struct ConnectionQueue {
    state: Mutex<State>,
    some: Condvar,
    /// Readable when there may be room again, after `has_room` has said no.
    room: Waker,
    max: usize,
    stats: Arc<ThreadStats>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    closed: bool,
    pusher_waits: bool,
}

impl ConnectionQueue {
    /// For at most `max` connections.
    pub(crate) fn new(max: usize, stats: Arc<ThreadStats>) -> io::Result<Self> {
        Ok(Self {
            state: Mutex::default(),
            some: Condvar::new(),
            room: Waker::new()?,
            max,
            stats,
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

    /// Queues a connection.
    pub(crate) fn push(&self, waiting: Waiting) {
        self.stats.queue_depth.add(1);
        self.lock().waiting.push_back(waiting);
        self.some.notify_one();
    }

    /// The next one; `None` when the queue is closed and empty.
    pub(crate) fn pop(&self) -> Option<Waiting> {
        let mut state = self.lock();
        loop {
            if let Some(next) = state.waiting.pop_front() {
                if std::mem::take(&mut state.pusher_waits) {
                    self.room.wake();
                }
                drop(state);
                self.stats.queue_depth.sub(1);
                return Some(next);
            }
            if state.closed {
                return None;
            }
            state = self
                .some
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// No more will come.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.some.notify_all();
    }
}
