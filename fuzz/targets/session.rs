//! Operations on a session, in any order: its promises hold (see `driver`), it comes to an
//! end, and how the bytes were cut does not matter.
//!
//! The first byte sets flags, the rest of the first line is the operations, everything behind it
//! is what the client sends.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use loadline_fuzz::driver::{Driver, Ending};
use loadline_fuzz::first_line;
use loadline_proto::{Http2, Limits, SessionConfig};

const TIGHT_LIMITS: u8 = 1;
const NO_KEEP_ALIVE: u8 = 2;
const LOG: u8 = 4;
const HOLD_RUNS: u8 = 8;
const REFUSE: u8 = 16;

static CONFIGS: LazyLock<[Arc<SessionConfig>; 4]> = LazyLock::new(|| {
    [0, 1, 2, 3].map(|flags: u8| {
        let mut limits = Limits {
            inline_body_bytes_max: 64,
            output_bytes_max: 400,
            stream_window_bytes: 24,
            ..Limits::default()
        };
        if flags & TIGHT_LIMITS != 0 {
            limits.head_bytes_max = 200;
            limits.target_bytes_max = 64;
            limits.fields_max = 4;
            limits.body_bytes_max = 48;
            limits.chunk_line_bytes_max = 16;
            limits.trailer_bytes_max = 32;
            limits.discard_bytes_max = 40;
            limits.linger_bytes_max = 64;
        }
        let keep_alive = flags & NO_KEEP_ALIVE == 0;
        Arc::new(SessionConfig {
            limits,
            keep_alive,
            http2: Http2::Off,
            ..SessionConfig::default()
        })
    })
});

fuzz_target!(|bytes: &[u8]| {
    let (line, stream) = first_line(bytes);
    let Some((flags, operations)) = line.split_first() else {
        return;
    };
    operate(*flags, operations, stream);
    let roomy = flags & !TIGHT_LIMITS; // which limit is met first depends on the cuts
    let at_once = run(roomy, stream, &[u8::MAX]);
    let cut = run(roomy, stream, operations);
    if cut != at_once {
        assert!(
            differ_by_what_came_ahead(&cut, &at_once, stream),
            "{cut:?} {at_once:?} {}",
            stream.escape_ascii()
        );
    }
});

/// Chunked content that is malformed, or too much, is refused before its request is answered if it
/// comes with the head, else behind the answer or in place of it: what differs is the last answer
/// alone, and a refusal is one of both.
fn differ_by_what_came_ahead(left: &Ending, right: &Ending, stream: &[u8]) -> bool {
    let is_refused = |ending: &Ending| {
        let last = ending.answers.last();
        last.is_some_and(|answer| matches!(answer.code, 400 | 413 | 431) && answer.close)
    };
    let is_chunked = stream
        .to_ascii_lowercase()
        .windows(7)
        .any(|text| text == b"chunked");
    is_chunked
        && [(left, right), (right, left)]
            .iter()
            .any(|(refused, other)| {
                let before = refused.answers.len().saturating_sub(1);
                is_refused(refused)
                    && other.answers.len() <= before + 1
                    && other.answers.get(..before) == Some(&refused.answers[..before])
            })
}

fn driver(flags: u8, stream: &[u8]) -> Driver<'_> {
    let config = &CONFIGS[usize::from(flags & (TIGHT_LIMITS | NO_KEEP_ALIVE))];
    Driver::new(config, stream, flags & HOLD_RUNS != 0, flags & LOG != 0)
}

fn operate(flags: u8, operations: &[u8], stream: &[u8]) {
    let mut driver = driver(flags, stream);
    if flags & REFUSE != 0 {
        driver.refuse();
    }
    for operation in operations {
        match operation {
            b'a' => driver.answer(),
            b's' => driver.send(u64::MAX),
            b'p' => driver.send(1),
            b'q' => driver.send(100),
            b'e' => driver.receive_eof(),
            b'x' => driver.expire(false),
            b'y' => driver.expire(true),
            b't' => driver.tick(500),
            b'd' => driver.drain(),
            b'v' => driver.vanish(),
            b'u' => driver.receive(5, true),
            b'k' => _ = driver.app_step(),
            b'c' => driver.app_reads(1),
            b'b' => driver.app_answers(),
            b'o' => driver.app_produces(3),
            b'n' => driver.app_ends(),
            b'w' => driver.receive(usize::MAX, false),
            len => driver.receive(usize::from(*len), false),
        }
    }
    let _ = driver.run_to_end(|| usize::MAX);
}

/// The whole of a connection, in pieces of these lengths over and over; 255 is all there is.
fn run(flags: u8, stream: &[u8], lens: &[u8]) -> Ending {
    let mut lens = lens.iter().cycle();
    driver(flags, stream).run_to_end(|| match lens.next() {
        None | Some(&u8::MAX) => usize::MAX,
        Some(len) => usize::from(*len).max(1),
    })
}
