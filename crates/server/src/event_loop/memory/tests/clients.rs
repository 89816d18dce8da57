//! Which client gives up something, and when.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use loadline_base::{MemoryAccount, MemoryBudget, Millis};
use loadline_proto::Fields;
use loadline_sys::Accepted;

use super::BUDGET_BYTES;
use crate::admission::{Handoff, Verdict};
use crate::event_loop::EventLoop;
use crate::event_loop::loop_group::LoopGroup;
use crate::event_loop::memory::{IDLE_CLOSES_MAX, LOOK_IN_VAIN_MS};
use crate::event_loop::tests::Hello;
use crate::fairness::ClientKey;
use crate::options::ServerOptions;
use crate::site::Site;
use crate::site::tests::{clock, site_at};
use crate::transport::socket::epoll::Epoll;

/// In these the levels of pressure are counted.
const PART: u64 = BUDGET_BYTES / 32;

/// More than a loop keeps of credit that is not used, so that a connection with so much takes more.
const HALF_HEAD_BYTES: usize = 15 << 10;

const HOLDER: u8 = 1;
const QUIET: u8 = 2;

/// Of the holder: they have a megabyte, and at most five parts of 32.
const CONNECTIONS: usize = 40;

/// The loops of one server, whose turns the test takes, and what else uses its memory.
struct Server {
    now_us: &'static AtomicU64,
    loops: Vec<EventLoop<Hello, Epoll>>,
    rest: MemoryAccount,
}

impl Server {
    fn with_loops(loops: usize) -> Self {
        let now_us = clock();
        now_us.store(1_000_000, Relaxed);
        let budget = MemoryBudget::new(Some(BUDGET_BYTES));
        let options = ServerOptions {
            loops,
            ..ServerOptions::default()
        };
        let site = Arc::new(Site {
            memory: Arc::clone(&budget),
            ..site_at(now_us, Hello(Fields::default()), options)
        });
        let group = LoopGroup::new(&site.options, loops, &site.memory).unwrap();
        let event_loop = |index| EventLoop::new(index, &site, &group, None, Vec::new()).unwrap();
        Self {
            now_us,
            loops: (0..loops).map(event_loop).collect(),
            rest: MemoryAccount::of_one(&budget),
        }
    }

    /// So many of 32 parts of the memory are used from here on.
    fn use_parts(&mut self, parts: u64) {
        self.rest.empty();
        let used = self.rest.budget().used_bytes();
        self.rest.change(0, PART * parts - used);
    }

    fn pass(&self, ms: u64) {
        self.now_us.fetch_add(1000 * ms, Relaxed);
    }

    /// A loop takes a turn; then those that it has woken do, also in answer to each other.
    fn turn(&mut self, index: usize) {
        self.turn_alone(index);
        for _ in 0..8 {
            for index in 0..self.loops.len() {
                if self.loops[index].dispatcher.mailbox.has_mail() {
                    self.turn_alone(index);
                }
            }
        }
    }

    fn turn_alone(&mut self, index: usize) {
        self.loops[index].begin_wait();
        self.loops[index].wake_and_work().unwrap();
    }

    /// A client connects.
    fn connect(&mut self, index: usize, client: u8) -> UnixStream {
        let (stream, server) = UnixStream::pair().unwrap();
        stream.set_nonblocking(true).unwrap();
        server.set_nonblocking(true).unwrap();
        let event_loop = &mut self.loops[index];
        event_loop.group.enter();
        event_loop.load().connections.fetch_add(1, Relaxed);
        event_loop.take_in(Handoff {
            accepted: Accepted {
                socket: server.into(),
                peer: Some(([192, 0, 2, client], 1).into()),
                listener: 0,
            },
            client: ClientKey::NOBODY,
            verdict: Verdict::Admit,
            tries: 0,
            came_after_us: None,
            is_memory_full: false,
        });
        stream
    }

    /// A client connects so many times, and sends half a head each time.
    fn hold(&mut self, index: usize, client: u8, connections: usize) -> Vec<UnixStream> {
        let begin = "GET / HTTP/1.1\r\nHost: h\r\nX: ";
        let half = format!("{begin}{}", "x".repeat(HALF_HEAD_BYTES));
        let connect = |_| {
            let mut stream = self.connect(index, client);
            stream.write_all(half.as_bytes()).unwrap();
            stream
        };
        let streams = (0..connections).map(connect).collect();
        self.turn(index);
        streams
    }
}

fn is_open(mut stream: &UnixStream) -> bool {
    let read = stream.read(&mut [0]);
    read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

fn open(streams: &[UnixStream]) -> usize {
    streams.iter().filter(|stream| is_open(stream)).count()
}

/// A look that had found nothing to close put the next one off: whoever took more then was closed.
#[test]
fn who_takes_a_little_while_memory_runs_full_is_not_closed() {
    let mut server = Server::with_loops(1);
    let holders = server.hold(0, HOLDER, CONNECTIONS);
    server.use_parts(28);
    server.turn(0); // nobody is idle
    server.use_parts(31);
    let quiet = server.hold(0, QUIET, 1);
    assert_eq!(open(&quiet), 1);
    assert!(open(&holders) < CONNECTIONS);
}

/// It slept until something came, up to the end of an idle connection's time.
#[test]
fn a_loop_wakes_up_while_memory_is_short() {
    let mut server = Server::with_loops(1);
    server.use_parts(28);
    server.turn(0);
    assert_eq!(server.loops[0].begin_wait(), None);
    server.use_parts(30);
    server.turn(0);
    assert_eq!(server.loops[0].begin_wait(), Some(LOOK_IN_VAIN_MS));
}

/// A loop whose own page was good woke none of the others for theirs. It waited for those that slept until their
/// time was over, and then freed by itself what was to be freed.
#[test]
fn loops_that_sleep_are_asked_what_clients_hold_there() {
    let mut server = Server::with_loops(2);
    let quiet = server.hold(0, QUIET, 1);
    let holders = server.hold(1, HOLDER, CONNECTIONS);
    server.use_parts(28);
    server.turn(0);
    for _ in 0..7 {
        server.pass(100);
        server.turn(0);
    }
    server.use_parts(30);
    server.pass(100);
    server.turn(0);
    assert_eq!(open(&quiet), 1);
    assert!(open(&holders) < CONNECTIONS, "the other loop has looked");
}

/// What a loop had written was taken for true for half a second, though memory was not short meanwhile, so that the
/// loop wrote nothing.
#[test]
fn what_a_client_has_taken_since_the_last_shortage_counts() {
    let mut server = Server::with_loops(2);
    let quiet = server.hold(0, QUIET, 1);
    server.use_parts(28);
    server.turn(0);
    server.use_parts(20);
    server.pass(50);
    let holders = server.hold(1, HOLDER, CONNECTIONS);
    server.use_parts(30);
    server.turn(0);
    assert_eq!(open(&quiet), 1);
    assert!(open(&holders) < CONNECTIONS);
}

/// The others freed its part as well, from whoever had something there.
#[test]
fn the_part_of_a_loop_that_is_busy_for_long_is_left_to_it() {
    let mut server = Server::with_loops(2);
    let quiet = server.hold(0, QUIET, 1);
    let here = server.hold(0, HOLDER, 12);
    let there = server.hold(1, HOLDER, CONNECTIONS - 12);
    server.use_parts(30);
    server.turn_alone(0);
    assert_eq!(open(&here), 12, "the other loop's page is awaited");
    server.pass(300);
    server.turn_alone(0);
    assert_eq!(open(&quiet), 1);
    assert!(open(&here) < 12);
    assert_eq!(open(&there), CONNECTIONS - 12);
}

/// They were left out, as if all that had to go were closed in one turn: others closed more instead.
#[test]
fn connections_that_are_still_to_be_closed_count() {
    const IDLE_CONNECTIONS: usize = 100;
    let mut server = Server::with_loops(2);
    let streams: Vec<_> = (0..IDLE_CONNECTIONS)
        .map(|_| server.connect(0, HOLDER))
        .collect();
    server.pass(2000);
    server.use_parts(29); // for which more than are closed at a time have to go
    server.turn(0);
    let left = open(&streams);
    assert_eq!(left, IDLE_CONNECTIONS - IDLE_CLOSES_MAX);
    let page = server.loops[1].group.ledger().elsewhere(1, Millis(3000));
    assert!(page.sums.named[0].idle.connections >= left as u64);
}
