//! Load over HTTP/2 against `loadline serve`, in the clear and by TLS: the server counts what the client
//! counts, and who does not speak it is named.

use serde_json::Value;

use crate::program::{Server, exchange};
use crate::tls::{Https, params, refused};
use crate::util::{counted, load, measured, number, server, text};

const KINDS: [(&str, u64, u64); 7] = [
    ("-c 4 -n 400 --streams 1", 400, 4),
    ("-c 4 -n 2000 --streams 8", 2000, 4),
    ("-c 2 -n 3000 --streams 100 --threads 2", 3000, 2),
    ("-c 4 -n 60 --new-connection", 60, 60),
    ("-c 4 -n 60 --streams 2 --processes 2", 60, 4),
    ("-c 1 -n 30 --requests-per-connection 10", 30, 3),
    ("-c 2 --rate 400 -d 300ms --arrivals constant", 120, 2),
];

#[test]
fn the_server_counts_what_the_client_counts_in_the_clear() {
    let (server, _site) = server(&["--loops", "2"]);
    let url = format!("http://{}/", server.address());
    for (options, requests, connections) in KINDS {
        let before = counted(&server);
        let record = measured(&format!("{url} --http2 {options}"));
        let after = counted(&server);
        let all = &record["everything"];
        let done = number(&all["completed"]) + number(&all["unfinished"]);
        assert_eq!(done, requests, "{options}: {all}");
        assert_eq!(number(&all["connections"]), connections, "{options}: {all}");
        assert_eq!(
            all["errors"].as_object().map_or(0, |it| it.len()),
            0,
            "{options}: {all}"
        );
        // Asking for the count was a request and a connection of its own.
        assert_eq!(
            after.0 - before.0 - 1,
            number(&all["completed"]),
            "{options}"
        );
        assert_eq!(after.1 - before.1 - 1, connections, "{options}");
        assert_eq!(record["run"]["http"], "2");
        assert!(record["run"]["streams"].as_u64() >= Some(1));
    }
}

#[test]
fn the_server_counts_what_the_client_counts_by_tls() {
    let https = Https::start(params("127.0.0.1"), &["--loops", "2"]);
    for (options, requests, connections) in KINDS {
        let record = https.measured(&format!("--http2 {options}"));
        let all = &record["everything"];
        let done = number(&all["completed"]) + number(&all["unfinished"]);
        assert_eq!(done, requests, "{options}: {all}");
        assert_eq!(number(&all["connections"]), connections, "{options}: {all}");
        assert_eq!(
            number(&all["handshakes_full"]),
            connections,
            "{options}: {all}"
        );
        assert_eq!(
            all["errors"].as_object().map_or(0, |it| it.len()),
            0,
            "{options}: {all}"
        );
    }
}

/// Where a server takes fewer streams, the clients beyond them do nothing, and the result says so.
#[test]
fn a_server_that_takes_few_streams_is_asked_for_no_more() {
    let (server, _site) = server(&["--streams-max", "3"]);
    let url = format!("http://{}/", server.address());
    for more in ["-n 500", "--rate 500 -d 200ms"] {
        let record = measured(&format!("{url} --http2 -c 2 --streams 50 {more}"));
        let all = &record["everything"];
        assert_eq!(
            all["errors"].as_object().map_or(0, |it| it.len()),
            0,
            "{more}: {all}"
        );
        let limit = record["limits"][0].as_str().unwrap();
        assert!(
            limit.contains("at most 6 requests are in flight"),
            "{limit}"
        );
    }
}

#[test]
fn the_result_says_what_is_spoken() {
    let (server, _site) = server(&[]);
    let url = format!("http://{}/", server.address());
    for (options, words) in [
        ("-c 3 -n 30", "3 connections of HTTP/2, closed loop"),
        (
            "-c 3 -n 30 --streams 4",
            "3 connections of HTTP/2 with up to 4 streams each, closed loop",
        ),
    ] {
        let output = load(&format!("{url} --http2 {options} --allow-client-limited"));
        let said = text(&output.stdout);
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn a_server_without_http2_is_named() {
    let (server, _site) = server(&["--http2", "off"]);
    let address = server.address();
    let https = Https::start(params("127.0.0.1"), &["--http2", "off"]);
    let clear = "it does not speak HTTP/2 in the clear";
    for (line, part) in [
        (format!("http://{address}/"), clear),
        (format!("http://{address}/ --new-connection"), clear),
        (
            https.trusted(),
            "it does not speak the version of HTTP that is asked for",
        ),
    ] {
        refused(1, &format!("{line} --http2 -c 2 -n 10"), &[part]);
    }
}

/// Six clients of HTTP/1.1 and two of HTTP/2.
const MIXED: &str = "--http2 --http2-share 25% -c 8 --streams 4";
/// Loads of theirs, and how many requests each kind has, if that does not depend on the time they take.
const MIXED_LOADS: [(&str, Option<(u64, u64)>); 4] = [
    ("-n 2000", Some((1500, 500))),
    ("-n 2000 --processes 2", Some((1500, 500))),
    ("--rate 400 -d 500ms --arrivals constant", Some((150, 50))),
    ("-d 300ms", None),
];

/// Both kinds of clients have figures of their own.
fn assert_mixed(record: &Value, requests: Option<(u64, u64)>, more: &str) {
    let groups = record["groups"].as_array().unwrap();
    let tally = |at: usize| &groups[at]["total"]["tally"];
    assert_eq!(
        (&groups[0]["name"], &groups[1]["name"]),
        (&"clients".into(), &"http2".into())
    );
    for (at, connections) in [(0, 6), (1, 2)] {
        let all = tally(at);
        assert_eq!(number(&all["connections"]), connections, "{more}: {all}");
        assert_eq!(
            all["errors"].as_object().map_or(0, |it| it.len()),
            0,
            "{more}: {all}"
        );
        assert!(number(&all["good"]) > 0, "{more}: {all}");
    }
    let done = |at| number(&tally(at)["completed"]) + number(&tally(at)["unfinished"]);
    if let Some(expected) = requests {
        assert_eq!((done(0), done(1)), expected, "{more}");
    }
}

/// The server has counted the sum of both kinds.
#[test]
fn a_mixed_load_is_reported_by_protocol() {
    let (server, _site) = server(&["--loops", "2"]);
    let url = format!("http://{}/", server.address());
    for (more, requests) in MIXED_LOADS {
        let before = counted(&server);
        let record = measured(&format!("{url} {MIXED} {more}"));
        let after = counted(&server);
        assert_mixed(&record, requests, more);
        let completed = number(&record["everything"]["completed"]);
        assert_eq!(after.0 - before.0 - 1, completed, "{more}");
        assert_eq!(after.1 - before.1 - 1, 8, "{more}");
    }
}

/// Each kind asks for its own protocol (ALPN), at one address.
#[test]
fn a_mixed_load_over_tls_is_reported_by_protocol() {
    let https = Https::start(params("127.0.0.1"), &["--loops", "2"]);
    for (more, requests) in MIXED_LOADS {
        let before = http2_connections(&https.server);
        let record = https.measured(&format!("{MIXED} {more}"));
        assert_mixed(&record, requests, more);
        assert_eq!(http2_connections(&https.server) - before, 2, "{more}");
        let handshakes = number(&record["everything"]["handshakes_full"]);
        assert_eq!(handshakes, 8, "{more}");
    }
}

/// Connections that have spoken HTTP/2, as the server has counted them.
fn http2_connections(server: &Server) -> u64 {
    let (_, content) = exchange(server.connect(), "/-/status");
    let status: Value = serde_json::from_str(&content).unwrap();
    number(&status["total"]["http2"]["connections"])
}
