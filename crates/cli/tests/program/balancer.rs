//! Behind a load balancer: probes, and the delay before a drain.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::util::{Server, architectures, exchange, run, site};

/// Status, head and content of an answer over a connection of its own.
fn ask(server: &Server, target: &str) -> (u16, String, String) {
    let (head, content) = exchange(server.connect(), target);
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head, content)
}

fn statuses(server: &Server) -> [u16; 3] {
    ["/-/health", "/-/ready", "/"].map(|target| ask(server, target).0)
}

/// One answer on a connection that stays open: its head.
fn keep_asking(stream: &mut TcpStream, target: &str) -> String {
    let request = format!("HEAD {target} HTTP/1.1\r\nHost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

#[test]
fn probes_are_there_without_options() {
    let site = site();
    for architecture in architectures() {
        let server = Server::start(site.path(), &["--architecture", architecture]);
        for (target, text) in [("/-/health", "alive\n"), ("/-/ready", "ready\n")] {
            let (status, head, content) = ask(&server, target);
            assert_eq!((status, content.as_str()), (200, text), "{architecture}");
            assert!(head.contains("\r\nCache-Control: no-store"), "{head}");
            assert!(head.contains("\r\nContent-Type: text/plain"), "{head}");
        }
        assert_eq!(ask(&server, "/-/").0, 404, "{architecture}");
        assert_eq!(ask(&server, "/health").0, 404, "{architecture}");
        let mut stream = server.connect();
        let head = keep_asking(&mut stream, "/-/ready");
        assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("Content-Length: 6"));
        let post = b"POST /-/ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        stream.write_all(post).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains("\r\nAllow: GET, HEAD\r\n"));
    }
}

#[test]
fn probes_are_beside_the_status_page() {
    let site = site();
    std::fs::create_dir(site.path().join("-")).unwrap();
    std::fs::write(site.path().join("-/ready"), "the site's own").unwrap();
    let server = Server::start(site.path(), &["--status-path", "/inner/status"]);
    assert_eq!(server.get("/inner/ready"), "ready\n");
    assert_eq!(server.get("/inner/health"), "alive\n");
    assert_eq!(server.get("/-/ready"), "the site's own");
    assert_eq!(ask(&server, "/-/health").0, 404);
    // Where they hide a file, that is said.
    let server = Server::start(site.path(), &["--status-path", "/-/status"]);
    assert_eq!(server.get("/-/ready"), "ready\n");
    let said = server.start_up.iter().any(|line| line.contains("/-/ready"));
    assert!(said, "{:?}", server.start_up);
    let output = run(&["serve", ".", "--status-path", "/-/ready"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("--status-path /-/ready"), "{message}");
}

/// The site is slow and its workers are taken: the probes are answered all the same.
#[test]
fn probes_wait_for_no_worker() {
    let site = site();
    for architecture in architectures() {
        let at_work = ["--architecture", architecture, "--service-time", "3h"];
        let more: &[&str] = match architecture {
            "sequential" => continue, // one thread does everything, one after the other
            "reactor" | "proactor" => &["--workers", "1", "--queue-max", "8"],
            _ => &[],
        };
        let mut server = Server::start(site.path(), &[&at_work, more].concat());
        let waiting: Vec<TcpStream> = (0..4)
            .map(|_| {
                let mut stream = server.connect();
                let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
                stream.write_all(request).unwrap();
                stream
            })
            .collect();
        for _ in 0..4 {
            assert_eq!(ask(&server, "/-/ready").0, 200, "{architecture}");
            assert_eq!(ask(&server, "/-/health").0, 200, "{architecture}");
        }
        drop(waiting);
        server.signal("KILL");
        server.wait();
    }
}

#[test]
fn readiness_turns_red_before_the_drain_and_all_is_served_meanwhile() {
    let site = site();
    for architecture in architectures() {
        let more = ["--architecture", architecture, "--drain-delay", "1h"];
        let mut server = Server::start(site.path(), &more);
        assert_eq!(statuses(&server), [200, 200, 200], "{architecture}");
        server.signal("TERM");
        server.line_with("not ready");
        assert_eq!(statuses(&server), [200, 503, 200], "{architecture}");
        let (_, head, content) = ask(&server, "/-/ready");
        assert_eq!(content, "not ready\n", "{architecture}");
        assert!(head.contains("\r\nCache-Control: no-store"), "{head}");
        // As ever: connections stay open.
        let mut stream = server.connect();
        for _ in 0..3 {
            let head = keep_asking(&mut stream, "/");
            assert!(head.starts_with("HTTP/1.1 200 "), "{architecture}: {head}");
            assert!(!head.contains("Connection:"), "{architecture}: {head}");
        }
        // The second signal takes the next step, and no more than that.
        server.signal("TERM");
        server.line_with("draining");
        assert_eq!(stream.read(&mut [0; 16]).unwrap(), 0, "{architecture}");
        assert_eq!(server.wait().code(), Some(0), "{architecture}");
    }
}

#[test]
fn idle_connections_of_a_proxy_outlive_those_of_clients() {
    let site = site();
    for architecture in architectures() {
        if architecture == "sequential" {
            continue; // one connection at a time
        }
        let times = ["--idle-timeout", "300ms", "--trust-proxy", "127.0.0.1"];
        let more = [&["--architecture", architecture][..], &times].concat();
        let server = Server::start(site.path(), &more);
        let mut proxy = server.connect_from([127, 0, 0, 1]);
        let mut client = server.connect_from([127, 0, 0, 2]);
        let head = keep_asking(&mut proxy, "/");
        assert!(head.contains("\r\nKeep-Alive: timeout="), "{head}");
        keep_asking(&mut client, "/");
        // The client's connection became idle later, and ends first.
        assert_eq!(client.read(&mut [0; 16]).unwrap(), 0, "{architecture}");
        let head = keep_asking(&mut proxy, "/");
        assert!(head.starts_with("HTTP/1.1 200 "), "{architecture}: {head}");
        // As long as its option says.
        let short = ["--proxy-idle-timeout", "300ms"];
        let server = Server::start(site.path(), &[&more[..], &short].concat());
        let mut proxy = server.connect_from([127, 0, 0, 1]);
        keep_asking(&mut proxy, "/");
        assert_eq!(proxy.read(&mut [0; 16]).unwrap(), 0, "{architecture}");
    }
}

#[test]
fn the_drain_begins_when_the_delay_is_over() {
    let site = site();
    for architecture in architectures() {
        let more = ["--architecture", architecture, "--drain-delay", "300ms"];
        let mut server = Server::start(site.path(), &more);
        let mut stream = server.connect();
        keep_asking(&mut stream, "/");
        let began = Instant::now();
        server.signal("TERM");
        assert_eq!(stream.read(&mut [0; 16]).unwrap(), 0, "{architecture}");
        assert!(began.elapsed() >= Duration::from_millis(300));
        assert_eq!(server.wait().code(), Some(0), "{architecture}");
    }
}

/// In the middle of a large answer, with requests for the probes behind it.
fn in_the_middle(site: &Path, architecture: &str) -> (Server, TcpStream) {
    let large = std::fs::File::create(site.join("large")).unwrap();
    large.set_len(64 << 20).unwrap(); // more than sockets take in advance
    let more = ["--architecture", architecture, "--drain-delay", "1h"];
    let server = Server::start(site, &[&more[..], &["--grace", "1h"]].concat());
    let mut stream = server.connect();
    let targets = ["/large", "/-/health", "/-/ready"];
    let requests = targets.map(|target| format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n"));
    stream.write_all(requests.concat().as_bytes()).unwrap();
    stream.read_exact(&mut [0; 1024]).unwrap();
    server.signal("TERM");
    server.line_with("not ready");
    server.signal("INT");
    server.line_with("draining");
    (server, stream)
}

#[test]
fn a_server_that_drains_is_alive_and_not_ready() {
    for architecture in architectures() {
        let site = site();
        let (mut server, mut stream) = in_the_middle(site.path(), architecture);
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        let tail = String::from_utf8_lossy(&rest[rest.len() - 1000..]).into_owned();
        assert!(tail.contains("alive\n"), "{architecture}: {tail}");
        assert!(tail.ends_with("not ready\n"), "{architecture}: {tail}");
        assert_eq!(server.wait().code(), Some(0), "{architecture}");
    }
}

#[test]
fn the_third_signal_cuts() {
    for architecture in architectures() {
        let site = site();
        let (mut server, _stream) = in_the_middle(site.path(), architecture);
        server.signal("TERM");
        server.line_with("ending now");
        assert_eq!(server.wait().code(), Some(4), "{architecture}");
    }
}
