//! Bad input: a clear line on standard error, nothing on standard output, exit code 2.

use crate::util::{load, text};

fn refuses(line: &str, parts: &[&str]) {
    let output = load(line);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{line}: {message}");
    assert_eq!(text(&output.stdout), "", "{line}");
    assert_eq!(message.lines().count(), 1, "{line}: {message}");
    assert!(message.starts_with("loadline: "), "{line}: {message}");
    for part in parts {
        assert!(message.contains(part), "{line}: no '{part}' in: {message}");
    }
}

const URL: &str = "http://127.0.0.1:9/";

#[test]
fn values_are_refused_with_what_would_be_right() {
    for (options, parts) in [
        ("--rate 0", &["--rate 0", "nothing would be sent"][..]),
        ("--rate 5x", &["--rate 5x", "unknown unit 'x'"]),
        ("--rate -5", &["--rate -5"]),
        ("-d 10", &["--duration", "10s"]),
        ("-d 10d", &["--duration", "not a duration"]),
        ("-d 0s", &["--duration", "too short"]),
        ("--timeout 1h", &["--timeout 1h", "10m"]),
        (
            "--connections many",
            &["--connections many", "not a number"],
        ),
        ("-c 0", &["--connections 0", "at least 1"]),
        ("--steps 100..200", &["--steps", "100..2500/100"]),
        ("--steps 0..200/10", &["--steps", "nothing would be sent"]),
        ("--ramp 5", &["--ramp 5", "FROM..TO"]),
        ("--burst 1s --rate 5", &["--burst 1s", "1s/4s"]),
        (
            "--arrivals uniform --rate 5",
            &["--arrivals uniform", "poisson", "constant"],
        ),
        (
            "--schedule own --rate 5",
            &["--schedule own", "shared", "per-connection"],
        ),
        (
            "--overflow wait --rate 5",
            &["--overflow wait", "queue", "drop"],
        ),
        ("--http 2", &["--http 2", "--http2"]),
        ("--http2 --http 1.0", &["--http2", "--http"]),
        ("--streams 5", &["--streams", "--http2"]),
        ("--http2 --streams 0", &["--streams 0", "65536"]),
        (
            "--http2 -c 1000 --streams 5000",
            &["--streams 5000", "1048 or fewer"],
        ),
        (
            "--http2 --streams 5 --new-connection",
            &["--streams", "one request"],
        ),
        (
            "--http2 --close-on-timeout",
            &["--close-on-timeout", "over HTTP/2"],
        ),
        ("--http2-share 50%", &["--http2-share", "--http2"]),
        (
            "--http2 -c 4 --http2-share 1%",
            &["--http2-share 1%", "0 of 4"],
        ),
        (
            "--http2 --http2-share half",
            &["--http2-share half", "0.5%"],
        ),
        (
            "--http2 --scenario a.toml",
            &["--http2", "--scenario", "HTTP/1.1"],
        ),
        (
            "--http2 --player 5Mbps",
            &["--http2", "--player", "HTTP/1.1"],
        ),
        (
            "--http2 --vanishing 5",
            &["--http2", "--vanishing", "HTTP/1.1"],
        ),
        ("--style wrk", &["--style wrk", "wrk2", "webbench"]),
        ("--burst-base 5 --rate 5", &["--burst-base", "--burst"]),
        ("--retries 2", &["--retries", "--rate"]),
        ("--retries 17 --rate 5", &["--retries 17", "16"]),
        ("--retry-pause 1s --rate 5", &["--retry-pause", "--retries"]),
        ("--idle-request", &["--idle-request", "--idle-connections"]),
        ("--slow-readers 5", &["--slow-readers 5", "200@10KB/s"]),
        ("--slow-heads 5@1", &["--slow-heads 5@1", "10B/s"]),
        ("--player 5", &["--player 5", "5Mbps"]),
        ("--sources 127.0.0.9-127.0.0.2", &["--sources", "downwards"]),
        (
            "--sources 192.0.2.1",
            &["--sources", "192.0.2.1", "machine"],
        ),
        ("--sources ::1", &["--sources ::1", "127.0.0.1:9", "IPv4"]),
        ("--cpus a", &["--cpus a", "0,2-3"]),
        ("--cpus 8000", &["--cpus"]),
        ("--watch 5", &["--watch 5", "NAME=PID"]),
        ("--server-pid 0", &["--server-pid 0"]),
        ("--server-pid 4194304", &["4194304", "no such process"]),
        ("--watch db=4194304", &["4194304 (db)", "no such process"]),
        (
            "--watch a=1 --watch a=2",
            &["--watch a=2", "process 1", "another"],
        ),
        (
            "--server-pid 1 --watch server=2",
            &["--watch server=2", "--server-pid", "another"],
        ),
        ("--expect-status 20", &["--expect-status", "2xx"]),
        ("--expect-sha256 abc", &["--expect-sha256", "64"]),
        ("--header Broken", &["Broken", "Name: value"]),
        ("--header a\u{e4}:c", &["is not a field name", "letters"]),
        ("--user me", &["me", "NAME:PASSWORD"]),
        ("--think -1s", &["--think -1s", "10s"]),
        ("-d -5s", &["--duration -5s", "10s"]),
        ("--warm-up -1s", &["--warm-up -1s", "10s"]),
        ("--timeout -1s", &["--timeout -1s", "10s"]),
        ("--deadline -1s", &["--deadline -1s", "10s"]),
        ("--seed -1", &["--seed -1", "whole number"]),
        ("--seed x", &["--seed x", "whole number"]),
        ("--method G(T", &["G(T"]),
        (
            "--rat 5",
            &["--rat", "did you mean --rate", "loadline load --help"],
        ),
        ("--rounds 0", &["--rounds 0", "1 to 1000"]),
        ("--assert p99", &["--assert", "p99"]),
        ("--assert p99<5parsec", &["--assert", "parsec"]),
        ("--assert speed>5", &["--assert", "speed"]),
    ] {
        refuses(&format!("{URL} {options}"), parts);
    }
}

#[test]
fn options_that_do_not_fit_together_are_refused() {
    for (options, parts) in [
        (
            "--rate 5 --steps 1..2/1",
            &["--rate", "--steps", "excludes"][..],
        ),
        ("--ramp 1..2 --steps 1..2/1", &["--steps", "--ramp"]),
        (
            "--new-connection --requests-per-connection 5",
            &["--new-connection"],
        ),
        ("--body a --body-file /dev/null", &["--body", "--body-file"]),
        ("--burst 1s/1s", &["--burst", "--rate"]),
        ("--step-duration 1s", &["--step-duration", "--steps"]),
        ("--steps 1..2/1 -d 5s", &["--duration", "--step-duration"]),
        ("--arrivals poisson", &["--arrivals", "--rate"]),
        ("--overflow drop", &["--overflow", "--rate"]),
        ("--schedule per-connection", &["--schedule", "--rate"]),
        (
            "--schedule per-connection --steps 1..2/1",
            &["--steps", "per-connection"],
        ),
        (
            "--schedule per-connection --rate 5 --retries 2",
            &["--retries", "per-connection"],
        ),
        (
            "--schedule per-connection --rate 5 --http2",
            &["--http2", "per-connection"],
        ),
        ("--think 1s --rate 5", &["--think", "by the clock"]),
        ("-n 5 --warm-up 1s", &["--warm-up", "--requests"]),
        ("--replay-timing 1", &["--replay-timing", "--replay"]),
        ("--users 5", &["--users", "--scenario"]),
        ("--players 5", &["--players", "--player"]),
        (
            "--content-sample 5",
            &["--content-sample", "--expect-sha256"],
        ),
        ("-c 0 --rate 5 --idle-connections 3", &["--connections 0"]),
        ("--scenario x --method PUT", &["--method", "scenario"]),
        ("--scenario x -n 5", &["--requests", "plain clients"]),
        ("--scenario x --player 5Mbps", &["--scenario", "--player"]),
        (
            "--scenario x --users 5 -c 0 --method PUT",
            &["--method", "scenario"],
        ),
        ("--scenario x --http 1.0", &["--http 1.0", "HTTP/1.1"]),
        (
            "--player 5Mbps --expect-status 200",
            &["--expect-status", "player"],
        ),
        ("-c 1 -c 2", &["--connections", "more than once"]),
        (
            "http://127.0.0.2:9/ -c 1",
            &["--connections 1", "127.0.0.2:9", "at least 2"],
        ),
        (
            "-c 0 -n 5 --idle-connections 3",
            &["--requests", "--connections 0"],
        ),
        (
            "-c 0 --spin --idle-connections 3",
            &["--spin", "--connections 0"],
        ),
        ("--json /tmp/a --hdr /tmp/a", &["--hdr /tmp/a", "--json"]),
        ("--json a --csv ./a", &["--csv ./a", "--json"]),
    ] {
        refuses(&format!("{URL} {options}"), parts);
    }
}

#[test]
fn where_to_is_refused_with_what_would_be_right() {
    refuses("", &["URL", "missing", "http://127.0.0.1:8080/"]);
    refuses("127.0.0.1:8080", &["URL without scheme", "http://"]);
    refuses("localhost/path", &["URL without scheme"]);
    refuses("http:/127.0.0.1/", &["`http://127.0.0.1/`"]);
    refuses("ftp://127.0.0.1/", &["only http and https"]);
    refuses("http://127.0.0.1:99999/", &["port"]);
    refuses("http://", &["host is missing", "http://127.0.0.1:8080/"]);
    refuses("http://nowhere.invalid/", &["nowhere.invalid"]);
}

#[test]
fn files_that_cannot_be_read_or_written_are_refused() {
    let missing = "/nowhere/file";
    for option in ["--urls", "--body-file", "--replay", "--scenario"] {
        refuses(&format!("{URL} {option} {missing}"), &[missing]);
    }
    for option in ["--json", "--csv", "--hdr"] {
        refuses(
            &format!("{URL} {option} {missing}"),
            &[option, missing, "no such directory"],
        );
        refuses(&format!("{URL} {option} /"), &[option, "a directory"]);
        refuses(&format!("{URL} {option} -"), &[option, "standard output"]);
    }
}

#[test]
fn more_clients_than_processes_may_share_are_refused() {
    let line = format!("{URL} -c 1000000 --processes 1");
    refuses(&line, &["--processes 1", "descriptors"]);
}
