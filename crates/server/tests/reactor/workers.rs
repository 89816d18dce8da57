//! The pool of workers.

use loadline_server::{Queue, Role, ServerOptions, SocketIo};

use crate::util::*;

#[test]
fn a_panic_is_a_500_and_costs_no_thread() {
    for socket_io in SocketIo::ALL {
        let server = start(ServerOptions {
            socket_io: *socket_io,
            ..options(1, 1)
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

#[test]
fn the_loop_goes_on_while_workers_are_busy() {
    let server = start(options(1, 2));
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

#[test]
fn idle_workers_steal_from_one_that_is_stuck() {
    const JOBS: u64 = 40;
    let server = start(ServerOptions {
        queue: Queue::WorkStealing,
        ..options(1, 2)
    });
    // Both workers are at the gate while jobs pile up behind them; each then fetches a batch. The
    // one whose batch begins with the gate again is stuck with the rest of it, until it is robbed.
    let mut gated: Vec<_> = (0..2).map(|_| server.connect()).collect();
    gated.iter_mut().for_each(|client| client.ask("/gate"));
    server.handler.gate.await_waiting(2);
    let mut waiting: Vec<_> = (0..JOBS).map(|_| server.connect()).collect();
    waiting
        .iter_mut()
        .for_each(|client| client.ask("/blocking"));
    eventually(|| server.total().queue_depth == JOBS);
    server.handler.gate.open();
    for client in gated.iter_mut().chain(&mut waiting) {
        assert_eq!(client.answer().unwrap().status, 200);
    }
    eventually(|| server.total().jobs == JOBS + 2);
    let workers = server.of(Role::Worker);
    assert_eq!(workers.len(), 2);
    assert!(server.total().queue_wait_us > 0);
}
