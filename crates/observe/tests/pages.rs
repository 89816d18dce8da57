//! A server that is built in code gets its pages and its access log in two lines, as `docs/apps.md`
//! shows; its pages cost nothing while nobody looks at them.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::{Router, routing::get};
use loadline_observe::{Figure, Pages, STATUS_PATH, Section, StartWithPages, Status, access_log};
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

/// Numbers of the samples that come as events.
fn samples(address: SocketAddr) -> Vec<u64> {
    let events = ask(address, "/-/live/events");
    let numbers = events.lines().filter_map(|line| line.strip_prefix("id: "));
    numbers.map(|number| number.parse().unwrap()).collect()
}

/// Looked at, the server takes a sample every 0.9 s.
#[test]
fn nothing_is_sampled_while_nobody_looks() {
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reads);
    let section = Section::new("counted", move || {
        counted.fetch_add(1, Ordering::SeqCst);
        Some(vec![Figure::gauge("size", 1)])
    });
    let status = Status::new(vec![section.live_sizes(&[("size", "size")])]);
    let pages = Pages::new(Some(STATUS_PATH), &status);
    let app = Router::new().route("/", get(|| async { "hello" }));
    let server = Server::new(Tower::new(app).unwrap())
        .listen(([127, 0, 0, 1], 0))
        .wrap(|site| pages.in_front_of(site))
        .start()
        .unwrap();
    status.attach(&server);

    let address = server.tcp_address().unwrap();
    assert!(samples(address).is_empty(), "none before the second look");
    assert_eq!(reads.load(Ordering::SeqCst), 1);
    // Long enough for two of them.
    let began = Instant::now();
    let mut visitor = TcpStream::connect(address).unwrap();
    while began.elapsed() < Duration::from_secs(2) {
        let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        visitor.write_all(request).unwrap();
        let (mut response, mut part) = (Vec::new(), [0; 1024]);
        while !response.ends_with(b"hello") {
            let len = visitor.read(&mut part).unwrap();
            assert!(len > 0, "the connection stays");
            response.extend_from_slice(&part[..len]);
        }
    }
    assert_eq!(reads.load(Ordering::SeqCst), 1, "requests are no looks");
    assert_eq!(samples(address), [1], "of all that time");
    assert_eq!(reads.load(Ordering::SeqCst), 2);

    drop(visitor);
    server.drain();
    assert!(server.wait().unwrap().is_clean());
}
