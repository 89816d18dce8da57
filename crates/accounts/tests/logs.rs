//! What is logged, by a program of its own: what listens to logs listens to all threads.

#[path = "accounts/client.rs"]
#[expect(dead_code, reason = "a part of it is used here")]
mod client;
#[path = "../../server/tests/shared/log.rs"]
mod log;
#[path = "accounts/site.rs"]
#[expect(dead_code, reason = "a part of it is used here")]
mod site;

use client::{Client, PASSWORD};
use log::Log;
use site::Site;

#[tokio::test]
async fn no_log_holds_a_password_a_token_or_a_mistyped_name() {
    let log = Log::listen(tracing::Level::TRACE);
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
