//! What the kernel reports, and what becomes of it: half-closes, resets, events that come too late.

use std::io::{Read, Write};
use std::net::Shutdown;

use loadline_proto::CloseReason;
use loadline_server::{Architecture, ServerOptions, SocketIo};

use super::util::*;

on_loops! {
    a_half_closed_client_gets_its_answers,
    the_end_of_input_is_seen_behind_a_short_read,
    a_client_that_vanishes_while_its_request_is_worked_on,
    resets_in_the_middle_of_everything_leave_nothing_behind,
    slots_change_tenants_without_mixing_them_up,
}

fn a_half_closed_client_gets_its_answers(architecture: Architecture) {
    for socket_io in socket_ios(architecture) {
        for path in ["/", "/blocking", "/shared"] {
            let server = start(ServerOptions {
                socket_io: *socket_io,
                ..options(architecture, 1, 1)
            });
            let mut client = server.connect();
            client.ask(path);
            client.ask(path);
            client.stream.shutdown(Shutdown::Write).unwrap();
            assert_eq!(client.answer().unwrap().status, 200);
            assert_eq!(client.answer().unwrap().status, 200);
            assert!(client.is_closed());
            eventually(|| server.total().connections == 0);
            assert_eq!(server.total().closed_for(CloseReason::Client), 1);
        }
    }
}

fn the_end_of_input_is_seen_behind_a_short_read(architecture: Architecture) {
    let server = start(options(architecture, 1, 0));
    for _ in 0..200 {
        let mut client = server.connect();
        client.ask("/");
        client.stream.shutdown(Shutdown::Write).unwrap();
        let mut all = Vec::new();
        client.stream.read_to_end(&mut all).unwrap();
        assert!(all.starts_with(b"HTTP/1.1 200"));
    }
    eventually(|| server.total().connections == 0);
}

fn a_client_that_vanishes_while_its_request_is_worked_on(architecture: Architecture) {
    for socket_io in socket_ios(architecture) {
        let server = start(ServerOptions {
            socket_io: *socket_io,
            ..options(architecture, 1, 2)
        });
        let mut vanishing = server.connect();
        vanishing.ask("/gate");
        server.handler.gate.await_waiting(1);
        // Unread input makes the close a reset.
        vanishing.stream.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        reset(vanishing);
        if *socket_io == SocketIo::Loop {
            eventually(|| server.total().closed_for(CloseReason::Vanished) == 1);
        }
        // Its slot has a new connection when the result comes, which must not get it.
        let mut next = server.connect();
        assert_eq!(next.get("/").status, 200);
        server.handler.gate.open();
        eventually(|| server.total().jobs >= 1);
        assert_eq!(next.get("/").status, 200);
        eventually(|| server.total().connections == 1);
    }
}

fn resets_in_the_middle_of_everything_leave_nothing_behind(architecture: Architecture) {
    for socket_io in socket_ios(architecture) {
        let server = start(ServerOptions {
            socket_io: *socket_io,
            ..options(architecture, 2, 2)
        });
        for round in 0..300 {
            let mut client = server.connect();
            match round % 5 {
                0 => {}
                1 => client.ask("/"),
                2 => client.ask("/shared"),
                3 => client.ask("/blocking"),
                _ => client.stream.write_all(b"GET /").unwrap(),
            }
            if round % 2 == 0 {
                reset(client);
            }
        }
        eventually(|| server.total().accepted == 300 && server.total().connections == 0);
        assert_eq!(server.connect().get("/").status, 200);
        assert!(server.end().is_clean());
    }
}

/// Many connections are closed and replaced within batches of events.
fn slots_change_tenants_without_mixing_them_up(architecture: Architecture) {
    let server = start(options(architecture, 1, 1));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for round in 0..200 {
                    let mut client = server.connect();
                    let (path, text) = match round % 3 {
                        0 => ("/", "main loop"),
                        1 => ("/blocking", "worker 0.0"),
                        _ => ("/", "main loop"),
                    };
                    assert_eq!(client.get(path).text(), text);
                    if round % 7 == 0 {
                        reset(client);
                    }
                }
            });
        }
    });
    eventually(|| server.total().connections == 0);
}
