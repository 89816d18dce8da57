//! From the name of a database to one that is ready: reaching it, its tables, its pool.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use sqlx::migrate::{Migrate, MigrateError, Migration, MigrationType, Migrator};
use sqlx::mysql::MySqlConnectOptions;
use sqlx::pool::PoolOptions;
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{
    ConnectOptions, Connection, Database as Driver, Error, Executor as _, MySqlConnection,
    SqlSafeStr as _,
};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

use super::run::{Asking, return_all};
use super::sizing::Sizing;
use super::slots::PoolSlots;
use super::{Pool, Store};
use crate::counters::Count;
use crate::database::Backend;
use crate::hashing::HashError;
use crate::limits::{POOL_QUEUE_MAX, STALE_AFTER, START_PAUSES};
use crate::options::Options;

/// The steps from nothing to the tables of today, in order. One that was published never changes.
macro_rules! migrations {
    ($kind:literal) => {
        [
            (
                "accounts",
                include_str!(concat!("../../migrations/", $kind, "/0001_accounts.sql")),
            ),
            (
                "devices",
                include_str!(concat!("../../migrations/", $kind, "/0002_devices.sql")),
            ),
        ]
    };
}

type Migrations = [(&'static str, &'static str); 2];

/// What is done on a connection before the migrations.
type Prepare<C> = for<'c> fn(&'c mut C) -> Asking<'c, ()>;

/// Held until its connection ends. The lock of the driver's own migrations asks for a wait without end, which MariaDB does not know.
const MARIADB_LOCK: &str = "SELECT GET_LOCK(CONCAT('loadline.', MD5(DATABASE())), 60)";

/// The driver's words for a server that refuses TLS: it has no kind of error for that alone.
const REFUSES_TLS: &str = "server does not support TLS";

/// Why accounts cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct OpenError(pub(crate) String);

impl From<HashError> for OpenError {
    fn from(error: HashError) -> Self {
        Self(error.to_string())
    }
}

impl Store {
    /// Reaches the database, brings its tables up to date and makes the pool.
    pub(crate) async fn open(options: &Options, runtime: Handle) -> Result<Self, OpenError> {
        let bounds = options.pool_bounds();
        if options.pool_min > bounds.max {
            return Err(OpenError(format!(
                "a pool of {bounds} connections cannot begin with {}",
                options.pool_min
            )));
        }
        let size = options.pool_size.clamp(bounds.min, bounds.max);
        let slots = PoolSlots::new(size as usize, options.pool_interval);
        let opened = Arc::new(Count::default());
        let pool = match &options.database.backend {
            Backend::Sqlite(path) => {
                let connect = ready_sqlite(path, options).await?;
                let pool = pool_options(options, &opened).connect_lazy_with(connect);
                Pool::Sqlite(filled(pool, options).await?)
            }
            Backend::MySql(connect) => {
                let connect = MySqlConnectOptions::clone(connect).disable_statement_logging();
                let steps = migrations!("mysql");
                let prepare: Prepare<MySqlConnection> = |connection| {
                    Box::pin(async { connection.execute(MARIADB_LOCK).await.map(drop) })
                };
                reach(&connect, prepare, steps, options).await?;
                // Statements are single ones: no lock on what lies between rows is needed.
                let isolation = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
                let count = Arc::clone(&opened);
                let pool = pool_options::<sqlx::MySql>(options, &opened).after_connect(
                    move |connection, _| {
                        count.add(1);
                        Box::pin(async move { connection.execute(isolation).await.map(drop) })
                    },
                );
                Pool::MySql(filled(pool.connect_lazy_with(connect), options).await?)
            }
            Backend::Postgres(connect) => {
                let connect = PgConnectOptions::clone(connect)
                    .application_name("loadline")
                    .disable_statement_logging();
                let steps = migrations!("postgres");
                reach(&connect, |_| Box::pin(async { Ok(()) }), steps, options).await?;
                let pool = pool_options(options, &opened).connect_lazy_with(connect);
                Pool::Postgres(filled(pool, options).await?)
            }
        };
        Ok(Self {
            sizing: sizing(&pool, &slots, options, &runtime),
            pool,
            slots,
            writer: Arc::new(Semaphore::new(1)),
            queue: Semaphore::new(POOL_QUEUE_MAX),
            wait: options.pool_wait,
            statement_timeout: options.statement_timeout,
            runtime,
            began: Instant::now(),
            gone_until_ms: AtomicU64::new(0),
            opened,
            asked: Count::default(),
            waits: Count::default(),
            wait_us: Count::default(),
            refused: Count::default(),
            failures: Count::default(),
        })
    }

    /// Ends all connections, each once it is free.
    pub(crate) async fn close(&self) {
        if let Some(sizing) = &self.sizing {
            sizing.stop();
        }
        match &self.pool {
            Pool::Sqlite(pool) => pool.close().await,
            Pool::MySql(pool) => pool.close().await,
            Pool::Postgres(pool) => pool.close().await,
        }
    }

    /// Connections that are open.
    pub(crate) fn size(&self) -> u32 {
        match &self.pool {
            Pool::Sqlite(pool) => pool.size(),
            Pool::MySql(pool) => pool.size(),
            Pool::Postgres(pool) => pool.size(),
        }
    }

    /// Connections that there may be.
    pub(crate) fn slots(&self) -> usize {
        self.slots.size()
    }

    /// Connections in use.
    pub(crate) fn busy(&self) -> usize {
        self.slots.busy()
    }
}

/// What changes the number of connections, if it is to change.
fn sizing(
    pool: &Pool,
    slots: &Arc<PoolSlots>,
    options: &Options,
    runtime: &Handle,
) -> Option<Sizing> {
    let (bounds, interval) = (options.pool_bounds(), options.pool_interval);
    let limit = options.statement_timeout;
    let slots = Arc::clone(slots);
    (bounds.min < bounds.max).then(|| match pool.clone() {
        Pool::Sqlite(pool) => Sizing::start(pool, slots, bounds, interval, limit, runtime),
        Pool::MySql(pool) => Sizing::start(pool, slots, bounds, interval, limit, runtime),
        Pool::Postgres(pool) => Sizing::start(pool, slots, bounds, interval, limit, runtime),
    })
}

/// A pool that asks connections whether they are there before it lends those that were idle.
fn pool_options<D: Driver>(options: &Options, opened: &Arc<Count>) -> PoolOptions<D> {
    let opened = Arc::clone(opened);
    let pool = PoolOptions::new()
        .max_connections(options.pool_bounds().max)
        .acquire_timeout(options.connect_timeout) // `permit` waits for a free one
        .test_before_acquire(false)
        .after_connect(move |_, _| {
            opened.add(1);
            Box::pin(async { Ok(()) })
        })
        .before_acquire(|connection: &mut D::Connection, about| {
            Box::pin(
                async move { Ok(about.idle_for < STALE_AFTER || connection.ping().await.is_ok()) },
            )
        });
    match options.pool_min {
        0 => pool,
        _ => pool.idle_timeout(None).max_lifetime(None),
    }
}

/// Opens the connections that are to be there from the start. The driver's own minimum would do so in
/// the background, and after an outage it holds slots of the pool while it waits.
async fn filled<D: Driver>(
    pool: sqlx::Pool<D>,
    options: &Options,
) -> Result<sqlx::Pool<D>, OpenError> {
    let mut held = Vec::new();
    for opened in 0..options.pool_min {
        let connection = pool.acquire().await.map_err(|error| {
            let (shown, min) = (&options.database, options.pool_min);
            OpenError(format!(
                "{shown}: {opened} of the {min} connections that the pool begins with were opened: \
                 {error}; does the database allow as many?"
            ))
        })?;
        held.push(connection);
    }
    // Dropped, they would return in their own time.
    return_all(held, options.statement_timeout).await;
    Ok(pool)
}

/// Opens a file that only its owner may read, and makes its tables under a lock of its directory.
async fn ready_sqlite(path: &Path, options: &Options) -> Result<SqliteConnectOptions, OpenError> {
    let shown = path.display();
    let unusable = |error: &io::Error| OpenError(format!("sqlite:{shown}: {error}"));
    let connect = SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal) // readers do not wait for the writer
        .synchronous(SqliteSynchronous::Full) // an account that was made stays, also without power
        .busy_timeout(options.statement_timeout)
        .disable_statement_logging();
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let lock = File::open(folder).map_err(|error| unusable(&error))?;
    let mut tries = StartTries::new(options);
    while let Err(error) = lock.try_lock() {
        match error {
            TryLockError::Error(error) => return Err(unusable(&error)),
            TryLockError::WouldBlock => {
                let text = format!("the directory {} is locked", folder.display());
                tries
                    .pause(&text, "does another server start there?")
                    .await?;
            }
        }
    }
    private_file(path).map_err(|error| unusable(&error))?;
    let steps = migrations!("sqlite");
    reach(&connect, |_| Box::pin(async { Ok(()) }), steps, options).await?;
    drop(lock);
    Ok(connect)
}

/// Makes the file with mode 0600, or takes from others what they may do with the one that is there.
fn private_file(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if about.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        tracing::warn!(
            "accounts: {} was open to others; its mode is 0600 now",
            path.display()
        );
    }
    Ok(())
}

/// Connects, trying again while the database cannot be reached, and brings the tables up to date.
async fn reach<C>(
    connect: &C,
    prepare: Prepare<C::Connection>,
    steps: Migrations,
    options: &Options,
) -> Result<(), OpenError>
where
    C: ConnectOptions,
    C::Connection: Migrate + Sized,
{
    let mut tries = StartTries::new(options);
    loop {
        let limit = tries.left().max(Duration::from_secs(1));
        let error = match timeout(limit, migrate(connect, prepare, steps)).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(_) => Error::PoolTimedOut,
        };
        let text = said(&error);
        if !may_pass(&error) {
            return Err(OpenError(format!("{}: {text}", options.database)));
        }
        tries.pause(&text, "is the database running there?").await?;
    }
}

/// What went wrong, and what would be right where that is TLS.
fn said(error: &Error) -> String {
    match error {
        Error::PoolTimedOut => "no answer".to_owned(),
        Error::Io(error) if is_of_tls(error) => format!(
            "no TLS with it: {error}; right would be a certificate for this host by an authority \
             that this machine trusts, or that ?sslrootcert=FILE (PostgreSQL) or ?ssl-ca=FILE \
             (MariaDB) names"
        ),
        Error::Tls(error) if error.to_string() == REFUSES_TLS => format!(
            "no TLS with it: {error}; right would be a server that does, or ?sslmode=disable \
             (PostgreSQL) or ?ssl-mode=DISABLED (MariaDB) if the network between is trusted"
        ),
        error => error.to_string(),
    }
}

/// Tries at the start, until the time for it is over.
struct StartTries<'o> {
    options: &'o Options,
    began: Instant,
    next_pause: Duration,
}

impl<'o> StartTries<'o> {
    fn new(options: &'o Options) -> Self {
        Self {
            options,
            began: Instant::now(),
            next_pause: START_PAUSES[0],
        }
    }

    /// How much of the time is left.
    fn left(&self) -> Duration {
        let timeout = self.options.start_timeout;
        timeout.saturating_sub(self.began.elapsed())
    }

    /// Waits until the next one, with a warning; if there is to be none, that is the error.
    async fn pause(&mut self, text: &str, question: &str) -> Result<(), OpenError> {
        let shown = &self.options.database;
        let pause = self.next_pause;
        if self.left() <= pause {
            let waited = self.began.elapsed().as_secs_f64();
            return Err(OpenError(format!(
                "{shown}: not reached within {waited:.0} s: {text}; {question}"
            )));
        }
        tracing::warn!("accounts: {shown} cannot be reached: {text}; trying again");
        sleep(pause).await;
        self.next_pause = (pause * 2).min(START_PAUSES[1]);
        Ok(())
    }
}

/// One connection for the migrations, which take a lock of the database's own where it has one.
async fn migrate<C>(
    connect: &C,
    prepare: Prepare<C::Connection>,
    steps: Migrations,
) -> Result<(), Error>
where
    C: ConnectOptions,
    C::Connection: Migrate + Sized,
{
    let mut connection = connect.connect().await?;
    prepare(&mut connection).await?;
    let steps = steps.into_iter().zip(1..).map(|((name, sql), version)| {
        let sql = sql.into_sql_str();
        Migration::new(version, name.into(), MigrationType::Simple, sql, false)
    });
    let migrator = Migrator::with_migrations(steps.collect());
    let done = migrator.run_direct(None, &mut connection, false).await;
    let _ = connection.close().await; // what could go wrong with that changes nothing
    done.map_err(|error| match error {
        MigrateError::Execute(error) => error,
        error => Error::Migrate(Box::new(error)),
    })
}

/// Whether a handshake has failed: the driver has it as an error of reading or writing.
fn is_of_tls(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidData
}

/// Whether the same may go well a moment later: no server listens yet, or the database is starting.
fn may_pass(error: &Error) -> bool {
    match error {
        Error::Io(error) => !is_of_tls(error),
        Error::PoolTimedOut | Error::Protocol(_) => true,
        Error::Database(error) => {
            let code = error.code().unwrap_or_default();
            // PostgreSQL: starting, shutting down, too many connections. MariaDB: the latter.
            code.starts_with("57P") || matches!(&*code, "53300" | "08004" | "HY000")
        }
        _ => false,
    }
}
