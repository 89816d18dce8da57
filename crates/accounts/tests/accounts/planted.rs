//! Cookies that others have planted, by a longer path or from a neighbouring host, stand before the
//! browser's own: they hide nothing and keep nobody out.

use super::client::{Client, PASSWORD};
use super::site::Site;

const NAMES: [&str; 2] = ["loadline-session", "loadline-guest"];

/// Values that have no form, that nobody has made, and that were good once.
fn planted(site_token: &str) -> Vec<(&'static str, String)> {
    let values = ["x", "", &"A".repeat(43), site_token].map(str::to_owned);
    let each = NAMES.into_iter().flat_map(|name| {
        let values = values.clone();
        values.into_iter().map(move |value| (name, value))
    });
    each.collect()
}

/// The token of a session that has ended.
async fn ended(site: &Site) -> String {
    let mut client = Client::new(&site.router);
    client.enter("eve").await;
    let token = client.cookies[NAMES[0]].clone();
    client.log_out().await.is(303);
    token
}

#[tokio::test]
async fn planted_cookies_do_not_hide_a_session() {
    let site = Site::on_sqlite().await;
    let mut client = Client::new(&site.router);
    client.enter("ada").await;
    client.planted = planted(&ended(&site).await);
    assert!(client.is_in().await);
    client.get("/accounts/picture").await.is(200);
    let new = "a rather different sentence";
    let fields = [("current", PASSWORD), ("password", new), ("repeat", new)];
    client
        .submit("/accounts/password", &fields)
        .await
        .leads_to("/accounts/member?after=password");
    assert!(client.is_in().await);
    let kept = client.cookies.clone();
    client.log_out().await.leads_to("/accounts/?after=logout");
    client.cookies = kept;
    assert!(!client.is_in().await, "the real one has ended");
}

#[tokio::test]
async fn planted_cookies_keep_nobody_from_logging_in() {
    let site = Site::on_sqlite().await;
    let mut client = Client::new(&site.router);
    client.planted = planted(&ended(&site).await);
    client.enter("ada").await;
    assert!(client.is_in().await);
    let own = client.cookies[NAMES[0]].clone();
    assert!(
        client.planted.iter().all(|(_, value)| *value != own),
        "made anew"
    );
}

#[tokio::test]
async fn logging_in_ends_every_session_that_the_browser_had() {
    let site = Site::on_sqlite().await;
    let mut eve = Client::new(&site.router);
    eve.enter("eve").await;
    // Whoever planted it looks on, if the victim goes on in that session.
    let mut ada = Client::new(&site.router);
    let token = ada.get("/accounts/login").await.token();
    ada.register("ada", PASSWORD).await.is(303);
    ada.planted = vec![(NAMES[0], eve.cookies[NAMES[0]].clone())];
    let fields = [
        ("token", token.as_str()),
        ("name", "ada"),
        ("password", PASSWORD),
    ];
    ada.post("/accounts/login", &fields).await.is(303);
    let page = ada.get("/accounts/member").await;
    page.is(200).says("<strong id=\"user\">ada</strong>");
    assert!(!eve.is_in().await);
}

#[tokio::test]
async fn other_cookies_that_are_no_ascii_hide_nothing() {
    let site = Site::on_sqlite().await;
    let mut client = Client::new(&site.router);
    client.planted = vec![("city", "Köln".to_owned())];
    client.enter("ada").await;
    assert!(client.is_in().await);
    client.log_out().await.leads_to("/accounts/?after=logout");
    assert!(!client.is_in().await);
}

#[tokio::test]
async fn planted_cookies_do_not_make_a_known_browser_a_stranger() {
    let site = Site::on_sqlite().await;
    let mut client = Client::new(&site.router);
    client.enter("ada").await;
    client.log_out().await.is(303);
    let name = client.cookies.keys().find(|name| name.contains("-device-"));
    let name: &'static str = name.expect("known").clone().leak();
    client.planted = vec![(name, "x".to_owned()), (name, "A".repeat(43))];
    for number in 0..40_u8 {
        let mut other = Client::from(&site.router, [203, 0, 113, number]);
        other.log_in("ada", "wrong wrong").await;
    }
    client.log_in("ada", PASSWORD).await.is(303);
}
