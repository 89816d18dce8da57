//! One client with many connections, or many jobs, beside others with few.

use std::io::Write;
use std::time::{Duration, Instant};

use loadline_proto::{CloseReason, Http2Count, Limits};
use loadline_server::{Architecture, ServerOptions};

use super::util::*;

on_loops! {
    a_quiet_client_gets_in_though_one_has_every_connection,
    a_client_with_many_idle_connections_makes_room_for_itself,
    a_client_makes_room_for_more_of_its_own_than_are_chosen_at_once,
    without_fairness_who_was_there_first_stays,
    a_queue_that_is_full_of_one_clients_jobs_takes_those_of_another,
    a_queue_that_is_full_of_one_clients_streams_takes_jobs_of_another,
    a_queue_that_is_full_of_one_proxied_clients_jobs_takes_those_of_another,
    a_queue_that_is_full_by_number_takes_jobs_of_another,
    a_proxied_client_gets_in_though_another_has_every_connection,
    without_fairness_a_full_queue_is_full,
    jobs_whose_clients_have_left_keep_nobody_out,
    jobs_whose_streams_were_reset_keep_nobody_out,
}

const GREEDY: [u8; 4] = [127, 0, 0, 2];
const QUIET: [u8; 4] = [127, 0, 0, 3];
/// While no worker comes back, a queue takes fewer jobs the more of this time has passed. So it is long: a
/// busy machine may keep clients from asking for some of it.
const GOAL: Duration = Duration::from_secs(4);

/// At its cap of 20, all of them the greedy client's, each with half a head or idle.
fn at_the_cap(options: ServerOptions, sent: &str) -> (Server, Vec<Client>) {
    let server = start(ServerOptions {
        connections_max: 20,
        ..options
    });
    let mut greedy: Vec<_> = (0..20).map(|_| server.connect_from(GREEDY)).collect();
    for client in &mut greedy {
        client.stream.write_all(sent.as_bytes()).unwrap();
    }
    eventually(|| {
        let total = server.total();
        total.connections == 20 && total.bytes_in == 20 * sent.len() as u64
    });
    (server, greedy)
}

fn a_quiet_client_gets_in_though_one_has_every_connection(architecture: Architecture) {
    for loops in [1, 2] {
        let (server, _greedy) =
            at_the_cap(options(architecture, loops, 0), "GET / HTTP/1.1\r\nX: ");
        let mut quiet: Vec<_> = (0..3).map(|_| server.connect_from(QUIET)).collect();
        for client in &mut quiet {
            assert_eq!(client.get("/").status, 200);
        }
        eventually(|| server.total().closed_for(CloseReason::OverShare) == 3);
        assert!(server.total().connections <= 20, "one has gone for each");
        // The greedy client's own has to wait, or is refused.
        let mut one_more = server.connect_from(GREEDY);
        assert_eq!(one_more.answer().unwrap().status, 503);
        let total = server.total();
        assert_eq!(total.closed_for(CloseReason::OverShare), 3);
        assert_eq!(total.refused_over_share, 1);
        for client in &mut quiet {
            assert_eq!(client.get("/").status, 200);
        }
    }
}

fn a_client_with_many_idle_connections_makes_room_for_itself(architecture: Architecture) {
    let (server, greedy) = at_the_cap(options(architecture, 1, 0), "");
    let mut quiet = server.connect_from(QUIET);
    assert_eq!(quiet.get("/").status, 200);
    let more: Vec<_> = (0..10).map(|_| server.connect_from(GREEDY)).collect();
    eventually(|| server.total().closed_for(CloseReason::Evicted) == 11);
    for mut client in more {
        assert_eq!(client.get("/").status, 200);
    }
    assert_eq!(quiet.get("/").status, 200, "idle for longer than those");
    drop(greedy);
}

/// Within the time for which those that go are chosen.
fn a_client_makes_room_for_more_of_its_own_than_are_chosen_at_once(architecture: Architecture) {
    let server = start(ServerOptions {
        connections_max: 200,
        ..options(architecture, 1, 0)
    });
    let idle: Vec<_> = (0..200).map(|_| server.connect_from(GREEDY)).collect();
    let mut quiet = server.connect_from(QUIET);
    assert_eq!(quiet.get("/").status, 200);
    for _ in 0..150 {
        let mut client = server.connect_from(GREEDY);
        assert_eq!(client.get("/").status, 200);
    }
    assert_eq!(server.total().refused_over_share, 0);
    drop(idle);
}

fn without_fairness_who_was_there_first_stays(architecture: Architecture) {
    for loops in [1, 2] {
        for [sent, rest] in SLOW_AND_IDLE {
            let (server, mut greedy) = at_the_cap(
                ServerOptions {
                    fairness: false,
                    ..options(architecture, loops, 0)
                },
                sent,
            );
            let mut quiet = server.connect_from(QUIET);
            assert_eq!(quiet.answer().unwrap().status, 503, "{sent:?}");
            for client in &mut greedy {
                client.stream.write_all(rest.as_bytes()).unwrap();
                assert_eq!(client.answer().unwrap().status, 200, "{sent:?}");
            }
        }
    }
}

/// One worker, at the gate.
fn with_a_held_worker(architecture: Architecture, fairness: bool) -> (Server, Client) {
    let options = ServerOptions {
        latency_goal: Some(GOAL),
        fairness,
        ..options(architecture, 1, 1)
    };
    let server = Server::start_behind_proxy(options, Limits::default(), None);
    let mut held = server.connect();
    for _ in 0..40 {
        assert_eq!(held.get("/nap").status, 200);
    }
    held.ask("/gate");
    server.handler.gate.await_waiting(1);
    (server, held)
}

/// Begins a hundred jobs.
type Greedy = fn(&Server) -> Vec<Client>;

fn by_connections(server: &Server) -> Vec<Client> {
    let mut greedy: Vec<_> = (0..100).map(|_| server.connect_from(GREEDY)).collect();
    greedy.iter_mut().for_each(|client| client.ask("/nap"));
    greedy
}

fn by_streams(server: &Server) -> Vec<Client> {
    let mut greedy = server.connect_from(GREEDY);
    greedy.ask_by_streams("/nap", 100);
    vec![greedy]
}

fn by_proxy(server: &Server) -> Vec<Client> {
    let mut greedy: Vec<_> = (0..100).map(|_| server.connect_from(PROXY)).collect();
    greedy
        .iter_mut()
        .for_each(|client| client.ask_for(GREEDY, "/nap"));
    greedy
}

/// With as many jobs of the greedy client as it takes.
fn with_a_full_queue(
    architecture: Architecture,
    fairness: bool,
    greedy: Greedy,
) -> (Server, Client, Vec<Client>) {
    let (server, held) = with_a_held_worker(architecture, fairness);
    let mut clients = Vec::new();
    // The longer no worker comes back, the fewer are taken.
    eventually(|| {
        clients.extend(greedy(&server));
        server.total().refused_late >= 100
    });
    (server, held, clients)
}

fn a_queue_that_is_full_of_one_clients_jobs_takes_those_of_another(architecture: Architecture) {
    takes_jobs_of_another(architecture, by_connections, ask_quietly);
}

fn a_queue_that_is_full_of_one_clients_streams_takes_jobs_of_another(architecture: Architecture) {
    takes_jobs_of_another(architecture, by_streams, ask_quietly);
}

fn a_queue_that_is_full_of_one_proxied_clients_jobs_takes_those_of_another(
    architecture: Architecture,
) {
    takes_jobs_of_another(architecture, by_proxy, |server| {
        let mut quiet = server.connect_from(PROXY);
        quiet.ask_for(QUIET, "/nap");
        quiet
    });
}

fn ask_quietly(server: &Server) -> Client {
    let mut quiet = server.connect_from(QUIET);
    quiet.ask("/nap");
    quiet
}

fn takes_jobs_of_another(
    architecture: Architecture,
    greedy: Greedy,
    ask_quietly: fn(&Server) -> Client,
) {
    once_in(3, || {
        let (server, mut held, greedy) = with_a_full_queue(architecture, true, greedy);
        let depth = server.total().queue_depth;
        let mut quiet: Vec<_> = (0..3).map(|_| ask_quietly(&server)).collect();
        // Where the machine was busy for long, they are refused, too: no worker has come back.
        let asked = Instant::now();
        while server.total().queue_depth < depth + 3 && asked.elapsed() < GOAL {
            std::thread::sleep(Duration::from_micros(500));
        }
        let with_them = server.total().queue_depth;
        server.handler.gate.open();
        if with_them < depth + 3 {
            return Err(format!("{depth} jobs, and then {with_them}"));
        }
        assert_eq!(held.answer().unwrap().status, 200);
        for client in &mut quiet {
            assert_eq!(client.answer().unwrap().status, 200);
        }
        assert!(server.total().refused_over_share > 0);
        drop(greedy);
        Ok(())
    });
}

/// The newest jobs of the client that has most make room.
fn a_queue_that_is_full_by_number_takes_jobs_of_another(architecture: Architecture) {
    let server = start(ServerOptions {
        queue_max: 50,
        latency_goal: None,
        ..options(architecture, 1, 1)
    });
    let mut held = server.connect();
    held.ask("/gate");
    server.handler.gate.await_waiting(1);
    let mut greedy: Vec<_> = (0..60).map(|_| server.connect_from(GREEDY)).collect();
    greedy.iter_mut().for_each(|client| client.ask("/nap"));
    eventually(|| server.total().queue_full == 10);
    let mut quiet: Vec<_> = (0..3).map(|_| ask_quietly(&server)).collect();
    eventually(|| server.total().queue_full == 13);
    assert_eq!(server.total().queue_depth, 50);
    server.handler.gate.open();
    assert_eq!(held.answer().unwrap().status, 200);
    for client in &mut quiet {
        assert_eq!(client.answer().unwrap().status, 200);
    }
    let answers = greedy
        .iter_mut()
        .map(|client| client.answer().unwrap().status);
    let refused = answers.filter(|status| *status == 503).count();
    assert_eq!(refused, 13);
    assert_eq!(server.total().refused_over_share, 3);
}

fn a_proxied_client_gets_in_though_another_has_every_connection(architecture: Architecture) {
    let options = ServerOptions {
        connections_max: 20,
        ..options(architecture, 1, 0)
    };
    let server = Server::start_behind_proxy(options, Limits::default(), None);
    let from = forwarded_for(GREEDY);
    let begun = format!("POST /upload HTTP/1.1\r\nHost: h\r\n{from}Content-Length: 100\r\n\r\nx");
    let mut greedy: Vec<_> = (0..20).map(|_| server.connect_from(PROXY)).collect();
    for client in &mut greedy {
        client.stream.write_all(begun.as_bytes()).unwrap();
    }
    eventually(|| server.total().bytes_in == 20 * begun.len() as u64);
    for closed in 1..=3 {
        let mut quiet = server.connect_from(PROXY);
        quiet.ask_for(QUIET, "/");
        assert_eq!(quiet.answer().unwrap().status, 200);
        eventually(|| server.total().closed_for(CloseReason::OverShare) == closed);
        greedy.push(quiet); // it stays
    }
    assert!(server.total().connections <= 20, "one has gone for each");
    drop(greedy);
}

fn without_fairness_a_full_queue_is_full(architecture: Architecture) {
    let (server, mut held, greedy) = with_a_full_queue(architecture, false, by_connections);
    let mut quiet = server.connect_from(QUIET);
    assert_eq!(quiet.get("/nap").status, 503);
    server.handler.gate.open();
    assert_eq!(held.answer().unwrap().status, 200);
    drop(greedy);
}

/// Jobs that nobody waits for any more: few, so that all are taken though no worker comes back.
const LEAVING: u32 = 20;

fn jobs_whose_clients_have_left_keep_nobody_out(architecture: Architecture) {
    let (server, mut held) = with_a_held_worker(architecture, true);
    let mut greedy: Vec<_> = (0..LEAVING).map(|_| server.connect_from(GREEDY)).collect();
    greedy.iter_mut().for_each(|client| client.ask("/nap"));
    eventually(|| server.total().queue_depth == u64::from(LEAVING));
    greedy.into_iter().for_each(reset);
    eventually(|| server.total().connections == 1);
    are_abandoned(&server, &mut held);
}

fn jobs_whose_streams_were_reset_keep_nobody_out(architecture: Architecture) {
    let (server, mut held) = with_a_held_worker(architecture, true);
    let mut greedy = server.connect_from(GREEDY);
    greedy.ask_by_streams("/nap", LEAVING);
    eventually(|| server.total().queue_depth == u64::from(LEAVING));
    greedy.reset_streams(LEAVING);
    eventually(|| server.total().http2[Http2Count::ClientResets as usize] == u64::from(LEAVING));
    are_abandoned(&server, &mut held);
}

fn are_abandoned(server: &Server, held: &mut Client) {
    // No worker comes back: after some time the queue is too long, and is looked through.
    let mut more = Vec::new();
    eventually(|| {
        let mut client = server.connect_from(GREEDY);
        client.ask("/nap");
        more.push(client);
        server.total().abandoned == u64::from(LEAVING)
    });
    server.handler.gate.open();
    assert_eq!(held.answer().unwrap().status, 200);
}
