//! Times that clients and apps have.

use loadline_base::Buffer;
use loadline_proto::http2::frame::{ErrorCode, Kind, PREFACE, flags, frame};
use loadline_proto::{CloseReason, Http2Count, Limits, Piece, Session};

use crate::connection::Connection;

#[test]
fn a_client_that_never_begins() {
    let mut connection = Connection::silent(Limits::default());
    connection.feed(b"PRI * HT").pass(9_999);
    assert!(!connection.has_finished);
    connection.pass(1);
    assert!(connection.has_finished);
    connection.eof();
    assert_eq!(connection.closes(CloseReason::Slow), 1);
}

/// Feeds a part before each pause; says after how many milliseconds the connection ends.
fn drip(connection: &mut Connection, bytes: &[u8], piece_bytes: usize, pause_ms: u64) -> u64 {
    let begun = connection.now;
    for piece in bytes.chunks(piece_bytes) {
        connection.feed(piece).pass(pause_ms);
        if connection.has_finished {
            return connection.now.since(begun);
        }
    }
    panic!("a drip holds it open");
}

/// Each part of a frame gave the rest of it the whole time anew.
#[test]
fn a_drip_buys_no_time() {
    let settings = frame(Kind::Settings, 0, 0, &[0; 60]);
    let headers = frame(Kind::Headers, flags::END_HEADERS, 1, &[0x82; 16_384]);
    let preface = PREFACE.to_vec();
    let begin = [preface.clone(), frame(Kind::Settings, 0, 0, &[])].concat();
    for (name, before, bytes, piece_bytes, pause_ms, ends_ms) in [
        ("the preface", &b""[..], &preface, 1, 1_000, 10_000),
        ("SETTINGS", &preface[..], &settings, 1, 1_000, 11_000),
        ("HEADERS", &begin[..], &headers, 1, 1_000, 11_000),
        ("HEADERS at 510 B/s", &begin[..], &headers, 51, 100, 30_000),
    ] {
        let mut connection = Connection::silent(Limits::default());
        connection.feed(before);
        let ended_ms = drip(&mut connection, bytes, piece_bytes, pause_ms);
        assert_eq!(ended_ms, ends_ms, "{name}");
        assert_eq!(connection.faults(), [0, 0, 0, 1], "{name}");
        connection.eof();
        assert_eq!(connection.closes(CloseReason::Slow), 1, "{name}");
    }
}

#[test]
fn a_part_behind_a_whole_frame_has_a_time_of_its_own() {
    let update = frame(Kind::WindowUpdate, 0, 0, &1_u32.to_be_bytes());
    let (first, rest) = update.split_at(5);
    let mut connection = Connection::new();
    connection.feed(first).pass(9_000);
    connection.feed(&[rest, first].concat()).pass(10_009);
    assert!(!connection.has_finished);
    connection.pass(1);
    assert!(connection.has_finished);
}

#[test]
fn a_frame_in_two_parts_prolongs_the_idle_time_no_more_than_a_whole_one() {
    let update = frame(Kind::WindowUpdate, 0, 0, &1_u32.to_be_bytes());
    let ping = frame(Kind::Ping, 0, 0, &[0; 8]); // has an answer, with which the time begins anew
    for (bytes, left_ms) in [(update, 7_500), (ping, 15_000)] {
        let mut connection = Connection::new();
        let (first, rest) = bytes.split_at(5);
        connection.pass(7_000).feed(first).pass(500).feed(rest);
        connection.pass(left_ms - 1);
        assert!(!connection.has_finished, "{left_ms}");
        connection.pass(1);
        assert!(connection.has_finished, "{left_ms}");
        connection.eof();
        assert_eq!(connection.closes(CloseReason::Idle), 1, "{left_ms}");
    }
}

#[test]
fn an_idle_connection_gets_goaway_and_ends() {
    let mut connection = Connection::new();
    connection.get(1, "/a").take();
    connection.pass(14_999).get(3, "/a").take();
    connection.pass(14_999);
    assert_eq!(connection.take(), []);
    connection.pass(1);
    assert_eq!(
        Connection::errors(&connection.take()),
        [(0, ErrorCode::NoError as u32)]
    );
    connection.pass(10_000);
    assert!(connection.is_closed());
    assert_eq!(connection.closes(CloseReason::Idle), 1);
}

#[test]
fn a_head_that_does_not_end() {
    let mut connection = Connection::new();
    connection.frame(Kind::Headers, 0, 1, &[0x82]).pass(30_000);
    assert!(connection.has_finished);
    assert_eq!(connection.faults(), [0, 0, 0, 1]);
}

#[test]
fn content_that_does_not_come_is_408_and_others_go_on() {
    let mut connection = Connection::new();
    connection.post(1, "/p", &[("content-length", "10")]);
    connection.pass(5_000).get(3, "/a").take();
    connection.pass(5_000);
    let frames = connection.take();
    assert_eq!(Connection::statuses(&frames), [(1, "408".to_owned())]);
    assert!(!connection.has_finished);
    assert_eq!(connection.faults(), [0, 0, 0, 1]);
    assert_eq!(connection.counted(Http2Count::SlowStreams), 1);
}

/// Four apps read nothing of what they were sent, so that the client may send so many bytes more.
fn with_window_left(bytes: usize) -> Connection {
    let mut connection = Connection::new();
    for stream in [1, 3, 5, 7] {
        connection.post(stream, "/task", &[]);
        for _ in 0..3 {
            connection.frame(Kind::Data, 0, stream, &[b'x'; 16_384]);
        }
        let last = 16_384 - if stream == 7 { bytes } else { 0 };
        connection.frame(Kind::Data, 0, stream, &vec![b'x'; last]);
    }
    connection
}

/// A client that may send nothing is not late: its time begins when the connection's window opens.
#[test]
fn a_client_is_not_late_while_the_connections_window_is_shut() {
    let mut connection = with_window_left(0);
    connection.post(9, "/p", &[("content-length", "10")]);
    connection.post(11, "/task", &[]).consume(11, 0);
    connection.post(13, "/task", &[("content-length", "10")]);
    assert!(
        connection.apps.contains_key(&13),
        "nothing to be gathered can come"
    );
    connection.pass(30_000);
    assert_eq!(connection.take(), []);
    connection.consume(1, 1_000);
    let frames = connection.take();
    let opened: Vec<_> = frames.iter().map(|it| (it.kind, it.stream)).collect();
    assert_eq!(opened, [(Kind::WindowUpdate, 0)]);
    connection.pass(9_999);
    assert_eq!(connection.take(), []);
    connection.pass(1);
    let slow = [(9, "408".to_owned()), (11, "408".to_owned())];
    assert_eq!(Connection::statuses(&connection.take()), slow);
}

/// One byte at a time shuts the connection's window again and again: that gives others no more time.
#[test]
fn a_window_that_is_shut_for_a_moment_makes_no_time() {
    let mut connection = with_window_left(1);
    connection.post(9, "/p", &[("content-length", "10")]);
    connection.pass(5_000).frame(Kind::Data, 0, 7, b"x");
    connection.consume(7, 1);
    let frames = connection.take();
    let opened: Vec<_> = frames.iter().map(|it| (it.kind, it.stream)).collect();
    assert_eq!(opened, [(Kind::WindowUpdate, 0)]);
    connection.pass(5_000);
    let slow = [(9, "408".to_owned())];
    assert_eq!(Connection::statuses(&connection.take()), slow);
}

/// What apps leave unread while they respond is no reason to wait for the rest without end.
#[test]
fn a_window_that_stays_shut_ends_what_waits_for_it() {
    let mut connection = with_window_left(0);
    for stream in [1, 3, 5, 7] {
        connection.answer(stream, None);
    }
    connection.post(9, "/p", &[("content-length", "10")]);
    let silence_ms = Limits::default().app_silence_timeout_ms;
    let ends = |connection: &mut Connection| {
        let statuses = Connection::statuses(&connection.take());
        statuses.contains(&(9, "408".to_owned()))
    };
    connection.pass(silence_ms / 2);
    for stream in [1, 3, 5, 7] {
        let piece = Piece::Data(Buffer::from(b"more".to_vec()));
        connection.produce(stream, piece);
    }
    connection.pass(silence_ms - silence_ms / 2 - 1);
    assert!(!ends(&mut connection));
    connection.pass(1);
    assert!(ends(&mut connection));
}

/// Half a frame a minute is no reason to wait: content counts as it comes.
#[test]
fn slow_content_counts_as_it_comes() {
    let mut connection = Connection::new();
    connection.post(1, "/p", &[("content-length", "16000")]);
    let mut head = Vec::new();
    loadline_proto::http2::frame::FrameHead {
        len: 16_000,
        kind: Kind::Data,
        flags: flags::END_STREAM,
        stream: 1,
    }
    .write(&mut head);
    connection.feed(&head);
    for _ in 0..16 {
        connection.pass(1_900).feed(&[b'x'; 1_000]);
    }
    assert_eq!(
        Connection::statuses(&connection.take()),
        [(1, "200".to_owned())]
    );
}

#[test]
fn a_window_that_stays_shut_ends_its_stream() {
    let mut connection = Connection::new();
    connection.get(1, "/bytes/100000").take();
    connection.pass(19_000);
    assert_eq!(connection.take(), []);
    // A byte now and then is too little.
    for _ in 0..10 {
        connection.window(0, 1).window(1, 1).pass(1_000);
    }
    let errors = Connection::errors(&connection.take());
    assert_eq!(errors, [(1, ErrorCode::Cancel as u32)]);
    assert_eq!(connection.counted(Http2Count::SlowStreams), 1);
    assert_eq!(connection.counted(Http2Count::ServerResets), 1);
}

#[test]
fn an_app_that_does_not_answer_is_503_and_cancelled() {
    let mut connection = Connection::new();
    connection.get(1, "/task").pass(60_000);
    assert_eq!(
        Connection::statuses(&connection.take()),
        [(1, "503".to_owned())]
    );
    assert_eq!(connection.cancelled, [1]);
}

#[test]
fn an_app_that_falls_silent_is_cut() {
    let mut connection = Connection::new();
    connection.get(1, "/task").answer(1, None);
    connection
        .produce(1, Piece::Data(Buffer::from(b"x".to_vec())))
        .take();
    connection.pass(300_000);
    assert_eq!(connection.cancelled, [1]);
    assert_eq!(Connection::errors(&connection.take())[0].0, 1);
}

/// Calls of gRPC pause in both directions. What ends them is silence of both sides.
#[test]
fn a_client_may_be_silent_as_long_as_the_app_once_the_response_has_begun() {
    let piece = || Piece::Data(Buffer::from(b"x".to_vec()));
    let mut connection = Connection::new();
    connection.post(1, "/task", &[]).post(3, "/task", &[]);
    connection.consume(1, 0).consume(3, 0).answer(1, None);
    connection.pass(10_000);
    let frames = connection.take();
    let statuses = [(1, "200".to_owned()), (3, "408".to_owned())];
    assert_eq!(Connection::statuses(&frames), statuses);
    assert_eq!(connection.cancelled, [3], "it has not begun its response");
    connection.pass(289_999).produce(1, piece());
    connection.pass(299_999);
    connection.frame(Kind::Data, 0, 1, b"y").pass(299_999);
    connection.consume(1, 1).pass(299_999);
    assert_eq!(
        connection.cancelled,
        [3],
        "each step gives it the time anew"
    );
    assert_eq!(Connection::content(&connection.take(), 1).0, b"x");
    connection.pass(1);
    assert_eq!(connection.cancelled, [3, 1]);
    let errors = Connection::errors(&connection.take());
    assert_eq!(errors, [(1, ErrorCode::Cancel as u32)]);
}

#[test]
fn output_that_does_not_leave_ends_the_connection() {
    let mut connection = Connection::new();
    connection.hold_output = true;
    connection.get(1, "/a").pass(20_000);
    assert!(connection.is_closed());
    assert_eq!(connection.closes(CloseReason::Slow), 1);
}

#[test]
fn output_that_waits_for_the_servers_disk_has_its_time() {
    let mut connection = Connection::new();
    connection.hold_output = true;
    connection.get(1, "/a").pass(19_000).read_for(60_000);
    connection.pass(19_999);
    assert!(!connection.is_closed());
    connection.pass(1);
    assert_eq!(connection.closes(CloseReason::Slow), 1);
}

#[test]
fn a_blocking_step_has_its_time() {
    let mut connection = Connection::new();
    connection.hold_blocking = true;
    connection.get(1, "/block");
    assert_eq!(connection.session().deadline(), None);
    connection.pass(1_000_000).complete(1);
    assert!(Connection::content(&connection.take(), 1).1);
}

/// Memory and places are taken from slow connections first: one of them has a stream that waits for its
/// client, and nothing else is done for it.
#[test]
fn a_connection_is_not_slow_while_the_server_works_for_it() {
    let mut connection = Connection::new();
    connection.hold_blocking = true;
    connection.post(1, "/p", &[("content-length", "10")]);
    let begun = connection.now;
    let slow_since = |it: &mut Connection| it.session().awaits_client_since();
    assert_eq!(slow_since(&mut connection), Some(begun));
    connection.pass(1_000).get(3, "/block").get(5, "/task");
    assert_eq!(slow_since(&mut connection), None);
    connection.complete(3);
    assert_eq!(slow_since(&mut connection), None);
    connection.answer(5, None).produce(5, Piece::End);
    assert_eq!(slow_since(&mut connection), Some(begun));

    // Its client does not read, however many requests of it are in progress.
    connection.get(7, "/block").hold_output = true;
    connection.pass(1_000).get(9, "/a");
    assert_eq!(slow_since(&mut connection), Some(begun));
    connection.release();
    assert_eq!(slow_since(&mut connection), None);
}

/// It is slow from when the app asks, not from when the request came.
#[test]
fn a_connection_is_slow_from_when_its_time_began() {
    let mut connection = Connection::new();
    connection.post(1, "/task", &[]).pass(5_000).consume(1, 0);
    let asked = connection.now;
    assert_eq!(connection.session().awaits_client_since(), Some(asked));
    connection.pass(5_000).answer(1, None);
    let answered = connection.now;
    assert_eq!(connection.session().awaits_client_since(), Some(answered));
}

/// A request that waits for the client to read others is no work for the server.
#[test]
fn a_request_that_cannot_be_begun_does_not_excuse_its_client() {
    let mut connection = Connection::new();
    connection.get(1, "/bytes/2000000");
    let begun = connection.now;
    connection.pass(1_000).get(3, "/a");
    assert_eq!(connection.ran, [1]);
    assert_eq!(connection.session().awaits_client_since(), Some(begun));
}
