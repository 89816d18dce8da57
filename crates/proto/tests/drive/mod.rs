//! A session driven in memory with a fake clock: feeds bytes, runs a handler, collects the output,
//! and asserts at each step what a session promises to every architecture.
#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(unreachable_pub, reason = "a module of tests")]

mod answers;
mod app;
mod echo;
pub mod records;
pub mod refused;

pub use answers::{Answer, parse_answers};
pub use app::App;
pub use echo::{echo, echo_blocking};

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use loadline_base::{Chunk, Millis, Transmit};
use loadline_proto::{
    AccessLog, Action, CloseReason, Computation, ConnectionRecord, Context, Counters, Exchange,
    Fill, Http2, HttpDate, Limits, Outcome, Pool, Protocol, RequestBody, ServerSession,
    SessionConfig,
};

/// What a driver saw its session order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Run,
    Block,
    Start,
    Cancel,
    /// With the number of bytes.
    Send(u64),
    Finish,
    Close,
}

/// A request as the handler saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub method: &'static str,
    pub target: String,
    pub body: Option<Vec<u8>>,
}

type Handle<'h> = Box<dyn FnMut(&mut Exchange, &mut Context<'_>) -> Outcome + 'h>;

/// One session and its surroundings.
pub struct Driver<'h> {
    pub session: Option<ServerSession>,
    pub now: Millis,
    pub counters: Counters,
    pub pool: Pool,
    date: HttpDate,
    handle: Handle<'h>,
    pub handle_blocking: Box<dyn FnMut(&mut Exchange) + 'h>,
    /// Everything that was delivered.
    pub output: Vec<u8>,
    pub events: Vec<Event>,
    pub seen: Vec<Seen>,
    /// Keep what is sent as if the socket were full.
    pub hold_output: bool,
    /// Keep blocking steps as if a worker had them.
    pub hold_blocking: bool,
    pub held: Option<Transmit>,
    pub parked: Option<Box<Exchange>>,
    /// What an app's task holds; `None` while none is out.
    pub app: Option<App>,
    /// The one that was cancelled last, and the one that ended its answer last.
    pub cancelled: Option<App>,
    pub ended: Option<App>,
    /// How much may be on its way to an app, and from it.
    window: usize,
    /// Whether an idle connection may stay without end.
    idles_on: bool,
    pub log: Option<AccessLog>,
    /// What the journal of connections is given, if a record was kept.
    pub record: Option<Box<ConnectionRecord>>,
    unread: VecDeque<u8>,
    eof: bool,
    finished: bool,
    /// What the last `Wait` said; `None` once closed.
    pub reading: Option<bool>,
    /// Final answers that the handler has given and that no `Send` has carried yet.
    unsent_answers: usize,
    /// Parts of files that were read into memory.
    pub filled: u64,
    /// No part of a file comes into the page cache.
    pub hold_fill: bool,
    /// Keep computations as if a worker had them.
    pub hold_computing: bool,
    pub computing: Option<Box<dyn Computation>>,
}

macro_rules! cx {
    ($driver:ident) => {
        &mut Context {
            now: $driver.now,
            came: $driver.now,
            date: &$driver.date,
            pool: &mut $driver.pool,
            counters: &$driver.counters,
            log: $driver.log.as_mut(),
        }
    };
}

/// A configuration with these limits, keep-alive and plain error pages.
pub fn config(limits: Limits) -> Arc<SessionConfig> {
    Arc::new(SessionConfig {
        limits,
        http2: Http2::Off, // its beginning has tests of its own
        ..SessionConfig::default()
    })
}

impl<'h> Driver<'h> {
    /// A connection that has just been accepted, with the echo handler and default limits.
    pub fn echo() -> Self {
        Self::new(&config(Limits::default()), echo)
    }

    /// The same with other limits.
    pub fn echo_within(limits: Limits) -> Self {
        Self::new(&config(limits), echo)
    }

    /// A connection that has just been accepted.
    pub fn new(
        config: &Arc<SessionConfig>,
        handle: impl FnMut(&mut Exchange, &mut Context<'_>) -> Outcome + 'h,
    ) -> Self {
        let peer = Some("127.0.0.1:40000".parse().expect("an address"));
        Self::from_peer(config, peer, handle)
    }

    /// The same that speaks another protocol.
    pub fn speaking(
        protocol: Protocol,
        config: &Arc<SessionConfig>,
        handle: impl FnMut(&mut Exchange, &mut Context<'_>) -> Outcome + 'h,
    ) -> Self {
        let mut driver = Self::new(config, handle);
        driver.session = Some(protocol.session(config, None, cx!(driver)));
        driver.drive();
        driver
    }

    /// The same from this address; `None`: on a Unix socket.
    pub fn from_peer(
        config: &Arc<SessionConfig>,
        peer: Option<SocketAddr>,
        handle: impl FnMut(&mut Exchange, &mut Context<'_>) -> Outcome + 'h,
    ) -> Self {
        let mut driver = Self {
            session: None,
            now: Millis(1_000_000),
            counters: Counters::default(),
            pool: Pool::new(),
            date: HttpDate::at(784_111_777),
            handle: Box::new(handle),
            handle_blocking: Box::new(echo_blocking),
            output: Vec::new(),
            events: Vec::new(),
            seen: Vec::new(),
            hold_output: false,
            hold_blocking: false,
            held: None,
            parked: None,
            app: None,
            cancelled: None,
            ended: None,
            window: config.limits.stream_window_bytes,
            idles_on: [
                config.limits.idle_timeout_ms,
                config.limits.proxy_idle_timeout_ms,
            ]
            .contains(&u64::MAX),
            log: None,
            record: None,
            unread: VecDeque::new(),
            eof: false,
            finished: false,
            reading: Some(false),
            unsent_answers: 0,
            filled: 0,
            hold_fill: false,
            hold_computing: false,
            computing: None,
        };
        driver.session = Some(ServerSession::new(config, peer, cx!(driver)));
        driver.drive();
        driver
    }

    /// Gives it bytes, as far as it wants them; the rest when it wants them again.
    pub fn feed(&mut self, bytes: &[u8]) -> &mut Self {
        self.unread.extend(bytes);
        self.read_on();
        self
    }

    /// Gives it bytes whether it wants them or not, as a ring may.
    pub fn receive_anyway(&mut self, bytes: &[u8]) -> &mut Self {
        let session = self.session.as_mut().expect("an open connection");
        session.received(&mut bytes.to_vec(), cx!(self));
        self.drive();
        self
    }

    /// Gives it bytes one at a time.
    pub fn drip(&mut self, bytes: &[u8]) -> &mut Self {
        for byte in bytes {
            self.feed(std::slice::from_ref(byte));
        }
        self
    }

    /// The peer half-closes after what was fed.
    pub fn eof(&mut self) -> &mut Self {
        self.eof = true;
        self.read_on();
        self
    }

    /// The peer vanishes.
    pub fn peer_gone(&mut self) -> &mut Self {
        let session = self.session.as_mut().expect("an open connection");
        session.peer_gone(cx!(self));
        self.drive();
        self
    }

    /// Moves the clock by `ms` and tells the session if its deadline has passed on the way, at the moment it passes.
    pub fn pass(&mut self, ms: u64) -> &mut Self {
        let end = Millis(self.now.0 + ms);
        for _ in 0..10_000 {
            let Some(deadline) = self.deadline().filter(|deadline| *deadline <= end) else {
                self.now = end;
                return self;
            };
            self.now = self.now.max(deadline);
            self.expire();
        }
        panic!("deadlines that never move on: a loop would spin");
    }

    /// Tells it that its deadline has passed, whether or not it has.
    pub fn expire(&mut self) -> &mut Self {
        let session = self.session.as_mut().expect("an open connection");
        session.expired(cx!(self));
        self.drive();
        self
    }

    /// For so long the server waits for a part of a file that it is to send.
    pub fn read_for(&mut self, ms: u64) -> &mut Self {
        self.now = Millis(self.now.0 + ms);
        let session = self.session.as_mut().expect("an open connection");
        session.cached(cx!(self));
        self.drive();
        self
    }

    /// The server is going down.
    pub fn draining(&mut self) -> &mut Self {
        let session = self.session.as_mut().expect("an open connection");
        session.draining(cx!(self));
        self.drive();
        self
    }

    /// A new connection is refused.
    pub fn refuse(&mut self, reason: CloseReason) -> &mut Self {
        let session = self.session.as_mut().expect("an open connection");
        session.refuse(reason, cx!(self));
        self.drive();
        self
    }

    /// The owner ends it.
    pub fn abort(&mut self, reason: CloseReason) -> &mut Self {
        let session = self.session.as_mut().expect("an open connection");
        session.abort(reason);
        self.drive();
        self
    }

    /// The socket takes `bytes` of what is held.
    pub fn progress(&mut self, bytes: u64) -> &mut Self {
        let transmit = self.held.as_mut().expect("output on its way");
        let bytes = bytes.min(transmit.remaining());
        deliver(transmit, bytes, &mut self.output);
        let session = self.session.as_mut().expect("an open connection");
        if transmit.is_done() {
            let transmit = self.held.take().expect("output on its way");
            session.sent(transmit, cx!(self));
        } else {
            session.progressed(bytes, cx!(self));
        }
        self.drive();
        self
    }

    /// The socket takes all of what is held.
    pub fn release_output(&mut self) -> &mut Self {
        self.hold_output = false;
        self.progress(u64::MAX)
    }

    /// The worker finishes the parked blocking step.
    pub fn complete(&mut self) -> &mut Self {
        self.finish_step();
        self.drive();
        self
    }

    /// The same, and the owner looks at the clock before it asks for the next order.
    pub fn complete_and_expire(&mut self) -> &mut Self {
        self.finish_step();
        self.expire()
    }

    fn finish_step(&mut self) {
        let mut exchange = self.parked.take().expect("a parked exchange");
        (self.handle_blocking)(&mut exchange);
        self.unsent_answers += 1;
        let session = self.session.as_mut().expect("an open connection");
        session.completed(exchange, cx!(self));
    }

    /// What is held is computed, or refused.
    pub fn computed(&mut self, has_room: bool) -> &mut Self {
        self.finish_computing(has_room);
        self.drive();
        self
    }

    pub fn deadline(&self) -> Option<Millis> {
        self.session.as_ref()?.deadline()
    }

    pub fn is_closed(&self) -> bool {
        self.session.is_none()
    }

    pub fn is_idle(&self) -> bool {
        self.session.as_ref().is_some_and(ServerSession::is_idle)
    }

    /// Whether it has half-closed and waits for the peer to follow.
    pub fn is_lingering(&self) -> bool {
        self.finished && !self.is_closed()
    }

    pub fn closes(&self, reason: CloseReason) -> u64 {
        self.counters.closed[reason as usize].value()
    }

    /// The answers so far; none may be to a HEAD.
    pub fn answers(&self) -> Vec<Answer> {
        parse_answers(&self.output, |_| false)
    }

    /// Their status codes.
    pub fn statuses(&self) -> Vec<u16> {
        self.answers().iter().map(|a| a.status).collect()
    }

    fn read_on(&mut self) {
        while self.reading == Some(true) && !self.unread.is_empty() {
            // As much as a loop's read buffer holds.
            let some = self.unread.len().min(64 << 10);
            let mut bytes: Vec<u8> = self.unread.drain(..some).collect();
            let session = self.session.as_mut().expect("an open connection");
            session.received(&mut bytes, cx!(self));
            self.drive_one_round();
        }
        if self.eof && self.unread.is_empty() && self.reading == Some(true) {
            self.eof = false;
            let session = self.session.as_mut().expect("an open connection");
            session.received_eof(cx!(self));
            self.drive_one_round();
        }
    }

    fn drive(&mut self) {
        self.drive_one_round();
        self.read_on();
    }

    fn drive_one_round(&mut self) {
        for _ in 0..10_000 {
            let Some(session) = self.session.as_mut() else {
                return;
            };
            match session.next_action(cx!(self)) {
                Action::Run(exchange) => self.run(exchange),
                Action::Block(exchange) => self.block(exchange),
                Action::Start(exchange) => self.start(exchange),
                Action::Offer(_, piece) => self.app().offered(piece),
                Action::Pull(_, room) => self.app().room += room,
                Action::Cancel(_) => self.cancelled(),
                Action::Send { transmit, .. } => self.send(transmit),
                Action::Fill(fill) => self.fill(fill),
                Action::Compute(computation) => self.compute(computation),
                Action::ReceivePending { .. } => self.receive_pending(),
                Action::Finish => {
                    assert!(!self.finished, "Finish twice");
                    assert!(self.held.is_none(), "Finish before the output has left");
                    self.finished = true;
                    self.events.push(Event::Finish);
                }
                Action::Wait { read, .. } => return self.wait(read),
                Action::Close => return self.close(),
            }
        }
        panic!("the session orders without end");
    }

    fn fill(&mut self, mut fill: Box<Fill>) {
        assert!(fill.len > 0);
        self.filled += 1;
        let session = self.session.as_mut().expect("an open connection");
        // Every third part is not in the page cache, and comes again.
        if (self.filled.is_multiple_of(3) || self.hold_fill) && !fill.is_cached {
            session.not_cached(fill, cx!(self));
            if self.hold_fill {
                return;
            }
            assert!(
                matches!(session.next_action(cx!(self)), Action::Wait { .. }),
                "a range has to be read first"
            );
            return session.cached(cx!(self));
        }
        fill.buffer.resize(fill.len, 0);
        let file = std::fs::File::from(fill.file.fd.try_clone().expect("a descriptor"));
        let read = file.read_exact_at(&mut fill.buffer, fill.offset);
        if read.is_err() {
            fill.buffer.clear();
        }
        session.filled(fill, cx!(self));
    }

    fn compute(&mut self, computation: Box<dyn Computation>) {
        assert!(self.computing.is_none(), "two computations out");
        self.computing = Some(computation);
        if !self.hold_computing {
            self.finish_computing(true);
        }
    }

    fn finish_computing(&mut self, has_room: bool) {
        let mut computation = self.computing.take().expect("a computation");
        if has_room {
            computation.carry_out();
        }
        let session = self.session.as_mut().expect("an open connection");
        session.computed(computation, cx!(self));
    }

    fn receive_pending(&mut self) {
        let session = self.session.as_mut().expect("an open connection");
        if !self.unread.is_empty() {
            let some = self.unread.len().min(64 << 10);
            let mut bytes: Vec<u8> = self.unread.drain(..some).collect();
            session.received(&mut bytes, cx!(self));
        } else if std::mem::take(&mut self.eof) {
            session.received_eof(cx!(self));
        } else {
            session.nothing_pending(cx!(self));
        }
    }

    fn run(&mut self, mut exchange: Box<Exchange>) {
        assert!(self.parked.is_none(), "two exchanges out");
        assert!(!self.finished, "Run after Finish");
        self.events.push(Event::Run);
        let outcome = (self.handle)(&mut exchange, cx!(self));
        if !matches!(outcome, Outcome::Collect { .. }) {
            self.seen.push(Seen {
                method: exchange.request.method.as_str(),
                target: String::from_utf8_lossy(exchange.request.target()).into_owned(),
                body: match &exchange.request.body {
                    RequestBody::Whole(content) => Some(content.clone()),
                    _ => None,
                },
            });
        }
        if outcome == Outcome::Ready {
            self.unsent_answers += 1;
        }
        let session = self.session.as_mut().expect("an open connection");
        session.ran(exchange, outcome, cx!(self));
    }

    fn block(&mut self, exchange: Box<Exchange>) {
        assert!(self.parked.is_none(), "two exchanges out");
        assert!(!self.finished, "Block after Finish");
        assert_eq!(
            self.unsent_answers, 0,
            "waiting output must be sent before Block"
        );
        self.events.push(Event::Block);
        self.parked = Some(exchange);
        if !self.hold_blocking {
            self.finish_step();
        }
    }

    fn send(&mut self, mut transmit: Transmit) {
        assert!(self.held.is_none(), "two Sends out");
        assert!(!self.finished, "Send after Finish");
        assert!(transmit.remaining() > 0, "an empty Send");
        self.events.push(Event::Send(transmit.remaining()));
        self.unsent_answers = 0;
        if self.hold_output {
            self.held = Some(transmit);
        } else {
            deliver(&mut transmit, u64::MAX, &mut self.output);
            let session = self.session.as_mut().expect("an open connection");
            session.sent(transmit, cx!(self));
        }
    }

    fn wait(&mut self, read: bool) {
        let is_computing = self.computing.is_some();
        let out = self.held.is_some()
            || self.parked.is_some()
            || self.app.is_some()
            || self.hold_fill
            || is_computing;
        assert!(
            read || out,
            "Wait for nothing: no input wanted, nothing on its way"
        );
        assert!(
            self.deadline().is_some()
                || self.parked.is_some()
                || self.hold_fill
                || is_computing
                || (self.idles_on && self.is_idle()),
            "Wait for the peer without a deadline"
        );
        assert!(
            self.held.is_some() || self.hold_fill || self.unsent_answers == 0,
            "Wait while an answer has not been sent"
        );
        self.reading = Some(read);
    }

    fn close(&mut self) {
        self.events.push(Event::Close);
        assert!(self.app.is_none(), "Close before Cancel");
        let mut session = self.session.take().expect("an open connection");
        let counted = |counters: &Counters| -> u64 {
            counters.closed.iter().map(|counter| counter.value()).sum()
        };
        let before = counted(&self.counters);
        self.record = session.ended(cx!(self));
        assert_eq!(counted(&self.counters), before + 1, "a close not counted");
        self.reading = None;
        self.unread.clear();
        self.held = None;
        self.parked = None;
    }
}

/// Copies the next `bytes` of a batch into `output`, as a socket would.
fn deliver(transmit: &mut Transmit, mut bytes: u64, output: &mut Vec<u8>) {
    while bytes > 0 {
        let taken = match transmit.front() {
            None => return,
            Some(Chunk::Memory(memory)) => {
                let taken = memory
                    .len()
                    .min(usize::try_from(bytes).unwrap_or(usize::MAX));
                output.extend_from_slice(&memory[..taken]);
                taken
            }
            Some(Chunk::File { file, offset, len }) => {
                let taken = usize::try_from(len.min(bytes)).expect("a small file");
                let mut content = vec![0; taken];
                let handle = std::fs::File::from(file.fd.try_clone().expect("a descriptor"));
                handle
                    .read_exact_at(&mut content, offset)
                    .expect("file content");
                output.extend_from_slice(&content);
                taken
            }
        };
        transmit.advance(taken as u64);
        bytes -= taken as u64;
    }
}
