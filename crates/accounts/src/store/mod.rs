//! The database: what is asked of it, in statements that SQLite, MariaDB, MySQL and PostgreSQL share.
//!
//! No connection is held while anything else is waited for, such as a password hash. Each statement
//! runs as a task of its own (see `run.rs`).

mod devices;
mod open;
mod run;
mod sizing;
mod slots;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use sqlx::{MySqlPool, PgPool, SqlitePool};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::Instant;

pub use open::OpenError;

use run::{change, change_and_delete, fetch, keep_newest, locking};
use sizing::Sizing;
use slots::PoolSlots;

use crate::counters::Count;
use crate::limits::SESSIONS_PER_USER_MAX;
use crate::name::UserName;

/// A pool of connections to one of the databases.
#[derive(Clone, Debug)]
enum Pool {
    Sqlite(SqlitePool),
    MySql(MySqlPool),
    Postgres(PgPool),
}

/// The tables of users, sessions and devices.
#[derive(Debug)]
pub(crate) struct Store {
    pool: Pool,
    /// As many as the pool has connections: waiting is done here, where it is bounded and counted.
    slots: Arc<PoolSlots>,
    /// If their number changes.
    sizing: Option<Sizing>,
    /// SQLite has one writer at a time: others wait here, in order, instead of polling its lock.
    writer: Arc<Semaphore>,
    /// For statements that wait.
    queue: Semaphore,
    wait: Duration,
    statement_timeout: Duration,
    runtime: Handle,
    began: Instant,
    /// Until when the database counts as gone, in milliseconds since `began`.
    gone_until_ms: AtomicU64,
    pub(crate) opened: Arc<Count>,
    pub(crate) asked: Count,
    pub(crate) waits: Count,
    pub(crate) wait_us: Count,
    pub(crate) refused: Count,
    pub(crate) failures: Count,
}

/// Why a statement had no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreError {
    /// The database is gone, too slow, or all connections are in use for too long.
    Unavailable,
    /// Another user has the name.
    Taken,
}

/// A user, as far as a login needs it.
#[derive(Clone)]
pub(crate) struct User {
    pub(crate) id: i64,
    pub(crate) password_hash: String,
}

/// A session that has not expired, with its user.
#[derive(Clone)]
pub(crate) struct SessionRow {
    pub(crate) name: UserName,
    pub(crate) seen_ms: i64,
}

/// The lifetime of a new session, or of what an account knows of a browser.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetime {
    pub(crate) now_ms: i64,
    pub(crate) expires_ms: i64,
}

impl Store {
    /// Adds a user.
    pub(crate) async fn add_user(
        &self,
        name: UserName,
        password_hash: String,
        now_ms: i64,
    ) -> Result<(), StoreError> {
        let UserName { shown, key } = name;
        change!(
            self,
            "INSERT INTO users (name_key, name, password_hash, created_ms) \
             VALUES ($1, $2, $3, $4)",
            [key, shown, password_hash, now_ms]
        )
        .map(drop)
    }

    /// The user of a name.
    pub(crate) async fn user(&self, name_key: String) -> Result<Option<User>, StoreError> {
        let row: Option<(i64, String)> = fetch!(
            self,
            "SELECT id, password_hash FROM users WHERE name_key = $1",
            [name_key]
        )?;
        Ok(row.map(|(id, password_hash)| User { id, password_hash }))
    }

    /// Replaces the password, if it is still the one that was verified. All sessions of the user end,
    /// and no browser is known to it any more: with the password, or nothing is done.
    pub(crate) async fn change_password(
        &self,
        user: User,
        new_hash: String,
    ) -> Result<bool, StoreError> {
        let User { id, password_hash } = user;
        let changed = change_and_delete!(
            self,
            "UPDATE users SET password_hash = $1 WHERE id = $2 AND password_hash = $3",
            [new_hash, id, password_hash],
            id,
            ["sessions", "devices"]
        )?;
        Ok(changed > 0)
    }

    /// Removes the user, all its sessions and what it knows of browsers, if the password is still the one that was verified.
    pub(crate) async fn remove_user(&self, user: User) -> Result<bool, StoreError> {
        let User { id, password_hash } = user;
        let removed = change!(
            self,
            "DELETE FROM users WHERE id = $1 AND password_hash = $2",
            [id, password_hash]
        )?;
        Ok(removed > 0)
    }

    /// Begins a session, if the password is still the one that was verified: a change of password at
    /// the same moment ends sessions that are there, and keeps this one from being made.
    pub(crate) async fn add_session(
        &self,
        token_hash: String,
        user: User,
        lifetime: Lifetime,
    ) -> Result<bool, StoreError> {
        let User { id, password_hash } = user;
        let Lifetime { now_ms, expires_ms } = lifetime;
        let insert = locking!(
            self,
            "INSERT INTO sessions (token_hash, user_id, created_ms, seen_ms, expires_ms) \
             SELECT $1, id, $2, $3, $4 FROM users \
             WHERE id = $5 AND password_hash = $6"
        );
        let added = change!(
            self,
            insert,
            [token_hash, now_ms, now_ms, expires_ms, id, password_hash]
        )?;
        if added == 0 {
            return Ok(false);
        }
        let kept = SESSIONS_PER_USER_MAX;
        keep_newest!(self, "sessions", id, kept)?;
        Ok(true)
    }

    /// The session of a token, if it has neither reached its end nor been idle for too long.
    pub(crate) async fn session(
        &self,
        token_hash: String,
        now_ms: i64,
        idle_ms: i64,
    ) -> Result<Option<SessionRow>, StoreError> {
        let used_ms = now_ms.saturating_sub(idle_ms);
        let row: Option<(String, String, i64)> = fetch!(
            self,
            "SELECT users.name, users.name_key, sessions.seen_ms \
             FROM sessions JOIN users ON users.id = sessions.user_id \
             WHERE sessions.token_hash = $1 AND sessions.expires_ms > $2 AND sessions.seen_ms > $3",
            [token_hash, now_ms, used_ms]
        )?;
        Ok(row.map(|(shown, key, seen_ms)| SessionRow {
            name: UserName { shown, key },
            seen_ms,
        }))
    }

    /// Notes that a session is in use.
    pub(crate) async fn session_seen(
        &self,
        token_hash: String,
        now_ms: i64,
    ) -> Result<(), StoreError> {
        change!(
            self,
            "UPDATE sessions SET seen_ms = $1 WHERE token_hash = $2",
            [now_ms, token_hash]
        )
        .map(drop)
    }

    /// Ends a session.
    pub(crate) async fn end_session(&self, token_hash: String) -> Result<(), StoreError> {
        change!(
            self,
            "DELETE FROM sessions WHERE token_hash = $1",
            [token_hash]
        )
        .map(drop)
    }

    /// Removes sessions that have expired, and browsers that have not logged in for too long.
    pub(crate) async fn purge(&self, now_ms: i64, idle_ms: i64) -> Result<(), StoreError> {
        let used_ms = now_ms.saturating_sub(idle_ms);
        change!(
            self,
            "DELETE FROM sessions WHERE expires_ms <= $1 OR seen_ms <= $2",
            [now_ms, used_ms]
        )?;
        change!(self, "DELETE FROM devices WHERE expires_ms <= $1", [now_ms]).map(drop)
    }
}
