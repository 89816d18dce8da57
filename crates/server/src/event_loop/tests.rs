//! Whole turns over a socket pair: what they allocate, and that events of the past miss.

pub(super) mod http2;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::{Duration, Instant};

use loadline_proto::{Context, Exchange, Fields, Outcome, Status};
use loadline_sys::{Accepted, ListenAddr, wait_readable};
use rand::RngExt;

use super::*;
use crate::ServerOptions;
use crate::admission::{EVICTION_TRIES_MAX, Handoff, Verdict};
use crate::connection::tests::GET;
use crate::connection_thread::{Hold as _, Resting};
use crate::fairness::Occupation;
use crate::options::Architecture;
use crate::site::tests::{clock, config_of, site_at, site_of};
use crate::transport::ring::driver::RingDriver;
use crate::transport::socket::epoll::Epoll;

/// For a simulation, which waits in the loop's place.
impl<H: Handler, D: Driver> EventLoop<H, D> {
    pub(crate) fn driver(&self) -> &D {
        &self.driver
    }

    pub(crate) fn driver_mut(&mut self) -> &mut D {
        &mut self.driver
    }

    pub(crate) fn connections(&self) -> usize {
        self.slots.len()
    }

    /// Has some connection go to another loop, if there is one in the slot that is drawn.
    pub(crate) fn begin_some_move(&mut self, to: usize, luck: &mut impl RngExt) {
        let slots = self.slots.slot_count();
        if slots > 0
            && let Some(token) = self.slots.token_at(luck.random_range(0..slots))
        {
            self.begin_move(token, to);
        }
    }

    /// The rest of a turn that has begun with `begin_wait`; `true` if it was the last.
    pub(crate) fn wake_and_work(&mut self) -> io::Result<bool> {
        self.driver.wait(Some(0))?;
        self.dispatcher.mailbox.wake_up();
        self.work()
    }
}

pub(super) struct Hello(pub(super) Fields);

impl Handler for Hello {
    type Local = ();

    fn local(&self) {}

    fn handle(&self, _: &mut (), exchange: &mut Exchange, cx: &mut Context<'_>) -> Outcome {
        exchange.answer_borrowed(Status::OK, &self.0, &[b'x'; 600], cx);
        Outcome::Ready
    }
}

/// Whether there can be rings here; says so visibly if not.
pub(super) fn has_rings() -> bool {
    let available = loadline_sys::ring::available();
    if let Err(error) = &available {
        let _ = writeln!(io::stderr(), "\nskipped: {error}");
    }
    available.is_ok()
}

/// Loops of one server, with this handler.
pub(super) fn event_loops<H: Handler, D: Driver>(handler: H, loops: usize) -> Vec<EventLoop<H, D>> {
    let options = ServerOptions {
        loops,
        ..ServerOptions::default()
    };
    let site = site_of(config_of(handler), options);
    let group = LoopGroup::new(&site.options, loops, &site.memory).unwrap();
    let event_loop = |index| EventLoop::new(index, &site, &group, None, Vec::new()).unwrap();
    (0..loops).map(event_loop).collect()
}

fn event_loop<D: Driver>() -> EventLoop<Hello, D> {
    let handler = Hello(Fields::default().with("X", "y"));
    event_loops(handler, 1).pop().unwrap()
}

/// A loop whose clock the test moves.
pub(super) fn event_loop_at<H: Handler, D: Driver>(
    now_us: &'static AtomicU64,
    handler: H,
    latency_goal: Option<Duration>,
) -> EventLoop<H, D> {
    let options = ServerOptions {
        loops: 1,
        latency_goal,
        ..ServerOptions::default()
    };
    let site = Arc::new(site_at(now_us, handler, options));
    let group = LoopGroup::new(&site.options, 1, &site.memory).unwrap();
    EventLoop::new(0, &site, &group, None, Vec::new()).unwrap()
}

pub(super) fn connect<H: Handler, D: Driver>(event_loop: &mut EventLoop<H, D>) -> UnixStream {
    let (client, server) = UnixStream::pair().unwrap();
    server.set_nonblocking(true).unwrap();
    take_in(event_loop, server);
    client
}

pub(super) fn take_in<H: Handler, D: Driver>(event_loop: &mut EventLoop<H, D>, server: UnixStream) {
    take_in_as(event_loop, server, Verdict::Admit);
}

fn take_in_as<H: Handler, D: Driver>(
    event_loop: &mut EventLoop<H, D>,
    server: UnixStream,
    verdict: Verdict,
) {
    event_loop.group.enter();
    event_loop.load().connections.fetch_add(1, Relaxed);
    event_loop.take_in(Handoff {
        accepted: Accepted {
            socket: server.into(),
            peer: None,
            listener: 0,
        },
        client: ClientKey::NOBODY,
        verdict,
        tries: 0,
        came_after_us: None,
        is_memory_full: false,
    });
}

fn idle_bytes<D: Driver>() -> usize {
    Slab::<Slot<D::Transport>>::SLOT_BYTES + TimerWheel::NODE_BYTES + IndexList::NODE_BYTES
}

#[test]
fn an_idle_connection_takes_at_most_192_bytes_of_a_reactor_and_256_of_a_proactor() {
    let reactor = idle_bytes::<Epoll>();
    let proactor = idle_bytes::<RingDriver>() + loadline_sys::ring::SOCKET_BYTES;
    println!("{reactor} and {proactor} bytes for an idle connection");
    assert!(reactor <= 192, "{reactor}");
    assert!(proactor <= 256, "{proactor}");
}

#[test]
fn a_keep_alive_request_allocates_nothing_from_event_to_event() {
    allocates_nothing::<Epoll>();
}

#[test]
fn a_keep_alive_request_allocates_nothing_from_completion_to_completion() {
    if has_rings() {
        allocates_nothing::<RingDriver>();
    }
}

fn allocates_nothing<D: Driver>() {
    let mut event_loop = event_loop::<D>();
    let mut clients: Vec<_> = (0..8).map(|_| connect(&mut event_loop)).collect();
    let mut answer = [0; 4096];
    for round in 0..50 {
        for client in &mut clients {
            client.write_all(GET).unwrap();
        }
        let seen = allocation_counter::measure(|| {
            // A ring receives in one turn and sends at the wait of the next.
            let wanted = 8 * (round + 1);
            while event_loop.thread.stats.core.requests() < wanted {
                assert!(!event_loop.turn().unwrap());
            }
            assert!(!D::REPORTS_BEFORE_DRAIN || !event_loop.turn().unwrap());
        });
        for client in &mut clients {
            let count = client.read(&mut answer).unwrap();
            assert!(answer[..count].starts_with(b"HTTP/1.1 200") && count > 600);
        }
        assert!(
            round < 5 || seen.count_total == 0,
            "{seen:?} in round {round}"
        );
    }
    assert_eq!(event_loop.thread.stats.core.requests(), 8 * 50);
}

/// The last answer is queued, and may find no room: the connection is not idle before that is known.
#[test]
fn none_is_evicted_in_the_turn_of_its_last_response() {
    if !has_rings() {
        return;
    }
    let mut event_loop = event_loop::<RingDriver>();
    let (mut client, server) = UnixStream::pair().unwrap();
    server.set_nonblocking(true).unwrap();
    let mut full = 0;
    while let Ok(count) = (&server).write(&[b'j'; 1000]) {
        full += count;
    }
    take_in(&mut event_loop, server);
    client.write_all(GET).unwrap();
    while event_loop.thread.stats.core.requests() == 0 {
        assert!(!event_loop.turn().unwrap());
    }
    for _ in 0..3 {
        assert!(!event_loop.evict_oldest());
        event_loop.driver.wait(Some(0)).unwrap();
        event_loop.begin_turn();
        event_loop.sockets();
    }
    let mut junk = vec![0; full];
    client.read_exact(&mut junk).unwrap();
    client.set_nonblocking(true).unwrap();
    let mut answer = [0; 4096];
    let mut count = 0;
    while count < 600 {
        event_loop.turn().unwrap();
        count += client.read(&mut answer[count..]).unwrap_or(0);
    }
    assert!(answer.starts_with(b"HTTP/1.1 200"));
    while !event_loop.evict_oldest() {
        event_loop.turn().unwrap();
    }
    assert!(event_loop.slots.is_empty());
}

/// Its request is in the socket, and no completion has reported it yet.
#[test]
fn a_new_connection_with_an_unread_request_is_not_evicted() {
    if !has_rings() {
        return;
    }
    let mut event_loop = event_loop::<RingDriver>();
    let (mut client, server) = UnixStream::pair().unwrap();
    server.set_nonblocking(true).unwrap();
    client.write_all(GET).unwrap();
    take_in(&mut event_loop, server);
    assert!(!event_loop.evict_oldest());
    while event_loop.thread.stats.core.requests() == 0 {
        assert!(!event_loop.turn().unwrap());
    }
    while !event_loop.evict_oldest() {
        event_loop.turn().unwrap();
    }
    event_loop.turn().unwrap(); // submits the close
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200"));
}

/// The only idle connection has a request that no turn reads: its place is not given away, and a new
/// connection does not wait for it for ever.
#[test]
fn a_connection_over_the_cap_is_refused_when_no_idle_one_can_be_closed() {
    let mut event_loop = event_loop::<Epoll>();
    let mut old = connect(&mut event_loop);
    old.write_all(GET).unwrap();
    let (mut new, server) = UnixStream::pair().unwrap();
    server.set_nonblocking(true).unwrap();
    take_in_as(&mut event_loop, server, Verdict::EvictIdle);
    for _ in 1..EVICTION_TRIES_MAX {
        assert_eq!(event_loop.slots.len(), 1, "it was refused or served early");
        assert_eq!(event_loop.group.connections(), 2);
        event_loop.drain_mailbox();
    }
    assert_eq!(event_loop.group.connections(), 1);
    assert!(!event_loop.dispatcher.mailbox.has_mail());
    event_loop.turn().unwrap();
    let mut answer = [0; 4096];
    let count = new.read(&mut answer).unwrap();
    assert!(answer[..count].starts_with(b"HTTP/1.1 503"));
    let count = old.read(&mut answer).unwrap();
    assert!(answer[..count].starts_with(b"HTTP/1.1 200"));
}

/// Both are closed in one batch: the event of the second is for a slot that is vacant, or has
/// a new connection, when its turn comes.
#[test]
fn events_of_an_earlier_connection_miss() {
    let mut event_loop = event_loop::<Epoll>();
    let mut old = connect(&mut event_loop);
    let stale = event_loop.slots.token_at(0).unwrap();
    old.write_all(GET).unwrap();
    event_loop.wait().unwrap();
    event_loop.abort(stale, CloseReason::Failed);
    let mut new = connect(&mut event_loop);
    let successor = event_loop.slots.token_at(0).unwrap();
    assert_eq!(successor.index, stale.index);
    event_loop.sockets();
    let connection = connection_at(&event_loop.slots, successor);
    assert!(connection.is_some_and(Connection::is_idle::<Epoll>));
    assert_eq!(event_loop.thread.stats.core.requests(), 0);
    new.write_all(GET).unwrap();
    event_loop.turn().unwrap();
    assert_eq!(event_loop.thread.stats.core.requests(), 1);
}

/// Has something to give back when it is asked twice.
struct Untidy(AtomicUsize);

impl Handler for Untidy {
    type Local = ();

    fn local(&self) {}

    fn handle(&self, (): &mut (), _: &mut Exchange, _: &mut Context<'_>) -> Outcome {
        Outcome::Ready
    }

    fn release_unused(&self, _: &Context<'_>) -> bool {
        self.0.fetch_add(1, Relaxed) == 0
    }
}

/// Files that nobody asked for stayed open until the next request.
#[test]
fn a_loop_without_requests_has_the_handler_give_back_what_is_left() {
    let now_us = clock();
    let handler = Untidy(AtomicUsize::new(0));
    let mut event_loop =
        event_loop_at::<_, Epoll>(now_us, handler, ServerOptions::default().latency_goal);
    let mut client = connect(&mut event_loop);
    client.write_all(GET).unwrap();
    while event_loop.thread.stats.core.requests() == 0 {
        event_loop.turn().unwrap();
    }
    for (at_ms, asked, next_ms) in [
        (0, 0, Some(60_000)),
        (59_999, 0, Some(60_000)),
        (60_000, 1, Some(120_000)),
        (120_000, 2, None),
        (180_000, 2, None),
    ] {
        now_us.store(at_ms * 1000, Relaxed);
        event_loop.begin_wait();
        event_loop.wake_and_work().unwrap();
        let handler = &event_loop.thread.config().handler;
        assert_eq!(handler.0.load(Relaxed), asked, "at {at_ms} ms");
        assert_eq!(event_loop.releases_at, next_ms.map(Millis), "at {at_ms} ms");
    }
    assert_eq!(event_loop.begin_wait(), None, "it sleeps on");
}

/// It did so only where it was about to wait.
#[test]
fn a_loop_that_never_waits_wakes_threads_at_the_deadlines_of_their_connections() {
    let now_us = clock();
    let options = ServerOptions {
        architecture: Architecture::ThreadPool,
        threads: 1,
        ..ServerOptions::default()
    };
    let handler = Hello(Fields::default());
    let site = Arc::new(site_at(now_us, handler, options.with_parts()));
    let group = LoopGroup::new(&site.options, 1, &site.memory).unwrap();
    let (workers, _threads) = Workers::new(&site, 1, 0).unwrap();
    let own = Some(Arc::clone(&workers));
    let mut event_loop = EventLoop::<_, Epoll>::new(0, &site, &group, own, Vec::new()).unwrap();
    let mailbox = Arc::clone(&event_loop.dispatcher.mailbox);
    let held = workers.hold(0, &mailbox);
    assert!(held.rest(&Resting {
        now: Millis(0),
        deadline: Some(Millis(70)),
        occupation: Occupation::Idle(Millis(0)),
        proxied_client: None,
        bytes: 0,
    }));
    let closed = Token {
        index: 0,
        generation: 0,
    };
    for (at_ms, expected) in [(69, false), (70, true)] {
        now_us.store(at_ms * 1000, Relaxed);
        event_loop.again.push(closed);
        assert_eq!(event_loop.begin_wait(), Some(0), "more is to be done");
        event_loop.turn().unwrap();
        let woken = wait_readable(&[held.waker().unwrap().as_fd()], Some(0)).unwrap();
        assert_eq!(woken, [expected], "at {at_ms} ms");
    }
}

/// Takes a millisecond for each request.
struct Slow(&'static AtomicU64);

impl Handler for Slow {
    type Local = ();

    fn local(&self) {}

    fn handle(&self, (): &mut (), _: &mut Exchange, _: &mut Context<'_>) -> Outcome {
        self.0.fetch_add(1000, Relaxed);
        Outcome::Ready
    }
}

/// Without a latency goal the time stood still until the turn had ended.
#[test]
fn a_turn_of_a_proactor_is_bounded_without_a_latency_goal() {
    const REQUESTS: u64 = 40;
    if !has_rings() {
        return;
    }
    let now_us = clock();
    let mut event_loop = event_loop_at::<_, RingDriver>(now_us, Slow(now_us), None);
    let mut clients = Vec::new();
    for _ in 0..REQUESTS {
        let (mut client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        client.write_all(GET).unwrap();
        take_in(&mut event_loop, server);
        clients.push(client);
    }
    let mut answered = 0;
    while answered < REQUESTS {
        event_loop.turn().unwrap();
        let requests = event_loop.thread.stats.core.requests();
        assert!(requests - answered <= u64::from(EVENTS_PER_TICK));
        answered = requests;
    }
}

/// Two loops of a server with a latency goal of 30 ms, each after a turn. The test moves their clock.
fn two_loops(now_us: &'static AtomicU64) -> [EventLoop<Hello, Epoll>; 2] {
    now_us.store(1_000_000, Relaxed);
    let options = ServerOptions {
        loops: 2,
        latency_goal: Some(Duration::from_millis(30)),
        ..ServerOptions::default()
    };
    let site = Arc::new(site_at(now_us, Hello(Fields::default()), options));
    let group = LoopGroup::new(&site.options, 2, &site.memory).unwrap();
    [0, 1].map(|index| {
        let mut event_loop = EventLoop::new(index, &site, &group, None, Vec::new()).unwrap();
        turn_without_wait(&mut event_loop);
        event_loop
    })
}

pub(super) fn turn_without_wait(event_loop: &mut EventLoop<Hello, Epoll>) {
    event_loop.begin_wait();
    assert!(!event_loop.wake_and_work().unwrap());
}

/// Over TCP: of other sockets the kernel does not say when something came.
pub(super) fn accepted_over_tcp() -> (TcpStream, Accepted) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, peer) = listener.accept().unwrap();
    server.set_nonblocking(true).unwrap();
    let accepted = Accepted {
        socket: server.into(),
        peer: Some(peer),
        listener: 0,
    };
    (client, accepted)
}

/// Sends a request that is 60 ms old when this returns: by the kernel's clock, which no test moves.
pub(super) fn send_and_wait(client: &mut TcpStream) {
    client.write_all(GET).unwrap();
    let sent = Instant::now();
    while sent.elapsed() < Duration::from_millis(60) {
        std::thread::yield_now();
    }
}

pub(super) fn status_of_response(client: &mut TcpStream) -> String {
    let timeout = Some(Duration::from_secs(60));
    client.set_read_timeout(timeout).unwrap();
    let mut answer = [0; 4096];
    let count = client.read(&mut answer).unwrap();
    String::from_utf8_lossy(&answer[..count.min(12)]).into_owned()
}

/// By the turns of the loop that it was sent to it had just come.
#[test]
fn a_new_connection_that_another_loop_has_accepted_has_waited_since_its_request_came() {
    for (before_us, on_its_way_us, expected) in [
        (0, 0, "HTTP/1.1 200"),
        (60_000, 0, "HTTP/1.1 503"),
        (0, 60_000, "HTTP/1.1 503"),
    ] {
        let now_us = clock();
        let [mut first, mut second] = two_loops(now_us);
        let (mut client, accepted) = accepted_over_tcp();
        send_and_wait(&mut client);
        now_us.fetch_add(before_us, Relaxed);
        first.load().connections.store(3, Relaxed); // so many more than the other one
        first.assign(accepted);
        assert!(first.slots.is_empty());
        now_us.fetch_add(on_its_way_us, Relaxed);
        turn_without_wait(&mut second);
        let status = status_of_response(&mut client);
        assert_eq!(status, expected, "{before_us} and {on_its_way_us} us");
    }
}

/// The loop that accepts does not come to all of the backlog in one turn, and its turns are short.
#[test]
fn a_new_connection_from_a_backlog_has_waited_there_also_at_another_loop() {
    for (has_backlog, expected) in [(false, "HTTP/1.1 200"), (true, "HTTP/1.1 503")] {
        let [mut first, mut second] = two_loops(clock());
        let (mut client, accepted) = accepted_over_tcp();
        send_and_wait(&mut client);
        first.has_backlog = has_backlog;
        first.load().connections.store(3, Relaxed);
        first.assign(accepted);
        turn_without_wait(&mut second);
        assert_eq!(status_of_response(&mut client), expected);
    }
}

/// The client of a connection that moves to the second loop at the end of the next turn.
fn about_to_move(first: &mut EventLoop<Hello, Epoll>) -> TcpStream {
    let (client, accepted) = accepted_over_tcp();
    first.assign(accepted);
    let token = first.slots.token_at(0).unwrap();
    first.begin_move(token, 1);
    client
}

/// It had just come, however long its connection was on its way to a busy loop. Nor has it waited for longer than
/// that, whenever the kernel says that something came.
#[test]
fn a_request_has_waited_while_its_connection_moved() {
    for (on_its_way_us, expected) in [
        (0, "HTTP/1.1 200"),
        (10_000, "HTTP/1.1 200"),
        (60_000, "HTTP/1.1 503"),
    ] {
        let now_us = clock();
        let [mut first, mut second] = two_loops(now_us);
        let mut client = about_to_move(&mut first);
        turn_without_wait(&mut first);
        assert!(first.slots.is_empty(), "it has left");
        send_and_wait(&mut client);
        now_us.fetch_add(on_its_way_us, Relaxed);
        turn_without_wait(&mut second);
        assert_eq!(status_of_response(&mut client), expected);
    }
}

/// When its connection left it had just come.
#[test]
fn a_request_has_waited_in_the_turn_after_which_its_connection_moved() {
    let now_us = clock();
    let [mut first, mut second] = two_loops(now_us);
    let mut client = about_to_move(&mut first);
    let began_us = first.begin_turn();
    send_and_wait(&mut client);
    now_us.fetch_add(60_000, Relaxed);
    first.end_turn(began_us);
    assert!(first.slots.is_empty(), "it has left");
    turn_without_wait(&mut second);
    assert_eq!(status_of_response(&mut client), "HTTP/1.1 503");
}

/// It had just come, however long it had waited for a descriptor.
#[test]
fn what_waits_while_accepting_pauses_is_a_backlog() {
    let now_us = clock();
    let options = ServerOptions {
        loops: 1,
        ..ServerOptions::default()
    };
    let any_port = ListenAddr::Tcp(([127, 0, 0, 1], 0).into());
    let listeners = Listener::bind_all(&[any_port], &options, None).unwrap();
    let site = Arc::new(site_at(now_us, Hello(Fields::default()), options));
    let group = LoopGroup::new(&site.options, 1, &site.memory).unwrap();
    let mut event_loop: EventLoop<_, Epoll> =
        EventLoop::new(0, &site, &group, None, listeners).unwrap();
    event_loop.listeners.as_mut().unwrap().pause(Millis(10));
    event_loop.accept_batch().unwrap();
    assert!(event_loop.has_backlog);
    now_us.store(10_000, Relaxed);
    event_loop.thread.tick();
    event_loop.accept_batch().unwrap();
    assert!(!event_loop.has_backlog, "nothing is left");
}
