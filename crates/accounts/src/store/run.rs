//! One statement: waiting for a connection, asking, judging what went wrong.
//!
//! It runs as a task of its own, so that a client who goes away in the middle neither leaves a
//! connection with half an answer in it nor costs the pool a connection.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{Database as Driver, Error, Pool as DriverPool};
use tokio::sync::{AcquireError, OwnedSemaphorePermit};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::slots::PoolSlot;
use super::{Pool, Store, StoreError};
use crate::limits::GONE_FOR_MS;
use crate::log::failed;

/// How often a statement is asked again that lost against another, or a read whose connection broke.
const TRIES: u32 = 4;

/// What a statement does with a connection.
pub(super) type Asking<'c, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'c>>;

/// A statement for the driver of a database.
type Statement<D, T> =
    Box<dyn for<'c> Fn(&'c mut <D as Driver>::Connection) -> Asking<'c, T> + Send>;

/// Whether a statement changes anything.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StatementKind {
    Read,
    Write,
}

/// A statement that answers with at most one row.
macro_rules! fetch {
    ($store:expr, $sql:expr, [$($argument:ident),*]) => {
        $crate::store::run::on_each!(Read, $store, $sql, [$($argument),*], asking, {
            sqlx::query_as(asking.0)$(.bind($argument))*.fetch_optional(asking.1).await
        })
    };
}

/// A statement that answers with the number of rows it changed.
macro_rules! change {
    ($store:expr, $sql:expr, [$($argument:ident),*]) => {
        $crate::store::run::on_each!(Write, $store, $sql, [$($argument),*], asking, {
            let done = sqlx::query(asking.0)$(.bind($argument))*.execute(asking.1).await;
            done.map(|done| done.rows_affected())
        })
    };
}

/// A statement that reads a user and waits for whoever changes it to commit: otherwise what goes with an old
/// password could be noted behind the change. SQLite has one writer at a time.
macro_rules! locking {
    ($store:expr, $sql:literal) => {
        match &$store.pool {
            $crate::store::Pool::Sqlite(_) => $sql,
            $crate::store::Pool::Postgres(_) => concat!($sql, " FOR SHARE"),
            $crate::store::Pool::MySql(_) => concat!($sql, " LOCK IN SHARE MODE"),
        }
    };
}

/// A statement that answers with the number of rows it changed. If there are any, whatever a user has in these
/// tables is deleted with it: all of it is done, or nothing.
macro_rules! change_and_delete {
    ($store:expr, $sql:expr, [$($argument:ident),*], $id:ident, $tables:expr) => {
        $crate::store::run::on_each!(Write, $store, $sql, [$($argument),*], asking, {
            let mut transaction = sqlx::Connection::begin(asking.1).await?;
            let query = sqlx::query(asking.0)$(.bind($argument))*;
            let changed = query.execute(&mut *transaction).await?.rows_affected();
            for table in $tables.into_iter().filter(|_: &&str| changed > 0) {
                let delete = format!("DELETE FROM {table} WHERE user_id = {}", $id);
                let delete = sqlx::raw_sql(sqlx::AssertSqlSafe(delete)); // a name of ours, and a number
                delete.execute(&mut *transaction).await?;
            }
            transaction.commit().await?;
            Ok(changed)
        })
    };
}

/// Deletes what a user has too much of in a table: all but the newest.
macro_rules! keep_newest {
    ($store:expr, $table:literal, $id:ident, $kept:ident) => {
        // The inner table has a name because MySQL does not read from the one it deletes from.
        $crate::store::run::change!(
            $store,
            concat!(
                "DELETE FROM ",
                $table,
                " WHERE user_id = $1 AND token_hash NOT IN ( \
                   SELECT token_hash FROM ( \
                     SELECT token_hash FROM ",
                $table,
                " WHERE user_id = $2 \
                     ORDER BY created_ms DESC, token_hash LIMIT $3) AS newest)"
            ),
            [$id, $id, $kept]
        )
    };
}

/// The same statement for the driver of each database.
macro_rules! on_each {
    ($kind:ident, $store:expr, $sql:expr, [$($argument:ident),*], $asking:ident, $ask:block) => {{
        macro_rules! run {
            ($pool:expr, $text:expr) => {
                $store
                    .run($pool, $crate::store::run::StatementKind::$kind, move |connection| {
                        $(let $argument = $argument.clone();)*
                        Box::pin(async move {
                            let $asking = ($text, connection);
                            $ask
                        })
                    })
                    .await
            };
        }
        match &$store.pool {
            $crate::store::Pool::Sqlite(pool) => run!(pool, $sql),
            $crate::store::Pool::Postgres(pool) => run!(pool, $sql),
            $crate::store::Pool::MySql(pool) => {
                run!(pool, sqlx::AssertSqlSafe($crate::store::run::with_question_marks($sql)))
            }
        }
    }};
}

pub(super) use {change, change_and_delete, fetch, keep_newest, locking, on_each};

/// MySQL has `?` in place of `$1`. All statements name their arguments once and in order.
pub(super) fn with_question_marks(sql: &str) -> String {
    let mut marked = String::with_capacity(sql.len());
    for (index, piece) in sql.split('$').enumerate() {
        if index > 0 {
            marked.push('?');
        }
        let digits = match index {
            0 => 0,
            _ => piece.len() - piece.trim_start_matches(|c: char| c.is_ascii_digit()).len(),
        };
        marked.push_str(&piece[digits..]);
    }
    marked
}

/// The right to use a connection; and with SQLite, to write.
struct ConnectionPermit {
    slot: PoolSlot,
    writer: Option<OwnedSemaphorePermit>,
}

impl ConnectionPermit {
    /// Gives the connection back, beside the response: the driver asks it first whether it is well.
    fn give_back<D: Driver>(self, connection: PoolConnection<D>, limit: Duration) {
        let Self { mut slot, writer } = self;
        drop(writer);
        // The slot is free once the connection is: nobody who gets it has to open another.
        tokio::spawn(async move {
            if slot.goes() {
                let _ = timeout(limit, connection.close()).await; // how it ended changes nothing
            } else {
                return_to_pool(connection, limit).await;
            }
            drop(slot);
        });
    }
}

/// Gives connections back to their pool, all at once: one that does not answer takes no time from the others.
pub(super) async fn return_all<D: Driver>(held: Vec<PoolConnection<D>>, limit: Duration) {
    let each = held.into_iter();
    let returning: JoinSet<()> = each
        .map(|connection| return_to_pool(connection, limit))
        .collect();
    returning.join_all().await;
}

/// Gives a connection back. The driver asks it first whether it is well, and waits without end where the
/// database's host has vanished: a connection that has not answered in time is closed.
async fn return_to_pool<D: Driver>(mut connection: PoolConnection<D>, limit: Duration) {
    let _ = timeout(limit, connection.return_to_pool()).await; // how it ended changes nothing
}

impl Store {
    /// Asks with a connection of the pool, again where that is safe and may help.
    pub(super) fn run<D, T>(
        &self,
        pool: &DriverPool<D>,
        kind: StatementKind,
        ask: impl for<'c> Fn(&'c mut D::Connection) -> Asking<'c, T> + Send + 'static,
    ) -> impl Future<Output = Result<T, StoreError>> + Send
    where
        D: Driver,
        T: Send + 'static,
    {
        // In boxes: what follows is compiled once for each driver and row, not for each statement.
        self.run_boxed(pool, kind, Box::new(ask))
    }

    async fn run_boxed<D, T>(
        &self,
        pool: &DriverPool<D>,
        kind: StatementKind,
        ask: Statement<D, T>,
    ) -> Result<T, StoreError>
    where
        D: Driver,
        T: Send + 'static,
    {
        self.asked.add(1);
        if self.is_gone() {
            self.failures.add(1);
            return Err(StoreError::Unavailable);
        }
        let permit = self.permit(kind).await?;
        let pool = pool.clone();
        let limit = self.statement_timeout;
        let asking: Asking<'static, T> = Box::pin(async move {
            let mut tries_left = TRIES;
            loop {
                let mut connection = pool.acquire().await?;
                let result = loop {
                    tries_left -= 1;
                    let result = timeout(limit, ask(&mut connection)).await;
                    let result = result
                        .unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()));
                    let has_lost = result.as_ref().is_err_and(has_lost);
                    if !has_lost || tries_left == 0 {
                        break result;
                    }
                };
                let Some(error) = result.as_ref().err().filter(|error| is_broken(error)) else {
                    permit.give_back(connection, limit);
                    return result;
                };
                connection.close_on_drop();
                if kind == StatementKind::Write || tries_left == 0 || is_timeout(error) {
                    return result;
                }
            }
        });
        match self.runtime.spawn(asking).await {
            Ok(Ok(value)) => {
                self.gone_until_ms.store(0, Ordering::Relaxed);
                Ok(value)
            }
            Ok(Err(error)) => Err(self.judge(&error)),
            Err(error) => {
                failed!(error, "a statement was lost: {error}");
                Err(StoreError::Unavailable)
            }
        }
    }

    /// Waits for a free connection: for a bounded time, and with a bounded number of others.
    async fn permit(&self, kind: StatementKind) -> Result<ConnectionPermit, StoreError> {
        let has_writer = kind == StatementKind::Write && matches!(self.pool, Pool::Sqlite(_));
        let writer = has_writer.then(|| Arc::clone(&self.writer).try_acquire_owned());
        if let None | Some(Ok(_)) = writer
            && let Ok(slot) = self.slots.try_take()
        {
            return Ok(ConnectionPermit {
                slot,
                writer: writer.and_then(Result::ok),
            });
        }
        drop(writer);
        let Ok(_queued) = self.queue.try_acquire() else {
            self.refused.add(1);
            return Err(StoreError::Unavailable);
        };
        self.waits.add(1);
        let began = Instant::now();
        let waiting = async {
            let writer = match has_writer {
                true => Some(Arc::clone(&self.writer).acquire_owned().await?),
                false => None,
            };
            let slot = self.slots.take().await?;
            Ok::<_, AcquireError>(ConnectionPermit { slot, writer })
        };
        let permit = timeout(self.wait, waiting).await;
        let waited = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.wait_us.add(waited);
        permit.ok().and_then(Result::ok).ok_or_else(|| {
            self.refused.add(1);
            StoreError::Unavailable
        })
    }

    /// What an error means for the request; those of a database that is gone are logged once in a while.
    fn judge(&self, error: &Error) -> StoreError {
        if let Error::Database(error) = error
            && error.is_unique_violation()
        {
            return StoreError::Taken;
        }
        self.failures.add(1);
        if !self.is_gone() && !matches!(error, Error::PoolClosed) {
            failed!(warn, "the database did not answer: {error}");
        }
        if is_broken(error) || matches!(error, Error::PoolTimedOut) {
            let until = self.now_ms().saturating_add(GONE_FOR_MS);
            self.gone_until_ms.store(until, Ordering::Relaxed);
        }
        StoreError::Unavailable
    }

    fn is_gone(&self) -> bool {
        self.now_ms() < self.gone_until_ms.load(Ordering::Relaxed)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Whether the connection is of no more use.
fn is_broken(error: &Error) -> bool {
    match error {
        Error::Database(error) => {
            // Of PostgreSQL and MariaDB: shutting down, crashed, starting, connection lost.
            let code = error.code().unwrap_or_default();
            code.starts_with("57P") || code.starts_with("08")
        }
        Error::Io(_) | Error::Protocol(_) | Error::WorkerCrashed | Error::Tls(_) => true,
        _ => false,
    }
}

fn is_timeout(error: &Error) -> bool {
    matches!(error, Error::Io(error) if error.kind() == io::ErrorKind::TimedOut)
}

/// Whether the statement lost against others, without any effect: a deadlock, a lock held for too long.
fn has_lost(error: &Error) -> bool {
    let Error::Database(error) = error else {
        return false;
    };
    let code = error.code().unwrap_or_default();
    matches!(&*code, "40001" | "40P01" | "5" | "261" | "517")
}

#[cfg(test)]
pub(super) mod tests {
    use std::future::pending;
    use std::sync::atomic::AtomicBool;

    use sqlx::Sqlite;
    use sqlx::pool::PoolOptions;
    use sqlx::sqlite::SqliteConnectOptions;
    use tokio::time::sleep;

    use super::*;
    use crate::store::slots::PoolSlots;

    /// Connections whose next statement never ends. With `optimize_on_close` that is their last one.
    pub(in crate::store) fn never_closing() -> PoolOptions<Sqlite> {
        PoolOptions::<Sqlite>::new().after_connect(|connection, _| {
            Box::pin(async move {
                let mut handle = connection.lock_handle().await?;
                handle.set_progress_handler(1, wait_for_ever);
                Ok(())
            })
        })
    }

    fn wait_for_ever() -> bool {
        loop {
            std::thread::park();
        }
    }

    #[tokio::test]
    async fn a_connection_too_many_that_never_closes_keeps_no_place() {
        let memory = SqliteConnectOptions::new().in_memory(true);
        let memory = memory.optimize_on_close(true, None::<u32>);
        let pool = never_closing().connect_with(memory).await.unwrap();
        let slots = PoolSlots::new(2, Duration::from_millis(100));
        let [slot, _other] = [(), ()].map(|()| slots.try_take().unwrap());
        slots.resize(1);
        let permit = ConnectionPermit { slot, writer: None };
        let connection = pool.acquire().await.unwrap();
        permit.give_back(connection, Duration::from_millis(5));
        let is_free = async {
            while pool.size() > 0 || slots.busy() > 1 {
                sleep(Duration::from_millis(1)).await; // a number announces itself nowhere
            }
        };
        let in_time = timeout(Duration::from_secs(180), is_free).await;
        assert!(in_time.is_ok(), "{} connections", pool.size());
    }

    #[tokio::test]
    async fn a_connection_that_does_not_answer_is_closed_without_the_others() {
        let has_one = AtomicBool::new(false);
        let options = PoolOptions::<Sqlite>::new().max_connections(16);
        let options = options.after_release(move |_, _| {
            let is_first = !has_one.swap(true, Ordering::Relaxed);
            Box::pin(async move {
                if is_first {
                    pending::<()>().await;
                }
                Ok(true)
            })
        });
        let memory = SqliteConnectOptions::new().in_memory(true);
        let pool = options.connect_with(memory).await.unwrap();
        let mut held = Vec::new();
        for _ in 0..16 {
            held.push(pool.acquire().await.unwrap());
        }
        return_all(held, Duration::from_secs(3)).await;
        assert_eq!(pool.size(), 15);
    }

    #[test]
    fn arguments_become_question_marks() {
        for (numbered, marked) in [
            ("SELECT 1", "SELECT 1"),
            ("a = $1 AND b = $2", "a = ? AND b = ?"),
            ("($1, $2, $10)", "(?, ?, ?)"),
        ] {
            assert_eq!(with_question_marks(numbered), marked);
        }
    }
}
