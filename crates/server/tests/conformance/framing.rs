//! Framing as raw bytes: what is one request, what is none, and what the client reads of it.

use std::time::{Duration, Instant};

use crate::client::Client;
use crate::fixture::{Model, Server};

every_model! {
    well_formed_requests_on_one_connection,
    bad_requests_are_answered_and_end_the_connection,
    other_protocols_are_refused_at_once,
    how_much_content_is_judged_with_its_head,
    content_of_a_file_beyond_the_limit,
    an_error_is_read_though_the_client_goes_on_sending,
    cuts_at_every_byte,
    pipelined_requests_are_answered_in_order,
    bodies_of_every_framing,
    trailers_of_a_request,
    a_body_is_waited_for_with_100_continue,
    content_beyond_the_limit,
    heads_beyond_the_limits,
    http_1_0_closes_unless_asked,
    methods,
}

pub fn well_formed_requests_on_one_connection(model: Model) {
    let server = Server::start(model);
    let mut client = server.connect();
    let table = [
        ("GET /-/echo HTTP/1.1\r\nHost: h\r\n\r\n", "GET /-/echo"),
        (
            "GET /-/echo?a=b HTTP/1.1\r\nhost:h\r\n\r\n",
            "GET /-/echo?a=b",
        ),
        ("\r\nGET /-/echo HTTP/1.1\r\nHost: h\r\n\r\n", "GET /-/echo"),
        (
            "GET OWN://other/-/echo HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET OWN://other/-/echo",
        ),
        (
            "GET /-/echo HTTP/1.9\r\nHost: [::1]:80\r\n\r\n",
            "GET /-/echo",
        ),
        (
            "GET /-/echo-blocking HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET /-/echo-blocking",
        ),
        (
            "GET /-/echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
            "GET /-/echo",
        ),
    ];
    for (request, body) in table {
        let answer = client.send(with_schemes(request, &server)).answer();
        assert_eq!(answer.status, 200, "{request}");
        let body = with_schemes(body, &server);
        assert_eq!(String::from_utf8_lossy(&answer.body), body);
    }
}

/// `OWN` is the scheme of the server's connections, and `ALIEN` the other one.
fn with_schemes(text: &str, server: &Server) -> String {
    let (own, alien) = match server.tls.is_some() {
        true => ("https", "http"),
        false => ("http", "https"),
    };
    text.replace("OWN", own).replace("ALIEN", alien)
}

const BAD: [(&str, u16); 40] = [
    ("GET /\r\n\r\n", 400),
    ("GET  / HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    ("GET / HTTP/1.1\nHost: h\n\n", 400),
    ("GET / HTTP/1.1\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost : h\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: h\r\nA: b\rc\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: h\r\nA: b\0c\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: h\r\nNo colon\r\n\r\n", 400),
    ("GET * HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    ("GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505),
    (
        "POST /-/echo HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\nx",
        400,
    ),
    (
        "POST /-/echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1, 1\r\n\r\nx",
        400,
    ),
    (
        "POST /-/echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
        400,
    ),
    (
        "POST /-/echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    (
        "POST /-/echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    (
        "POST /-/echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        501,
    ),
    (
        "POST /-/echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n\r\n",
        400,
    ),
    (
        "POST /-/echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n0\r\n\r\n",
        400,
    ),
    (
        "POST /-/echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\nx\n0\n\n",
        400,
    ),
    (
        "POST /-/echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\nx",
        400,
    ),
    (
        "POST /-/echo HTTP/1.1\r\nHost: h\r\nExpect: magic\r\nContent-Length: 1\r\n\r\nx",
        417,
    ),
    ("\x16\x03\x01\x02\0\x01\0\x01\x7c\x03\x03\r\n\r\n", 400),
    ("GET ALIEN://h/ HTTP/1.1\r\nHost: h\r\n\r\n", 421),
    ("GET https://h:0/ HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    ("GET http://h:65536/ HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    ("GET http://h%2f/ HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: h:99999\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: h%\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: h%zz\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: h%00\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: h%3A80\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: h%ff\r\n\r\n", 400),
    ("SSH-2.0-OpenSSH_9.9\r\n", 400),
    // Chunked content that comes with its head, whoever was to answer.
    (
        "GET /index.html HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5;a\nb\r\nhello\r\n0\r\n\r\n",
        400,
    ),
    (
        "POST /index.html HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\njunk\r\n\r\n",
        400,
    ),
    (
        "GET /-/gate HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nHost: i\r\n\r\n",
        400,
    ),
    (
        "POST /-/later/never HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX",
        400,
    ),
];

pub fn bad_requests_are_answered_and_end_the_connection(model: Model) {
    let server = Server::start(model);
    for (bytes, status) in BAD {
        let mut client = server.connect();
        let canary = "GET /-/echo HTTP/1.1\r\nHost: h\r\n\r\n";
        let bytes = with_schemes(bytes, &server);
        let answer = client.send(&bytes).send_in_vain(canary).answer();
        assert_eq!(answer.status, status, "{bytes:?}");
        assert!(answer.closes(), "{bytes:?}");
        client.end();
    }
}

/// Nothing follows, and nothing ends: what has come is enough.
fn other_protocols_are_refused_at_once(model: Model) {
    let server = Server::start(model);
    for (bytes, status) in [
        (&b"\x16"[..], 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"SSH-", 400),
        (b"\r\n\x80", 400),
    ] {
        let mut client = server.connect();
        let begun = Instant::now();
        let answer = client.send(bytes).answer();
        assert_eq!(answer.status, status, "{}", bytes.escape_ascii());
        let took = begun.elapsed();
        assert!(
            took < Duration::from_secs(9),
            "no deadline passed: {took:?}"
        );
        client.half_close().end();
    }
}

/// The bound is the same 4 KiB of what the client sends at once, however much is received at once.
fn how_much_content_is_judged_with_its_head(model: Model) {
    let server = Server::start(model);
    for head_padding in [0, 3_900, 5_000, 20_000] {
        let head = format!(
            "GET /empty.txt HTTP/1.1\r\nHost: h\r\nA: {}\r\nTransfer-Encoding: chunked\r\n\r\n",
            "a".repeat(head_padding)
        );
        let end = head.len().next_multiple_of(4096);
        for (bad_at, status) in [(end - 1, 400), (end, 200)] {
            let content = "x".repeat(bad_at - head.len() - 6);
            let bytes = format!("{head}{:04x}\r\n{content}X", content.len());
            let mut client = server.connect();
            let answer = client.send(&bytes).answer();
            assert_eq!(answer.status, status, "{head_padding}: {bad_at}");
            client.half_close().end();
        }
    }
}

pub fn content_of_a_file_beyond_the_limit(model: Model) {
    let server = Server::start(model);
    let get = "GET /index.html HTTP/1.1\r\nHost: h\r\n";
    for _ in 0..2 {
        let mut client = server.connect();
        client.send(format!("{get}Content-Length: 1048577\r\n\r\n"));
        let answer = client.answer();
        assert_eq!((answer.status, client.is_last(&answer)), (413, true));
        client.half_close().end();
    }
    // Allowed, and more than is worth reading.
    let mut client = server.connect();
    client.send(format!("{get}Content-Length: 1048576\r\n\r\n"));
    let answer = client.answer();
    assert_eq!((answer.status, client.is_last(&answer)), (200, true));
}

fn an_error_is_read_though_the_client_goes_on_sending(model: Model) {
    let server = Server::start(model);
    for _ in 0..5 {
        let mut client = server.connect();
        client.send("BAD\r\n\r\n").send_in_vain(vec![b'x'; 300_000]);
        assert_eq!(client.answer().status, 400, "an answer, not a reset");
        client.end();
    }
}

fn cuts_at_every_byte(model: Model) {
    let server = Server::start(model);
    let bytes = "POST /-/echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc\
                 PUT /-/echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nde\r\n0\r\n\r\n\
                 GET /empty.txt HTTP/1.1\r\nHost: h\r\n\r\n";
    let mut client = server.connect();
    let check = |client: &mut Client, cut| {
        assert_eq!(client.answer().body, b"POST /-/echo abc", "cut at {cut}");
        assert_eq!(client.answer().body, b"PUT /-/echo de", "cut at {cut}");
        assert_eq!(client.answer().status, 200, "cut at {cut}");
    };
    for cut in 1..bytes.len() {
        let (left, right) = bytes.split_at(cut);
        client.send(left);
        std::thread::yield_now();
        client.send(right);
        check(&mut client, cut);
    }
    for byte in bytes.as_bytes() {
        client.send([*byte]);
    }
    check(&mut client, 0);
}

pub fn pipelined_requests_are_answered_in_order(model: Model) {
    let server = Server::start(model);
    let mut client = server.connect();
    let mut requests = String::new();
    for n in 0..200 {
        let blocking = if n % 7 == 3 { "-blocking" } else { "" };
        requests += &match n % 5 {
            0 => format!(
                "POST /-/echo{blocking}?{n} HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody"
            ),
            1 => "GET /style.css HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(),
            _ => format!("GET /-/echo{blocking}?{n} HTTP/1.1\r\nHost: h\r\n\r\n"),
        };
    }
    client.send(requests);
    for n in 0..200 {
        let answer = client.answer();
        assert_eq!(answer.status, 200);
        if n % 5 == 1 {
            assert_eq!(answer.body.len(), 5_000);
        } else {
            let body = String::from_utf8(answer.body).unwrap();
            let target = body.split(' ').nth(1).unwrap();
            assert!(target.ends_with(&format!("?{n}")), "{n}: {body}");
        }
    }
}

pub fn bodies_of_every_framing(model: Model) {
    let server = Server::start(model);
    let mut client = server.connect();
    for path in ["/-/echo", "/-/echo-blocking"] {
        for len in [0, 1, 1000, 65_536, 300_000] {
            let content = "x".repeat(len);
            let head = format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {len}\r\n\r\n");
            client.send(head).send(&content);
            let expected = path.len() + "POST ".len() + usize::from(len > 0) * (len + 1);
            let got = client.answer().body.len();
            assert!(got == expected || len == 0, "{got} of {expected}");
            client.send(format!(
                "POST {path} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
            ));
            for chunk in content.as_bytes().chunks(10_000) {
                client
                    .send(format!("{:x}\r\n", chunk.len()))
                    .send(chunk)
                    .send("\r\n");
            }
            client.send("0\r\n\r\n");
            assert!(client.answer().body.ends_with(content.as_bytes()));
        }
    }
    // Content that nobody asked for is read past.
    client.send("POST /index.html HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.answer().status, 405);
    assert_eq!(client.get("/-/echo", "").status, 200);
}

pub fn trailers_of_a_request(model: Model) {
    let server = Server::start(model);
    let mut client = server.connect();
    for path in ["/-/echo", "/-/echo-blocking", "/-/later/echo"] {
        for count in [0, 1, 50] {
            client.send(format!(
                "POST {path} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"
            ));
            let trailers = (0..count).map(|n| format!("X-{n}:  {n} \r\n"));
            client.send(trailers.collect::<String>() + "\r\n");
            let expected = (0..count).map(|n| format!("\nx-{n}={n}"));
            let expected = "hello".to_owned() + &expected.collect::<String>();
            let answer = client.answer();
            let body = String::from_utf8_lossy(&answer.body);
            assert!(body.ends_with(&expected), "{path}: {body}");
        }
    }
}

pub fn a_body_is_waited_for_with_100_continue(model: Model) {
    let server = Server::start(model);
    let mut client = server.connect();
    for _ in 0..3 {
        client.send(
            "POST /-/echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
        );
        assert_eq!(client.answer().status, 100);
        assert_eq!(client.send("hello").answer().body, b"POST /-/echo hello");
    }
}

pub fn content_beyond_the_limit(model: Model) {
    let server = Server::start(model);
    let mut client = server.connect();
    client.send("POST /-/echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1048577\r\n\r\n");
    client.send_in_vain(vec![b'x'; 500_000]);
    assert_eq!(client.answer().status, 413);
    client.end_with_answer();
    let mut client = server.connect();
    client.send("POST /-/echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    client
        .send_in_vain("100001\r\n")
        .send_in_vain(vec![b'x'; 0x10_0001]);
    assert_eq!(client.answer().status, 413);
    client.end_with_answer();
}

fn heads_beyond_the_limits(model: Model) {
    let server = Server::start(model);
    let start = "GET /-/echo HTTP/1.1\r\nHost: h\r\n";
    for (request, status) in [
        (format!("{start}A: {}\r\n\r\n", "a".repeat(30_000)), 200),
        (format!("{start}A: {}\r\n\r\n", "a".repeat(40_000)), 431),
        (format!("{start}{}\r\n", "A: b\r\n".repeat(99)), 200),
        (format!("{start}{}\r\n", "A: b\r\n".repeat(100)), 431),
        (format!("{start}A: {}", "a".repeat(500_000)), 431),
        (
            format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(7_999)),
            404,
        ),
        (
            format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(8_000)),
            414,
        ),
    ] {
        let mut client = server.connect();
        let answer = client.send_in_vain(&request).answer();
        assert_eq!(answer.status, status, "{}…", &request[..40]);
        if status > 404 {
            client.end();
        }
    }
}

fn http_1_0_closes_unless_asked(model: Model) {
    let server = Server::start(model);
    let mut client = server.connect();
    assert_eq!(
        client
            .send("GET /index.html HTTP/1.0\r\n\r\n")
            .answer()
            .body
            .len(),
        600
    );
    client.end();
    let mut client = server.connect();
    for _ in 0..3 {
        client.send("GET /index.html HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        let answer = client.answer();
        let connection = answer.field("connection").unwrap();
        assert!(connection.eq_ignore_ascii_case("keep-alive"));
    }
    assert!(client.get("/index.html", "Connection: close\r\n").closes());
    client.end();
}

pub fn methods(model: Model) {
    let server = Server::start(model);
    let mut client = server.connect();
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        let answer = client
            .send(format!("{method} / HTTP/1.1\r\nHost: h\r\n\r\n"))
            .answer();
        assert_eq!(answer.status, 405, "{method}");
        let allow = answer.field("allow").expect("Allow with a 405");
        assert!(allow.contains("GET") && allow.contains("HEAD"), "{allow}");
    }
    for target in ["*", "/", "/index.html"] {
        let answer = client
            .send(format!("OPTIONS {target} HTTP/1.1\r\nHost: h\r\n\r\n"))
            .answer();
        assert!(
            matches!(answer.status, 200 | 204),
            "{target}: {}",
            answer.status
        );
    }
    drop(client);
    for method in ["BREW", "get"] {
        let mut client = server.connect();
        client.send(format!("{method} / HTTP/1.1\r\nHost: h\r\n\r\n"));
        assert_eq!(client.answer().status, 501, "{method}");
    }
}
