//! What is not an answer that a client may accept.

use super::tape::{get, play};
use loadline_proto::{Limits, Method, ReplyFault};

/// What is said of it must name what is wrong.
const TABLE: &[(&str, &str)] = &[
    // The status line.
    ("\r\nHTTP/1.1 200 OK\r\n\r\n", "does not begin"),
    ("SSH-2.0-OpenSSH_9.2\r\n", "does not begin"),
    ("S", "does not begin"),
    ("HTTP/2 200\r\n\r\n", "does not begin"),
    ("HTTP/11 200 OK\r\n\r\n", "does not begin"),
    ("http/1.1 200 OK\r\n\r\n", "does not begin"),
    ("ICY 200 OK\r\n\r\n", "does not begin"),
    ("HTTP/1.x 200 OK\r\n\r\n", "version"),
    ("HTTP/1.1\t200 OK\r\n\r\n", "version"),
    ("HTTP/1.10 200 OK\r\n\r\n", "version"),
    ("HTTP/1.1\r\n\r\n", "too short"),
    ("HTTP/1.1\r\n", "too short"),
    ("HTTP/1.1 2\r\n", "too short"),
    ("HTTP/1.1  200 OK\r\n\r\n", "three digits"),
    ("HTTP/1.1 20 OK\r\n\r\n", "three digits"),
    ("HTTP/1.1 2000 OK\r\n\r\n", "three digits"),
    ("HTTP/1.1 2x0 OK\r\n\r\n", "three digits"),
    ("HTTP/1.1 200\tOK\r\n\r\n", "three digits"),
    ("HTTP/1.1 200-OK\r\n\r\n", "three digits"),
    ("HTTP/1.1 099 OK\r\n\r\n", "outside"),
    ("HTTP/1.1 600 OK\r\n\r\n", "outside"),
    ("HTTP/1.1 000 OK\r\n\r\n", "outside"),
    ("HTTP/1.1 200 O\u{0}K\r\n\r\n", "control"),
    ("HTTP/1.1 200 O\u{7f}K\r\n\r\n", "control"),
    ("HTTP/1.1 200 O\rK\r\n\r\n", "bare CR"),
    ("HTTP/1.1 200 OK\n\r\n", "bare LF"),
    ("HTTP/1.1 101 Switching Protocols\r\n\r\n", "protocol"),
    // Field lines.
    ("HTTP/1.1 200 OK\r\n X: y\r\n\r\n", "folded"),
    ("HTTP/1.1 200 OK\r\nX: y\r\n\tz\r\n\r\n", "folded"),
    ("HTTP/1.1 200 OK\r\nX : y\r\n\r\n", "white space"),
    (
        "HTTP/1.1 200 OK\r\nX-Long-Name-Here\t: y\r\n\r\n",
        "white space",
    ),
    ("HTTP/1.1 200 OK\r\n: y\r\n\r\n", "valid name"),
    ("HTTP/1.1 200 OK\r\nX\r\n\r\n", "valid name"),
    (
        "HTTP/1.1 200 OK\r\nA-Name-Without-Colon\r\n\r\n",
        "valid name",
    ),
    ("HTTP/1.1 200 OK\r\nX(Y): z\r\n\r\n", "valid name"),
    ("HTTP/1.1 200 OK\r\nX{Y}-And-More: z\r\n\r\n", "valid name"),
    ("HTTP/1.1 200 OK\r\nH\u{e9}: z\r\n\r\n", "valid name"),
    (
        "HTTP/1.1 200 OK\r\nX\u{0}Y-And-More: z\r\n\r\n",
        "valid name",
    ),
    ("HTTP/1.1 200 OK\r\nX: y\n\r\n", "bare LF"),
    ("HTTP/1.1 200 OK\r\nX: y\r\n\n", "valid name"),
    ("HTTP/1.1 200 OK\r\nX: y\rZ: z\r\n\r\n", "bare CR"),
    ("HTTP/1.1 200 OK\r\n\rX: y\r\n\r\n", "valid name"),
    ("HTTP/1.1 200 OK\r\nX: y\u{0}\r\n\r\n", "control"),
    ("HTTP/1.1 200 OK\r\nX: y\u{1f} and so on\r\n\r\n", "control"),
    ("HTTP/1.1 200 OK\r\nX: y\u{7f} and so on\r\n\r\n", "control"),
    (
        "HTTP/1.1 200 OK\r\nConnection: a b\r\nContent-Length: 0\r\n\r\n",
        "tokens",
    ),
    // Framing.
    (
        "HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n",
        "not a number",
    ),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "not a number",
    ),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
        "not a number",
    ),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 1 2\r\n\r\n",
        "not a number",
    ),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n",
        "not a number",
    ),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 0x5\r\n\r\n",
        "not a number",
    ),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 1234567890123456789x\r\n\r\n",
        "not a number",
    ),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\n",
        "64 bits",
    ),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
        "more than one",
    ),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "more than one",
    ),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "both",
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: x\r\nContent-Length: 5\r\n\r\n",
        "both",
    ),
    (
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.0",
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "coding",
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "coding",
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n",
        "coding",
    ),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding:\r\n\r\n", "coding"),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        "more than one",
    ),
    // Chunks.
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        "chunk size",
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\nx",
        "chunk-size line",
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n",
        "longer",
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nx\r\n\r\n",
        "trailer",
    ),
];

#[test]
fn it_is_refused_by_what_is_wrong_with_it() {
    for (bytes, expected) in TABLE {
        let outcome = get(bytes.as_bytes());
        match outcome.result {
            Err(ReplyFault::Malformed(text)) if text.contains(expected) => {}
            other => panic!("{bytes:?}: {other:?}, not {expected:?}"),
        }
        assert!(!outcome.at_eof, "{bytes:?}");
    }
}

#[test]
fn fields_after_a_slow_start_are_judged_alike() {
    // Each control character at each place of a value: behind a name, at a word's end, at the end.
    for byte in (0..0x20).chain([0x7f]) {
        for place in 0..20 {
            let mut value = *b"0123456789abcdefghij";
            value[place] = byte;
            let answer = [&b"HTTP/1.1 204 x\r\nX: "[..], &value, b"\r\n\r\n"].concat();
            assert_eq!(
                get(&answer).result.is_ok(),
                byte == b'\t',
                "{byte:#x} at {place}"
            );
        }
    }
    // Each byte at each place of a name.
    for byte in 0..=255_u8 {
        for place in 0..20 {
            let mut name = *b"Abcdefgh-ijklmnopqrZ";
            name[place] = byte;
            let answer = [&b"HTTP/1.1 204 x\r\n"[..], &name, b": y\r\n\r\n"].concat();
            let is_token = byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            let is_early_colon = byte == b':' && place > 0;
            let fine = is_token || is_early_colon;
            assert_eq!(get(&answer).result.is_ok(), fine, "{byte:#x} at {place}");
        }
    }
}

#[test]
fn text_beyond_ascii_and_empty_values_are_fine() {
    for rest in [
        "\r\nX: \u{e9}\u{fc} and more than eight\r\n",
        " \r\nX:\r\nY: \r\n",
        " Tout va bien, \u{e9}videmment\r\nX:\ty\tz\r\n",
    ] {
        let answer = format!("HTTP/1.1 204{rest}\r\n");
        assert_eq!(get(answer.as_bytes()).result.unwrap().status, 204);
    }
}

#[test]
fn heads_are_bounded() {
    let limits = Limits {
        head_bytes_max: 100,
        fields_max: 3,
        ..Limits::default()
    };
    let fault = |answer: &str| match play(Method::Get, &[answer.as_bytes()], &limits).result {
        Err(ReplyFault::Malformed(text)) => text,
        other => panic!("{other:?}"),
    };
    let fill = |len: usize| format!("HTTP/1.1 204 x\r\nX: {}\r\n\r\n", "y".repeat(len - 23));
    assert_eq!(fill(100).len(), 100);
    let fits = play(Method::Get, &[fill(100).as_bytes()], &limits);
    assert_eq!(fits.result.unwrap().status, 204);
    assert!(fault(&fill(101)).contains("larger"));
    assert!(fault(&fill(1000)).contains("larger"));
    assert!(fault(&fill(1000)[..100]).contains("larger"));
    let fields = |count| format!("HTTP/1.1 204 x\r\n{}\r\n", "A: b\r\n".repeat(count));
    let fits = play(Method::Get, &[fields(3).as_bytes()], &limits);
    assert_eq!(fits.result.unwrap().status, 204);
    assert!(fault(&fields(4)).contains("more fields"));
}

#[test]
fn chunk_lines_and_trailers_are_bounded() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for rest in [
        format!("1;{}\r\n", "x".repeat(1000)),
        format!("0\r\nX: {}\r\n", "x".repeat(10_000)),
    ] {
        let outcome = get(format!("{head}{rest}").as_bytes());
        assert!(matches!(outcome.result, Err(ReplyFault::Malformed(_))));
    }
}

#[test]
fn connect_is_not_supported() {
    let answer = b"HTTP/1.1 200 OK\r\n\r\n";
    let outcome = play(Method::Connect, &[answer], &Limits::default());
    assert!(matches!(outcome.result, Err(ReplyFault::Malformed(_))));
}
