//! As `src/sync.rs`, over loom.

mod lock;

use std::io;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) use lock::{Condvar, Mutex, MutexGuard};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An eventfd.
#[derive(Debug, Default)]
pub(crate) struct Waker {
    readable: Mutex<bool>,
    changed: Condvar,
    /// Calls of `wake`.
    wakes: AtomicUsize,
}

impl Waker {
    #[allow(clippy::unnecessary_wraps, reason = "as in `loadline_sys`")]
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self::default())
    }

    pub(crate) fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
        *lock(&self.readable) = true;
        self.changed.notify_one();
    }

    pub(crate) fn clear(&self) {
        *lock(&self.readable) = false;
    }

    /// As `ppoll` does: until it is readable.
    pub(crate) fn wait(&self) {
        drop(self.wait_readable());
    }

    /// As edge-triggered epoll does: until it was woken since the last time.
    pub(crate) fn wait_edge(&self) {
        *self.wait_readable() = false;
    }

    fn wait_readable(&self) -> MutexGuard<'_, bool> {
        let mut readable = lock(&self.readable);
        while !*readable {
            let waited = self.changed.wait(readable);
            readable = waited.unwrap_or_else(PoisonError::into_inner);
        }
        readable
    }

    pub(crate) fn wakes(&self) -> usize {
        self.wakes.load(Ordering::Relaxed)
    }
}

/// Yielding, some times.
pub(crate) mod thread {
    use std::cell::Cell;

    /// How often a thread yields before its orders are no longer varied: two that yield to each other
    /// in turn would go on for ever, past a third.
    const YIELDS_MAX: usize = 2;

    loom::thread_local! {
        static YIELDS: Cell<usize> = Cell::new(0);
    }

    pub(crate) fn yield_now() {
        let yields = YIELDS.with(|yields| yields.replace(yields.get() + 1));
        if yields == YIELDS_MAX {
            loom::skip_branch();
        }
        loom::thread::yield_now();
    }
}

pub(crate) mod atomic {
    use std::sync::atomic::Ordering::{AcqRel, Acquire, Release, SeqCst};

    pub(crate) use loom::sync::atomic::{Ordering, fence};

    use crate::checker::{Fences, fences};

    /// An access; `SeqCst` by a fence and the next weaker order. None while a case unwinds.
    fn ordered<T: Default>(
        order: Ordering,
        weaker: Ordering,
        access: impl FnOnce(Ordering) -> T,
    ) -> T {
        if std::thread::panicking() {
            return T::default();
        }
        if order != SeqCst {
            return access(order);
        }
        if fences() == Fences::Leading {
            fence(SeqCst);
        }
        let value = access(weaker);
        if fences() == Fences::Trailing {
            fence(SeqCst);
        }
        value
    }

    /// Its stores are swaps. loom would let a store come between the two halves of another thread's
    /// swap, which C11 rules out; this way stores have one order, and loads may still be late.
    #[derive(Debug)]
    pub(crate) struct AtomicBool(loom::sync::atomic::AtomicBool);

    impl AtomicBool {
        pub(crate) fn new(value: bool) -> Self {
            Self(loom::sync::atomic::AtomicBool::new(value))
        }

        pub(crate) fn load(&self, order: Ordering) -> bool {
            ordered(order, Acquire, |order| self.0.load(order))
        }

        pub(crate) fn store(&self, value: bool, order: Ordering) {
            ordered(order, Release, |order| self.0.swap(value, order));
        }

        pub(crate) fn swap(&self, value: bool, order: Ordering) -> bool {
            ordered(order, AcqRel, |order| self.0.swap(value, order))
        }
    }

    /// As above.
    #[derive(Debug)]
    pub(crate) struct AtomicUsize(loom::sync::atomic::AtomicUsize);

    impl AtomicUsize {
        pub(crate) fn new(value: usize) -> Self {
            Self(loom::sync::atomic::AtomicUsize::new(value))
        }

        pub(crate) fn load(&self, order: Ordering) -> usize {
            ordered(order, Acquire, |order| self.0.load(order))
        }

        pub(crate) fn store(&self, value: usize, order: Ordering) {
            ordered(order, Release, |order| self.0.swap(value, order));
        }

        pub(crate) fn fetch_add(&self, value: usize, order: Ordering) -> usize {
            ordered(order, AcqRel, |order| self.0.fetch_add(value, order))
        }

        pub(crate) fn fetch_sub(&self, value: usize, order: Ordering) -> usize {
            ordered(order, AcqRel, |order| self.0.fetch_sub(value, order))
        }
    }
}

/// Deques with the promises of crossbeam's, each step under a lock.
pub(crate) mod deque {
    use std::collections::VecDeque;
    use std::sync::Arc;

    use super::{Mutex, lock};

    pub(crate) enum Steal<T> {
        Empty,
        Success(T),
        Retry,
    }

    pub(crate) struct Injector<T>(Mutex<VecDeque<T>>);

    pub(crate) struct Worker<T>(Arc<Mutex<VecDeque<T>>>);

    pub(crate) struct Stealer<T>(Arc<Mutex<VecDeque<T>>>);

    impl<T> Injector<T> {
        pub(crate) fn new() -> Self {
            Self(Mutex::default())
        }

        pub(crate) fn push(&self, item: T) {
            lock(&self.0).push_back(item);
        }

        /// Half of what there is goes to `worker`. Meanwhile it is nowhere to be found.
        pub(crate) fn steal_batch_and_pop(&self, worker: &Worker<T>) -> Steal<T> {
            let mut all = lock(&self.0);
            let half = all.len().div_ceil(2);
            let batch: Vec<T> = all.drain(..half).collect();
            drop(all);
            let mut batch = batch.into_iter();
            let Some(first) = batch.next() else {
                return Steal::Empty;
            };
            if batch.len() > 0 {
                lock(&worker.0).extend(batch);
            }
            Steal::Success(first)
        }
    }

    impl<T> Worker<T> {
        pub(crate) fn new_fifo() -> Self {
            Self(Arc::default())
        }

        pub(crate) fn stealer(&self) -> Stealer<T> {
            Stealer(Arc::clone(&self.0))
        }

        pub(crate) fn pop(&self) -> Option<T> {
            lock(&self.0).pop_front()
        }

        pub(crate) fn is_empty(&self) -> bool {
            lock(&self.0).is_empty()
        }
    }

    impl<T> Stealer<T> {
        pub(crate) fn steal(&self) -> Steal<T> {
            match lock(&self.0).pop_front() {
                Some(item) => Steal::Success(item),
                None => Steal::Empty,
            }
        }
    }
}
