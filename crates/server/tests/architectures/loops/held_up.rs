//! A loop that was held up finds what has come meanwhile: more than one wait of it brings.

use std::time::{Duration, Instant};

use loadline_proto::Limits;
use loadline_server::{Architecture, ServerOptions};

use super::util::*;

on_loops! {
    a_drain_answers_all_that_had_come,
    requests_that_came_in_time_are_answered_when_the_idle_time_is_over,
}

/// A ring's wait brings twenty or so at a time.
const CLIENTS: usize = 300;
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// A lone loop at its gate, and clients that have asked meanwhile on connections that were idle. `None`: on
/// a busy machine that took so long that some of them may have been idle for too long.
fn held_up(architecture: Architecture, limits: Limits) -> Option<(Server, Client, Vec<Client>)> {
    loadline_sys::usage::raise_descriptor_limit();
    let within = Duration::from_millis(limits.idle_timeout_ms) * 3 / 4;
    let options = ServerOptions {
        grace: Duration::from_secs(10),
        ..options(architecture, 1, 0)
    };
    let server = start_with(options, TestHandler::default(), limits);
    let began = Instant::now();
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.ask("/"));
    if began.elapsed() > within {
        return None;
    }
    for client in &mut clients {
        assert_eq!(client.answer().unwrap().status, 200);
    }
    let mut at_gate = server.connect();
    at_gate.ask("/gate");
    server.handler.gate.await_waiting(1);
    clients.iter_mut().for_each(|client| client.ask("/"));
    if began.elapsed() > within {
        server.handler.gate.open();
        return None;
    }
    Some((server, at_gate, clients))
}

fn a_drain_answers_all_that_had_come(architecture: Architecture) {
    let held = held_up(architecture, Limits::default());
    let (server, mut at_gate, mut clients) = held.expect("in time");
    server.handle.drain();
    server.handler.gate.open();
    assert_eq!(at_gate.answer().unwrap().status, 200);
    for client in &mut clients {
        let answer = client.answer().unwrap();
        assert!(
            answer.status == 200 && answer.says("connection: close"),
            "{answer:?}"
        );
        assert!(client.is_closed());
    }
    assert!(server.handle.wait().unwrap().is_clean());
}

fn requests_that_came_in_time_are_answered_when_the_idle_time_is_over(architecture: Architecture) {
    let limits = Limits {
        idle_timeout_ms: IDLE_TIMEOUT.as_millis() as u64,
        ..Limits::default()
    };
    let held = (0..5).find_map(|_| held_up(architecture, limits.clone()));
    let Some((server, mut at_gate, mut clients)) = held else {
        return say_skipped("requests in time: this machine is too busy to have them in time");
    };
    std::thread::sleep(IDLE_TIMEOUT + Duration::from_millis(100));
    server.handler.gate.open();
    assert_eq!(at_gate.answer().unwrap().status, 200);
    for client in &mut clients {
        assert_eq!(client.answer().unwrap().status, 200);
    }
    for client in &mut clients {
        assert!(client.is_closed(), "idle again, and for long enough");
    }
    assert_eq!(server.total().requests(), 2 * CLIENTS as u64 + 1);
}
