//! The access log: its forms, whole lines under load, rotation, a disk that is full.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use loadline_load::replay::time::LogTime;

use crate::util::{Server, architectures, connect, exchange, site, until};

/// Several clients send some requests each over connections of their own, kept alive.
fn load(address: SocketAddr, clients: usize, requests: usize) {
    std::thread::scope(|scope| {
        for client in 0..clients {
            scope.spawn(move || {
                let mut stream = connect(address);
                for request in 0..requests {
                    let close = if request + 1 == requests { "Connection: close\r\n" } else { "" };
                    let head = format!(
                        "GET /?{client}.{request} HTTP/1.1\r\nHost: x\r\n\
                         User-Agent: \"quoted\" \\ and \u{e4}\r\nReferer: http://r/{client}\r\n{close}\r\n"
                    );
                    stream.write_all(head.as_bytes()).unwrap();
                }
                let mut answers = String::new();
                stream.read_to_string(&mut answers).unwrap();
                assert_eq!(answers.matches("HTTP/1.1 200 ").count(), requests);
            });
        }
    });
}

fn lines_after_the_end(mut server: Server, log: &Path) -> Vec<String> {
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    let text = fs::read_to_string(log).unwrap();
    assert!(text.ends_with('\n'), "the last line is whole");
    text.lines().map(str::to_owned).collect()
}

/// Finds the request in a line.
type RequestOf = fn(&str) -> String;

/// The requests that a log holds, by what `request_of` finds in each of its lines.
fn all_there(lines: &[String], clients: usize, requests: usize, request_of: RequestOf) {
    let mut found: Vec<String> = lines.iter().map(|line| request_of(line)).collect();
    found.sort();
    let mut sent: Vec<String> = (0..clients)
        .flat_map(|client| (0..requests).map(move |request| format!("/?{client}.{request}")))
        .collect();
    sent.sort();
    assert_eq!(found, sent);
}

/// Splits a line of the common or combined format; panics at whatever does not belong there.
fn fields(line: &str) -> Vec<String> {
    let mut fields = Vec::new();
    let mut rest = line.chars().peekable();
    while let Some(first) = rest.next() {
        let end = match first {
            '"' => '"',
            '[' => ']',
            _ => ' ',
        };
        let mut field = if end == ' ' {
            first.to_string()
        } else {
            String::new()
        };
        loop {
            match rest.next() {
                Some('\\') if end == '"' => field.push(rest.next().expect("something is escaped")),
                Some(c) if c == end => break,
                Some(c) => field.push(c),
                None => {
                    assert_eq!(end, ' ', "an open field: {line}");
                    break;
                }
            }
        }
        if end != ' ' {
            assert!(matches!(rest.next(), None | Some(' ')), "{line}");
        }
        fields.push(field);
    }
    fields
}

fn request_of_common(line: &str) -> String {
    let fields = fields(line);
    assert_eq!(fields.len(), 7, "{line}");
    check_common(&fields);
    fields[4].split(' ').nth(1).unwrap().to_owned()
}

fn request_of_combined(line: &str) -> String {
    let fields = fields(line);
    assert_eq!(fields.len(), 9, "{line}");
    check_common(&fields);
    assert!(fields[7].starts_with("http://r/"), "{line}");
    assert!(fields[8].starts_with("\"quoted\" \\ and "), "{line}");
    fields[4].split(' ').nth(1).unwrap().to_owned()
}

fn check_common(fields: &[String]) {
    assert_eq!(fields[0], "127.0.0.1");
    assert_eq!((fields[1].as_str(), fields[2].as_str()), ("-", "-"));
    assert_eq!(fields[3].len(), "21/Nov/2026:07:39:37 +0000".len());
    assert!(fields[4].ends_with(" HTTP/1.1"));
    assert_eq!((fields[5].as_str(), fields[6].as_str()), ("200", "12"));
}

fn request_of_json(line: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(line).expect(line);
    assert_eq!(value["http.response.status_code"], 200, "{line}");
    assert_eq!(value["http.response.body.size"], 12, "{line}");
    assert_eq!(value["client.address"], "127.0.0.1", "{line}");
    assert_eq!(value["user_agent.original"], "\"quoted\" \\ and \u{e4}");
    let part = |name: &str| value[name].as_str().expect(line);
    format!("{}?{}", part("url.path"), part("url.query"))
}

/// The line says when the request came, and how long its answer took.
#[test]
fn json_has_times_in_microseconds() {
    let (site, logs) = (site(), tempfile::tempdir().unwrap());
    for architecture in architectures() {
        let log = logs.path().join(architecture);
        let more = [
            "--architecture",
            architecture,
            "--service-time",
            "20ms",
            "--access-log",
            log.to_str().unwrap(),
            "--log-format",
            "json",
        ];
        let server = Server::start(site.path(), &more);
        let before = SystemTime::now();
        load(server.address(), 1, 5);
        let lines = lines_after_the_end(server, &log);
        let after = SystemTime::now();
        assert_eq!(lines.len(), 5);
        let mut last = before - Duration::from_millis(2); // clocks are read once a turn
        for line in &lines {
            let value: serde_json::Value = serde_json::from_str(line).expect(line);
            let duration_us = value["duration_us"].as_u64().expect(line);
            assert!(duration_us >= 20_000, "{architecture}: {line}");
            let time = value["time"].as_str().expect(line);
            assert_eq!(time.len(), "2026-11-21T07:39:37.000042Z".len(), "{line}");
            let time = LogTime::parse(time.as_bytes()).expect(line);
            assert!(!time.is_whole_second);
            let time = UNIX_EPOCH + Duration::from_nanos(time.unix_ns.cast_unsigned());
            assert!(time >= last && time <= after, "{architecture}: {line}");
            last = time;
        }
        let thousandths = |line: &String| !line.contains("000Z\"");
        assert!(lines.iter().any(thousandths), "{lines:?}");
    }
}

#[test]
fn three_forms_under_load_and_every_line_whole() {
    let forms: [(&str, RequestOf); 3] = [
        ("common", request_of_common),
        ("combined", request_of_combined),
        ("json", request_of_json),
    ];
    let (site, logs) = (site(), tempfile::tempdir().unwrap());
    for architecture in architectures() {
        for (form, request_of) in forms {
            let log = logs.path().join(format!("{architecture}-{form}"));
            let path = log.to_str().unwrap();
            let more = [
                "--architecture",
                architecture,
                "--access-log",
                path,
                "--log-format",
                form,
            ];
            let server = Server::start(site.path(), &more);
            load(server.address(), 8, 200);
            all_there(&lines_after_the_end(server, &log), 8, 200, request_of);
        }
    }
}

#[test]
fn combined_is_what_one_gets_without_saying() {
    let (site, logs) = (site(), tempfile::tempdir().unwrap());
    let log = logs.path().join("log");
    let server = Server::start(site.path(), &["--access-log", log.to_str().unwrap()]);
    load(server.address(), 1, 1);
    all_there(
        &lines_after_the_end(server, &log),
        1,
        1,
        request_of_combined,
    );
}

#[test]
fn no_log_unless_asked_for() {
    let site = site();
    let server = Server::start(site.path(), &["--status-path", "/s"]);
    load(server.address(), 1, 3);
    let status: serde_json::Value = serde_json::from_str(&server.get("/s")).unwrap();
    assert!(status["access_log"].is_null(), "{status}");
}

#[test]
fn standard_output_is_the_logs_own() {
    let site = site();
    let file = tempfile::NamedTempFile::new().unwrap();
    let more = [
        "--listen",
        "127.0.0.1:0",
        "--access-log",
        "-",
        "--log-format",
        "common",
    ];
    let server = Server::start_with(site.path(), &more, file.reopen().unwrap());
    load(server.address(), 4, 50);
    all_there(
        &lines_after_the_end(server, file.path()),
        4,
        50,
        request_of_common,
    );
}

#[test]
fn sighup_opens_the_log_again_and_loses_nothing() {
    let (site, logs) = (site(), tempfile::tempdir().unwrap());
    let log = logs.path().join("log");
    let old = logs.path().join("log.1");
    let more = [
        "--access-log",
        log.to_str().unwrap(),
        "--log-format",
        "common",
    ];
    let mut server = Server::start(site.path(), &more);
    let address = server.address();
    std::thread::scope(|scope| {
        let loading = scope.spawn(move || load(address, 4, 1000));
        until("the first line", || {
            fs::metadata(&log)
                .is_ok_and(|log| log.len() > 0)
                .then_some(())
        });
        fs::rename(&log, &old).unwrap();
        server.signal("HUP");
        server.line_with("was opened again");
        loading.join().unwrap();
    });
    assert!(log.exists());
    exchange(server.connect(), "/?last");
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    let (old, new) = (
        fs::read_to_string(&old).unwrap(),
        fs::read_to_string(&log).unwrap(),
    );
    assert!(old.ends_with('\n') && new.ends_with('\n'));
    assert_eq!(new.matches("/?last ").count(), 1);
    let lines = old
        .lines()
        .chain(new.lines().filter(|line| !line.contains("/?last")));
    let lines: Vec<String> = lines.map(str::to_owned).collect();
    all_there(&lines, 4, 1000, request_of_common);
}

#[test]
fn a_log_that_cannot_be_opened_again_goes_on_where_it_was() {
    let (site, logs) = (site(), tempfile::tempdir().unwrap());
    let folder = logs.path().join("logs");
    fs::create_dir(&folder).unwrap();
    let log = folder.join("log");
    let mut server = Server::start(site.path(), &["--access-log", log.to_str().unwrap()]);
    let moved = logs.path().join("moved");
    fs::rename(&folder, &moved).unwrap();
    server.signal("HUP");
    server.line_with("cannot be opened again");
    load(server.address(), 1, 1);
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    assert_eq!(
        fs::read_to_string(moved.join("log"))
            .unwrap()
            .lines()
            .count(),
        1
    );
}

#[test]
fn a_full_disk_is_said_once_counted_and_costs_no_request() {
    let site = site();
    let more = ["--access-log", "/dev/full", "--status-path", "/s"];
    let mut server = Server::start(site.path(), &more);
    load(server.address(), 2, 100);
    let line = server.line_with("cannot be written");
    assert!(
        line.contains("/dev/full") && line.contains("No space left"),
        "{line}"
    );
    until("the count of dropped lines", || {
        let status: serde_json::Value = serde_json::from_str(&server.get("/s")).unwrap();
        let log = &status["access_log"];
        assert_eq!(log["lines_written"], 0);
        (log["lines_dropped"].as_u64()? >= 200 && log["write_errors"].as_u64()? >= 1).then_some(())
    });
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    let rest: Vec<String> = std::iter::from_fn(|| {
        let line = server.line();
        (!line.contains("none cut")).then_some(line)
    })
    .collect();
    assert!(
        !rest.iter().any(|line| line.contains("cannot be written")),
        "{rest:?}"
    );
}

#[test]
fn a_closed_pipe_costs_no_request() {
    let site = site();
    let mut reader = Command::new("true").stdin(Stdio::piped()).spawn().unwrap();
    let pipe = reader.stdin.take().unwrap();
    reader.wait().unwrap();
    let more = ["--listen", "127.0.0.1:0", "--access-log", "-"];
    let mut server = Server::start_with(site.path(), &more, pipe);
    load(server.address(), 2, 20);
    assert!(
        server
            .line_with("cannot be written")
            .contains("Broken pipe")
    );
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
}

/// A reader that never reads: the pipe fills up, the writer waits, and nobody else does.
#[test]
fn a_reader_that_hangs_holds_up_neither_requests_nor_the_end() {
    let site = site();
    let mut reader = Command::new("sleep")
        .arg("60")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let pipe = reader.stdin.take().unwrap();
    let more = ["--listen", "127.0.0.1:0", "--access-log", "-"];
    let mut server = Server::start_with(site.path(), &more, pipe);
    load(server.address(), 4, 1000); // 400 KB of lines into a pipe of 64 KB
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    let _ = reader.kill();
    let _ = reader.wait();
}

#[test]
fn diagnostics_by_level() {
    let site = site();
    let said = |level: &str| {
        let mut server = Server::start(site.path(), &["--log-level", level]);
        server.signal("TERM");
        assert_eq!(server.wait().code(), Some(0));
        server.rest()
    };
    assert!(
        said("info")
            .iter()
            .any(|line| line.contains("INFO draining"))
    );
    assert!(said("warn").is_empty());
}
