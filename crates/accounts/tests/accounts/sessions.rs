//! Sessions: how they begin, what they open, how they end.

use std::time::Duration;

use sqlx::Executor as _;

use super::client::{Client, PASSWORD};
use super::site::Site;

const MINUTE: Duration = Duration::from_secs(60);
const SESSION: &str = "loadline-session";

#[tokio::test]
async fn only_who_is_logged_in_sees_the_page_and_its_picture() {
    let site = Site::on_sqlite().await;
    let mut client = Client::new(&site.router);
    let hidden =
        ["member", "picture", "password", "delete"].map(|page| format!("/accounts/{page}"));
    for page in &hidden {
        client.get(page).await.leads_to("/accounts/login");
    }
    client.enter("ada").await;
    for page in &hidden {
        client.get(page).await.is(200);
    }
    let picture = client.get("/accounts/picture").await;
    assert_eq!(picture.field("content-type"), "image/png");
    assert_eq!(&picture.body[..4], b"\x89PNG");
    for (name, value) in [(SESSION, "x"), (SESSION, ""), (SESSION, &"A".repeat(43))] {
        let mut forged = Client::new(&site.router);
        forged.cookies.insert(name.to_owned(), value.to_owned());
        forged
            .get("/accounts/picture")
            .await
            .leads_to("/accounts/login");
    }
}

#[tokio::test]
async fn each_login_makes_a_new_session_and_ends_the_one_before() {
    let site = Site::on_sqlite().await;
    let mut client = Client::new(&site.router);
    client.enter("ada").await;
    let first = client.cookies[SESSION].clone();
    // The form of a second tab, loaded before the first login.
    let mut tab = Client::new(&site.router);
    let token = tab.get("/accounts/login").await.token();
    tab.cookies.insert(SESSION.to_owned(), first.clone());
    let fields = [
        ("token", token.as_str()),
        ("name", "ada"),
        ("password", PASSWORD),
    ];
    tab.post("/accounts/login", &fields)
        .await
        .leads_to("/accounts/member");
    assert_ne!(tab.cookies[SESSION], first);
    assert!(tab.is_in().await);
    assert!(!client.is_in().await, "the old token is of no more use");
}

#[tokio::test]
async fn logging_out_ends_this_session_on_the_server_and_no_other() {
    let site = Site::on_sqlite().await;
    let (mut one, mut two) = (Client::new(&site.router), Client::new(&site.router));
    one.enter("ada").await;
    two.log_in("ada", PASSWORD).await.is(303);
    let kept = one.cookies.clone();
    one.log_out().await.leads_to("/accounts/?after=logout");
    assert!(!one.cookies.contains_key(SESSION));
    one.cookies = kept;
    assert!(
        !one.is_in().await,
        "who kept the cookie is out all the same"
    );
    assert!(two.is_in().await);
}

#[tokio::test]
async fn a_new_password_ends_all_other_sessions_and_the_old_password() {
    let site = Site::on_sqlite().await;
    let (mut one, mut two) = (Client::new(&site.router), Client::new(&site.router));
    one.enter("ada").await;
    two.log_in("ada", PASSWORD).await.is(303);
    let old = one.cookies[SESSION].clone();
    let new = "a rather different sentence";
    let change = |current, password| {
        [
            ("current", current),
            ("password", password),
            ("repeat", password),
        ]
    };
    one.submit("/accounts/password", &change("not mine", new))
        .await
        .is(403)
        .says("not your present");
    one.submit("/accounts/password", &change(PASSWORD, "password"))
        .await
        .is(422)
        .says("common");
    one.submit("/accounts/password", &change(PASSWORD, new))
        .await
        .leads_to("/accounts/member?after=password");
    assert_ne!(one.cookies[SESSION], old);
    assert!(one.is_in().await);
    assert!(!two.is_in().await);
    two.log_in("ada", PASSWORD).await.is(403);
    two.log_in("ada", new).await.leads_to("/accounts/member");
}

/// What ends half-way has not begun: a session of the old password would go on beside the new one.
#[tokio::test]
async fn a_new_password_that_ends_no_sessions_is_not_taken() {
    let site = Site::on_sqlite().await;
    let mut client = Client::new(&site.router);
    client.enter("ada").await;
    let mut database = site.database().await;
    let broken = "CREATE TRIGGER broken BEFORE DELETE ON sessions \
                  BEGIN SELECT RAISE(FAIL, 'disk I/O error'); END";
    database.execute(broken).await.expect("a trigger");
    let new = "a new password of hers";
    let change = [("current", PASSWORD), ("password", new), ("repeat", new)];
    client.submit("/accounts/password", &change).await.is(503);
    let mut other = Client::new(&site.router);
    other.log_in("ada", new).await.is(403);
    other
        .log_in("ada", PASSWORD)
        .await
        .leads_to("/accounts/member");
    site.accounts.close().await;
}

#[tokio::test]
async fn deleting_the_account_takes_the_password_and_leaves_nothing() {
    let site = Site::on_sqlite().await;
    let (mut one, mut two) = (Client::new(&site.router), Client::new(&site.router));
    one.enter("ada").await;
    two.log_in("ada", PASSWORD).await.is(303);
    one.submit("/accounts/delete", &[("current", "not mine")])
        .await
        .is(403);
    assert!(two.is_in().await);
    one.submit("/accounts/delete", &[("current", PASSWORD)])
        .await
        .leads_to("/accounts/?after=deleted");
    assert!(!two.is_in().await);
    two.log_in("ada", PASSWORD).await.is(403);
    two.register("ada", PASSWORD).await.is(303);
}

#[tokio::test]
async fn sessions_end_without_use_and_in_any_case() {
    let site = Site::on_sqlite().await;
    let mut client = Client::new(&site.router);
    client.enter("ada").await;
    site.time.pass(29 * MINUTE);
    assert!(client.is_in().await);
    site.time.pass(29 * MINUTE);
    assert!(client.is_in().await, "use keeps it");
    site.time.pass(30 * MINUTE);
    assert!(!client.is_in().await, "30 minutes without use");
    client.log_in("ada", PASSWORD).await.is(303);
    for _ in 0..(12 * 60 / 20 - 1) {
        site.time.pass(20 * MINUTE);
        assert!(client.is_in().await);
    }
    site.time.pass(20 * MINUTE);
    assert!(!client.is_in().await, "12 hours, used or not");
}

#[tokio::test]
async fn use_keeps_a_session_also_where_it_ends_soon() {
    for idle in [30, 60, 90].map(Duration::from_secs) {
        let site = Site::on_sqlite_with(|options| options.session_idle = idle).await;
        let mut client = Client::new(&site.router);
        client.enter("ada").await;
        for _ in 0..10 {
            site.time.pass(idle / 2);
            assert!(client.is_in().await, "use keeps it: {idle:?}");
        }
        site.time.pass(idle);
        assert!(!client.is_in().await, "{idle:?} without use");
    }
}

#[tokio::test]
async fn a_user_has_so_many_sessions_and_the_oldest_ends() {
    let site = Site::on_sqlite().await;
    let mut clients = Vec::new();
    for number in 0..21 {
        site.time.pass(Duration::from_secs(1));
        let mut client = Client::new(&site.router);
        match number {
            0 => client.enter("ada").await,
            _ => drop(client.log_in("ada", PASSWORD).await.is(303)),
        }
        clients.push(client);
    }
    assert!(!clients[0].is_in().await);
    for client in &mut clients[1..] {
        assert!(client.is_in().await);
    }
}
