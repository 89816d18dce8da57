//! The connection log as people get it: both forms, SIGHUP, what is refused.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;

use crate::util::{Server, architectures, exchange, run, site, unix, until};

fn lines(log: &Path, count: usize) -> Vec<String> {
    until("the lines", || {
        let text = fs::read_to_string(log).unwrap();
        (text.lines().count() >= count && text.ends_with('\n'))
            .then(|| text.lines().map(str::to_owned).collect())
    })
}

#[test]
fn a_connection_has_two_lines_under_every_architecture() {
    let (site, logs) = (site(), tempfile::tempdir().unwrap());
    for architecture in architectures() {
        let log = logs.path().join(format!("{architecture}.log"));
        let path = log.to_str().unwrap();
        let more = ["--architecture", architecture, "--connection-log", path];
        let mut server = Server::start(site.path(), &more);
        let stream = server.connect();
        let peer = stream.local_addr().unwrap();
        let (head, content) = exchange(stream, "/");
        let bytes = head.len() + 4 + content.len();
        let lines = lines(&log, 2);
        assert!(
            lines[0].ends_with(&format!("Z accepted 1 {peer}")),
            "{lines:?}"
        );
        let request = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".len();
        let closed = format!("Z closed 1 {peer} finished requests=1 in={request} out={bytes} us=");
        assert!(lines[1].contains(&closed), "{lines:?}");
        server.signal("TERM");
        assert_eq!(server.wait().code(), Some(0), "{architecture}");
        assert_eq!(fs::read_to_string(&log).unwrap().lines().count(), 2);
    }
}

/// The last lines are those of a drain: they are written before the end.
#[test]
fn json_and_the_ends_of_a_drain() {
    let (site, logs) = (site(), tempfile::tempdir().unwrap());
    let (log, socket) = (logs.path().join("log"), logs.path().join("socket"));
    let address = format!("unix:{}", socket.display());
    let arguments = [
        "--listen",
        &address,
        "--listen",
        "127.0.0.1:0",
        "--log-format",
        "json",
    ];
    let arguments = [&arguments[..], &["--connection-log", log.to_str().unwrap()]].concat();
    let mut server = Server::start_with(site.path(), &arguments, std::process::Stdio::null());
    let mut by_unix = unix(&socket);
    let mut by_tcp = server.connect();
    let port = by_tcp.local_addr().unwrap().port();
    lines(&log, 2);
    server.signal("TERM");
    assert_eq!(by_unix.read(&mut [0; 16]).unwrap(), 0);
    assert_eq!(by_tcp.read(&mut [0; 16]).unwrap(), 0);
    assert_eq!(server.wait().code(), Some(0));
    let lines = lines(&log, 4);
    let parsed: Vec<serde_json::Value> = lines
        .iter()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect();
    assert_eq!(parsed.len(), 4, "{lines:?}");
    for event in ["accepted", "closed"] {
        let of = |has_port: bool| {
            let is_it = |line: &&serde_json::Value| {
                line["event"] == event && line["network.peer.port"].is_u64() == has_port
            };
            parsed.iter().find(is_it).expect(event)
        };
        assert_eq!(of(true)["network.peer.port"], port);
        assert_eq!(of(true)["network.peer.address"], "127.0.0.1");
        assert!(of(false).get("network.peer.address").is_none());
        for line in [of(true), of(false)] {
            assert!(line["connection"].is_u64() && line["time"].is_string());
            if event == "closed" {
                assert_eq!(line["reason"], "drained");
                assert!(line["duration_us"].is_u64());
            }
        }
    }
}

#[test]
fn both_logs_are_opened_again_and_counted() {
    let (site, logs) = (site(), tempfile::tempdir().unwrap());
    let path = |name: &str| logs.path().join(name);
    let (access, connections) = (path("access"), path("connections"));
    let more = [
        "--access-log",
        access.to_str().unwrap(),
        "--connection-log",
        connections.to_str().unwrap(),
        "--status-path",
        "/-/status",
    ];
    let mut server = Server::start(site.path(), &more);
    server.get("/");
    lines(&connections, 2);
    fs::rename(&connections, path("moved")).unwrap();
    server.signal("HUP");
    let said = server.line_with("connection log");
    assert!(said.contains("was opened again"), "{said}");
    until("its counts", || {
        let status: serde_json::Value = serde_json::from_str(&server.get("/-/status")).unwrap();
        let log = &status["connection_log"];
        assert_eq!(log["lines_dropped"], 0);
        (log["lines_written"].as_u64()? > 2).then_some(())
    });
    assert!(!lines(&connections, 1).is_empty());
    let text = server.get("/-/status?format=prometheus");
    assert!(
        text.contains("loadline_connection_log_lines_total "),
        "{text}"
    );
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    let all = [path("moved"), connections].map(|log| fs::read_to_string(log).unwrap());
    let ends = all.concat().matches(" closed ").count();
    assert_eq!(ends * 2, all.concat().lines().count());
}

#[test]
fn a_log_that_cannot_be_written_is_refused_by_its_name() {
    for (arguments, part) in [
        (["--connection-log", "/nowhere/log"], "no such directory"),
        (["--connection-log", "/"], "a directory"),
        (["--log-format", "json"], "--access-log or --connection-log"),
    ] {
        let output = run(&[&["serve", "."], &arguments[..]].concat());
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(&arguments.join(" ")), "{message}");
        assert!(message.contains(part), "{message}");
    }
}

/// Nothing ends an idle connection but its client, room for others, or a drain.
#[test]
fn idle_connections_stay_where_that_is_wanted() {
    let (site, logs) = (site(), tempfile::tempdir().unwrap());
    for architecture in architectures() {
        let more = ["--architecture", architecture, "--idle-timeout", "off"];
        let room = ["--connections-max", "1"];
        let log = logs.path().join(format!("idle {architecture}"));
        let logging = ["--connection-log", log.to_str().unwrap()];
        let is_bounded = !matches!(architecture, "sequential" | "thread-pool");
        let room = if is_bounded { &room[..] } else { &[] };
        let mut server = Server::start(site.path(), &[&more[..], room, &logging].concat());
        let mut idle = server.connect();
        idle.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            .unwrap();
        let mut answer = [0; 4096];
        assert!(idle.read(&mut answer).unwrap() > 0);
        if is_bounded {
            // Somebody who is answered 503 has come before it was seen that the other is idle.
            until("room", || {
                let (head, _) = exchange(server.connect(), "/");
                head.starts_with("HTTP/1.1 200 ").then_some(())
            });
        } else {
            server.signal("TERM");
        }
        assert_eq!(idle.read(&mut answer).unwrap(), 0, "{architecture}");
        let reason = if is_bounded { " evicted " } else { " drained " };
        until("the reason", || {
            let text = fs::read_to_string(&log).unwrap();
            text.contains(reason).then_some(())
        });
        server.signal("TERM");
        assert_eq!(server.wait().code(), Some(0), "{architecture}");
    }
}
