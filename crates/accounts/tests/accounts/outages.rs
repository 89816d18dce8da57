//! A database server that is down, dies, or hangs.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use loadline_accounts::Accounts;
use tokio::task::JoinSet;

use super::client::{Client, PASSWORD};
use super::relay::Relay;
use super::servers::{DatabaseKind, Server};
use super::site::{Site, Time, options};

/// How long anything may take that is waited for.
const TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) async fn all(server: &mut Server) {
    drains(server).await;
    dies_under_load(server).await;
    if server.kind == DatabaseKind::PostgreSql {
        vanishes_without_a_word(server).await;
    }
    is_down_at_the_start(server).await;
}

/// Closing the app ends each of its connections on the server, too.
async fn drains(server: &Server) {
    let site = Site::on(&server.database("drain").await, |_| ()).await;
    let mut users = JoinSet::new();
    for number in 0..16_u8 {
        let mut client = Client::from(&site.router, [10, 1, 0, number]);
        users.spawn(async move { client.enter(&format!("user{number}")).await });
    }
    users.join_all().await;
    let connected = match server.kind {
        DatabaseKind::MariaDb => {
            "SELECT count(*) FROM information_schema.processlist WHERE db = 'drain'"
        }
        DatabaseKind::PostgreSql => "SELECT count(*) FROM pg_stat_activity WHERE datname = 'drain'",
    };
    let control = match server.kind {
        DatabaseKind::MariaDb => "mysql",
        DatabaseKind::PostgreSql => "postgres",
    };
    assert!(server.count(control, connected).await >= 1);
    site.accounts.close().await;
    let began = Instant::now();
    while server.count(control, connected).await > 0 {
        assert!(began.elapsed() < TIMEOUT, "a connection was left");
        tokio::task::yield_now().await; // the server notices an end in its own time
    }
}

/// Killed and started again while users come: what was promised is there, and all goes on.
async fn dies_under_load(server: &mut Server) {
    let site = Site::on(&server.database("outage").await, |options| {
        options.pool_wait = Duration::from_secs(5);
        options.connect_timeout = Duration::from_secs(5);
        options.registrations_by_address.free = u32::MAX;
    })
    .await;
    let mut member = Client::new(&site.router);
    member.enter("before").await;
    let stop = Arc::new(AtomicBool::new(false));
    let (made, refused) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut users = JoinSet::new();
    for worker in 0..8_u8 {
        let mut client = Client::from(&site.router, [10, 2, 0, worker]);
        let (stop, made, refused) = (Arc::clone(&stop), Arc::clone(&made), Arc::clone(&refused));
        users.spawn(async move {
            let mut names = Vec::new();
            for number in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let name = format!("user{worker}-{number}");
                match client.register(&name, PASSWORD).await.status.as_u16() {
                    303 => {
                        made.fetch_add(1, Ordering::Relaxed);
                        names.push(name);
                    }
                    503 => _ = refused.fetch_add(1, Ordering::Relaxed),
                    status => panic!("{status}"),
                }
                tokio::task::yield_now().await;
            }
            names
        });
    }
    until(|| made.load(Ordering::Relaxed) >= 50).await;
    server.kill();
    let so_far = refused.load(Ordering::Relaxed);
    until(|| refused.load(Ordering::Relaxed) >= so_far + 20).await;
    let answer = member.get("/accounts/member").await;
    answer.is(503).says("cannot be reached");
    assert!(answer.retry_after() > 0);
    member.get("/accounts/style.css").await.is(200);
    server.run().await;
    let so_far = made.load(Ordering::Relaxed);
    until(|| made.load(Ordering::Relaxed) >= so_far + 50).await;
    stop.store(true, Ordering::Relaxed);
    let names: Vec<String> = users.join_all().await.into_iter().flatten().collect();
    assert!(member.is_in().await, "sessions are still there");
    for name in names.iter().rev().take(20).chain(names.iter().take(20)) {
        Client::new(&site.router)
            .log_in(name, PASSWORD)
            .await
            .is(303);
    }
    let rows = server.count("outage", "SELECT count(*) FROM users").await;
    let promised = i64::try_from(names.len()).expect("few") + 1;
    let unknown = i64::try_from(refused.load(Ordering::Relaxed)).expect("few");
    assert!(
        (promised..=promised + unknown).contains(&rows),
        "{promised} {rows}"
    );
    site.accounts.close().await;
}

/// Waited for, and then said; and nothing to wait for where waiting does not help.
async fn is_down_at_the_start(server: &mut Server) {
    let url = server.database("start").await;
    let with_start_timeout = |url: &str, start_timeout| {
        let mut options = options(url, &Time::default());
        options.start_timeout = start_timeout;
        options
    };
    let missing = server.url("missing");
    let error = Accounts::open(with_start_timeout(&missing, TIMEOUT))
        .await
        .err()
        .expect("no database");
    assert!(
        error.to_string().to_lowercase().contains("missing"),
        "{error}"
    );
    server.kill();
    let error = Accounts::open(with_start_timeout(&url, Duration::ZERO))
        .await
        .err();
    let said = error.expect("nobody answers").to_string();
    assert!(said.contains("is the database running there?"), "{said}");
    let waiting = tokio::spawn(Accounts::open(with_start_timeout(&url, TIMEOUT)));
    server.run().await;
    let accounts = waiting
        .await
        .expect("no panic")
        .unwrap_or_else(|error| panic!("{error}"));
    accounts.close().await;
}

async fn until(is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < TIMEOUT, "waited in vain");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A host that answers no more and closes nothing keeps neither the start waiting, nor connections of the pool.
async fn vanishes_without_a_word(server: &Server) {
    let site = Site::on(&server.database("vanishes").await, |_| ()).await;
    let mut client = Client::new(&site.router);
    client.enter("ada").await;
    site.accounts.close().await;
    let relay = Relay::to(server.port).await;
    relay.vanish(true);
    let url = format!("postgres://tester@127.0.0.1:{}/vanishes", relay.port);
    let opening = Site::on(&url, |options| {
        options.pool_size = 2;
        options.pool_range = None;
        options.pool_min = 2;
        options.statement_timeout = Duration::from_millis(300);
    });
    let site = tokio::time::timeout(TIMEOUT, opening).await;
    let site = site.expect("the start ends");
    until(|| relay.vanished() >= 2).await;
    let mut member = Client::new(&site.router);
    member.cookies = client.cookies;
    let before = relay.vanished();
    let both = async {
        while relay.vanished() < before + 2 {
            member.get("/accounts/member").await;
            tokio::time::sleep(Duration::from_millis(5)).await; // the ping comes after the page
        }
    };
    let both = tokio::time::timeout(TIMEOUT, both).await;
    both.expect("both connections were given back");
    relay.vanish(false);
    until(|| site.accounts.counters().pool_busy == 0).await;
    let comes_back = async {
        while !member.is_in().await {
            tokio::time::sleep(Duration::from_millis(5)).await; // until it no longer counts as gone
        }
    };
    let comes_back = tokio::time::timeout(TIMEOUT, comes_back).await;
    comes_back.expect("the database is back");
    site.accounts.close().await;
}

/// Another server hangs while it makes its tables.
#[tokio::test]
async fn a_locked_directory_is_not_waited_for_without_end() {
    let folder = tempfile::tempdir().expect("a directory");
    let shown = folder.path().display();
    let lock = File::open(folder.path()).expect("a directory");
    lock.lock().expect("a lock");
    let mut options = options(&format!("sqlite:{shown}/accounts.db"), &Time::default());
    options.start_timeout = Duration::ZERO;
    let opening = tokio::time::timeout(TIMEOUT, Accounts::open(options.clone())).await;
    let error = opening.expect("an end").err().expect("no accounts");
    let said = error.to_string();
    assert!(said.contains(&format!("{shown} is locked")), "{said}");
    drop(lock);
    let accounts = Accounts::open(options).await;
    let accounts = accounts.unwrap_or_else(|error| panic!("{error}"));
    accounts.close().await;
}
