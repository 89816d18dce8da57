//! Any bytes as a line of an access log: what is taken as a request can be sent, and written as
//! a common, a combined and a JSON line it is the same again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loadline_fuzz::as_text;
use loadline_fuzz::replay::line::parse;
use loadline_fuzz::replay::logged::LogLine;
use loadline_fuzz::replay::{Log, Wanted};
use loadline_proto::Method;

fuzz_target!(|bytes: &[u8]| {
    whole_log(bytes);
    let Ok(parsed) = parse(bytes) else { return };
    let target = &*parsed.target;
    assert!(target.starts_with(b"/"), "{}", as_text(bytes));
    assert!(
        target.iter().all(|byte| *byte > b' ' && *byte != 0x7f),
        "{}",
        as_text(bytes)
    );
    let method = parsed.method.map_or("BREW", Method::as_str);
    let mut common = b"h - - [10/Oct/2000:13:55:36 +0000] \"".to_vec();
    common.extend_from_slice(method.as_bytes());
    common.push(b' ');
    for byte in target {
        match byte {
            b'"' | b'\\' => common.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
            _ => common.push(*byte),
        }
    }
    common.extend_from_slice(b" HTTP/1.1\" 200 5");
    same(&common, &parsed);
    common.extend_from_slice(b" \"-\" \"agent\"");
    same(&common, &parsed);
    if let Ok(text) = std::str::from_utf8(target) {
        let text = text.replace('\\', "\\\\").replace('"', "\\\"");
        same(
            format!("{{\"request\":\"{method} {text} HTTP/1.1\"}}").as_bytes(),
            &parsed,
        );
        same(
            format!("{{\"request\":{{\"uri\":\"{text}\",\"method\":\"{method}\"}}}}").as_bytes(),
            &parsed,
        );
    }
});

fn same(line: &[u8], parsed: &LogLine<'_>) {
    match parse(line) {
        Ok(again) => {
            assert_eq!(again.method, parsed.method, "{}", as_text(line));
            assert_eq!(again.target, parsed.target, "{}", as_text(line));
        }
        Err(reason) => panic!("{}: {reason}", as_text(line)),
    }
}

/// The bytes as a log of several lines: every line is counted once.
fn whole_log(bytes: &[u8]) {
    let wanted = Wanted {
        all_methods: bytes.first().is_some_and(|byte| byte % 2 == 0),
        times: bytes.last().is_some_and(|byte| byte % 2 == 0),
        lines_max: 3,
    };
    let Ok(log) = Log::read(bytes, wanted) else {
        return;
    };
    let report = &log.report;
    let counted = report.replayed + report.other_methods + report.unparsable;
    assert_eq!(counted, report.lines);
    assert_eq!(log.sequence.len() as u64, report.replayed);
    let times = if wanted.times { log.sequence.len() } else { 0 };
    assert_eq!(log.times_ns.len(), times);
    let count = log.requests.len() as u32;
    assert!(log.sequence.iter().all(|index| *index < count));
}
