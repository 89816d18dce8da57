//! Floods over a trusted proxy's connection: what one of its clients does must not end the requests of others.

use std::ops::Range;

use loadline_proto::Http2Count;
use loadline_proto::http2::frame::{ErrorCode, Kind, flags};

use crate::connection::Connection;

const WHOLE: u8 = flags::END_HEADERS | flags::END_STREAM;
const CANCEL: [u8; 4] = [0, 0, 0, 8];

/// Before, 500 resets by one client ended the requests of all clients of the proxy.
#[test]
fn a_proxys_client_that_resets_too_much_is_refused_and_others_are_served() {
    let mut connection = Connection::of_proxy();
    connection.window(0, 1 << 30);
    let (bad, good) = ("192.0.2.1", "192.0.2.2");
    for stream in (1..4_001).step_by(2) {
        connection.get_for(bad, stream, "/task");
        connection.frame(Kind::RstStream, 0, stream, &CANCEL);
    }
    let frames = connection.take();
    assert_eq!(Connection::errors(&frames), []);
    let statuses = Connection::statuses(&frames);
    assert!(statuses.iter().all(|(_, status)| status == "429"));
    let heads = frames.iter().filter(|frame| frame.kind == Kind::Headers);
    for head in heads {
        let text = String::from_utf8_lossy(&head.payload);
        assert!(text.contains("\nretry-after: 1\n"), "{text}");
    }
    assert_eq!((connection.ran.len(), statuses.len()), (500, 1_500));
    assert_eq!(connection.counted(Http2Count::Floods), 1_500);
    connection.get_for(good, 4_001, "/a");
    assert!(Connection::content(&connection.take(), 4_001).1);
    assert_eq!(connection.ran.last(), Some(&4_001));
    // It comes back.
    connection.pass(1_000).get_for(bad, 4_003, "/a");
    assert!(Connection::content(&connection.take(), 4_003).1);
    assert_eq!(connection.ran.last(), Some(&4_003));
    // Where the proxy names nobody, it stands for its clients.
    for stream in (4_005..6_005).step_by(2) {
        connection.get(stream, "/task");
        connection.frame(Kind::RstStream, 0, stream, &CANCEL);
    }
    assert_eq!(Connection::errors(&connection.take()), []);
    connection.get_for(good, 6_005, "/a");
    assert!(Connection::content(&connection.take(), 6_005).1);
}

/// They may be of any of its clients: who made a head too large, or has reset the streams that still count, is
/// not known.
#[test]
fn requests_of_a_proxy_that_are_refused_are_no_flood() {
    let mut connection = Connection::of_proxy();
    connection.window(0, 1 << 30);
    for stream in (1..2_001).step_by(2) {
        let mut block = connection.request("GET", "/", &[("a", &"x".repeat(3_000))]);
        block.extend([0xbe; 30]); // 30 times the newest entry
        connection.frame(Kind::Headers, WHOLE, stream, &block);
    }
    connection.hold_blocking = true;
    for stream in (2_001..2_257).step_by(2) {
        let client = format!("192.0.2.{}", 1 + stream / 2 % 4);
        connection.get_for(&client, stream, "/block");
        connection.frame(Kind::RstStream, 0, stream, &CANCEL);
    }
    assert_eq!(connection.parked.len(), 128);
    let refused = || (2_257..4_257).step_by(2);
    for stream in refused() {
        connection.get_for("192.0.2.9", stream, "/a");
    }
    let frames = connection.take();
    let statuses = Connection::statuses(&frames);
    assert!(statuses.iter().all(|(_, status)| status == "431"));
    assert_eq!(statuses.len(), 1_000);
    let code = ErrorCode::RefusedStream as u32;
    let expected: Vec<(u32, u32)> = refused().map(|stream| (stream, code)).collect();
    assert_eq!(Connection::errors(&frames), expected);
    assert_eq!(connection.counted(Http2Count::Floods), 0);
}

/// An attacker has many addresses: a /56 of IPv6 has 256 networks. Before, the 129th client of a connection ended
/// it, and all of them together could reset 64,000 requests at once.
#[test]
fn many_clients_of_a_proxy_do_not_end_its_connection() {
    let mut connection = Connection::of_proxy();
    connection.window(0, 1 << 30);
    for number in 0..7_000 {
        let (client, stream) = (format!("2001:db8:0:{number:x}::1"), 2 * number + 1);
        connection.get_for(&client, stream, "/task");
        connection.frame(Kind::RstStream, 0, stream, &CANCEL);
    }
    let frames = connection.take();
    assert_eq!(Connection::errors(&frames), []);
    let statuses = Connection::statuses(&frames);
    assert!(statuses.iter().all(|(_, status)| status == "429"));
    assert_eq!((connection.ran.len(), statuses.len()), (5_000, 2_000));
    // It comes back, for all of them.
    connection.pass(100).get_for("192.0.2.1", 20_001, "/a");
    assert!(Connection::content(&connection.take(), 20_001).1);
    assert_eq!(connection.ran.last(), Some(&20_001));
}

/// Its client had all streams of the connection until the workers were done with the last of these.
#[test]
fn a_client_that_gives_up_all_of_its_requests_leaves_places_for_others() {
    let mut connection = Connection::of_proxy();
    connection.hold_blocking = true;
    let abandoned = || (1..257_u32).step_by(2);
    for stream in abandoned() {
        connection.get_for("192.0.2.1", stream, "/block");
    }
    for stream in abandoned() {
        connection.frame(Kind::RstStream, 0, stream, &CANCEL);
    }
    assert_eq!(connection.parked.len(), 128);
    connection.get_for("192.0.2.1", 257, "/a");
    connection.get_for("192.0.2.2", 259, "/a");
    let expected = [(257, "429".to_owned()), (259, "200".to_owned())];
    assert_eq!(Connection::statuses(&connection.take()), expected);
    // Its share is a quarter; the rest is the others'.
    for stream in (261..455).step_by(2) {
        connection.get_for("192.0.2.2", stream, "/block");
    }
    let refused = [(453, ErrorCode::RefusedStream as u32)];
    assert_eq!(Connection::errors(&connection.take()), refused);
    assert_eq!(connection.parked.len(), 128 + 96);
    for stream in abandoned() {
        connection.complete(stream);
    }
    connection.get_for("192.0.2.1", 455, "/a");
    assert!(Connection::content(&connection.take(), 455).1);
    assert_eq!(connection.ran.last(), Some(&455));
}

/// However many clients do the same.
#[test]
fn what_clients_give_up_is_bounded() {
    let mut connection = Connection::of_proxy();
    connection.hold_blocking = true;
    let mut streams = (1..).step_by(2);
    for client in 1..=100 {
        let client = format!("192.0.2.{client}");
        let own: Vec<u32> = streams.by_ref().take(128).collect();
        for stream in &own {
            connection.get_for(&client, *stream, "/block");
        }
        for stream in &own {
            connection.frame(Kind::RstStream, 0, *stream, &CANCEL);
        }
    }
    let most = connection.parked.len();
    assert!((129..=4 * 128).contains(&most), "{most}");
    let errors = Connection::errors(&connection.take());
    assert!(errors.iter().all(|(stream, _)| *stream != 0));
}

/// It has sent their content before it could know that they were refused. Before, that of all but the last 64 ended
/// the connection.
#[test]
fn what_comes_for_uploads_that_were_refused_costs_a_proxy_nothing() {
    let mut connection = Connection::of_proxy();
    connection.hold_blocking = true;
    for stream in (1..257).step_by(2) {
        connection.get_for("192.0.2.1", stream, "/block");
    }
    let begin = |connection: &mut Connection, streams: &[u32]| {
        for stream in streams {
            connection.post(*stream, "/p", &[]);
        }
        assert_eq!(Connection::errors(&connection.take()).len(), streams.len());
    };
    let send = |connection: &mut Connection, streams: &[u32]| {
        for stream in streams.repeat(10) {
            connection.frame(Kind::Data, 0, stream, b"content");
        }
    };
    let uploads: Vec<u32> = (257..513).step_by(2).collect();
    begin(&mut connection, &uploads);
    send(&mut connection, &uploads);
    assert_eq!(Connection::errors(&connection.take()), []);
    // More of them than it may begin, once it has the settings.
    let uploads: Vec<u32> = (513..1_513).step_by(2).collect();
    begin(&mut connection, &uploads);
    send(&mut connection, &uploads);
    let errors = Connection::errors(&connection.take());
    let closed = ErrorCode::StreamClosed as u32;
    assert!(
        errors
            .iter()
            .all(|(stream, code)| *stream != 0 && *code == closed)
    );
    assert_eq!(connection.counted(Http2Count::Floods), 0);
    connection.complete(1);
    connection.get_for("192.0.2.2", 1_513, "/a");
    assert!(Connection::content(&connection.take(), 1_513).1);
}

/// Some proxies pass them on. Before, 500 of them ended the requests of all clients; later, more than 5,000 were
/// answered with 429 for all of them, since nobody looked whose a malformed head was.
#[test]
fn malformed_requests_of_a_proxys_client_count_for_that_client() {
    let (bad, good) = ("192.0.2.1", "192.0.2.2");
    let own = ("x-forwarded-for", bad);
    let close = ("connection", "close");
    let without_path = [(":method", "GET"), own];
    let ways: [(&str, &[(&str, &str)]); 6] = [
        ("named before what is wrong", &[own, close]),
        ("named behind it", &[close, own]),
        ("between others", &[close, own, ("te", "gzip")]),
        ("in two fields", &[("x-forwarded-for", good), close, own]),
        ("a wrong length", &[own, ("content-length", "5")]),
        ("no path", &without_path),
    ];
    for (name, fields) in ways {
        let mut connection = Connection::of_proxy();
        connection.window(0, 1 << 30);
        let malformed: Range<u32> = 0..6_000;
        for number in malformed.clone() {
            let block = match fields[0].0.starts_with(':') {
                true => connection.block(fields),
                false => connection.request("GET", "/", fields),
            };
            connection.frame(Kind::Headers, WHOLE, 2 * number + 1, &block);
        }
        let code = ErrorCode::Protocol as u32;
        let expected: Vec<(u32, u32)> = malformed.map(|number| (2 * number + 1, code)).collect();
        assert_eq!(Connection::errors(&connection.take()), expected, "{name}");
        connection.get_for(bad, 12_001, "/a");
        connection.get_for(good, 12_003, "/a");
        let expected = [(12_001, "429".to_owned()), (12_003, "200".to_owned())];
        let statuses = Connection::statuses(&connection.take());
        assert_eq!(statuses, expected, "{name}");
        connection.pass(1_000).get_for(bad, 12_005, "/a");
        assert!(Connection::content(&connection.take(), 12_005).1, "{name}");
        assert_eq!(connection.ran, [12_003, 12_005], "{name}");
    }
}

/// Where the proxy names nobody it stands for its clients, and those whom it names are served.
#[test]
fn malformed_requests_of_nobody_count_for_the_proxy() {
    let mut connection = Connection::of_proxy();
    connection.window(0, 1 << 30);
    for stream in (1..12_001).step_by(2) {
        let block = connection.request("GET", "/", &[("connection", "close")]);
        connection.frame(Kind::Headers, WHOLE, stream, &block);
    }
    connection.take();
    connection.get(12_001, "/a");
    connection.get_for("192.0.2.2", 12_003, "/a");
    let expected = [(12_001, "429".to_owned()), (12_003, "200".to_owned())];
    assert_eq!(Connection::statuses(&connection.take()), expected);
}

/// The proxy's field is the last one. Before, where it could not be kept, what the client had written in front of it
/// counted.
#[test]
fn a_client_cannot_have_its_malformed_requests_count_for_another_one() {
    let (own, other) = ("192.0.2.1", "192.0.2.2");
    let named = ("x-forwarded-for", other);
    let ways: [(&str, Vec<(&str, &str)>); 3] = [
        (
            "behind a space",
            vec![named, ("x-forwarded-for", " x, 192.0.2.1")],
        ),
        (
            "behind a control character",
            vec![
                named,
                ("x-forwarded-for", "\x01, 192.0.2.1"),
                ("te", "gzip"),
            ],
        ),
        (
            "behind many fields",
            [
                &[("te", "gzip")][..],
                &[named; 120],
                &[("x-forwarded-for", own)],
            ]
            .concat(),
        ),
    ];
    for (name, fields) in ways {
        let mut connection = Connection::of_proxy();
        connection.window(0, 1 << 30);
        for number in 0..1_000 {
            let block = connection.request("GET", "/", &fields);
            connection.frame(Kind::Headers, WHOLE, 2 * number + 1, &block);
        }
        assert_eq!(
            Connection::errors(&connection.take()).len(),
            1_000,
            "{name}"
        );
        connection.get_for(other, 2_001, "/a");
        let statuses = Connection::statuses(&connection.take());
        assert_eq!(statuses, [(2_001, "200".to_owned())], "{name}");
    }
}
