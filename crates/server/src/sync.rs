//! Locks, flags and wake-ups between threads. The tests in `interleavings/` compile the files
//! that import this module once more, over the types of a model checker.

pub(crate) use crossbeam_deque as deque;
pub(crate) use loadline_sys::Waker;
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use std::thread;

pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
}
