//! What clients do: each visit is a second at most, so that all get their turn even where one
//! connection keeps the others waiting. A wrong answer is a panic.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd as _;
use std::thread::sleep;
use std::time::Duration;

use loadline_sys::connect::{bound_receive_buffer, reset_on_close};

use super::site::{FIXED, LARGE, Random, Site, check, fixed, small};
use crate::client::{Connection, request};
use crate::visitor::{PASSWORD, Visitor, is, leads_to};

type Visit = fn(&Site, &mut Random);

/// Every kind of visit, and how many clients make it, one after the other.
pub(super) const KINDS: [(&str, usize, Visit); 9] = [
    ("keep-alive", 2, keep_alive),
    ("new connections", 1, new_connection),
    ("slow readers", 2, slow_reader),
    ("broken off", 1, broken_off),
    ("malformed", 1, malformed),
    ("pipelined", 1, pipelined),
    ("half-closed", 1, half_closed),
    ("uploads", 1, upload),
    ("accounts", 1, account),
];

fn keep_alive(site: &Site, random: &mut Random) {
    const REQUESTS: u64 = 24;
    let mut connection = Connection::new(site.server);
    let mut tag = None;
    for number in 0..REQUESTS {
        match number % 6 {
            0 => {
                let from = usize::try_from(random.below(1 << 19)).unwrap();
                let fields = format!("Range: bytes={from}-{}\r\n", from + 4999);
                connection.send(request("GET", &format!("/{FIXED}"), &fields).as_bytes());
                let answer = connection.answer().expect("an answer");
                is_head(&answer.head, answer.status, 206);
                assert!(answer.body == fixed(from, from + 5000), "a range");
                tag = answer.field("etag").map(str::to_owned);
            }
            1 => {
                let fields = format!("If-None-Match: {}\r\n", tag.as_ref().expect("a tag"));
                connection.send(request("GET", &format!("/{FIXED}"), &fields).as_bytes());
                let answer = connection.answer().expect("an answer");
                is_head(&answer.head, answer.status, 304);
            }
            2 => {
                connection.send(request("HEAD", "/small-0.html", "").as_bytes());
                let answer = connection.head().expect("an answer");
                is_head(&answer.head, answer.status, 200);
            }
            3 => {
                let answer = connection.get("/nothing");
                is_head(&answer.head, answer.status, 404);
            }
            _ => get_small(&mut connection, random.next()),
        }
    }
}

fn get_small(connection: &mut Connection, number: u64) {
    let name = small(number);
    let answer = connection.get(&format!("/{name}"));
    is_head(&answer.head, answer.status, 200);
    check(&name, &answer.body);
}

fn is_head(head: &str, status: u16, right: u16) {
    assert_eq!(status, right, "{head}");
}

fn new_connection(site: &Site, random: &mut Random) {
    let mut connection = Connection::new(site.server);
    let name = small(random.next());
    let text = request("GET", &format!("/{name}"), "Connection: close\r\n");
    connection.send(text.as_bytes());
    let answer = connection.answer().expect("an answer");
    is_head(&answer.head, answer.status, 200);
    check(&name, &answer.body);
    connection.ends();
}

/// A large file, a piece at a time with a pause behind each; it is replaced meanwhile.
fn slow_reader(site: &Site, _: &mut Random) {
    const PIECES: u32 = 20;
    let mut connection = Connection::new(site.server);
    bound_receive_buffer(connection.socket().as_fd(), 32 << 10).unwrap();
    connection.send(request("GET", &format!("/{LARGE}"), "").as_bytes());
    let head = connection.head().expect("an answer");
    is_head(&head.head, head.status, 200);
    let length: usize = head.field("content-length").unwrap().parse().unwrap();
    let piece = length / usize::try_from(PIECES).unwrap();
    let (mut body, mut next_pause) = (Vec::new(), piece);
    while body.len() < length {
        let more = connection.some((64 << 10).min(length - body.len()));
        assert!(!more.is_empty(), "cut after {} of {length}", body.len());
        body.extend(more);
        if body.len() >= next_pause {
            sleep(Duration::from_millis(30)); // this is what is slow about it
            next_pause += piece;
        }
    }
    check(LARGE, &body);
    get_small(&mut connection, 1);
}

/// Goes in the middle of a request or of an answer, by a reset or in good order.
fn broken_off(site: &Site, random: &mut Random) {
    let mut connection = Connection::new(site.server);
    if random.below(2) == 0 {
        reset_on_close(connection.socket().as_fd());
    }
    let form = "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n";
    match random.below(4) {
        0 => connection.send(b"GET /small-1.html HTTP/1.1\r\nHos"),
        1 => {
            let text = request("POST", "/accounts/login", form) + "token=half";
            connection.send(text.as_bytes());
        }
        2 => {
            connection.send(request("GET", &format!("/{LARGE}"), "").as_bytes());
            connection.head().expect("an answer");
            assert!(!connection.some(10_000).is_empty());
        }
        _ => connection.send(&request("GET", "/small-2.html", "").repeat(5).into_bytes()),
    }
}

fn malformed(site: &Site, random: &mut Random) {
    let fields = "X-Field: value\r\n".repeat(150);
    let long = "x".repeat(9_000);
    let cases: [(String, u16); 9] = [
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        (request("GET", "/", "Host: b\r\n"), 400),
        (request("GET", "/", "Name : value\r\n"), 400),
        (
            request("POST", "/", "Content-Length: 3\r\nContent-Length: 4\r\n"),
            400,
        ),
        (request("POST", "/", "Content-Length: -1\r\n"), 400),
        (request("GET", "/%zz", ""), 400),
        ("GET / HTTP/3.0\r\nHost: a\r\n\r\n".to_owned(), 505),
        (request("GET", &format!("/{long}"), ""), 414),
        (request("GET", "/", &fields), 431),
    ];
    let number = usize::try_from(random.below(9)).unwrap();
    let (text, right) = &cases[number];
    let mut connection = Connection::new(site.server);
    connection.send(text.as_bytes());
    let answer = connection.answer().expect("an answer");
    assert_eq!(answer.status, *right, "{:.80}: {}", text, answer.head);
    if answer.closes() {
        connection.shut();
        connection.ends();
    }
}

fn pipelined(site: &Site, random: &mut Random) {
    const REQUESTS: u64 = 16;
    let mut connection = Connection::new(site.server);
    let names: Vec<String> = (0..REQUESTS).map(|_| small(random.next())).collect();
    let texts = names.iter().map(|it| request("GET", &format!("/{it}"), ""));
    connection.send(texts.collect::<String>().as_bytes());
    for name in &names {
        let answer = connection.answer().expect("an answer to each");
        is_head(&answer.head, answer.status, 200);
        check(name, &answer.body);
    }
}

fn half_closed(site: &Site, random: &mut Random) {
    let mut connection = Connection::new(site.server);
    let name = match random.below(3) {
        0 => LARGE.to_owned(),
        number => small(number),
    };
    connection.send(request("GET", &format!("/{name}"), "").as_bytes());
    connection.shut();
    let answer = connection.answer().expect("an answer");
    is_head(&answer.head, answer.status, 200);
    check(&name, &answer.body);
    connection.ends();
}

/// Forms that the accounts refuse, whole or in chunks that come one by one.
fn upload(site: &Site, random: &mut Random) {
    let mut connection = Connection::new(site.server);
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    let (text, right) = match random.below(3) {
        0 => {
            let fields = format!("{form}Content-Length: 20000\r\n");
            let content = "x".repeat(20_000);
            (request("POST", "/accounts/login", &fields) + &content, 413)
        }
        1 => {
            let fields = "Content-Type: application/json\r\nContent-Length: 2\r\n";
            (request("POST", "/accounts/login", fields) + "{}", 415)
        }
        _ => {
            let fields = format!("{form}Transfer-Encoding: chunked\r\n");
            connection.send(request("POST", "/accounts/login", &fields).as_bytes());
            for _ in 0..8 {
                connection.send(b"6\r\nname=a\r\n");
                sleep(Duration::from_millis(2)); // so that they come one by one
            }
            ("0\r\n\r\n".to_owned(), 403)
        }
    };
    connection.send(text.as_bytes());
    let answer = connection.answer().expect("an answer");
    is_head(&answer.head, answer.status, right);
}

/// Somebody who registers, sees the page, and goes for ever.
fn account(site: &Site, random: &mut Random) {
    let number = u32::try_from(random.below(1 << 16)).unwrap();
    let source = u32::from(Ipv4Addr::new(127, 4, 0, 0)) + number;
    let source = IpAddr::V4(Ipv4Addr::from(source));
    let mut visitor = Visitor::new(site.server, source, site.is_sequential);
    let name = format!("user{:016x}", random.next());
    let answer = visitor.register(&name);
    leads_to(&answer, "/accounts/login?after=registered");
    is(&visitor.log_in(&name, "not the one"), 403);
    leads_to(&visitor.log_in(&name, PASSWORD), "/accounts/member");
    let page = visitor.get("/accounts/member");
    is(&page, 200);
    assert!(page.text().contains(&name), "{}", page.text());
    leads_to(&visitor.delete(PASSWORD), "/accounts/?after=deleted");
}
