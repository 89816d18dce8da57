//! Many threads on one handler while files are being replaced.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use loadline_apps::{StaticFiles, StaticOptions};
use loadline_base::Millis;
use loadline_proto::Handler;

use crate::site::{Site, answer_of};

const VERSIONS: u64 = 150;
const READERS: usize = 4;

/// The content of a version: its number, as often as makes the length. Different versions have
/// different lengths.
fn content(version: u64, length: usize) -> String {
    format!("{version:08}").repeat(length / 8 + version as usize % 5)
}

/// Asks until all versions were there, and checks that each answer is of one version, and that
/// none is older than a second.
fn read(
    handler: &StaticFiles,
    clock_ms: &AtomicU64,
    published: &[AtomicU64],
    done: &AtomicBool,
    length: usize,
) -> u64 {
    let mut local = handler.local();
    let mut answers = 0;
    while !done.load(Ordering::SeqCst) {
        let now = Millis(clock_ms.load(Ordering::SeqCst));
        // A millisecond or two may pass while another thread is just looking.
        let due = published
            .iter()
            .rposition(|at_ms| at_ms.load(Ordering::SeqCst) + 1100 <= now.0);
        let head = b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n".to_vec();
        let answer = answer_of(handler, &mut local, now, head).0;
        let text = answer.text();
        let version: u64 = text[..8].parse().unwrap();
        assert!(text == content(version, length), "mixed: version {version}");
        let due = due.unwrap_or_default() as u64;
        assert!(version >= due, "{version} where {due} was due");
        answers += 1;
    }
    answers
}

#[test]
fn answers_are_whole_and_not_out_of_date() {
    for memory_bytes_max in [256 << 10, 0] {
        let length = 20_000;
        let options = StaticOptions {
            memory_bytes_max,
            ..StaticOptions::default()
        };
        let site = Site::new(&[("f", &content(0, length))], options);
        let clock_ms = AtomicU64::new(10_000);
        let published: Vec<AtomicU64> = (0..VERSIONS)
            .map(|_| AtomicU64::new(u64::MAX / 2))
            .collect();
        published[0].store(0, Ordering::SeqCst);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..READERS)
                .map(|_| scope.spawn(|| read(&site.handler, &clock_ms, &published, &done, length)))
                .collect();
            for version in 1..VERSIONS {
                site.write("next", content(version, length));
                fs::rename(site.path("next"), site.path("f")).unwrap();
                let now_ms = clock_ms.fetch_add(10, Ordering::SeqCst);
                published[version as usize].store(now_ms, Ordering::SeqCst);
                std::thread::yield_now();
            }
            done.store(true, Ordering::SeqCst);
            for reader in readers {
                assert!(reader.join().unwrap() > 0);
            }
        });
    }
}
