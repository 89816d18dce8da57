//! Content that fits into a window comes before the task of an app is started: a client that sends it
//! slowly holds its connection alone.

use crate::drive::{Driver, Event, config};
use loadline_proto::{CloseReason, Context, Exchange, Limits, Outcome, TaskOptions};

const NEXT: &[u8] = b"GET /b HTTP/1.1\r\nHost: h\r\n\r\n";

fn within(limits: Limits) -> Driver<'static> {
    Driver::new(&config(limits), |_: &mut Exchange, _: &mut Context<'_>| {
        Outcome::Later(TaskOptions::default())
    })
}

fn driver() -> Driver<'static> {
    within(Limits::default())
}

fn post(len: usize, more: &str) -> Vec<u8> {
    format!("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: {len}\r\n{more}\r\n").into_bytes()
}

/// What the app has, and whether it knows the end.
fn offered(driver: &Driver<'_>) -> Option<(usize, bool)> {
    let app = driver.app.as_ref()?;
    Some((app.content.len(), app.has_end))
}

#[test]
fn an_app_begins_with_all_of_it() {
    let mut driver = driver();
    driver.feed(&post(16_000, "")).feed(&[b'x'; 6]);
    assert!(offered(&driver).is_none() && driver.reading == Some(true));
    driver.feed(&[b'x'; 15_993]);
    assert!(offered(&driver).is_none());
    driver.feed(b"y");
    assert_eq!(offered(&driver), Some((16_000, true)));
    driver.app_consumes(16_000).app_answers(|_| {}).go();
    assert_eq!(driver.statuses(), [200]);
    assert!(driver.is_idle() && !driver.answers()[0].closes());
}

#[test]
fn a_window_of_it_and_no_more() {
    for (framing, is_gathered) in [
        ("Content-Length: 1", true),
        ("Content-Length: 65536", true),
        ("Content-Length: 65537", false),
        ("Transfer-Encoding: chunked", false),
    ] {
        let mut driver = driver();
        let head = format!("POST /a HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n");
        driver.feed(head.as_bytes());
        assert_eq!(driver.app.is_none(), is_gathered, "{framing}");
    }
    let window = Limits {
        stream_window_bytes: 10,
        ..Limits::default()
    };
    for (len, is_gathered) in [(10, true), (11, false)] {
        let mut driver = within(window.clone());
        driver.feed(&post(len, ""));
        assert_eq!(driver.app.is_none(), is_gathered, "{len}");
    }
}

#[test]
fn what_there_is_no_memory_for_is_refused_and_counted() {
    for (len, statuses) in [(16 << 10, vec![]), ((16 << 10) + 1, vec![503_u16])] {
        let mut driver = driver();
        driver.pool.set_short(true);
        driver.feed(&post(len, ""));
        assert_eq!(driver.statuses(), statuses, "{len}");
        let refused = driver.counters.content_refused_memory.value();
        assert_eq!(refused, statuses.len() as u64, "{len}");
    }
}

#[test]
fn however_it_is_cut() {
    let request = [&post(20, "")[..], &[b'x'; 20], NEXT].concat();
    for cut in 1..request.len() {
        let mut driver = driver();
        driver.feed(&request[..cut]).feed(&request[cut..]);
        assert_eq!(offered(&driver), Some((20, true)), "{cut}");
        driver.app_consumes(20).app_answers(|_| {}).go();
        driver.app_answers(|_| {}).go();
        assert_eq!(driver.statuses(), [200, 200], "{cut}");
        assert!(driver.is_idle());
    }
    let mut driver = driver();
    driver.drip(&request[..request.len() - NEXT.len()]);
    assert_eq!(offered(&driver), Some((20, true)));
}

#[test]
fn its_time_is_the_clients() {
    let limits = Limits::default();
    let mut driver = driver();
    driver.feed(&post(16_000, "")).feed(b"six=by");
    driver.pass(limits.body_pace.grace_ms - 1);
    assert!(driver.output.is_empty());
    driver.pass(1000);
    assert_eq!(driver.statuses(), [408]);
    assert!(driver.answers()[0].closes() && driver.is_lingering());
    assert!(!driver.events.contains(&Event::Start));
    driver.eof();
    assert_eq!(driver.closes(CloseReason::Slow), 1);
    // At a fair rate it comes, and then the app has all of its time.
    let mut driver = self::driver();
    driver.feed(&post(60_000, ""));
    for _ in 0..60 {
        driver.pass(1000).feed(&[b'x'; 1000]);
    }
    assert_eq!(offered(&driver), Some((60_000, true)));
    driver.pass(limits.app_answer_timeout_ms - 1);
    assert!(driver.app.is_some());
    driver.pass(1);
    assert_eq!(driver.statuses(), [503]);
    // What came fast buys no long pause.
    let mut driver = self::driver();
    driver.feed(&post(60_000, "")).feed(&[b'x'; 59_000]);
    driver.pass(4 * limits.body_pace.grace_ms);
    assert_eq!(driver.statuses(), [408]);
}

#[test]
fn a_client_that_waits_for_100_has_its_app_at_once() {
    let mut driver = driver();
    driver.feed(&post(3, "Expect: 100-continue\r\n"));
    assert_eq!(offered(&driver), Some((0, false)));
    driver.app_consumes(0).go();
    assert_eq!(driver.statuses(), [100]);
    driver.feed(b"abc");
    assert_eq!(offered(&driver), Some((3, true)));
    // One that does not wait is like others.
    let mut driver = self::driver();
    let head = post(3, "Expect: 100-continue\r\n");
    driver.feed(&[&head[..], b"ab"].concat());
    assert!(driver.app.is_none() && driver.output.is_empty());
    driver.feed(b"c");
    assert_eq!(offered(&driver), Some((3, true)));
}

#[test]
fn behind_an_answer_that_is_being_sent() {
    let mut driver = driver();
    driver.hold_output = true;
    driver.feed(NEXT);
    driver.app_answers(|_| {}).go();
    driver.feed(&post(6, "")).feed(b"abc").feed(b"def");
    assert!(driver.app.is_none(), "output first");
    driver.progress(u64::MAX);
    assert_eq!(offered(&driver), Some((6, true)));
}

#[test]
fn in_a_drain_it_is_finished() {
    let mut driver = driver();
    driver.feed(&post(6, "")).feed(b"abc").draining();
    assert!(driver.app.is_none() && !driver.is_closed());
    driver.feed(b"def");
    driver.app_consumes(6).app_answers(|_| {}).go();
    assert_eq!(driver.statuses(), [200]);
    assert!(driver.answers()[0].closes() && driver.is_closed());
}

#[test]
fn a_client_that_goes_takes_nothing_with_it() {
    let mut driver = driver();
    driver.feed(&post(6, "")).feed(b"abc").peer_gone();
    assert!(driver.is_closed() && !driver.events.contains(&Event::Start));
    assert_eq!(driver.closes(CloseReason::Vanished), 1);
}
