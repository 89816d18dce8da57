//! Who is served when.

use std::time::Duration;

use loadline_server::{Architecture, ServerOptions};

use super::util::{BIG_BYTES, BLOCKING, Client, eventually, options, start, start_logging};

/// Long enough for a server that does not wait to answer; short enough to prove a wait with.
const A_WHILE: Duration = Duration::from_millis(200);

#[test]
fn keep_alive_pipelining_and_close() {
    for architecture in BLOCKING {
        let server = start(options(architecture));
        let mut client = server.connect();
        for _ in 0..3 {
            assert_eq!(client.get("/hello").content, b"hello");
        }
        client.ask("/hello");
        client.ask("/big");
        client.ask("/hello");
        assert_eq!(client.answer().unwrap().content, b"hello");
        let big = client.answer().unwrap().content;
        assert_eq!(big.len(), BIG_BYTES);
        assert_eq!(client.answer().unwrap().content, b"hello");
        drop(client);
        let mut client = server.connect();
        use std::io::Write;
        let request = b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
        client.stream.write_all(request).unwrap();
        assert!(client.answer().unwrap().says_close());
        assert!(client.is_closed(), "{architecture:?}");
        eventually(|| server.handle.snapshot().total.connections == 0);
        let total = server.handle.snapshot().total;
        assert_eq!((total.accepted, total.requests()), (2, 7));
        assert!(server.end().is_clean());
    }
}

#[test]
fn under_sequential_a_second_client_waits_for_the_first_to_go() {
    let server = start(options(Architecture::Sequential));
    let mut first = server.connect();
    assert_eq!(first.get("/").status, 200);
    let mut second = server.connect();
    second.ask("/");
    assert!(!second.is_answered_within(A_WHILE));
    assert_eq!(first.get("/").status, 200);
    drop(first);
    assert_eq!(second.answer().unwrap().status, 200);
    drop(second);
    assert!(server.end().is_clean());
}

#[test]
fn a_pool_queues_connections_that_it_has_no_thread_for() {
    let server = start(ServerOptions {
        threads: 2,
        queue_max: 1,
        latency_goal: None,
        ..options(Architecture::ThreadPool)
    });
    let mut busy: Vec<Client> = (0..2).map(|_| server.connect()).collect();
    for client in &mut busy {
        assert_eq!(client.get("/").status, 200);
    }
    // One waits in the queue, the other in the backlog; neither is refused.
    let mut waiting: Vec<Client> = (0..2).map(|_| server.connect()).collect();
    for client in &mut waiting {
        client.ask("/");
    }
    eventually(|| server.handle.snapshot().total.queue_depth == 1);
    assert!(!waiting[0].is_answered_within(A_WHILE));
    assert!(!waiting[1].is_answered_within(Duration::from_millis(1)));
    assert_eq!(server.handle.snapshot().total.queue_depth, 1);
    drop(busy.pop());
    assert_eq!(waiting[0].answer().unwrap().status, 200);
    drop(busy.pop());
    assert_eq!(waiting[1].answer().unwrap().status, 200);
    let total = server.handle.snapshot().total;
    assert!(total.queue_wait_us >= 100_000, "{total:?}");
    assert_eq!(total.queue_depth, 0);
    drop(waiting);
    assert!(server.end().is_clean());
}

#[test]
fn with_a_latency_goal_idle_clients_of_a_pool_make_room() {
    let server = start(ServerOptions {
        threads: 2,
        ..options(Architecture::ThreadPool)
    });
    let mut idle: Vec<Client> = (0..2).map(|_| server.connect()).collect();
    for client in &mut idle {
        assert_eq!(client.get("/").status, 200);
    }
    for _ in 0..20 {
        let mut client = server.connect();
        assert_eq!(client.get("/").status, 200);
        idle.push(client);
    }
    drop(idle);
    assert!(server.end().is_clean());
}

#[test]
fn a_thousand_threads_start_and_serve() {
    let server = start(ServerOptions {
        threads: 1000,
        ..options(Architecture::ThreadPool)
    });
    let mut clients: Vec<Client> = (0..300).map(|_| server.connect()).collect();
    for _ in 0..2 {
        for client in &mut clients {
            client.ask("/");
        }
        for client in &mut clients {
            assert_eq!(client.answer().unwrap().status, 200);
        }
    }
    drop(clients);
    assert!(server.end().is_clean());
}

#[test]
fn each_connection_has_a_thread_of_its_own() {
    let server = start(options(Architecture::ThreadPerConnection));
    let mut stuck: Vec<Client> = (0..8).map(|_| server.connect()).collect();
    for client in &mut stuck {
        client.ask("/gate");
    }
    server.handler.gate.await_waiting(8);
    assert_eq!(server.connect().get("/").status, 200);
    server.handler.gate.open();
    for client in &mut stuck {
        assert_eq!(client.answer().unwrap().content, b"passed");
    }
    drop(stuck);
    assert!(server.end().is_clean());
}

#[test]
fn a_panic_is_a_500_and_costs_neither_connection_nor_thread() {
    for architecture in BLOCKING {
        let server = start(ServerOptions {
            threads: 1,
            ..options(architecture)
        });
        let mut client = server.connect();
        assert_eq!(client.get("/panic").status, 500);
        assert_eq!(client.get("/panic-blocking").status, 500);
        drop(client);
        assert_eq!(server.connect().get("/").status, 200);
        assert!(server.end().is_clean());
    }
}

#[test]
fn log_lines_are_handed_on_before_a_thread_waits() {
    for architecture in BLOCKING {
        let (server, lines) = start_logging(options(architecture));
        let mut client = server.connect();
        for path in ["/one", "/two"] {
            assert_eq!(client.get(path).status, 200);
            lines.await_request(path);
        }
        drop(client);
        assert!(server.end().is_clean());
        assert_eq!(lines.text().lines().count(), 2);
    }
}
