//! Words that must not stand in the sources of a crate, each with the promise that it would break.

use crate::has_word;
use crate::sources::{Rust, rust_files};

/// Words that must not stand in the code of a crate (outside of its tests), with the reason.
const BANNED: &[(&str, &[&str], &str)] = &[
    (
        "crates/base/",
        &[
            "std::net",
            "std::thread",
            "std::fs",
            "Instant::now",
            "SystemTime::now",
        ],
        "data structures without I/O, clock or threads",
    ),
    (
        "crates/proto/",
        &[
            "std::net",
            "std::thread",
            "std::fs",
            "Instant",
            "SystemTime",
            "Mutex",
            "RwLock",
            "Condvar",
        ],
        "sans-IO: no socket, file, clock, thread or lock",
    ),
    (
        "crates/capacity/",
        &[
            "std::net",
            "std::thread",
            "std::fs",
            "Instant::now",
            "SystemTime::now",
        ],
        "functions of what was measured: no clock, file or thread",
    ),
    (
        "crates/apps/",
        &["std::net", "epoll"],
        "handlers see no sockets",
    ),
];

/// The only source of each clock in the server: a turn lends the time. Lines for the operator, which
/// are said when something went wrong, have their own look at it.
const CLOCKS: &[&str] = &[
    "crates/server/src/clock.rs",
    "crates/server/src/thread/context.rs",
    "crates/server/src/telemetry/log.rs",
];

#[test]
fn words_that_break_a_promise() {
    let broken: Vec<String> = rust_files().iter().flat_map(broken_promises).collect();
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

/// The words in a file that must not stand there, each with the reason.
fn broken_promises(file: &Rust) -> Vec<String> {
    let mut broken = Vec::new();
    let tested = file.is_test_file();
    for (number, line) in file.code_lines() {
        let mut ban = |word: &str, reason: &str| {
            if has_word(line, word) {
                broken.push(format!("{}:{number}: {word}: {reason}", file.path));
            }
        };
        ban("dbg!", "left over");
        if !file.path.starts_with("crates/sys/") && !line.contains("unsafe_code") {
            ban("unsafe", "only crates/sys has unsafe code");
        }
        if tested {
            continue;
        }
        for (folder, words, reason) in BANNED {
            if file.path.starts_with(folder) {
                words.iter().for_each(|word| ban(word, reason));
            }
        }
        if file.path.starts_with("crates/server/") && !CLOCKS.contains(&file.path.as_str()) {
            ban("Instant::now", "the time comes with the turn");
            ban("SystemTime::now", "the time comes with the turn");
        }
    }
    broken
}

#[test]
fn a_lock_or_a_clock_in_the_protocol_is_found() {
    let is_found = |path: &str, line: &str| {
        let file = Rust::new(path.to_owned(), line.to_owned());
        !broken_promises(&file).is_empty()
    };
    for line in [
        "use std::sync::Mutex;",
        "streams: Arc<RwLock<Streams>>,",
        "static ENDED: Condvar = Condvar::new();",
        "use std::time::{Duration, Instant};",
        "let now = std::time::SystemTime::now();",
    ] {
        assert!(is_found("crates/proto/src/http2/stream.rs", line), "{line}");
        let is_allowed = !is_found("crates/proto/tests/http2/main.rs", line);
        assert!(is_allowed, "in a test: {line}");
    }
    for line in [
        "// Not a Mutex: each connection has one owner.",
        "static LINES: OnceLock<Lines> = OnceLock::new();",
        "let text = \"Instant\";",
    ] {
        assert!(
            !is_found("crates/proto/src/http2/stream.rs", line),
            "{line}"
        );
    }
}
