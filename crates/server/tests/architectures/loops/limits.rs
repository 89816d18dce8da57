//! What the reactor does when there is no more room.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use loadline_proto::CloseReason;
use loadline_server::{Accept, Architecture, Queue, ServerOptions, SocketIo};

use super::util::*;

on_loops! {
    over_a_loops_capacity_a_new_connection_is_closed_at_its_first_read,
    over_a_loops_capacity_nobody_is_served_by_a_drain_either,
    a_pipeline_of_blocking_requests_holds_nobody_up,
    at_the_cap_the_oldest_idle_connection_makes_room,
    if_none_is_idle_a_new_connection_gets_503,
    whoever_never_reads_a_refusal_costs_no_room_for_ever,
    a_full_queue_answers_503_with_retry_after,
    a_full_queue_refuses_whole_connections_as_well,
    an_idle_connection_ends_after_its_time_and_a_dripping_head_too,
    a_request_moves_the_idle_deadline_on,
}

fn over_a_loops_capacity_a_new_connection_is_closed_at_its_first_read(architecture: Architecture) {
    for accept in [Accept::Shared, Accept::Handoff] {
        let server = start(ServerOptions {
            capacity_per_loop: Some(2),
            accept,
            ..options(architecture, 1, 0)
        });
        let mut taken_in = [server.connect_taken_in().0, server.connect_taken_in().0];
        let (mut over, _) = server.connect_taken_in();
        assert_eq!(server.total().connections, 3, "not before it is read");
        over.ask("/");
        assert_eq!(
            over.stream.read(&mut [0]).unwrap(),
            0,
            "an end, not a reset"
        );
        assert_eq!(server.total().closed_for(CloseReason::OverCapacity), 1);
        taken_in
            .iter_mut()
            .for_each(|client| assert_eq!(client.get("/").status, 200));
        // Room again.
        let [first, _second] = taken_in;
        drop(first);
        eventually(|| server.total().connections == 1);
        assert_eq!(server.connect().get("/").status, 200);
    }
}

/// The loop learns of the bytes and of the drain at once.
fn over_a_loops_capacity_nobody_is_served_by_a_drain_either(architecture: Architecture) {
    let server = start(ServerOptions {
        capacity_per_loop: Some(1),
        ..options(architecture, 1, 0)
    });
    let mut first = server.connect_taken_in().0;
    let mut over = server.connect_taken_in().0;
    first.ask("/gate");
    server.handler.gate.await_waiting(1);
    over.ask("/");
    server.handle.drain();
    server.handler.gate.open();
    assert!(over.is_closed());
    assert_eq!(first.answer().unwrap().status, 200);
    assert!(server.handle.wait().unwrap().is_clean());
}

/// Without workers, who holds the loop holds everybody.
fn a_pipeline_of_blocking_requests_holds_nobody_up(architecture: Architecture) {
    const NAPS: u64 = 300;
    for (workers, socket_io) in [(0, SocketIo::Loop), (1, SocketIo::Worker)] {
        if !offers(architecture, socket_io) {
            continue;
        }
        once_in(5, || {
            let server = start(ServerOptions {
                socket_io,
                ..options(architecture, 1, workers)
            });
            let mut greedy = server.connect();
            let nap = "GET /nap HTTP/1.1\r\nHost: h\r\n\r\n";
            let naps = nap.repeat(NAPS as usize);
            greedy.stream.write_all(naps.as_bytes()).unwrap();
            assert_eq!(greedy.answer().unwrap().status, 200);
            assert_eq!(server.connect().get("/").status, 200);
            let before_it = server.total().requests();
            for _ in 1..NAPS {
                assert_eq!(greedy.answer().unwrap().status, 200);
            }
            match before_it < NAPS / 2 {
                true => Ok(()),
                false => Err(format!("{before_it} naps before")),
            }
        });
    }
}

/// Asks so that every loop knows how old the connection is, and that later ones are younger.
fn get_for_all_to_know(client: &mut Client) {
    // Loops publish ages at the end of a turn, after the answers of the turn have left; what
    // follows on an answer has a later turn.
    for _ in 0..2 {
        assert_eq!(client.get("/").status, 200);
    }
    std::thread::sleep(Duration::from_millis(5)); // ages are kept in milliseconds
}

fn at_the_cap_the_oldest_idle_connection_makes_room(architecture: Architecture) {
    for (loops, accept) in [
        (1, Accept::Shared),
        (3, Accept::Shared),
        (3, Accept::Handoff),
    ] {
        let server = start(ServerOptions {
            connections_max: 3,
            accept,
            ..options(architecture, loops, 0)
        });
        let mut clients: Vec<_> = (0..3)
            .map(|_| {
                let mut client = server.connect_taken_in().0;
                get_for_all_to_know(&mut client);
                client
            })
            .collect();
        // The first one becomes the youngest.
        get_for_all_to_know(&mut clients[0]);
        assert_eq!(server.connect().get("/").status, 200);
        assert!(clients[1].is_closed(), "{loops} {accept:?}");
        assert_eq!(clients[0].get("/").status, 200);
        assert_eq!(clients[2].get("/").status, 200);
        assert_eq!(server.total().closed_for(CloseReason::Evicted), 1);
    }
}

fn if_none_is_idle_a_new_connection_gets_503(architecture: Architecture) {
    for (loops, accept) in [
        (1, Accept::Shared),
        (2, Accept::Shared),
        (2, Accept::Handoff),
    ] {
        let server = start(ServerOptions {
            connections_max: 2,
            accept,
            ..options(architecture, loops, 2)
        });
        let mut clients = [server.connect(), server.connect()];
        clients.iter_mut().for_each(|client| client.ask("/gate"));
        server.handler.gate.await_waiting(2);
        let mut refused = server.connect();
        let answer = refused.answer().unwrap();
        assert_eq!(answer.status, 503, "{loops} {accept:?}");
        assert!(answer.says("retry-after: ") && answer.says("connection: close"));
        assert!(refused.is_closed());
        eventually(|| server.total().closed_for(CloseReason::Refused) == 1);
        server.handler.gate.open();
        clients
            .iter_mut()
            .for_each(|client| assert_eq!(client.answer().unwrap().status, 200));
    }
}

fn whoever_never_reads_a_refusal_costs_no_room_for_ever(architecture: Architecture) {
    let server = start(ServerOptions {
        connections_max: 1,
        ..options(architecture, 1, 1)
    });
    let mut holder = server.connect();
    holder.ask("/gate");
    server.handler.gate.await_waiting(1);
    let mut crowd: Vec<_> = (0..200).map(|_| server.connect()).collect();
    // Who is closed at once is connected for a moment.
    eventually(|| server.total().closed_for(CloseReason::Refused) >= 200 - 64);
    assert!(server.total().connections <= 1 + 64);
    eventually(|| server.total().closed_for(CloseReason::Refused) == 200);
    let answers = crowd.iter_mut().filter_map(|client| client.answer().ok());
    assert_eq!(answers.count(), 64, "the others were closed at once");
    server.handler.gate.open();
    assert_eq!(holder.answer().unwrap().status, 200);
    assert_eq!(server.connect().get("/").status, 200);
}

fn a_full_queue_answers_503_with_retry_after(architecture: Architecture) {
    for queue in Queue::ALL {
        for path in ["/gate", "/encoded"] {
            let server = start(ServerOptions {
                queue: *queue,
                queue_max: 1,
                ..options(architecture, 1, 1)
            });
            let mut working = server.connect();
            working.ask(path);
            server.handler.gate.await_waiting(1);
            let mut waiting = server.connect();
            waiting.ask(path);
            eventually(|| server.total().queue_depth == 1);
            let mut refused = server.connect();
            let answer = refused.get(path);
            assert_eq!(answer.status, 503, "{answer:?}");
            assert!(answer.says("retry-after: ") && !answer.says("connection: close"));
            assert_eq!(refused.get("/").status, 200, "the connection goes on");
            assert_eq!(server.total().queue_full, 1);
            server.handler.gate.open();
            assert_eq!(working.answer().unwrap().status, 200);
            assert_eq!(waiting.answer().unwrap().status, 200);
            assert!(server.total().queue_wait_us > 0);
            assert_eq!(server.total().queue_depth, 0);
        }
    }
}

fn a_full_queue_refuses_whole_connections_as_well(architecture: Architecture) {
    if !offers(architecture, SocketIo::Worker) {
        return;
    }
    let server = start(ServerOptions {
        socket_io: SocketIo::Worker,
        queue_max: 1,
        ..options(architecture, 1, 1)
    });
    let mut working = server.connect();
    working.ask("/gate");
    server.handler.gate.await_waiting(1);
    let mut waiting = server.connect();
    waiting.ask("/");
    eventually(|| server.total().queue_depth == 1);
    let mut refused = server.connect();
    let answer = refused.get("/");
    assert_eq!(answer.status, 503);
    assert!(answer.says("retry-after: "));
    server.handler.gate.open();
    assert_eq!(working.answer().unwrap().status, 200);
    assert_eq!(waiting.answer().unwrap().status, 200);
}

fn an_idle_connection_ends_after_its_time_and_a_dripping_head_too(architecture: Architecture) {
    let with_limits =
        |limits| start_with(options(architecture, 1, 0), TestHandler::default(), limits);
    // The clock of a server has whole milliseconds, so each may end almost one earlier.
    let server = with_limits(loadline_proto::Limits {
        idle_timeout_ms: 150,
        ..Default::default()
    });
    let began = Instant::now();
    let mut idle = server.connect();
    assert!(idle.is_closed());
    assert!(began.elapsed() >= Duration::from_millis(149));
    assert_eq!(server.total().closed_for(CloseReason::Idle), 1);
    // It may be idle for longer than it may drip: on a busy machine its first bytes may be late.
    let server = with_limits(loadline_proto::Limits {
        idle_timeout_ms: 2_000,
        head_pace: loadline_proto::Pace {
            grace_ms: 300,
            bytes_per_second_min: 1000,
            total_max_ms: 600,
        },
        ..Default::default()
    });
    let began = Instant::now();
    let mut dripping = server.connect();
    dripping.stream.write_all(b"GET / HT").unwrap();
    assert_eq!(dripping.answer().unwrap().status, 408);
    assert!(began.elapsed() >= Duration::from_millis(299));
}

fn a_request_moves_the_idle_deadline_on(architecture: Architecture) {
    let limits = loadline_proto::Limits {
        idle_timeout_ms: 1_000,
        ..Default::default()
    };
    let server = start_with(options(architecture, 1, 0), TestHandler::default(), limits);
    let mut lively = server.connect();
    assert_eq!(lively.get("/").status, 200);
    // Closed when `lively` would be, or later, if requests moved nothing.
    let silent = server.connect();
    silent.stream.set_nonblocking(true).unwrap();
    let began = Instant::now();
    while silent.stream.peek(&mut [0]).is_err() {
        assert!(began.elapsed() < TIMEOUT, "it stays");
        assert_eq!(lively.get("/").status, 200);
    }
    assert_eq!(silent.stream.peek(&mut [0]).unwrap(), 0, "the end");
    assert_eq!(lively.get("/").status, 200);
}
