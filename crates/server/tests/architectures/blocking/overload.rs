//! More work than can be done within the latency goal.

use std::time::{Duration, Instant};

use loadline_server::{Architecture, ServerOptions};

use super::util::{
    ChildServer, Client, Server, as_child, eventually, once_in, options, reset, start,
};

const GOAL: Duration = Duration::from_millis(200);
const DESCRIPTORS: u64 = 100;

/// Not a test of its own: what the other process does.
#[test]
fn server_in_a_child() {
    as_child(DESCRIPTORS, |name| {
        let architecture = Architecture::parse(name).unwrap();
        start(ServerOptions {
            latency_goal: Some(GOAL),
            ..options(architecture)
        })
    });
}

#[test]
fn what_has_waited_for_its_thread_beyond_the_goal_is_refused() {
    let architecture = Architecture::ThreadPerConnection.name();
    let server = ChildServer::start(module_path!(), architecture);
    server.open_the_gate();
    let mut client = Client::connect(server.address);
    eventually(|| client.get("/").status == 200);
    server.set_stopped(true); // as if all its threads waited for a CPU
    client.ask("/gate");
    let asked = Instant::now();
    eventually(|| asked.elapsed() > GOAL + GOAL / 2);
    server.set_stopped(false);
    let answer = client.answer().unwrap();
    assert_eq!(answer.status, 503);
    assert!(answer.says("retry-after: "), "{answer:?}");
    eventually(|| client.get("/gate").status == 200);
    server.end();
}

/// What comes later over its connection has not waited: it used to be refused as well, while the thread of a
/// pool kept the connection.
#[test]
fn a_connection_whose_request_came_too_late_is_served_again() {
    once_in(5, || {
        let server = start(ServerOptions {
            latency_goal: Some(GOAL),
            threads: 2,
            ..options(Architecture::ThreadPool)
        });
        let mut held = [at_the_gate(&server, 1), at_the_gate(&server, 2)];
        let mut late = [server.connect(), server.connect(), server.connect()];
        late.iter_mut().for_each(|client| client.ask("/nap"));
        eventually(|| server.handle.snapshot().total.queue_depth == 3);
        let asked = Instant::now();
        eventually(|| asked.elapsed() > GOAL + GOAL / 2);
        server.handler.gate.open();
        for client in held.iter_mut().chain(&mut late) {
            client.answer().unwrap();
        }
        match late.each_mut().map(|client| client.get("/nap").status) {
            [200, 200, 200] => Ok(()),
            statuses => Err(format!("{statuses:?}")),
        }
    });
}

/// The client of the request that is the `count`th at the gate: on a busy machine it may be refused before.
fn at_the_gate(server: &Server, count: u64) -> Client {
    let refused = || server.handle.snapshot().total.refused_late;
    let mut client = server.connect();
    loop {
        let before = refused();
        client.ask("/gate");
        eventually(|| server.handler.gate.waiting() == count || refused() > before);
        if server.handler.gate.waiting() == count {
            return client;
        }
        assert_eq!(client.answer().unwrap().status, 503);
    }
}

/// Slow requests of one kind had the quick ones of the other refused.
#[test]
fn while_slow_apps_are_refused_files_are_not_and_the_reverse() {
    const KINDS: [[&str; 3]; 2] = [
        ["/app-long-work", "/app-gate", "/blocking"],
        ["/long-work", "/gate", "/app-work"],
    ];
    for [slow, held, quick] in KINDS {
        // In time on a machine that is not too busy.
        once_in(5, || {
            let server = start(ServerOptions {
                latency_goal: Some(Duration::from_secs(1)),
                ..options(Architecture::ThreadPerConnection)
            });
            let gate = server.handler.gate_of(held);
            let refused = || server.handle.snapshot().total.refused_late;
            let mut clients = [server.connect(), server.connect()];
            let first = clients[0].get(slow).status;
            for (count, client) in (1..).zip(&mut clients) {
                client.ask(held);
                eventually(|| gate.waiting() == count || refused() > 0);
            }
            // A third one of 500 ms would not end within a second.
            let beside = [slow, quick, quick].map(|path| server.connect().get(path).status);
            gate.open();
            let [second, third] = clients.each_mut().map(|it| it.answer().unwrap().status);
            match ([first, second, third], beside) {
                ([200, 200, 200], [503, 200, 200]) => Ok(()),
                seen => Err(format!("{seen:?}")),
            }
        });
    }
}

/// A thread began the app of each connection that it took from the queue, so the file came after all of them.
#[test]
fn a_file_does_not_wait_for_the_slow_apps_in_the_queue_of_a_pool() {
    for threads in [1, 4] {
        once_in(5, || match begun_before_a_file(threads) {
            begun if begun < APPS / 2 => Ok(()),
            begun => Err(format!("{threads} threads: {begun}")),
        });
    }
}

const APPS: u64 = 40;

/// So many requests of a slow app have all threads of a pool, and 40 more wait when a file is asked for. How many of
/// those have begun when it is read: one of each thread that does not know yet how slow they are, and some that threads
/// take in turn with connections.
fn begun_before_a_file(threads: usize) -> u64 {
    let server = start(ServerOptions {
        threads,
        ..options(Architecture::ThreadPool)
    });
    let depth = || server.handle.snapshot().total.queue_depth;
    let ask = |path| {
        let mut client = server.connect();
        client.ask(path);
        client
    };
    let mut clients: Vec<_> = (0..threads).map(|_| ask("/app-gate")).collect();
    server.handler.app.gate.await_waiting(threads as u64);
    clients.extend((0..APPS).map(|_| ask("/app-work")));
    eventually(|| depth() == APPS);
    let mut file = ask("/apps-begun");
    eventually(|| depth() == APPS + 1);
    server.handler.app.gate.open();
    let begun = String::from_utf8(file.answer().unwrap().content).unwrap();
    for client in &mut clients {
        assert_eq!(client.answer().unwrap().status, 200);
    }
    begun.parse::<u64>().unwrap() - threads as u64
}

/// Of requests that wait for others to end; those of clients that have only half-closed are carried out, since none
/// has waited for a tenth of the goal.
#[test]
fn requests_of_clients_that_have_left_are_not_carried_out() {
    let server = start(options(Architecture::ThreadPerConnection));
    let mut clients: Vec<_> = (0..60).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.ask("/compute-long"); // 1.2 s of CPU time in all
    }
    let staying = clients.split_off(40);
    let half_closed = clients.split_off(30);
    clients.into_iter().for_each(reset);
    for client in &half_closed {
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    }
    for mut client in staying.into_iter().chain(half_closed) {
        assert_eq!(client.answer().unwrap().status, 200);
    }
    eventually(|| server.handle.snapshot().total.connections == 0);
    let total = server.handle.snapshot().total;
    assert!((1..=30).contains(&total.abandoned), "{total:?}");
}

#[test]
fn what_has_waited_in_the_backlog_beyond_the_goal_is_refused() {
    let server = start(ServerOptions {
        latency_goal: Some(GOAL),
        ..options(Architecture::Sequential)
    });
    let mut first = at_the_gate(&server, 1);
    let mut late = server.connect();
    late.ask("/gate");
    let asked = Instant::now();
    eventually(|| asked.elapsed() > GOAL + GOAL / 2);
    server.handler.gate.open();
    assert_eq!(first.answer().unwrap().status, 200);
    drop(first);
    assert_eq!(late.answer().unwrap().status, 503);
    eventually(|| late.get("/gate").status == 200);
    assert!(server.handle.snapshot().total.refused_late >= 1);
}

/// It was carried out, and those behind it waited.
#[test]
fn a_request_whose_client_has_left_the_backlog_is_not_carried_out() {
    let goal = Duration::from_secs(4);
    let server = start(ServerOptions {
        latency_goal: Some(goal),
        ..options(Architecture::Sequential)
    });
    let mut first = at_the_gate(&server, 1);
    let (mut leaving, mut staying) = (server.connect(), server.connect());
    leaving.ask("/gate");
    staying.ask("/gate");
    drop(leaving);
    let asked = Instant::now();
    eventually(|| asked.elapsed() > goal / 8); // a tenth is long
    server.handler.gate.open();
    assert_eq!(first.answer().unwrap().status, 200);
    drop(first);
    assert_eq!(staying.answer().unwrap().status, 200);
    assert_eq!(server.handle.snapshot().total.abandoned, 1);
}
