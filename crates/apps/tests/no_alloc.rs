//! A hit in a thread's own index allocates nothing, and neither does looking whether it still holds.
#![allow(clippy::unwrap_used, reason = "a failed test is what it is for")]

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use loadline_apps::{StaticFiles, StaticOptions};
use loadline_base::Millis;
use loadline_proto::{
    Action, Context, Counters, Handler, HttpDate, Pool, ServerSession, SessionConfig,
};

/// Runs `request` again and again on one connection, `step_ms` apart; returns the allocations of the
/// handler's quick step in each round but the first ones.
fn allocations(request: &str, step_ms: u64) -> u64 {
    let directory = tempfile::tempdir().unwrap();
    for (name, size) in [
        ("small", 600),
        ("small.gz", 300),
        ("medium", 100_000),
        ("large", 1 << 20),
        ("small.txt", 2_000),
        ("medium.txt", 100_000),
        ("large.txt", 1 << 20),
    ] {
        std::fs::write(directory.path().join(name), vec![b'x'; size]).unwrap();
    }
    let options = StaticOptions {
        wall_clock: || SystemTime::now() + Duration::from_secs(60), // so that files have settled
        ..StaticOptions::default()
    };
    let handler = StaticFiles::new(directory.path(), options).unwrap();
    let mut local = handler.local();
    let (mut pool, counters, date) = (Pool::new(), Counters::default(), HttpDate::at(0));
    let mut cx = Context {
        now: Millis(5000),
        came: Millis(5000),
        date: &date,
        pool: &mut pool,
        counters: &counters,
        log: None,
    };
    let mut session = ServerSession::new(&Arc::new(SessionConfig::default()), None, &mut cx);
    let mut count = 0;
    for round in 0..40 {
        cx.now = Millis(cx.now.0 + step_ms);
        session.received(&mut request.as_bytes().to_vec(), &mut cx);
        let mut answered = false;
        while !answered {
            match session.next_action(&mut cx) {
                Action::Run(mut exchange) => {
                    let mut outcome = None;
                    let seen = allocation_counter::measure(|| {
                        outcome = Some(handler.handle(&mut local, &mut exchange, &mut cx));
                    });
                    if round >= 10 {
                        count += seen.count_total;
                    }
                    session.ran(exchange, outcome.unwrap(), &mut cx);
                }
                Action::Block(mut exchange) => {
                    assert!(round < 10, "it is known by now");
                    handler.handle_blocking(&mut exchange);
                    session.completed(exchange, &mut cx);
                }
                Action::Send { mut transmit, .. } => {
                    transmit.advance(transmit.remaining());
                    session.sent(transmit, &mut cx);
                    answered = true;
                }
                action => panic!("{action:?}"),
            }
        }
    }
    count
}

#[test]
fn hits_allocate_nothing() {
    let fields = [
        "",
        "Accept-Encoding: gzip, deflate, br, zstd\r\n",
        "If-None-Match: *\r\n",
        "If-None-Match: \"other\"\r\nIf-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
    ];
    for target in [
        "small",
        "medium",
        "large",
        "small.txt",
        "medium.txt",
        "large.txt",
    ] {
        for method in ["GET", "HEAD"] {
            for fields in fields {
                let request = format!("{method} /{target} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
                for step_ms in [0, 999, 1000] {
                    assert_eq!(
                        allocations(&request, step_ms),
                        0,
                        "{step_ms} ms apart: {request}"
                    );
                }
            }
        }
    }
}

#[test]
fn the_test_can_fail() {
    let request = "GET /small HTTP/1.1\r\nHost: h\r\nRange: bytes=0-0\r\n\r\n";
    assert!(
        allocations(request, 0) > 0,
        "the numbers of a range are written into a new string"
    );
}
