//! Going down: nothing that was accepted is lost.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use loadline_proto::CloseReason;
use loadline_server::{Accept, Architecture, ServerOptions, SocketIo};

use super::util::*;

on_loops! {
    idle_connections_close_at_once,
    a_new_silent_connection_does_not_hold_up_the_end,
    accepted_requests_are_finished_and_say_close,
    an_answer_that_a_drain_overtakes_says_close_and_so_does_what_came_behind_it,
    a_drain_behind_a_long_answer_ends_in_good_order,
    nothing_that_was_accepted_is_lost_under_load,
    what_takes_longer_than_the_grace_is_cut,
    the_second_stage_ends_at_once,
    a_drain_is_counted,
    a_drain_does_not_gather_what_it_cannot_answer,
}

fn variants(architecture: Architecture) -> Vec<ServerOptions> {
    let mut all = Vec::new();
    for accept in Accept::ALL {
        for (loops, workers, socket_io) in [
            (1, 0, SocketIo::Loop),
            (3, 2, SocketIo::Loop),
            (2, 2, SocketIo::Worker),
        ] {
            if !offers(architecture, socket_io) {
                continue;
            }
            all.push(ServerOptions {
                accept: *accept,
                socket_io,
                grace: Duration::from_secs(10),
                ..options(architecture, loops, workers)
            });
        }
    }
    all
}

fn idle_connections_close_at_once(architecture: Architecture) {
    for options in variants(architecture) {
        let server = start(options);
        let mut clients: Vec<_> = (0..20).map(|_| server.connect()).collect();
        clients
            .iter_mut()
            .for_each(|client| assert_eq!(client.get("/").status, 200));
        let began = Instant::now();
        server.handle.drain();
        assert!(clients.iter_mut().all(Client::is_closed));
        assert!(server.handle.wait().unwrap().is_clean());
        assert!(began.elapsed() < Duration::from_secs(5));
    }
}

/// A browser opens connections ahead of its requests. The time for the first one begins with the
/// connection, not anew with each look at it.
fn a_new_silent_connection_does_not_hold_up_the_end(architecture: Architecture) {
    for options in variants(architecture) {
        once_in(3, || {
            let server = start(options.clone());
            let (mut silent, _) = server.connect_taken_in();
            std::thread::sleep(Duration::from_millis(50));
            let began = Instant::now();
            server.handle.drain();
            assert!(server.handle.wait().unwrap().is_clean());
            assert!(silent.is_closed());
            match began.elapsed() {
                took if took < Duration::from_secs(2) => Ok(()),
                took => Err(format!("{took:?}")),
            }
        });
    }
}

fn accepted_requests_are_finished_and_say_close(architecture: Architecture) {
    for options in variants(architecture) {
        if options.workers == 0 {
            continue; // at the gate, its loop could not drain
        }
        let what = format!("{options:?}");
        let server = start(options);
        let mut at_gate = server.connect();
        at_gate.ask("/gate");
        server.handler.gate.await_waiting(1);
        let mut in_head = server.connect_taken_in().0;
        in_head.stream.write_all(b"GET / HTTP/1.1\r\nHos").unwrap();
        let mut reading = server.connect();
        reading.ask("/shared");
        eventually(|| server.total().bytes_in >= 21 + 3 * 19);
        server.handle.drain();
        in_head.stream.write_all(b"t: test\r\n\r\n").unwrap();
        let answer = in_head.answer().unwrap();
        assert!(
            answer.status == 200 && answer.says("connection: close"),
            "{answer:?} {what}"
        );
        assert_eq!(reading.answer().unwrap().content.len(), SHARED_BYTES);
        server.handler.gate.open();
        let answer = at_gate.answer().unwrap();
        assert!(
            answer.status == 200 && answer.says("connection: close"),
            "{answer:?} {what}"
        );
        assert!(at_gate.is_closed() && in_head.is_closed() && reading.is_closed());
        assert!(server.handle.wait().unwrap().is_clean());
    }
}

/// Also where the handler works in place, so that the drain is only seen when it is done.
fn an_answer_that_a_drain_overtakes_says_close_and_so_does_what_came_behind_it(
    architecture: Architecture,
) {
    for options in variants(architecture) {
        let what = format!("{options:?}");
        let server = start(options);
        let mut client = server.connect();
        client.ask("/gate");
        server.handler.gate.await_waiting(1);
        client.ask("/");
        server.handle.drain();
        server.handler.gate.open();
        let first = client.answer().unwrap();
        assert!(first.status == 200, "{what}");
        assert!(!first.says("connection: close"), "{what}");
        let last = client.answer().unwrap();
        assert!(
            last.status == 200 && last.says("connection: close"),
            "{what}"
        );
        assert!(client.is_closed());
        assert!(server.handle.wait().unwrap().is_clean());
    }
}

/// What is pipelined may be more than one receive brings. A client reads the whole of the response
/// that says `Connection: close`, wherever it stands among them, and sees no reset.
fn a_drain_behind_a_long_answer_ends_in_good_order(architecture: Architecture) {
    for options in variants(architecture) {
        if options.workers == 0 {
            continue; // at the gate, its loop could not drain
        }
        let what = format!("{options:?}");
        let server = start(options);
        let mut client = server.connect();
        client.ask("/gate");
        server.handler.gate.await_waiting(1);
        let mut idle = server.connect();
        for path in ["/shared", "/", "/", "/"] {
            client.ask(path);
            idle.get("/"); // and so the loop has been through that
        }
        server.handle.drain();
        assert!(idle.is_closed(), "{what}");
        server.handler.gate.open();
        assert_eq!(client.answer().unwrap().status, 200, "{what}");
        let mut last = client.answer().unwrap();
        assert_eq!(last.content.len(), SHARED_BYTES, "{what}");
        while !last.says("connection: close") {
            last = client.answer().unwrap();
        }
        assert_eq!(client.stream.read(&mut [0]).unwrap(), 0, "no reset: {what}");
        assert!(server.handle.wait().unwrap().is_clean(), "{what}");
    }
}

fn nothing_that_was_accepted_is_lost_under_load(architecture: Architecture) {
    const CLIENTS: u64 = 6;
    for options in variants(architecture) {
        let listeners = match options.accept {
            Accept::ReusePort => options.loops as u64,
            Accept::Shared | Accept::Handoff => 1,
        };
        let server = start(options);
        let address = server.address;
        let (answered, lost) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    // A connection for each request, until none is accepted any more.
                    while let Ok(mut stream) = std::net::TcpStream::connect(address) {
                        let request = b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
                        let mut all = Vec::new();
                        let sent = stream.write_all(request);
                        let read = Read::read_to_end(&mut stream, &mut all);
                        if sent.is_ok() && read.is_ok() && all.starts_with(b"HTTP/1.1 200") {
                            answered.fetch_add(1, Ordering::Relaxed);
                        } else {
                            lost.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            eventually(|| answered.load(Ordering::Relaxed) > 200);
            server.handle.drain();
        });
        let requests = server.total().requests();
        assert!(server.handle.wait().unwrap().is_clean());
        assert_eq!(answered.into_inner(), requests, "each answer arrived");
        // Between the last accept and the close of a listener, the kernel may have completed
        // connections that no server can see: at most one for each client at each of them.
        assert!(lost.into_inner() <= CLIENTS * listeners);
    }
}

fn what_takes_longer_than_the_grace_is_cut(architecture: Architecture) {
    let server = start(ServerOptions {
        grace: Duration::from_millis(200),
        ..options(architecture, 2, 1)
    });
    let mut client = server.connect();
    client.ask("/gate");
    server.handler.gate.await_waiting(1);
    let began = Instant::now();
    server.handle.drain();
    assert!(client.is_closed());
    let handler = std::sync::Arc::clone(&server.handler);
    assert_eq!(server.handle.wait().unwrap().connections_cut, 1);
    // The server's clock has milliseconds.
    assert!(began.elapsed() >= Duration::from_millis(199));
    assert!(began.elapsed() < Duration::from_secs(5));
    handler.gate.open();
}

fn the_second_stage_ends_at_once(architecture: Architecture) {
    let server = start(options(architecture, 2, 1));
    let mut client = server.connect();
    client.ask("/gate");
    server.handler.gate.await_waiting(1);
    let began = Instant::now();
    server.handle.drain();
    server.handle.stop_now();
    assert!(client.is_closed());
    let handler = std::sync::Arc::clone(&server.handler);
    assert!(!server.handle.wait().unwrap().is_clean());
    assert!(began.elapsed() < Duration::from_secs(3));
    handler.gate.open();
}

fn a_drain_is_counted(architecture: Architecture) {
    let server = start(options(architecture, 1, 0));
    let mut client = server.connect();
    assert_eq!(client.get("/").status, 200);
    let control = server.handle.control();
    assert!(server.end().is_clean());
    assert_eq!(control.snapshot().total.closed_for(CloseReason::Drained), 1);
}

/// What a client has pipelined by the time of the drain is answered; what it goes on to send does
/// not pile up behind it.
fn a_drain_does_not_gather_what_it_cannot_answer(architecture: Architecture) {
    for (workers, socket_io) in [
        (0, SocketIo::Loop),
        (1, SocketIo::Loop),
        (1, SocketIo::Worker),
    ] {
        if !offers(architecture, socket_io) {
            continue;
        }
        let server = start(ServerOptions {
            socket_io,
            ..options(architecture, 1, workers)
        });
        let mut client = server.connect();
        let mut sending = client.stream.try_clone().unwrap();
        let sender = std::thread::spawn(move || {
            let naps = "GET /nap HTTP/1.1\r\nHost: h\r\n\r\n".repeat(300_000); // 9 MB
            sending.write_all(naps.as_bytes())
        });
        assert_eq!(client.answer().unwrap().status, 200);
        server.handle.drain();
        for _ in 0..60 {
            assert_eq!(client.answer().unwrap().status, 200);
        }
        // A ring's buffers come to 2 MiB, which the kernel fills before a loop without a CPU says stop.
        let bytes_in = server.total().bytes_in;
        assert!(bytes_in < 3_000_000, "{bytes_in}");
        server.handle.stop_now();
        drop(client);
        let _ = sender.join().unwrap(); // cut, if it was still sending
    }
}
