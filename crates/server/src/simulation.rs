//! The whole server in one thread, from a seed: loops, workers, timers, tasks and drains over a
//! simulated network and a simulated clock.
//!
//! ```text
//! cargo test -p loadline-server simulation
//! LOADLINE_SEED=7 cargo test -p loadline-server simulation
//! ```

mod client;
mod driver;
mod network;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use loadline_base::Buffer;
use loadline_proto::{
    Body, CloseReason, Context, Exchange, Fields, Handler, Outcome, Piece, Port, RequestBody,
    Status, Task, TaskOptions,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::event_loop::EventLoop;
use crate::event_loop::loop_group::LoopGroup;
use crate::options::{Queue, ServerOptions};
use crate::site::Site;
use crate::site::tests::{clock, site_at};
use crate::worker::job::Job;
use crate::worker::job_queue::source::Taken;
use crate::worker::pool::{WorkerThread, Workers};
use client::{Client, Manner, content};
use driver::{SimDriver, enter, lock};
use network::Network;

/// Answers of one simulation that a client's own late bytes may destroy, by the reset that they cause.
const LOST_MAX: usize = 3;

/// An answer takes the work of a full queue at most: some 200 ms. Later ones were forgotten.
const ANSWER_US_MAX: u64 = 5_000_000;

/// How often a turn begins with the order to move a connection to another loop.
const MOVE_CHANCE: f64 = 0.3;

/// What a turn takes.
const TURN_US: u64 = 20;

/// Turns of loops between two events: more is no progress.
const TURNS_MAX: u32 = 100_000;

/// Answers with content that names the request.
struct Echo;

fn asked(exchange: &Exchange) -> (u8, u64, usize) {
    let path = String::from_utf8_lossy(exchange.request.path()).into_owned();
    let mut parts = path.split('/').skip(1);
    let kind = parts.next().map_or(b'q', |kind| kind.as_bytes()[0]);
    let mut number = || parts.next().and_then(|part| part.parse().ok());
    (kind, number().unwrap(), number().unwrap() as usize)
}

fn answer(exchange: &mut Exchange) {
    let (_, id, bytes) = asked(exchange);
    exchange.response.status = Status::OK;
    exchange.response.body = Body::Bytes(content(id, bytes));
}

impl Handler for Echo {
    type Local = ();

    fn local(&self) {}

    fn handle(&self, (): &mut (), exchange: &mut Exchange, cx: &mut Context<'_>) -> Outcome {
        let (kind, id, bytes) = asked(exchange);
        match kind {
            b'b' => return Outcome::Blocking,
            b't' => return Outcome::Later(TaskOptions::default()),
            b'c' if !matches!(exchange.request.body, RequestBody::Whole(_)) => {
                return Outcome::Collect { bytes_max: 1 << 20 };
            }
            _ if bytes < 2_000 => {
                let fields = Fields::default();
                exchange.answer_borrowed(Status::OK, &fields, &content(id, bytes), cx);
            }
            _ => answer(exchange),
        }
        Outcome::Ready
    }

    fn handle_blocking(&self, exchange: &mut Exchange) {
        answer(exchange);
    }

    /// Reads all content, then sends its answer piece by piece.
    fn start(&self, mut exchange: Box<Exchange>, port: Port) -> Task {
        Box::pin(async move {
            while let Ok(Some(_)) = port.content().await {}
            let mut has_yielded = false;
            poll_fn(|cx| {
                // Others first: what wakes it again is its own waker.
                cx.waker().wake_by_ref();
                match std::mem::replace(&mut has_yielded, true) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            })
            .await;
            let (_, id, bytes) = asked(&exchange);
            let content = content(id, bytes);
            let len = (id % 2 == 0).then_some(content.len() as u64);
            exchange.response.status = Status::OK;
            exchange.response.body = Body::Stream { len };
            port.answer(exchange);
            let mut rest = &content[..];
            while !rest.is_empty() {
                let Ok(room) = port.room().await else { return };
                let (piece, after) = rest.split_at(rest.len().min(room).min(1_500));
                port.produce(Piece::Data(Buffer::from(piece.to_vec())));
                rest = after;
            }
            port.produce(Piece::End);
        })
    }
}

/// What happens next outside of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SimEvent {
    Connect,
    Send(usize),
    Read(usize),
    Reset(usize),
    WorkerDone(usize),
    Drain,
}

/// One simulated worker.
struct SimWorker {
    thread: WorkerThread<Echo>,
    job: Option<Taken<Job>>,
}

struct Simulation {
    seed: u64,
    luck: Pcg64Mcg,
    now_us: &'static AtomicU64,
    network: Arc<Mutex<Network>>,
    site: Arc<Site<Echo>>,
    group: Arc<LoopGroup>,
    /// `None`: it has ended.
    loops: Vec<Option<EventLoop<Echo, SimDriver>>>,
    /// Until when each of them sleeps.
    sleeps_until_us: Vec<Option<u64>>,
    workers: Vec<SimWorker>,
    events: BinaryHeap<Reverse<(u64, u64, SimEvent)>>,
    events_begun: u64,
    clients: Vec<Client>,
    still_to_connect: usize,
}

/// What came of it.
#[derive(Debug, Default)]
struct Summary {
    connections: usize,
    answers: usize,
    refusals: usize,
    unanswered: usize,
    moves: usize,
}

impl Simulation {
    fn new(seed: u64, connections: usize) -> Self {
        let mut luck = Pcg64Mcg::seed_from_u64(seed);
        let now_us = clock();
        let loops = luck.random_range(1..4);
        let workers = luck.random_range(0..4);
        let options = ServerOptions {
            loops,
            workers,
            queue: match luck.random_bool(0.5) {
                true => Queue::Shared,
                false => Queue::WorkStealing,
            },
            queue_max: luck.random_range(4..64),
            connections_max: luck.random_range(20..400),
            ..ServerOptions::default()
        };
        let network = Network::new(now_us, loops, luck.random_bool(0.5));
        let network = Arc::new(Mutex::new(network));
        enter(&network);
        let site = Arc::new(site_at(now_us, Echo, options));
        let group = LoopGroup::new(&site.options, loops, &site.memory).unwrap();
        let (pool, threads) = match workers {
            0 => (None, Vec::new()),
            count => {
                let (pool, threads) = Workers::new(&site, count, 0).expect("wakers");
                (Some(pool), threads)
            }
        };
        let event_loop = |index| {
            let mut event_loop: EventLoop<Echo, SimDriver> =
                EventLoop::new(index, &site, &group, pool.clone(), Vec::new()).unwrap();
            event_loop.driver_mut().set_index(index);
            Some(event_loop)
        };
        let loops: Vec<_> = (0..loops).map(event_loop).collect();
        let mut simulation = Self {
            seed,
            now_us,
            network,
            group,
            sleeps_until_us: vec![Some(0); loops.len()],
            loops,
            workers: (threads.into_iter())
                .map(|thread| SimWorker { thread, job: None })
                .collect(),
            events: BinaryHeap::new(),
            events_begun: 0,
            clients: Vec::with_capacity(connections),
            still_to_connect: connections,
            site,
            luck,
        };
        simulation.after(0, SimEvent::Connect);
        simulation
    }

    fn now(&self) -> u64 {
        self.now_us.load(Relaxed)
    }

    fn after(&mut self, delay_us: u64, what: SimEvent) {
        self.events_begun += 1;
        let at_us = self.now() + delay_us;
        self.events.push(Reverse((at_us, self.events_begun, what)));
    }

    /// Until nothing happens any more.
    fn run(mut self) -> Summary {
        loop {
            self.run_server();
            let next = self.events.peek().map(|Reverse((at_us, ..))| *at_us);
            let lazy = lock(&self.network).report_lazy();
            let waking = self.sleeps_until_us.iter().copied().flatten().min();
            let Some(at_us) = [next, lazy, waking].into_iter().flatten().min() else {
                break;
            };
            self.now_us.fetch_max(at_us, Relaxed);
            lock(&self.network).report_lazy();
            while let Some(Reverse((at_us, _, what))) = self.events.peek().copied()
                && at_us <= self.now()
            {
                self.events.pop();
                self.handle(what);
            }
        }
        self.finish()
    }

    /// Lets every loop and worker do what it has to.
    fn run_server(&mut self) {
        for turns in 0_u32.. {
            assert!(turns < TURNS_MAX, "seed {}: it never rests", self.seed);
            let is_due = |simulation: &Self, index: usize| {
                let event_loop = simulation.loops[index].as_ref();
                let until_us = simulation.sleeps_until_us[index];
                let slept = until_us.is_some_and(|until_us| until_us <= simulation.now());
                event_loop.is_some_and(|one| slept || one.driver().is_woken())
            };
            let due: Vec<usize> = (0..self.loops.len())
                .filter(|index| is_due(self, *index))
                .collect();
            let index = match due.len() {
                0 => break,
                count => due[self.luck.random_range(0..count)],
            };
            self.turn(index);
            self.now_us.fetch_add(TURN_US, Relaxed);
            for worker in 0..self.workers.len() {
                self.take_job(worker);
            }
            self.stir();
            let next = self.events.peek();
            if next.is_some_and(|Reverse((at_us, ..))| *at_us <= self.now()) {
                break;
            }
            lock(&self.network).report_lazy();
        }
    }

    fn turn(&mut self, index: usize) {
        let seed = self.seed;
        let loops = self.loops.len();
        let Some(event_loop) = &mut self.loops[index] else {
            return;
        };
        if loops > 1 && self.luck.random_bool(MOVE_CHANCE) {
            let to = self.luck.random_range(0..loops);
            event_loop.begin_some_move(to, &mut self.luck);
        }
        if event_loop.wake_and_work().unwrap() {
            self.loops[index] = None;
            self.sleeps_until_us[index] = None;
            return;
        }
        let timeout_ms = event_loop.begin_wait();
        let connections = event_loop.connections();
        let most = self.site.options.connections_max + 2 * 64; // being refused, waiting for room
        assert!(
            connections <= most,
            "seed {seed}: {connections} connections"
        );
        self.sleeps_until_us[index] = timeout_ms.map(|ms| (self.now() / 1000 + ms) * 1000);
    }

    fn take_job(&mut self, worker: usize) {
        let now_us = self.now();
        let one = &mut self.workers[worker];
        if one.job.is_none()
            && let Some(taken) = one.thread.try_take(now_us)
        {
            one.job = Some(taken);
            let takes_us = self.luck.random_range(10..3_000);
            self.after(takes_us, SimEvent::WorkerDone(worker));
        }
    }

    /// Clients with something to see are going to look.
    fn stir(&mut self) {
        let stirred = std::mem::take(&mut lock(&self.network).stirred);
        for pipe in stirred {
            if !std::mem::replace(&mut self.clients[pipe].is_reading, true) {
                let delay_us = match self.clients[pipe].manner {
                    Manner::ReadsSlowly => self.luck.random_range(1_000..20_000),
                    _ => self.luck.random_range(0..500),
                };
                self.after(delay_us, SimEvent::Read(pipe));
            }
        }
    }

    fn handle(&mut self, what: SimEvent) {
        match what {
            SimEvent::Connect => self.connect(),
            SimEvent::Send(client) => self.send(client),
            SimEvent::Read(client) => self.read(client),
            SimEvent::Reset(client) => {
                let one = &mut self.clients[client];
                if !std::mem::replace(&mut one.is_over, true) {
                    lock(&self.network).reset(client);
                }
            }
            SimEvent::WorkerDone(worker) => {
                let one = &mut self.workers[worker];
                if let Some(taken) = one.job.take() {
                    one.thread.carry_out(taken, &self.site);
                }
                self.take_job(worker);
            }
            SimEvent::Drain => {
                let now = self.site.clock.now();
                self.site
                    .shutdown
                    .begin_drain(now, Duration::from_secs(300));
            }
        }
    }

    fn connect(&mut self) {
        let first_id = 10 * self.clients.len() as u64;
        let mut client = Client::random(first_id, &mut self.luck);
        let loop_index = self.luck.random_range(0..self.loops.len());
        let window = self.luck.random_range(500..20_000);
        let pipe = lock(&self.network).connect(loop_index, window);
        client.pipe = pipe;
        let resets = client.manner == Manner::Resets;
        self.clients.push(client);
        self.schedule_send(pipe);
        if resets {
            let delay_us = self.luck.random_range(0..10_000);
            self.after(delay_us, SimEvent::Reset(pipe));
        }
        self.still_to_connect -= 1;
        match self.still_to_connect {
            0 => self.after(1_000, SimEvent::Drain),
            _ => {
                let delay_us = self.luck.random_range(0..600);
                self.after(delay_us, SimEvent::Connect);
            }
        }
    }

    fn schedule_send(&mut self, client: usize) {
        let one = &mut self.clients[client];
        let Some(part) = one.parts.front() else {
            if one.manner == Manner::HalfCloses && !one.is_sending {
                lock(&self.network).end_input(client);
                one.is_sending = true; // no more
            }
            return;
        };
        if !one.is_sending && !one.is_over && one.answers.len() >= part.after_answers {
            one.is_sending = true;
            let delay_us = part.delay_us;
            self.after(delay_us, SimEvent::Send(client));
        }
    }

    fn send(&mut self, client: usize) {
        let now_us = self.now();
        let one = &mut self.clients[client];
        one.is_sending = false;
        if one.is_over {
            return;
        }
        let Some(part) = one.parts.pop_front() else {
            return;
        };
        let mut network = lock(&self.network);
        if network.pipes[client].is_closed && part.is_surplus {
            return; // the reset would be its own doing
        }
        if !network.pipes[client].is_closed && part.completes > 0 {
            one.accepted += 1;
            one.accepted_us = now_us;
        }
        network.deliver(client, &part.bytes);
        drop(network);
        self.schedule_send(client);
    }

    fn read(&mut self, client: usize) {
        let slowly = self.clients[client].manner == Manner::ReadsSlowly;
        let most = if slowly { 700 } else { usize::MAX };
        let bytes = lock(&self.network).read(client, most);
        let one = &mut self.clients[client];
        one.is_reading = false;
        if one.is_over {
            return;
        }
        let waited_us = self.now_us.load(Relaxed) - one.accepted_us;
        if one.manner == Manner::Regular && !bytes.is_empty() && waited_us > ANSWER_US_MAX {
            let seed = self.seed;
            panic!("seed {seed}, connection {client}: an answer after {waited_us} us");
        }
        if let Err(why) = one.receive(&bytes) {
            panic!("seed {}, connection {client}: {why}", self.seed);
        }
        let network = lock(&self.network);
        let pipe = &network.pipes[client];
        let (is_empty, is_end) = (
            pipe.outbox.is_empty(),
            pipe.is_finished || pipe.is_closed || pipe.has_reset_client,
        );
        drop(network);
        if !is_empty {
            self.clients[client].is_reading = true;
            let delay_us = if slowly { 3_000 } else { 10 };
            return self.after(delay_us, SimEvent::Read(client));
        }
        let is_done = one_is_done(&self.clients[client]);
        if is_end || is_done {
            self.clients[client].is_over = true;
            return lock(&self.network).end_input(client);
        }
        self.schedule_send(client);
    }

    /// Every loop has ended, and nobody waits for what was accepted.
    fn finish(self) -> Summary {
        let seed = self.seed;
        assert!(
            self.loops.iter().all(Option::is_none),
            "seed {seed}: a loop goes on for ever"
        );
        assert_eq!(
            self.group.connections(),
            0,
            "seed {seed}: connections counted"
        );
        let network = lock(&self.network);
        let mut summary = Summary {
            connections: self.clients.len(),
            ..Summary::default()
        };
        for (client, pipe) in self.clients.iter().zip(&network.pipes) {
            assert!(pipe.is_closed, "seed {seed}: {client:?} is open");
            summary.answers += client.answers.len();
            summary.refusals += client.answers.iter().filter(|code| **code == 503).count();
            let gave_up = matches!(client.manner, Manner::Resets | Manner::Stalls);
            let is_missing = client.answers.len() < client.accepted && !client.has_last_answer;
            if is_missing && !gave_up {
                // Refused without an answer, or what came behind the close has destroyed it.
                assert!(
                    !pipe.has_received || (pipe.has_reset_client && !pipe.has_left_input),
                    "seed {seed}: accepted and not answered: {client:?} {pipe:?}"
                );
                summary.unanswered += 1;
            }
        }
        let total = self.site.registry.snapshot(0).total;
        let closed = |reason| total.closed_for(reason) as usize;
        let may_be_lost = closed(CloseReason::Refused) + closed(CloseReason::Evicted) + LOST_MAX;
        assert!(
            summary.unanswered <= may_be_lost,
            "seed {seed}: {summary:?}, {may_be_lost} refused or evicted"
        );
        summary.moves = total.connections_moved as usize;
        summary
    }
}

fn one_is_done(client: &Client) -> bool {
    client.is_answered() && !matches!(client.manner, Manner::Stays)
}

/// Says how to repeat a simulation, whatever panics in it.
struct Repeat(u64);

impl Drop for Repeat {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let seed = self.0;
            println!("again: LOADLINE_SEED={seed} cargo test -p loadline-server simulation");
        }
    }
}

#[test]
fn twenty_thousand_connections_from_a_seed() {
    let given = std::env::var("LOADLINE_SEED").ok();
    simulate(match given.map(|seed| seed.parse::<u64>()) {
        Some(seed) => seed.map(|seed| seed..seed + 1).expect("a seed's number"),
        None => 0..10,
    });
}

#[test]
#[ignore = "long: four times as many"]
fn eighty_thousand_connections_from_a_seed() {
    simulate(10..50);
}

fn simulate(seeds: Range<u64>) {
    const CONNECTIONS: usize = 2_000;
    let mut total = Summary::default();
    for seed in seeds {
        let _repeat = Repeat(seed);
        let summary = Simulation::new(seed, CONNECTIONS).run();
        total.connections += summary.connections;
        total.answers += summary.answers;
        total.refusals += summary.refusals;
        total.unanswered += summary.unanswered;
        total.moves += summary.moves;
    }
    println!("{total:?}");
}
