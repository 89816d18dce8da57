//! Which request is begun first and whose content is sent first while windows are open (RFC 9218).

use loadline_base::Buffer;
use loadline_proto::Piece;
use loadline_proto::http2::frame::{Kind, Setting, flags, frame};

use crate::connection::{Connection, Frame};

/// Windows are open, and the client's table has what cached responses are encoded with.
fn open() -> Connection {
    let mut connection = Connection::new();
    connection
        .setting(Setting::INITIAL_WINDOW_SIZE, 1 << 24)
        .window(0, 1 << 24)
        .get(1, "/kept/0");
    connection.take();
    connection
}

/// Requests: streams, targets and priorities.
fn requests(connection: &mut Connection, all: &[(u32, &str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &(stream, target, priority) in all {
        let block = connection.request("GET", target, &[("priority", priority)]);
        let flag = flags::END_HEADERS | flags::END_STREAM;
        bytes.extend(frame(Kind::Headers, flag, stream, &block));
    }
    bytes
}

/// The streams of which content has come, in order.
fn order(frames: &[Frame]) -> Vec<u32> {
    let data = frames.iter().filter(|frame| frame.kind == Kind::Data);
    let mut order: Vec<u32> = data.map(|frame| frame.stream).collect();
    order.dedup();
    order
}

/// Each of them was sent up to 16 KiB at once, before what waited.
#[test]
fn content_that_waits_comes_before_less_urgent_responses() {
    for target in ["/bytes/10000", "/kept/10000"] {
        let mut connection = open();
        connection.hold_output = true;
        let sheet = requests(&mut connection, &[(3, "/bytes/300000", "u=0")]);
        connection.feed(&sheet);
        let pictures = (5_u32..35).step_by(2);
        let pictures: Vec<_> = pictures.map(|stream| (stream, target, "u=3")).collect();
        let pictures = requests(&mut connection, &pictures);
        connection.feed(&pictures).release();
        let frames = connection.take();
        let streams: Vec<u32> = (3..35).step_by(2).collect();
        assert_eq!(order(&frames), streams, "{target}");
        for stream in streams {
            let (content, has_ended) = Connection::content(&frames, stream);
            let len = if stream == 3 { 300_000 } else { 10_000 };
            assert_eq!((content.len(), has_ended), (len, true), "{target}");
        }
    }
}

/// They were begun in the order in which they came.
#[test]
fn the_most_urgent_of_requests_that_come_together_is_begun_first() {
    for target in ["/bytes/40000", "/kept/16384", "/block"] {
        let mut connection = open();
        let all = [
            (3, target, "u=3"),
            (5, target, "u=5"),
            (7, target, "u=3, i"),
            (9, target, "u=3"),
            (11, target, "u=0"),
        ];
        let all = requests(&mut connection, &all);
        connection.feed(&all);
        assert_eq!(connection.ran, [1, 11, 3, 7, 9, 5], "{target}");
        let frames = connection.take();
        assert_eq!(order(&frames).first(), Some(&11), "{target}");
        assert_eq!(order(&frames).last(), Some(&5), "{target}");
    }
}

#[test]
fn a_priority_can_change_before_the_request_is_begun() {
    let mut connection = open();
    let all = [(3, "/a", "u=3"), (5, "/a", "u=3"), (7, "/a", "u=3")];
    let mut bytes = requests(&mut connection, &all);
    for (stream, value) in [(7_u32, "u=1"), (3, "u=6"), (5, "u=3, i")] {
        let update = [&stream.to_be_bytes()[..], value.as_bytes()].concat();
        bytes.extend(frame(Kind::PriorityUpdate, 0, 0, &update));
    }
    connection.feed(&bytes);
    assert_eq!(connection.ran, [1, 7, 5, 3]);
    assert_eq!(order(&connection.take()), [7, 5, 3]);
}

#[test]
fn an_urgent_app_without_content_holds_up_nobody() {
    let mut connection = open();
    let app = requests(&mut connection, &[(3, "/task", "u=0")]);
    connection.feed(&app).answer(3, None);
    let file = requests(&mut connection, &[(5, "/bytes/20000", "u=7")]);
    let frames = connection.feed(&file).take();
    assert!(Connection::content(&frames, 5).1);
    connection.produce(3, Piece::Data(Buffer::from(b"late".to_vec())));
    assert_eq!(Connection::content(&connection.take(), 3).0, b"late");
}

/// One that calls all of its requests urgent, and asks without end, would leave the others no turn.
#[test]
fn a_proxys_clients_do_not_overtake_each_other() {
    let mut connection = Connection::of_proxy();
    connection
        .setting(Setting::INITIAL_WINDOW_SIZE, 1 << 24)
        .window(0, 1 << 24)
        .get_for("192.0.2.1", 1, "/kept/0");
    connection.take();
    connection.hold_output = true;
    let mut ask = |all: &[(u32, &str, &str, &str)]| {
        let mut bytes = Vec::new();
        for &(stream, client, target, priority) in all {
            let more = [("priority", priority), ("x-forwarded-for", client)];
            let block = connection.request("GET", target, &more);
            let flag = flags::END_HEADERS | flags::END_STREAM;
            bytes.extend(frame(Kind::Headers, flag, stream, &block));
        }
        connection.feed(&bytes);
    };
    ask(&[(3, "192.0.2.1", "/bytes/300000", "u=0")]);
    ask(&[
        (5, "192.0.2.2", "/bytes/10000", "u=3"),
        (7, "192.0.2.1", "/bytes/10000", "u=3"),
        (9, "192.0.2.1", "/bytes/10000", "u=0"),
    ]);
    let frames = connection.release().take();
    assert_eq!(connection.ran, [1, 3, 5, 7, 9]);
    assert_eq!(order(&frames), [3, 5, 9, 3, 7]);
}

/// It was refused: the one that was begun before it had not waited itself.
#[test]
fn a_request_is_not_refused_while_more_urgent_ones_are_begun() {
    let mut connection = Connection::new();
    connection.setting(Setting::INITIAL_WINDOW_SIZE, 1 << 24);
    connection.get(1, "/bytes/4000000").get(3, "/a");
    for _ in 0..59 {
        connection.window(0, 16_000).pass(1_000);
    }
    let urgent = requests(&mut connection, &[(5, "/bytes/2000000", "u=0")]);
    connection.feed(&urgent).window(0, 2_500_000); // room for one of both
    assert_eq!(connection.ran, [1, 5]);
    connection.pass(2_000);
    assert_eq!(Connection::errors(&connection.take()), []);
    connection.window(0, 1 << 24);
    assert_eq!(connection.ran, [1, 5, 3]);
    assert!(Connection::content(&connection.take(), 3).1);
}
