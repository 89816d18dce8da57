//! Accounts: register, log in, a page behind the login, change the password, log out, delete.
//!
//! An ordinary axum app without any part of Loadline's server:
//! [`Accounts::open`] connects to SQLite, MariaDB, MySQL or PostgreSQL (MariaDB is tested in the place
//! of MySQL) and [`Accounts::router`] is the app, for `axum::serve` or any other server of tower services.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use loadline_accounts::{Accounts, Database, Options};
//!
//! let database: Database = "sqlite:accounts.db".parse()?;
//! let accounts = Accounts::open(Options::new(database)).await?;
//! let app = accounts.router().into_make_service_with_connect_info::<std::net::SocketAddr>();
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//! axum::serve(listener, app).await?; // pages under http://127.0.0.1:8080/accounts/
//! accounts.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! Behind a proxy, or on another server, put a [`Client`] into each request's extensions: the client's
//! address, and whether it used https.
//!
//! | file | what |
//! |---|---|
//! | `options.rs`, `limits.rs` | what can be chosen, and every other limit with its reason |
//! | `database.rs` | the address of a database |
//! | `name.rs`, `password.rs` | which user names and passwords are allowed, as pure functions |
//! | `guard.rs`, `throttle.rs`, `turns.rs` | which attempts at a password are allowed, as a function of time |
//! | `hashing.rs`, `hash_memory.rs` | argon2id on blocking threads, and the memory that it takes |
//! | `token.rs` | random tokens, and the hashes that are stored |
//! | `store/` | the database: connections, migrations, statements |
//! | `web/` | pages: visitors, sessions, forms, templates, security headers |
#![forbid(unsafe_code)]

mod clock;
mod counters;
mod database;
mod guard;
mod hash_memory;
mod hashing;
mod limits;
mod log;
mod name;
mod options;
mod password;
mod store;
mod throttle;
mod token;
mod turns;
mod web;

use std::sync::Arc;

pub use clock::Clock;
pub use counters::Counters;
pub use database::{Database, DatabaseError};
pub use limits::FORM_BYTES_MAX;
pub use options::{HashCost, Options, PoolRange};
pub use store::OpenError;
pub use throttle::Tries;
pub use turns::Turns;
pub use web::Client;

use web::App;

/// Accounts on a database, ready to be served.
#[derive(Clone)]
pub struct Accounts {
    app: Arc<App>,
}

impl Accounts {
    /// Connects to the database and brings its tables up to date. While the database cannot be
    /// reached it is tried again, with a warning each time, up to [`Options::start_timeout`].
    ///
    /// Must be called inside the tokio runtime that the app is to run in.
    ///
    /// # Errors
    /// The database cannot be reached in time or refuses; the file is not one to keep secrets in; a
    /// parameter of the password hash is out of its bounds; the kernel gives no randomness.
    pub async fn open(options: Options) -> Result<Self, OpenError> {
        let app = Arc::new(App::open(options).await?);
        Ok(Self { app })
    }

    /// The app: all pages below [`Options::base`].
    pub fn router(&self) -> axum::Router {
        web::router(Arc::clone(&self.app))
    }

    /// Ends all connections to the database, once each has finished what it is at. Whatever is asked
    /// from then on is answered with 503.
    pub async fn close(&self) {
        self.app.store.close().await;
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        self.app.counters()
    }
}
