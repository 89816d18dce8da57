//! Times of responses that wait for their turn, behind others of their connection.

use loadline_base::Buffer;
use loadline_proto::http2::frame::{ErrorCode, Kind, Setting, flags};
use loadline_proto::{Http2Count, Piece, Session};

use crate::connection::Connection;

const CANCEL: u32 = ErrorCode::Cancel as u32;
const REFUSED: u32 = ErrorCode::RefusedStream as u32;

/// Two responses: the first uses each window of the connection up, and the second waits.
fn one_behind_the_other() -> Connection {
    let mut connection = Connection::new();
    connection.setting(Setting::INITIAL_WINDOW_SIZE, 1 << 20);
    connection.get(1, "/bytes/1000000").get(3, "/bytes/1000");
    connection.take();
    connection
}

#[test]
fn who_waits_for_a_turn_at_the_connections_window_is_not_slow() {
    let mut connection = one_behind_the_other();
    for _ in 0..50 {
        connection.window(0, 16_000).pass(1_000);
    }
    let frames = connection.take();
    assert_eq!(Connection::errors(&frames), []);
    assert_eq!(Connection::content(&frames, 3), (vec![], false));
    connection.window(0, 1 << 20);
    let frames = connection.take();
    assert!(Connection::content(&frames, 1).1);
    assert_eq!(Connection::content(&frames, 3), (vec![b'x'; 1000], true));
    assert_eq!(connection.counted(Http2Count::SlowStreams), 0);
}

/// What is taken counts by its length, whichever stream it is of: a byte now and then keeps none.
#[test]
fn a_connections_window_that_opens_byte_by_byte_keeps_no_stream() {
    let mut connection = one_behind_the_other();
    for _ in 0..21 {
        connection.window(0, 1).pass(1_000);
    }
    let errors = Connection::errors(&connection.take());
    assert_eq!(errors, [(1, CANCEL), (3, CANCEL)]);

    let mut connection = one_behind_the_other();
    let mut errors = Vec::new();
    for stream in (5..47).step_by(2) {
        let block = connection.request("GET", "/bytes/1", &[("priority", "u=0")]);
        let of_both = flags::END_HEADERS | flags::END_STREAM;
        connection.frame(Kind::Headers, of_both, stream, &block);
        connection.window(0, 1).pass(1_000);
        let frames = connection.take();
        assert!(Connection::content(&frames, stream).1, "it is first");
        errors.extend(Connection::errors(&frames));
    }
    assert_eq!(
        errors,
        [(1, CANCEL), (3, CANCEL)],
        "short responses buy no time"
    );
}

fn data(bytes: &[u8]) -> Piece {
    Piece::Data(Buffer::from(bytes.to_vec()))
}

/// An app whose content waits behind that of others for longer than an app may be silent.
#[test]
fn an_app_is_not_silent_while_its_content_waits_for_its_turn() {
    let mut connection = Connection::new();
    connection
        .setting(Setting::INITIAL_WINDOW_SIZE, 1 << 24)
        .window(0, 1 << 24);
    let block = connection.request("GET", "/task", &[("priority", "u=7")]);
    let of_both = flags::END_HEADERS | flags::END_STREAM;
    connection.frame(Kind::Headers, of_both, 1, &block);
    connection.answer(1, None).take();
    connection.hold_output = true;
    connection.get(3, "/bytes/2000000");
    connection.produce(1, data(b"late"));
    for _ in 0..20 {
        connection.pass(19_000).take_batch();
    }
    let frames = connection.take();
    assert_eq!(Connection::content(&frames, 1), (vec![], false));
    connection.release();
    assert_eq!(Connection::content(&connection.take(), 1).0, b"late");
    connection.pass(299_999);
    assert_eq!(connection.cancelled, [0; 0]);
    connection.pass(1);
    assert_eq!(
        connection.cancelled,
        [1],
        "its time begins when it has left"
    );
}

/// The time for a window begins when content waits for it, however long the app has said nothing.
#[test]
fn a_client_has_its_time_for_content_that_comes_late() {
    let mut connection = Connection::new();
    connection.get(1, "/bytes/65535").get(3, "/task");
    connection.answer(3, None).pass(100_000);
    connection.produce(3, data(b"late")).take();
    connection.pass(19_999);
    assert_eq!(connection.take(), []);
    connection.window(0, 100);
    assert_eq!(Connection::content(&connection.take(), 3).0, b"late");
}

/// A response of which the client has taken nearly all, in one piece of memory.
#[test]
fn what_was_sent_of_a_response_keeps_no_request_waiting() {
    let mut connection = Connection::new();
    connection
        .setting(Setting::INITIAL_WINDOW_SIZE, 1_000_000)
        .window(0, 1 << 30);
    connection.get(1, "/bytes/1100000").get(3, "/a");
    let frames = connection.take();
    assert!(!Connection::content(&frames, 1).1);
    assert!(Connection::content(&frames, 3).1);
}

/// Of each response a byte is left, which the client does not take: what waits is next to nothing, and so has
/// to be what it holds.
#[test]
fn what_was_sent_of_responses_is_not_held() {
    let mut connection = Connection::new();
    connection
        .setting(Setting::INITIAL_WINDOW_SIZE, 1_099_999)
        .window(0, 1 << 30);
    for index in 0..100 {
        connection.get(2 * index + 1, "/bytes/1100000").take();
    }
    assert_eq!(connection.ran.len(), 100);
    let held = connection.session().held_bytes();
    assert!(held < 6_000_000, "{held}");
}

/// A client that takes one large response slowly, but fast enough, and asks for more meanwhile.
#[test]
fn a_request_that_is_not_begun_in_time_is_refused() {
    let mut connection = Connection::new();
    connection.post(1, "/task", &[("content-length", "7")]);
    connection.get(3, "/bytes/4000000");
    connection.frame(Kind::Data, flags::END_STREAM, 1, b"content");
    connection.get(5, "/a").get(7, "/block");
    for _ in 0..59 {
        connection.window(0, 16_000).window(3, 16_000).pass(1_000);
    }
    connection.pass(999);
    assert_eq!(Connection::errors(&connection.take()), []);
    connection.pass(1);
    let errors = Connection::errors(&connection.take());
    assert_eq!(errors, [(1, REFUSED), (5, REFUSED), (7, REFUSED)]);
    assert!(connection.apps.is_empty());
    assert_eq!(connection.ran, [1, 3]);
    assert_eq!(connection.counted(Http2Count::RefusedStreams), 3);
    connection.window(0, 1 << 24).window(3, 1 << 24);
    connection.get(9, "/a");
    let frames = connection.take();
    assert!(Connection::content(&frames, 3).1 && Connection::content(&frames, 9).1);
}

/// A client that reads all the time, and has asked for more than is made at one time.
#[test]
fn a_request_is_not_refused_while_others_before_it_are_begun() {
    let mut connection = Connection::new();
    connection.setting(Setting::INITIAL_WINDOW_SIZE, 1 << 20);
    let streams: Vec<u32> = (0..40).map(|index| 2 * index + 1).collect();
    for stream in &streams {
        connection.get(*stream, "/bytes/200000");
    }
    assert!(connection.ran.len() < 10, "{:?}", connection.ran);
    for _ in &streams {
        connection.window(0, 200_000).pass(3_000);
    }
    assert_eq!(connection.ran, streams);
    let frames = connection.take();
    assert_eq!(Connection::errors(&frames), []);
    for stream in streams {
        assert!(Connection::content(&frames, stream).1, "{stream}");
    }
}

#[test]
fn a_proxys_clients_do_not_wait_for_a_slow_one() {
    let mut connection = Connection::of_proxy();
    connection.window(0, 1 << 30);
    connection.get_for("192.0.2.1", 1, "/bytes/1900000");
    connection.get_for("192.0.2.1", 3, "/a");
    connection.get_for("192.0.2.2", 5, "/a");
    assert_eq!(connection.ran, [1, 5], "its own have to wait");
    assert!(Connection::content(&connection.take(), 5).1);
    // There is a bound for all of them together.
    for (stream, client) in [(7, "192.0.2.3"), (9, "192.0.2.4"), (11, "192.0.2.5")] {
        connection.get_for(client, stream, "/bytes/1900000");
    }
    assert_eq!(connection.ran, [1, 5, 7, 9]);
    let held = connection.session().held_bytes();
    assert!(held < 6_000_000, "{held}");
    connection.window(1, 1 << 24);
    assert_eq!(connection.ran, [1, 5, 7, 9, 3, 11]);
}

/// It is added up where it is produced, and not counted anew for each request.
#[test]
fn what_apps_have_produced_and_nobody_takes_is_bounded() {
    let mut connection = Connection::new();
    connection.setting(Setting::INITIAL_WINDOW_SIZE, 0);
    for stream in (1..33).step_by(2) {
        connection.get(stream, "/task").answer(stream, None);
        let room = connection.apps[&stream].room;
        let piece = Piece::Data(Buffer::from(vec![b'x'; room]));
        connection.produce(stream, piece);
    }
    // Sixteen have 64 KiB each.
    connection.get(33, "/a");
    assert!(!connection.ran.contains(&33), "{:?}", connection.ran);
    connection.window(0, 1 << 30).window(1, 1 << 16);
    assert_eq!(connection.ran.last(), Some(&33), "there is room");
    for stream in (3..33).step_by(2) {
        connection.window(stream, 1 << 16);
    }
    for stream in (35..1_000).step_by(2) {
        connection.window(stream - 2, 1 << 16);
        connection.get(stream, "/bytes/60000");
        assert_eq!(connection.ran.last(), Some(&stream), "all before is taken");
    }
}

/// The time counted as one that it had waited for the server, which refused it as late: resources of a page got 503s
/// over a slow network.
#[test]
fn a_request_that_has_waited_for_its_client_is_ready_once_there_is_room() {
    let mut connection = Connection::new();
    connection.setting(Setting::INITIAL_WINDOW_SIZE, 1 << 24);
    connection.hold_blocking = true;
    connection.get(1, "/bytes/1200000").get(3, "/block");
    assert_eq!(connection.ran, [1], "too much waits");
    connection.pass(5_000).window(0, 200_000);
    assert_eq!(connection.ran, [1, 3]);
    assert_eq!(connection.parked[&3].ready, connection.now);
    // This one waits for the server.
    connection.session().hold_requests(true);
    let came = connection.now;
    connection.get(5, "/block").pass(1_000);
    connection.session().hold_requests(false);
    connection.window(0, 1);
    assert_eq!(connection.parked[&5].ready, came);
}
