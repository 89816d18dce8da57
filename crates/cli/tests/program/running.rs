//! How it starts: the start-up lines, several addresses, Unix sockets.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::util::{PROGRAM, Server, architectures, connect, exchange, site, unix, until};

#[test]
fn the_start_up_line_says_what_was_found_and_chosen() {
    let site = site();
    let server = Server::start(site.path(), &[]);
    let line = &server.start_up[0];
    let chosen = match architectures().contains(&"proactor") {
        true => "chose proactor (auto)",
        false => "chose reactor (auto)",
    };
    for part in [
        "found ",
        "CPU",
        "by affinity",
        "quota",
        "descriptors",
        chosen,
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(!line.contains(" 0 workers"), "{line}");
    let where_ = server.start_up.last().unwrap();
    assert!(
        where_.contains(site.path().canonicalize().unwrap().to_str().unwrap()),
        "{where_}"
    );
    assert!(
        where_.ends_with(&format!("http://{}/", server.address())),
        "{where_}"
    );
    let pool = ["--architecture", "thread-pool", "--threads", "1000"];
    let server = Server::start(site.path(), &pool);
    assert!(
        server.start_up[0].contains("chose thread-pool: 1000 threads"),
        "{:?}",
        server.start_up
    );
    let papers = "--architecture reactor --loops 3 --workers 2 --worker-pools per-loop --accept handoff \
         --balance least-busy --queue work-stealing --queue-max 10";
    let papers: Vec<&str> = papers.split(' ').collect();
    let line = &Server::start(site.path(), &papers).start_up[0];
    assert!(
        line.contains("chose reactor") && line.contains("3 loops, 2 workers for each"),
        "{line}"
    );
    let queue = "work-stealing queue of 10 for each kind of job,";
    assert!(line.contains(queue), "{line}");
    assert!(line.contains("handoff by least-busy"), "{line}");
}

#[test]
fn affinity_is_found() {
    let site = site();
    let script = "exec taskset -c 0 \"$0\" serve \"$1\" --listen 127.0.0.1:0";
    let mut child = Command::new("sh")
        .args(["-c", script, PROGRAM])
        .arg(site.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    let line = std::io::BufRead::lines(stderr).next().unwrap().unwrap();
    let _ = child.kill();
    let _ = child.wait();
    assert!(line.contains("found 1 CPU (1 by affinity"), "{line}");
    assert!(line.contains("1 loop, 2 to 256 workers"), "{line}");
}

#[test]
fn a_budget_that_memory_does_not_suffice_for_is_said_at_the_start() {
    let site = site();
    // It may run where there is as much.
    let has_all = loadline_sys::memory_limit::memory_limit().unwrap().bytes() > 1025 << 30;
    for (budget, is_said) in [("1024G", !has_all), ("16M", false)] {
        let more = ["--architecture", "sequential", "--memory-max", budget];
        let server = Server::start(site.path(), &more);
        let mut lines = server.start_up.iter();
        let found = lines.any(|line| line.contains("of memory may be too little"));
        assert_eq!(found, is_said, "{budget}: {:?}", server.start_up);
    }
}

#[test]
fn serves_on_several_addresses_and_unix_sockets() {
    let site = site();
    let socket = site.path().join("socket");
    let listen = format!("unix:{}", socket.display());
    let more = [
        "--listen",
        "localhost:0",
        "--listen",
        &listen,
        "--unix-mode",
        "600",
    ];
    let mut server = Server::start(site.path(), &more);
    assert_eq!(server.start_up.len(), 4);
    assert_eq!(server.get("/"), "<p>hello</p>");
    let (head, content) = exchange(unix(&socket), "/");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(content, "<p>hello</p>");
    let found = std::fs::symlink_metadata(&socket).unwrap();
    assert!(found.file_type().is_socket());
    assert_eq!(found.permissions().mode() & 0o777, 0o600);
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    assert!(!socket.exists(), "its own socket file is gone");
}

/// The manual's second example, on a port that is kept free for it.
#[test]
fn all_addresses_of_ipv4_and_of_ipv6_share_a_port() {
    let kept = tokio::net::TcpSocket::new_v6().unwrap();
    kept.set_reuseaddr(true).unwrap(); // bound beside others, as long as nobody listens
    // Where IPv6 is switched off, all addresses can be had, and none of its own.
    if TcpListener::bind("[::1]:0").is_err() || kept.bind("[::]:0".parse().unwrap()).is_err() {
        let _ = writeln!(std::io::stderr(), "\nskipped: this machine has no IPv6");
        return;
    }
    let port = kept.local_addr().unwrap().port();
    let site = site();
    let listen = [format!("0.0.0.0:{port}"), format!("[::]:{port}")];
    for [first, second] in [[0, 1], [1, 0]] {
        let listen = ["--listen", &listen[first], "--listen", &listen[second]];
        let server = Server::start_with(site.path(), &listen, Stdio::null());
        for address in [format!("127.0.0.1:{port}"), format!("[::1]:{port}")] {
            let stream = connect(address.parse().unwrap());
            assert_eq!(exchange(stream, "/").1, "<p>hello</p>", "{address}");
        }
        drop(server);
    }
}

/// Connections are accepted in the order in which they were made: one that was not deferred would come first.
#[test]
fn a_silent_connection_is_not_accepted_until_it_says_something() {
    let site = site();
    for architecture in architectures() {
        let more = ["--architecture", architecture, "--status-path=/-/status"];
        let server = Server::start(site.path(), &more);
        let mut silent = server.connect();
        let accepted = || -> u64 {
            let (_, status) = exchange(server.connect(), "/-/status");
            let status: Value = serde_json::from_str(&status).unwrap();
            status["total"]["accepted"].as_u64().unwrap()
        };
        assert_eq!(accepted(), 1, "{architecture}: the one that asks");
        silent
            .write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut response = String::new();
        silent.read_to_string(&mut response).unwrap();
        assert!(response.ends_with("<p>hello</p>"), "{response}");
        assert_eq!(accepted(), 3, "{architecture}");
    }
}

#[test]
fn a_stale_unix_socket_is_replaced() {
    let site = site();
    let socket = site.path().join("socket");
    let listen = format!("unix:{}", socket.display());
    let mut first = Server::start_with(site.path(), &["--listen", &listen], Stdio::null());
    first.signal("KILL");
    first.wait();
    assert!(socket.exists());
    let _second = Server::start_with(site.path(), &["--listen", &listen], Stdio::null());
    assert_eq!(exchange(unix(&socket), "/").1, "<p>hello</p>");
}

#[test]
fn restarts_on_its_port_at_once() {
    let site = site();
    let mut first = Server::start(site.path(), &[]);
    let address = first.address();
    assert_eq!(first.get("/"), "<p>hello</p>");
    let idle = first.connect(); // closed by the server, which leaves the port in TIME_WAIT
    first.signal("TERM");
    assert_eq!(first.wait().code(), Some(0));
    drop(idle);
    let address = address.to_string();
    let second = Server::start_with(site.path(), &["--listen", &address], Stdio::null());
    assert_eq!(second.get("/"), "<p>hello</p>");
}

/// The release of the start was served on, and nothing once it was deleted.
#[test]
fn a_directory_that_is_a_link_can_be_pointed_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path();
    for release in ["r1", "r2"] {
        std::fs::create_dir(base.join(release)).unwrap();
        std::fs::write(base.join(release).join("index.html"), release).unwrap();
    }
    let current = base.join("current");
    symlink("r1", &current).unwrap();
    let mut relative = Command::new(PROGRAM);
    relative.current_dir(base).stdout(Stdio::null());
    relative.args(["serve", "current", "--listen", "127.0.0.1:0"]);
    let servers = [
        Server::start(&current, &[]),
        Server::start_command(relative, &[]),
    ];
    for server in &servers {
        assert_eq!(server.get("/"), "r1");
    }
    symlink("r2", base.join("next")).unwrap();
    std::fs::rename(base.join("next"), &current).unwrap();
    std::fs::remove_dir_all(base.join("r1")).unwrap();
    for server in &servers {
        until("the second release", || {
            let (_, content) = exchange(server.connect(), "/");
            (content == "r2").then_some(())
        });
    }
}

#[test]
fn content_options_reach_the_files() {
    let site = site();
    let root = site.path();
    std::fs::create_dir(root.join("list")).unwrap();
    std::fs::write(root.join("list/a.css"), "p{}").unwrap();
    std::fs::write(root.join(".hidden"), "dot").unwrap();
    std::fs::create_dir(root.join("errors")).unwrap();
    std::fs::write(root.join("errors/404.html"), "<p>gone fishing</p>").unwrap();
    let errors = root.join("errors");
    let plain = Server::start(root, &["--error-pages", errors.to_str().unwrap()]);
    let status = |server: &Server, target: &str| exchange(server.connect(), target);
    assert!(status(&plain, "/.hidden").0.starts_with("HTTP/1.1 40"));
    assert!(status(&plain, "/list/").0.starts_with("HTTP/1.1 40"));
    let (head, content) = status(&plain, "/nothing");
    assert!(head.starts_with("HTTP/1.1 404"), "{head}");
    assert_eq!(content, "<p>gone fishing</p>");
    std::fs::write(root.join("list/a.own"), "text").unwrap();
    let more = "--hidden --listing --spa /index.html --cache-control .css:max-age=77 \
         --media-type .own=text/x-own --media-type css=application/x-css";
    let open = Server::start(root, &more.split_ascii_whitespace().collect::<Vec<_>>());
    assert_eq!(open.get("/.hidden"), "dot");
    assert!(open.get("/list/").contains("a.css"));
    assert_eq!(open.get("/some/route"), "<p>hello</p>");
    let (head, _) = status(&open, "/list/a.css");
    assert!(head.contains("Cache-Control: max-age=77"), "{head}");
    assert!(
        head.contains("Content-Type: application/x-css\r\n"),
        "{head}"
    );
    let (head, _) = status(&open, "/list/a.own");
    assert!(
        head.contains("Content-Type: text/x-own; charset=utf-8\r\n"),
        "{head}"
    );
}
