//! A server that is built in code gets its pages and its access log in two lines, as `docs/apps.md`
//! shows.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use axum::{Router, routing::get};
use loadline_observe::{StartWithPages, access_log};
use loadline_server::Server;
use loadline_tower::Tower;

fn ask(address: SocketAddr, target: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn an_app_has_status_a_live_page_probes_and_an_access_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let app = Router::new().route("/", get(|| async { "hello" }));

    let (log, closing) = access_log(&path).unwrap();
    let server = Server::new(Tower::new(app).unwrap())
        .listen(([127, 0, 0, 1], 0))
        .access_log(log)
        .start_with_pages()
        .unwrap();

    let address = server.tcp_address().unwrap();
    assert!(ask(address, "/").ends_with("\r\n\r\nhello"));
    assert!(ask(address, "/-/ready").ends_with("\r\n\r\nready\n"));
    let status = ask(address, "/-/status");
    let (_, json) = status.split_once("\r\n\r\n").unwrap();
    let status: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(status["total"]["answers"]["2xx"], 2, "{status}");
    assert_eq!(status["server"]["architecture"], "reactor");
    assert!(ask(address, "/-/status?format=prometheus").contains("\nloadline_accepted_total{"));
    assert!(ask(address, "/-/live").contains("<title>Loadline, live</title>"));
    assert!(ask(address, "/-/live/events").contains("\r\n\r\nretry: "));

    server.drain();
    assert!(server.wait().unwrap().is_clean());
    drop(closing);
    let lines = std::fs::read_to_string(&path).unwrap();
    assert_eq!(lines.lines().count(), 6, "{lines}");
    assert!(lines.contains("\"GET /-/ready HTTP/1.1\" 200"), "{lines}");
}
