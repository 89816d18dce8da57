//! Any bytes as the head of a request: found the same however they are cut, parsed only if
//! another parser would, and the same again when written out anew.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loadline_fuzz::as_text;
use loadline_proto::http1::{HeadScan, HeadScanner, parse_request};
use loadline_proto::{Limits, Method, Request, TargetForm, Version};

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits::default();
    let at_once = HeadScanner::default().scan(bytes, &limits);
    // Within the limits only: which of two mistakes is met first depends on the cuts.
    if bytes.len() < limits.target_bytes_max {
        let dripped = scan_drip(bytes, &limits);
        match (&at_once, &dripped) {
            // What is no HTTP/1 from its first byte on is refused at that byte; where all of the
            // head is there already, by whoever parses it.
            (Ok(HeadScan::Complete { start, end }), Err(fault)) => {
                let refused = parse_request(&bytes[*start..*end], &limits).err();
                let status = refused.map(|fault| fault.status);
                assert_eq!(status, Some(fault.status), "{}", as_text(bytes));
            }
            (Ok(at_once), Ok(dripped)) => assert_eq!(at_once, dripped, "{}", as_text(bytes)),
            (Err(at_once), Err(dripped)) => assert_eq!(at_once.status, dripped.status),
            _ => panic!(
                "{at_once:?} at once, {dripped:?} byte by byte: {}",
                as_text(bytes)
            ),
        }
    }
    if let Ok(HeadScan::Complete { start, end }) = at_once {
        check_parse(&bytes[start..end], &limits);
    }
    let _ = parse_request(bytes, &limits); // nor may a head without an end do harm
});

fn scan_drip(bytes: &[u8], limits: &Limits) -> Result<HeadScan, loadline_proto::Fault> {
    let mut scanner = HeadScanner::default();
    for end in 1..=bytes.len() {
        match scanner.scan(&bytes[..end], limits)? {
            HeadScan::Partial => {}
            complete => return Ok(complete),
        }
    }
    Ok(HeadScan::Partial)
}

fn check_parse(head: &[u8], limits: &Limits) {
    let Ok((request, facts)) = parse_request(head, limits) else {
        return;
    };
    check_second_opinion(head, &request);
    for (name, value) in request.fields() {
        assert!(!name.is_empty() && name.iter().all(|byte| byte.is_ascii_graphic()));
        assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
        assert_eq!(value.trim_ascii().len(), value.len());
    }
    match request.form {
        TargetForm::Origin => assert!(request.path().starts_with(b"/")),
        TargetForm::Absolute => assert!(!request.authority().is_empty()),
        TargetForm::Authority => assert_eq!(request.method, Method::Connect),
        TargetForm::Asterisk => assert_eq!(request.path(), b"*"),
    }
    let anew = write(&request);
    let (again, facts_again) = parse_request(&anew, limits).unwrap();
    assert_eq!(facts, facts_again, "{}", as_text(&anew));
    assert_eq!(request.path(), again.path());
    assert_eq!(request.query(), again.query());
    assert_eq!(request.authority(), again.authority());
    assert!(request.fields().eq(again.fields()));
}

/// Whatever is taken here, the parser of most Rust servers takes as well, and understands alike.
fn check_second_opinion(head: &[u8], request: &Request) {
    let mut fields = [httparse::EMPTY_HEADER; 128];
    let mut other = httparse::Request::new(&mut fields);
    let parsed = other.parse(head);
    if head
        .windows(8)
        .any(|text| text.starts_with(b"HTTP/1.") && text[7] > b'1')
    {
        return; // it does not take minor versions beyond 1
    }
    assert!(
        matches!(parsed, Ok(httparse::Status::Complete(_))),
        "{parsed:?}: {}",
        as_text(head)
    );
    assert_eq!(other.method.map(str::as_bytes), Some(request.method_name()));
    assert_eq!(other.path.map(str::as_bytes), Some(request.target()));
    let theirs = other
        .headers
        .iter()
        .map(|field| (field.name.as_bytes(), field.value));
    assert!(request.fields().eq(theirs), "{}", as_text(head));
}

fn write(request: &Request) -> Vec<u8> {
    let version = match request.version {
        Version::Http10 => "HTTP/1.0",
        Version::Http11 => "HTTP/1.1",
        Version::Http2 => panic!("a head of HTTP/1"),
    };
    let mut head = [request.method_name(), b" ", request.target()].concat();
    head.extend_from_slice(format!(" {version}\r\n").as_bytes());
    for (name, value) in request.fields() {
        head.extend([name, b":", value, b"\r\n"].concat());
    }
    head.extend_from_slice(b"\r\n");
    head
}
