//! The listener of the server's own pages.

use std::io::ErrorKind::ConnectionReset;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use crate::util::{GRACE, Server, architectures, exchange, run, site, until};

/// Where the server's own pages are, as the start-up lines say.
pub(crate) fn admin_address(server: &Server) -> SocketAddr {
    let line = server.line_with("status page at ");
    let (_, url) = line.split_once("http://").expect(&line);
    let (address, path) = url.split_once('/').expect(&line);
    assert_eq!(path, "-/status", "{line}");
    address.parse().expect(&line)
}

pub(crate) fn ask(address: SocketAddr, target: &str) -> (u16, String) {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(GRACE)).unwrap();
    let (head, content) = exchange(stream, target);
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, content)
}

#[test]
fn pages_have_their_listener_and_nothing_else_has_it() {
    let site = site();
    for architecture in architectures() {
        let more = format!("--architecture {architecture} --admin-listen 127.0.0.1:0");
        let more: Vec<&str> = more.split(' ').collect();
        let server = Server::start(site.path(), &more);
        let admin = admin_address(&server);
        assert_eq!(ask(admin, "/-/health"), (200, "alive\n".to_owned()));
        assert_eq!(ask(admin, "/-/ready"), (200, "ready\n".to_owned()));
        let (status, content) = ask(admin, "/-/status");
        let page: serde_json::Value = serde_json::from_str(&content).expect(&content);
        assert_eq!(status, 200);
        assert_eq!(page["server"]["architecture"], architecture);
        assert_eq!(
            page["total"]["accepted"], 0,
            "{architecture}: none of its own"
        );
        assert_eq!(ask(admin, "/").0, 404, "{architecture}");
        assert_eq!(ask(admin, "/index.html").0, 404, "{architecture}");
        for path in ["/-/health", "/-/ready", "/-/status"] {
            assert_eq!(ask(server.address(), path).0, 404, "{architecture}: {path}");
        }
    }
}

/// Workers and threads are held, and nothing may wait: the site refuses, its own pages respond.
#[test]
fn pages_respond_while_the_site_refuses() {
    const PAGES: [&str; 6] = [
        "health",
        "ready",
        "status",
        "live",
        "live.js",
        "live/events",
    ];
    // So many that each waits for a CPU for longer than the goal.
    let clients = 4 * thread::available_parallelism().map_or(2, usize::from);
    let site = site();
    for (architecture, bounds) in [
        ("reactor", "--workers 1"),
        ("reactor", "--workers 0 --loops 1"),
        ("proactor", "--workers 1"),
        ("proactor", "--workers 0 --loops 1"),
        ("thread-pool", "--threads 2"),
        ("thread-per-connection", ""),
    ] {
        if !architectures().contains(&architecture) {
            continue;
        }
        // Computing, so that requests in threads of their own disturb each other.
        let more = format!(
            "--architecture {architecture} {bounds} --service-time 20ms --service-kind spin \
             --latency-goal 1ms --status-path /-/status"
        );
        let more: Vec<&str> = more.split_ascii_whitespace().collect();
        let server = Server::start(site.path(), &more);
        let address = server.address();
        let refused = || {
            let (status, content) = ask(address, "/-/status");
            assert_eq!(status, 200, "{architecture} {bounds}: {content}");
            let page: serde_json::Value = serde_json::from_str(&content).expect(&content);
            page["total"]["refused_late"].as_u64().expect("a count")
        };
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let _over = Over(&over);
            for _ in 0..clients {
                scope.spawn(|| {
                    while !over.load(Relaxed) {
                        let (status, _) = ask(address, "/");
                        assert!(matches!(status, 200 | 503), "{architecture}: {status}");
                    }
                });
            }
            let mut before = until("a refusal", || Some(refused()).filter(|count| *count > 0));
            for _ in 0..3 {
                for page in PAGES {
                    let (status, content) = ask(address, &format!("/-/{page}"));
                    assert_eq!(status, 200, "{architecture} {bounds}, {page}: {content}");
                }
                before = until("one more", || {
                    Some(refused()).filter(|count| *count > before)
                });
            }
        });
    }
}

/// Ends the others when the test ends, also if it fails.
struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// The only connection is taken and its request runs for hours: the pages respond all the same, also
/// while the server drains.
#[test]
fn pages_are_outside_of_every_limit() {
    let site = site();
    for architecture in architectures() {
        let bounds = match architecture {
            "sequential" => "",
            "thread-pool" => "--threads 1 --queue-max 1",
            "thread-per-connection" => "--connections-max 1",
            _ => "--connections-max 1 --workers 0",
        };
        let more = format!(
            "--architecture {architecture} {bounds} --service-time 3h --grace 1h \
             --admin-listen 127.0.0.1:0"
        );
        let more: Vec<&str> = more.split_ascii_whitespace().collect();
        let mut server = Server::start(site.path(), &more);
        let admin = admin_address(&server);
        let mut taken = server.connect();
        taken
            .write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            .unwrap();
        until("its only thread is taken", || {
            let (_, content) = ask(admin, "/-/status");
            let page: serde_json::Value = serde_json::from_str(&content).expect(&content);
            page["total"]["bytes_in"]
                .as_u64()
                .filter(|bytes| *bytes > 0)
        });
        // A connection that there is no room for.
        let _second = server.connect();
        for page in ["health", "ready", "status", "live", "live/events"] {
            let (status, _) = ask(admin, &format!("/-/{page}"));
            assert_eq!(status, 200, "{architecture}: {page}");
        }
        server.signal("TERM");
        server.line_with("draining");
        assert_eq!(ask(admin, "/-/ready").0, 503, "{architecture}");
        assert_eq!(ask(admin, "/-/health").0, 200, "{architecture}");
        server.signal("KILL");
        server.wait();
    }
}

#[test]
fn pages_end_with_the_server() {
    let site = site();
    let more = ["--admin-listen", "127.0.0.1:0"];
    let mut server = Server::start(site.path(), &more);
    let mut idle = TcpStream::connect(admin_address(&server)).unwrap();
    idle.set_read_timeout(Some(GRACE)).unwrap();
    // Without a request, a connection is not accepted.
    idle.write_all(b"GET /-/ready HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    assert!(idle.read(&mut [0; 4096]).unwrap() > 0);
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    let end = idle.read_to_end(&mut Vec::new());
    let is_reset = |error: &io::Error| error.kind() == ConnectionReset;
    assert!(end.as_ref().err().is_none_or(is_reset), "{end:?}");
}

#[test]
fn several_addresses_also_unix() {
    let (site, folder) = (site(), tempfile::tempdir().unwrap());
    let socket = folder.path().join("admin");
    let unix = format!("unix:{}", socket.display());
    let server = Server::start(
        site.path(),
        &[
            "--admin-listen",
            "127.0.0.1:0",
            "--admin-listen",
            &unix,
            "--status-path",
            "/inner/status",
        ],
    );
    server.line_with("status page at unix:");
    let stream = UnixStream::connect(&socket).unwrap();
    let (head, content) = exchange(stream, "/inner/ready");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(content, "ready\n");
}

#[test]
fn an_address_that_is_taken_is_named_with_its_option() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = run(&["serve", "/", "--admin-listen", &address]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{message}");
    let expected = format!("--admin-listen {address}: already in use");
    assert!(message.contains(&expected), "{message}");
}
