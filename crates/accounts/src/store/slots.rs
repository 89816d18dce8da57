//! The right to use a connection: as many slots as the pool is to have connections at present, and
//! what was done with them, for whoever decides how many there should be.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use loadline_capacity::sizing::{INTERVAL_MS, Measured, Waits};
use tokio::sync::{AcquireError, Notify, OwnedSemaphorePermit, Semaphore, TryAcquireError};
use tokio::time::{Instant, timeout};

/// The slots of a pool.
#[derive(Debug)]
pub(super) struct PoolSlots {
    free: Arc<Semaphore>,
    state: Mutex<State>,
    /// A statement begins to wait.
    wait_begins: Notify,
    began: Instant,
    /// Its clock is so many times as fast.
    pace: f64,
    /// So many readings are to panic.
    #[cfg(test)]
    pub(super) panics: std::sync::atomic::AtomicUsize,
}

#[derive(Debug)]
struct State {
    size: usize,
    /// Slots in use that are too many: each goes when it is released.
    surplus: usize,
    tally: PoolTally,
}

/// What was done since the last reading. Pure.
#[derive(Debug, Default)]
struct PoolTally {
    busy: usize,
    waiting: usize,
    /// Until then `busy_us` counts, in microseconds of the clock of [`PoolSlots`].
    noted_us: u64,
    read_us: u64,
    busy_us: u64,
    done: u64,
    waits: Waits,
    busy_max: usize,
    present_max: usize,
}

/// A slot, until dropped.
#[derive(Debug)]
pub(super) struct PoolSlot {
    slots: Arc<PoolSlots>,
    permit: Option<OwnedSemaphorePermit>,
}

impl PoolSlots {
    /// This many slots, 1 or more. `interval` is the time between two decisions on their number: if it
    /// is shorter than usual, all times count as so much longer.
    pub(super) fn new(size: usize, interval: Duration) -> Arc<Self> {
        Arc::new(Self {
            free: Arc::new(Semaphore::new(size)),
            state: Mutex::new(State {
                size,
                surplus: 0,
                tally: PoolTally::default(),
            }),
            wait_begins: Notify::new(),
            began: Instant::now(),
            pace: INTERVAL_MS as f64 / (interval.as_secs_f64() * 1e3).max(1.0),
            #[cfg(test)]
            panics: Default::default(),
        })
    }

    /// A slot that is free.
    pub(super) fn try_take(self: &Arc<Self>) -> Result<PoolSlot, TryAcquireError> {
        let permit = Arc::clone(&self.free).try_acquire_owned()?;
        Ok(self.slot(permit, 0))
    }

    /// The next slot that is free, in the order of coming.
    pub(super) async fn take(self: &Arc<Self>) -> Result<PoolSlot, AcquireError> {
        let began_us = self.now_us();
        let waiting = Waiting::new(self);
        self.wait_begins.notify_waiters();
        let permit = Arc::clone(&self.free).acquire_owned().await?;
        drop(waiting);
        Ok(self.slot(permit, self.now_us().saturating_sub(began_us)))
    }

    /// Waits for so long, or until a statement waits for a slot.
    pub(super) async fn pause(&self, longest: Duration) {
        let begins = self.wait_begins.notified(); // also of one that begins before this is polled
        if self.lock().tally.waiting == 0 {
            let _ = timeout(longest, begins).await; // either of them ends it
        }
    }

    /// From now on there are this many slots, 1 or more. Those in use that are too many go when they
    /// are released.
    pub(super) fn resize(&self, size: usize) {
        let mut state = self.lock();
        let (before, size) = (state.size, size.max(1));
        state.size = size;
        if let Some(fewer) = before.checked_sub(size) {
            state.surplus += fewer - self.free.forget_permits(fewer);
        } else {
            let more = size - before;
            let stay = more.min(state.surplus);
            state.surplus -= stay;
            self.free.add_permits(more - stay);
        }
    }

    /// How many there are.
    pub(super) fn size(&self) -> usize {
        self.lock().size
    }

    /// How many are in use.
    pub(super) fn busy(&self) -> usize {
        self.lock().tally.busy
    }

    /// What was done with them since the last call. Connections compute nothing here: what they wait for
    /// uses no CPU of theirs.
    pub(super) fn measure(&self) -> Measured {
        #[cfg(test)]
        {
            use std::sync::atomic::Ordering::SeqCst;
            let less = |left: usize| left.checked_sub(1);
            let panics = self.panics.fetch_update(SeqCst, SeqCst, less);
            assert!(panics.is_err(), "on purpose");
        }
        let mut state = self.lock();
        let size = state.size;
        state.tally.read(self.now_us(), size)
    }

    fn slot(self: &Arc<Self>, permit: OwnedSemaphorePermit, waited_us: u64) -> PoolSlot {
        self.lock().tally.taken(self.now_us(), waited_us);
        PoolSlot {
            slots: Arc::clone(self),
            permit: Some(permit),
        }
    }

    fn now_us(&self) -> u64 {
        (self.began.elapsed().as_secs_f64() * 1e6 * self.pace) as u64
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PoolSlot {
    /// Whether it is one too many: then its connection is to be closed. It goes when it is dropped.
    pub(super) fn goes(&mut self) -> bool {
        let mut state = self.slots.lock();
        if self.permit.is_some() && state.surplus > 0 {
            state.surplus -= 1;
            if let Some(permit) = self.permit.take() {
                permit.forget();
            }
        }
        self.permit.is_none()
    }
}

impl Drop for PoolSlot {
    fn drop(&mut self) {
        self.goes();
        self.slots.lock().tally.released(self.slots.now_us());
    }
}

/// A statement that waits for a slot, until dropped.
struct Waiting<'p>(&'p PoolSlots);

impl<'p> Waiting<'p> {
    fn new(slots: &'p PoolSlots) -> Self {
        slots.lock().tally.came();
        Self(slots)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.lock().tally.waiting -= 1;
    }
}

impl PoolTally {
    fn came(&mut self) {
        self.waiting += 1;
        self.present_max = self.present_max.max(self.busy + self.waiting);
    }

    fn taken(&mut self, now_us: u64, waited_us: u64) {
        self.pass(now_us);
        self.busy += 1;
        self.busy_max = self.busy_max.max(self.busy);
        self.present_max = self.present_max.max(self.busy + self.waiting);
        self.waits.record(waited_us);
    }

    fn released(&mut self, now_us: u64) {
        self.pass(now_us);
        self.busy -= 1;
        self.done += 1;
    }

    fn pass(&mut self, now_us: u64) {
        let passed_us = now_us.saturating_sub(self.noted_us);
        self.busy_us += passed_us * self.busy as u64;
        self.noted_us = self.noted_us.max(now_us);
    }

    fn read(&mut self, now_us: u64, size: usize) -> Measured {
        self.pass(now_us);
        let next = Self {
            busy: self.busy,
            waiting: self.waiting,
            noted_us: self.noted_us,
            read_us: now_us,
            busy_max: self.busy,
            present_max: self.busy + self.waiting,
            ..Self::default()
        };
        let read = std::mem::replace(self, next);
        Measured {
            interval_us: now_us.saturating_sub(read.read_us).max(1),
            size,
            cpus: f64::INFINITY,
            shared_cpus: f64::INFINITY,
            jobs: read.done,
            answers: 0,
            waits: read.waits,
            busy_us: read.busy_us,
            cpu_us: 0,
            others_cpu_us: 0,
            ready_us: 0,
            loops: 0,
            loops_cpu_us: 0,
            loops_ready_us: 0,
            connections: 0,
            busy_max: read.busy_max,
            present_max: read.present_max,
            queue_depth: read.waiting,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::yield_now;

    use super::*;

    fn slots(size: usize) -> Arc<PoolSlots> {
        PoolSlots::new(size, Duration::from_millis(INTERVAL_MS))
    }

    #[test]
    fn what_was_done_is_measured() {
        let mut tally = PoolTally::default();
        tally.taken(1_000, 0);
        tally.taken(2_000, 0);
        tally.came();
        tally.released(5_000);
        tally.waiting -= 1;
        tally.taken(5_000, 3_000);
        tally.came();
        let measured = tally.read(10_000, 2);
        assert_eq!((measured.interval_us, measured.size), (10_000, 2));
        assert_eq!((measured.jobs, measured.queue_depth), (1, 1));
        assert_eq!(measured.busy_us, 4_000 + 8_000 + 5_000);
        assert_eq!((measured.busy_max, measured.present_max), (2, 3));
        assert_eq!((measured.waits.count(), measured.waits.mean_us()), (3, 1e3));
        tally.released(11_000);
        let measured = tally.read(12_000, 2);
        assert_eq!((measured.jobs, measured.waits.count()), (1, 0));
        assert_eq!((measured.interval_us, measured.busy_us), (2_000, 3_000));
        assert_eq!((measured.busy_max, measured.present_max), (2, 3));
    }

    #[tokio::test]
    async fn slots_that_are_too_many_go_when_they_are_released() {
        let slots = slots(4);
        let mut taken: Vec<_> = (0..3).map(|_| slots.try_take().unwrap()).collect();
        slots.resize(1);
        assert_eq!((slots.size(), slots.busy()), (1, 3));
        assert!(slots.try_take().is_err(), "the free one went at once");
        assert!(taken.pop().unwrap().goes());
        taken.pop();
        assert!(slots.try_take().is_err(), "the second went, too");
        assert!(!taken[0].goes());
        taken.pop();
        let last = slots.try_take().unwrap();
        assert!(slots.try_take().is_err());
        slots.resize(2);
        assert!(slots.try_take().is_ok());
        drop(last);
        assert_eq!(slots.busy(), 0);
    }

    #[tokio::test]
    async fn slots_that_were_too_many_stay_if_they_are_wanted_again() {
        let slots = slots(3);
        let taken: Vec<_> = (0..3).map(|_| slots.try_take().unwrap()).collect();
        slots.resize(1);
        slots.resize(4);
        let fourth = slots.try_take().unwrap();
        assert!(slots.try_take().is_err());
        drop((taken, fourth));
        let taken: Vec<_> = (0..4).map(|_| slots.try_take().unwrap()).collect();
        assert_eq!((slots.busy(), taken.len()), (4, 4));
    }

    #[tokio::test]
    async fn a_statement_that_has_to_wait_ends_a_pause() {
        const LONG: Duration = Duration::from_secs(3600);
        let slots = slots(1);
        let pausing = tokio::spawn({
            let slots = Arc::clone(&slots);
            async move { slots.pause(LONG).await }
        });
        yield_now().await;
        let first = slots.try_take().unwrap();
        yield_now().await;
        assert!(!pausing.is_finished(), "it found a slot");
        let waiting = tokio::spawn({
            let slots = Arc::clone(&slots);
            async move { slots.take().await }
        });
        let soon = Duration::from_secs(60);
        timeout(soon, pausing).await.expect("it ends").unwrap();
        timeout(soon, slots.pause(LONG)).await.expect("one waits");
        drop(first);
        waiting.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn whoever_waits_gets_a_new_slot_and_is_counted_until_then() {
        let slots = slots(1);
        let first = slots.try_take().unwrap();
        let waiting = tokio::spawn({
            let slots = Arc::clone(&slots);
            async move { slots.take().await }
        });
        let given_up = timeout(Duration::ZERO, slots.take()).await;
        assert!(given_up.is_err());
        while slots.lock().tally.waiting < 1 {
            yield_now().await;
        }
        assert_eq!(slots.measure().queue_depth, 1, "not who has given up");
        slots.resize(2);
        let second = waiting.await.unwrap().unwrap();
        drop((first, second));
        let measured = slots.measure();
        assert_eq!((measured.jobs, measured.queue_depth), (2, 0));
        assert_eq!((measured.busy_max, measured.present_max), (2, 2));
    }
}
