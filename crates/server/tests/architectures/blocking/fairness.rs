//! One client with many connections beside others with few, on threads of their own.

use std::io::Write;

use loadline_proto::{CloseReason, Limits};
use loadline_server::{Architecture, Counts, ServerOptions};

use super::util::*;

const GREEDY: [u8; 4] = [127, 0, 0, 2];
const QUIET: [u8; 4] = [127, 0, 0, 3];

fn total(server: &Server) -> Counts {
    server.handle.snapshot().total
}

/// At its cap of 20, all of them the greedy client's, who has sent this over each.
fn at_the_cap(sent: &str) -> (Server, Vec<Client>) {
    at_the_cap_of(options(Architecture::ThreadPerConnection), sent)
}

fn at_the_cap_of(options: ServerOptions, sent: &str) -> (Server, Vec<Client>) {
    let server = start(ServerOptions {
        connections_max: 20,
        ..options
    });
    let mut greedy: Vec<_> = (0..20).map(|_| server.connect_from(GREEDY)).collect();
    for client in &mut greedy {
        client.stream.write_all(sent.as_bytes()).unwrap();
    }
    eventually(|| {
        let total = total(&server);
        total.connections == 20 && total.bytes_in == 20 * sent.len() as u64
    });
    (server, greedy)
}

#[test]
fn a_quiet_client_gets_in_though_one_has_every_connection() {
    let head = "GET / HTTP/1.1\r\nX: ";
    let content = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nx";
    for sent in [head, content] {
        let (server, _greedy) = at_the_cap(sent);
        let mut quiet: Vec<_> = (0..3).map(|_| server.connect_from(QUIET)).collect();
        for client in &mut quiet {
            assert_eq!(client.get("/").status, 200);
        }
        eventually(|| total(&server).closed_for(CloseReason::OverShare) == 3);
        eventually(|| total(&server).connections == 20); // one has gone for each
        // The greedy client's own is refused.
        let mut one_more = server.connect_from(GREEDY);
        assert_eq!(one_more.answer().unwrap().status, 503);
        assert_eq!(total(&server).closed_for(CloseReason::OverShare), 3);
        assert_eq!(total(&server).refused_over_share, 1);
        for client in &mut quiet {
            assert_eq!(client.get("/").status, 200);
        }
    }
}

#[test]
fn a_proxied_client_gets_in_though_another_has_every_connection() {
    let options = ServerOptions {
        connections_max: 20,
        ..options(Architecture::ThreadPerConnection)
    };
    let server = Server::start_behind_proxy(options, Limits::default(), None);
    let from = forwarded_for(GREEDY);
    let begun = format!("POST /upload HTTP/1.1\r\nHost: h\r\n{from}Content-Length: 100\r\n\r\nx");
    let mut greedy: Vec<_> = (0..20).map(|_| server.connect_from(PROXY)).collect();
    for client in &mut greedy {
        client.stream.write_all(begun.as_bytes()).unwrap();
    }
    eventually(|| total(&server).bytes_in == 20 * begun.len() as u64);
    for closed in 1..=3 {
        let mut quiet = server.connect_from(PROXY);
        quiet.ask_for(QUIET, "/");
        assert_eq!(quiet.answer().unwrap().status, 200);
        eventually(|| total(&server).closed_for(CloseReason::OverShare) == closed);
        greedy.push(quiet); // it stays
    }
    eventually(|| total(&server).connections == 20); // one has gone for each
    drop(greedy);
}

#[test]
fn a_quiet_client_gets_in_though_all_threads_work_for_one() {
    let (server, mut greedy) = at_the_cap("GET /gate HTTP/1.1\r\nHost: h\r\n\r\n");
    server.handler.gate.await_waiting(20);
    let mut quiet = server.connect_from(QUIET);
    assert_eq!(quiet.get("/").status, 200);
    server.handler.gate.open();
    // A request that has begun is answered all the same.
    for client in &mut greedy {
        assert_eq!(client.answer().unwrap().status, 200);
    }
    eventually(|| total(&server).closed_for(CloseReason::OverShare) == 1);
    assert_eq!(quiet.get("/").status, 200);
}

#[test]
fn a_client_with_many_idle_connections_makes_room_for_itself() {
    let (server, greedy) = at_the_cap("");
    let mut quiet = server.connect_from(QUIET);
    assert_eq!(quiet.get("/").status, 200);
    let more: Vec<_> = (0..10).map(|_| server.connect_from(GREEDY)).collect();
    // The first one may have been about to wait.
    let reasons = [CloseReason::Evicted, CloseReason::OverShare];
    eventually(|| {
        let total = total(&server);
        reasons
            .map(|reason| total.closed_for(reason))
            .iter()
            .sum::<u64>()
            == 11
    });
    assert_eq!(total(&server).closed_for(CloseReason::Refused), 0);
    assert_eq!(quiet.get("/").status, 200, "idle for longer than those");
    drop((greedy, more));
}

#[test]
fn without_fairness_who_was_there_first_stays() {
    for architecture in [Architecture::ThreadPerConnection, Architecture::ThreadPool] {
        for [sent, rest] in SLOW_AND_IDLE {
            let options = ServerOptions {
                fairness: false,
                ..options(architecture)
            };
            let (server, mut greedy) = at_the_cap_of(options, sent);
            let mut quiet = server.connect_from(QUIET);
            let answer = quiet.answer().unwrap();
            assert_eq!(answer.status, 503, "{architecture:?} {sent:?}");
            for client in &mut greedy {
                client.stream.write_all(rest.as_bytes()).unwrap();
                let answer = client.answer().unwrap();
                assert_eq!(answer.status, 200, "{architecture:?} {sent:?}");
            }
        }
    }
}

/// They were refused while one client had the whole queue.
#[test]
fn a_queue_of_a_pool_that_is_full_by_number_takes_connections_of_another() {
    let server = start(ServerOptions {
        threads: 1,
        queue_max: 20,
        ..options(Architecture::ThreadPool)
    });
    let mut held = server.connect();
    held.ask("/gate");
    server.handler.gate.await_waiting(1);
    let mut greedy: Vec<_> = (0..30).map(|_| server.connect_from(GREEDY)).collect();
    greedy.iter_mut().for_each(|client| client.ask("/"));
    eventually(|| total(&server).queue_full == 10);
    let mut quiet: Vec<_> = (0..3).map(|_| server.connect_from(QUIET)).collect();
    quiet.iter_mut().for_each(|client| client.ask("/"));
    eventually(|| total(&server).queue_full == 13);
    assert_eq!(total(&server).queue_depth, 20);
    server.handler.gate.open();
    for client in quiet.iter_mut().chain([&mut held]) {
        assert_eq!(client.answer().unwrap().status, 200);
    }
    let answers = greedy
        .iter_mut()
        .map(|client| client.answer().unwrap().status);
    let refused = answers.filter(|status| *status == 503).count();
    assert_eq!(refused, 13);
    let total = total(&server);
    assert_eq!((total.queue_full, total.refused_over_share), (13, 3));
    // A connection that was refused goes on.
    for client in &mut greedy {
        assert_eq!(client.get("/").status, 200);
    }
}

/// A job of its own would count before the client's next request.
#[test]
fn an_idle_connection_that_its_client_closes_needs_no_thread() {
    let server = start(ServerOptions {
        threads: 1,
        ..options(Architecture::ThreadPool)
    });
    let mut idle = server.connect_from(QUIET);
    assert_eq!(idle.get("/hello").status, 200);
    let mut busy = server.connect_from(GREEDY);
    let request = "GET /gate HTTP/1.1\r\nHost: h\r\n\r\n";
    busy.stream.write_all(request.as_bytes()).unwrap();
    server.handler.gate.await_waiting(1);
    drop(idle);
    eventually(|| total(&server).closed_for(CloseReason::Client) == 1);
    server.handler.gate.open();
    assert_eq!(busy.answer().unwrap().status, 200);
}
