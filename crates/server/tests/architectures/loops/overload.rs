//! More work than can be done within the latency goal.

use std::net::Shutdown;
use std::time::{Duration, Instant};

use loadline_server::{Architecture, ServerOptions, SocketIo};

use super::util::*;

on_loops! {
    jobs_that_could_not_be_done_in_time_are_refused_at_once,
    without_a_goal_all_of_them_wait,
    while_apps_are_refused_files_are_not_and_the_reverse,
    jobs_of_clients_that_have_left_are_not_done,
    who_half_closes_and_waits_too_long_has_its_503,
    a_loop_that_does_the_work_itself_refuses_what_comes_too_late,
    what_comes_after_a_quiet_time_is_not_late,
}

/// One worker, held at the gate after it has done enough short jobs to know how long they take.
fn with_a_held_worker(
    architecture: Architecture,
    latency_goal: Option<Duration>,
) -> (Server, Client) {
    hold_worker(start(ServerOptions {
        latency_goal,
        ..options(architecture, 1, 1)
    }))
}

fn hold_worker(server: Server) -> (Server, Client) {
    let mut client = server.connect();
    for _ in 0..40 {
        assert_eq!(client.get("/nap").status, 200);
    }
    client.ask("/gate");
    server.handler.gate.await_waiting(1);
    (server, client)
}

/// Sends many requests of 2 ms each, and counts the responses: answered and refused.
fn ask_many(server: &Server, path: &str, open: impl FnOnce()) -> (usize, usize) {
    let mut clients: Vec<_> = (0..300).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.ask(path));
    open();
    let mut refused = 0;
    for client in &mut clients {
        let answer = client.answer().unwrap();
        match answer.status {
            200 => {}
            503 => {
                assert!(answer.says("retry-after: "), "{answer:?}");
                refused += 1;
            }
            other => panic!("{other}"),
        }
    }
    (clients.len() - refused, refused)
}

fn jobs_that_could_not_be_done_in_time_are_refused_at_once(architecture: Architecture) {
    let (server, mut held) = with_a_held_worker(architecture, Some(Duration::from_millis(200)));
    let handler = server.handler.clone();
    let (_, refused) = ask_many(&server, "/nap", || {
        // Before a worker is free: 300 jobs are 600 ms of work.
        eventually(|| server.total().refused_late > 0);
        handler.gate.open();
    });
    assert_eq!(held.answer().unwrap().status, 200);
    let total = server.total();
    assert!(refused > 0);
    assert_eq!(total.refused_late, refused as u64, "{total:?}");
    // And what comes when all is done is answered again.
    assert_eq!(server.connect().get("/nap").status, 200);
}

fn without_a_goal_all_of_them_wait(architecture: Architecture) {
    let (server, mut held) = with_a_held_worker(architecture, None);
    let handler = server.handler.clone();
    let seen = ask_many(&server, "/nap", || handler.gate.open());
    assert_eq!(held.answer().unwrap().status, 200);
    assert_eq!(seen, (300, 0));
}

/// The only worker is held.
fn while_apps_are_refused_files_are_not_and_the_reverse(architecture: Architecture) {
    const KINDS: [[&str; 3]; 2] = [
        ["/app-long-work", "/app-gate", "/work"],
        ["/long-work", "/gate", "/app-work"],
    ];
    for [refused, held, taken] in KINDS {
        let server = start(ServerOptions {
            latency_goal: Some(Duration::from_secs(4)),
            ..options(architecture, 1, 1)
        });
        let gate = server.handler.gate_of(held);
        let mut first = server.connect();
        assert_eq!(first.get(refused).status, 200);
        first.ask(held);
        gate.await_waiting(1);
        let mut many = Vec::new();
        eventually(|| {
            let mut more: Vec<_> = (0..20).map(|_| server.connect()).collect();
            more.iter_mut().for_each(|client| client.ask(refused));
            many.extend(more);
            server.total().refused_late > 0
        });
        // From now on no more of those are taken.
        let depth = server.total().queue_depth;
        let mut others = [server.connect(), server.connect()];
        others.iter_mut().for_each(|client| client.ask(taken));
        eventually(|| server.total().queue_depth == depth + 2);
        gate.open();
        for client in others.iter_mut().chain([&mut first]) {
            assert_eq!(client.answer().unwrap().status, 200);
        }
    }
}

fn jobs_of_clients_that_have_left_are_not_done(architecture: Architecture) {
    let (server, mut held) = with_a_held_worker(architecture, Some(Duration::from_secs(60)));
    let jobs = server.total().jobs;
    let mut leaving: Vec<_> = (0..20).map(|_| server.connect()).collect();
    leaving.iter_mut().for_each(|client| client.ask("/nap"));
    eventually(|| server.total().queue_depth == 20);
    leaving.into_iter().for_each(reset);
    eventually(|| server.total().connections == 1);
    server.handler.gate.open();
    assert_eq!(held.answer().unwrap().status, 200);
    eventually(|| server.total().abandoned == 20);
    assert_eq!(server.total().jobs, jobs + 1, "of the one that has stayed");
}

/// A worker that finds a half-closed connection late cannot know whether its client still reads.
fn who_half_closes_and_waits_too_long_has_its_503(architecture: Architecture) {
    let goal = Duration::from_millis(200);
    for socket_io in socket_ios(architecture) {
        let (server, mut held) = hold_worker(start(ServerOptions {
            latency_goal: Some(goal),
            socket_io: *socket_io,
            ..options(architecture, 1, 1)
        }));
        let mut client = server.connect();
        client.ask("/nap");
        client.stream.shutdown(Shutdown::Write).unwrap();
        eventually(|| server.total().queue_depth == 1);
        let queued = Instant::now();
        eventually(|| queued.elapsed() > goal / 4);
        server.handler.gate.open();
        assert_eq!(held.answer().unwrap().status, 200);
        assert_eq!(client.answer().unwrap().status, 503);
        // With the request alone it counts as left; with the connection its request is late.
        let total = server.total();
        let counts = (total.abandoned, total.refused_late);
        let is_of_worker = *socket_io == SocketIo::Worker;
        assert_eq!(counts, if is_of_worker { (0, 1) } else { (1, 0) });
    }
}

fn a_loop_that_does_the_work_itself_refuses_what_comes_too_late(architecture: Architecture) {
    let server = start(ServerOptions {
        latency_goal: Some(Duration::from_millis(100)),
        ..options(architecture, 1, 0)
    });
    // 1.5 s of work.
    let (answered, refused) = ask_many(&server, "/spin", || {});
    assert!(answered > 0 && refused > 0, "{answered} and {refused}");
    assert_eq!(server.total().refused_late, refused as u64);
    // Of a request that comes before the loop has waited again, it knows no exact age.
    eventually(|| server.connect().get("/spin").status == 200);
}

fn what_comes_after_a_quiet_time_is_not_late(architecture: Architecture) {
    let goal = Duration::from_millis(200);
    let server = |workers| {
        start(ServerOptions {
            latency_goal: Some(goal),
            ..options(architecture, 1, workers)
        })
    };
    once_in(5, || {
        let servers = [0, 1].map(server);
        let mut clients = servers.each_ref().map(Server::connect);
        let statuses = [(); 3].map(|()| {
            std::thread::sleep(3 * goal);
            clients.each_mut().map(|client| client.get("/").status)
        });
        match statuses == [[200; 2]; 3] {
            true => Ok(()),
            false => Err(format!("without a worker, with one: {statuses:?}")),
        }
    });
}
