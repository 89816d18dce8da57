//! The server's end: a session in memory, its handler, and the apps' tasks that it starts.

use std::collections::BTreeMap;

use loadline_base::{Buffer, Chunk, Millis, Transmit};
use loadline_proto::{
    Action, Body, Context, Counters, Exchange, Fields, HttpDate, Outcome, Piece, Pool, RequestBody,
    ServerSession, SessionConfig, StreamId, TaskOptions,
};

/// What an app's task has.
struct App {
    exchange: Option<Box<Exchange>>,
    /// Content that it has not sent back.
    unsent: Vec<u8>,
    /// How much it has been offered, and has sent back.
    len: usize,
    has_end: bool,
    room: usize,
}

/// A session and its surroundings.
pub struct Server {
    session: Option<ServerSession>,
    now: Millis,
    date: HttpDate,
    pool: Pool,
    counters: Counters,
    /// Blocking steps that workers have.
    #[allow(clippy::vec_box, reason = "they come and go in their boxes")]
    parked: Vec<Box<Exchange>>,
    apps: BTreeMap<u32, App>,
    /// A batch that the socket has not taken.
    held: Option<Transmit>,
    is_reading: bool,
    has_finished: bool,
    output: Vec<u8>,
}

macro_rules! cx {
    ($it:ident) => {
        &mut Context {
            now: $it.now,
            came: $it.now,
            date: &$it.date,
            pool: &mut $it.pool,
            counters: &$it.counters,
            log: None,
        }
    };
}

/// What the paths of the tests respond with: `/bytes/N`, `/block`, `/app`, and what was sent otherwise.
fn handle(exchange: &mut Exchange) -> Outcome {
    let target = String::from_utf8_lossy(exchange.request.target()).into_owned();
    match target.strip_prefix("/bytes/") {
        Some(len) => {
            exchange.response.body = Body::Bytes(vec![b'x'; len.parse().unwrap()]);
            return Outcome::Ready;
        }
        None if target == "/app" => return Outcome::Later(TaskOptions::default()),
        None => {}
    }
    if matches!(exchange.request.body, RequestBody::Pending { .. }) {
        return Outcome::Collect { bytes_max: 1 << 20 };
    }
    if target == "/block" {
        return Outcome::Blocking;
    }
    respond_with_content(exchange);
    Outcome::Ready
}

fn respond_with_content(exchange: &mut Exchange) {
    exchange.response.body = Body::Bytes(match &exchange.request.body {
        RequestBody::Whole(content) => content.to_vec(),
        _ => Vec::new(),
    });
}

impl Server {
    pub fn new() -> Self {
        let mut server = Self {
            session: None,
            now: Millis(1_000_000),
            date: HttpDate::at(784_111_777),
            pool: Pool::new(),
            counters: Counters::default(),
            parked: Vec::new(),
            apps: BTreeMap::new(),
            held: None,
            is_reading: true,
            has_finished: false,
            output: Vec::new(),
        };
        let config = SessionConfig::default().into();
        server.session = Some(ServerSession::new(&config, None, cx!(server)));
        server.drive();
        server
    }

    /// Whether it wants to receive.
    pub fn is_reading(&self) -> bool {
        self.session.is_some() && self.is_reading
    }

    /// Whether it will send no more.
    pub fn has_finished(&self) -> bool {
        self.has_finished || self.is_closed()
    }

    pub fn is_closed(&self) -> bool {
        self.session.is_none()
    }

    /// What it has sent since the last time.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    pub fn receive(&mut self, bytes: &[u8]) {
        self.with_session(|session, cx| session.received(&mut bytes.to_vec(), cx));
    }

    pub fn receive_eof(&mut self) {
        self.with_session(|session, cx| session.received_eof(cx));
    }

    pub fn drain(&mut self) {
        self.with_session(|session, cx| session.draining(cx));
    }

    pub fn pass(&mut self, ms: u64) {
        self.now = Millis(self.now.0 + ms);
        let deadline = self.session.as_ref().and_then(ServerSession::deadline);
        if deadline.is_some_and(|at| at <= self.now) {
            self.with_session(|session, cx| session.expired(cx));
        }
    }

    /// The socket takes what is held, if something is.
    pub fn flush(&mut self) {
        if let Some(transmit) = self.held.take() {
            self.deliver(transmit);
            self.drive();
        }
    }

    /// A worker ends a blocking step; `false`: there is none.
    pub fn complete(&mut self, at: usize) -> bool {
        if self.parked.is_empty() {
            return false;
        }
        let mut exchange = self.parked.remove(at % self.parked.len());
        respond_with_content(&mut exchange);
        self.with_session(|session, cx| session.completed(exchange, cx));
        true
    }

    /// An app goes a step on, with so much content at most; `false`: none can.
    pub fn step_app(&mut self, at: usize, most: usize) -> bool {
        let ready = self.apps.iter().filter(|(_, app)| app.is_ready());
        let ready: Vec<u32> = ready.map(|(id, _)| *id).collect();
        let Some(id) = ready.get(at % ready.len().max(1)) else {
            return false;
        };
        let (id, stream) = (*id, StreamId(*id));
        let app = self.apps.get_mut(&id).expect("it is ready");
        if let Some(mut exchange) = app.exchange.take() {
            exchange.response.body = Body::Stream { len: None };
            self.with_session(|session, cx| session.consumed(stream, 0, cx));
            self.with_session(|session, cx| session.answered(exchange, cx));
            return true;
        }
        if app.unsent.is_empty() {
            let sum = Fields::default().with("X-Sum", app.len.to_string());
            self.apps.remove(&id);
            self.with_session(|session, cx| session.produced(stream, Piece::Trailers(sum), cx));
            self.with_session(|session, cx| session.produced(stream, Piece::End, cx));
            return true;
        }
        let len = app.unsent.len().min(app.room).min(most.max(1));
        let piece: Vec<u8> = app.unsent.drain(..len).collect();
        app.room -= len;
        self.with_session(|session, cx| {
            session.produced(stream, Piece::Data(Buffer::from(piece)), cx)
        });
        self.with_session(|session, cx| session.consumed(stream, len, cx));
        true
    }

    fn with_session(&mut self, event: impl FnOnce(&mut ServerSession, &mut Context<'_>)) {
        if let Some(session) = &mut self.session {
            event(session, cx!(self));
            self.drive();
        }
    }

    fn drive(&mut self) {
        for _ in 0..100_000 {
            let Some(session) = &mut self.session else {
                return;
            };
            match session.next_action(cx!(self)) {
                Action::Run(mut exchange) => {
                    let outcome = handle(&mut exchange);
                    session.ran(exchange, outcome, cx!(self));
                }
                Action::Block(exchange) => self.parked.push(exchange),
                Action::Start(exchange) => {
                    let app = App::new(exchange);
                    let id = app.exchange.as_ref().map_or(0, |it| it.stream.0);
                    assert!(self.apps.insert(id, app).is_none());
                }
                Action::Offer(stream, piece) => {
                    let Some(app) = self.apps.get_mut(&stream.0) else {
                        continue; // it has ended
                    };
                    assert!(!app.has_end, "behind the end");
                    match piece {
                        Piece::Data(bytes) => {
                            app.len += bytes.len();
                            app.unsent.extend_from_slice(&bytes);
                        }
                        Piece::Trailers(fields) => {
                            assert_eq!(fields.http1_lines(), b"x-end: 1\r\n");
                        }
                        Piece::End => app.has_end = true,
                        other => panic!("{other:?}"),
                    }
                }
                Action::Pull(stream, room) => {
                    if let Some(app) = self.apps.get_mut(&stream.0) {
                        app.room += room;
                    }
                }
                Action::Cancel(stream) => {
                    self.apps.remove(&stream.0);
                }
                Action::Send { transmit, .. } => {
                    assert!(self.held.replace(transmit).is_none(), "two batches");
                }
                Action::ReceivePending { .. } => session.nothing_pending(cx!(self)),
                Action::Finish => self.has_finished = true,
                Action::Wait { read, .. } => {
                    self.is_reading = read;
                    return;
                }
                Action::Close => {
                    session.ended(cx!(self));
                    self.session = None;
                }
                action @ (Action::Fill(_) | Action::Compute(_)) => panic!("{action:?}"),
            }
        }
        panic!("the session orders without end");
    }

    fn deliver(&mut self, mut transmit: Transmit) {
        while let Some(Chunk::Memory(bytes)) = transmit.front() {
            self.output.extend_from_slice(bytes);
            let len = bytes.len() as u64;
            transmit.advance(len);
        }
        if let Some(session) = &mut self.session {
            session.sent(transmit, cx!(self));
        }
    }
}

impl App {
    fn new(exchange: Box<Exchange>) -> Self {
        Self {
            room: exchange.stream_window_bytes,
            has_end: matches!(exchange.request.body, RequestBody::Empty),
            exchange: Some(exchange),
            unsent: Vec::new(),
            len: 0,
        }
    }

    /// Whether it can go on: begin, send something back, or end.
    fn is_ready(&self) -> bool {
        self.exchange.is_some()
            || (!self.unsent.is_empty() && self.room > 0)
            || (self.unsent.is_empty() && self.has_end)
    }
}
