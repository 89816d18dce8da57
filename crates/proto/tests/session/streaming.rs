//! An app's task: its content and its answer stream, within their windows, and end in every way.

use crate::drive::{Driver, Event, config};
use loadline_base::Buffer;
use loadline_proto::{
    AccessFormat, AccessLog, Body, CloseReason, Context, Exchange, Fields, Limits, Outcome, Piece,
    Status, TaskOptions,
};

const GET: &[u8] = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n";
const NEXT: &[u8] = b"GET /b HTTP/1.1\r\nHost: h\r\n\r\n";

fn later(_: &mut Exchange, _: &mut Context<'_>) -> Outcome {
    Outcome::Later(TaskOptions::default())
}

fn driver() -> Driver<'static> {
    Driver::new(&config(Limits::default()), later)
}

fn within(window: usize) -> Driver<'static> {
    let limits = Limits {
        stream_window_bytes: window,
        ..Limits::default()
    };
    Driver::new(&config(limits), later)
}

fn post(len: usize, more: &str) -> Vec<u8> {
    format!("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: {len}\r\n{more}\r\n").into_bytes()
}

#[test]
fn an_answer_given_whole() {
    let mut driver = driver();
    driver.feed(GET);
    driver.app_answers(|exchange| {
        assert_eq!(exchange.request.path(), b"/a");
        exchange.response.status = Status::CREATED;
        exchange.response.body = Body::Bytes(b"whole".to_vec());
    });
    driver.go().feed(NEXT);
    driver.app_answers(|_| {}).go();
    let answers = driver.answers();
    assert_eq!(
        (answers[0].status, &answers[0].body[..]),
        (201, &b"whole"[..])
    );
    assert_eq!(answers[0].field("content-length"), Some("5"));
    assert_eq!(answers[1].status, 200);
    assert!(driver.is_idle());
}

#[test]
fn content_of_unknown_length_is_chunked() {
    let mut driver = driver();
    driver.feed(GET);
    driver.app_begins(None).go();
    driver.app_says(b"one").go();
    driver.app_says(b"two").app_says(b"three").go();
    driver.app_produces(Piece::End).go();
    let wire = String::from_utf8_lossy(&driver.output).into_owned();
    assert!(
        wire.ends_with("\r\n\r\n3\r\none\r\n3\r\ntwo\r\n5\r\nthree\r\n0\r\n\r\n"),
        "{wire}"
    );
    assert_eq!(driver.answers()[0].body, b"onetwothree");
    assert!(driver.is_idle());
    driver.feed(NEXT);
    assert!(driver.app.is_some(), "the connection goes on");
}

#[test]
fn content_of_known_length_is_not() {
    let mut driver = driver();
    driver.feed(GET);
    driver
        .app_begins(Some(40_000))
        .app_says(&[b'x'; 20_000])
        .go();
    driver
        .app_says(&[b'y'; 20_000])
        .app_produces(Piece::End)
        .go();
    let answer = &driver.answers()[0];
    assert_eq!(answer.field("content-length"), Some("40000"));
    assert_eq!(answer.body.len(), 40_000);
    assert!(driver.is_idle());
}

#[test]
fn to_http_1_0_the_connection_ends_the_content() {
    let mut driver = driver();
    driver.feed(b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    driver.app_begins(None).app_says(b"until the end");
    driver.app_produces(Piece::End).go();
    let answer = &driver.answers()[0];
    assert!(answer.closes() && driver.is_closed());
    assert_eq!(answer.body, b"until the end");
    let mut driver = self::driver();
    driver.feed(b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    driver
        .app_begins(Some(3))
        .app_says(b"abc")
        .app_produces(Piece::End)
        .go();
    assert!(driver.is_idle(), "a known length keeps it open");
}

#[test]
fn no_content_follows_where_none_may() {
    type Case = (&'static [u8], u16, Option<u64>, Option<&'static str>);
    let cases: [Case; 5] = [
        (b"HEAD /a HTTP/1.1\r\nHost: h\r\n\r\n", 200, None, None),
        (
            b"HEAD /a HTTP/1.1\r\nHost: h\r\n\r\n",
            200,
            Some(7),
            Some("7"),
        ),
        (GET, 204, None, None),
        (GET, 304, Some(7), None),
        (
            b"HEAD /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
            200,
            None,
            None,
        ),
    ];
    for (request, status, len, stated) in cases {
        let mut driver = within(100);
        driver.feed(request);
        driver.app_answers(|exchange| {
            exchange.response.status = Status::new(status).unwrap();
            exchange.response.body = Body::Stream { len };
        });
        driver.go();
        for _ in 0..10 {
            driver.app_says(&[b'x'; 50]).go(); // dropped, and room for more
        }
        driver.app_produces(Piece::End).go();
        let answers = crate::drive::parse_answers(&driver.output, |_| request[0] == b'H');
        assert_eq!((answers.len(), answers[0].status), (1, status));
        assert_eq!(answers[0].field("content-length"), stated, "{status}");
        assert!(driver.is_idle());
    }
}

#[test]
fn trailers_for_who_takes_them() {
    let fields = || Piece::Trailers(Fields::default().with("X-Sum", "1"));
    for (te, expected) in [("TE: gzip , Trailers\r\n", 1), ("TE: gzip\r\n", 0), ("", 0)] {
        let mut driver = driver();
        driver.feed(format!("GET /a HTTP/1.1\r\nHost: h\r\n{te}\r\n").as_bytes());
        driver
            .app_begins(None)
            .app_says(b"x")
            .app_produces(fields());
        driver.app_produces(Piece::End).go();
        assert_eq!(driver.answers()[0].trailers.len(), expected, "{te}");
    }
    let mut driver = driver();
    driver.feed(b"GET /a HTTP/1.1\r\nHost: h\r\nTE: trailers\r\n\r\n");
    driver
        .app_begins(Some(1))
        .app_says(b"x")
        .app_produces(fields());
    driver.app_produces(Piece::End).go();
    assert!(driver.output.ends_with(b"\r\n\r\nx") && driver.is_idle());
}

#[test]
fn an_app_sees_no_more_than_a_window_until_it_reads() {
    let mut driver = within(1000);
    driver.feed(&post(100_000, ""));
    driver.feed(&[b'x'; 100_000]);
    let app = driver.app.as_ref().unwrap();
    assert_eq!((app.content.len(), app.has_end), (1000, false));
    assert_eq!(driver.reading, Some(false), "backpressure is not reading");
    driver.app_consumes(300).go();
    assert_eq!(driver.app.as_ref().unwrap().content.len(), 1300);
    for _ in 0..1000 {
        let app = driver.app.as_ref().unwrap();
        let left = app.content.len() - app.consumed;
        driver.app_consumes(left).go();
    }
    let app = driver.app.as_ref().unwrap();
    assert_eq!((app.content.len(), app.has_end), (100_000, true));
    driver.app_answers(|_| {}).go();
    assert!(
        driver.is_idle() && !driver.answers()[0].closes(),
        "all of it was read"
    );
}

#[test]
fn an_app_has_no_more_room_than_a_window_until_it_is_sent() {
    let mut driver = within(1000);
    driver.feed(GET);
    driver.hold_output = true;
    driver.app_begins(None).app_says(&[b'x'; 1000]).go();
    assert_eq!(driver.app.as_ref().unwrap().room, 0);
    driver.progress(500);
    assert_eq!(driver.app.as_ref().unwrap().room, 0, "before it has left");
    driver.progress(u64::MAX);
    assert_eq!(driver.app.as_ref().unwrap().room, 1000);
    driver.app_says(&[b'y'; 400]).go();
    driver.app_says(&[b'z'; 600]).go();
    assert_eq!(driver.app.as_ref().unwrap().room, 0);
    driver.progress(u64::MAX);
    assert_eq!(
        driver.app.as_ref().unwrap().room,
        0,
        "less than half a window"
    );
    driver.progress(u64::MAX);
    assert_eq!(driver.app.as_ref().unwrap().room, 1000);
}

#[test]
fn a_client_that_expects_100_gets_it_at_the_first_read() {
    let mut driver = driver();
    driver.feed(&post(3, "Expect: 100-continue\r\n"));
    assert!(driver.output.is_empty());
    driver.app_consumes(0).app_consumes(0).go();
    assert_eq!(driver.statuses(), [100]);
    driver.feed(b"abc");
    driver.app_consumes(3).app_answers(|_| {}).go();
    assert_eq!(driver.statuses(), [100, 200]);
    assert!(driver.is_idle());
}

#[test]
fn a_client_that_waits_for_100_in_vain_may_not_send_its_content() {
    let mut driver = driver();
    driver.feed(&post(3, "Expect: 100-continue\r\n"));
    driver.app_answers(|_| {}).go();
    assert!(driver.answers()[0].closes());
    let mut driver = self::driver();
    driver.feed(&post(3, "Expect: 100-continue\r\n"));
    driver.app_begins(None).app_consumes(0).app_says(b"x");
    driver.app_produces(Piece::End).go();
    assert_eq!(driver.statuses(), [200], "no 100 behind a final answer");
    let mut driver = self::driver();
    driver.feed(&[&post(3, "Expect: 100-continue\r\n"), &b"abc"[..]].concat());
    driver.app_consumes(0).app_answers(|_| {}).go();
    assert_eq!(driver.statuses(), [200], "it did not wait");
}

#[test]
fn content_that_no_app_reads_is_thrown_away_within_bounds() {
    let mut driver = within(100);
    driver.feed(&post(1000, "")).app_answers(|_| {}).go();
    assert_eq!(driver.statuses(), [200]);
    assert!(!driver.is_idle());
    driver.feed(&[b'x'; 1000]).feed(NEXT);
    assert!(driver.app.is_some(), "and the next one is served");
    let mut driver = self::driver();
    driver.feed(&post(10 << 20, "")).app_answers(|_| {}).go();
    assert!(driver.answers()[0].closes() && driver.is_lingering());
}

#[test]
fn a_client_that_leaves_cancels_the_task() {
    let mut driver = driver();
    driver.feed(GET).peer_gone();
    assert!(driver.cancelled.is_some() && driver.is_closed());
    assert_eq!(driver.closes(CloseReason::Vanished), 1);
    let mut driver = self::driver();
    driver
        .feed(GET)
        .app_begins(None)
        .app_says(b"x")
        .go()
        .peer_gone();
    assert!(driver.cancelled.is_some() && driver.is_closed());
    assert_eq!(driver.events.last(), Some(&Event::Close));
}

#[test]
fn a_client_that_leaves_with_a_batch_on_its_way_cancels_too() {
    let mut driver = driver();
    driver.hold_output = true;
    driver.feed(GET).app_begins(None).app_says(b"x").go();
    driver.peer_gone();
    assert!(driver.cancelled.is_some() && driver.is_closed());
}

#[test]
fn an_app_that_takes_too_long_is_cancelled() {
    let limits = Limits::default();
    let mut driver = driver();
    driver.feed(GET).pass(limits.app_answer_timeout_ms);
    assert_eq!(driver.statuses(), [503]);
    assert!(driver.answers()[0].closes() && driver.cancelled.is_some());
    assert!(driver.is_lingering() || driver.is_closed());

    let mut driver = self::driver();
    driver.feed(GET).app_begins(None).app_says(b"x").go();
    driver.pass(limits.app_silence_timeout_ms - 1);
    driver
        .app_says(b"y")
        .go()
        .pass(limits.app_silence_timeout_ms - 1);
    assert!(driver.app.is_some(), "each piece gives it the time anew");
    driver.pass(1);
    assert!(driver.cancelled.is_some() && driver.is_closed());
    assert_eq!(driver.closes(CloseReason::Slow), 1);
}

#[test]
fn an_app_may_read_for_long_and_a_client_may_not_starve_it() {
    let limits = Limits::default();
    let mut driver = driver();
    driver.feed(&post(1 << 20, "")).app_consumes(0).go();
    for _ in 0..30 {
        driver
            .pass(5_000)
            .feed(&[b'x'; 10_000])
            .app_consumes(10_000)
            .go();
    }
    assert!(driver.app.is_some(), "more than a minute, but 2 kB/s");
    driver.pass(4 * limits.body_pace.grace_ms);
    assert_eq!(driver.statuses(), [408]);
    assert!(driver.cancelled.is_some());

    // Single bytes, each read at once, gain nothing beyond their rate.
    let mut driver = self::driver();
    driver.feed(&post(1 << 20, "")).app_consumes(0).go();
    let begun = driver.now;
    while driver.app.is_some() {
        driver.pass(1000);
        if driver.app.is_some() {
            driver.feed(b"x").app_consumes(1).go();
        }
    }
    let took_ms = driver.now.since(begun);
    assert!(took_ms <= limits.body_pace.grace_ms + 2000, "{took_ms}");
}

/// An app that answers while it reads talks with its client, which may pause.
#[test]
fn a_client_may_be_silent_as_long_as_the_app_once_the_answer_has_begun() {
    let limits = Limits::default();
    let silence_ms = limits.app_silence_timeout_ms;
    let mut driver = driver();
    driver.feed(&post(1 << 20, "")).app_consumes(0);
    driver.app_begins(None).app_says(b"x").go();
    driver.pass(silence_ms - 1).feed(b"y").app_consumes(1).go();
    driver.pass(silence_ms - 1).app_says(b"z").go();
    driver.pass(silence_ms - 1);
    assert!(driver.app.is_some(), "each step gives it the time anew");
    driver.pass(1);
    assert!(driver.cancelled.is_some() && driver.is_closed());
    assert_eq!(driver.closes(CloseReason::Slow), 1);

    // A line of the framing that has begun is no pause.
    let mut driver = self::driver();
    driver.feed(b"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    driver.app_consumes(0).app_begins(None).go();
    driver.pass(silence_ms / 2).feed(b"1;extension");
    driver.pass(limits.body_pace.grace_ms - 1);
    assert!(driver.app.is_some());
    driver.pass(1);
    assert!(driver.cancelled.is_some() && driver.is_closed());
}

#[test]
fn time_in_which_the_app_does_not_read_is_not_the_clients() {
    let limits = Limits::default();
    let mut driver = within(999);
    driver.feed(&post(1000, "")).app_consumes(0).go();
    driver.feed(&[b'x'; 500]);
    driver.pass(limits.app_answer_timeout_ms - 1000);
    driver.app_consumes(500).go();
    driver.pass(limits.body_pace.grace_ms - 1);
    assert!(driver.app.is_some());
    driver
        .feed(&[b'x'; 500])
        .app_consumes(500)
        .app_answers(|_| {})
        .go();
    assert_eq!(driver.statuses(), [200]);
}

#[test]
fn a_client_that_does_not_take_its_answer_ends_it() {
    let mut driver = driver();
    driver.hold_output = true;
    driver.feed(GET).app_begins(None).app_says(b"x").go();
    driver.pass(Limits::default().write_pace.grace_ms + 1000);
    assert!(driver.cancelled.is_some() && driver.is_closed());
    assert_eq!(driver.closes(CloseReason::Slow), 1);
}

#[test]
fn a_task_that_ends_without_its_answer() {
    let mut driver = driver();
    driver.feed(GET).app_produces(Piece::Abort).go();
    assert_eq!(driver.statuses(), [500]);
    assert!(driver.is_idle(), "nothing is wrong with the connection");
    driver.feed(GET).app_begins(None).app_says(b"half").go();
    driver.app_produces(Piece::Abort).go();
    assert!(driver.is_closed());
    assert!(
        !driver.output.ends_with(b"0\r\n\r\n"),
        "an unfinished answer looks it"
    );
    assert_eq!(driver.closes(CloseReason::Failed), 1);
}

#[test]
fn a_task_that_breaks_its_length() {
    let mut driver = driver();
    driver.feed(GET).app_begins(Some(4)).app_says(b"abc");
    driver.app_produces(Piece::End).go();
    assert!(driver.is_closed(), "too little");
    let mut driver = self::driver();
    driver.feed(GET).app_begins(Some(2)).app_says(b"abc").go();
    assert!(driver.is_closed(), "too much");
}

#[test]
fn content_that_is_malformed() {
    let head = b"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
    let mut driver = driver();
    driver.feed(head).feed(b"X\r\n");
    assert_eq!(driver.statuses(), [400]);
    assert!(driver.cancelled.is_some() && driver.is_lingering());
    let mut driver = self::driver();
    driver.feed(head).app_begins(None).go();
    driver.feed(b"X\r\n");
    assert!(driver.cancelled.is_some() && driver.is_closed());
    assert_eq!(driver.closes(CloseReason::BadRequest), 1);
}

#[test]
fn a_drain_shows_in_the_head_or_ends_behind_the_answer() {
    let mut driver = driver();
    driver.feed(GET).draining().app_begins(None).app_says(b"x");
    driver.app_produces(Piece::End).go();
    assert!(driver.answers()[0].closes() && driver.is_closed());
    let mut driver = self::driver();
    driver.feed(GET).app_begins(Some(1)).app_says(b"x").go();
    driver.draining();
    assert!(driver.app.is_some(), "what was accepted is finished");
    driver.app_produces(Piece::End).go();
    assert!(driver.is_closed());
}

#[test]
fn the_log_counts_what_was_streamed() {
    let line = |driver: &mut Driver<'_>| {
        let lines = std::mem::take(driver.log.as_mut().unwrap().lines());
        String::from_utf8(lines).unwrap()
    };
    let log = || Some(AccessLog::new(AccessFormat::Common));
    let mut driver = driver();
    driver.log = log();
    driver
        .feed(GET)
        .app_begins(None)
        .app_says(&[b'x'; 20_000])
        .app_says(b"end")
        .go();
    assert_eq!(line(&mut driver), "");
    driver.app_produces(Piece::End).go();
    assert!(line(&mut driver).ends_with("\"GET /a HTTP/1.1\" 200 20003\n"));
    driver.hold_output = true;
    driver
        .feed(GET)
        .app_begins(Some(60_000))
        .app_says(&[b'x'; 30_000])
        .go();
    driver.progress(u64::MAX);
    driver.app_says(&[b'x'; 30_000]).go().peer_gone();
    assert!(line(&mut driver).ends_with("\"GET /a HTTP/1.1\" 200 30000\n"));
    let mut driver = self::driver();
    driver.log = log();
    driver.feed(GET).pass(100_000);
    assert!(line(&mut driver).contains("\"GET /a HTTP/1.1\" 503 "));
}

#[test]
fn an_apps_own_date_and_server_stand_alone() {
    let mut driver = driver();
    driver.feed(GET).app_answers(|exchange| {
        exchange
            .response
            .field("Date", "Sun, 06 Nov 1994 08:49:38 GMT");
    });
    driver.go().feed(GET).app_answers(|exchange| {
        exchange.response.field("Server", "own");
    });
    driver.go();
    let answers = driver.answers();
    assert_eq!(
        answers[0].field("date"),
        Some("Sun, 06 Nov 1994 08:49:38 GMT")
    );
    assert_eq!(answers[0].field("server"), Some("Loadline"));
    assert_eq!(answers[1].field("server"), Some("own"));
}

/// Uploads in each framing, some content unread, pipelined behind each other.
fn conversation() -> Vec<u8> {
    [
        "POST /1 HTTP/1.1\r\nHost: h\r\nContent-Length: 300\r\n\r\n",
        &"abc".repeat(100),
        "GET /2 HTTP/1.1\r\nHost: h\r\n\r\n",
        "PUT /3 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
        "3;x=y\r\nabc\r\n0a\r\n0123456789\r\n40\r\n",
        &"d".repeat(64),
        "\r\n0\r\nX-Sum: t\r\n\r\n",
        "POST /4 HTTP/1.0\r\nContent-Length: 20\r\n\r\n",
        "01234567890123456789",
    ]
    .concat()
    .into_bytes()
}

fn bodies(pieces: &[&[u8]], window: usize, slow: Option<u64>) -> Vec<Vec<u8>> {
    let mut driver = within(window);
    driver.hold_output = slow.is_some();
    for piece in pieces {
        driver.feed(piece).app_echoes(None);
        while let (Some(bytes), true) = (slow, driver.held.is_some()) {
            driver.progress(bytes).app_echoes(None);
        }
    }
    assert!(driver.is_closed(), "HTTP/1.0 ends it");
    driver
        .answers()
        .into_iter()
        .map(|answer| answer.body)
        .collect()
}

#[test]
fn an_echo_does_not_depend_on_cuts_windows_or_the_reader() {
    let bytes = conversation();
    let whole = bodies(&[&bytes], 64 << 10, None);
    let lens: Vec<_> = whole.iter().map(Vec::len).collect();
    assert_eq!(lens, [300, 0, 77, 20]);
    for window in [1, 2, 7, 64, 1000] {
        for cut in 1..bytes.len() {
            let (left, right) = bytes.split_at(cut);
            assert_eq!(
                bodies(&[left, right], window, None),
                whole,
                "{window}, {cut}"
            );
        }
        for size in [1, 3, 50, 333] {
            let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
            assert_eq!(bodies(&pieces, window, None), whole, "{window}, {size}");
            assert_eq!(bodies(&pieces, window, Some(7)), whole, "{window}, {size}");
        }
    }
}

#[test]
fn facts_that_come_too_late_change_nothing() {
    let mut driver = driver();
    driver
        .feed(GET)
        .pass(Limits::default().app_answer_timeout_ms);
    let app = driver.cancelled.take().unwrap();
    driver.app = Some(app);
    let sent = driver.output.len();
    driver.app_begins(None).app_says(b"late").app_consumes(0);
    driver.app_produces(Piece::Data(Buffer::from(b"x".to_vec())));
    driver.app_produces(Piece::End).go();
    assert_eq!(driver.output.len(), sent);
}
