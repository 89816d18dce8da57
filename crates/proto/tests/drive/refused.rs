//! Bad messages: each is refused with one answer and the end of the connection, however it is cut.

use loadline_proto::Limits;

use super::{Driver, config, echo};

/// Follows every bad message: a request that must never reach the handler.
const CANARY: &str = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n";

pub struct Case {
    pub bytes: Vec<u8>,
    pub statuses: &'static [u16],
}

/// A POST with these field lines (after Host) and this content.
pub fn post(lines: &[u8], content: &[u8], statuses: &'static [u16]) -> Case {
    let mut bytes = b"POST /p HTTP/1.1\r\nHost: h\r\n".to_vec();
    bytes.extend_from_slice(lines);
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(content);
    Case { bytes, statuses }
}

/// These bytes as they are.
pub fn raw(bytes: &[u8], statuses: &'static [u16]) -> Case {
    let bytes = bytes.to_vec();
    Case { bytes, statuses }
}

pub fn limits() -> Limits {
    Limits {
        head_bytes_max: 1024,
        target_bytes_max: 256,
        fields_max: 8,
        body_bytes_max: 1000,
        chunk_line_bytes_max: 64,
        trailer_bytes_max: 128,
        ..Limits::default()
    }
}

/// Feeds the pieces one after the other; gives the statuses and whether the handler saw the canary.
fn fate(pieces: &[&[u8]]) -> Vec<u16> {
    let mut driver = Driver::new(&config(limits()), echo);
    for piece in pieces {
        driver.feed(piece);
    }
    assert!(
        driver.seen.iter().all(|seen| seen.target != "/smuggled"),
        "smuggled past"
    );
    assert!(
        driver.is_closed() || driver.is_lingering(),
        "the connection must end"
    );
    let answers = driver.answers();
    let last = answers.last().expect("an answer");
    assert!(last.closes(), "Connection: close is missing in {last:?}");
    let faults: u64 = driver.counters.faults.iter().map(|c| c.value()).sum();
    assert_eq!(faults, 1, "one fault, counted once");
    if !driver.is_closed() {
        driver.eof();
        assert!(driver.is_closed(), "Close after the peer's end");
    }
    answers.iter().map(|answer| answer.status).collect()
}

fn check(case: &Case) {
    let mut bytes = case.bytes.clone();
    bytes.extend_from_slice(CANARY.as_bytes());
    let shown = String::from_utf8_lossy(&case.bytes).into_owned();
    let whole = std::panic::catch_unwind(|| fate(&[&bytes]))
        .unwrap_or_else(|_| panic!("in one piece: {shown:?}"));
    let finals: Vec<u16> = whole.iter().copied().filter(|s| *s >= 200).collect();
    assert_eq!(
        finals.len(),
        1,
        "one answer and the end: {finals:?} to {shown:?}"
    );
    assert!(
        case.statuses.contains(&finals[0]),
        "{} instead of {:?} to {shown:?}",
        finals[0],
        case.statuses
    );
    let singles: Vec<&[u8]> = bytes.chunks(1).collect();
    let dripped = std::panic::catch_unwind(|| fate(&singles))
        .unwrap_or_else(|_| panic!("byte by byte: {shown:?}"));
    assert_eq!(dripped, whole, "byte by byte: {shown:?}");
    for cut in 1..bytes.len() {
        let (left, right) = bytes.split_at(cut);
        let cut_fate = std::panic::catch_unwind(|| fate(&[left, right]))
            .unwrap_or_else(|_| panic!("cut at {cut}: {shown:?}"));
        assert_eq!(cut_fate, whole, "cut at {cut}: {shown:?}");
    }
}

pub fn check_all(cases: &[Case]) {
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            std::panic::catch_unwind(|| check(case)).err().map(|panic| {
                let text = panic.downcast_ref::<String>().cloned();
                text.unwrap_or_else(|| "?".to_owned())
            })
        })
        .collect();
    assert!(
        failures.is_empty(),
        "{} of {} cases:\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
}
