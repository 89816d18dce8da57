//! Any bytes as condition fields: each decision has the field that calls for it, and naming the
//! current version changes it as the standard says.
//!
//! The first line holds one letter for the method and the current ETag; each further line a letter
//! for the field (`m` If-Match, `n` If-None-Match, `u` If-Unmodified-Since, `s`
//! If-Modified-Since, `r` If-Range) and its value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loadline_fuzz::content::conditional::{Decision, Validators, evaluate};
use loadline_fuzz::{as_text, first_line};
use loadline_proto::{Limits, Method, http1};

/// "Sun, 06 Nov 1994 08:49:37 GMT", which the seeds ask about.
const MODIFIED_SECONDS: u64 = 784_111_777;

type Field<'i> = (u8, &'i [u8]);

fuzz_target!(|bytes: &[u8]| {
    let (line, rest) = first_line(bytes);
    let (method, etag) = match line.split_first() {
        Some((b'g', etag)) => (Method::Get, etag),
        Some((b'h', etag)) => (Method::Head, etag),
        Some((b'p', etag)) => (Method::Put, etag),
        Some((_, etag)) => (Method::Options, etag),
        None => return,
    };
    let is_tag = |text: &[u8]| {
        text.iter()
            .all(|byte| *byte > b' ' && !b"\"\x7f".contains(byte))
    };
    let etag = [b"\"", etag, b"\""].concat();
    let etag = (is_tag(&etag[1..etag.len() - 1])).then_some(&etag[..]);
    let validators = Validators {
        etag,
        modified_seconds: Some(MODIFIED_SECONDS),
        is_date_shared: bytes.len() & 2 != 0,
        now_seconds: MODIFIED_SECONDS + bytes.len() as u64 % 2,
    };
    let lines = rest.split(|byte| *byte == b'\n');
    let fields: Vec<Field<'_>> = lines
        .filter_map(|line| line.split_first())
        .map(|(letter, value)| (*letter, value.trim_ascii()))
        .collect();
    let Some(decision) = decide(method, &fields, &validators) else {
        return;
    };
    check(method, &fields, &validators, decision, bytes);
    if let Some(etag) = etag {
        check_current_tag(method, &fields, &validators, etag);
    }
});

/// `None`: no request has such values.
fn decide(method: Method, fields: &[Field<'_>], validators: &Validators<'_>) -> Option<Decision> {
    let mut head = format!("{} / HTTP/1.1\r\nHost: a\r\n", method.as_str()).into_bytes();
    for (letter, value) in fields {
        let name: &[u8] = match letter {
            b'm' => b"If-Match: ",
            b'n' => b"If-None-Match: ",
            b'u' => b"If-Unmodified-Since: ",
            b's' => b"If-Modified-Since: ",
            b'r' => b"If-Range: ",
            _ => continue,
        };
        head.extend([name, *value, b"\r\n"].concat());
    }
    head.extend(b"\r\n");
    let (request, _) = http1::parse_request(&head, &Limits::default()).ok()?;
    Some(evaluate(&request, validators))
}

fn values<'f>(fields: &'f [Field<'f>], letter: u8) -> impl Iterator<Item = &'f [u8]> {
    fields
        .iter()
        .filter(move |(of, _)| *of == letter)
        .map(|(_, value)| *value)
}

fn check(
    method: Method,
    fields: &[Field<'_>],
    validators: &Validators<'_>,
    decision: Decision,
    input: &[u8],
) {
    let has = |letter| values(fields, letter).next().is_some();
    match decision {
        Decision::Proceed { range } => {
            assert!(!range || method == Method::Get);
            if let (true, Some(value)) = (range, values(fields, b'r').next()) {
                let names_version = Some(value) == validators.etag;
                let is_date = !value.starts_with(b"\"") && !value.starts_with(b"W/");
                let is_strong =
                    validators.now_seconds > MODIFIED_SECONDS && !validators.is_date_shared;
                assert!(names_version || is_date && is_strong, "{}", as_text(input));
            }
        }
        Decision::NotModified => {
            assert!(matches!(method, Method::Get | Method::Head));
            assert!(has(b'n') || has(b's'), "{}", as_text(input));
        }
        Decision::PreconditionFailed => {
            assert_ne!(method, Method::Options);
            let is_read = method != Method::Put;
            assert!(
                has(b'm') || has(b'u') || !is_read && has(b'n'),
                "{}",
                as_text(input)
            );
        }
    }
}

/// The current tag on a line more: If-Match is met, If-None-Match is not.
fn check_current_tag<'f>(
    method: Method,
    fields: &[Field<'f>],
    validators: &Validators<'_>,
    etag: &'f [u8],
) {
    let with = |field: Field<'f>| {
        let mut fields: Vec<Field<'f>> = fields
            .iter()
            .filter(|field| field.1 != b"*")
            .copied()
            .collect();
        fields.push(field);
        decide(method, &fields, validators)
    };
    if method == Method::Options {
        return;
    }
    if !values(fields, b'n').any(|_| true) {
        let decision = with((b'm', etag));
        assert_ne!(decision, Some(Decision::PreconditionFailed));
    }
    let decision = with((b'n', etag));
    assert!(!matches!(decision, Some(Decision::Proceed { .. })));
}
