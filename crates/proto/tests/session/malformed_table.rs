//! Malformed request lines and Hosts, and what is too large: refused with the right status, and
//! the connection ends.

use crate::drive::refused::{Case, check_all, post, raw};
use crate::drive::{Driver, parse_answers};

#[test]
fn malformed_request_lines() {
    let bad: &[(&[u8], &'static [u16])] = &[
        (b"GET\r\n", &[400]),
        (b"GET \r\n", &[400]),
        (b"GET /\r\n", &[400]),
        (b"GET / \r\n", &[400]),
        (b"GET HTTP/1.1\r\n", &[400]),
        (b"GET  HTTP/1.1\r\n", &[400]),
        (b"/ HTTP/1.1\r\n", &[400]),
        (b" GET / HTTP/1.1\r\n", &[400]),
        (b"\tGET / HTTP/1.1\r\n", &[400]),
        (b"GET  / HTTP/1.1\r\n", &[400]),
        (b"GET /  HTTP/1.1\r\n", &[400]),
        (b"GET\t/ HTTP/1.1\r\n", &[400]),
        (b"GET /\tHTTP/1.1\r\n", &[400]),
        (b"GET / HTTP/1.1 \r\n", &[400, 505]),
        (b"GET / HTTP/1.1\t\r\n", &[400, 505]),
        (b"GET / HTTP/1.1 x\r\n", &[400, 505]),
        (b"GET /a b HTTP/1.1\r\n", &[400]),
        (b"GET /\x0bHTTP/1.1\r\n", &[400]),
        (b"GET / HTTP/1.1\n", &[400]),
        (b"GET / HTTP/1.1\r", &[400]),
        (b"GET / HTTP/1.1\r\r\n", &[400]),
        (b"GET / HTTP/1.1\n\r\n", &[400]),
        (b"GET /\rHTTP/1.1\r\n", &[400]),
        (b"GET /\nHTTP/1.1\r\n", &[400]),
        (b"GET /\r\nHTTP/1.1\r\n", &[400]),
        (b"G\x00T / HTTP/1.1\r\n", &[400]),
        (b"GET /\x00 HTTP/1.1\r\n", &[400]),
        (b"GET /a\x01b HTTP/1.1\r\n", &[400]),
        (b"GET /a\x7fb HTTP/1.1\r\n", &[400]),
        (b"GET /\xc3\xa4 HTTP/1.1\r\n", &[400]),
        (b"GET / HTTP/1.1\x00\r\n", &[400, 505]),
        (b"G@T / HTTP/1.1\r\n", &[400]),
        (b"G(T) / HTTP/1.1\r\n", &[400]),
        (b"\"GET\" / HTTP/1.1\r\n", &[400]),
        (b"G\xc3\xa4T / HTTP/1.1\r\n", &[400]),
        (b"GET path HTTP/1.1\r\n", &[400]),
        (b"GET ?query HTTP/1.1\r\n", &[400]),
        (b"GET #fragment HTTP/1.1\r\n", &[400]),
        (b"GET * HTTP/1.1\r\n", &[400]),
        (b"POST * HTTP/1.1\r\n", &[400]),
        (b"OPTIONS ** HTTP/1.1\r\n", &[400]),
        (b"GET h:80 HTTP/1.1\r\n", &[400]),
        (b"CONNECT / HTTP/1.1\r\n", &[400]),
        (b"CONNECT h HTTP/1.1\r\n", &[400]),
        (b"CONNECT h: HTTP/1.1\r\n", &[400]),
        (b"CONNECT h:x HTTP/1.1\r\n", &[400]),
        (b"CONNECT :80 HTTP/1.1\r\n", &[400]),
        (b"CONNECT * HTTP/1.1\r\n", &[400]),
        (b"CONNECT http://h:80/ HTTP/1.1\r\n", &[400]),
        (b"GET http:///path HTTP/1.1\r\n", &[400]),
        (b"GET http:// HTTP/1.1\r\n", &[400]),
        (b"GET ://h/ HTTP/1.1\r\n", &[400]),
        (b"GET http:/h/ HTTP/1.1\r\n", &[400]),
        (b"GET http://h:x/ HTTP/1.1\r\n", &[400]),
        (b"GET http://user@h/ HTTP/1.1\r\n", &[400]),
        (b"GET http://h h/ HTTP/1.1\r\n", &[400]),
        // Ports that there cannot be.
        (b"GET http://h:65536/ HTTP/1.1\r\n", &[400]),
        (b"GET http://h:99999/ HTTP/1.1\r\n", &[400]),
        (b"GET http://h:0/ HTTP/1.1\r\n", &[400]),
        (b"GET http://[::1]:65536/ HTTP/1.1\r\n", &[400]),
        (b"GET http://h:18446744073709551696/ HTTP/1.1\r\n", &[400]),
        (b"GET https://h:65536/ HTTP/1.1\r\n", &[400]),
        (b"CONNECT h:65536 HTTP/1.1\r\n", &[400]),
        (b"CONNECT h:0 HTTP/1.1\r\n", &[400]),
        (b"GET http://h%2f/ HTTP/1.1\r\n", &[400]),
        (b"GET http://h%/ HTTP/1.1\r\n", &[400]),
        (b"GET http://h%00/ HTTP/1.1\r\n", &[400]),
        // What another scheme names is not here (RFC 9110 section 7.4).
        (b"GET https://h/ HTTP/1.1\r\n", &[421]),
        (b"GET HTTPS://h:443/a?b HTTP/1.1\r\n", &[421]),
        (b"POST https://h/ HTTP/1.0\r\n", &[421]),
        (b"OPTIONS https://[::1]:8443 HTTP/1.1\r\n", &[421]),
        (b"GET https:///path HTTP/1.1\r\n", &[400]),
        (b"GET ftp://h/ HTTP/1.1\r\n", &[400]),
        // The version: names are case-sensitive, digits single.
        (b"GET / http/1.1\r\n", &[400, 505]),
        (b"GET / Http/1.1\r\n", &[400, 505]),
        (b"GET / HTTP/1\r\n", &[400, 505]),
        (b"GET / HTTP/1.\r\n", &[400, 505]),
        (b"GET / HTTP/.1\r\n", &[400, 505]),
        (b"GET / HTTP/11\r\n", &[400, 505]),
        (b"GET / HTTP/1.10\r\n", &[400, 505]),
        (b"GET / HTTP/01.1\r\n", &[400, 505]),
        (b"GET / HTTP/1.x\r\n", &[400, 505]),
        (b"GET / HTTP/1,1\r\n", &[400, 505]),
        (b"GET / HTTP/-1.1\r\n", &[400, 505]),
        (b"GET / HTTP 1.1\r\n", &[400, 505]),
        (b"GET / HTTPS/1.1\r\n", &[400, 505]),
        (b"GET / SPDY/1.1\r\n", &[400, 505]),
        (b"GET / HTTP/0.9\r\n", &[505]),
        (b"GET / HTTP/2.0\r\n", &[505]),
        (b"GET / HTTP/3.0\r\n", &[505]),
        (b"GET / HTTP/9.9\r\n", &[505]),
    ];
    let cases: Vec<Case> = bad
        .iter()
        .map(|(line, statuses)| raw(&[*line, b"Host: h\r\n\r\n"].concat(), statuses))
        .collect();
    check_all(&cases);
}

#[test]
fn methods_that_nobody_knows() {
    // Well-formed, so the connection may stay.
    for method in [
        "BREW",
        "get",
        "Get",
        "GETX",
        "GE",
        "PROPFIND",
        "!#$%&'*+-.^_`|~",
    ] {
        let bytes = format!("{method} / HTTP/1.1\r\nHost: h\r\n\r\n");
        let mut whole = Driver::echo();
        whole.feed(bytes.as_bytes());
        assert_eq!(whole.statuses(), [501], "{method}");
        let mut dripped = Driver::echo();
        dripped.drip(bytes.as_bytes());
        assert_eq!(dripped.output, whole.output, "{method}");
    }
}

#[test]
fn the_preface_of_http_2_is_refused() {
    check_all(&[
        raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[505]),
        raw(b"PRI * HTTP/2.0\n\nSM\n\n", &[505]),
    ]);
}

/// How much of `bytes` comes before the connection is answered, byte by byte, and how.
fn refused_after(bytes: &[u8]) -> (usize, Vec<u16>) {
    let mut driver = Driver::echo();
    let sent = bytes.iter().take_while(|byte| {
        driver.feed(std::slice::from_ref(byte));
        driver.output.is_empty()
    });
    let sent = sent.count() + 1;
    assert!(driver.is_lingering() && driver.answers()[0].closes());
    (sent, driver.statuses())
}

#[test]
fn other_protocols_are_refused_as_soon_as_they_are_recognised() {
    assert_eq!(refused_after(b"PRI * HTTP/2.0\r\n\r\nSM"), (14, vec![505]));
    assert_eq!(refused_after(b"SSH-2.0-OpenSSH_9.9\r\n"), (4, vec![400]));
    assert_eq!(refused_after(b"\x16\x03\x01\x02\x00"), (1, vec![400]));
    // Behind an empty line, too, and where a connection has served before.
    assert_eq!(refused_after(b"\r\n\x16\x03\x01"), (3, vec![400]));
    assert_eq!(refused_after(b"\r\n\r\nSSH-2"), (8, vec![400]));
    let mut driver = Driver::echo();
    driver.feed(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n\x16");
    assert_eq!(driver.statuses(), [200, 400]);
}

#[test]
fn a_first_byte_that_no_method_begins_with_is_refused_at_once() {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    for byte in 0..=255_u8 {
        let mut driver = Driver::echo();
        driver.feed(&[byte]);
        if is_token(byte) || byte == b'\r' {
            assert!(driver.output.is_empty() && driver.reading == Some(true));
            continue;
        }
        assert_eq!(driver.statuses(), [400], "{byte:#x}");
        assert!(driver.is_lingering());
    }
    // Half of an empty line is the other half away from a request.
    assert_eq!(refused_after(b"\rG"), (2, vec![400]));
    // Methods that begin as other protocols do.
    for method in ["PRI", "PRIX", "SSH", "SSHX", "S", "P"] {
        let mut driver = Driver::echo();
        driver.drip(format!("{method} / HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
        assert_eq!(driver.statuses(), [501], "{method}");
    }
}

#[test]
fn a_tls_client_hello_is_refused() {
    let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00\r\n\r\n";
    check_all(&[raw(hello, &[400])]);
}

#[test]
fn host_rules() {
    let request = |lines: &str| format!("GET / HTTP/1.1\r\n{lines}\r\n").into_bytes();
    let mut cases = vec![
        raw(&request(""), &[400]),
        raw(&request("Hos: h\r\n"), &[400]),
        raw(&request("X-Host: h\r\n"), &[400]),
        raw(&request("Host: h\r\nHost: h\r\n"), &[400]),
        raw(&request("Host: h\r\nhost: i\r\n"), &[400]),
        raw(&request("Host:\r\nHost: h\r\n"), &[400]),
        raw(b"GET / HTTP/1.0\r\nHost: h\r\nHost: h\r\n\r\n", &[400]),
        raw(b"GET http://h/ HTTP/1.1\r\n\r\n", &[400]),
        raw(
            b"GET http://h/ HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n",
            &[400],
        ),
        raw(b"OPTIONS * HTTP/1.1\r\n\r\n", &[400]),
        raw(b"CONNECT h:80 HTTP/1.1\r\n\r\n", &[400]),
    ];
    for value in [
        "a b",
        "a/b",
        "a\\b",
        "h:x",
        "h:80:80",
        "h:-1",
        "h: 80",
        "user@h",
        "h?q",
        "h#f",
        "[::1",
        "::1]",
        "http://h",
        "<h>",
        "\"h\"",
        "h^i",
        "h{}",
        "h|i",
        "h`",
        // Ports that there cannot be.
        "h:0",
        "h:65536",
        "h:99999",
        "h:100000",
        "[::1]:65536",
        // Escapes that are malformed, or stand for NUL, a delimiter, or no UTF-8.
        "%",
        "h%",
        "h%4",
        "h%zz",
        "h%4g.example",
        "%%41",
        "h%00",
        "a%00b",
        "h%2F",
        "a%3ab",
        "h%40i",
        "h%3F",
        "h%23",
        "%5B::1%5D",
        "h%2C",
        "h%3b",
        "h%26i",
        "h%25",
        "h%20",
        "h%0d%0a",
        "h%5c",
        "h%7F",
        "h%80",
        "%C3",
        "%C3x",
        "h%c0%af",
        "h%ED%A0%80",
        "h%ff:80",
    ] {
        cases.push(raw(&request(&format!("Host: {value}\r\n")), &[400]));
    }
    cases.push(raw(b"GET / HTTP/1.1\r\nHost: h\xc3\xa4\r\n\r\n", &[400]));
    check_all(&cases);
}

#[test]
fn what_is_too_large() {
    let mut cases = Vec::new();
    let target = format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(256));
    cases.push(raw(target.as_bytes(), &[414]));
    let absolute = format!(
        "GET http://h/{} HTTP/1.1\r\nHost: h\r\n\r\n",
        "a".repeat(250)
    );
    cases.push(raw(absolute.as_bytes(), &[414]));
    // Longer than the whole head may be: known before its end has come.
    let endless = format!("GET /{}", "a".repeat(2000));
    cases.push(raw(endless.as_bytes(), &[414]));
    let method = format!("{} / HTTP/1.1\r\nHost: h\r\n\r\n", "A".repeat(2000));
    cases.push(raw(method.as_bytes(), &[400, 414, 431, 501]));
    let value = format!(
        "GET / HTTP/1.1\r\nHost: h\r\nA: {}\r\n\r\n",
        "a".repeat(1024)
    );
    cases.push(raw(value.as_bytes(), &[431]));
    let name = format!(
        "GET / HTTP/1.1\r\nHost: h\r\n{}: a\r\n\r\n",
        "a".repeat(1024)
    );
    cases.push(raw(name.as_bytes(), &[431]));
    let unfinished = format!("GET / HTTP/1.1\r\nHost: h\r\nA: {}", "a".repeat(2000));
    cases.push(raw(unfinished.as_bytes(), &[431]));
    let many = format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "A: b\r\n".repeat(8));
    cases.push(raw(many.as_bytes(), &[431]));
    let empty_lines = "\r\n".repeat(2000);
    cases.push(raw(empty_lines.as_bytes(), &[400, 431]));
    cases.push(post(b"Content-Length: 1001\r\n", &[b'x'; 1001], &[413]));
    cases.push(post(
        b"Content-Length: 18446744073709551615\r\n",
        b"x",
        &[413],
    ));
    check_all(&cases);
}

/// Refused before its method was looked at, HEAD got content.
#[test]
fn a_head_request_that_is_refused_has_no_content() {
    let to = |target: &str| format!("HEAD {target} HTTP/1.1\r\nHost: h\r\n\r\n");
    let path = |len| format!("/{}", "a".repeat(len));
    let many = "A: b\r\n".repeat(101);
    for (request, status) in [
        (to("/\u{e4}"), 400),
        (to("path"), 400),
        (to(&path(8_000)), 414),
        (to(&path(9_000)), 414), // as soon as the line is seen to be so long
        (to("/ HTTP/2.0\r\nA:"), 505),
        (to("/ HTTP/1.1\nA:"), 400),
        (format!("HEAD / HTTP/1.1\r\nHost: h\r\n{many}\r\n"), 431),
    ] {
        let mut driver = Driver::echo();
        driver.feed(request.as_bytes());
        // Reads anything behind the head as another answer, which it is not.
        let answers = parse_answers(&driver.output, |_| true);
        let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
        assert_eq!(statuses, [status]);
    }
}

#[test]
fn unknown_expectations() {
    check_all(&[
        post(b"Expect: 200-ok\r\n", b"", &[417]),
        post(b"Expect: 100-continue, other\r\n", b"", &[417]),
        post(b"Expect: 100-continue=yes\r\n", b"", &[417]),
        post(b"Expect: 100-continues\r\n", b"", &[417]),
        post(b"Expect: other\r\nContent-Length: 5\r\n", b"hello", &[417]),
    ]);
}
