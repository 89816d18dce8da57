//! Messages whose end could be read in two ways, and other malformed ones: each is refused with
//! the right status, the connection ends, and what follows is never taken for a request.

use crate::drive::refused::{Case, check_all, post, raw};

#[test]
fn content_length_in_every_bad_form() {
    let mut cases = vec![
        post(
            b"Content-Length: 5\r\nContent-Length: 6\r\n",
            b"hello",
            &[400],
        ),
        post(
            b"Content-Length: 5\r\nContent-Length: 5\r\n",
            b"hello",
            &[400],
        ),
        post(
            b"Content-Length: 5\r\ncontent-length: 0\r\n",
            b"hello",
            &[400],
        ),
        post(
            b"Content-Length: 0\r\nContent-Length: 5\r\n",
            b"hello",
            &[400],
        ),
        // Beyond 64 bits: no number that this server could count to.
        post(
            b"Content-Length: 18446744073709551616\r\n",
            b"hello",
            &[400],
        ),
        post(
            b"Content-Length: 18446744073709551621\r\n",
            b"hello",
            &[400],
        ),
        post(
            b"Content-Length: 99999999999999999999999999999999999999999\r\n",
            b"hello",
            &[400],
        ),
    ];
    let bad_values: &[&[u8]] = &[
        b"",
        b" ",
        b"+5",
        b"-5",
        b"-0",
        b"+0",
        b"5,5",
        b"5, 5",
        b"5,6",
        b"5,",
        b",5",
        b"5;5",
        b"5 5",
        b"0 5",
        b"5 0",
        b"0x5",
        b"5h",
        b"h5",
        b"five",
        b"5.0",
        b"5e0",
        b"\"5\"",
        b"'5'",
        b"5_0",
        b"1_0",
        b"0b1",
        b"5\x0b",
        b"\x0b5",
        b"5\x0c",
        b"5\xa0",
        b"\xef\xbc\x95",
        b"\xd9\xa5",
        b"5%",
        b"(5)",
        b"5\x7f",
        b"Infinity",
        b"NaN",
    ];
    for value in bad_values {
        let line = [b"Content-Length: ", *value, b"\r\n"].concat();
        cases.push(post(&line, b"hello", &[400]));
    }
    check_all(&cases);
}

#[test]
fn transfer_encoding_in_every_bad_form() {
    let chunked = b"5\r\nhello\r\n0\r\n\r\n";
    let mut cases = Vec::new();
    // RFC 9112 section 6.3: chunked is not the last, so the end cannot be known: 400. Section 6.1
    // on codings that are not known: 501. Where both apply, either is right.
    let values: &[(&[u8], &'static [u16])] = &[
        (b"", &[400]),
        (b" ", &[400]),
        (b"chunked, chunked", &[400]),
        (b"chunked,chunked", &[400]),
        (b"chunked, identity", &[400, 501]),
        (b"chunked, gzip", &[400, 501]),
        (b"identity", &[400, 501]),
        (b"gzip", &[400, 501]),
        (b"xchunked", &[400, 501]),
        (b"chunkedx", &[400, 501]),
        (b"chunke", &[400, 501]),
        (b"x-chunked", &[400, 501]),
        (b"chunked-x", &[400, 501]),
        (b"\"chunked\"", &[400, 501]),
        (b"'chunked'", &[400, 501]),
        (b"chunked;q=1", &[400, 501]),
        (b"chunked; foo=bar", &[400, 501]),
        (b"chunked chunked", &[400, 501]),
        (b"chunked 5", &[400, 501]),
        (b"ch unked", &[400, 501]),
        (b"chunked/1", &[400, 501]),
        (b"gzip, chunked", &[501]),
        (b"deflate, chunked", &[501]),
        (b"identity, chunked", &[501, 400]),
        (b"foo, chunked", &[501]),
        (b"foo;a=\"b, chunked\"", &[400, 501]),
        (b"\x0bchunked", &[400, 501]),
        (b"chunked\x0b", &[400, 501]),
        (b"\x00chunked", &[400]),
        (b"chunked\x00", &[400]),
        (b"chunked\x0c", &[400, 501]),
        (b"\xa0chunked", &[400, 501]),
        (b"chun\xc5\xbfked", &[400, 501]),
        // U+212A, the Kelvin sign: a k for whoever folds case beyond ASCII.
        (b"chun\xe2\x84\xaaed", &[400, 501]),
    ];
    for (value, statuses) in values {
        let line = [b"Transfer-Encoding: ", *value, b"\r\n"].concat();
        cases.push(post(&line, chunked, statuses));
    }
    cases.extend([
        post(
            b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            chunked,
            &[400],
        ),
        post(
            b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
            chunked,
            &[400, 501],
        ),
        post(
            b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
            chunked,
            &[400, 501],
        ),
        post(
            b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
            chunked,
            &[400, 501],
        ),
        post(
            b"Transfer-Encoding:\r\nTransfer-Encoding: chunked\r\n",
            chunked,
            &[400],
        ),
        // White space that some take for part of the name and some do not.
        post(b"Transfer-Encoding : chunked\r\n", chunked, &[400]),
        post(b"Transfer-Encoding\t: chunked\r\n", chunked, &[400]),
        post(b" Transfer-Encoding: chunked\r\n", chunked, &[400]),
        post(b"X: y\r\n Transfer-Encoding: chunked\r\n", chunked, &[400]),
        post(b"Transfer-Encoding:\r\n chunked\r\n", chunked, &[400]),
        post(
            b"Transfer-Encoding: chunked\r\n , identity\r\n",
            chunked,
            &[400],
        ),
        post(b"Transfer-Encoding\x00: chunked\r\n", chunked, &[400]),
        post(b"X: y\rTransfer-Encoding: chunked\r\n", chunked, &[400]),
        post(b"X: y\nTransfer-Encoding: chunked\r\n", chunked, &[400]),
        post(b"X: y\n\nTransfer-Encoding: chunked\r\n", chunked, &[400]),
    ]);
    // HTTP/1.0 has no transfer codings: the framing is faulty (RFC 9112 section 6.1).
    for lines in [
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n",
        "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n",
    ] {
        let bytes = format!("POST / HTTP/1.0\r\nHost: h\r\n{lines}\r\n5\r\nhello\r\n0\r\n\r\n");
        cases.push(raw(bytes.as_bytes(), &[400, 501]));
    }
    check_all(&cases);
}

#[test]
fn both_framings_at_once() {
    let chunked = b"5\r\nhello\r\n0\r\n\r\n";
    check_all(&[
        post(
            b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            chunked,
            &[400],
        ),
        post(
            b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            chunked,
            &[400],
        ),
        post(
            b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n",
            chunked,
            &[400],
        ),
        post(
            b"Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
            chunked,
            &[400],
        ),
        post(
            b"Transfer-Encoding: chunked\r\nContent-Length: x\r\n",
            chunked,
            &[400],
        ),
        post(
            b"Transfer-Encoding: chunked\r\nContent-Length:\r\n",
            chunked,
            &[400],
        ),
        post(
            b"Transfer-Encoding: identity\r\nContent-Length: 5\r\n",
            b"hello",
            &[400, 501],
        ),
        post(
            b"Transfer-Encoding: gzip, chunked\r\nContent-Length: 5\r\n",
            chunked,
            &[400, 501],
        ),
        post(
            b"Transfer-Encoding:\r\nContent-Length: 5\r\n",
            b"hello",
            &[400],
        ),
        raw(
            b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            &[400],
        ),
        raw(
            b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-Length: 4\r\n\r\nhello",
            &[400],
        ),
    ]);
}

#[test]
fn malformed_chunks() {
    let line = b"Transfer-Encoding: chunked\r\n";
    let bad: &[&[u8]] = &[
        // Sizes.
        b"\r\nhello\r\n0\r\n\r\n",
        b" \r\nhello\r\n0\r\n\r\n",
        b";ext=1\r\nhello\r\n0\r\n\r\n",
        b"x\r\nhello\r\n0\r\n\r\n",
        b"5x\r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"+5\r\nhello\r\n0\r\n\r\n",
        b"-5\r\nhello\r\n0\r\n\r\n",
        b"-0\r\n\r\n",
        b" 5\r\nhello\r\n0\r\n\r\n",
        b"\t5\r\nhello\r\n0\r\n\r\n",
        b"5 \r\nhello\r\n0\r\n\r\n",
        b"5 5\r\nhello\r\n0\r\n\r\n",
        b"5,5\r\nhello\r\n0\r\n\r\n",
        b"5.0\r\nhello\r\n0\r\n\r\n",
        b"5_\r\nhello\r\n0\r\n\r\n",
        b"5h\r\nhello\r\n0\r\n\r\n",
        b"\x005\r\nhello\r\n0\r\n\r\n",
        b"5\x00\r\nhello\r\n0\r\n\r\n",
        // Line ends.
        b"5\nhello\r\n0\r\n\r\n",
        b"5\rhello\r\n0\r\n\r\n",
        b"5\r\rhello\r\n0\r\n\r\n",
        b"5\n\rhello\r\n0\r\n\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"5\r\nhello0\r\n\r\n",
        b"5\r\nhelloX\r\n0\r\n\r\n",
        b"5\r\nhello\r0\r\n\r\n",
        b"5\r\nhello\r\r\n0\r\n\r\n",
        b"5\r\nhell\r\n0\r\n\r\n",
        b"4\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhello\r\n\r\n0\r\n\r\n",
        b"5\r\nhello\r\n0\n\r\n",
        b"5\r\nhello\r\n0\n\n",
        b"5\r\nhello\r\n0\r\n\n",
        b"5\r\nhello\r\n0\r\r\n",
        // Extensions may not hide a line end.
        b"5;a\nb\r\nhello\r\n0\r\n\r\n",
        b"5;a\n\r\nhello\r\n0\r\n\r\n",
        b"5;a\rb\r\nhello\r\n0\r\n\r\n",
        b"5;a\x00b\r\nhello\r\n0\r\n\r\n",
        b"5;a=\"\n\"\r\nhello\r\n0\r\n\r\n",
        b"0;a\n\r\n",
        // Trailers are field lines too.
        b"0\r\nA b\r\n\r\n",
        b"0\r\nA : b\r\n\r\n",
        b"0\r\n: b\r\n\r\n",
        b"0\r\nA: b\n\r\n",
        b"0\r\nA: b\r\n\n",
        b"0\r\nA: b\rC: d\r\n\r\n",
        b"0\r\nA: b\r\n folded\r\n\r\n",
        b"0\r\n A: b\r\n\r\n",
        b"0\r\nA: b\x00\r\n\r\n",
        // And those of the head are none (RFC 9110 section 6.5.1).
        b"0\r\nContent-Length: 5\r\n\r\n",
        b"5\r\nhello\r\n0\r\nA: b\r\ncontent-length: 50\r\n\r\n",
        b"0\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"0\r\nHOST: other\r\n\r\n",
        b"0\r\nAuthorization: Basic x\r\n\r\n",
        b"0\r\nCookie: a=b\r\n\r\n",
        b"0\r\nIf-None-Match: *\r\n\r\n",
        b"0\r\nConnection: keep-alive\r\n\r\n",
        b"0\r\nTE: trailers\r\n\r\n",
        b"0\r\nX-Forwarded-For: 127.0.0.1\r\n\r\n",
        // Behind the last chunk comes nothing else.
        b"0junk\r\n\r\n",
        b"5\r\nhello\r\n0\r\njunk\r\n\r\n",
        b"5\r\nhello\r\n0\r\n\rX",
    ];
    let mut cases: Vec<Case> = bad
        .iter()
        .map(|content| post(line, content, &[400]))
        .collect();
    // Overflow: sixteen digits are all that 64 bits hold.
    for size in [
        "10000000000000000",
        "10000000000000005",
        "fffffffffffffffff",
        "100000000000000000000000000000005",
        "ffffffffffffffff",
        "8000000000000000",
        "7fffffffffffffff",
    ] {
        // Enough to pass the limit, for those that 64 bits can hold.
        let content = format!("{size}\r\n{}", "x".repeat(1001));
        cases.push(post(line, content.as_bytes(), &[400, 413]));
    }
    // Sums that overflow.
    cases.push(post(
        line,
        b"5\r\nhello\r\n10000000000000000\r\nx\r\n0\r\n\r\n",
        &[400],
    ));
    // Beyond the limits: of the line, of the trailer section, of the content.
    let zeros = format!("{}5\r\nhello\r\n0\r\n\r\n", "0".repeat(100));
    cases.push(post(line, zeros.as_bytes(), &[400, 431]));
    let extension = format!("5;{}\r\nhello\r\n0\r\n\r\n", "a".repeat(100));
    cases.push(post(line, extension.as_bytes(), &[400, 413, 431]));
    let endless = format!("5;{}", "a".repeat(200));
    cases.push(post(line, endless.as_bytes(), &[400, 413, 431]));
    let trailers = format!("0\r\n{}\r\n", "Name: value\r\n".repeat(20));
    cases.push(post(line, trailers.as_bytes(), &[400, 413, 431]));
    let content = "64\r\n".to_owned() + &"x".repeat(100) + "\r\n";
    let content = content.repeat(11) + "0\r\n\r\n";
    cases.push(post(line, content.as_bytes(), &[413]));
    check_all(&cases);
}

#[test]
fn malformed_field_lines() {
    let bad: &[&[u8]] = &[
        b"Name\r\n",
        b"Name value\r\n",
        b": value\r\n",
        b" : value\r\n",
        b"Name : value\r\n",
        b"Name\t: value\r\n",
        b"Name \t : value\r\n",
        b"Na me: value\r\n",
        b"Na\tme: value\r\n",
        b" Name: value\r\n",
        b"\tName: value\r\n",
        b"A: b\r\n folded\r\n",
        b"A: b\r\n\tfolded\r\n",
        b"A: b\r\n \r\n",
        b"A:\r\n b\r\n",
        b"Content-Length: 0\r\n 5\r\n",
        b"Content-Length:\r\n 5\r\n",
        b"Na(me: value\r\n",
        b"Na\"me: value\r\n",
        b"Na/me: value\r\n",
        b"Na@me: value\r\n",
        b"Na[me]: value\r\n",
        b"Na{me}: value\r\n",
        b"Na,me: value\r\n",
        b"Na;me: value\r\n",
        b"Na=me: value\r\n",
        b"Na\xc3\xa4me: value\r\n",
        b"Na\x80me: value\r\n",
        b"Na\x00me: value\r\n",
        b"Na\x7fme: value\r\n",
        b"\x00: value\r\n",
        b"Name: va\x00lue\r\n",
        b"Name: \x00\r\n",
        b"Name: value\x00\r\n",
        // A bare CR or LF is no line end and no character of a value.
        b"Name: va\rlue\r\n",
        b"Name: va\nlue\r\n",
        b"Name: value\n",
        b"Name: value\r",
        b"Name: value\r\r\n",
        b"Name: value\n\r\n",
        b"Name: value\nOther: value\r\n",
        b"Name: value\rOther: value\r\n",
        b"Name\r: value\r\n",
        b"Name\n: value\r\n",
        b"\rName: value\r\n",
        b"\n",
        b"\r",
        b"A: b\r\n\nC: d\r\n",
        b"A: b\r\n\rC: d\r\n",
    ];
    let cases: Vec<Case> = bad.iter().map(|lines| post(lines, b"", &[400])).collect();
    check_all(&cases);
}
