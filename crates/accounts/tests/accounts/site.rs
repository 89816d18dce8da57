//! The app under test, with hashes that cost little and a clock that the test moves.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use axum::Router;
use loadline_accounts::{Accounts, Clock, HashCost, Options};
use sqlx::ConnectOptions as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use tempfile::TempDir;
use tokio::net::TcpListener;

/// A running app.
pub(crate) struct Site {
    pub(crate) accounts: Accounts,
    pub(crate) router: Router,
    pub(crate) time: Time,
    /// Where the database is, for SQLite.
    pub(crate) folder: Option<TempDir>,
}

/// A clock that the test moves.
#[derive(Clone, Default)]
pub(crate) struct Time(Arc<AtomicI64>);

impl Time {
    pub(crate) fn pass(&self, time: Duration) {
        let ms = i64::try_from(time.as_millis()).expect("a time of this century");
        self.0.fetch_add(ms, Ordering::Relaxed);
    }

    fn clock(&self) -> Clock {
        let time = self.0.clone();
        Clock::from_fn(move || 1_800_000_000_000 + time.load(Ordering::Relaxed))
    }
}

/// Options for a database: cheap hashes, many of them.
pub(crate) fn options(url: &str, time: &Time) -> Options {
    let database = url.parse().unwrap_or_else(|error| panic!("{url}: {error}"));
    let mut options = Options::new(database);
    options.hash_cost = HashCost {
        memory_kib: 8,
        passes: 1,
        lanes: 1,
    };
    options.hash_wait = Duration::from_secs(60);
    options.pool_wait = Duration::from_secs(60);
    options.connect_timeout = Duration::from_secs(60);
    options.statement_timeout = Duration::from_secs(60);
    options.clock = time.clock();
    options
}

impl Site {
    /// On a file of SQLite of its own.
    pub(crate) async fn on_sqlite() -> Self {
        Self::on_sqlite_with(|_| ()).await
    }

    /// A connection to that file beside its own.
    pub(crate) async fn database(&self) -> SqliteConnection {
        let folder = self.folder.as_ref().expect("of SQLite");
        let file = SqliteConnectOptions::new().filename(folder.path().join("accounts.db"));
        file.connect().await.expect("a database")
    }

    pub(crate) async fn on_sqlite_with(change: impl FnOnce(&mut Options)) -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let url = format!("sqlite:{}/accounts.db", folder.path().display());
        let mut site = Self::on(&url, change).await;
        site.folder = Some(folder);
        site
    }

    pub(crate) async fn on(url: &str, change: impl FnOnce(&mut Options)) -> Self {
        let time = Time::default();
        let mut options = options(url, &time);
        change(&mut options);
        let accounts = Accounts::open(options)
            .await
            .unwrap_or_else(|error| panic!("{error}"));
        Self {
            router: accounts.router(),
            accounts,
            time,
            folder: None,
        }
    }

    /// Serves it on a free port.
    pub(crate) async fn listen(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let app = self
            .router
            .clone()
            .into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(async move { axum::serve(listener, app).await });
        address
    }
}
