//! What clients do wrong, and what becomes of the stream or the connection (RFC 9113 section 5.4).

use loadline_proto::http2::frame::{ErrorCode, Kind, Setting, flags, frame};
use loadline_proto::{CloseReason, Http2Count, Limits};

use crate::connection::Connection;

const WHOLE: u8 = flags::END_HEADERS | flags::END_STREAM;

/// Each of these ends the connection with GOAWAY.
#[test]
fn connection_errors() {
    use ErrorCode::{Compression, FlowControl, FrameSize, Protocol, StreamClosed};
    let get = Connection::new().request("GET", "/", &[]);
    let cases: Vec<(&str, Vec<Vec<u8>>, ErrorCode)> = vec![
        (
            "an even stream",
            vec![frame(Kind::Headers, WHOLE, 2, &get)],
            Protocol,
        ),
        (
            "content before a head",
            vec![frame(Kind::Data, 0, 1, b"x")],
            Protocol,
        ),
        (
            "reset before a head",
            vec![frame(Kind::RstStream, 0, 1, &[0; 4])],
            Protocol,
        ),
        (
            "window before a head",
            vec![frame(Kind::WindowUpdate, 0, 1, &[0, 0, 0, 1])],
            Protocol,
        ),
        (
            "a push",
            vec![frame(Kind::PushPromise, flags::END_HEADERS, 1, &[0; 5])],
            Protocol,
        ),
        (
            "a continuation of nothing",
            vec![frame(Kind::Continuation, 4, 1, b"")],
            Protocol,
        ),
        (
            "a block interrupted",
            vec![
                frame(Kind::Headers, 0, 1, &get),
                frame(Kind::Ping, 0, 0, &[0; 8]),
            ],
            Protocol,
        ),
        (
            "a block goes on for another",
            vec![
                frame(Kind::Headers, 0, 1, &get),
                frame(Kind::Continuation, 4, 3, &[]),
            ],
            Protocol,
        ),
        (
            "a ping of 7 bytes",
            vec![frame(Kind::Ping, 0, 0, &[0; 7])],
            FrameSize,
        ),
        (
            "settings of 5 bytes",
            vec![frame(Kind::Settings, 0, 0, &[0; 5])],
            FrameSize,
        ),
        (
            "a frame of 16,385 bytes",
            vec![frame(Kind::Unknown, 0, 0, &[0; 16_385])],
            FrameSize,
        ),
        (
            "a field block of nothing",
            vec![frame(Kind::Headers, WHOLE, 1, &[0xff, 0x80])],
            Compression,
        ),
        (
            "no index 0",
            vec![frame(Kind::Headers, WHOLE, 1, &[0x80])],
            Compression,
        ),
        (
            "padding beyond the end",
            vec![frame(Kind::Headers, WHOLE | 8, 1, &[9, 0x82])],
            Protocol,
        ),
        (
            "a priority for no stream",
            vec![frame(Kind::PriorityUpdate, 0, 0, b"\0\0\0\0u=3")],
            Protocol,
        ),
        (
            "a priority for a stream of the server's",
            vec![frame(Kind::PriorityUpdate, 0, 0, b"\0\0\0\x02u=3")],
            Protocol,
        ),
        (
            "a window of nothing",
            vec![frame(Kind::WindowUpdate, 0, 0, &[0; 4])],
            Protocol,
        ),
        (
            "a window beyond its limit",
            vec![frame(Kind::WindowUpdate, 0, 0, &[0x7f, 0xff, 0xff, 0xff])],
            FlowControl,
        ),
        (
            "a head for a closed stream",
            vec![
                frame(Kind::Headers, WHOLE, 1, &get),
                frame(Kind::Headers, WHOLE, 1, &[0x82]),
            ],
            StreamClosed,
        ),
        (
            "a stream of a lower number",
            vec![
                frame(Kind::Headers, WHOLE, 5, &get),
                frame(Kind::Headers, WHOLE, 3, &[0x82]),
            ],
            StreamClosed,
        ),
    ];
    for (what, frames, code) in cases {
        let mut connection = Connection::new();
        for frame in frames {
            connection.feed(&frame);
        }
        let errors = Connection::errors(&connection.take());
        assert_eq!(errors.last(), Some(&(0, code as u32)), "{what}");
        assert!(connection.has_finished, "{what}");
        // What comes then is thrown away, and the connection ends with the client's end.
        connection.get(101, "/").eof();
        assert_eq!(connection.take(), [], "{what}");
        assert_eq!(connection.closes(CloseReason::BadRequest), 1, "{what}");
    }
}

#[test]
fn settings_that_cannot_be() {
    for (id, value, code) in [
        (Setting::ENABLE_PUSH, 2, ErrorCode::Protocol),
        (
            Setting::INITIAL_WINDOW_SIZE,
            1 << 31,
            ErrorCode::FlowControl,
        ),
        (Setting::MAX_FRAME_SIZE, 1, ErrorCode::Protocol),
    ] {
        let mut connection = Connection::new();
        connection.setting(id, value);
        assert_eq!(
            Connection::errors(&connection.take()),
            [(0, code as u32)],
            "{id}"
        );
    }
}

/// Section 6.9.2: it widens the windows of open streams, too.
#[test]
fn a_setting_by_which_a_window_grows_beyond_its_limit() {
    let mut connection = Connection::new();
    connection.get(1, "/bytes/100000").window(1, 1 << 30);
    connection.take();
    connection.setting(Setting::INITIAL_WINDOW_SIZE, (1 << 31) - 1);
    let errors = Connection::errors(&connection.take());
    assert_eq!(errors, [(0, ErrorCode::FlowControl as u32)]);
}

/// Each of these ends its stream alone.
#[test]
fn stream_errors() {
    use ErrorCode::{FlowControl, FrameSize, Protocol, StreamClosed};
    type Case = (&'static str, fn(&mut Connection), ErrorCode);
    let cases: [Case; 11] = [
        (
            "no path",
            |it| head(it, &[(":method", "GET"), (":scheme", "http")]),
            Protocol,
        ),
        (
            "a connection field",
            |it| with(it, ("connection", "close")),
            Protocol,
        ),
        (
            "an upper-case name",
            |it| with(it, ("Accept", "*/*")),
            Protocol,
        ),
        ("TE", |it| with(it, ("te", "gzip")), Protocol),
        (
            "more content than announced",
            |it| {
                _ = it
                    .post(1, "/p", &[("content-length", "1")])
                    .frame(Kind::Data, 0, 1, b"ab")
            },
            Protocol,
        ),
        (
            "content where none was announced",
            |it| {
                _ = it.post(1, "/p", &[("content-length", "0")]).frame(
                    Kind::Data,
                    flags::END_STREAM,
                    1,
                    b"ab",
                )
            },
            Protocol,
        ),
        (
            "less",
            |it| {
                _ = it
                    .post(1, "/p", &[("content-length", "3")])
                    .frame(Kind::Data, 1, 1, b"ab")
            },
            Protocol,
        ),
        (
            "content behind the end",
            |it| {
                it.hold_blocking = true;
                it.get(1, "/block").frame(Kind::Data, 0, 1, b"ab");
            },
            StreamClosed,
        ),
        (
            "more than the window",
            |it| {
                it.post(1, "/task", &[]);
                (0..5).for_each(|_| _ = it.frame(Kind::Data, 0, 1, &[0; 16_000]));
            },
            FlowControl,
        ),
        (
            "a window that grows by nothing",
            |it| _ = it.post(1, "/p", &[]).window(1, 0),
            Protocol,
        ),
        (
            "a priority of 4 bytes",
            |it| _ = it.post(1, "/p", &[]).frame(Kind::Priority, 0, 1, &[0; 4]),
            FrameSize,
        ),
    ];
    for (what, act, code) in cases {
        let mut connection = Connection::new();
        act(&mut connection);
        let errors = Connection::errors(&connection.take());
        assert_eq!(errors, [(1, code as u32)], "{what}");
        connection.get(3, "/a");
        assert!(
            Connection::content(&connection.take(), 3).1,
            "{what}: the connection goes on"
        );
    }
}

fn head(connection: &mut Connection, fields: &[(&str, &str)]) {
    let block = connection.block(fields);
    connection.frame(Kind::Headers, WHOLE, 1, &block);
}

fn with(connection: &mut Connection, field: (&str, &str)) {
    let block = connection.request("GET", "/", &[field]);
    connection.frame(Kind::Headers, WHOLE, 1, &block);
}

#[test]
fn what_is_no_http_2_ends_at_its_first_wrong_byte() {
    for bytes in [&b"GET / HTTP/1.1\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nSX"] {
        let mut connection = Connection::silent(Limits::default());
        connection.feed(bytes);
        let errors = Connection::errors(&connection.take());
        assert_eq!(errors, [(0, ErrorCode::Protocol as u32)]);
    }
    let mut connection = Connection::silent(Limits::default());
    connection.feed(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    connection.frame(Kind::Ping, 0, 0, &[0; 8]);
    let errors = Connection::errors(&connection.take());
    assert_eq!(
        errors,
        [(0, ErrorCode::Protocol as u32)],
        "no settings first"
    );
}

#[test]
fn what_is_unknown_is_ignored() {
    let mut connection = Connection::new();
    connection
        .setting(0xff, 1)
        .frame(Kind::Unknown, 0xff, 0, b"abc")
        .frame(Kind::Unknown, 0, 9, b"")
        .frame(Kind::Priority, 0, 9, &[0, 0, 0, 1, 5])
        .frame(Kind::GoAway, 0, 0, &[0; 8]);
    connection.take();
    connection.get(1, "/a");
    assert!(Connection::content(&connection.take(), 1).1);
}

/// The dynamic table is the same on both ends, also behind requests that are not served.
#[test]
fn a_block_that_is_refused_is_decoded() {
    let limits = Limits {
        streams_max: 1,
        ..Limits::default()
    };
    let mut connection = Connection::within(limits);
    connection.hold_blocking = true;
    connection.get(1, "/block");
    let block = connection.request("GET", "/b", &[("x-new", "value")]);
    connection.frame(Kind::Headers, WHOLE, 3, &block);
    let errors = Connection::errors(&connection.take());
    assert_eq!(errors, [(3, ErrorCode::RefusedStream as u32)]);
    assert_eq!(connection.counted(Http2Count::RefusedStreams), 1);
    connection.complete(1);
    connection.take();
    let again = connection.request("GET", "/b", &[("x-new", "value")]);
    assert!(again.len() < block.len());
    connection.frame(Kind::Headers, WHOLE, 5, &again);
    assert_eq!(Connection::content(&connection.take(), 5).0, b"GET /b ");
}

/// RFC 9218 section 7.1: streams whose priority came before them count with those that are open.
#[test]
fn priorities_before_their_requests_are_as_many_as_streams_may_be() {
    let update = |stream: u32| [&stream.to_be_bytes()[..], b"u=1"].concat();
    let limits = Limits {
        streams_max: 3,
        ..Limits::default()
    };
    let mut connection = Connection::within(limits);
    connection.hold_blocking = true;
    connection.get(1, "/block");
    for stream in [3, 5, 3, 5] {
        connection.frame(Kind::PriorityUpdate, 0, 0, &update(stream));
    }
    connection.get(7, "/block"); // with it 3 and 5 are closed
    connection.frame(Kind::PriorityUpdate, 0, 0, &update(9));
    assert_eq!(Connection::errors(&connection.take()), []);
    connection.frame(Kind::PriorityUpdate, 0, 0, &update(11));
    let errors = Connection::errors(&connection.take());
    assert_eq!(errors, [(0, ErrorCode::Protocol as u32)]);
}

/// As long as a worker had a request and the client did not take the GOAWAY, it was, from wherever it went on.
#[test]
fn nothing_is_read_behind_a_connection_error() {
    let mut connection = Connection::new();
    connection.hold_blocking = true;
    connection.get(1, "/block");
    connection.hold_output = true;
    connection.frame(Kind::Data, 0, 0, &[]);
    connection.frame(Kind::Ping, 0, 0, &[0; 8]).get(3, "/a");
    connection.release();
    let frames = connection.take();
    assert_eq!(frames.len(), 1, "{frames:?}");
    let protocol = [(0, ErrorCode::Protocol as u32)];
    assert_eq!(Connection::errors(&frames), protocol);
    assert!(connection.has_finished);
}
