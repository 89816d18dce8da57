//! The status page as JSON and as Prometheus text.

use std::collections::{HashMap, HashSet};
use std::io::Write;

use crate::util::{Server, architectures, exchange, site, until};

fn json(server: &Server) -> serde_json::Value {
    let (head, content) = exchange(server.connect(), "/-/status");
    assert!(head.contains("Content-Type: application/json"), "{head}");
    serde_json::from_str(&content).expect(&content)
}

#[test]
fn json_sums_what_the_threads_count() {
    let site = site();
    for architecture in architectures() {
        let more = ["--architecture", architecture, "--status-path", "/-/status"];
        let server = Server::start(site.path(), &more);
        for _ in 0..5 {
            server.get("/");
        }
        exchange(server.connect(), "/nothing");
        // Connections of earlier answers close as the client has seen their end, or a bit later.
        let status = until("the end of six connections", || {
            let status = json(&server);
            (number(&status["total"]["connections"]) == 1).then_some(status)
        });
        assert_eq!(status["server"]["architecture"], architecture);
        assert_eq!(status["server"]["process"], server.id());
        let total = &status["total"];
        let asked = number(&total["accepted"]) - 6; // for the status
        assert_eq!(
            number(&total["answers"]["2xx"]),
            5 + asked - 1,
            "{architecture}: {total}"
        );
        assert_eq!(total["answers"]["4xx"], 1, "{architecture}: {total}");
        let closed = total["closed"].as_object().unwrap().values();
        assert_eq!(
            closed.map(number).sum::<u64>(),
            6 + asked - 1,
            "{architecture}: {total}"
        );
        let threads = status["threads"].as_array().unwrap();
        assert!(!threads.is_empty());
        for name in ["accepted", "requests", "bytes_out", "connections"] {
            let sum: u64 = threads.iter().map(|thread| number(&thread[name])).sum();
            assert_eq!(sum, number(&total[name]), "{architecture}: {name}");
        }
        let names: HashSet<_> = threads
            .iter()
            .map(|thread| thread["name"].as_str().unwrap())
            .collect();
        assert_eq!(
            names.len(),
            threads.len(),
            "{architecture}: names are distinct"
        );
        assert!(number(&status["cache"]["entries"]) >= 1, "{architecture}");
    }
}

#[test]
fn the_kernels_buffers_are_estimated_by_what_a_connection_may_have() {
    let site = site();
    for (more, each) in [
        (&["--socket-buffer", "64k"][..], Some(2 * (64 << 10))),
        (&[], None),
    ] {
        let all = [&["--status-path", "/-/status"], more].concat();
        let server = Server::start(site.path(), &all);
        let others: Vec<_> = (0..3).map(|_| server.connect()).collect();
        for mut stream in &others {
            stream.write_all(b"GET / HT").unwrap(); // so that the server has it
        }
        let status = until("four connections", || {
            let status = json(&server);
            (number(&status["total"]["connections"]) == 4).then_some(status)
        });
        let estimated = number(&status["socket_buffers_estimated_bytes"]);
        match each {
            Some(bytes) => assert_eq!(estimated, 4 * bytes),
            None => assert!(estimated > 0 && estimated.is_multiple_of(4), "{estimated}"),
        }
        let (_, text) = exchange(server.connect(), "/-/status?format=prometheus");
        let samples = parse(&text);
        assert!(samples["loadline_socket_buffers_estimated_bytes"] > 0.0);
        drop(others);
    }
}

fn number(value: &serde_json::Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

/// Parses the text format strictly: HELP and TYPE before the samples of each family, names and
/// labels well-formed, no sample twice. Returns name-with-labels to value.
fn parse(text: &str) -> HashMap<String, f64> {
    let is_name = |name: &str| {
        let mut bytes = name.bytes();
        bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic())
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let (mut samples, mut families) = (HashMap::new(), HashMap::new());
    let mut family = String::new();
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            family = help.split(' ').next().unwrap().to_owned();
            assert!(!families.contains_key(&family), "{family} comes twice");
            continue;
        }
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert_eq!(name, family);
            assert!(matches!(kind, "counter" | "gauge" | "histogram"), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            families.insert(family.clone(), kind.to_owned());
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let of_family = match families[&family].as_str() {
            "histogram" => {
                let part = name.strip_prefix(&family).expect(line);
                assert_eq!(labels.contains("le=\""), part == "_bucket", "{line}");
                matches!(part, "_bucket" | "_sum" | "_count")
            }
            _ => name == family,
        };
        assert!(
            is_name(name) && of_family && name.starts_with("loadline_"),
            "{line}"
        );
        let labels = labels.strip_suffix('}').unwrap();
        for label in labels.split(',').filter(|label| !label.is_empty()) {
            let (label, value) = label.split_once('=').unwrap();
            assert!(
                is_name(label) && value.starts_with('"') && value.ends_with('"'),
                "{line}"
            );
        }
        let value: f64 = value.parse().unwrap();
        assert!(
            samples.insert(series.to_owned(), value).is_none(),
            "{line} comes twice"
        );
    }
    samples
}

#[test]
fn prometheus_text_is_well_formed_and_agrees_with_json() {
    let site = site();
    for architecture in architectures() {
        let more = ["--architecture", architecture, "--status-path", "/-/status"];
        let server = Server::start(site.path(), &more);
        for _ in 0..3 {
            server.get("/");
        }
        // A latency is counted at the end of its turn, when the response has left.
        let count = "loadline_request_duration_seconds_count";
        let mut earlier = -1.0;
        let text = until("three latencies", || {
            earlier += 1.0;
            let (head, text) = exchange(server.connect(), "/-/status?format=prometheus");
            let kind = "Content-Type: text/plain; version=0.0.4";
            assert!(head.contains(kind), "{head}");
            let counts = |line: &str| line.starts_with(count) && line.ends_with(" 3");
            text.lines().any(counts).then_some(text)
        });
        let samples = parse(&text);
        let sum = |name: &str, part: &str| -> f64 {
            let of = |(series, _): &(&String, &f64)| {
                series.starts_with(&format!("loadline_{name}{{")) && series.contains(part)
            };
            samples.iter().filter(of).map(|(_, value)| value).sum()
        };
        assert_eq!(
            sum("answers_total", "class=\"2xx\""),
            3.0 + earlier,
            "{architecture}:\n{text}"
        );
        let accepted = sum("accepted_total", "");
        assert_eq!(accepted, 4.0 + earlier, "{architecture}:\n{text}");
        let json = json(&server);
        let bytes_in = number(&json["total"]["bytes_in"]) as f64;
        assert!(sum("bytes_in_total", "") <= bytes_in, "{architecture}");
        assert_histogram(&samples, 3.0, architecture);
        let series_most = 128 * 40;
        assert!(
            samples.len() < series_most,
            "{architecture}: {} series",
            samples.len()
        );
    }
}

/// The buckets of the files' latencies rise to the count of requests, of which the status page is none.
fn assert_histogram(samples: &HashMap<String, f64>, count: f64, architecture: &str) {
    let name = "loadline_request_duration_seconds";
    let of_files = |series: &str| series.starts_with(name) && series.contains("mount=\"/\"");
    let mut buckets: Vec<(f64, f64)> = samples
        .iter()
        .filter(|(series, _)| of_files(series) && series.contains("_bucket"))
        .map(|(series, value)| {
            let (_, le) = series.split_once("le=\"").unwrap();
            (le.trim_end_matches("\"}").parse().unwrap(), *value)
        })
        .collect();
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    assert!(buckets.len() > 10, "{architecture}: {buckets:?}");
    assert!(
        buckets.is_sorted_by_key(|(_, value)| *value),
        "{architecture}: {buckets:?}"
    );
    assert_eq!(
        buckets.last(),
        Some(&(f64::INFINITY, count)),
        "{architecture}"
    );
    let only = |part: &str| {
        let found = samples
            .iter()
            .find(|(series, _)| of_files(series) && series.contains(part));
        *found.unwrap().1
    };
    assert_eq!(only("_count"), count, "{architecture}");
    assert!(only("_sum") > 0.0, "{architecture}");
}

#[test]
fn latencies_have_their_listener_and_mount() {
    let site = site();
    for architecture in architectures() {
        let more = format!(
            "--architecture {architecture} --status-path /-/status --service-time 20ms \
             --listen 127.0.0.1:0"
        );
        let more: Vec<&str> = more.split_ascii_whitespace().collect();
        let server = Server::start(site.path(), &more);
        for _ in 0..5 {
            server.get("/");
        }
        let status = until("five latencies", || {
            let status = json(&server);
            (status["latencies"][0]["count"] == 5).then_some(status)
        });
        let latencies = status["latencies"].as_array().unwrap();
        assert_eq!(latencies.len(), 1, "{architecture}: {latencies:?}");
        let series = &latencies[0];
        assert_eq!(series["mount"], "/");
        assert_eq!(series["listener"], server.address().to_string());
        assert_eq!(series["count"], 5, "{architecture}");
        let p50_us = number(&series["p50_us"]);
        assert!(
            (20_000..10_000_000).contains(&p50_us),
            "{architecture}: {p50_us} us"
        );
        assert!(
            number(&series["sum_us"]) >= 5 * 19_000,
            "{architecture}: {series}"
        );
    }
}

/// Two looks, with load between them: the estimate names what limits the server.
#[test]
fn the_load_ratio_follows_the_service_time() {
    let site = site();
    let more = "--status-path /-/status --architecture reactor --workers 1 --service-time 20ms";
    let server = Server::start(site.path(), &more.split(' ').collect::<Vec<_>>());
    assert_eq!(json(&server)["load"], serde_json::Value::Null);
    let load = until("an estimate", || {
        server.get("/");
        let load = json(&server)["load"].clone();
        load["low"].is_number().then_some(load)
    });
    assert_eq!(load["limit"], "workers", "{load}");
    let demand = load["demand_s"]["workers"].as_f64().unwrap();
    assert!(demand > 0.005, "{load}");
    let jobs = &json(&server)["job_times"];
    assert!(number(&jobs["count"]) > 0, "{jobs}");
    assert!(number(&jobs["p50_us"]) >= 20_000, "{jobs}");
    let capacity = load["capacity_per_s"].as_f64().unwrap();
    assert!(
        capacity * demand <= 1.0 && capacity * demand > 0.5,
        "{load}"
    );
    let text = server.get("/-/status?format=prometheus");
    let samples = parse(&text);
    assert!(samples.contains_key("loadline_load_ratio"), "{text}");
    assert!(samples.contains_key("loadline_station_demand_seconds{station=\"workers\"}"));
    for name in names_in_rules() {
        assert!(samples.contains_key(&name), "docs/serve.md: {name}");
    }
}

/// The metrics that the manual's autoscaler and alert rule use.
fn names_in_rules() -> HashSet<String> {
    let manual = include_str!("../../../../docs/serve.md");
    let rules = manual.split("```yaml").skip(1);
    let rules = rules.filter_map(|rest| rest.split("```").next());
    let words = rules.flat_map(|rule| {
        rule.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .filter(|word| word.starts_with("loadline_"))
    });
    let names: HashSet<String> = words.map(str::to_owned).collect();
    assert!(names.len() >= 2, "{names:?}");
    names
}

#[test]
fn a_thousand_threads_are_neither_a_thousand_series_nor_a_thousand_entries() {
    let site = site();
    let more = "--architecture thread-pool --threads 1000 --status-path /-/status";
    let server = Server::start(site.path(), &more.split(' ').collect::<Vec<_>>());
    let samples = parse(&server.get("/-/status?format=prometheus"));
    assert!(samples.len() < 100, "{} series", samples.len());
    until("all threads are counted", || {
        let status = json(&server);
        let threads = status["threads"].as_array().unwrap();
        assert!(threads.len() <= 130, "{} entries", threads.len());
        let of_role = threads.iter().filter(|thread| thread["role"] == "thread");
        let count: u64 = of_role.map(|thread| number(&thread["count"])).sum();
        assert!(count <= 1000);
        (count == 1000).then_some(())
    });
}

#[test]
fn without_the_option_there_is_no_status_page() {
    let site = site();
    let server = Server::start(site.path(), &[]);
    assert!(
        exchange(server.connect(), "/-/status")
            .0
            .starts_with("HTTP/1.1 404")
    );
}
