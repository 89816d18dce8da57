//! The pool of workers.

use std::io::Write;

use loadline_server::{Architecture, Queue, Role, ServerOptions, SocketIo, WorkerPools};

use super::util::*;

on_loops! {
    a_panic_is_a_500_and_costs_no_thread,
    the_loop_goes_on_while_workers_are_busy,
    idle_workers_steal_from_one_that_is_stuck,
    a_connection_that_waits_for_its_client_keeps_no_worker_busy,
    whatever_the_workers_meet_each_request_has_its_answer,
}

fn a_panic_is_a_500_and_costs_no_thread(architecture: Architecture) {
    for socket_io in socket_ios(architecture) {
        let server = start(ServerOptions {
            socket_io: *socket_io,
            ..options(architecture, 1, 1)
        });
        let mut client = server.connect();
        for path in ["/panic", "/panic-blocking", "/panic-blocking"] {
            assert_eq!(client.get(path).status, 500);
        }
        assert_eq!(client.get("/blocking").text(), "worker 0.0");
        drop(client);
        assert!(server.end().is_clean());
    }
}

fn the_loop_goes_on_while_workers_are_busy(architecture: Architecture) {
    let server = start(options(architecture, 1, 2));
    let mut blocked = [server.connect(), server.connect()];
    blocked.iter_mut().for_each(|client| client.ask("/gate"));
    server.handler.gate.await_waiting(2);
    for _ in 0..50 {
        assert_eq!(server.connect().get("/").status, 200);
    }
    server.handler.gate.open();
    blocked
        .iter_mut()
        .for_each(|client| assert_eq!(client.answer().unwrap().status, 200));
    assert_eq!(server.total().jobs, 2);
    assert_eq!(server.total().blocked_in_place, 0);
}

fn idle_workers_steal_from_one_that_is_stuck(architecture: Architecture) {
    const JOBS: u64 = 40;
    let server = start(ServerOptions {
        queue: Queue::WorkStealing,
        ..options(architecture, 1, 2)
    });
    // Both workers are at the gate while jobs pile up behind them.
    let mut gated: Vec<_> = (0..2).map(|_| server.connect()).collect();
    gated.iter_mut().for_each(|client| client.ask("/gate"));
    server.handler.gate.await_waiting(2);
    let mut stuck = server.connect();
    stuck.ask("/second-gate");
    eventually(|| server.total().queue_depth == 1);
    let mut waiting: Vec<_> = (0..JOBS).map(|_| server.connect()).collect();
    waiting
        .iter_mut()
        .for_each(|client| client.ask("/blocking"));
    eventually(|| server.total().queue_depth == 1 + JOBS);
    // One of them now fetches a batch that begins with the second gate, and is stuck with it.
    server.handler.gate.open();
    for client in gated.iter_mut().chain(&mut waiting) {
        assert_eq!(client.answer().unwrap().status, 200);
    }
    assert!(server.total().steals > 0);
    server.handler.second_gate.open();
    assert_eq!(stuck.answer().unwrap().status, 200);
    eventually(|| server.total().jobs == JOBS + 3);
    assert_eq!(server.of(Role::Worker).len(), 2);
    assert!(server.total().queue_wait_us > 0);
}

fn a_connection_that_waits_for_its_client_keeps_no_worker_busy(architecture: Architecture) {
    if !offers(architecture, SocketIo::Worker) {
        return;
    }
    let server = start(ServerOptions {
        socket_io: SocketIo::Worker,
        ..options(architecture, 1, 2)
    });
    let mut client = server.connect();
    // The answer to the first is more than the socket takes; the others are not read meanwhile.
    (0..20).for_each(|_| client.ask("/shared"));
    eventually(|| server.total().requests() >= 1);
    let mut other = server.connect();
    assert_eq!(other.get("/").status, 200);
    let before = server.total().jobs;
    for _ in 0..50 {
        assert_eq!(other.get("/").status, 200);
    }
    let jobs = server.total().jobs - before;
    assert!(jobs <= 60, "{jobs} jobs for 50 requests");
    for _ in 0..20 {
        assert_eq!(client.answer().unwrap().content.len(), SHARED_BYTES);
    }
}

/// Requests of every kind from many clients at once, pipelined in groups, until workers of every
/// make have met panics, naps, a full queue and idle moments: each gets its own answer, in order.
fn whatever_the_workers_meet_each_request_has_its_answer(architecture: Architecture) {
    for queue in Queue::ALL {
        for pools in WorkerPools::ALL {
            for (socket_io, queue_max) in [
                (SocketIo::Loop, 1024),
                (SocketIo::Loop, 4),
                (SocketIo::Worker, 1024),
            ] {
                if !offers(architecture, socket_io) {
                    continue;
                }
                let server = start(ServerOptions {
                    queue: *queue,
                    worker_pools: *pools,
                    socket_io,
                    queue_max,
                    ..options(architecture, 2, 3)
                });
                server.handler.gate.open();
                let answers: u64 = std::thread::scope(|scope| {
                    let clients: Vec<_> = (0..12)
                        .map(|seed| {
                            scope.spawn({
                                let server = &server;
                                move || ask_at_random(server, seed, queue_max < 1024)
                            })
                        })
                        .collect();
                    clients
                        .into_iter()
                        .map(|client| client.join().unwrap())
                        .sum()
                });
                let total = server.total();
                assert_eq!(total.requests(), answers);
                eventually(|| server.total().queue_depth == 0);
                if queue_max == 1024 {
                    assert_eq!(total.queue_full, 0);
                }
                assert!(server.end().is_clean());
            }
        }
    }
}

/// 40 groups of up to 8 requests over a few connections; returns how many were answered.
pub(crate) fn ask_at_random(server: &Server, seed: u64, may_be_full: bool) -> u64 {
    const KINDS: [(&str, u16); 6] = [
        ("/", 200),
        ("/blocking", 200),
        ("/encoded", 200),
        ("/nap", 200),
        ("/panic", 500),
        ("/panic-blocking", 500),
    ];
    let mut state = seed * 2 + 1;
    let mut below = |bound: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % bound
    };
    let mut client = server.connect();
    let mut count = 0;
    for _ in 0..40 {
        if below(4) == 0 {
            client = server.connect();
        }
        let group: Vec<_> = (0..=below(8)).map(|_| KINDS[below(6) as usize]).collect();
        let text = |path| format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
        let bytes: String = group.iter().map(|(path, _)| text(path)).collect();
        client.stream.write_all(bytes.as_bytes()).unwrap();
        for (path, status) in group {
            let answer = client.answer().unwrap();
            let full = may_be_full && answer.status == 503 && answer.says("retry-after");
            assert!(answer.status == status || full, "{path}: {answer:?}");
            count += 1;
        }
    }
    count
}
