//! Connections that move at random while their clients ask, over real sockets.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use loadline_proto::{Context, Exchange, Fields, Handler, Outcome, Status};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::event_loop::EventLoop;
use crate::event_loop::tests::{connect, event_loops, has_rings};
use crate::transport::Driver;
use crate::transport::ring::driver::RingDriver;
use crate::transport::socket::epoll::Epoll;

/// Answers with the path.
struct Echo;

impl Handler for Echo {
    type Local = ();

    fn local(&self) {}

    fn handle(&self, (): &mut (), exchange: &mut Exchange, cx: &mut Context<'_>) -> Outcome {
        let path = exchange.request.path().to_vec();
        exchange.answer_borrowed(Status::OK, &Fields::default(), &path, cx);
        Outcome::Ready
    }
}

const CLIENTS: usize = 12;
const ROUNDS: usize = 1_500;
const LOOPS: usize = 3;

/// One client: its requests are numbered.
struct Asking {
    stream: UnixStream,
    asked: usize,
    unread: Vec<u8>,
    answered: usize,
}

impl Asking {
    fn new(stream: UnixStream) -> Self {
        stream.set_nonblocking(true).unwrap();
        Self {
            stream,
            asked: 0,
            unread: Vec::new(),
            answered: 0,
        }
    }

    /// Some requests at once.
    fn ask(&mut self, count: usize) {
        for _ in 0..count {
            let number = self.asked;
            let request = format!("GET /{number} HTTP/1.1\r\nHost: test\r\n\r\n");
            self.stream.write_all(request.as_bytes()).unwrap();
            self.asked += 1;
        }
    }

    /// Takes what has come; every answer is to be the next one.
    fn read(&mut self) {
        let mut bytes = [0; 4096];
        while let Ok(count) = self.stream.read(&mut bytes) {
            if count == 0 {
                break;
            }
            self.unread.extend_from_slice(&bytes[..count]);
        }
        while let Some(at) = self.unread.windows(4).position(|it| it == b"\r\n\r\n") {
            let right = format!("/{}", self.answered);
            let end = at + 4 + right.len();
            if self.unread.len() < end {
                return;
            }
            assert!(self.unread.starts_with(b"HTTP/1.1 200"));
            let content = String::from_utf8_lossy(&self.unread[at + 4..end]).into_owned();
            assert_eq!(content, right);
            self.unread.drain(..end);
            self.answered += 1;
        }
    }

    fn is_answered(&self) -> bool {
        self.answered == self.asked
    }
}

/// A turn of each loop; those that have ended are gone.
fn turns<D: Driver>(loops: &mut Vec<EventLoop<Echo, D>>) {
    loops.retain_mut(|one| {
        one.begin_wait();
        !one.wake_and_work().unwrap()
    });
}

fn asking_and_moving<D: Driver>(
    loops: &mut Vec<EventLoop<Echo, D>>,
    luck: &mut Pcg64Mcg,
) -> Vec<Asking> {
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|client| Asking::new(connect(&mut loops[client % LOOPS])))
        .collect();
    for _ in 0..ROUNDS {
        let client = luck.random_range(0..CLIENTS);
        clients[client].ask(luck.random_range(1..4));
        let (from, to) = (luck.random_range(0..LOOPS), luck.random_range(0..LOOPS));
        loops[from].begin_some_move(to, luck);
        turns(loops);
        clients.iter_mut().for_each(Asking::read);
    }
    clients
}

/// Waits with a turn that may find nothing to do, as the reports of a ring may take a moment.
fn until<D: Driver>(loops: &mut Vec<EventLoop<Echo, D>>, mut is_so: impl FnMut() -> bool) {
    for _ in 0..20_000 {
        turns(loops);
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    panic!("it never came to be");
}

fn moves_lose_nothing<D: Driver>() {
    let luck = &mut Pcg64Mcg::seed_from_u64(7);
    let mut loops = event_loops::<Echo, D>(Echo, LOOPS);
    let mut clients = asking_and_moving(&mut loops, luck);
    until(&mut loops, || {
        clients.iter_mut().for_each(Asking::read);
        clients.iter().all(Asking::is_answered)
    });
    let site = loops[0].site.clone();
    let total = site.registry.snapshot(0).total;
    println!(
        "{} moves, {} requests",
        total.connections_moved,
        total.requests()
    );
    assert!(
        total.connections_moved > 100,
        "{} moves",
        total.connections_moved
    );
    assert_eq!(
        total.requests(),
        clients.iter().map(|it| it.asked as u64).sum::<u64>()
    );
    until(&mut loops, || {
        site.registry.snapshot(0).total.connections == CLIENTS as u64
    });
    let served: usize = loops.iter().map(|one| one.served).sum();
    assert_eq!((served, loops[0].group.connections()), (CLIENTS, CLIENTS));
}

#[test]
fn moves_by_readiness_lose_nothing() {
    moves_lose_nothing::<Epoll>();
}

#[test]
fn moves_by_completion_lose_nothing() {
    if has_rings() {
        moves_lose_nothing::<RingDriver>();
    }
}

/// What was sent before the drain is answered, wherever the connection is just then.
fn a_drain_finds_those_that_move<D: Driver>() {
    for seed in 0..8 {
        let luck = &mut Pcg64Mcg::seed_from_u64(seed);
        let mut loops = event_loops::<Echo, D>(Echo, LOOPS);
        let mut clients = asking_and_moving(&mut loops, luck);
        until(&mut loops, || {
            clients.iter_mut().for_each(Asking::read);
            clients.iter().all(Asking::is_answered)
        });
        for one in &mut loops {
            for _ in 0..2 * CLIENTS {
                one.begin_some_move(luck.random_range(0..LOOPS), luck);
            }
        }
        loops[0].begin_wait();
        loops[0].wake_and_work().unwrap(); // has sent its connections away
        clients.iter_mut().for_each(|one| one.ask(1));
        let site = loops[0].site.clone();
        (site.shutdown).begin_drain(site.clock.now(), Duration::from_secs(60));
        while !loops.is_empty() {
            turns(&mut loops);
            clients.iter_mut().for_each(Asking::read);
        }
        assert!(clients.iter().all(Asking::is_answered), "seed {seed}");
        let total = site.registry.snapshot(0).total;
        assert_eq!(total.closed.iter().sum::<u64>(), CLIENTS as u64);
        assert_eq!((total.connections, site.registry.snapshot(0).cut), (0, 0));
    }
}

#[test]
fn a_drain_finds_those_that_move_by_readiness() {
    a_drain_finds_those_that_move::<Epoll>();
}

#[test]
fn a_drain_finds_those_that_move_by_completion() {
    if has_rings() {
        a_drain_finds_those_that_move::<RingDriver>();
    }
}
