//! A pool that changes its size while it is used: a task of its own decides ten times a second, once a
//! second while nothing is asked. A statement that has to wait ends such a pause.
//!
//! Connections are opened here before statements may use them, so that a database that grants no more of
//! them fails no request.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use loadline_capacity::sizing::{Bounds, Decision, Sizer};
use sqlx::{Database as Driver, Error, Pool};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::run::return_all;
use super::slots::PoolSlots;
use crate::limits::{OPEN_TIMEOUT, REFUSED_FOR};
use crate::log::failed;
use crate::options::PoolRange;

/// Intervals without a statement after which the pool is looked at rarely.
const INTERVALS_IDLE: u32 = 100;
/// An interval is then so many times as long.
const RARELY: u32 = 10;

/// The task, until dropped.
#[derive(Debug)]
pub(super) struct Sizing(AbortHandle);

impl Sizing {
    /// Changes the slots of a pool between bounds, from now on.
    pub(super) fn start<D: Driver>(
        pool: Pool<D>,
        slots: Arc<PoolSlots>,
        range: PoolRange,
        interval: Duration,
        statement_timeout: Duration,
        runtime: &Handle,
    ) -> Self {
        let resized = Resized {
            sizer: Sizer::new(bounds(range, range.max as usize), slots.size()),
            refused_at: None,
            pool,
            slots,
            range,
            interval,
            statement_timeout,
        };
        Self(runtime.spawn(resized.follow()).abort_handle())
    }

    /// Ends it now.
    pub(super) fn stop(&self) {
        self.0.abort();
    }
}

impl Drop for Sizing {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Resized<D: Driver> {
    pool: Pool<D>,
    slots: Arc<PoolSlots>,
    range: PoolRange,
    interval: Duration,
    statement_timeout: Duration,
    sizer: Sizer,
    /// When the database did not grant a connection.
    refused_at: Option<Instant>,
}

impl<D: Driver> Resized<D> {
    async fn follow(mut self) {
        let mut idle = 0_u32;
        loop {
            match idle >= INTERVALS_IDLE {
                true => self.slots.pause(self.interval * RARELY).await,
                false => sleep(self.interval).await,
            }
            let is_busy = unless_it_panics(self.decide()).await;
            let is_busy = is_busy.unwrap_or_else(|| {
                failed!(error, "a panic: the pool keeps its size for now");
                self.begin_again(self.range.max as usize);
                true
            });
            idle = if is_busy { 0 } else { idle.saturating_add(1) };
        }
    }

    /// Measures, decides, and changes the size; `true`: it has something to do.
    async fn decide(&mut self) -> bool {
        if self.refused_at.is_some_and(|at| at.elapsed() > REFUSED_FOR) {
            self.refused_at = None;
            self.begin_again(self.range.max as usize);
        }
        let measured = self.slots.measure();
        let decision = self.sizer.decide(&measured);
        if decision.size != decision.from {
            say(&decision);
        }
        if decision.size > self.slots.size() {
            self.grow(decision.size).await;
        } else {
            self.slots.resize(decision.size);
        }
        self.close_surplus().await;
        measured.busy_us > 0 || measured.queue_depth > 0 || measured.jobs > 0
    }

    /// Gives out more slots, as far as the database grants connections for them.
    async fn grow(&mut self, size: usize) {
        let Err(error) = self.open(size).await else {
            return self.slots.resize(size);
        };
        let before = self.slots.size();
        let granted = (self.pool.size() as usize).clamp(before, size);
        failed!(
            warn,
            "the database did not open {size} connections: {error}; there are {granted} for now"
        );
        self.refused_at = Some(Instant::now());
        self.slots.resize(granted);
        self.begin_again(granted);
    }

    /// Opens those connections that are missing to this number. One that is idle after all counts as
    /// opened: a statement that misses it opens another, and no more than this number are there.
    async fn open(&self, size: usize) -> Result<(), Error> {
        let (mut held, mut result) = (Vec::new(), Ok(()));
        for _ in self.pool.size() as usize..size {
            let opening = timeout(OPEN_TIMEOUT, self.pool.acquire()).await;
            match opening.unwrap_or(Err(Error::PoolTimedOut)) {
                Ok(connection) => held.push(connection),
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        // Dropped, they would return in their own time, and who gets a slot would open another.
        return_all(held, self.statement_timeout).await;
        result
    }

    /// Closes idle connections that are too many. Those in use are closed by their statements.
    async fn close_surplus(&self) {
        while self.pool.size() as usize > self.slots.size()
            && let Some(connection) = self.pool.try_acquire()
        {
            let closing = timeout(self.statement_timeout, connection.close());
            let _ = closing.await; // how it ended changes nothing
        }
    }

    fn begin_again(&mut self, max: usize) {
        self.sizer = Sizer::new(bounds(self.range, max), self.slots.size());
    }
}

/// What a future returns; `None` if it has panicked.
async fn unless_it_panics<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let poll = |cx: &mut Context<'_>| {
        let poll = AssertUnwindSafe(|| future.as_mut().poll(cx));
        match catch_unwind(poll) {
            Ok(polled) => polled.map(Some),
            Err(_) => Poll::Ready(None), // the panic's own message has been printed
        }
    };
    poll_fn(poll).await
}

fn bounds(range: PoolRange, max: usize) -> Bounds {
    Bounds {
        min: range.min as usize,
        max,
    }
}

fn say(decision: &Decision) {
    let Decision {
        from, size, reason, ..
    } = *decision;
    failed!(
        debug,
        "{size} connections instead of {from} ({reason:?}): {:.0} statements a second of {:.0} us, \
         which waited for {:.0} us",
        decision.jobs_per_s,
        decision.service_us,
        decision.wait_mean_us
    );
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::Ordering::SeqCst;

    use sqlx::Sqlite;
    use sqlx::pool::PoolOptions;
    use sqlx::sqlite::SqliteConnectOptions;
    use tempfile::TempDir;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::store::run::tests::never_closing;

    /// Longer than no connection is tried where one took too long to open.
    const TIMEOUT: Duration = Duration::from_secs(180);

    async fn eventually(is_so: impl Fn() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < TIMEOUT);
            sleep(Duration::from_millis(1)).await; // a number announces itself nowhere
        }
    }

    #[tokio::test]
    async fn connections_come_and_go_with_what_is_asked() {
        come_and_go(&Changing::new(PoolOptions::new(), 0)).await;
    }

    #[tokio::test]
    async fn decisions_that_panic_are_not_the_last_ones() {
        come_and_go(&Changing::new(PoolOptions::new(), 3)).await;
    }

    #[tokio::test]
    async fn connections_that_never_close_stop_no_decision() {
        come_and_go(&Changing::new(never_closing(), 0)).await;
    }

    /// Nobody answers when the driver asks whether the connections that were opened are well.
    #[tokio::test]
    async fn a_host_that_has_vanished_stops_no_decision() {
        let options = PoolOptions::<Sqlite>::new();
        let options = options.after_release(|_, _| Box::pin(pending::<Result<bool, Error>>()));
        let changing = Changing::new(options, 0);
        let _stuck = changing.get_stuck();
        eventually(|| changing.slots.busy() == 16).await;
    }

    async fn come_and_go(changing: &Changing) {
        let Changing { slots, pool, .. } = changing;
        let stuck = changing.get_stuck();
        eventually(|| slots.busy() == 16 && pool.size() == 16).await;
        assert_eq!(slots.panics.load(SeqCst), 0);
        stuck.iter().for_each(JoinHandle::abort);
        eventually(|| slots.size() == 2 && slots.busy() == 0 && pool.size() <= 2).await;
    }

    /// A pool of 2 to 16 connections.
    struct Changing {
        slots: Arc<PoolSlots>,
        pool: Pool<Sqlite>,
        _sizing: Sizing,
        _folder: TempDir,
    }

    impl Changing {
        /// So many decisions panic at first.
        fn new(options: PoolOptions<Sqlite>, panics: usize) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let connect = SqliteConnectOptions::new().filename(folder.path().join("a.db"));
            let connect = connect.create_if_missing(true);
            // A statement when they close.
            let connect = connect.optimize_on_close(true, None::<u32>);
            let pool = options.max_connections(16);
            let pool = pool.connect_lazy_with(connect);
            let interval = Duration::from_millis(5);
            let slots = PoolSlots::new(2, interval);
            slots.panics.store(panics, SeqCst);
            let range = PoolRange { min: 2, max: 16 };
            let runtime = Handle::current();
            let shared = Arc::clone(&slots);
            let sizing = Sizing::start(pool.clone(), shared, range, interval, interval, &runtime);
            Self {
                slots,
                pool,
                _sizing: sizing,
                _folder: folder,
            }
        }

        /// Thirty statements that wait for ever.
        fn get_stuck(&self) -> Vec<JoinHandle<()>> {
            let stuck = |_| {
                let (slots, pool) = (Arc::clone(&self.slots), self.pool.clone());
                tokio::spawn(async move {
                    let _slot = slots.take().await.unwrap();
                    let _connection = pool.acquire().await.unwrap();
                    pending::<()>().await;
                })
            };
            (0..30).map(stuck).collect()
        }
    }
}
