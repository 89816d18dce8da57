//! A request over HTTP/2 is the one that HTTP/1 makes of the same fields, or is refused with the same fault.

use std::borrow::Cow;

use super::tests::request as decoded;
use super::*;

/// The head with which HTTP/1 would send them.
fn written(fields: &[(&str, &str)]) -> String {
    let values = |wanted: &'static str| {
        let same = fields.iter().filter(move |(name, _)| *name == wanted);
        same.map(|(_, value)| *value)
    };
    let authority = values(":authority").next();
    let method = values(":method").next().unwrap_or_default();
    let target = values(":path").next().or(authority).unwrap_or_default();
    let mut head = format!("{method} {target} HTTP/1.1\r\n");
    if let Some(authority) = authority {
        head += &format!("host: {authority}\r\n");
    }
    for (name, value) in fields {
        if !name.starts_with(':') && *name != "cookie" {
            head += &format!("{name}: {value}\r\n");
        }
    }
    let cookies: Vec<_> = values("cookie").collect();
    if !cookies.is_empty() {
        head += &format!("cookie: {}\r\n", cookies.join("; "));
    }
    head + "\r\n"
}

fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// All that a handler sees of the head but its version.
fn seen(request: &Request) -> String {
    let fields = request.fields();
    let fields: Vec<_> = fields
        .map(|(name, value)| (text(name), text(value)))
        .collect();
    let parts = (
        text(request.method_name()),
        request.form,
        text(request.target()),
        text(request.path()),
        request.query().map(text),
        text(request.authority()),
        request.known,
        fields,
    );
    format!("{parts:?}")
}

fn compare(fields: &[(&str, &str)]) {
    let head = written(fields);
    let theirs = http1::parse_request(head.as_bytes(), &Limits::default());
    match (decoded(fields), theirs) {
        (Ok((ours, our_facts)), Ok((theirs, their_facts))) => {
            assert_eq!(seen(&ours), seen(&theirs), "{fields:?}");
            assert_eq!(ours.method, theirs.method, "{fields:?}");
            assert_eq!(our_facts.framing, their_facts.framing, "{fields:?}");
            assert_eq!(our_facts.persist, their_facts.persist, "{fields:?}");
            let line = text(theirs.line()).replace("HTTP/1.1", "HTTP/2.0");
            assert_eq!(text(ours.line()), line);
        }
        (Err(RequestError::Refused(ours)), Err(theirs)) => {
            assert_eq!(ours, theirs, "{fields:?}");
        }
        (ours, theirs) => panic!("{fields:?}: {ours:?}, and in HTTP/1 {theirs:?}"),
    }
}

const METHODS: [&str; 6] = ["GET", "HEAD", "OPTIONS", "BREW", "SSH-2.0", "PRI"];
const PATHS: [&str; 7] = ["/", "/a?b=c?d", "/?", "/a?b#c", "/\u{e4}", "*", "/%"];
const AUTHORITIES: [&str; 6] = ["h", "h:80", "[::1]:81", "h:x", "h\x01", "\u{e9}"];

/// What may follow, each in several fields.
const MORE: [&[(&str, &str)]; 17] = [
    &[],
    &[("user-agent", "x y"), ("accept", "*/*"), ("x-y", "")],
    &[("cookie", "a=b"), ("accept", "*"), ("cookie", "c=d")],
    &[("cookie", "a=b"), ("cookie", "")],
    &[("cookie", "a=b\x02"), ("a", "\x01")],
    &[("cookie", "a=b\x02"), ("content-length", "x")],
    &[("content-length", "3")],
    &[("content-length", "0"), ("if-none-match", "\"a\"")],
    &[("content-length", "3"), ("content-length", "3")],
    &[("content-length", "99999999999999999999")],
    &[("expect", "100-continue"), ("content-length", "1")],
    &[("expect", "200-ok")],
    &[("expect", "200-ok"), ("content-length", "-1")],
    &[("a", "0123456\t89"), ("b", "\u{e9}")],
    &[("a", "0123456789\x1f"), ("expect", "200-ok")],
    &[("a", "\x7f"), ("content-length", "x")],
    &[("te", "trailers"), ("priority", "u=1"), ("dnt", "1")],
];

#[test]
fn every_target_and_host_with_any_fields() {
    let twice = [("host", "h"); 2];
    for method in METHODS {
        for path in PATHS {
            let line = [(":method", method), (":scheme", "http"), (":path", path)];
            for more in MORE {
                for authority in AUTHORITIES {
                    compare(&[&line[..], &[(":authority", authority)], more].concat());
                    compare(&[&line[..], &[("host", authority)], more].concat());
                }
                compare(&[&line[..], more].concat());
                compare(&[&line[..], &twice, more].concat());
            }
        }
    }
}

#[test]
fn targets_of_connect_and_long_ones() {
    for authority in ["h:443", "h", "h:x", "[::1]:1", "\u{e9}:1", "a#b:1", "*"] {
        for more in MORE {
            let line = [(":method", "CONNECT"), (":authority", authority)];
            compare(&[&line[..], more].concat());
        }
    }
    for len in [7_999, 8_000] {
        let path = format!("/{}", "x".repeat(len));
        compare(&[
            (":path", path.as_str()),
            (":authority", "h"),
            (":method", "HEAD"),
            (":scheme", "http"),
        ]);
    }
}

#[test]
fn as_many_fields_as_there_may_be() {
    let line = [(":method", "GET"), (":scheme", "http"), (":path", "/")];
    let many = [("a", "b"); 100];
    for authority in ["h", "h:x", "\x01"] {
        for wrong in [0, 1, 50, 97, 98, 99] {
            let mut fields = [&line[..], &[(":authority", authority)], &many].concat();
            compare(&fields);
            fields[4 + wrong].1 = "\x01";
            compare(&fields);
            fields[4 + wrong] = ("cookie", "\x01");
            compare(&fields);
            fields.pop();
            compare(&fields);
        }
    }
}
