//! Pools of threads that change their size.

use std::sync::atomic::Ordering;
use std::time::Duration;

use loadline_proto::Limits;
use loadline_server::{Architecture, Role, ServerOptions, SizeRange};

use super::util::*;

fn resized(min: usize, max: usize, interval_ms: u64) -> Server {
    start(options_of(min, max, interval_ms))
}

fn options_of(min: usize, max: usize, interval_ms: u64) -> ServerOptions {
    ServerOptions {
        threads: min,
        threads_range: Some(SizeRange { min, max }),
        sizing_interval: Duration::from_millis(interval_ms),
        ..options(Architecture::ThreadPool)
    }
}

fn threads(server: &Server) -> usize {
    server.handle.snapshot().threads(Role::Thread)
}

#[test]
fn a_pool_grows_while_its_threads_are_stuck_and_shrinks_when_it_has_nothing_to_do() {
    // Twenty times as often as usual, so that ten seconds are half of one.
    let server = resized(2, 16, 5);
    assert_eq!(threads(&server), 2);
    let mut stuck: Vec<_> = (0..12).map(|_| server.connect()).collect();
    stuck.iter_mut().for_each(|client| client.ask("/gate"));
    server.handler.gate.await_waiting(12);
    assert_eq!(server.connect().get("/").status, 200);
    assert!((13..=16).contains(&threads(&server)));
    server.handler.gate.open();
    for client in &mut stuck {
        assert_eq!(client.answer().unwrap().status, 200);
    }
    drop(stuck);
    eventually(|| threads(&server) == 2);
    assert_eq!(server.connect().get("/").status, 200);
    assert!(server.end().is_clean());
}

#[test]
fn nothing_is_lost_while_a_pool_changes_its_size() {
    let server = resized(1, 16, 1);
    server.handler.gate.open();
    let answers: u64 = std::thread::scope(|scope| {
        let ask = |seed: u64| {
            let server = &server;
            scope.spawn(move || {
                // Some ask again and again, some rest in between and keep their thread meanwhile.
                let mut client = server.connect();
                for turn in 0..200 {
                    let path = ["/", "/gate", "/"][(seed + turn) as usize % 3];
                    assert_eq!(client.get(path).status, 200);
                    if (seed + turn).is_multiple_of(20) {
                        std::thread::sleep(Duration::from_millis(seed));
                    }
                }
                200
            })
        };
        let clients: Vec<_> = (0..24).map(ask).collect();
        clients.into_iter().map(|it| it.join().unwrap()).sum()
    });
    assert_eq!(server.handle.snapshot().total.requests(), answers);
    assert!(server.end().is_clean());
}

#[test]
fn a_drain_ends_threads_that_came_later() {
    let server = resized(1, 16, 5);
    let mut stuck: Vec<_> = (0..6).map(|_| server.connect()).collect();
    stuck.iter_mut().for_each(|client| client.ask("/gate"));
    server.handler.gate.await_waiting(6);
    server.handle.drain();
    server.handler.gate.open();
    for client in &mut stuck {
        assert_eq!(client.answer().unwrap().status, 200);
    }
    assert!(server.end().is_clean());
}

#[test]
fn without_a_latency_goal_the_number_of_threads_stays() {
    let server = start(ServerOptions {
        threads: 3,
        threads_range: Some(SizeRange { min: 2, max: 9 }),
        latency_goal: None,
        sizing_interval: Duration::from_millis(1),
        ..options(Architecture::ThreadPool)
    });
    let mut stuck: Vec<_> = (0..3).map(|_| server.connect()).collect();
    stuck.iter_mut().for_each(|client| client.ask("/gate"));
    server.handler.gate.await_waiting(3);
    assert!(!{
        let mut late = server.connect();
        late.ask("/");
        late.is_answered_within(Duration::from_millis(200))
    });
    assert_eq!(threads(&server), 3);
    server.handler.gate.open();
    for client in &mut stuck {
        assert_eq!(client.answer().unwrap().status, 200);
    }
    drop(stuck);
    assert!(server.end().is_clean());
}

#[test]
fn a_pool_has_no_more_threads_than_there_are_connections() {
    const CLIENTS: usize = 6;
    let server = resized(2, 64, 5);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = server.connect();
                (0..2000).for_each(|_| assert_eq!(client.get("/").status, 200));
            });
        }
        let requests = || server.handle.snapshot().total.requests();
        // One that has just lost its thread may count twice.
        eventually(|| {
            assert!(threads(&server) <= 2 * CLIENTS, "{}", threads(&server));
            requests() == 2000 * CLIENTS as u64
        });
    });
    assert!(server.end().is_clean());
}

#[test]
fn a_handler_that_panics_where_a_thread_is_added_does_so_in_vain() {
    let handler = TestHandler::default();
    handler.starts_that_panic.store(5, Ordering::SeqCst);
    let options = options_of(2, 16, 5);
    let server = Server::start(options, handler, Limits::default());
    let mut stuck: Vec<_> = (0..12).map(|_| server.connect()).collect();
    stuck.iter_mut().for_each(|client| client.ask("/gate"));
    server.handler.gate.await_waiting(12);
    assert_eq!(server.handler.starts_that_panic.load(Ordering::SeqCst), 0);
    server.handler.gate.open();
    for client in &mut stuck {
        assert_eq!(client.answer().unwrap().status, 200);
    }
    drop(stuck);
    eventually(|| threads(&server) == 2);
    assert!(server.end().is_clean());
}
