//! The pages: routes, and what all of them share.
//!
//! A request goes through `headers.rs` (security headers on every answer) and `visitor.rs` (the visitor:
//! address, TLS, cookies) to its page: `register.rs`, `login.rs` or `account.rs`. `proof.rs` is where a
//! password is held against an account, `device.rs` which browsers an account knows, `cookies.rs` what
//! browsers keep. `pages.rs` has the templates' values and the answers.

mod account;
mod cookies;
mod device;
mod headers;
mod login;
mod pages;
mod proof;
mod register;
mod visitor;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state, map_response_with_state};
use axum::response::Redirect;
use axum::routing::{get, post};
use tokio::runtime::Handle;

pub use visitor::Client;

use crate::counters::{Count, Counters};
use crate::guard::Guard;
use crate::hashing::Hasher;
use crate::limits::{FORM_BYTES_MAX, PURGE_EVERY_MS, TRIES_ENTRIES_MAX};
use crate::options::Options;
use crate::store::{OpenError, Store};
use crate::throttle::Throttle;

/// What all requests share.
pub(crate) struct App {
    pub(crate) options: Options,
    pub(crate) store: Store,
    pub(crate) hasher: Hasher,
    guard: Guard,
    registrations: Throttle<IpAddr>,
    purged_ms: AtomicI64,
    counts: Counts,
}

/// What happened, see [`Counters`].
#[derive(Debug, Default)]
struct Counts {
    registered: Count,
    logins: Count,
    logins_refused: Count,
    throttled: Count,
    forged: Count,
}

impl App {
    pub(crate) async fn open(options: Options) -> Result<Self, OpenError> {
        let base = &options.base;
        if !base.starts_with('/') || base.ends_with('/') || base.contains(['{', '}', '?', '#']) {
            return Err(OpenError(format!(
                "{base}: not a path for pages; right would be one like /accounts"
            )));
        }
        let runtime = Handle::current();
        let hasher = Hasher::new(&options, runtime.clone())?;
        let store = Store::open(&options, runtime).await?;
        Ok(Self {
            store,
            hasher,
            guard: Guard::new(&options),
            registrations: Throttle::new(options.registrations_by_address, TRIES_ENTRIES_MAX),
            purged_ms: AtomicI64::new(0),
            counts: Counts::default(),
            options,
        })
    }

    pub(crate) fn counters(&self) -> Counters {
        let (counts, store, hasher) = (&self.counts, &self.store, &self.hasher);
        let bounds = self.options.pool_bounds();
        Counters {
            registered: counts.registered.get(),
            logins: counts.logins.get(),
            logins_refused: counts.logins_refused.get(),
            throttled: counts.throttled.get(),
            forged: counts.forged.get(),
            connections: store.size().into(),
            connections_opened: store.opened.get(),
            pool_size: store.slots() as u64,
            pool_size_min: bounds.min.into(),
            pool_size_max: bounds.max.into(),
            pool_busy: store.busy() as u64,
            pool_asked: store.asked.get(),
            pool_waits: store.waits.get(),
            pool_wait_us: store.wait_us.get(),
            pool_refused: store.refused.get(),
            database_failures: store.failures.get(),
            hashes: hasher.done.get(),
            hashes_refused: hasher.refused.get(),
        }
    }

    /// Removes sessions and devices that have expired, if that was not done for a while.
    async fn purge(&self) {
        let now_ms = self.options.clock.now_ms();
        let is_due = |last_ms: i64| now_ms.saturating_sub(last_ms) >= PURGE_EVERY_MS;
        let order = Ordering::Relaxed;
        let next = |last_ms: i64| is_due(last_ms).then_some(now_ms);
        if self.purged_ms.fetch_update(order, order, next).is_ok() {
            let idle_ms = as_ms(self.options.session_idle);
            let _ = self.store.purge(now_ms, idle_ms).await; // what fails now is done the next time
        }
    }
}

/// The app.
pub(crate) fn router(app: Arc<App>) -> Router {
    let base = app.options.base.clone();
    let root = format!("{base}/");
    let pages = Router::new()
        .route("/", get(account::home))
        .route("/register", get(register::form).post(register::register))
        .route("/login", get(login::form).post(login::login))
        .route("/member", get(account::member))
        .route("/picture", get(account::picture))
        .route(
            "/password",
            get(account::password_form).post(account::change_password),
        )
        .route("/delete", get(account::delete_form).post(account::delete))
        .route("/logout", post(account::logout))
        .route("/style.css", get(pages::style))
        .fallback(pages::not_found)
        .method_not_allowed_fallback(pages::not_allowed)
        .with_state(Arc::clone(&app));
    let secure = from_fn_with_state(Arc::clone(&app), headers::secure);
    Router::new()
        .route(
            &base,
            get(move || async move { Redirect::permanent(&root) }),
        )
        .nest(&format!("{base}/"), pages)
        .layer(map_response_with_state(app, pages::with_failure_shown))
        .layer(DefaultBodyLimit::max(FORM_BYTES_MAX))
        .layer(from_fn(headers::refuse_early))
        .layer(secure)
        .layer(from_fn(visitor::recognise))
}

fn as_ms(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
