//! What is logged, by a program of its own: what listens to logs listens to all threads.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use tracing_subscriber::fmt::MakeWriter;

#[path = "accounts/client.rs"]
#[expect(dead_code, reason = "a part of it is used here")]
mod client;
#[path = "accounts/site.rs"]
#[expect(dead_code, reason = "a part of it is used here")]
mod site;

use client::{Client, PASSWORD};
use site::Site;

/// Everything that is logged, at every level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("a lock").extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn no_log_holds_a_password_a_token_or_a_mistyped_name() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(log.clone())
        .finish();
    tracing::subscriber::set_global_default(subscriber).expect("the only one");
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
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
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
