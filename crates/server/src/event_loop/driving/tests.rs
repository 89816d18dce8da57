//! Connections that wait: for work of theirs, beside workers that serve connections; for their turn.

use std::future::poll_fn;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use loadline_base::{MemoryBudget, Token};
use loadline_proto::{
    CloseReason, Context, Exchange, Handler, Http1Session, Layered, Outcome, Port, Protocol, Task,
    TaskOptions,
};
use loadline_sys::{Accepted, ListenAddr};

use crate::clock::Clock;
use crate::config::{Config, SharedConfig};
use crate::connection::Connection;
use crate::connection::tests::computed::{Computed, HELLO};
use crate::connection::tests::{Distant, GET};
use crate::event_loop::loop_group::LoopGroup;
use crate::event_loop::tests::{connect, event_loop_at, event_loops, has_rings, take_in};
use crate::event_loop::{EventLoop, connection_at};
use crate::options::{Architecture, ServerOptions, SocketIo};
use crate::site::Site;
use crate::site::tests::{Blocks, Quiet, clock, config_of, site_of};
use crate::transport::ring::driver::RingDriver;
use crate::transport::socket::epoll::Epoll;
use crate::transport::{Driver as _, Transport as _};
use crate::worker::pool::{WorkerThread, Workers};

mod handed_on;
mod held;
mod jobs_out;
mod left_behind;
mod without_workers;

/// A loop and its worker, which works on demand.
struct Server<H: Handler> {
    event_loop: EventLoop<H, Epoll>,
    worker: WorkerThread<H>,
}

impl<H: Handler> Server<H> {
    /// Whose workers serve connections.
    fn new(config: Arc<SharedConfig<H>>) -> Self {
        Self::with_goal(config, ServerOptions::default().latency_goal)
    }

    fn with_goal(config: Arc<SharedConfig<H>>, latency_goal: Option<Duration>) -> Self {
        let options = ServerOptions {
            workers: 1,
            socket_io: SocketIo::Worker,
            latency_goal,
            ..ServerOptions::default()
        };
        Self::with_options(config, options)
    }

    fn with_options(config: Arc<SharedConfig<H>>, options: ServerOptions) -> Self {
        Self::of_site(&site_of(config, options))
    }

    /// Whose clock the test moves.
    fn at(
        now_us: &'static AtomicU64,
        config: Arc<SharedConfig<H>>,
        options: ServerOptions,
    ) -> Self {
        let site = Arc::new(Site {
            clock: Clock::simulated(now_us),
            ..Arc::into_inner(site_of(config, options)).unwrap()
        });
        Self::of_site(&site)
    }

    fn of_site(site: &Arc<Site<H>>) -> Self {
        let group = LoopGroup::new(&site.options, 1, &site.memory).unwrap();
        let (workers, mut threads) = Workers::new(site, 1, 0).unwrap();
        let event_loop = EventLoop::new(0, site, &group, Some(workers), Vec::new()).unwrap();
        Self {
            event_loop,
            worker: threads.pop().unwrap(),
        }
    }

    /// The loop drives the connection itself, once it has looked for events.
    fn drive_here(&mut self, token: Token) {
        self.event_loop.driver.wait(Some(0)).unwrap();
        self.event_loop.begin_turn();
        while self.event_loop.next_event().is_some() {}
        self.event_loop.drive_here(token);
    }

    /// No thread keeps one that waits.
    fn give_back_connections(&mut self) {
        self.event_loop.is_room_short = true;
        self.event_loop.want_connections();
    }

    /// The worker does what waits for it.
    fn work(&mut self) {
        let site = Arc::clone(&self.event_loop.site);
        while let Some(taken) = self.worker.try_take(site.clock.now_us()) {
            self.worker.carry_out(taken, &site);
        }
    }

    fn has_work_out(&self, token: Token) -> bool {
        connection_at(&self.event_loop.slots, token).is_some_and(Connection::has_work_out::<Epoll>)
    }

    /// Bytes that come within some turns.
    fn answer(&mut self, client: &mut UnixStream) -> Vec<u8> {
        client.set_nonblocking(true).unwrap();
        let mut all = Vec::new();
        for _ in 0..20 {
            self.work();
            turn(&mut self.event_loop);
            let mut bytes = [0; 4096];
            match client.read(&mut bytes) {
                Ok(count) => all.extend_from_slice(&bytes[..count]),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        all
    }
}

fn turn<H: Handler>(event_loop: &mut EventLoop<H, Epoll>) {
    event_loop.begin_wait();
    event_loop.wake_and_work().unwrap();
}

fn answers(bytes: &[u8]) -> usize {
    bytes.windows(12).filter(|it| it == b"HTTP/1.1 200").count()
}

#[test]
fn a_connection_stays_at_its_loop_until_a_file_is_read() {
    let mut server = Server::new(config_of(Distant::new()));
    let mut client = connect(&mut server.event_loop);
    let token = server.event_loop.slots.token_at(0).unwrap();
    client.write_all(GET).unwrap();
    server.drive_here(token);
    assert!(server.has_work_out(token));
    // An event, before the worker has come to it.
    client.write_all(GET).unwrap();
    turn(&mut server.event_loop);
    assert!(server.has_work_out(token));
    assert_eq!(answers(&server.answer(&mut client)), 2);
}

/// Of connections that begin with a computation.
fn slow<H: Handler>(handler: H) -> Arc<SharedConfig<H>> {
    let nowhere = ListenAddr::Tcp(([127, 0, 0, 1], 0).into());
    let mut config = Config::new(Arc::new(handler), Arc::default(), [nowhere]);
    config.listeners[0].protocol = Protocol::Other(|config, peer, cx| {
        let http = Http1Session::new(config, peer, cx);
        Box::new(Layered::new(Computed::by(|| {}), http, config, cx))
    });
    config.into()
}

/// A server of such connections, and one that has begun.
fn computing(latency_goal: Option<Duration>) -> (Server<Quiet>, UnixStream, Token) {
    let mut server = Server::with_goal(slow(Quiet), latency_goal);
    let mut client = connect(&mut server.event_loop);
    let token = server.event_loop.slots.token_at(0).unwrap();
    client.write_all(GET).unwrap();
    server.drive_here(token);
    assert!(server.has_work_out(token));
    (server, client, token)
}

#[test]
fn a_connection_stays_at_its_loop_until_its_handshake_is_computed() {
    let (mut server, mut client, token) = computing(None);
    client.write_all(GET).unwrap();
    turn(&mut server.event_loop);
    assert!(server.has_work_out(token));
    assert_eq!(answers(&server.answer(&mut client)), 2);
}

#[test]
fn a_handshake_whose_client_has_left_is_not_computed() {
    for latency_goal in [Some(Duration::from_secs(1)), None] {
        let (mut server, client, token) = computing(latency_goal);
        drop(client);
        turn(&mut server.event_loop);
        assert!(!server.has_work_out(token), "it is closed");
        server.work();
        let total = server.event_loop.site.registry.snapshot(0).total;
        assert_eq!((total.abandoned, total.jobs), (1, 0));
    }
}

/// A pool of one thread, which gives each connection back as soon as it waits.
fn sharing<H: Handler>(handler: H) -> Server<H> {
    let mut server = Server::with_options(config_of(handler), one_thread());
    server.give_back_connections();
    server
}

fn one_thread() -> ServerOptions {
    let options = ServerOptions {
        architecture: Architecture::ThreadPool,
        threads: 1,
        ..ServerOptions::default()
    };
    options.with_parts()
}

/// It was computed, and the request behind it came as if it had not waited.
#[test]
fn a_handshake_that_has_waited_too_long_for_a_thread_is_not_computed() {
    let now_us = clock();
    let mut server = Server::at(now_us, slow(Blocks), one_thread());
    server.give_back_connections();
    let clients = [0, 1].map(|_| {
        let mut client = connect(&mut server.event_loop);
        client.write_all(HELLO).unwrap();
        turn(&mut server.event_loop);
        client
    });
    now_us.store(1_500_000, Relaxed);
    server.work();
    turn(&mut server.event_loop);
    let total = server.event_loop.site.registry.snapshot(0).total;
    assert_eq!((total.refused_late, total.connections), (1, 1));
    // Behind the other one nobody waited.
    let [mut late, mut last] = clients;
    last.write_all(GET).unwrap();
    assert_eq!(answers(&server.answer(&mut last)), 1);
    late.set_nonblocking(true).unwrap();
    assert_eq!(late.read(&mut [0]).unwrap(), 0, "it is closed");
}

/// Each of both could wait for nearly the goal. And a thread counted a handshake that was long ago.
#[test]
fn a_request_has_waited_for_as_long_as_its_handshake() {
    let workers = ServerOptions {
        workers: 1,
        ..ServerOptions::default()
    };
    for options in [one_thread(), workers] {
        for (rested_us, waited_us, status) in [
            (0, 300_000, "200"),
            (0, 500_000, "503"),
            (1_000_000, 500_000, "200"),
        ] {
            let now_us = clock();
            let mut server = Server::at(now_us, slow(Blocks), options.clone());
            server.give_back_connections();
            let mut client = connect(&mut server.event_loop);
            client.write_all(HELLO).unwrap();
            turn(&mut server.event_loop);
            now_us.store(600_000, Relaxed);
            server.work();
            turn(&mut server.event_loop);
            now_us.fetch_add(rested_us, Relaxed);
            client.write_all(GET).unwrap();
            turn(&mut server.event_loop);
            // Another one waits behind it.
            let mut other = connect(&mut server.event_loop);
            other.write_all(HELLO).unwrap();
            turn(&mut server.event_loop);
            now_us.fetch_add(waited_us, Relaxed);
            let answer = server.answer(&mut client);
            let expected = format!("HTTP/1.1 {status} ");
            let answer = String::from_utf8_lossy(&answer);
            assert!(answer.starts_with(&expected), "{options:?}: {answer}");
        }
    }
}

/// The thread that keeps it counts what it holds. Beside that it counted in the loop's account, too.
#[test]
fn a_connection_counts_for_its_loop_while_no_thread_has_it() {
    let mut server = sharing(Quiet);
    let mut client = connect(&mut server.event_loop);
    let token = server.event_loop.slots.token_at(0).unwrap();
    let counted = |server: &Server<Quiet>| {
        let slot = server.event_loop.slots.get(token).unwrap();
        slot.footprint.bytes()
    };
    assert!(counted(&server) > 0);
    client.write_all(GET).unwrap();
    let used = |server: &Server<Quiet>| server.event_loop.site.memory.used_bytes();
    let used_before = used(&server);
    server.event_loop.hand_over(token);
    assert_eq!(counted(&server), 0);
    assert!(used(&server) > used_before, "it waits for a thread");
    assert_eq!(answers(&server.answer(&mut client)), 1);
    assert!(counted(&server) > 0);
    // From now on the box has an account, of which nothing is used.
    let accounts = |server: &Server<Quiet>| Arc::strong_count(&server.event_loop.site.memory);
    let (used_before, accounts_before) = (used(&server), accounts(&server));
    client.write_all(GET).unwrap();
    server.event_loop.hand_over(token);
    assert!(used(&server) > used_before, "it waits for a thread");
    assert_eq!(accounts(&server), accounts_before);
    assert_eq!(answers(&server.answer(&mut client)), 1);
}

/// From an address of its own, to a server whose clock stands still.
fn connect_from(client: u8, server: &mut Server<Quiet>) -> UnixStream {
    let (stream, socket) = UnixStream::pair().unwrap();
    stream.set_nonblocking(true).unwrap();
    socket.set_nonblocking(true).unwrap();
    server.event_loop.assign(Accepted {
        socket: socket.into(),
        peer: Some(([192, 0, 2, client], 1).into()),
        listener: 0,
    });
    stream
}

/// It was refused, and all that came within 100 ms after it.
#[test]
fn a_client_whose_connections_all_have_threads_makes_room_by_the_first_that_comes_back() {
    const CONNECTIONS_MAX: usize = 12;
    let options = ServerOptions {
        connections_max: CONNECTIONS_MAX,
        ..one_thread()
    };
    let mut server = Server::at(clock(), config_of(Quiet), options);
    let mut greedy: Vec<_> = (0..CONNECTIONS_MAX)
        .map(|_| connect_from(1, &mut server))
        .collect();
    for stream in &mut greedy {
        stream.write_all(b"GET / HTTP/1.1\r\nX: ").unwrap();
    }
    turn(&mut server.event_loop);
    let slots = &server.event_loop.slots;
    let tokens = (0..slots.slot_count()).filter_map(|index| slots.token_at(index));
    let here = tokens.filter(|token| connection_at(slots, *token).is_some());
    assert_eq!(here.count(), 0, "a thread is to have each of them");

    let mut quiet = connect_from(2, &mut server);
    quiet.write_all(GET).unwrap();
    let connections = |server: &Server<Quiet>| server.event_loop.group.connections();
    assert_eq!(connections(&server), CONNECTIONS_MAX + 1);
    assert_eq!(answers(&server.answer(&mut quiet)), 1);
    assert_eq!(connections(&server), CONNECTIONS_MAX);
    let is_closed = |stream: &mut UnixStream| {
        let read = stream.read(&mut [0]);
        !read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    assert_eq!(greedy.iter_mut().map(is_closed).filter(|it| *it).count(), 1);

    // Now the others are here: one of them is closed at once.
    let mut next = connect_from(3, &mut server);
    assert_eq!(connections(&server), CONNECTIONS_MAX);
    next.write_all(GET).unwrap();
    assert_eq!(answers(&server.answer(&mut next)), 1);
    assert_eq!(connections(&server), CONNECTIONS_MAX);
}

/// Its app responds when it is polled once more.
#[derive(Default)]
struct Waiting(Arc<Mutex<Option<Waker>>>);

impl Handler for Waiting {
    type Local = ();

    fn local(&self) {}

    fn handle(&self, (): &mut (), _: &mut Exchange, _: &mut Context<'_>) -> Outcome {
        Outcome::Later(TaskOptions::default())
    }

    fn start(&self, exchange: Box<Exchange>, port: Port) -> Task {
        let waker = Arc::clone(&self.0);
        Box::pin(async move {
            let mut has_waited = false;
            poll_fn(|context| {
                *waker.lock().unwrap() = Some(context.waker().clone());
                match std::mem::replace(&mut has_waited, true) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            })
            .await;
            port.answer(exchange);
        })
    }
}

/// The loop subtracted it at its end, and had never added it.
#[test]
fn an_apps_request_that_a_thread_has_begun_leaves_no_work_under_way() {
    let handler = Waiting::default();
    let waker = Arc::clone(&handler.0);
    let mut server = sharing(handler);
    let mut client = connect(&mut server.event_loop);
    let token = server.event_loop.slots.token_at(0).unwrap();
    client.write_all(GET).unwrap();
    server.event_loop.hand_over(token);
    assert_eq!(answers(&server.answer(&mut client)), 0);
    waker.lock().unwrap().take().unwrap().wake();
    assert_eq!(answers(&server.answer(&mut client)), 1);
    let under_way = &server.event_loop.load().under_way;
    assert_eq!(under_way.load(Relaxed), 0);
}

/// The thread closed it. Its first request may be on its way, and its loop gives it the time for that.
#[test]
fn a_new_connection_comes_back_from_its_thread_in_a_drain() {
    let mut server = sharing(Quiet);
    let _client = connect(&mut server.event_loop);
    let token = server.event_loop.slots.token_at(0).unwrap();
    server.event_loop.hand_over(token);
    let site = Arc::clone(&server.event_loop.site);
    (site.shutdown).begin_drain(site.clock.now(), Duration::from_secs(10));
    server.work();
    server.event_loop.drain_mailbox();
    assert!(connection_at(&server.event_loop.slots, token).is_some());
}

/// The socket was in no poller yet, and what has left was little.
#[test]
fn a_last_answer_is_whole_though_more_came_before_its_connections_turn() {
    const REQUESTS: usize = 60;
    let mut event_loop = event_loops::<_, Epoll>(Quiet, 1).pop().unwrap();
    let (mut client, server) = UnixStream::pair().unwrap();
    server.set_nonblocking(true).unwrap();
    client.write_all(&GET.repeat(REQUESTS - 1)).unwrap();
    let last = b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    client.write_all(last).unwrap();
    take_in(&mut event_loop, server);
    let token = event_loop.slots.token_at(0).unwrap();
    assert!(event_loop.slots.get(token).unwrap().queued);
    client.write_all(b"more").unwrap();
    for _ in 0..20 {
        turn(&mut event_loop);
    }
    let mut bytes = Vec::new();
    let read = client.read_to_end(&mut bytes);
    assert!(read.is_ok(), "{read:?}");
    assert_eq!(answers(&bytes), REQUESTS);
}

/// Which reports nothing to the connection meanwhile.
#[test]
fn a_connection_has_no_deadline_while_the_ring_reads_a_file() {
    if !has_rings() {
        return;
    }
    let distant = Distant::new();
    let content = distant.content.clone();
    let mut event_loop = event_loops::<_, RingDriver>(distant, 1).pop().unwrap();
    let mut client = connect(&mut event_loop);
    let token = event_loop.slots.token_at(0).unwrap();
    client.write_all(GET).unwrap();
    let mut has_read = false;
    let mut bytes = Vec::new();
    client.set_nonblocking(true).unwrap();
    while !bytes.ends_with(&content) {
        assert!(!event_loop.turn().unwrap());
        let connection = connection_at(&event_loop.slots, token).unwrap();
        if connection.transport().is_prefetching() {
            assert_eq!(connection.deadline::<RingDriver>(), None);
            has_read = true;
        }
        let mut some = [0; 4096];
        let count = client.read(&mut some).unwrap_or(0);
        bytes.extend_from_slice(&some[..count]);
    }
    assert!(has_read, "before it was sent");
}
