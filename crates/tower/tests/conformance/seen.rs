//! What reaches the app.

use std::fmt::Write as _;
use std::sync::atomic::Ordering::SeqCst;

use crate::fixture::{Running, eventually};
use crate::model::Model;

every_model! {
    a_request_as_it_was_sent,
    content_in_every_framing,
    trailers_behind_content,
    content_that_nobody_reads,
    content_beyond_the_apps_limit,
    what_the_http_types_cannot_hold,
}

fn a_request_as_it_was_sent(model: Model) {
    let server = Running::start(model);
    let mut client = server.connect();
    client.send(
        b"OPTIONS /saw/a%20b//c?x=%C3%A4&y&=z HTTP/1.1\r\nhOsT: Example.org:80\r\nX-Twice: 1\r\n\
          X-Between:  spaces \t\r\nx-twice: 2\r\nX-Opaque: \xff\x80\ttab\r\nX-Empty:\r\n\
          Upgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
    );
    let answer = client.answer();
    assert_eq!(answer.status, 200);
    let said = String::from_utf8(answer.body).unwrap();
    let mut expected = String::from("OPTIONS /saw/a%20b//c?x=%C3%A4&y&=z HTTP/1.1\n");
    for line in [
        "host: Example.org:80",
        "x-twice: 1",
        "x-twice: 2",
        "x-between: spaces",
        "x-opaque: \\xff\\x80\\ttab",
        "x-empty: ",
        "upgrade: h2c",
        "connection: Upgrade",
    ] {
        writeln!(expected, "{line}").unwrap();
    }
    let mine = client.stream.local_addr().unwrap();
    let theirs = server.address;
    writeln!(expected, "client Some({}) secure false", mine.ip()).unwrap();
    write!(expected, "peer Some({mine})\nlocal Some({theirs})\n").unwrap();
    expected.push_str("length Some(0)\ncontent \n");
    let mut lines: Vec<_> = said.lines().collect();
    let mut wanted: Vec<_> = expected.lines().collect();
    // A map may keep names in an order of its own; values of one name stay in theirs.
    lines[1..].sort_by_key(|line| line.split(' ').next());
    wanted[1..].sort_by_key(|line| line.split(' ').next());
    assert_eq!(lines, wanted);
    client.send("GET http://other/saw?absolute HTTP/1.0\r\n\r\n");
    let said = String::from_utf8(client.answer().body).unwrap();
    assert!(
        said.starts_with("GET http://other/saw?absolute HTTP/1.0\n"),
        "{said}"
    );
}

pub fn content_in_every_framing(model: Model) {
    let server = Running::start(model);
    let mut client = server.connect();
    let version = match client.is_http2 {
        true => "HTTP/2.0",
        false => "HTTP/1.1",
    };
    for method in [
        "POST", "PUT", "PATCH", "DELETE", "GET", "PROPFIND", "x-Mine!",
    ] {
        let head = format!("{method} /saw HTTP/1.1\r\nHost: h\r\n");
        client.send(format!("{head}Content-Length: 5\r\n\r\nhello"));
        let said = String::from_utf8(client.answer().body).unwrap();
        assert!(
            said.starts_with(&format!("{method} /saw {version}\n")),
            "{said}"
        );
        assert!(said.ends_with("length Some(5)\ncontent hello\n"), "{said}");
        client.send(format!("{head}Transfer-Encoding: chunked\r\n\r\n"));
        client
            .send("3\r\nhel\r\n2\r\nlo\r\n")
            .send("0\r\nX-Trailer: 1\r\n\r\n");
        let said = String::from_utf8(client.answer().body).unwrap();
        let end = "length None\ncontent hello\ntrailer x-trailer: 1\n";
        assert!(said.ends_with(end), "{said}");
    }
    client.send("POST /saw HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n");
    client.send("Expect: 100-continue\r\n\r\n");
    assert_eq!(client.answer().status, 100);
    client.send("ok");
    assert!(client.answer().body.ends_with(b"content ok\n"));
}

/// Those that belong into the head are refused: an app that merges the two is not deceived.
pub fn trailers_behind_content(model: Model) {
    let server = Running::start(model);
    let chunked = "POST /saw HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut client = server.connect();
    for content in ["", "5\r\nhello\r\n"] {
        client.send(format!("{chunked}{content}0\r\n"));
        client.send("X-Sum: 1\r\nx-opaque: \u{e9}\tx\r\nx-sum:  2 \r\nX-Empty:\r\n\r\n");
        let said = String::from_utf8(client.answer().body).unwrap();
        let (_, trailers) = said.split_once("\ntrailer ").unwrap();
        let mut trailers: Vec<_> = trailers.lines().collect();
        // A map may keep names in an order of its own; values of one name stay in theirs.
        trailers.sort_by_key(|line| line.trim_start_matches("trailer ").split(' ').next());
        let trailers = trailers.join("\n").replace("trailer ", "");
        let expected = "x-empty: \nx-opaque: \\xc3\\xa9\\tx\nx-sum: 1\nx-sum: 2";
        assert_eq!(trailers, expected);
        client.send(format!("{chunked}{content}0\r\n\r\n"));
        let said = String::from_utf8(client.answer().body).unwrap();
        assert!(!said.contains("trailer"), "{said}");
    }
    for name in [
        "Content-Length",
        "Host",
        "Authorization",
        "Cookie",
        "Trailer",
    ] {
        let mut client = server.connect();
        client.send(format!("{chunked}5\r\nhello\r\n"));
        client.send(format!("0\r\n{name}: 1\r\n\r\n"));
        match client.is_http2 {
            true => assert!(client.rest().is_empty(), "{name}: reset"),
            false => assert_eq!(client.answer().status, 400, "{name}"),
        }
    }
}

pub fn content_that_nobody_reads(model: Model) {
    let server = Running::start(model);
    let mut client = server.connect();
    for _ in 0..3 {
        client.send("POST /unread HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n");
        client.send([b'x'; 1000]);
        assert_eq!(client.answer().body, b"unread");
    }
    client.send(
        "POST /unread HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n",
    );
    let answer = client.answer();
    assert_eq!((answer.status, client.is_last(&answer)), (200, true));
    client.end_with_answer();
}

pub fn content_beyond_the_apps_limit(model: Model) {
    let server = Running::start_limited(model, 1000);
    let head = |framing: &str| format!("POST /swallow HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n");
    let mut client = server.connect();
    client.send(head("Content-Length: 1000")).send([b'x'; 1000]);
    assert_eq!(client.answer().body, b"1000");
    // Announced, whether or not it waits for leave to send it.
    for framing in [
        "Content-Length: 1001",
        "Content-Length: 1001\r\nExpect: 100-continue",
    ] {
        let mut client = server.connect();
        client.send(head(framing));
        let answer = client.answer();
        let seen = (answer.status, client.is_last(&answer));
        assert_eq!(seen, (413, true), "{framing}");
        client.half_close().end();
    }
    // Grown, behind what the app has read.
    let mut client = server.connect();
    client.send(head("Transfer-Encoding: chunked"));
    client.send("3e8\r\n").send([b'x'; 1000]);
    eventually("it is read", || server.shared.read.load(SeqCst) == 2000);
    client.send("\r\n1\r\nx");
    assert_eq!(client.answer().status, 413);
    client.half_close().end();
    assert_eq!(
        server.shared.read.load(SeqCst),
        2000,
        "not a byte beyond it"
    );
    // An app without a limit takes more than forms may have.
    let server = Running::start(model);
    let mut client = server.connect();
    client
        .send(head("Content-Length: 2000000"))
        .send(vec![b'x'; 2_000_000]);
    assert_eq!(client.answer().body, b"2000000");
}

pub fn what_the_http_types_cannot_hold(model: Model) {
    let server = Running::start(model);
    let mut client = server.connect();
    assert_eq!(client.get("/saw|\"<>", "").status, 400);
}
