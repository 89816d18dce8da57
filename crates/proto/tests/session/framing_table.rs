//! Well-formed messages: where each ends, what the handler sees, and whether the connection stays.

use crate::drive::{Driver, Seen, config};
use loadline_base::Millis;
use loadline_proto::{
    Context, Exchange, FieldName, Limits, Outcome, RequestBody, Status, TargetForm, Version,
};

/// Each request is followed by a second one on the same connection, which must be seen as such.
const NEXT: &str = "GET /next HTTP/1.1\r\nHost: h\r\n\r\n";

fn seen(bytes: &[u8]) -> Vec<Seen> {
    let mut driver = Driver::echo();
    driver.feed(bytes).feed(NEXT.as_bytes());
    for answer in driver.answers() {
        assert!(matches!(answer.status, 100 | 200), "{answer:?}");
    }
    assert!(!driver.is_closed() && !driver.is_lingering());
    let seen = std::mem::take(&mut driver.seen);
    assert_eq!(seen.last().map(|s| s.target.as_str()), Some("/next"));
    seen
}

#[test]
fn content_is_framed_by_its_head() {
    let table: &[(&str, Option<&str>)] = &[
        ("\r\n", None),
        ("Content-Length: 0\r\n\r\n", None),
        ("Content-Length: 5\r\n\r\nhello", Some("hello")),
        ("Content-Length: 00005\r\n\r\nhello", Some("hello")),
        ("content-length:5\r\n\r\nhello", Some("hello")),
        ("CONTENT-LENGTH: \t5 \t\r\n\r\nhello", Some("hello")),
        // Content may look like anything.
        ("Content-Length: 4\r\n\r\n\r\n\r\n", Some("\r\n\r\n")),
        (
            "Content-Length: 33\r\n\r\nGET /not-me HTTP/1.1\r\nHost: h\r\n\r\n",
            Some("GET /not-me HTTP/1.1\r\nHost: h\r\n\r\n"),
        ),
        ("Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Some("")),
        (
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            Some("hello"),
        ),
        (
            "transfer-encoding:CHUNKED\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            Some("hello"),
        ),
        (
            "Transfer-Encoding: \t chunked \t\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            Some("hello"),
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\n1\r\nh\r\n1\r\ne\r\n3\r\nllo\r\n000\r\n\r\n",
            Some("hello"),
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\n0005\r\nhello\r\n0\r\n\r\n",
            Some("hello"),
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\nA\r\n0123456789\r\n0\r\n\r\n",
            Some("0123456789"),
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n0\r\n\r\n",
            Some("0123456789"),
        ),
        // Extensions are read and ignored; trailers are no content.
        (
            "Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0;c\r\n\r\n",
            Some("hello"),
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\n5;a=\"b;c\"\r\nhello\r\n0\r\n\r\n",
            Some("hello"),
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\nC: d\r\n\r\n",
            Some("hello"),
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\n5\r\n0\r\n\r\n\r\n0\r\n\r\n",
            Some("0\r\n\r\n"),
        ),
    ];
    for (rest, content) in table {
        let request = format!("POST /first HTTP/1.1\r\nHost: h\r\n{rest}");
        let seen = seen(request.as_bytes());
        assert_eq!(seen.len(), 2, "{rest:?}: {seen:?}");
        assert_eq!(seen[0].target, "/first");
        let body = seen[0].body.as_deref().unwrap_or_default();
        assert_eq!(body, content.unwrap_or_default().as_bytes(), "{rest:?}");
    }
}

#[test]
fn every_method_may_have_content() {
    for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"] {
        let request =
            format!("{method} /first HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello");
        let mut driver = Driver::echo();
        driver.feed(request.as_bytes()).feed(NEXT.as_bytes());
        let targets: Vec<&str> = driver.seen.iter().map(|s| s.target.as_str()).collect();
        assert_eq!(targets, ["/first", "/next"], "{method}");
        assert_eq!(
            driver.seen[0].body.as_deref(),
            Some(&b"hello"[..]),
            "{method}"
        );
    }
}

#[test]
fn empty_lines_before_a_request_are_ignored() {
    // RFC 9112 section 2.2: at least one, since old clients send one after a POST.
    let request = "POST /first HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab\r\n";
    assert_eq!(seen(request.as_bytes()).len(), 2);
    assert_eq!(seen(b"\r\nGET /first HTTP/1.1\r\nHost: h\r\n\r\n").len(), 2);
}

/// What the handler finds in a request, as text.
fn view(bytes: &[u8]) -> String {
    let mut view = String::new();
    let mut driver = Driver::new(&config(Limits::default()), |exchange, _| {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let request = &exchange.request;
        view = format!(
            "{} {:?} {:?} target={} path={} query={:?} authority={}",
            request.method.as_str(),
            request.version,
            request.form,
            text(request.target()),
            text(request.path()),
            request.query().map(text),
            text(request.authority()),
        );
        Outcome::Ready
    });
    driver.feed(bytes);
    let shown = String::from_utf8_lossy(&driver.output).into_owned();
    drop(driver);
    assert!(
        !view.is_empty(),
        "{}: {shown}",
        String::from_utf8_lossy(bytes)
    );
    view
}

#[test]
fn target_forms() {
    let table: &[(&str, &str)] = &[
        (
            "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET Http11 Origin target=/ path=/ query=None authority=h",
        ),
        (
            "GET /a/b?c=d?e HTTP/1.1\r\nHost: h:80\r\n\r\n",
            "GET Http11 Origin target=/a/b?c=d?e path=/a/b query=Some(\"c=d?e\") authority=h:80",
        ),
        (
            "GET /? HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET Http11 Origin target=/? path=/ query=Some(\"\") authority=h",
        ),
        // Not an authority: a path that begins with two slashes.
        (
            "GET //a/b HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET Http11 Origin target=//a/b path=//a/b query=None authority=h",
        ),
        (
            "GET /%2e%2e/%00 HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET Http11 Origin target=/%2e%2e/%00 path=/%2e%2e/%00 query=None authority=h",
        ),
        (
            "GET /http://x/y HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET Http11 Origin target=/http://x/y path=/http://x/y query=None authority=h",
        ),
        // RFC 9112 section 3.2.2: the target's host wins over the field.
        (
            "GET http://a.example/p?q HTTP/1.1\r\nHost: b.example\r\n\r\n",
            "GET Http11 Absolute target=http://a.example/p?q path=/p query=Some(\"q\") authority=a.example",
        ),
        (
            "GET HTTP://A.example:81 HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET Http11 Absolute target=HTTP://A.example:81 path=/ query=None authority=A.example:81",
        ),
        (
            "GET http://a.example?q HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET Http11 Absolute target=http://a.example?q path=/ query=Some(\"q\") authority=a.example",
        ),
        (
            "GET http://[::1]:81/p HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET Http11 Absolute target=http://[::1]:81/p path=/p query=None authority=[::1]:81",
        ),
        (
            "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
            "OPTIONS Http11 Asterisk target=* path=* query=None authority=h",
        ),
        (
            "OPTIONS http://h:8001 HTTP/1.1\r\nHost: h\r\n\r\n",
            "OPTIONS Http11 Absolute target=http://h:8001 path=/ query=None authority=h:8001",
        ),
        // In HTTP/1.0 Host is optional.
        (
            "GET /p HTTP/1.0\r\n\r\n",
            "GET Http10 Origin target=/p path=/p query=None authority=",
        ),
        (
            "GET /p HTTP/1.0\r\nHost: h\r\n\r\n",
            "GET Http10 Origin target=/p path=/p query=None authority=h",
        ),
        // A later minor version is served as the highest that is known.
        (
            "GET /p HTTP/1.2\r\nHost: h\r\n\r\n",
            "GET Http11 Origin target=/p path=/p query=None authority=h",
        ),
        (
            "GET /p HTTP/1.9\r\nHost: h\r\n\r\n",
            "GET Http11 Origin target=/p path=/p query=None authority=h",
        ),
        // Escapes of a name are left as they are.
        (
            "GET / HTTP/1.1\r\nHost: b%C3%BCcher.example%2D:65535\r\n\r\n",
            "GET Http11 Origin target=/ path=/ query=None authority=b%C3%BCcher.example%2D:65535",
        ),
        (
            "GET http://%e6%97%a5.example:1/ HTTP/1.1\r\nHost: h:\r\n\r\n",
            "GET Http11 Absolute target=http://%e6%97%a5.example:1/ path=/ query=None authority=%e6%97%a5.example:1",
        ),
        // RFC 9110 section 7.2: empty where the target has no authority.
        (
            "GET / HTTP/1.1\r\nHost:\r\n\r\n",
            "GET Http11 Origin target=/ path=/ query=None authority=",
        ),
        (
            "GET / HTTP/1.1\r\nHost: [2001:db8::1]:8080\r\n\r\n",
            "GET Http11 Origin target=/ path=/ query=None authority=[2001:db8::1]:8080",
        ),
    ];
    for (request, expected) in table {
        assert_eq!(view(request.as_bytes()), *expected, "{request}");
    }
}

#[test]
fn connect_reaches_the_handler_in_authority_form_or_is_refused() {
    let mut form = None;
    let mut driver = Driver::new(&config(Limits::default()), |exchange, _| {
        form = Some(exchange.request.form);
        exchange.response.error(Status::METHOD_NOT_ALLOWED);
        Outcome::Ready
    });
    driver.feed(b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n");
    let status = driver.statuses();
    drop(driver);
    match form {
        Some(form) => assert_eq!((form, &status[..]), (TargetForm::Authority, &[405][..])),
        None => assert!(matches!(status[..], [405 | 501]), "{status:?}"),
    }
}

#[test]
fn fields_as_the_handler_sees_them() {
    let mut checked = false;
    let mut driver = Driver::new(&config(Limits::default()), |exchange, _| {
        let request = &exchange.request;
        assert_eq!(request.version, Version::Http11);
        let all: Vec<(&[u8], &[u8])> = request.fields().collect();
        let expected: [(&[u8], &[u8]); 7] = [
            (b"hOsT", b"h"),
            (b"Empty", b""),
            (b"Blank", b""),
            (b"X", b"a \t b"),
            (b"Bytes", b"\x80\xff"),
            (b"Accept-Encoding", b"gzip"),
            (b"accept-encoding", b"br;q=0.5"),
        ];
        assert_eq!(all, expected);
        assert_eq!(request.field(FieldName::Host), Some(&b"h"[..]));
        let encodings: Vec<&[u8]> = request.field_values(FieldName::AcceptEncoding).collect();
        assert_eq!(encodings, [&b"gzip"[..], b"br;q=0.5"]);
        assert_eq!(request.field(FieldName::Range), None);
        checked = true;
        Outcome::Ready
    });
    driver.feed(
        b"GET / HTTP/1.1\r\nhOsT:h\r\nEmpty:\r\nBlank: \t \r\nX: \t a \t b \t \r\nBytes: \x80\xff\r\n\
          Accept-Encoding: gzip\r\naccept-encoding: br;q=0.5\r\n\r\n",
    );
    assert_eq!(driver.statuses(), [200]);
    drop(driver);
    assert!(checked);
}

#[test]
fn continue_is_sent_only_where_it_is_waited_for() {
    let head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    let mut driver = Driver::echo();
    driver.feed(head.as_bytes());
    assert_eq!(driver.output, b"HTTP/1.1 100 Continue\r\n\r\n");
    driver.feed(b"hello");
    assert_eq!(driver.statuses(), [100, 200]);

    // The name is not case-sensitive; chunked content waits as well.
    let mut driver = Driver::echo();
    driver.feed(
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nexpect: 100-CONTINUE\r\n\r\n",
    );
    assert_eq!(driver.statuses(), [100]);
    driver.feed(b"0\r\n\r\n");
    assert_eq!(driver.statuses(), [100, 200]);

    // HTTP/1.0 does not know it (RFC 9110 section 10.1.1), and without content there is nothing
    // to wait for.
    for head in [
        "POST / HTTP/1.0\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello",
        "GET / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\r\n",
    ] {
        let mut driver = Driver::echo();
        driver.feed(head.as_bytes());
        assert_eq!(driver.statuses(), [200], "{head}");
    }

    // Too large: the answer comes before the content does.
    let mut driver = Driver::echo();
    driver.feed(
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9999999\r\nExpect: 100-continue\r\n\r\n",
    );
    assert_eq!(driver.statuses(), [413]);

    // The handler does not want it: no 100, and what comes after cannot be distinguished from content.
    let mut driver = Driver::new(&config(Limits::default()), |_, _| Outcome::Ready);
    driver.feed(head.as_bytes());
    assert_eq!(driver.statuses(), [200]);
    driver.feed(b"hello").feed(NEXT.as_bytes());
    let statuses = driver.statuses();
    assert!(statuses == [200] || statuses == [200, 200], "{statuses:?}");
    let kept = !driver.is_closed() && !driver.is_lingering();
    assert_eq!(kept, statuses.len() == 2, "closed, or in step");
}

#[test]
fn content_nobody_wants_is_skipped_or_ends_the_connection() {
    // Little: read past. Much: closing is cheaper.
    for (len, stays) in [(5, true), (60_000, true), (500_000, false)] {
        let mut driver = Driver::new(&config(Limits::default()), |_, _| Outcome::Ready);
        driver.feed(
            format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {len}\r\n\r\n").as_bytes(),
        );
        let content = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n".repeat(len / 35 + 1);
        driver.feed(&content.as_bytes()[..len]);
        driver.feed(NEXT.as_bytes());
        let answers = driver.answers();
        assert!(driver.seen.iter().all(|s| s.target != "/smuggled"), "{len}");
        assert_eq!(answers.len(), if stays { 2 } else { 1 }, "{len}");
        assert_eq!(answers.last().map(|a| a.closes()), Some(!stays), "{len}");
    }
    let mut driver = Driver::new(&config(Limits::default()), |_, _| Outcome::Ready);
    driver.feed(
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    );
    driver.feed(NEXT.as_bytes());
    assert_eq!(driver.statuses(), [200, 200]);
}

#[test]
fn the_limits_themselves_are_allowed() {
    let limits = Limits {
        head_bytes_max: 1024,
        target_bytes_max: 100,
        fields_max: 4,
        body_bytes_max: 10,
        ..Limits::default()
    };
    let target = format!("/{}", "a".repeat(99));
    let filler = |used: usize| "x".repeat(1024 - used - "Fill: \r\n\r\n".len());
    let start = "GET / HTTP/1.1\r\nHost: h\r\n";
    let table: &[(String, u16)] = &[
        (format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"), 200),
        (format!("GET {target}a HTTP/1.1\r\nHost: h\r\n\r\n"), 414),
        (format!("{start}{}\r\n", "A: b\r\n".repeat(3)), 200),
        (format!("{start}{}\r\n", "A: b\r\n".repeat(4)), 431),
        (format!("{start}Fill: {}\r\n\r\n", filler(start.len())), 200),
        (
            format!("{start}Fill: {}y\r\n\r\n", filler(start.len())),
            431,
        ),
        (
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n0123456789".into(),
            200,
        ),
        (
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\n01234567890".into(),
            413,
        ),
    ];
    for (request, status) in table {
        for dripped in [false, true] {
            let mut driver = Driver::echo_within(limits.clone());
            if dripped {
                driver.drip(request.as_bytes());
            } else {
                driver.feed(request.as_bytes());
            }
            assert_eq!(
                driver.statuses(),
                [*status],
                "dripped: {dripped}: {request}"
            );
        }
    }
}

#[test]
fn a_handlers_own_limit_on_content() {
    let handler = |exchange: &mut Exchange, _: &mut Context<'_>| match exchange.request.body {
        RequestBody::Whole(_) => Outcome::Ready,
        _ => Outcome::Collect { bytes_max: 4 },
    };
    for (rest, status) in [
        ("Content-Length: 4\r\n\r\nabcd", 200),
        ("Content-Length: 5\r\n\r\nabcde", 413),
        (
            "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n",
            200,
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n",
            413,
        ),
        // None at all: handled again at once with an empty `Whole`.
        ("\r\n", 200),
    ] {
        let mut driver = Driver::new(&config(Limits::default()), handler);
        driver.feed(format!("POST / HTTP/1.1\r\nHost: h\r\n{rest}").as_bytes());
        assert_eq!(driver.statuses(), [status], "{rest:?}");
    }
}

#[test]
fn the_exchange_has_time_and_peer() {
    let mut checked = false;
    let mut driver = Driver::new(&config(Limits::default()), |exchange, cx| {
        assert_eq!(exchange.peer.map(|p| p.port()), Some(40_000));
        assert_eq!(
            (exchange.began, cx.now),
            (Millis(1_000_500), Millis(1_000_500))
        );
        checked = true;
        Outcome::Ready
    });
    driver
        .feed(b"GET / HTTP/1.1\r\n")
        .pass(500)
        .feed(b"Host: h\r\n\r\n");
    drop(driver);
    assert!(checked);
}
