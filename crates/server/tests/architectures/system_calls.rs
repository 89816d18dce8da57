//! How many system calls a request costs, counted exactly: the loop finds the same number of requests
//! in each turn, however slow the tracer makes it. There is no latency goal: in turns that long the kernel would be
//! asked when requests came. Needs strace, and skips visibly without it.

#[path = "../../benches/turns/gated.rs"]
mod gated;

use std::io::{self, Write};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::process::Command;

use loadline_base::{Buffer, Segment, Token, Transmit};
use loadline_server::Architecture;
use loadline_sys::ring::{Completion, Ring, RingOptions, SentReport, SocketId};

use crate::shared::test_in;
use gated::{CONNECTIONS, Client, Gate, with_server};

/// What the child process is to do: `reactor 64`.
const TURNS: &str = "LOADLINE_TEST_TURNS";
const WARM_UP_ROUNDS: usize = 5;
const ROUNDS: usize = 20;

#[test]
fn a_keep_alive_request_costs_a_reactor_a_receive_a_send_and_a_share_of_a_wait() {
    if let Some(calls) = calls_of_a_request("reactor", "") {
        println!("{calls} system calls");
        assert!(calls <= 2.05, "{calls} system calls a request");
    }
}

#[test]
fn a_proactor_enters_the_kernel_hardly_more_often_than_a_bare_loop() {
    if let Err(error) = loadline_sys::ring::available() {
        return skip(&error.to_string());
    }
    let ours = calls_of_a_request("proactor", "io_uring_enter");
    let bare = calls_of_a_request("bare", "io_uring_enter");
    if let (Some(ours), Some(bare)) = (ours, bare) {
        println!("{ours} enters, a bare loop {bare}");
        assert!(ours <= 1.5 * bare, "{ours} enters, a bare loop {bare}");
    }
    if let Some(calls) = calls_of_a_request("proactor", "") {
        println!("{calls} system calls");
        assert!(calls <= 0.2, "{calls} system calls a request");
    }
}

fn skip(reason: &str) {
    let _ = writeln!(io::stderr(), "\nskipped: {reason}");
}

/// System calls whose name begins with `call`, in a turn that finds a request on each connection.
fn calls_of_a_request(who: &str, call: &str) -> Option<f64> {
    let with = traced(who, CONNECTIONS, call)?;
    let without = traced(who, 0, call)?;
    Some((with as f64 - without as f64) / CONNECTIONS as f64)
}

/// Calls of the loop's thread in a child of its own, in the median of all rounds, so that one that
/// was held up for long does not matter. `None` where nothing can be traced.
fn traced(who: &str, batch: usize, call: &str) -> Option<usize> {
    let folder = tempfile::tempdir().unwrap();
    let files = folder.path().join("calls");
    let run = Command::new("strace")
        .args(["-ff", "-qq", "-o"])
        .arg(&files)
        .arg(std::env::current_exe().unwrap())
        .arg(test_in(module_path!(), "turns_for_the_tracer"))
        .args(["--exact", "--ignored", "--nocapture"])
        .env(TURNS, format!("{who} {batch}"))
        .output();
    let run = match run {
        Ok(run) => run,
        Err(error) => {
            skip(&format!("strace: {error}"));
            return None;
        }
    };
    let said = String::from_utf8_lossy(&run.stderr);
    if !run.status.success() && said.contains("ptrace") {
        skip(&format!("strace may not trace here: {said}"));
        return None;
    }
    let out = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}\n{out}");
    let thread = out.lines().find_map(|line| line.strip_prefix("loop: "));
    let thread = thread.unwrap_or_else(|| panic!("{out}"));
    let calls = std::fs::read_to_string(format!("{}.{thread}", files.display())).unwrap();
    let mut rounds: Vec<usize> = calls
        .split("\ngettid(")
        .skip(WARM_UP_ROUNDS + 1)
        .map(|round| round.lines().filter(|line| line.starts_with(call)).count())
        .collect();
    rounds.pop(); // goes on to the end of the server
    rounds.sort_unstable();
    Some(rounds[rounds.len() / 2])
}

/// What is traced: nothing, unless the environment says what.
#[test]
#[ignore = "a child of the others"]
fn turns_for_the_tracer() {
    let Ok(what) = std::env::var(TURNS) else {
        return;
    };
    let (who, batch) = what.split_once(' ').unwrap();
    let batch = batch.parse().unwrap();
    let rounds = |client: &mut Client| {
        (0..WARM_UP_ROUNDS).for_each(|_| client.round(CONNECTIONS));
        (0..ROUNDS).for_each(|_| client.round(batch));
        println!("\nloop: {}", client.loop_thread());
    };
    match who {
        "reactor" => with_server(Architecture::Reactor, None, rounds),
        "proactor" => with_server(Architecture::Proactor, None, rounds),
        _ => with_bare_loop(rounds),
    }
}

fn with_bare_loop(use_it: impl FnOnce(&mut Client)) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (gate, keys) = Gate::new();
    let bare = std::thread::spawn(move || bare_loop(&listener, &gate));
    use_it(&mut Client::new(address, keys));
    bare.join().unwrap();
}

/// A loop over a ring that parses nothing and answers whatever comes.
fn bare_loop(listener: &TcpListener, gate: &Gate) {
    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    enum Next {
        Adopt(std::os::fd::OwnedFd),
        Answer(Token),
        Close(Token),
        Nothing,
    }
    let mut ring = Ring::new(&RingOptions::default()).unwrap();
    let mut sockets: Vec<SocketId> = Vec::new();
    let mut open = 0;
    ring.accept(0, listener.as_fd());
    loop {
        ring.wait(None).unwrap();
        while let Some(completion) = ring.next_completion() {
            let next = match completion {
                Completion::Accepted { socket, .. } => Next::Adopt(socket),
                Completion::Received { token, bytes } => {
                    if bytes.starts_with(b"GET /gate ") {
                        gate.pass();
                    }
                    Next::Answer(token)
                }
                Completion::Ended { token, .. } => Next::Close(token),
                _ => Next::Nothing,
            };
            match next {
                Next::Adopt(socket) => {
                    let index = u32::try_from(sockets.len()).unwrap();
                    let owner = Token {
                        index,
                        generation: 1,
                    };
                    let id = ring.adopt(socket, owner);
                    ring.receive(id);
                    sockets.push(id);
                    open += 1;
                }
                Next::Answer(token) => {
                    let answer = Segment::Buffer(Buffer::from(ANSWER.to_vec()));
                    let id = sockets[token.index as usize];
                    ring.send(id, Transmit::new(vec![answer]), SentReport::WithTheNext);
                }
                Next::Close(token) => {
                    ring.close(sockets[token.index as usize]);
                    open -= 1;
                    if open == 0 {
                        return;
                    }
                }
                Next::Nothing => {}
            }
        }
    }
}
