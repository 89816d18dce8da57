//! Apps whose content streams in both directions.

use loadline_base::Buffer;
use loadline_proto::http2::frame::{ErrorCode, Kind, flags};
use loadline_proto::{Body, Fields, Piece, Session};

use crate::connection::Connection;

fn data(bytes: &[u8]) -> Piece {
    Piece::Data(Buffer::from(bytes.to_vec()))
}

#[test]
fn content_streams_both_ways_on_several_streams() {
    let mut connection = Connection::new();
    connection.post(1, "/task/1", &[]).post(3, "/task/3", &[]);
    connection.frame(Kind::Data, 0, 1, b"one");
    connection.frame(Kind::Data, flags::END_STREAM, 3, b"three");
    assert_eq!(connection.apps[&1].content, b"one");
    assert_eq!(
        (
            &connection.apps[&3].content[..],
            connection.apps[&3].has_end
        ),
        (&b"three"[..], true)
    );
    connection.answer(3, None).answer(1, None);
    connection
        .produce(1, data(b"a"))
        .produce(3, data(b"b"))
        .produce(1, data(b"c"));
    connection.produce(3, Piece::End);
    let frames = connection.take();
    assert_eq!(Connection::content(&frames, 1), (b"ac".to_vec(), false));
    assert_eq!(Connection::content(&frames, 3), (b"b".to_vec(), true));
    connection.frame(Kind::Data, flags::END_STREAM, 1, b"!");
    assert_eq!(
        (
            &connection.apps[&1].content[..],
            connection.apps[&1].has_end
        ),
        (&b"one!"[..], true)
    );
    connection.produce(1, Piece::End);
    assert_eq!(Connection::content(&connection.take(), 1), (vec![], true));
    assert_eq!(connection.cancelled, [0; 0]);
}

#[test]
fn content_that_fits_into_a_window_comes_before_the_task() {
    let mut connection = Connection::new();
    connection.post(1, "/task", &[("content-length", "6")]);
    connection.frame(Kind::Data, 0, 1, b"con");
    assert!(connection.apps.is_empty());
    connection.frame(Kind::Data, flags::END_STREAM, 1, b"ten");
    assert_eq!(
        (
            &connection.apps[&1].content[..],
            connection.apps[&1].has_end
        ),
        (&b"conten"[..], true)
    );
}

#[test]
fn content_that_there_is_no_memory_for_is_refused_and_counted() {
    for (len, refused) in [("16384", 0), ("16385", 1)] {
        let mut connection = Connection::new();
        connection.pool.set_short(true);
        connection.post(1, "/task", &[("content-length", len)]);
        let counted = connection.counters.content_refused_memory.value();
        assert_eq!(counted, refused, "{len}");
    }
}

/// Content of many requests is gathered at once, until the connection's window is used up: what is missing
/// of each could not come.
#[test]
fn tasks_begin_when_their_content_uses_the_connections_window_up() {
    const LEN: usize = 40_000;
    let mut connection = Connection::new();
    let streams = [1, 3, 5, 7, 9, 11, 13, 15];
    for stream in streams {
        connection.post(stream, "/task", &[("content-length", "40000")]);
    }
    for _ in 0..2 {
        assert!(connection.apps.is_empty());
        for stream in streams {
            connection.frame(Kind::Data, 0, stream, &[b'x'; 16_384]);
        }
    }
    assert_eq!(connection.apps.len(), streams.len());
    for stream in streams {
        connection.consume(stream, 32_768);
    }
    let frames = connection.take();
    let more = frames
        .iter()
        .any(|it| (it.kind, it.stream) == (Kind::WindowUpdate, 0));
    assert!(more, "{frames:?}");
    for stream in streams {
        connection.frame(Kind::Data, flags::END_STREAM, stream, &[b'x'; LEN - 32_768]);
        let app = &connection.apps[&stream];
        assert_eq!((app.content.len(), app.has_end), (LEN, true));
    }
}

#[test]
fn an_app_has_room_as_the_client_takes_its_content() {
    let mut connection = Connection::new();
    connection.get(1, "/task").answer(1, None);
    let mut produced = 0;
    while connection.apps[&1].room >= 8_000 {
        connection.produce(1, data(&[b'x'; 8_000]));
        produced += 8_000;
        assert!(produced < 300_000);
    }
    let mut frames = connection.take();
    assert_eq!(
        Connection::content(&frames, 1).0.len(),
        65_535,
        "the client's window"
    );
    assert!(
        (100_000..140_000).contains(&produced),
        "{produced}: and one window more"
    );
    connection.window(0, 1 << 20).window(1, 1 << 20);
    assert!(connection.apps[&1].room >= 32_000);
    connection.produce(1, Piece::End);
    frames.extend(connection.take());
    assert_eq!(
        Connection::content(&frames, 1),
        (vec![b'x'; produced], true)
    );
}

#[test]
fn the_client_sends_on_as_the_app_reads() {
    let mut connection = Connection::new();
    connection.post(1, "/task", &[]);
    for _ in 0..4 {
        connection.frame(Kind::Data, 0, 1, &[b'x'; 16_000]);
    }
    assert_eq!(connection.take(), [], "nobody has read");
    connection.consume(1, 64_000);
    let frames = connection.take();
    let updates: Vec<_> = frames
        .iter()
        .map(|frame| (frame.kind, frame.stream))
        .collect();
    assert_eq!(updates, [(Kind::WindowUpdate, 1)]);
    for _ in 0..4 {
        connection.frame(Kind::Data, 0, 1, &[b'x'; 16_000]);
    }
    assert_eq!(connection.apps[&1].content.len(), 128_000);
}

#[test]
fn trailers_go_to_those_who_take_them() {
    let status = || Fields::default().with("Grpc-Status", "0");
    for (takes, trailers, expected) in [
        (true, status(), true),
        (false, status(), false),
        (true, Fields::default(), false),
    ] {
        let mut connection = Connection::new();
        let te: &[(&str, &str)] = if takes { &[("te", "trailers")] } else { &[] };
        connection.post(1, "/task", te).answer(1, None);
        connection.produce(1, data(b"content"));
        connection
            .produce(1, Piece::Trailers(trailers))
            .produce(1, Piece::End);
        let frames = connection.take();
        assert_eq!(Connection::content(&frames, 1), (b"content".to_vec(), true));
        let trailer = frames
            .iter()
            .any(|frame| frame.payload == b"grpc-status: 0\n");
        assert_eq!(trailer, expected);
    }
}

#[test]
fn who_is_reset_is_cancelled() {
    let mut connection = Connection::new();
    connection.post(1, "/task", &[]).post(3, "/task", &[]);
    connection.frame(Kind::RstStream, 0, 1, &[0, 0, 0, 8]);
    assert_eq!(connection.cancelled, [1]);
    connection.answer(3, None).produce(3, data(b"x"));
    assert_eq!(Connection::content(&connection.take(), 3).0, b"x");
    // What the task still says is too late.
    connection.consume(1, 5);
    assert_eq!(connection.take(), []);
}

#[test]
fn what_an_app_breaks_ends_its_stream() {
    let mut connection = Connection::new();
    connection.get(1, "/task").produce(1, Piece::Abort);
    let frames = connection.take();
    assert_eq!(Connection::statuses(&frames), [(1, "500".to_owned())]);
    for (stream, piece) in [(3, Piece::Abort), (5, Piece::End), (7, data(b"12345"))] {
        connection.get(stream, "/task").answer(stream, Some(4));
        connection.produce(stream, piece);
        let errors = Connection::errors(&connection.take());
        assert_eq!(errors, [(stream, ErrorCode::Internal as u32)]);
    }
    connection.get(9, "/task").answer(9, Some(4));
    connection.produce(9, data(b"1234")).produce(9, Piece::End);
    assert_eq!(
        Connection::content(&connection.take(), 9),
        (b"1234".to_vec(), true)
    );
}

/// An event stream has no end: HEAD does not wait for it.
#[test]
fn a_response_to_head_ends_with_its_head() {
    let mut connection = Connection::new();
    let block = connection.request("HEAD", "/task", &[]);
    let of_both = flags::END_HEADERS | flags::END_STREAM;
    connection.frame(Kind::Headers, of_both, 1, &block);
    connection.answer(1, Some(7));
    let frames = connection.take();
    assert_eq!(Connection::content(&frames, 1), (vec![], true));
    let head = String::from_utf8_lossy(&frames[0].payload);
    assert!(head.contains("content-length: 7\n"), "{head}");
    assert_eq!(connection.cancelled, [1]);
    connection.produce(1, data(b"late")).produce(1, Piece::End);
    assert_eq!(connection.take(), []);
    assert!(connection.session().is_idle());
}

#[test]
fn trailers_may_end_a_response_before_its_request() {
    let mut connection = Connection::new();
    connection.post(1, "/task", &[("te", "trailers")]);
    connection
        .frame(Kind::Data, 0, 1, b"content")
        .answer(1, None);
    let trailers = Fields::default().with("Grpc-Status", "10");
    connection
        .produce(1, Piece::Trailers(trailers))
        .produce(1, Piece::End);
    let frames = connection.take();
    assert!(Connection::content(&frames, 1).1);
    assert_eq!(Connection::errors(&frames), []);
}

#[test]
fn a_response_may_end_before_its_request() {
    let mut connection = Connection::new();
    connection.post(1, "/task", &[]).answer(1, Some(0));
    connection.produce(1, Piece::End);
    let frames = connection.take();
    assert!(Connection::content(&frames, 1).1);
    assert_eq!(Connection::errors(&frames), []);
    connection.frame(Kind::RstStream, 0, 1, &[0, 0, 0, 8]);
    connection.frame(Kind::Data, 0, 1, b"late");
    assert_eq!(
        Connection::errors(&connection.take()),
        [(1, ErrorCode::StreamClosed as u32)],
        "the client has closed it"
    );
}

/// They counted for nothing, so that `--memory-max` did not see them.
#[test]
fn what_workers_and_apps_have_counts_as_memory() {
    for target in ["/block", "/task"] {
        let mut connection = Connection::new();
        connection.hold_blocking = true;
        connection.post(1, target, &[]);
        for end in [0, 0, 0, flags::END_STREAM] {
            connection.frame(Kind::Data, end, 1, &[b'x'; 15_000]);
        }
        let held = connection.session().held_bytes();
        assert!((60_000..90_000).contains(&held), "{target}: {held}");
        match target {
            "/block" => connection.complete(1),
            _ => connection.answer_with(1, Body::Bytes(b"answer".to_vec())),
        };
        let held = connection.session().held_bytes();
        assert!(held < 20_000, "{target}: {held}");
    }
}
