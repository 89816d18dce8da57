//! Connections to the database: how many there are, and from when on.

use tokio::task::JoinSet;

use loadline_accounts::Accounts;

use super::client::Client;
use super::site::{Site, Time, options};

/// All of the pool before the first request, and the same ones after many at once.
pub(crate) async fn is_there_from_the_start(url: &str) {
    let site = Site::on(url, |options| {
        options.pool_size = 6;
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

#[tokio::test]
async fn a_pool_cannot_begin_with_more_than_it_may_have() {
    let folder = tempfile::tempdir().expect("a directory");
    let url = format!("sqlite:{}/accounts.db", folder.path().display());
    let mut options = options(&url, &Time::default());
    options.pool_min = 9;
    let error = Accounts::open(options).await.err().expect("refused");
    assert_eq!(
        error.to_string(),
        "a pool of 8 connections cannot begin with 9"
    );
}
