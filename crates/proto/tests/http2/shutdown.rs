//! How connections end.

use loadline_proto::http2::frame::{ErrorCode, Kind, Setting, WINDOW_BYTES_MAX, flags};
use loadline_proto::{CloseReason, Http2Count, Piece};

use crate::connection::Connection;

fn last_stream(frames: &[crate::connection::Frame]) -> Vec<u32> {
    let away = frames.iter().filter(|frame| frame.kind == Kind::GoAway);
    away.map(|frame| u32::from_be_bytes(frame.payload[..4].try_into().unwrap()))
        .collect()
}

#[test]
fn a_drain_finishes_what_was_accepted() {
    let mut connection = Connection::new();
    connection.hold_blocking = true;
    connection.get(1, "/block").drain();
    assert_eq!(last_stream(&connection.take()), [WINDOW_BYTES_MAX]);
    // A request that was on its way is served, too.
    connection.get(3, "/a");
    assert!(Connection::content(&connection.take(), 3).1);
    connection.complete(1);
    let frames = connection.take();
    assert!(Connection::content(&frames, 1).1);
    assert_eq!(last_stream(&frames), [3]);
    assert!(connection.has_finished);
    connection.get(5, "/late");
    assert_eq!(connection.take(), []);
    connection.eof();
    assert_eq!(connection.closes(CloseReason::Drained), 1);
}

#[test]
fn a_drain_ends_an_idle_connection() {
    let mut connection = Connection::new();
    connection.get(1, "/a").take();
    connection.drain();
    assert_eq!(last_stream(&connection.take()), [WINDOW_BYTES_MAX, 1]);
    assert!(connection.has_finished);
}

/// A drained connection whose last GOAWAY is on its way. A worker has the step of a stream that was reset, so that
/// frames are still read.
fn with_goaway_on_its_way() -> Connection {
    let mut connection = Connection::new();
    connection.hold_blocking = true;
    connection.get(1, "/block");
    connection.frame(Kind::RstStream, 0, 1, &[0, 0, 0, ErrorCode::Cancel as u8]);
    connection.hold_output = true;
    connection.drain().take_batch();
    assert_eq!(last_stream(&connection.take()), [WINDOW_BYTES_MAX]);
    assert!(connection.reads);
    connection
}

/// RFC 9113 section 6.8.
#[test]
fn requests_behind_the_last_stream_of_goaway_are_ignored() {
    let mut connection = with_goaway_on_its_way();
    connection.get(3, "/a").post(5, "/p", &[]);
    connection.frame(Kind::Data, 0, 5, b"content").frame(
        Kind::RstStream,
        0,
        5,
        &[0, 0, 0, ErrorCode::Cancel as u8],
    );
    connection.release();
    let frames = connection.take();
    assert_eq!(frames.len(), 1, "{frames:?}");
    assert_eq!(last_stream(&frames), [1]);
    assert_eq!(connection.ran, [1]);
    assert!(connection.has_finished);
    assert_eq!(connection.counted(Http2Count::Floods), 0);
}

/// Before, the connection ended without a GOAWAY that says why.
#[test]
fn requests_behind_the_last_stream_of_goaway_have_an_end() {
    let mut connection = with_goaway_on_its_way();
    let mut count = 0;
    while connection.counted(Http2Count::Floods) == 0 {
        count += 1;
        assert!(count < 1_000, "no end to it");
        connection.get(2 * count + 1, "/a");
    }
    assert!(count > 100, "{count}");
    connection.get(2 * count + 3, "/a");
    connection.release();
    let frames = connection.take();
    let errors = [ErrorCode::NoError, ErrorCode::EnhanceYourCalm].map(|code| (0, code as u32));
    assert_eq!(Connection::errors(&frames), errors);
    assert_eq!(last_stream(&frames), [1, 1], "it must not become higher");
    assert_eq!(frames.len(), 2, "{frames:?}");
    assert_eq!(connection.ran, [1]);
    assert!(connection.has_finished);
    assert_eq!(connection.counted(Http2Count::Floods), 1);
}

#[test]
fn a_client_that_half_closes_has_its_responses() {
    let mut connection = Connection::new();
    connection.hold_blocking = true;
    connection
        .get(1, "/block")
        .post(3, "/p", &[])
        .frame(Kind::Data, 0, 3, b"half");
    connection.eof();
    assert!(!connection.is_closed());
    connection.complete(1);
    assert_eq!(
        Connection::content(&connection.take(), 1),
        (b"blocked".to_vec(), true)
    );
    assert!(connection.is_closed());
    assert_eq!(connection.closes(CloseReason::Client), 1);
}

/// It can open no window any more: nothing is kept for it.
#[test]
fn a_client_that_half_closes_before_a_shut_window_is_closed_at_once() {
    // The connection's window, a stream's, and that of an app's response.
    let mut connection = Connection::new();
    connection.get(1, "/bytes/100000").get(3, "/bytes/10").eof();
    let frames = connection.take();
    assert_eq!(Connection::content(&frames, 1).0.len(), 65_535);
    assert!(connection.is_closed());
    assert_eq!(connection.closes(CloseReason::Vanished), 1);

    let mut connection = Connection::new();
    connection.setting(Setting::INITIAL_WINDOW_SIZE, 1);
    connection.get(1, "/bytes/2").eof();
    assert!(connection.is_closed());

    let mut connection = Connection::new();
    connection.setting(Setting::INITIAL_WINDOW_SIZE, 1);
    connection.get(1, "/task").answer(1, None).eof();
    assert!(!connection.is_closed(), "a byte has room");
    connection.produce(1, Piece::Data(b"a".to_vec().into()));
    assert!(!connection.is_closed());
    connection.produce(1, Piece::Data(b"b".to_vec().into()));
    assert!(connection.is_closed(), "and its task goes with it");
}

#[test]
fn a_client_that_leaves_cancels_what_it_asked_for() {
    let mut connection = Connection::new();
    connection.hold_blocking = true;
    connection.get(1, "/block");
    let hang_up = connection.parked[&1].hang_up.clone();
    connection.frame(Kind::RstStream, 0, 1, &[0, 0, 0, ErrorCode::Cancel as u8]);
    assert!(hang_up.is_gone());
    connection.complete(1).eof();
    assert_eq!(Connection::statuses(&connection.take()), []);
    assert!(connection.is_closed());
}

/// What waits to be begun for a client that may have left is to be known as such.
#[test]
fn a_client_that_half_closes_or_leaves_shows_in_the_requests_of_its_apps() {
    let mut connection = Connection::new();
    connection.get(1, "/task").get(3, "/task").get(5, "/task");
    let of = |connection: &Connection, stream| {
        let exchange = connection.apps[&stream].exchange.as_ref();
        exchange.expect("its request").hang_up.clone()
    };
    let [first, second, third] = [1, 3, 5].map(|stream| of(&connection, stream));
    connection.frame(Kind::RstStream, 0, 3, &[0, 0, 0, ErrorCode::Cancel as u8]);
    assert!(second.is_gone() && !first.is_half_closed());
    connection.eof();
    assert!(first.is_half_closed() && !first.is_gone());
    connection.answer(1, Some(1));
    connection.produce(5, Piece::Abort); // the app has failed, and its client has not left
    assert!(third.is_half_closed() && !third.is_gone());
    connection.produce(1, Piece::Data(b"a".to_vec().into()));
    connection.produce(1, Piece::End);
    assert!(connection.is_closed() && !first.is_gone());
}

/// The same for a step that was not begun before. It seemed to have a client that waits.
#[test]
fn a_step_that_is_begun_behind_a_half_close_shows_it() {
    let mut connection = Connection::new();
    connection
        .setting(Setting::INITIAL_WINDOW_SIZE, 1 << 20)
        .window(0, 1 << 30);
    (connection.hold_output, connection.hold_blocking) = (true, true);
    for stream in (1..11).step_by(2) {
        connection.get(stream, "/bytes/100000");
    }
    connection.get(11, "/block").eof();
    assert_eq!(connection.ran, [1, 3, 5, 7, 9], "the output is full");
    connection.release();
    let hang_up = connection.parked[&11].hang_up.clone();
    assert!(hang_up.is_half_closed() && !hang_up.is_gone());
    connection.complete(11);
    assert!(Connection::content(&connection.take(), 11).1);
    assert!(connection.is_closed());
}

#[test]
fn pings_are_answered() {
    let mut connection = Connection::new();
    connection
        .frame(Kind::Ping, 0, 0, b"12345678")
        .frame(Kind::Ping, flags::ACK, 0, b"12345678");
    let frames = connection.take();
    assert_eq!(frames.len(), 1);
    assert_eq!(
        (frames[0].flags, &frames[0].payload[..]),
        (flags::ACK, &b"12345678"[..])
    );
}
