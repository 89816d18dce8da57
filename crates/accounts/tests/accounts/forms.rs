//! What forms take, what they refuse, and what they say then.

use super::client::{Client, PASSWORD};
use super::site::Site;

#[tokio::test]
async fn weak_and_common_passwords_are_warned_of_and_the_name_stays() {
    let site = Site::on_sqlite().await;
    let mut client = Client::new(&site.router);
    for (password, warning) in [
        ("shrt7", "too short"),
        ("Password1", "most common"),
        ("abababababab", "repeats"),
        ("quintilla99", "hardly more than the user name"),
    ] {
        let answer = client.register("Quintilla", password).await;
        answer
            .is(422)
            .says(warning)
            .says("value=\"Quintilla\"")
            .says("aria-invalid");
        assert!(
            !answer.text().contains(password),
            "a password is never shown again"
        );
    }
    let fields = [
        ("name", "Quintilla"),
        ("password", PASSWORD),
        ("repeat", "another"),
    ];
    client
        .submit("/accounts/register", &fields)
        .await
        .is(422)
        .says("differ");
    assert_eq!(site.accounts.counters().registered, 0);
    assert_eq!(
        site.accounts.counters().hashes,
        0,
        "refused before any work"
    );
}

#[tokio::test]
async fn long_passwords_of_any_characters_are_taken_as_they_are() {
    let site = Site::on_sqlite().await;
    let mut client = Client::new(&site.router);
    let words = "Größe, 海 and & % + ' \" < \\ ";
    let long: String = words.chars().cycle().take(128).collect();
    client
        .register("long", &long)
        .await
        .leads_to("/accounts/login?after=registered");
    for wrong in [
        &long[..long.len() - 1],
        &long.to_lowercase(),
        &(long.clone() + "x"),
        &(long.clone() + " "),
    ] {
        client.log_in("long", wrong).await.is(403);
    }
    site.time.pass(std::time::Duration::from_secs(60));
    client
        .log_in("long", &long)
        .await
        .leads_to("/accounts/member");
    let longer = long + "x";
    client.log_out().await;
    client
        .register("longer", &longer)
        .await
        .is(422)
        .says("too long");
}

#[tokio::test]
async fn names_are_one_whatever_their_case_and_form() {
    let site = Site::on_sqlite().await;
    let mut client = Client::new(&site.router);
    client.register("Jürgen", PASSWORD).await.is(303);
    for same in ["jürgen", "JU\u{308}RGEN", " Jürgen ", "\u{ff2a}ürgen"] {
        client
            .register(same, PASSWORD)
            .await
            .is(409)
            .says("is taken");
        let mut other = Client::new(&site.router);
        other
            .log_in(same, PASSWORD)
            .await
            .leads_to("/accounts/member");
        other
            .get("/accounts/member")
            .await
            .says("<strong id=\"user\">Jürgen</strong>");
    }
    for bad in ["", "a b", "<script>", &"x".repeat(65)] {
        client
            .register(bad, PASSWORD)
            .await
            .is(422)
            .says("name-warning");
    }
}

#[tokio::test]
async fn what_was_typed_is_shown_as_text_and_nothing_else() {
    let site = Site::on_sqlite().await;
    let mut client = Client::new(&site.router);
    let name = "\"><script>alert(1)</script>";
    for answer in [
        client.register(name, PASSWORD).await,
        client.log_in(name, PASSWORD).await,
    ] {
        assert!(!answer.text().contains("<script"), "{}", answer.text());
        answer.says("&#60;script");
    }
}

#[tokio::test]
async fn statements_take_names_as_values() {
    let site = Site::on_sqlite().await;
    let mut client = Client::new(&site.router);
    client.enter("ada").await;
    for name in ["ada'--", "' OR 1=1 --", "ada\"; DROP TABLE users; --"] {
        Client::new(&site.router)
            .log_in(name, PASSWORD)
            .await
            .is(403);
    }
    assert!(client.is_in().await);
}

#[tokio::test]
async fn a_form_without_the_token_of_its_browser_does_nothing() {
    let site = Site::on_sqlite().await;
    let mut ada = Client::new(&site.router);
    ada.enter("ada").await;
    let mut eve = Client::new(&site.router);
    let foreign = eve.get("/accounts/login").await.token();
    let fields = |token| [("token", token), ("name", "ada"), ("password", PASSWORD)];
    for token in ["", "nonsense", &foreign] {
        let mut browser = Client::new(&site.router);
        browser.get("/accounts/login").await.is(200);
        let with = fields(token);
        browser
            .post("/accounts/login", &with)
            .await
            .is(403)
            .says("expired");
        browser
            .post("/accounts/login", &with[1..])
            .await
            .is(403)
            .says("expired");
        let all = [
            ("token", token),
            ("name", "new"),
            ("password", PASSWORD),
            ("repeat", PASSWORD),
        ];
        browser
            .post("/accounts/register", &all)
            .await
            .is(403)
            .says("expired");
        // Of a session, too.
        for path in ["password", "delete", "logout"] {
            let all = [
                ("token", token),
                ("current", PASSWORD),
                ("password", "another good one"),
                ("repeat", "another good one"),
            ];
            ada.post(&format!("/accounts/{path}"), &all)
                .await
                .is(403)
                .says("expired");
        }
    }
    let mut bare = Client::new(&site.router);
    bare.post("/accounts/login", &fields(&foreign))
        .await
        .is(403);
    assert!(ada.is_in().await);
    let counters = site.accounts.counters();
    assert_eq!(
        (counters.registered, counters.logins, counters.forged),
        (1, 1, 19)
    );
}

#[tokio::test]
async fn a_form_sent_by_another_site_does_nothing() {
    let site = Site::on_sqlite().await;
    let mut ada = Client::new(&site.router);
    ada.enter("ada").await;
    for from in ["cross-site", "same-site"] {
        ada.fields = vec![("sec-fetch-site", from.to_owned())];
        ada.log_out().await.is(403);
        assert!(ada.is_in().await);
    }
    ada.fields = vec![("sec-fetch-site", "same-origin".to_owned())];
    ada.log_out().await.leads_to("/accounts/?after=logout");
    assert!(!ada.is_in().await);
}

/// Without cookies it is not checked, and its response took the browser's cookie: any site could send it.
#[tokio::test]
async fn logging_out_without_a_session_ends_no_cookie() {
    let site = Site::on_sqlite().await;
    let mut ada = Client::new(&site.router);
    ada.enter("ada").await;
    let kept = std::mem::take(&mut ada.cookies);
    let answer = ada.post("/accounts/logout", &[]).await;
    answer.leads_to("/accounts/?after=logout");
    assert_eq!(answer.field("set-cookie"), "");
    ada.cookies = kept;
    assert!(ada.is_in().await);
}

#[tokio::test]
async fn forms_that_cannot_be_read_are_refused_with_the_reason() {
    let site = Site::on_sqlite().await;
    let mut client = Client::new(&site.router);
    let token = client.get("/accounts/login").await.token();
    let huge = "x".repeat(20_000);
    let fields = [("token", token.as_str()), ("name", &huge)];
    client.post("/accounts/login", &fields).await.is(413);
    let request = axum::http::Request::post("/accounts/login")
        .header("content-type", "application/json")
        .body(axum::body::Body::from("{}"))
        .unwrap();
    client.send(request).await.is(415);
    let request = axum::http::Request::put("/accounts/login")
        .body(axum::body::Body::empty())
        .unwrap();
    client.send(request).await.is(405).says("Not this way");
    client
        .get("/accounts/nothing")
        .await
        .is(404)
        .says("No such page");
    client.get("/accounts/logout").await.is(405);
}

#[tokio::test]
async fn what_may_be_a_copy_changes_nothing() {
    let site = Site::on_sqlite().await;
    let mut client = Client::new(&site.router);
    client.fields.push(("early-data", "1".to_owned()));
    client.get("/accounts/register").await.is(200);
    client.register("early", PASSWORD).await.is(425);
    assert_eq!(site.accounts.counters().registered, 0);
    client.fields.clear();
    client
        .register("early", PASSWORD)
        .await
        .leads_to("/accounts/login?after=registered");
    assert_eq!(site.accounts.counters().registered, 1);
}
