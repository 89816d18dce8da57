//! Ten thousand connections on one loop. The clients are in a process of their own: server and
//! clients together would need more descriptors than one process may have, and so would two servers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use loadline_server::{Architecture, ServerOptions};

use super::util::*;

on_loops! {
    ten_thousand_connections_on_one_loop_are_all_served,
}

const CONNECTIONS: usize = 10_000;
/// Set for the process that plays the clients.
const ADDRESS_VARIABLE: &str = "LOADLINE_TEST_CLIENTS_OF";

fn ten_thousand_connections_on_one_loop_are_all_served(architecture: Architecture) {
    let _turn = one_at_a_time();
    loadline_sys::usage::raise_descriptor_limit();
    let server = start(ServerOptions {
        connections_max: CONNECTIONS + 10,
        ..options(architecture, 1, 0)
    });
    let mut clients = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            &test_in(module_path!(), "clients"),
            "--nocapture",
        ])
        .env(ADDRESS_VARIABLE, server.address.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(clients.stdout.take().unwrap()).lines();
    let mut await_line = |end: &str| {
        let line = lines
            .by_ref()
            .map(Result::unwrap)
            .find(|l| l.ends_with(end));
        assert!(line.is_some(), "the clients ended early");
    };
    await_line("all open");
    assert_eq!(server.total().connections, CONNECTIONS as u64);
    // The loop itself waits at the gate, and then finds what all of them have sent: far more than
    // the buffers that a ring has.
    let mut blocking = server.connect();
    blocking.ask("/gate");
    server.handler.gate.await_waiting(1);
    clients.stdin.take().unwrap().write_all(b"go\n").unwrap();
    await_line("all asked");
    server.handler.gate.open();
    assert_eq!(blocking.answer().unwrap().status, 200);
    assert!(clients.wait().unwrap().success());
    assert_eq!(server.total().requests(), 3 * CONNECTIONS as u64 + 1);
    drop(blocking);
    eventually(|| server.total().connections == 0);
}

/// Not a test of its own: what the other process does.
#[test]
fn clients() {
    let Ok(address) = std::env::var(ADDRESS_VARIABLE) else {
        return;
    };
    loadline_sys::usage::raise_descriptor_limit();
    let address: SocketAddr = address.parse().unwrap();
    let mut clients: Vec<_> = (0..CONNECTIONS).map(|_| Client::connect(address)).collect();
    // A first answer shows that the server, not only the kernel, has taken the connection.
    ask(&mut clients);
    answers(&mut clients);
    println!("all open");
    std::io::stdin().read_exact(&mut [0; 3]).unwrap();
    ask(&mut clients);
    println!("all asked");
    answers(&mut clients);
    ask(&mut clients);
    answers(&mut clients);
}

fn ask(clients: &mut [Client]) {
    clients.iter_mut().for_each(|client| client.ask("/"));
}

fn answers(clients: &mut [Client]) {
    for client in clients {
        assert_eq!(client.answer().unwrap().status, 200);
    }
}
