//! A client that half-closes while an app has its request: it gets its response, unless the app asked
//! to be cancelled.

use crate::drive::{Driver, Event, config};
use loadline_proto::{
    CloseReason, Context, Exchange, Limits, Outcome, Piece, SessionConfig, TaskOptions,
};

const GET: &[u8] = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n";
const NEXT: &[u8] = b"GET /b HTTP/1.1\r\nHost: h\r\n\r\n";

fn driver(cancel_on_half_close: bool) -> Driver<'static> {
    within(cancel_on_half_close, &config(Limits::default()))
}

fn within(cancel: bool, config: &std::sync::Arc<SessionConfig>) -> Driver<'static> {
    Driver::new(config, move |_: &mut Exchange, _: &mut Context<'_>| {
        Outcome::Later(TaskOptions {
            cancel_on_half_close: cancel,
            ..TaskOptions::default()
        })
    })
}

fn post(len: usize) -> Vec<u8> {
    format!("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: {len}\r\n\r\n").into_bytes()
}

#[test]
fn the_answer_is_delivered_whole_or_in_pieces() {
    let mut driver = driver(false);
    driver.feed(GET).eof();
    assert!(driver.app.is_some() && driver.reading == Some(false));
    driver.app_answers(|_| {}).go();
    assert_eq!(driver.statuses(), [200]);
    assert!(driver.is_closed() && driver.cancelled.is_none());
    assert_eq!(driver.closes(CloseReason::Client), 1, "a regular end");

    let mut driver = self::driver(false);
    driver
        .feed(GET)
        .app_begins(None)
        .app_says(b"one")
        .go()
        .eof();
    driver.app_says(b"two").go();
    driver.app_produces(Piece::End).go();
    assert_eq!(driver.answers()[0].body, b"onetwo");
    assert!(driver.is_closed() && driver.cancelled.is_none());
}

#[test]
fn all_that_was_asked_before_it_is_answered() {
    let mut driver = driver(false);
    driver.feed(&[GET, NEXT, GET].concat()).eof();
    for _ in 0..3 {
        assert!(!driver.is_closed());
        driver.app_answers(|_| {}).go();
    }
    assert_eq!(driver.statuses(), [200, 200, 200]);
    assert!(driver.is_closed());
    assert_eq!(driver.closes(CloseReason::Client), 1);
}

#[test]
fn content_that_came_before_it_is_read() {
    let limits = Limits {
        stream_window_bytes: 100,
        ..Limits::default()
    };
    let mut driver = within(false, &config(limits));
    driver.feed(&[post(1000), vec![b'x'; 1000]].concat()).eof();
    assert!(!driver.app.as_ref().unwrap().has_end);
    for _ in 0..10 {
        driver.app_consumes(100).go();
    }
    let app = driver.app.as_ref().unwrap();
    assert_eq!((app.content.len(), app.has_end), (1000, true));
    driver.app_answers(|_| {}).go();
    assert_eq!(driver.statuses(), [200]);
    assert!(driver.is_closed());
}

#[test]
fn content_that_it_cuts_short_is_malformed() {
    // Before anybody has read it, and behind what was read.
    for read in [false, true] {
        let mut driver = driver(false);
        driver.feed(&post(100_000)).feed(&[b'x'; 500]);
        if read {
            driver.app_consumes(500).go();
        }
        driver.eof();
        assert_eq!(driver.statuses(), [400], "{read}");
        assert!(driver.cancelled.is_some() && driver.is_closed());
        assert_eq!(driver.closes(CloseReason::BadRequest), 1);
    }
    // While it is gathered.
    let mut driver = driver(false);
    driver.feed(&post(1000)).feed(&[b'x'; 500]).eof();
    assert_eq!(driver.statuses(), [400]);
    assert!(!driver.events.contains(&Event::Start) && driver.is_closed());
    assert_eq!(driver.closes(CloseReason::BadRequest), 1);
    // What waits for the window is read first.
    let limits = Limits {
        stream_window_bytes: 100,
        ..Limits::default()
    };
    let mut driver = within(false, &config(limits));
    driver.feed(&[post(1000), vec![b'x'; 250]].concat()).eof();
    driver.app_consumes(100).go().app_consumes(100).go();
    assert_eq!(driver.statuses(), [400]);
    // Nothing can be added to an answer that has begun.
    let mut driver = self::driver(false);
    driver
        .feed(&post(100_000))
        .app_begins(None)
        .app_says(b"x")
        .go();
    driver.eof();
    assert!(driver.cancelled.is_some() && driver.is_closed());
    assert_eq!(driver.events.last(), Some(&Event::Close));
}

#[test]
fn an_app_is_cancelled_if_it_asked_for_that() {
    let mut driver = driver(true);
    driver.feed(GET).eof();
    assert!(driver.cancelled.is_some() && driver.is_closed());
    assert_eq!(driver.closes(CloseReason::Vanished), 1);
    assert!(driver.output.is_empty());
    let mut driver = self::driver(true);
    driver.feed(GET).app_begins(None).app_says(b"x").go().eof();
    assert!(driver.cancelled.is_some() && driver.is_closed());
    // One that waits behind another, which answers, is not started.
    let mut driver = Driver::new(&config(Limits::default()), |exchange, _| {
        Outcome::Later(TaskOptions {
            cancel_on_half_close: exchange.request.path() == b"/b",
            ..TaskOptions::default()
        })
    });
    driver.feed(&[GET, NEXT].concat()).eof();
    driver.app_answers(|_| {}).go();
    let starts = driver.events.iter().filter(|event| **event == Event::Start);
    assert_eq!((starts.count(), driver.statuses()), (1, vec![200]));
    assert!(driver.is_closed());
}

#[test]
fn a_client_that_is_gone_behind_it_cancels() {
    let mut driver = driver(false);
    driver.feed(GET).eof();
    driver.peer_gone();
    assert!(driver.cancelled.is_some() && driver.is_closed());
    assert_eq!(driver.closes(CloseReason::Vanished), 1);
}

#[test]
fn its_app_has_no_more_time_than_others() {
    let limits = Limits::default();
    let mut driver = driver(false);
    driver
        .feed(GET)
        .eof()
        .pass(limits.app_answer_timeout_ms - 1);
    assert!(driver.app.is_some());
    driver.pass(1);
    assert_eq!(driver.statuses(), [503]);
    assert!(driver.cancelled.is_some() && driver.is_closed());
    let mut driver = self::driver(false);
    driver.feed(GET).app_begins(None).app_says(b"x").go().eof();
    driver.pass(limits.app_silence_timeout_ms);
    assert!(driver.cancelled.is_some() && driver.is_closed());
}
