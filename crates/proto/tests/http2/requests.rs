//! Requests and responses.

use loadline_proto::http2::frame::{ErrorCode, Kind, PREFACE, flags, frame, number};
use loadline_proto::{Body, Fields, Limits, Piece, Security, Session, Then};

use crate::connection::{Connection, Frame};

const WHOLE: u8 = flags::END_HEADERS | flags::END_STREAM;

#[test]
fn a_request_has_its_response() {
    let mut connection = Connection::new();
    connection.get(1, "/a?b");
    let frames = connection.take();
    let head = String::from_utf8(frames[0].payload.clone()).unwrap();
    assert_eq!(
        head,
        ":status: 200\nserver: Loadline\ndate: Sun, 06 Nov 1994 08:49:37 GMT\n\
         content-type: text/plain\ncontent-length: 9\n"
    );
    assert_eq!(
        Connection::content(&frames, 1),
        (b"GET /a?b ".to_vec(), true)
    );
    assert_eq!(frames.len(), 2);
    assert!(connection.session().is_idle());
}

#[test]
fn content_of_length_0_may_end_in_an_empty_frame() {
    let mut connection = Connection::new();
    connection.post(1, "/p", &[("content-length", "0")]);
    connection.frame(Kind::Data, flags::END_STREAM, 1, b"");
    let frames = connection.take();
    assert_eq!(
        Connection::content(&frames, 1),
        (b"POST /p ".to_vec(), true)
    );
}

#[test]
fn heads_and_content_of_any_cut() {
    let mut whole = Connection::silent(Limits::default());
    let mut bytes = PREFACE.to_vec();
    bytes.extend(frame(Kind::Settings, 0, 0, &[]));
    let block = whole.request("POST", "/p", &[("content-length", "5")]);
    let (first, rest) = block.split_at(7);
    bytes.extend(frame(Kind::Headers, 0, 1, first));
    bytes.extend(frame(Kind::Continuation, flags::END_HEADERS, 1, rest));
    bytes.extend(frame(Kind::Data, 0, 1, b"con"));
    bytes.extend(frame(
        Kind::Data,
        flags::PADDED | flags::END_STREAM,
        1,
        b"\x02tent__",
    ));
    let expected = {
        bytes.truncate(bytes.len() - 16);
        bytes.extend(frame(
            Kind::Data,
            flags::PADDED | flags::END_STREAM,
            1,
            b"\x02te__",
        ));
        whole.feed(&bytes);
        whole.take()
    };
    assert_eq!(
        Connection::content(&expected, 1),
        (b"POST /p conte".to_vec(), true)
    );
    for cut in 1..bytes.len() {
        let mut connection = Connection::silent(Limits::default());
        connection.feed(&bytes[..cut]).feed(&bytes[cut..]);
        assert_eq!(connection.take(), expected, "cut at {cut}");
    }
    let mut connection = Connection::silent(Limits::default());
    for byte in &bytes {
        connection.feed(std::slice::from_ref(byte));
    }
    assert_eq!(
        Connection::content(&connection.take(), 1).0,
        b"POST /p conte"
    );
}

#[test]
fn many_requests_are_in_progress_and_answered_in_one_batch() {
    let mut connection = Connection::new();
    connection.hold_output = true;
    connection.get(1, "/1");
    let mut bytes = Vec::new();
    for stream in (3..63).step_by(2) {
        let block = connection.request("GET", &format!("/{stream}"), &[]);
        let flags = flags::END_HEADERS | flags::END_STREAM;
        bytes.extend(frame(Kind::Headers, flags, stream, &block));
    }
    connection.feed(&bytes);
    assert_eq!(connection.ran.len(), 31, "while output is on its way");
    connection.release();
    let frames = connection.take();
    assert_eq!(Connection::statuses(&frames).len(), 31);
    for stream in (1..63).step_by(2) {
        assert!(Connection::content(&frames, stream).1, "{stream}");
    }
}

#[test]
fn blocking_steps_of_several_streams_end_in_any_order() {
    let mut connection = Connection::new();
    connection.hold_blocking = true;
    connection
        .get(1, "/block")
        .get(3, "/block")
        .get(5, "/quick");
    assert_eq!(Connection::content(&connection.take(), 5).0, b"GET /quick ");
    connection.complete(3);
    assert_eq!(
        Connection::content(&connection.take(), 3),
        (b"blocked".to_vec(), true)
    );
    connection.complete(1);
    assert_eq!(
        Connection::content(&connection.take(), 1),
        (b"blocked".to_vec(), true)
    );
}

#[test]
fn head_has_the_length_and_no_content() {
    let mut connection = Connection::new();
    let block = connection.request("HEAD", "/bytes/1000", &[]);
    connection.frame(
        Kind::Headers,
        flags::END_HEADERS | flags::END_STREAM,
        1,
        &block,
    );
    let frames = connection.take();
    assert_eq!(frames.len(), 1);
    assert!(String::from_utf8_lossy(&frames[0].payload).contains("content-length: 1000\n"));
    assert!(Connection::content(&frames, 1).1);
}

/// Refused before its method was looked at, HEAD got content.
#[test]
fn a_head_request_that_is_refused_has_no_content() {
    let long = format!("/{}", "x".repeat(9_000));
    let many = [("a", "b"); 101];
    for (path, more, status) in [
        ("/", &many[..], "431"),
        (&*long, &many[..0], "414"),
        ("/\u{e4}", &many[..0], "400"),
    ] {
        let mut connection = Connection::new();
        let block = connection.request("HEAD", path, more);
        let flag = flags::END_HEADERS | flags::END_STREAM;
        let frames = connection.frame(Kind::Headers, flag, 1, &block).take();
        assert_eq!(Connection::statuses(&frames), [(1, status.to_owned())]);
        assert_eq!(frames.len(), 1, "{status}: no DATA");
        assert!(Connection::content(&frames, 1).1, "{status}");
    }
}

#[test]
fn trailers_end_the_content_of_a_request() {
    let mut connection = Connection::new();
    connection
        .post(1, "/p", &[])
        .frame(Kind::Data, 0, 1, b"content");
    let block = connection.block(&[("checksum", "1"), ("x-empty", ""), ("checksum", "2")]);
    connection.frame(Kind::Headers, WHOLE, 1, &block);
    assert_eq!(
        Connection::content(&connection.take(), 1).0,
        b"POST /p contentchecksum: 1\r\nx-empty: \r\nchecksum: 2\r\n"
    );
}

/// What they come to, and what the stream is reset for otherwise.
fn with_trailers(trailers: &[(&str, &str)]) -> Result<usize, ErrorCode> {
    let mut connection = Connection::new();
    connection.post(1, "/task", &[]);
    let block = connection.block(trailers);
    connection.frame(Kind::Headers, WHOLE, 1, &block);
    let errors = Connection::errors(&connection.take());
    let app = &connection.apps[&1];
    assert_eq!(app.has_end, errors.is_empty());
    match errors[..] {
        [] => Ok(app.trailers.as_ref().map_or(0, Fields::len)),
        [(1, code)] if code == ErrorCode::Protocol as u32 => Err(ErrorCode::Protocol),
        [(1, code)] if code == ErrorCode::EnhanceYourCalm as u32 => Err(ErrorCode::EnhanceYourCalm),
        _ => panic!("{errors:?}"),
    }
}

#[test]
fn trailers_have_limits_and_may_not_be_fields_of_the_head() {
    assert_eq!(with_trailers(&[]), Ok(0));
    assert_eq!(with_trailers(&[("checksum", "1"); 100]), Ok(100));
    let too_large = Err(ErrorCode::EnhanceYourCalm);
    assert_eq!(with_trailers(&[("checksum", "1"); 101]), too_large);
    let long = "x".repeat(8_000);
    assert_eq!(with_trailers(&[("checksum", &long)]), Ok(1));
    assert_eq!(with_trailers(&[("checksum", long.as_str()); 2]), too_large);
    for (name, value) in [
        ("host", "h"),
        ("content-length", "0"),
        ("authorization", "x"),
        ("x-forwarded-proto", "https"),
        (":path", "/"),
        ("checksum", "a\u{1}b"),
    ] {
        let trailers = [("checksum", "1"), (name, value)];
        assert_eq!(with_trailers(&trailers), Err(ErrorCode::Protocol), "{name}");
    }
}

/// They were dropped.
#[test]
fn an_app_gets_trailers_behind_the_content() {
    for fields in [&[][..], &[("content-length", "7")]] {
        let mut without = Connection::new();
        without.post(1, "/task", fields);
        without.frame(Kind::Data, flags::END_STREAM, 1, b"content");
        let held_without = without.session().held_bytes();
        let mut connection = Connection::new();
        connection.post(1, "/task", fields);
        connection.frame(Kind::Data, 0, 1, b"content");
        let sum = "7".repeat(6_000); // more than the dynamic table holds
        let block = connection.block(&[("x-sum", &sum)]);
        connection.frame(Kind::Headers, WHOLE, 1, &block);
        let held = connection.session().held_bytes();
        assert!(held > held_without + 5_000, "{held}, {held_without}");
        let app = &connection.apps[&1];
        assert_eq!((&app.content[..], app.has_end), (&b"content"[..], true));
        let trailers = app.trailers.as_ref().unwrap();
        assert_eq!(trailers.get("X-Sum"), Some(sum.as_bytes()));
        connection.answer(1, Some(0)).produce(1, Piece::End);
        assert!(connection.session().is_idle());
    }
}

/// Of a request that is answered already they are looked at, and dropped.
#[test]
fn trailers_that_nobody_awaits_are_dropped() {
    let mut connection = Connection::new();
    connection.post(1, "/deaf", &[]);
    assert!(Connection::content(&connection.take(), 1).1);
    let block = connection.block(&[("x-sum", "7")]);
    connection.frame(Kind::Headers, WHOLE, 1, &block);
    assert_eq!(Connection::errors(&connection.take()), []);
    assert!(connection.session().is_idle());
}

#[test]
fn a_client_that_expects_100_gets_it() {
    let mut connection = Connection::new();
    connection.post(
        1,
        "/p",
        &[("expect", "100-continue"), ("content-length", "2")],
    );
    let frames = connection.take();
    assert_eq!(Connection::statuses(&frames), [(1, "100".to_owned())]);
    connection.frame(Kind::Data, flags::END_STREAM, 1, b"ok");
    assert_eq!(Connection::content(&connection.take(), 1).0, b"POST /p ok");
}

#[test]
fn content_that_nobody_reads_is_received_and_dropped() {
    let mut connection = Connection::new();
    connection.post(1, "/deaf", &[]);
    let frames = connection.take();
    assert!(Connection::content(&frames, 1).1);
    assert_eq!(Connection::errors(&frames), []);
    connection.frame(Kind::Data, flags::END_STREAM, 1, b"unread");
    connection.get(3, "/next");
    assert_eq!(Connection::errors(&connection.take()), []);

    // So is more than the windows, whether its length was said or not.
    let mut all = (256 << 10) - 6; // what was unread before
    for (stream, fields) in [(5, &[("content-length", "320000")][..]), (7, &[])] {
        connection.post(stream, "/deaf", fields);
        let mut own = 64 << 10;
        for left in (0..20).rev() {
            for frame in connection.take() {
                match (frame.kind, frame.stream) {
                    (Kind::RstStream | Kind::GoAway, _) => panic!("{frame:?}"),
                    (Kind::WindowUpdate, 0) => all += number(&frame.payload),
                    (Kind::WindowUpdate, _) => own += number(&frame.payload),
                    _ => {}
                }
            }
            assert!(own <= 64 << 10 && all <= 256 << 10, "{stream}: {own} {all}");
            assert!(own.min(all) >= 16_000, "{stream}: {own} {all}");
            (own, all) = (own - 16_000, all - 16_000);
            let end = if left == 0 { flags::END_STREAM } else { 0 };
            connection.frame(Kind::Data, end, stream, &[b'x'; 16_000]);
        }
    }
    connection.get(9, "/next");
    let frames = connection.take();
    assert_eq!(Connection::errors(&frames), []);
    assert!(Connection::content(&frames, 9).1);
}

#[test]
fn content_that_nobody_reads_has_its_limits() {
    let limits = Limits {
        linger_bytes_max: 100_000,
        ..Limits::default()
    };
    let pace = limits.linger_pace;
    let mut connection = Connection::within(limits);
    connection.post(1, "/deaf", &[]).take();
    for _ in 0..6 {
        connection.frame(Kind::Data, 0, 1, &[b'x'; 16_000]);
        assert_eq!(Connection::errors(&connection.take()), []);
    }
    connection.frame(Kind::Data, 0, 1, &[b'x'; 16_000]);
    let errors = Connection::errors(&connection.take());
    assert_eq!(errors, [(1, 0)], "NO_ERROR: it is not needed");
    // What was on its way is no fault, and its window is given back.
    for _ in 0..20 {
        connection.frame(Kind::Data, 0, 1, &[b'x'; 16_000]);
    }
    let frames = connection.take();
    assert_eq!(Connection::errors(&frames), []);
    let is_opened = |frame: &Frame| frame.kind == Kind::WindowUpdate && frame.stream == 0;
    assert!(frames.iter().any(is_opened));

    // What does not come is not awaited, whether the client would send it or be asked for it first.
    for (stream, field) in [
        (3, ("content-length", "10")),
        (5, ("expect", "100-continue")),
    ] {
        connection.post(stream, "/deaf", &[field]);
        connection.pass(pace.grace_ms - 1);
        assert_eq!(Connection::errors(&connection.take()), []);
        let errors = Connection::errors(&connection.pass(1).take());
        assert_eq!(errors, [(stream, 0)]);
    }
    // Nor is what comes slowly, for ever.
    connection.post(7, "/deaf", &[]).take();
    let mut passed_ms = 0;
    while Connection::errors(&connection.take()).is_empty() {
        connection.frame(Kind::Data, 0, 7, &[b'x'; 1_000]);
        connection.pass(500);
        passed_ms += 500;
        assert!(passed_ms <= pace.total_max_ms);
    }
}

#[test]
fn too_much_content_is_413() {
    let limits = Limits {
        body_bytes_max: 1000,
        ..Limits::default()
    };
    let mut connection = Connection::within(limits);
    connection.post(1, "/p", &[("content-length", "1001")]);
    connection
        .post(3, "/p", &[])
        .frame(Kind::Data, 0, 3, &[b'x'; 1001]);
    let statuses = Connection::statuses(&connection.take());
    assert_eq!(statuses, [(1, "413".to_owned()), (3, "413".to_owned())]);
}

#[test]
fn requests_that_are_refused_have_an_answer_and_leave_the_connection_open() {
    let mut connection = Connection::new();
    let long = format!("/{}", "x".repeat(9_000));
    connection.get(1, &long).get(3, "/a");
    let statuses = Connection::statuses(&connection.take());
    assert_eq!(statuses, [(1, "414".to_owned()), (3, "200".to_owned())]);
}

#[test]
fn a_request_over_the_wrong_connection_is_421() {
    let security = Security {
        server_name: Some("a.example.org".into()),
        names: ["*.example.org".to_owned(), "::1".to_owned()].into(),
        response_lines: b"Strict-Transport-Security: max-age=9\r\n"[..].into(),
        ..Security::default()
    };
    let mut connection = Connection::over(Some(security), Limits::default());
    connection.feed(PREFACE).frame(Kind::Settings, 0, 0, &[]);
    let mut stream = 1;
    for (scheme, authority, status) in [
        ("https", "a.example.org", "200"),
        ("https", "A.Example.org:8443", "200"),
        ("https", "b.example.org:8443", "200"),
        ("https", "[::1]:8443", "200"),
        ("https", "[::2]:8443", "421"),
        ("https", "example.org", "421"),
        ("https", "example.com:8443", "421"),
        ("http", "a.example.org", "421"),
    ] {
        let block = connection.block(&[
            (":method", "GET"),
            (":scheme", scheme),
            (":authority", authority),
            (":path", "/a"),
        ]);
        let flag = flags::END_HEADERS | flags::END_STREAM;
        let frames = connection.frame(Kind::Headers, flag, stream, &block).take();
        let statuses = Connection::statuses(&frames);
        assert_eq!(statuses, [(stream, status.to_owned())], "{authority}");
        let heads = frames.iter().filter(|frame| frame.kind == Kind::Headers);
        for head in heads {
            let text = String::from_utf8_lossy(&head.payload);
            assert!(
                text.contains("strict-transport-security: max-age=9\n"),
                "{text}"
            );
        }
        stream += 2;
    }
    // What the response says itself is said once.
    let block = connection.block(&[
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "a.example.org"),
        (":path", "/own-security"),
    ]);
    let flag = flags::END_HEADERS | flags::END_STREAM;
    let frames = connection.frame(Kind::Headers, flag, stream, &block).take();
    let head = frames.iter().find(|frame| frame.kind == Kind::Headers);
    let text = String::from_utf8_lossy(&head.unwrap().payload).into_owned();
    let said: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("security"))
        .collect();
    assert_eq!(said, ["strict-transport-security: max-age=7"]);
}

/// The owner counts the connection as idle from such a batch on, and puts its deadlines off.
#[test]
fn a_connection_does_not_rest_while_requests_are_in_progress() {
    let mut connection = Connection::new();
    connection.hold_blocking = true;
    connection.get(1, "/a").get(3, "/a");
    assert_eq!(connection.then, Some(Then::Rest), "one after the other");

    connection.post(5, "/p", &[("content-length", "2")]);
    connection.get(7, "/a");
    assert_eq!(connection.then, Some(Then::More), "an upload");
    connection.frame(Kind::Data, flags::END_STREAM, 5, b"xx");
    assert_eq!(connection.then, Some(Then::Rest));

    connection.get(9, "/block").get(11, "/a");
    assert_eq!(connection.then, Some(Then::More), "a blocking step");
    connection.complete(9);
    assert_eq!(connection.then, Some(Then::Rest));

    connection.get(13, "/task").get(15, "/a");
    assert_eq!(connection.then, Some(Then::More), "an app's task");
    connection.answer_with(13, Body::Bytes(b"x".to_vec()));
    assert_eq!(connection.then, Some(Then::Rest));
}
