//! The closed loop: what the client counts is what the server counts.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use loadline_load::{Control, Expectation, Loop, Message, MixOrder, Share, engine};
use loadline_record::Tally;

use crate::engine::run::{MS, SECOND, closed, get, phase, run, run_share, run_with};
use crate::engine::server::{Act, Server, answer};

#[test]
fn kept_connections_carry_all_requests() {
    let server = Server::answering("hello");
    let outcome = run(&closed(server.address, 7, 500));
    let tally = outcome.tally();
    assert_eq!(outcome.ready, 7);
    assert_eq!((server.connections(), server.requests()), (7, 500));
    assert_eq!((tally.connections, tally.offered), (7, 500));
    assert_eq!((tally.sent, tally.completed, tally.good), (500, 500, 500));
    assert_eq!((tally.errors_total(), tally.unfinished), (0, 0));
    assert_eq!(tally.content_bytes, 500 * 5);
    assert_eq!(tally.bytes_received, 500 * 42);
    assert_eq!(tally.bytes_sent, 500 * 27);
    assert_eq!(tally.status_codes, [(200, 500)]);
    for histogram in [
        outcome.histogram(|interval| &interval.latency),
        outcome.histogram(|interval| &interval.service),
        outcome.histogram(|interval| &interval.first_byte),
    ] {
        assert_eq!(histogram.len(), 500);
    }
    assert_eq!(outcome.report.lag.len(), 500);
    assert!(outcome.report.events >= 500 && outcome.report.turns > 0);
    assert!(outcome.report.cpu_ns > 0 && outcome.report.in_flight_ns > 0);
}

#[test]
fn a_new_connection_for_each_request_is_the_clients_doing() {
    let server = Server::answering("hello"); // which would keep them
    let mut plan = closed(server.address, 5, 200);
    plan.requests_per_connection = Some(1);
    let outcome = run(&plan);
    let tally = outcome.tally();
    assert_eq!(outcome.ready, 0);
    assert_eq!((server.connections(), server.requests()), (200, 200));
    assert_eq!(server.counts.last_ones.load(Ordering::SeqCst), 200);
    assert_eq!(server.counts.requests_max.load(Ordering::SeqCst), 1);
    assert_eq!((tally.connections, tally.good), (200, 200));
    assert_eq!(tally.errors_total(), 0);
}

#[test]
fn a_connection_carries_as_many_requests_as_it_may() {
    let server = Server::answering("hello");
    let mut plan = closed(server.address, 1, 10);
    plan.requests_per_connection = Some(4);
    let outcome = run(&plan);
    assert_eq!((server.connections(), server.requests()), (3, 10));
    assert_eq!(server.counts.last_ones.load(Ordering::SeqCst), 2);
    assert_eq!(server.counts.requests_max.load(Ordering::SeqCst), 4);
    assert_eq!(outcome.tally().connections, 3);
}

#[test]
fn an_answer_that_ends_its_connection_is_no_error() {
    let length = answer(200, "hello");
    let until_close = b"HTTP/1.1 200 X\r\n\r\nhello".to_vec();
    let said = b"HTTP/1.1 200 X\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello".to_vec();
    for bytes in [length, until_close, said] {
        let server = Server::start(move |_, _| Act::SendAndClose(bytes.clone()));
        let outcome = run(&closed(server.address, 1, 20));
        let tally = outcome.tally();
        // Unless it was said, the end may show only when the next request is out.
        assert_eq!(tally.good + tally.errors_total(), 20);
        assert_eq!(tally.content_bytes, tally.good * 5);
        assert_eq!(tally.connections, server.connections());
    }
}

#[test]
fn a_connection_that_is_closed_while_idle_is_opened_again_quietly() {
    let server = Server::answering("hello");
    let mut plan = closed(server.address, 3, u64::MAX);
    plan.requests_max = None;
    plan.load = Loop::Closed {
        think_ns: 30 * MS,
        coalesces: true,
    };
    plan.phases = vec![phase(0, 100 * MS), phase(100 * MS, 400 * MS)];
    let outcome = run_with(&plan, &Control::new(), |message, _| {
        // At the phase boundary, while all of them think or have just begun again.
        if matches!(message, Message::Interval(interval) if interval.phase == 0) {
            server.close_all();
        }
    });
    let tally = outcome.tally();
    assert!(tally.good > 3);
    assert_eq!(tally.connections, server.connections());
    assert!(tally.connections >= 6);
}

#[test]
fn thinking_takes_its_time() {
    let server = Server::answering("hello");
    let mut plan = closed(server.address, 2, 10);
    plan.load = Loop::Closed {
        think_ns: 20 * MS,
        coalesces: true,
    };
    let outcome = run(&plan);
    assert_eq!(outcome.tally().good, 10);
    // Five requests of each client, so four pauses.
    assert!(outcome.report.wall_ns >= 80 * MS);
}

#[test]
fn the_end_waits_for_what_is_out() {
    let gate = Arc::new(RwLock::new(()));
    let server = Server::start({
        let gate = Arc::clone(&gate);
        move |_, _| {
            drop(gate.read());
            Act::Send(answer(200, "hello"))
        }
    });
    let mut shut = Some(gate.write().unwrap());
    let mut plan = closed(server.address, 3, 0);
    plan.requests_max = None;
    plan.phases = vec![phase(0, SECOND)];
    let outcome = run_with(&plan, &Control::new(), |message, _| {
        // The one interval of the phase is handed out at its end.
        if matches!(message, Message::Interval(interval) if interval.tally.sent > 0) {
            shut = None;
        }
    });
    let tally = outcome.tally();
    assert_eq!((tally.sent, tally.good, tally.unfinished), (3, 3, 0));
    assert_eq!(server.requests(), 3);
    let after_end = outcome.tally_of(|interval| interval.after_end);
    assert_eq!((after_end.good, after_end.sent), (3, 0));
}

#[test]
fn a_stop_gives_up_what_is_out() {
    let server = Server::start(|_, _| Act::Hang);
    let mut plan = closed(server.address, 3, 0);
    plan.requests_max = None;
    plan.phases = vec![phase(0, 10 * MS), phase(10 * MS, 3600 * SECOND)];
    let outcome = run_with(&plan, &Control::new(), |message, control| {
        if matches!(message, Message::Interval(_)) {
            control.stop();
        }
    });
    let tally = outcome.tally();
    assert_eq!((tally.sent, tally.completed, tally.unfinished), (3, 0, 3));
    assert_eq!(tally.errors_total(), 0);
}

#[test]
fn a_stop_before_the_start_ends_at_once() {
    let server = Server::answering("hello");
    let control = Control::new();
    control.stop();
    let outcome = run_with(&closed(server.address, 3, 9), &control, |_, _| {});
    assert_eq!(outcome.tally().sent, 0);
    assert_eq!(outcome.report.wall_ns, 0);
}

#[test]
fn requests_go_to_their_servers() {
    let servers = [Server::answering("one"), Server::answering("three")];
    let mut plan = closed(servers[0].address, 4, 400);
    plan.servers.push(servers[1].address);
    let mut second = get("/");
    (second.server, second.expectation) = (1, 1);
    plan.mix.requests.push(second);
    let length = |bytes| Expectation {
        length: Some(bytes),
        ..Expectation::default()
    };
    plan.mix.expectations = vec![length(3), length(5)];
    plan.mix.order = MixOrder::Weighted(vec![1.0, 2.0]);
    let tally = run(&plan).tally();
    assert_eq!((tally.good, tally.errors_total()), (400, 0));
    for server in &servers {
        assert_eq!(server.connections(), 2);
        assert!(server.requests() >= 2);
    }
    assert_eq!(servers[0].requests() + servers[1].requests(), 400);
}

#[test]
fn a_request_that_leaves_in_pieces_arrives_whole() {
    let server = Server::answering("hello");
    let mut plan = closed(server.address, 2, 4);
    let request = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(2 << 20));
    plan.mix.requests[0].keep = request.clone().into_bytes().into();
    let tally = run(&plan).tally();
    assert_eq!((tally.good, tally.errors_total()), (4, 0));
    assert_eq!(tally.bytes_sent, 4 * request.len() as u64);
    assert_eq!(server.requests(), 4);
}

#[test]
fn a_plan_that_names_what_it_does_not_have_is_refused() {
    let plan = closed(([127, 0, 0, 1], 1).into(), 1, 1);
    let mut plans = [plan.clone(), plan.clone(), plan.clone(), plan.clone(), plan];
    plans[0].mix.requests[0].server = 1;
    plans[1].mix.requests[0].expectation = 1;
    plans[2].mix.requests.clear();
    plans[3].servers.clear();
    plans[4].mix.order = MixOrder::InTurn([0, 1].into());
    for plan in plans {
        let refused = engine::run(&plan, Share::WHOLE, &Control::new(), &mut |_| {});
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}

#[test]
fn parts_of_a_run_add_up() {
    let server = Server::answering("hello");
    let plan = closed(server.address, 7, 100);
    let control = Control::new();
    let mut sum = Tally::default();
    for index in 0..3 {
        let share = Share { index, of: 3 };
        for interval in run_share(&plan, share, &control, |_, _| {}).intervals {
            sum.merge(&interval.tally);
        }
    }
    assert_eq!((sum.good, server.requests()), (100, 100));
    assert_eq!((sum.connections, server.connections()), (7, 7));
}

#[test]
fn a_server_that_ends_each_connection_at_once_is_not_called_without_end() {
    for act in [Act::Reset, Act::SendAndClose(Vec::new())] {
        let server = Server::start(move |_, _| act.clone());
        let mut plan = closed(server.address, 1, 0);
        plan.requests_max = None;
        plan.phases = vec![phase(0, 300 * MS)];
        let tally = run(&plan).tally();
        // At 0, 10, 30, 70 and 150 ms.
        assert!((1..=5).contains(&tally.sent), "{tally:?}");
        assert_eq!(tally.errors_total(), tally.sent);
    }
}

#[test]
fn a_server_whose_requests_come_late_is_not_forgotten() {
    let servers = [Server::answering("often"), Server::answering("late")];
    let mut plan = closed(servers[0].address, 2, 40_000);
    plan.servers.push(servers[1].address);
    plan.mix.requests.push(get("/"));
    plan.mix.requests[1].server = 1;
    let mut sequence = vec![0; 20_000];
    sequence.resize(20_100, 1);
    plan.mix.order = MixOrder::InTurn(sequence.into());
    let tally = run(&plan).tally();
    assert_eq!(tally.good, 40_000);
    assert!(servers[1].requests() > 0);
}

/// The thread is kept from its work for a while: what came meanwhile was there, and the kernel knows
/// since when.
#[test]
fn answers_that_lay_unread_are_no_late_ones() {
    const SERVICE: Duration = Duration::from_millis(20);
    const STALL: Duration = Duration::from_millis(300);
    let server = Server::start(|_, _| {
        std::thread::sleep(SERVICE);
        Act::Send(answer(200, "hello"))
    });
    let mut plan = closed(server.address, 4, 0);
    plan.requests_max = None;
    plan.phases = vec![phase(0, 1_400 * MS)];
    let mut is_stalled = false;
    let outcome = run_with(&plan, &Control::new(), |message, _| {
        if matches!(message, Message::Interval(_)) && !std::mem::replace(&mut is_stalled, true) {
            std::thread::sleep(STALL); // on the engine's thread
        }
    });
    let read_lag = &outcome.report.read_lag;
    // One client of the four is stamped.
    let good = outcome.tally().good;
    assert!(
        (1..=good / 2).contains(&read_lag.len()),
        "{}",
        read_lag.len()
    );
    let longest_ms = read_lag.max() / 1000;
    let stall_ms = STALL.as_millis() as u64;
    // Not all of it: on a busy machine the server's threads may respond late.
    assert!(longest_ms >= stall_ms / 3, "{longest_ms}");
}
