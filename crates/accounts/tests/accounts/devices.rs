//! Browsers that an account knows: what others do does not keep them out.

use std::time::Duration;

use super::client::{Client, PASSWORD};
use super::site::Site;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Uses up all tries that strangers have, from everywhere, and those of the address of `client`.
async fn exhaust_turns(site: &Site, name: &str) {
    for number in 0..60_u8 {
        let mut client = Client::from(&site.router, [203, 0, 113, number]);
        client.log_in(name, "wrong wrong").await;
    }
    let mut neighbour = Client::new(&site.router);
    for number in 0..21 {
        neighbour
            .log_in(&format!("{name}{number}"), "wrong wrong")
            .await;
    }
}

/// Whether the right password is looked at.
async fn is_known(client: &mut Client, password: &str) -> bool {
    match client.log_in("ada", password).await.status.as_u16() {
        303 => true,
        429 => false,
        status => panic!("{status}"),
    }
}

fn device(client: &Client) -> (String, String) {
    let mut cookies = client.cookies.iter();
    let device = cookies.find(|(name, _)| name.contains("loadline-device-"));
    let (name, value) = device.expect("a browser that is known");
    (name.clone(), value.clone())
}

#[tokio::test]
async fn who_has_logged_in_before_is_let_in_whatever_others_do() {
    let site = Site::on_sqlite().await;
    let mut owner = Client::new(&site.router);
    owner.enter("ada").await;
    owner.log_out().await.is(303);
    exhaust_turns(&site, "ada").await;
    let mut stranger = Client::from(&site.router, [198, 51, 100, 1]);
    assert!(!is_known(&mut stranger, PASSWORD).await);
    let mut neighbour = Client::new(&site.router);
    assert!(!is_known(&mut neighbour, PASSWORD).await);
    for _ in 0..50 {
        assert!(is_known(&mut owner, PASSWORD).await);
        owner.log_out().await.is(303);
    }
    site.time.pass(179 * DAY);
    exhaust_turns(&site, "ada").await;
    assert!(is_known(&mut owner, PASSWORD).await, "for 180 days");
    owner.log_out().await.is(303);
    site.time.pass(180 * DAY);
    exhaust_turns(&site, "ada").await;
    assert!(!is_known(&mut owner, PASSWORD).await, "and no longer");
}

#[tokio::test]
async fn a_stolen_device_cookie_has_no_more_tries_than_its_owner_and_is_good_for_one_account() {
    let site = Site::on_sqlite().await;
    let mut owner = Client::new(&site.router);
    owner.enter("ada").await;
    owner.log_out().await.is(303);
    let stolen = device(&owner);
    Client::new(&site.router)
        .register("bob", PASSWORD)
        .await
        .is(303);
    let thief = |number: u8| {
        let mut thief = Client::from(&site.router, [203, 0, 114, number]);
        thief.cookies.extend([stolen.clone()]);
        thief
    };
    for number in 0..5 {
        thief(number).log_in("ada", "wrong wrong").await.is(403);
    }
    for number in 5..10 {
        let answer = thief(number).log_in("ada", "wrong wrong").await;
        assert_eq!(answer.is(429).retry_after(), 1);
    }
    exhaust_turns(&site, "bob").await;
    thief(10).log_in("bob", PASSWORD).await.is(429);
    site.time.pass(Duration::from_secs(1));
    assert!(is_known(&mut owner, PASSWORD).await);
    assert_ne!(device(&owner), stolen, "each login makes a new one");
    exhaust_turns(&site, "ada").await;
    assert!(
        !is_known(&mut thief(11), PASSWORD).await,
        "the old one is of no use"
    );
}

#[tokio::test]
async fn a_new_password_makes_strangers_of_all_other_browsers() {
    let site = Site::on_sqlite().await;
    let (mut one, mut two) = (Client::new(&site.router), Client::new(&site.router));
    one.enter("ada").await;
    two.log_in("ada", PASSWORD).await.is(303);
    let before = device(&one);
    let new = "a rather different sentence";
    let fields = [("current", PASSWORD), ("password", new), ("repeat", new)];
    one.submit("/accounts/password", &fields).await.is(303);
    assert_ne!(device(&one), before);
    one.log_out().await.is(303);
    two.cookies.remove("loadline-session");
    exhaust_turns(&site, "ada").await;
    assert!(is_known(&mut one, new).await);
    assert!(!is_known(&mut two, new).await);
}

#[tokio::test]
async fn an_account_that_is_deleted_knows_nobody() {
    let site = Site::on_sqlite().await;
    let (mut one, mut two) = (Client::new(&site.router), Client::new(&site.router));
    one.enter("ada").await;
    two.log_in("ada", PASSWORD).await.is(303);
    let kept = one.cookies.clone();
    one.submit("/accounts/delete", &[("current", PASSWORD)])
        .await
        .leads_to("/accounts/?after=deleted");
    assert!(one.cookies.is_empty(), "{:?}", one.cookies.keys());
    one.cookies = kept;
    two.register("ada", PASSWORD).await.is(303);
    exhaust_turns(&site, "ada").await;
    assert!(!is_known(&mut one, PASSWORD).await);
    assert!(!is_known(&mut two, PASSWORD).await);
}

#[tokio::test]
async fn one_browser_is_known_to_each_account_that_logs_in_there() {
    let site = Site::on_sqlite().await;
    let mut shared = Client::new(&site.router);
    for name in ["ada", "bob"] {
        shared.enter(name).await;
        shared.log_out().await.is(303);
    }
    exhaust_turns(&site, "ada").await;
    exhaust_turns(&site, "bob").await;
    for name in ["ada", "bob", "ada"] {
        shared.log_in(name, PASSWORD).await.is(303);
        shared.log_out().await.is(303);
    }
}

#[tokio::test]
async fn an_account_knows_twenty_browsers_and_forgets_the_least_recent() {
    let site = Site::on_sqlite().await;
    let mut clients = Vec::new();
    for number in 0..22 {
        site.time.pass(Duration::from_secs(1));
        let mut client = Client::new(&site.router);
        match number {
            0 => client.enter("ada").await,
            _ => drop(client.log_in("ada", PASSWORD).await.is(303)),
        }
        clients.push(client);
        if number == 19 {
            site.time.pass(Duration::from_secs(1));
            clients[0].cookies.remove("loadline-session");
            clients[0].log_in("ada", PASSWORD).await.is(303); // now the most recent
        }
    }
    exhaust_turns(&site, "ada").await;
    for (number, client) in clients.iter_mut().enumerate() {
        client.cookies.remove("loadline-session");
        let expected = !matches!(number, 1 | 2);
        assert_eq!(is_known(client, PASSWORD).await, expected, "{number}");
    }
}

#[tokio::test]
async fn who_is_logged_in_proves_the_password_whatever_others_do() {
    let site = Site::on_sqlite().await;
    let mut owner = Client::new(&site.router);
    owner.enter("ada").await;
    exhaust_turns(&site, "ada").await;
    let new = "a rather different sentence";
    let fields = [("current", PASSWORD), ("password", new), ("repeat", new)];
    owner.submit("/accounts/password", &fields).await.is(303);
    owner
        .submit("/accounts/delete", &[("current", new)])
        .await
        .leads_to("/accounts/?after=deleted");
}

#[tokio::test]
async fn a_device_cookie_lasts_and_opens_nothing() {
    let site = Site::on_sqlite().await;
    let mut client = Client::new(&site.router).over_tls();
    client.register("ada", PASSWORD).await.is(303);
    let answer = client.log_in("ada", PASSWORD).await;
    let fields = answer.fields.get_all("set-cookie").iter();
    let texts: Vec<&str> = fields.map(|field| field.to_str().expect("text")).collect();
    let text = texts.iter().find(|text| text.contains("-device-"));
    let text = text.unwrap_or_else(|| panic!("{texts:?}"));
    assert!(text.starts_with("__Host-loadline-device-"), "{text}");
    let end = "; Path=/; HttpOnly; SameSite=Lax; Secure; Max-Age=15552000";
    assert!(text.ends_with(end), "{text}");
    let (_, value) = device(&client);
    let mut thief = Client::new(&site.router).over_tls();
    thief
        .cookies
        .insert("__Host-loadline-session".to_owned(), value);
    assert!(!thief.is_in().await);
}
