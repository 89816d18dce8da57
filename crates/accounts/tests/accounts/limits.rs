//! How often something may be tried, from where.

use std::time::Duration;

use sqlx::ConnectOptions as _;
use sqlx::sqlite::SqliteConnectOptions;
use tokio::task::JoinSet;

use super::client::{Client, PASSWORD};
use super::site::Site;

#[tokio::test]
async fn an_address_has_five_tries_of_an_account_and_then_waits_that_double() {
    let site = Site::on_sqlite_with(|options| {
        options.tries_by_address.free = u32::MAX;
        options.turns_by_account.free = u32::MAX;
    })
    .await;
    Client::new(&site.router).enter("ada").await;
    // For one who is not there, too.
    for name in ["nobody", "ada"] {
        let mut waits = Vec::new();
        let mut tries = 0;
        for number in 0..41 {
            let mut client = Client::from(&site.router, [203, 0, 113, 1]);
            let answer = client.log_in(name, "wrong wrong").await;
            match answer.status.as_u16() {
                403 => tries += 1,
                429 => {
                    answer.says("Too many tries");
                    waits.push(answer.retry_after());
                    site.time.pass(Duration::from_secs(answer.retry_after()));
                }
                status => panic!("{status}"),
            }
            if number == 4 {
                assert_eq!((tries, waits.len()), (5, 0), "{name}");
            }
        }
        assert_eq!(
            waits[..10],
            [1, 2, 4, 8, 16, 32, 64, 128, 256, 300],
            "{name}"
        );
    }
    // The right password is not looked at during a wait either, and ends the count after it.
    let mut owner = Client::from(&site.router, [203, 0, 113, 1]);
    let wait = owner.log_in("ada", PASSWORD).await.is(429).retry_after();
    site.time.pass(Duration::from_secs(wait));
    owner.log_in("ada", PASSWORD).await.is(303);
    let mut again = Client::from(&site.router, [203, 0, 113, 1]);
    for _ in 0..5 {
        again.log_in("ada", "wrong wrong").await.is(403);
    }
}

/// Owners who come to an account after so many seconds of an attack, each from an address of its own,
/// and come again when their wait ends: how long each waits, in seconds.
async fn waits_under_attack(site: &Site, addresses: u8, arrivals: &[u64]) -> Vec<u64> {
    let mut attackers = Vec::new();
    for number in 0..addresses {
        let mut attacker = Client::from(&site.router, [203, 0, 113, number]);
        let token = attacker.get("/accounts/login").await.token();
        attackers.push((attacker, token));
    }
    let mut owners: Vec<(u64, u64, u8)> = Vec::new(); // arrival, next try, address
    let mut waits = Vec::new();
    let end = arrivals.iter().max().expect("somebody comes") + 400;
    for second in 0..end {
        // All at each moment at which a wait may end, and before anybody else.
        for (attacker, token) in &mut attackers {
            let fields = [
                ("token", token.as_str()),
                ("name", "ada"),
                ("password", "wrong wrong"),
            ];
            let answer = attacker.post("/accounts/login", &fields).await;
            assert!(matches!(answer.status.as_u16(), 403 | 429), "{answer:?}");
        }
        if arrivals.contains(&second) {
            let address = u8::try_from(owners.len() + waits.len()).expect("few");
            owners.push((second, second, address));
        }
        let mut waiting = Vec::new();
        for (came, next, address) in owners {
            if next > second {
                waiting.push((came, next, address));
                continue;
            }
            let mut owner = Client::from(&site.router, [198, 51, 100, address]);
            let answer = owner.log_in("ada", PASSWORD).await;
            match answer.status.as_u16() {
                303 => waits.push(second - came),
                _ => waiting.push((came, second + answer.is(429).retry_after(), address)),
            }
        }
        owners = waiting;
        site.time.pass(Duration::from_secs(1));
    }
    assert!(owners.is_empty(), "not let in: {owners:?}");
    waits
}

/// The manual's promise.
#[tokio::test]
async fn an_account_under_attack_lets_its_owner_in_after_five_minutes_at_most() {
    // Owners wait for each other, too: those who come at the same time are more addresses that try.
    let often: &[u64] = &[3, 20, 60, 61, 299, 600, 1000];
    for (addresses, arrivals) in [(1, often), (3, often), (5, &[20, 400, 900])] {
        let site = Site::on_sqlite().await;
        let mut owner = Client::new(&site.router);
        owner.register("ada", PASSWORD).await.is(303);
        let waits = waits_under_attack(&site, addresses, arrivals).await;
        assert_eq!(waits.len(), arrivals.len());
        assert!(
            waits.iter().all(|wait| *wait <= 300),
            "{addresses}: {waits:?}"
        );
        if addresses == 1 {
            assert!(waits.iter().all(|wait| *wait == 0), "{waits:?}");
        }
    }
}

#[tokio::test]
async fn refused_tries_count_for_the_address_that_sends_them() {
    let site = Site::on_sqlite().await;
    let mut client = Client::new(&site.router);
    for number in 0..20 {
        let answer = client.log_in("ada", "wrong wrong").await;
        answer.is(if number < 5 { 403 } else { 429 });
    }
    client.log_in("bob", "wrong wrong").await.is(429);
    let mut other = Client::from(&site.router, [203, 0, 113, 1]);
    other.log_in("bob", "wrong wrong").await.is(403);
}

#[tokio::test]
async fn many_strangers_have_so_many_guesses_and_learn_nothing_of_accounts() {
    let site = Site::on_sqlite().await;
    Client::new(&site.router)
        .register("ada", PASSWORD)
        .await
        .is(303);
    let mut answers = [Vec::new(), Vec::new()];
    for (name, subnet) in [("ada", 1), ("nobody", 2)] {
        for number in 0..40_u8 {
            let mut client = Client::from(&site.router, [10, subnet, 0, number]);
            let answer = client.log_in(name, "wrong wrong").await;
            let wait = (answer.status == 429).then(|| answer.retry_after());
            let text = answer.text().replace(&answer.token(), "").replace(name, "");
            answers[usize::from(subnet) - 1].push((answer.status, wait, text));
        }
    }
    assert_eq!(answers[0], answers[1]);
    let guesses = answers[0].iter().filter(|(status, ..)| *status == 403);
    assert_eq!(guesses.count(), 20);
    let waits: Vec<u64> = answers[0].iter().filter_map(|(_, wait, _)| *wait).collect();
    assert_eq!(waits[..3], [50, 100, 150]);
    assert_eq!(
        site.accounts.counters().hashes,
        41,
        "what is refused costs nothing"
    );
}

#[tokio::test]
async fn an_address_has_twenty_failed_logins_however_many_at_once() {
    let site = Site::on_sqlite().await;
    let mut tries = JoinSet::new();
    for number in 0..100 {
        let mut client = Client::from(&site.router, [203, 0, 113, 9]);
        tries.spawn(async move {
            client
                .log_in(&format!("user{number}"), "wrong wrong")
                .await
                .status
        });
    }
    let statuses = tries.join_all().await;
    let count = |status: u16| statuses.iter().filter(|found| **found == status).count();
    assert_eq!((count(403), count(429)), (20, 80));
    assert_eq!(
        site.accounts.counters().hashes,
        20,
        "what is refused costs nothing"
    );
    Client::from(&site.router, [203, 0, 113, 10])
        .enter("ada")
        .await;
}

#[tokio::test]
async fn logins_that_succeed_are_not_limited() {
    let site = Site::on_sqlite().await;
    Client::new(&site.router)
        .register("ada", PASSWORD)
        .await
        .is(303);
    for _ in 0..60 {
        Client::new(&site.router)
            .log_in("ada", PASSWORD)
            .await
            .is(303);
    }
}

#[tokio::test]
async fn an_address_makes_twenty_accounts_and_then_one_after_each_wait() {
    let site = Site::on_sqlite().await;
    let mut tries = JoinSet::new();
    for number in 0..50 {
        let mut client = Client::new(&site.router);
        tries.spawn(async move {
            client
                .register(&format!("user{number}"), PASSWORD)
                .await
                .status
        });
    }
    let statuses = tries.join_all().await;
    let made = statuses.iter().filter(|status| **status == 303).count();
    assert_eq!((made, site.accounts.counters().registered), (20, 20));
    let mut client = Client::new(&site.router);
    for wait in [60, 120, 240] {
        let answer = client.register("another", PASSWORD).await;
        assert_eq!(answer.is(429).retry_after(), wait);
        site.time.pass(Duration::from_secs(wait));
        client
            .register(&format!("another{wait}"), PASSWORD)
            .await
            .is(303);
    }
}

#[tokio::test]
async fn proving_the_password_again_counts_as_a_try() {
    let site = Site::on_sqlite().await;
    let mut client = Client::new(&site.router);
    client.enter("ada").await;
    for _ in 0..3 {
        client
            .submit("/accounts/delete", &[("current", "wrong wrong")])
            .await
            .is(403);
    }
    let fields = [
        ("current", "wrong wrong"),
        ("password", "a good new one"),
        ("repeat", "a good new one"),
    ];
    for _ in 0..2 {
        client.submit("/accounts/password", &fields).await.is(403);
    }
    client
        .submit("/accounts/password", &fields)
        .await
        .is(429)
        .says("Please wait a second");
    client
        .submit("/accounts/delete", &[("current", PASSWORD)])
        .await
        .is(429);
    client.log_out().await;
    client.log_in("ada", PASSWORD).await.is(429);
}

/// Who asks is what the server says, and not what a client's fields do.
#[tokio::test]
async fn fields_of_a_client_change_no_address() {
    let site = Site::on_sqlite().await;
    for number in 0..21_u8 {
        let mut client = Client::new(&site.router);
        client.fields = vec![
            ("x-forwarded-for", format!("203.0.113.{number}")),
            ("forwarded", format!("for=203.0.113.{number}")),
        ];
        let expected = if number < 20 { 403 } else { 429 };
        client
            .log_in(&format!("user{number}"), "wrong wrong")
            .await
            .is(expected);
    }
}

#[tokio::test]
async fn hashes_beyond_the_bound_wait_and_then_are_refused() {
    let site = Site::on_sqlite_with(|options| {
        options.hashes_max = 1;
        options.hash_wait = Duration::ZERO;
        options.hash_cost.memory_kib = 16 * 1024; // some milliseconds: all others come in that time
    })
    .await;
    let mut tries = JoinSet::new();
    for number in 0..40_u8 {
        let mut client = Client::from(&site.router, [203, 0, 113, number]);
        let page = client.get("/accounts/login").await.token();
        tries.spawn(async move {
            let name = format!("user{number}");
            let fields = [
                ("token", page.as_str()),
                ("name", &name),
                ("password", "wrong wrong"),
            ];
            client.post("/accounts/login", &fields).await
        });
    }
    let answers = tries.join_all().await;
    let refused: Vec<_> = answers
        .iter()
        .filter(|answer| answer.status == 503)
        .collect();
    let counters = site.accounts.counters();
    assert_eq!(counters.hashes + counters.hashes_refused, 40);
    assert_eq!(refused.len() as u64, counters.hashes_refused);
    for answer in refused {
        assert_eq!(answer.retry_after(), 2);
    }
}

#[tokio::test]
async fn who_waits_too_long_for_a_connection_is_refused_and_counted() {
    const WAIT: Duration = Duration::from_secs(2); // all else is done in far less, also on a busy machine
    let site = Site::on_sqlite_with(|options| {
        options.pool_size = 1;
        options.pool_range = None;
        options.pool_wait = WAIT;
    })
    .await;
    let mut member = Client::new(&site.router);
    member.enter("Ada").await;
    // Another program writes: a registration has the one connection for as long.
    let folder = site.folder.as_ref().expect("a file");
    let connect = SqliteConnectOptions::new().filename(folder.path().join("accounts.db"));
    let mut other = connect.connect().await.expect("a connection");
    let begin = sqlx::query("BEGIN IMMEDIATE").execute(&mut other).await;
    begin.expect("nobody else writes");
    let before = site.accounts.counters();
    let mut guest = Client::from(&site.router, [203, 0, 113, 1]);
    let registering = tokio::spawn(async move { guest.register("Bob", PASSWORD).await.status });
    let refused = loop {
        let answer = member.get("/accounts/member").await;
        match answer.status.as_u16() {
            200 => tokio::task::yield_now().await, // it has not come so far
            _ => break answer,
        }
    };
    assert!(refused.is(503).retry_after() > 0);
    let counters = site.accounts.counters();
    let [waits, refusals] = [
        counters.pool_waits - before.pool_waits,
        counters.pool_refused - before.pool_refused,
    ];
    assert!(refusals >= 1 && waits >= refusals, "{counters:?}");
    let waited_us = u128::from(counters.pool_wait_us - before.pool_wait_us);
    assert!(waited_us >= WAIT.as_micros(), "{counters:?}");
    assert_eq!(counters.database_failures, before.database_failures);
    let end = sqlx::query("ROLLBACK").execute(&mut other).await;
    end.expect("the end of it");
    assert_eq!(registering.await.expect("an answer"), 303);
    member.get("/accounts/member").await.is(200);
}
