//! Deadlines of a connection on a fake clock: who is too slow goes, who is merely slow stays.

use crate::drive::{Driver, config, echo};
use loadline_proto::{Body, CloseReason, Context, Exchange, Limits, Outcome, Pace, TaskOptions};

const GET: &[u8] = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n";

fn limits() -> Limits {
    Limits {
        idle_timeout_ms: 15_000,
        linger_pace: Pace {
            grace_ms: 2_000,
            bytes_per_second_min: 1 << 20,
            total_max_ms: 2_000,
        },
        head_pace: Pace {
            grace_ms: 5_000,
            bytes_per_second_min: 100,
            total_max_ms: 20_000,
        },
        body_pace: Pace {
            grace_ms: 5_000,
            bytes_per_second_min: 100,
            total_max_ms: u64::MAX,
        },
        write_pace: Pace {
            grace_ms: 5_000,
            bytes_per_second_min: 1_000,
            total_max_ms: u64::MAX,
        },
        ..Limits::default()
    }
}

fn driver<'h>() -> Driver<'h> {
    Driver::echo_within(limits())
}

fn big_answer<'h>() -> Driver<'h> {
    let mut driver = Driver::new(&config(limits()), |exchange, _| {
        exchange.response.body = Body::Bytes(vec![b'x'; 100_000]);
        Outcome::Ready
    });
    driver.hold_output = true;
    driver
}

#[test]
fn a_new_connection_that_sends_nothing() {
    let mut driver = driver();
    driver.pass(20_000 + 2_000);
    assert!(driver.is_closed());
    let statuses = driver.statuses();
    assert!(statuses.is_empty() || statuses == [408], "{statuses:?}");
}

#[test]
fn an_idle_connection_ends_without_an_answer() {
    let mut driver = driver();
    driver.feed(GET).pass(14_999);
    assert!(!driver.is_closed());
    driver.feed(GET).pass(14_999);
    assert!(!driver.is_closed(), "counted from the last answer");
    driver.pass(1);
    assert!(driver.is_closed());
    assert_eq!(driver.statuses(), [200, 200]);
    assert_eq!(driver.closes(CloseReason::Idle), 1);
}

#[test]
fn a_head_that_stops() {
    let mut driver = driver();
    driver.feed(&GET[..10]).pass(4_999);
    assert!(driver.output.is_empty());
    driver.pass(300);
    assert_eq!(driver.statuses(), [408]);
    assert!(driver.answers()[0].closes());
    driver.pass(2_000);
    assert!(driver.is_closed());
    assert_eq!(driver.closes(CloseReason::Slow), 1);
    assert_eq!(driver.counters.faults[3].value(), 1);
}

#[test]
fn a_head_that_drips() {
    let mut driver = driver();
    driver.feed(b"GET / HTTP/1.1\r\nHost: h\r\nA: ");
    let start = driver.now;
    while driver.output.is_empty() {
        driver.feed(b"a").pass(1_000);
        assert!(
            driver.now.since(start) <= 20_000,
            "dripping must not buy time"
        );
    }
    assert!(driver.now.since(start) >= 5_000, "the grace is given");
    assert_eq!(driver.statuses(), [408]);
}

#[test]
fn a_head_at_a_fair_rate_still_has_an_end() {
    let mut driver = driver();
    driver.feed(b"GET / HTTP/1.1\r\nHost: h\r\nA: ");
    let start = driver.now;
    while driver.output.is_empty() {
        driver.feed(&[b'a'; 20]).pass(100);
        assert!(driver.now.since(start) <= 20_100, "total_max_ms");
    }
    assert!(driver.now.since(start) >= 19_000);
    assert_eq!(driver.statuses(), [408]);
}

#[test]
fn the_time_of_a_head_begins_with_its_first_byte() {
    let mut driver = driver();
    driver.pass(12_000).feed(&GET[..10]).pass(4_900);
    driver.feed(&GET[10..]);
    assert_eq!(driver.statuses(), [200]);
    // A second one on the same connection has its own.
    driver.pass(12_000).feed(&GET[..10]).pass(4_900);
    driver.feed(&GET[10..]).pass(14_999);
    assert_eq!(driver.statuses(), [200, 200]);
    assert!(!driver.is_closed());
}

#[test]
fn a_pipelined_head_that_stops() {
    let mut driver = driver();
    driver
        .feed(GET)
        .feed(&[GET, &GET[..10]].concat())
        .pass(5_300);
    assert_eq!(driver.statuses(), [200, 200, 408]);
}

#[test]
fn a_body_that_stops_or_drips() {
    let head = b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 10000\r\n\r\n";
    let chunked = b"POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2710\r\n";
    for head in [&head[..], chunked] {
        let mut stopped = driver();
        stopped.feed(head).feed(b"abc").pass(4_900);
        assert!(stopped.output.is_empty());
        stopped.pass(400);
        assert_eq!(stopped.statuses(), [408]);
        stopped.pass(2_000);
        assert!(stopped.is_closed());
        assert_eq!(stopped.closes(CloseReason::Slow), 1);

        let mut dripping = driver();
        dripping.feed(head);
        let start = dripping.now;
        while dripping.output.is_empty() {
            dripping.feed(b"a").pass(200);
            assert!(dripping.now.since(start) < 8_000, "5 bytes a second");
        }
        assert_eq!(dripping.statuses(), [408]);
    }
}

#[test]
fn a_body_at_a_fair_rate_may_take_its_time() {
    let mut driver = driver();
    driver.feed(b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 10000\r\n\r\n");
    for _ in 0..500 {
        driver.feed(&[b'a'; 20]).pass(150);
    }
    assert_eq!(driver.statuses()[..1], [200], "75 s at 133 bytes a second");
}

#[test]
fn content_that_is_thrown_away_has_a_deadline_too() {
    let mut driver = Driver::new(&config(limits()), |_, _| Outcome::Ready);
    driver.feed(b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 10000\r\n\r\n");
    let start = driver.now;
    while !driver.is_closed() {
        driver.feed(b"a").pass(200);
        assert!(driver.now.since(start) < 20_000, "a drip into the bin");
    }
}

/// Each way in which content is read: for the handler, thrown away, by an app.
fn readers<'h>() -> [(&'static str, Driver<'h>); 3] {
    let app = |_: &mut Exchange, _: &mut Context<'_>| Outcome::Later(TaskOptions::default());
    [
        ("gathered", driver()),
        (
            "thrown away",
            Driver::new(&config(limits()), |_, _| Outcome::Ready),
        ),
        ("by an app", Driver::new(&config(limits()), app)),
    ]
}

/// The app has read all that there is.
fn read_on(driver: &mut Driver<'_>) {
    if let Some(app) = &driver.app {
        let left = app.content.len() - app.consumed;
        driver.app_consumes(left).go();
    }
}

/// Whether it is still awaited, by the answers that came before.
fn is_awaited(driver: &Driver<'_>) -> bool {
    !driver.is_closed() && !driver.statuses().contains(&408)
}

const CHUNKED: &[u8] = b"POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";

#[test]
fn framing_buys_no_time() {
    let chunk = format!("1;{}\r\nx\r\n", "e".repeat(240));
    for (reader, mut driver) in readers() {
        driver.feed(CHUNKED);
        read_on(&mut driver);
        let start = driver.now;
        while is_awaited(&driver) {
            driver.feed(chunk.as_bytes());
            read_on(&mut driver);
            driver.pass(200);
            let took_ms = driver.now.since(start);
            assert!(took_ms < 8_000, "{reader}: 5 bytes of content a second");
        }
    }
}

#[test]
fn a_line_of_framing_has_the_grace_whatever_came_before() {
    for line in ["1;extension", "1", "1\r", "0\r\n", "0\r\nX: y"] {
        for (reader, mut driver) in readers() {
            driver.feed(CHUNKED);
            read_on(&mut driver);
            driver.feed(format!("2710\r\n{}\r\n", "x".repeat(10_000)).as_bytes());
            read_on(&mut driver);
            driver.pass(4_000).feed(line.as_bytes());
            driver.pass(4_999);
            assert!(is_awaited(&driver), "{reader}, {line:?}");
            driver.pass(1);
            assert!(!is_awaited(&driver), "{reader}, {line:?}");
        }
    }
    // Between two chunks it has what the content has bought.
    for (reader, mut driver) in readers() {
        driver.feed(CHUNKED);
        read_on(&mut driver);
        driver.feed(format!("2710\r\n{}\r\n", "x".repeat(10_000)).as_bytes());
        read_on(&mut driver);
        driver.pass(14_000);
        assert!(is_awaited(&driver), "{reader}");
        driver.feed(b"0\r\n\r\n");
        assert!(is_awaited(&driver), "{reader}");
    }
}

/// An app that reads late has taken the time, not its client.
#[test]
fn a_line_of_framing_is_not_late_while_the_app_does_not_read() {
    let [.., (_, mut driver)] = readers();
    driver.feed(CHUNKED).app_consumes(0).go();
    driver.feed(b"1\r\nx\r\n1;extension").pass(50_000);
    driver.app_consumes(1).go().pass(4_999);
    assert!(is_awaited(&driver));
    driver.pass(1);
    assert!(!is_awaited(&driver));
}

#[test]
fn an_answer_nobody_takes() {
    let mut driver = big_answer();
    driver.feed(GET).pass(4_999);
    assert!(!driver.is_closed());
    driver.pass(1);
    assert!(driver.is_closed());
    assert_eq!(driver.closes(CloseReason::Slow), 1);
}

#[test]
fn an_answer_taken_in_drips() {
    let mut driver = big_answer();
    driver.feed(GET);
    let start = driver.now;
    while !driver.is_closed() {
        driver.progress(1).pass(100);
        assert!(driver.now.since(start) < 8_000, "10 bytes a second");
    }
    assert!(driver.now.since(start) >= 5_000);
    assert_eq!(driver.closes(CloseReason::Slow), 1);
}

/// The socket's buffer alone takes some MiB at once, at which rate a pause would last for hours.
#[test]
fn an_answer_that_was_taken_fast_buys_no_long_pause() {
    let mut driver = big_answer();
    driver.feed(GET);
    for _ in 0..90 {
        driver.progress(1_000).pass(10);
    }
    driver.pass(14_900);
    assert!(!driver.is_closed(), "three graces");
    driver.pass(5_100);
    assert!(driver.is_closed(), "four");
    assert_eq!(driver.closes(CloseReason::Slow), 1);
    assert!(
        driver.counters.bytes_out.value() >= 90_000,
        "all of it counts"
    );
}

#[test]
fn a_body_that_came_fast_buys_no_long_pause() {
    let mut driver = driver();
    driver.feed(b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 10000\r\n\r\n");
    driver.feed(&[b'a'; 9_000]).pass(14_900);
    assert!(driver.output.is_empty(), "three graces");
    driver.pass(5_100);
    assert_eq!(driver.statuses(), [408]);
}

/// Below the minimum rate, new periods give nothing: the end comes where one period has it.
#[test]
fn a_little_too_slow_is_too_slow() {
    let mut driver = big_answer();
    driver.feed(GET);
    let start = driver.now;
    while !driver.is_closed() {
        driver.progress(80).pass(100);
        assert!(driver.now.since(start) < 26_000, "800 bytes a second");
    }
    assert!(
        driver.now.since(start) >= 24_000,
        "5 s, and 4 s for each 5 s"
    );
}

#[test]
fn an_answer_taken_at_a_fair_rate_may_take_its_time() {
    let mut driver = big_answer();
    driver.feed(GET);
    while driver.held.is_some() {
        driver.progress(200).pass(100);
        assert!(!driver.is_closed(), "2000 bytes a second");
    }
    assert_eq!(driver.answers()[0].body.len(), 100_000);
}

#[test]
fn the_server_has_no_deadline_for_itself() {
    let mut driver = Driver::new(&config(limits()), |_, _| Outcome::Blocking);
    driver.hold_blocking = true;
    driver.feed(GET).pass(600_000);
    assert!(
        !driver.is_closed(),
        "the client waits for us, not we for it"
    );
    driver.complete();
    assert_eq!(driver.statuses(), [200]);
    driver.pass(14_999);
    assert!(!driver.is_closed(), "idle from the answer on");
    driver.pass(1);
    assert!(driver.is_closed());
}

#[test]
fn the_write_deadline_begins_with_its_send() {
    let mut driver = Driver::new(&config(limits()), |_, _| Outcome::Blocking);
    driver.hold_blocking = true;
    driver.hold_output = true;
    driver.feed(GET).pass(60_000).complete().pass(4_900);
    assert!(!driver.is_closed());
    driver.release_output();
    assert_eq!(driver.statuses(), [200]);
}

#[test]
fn an_earlier_deadline_is_reported_at_once() {
    let mut driver = Driver::new(&config(limits()), echo);
    let idle = driver.feed(GET).deadline().expect("idle");
    let head = driver.feed(b"G").deadline().expect("head");
    assert!(
        head < idle,
        "a loop re-arms each time it has driven a connection"
    );
}

#[test]
fn an_answer_whose_client_waits_for_the_servers_disk() {
    let mut driver = big_answer();
    driver.feed(GET).pass(4_000).read_for(60_000).pass(4_999);
    assert!(!driver.is_closed());
    driver.pass(1);
    assert_eq!(driver.closes(CloseReason::Slow), 1);

    // It takes nothing of what was bought before.
    let mut driver = big_answer();
    driver.feed(GET).progress(90_000).read_for(1_000);
    driver.pass(13_999);
    assert!(!driver.is_closed(), "three graces");
}

/// What a client took to read the response before counted as time that its next request had waited for the server.
#[test]
fn a_pipelined_request_is_ready_once_the_response_before_it_has_left() {
    let mut ready_ms = Vec::new();
    let mut driver = Driver::new(&config(limits()), |exchange, _| {
        ready_ms.push(exchange.ready.0);
        exchange.response.body = Body::Bytes(vec![b'x'; 100_000]);
        Outcome::Ready
    });
    let began_ms = driver.now.0;
    driver.hold_output = true;
    driver.feed(&[GET, GET].concat()).pass(3_000);
    driver.release_output();
    drop(driver);
    assert_eq!(ready_ms, [began_ms, began_ms + 3_000]);
}
