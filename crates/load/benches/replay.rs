//! What it costs to read a log.
//!
//! `cargo bench -p loadline-load --bench replay` prints the time of one line of each form, and of a
//! log of 100,000 lines with 1000 different requests.

use std::fmt::Write as _;

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use loadline_load::replay::line::parse;
use loadline_load::replay::log::LINES_MAX;
use loadline_load::replay::{Log, Wanted};

const COMBINED: &str = "203.0.113.7 - - [21/Nov/2026:10:47:15 +0000] \"GET /articles/42?page=3 HTTP/1.1\" \
200 5124 \"https://example.org/\" \"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) \
Chrome/140.0.0.0 Safari/537.36\"";
const JSON: &str = "{\"time\":\"2026-11-21T10:47:15.250000Z\",\"client.address\":\"203.0.113.7\",\"client.port\":40022,\"network.peer.address\":\"203.0.113.7\",\"network.peer.port\":40022\
,\"http.request.method\":\"GET\",\"url.scheme\":\"http\",\"url.path\":\"/articles/42\",\"url.query\":\"page=3\",\"server.address\":\"example.org\",\"network.protocol.version\":\"1.1\"\
,\"http.response.status_code\":200,\"http.response.body.size\":5124,\"user_agent.original\":\"Mozilla/5.0\",\"duration_us\":0}";
const CADDY: &str = "{\"level\":\"info\",\"ts\":1795258035.25,\"logger\":\"http.log.access\",\"msg\":\"handled request\",\
\"request\":{\"remote_ip\":\"203.0.113.7\",\"proto\":\"HTTP/1.1\",\"method\":\"GET\",\"host\":\"example.org\",\
\"uri\":\"/articles/42?page=3\",\"headers\":{\"User-Agent\":[\"Mozilla/5.0\"],\"Accept\":[\"*/*\"]}},\"status\":200}";

fn main() {
    divan::main();
}

#[divan::bench(args = ["combined", "json", "caddy"])]
fn line(bencher: Bencher<'_, '_>, form: &str) {
    let line = match form {
        "json" => JSON,
        "caddy" => CADDY,
        _ => COMBINED,
    };
    bencher
        .counter(BytesCount::new(line.len()))
        .bench(|| parse(black_box(line.as_bytes())).is_ok());
}

#[divan::bench(sample_count = 20)]
fn log(bencher: Bencher<'_, '_>) {
    let mut text = String::new();
    for index in 0..100_000_u32 {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{}",
            COMBINED.replace("42", &(index % 1000).to_string())
        );
    }
    let wanted = Wanted {
        all_methods: false,
        times: true,
        lines_max: LINES_MAX,
    };
    bencher
        .counter(ItemsCount::new(100_000_u32))
        .bench(|| Log::read(text.as_bytes(), wanted).is_ok());
}
