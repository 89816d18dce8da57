//! What only a ring can get wrong: bytes that come unasked, ends that come before they are due.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use loadline_proto::{CloseReason, Limits, Pace};
use loadline_server::{Architecture, ServerOptions, SocketIo};

use super::util::*;

on_the_proactor! {
    a_client_that_half_closes_while_nothing_is_received_gets_all_its_answers,
    a_flood_behind_a_blocking_request_stays_in_the_kernel,
    a_reader_that_stalls_is_cut_off_by_its_pace,
    uncached_files_are_read_by_the_ring,
    clients_that_vanish_while_their_file_is_read_leave_nothing_behind,
    a_client_that_has_gone_before_it_was_accepted_is_not_served,
}

/// While a request blocks nothing is received; the end behind the other requests is not a hang-up.
fn a_client_that_half_closes_while_nothing_is_received_gets_all_its_answers(
    architecture: Architecture,
) {
    for after in ["/", "/blocking"] {
        let server = start(options(architecture, 1, 1));
        let mut client = server.connect();
        client.ask("/gate");
        server.handler.gate.await_waiting(1);
        for _ in 0..3 {
            client.ask(after); // each comes unasked
            std::thread::sleep(Duration::from_millis(2));
        }
        client.stream.shutdown(Shutdown::Write).unwrap();
        // Another request shows that the loop has been through the end.
        assert_eq!(server.connect().get("/").status, 200);
        server.handler.gate.open();
        for _ in 0..4 {
            assert_eq!(client.answer().unwrap().status, 200);
        }
        assert!(client.is_closed());
    }
}

fn a_flood_behind_a_blocking_request_stays_in_the_kernel(architecture: Architecture) {
    let server = start(options(architecture, 1, 1));
    let mut client = server.connect();
    client.ask("/gate");
    server.handler.gate.await_waiting(1);
    let mut sending = client.stream.try_clone().unwrap();
    let flood = "GET / HTTP/1.1\r\nHost: test\r\n\r\n".repeat(50_000);
    let sender = std::thread::spawn(move || sending.write_all(flood.as_bytes()));
    for _ in 0..20 {
        assert_eq!(server.connect().get("/").status, 200);
    }
    let bytes_in = server.total().bytes_in;
    assert!(bytes_in < 1 << 20, "{bytes_in} bytes received unasked");
    server.handler.gate.open();
    for _ in 0..50_001 {
        assert_eq!(client.answer().unwrap().status, 200);
    }
    sender.join().unwrap().unwrap();
}

/// Output that waits for room is given up by the pace, and what the ring still has of it with it.
fn a_reader_that_stalls_is_cut_off_by_its_pace(architecture: Architecture) {
    let limits = Limits {
        write_pace: Pace {
            grace_ms: 100,
            bytes_per_second_min: 1000,
            total_max_ms: 300,
        },
        ..Limits::default()
    };
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&vec![b'f'; 12 << 20]).unwrap();
    let handler = TestHandler {
        file: Some(open_file(file.path())),
        ..TestHandler::default()
    };
    let server = start_with(options(architecture, 1, 0), handler, limits);
    for (cut, path) in [(1, "/shared"), (2, "/file")] {
        let mut stalled = server.connect_taken_in().0;
        stalled.ask(path);
        eventually(|| server.total().closed_for(CloseReason::Slow) == cut);
        let mut bytes = Vec::new();
        let _ = stalled.stream.read_to_end(&mut bytes); // an end, or a reset
        assert!(bytes.len() < SHARED_BYTES, "not all of it");
        assert_eq!(server.connect().get("/").status, 200);
    }
    eventually(|| server.total().connections == 0);
    assert!(server.end().is_clean());
}

/// Its pages are dropped before each request. Neither the loop nor a worker waits for the disk; what is
/// forced off by the environment is left to them.
fn uncached_files_are_read_by_the_ring(architecture: Architecture) {
    let folder = std::env::current_exe().unwrap(); // on a disk more often than the temporary one
    let folder = folder.parent().unwrap();
    let content: Vec<u8> = (0..4_000_001).map(|at: u32| (at / 7) as u8).collect();
    for workers in [0, 1] {
        let mut file = tempfile::NamedTempFile::new_in(folder).unwrap();
        file.write_all(&content).unwrap();
        file.as_file().sync_all().unwrap();
        let handler = TestHandler {
            file: Some(open_file(file.path())),
            ..TestHandler::default()
        };
        let server = start_with(
            options(architecture, 1, workers),
            handler,
            Limits::default(),
        );
        let mut client = server.connect();
        for _ in 0..5 {
            let advice = rustix::fs::Advice::DontNeed;
            rustix::fs::fadvise(file.as_file(), 0, None, advice).unwrap();
            assert!(client.get("/file").content == content);
        }
        let total = server.total();
        let elsewhere = total.blocked_in_place + total.jobs;
        let is_off = std::env::var_os(loadline_sys::ring::WITHOUT).is_some();
        assert!(elsewhere == 0 || is_off, "{elsewhere} reads elsewhere");
        assert!(server.end().is_clean());
    }
}

/// Many ask for a file that is not in the page cache and are gone before it is read: later connections see
/// nothing of it.
fn clients_that_vanish_while_their_file_is_read_leave_nothing_behind(architecture: Architecture) {
    let folder = std::env::current_exe().unwrap();
    let mut file = tempfile::NamedTempFile::new_in(folder.parent().unwrap()).unwrap();
    let content = vec![b'f'; 2_000_001];
    file.write_all(&content).unwrap();
    file.as_file().sync_all().unwrap();
    let handler = TestHandler {
        file: Some(open_file(file.path())),
        ..TestHandler::default()
    };
    let server = start_with(options(architecture, 1, 0), handler, Limits::default());
    for _ in 0..50 {
        let advice = rustix::fs::Advice::DontNeed;
        rustix::fs::fadvise(file.as_file(), 0, None, advice).unwrap();
        let mut gone = server.connect();
        gone.ask("/file");
        drop(gone);
        let mut next = server.connect();
        assert_eq!(next.get("/").status, 200);
        assert!(next.get("/file").content == content);
    }
    eventually(|| server.total().connections == 0);
    assert!(server.end().is_clean());
}

#[test]
fn workers_cannot_have_its_sockets() {
    let options = ServerOptions {
        socket_io: SocketIo::Worker,
        architecture: Architecture::Proactor,
        workers: 1,
        ..ServerOptions::default()
    };
    let error = options.validate().unwrap_err();
    assert_eq!(error.option, "--socket-io");
}

/// Its request is there still, but not its address: it is neither served nor counted.
fn a_client_that_has_gone_before_it_was_accepted_is_not_served(architecture: Architecture) {
    let server = start(options(architecture, 1, 0));
    let mut at_gate = server.connect();
    at_gate.ask("/gate");
    server.handler.gate.await_waiting(1);
    let mut gone = server.connect();
    gone.ask("/");
    rustix::net::sockopt::set_socket_linger(&gone.stream, Some(Duration::ZERO)).unwrap();
    drop(gone);
    server.handler.gate.open();
    assert_eq!(at_gate.answer().unwrap().status, 200);
    assert_eq!(server.connect().get("/").status, 200);
    assert_eq!(server.total().requests(), 2);
    assert_eq!(server.total().accepted, 2);
}
