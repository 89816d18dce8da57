//! Connections to the database: how many there are, and from when on.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use loadline_accounts::{Accounts, Counters, PoolRange};

use super::client::{Answer, Client};
use super::servers::{DatabaseKind, Server};
use super::site::{Site, Time, options};

/// All of the pool before the first request, and the same ones after many at once.
pub(crate) async fn is_there_from_the_start(url: &str) {
    let site = Site::on(url, |options| {
        options.pool_size = 6;
        options.pool_range = None;
        options.pool_min = 6;
    })
    .await;
    let counters = site.accounts.counters();
    assert_eq!((counters.connections, counters.connections_opened), (6, 6));
    let mut users = JoinSet::new();
    for number in 0..32_u8 {
        let mut client = Client::from(&site.router, [10, 3, 0, number]);
        users.spawn(async move { client.enter(&format!("user{number}")).await });
    }
    users.join_all().await;
    let counters = site.accounts.counters();
    assert_eq!((counters.connections, counters.connections_opened), (6, 6));
    site.accounts.close().await;
    assert_eq!(site.accounts.counters().connections, 0);
}

#[tokio::test]
async fn a_pool_begins_with_what_was_asked_for_and_grows_when_it_must() {
    let site = Site::on_sqlite_with(|options| options.pool_min = 2).await;
    let counters = site.accounts.counters();
    assert_eq!((counters.connections, counters.connections_opened), (2, 2));
    let mut client = Client::new(&site.router);
    client.enter("ada").await;
    let counters = site.accounts.counters();
    assert!((2..=8).contains(&counters.connections), "{counters:?}");
    assert_eq!(counters.connections_opened, counters.connections, "kept");
    let site = Site::on_sqlite().await;
    let counters = site.accounts.counters();
    assert_eq!((counters.connections, counters.connections_opened), (0, 0));
}

/// It was the time for opening a connection, too: none was ever opened, and every page was a 503.
#[tokio::test]
async fn connections_are_opened_also_where_no_request_waits_for_a_free_one() {
    let site = Site::on_sqlite_with(|options| options.pool_wait = Duration::ZERO).await;
    let mut client = Client::new(&site.router);
    client.enter("ada").await;
    assert!(client.is_in().await);
    let counters = site.accounts.counters();
    assert_eq!((counters.database_failures, counters.pool_refused), (0, 0));
}

#[tokio::test]
async fn a_pool_cannot_begin_with_more_than_it_may_have() {
    let folder = tempfile::tempdir().expect("a directory");
    let url = format!("sqlite:{}/accounts.db", folder.path().display());
    let mut options = options(&url, &Time::default());
    options.pool_min = 65;
    let error = Accounts::open(options).await.err().expect("refused");
    assert_eq!(
        error.to_string(),
        "a pool of 64 connections cannot begin with 65"
    );
}

/// How long anything may take that is waited for.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A site whose pool changes its size ten times as often as usual.
async fn changing(url: &str, most: u32) -> Site {
    Site::on(url, |options| {
        options.pool_size = 2;
        options.pool_range = Some(PoolRange { min: 2, max: most });
        options.pool_interval = Duration::from_millis(10);
    })
    .await
}

async fn until(site: &Site, is_so: impl Fn(&Counters) -> bool) {
    let began = Instant::now();
    while !is_so(&site.accounts.counters()) {
        let counters = site.accounts.counters();
        assert!(began.elapsed() < TIMEOUT, "{counters:?}");
        tokio::time::sleep(Duration::from_millis(1)).await; // a count announces itself nowhere
    }
}

/// Thirty page views of a user who is logged in.
fn views(site: &Site, client: &Client) -> JoinSet<Answer> {
    let mut asking = JoinSet::new();
    for number in 0..30_u8 {
        let mut same = Client::from(&site.router, [10, 4, 0, number]);
        same.cookies.clone_from(&client.cookies);
        asking.spawn(async move { same.get("/accounts/member").await });
    }
    asking
}

/// More connections while statements wait for them, fewer once there are none.
pub(crate) async fn grows_and_shrinks(server: &Server) {
    let site = changing(&server.database("sizes").await, 12).await;
    let mut client = Client::new(&site.router);
    client.enter("bob").await;
    let lock = server.lock("sizes", "sessions").await;
    let waiting = views(&site, &client);
    until(&site, |counters| {
        assert!(counters.connections <= 12, "{counters:?}");
        counters.pool_size == 12 && counters.pool_busy == 12
    })
    .await;
    drop(lock);
    for answer in waiting.join_all().await {
        answer.is(200);
    }
    until(&site, |counters| {
        counters.pool_size == 2 && counters.connections <= 2
    })
    .await;
    assert!(client.is_in().await);
    site.accounts.close().await;
}

/// A user of the database who may have six connections: the pool has no more, and no request fails.
pub(crate) async fn grows_no_further_than_is_granted(server: &Server) {
    let url = server.database("granted").await;
    let (steps, from) = match server.kind {
        DatabaseKind::MariaDb => (
            [
                "CREATE USER few@localhost WITH MAX_USER_CONNECTIONS 6",
                "GRANT ALL ON granted.* TO few@localhost",
            ],
            "root@",
        ),
        DatabaseKind::PostgreSql => (
            [
                "CREATE ROLE few LOGIN CONNECTION LIMIT 6",
                "ALTER DATABASE granted OWNER TO few",
            ],
            "tester@",
        ),
    };
    for step in steps {
        server.ask(step).await.expect(step);
    }
    let site = changing(&url.replace(from, "few@"), 12).await;
    let mut client = Client::new(&site.router);
    client.enter("bob").await;
    let lock = server.lock("granted", "sessions").await;
    let waiting = views(&site, &client);
    until(&site, |counters| {
        assert!(counters.connections <= 7, "{counters:?}"); // one is tried
        counters.pool_size == 6 && counters.pool_busy == 6
    })
    .await;
    drop(lock);
    for answer in waiting.join_all().await {
        answer.is(200);
    }
    let counters = site.accounts.counters();
    assert_eq!((counters.database_failures, counters.pool_refused), (0, 0));
    site.accounts.close().await;
}
