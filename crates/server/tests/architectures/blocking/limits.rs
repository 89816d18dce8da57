//! Caps and deadlines.

use std::io::Write;
use std::time::{Duration, Instant};

use loadline_proto::{CloseReason, Limits};
use loadline_server::{Architecture, ServerOptions};

use super::util::{BLOCKING, eventually, options, start, start_logging, start_with};

#[test]
fn at_the_cap_the_longest_idle_connection_makes_room() {
    let (server, lines) = start_logging(ServerOptions {
        connections_max: 3,
        ..options(Architecture::ThreadPerConnection)
    });
    let mut oldest = server.connect();
    let mut busy = server.connect();
    let mut young = server.connect();
    busy.ask("/gate");
    server.handler.gate.await_waiting(1);
    assert_eq!(oldest.get("/oldest").status, 200);
    lines.await_request("/oldest");
    std::thread::sleep(Duration::from_millis(20)); // idle times are whole milliseconds
    assert_eq!(young.get("/").status, 200);
    let mut late = server.connect();
    assert_eq!(late.get("/").status, 200);
    assert!(oldest.is_closed());
    assert_eq!(young.get("/").status, 200);
    server.handler.gate.open();
    assert_eq!(busy.answer().unwrap().content, b"passed");
    let total = || server.handle.snapshot().total;
    eventually(|| total().closed_for(CloseReason::Evicted) == 1);
    let total = total();
    assert_eq!(total.connections, 3);
    assert_eq!(total.closed_for(CloseReason::Refused), 0);
    drop((busy, young, late));
    assert!(server.end().is_clean());
}

#[test]
fn at_the_cap_with_nobody_idle_a_new_connection_gets_503() {
    let server = start(ServerOptions {
        connections_max: 2,
        ..options(Architecture::ThreadPerConnection)
    });
    let mut busy = [server.connect(), server.connect()];
    for client in &mut busy {
        client.ask("/gate");
    }
    server.handler.gate.await_waiting(2);
    for refused in 1..=100 {
        let mut late = server.connect();
        if refused % 2 == 0 {
            late.ask("/"); // with a request and without one
        }
        let answer = late.answer().unwrap();
        assert_eq!(answer.status, 503);
        assert!(answer.says_close());
        drop(late);
        eventually(|| {
            let total = server.handle.snapshot().total;
            total.closed_for(CloseReason::Refused) == refused
        });
    }
    server.handler.gate.open();
    for client in &mut busy {
        assert_eq!(client.answer().unwrap().content, b"passed");
    }
    drop(busy);
    assert!(server.end().is_clean());
}

#[test]
fn a_request_that_finds_the_queue_of_a_pool_full_is_counted_once() {
    let server = start(ServerOptions {
        threads: 1,
        queue_max: 1,
        ..options(Architecture::ThreadPool)
    });
    let mut working = server.connect();
    working.ask("/gate");
    server.handler.gate.await_waiting(1);
    let mut waiting = server.connect();
    waiting.ask("/");
    let total = || server.handle.snapshot().total;
    eventually(|| total().queue_depth == 1);
    let mut refused = server.connect();
    assert_eq!(refused.get("/").status, 503);
    eventually(|| total().queue_full == 1);
    assert_eq!(total().refused_late, 0);
    server.handler.gate.open();
    assert_eq!(working.answer().unwrap().status, 200);
    assert_eq!(waiting.answer().unwrap().status, 200);
    assert_eq!(total().queue_full, 1);
}

#[test]
fn idle_connections_end_on_time() {
    const IDLE_TIMEOUT: Duration = Duration::from_millis(100);
    for architecture in BLOCKING {
        eventually(|| {
            let server = start_with(
                options(architecture),
                Limits {
                    idle_timeout_ms: IDLE_TIMEOUT.as_millis() as u64,
                    ..Limits::default()
                },
            );
            let began = Instant::now();
            let mut idle = server.connect();
            idle.ask("/");
            let answer = idle.answer();
            if began.elapsed() > IDLE_TIMEOUT / 2 {
                return false; // it may have ended before its request came
            }
            assert_eq!(answer.unwrap().status, 200);
            assert!(idle.is_closed(), "{architecture:?}");
            let total = || server.handle.snapshot().total;
            eventually(|| total().closed_for(CloseReason::Idle) == 1);
            assert_eq!(total().connections, 0, "{architecture:?}");
            assert!(server.end().is_clean());
            true
        });
    }
}

#[test]
fn drips_end_on_time() {
    for architecture in BLOCKING {
        let mut limits = Limits {
            idle_timeout_ms: 2_000, // on a busy machine the first bytes may be late
            ..Limits::default()
        };
        limits.head_pace.grace_ms = 100;
        limits.head_pace.bytes_per_second_min = 1 << 20;
        let server = start_with(options(architecture), limits);
        let mut drip = server.connect();
        drip.stream.write_all(b"GET / HTTP/1.1\r\nHo").unwrap();
        assert_eq!(drip.answer().unwrap().status, 408, "{architecture:?}");
        drop(drip);
        eventually(|| server.handle.snapshot().total.connections == 0);
        assert!(server.end().is_clean());
    }
}

#[test]
fn whoever_does_not_take_an_answer_is_closed_on_time() {
    for architecture in BLOCKING {
        let mut limits = Limits::default();
        limits.write_pace.grace_ms = 200;
        limits.write_pace.bytes_per_second_min = 1 << 30;
        let server = start_with(options(architecture), limits);
        let mut client = server.connect();
        client.ask("/big");
        eventually(|| {
            let total = server.handle.snapshot().total;
            total.closed_for(CloseReason::Slow) == 1
        });
        assert!(client.answer().is_err(), "{architecture:?}");
        assert!(server.end().is_clean());
    }
}
