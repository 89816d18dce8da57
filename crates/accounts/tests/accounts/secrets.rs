//! What must stay secret: in answers, in the database, in files, in logs, over the network.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use loadline_accounts::Accounts;

use super::client::{Client, PASSWORD};
use super::site::{Site, Time, options};

#[tokio::test]
async fn who_guesses_names_sees_no_difference() {
    let site = Site::on_sqlite().await;
    Client::new(&site.router)
        .register("ada", PASSWORD)
        .await
        .is(303);
    let mut texts = Vec::new();
    for (name, password) in [
        ("quincy", "wrong wrong"),
        ("quentin", "wrong wrong"),
        ("quentin", PASSWORD),
    ] {
        let mut client = Client::new(&site.router);
        let answer = client.log_in(name, password).await;
        answer
            .is(403)
            .says("The user name or the password is wrong.");
        let text = answer.text().replace(&answer.token(), "").replace(name, "");
        texts.push((text, answer.fields.len()));
    }
    assert_eq!(texts[0], texts[1]);
    assert_eq!(texts[0], texts[2]);
    assert_eq!(site.accounts.counters().hashes, 4, "each costs a hash");
}

#[tokio::test]
async fn every_answer_has_its_security_fields() {
    let site = Site::on_sqlite().await;
    let mut plain = Client::new(&site.router);
    let mut secure = Client::new(&site.router).over_tls();
    secure.enter("ada").await;
    for path in [
        "/accounts/",
        "/accounts/login",
        "/accounts/member",
        "/accounts/picture",
        "/accounts/x",
        "/accounts",
        "/accounts/style.css",
    ] {
        for client in [&mut plain, &mut secure] {
            let answer = client.get(path).await;
            let kind = answer.field("content-type");
            let is_typed = kind.ends_with("; charset=utf-8") || kind == "image/png";
            assert!(is_typed || answer.body.is_empty(), "{path}: {kind}");
            assert_eq!(answer.field("access-control-allow-origin"), "");
            let policy = answer.field("content-security-policy");
            assert!(policy.starts_with("default-src 'none';"), "{path}");
            assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"));
            for (name, value) in [
                ("x-content-type-options", "nosniff"),
                ("x-frame-options", "DENY"),
                ("referrer-policy", "same-origin"),
                ("cross-origin-opener-policy", "same-origin"),
                ("cross-origin-resource-policy", "same-origin"),
            ] {
                assert_eq!(answer.field(name), value, "{path}");
            }
            let cache = if path.ends_with("css") {
                "max-age=3600"
            } else {
                "no-store, no-transform"
            };
            assert_eq!(answer.field("cache-control"), cache, "{path}");
        }
        let strict = "strict-transport-security";
        assert_eq!(plain.get(path).await.field(strict), "");
        assert_eq!(secure.get(path).await.field(strict), "max-age=31536000");
    }
    assert!(
        secure
            .cookies
            .keys()
            .all(|name| name.starts_with("__Host-"))
    );
}

#[tokio::test]
async fn transport_security_holds_for_the_time_that_was_chosen() {
    let site = Site::on_sqlite_with(|options| options.hsts_max_age_s = 0).await;
    let mut client = Client::new(&site.router).over_tls();
    let answer = client.get("/accounts/").await;
    assert_eq!(answer.field("strict-transport-security"), "max-age=0");
}

#[tokio::test]
async fn a_cookie_of_the_open_network_is_none_over_tls() {
    let site = Site::on_sqlite().await;
    let mut client = Client::new(&site.router);
    client.enter("ada").await;
    let mut secure = Client::new(&site.router).over_tls();
    secure.cookies = client.cookies.clone();
    assert!(!secure.is_in().await);
}

#[tokio::test]
async fn the_file_is_its_owners_alone() {
    let site = Site::on_sqlite().await;
    Client::new(&site.router).enter("ada").await;
    let folder = site.folder.as_ref().expect("a directory");
    let mut count = 0;
    for entry in fs::read_dir(folder.path()).unwrap() {
        let about = entry.unwrap().metadata().unwrap();
        assert_eq!(about.mode() & 0o777, 0o600);
        count += 1;
    }
    assert_eq!(count, 3, "the database, its log and the log's index");
    site.accounts.close().await;
    let file = folder.path().join("accounts.db");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let url = format!("sqlite:{}", file.display());
    let again = Accounts::open(options(&url, &Time::default()))
        .await
        .unwrap();
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    again.close().await;
}

#[tokio::test]
async fn the_database_holds_no_password_and_no_token() {
    let site = Site::on_sqlite().await;
    let mut client = Client::new(&site.router);
    client.enter("ada").await;
    let tokens: Vec<String> = client.cookies.values().cloned().collect();
    assert_eq!(tokens.len(), 2, "of the session and of the browser");
    site.accounts.close().await;
    let folder = site.folder.as_ref().expect("a directory");
    let bytes = fs::read(folder.path().join("accounts.db")).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("$argon2id$v=19$m=8,t=1,p=1$"));
    assert!(!text.contains(PASSWORD));
    assert!(tokens.iter().all(|token| !text.contains(token)));
}

#[tokio::test]
async fn files_that_cannot_be_a_database_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display();
    fs::write(
        folder.path().join("text"),
        "not a database, but long enough to be looked at",
    )
    .unwrap();
    for (url, expected) in [
        (format!("sqlite:{path}/none/accounts.db"), "No such file"),
        (format!("sqlite:{path}"), "directory"),
        (format!("sqlite:{path}/text"), "not a database"),
    ] {
        let error = Accounts::open(options(&url, &Time::default())).await.err();
        let said = error.expect("refused").to_string();
        assert!(
            said.contains(expected) && said.contains(&url),
            "{url}: {said}"
        );
    }
}
