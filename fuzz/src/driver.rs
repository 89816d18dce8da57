//! An owner of one session that carries out its orders in memory, and holds it to its promises.

mod app;

use std::sync::{Arc, LazyLock};

use loadline_base::{Buffer, Chunk, ContentVersion, Millis, OpenFile, Segment, Transmit};
use loadline_proto::{
    AccessFormat, AccessLog, Action, Body, CloseReason, Context, Counters, Exchange, Fields,
    HttpDate, Method, Outcome, Pool, RequestBody, ServerSession, SessionConfig, Status,
    TaskOptions,
};

use crate::wire::{Answer, read_answers};
use app::Task;

/// A file to point at; nothing reads it, and its bytes count as zeros.
static FILE: LazyLock<Arc<OpenFile>> = LazyLock::new(|| {
    let fd = std::fs::File::open("/dev/null")
        .expect("/dev/null opens")
        .into();
    let version = ContentVersion::default();
    Arc::new(OpenFile {
        fd,
        version,
        is_local: true,
    })
});

/// What a loop lends.
struct Lent {
    now: Millis,
    date: HttpDate,
    pool: Pool,
    counters: Counters,
    log: Option<AccessLog>,
}

impl Lent {
    fn turn(&mut self) -> Context<'_> {
        Context {
            now: self.now,
            came: self.now,
            date: &self.date,
            pool: &mut self.pool,
            counters: &self.counters,
            log: self.log.as_mut(),
        }
    }
}

/// A request that reached the handler, and its answer: status and, if the handler chose it, content.
struct Asked {
    method: Method,
    /// There may be more content than files and forms may have: then 413 takes the place of an
    /// answer that is none of an error.
    may_be_too_much: bool,
    answer: Option<(Status, Option<Vec<u8>>)>,
}

enum Step {
    Quick,
    Blocking,
}

/// The owner.
pub struct Driver<'i> {
    session: ServerSession,
    lent: Lent,
    hold_runs: bool,
    /// What the client has still to send.
    rest: &'i [u8],
    received: u64,
    eof: bool,
    read: bool,
    sending: Option<Transmit>,
    exchange: Option<(Box<Exchange>, Step)>,
    window: usize,
    body_bytes_max: u64,
    task: Option<Task>,
    /// The last task has ended by itself; what it left undone may still be cancelled.
    app_is_over: bool,
    asked: Vec<Asked>,
    /// The last answer may be incomplete.
    cut_off: bool,
    wire: Vec<u8>,
    finished: bool,
    closed: bool,
}

/// What a connection came to.
#[derive(Debug, PartialEq, Eq)]
pub struct Ending {
    /// What the client read, without interim answers.
    pub answers: Vec<Answer>,
    /// Requests by status class from 2xx on, faults by blame. (Not closes by reason: whether there
    /// is anything to linger for depends on what has come.)
    pub counts: Vec<u64>,
}

impl<'i> Driver<'i> {
    /// A connection whose client will send `stream`. `hold_runs`: the handler's quick step is
    /// left waiting for `answer`, as its blocking step is.
    #[must_use]
    pub fn new(config: &Arc<SessionConfig>, stream: &'i [u8], hold_runs: bool, log: bool) -> Self {
        let mut lent = Lent {
            now: Millis(1_000),
            date: HttpDate::at(784_111_777),
            pool: Pool::new(),
            counters: Counters::default(),
            log: log.then(|| AccessLog::new(AccessFormat::Common)),
        };
        let session = ServerSession::new(config, None, &mut lent.turn());
        let mut driver = Self {
            session,
            lent,
            hold_runs,
            rest: stream,
            received: 0,
            eof: false,
            read: false,
            sending: None,
            exchange: None,
            window: config.limits.stream_window_bytes,
            body_bytes_max: config.limits.body_bytes_max,
            task: None,
            app_is_over: false,
            asked: Vec::new(),
            cut_off: false,
            wire: Vec::new(),
            finished: false,
            closed: false,
        };
        driver.settle();
        driver
    }

    /// `len` bytes come, if bytes are welcome, or `unasked` for while a handler is at work.
    pub fn receive(&mut self, len: usize, unasked: bool) {
        let len = len.min(self.rest.len());
        let may_come = self.read || unasked;
        if self.closed || self.eof || len == 0 || !may_come {
            return;
        }
        let (bytes, rest) = self.rest.split_at(len);
        self.rest = rest;
        self.received += len as u64;
        self.session
            .received(&mut bytes.to_vec(), &mut self.lent.turn());
        self.settle();
    }

    /// The client sends no more.
    pub fn receive_eof(&mut self) {
        if !self.closed && !self.eof {
            self.eof = true;
            self.session.received_eof(&mut self.lent.turn());
            self.settle();
        }
    }

    /// `len` bytes of what is out leave.
    pub fn send(&mut self, len: u64) {
        let Some(mut transmit) = self.sending.take_if(|_| !self.closed) else {
            return;
        };
        let len = len.min(transmit.remaining());
        copy_front(&mut transmit, len, &mut self.wire);
        if transmit.is_done() {
            self.session.sent(transmit, &mut self.lent.turn());
        } else {
            self.session.progressed(len, &mut self.lent.turn());
            self.sending = Some(transmit);
        }
        self.settle();
    }

    /// The handler gives back what it holds, answered.
    pub fn answer(&mut self) {
        let Some((mut exchange, step)) = self.exchange.take() else {
            return;
        };
        match step {
            Step::Quick => self.run(exchange),
            Step::Blocking => {
                self.respond(&mut exchange);
                self.session.completed(exchange, &mut self.lent.turn());
            }
        }
        self.settle();
    }

    /// The deadline passes; with `early`, the session is called before it has, which must not matter.
    pub fn expire(&mut self, early: bool) {
        let Some(deadline) = self.session.deadline() else {
            return;
        };
        if self.closed || early && deadline <= self.lent.now {
            return;
        }
        if early {
            self.session.expired(&mut self.lent.turn());
            assert_eq!(self.session.deadline(), Some(deadline));
        } else {
            self.lent.now = self.lent.now.max(deadline);
            self.session.expired(&mut self.lent.turn());
        }
        self.settle();
    }

    /// Time passes.
    pub fn tick(&mut self, ms: u64) {
        self.lent.now.0 += ms;
    }

    /// The server is going down.
    pub fn drain(&mut self) {
        if !self.closed {
            self.session.draining(&mut self.lent.turn());
            self.settle();
        }
    }

    /// There is no room for this connection.
    pub fn refuse(&mut self) {
        self.session
            .refuse(CloseReason::Refused, &mut self.lent.turn());
        self.settle();
    }

    /// The client is gone altogether.
    pub fn vanish(&mut self) {
        if !self.closed {
            self.session.peer_gone(&mut self.lent.turn());
            self.settle();
            assert!(self.closed);
        }
    }

    /// Carries out the rest in pieces of these lengths; the connection must come to an end.
    #[must_use]
    pub fn run_to_end(mut self, mut piece: impl FnMut() -> usize) -> Ending {
        let mut steps = 0;
        while !self.closed {
            steps += 1;
            assert!(steps < 1_000_000, "it never ends");
            if self.sending.is_some() {
                self.send(piece() as u64);
            } else if self.exchange.is_some() {
                self.answer();
            } else if self.app_step() {
                // and see what came of it
            } else if self.read && !self.rest.is_empty() {
                self.receive(piece(), false);
            } else if !self.eof {
                self.receive_eof();
            } else {
                panic!("neither closed nor waiting for anything");
            }
        }
        self.end()
    }

    fn end(mut self) -> Ending {
        let cut_off = self.cut_off || self.sending.is_some();
        self.answer(); // whoever comes late changes nothing
        let methods: Vec<_> = self.asked.iter().map(|asked| asked.method).collect();
        let answers = read_answers(&self.wire, &methods, !cut_off);
        for (index, answer) in answers.iter().enumerate() {
            assert!(
                !answer.close || index + 1 == answers.len(),
                "an answer after the last"
            );
            let asked = self.asked.get(index);
            let may_be_too_much = asked.is_some_and(|asked| asked.may_be_too_much);
            match asked.map(|asked| &asked.answer) {
                Some(Some((status, _)))
                    if may_be_too_much && !status.is_error() && answer.code == 413 =>
                {
                    assert!(answer.close);
                }
                Some(Some((status, content))) => {
                    assert_eq!(answer.code, status.code());
                    let expected = content.as_ref().filter(|_| methods[index] != Method::Head);
                    let may_end_early = cut_off && index + 1 == answers.len();
                    assert!(expected.is_none_or(|content| match may_end_early {
                        true => content.starts_with(&answer.content),
                        false => *content == answer.content,
                    }));
                }
                // Refused before the handler could choose: the last word on the connection.
                Some(None) | None => assert!(answer.code >= 400 && answer.close),
            }
        }
        assert!(answers.len() <= self.asked.len() + 1);
        self.session.ended(&mut self.lent.turn());
        let counters = &self.lent.counters;
        let closes = counters.closed.iter().map(|counter| counter.value());
        assert_eq!((counters.accepted.value(), closes.sum()), (1, 1));
        assert_eq!(counters.bytes_in.value(), self.received);
        assert_eq!(counters.bytes_out.value(), self.wire.len() as u64);
        if let Some(log) = &mut self.lent.log {
            let lines = log.lines().iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(lines as u64, counters.requests());
        }
        let classes = counters.answers[1..].iter().chain(&counters.faults);
        let counts = classes.map(|counter| counter.value()).collect();
        Ending { answers, counts }
    }

    /// Carries out orders until the session waits, holding it to its promises.
    fn settle(&mut self) {
        loop {
            let action = self.session.next_action(&mut self.lent.turn());
            if self.closed {
                assert!(matches!(action, Action::Close), "{action:?} after Close");
                return;
            }
            match action {
                Action::Run(exchange) => {
                    assert!(self.exchange.is_none() && self.sending.is_none() && !self.finished);
                    if !matches!(exchange.request.body, RequestBody::Whole(_)) {
                        let method = exchange.request.method;
                        let may_be_too_much = match exchange.request.body {
                            RequestBody::Pending { len: Some(len) } => len > self.body_bytes_max,
                            RequestBody::Pending { len: None } => true,
                            _ => false,
                        };
                        self.asked.push(Asked {
                            method,
                            may_be_too_much,
                            answer: None,
                        });
                    }
                    self.exchange = Some((exchange, Step::Quick));
                    if !self.hold_runs {
                        let (exchange, _) = self.exchange.take().expect("it was just put in");
                        self.run(exchange);
                    }
                }
                Action::Block(exchange) => {
                    self.check_all_sent();
                    self.exchange = Some((exchange, Step::Blocking));
                }
                Action::Start(exchange) => {
                    self.check_all_sent();
                    self.app_is_over = false;
                    self.task = Some(Task::start(exchange, self.window));
                }
                Action::Offer(_, piece) => {
                    let task = self.task.as_mut().expect("content has a task");
                    task.offer(piece, self.window);
                }
                Action::Pull(_, room) => {
                    let task = self.task.as_mut().expect("room has a task");
                    task.pull(room, self.window);
                }
                Action::Cancel(_) => {
                    let task = self.task.take();
                    assert!(task.is_some() || self.app_is_over, "nobody to cancel");
                    self.cut_off |= task.is_none_or(|task| task.has_begun());
                }
                Action::Send { transmit, .. } => {
                    assert!(self.exchange.is_none() && self.sending.is_none() && !self.finished);
                    assert!(!transmit.is_done());
                    self.sending = Some(transmit);
                }
                action @ (Action::Fill(_) | Action::Compute(_)) => {
                    panic!("{action:?} without a layer")
                }
                Action::Finish => {
                    assert!(self.exchange.is_none() && self.sending.is_none() && !self.finished);
                    self.finished = true;
                }
                Action::ReceivePending { .. } => {
                    assert!(self.exchange.is_none() && self.sending.is_none() && !self.finished);
                    self.session.nothing_pending(&mut self.lent.turn());
                }
                Action::Wait { read, .. } => {
                    self.read = read;
                    return self.check_wait();
                }
                Action::Close => {
                    assert!(self.task.is_none(), "an app works on for nobody");
                    self.closed = true; // and once more around, to see that it stays
                }
            }
        }
    }

    /// Before anybody takes his time, the answers to all earlier requests are out.
    fn check_all_sent(&self) {
        assert!(self.exchange.is_none() && self.sending.is_none() && !self.finished);
        assert!(self.task.is_none());
        let methods: Vec<_> = self.asked.iter().map(|asked| asked.method).collect();
        let sent = read_answers(&self.wire, &methods, true).len();
        assert_eq!(sent + 1, self.asked.len(), "output waits behind slow work");
    }

    fn check_wait(&self) {
        let deadline = self.session.deadline();
        if self.task.is_some() {
            assert!(deadline.is_some() && !(self.read && self.eof));
        } else if self.sending.is_some() {
            assert!(!self.read && deadline.is_some());
        } else if self.exchange.is_some() {
            assert!(!self.read && deadline.is_none());
        } else {
            assert!(
                self.read && !self.eof && deadline.is_some(),
                "nothing to wait for"
            );
            return;
        }
        assert!(!self.session.is_idle());
    }

    fn run(&mut self, mut exchange: Box<Exchange>) {
        let outcome = self.handle(&mut exchange);
        if exchange.request.method == Method::Other && !matches!(outcome, Outcome::Later(_)) {
            self.note(Status::NOT_IMPLEMENTED, None);
        }
        self.session.ran(exchange, outcome, &mut self.lent.turn());
    }

    /// The handler's quick step: what it does is in the first letter of the path.
    fn handle(&mut self, exchange: &mut Exchange) -> Outcome {
        let collected = matches!(exchange.request.body, RequestBody::Whole(_));
        match exchange.request.path().get(1) {
            Some(b'b') => Outcome::Blocking,
            Some(b's') => Outcome::Later(TaskOptions::default()),
            Some(b'S') => Outcome::Later(TaskOptions {
                body_bytes_max: 20,
                cancel_on_half_close: true,
            }),
            Some(b'c') if !collected => Outcome::Collect { bytes_max: 32 },
            Some(b'C') if !collected => Outcome::Collect {
                bytes_max: u64::MAX,
            },
            Some(b'd') => {
                if collected {
                    self.note(Status::INTERNAL_SERVER_ERROR, None); // asking twice is a bug
                }
                Outcome::Collect {
                    bytes_max: u64::MAX,
                }
            }
            Some(b'B') if collected => Outcome::Blocking,
            Some(b'B') => Outcome::Collect {
                bytes_max: u64::MAX,
            },
            Some(b'k') => {
                let content = exchange.request.target().to_vec();
                let fields = Fields::default().with("Content-Type", "text/plain");
                exchange.answer_borrowed(Status::OK, &fields, &content, &mut self.lent.turn());
                self.note(Status::OK, Some(content));
                Outcome::Ready
            }
            _ => {
                self.respond(exchange);
                Outcome::Ready
            }
        }
    }

    fn respond(&mut self, exchange: &mut Exchange) {
        let target = exchange.request.target().to_vec();
        let mut status = Status::OK;
        let mut expected = None;
        exchange.response.field("X-Target", &target);
        exchange.response.close = target.starts_with(b"/x");
        exchange.response.body = match target.get(1) {
            Some(b'e') => {
                status = Status::NOT_FOUND;
                Body::Empty
            }
            Some(b'n') => {
                status = Status::NO_CONTENT;
                Body::Empty
            }
            Some(b'3') => {
                status = Status::NOT_MODIFIED;
                exchange.response.stated_len = Some(1234);
                Body::Empty
            }
            Some(b'l') => {
                let bytes: Arc<[u8]> = Arc::from(target.repeat(40));
                expected = Some(bytes[1..].to_vec());
                Body::Shared {
                    start: 1,
                    end: bytes.len(),
                    bytes,
                }
            }
            Some(b'f') => {
                expected = Some(vec![0; 1000]);
                Body::File {
                    file: Arc::clone(&FILE),
                    offset: 7,
                    len: 1000,
                }
            }
            Some(b'm') => {
                expected = Some([&target[..], &[0; 9]].concat());
                let head = Segment::Buffer(Buffer::from(target));
                let file = Segment::File {
                    file: Arc::clone(&FILE),
                    offset: 0,
                    len: 9,
                };
                Body::Segments(vec![head, file])
            }
            _ => {
                let mut content = target;
                if let RequestBody::Whole(collected) = &exchange.request.body {
                    content.extend_from_slice(collected);
                }
                expected = Some(content.clone());
                Body::Bytes(content)
            }
        };
        exchange.response.status = status;
        self.note(status, expected);
    }

    fn note(&mut self, status: Status, content: Option<Vec<u8>>) {
        if !self.closed {
            let asked = self.asked.last_mut().expect("an answer has a request");
            asked.answer = Some((status, content));
        }
    }
}

/// Moves the next `len` bytes of `transmit` to the client.
fn copy_front(transmit: &mut Transmit, mut len: u64, wire: &mut Vec<u8>) {
    while len > 0 {
        let (bytes, count) = match transmit.front().expect("there is more") {
            Chunk::Memory(bytes) => (Some(bytes), len.min(bytes.len() as u64)),
            Chunk::File { len: left, .. } => (None, len.min(left)),
        };
        match bytes {
            Some(bytes) => wire.extend_from_slice(&bytes[..count as usize]),
            None => wire.resize(wire.len() + count as usize, 0),
        }
        transmit.advance(count);
        len -= count;
    }
}
