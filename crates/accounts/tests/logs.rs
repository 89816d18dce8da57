//! What is logged, by a program of its own: what listens to logs listens to all threads.

#[path = "accounts/client.rs"]
#[expect(dead_code, reason = "a part of it is used here")]
mod client;
#[path = "../../server/tests/shared/log.rs"]
mod log;
#[path = "accounts/site.rs"]
#[expect(dead_code, reason = "a part of it is used here")]
mod site;

use std::sync::LazyLock;

use client::{Client, PASSWORD};
use log::Log;
use site::Site;
use sqlx::Executor as _;
use tokio::sync::Mutex;

/// The one log; held by the test that looks at it.
static LOG: LazyLock<Mutex<Log>> = LazyLock::new(|| Mutex::new(Log::listen(tracing::Level::TRACE)));

/// A disk that is full, as SQLite reports it: every statement that writes fails, and its connection is
/// as good as before.
#[tokio::test]
async fn a_full_disk_is_said_at_a_bounded_rate() {
    let log = LOG.lock().await;
    let site =
        Site::on_sqlite_with(|options| options.registrations_by_address.free = u32::MAX).await;
    let mut database = site.database().await;
    let full = "CREATE TRIGGER full BEFORE INSERT ON users \
                BEGIN SELECT RAISE(FAIL, 'database or disk is full'); END";
    database.execute(full).await.expect("a trigger");
    let mut client = Client::new(&site.router);
    log.take();
    for number in 0..50 {
        client
            .register(&format!("user{number}"), PASSWORD)
            .await
            .is(503);
    }
    let text = log.take();
    let lines = text
        .lines()
        .filter(|line| line.contains("the database did not answer"));
    let lines: Vec<_> = lines.collect();
    // Two windows, should the tests before have begun one.
    assert!((1..=20).contains(&lines.len()), "{}", lines.len());
    assert!(
        lines[0].contains("database or disk is full"),
        "{}",
        lines[0]
    );
    site.accounts.close().await;
}

#[tokio::test]
async fn no_log_holds_a_password_a_token_or_a_mistyped_name() {
    let log = LOG.lock().await;
    log.take();
    let site = Site::on_sqlite().await;
    let mut client = Client::new(&site.router);
    client.enter("ada").await;
    let mut secrets: Vec<String> = client.cookies.values().cloned().collect();
    secrets.push(client.get("/accounts/member").await.token());
    let typed = ["my-password-as-name", "wrong wrong wrong"];
    client.log_out().await;
    client.log_in(typed[0], typed[1]).await.is(403);
    client.register("ada", PASSWORD).await.is(409);
    secrets.extend([PASSWORD, typed[0], typed[1], "argon2id$"].map(str::to_owned));
    site.accounts.close().await;
    let text = log.take();
    for line in [
        "accounts: registered",
        "accounts: logged in",
        "accounts: login refused",
    ] {
        assert!(text.contains(line), "{line}");
    }
    for secret in secrets {
        assert!(!text.contains(&secret), "{secret}");
    }
}
