//! The examples of `docs/load-inputs.md` are what the parsers take.

use std::path::Path;

use loadline_load::replay::{Log, Wanted};
use loadline_load::requests::list;
use loadline_load::requests::template::{Ask, Template};
use loadline_load::requests::url::Url;
use loadline_proto::{Method, Version};

const PAGE: &str = include_str!("../../../../../docs/load-inputs.md");

/// The blocks of one kind.
fn blocks(kind: &str) -> Vec<&'static str> {
    let fence = format!("```{kind}\n");
    let begins = PAGE.split(fence.as_str()).skip(1);
    begins
        .map(|block| block.split("```").next().unwrap_or_default())
        .collect()
}

#[test]
fn the_request() {
    let [expected] = blocks("request")[..] else {
        panic!("one request")
    };
    let url = Url::parse("http://127.0.0.1:8080/").unwrap();
    let ask = Ask {
        method: Method::Get,
        target: url.target.as_bytes(),
        authority: &url.authority,
        user: None,
        body: b"",
    };
    let template = Template::new(Version::Http11, &[], None).unwrap();
    let (keep, _) = template.prepare(&ask);
    let text = String::from_utf8(keep).unwrap().replace("\r\n", "\n");
    let expected = expected.replace("VERSION", env!("CARGO_PKG_VERSION"));
    assert_eq!(text, format!("{expected}\n"));
}

#[test]
fn the_list() {
    let [text] = blocks("urls")[..] else {
        panic!("one list")
    };
    let base = Url::parse("http://127.0.0.1:8080/").unwrap();
    let entries = list::parse(text, Some(&base), Path::new("")).unwrap();
    let weights: Vec<f64> = entries.iter().map(|entry| entry.weight).collect();
    assert_eq!(weights, [70.0, 25.0, 4.0, 1.0]);
    assert_eq!(entries[3].url.port, 8081);
    for option in ["body=", "header=", "status=", "length=", "sha256="] {
        assert!(PAGE.contains(&format!("| `{option}")), "{option}");
    }
}

#[test]
fn the_log() {
    let [text] = blocks("log")[..] else {
        panic!("one log")
    };
    let wanted = Wanted {
        all_methods: false,
        times: true,
        lines_max: 100,
    };
    let log = Log::read(text.as_bytes(), wanted).unwrap();
    assert_eq!(
        log.report.replayed,
        text.lines().count() as u64,
        "{}",
        log.report
    );
    assert_eq!(log.report.distinct, log.report.replayed);
    // All but the first are of the same second.
    assert!(
        log.times_ns[1..]
            .iter()
            .all(|ns| ns / 1_000_000_000 == 1_795_258_035)
    );
}
