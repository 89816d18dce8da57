//! The plain clients of one thread: an epoll loop with connections in slots, closed or open loop.
//!
//! What it is not: it does not decide when requests are due (`pacer`), which they are (`mix`), or
//! what the figures mean (`trial`). It never waits for another thread, takes no lock, and allocates
//! nothing per request.
//!
//! ```text
//!   turn ── wait ── events ─────────────┬─ deadlines ── connections to be opened ── what is due
//!                     │                 │
//!                     ▼                 ▼
//!   exchange: receive, judge, count ── closed: this client's next request
//!                                   └─ open: this client is free for what is due
//! ```
//!
//! # What the times mean
//!
//! All are of the monotonic clock, which is read once for each piece that is received, each request
//! that is sent by the clock, and before and after each wait.
//!
//! - *due*: open loop: when the schedule says so. Closed loop: when the last byte of the client's
//!   last answer was read, plus its time to think; after a failed attempt to connect, at the end of
//!   the pause.
//! - *sent*: just before the kernel is given the first byte of the request. Where a connection has
//!   to be opened for a request, that lies between due and sent: latency contains it, service time
//!   does not.
//! - *first* and *last*: just after the first and last bytes of the answer were received. How long the
//!   kernel had had them by then is known of every eighth client: the kernel stamps what comes for it.
//!
//! A response whose time (`--timeout`) was over before it came is a timeout, even if its timer, which is
//! exact to 16 ms, has not come yet. If this thread was busy at the end of that time, it is not (`waits`).
//!
//! A request belongs to the phase in which it was due. In a closed loop that coalesces (`coalescing`,
//! `closed::READY_MAX`) an answer may be read a little later than it came, and the next request sent
//! a few answers later.
//!
//! # Connections
//!
//! - All are opened before the start, at most 256 at once by all threads together, except with one
//!   request per connection: then one is opened for each request. What fails before the start is
//!   counted as an error of the first phase; the client tries again with its first request.
//! - The client closes a connection that has carried as many requests as it may, right after the
//!   complete answer, whatever the server does; the next one is opened when a request needs it.
//! - A connection that the server closes after an answer, or while it is idle, is no error. It is
//!   opened again at once, without a request; if that fails, the next request tries.
//! - After a failed attempt to connect, which is one failed request, or a connection that ended
//!   before it brought an answer, a client of a closed loop pauses for 10 ms, doubling up to 1 s
//!   until the next answer. In an open loop the schedule goes on regardless.
//! - Connection `i` of the whole run goes to server `i` modulo their number, and serves the
//!   requests for that one alone.
//!
//! - Over HTTP/2 several clients share a connection (`http2`), each with a stream of its own.
//! - Where a connection has a layer (`secured`: TLS), the time to connect is that of the handshake,
//!   too. A server that would refuse every handshake, or none of whose certificates are accepted, ends
//!   the run with the reason, unless something has come from it before.
//!
//! # The open loop
//!
//! A request that is due takes the connection that has been idle longest; over HTTP/2, of those with a
//! free place, the one that was used longest ago. If there is none, it waits in the order of due times
//! (a queue of numbers: it takes no memory), or is dropped. With several servers the queue is one: a
//! request for a server without a free connection keeps those behind it waiting. A request that is later
//! than the deadline before it was sent is given up as `Late`.
//! What is late is sent at once.
//!
//! With a schedule for each connection (`own_schedules`) a request waits for its own connection alone,
//! and no other one takes it.
//!
//! # Retries
//!
//! A request of an open loop whose attempt failed may be tried again after a pause (`retries`). It
//! keeps the phase and the due time of its first attempt, from which its latency counts. Requests that
//! are due for the first time come before it.
//!
//! # The end
//!
//! After the end of the plan nothing is begun. What is out is waited for, each until its timeout
//! after it was sent, and counted as what it becomes. What was due and never sent is unfinished; so
//! is what was out when a stop was asked for.

use std::collections::VecDeque;
use std::io;

use loadline_base::{Millis, TimerWheel, Token};
use loadline_proto::Limits;
use loadline_sys::{Events, Poller};

mod choices;
mod client;
mod closed;
mod coalescing;
mod exchange;
mod http2;
mod idle;
mod open;
mod opening;
mod own_schedules;
mod retries;
mod sampler;
mod secured;
mod starts;
mod turn;
mod waits;

use choices::Choices;
use client::{Client, Stage};
use closed::ClosedLoop;
use coalescing::Coalescing;
use http2::Http2Links;
use open::OpenLoop;
use opening::Opener;
use own_schedules::OwnSchedules;
use retries::RetryQueue;
use sampler::Sampler;
use secured::Secured;
use starts::{IntendedStarts, Source};
use waits::Waits;

use crate::calendar::Boundary;
use crate::client_loop::{self, ClientLoop, Timeline};
use crate::pacer::Pacer;
use crate::{
    Control, GroupRecorder, Loop, Message, MixOrder, Overflow, Plan, Prepared, Share, ThreadReport,
};

/// Runs the plain clients of `share` on the calling thread, to the end of the plan or until
/// `control` stops it.
///
/// Sends `Ready` when its connections are open, waits for the start, sends an `Interval` a second,
/// and `Finished`. After the end it waits for what is still out, up to the timeout.
///
/// # Errors
/// The kernel refuses what every run needs (an epoll instance, say), or the plan names a request, an
/// expectation or a server that it does not have. What happens to a connection is counted instead.
pub fn run(
    plan: &Plan,
    share: Share,
    control: &Control,
    out: &mut dyn FnMut(Message),
) -> io::Result<()> {
    run_in_group(plan, 0, share, control, out)
}

/// The same as another group of clients than the first.
///
/// # Errors
/// As [`run`].
pub fn run_in_group(
    plan: &Plan,
    group: u16,
    share: Share,
    control: &Control,
    out: &mut dyn FnMut(Message),
) -> io::Result<()> {
    check(plan)?;
    let mut engine = Engine::new(plan, group, share)?;
    for index in 0..engine.client_count() {
        match engine.requests_per_connection {
            _ if engine.http2.has(index) => {} // see below
            1 => engine.put_idle(index),
            _ => engine.queue_opening(index),
        }
    }
    for number in 0..engine.http2.count() {
        match engine.requests_per_connection {
            1 => engine.free_clients(number),
            _ => engine.queue_link(number),
        }
    }
    engine.open_more();
    client_loop::run(engine, share, control, out)
}

/// Who decides when a client sends.
#[derive(Debug)]
enum Driver {
    Closed(ClosedLoop),
    Open(OpenLoop),
    OwnSchedules(OwnSchedules),
}

/// One thread's clients and all that they need.
struct Engine<'p> {
    plan: &'p Plan,
    /// Of the whole run's clients, the first of this thread.
    first_client: u64,
    requests_per_connection: u32,
    poller: Poller,
    events: Events,
    /// Those before it have been seen to.
    event_next: usize,
    clients: Vec<Client>,
    driver: Driver,
    choices: Choices<'p>,
    opener: Opener,
    coalescing: Coalescing,
    wheel: TimerWheel,
    time: Timeline<'p>,
    recorder: GroupRecorder,
    /// Index into `Plan::groups`.
    group: u16,
    sampler: Sampler,
    secured: Secured<'p>,
    http2: Http2Links<'p>,
    limits: Limits,
    buffer: Box<[u8]>,
    /// Connections with more to read than [`exchange::RECEIVES_MAX`] reads take.
    unread: VecDeque<(Token, bool)>,
    waits: Waits,
    /// Clients with a request, sent or not.
    in_hand: u64,
    /// Requests that are out.
    in_flight: u64,
}

impl<'p> Engine<'p> {
    fn new(plan: &'p Plan, group: u16, share: Share) -> io::Result<Self> {
        let connections = u64::from(plan.connections);
        let count = usize::try_from(share.count(connections)).unwrap_or(0);
        let first_client = share.first(connections);
        let servers = plan.servers.len().max(1) as u64;
        let server = |index: usize| ((first_client + index as u64) % servers) as u16;
        let time = Timeline::new(plan);
        let http2 = Http2Links::new(plan, share, server);
        let clients: Vec<Client> = match plan.http2.is_some() {
            true => http2.servers_of_clients().map(Client::new).collect(),
            false => (0..count).map(|index| Client::new(server(index))).collect(),
        };
        let count = clients.len();
        // Whether the loop may let a few answers come before it looks.
        let coalesces = matches!(plan.load, Loop::Closed { coalesces, .. } if coalesces);
        Ok(Self {
            plan,
            first_client,
            requests_per_connection: plan.requests_per_connection.map_or(u32::MAX, |n| n.max(1)),
            poller: Poller::new()?,
            events: Events::new(),
            event_next: 0,
            clients,
            driver: driver(plan, share, count),
            choices: Choices::new(plan, share),
            opener: Opener::new(count, share),
            coalescing: Coalescing::new(coalesces && !plan.spins),
            wheel: TimerWheel::new(Millis(time.now_ns / 1_000_000)),
            recorder: GroupRecorder::new(group),
            group,
            sampler: Sampler::new(plan.content_sample),
            secured: Secured::new(plan, count),
            http2,
            limits: Limits::default(),
            buffer: vec![0; exchange::DISCARD_BYTES].into_boxed_slice(),
            unread: VecDeque::with_capacity(count),
            waits: Waits::new(time.now_ns),
            time,
            in_hand: 0,
            in_flight: 0,
        })
    }

    /// The request in hand is neither answered nor failed.
    fn give_up(&mut self, index: u32) {
        match self.http2.has(index) {
            true => self.give_up_stream(index),
            false => self.client(index).close(),
        }
        self.drop_request(index);
        let phase = self.client(index).phase;
        self.recorder.tally(phase).unfinished += 1;
    }

    /// A request was sent `lag_ns` later than it could have been.
    #[inline]
    fn lagged(&mut self, lag_ns: u64) {
        self.time.meter.lagged(lag_ns);
        self.recorder.lagged(lag_ns);
    }

    #[inline]
    fn client(&mut self, index: u32) -> &mut Client {
        &mut self.clients[index as usize]
    }

    /// The closed loop, in its own methods.
    #[inline]
    fn closed(&mut self) -> &mut ClosedLoop {
        match &mut self.driver {
            Driver::Closed(closed) => closed,
            Driver::Open(_) | Driver::OwnSchedules(_) => {
                unreachable!("a method of the closed loop in an open one")
            }
        }
    }

    /// The open loop, in its own methods.
    #[inline]
    fn open(&mut self) -> &mut OpenLoop {
        match &mut self.driver {
            Driver::Open(open) => open,
            Driver::Closed(_) | Driver::OwnSchedules(_) => {
                unreachable!("a method of the open loop with one schedule in another one")
            }
        }
    }

    /// The connection that clients share of which this is the place, if it is one: they stand behind all
    /// clients.
    #[inline]
    fn link_at(&self, index: u32) -> Option<u32> {
        index.checked_sub(self.clients.len() as u32)
    }

    /// Whether the connection of a client is in the making.
    fn is_connecting(&self, index: u32) -> bool {
        match self.http2.has(index) {
            true => self.http2.is_connecting(index),
            false => self.clients[index as usize].stage.is_connecting(),
        }
    }

    fn client_count(&self) -> u32 {
        u32::try_from(self.clients.len()).unwrap_or(u32::MAX)
    }
}

impl<'p> ClientLoop<'p> for Engine<'p> {
    fn time(&mut self) -> &mut Timeline<'p> {
        &mut self.time
    }

    fn is_opening(&mut self) -> io::Result<bool> {
        self.secured.check()?;
        Ok(!self.opener.is_done())
    }

    fn open_count(&self) -> u64 {
        let open =
            |client: &&Client| client.stage != Stage::Closed && !client.stage.is_connecting();
        match self.http2.is_empty() {
            true => self.clients.iter().filter(open).count() as u64,
            false => self.http2.open_count(),
        }
    }

    fn turn(&mut self, until_ns: u64, out: &mut dyn FnMut(Message)) -> io::Result<()> {
        self.turn(until_ns, out)
    }

    fn start(&mut self, start_ns: u64) {
        self.waits.ended_ns = self.time.now_ns;
        match &mut self.driver {
            Driver::Closed(_) => self.start_closed(start_ns),
            Driver::Open(_) => self.start_open(start_ns),
            Driver::OwnSchedules(own) => own.start(start_ns),
        }
    }

    fn passed(&mut self, boundary: Boundary, phase: u16) {
        // Counted for the phase that ends here, which is still the recorder's.
        self.count_offered(boundary.at_ns, phase);
        let calendar = &self.time.calendar;
        if calendar.is_counted(boundary.phase) && !calendar.is_counted(phase) {
            self.forget_queue(boundary.at_ns);
        }
        // What is due at the end is not begun.
        self.time.is_ending |= boundary.at_ns >= self.time.calendar.end_ns();
    }

    #[inline]
    fn sample_in_flight(&mut self, now_ns: u64) {
        let (requests, for_ns) = self.time.meter.sample(now_ns, self.in_flight);
        self.recorder.in_flight(requests, for_ns);
    }

    /// Whether every request that the plan allows has been answered.
    fn is_done(&self, _: &Control) -> bool {
        let is_exhausted = || match &self.driver {
            Driver::Closed(closed) => closed.is_exhausted(),
            Driver::Open(open) => open.is_exhausted(),
            Driver::OwnSchedules(own) => own.is_exhausted(),
        };
        self.plan.requests_max.is_some() && self.in_hand == 0 && is_exhausted()
    }

    /// Gives up what was not sent.
    fn end(&mut self, until_ns: u64) {
        self.count_offered(until_ns, self.time.calendar.phase());
        let given_up = self.give_up_queue(until_ns);
        self.give_up_retries();
        if !self.has_free_clients() {
            self.time.meter.sums.held_back = given_up;
        }
        let mut connecting = 0;
        for index in 0..self.client_count() {
            let client = &self.clients[index as usize];
            if client.has_request && client.sent_bytes == 0 {
                connecting += u64::from(!client.was_sent && self.is_connecting(index));
                self.give_up(index);
            }
        }
        self.time.meter.sums.connecting = connecting;
    }

    /// Each request has its own timeout.
    fn rest(&self) -> Option<u64> {
        (self.in_hand > 0).then_some(u64::MAX)
    }

    fn give_up_rest(&mut self, waited_ns: u64) {
        self.time.meter.sums.after_end_ns = waited_ns;
        for index in 0..self.client_count() {
            if self.client(index).has_request {
                self.give_up(index);
            }
        }
    }

    fn flush(&mut self, second: u32, phase: u16, after_end: bool, out: &mut dyn FnMut(Message)) {
        self.recorder.flush(second, phase, after_end, out);
    }

    fn report(self, share: Share) -> ThreadReport {
        let in_flight_max = match self.http2.is_empty() {
            true => self.clients.len() as u64,
            false => self.http2.in_flight_max(),
        };
        let mut report = self.time.meter.report(share);
        if self.group > 0 {
            let name = &self.plan.groups[usize::from(self.group)];
            report.name = format!("{name} {}", share.index);
        }
        ThreadReport {
            group: self.group,
            in_flight_max,
            ..report
        }
    }
}

/// Indexes are followed without a look for each request, so they are looked at once.
fn check(plan: &Plan) -> io::Result<()> {
    let mix = &plan.mix;
    let is_sound = |request: &Prepared| {
        usize::from(request.server) < plan.servers.len()
            && (request.expectation as usize) < mix.expectations.len()
    };
    let is_in_mix = match &mix.order {
        MixOrder::Weighted(cumulative) => cumulative.len() <= mix.requests.len(),
        MixOrder::InTurn(sequence) => {
            let last = sequence.iter().max();
            last.is_none_or(|last| (*last as usize) < mix.requests.len())
        }
    };
    let has_blocks = plan.http2.as_ref().is_none_or(|http2| {
        let starts = http2.requests.iter().map(|it| it.body_start);
        let mut ends = mix.requests.iter().map(|it| it.keep.len()).zip(starts);
        http2.requests.len() == mix.requests.len() && ends.all(|(end, start)| start <= end)
    });
    let is_sound = has_blocks && is_in_mix && mix.requests.iter().all(is_sound);
    if !mix.requests.is_empty() && is_sound {
        return Ok(());
    }
    let text = "the plan names a request, an expectation or a server that it does not have";
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

fn driver(plan: &Plan, share: Share, clients: usize) -> Driver {
    let requests_max = plan.requests_max.map_or(u64::MAX, |all| share.count(all));
    let open = |starts: IntendedStarts, overflow: Overflow| {
        let is_dropping = overflow == Overflow::Drop;
        let servers = plan.servers.len();
        let retries = RetryQueue::new(plan, share);
        Driver::Open(OpenLoop::new(starts, servers, is_dropping, retries))
    };
    match &plan.load {
        Loop::Closed {
            think_ns,
            coalesces,
        } => {
            let closed = ClosedLoop::new(*think_ns, *coalesces, clients, requests_max);
            Driver::Closed(closed)
        }
        Loop::Open {
            schedule, arrivals, ..
        } if plan.own_schedules && plan.http2.is_none() => {
            let own = OwnSchedules::new(plan, schedule, *arrivals, share, clients);
            Driver::OwnSchedules(own)
        }
        Loop::Open {
            schedule,
            arrivals,
            overflow,
        } => {
            let pacer = Pacer::new(schedule, *arrivals, share, plan.seed);
            let starts = IntendedStarts::new(Source::Paced(pacer), requests_max);
            open(starts, *overflow)
        }
        Loop::Timed { due_ns, overflow } => {
            let starts = IntendedStarts::listed(due_ns.clone(), share, requests_max);
            open(starts, *overflow)
        }
    }
}
