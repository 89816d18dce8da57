//! Signals and exit codes of the end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::util::{GRACE, Server, architectures, site};

#[test]
fn a_drain_without_work_is_clean() {
    let site = site();
    for architecture in architectures() {
        for signal in ["TERM", "INT"] {
            let mut server = Server::start(site.path(), &["--architecture", architecture]);
            assert_eq!(server.get("/"), "<p>hello</p>");
            server.signal(signal);
            assert_eq!(server.wait().code(), Some(0), "{architecture} {signal}");
            server.line_with("none cut");
        }
    }
}

/// A request whose bytes were sent before the signal is answered, whether or not the server had
/// seen it.
#[test]
fn a_drain_finishes_what_was_sent_before_it() {
    let site = site();
    for architecture in architectures() {
        let more = ["--architecture", architecture, "--service-time", "500ms"];
        let mut server = Server::start(site.path(), &more);
        let mut stream = server.connect();
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            .unwrap();
        server.signal("TERM");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200 "),
            "{architecture}: {answer}"
        );
        assert!(answer.ends_with("<p>hello</p>"), "{architecture}: {answer}");
        assert_eq!(server.wait().code(), Some(0), "{architecture}");
    }
}

/// Larger than what sockets take in advance.
const LARGE_BYTES: usize = 64 << 20;

/// A server in the middle of a large answer: its head and some of its content have come.
fn in_the_middle(architecture: &str, grace: &str) -> (Server, TcpStream, tempfile::TempDir) {
    let site = site();
    let large = std::fs::File::create(site.path().join("large")).unwrap();
    large.set_len(LARGE_BYTES as u64).unwrap();
    let more = ["--architecture", architecture, "--grace", grace];
    let server = Server::start(site.path(), &more);
    let mut stream = server.connect();
    stream
        .write_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let mut start = [0; 1024];
    stream.read_exact(&mut start).unwrap();
    assert!(start.starts_with(b"HTTP/1.1 200 "), "{architecture}");
    (server, stream, site)
}

#[test]
fn a_drain_finishes_a_large_answer() {
    for architecture in architectures() {
        let (mut server, mut stream, _site) = in_the_middle(architecture, "20s");
        server.signal("TERM");
        server.line_with("draining");
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        assert!(
            rest.len() + 1024 > LARGE_BYTES,
            "{architecture}: {}",
            rest.len()
        );
        assert_eq!(server.wait().code(), Some(0), "{architecture}");
    }
}

#[test]
fn what_the_grace_does_not_cover_is_cut_and_said() {
    for architecture in architectures() {
        let (mut server, _stream, _site) = in_the_middle(architecture, "100ms");
        let began = Instant::now();
        server.signal("TERM");
        assert_eq!(server.wait().code(), Some(4), "{architecture}");
        let took = began.elapsed();
        assert!(
            took >= Duration::from_millis(100),
            "{architecture}: {took:?}"
        );
        assert!(took < Duration::from_secs(3), "{architecture}: {took:?}");
        server.line_with("1 connection was cut");
    }
}

#[test]
fn a_second_signal_ends_at_once() {
    for architecture in architectures() {
        let (mut server, _stream, _site) = in_the_middle(architecture, "60s");
        server.signal("TERM");
        server.line_with("draining");
        let began = Instant::now();
        server.signal("INT");
        server.line_with("a second signal");
        assert_eq!(server.wait().code(), Some(4), "{architecture}");
        let took = began.elapsed();
        assert!(took < Duration::from_secs(3), "{architecture}: {took:?}");
    }
}

#[test]
fn idle_connections_do_not_hold_up_a_drain() {
    let site = site();
    for architecture in ["thread-per-connection", "thread-pool", "reactor"] {
        let mut server = Server::start(site.path(), &["--architecture", architecture]);
        let mut streams: Vec<_> = (0..10).map(|_| server.connect()).collect();
        for stream in &mut streams {
            stream
                .write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                .unwrap();
            let mut answer = [0; 4096];
            let length = stream.read(&mut answer).unwrap();
            assert!(
                answer[..length].ends_with(b"<p>hello</p>"),
                "{architecture}"
            );
        }
        let began = Instant::now();
        server.signal("TERM");
        assert_eq!(server.wait().code(), Some(0), "{architecture}");
        assert!(
            began.elapsed() < GRACE / 6,
            "{architecture}: {:?}",
            began.elapsed()
        );
        for stream in &mut streams {
            assert_eq!(
                stream.read(&mut [0; 16]).unwrap(),
                0,
                "{architecture}: closed, not reset"
            );
        }
    }
}
