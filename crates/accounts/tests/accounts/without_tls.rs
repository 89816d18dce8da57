//! Databases on another machine that refuse TLS.

use loadline_accounts::Accounts;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::site::{Time, options};

/// PostgreSQL's answer to a client that asks for TLS, which it does in as many bytes.
const POSTGRESQL_REFUSES: &[u8] = b"N";
const POSTGRESQL_ASKED_BYTES: usize = 8;
/// A packet by which MariaDB greets, without TLS among its capabilities.
const MARIADB_GREETING: &[u8] = b"\x26\0\0\0\x0a8.0.0\0\x01\0\0\0saltsalt\0\x01\x02\x08\x02\0\
                                  \0\0\0\0\0\0\0\0\0\0\0\0\0";

#[tokio::test]
async fn one_that_refuses_tls_is_refused_before_it_gets_a_user() {
    for (scheme, asked_bytes, answer, right) in [
        (
            "postgres",
            POSTGRESQL_ASKED_BYTES,
            POSTGRESQL_REFUSES,
            "?sslmode=disable",
        ),
        ("mysql", 0, MARIADB_GREETING, "?ssl-mode=DISABLED"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let server = tokio::spawn(async move {
            let (mut client, _) = listener.accept().await.expect("a client");
            let mut asked = vec![0; asked_bytes];
            client.read_exact(&mut asked).await.expect("a request");
            client.write_all(answer).await.expect("room");
            let mut more = Vec::new();
            client.read_to_end(&mut more).await.expect("an end");
            more
        });
        // No address of loopback, though the kernel connects to this machine.
        let url = format!("{scheme}://me:secret@0.0.0.0:{port}/app");
        let opened = Accounts::open(options(&url, &Time::default())).await;
        let said = opened.err().expect("no TLS").to_string();
        let (_, right_would_be) = said.split_once("; right would be ").expect(&said);
        assert!(right_would_be.contains(right), "{said}");
        assert!(
            said.contains("no TLS with it: ") && !said.contains("secret"),
            "{said}"
        );
        let more = server.await.expect("no panic");
        assert_eq!(more, b"", "{scheme}: nothing is sent without TLS");
    }
}
