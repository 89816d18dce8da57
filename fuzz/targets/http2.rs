//! Any frames, or any bytes, for a session of HTTP/2, at any cut and with any pauses: it comes to an end, holds
//! bounded memory, sends frames that may be and no more content than the client's windows have room for, and ends
//! each stream once, with all of the content that its head has announced. No deadline passes again and again.
//!
//! The first byte sets flags, the second is a length for the cuts, the third that of the bytes behind it, by
//! which apps act (`task`). Then come frames and pauses (`frames`), or bytes.
#![no_main]

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use loadline_base::{Chunk, Millis};
use loadline_fuzz::frames::{Sent, frames};
use loadline_fuzz::task::Task;
use loadline_fuzz::windows::Windows;
use loadline_proto::hpack::Decoder;
use loadline_proto::http2::frame::{FrameHead, HEAD_BYTES, Kind, PREFACE, flags};
use loadline_proto::{
    Action, Body, Context, Counters, Exchange, Fields, Http2Session, HttpDate, Limits, Outcome,
    Pool, RequestBody, Session, SessionConfig, Status, StreamId, TaskOptions,
};

const HELD_BYTES_MAX: usize = 4 << 20;
/// What apps do at most behind each piece of input.
const STEPS_AT_ONCE: usize = 3;
/// Into how many pieces about the input is cut: a frame is put together anew for each of its pieces.
const PIECES_MAX: usize = 4_096;
/// How often time may be up in one pause: at most once for what each stream waits for, and for the connection.
const DEADLINES_MAX: usize = 100;

/// Flags. The two bits behind the first say how requests are answered.
const COLLECT: u8 = 1;
/// The client's bytes are sent as they are, without preface and settings before them.
const RAW: u8 = 0x20;
const MIXED: u8 = 0x40;
const DRAIN: u8 = 0x80;

/// GET, http, /, and an authority.
const REQUEST: [u8; 6] = [0x82, 0x86, 0x84, 0x41, 1, b'a'];

static CONFIG: LazyLock<Arc<SessionConfig>> = LazyLock::new(|| {
    let limits = Limits {
        body_bytes_max: 300,
        stream_window_bytes: 1_000,
        streams_max: 8,
        ..Limits::default()
    };
    Arc::new(SessionConfig {
        limits,
        ..SessionConfig::default()
    })
});

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

fuzz_target!(|bytes: &[u8]| {
    let [mode, cut, step_count, rest @ ..] = bytes else {
        return;
    };
    let (steps, input) = rest.split_at(rest.len().min(usize::from(*step_count)));
    let client = match mode & RAW {
        0 => {
            let mut beginning = PREFACE.to_vec();
            beginning.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
            frames(&beginning, input, &REQUEST)
        }
        _ => Sent {
            bytes: input.to_vec(),
            pauses: Vec::new(),
        },
    };
    let piece_min = client.bytes.len() / PIECES_MAX + 1;
    run(*mode, steps, &client, usize::MAX);
    run(*mode, steps, &client, usize::from(*cut).max(piece_min));
});

fn run(mode: u8, steps: &[u8], client: &Sent, piece: usize) {
    let mut connection = Connection {
        mode,
        steps,
        turn: 0,
        now: Millis(1_000),
        tasks: Vec::new(),
        pool: Pool::new(),
        counters: Counters::default(),
        date: HttpDate::at(784_111_777),
        decoder: Decoder::default(),
        windows: Windows::default(),
        ended: Vec::new(),
        announced: BTreeMap::new(),
        is_closed: false,
    };
    let mut session = Http2Session::new(&CONFIG, None, None, cx!(connection));
    for (part, pause_ms) in client.parts() {
        for piece in part.chunks(piece) {
            connection.windows.received(piece);
            session.received(&mut piece.to_vec(), cx!(connection));
            connection.settle(&mut session);
            connection.act(&mut session);
        }
        connection.pause(pause_ms, &mut session);
        if connection.is_closed {
            break; // it was too slow, or was idle for too long
        }
    }
    if !connection.is_closed {
        connection.end(&mut session);
    }
    assert!(connection.is_closed, "it does not come to an end");
    session.ended(cx!(connection));
}

struct Connection<'i> {
    mode: u8,
    /// What apps do, over and over, and how much of it they have done.
    steps: &'i [u8],
    turn: usize,
    now: Millis,
    tasks: Vec<Task>,
    pool: Pool,
    counters: Counters,
    date: HttpDate,
    decoder: Decoder,
    windows: Windows,
    ended: Vec<u32>,
    /// What is still to come of the content that the head of a response has announced.
    announced: BTreeMap<u32, i64>,
    is_closed: bool,
}

impl Connection<'_> {
    /// Apps act, one after the other.
    fn act(&mut self, session: &mut Http2Session) {
        for _ in 0..STEPS_AT_ONCE {
            if self.tasks.is_empty() || self.steps.is_empty() {
                return;
            }
            let at = self.turn % self.tasks.len();
            let how = self.steps[self.turn % self.steps.len()];
            self.turn += 1;
            if self.tasks[at].act(how, session, cx!(self)) {
                self.tasks.remove(at);
            }
            self.settle(session);
        }
    }

    /// Time passes, and its deadlines.
    fn pause(&mut self, ms: u64, session: &mut Http2Session) {
        let end = Millis(self.now.0 + ms);
        for deadlines in 0.. {
            let deadline = session.deadline().filter(|deadline| *deadline <= end);
            let Some(deadline) = deadline.filter(|_| !self.is_closed) else {
                break;
            };
            assert!(deadlines < DEADLINES_MAX, "time is up again and again");
            self.now = self.now.max(deadline);
            session.expired(cx!(self));
            self.settle(session);
        }
        self.now = end;
    }

    /// The server goes down, perhaps, the client sends no more, and apps come to their end.
    fn end(&mut self, session: &mut Http2Session) {
        if self.mode & DRAIN != 0 {
            session.draining(cx!(self));
            self.settle(session);
        }
        session.received_eof(cx!(self));
        self.settle(session);
        self.end_tasks(session);
    }

    /// Apps that have not come to an end do so.
    fn end_tasks(&mut self, session: &mut Http2Session) {
        while let Some(task) = self.tasks.pop() {
            task.end(session, cx!(self));
            self.settle(session);
        }
    }

    /// Carries out orders until the session waits.
    fn settle(&mut self, session: &mut Http2Session) {
        let mut output = Vec::new();
        for orders in 0.. {
            assert!(orders < 100_000, "orders without end");
            assert!(session.held_bytes() < HELD_BYTES_MAX);
            match session.next_action(cx!(self)) {
                Action::Run(mut exchange) => {
                    let outcome = handle(self.mode, &mut exchange, cx!(self));
                    session.ran(exchange, outcome, cx!(self));
                }
                Action::Block(mut exchange) => {
                    exchange.response.body = Body::Bytes(b"blocked".to_vec());
                    session.completed(exchange, cx!(self));
                }
                Action::Start(exchange) => self.tasks.push(Task::start(exchange)),
                Action::Cancel(stream) => self.tasks.retain(|it| it.stream != stream),
                // A task that has ended may still be given what it does not need.
                Action::Offer(stream, piece) => {
                    if let Some(task) = self.task(stream) {
                        task.offer(piece);
                    }
                }
                Action::Pull(stream, room) => {
                    if let Some(task) = self.task(stream) {
                        task.pull(room);
                    }
                }
                Action::Send { mut transmit, .. } => {
                    while let Some(Chunk::Memory(bytes)) = transmit.front() {
                        output.extend_from_slice(bytes);
                        let len = bytes.len() as u64;
                        transmit.advance(len);
                    }
                    session.sent(transmit, cx!(self));
                }
                Action::ReceivePending { .. } => session.nothing_pending(cx!(self)),
                Action::Finish => {}
                Action::Wait { .. } => break,
                Action::Close => {
                    self.is_closed = true;
                    break;
                }
                action @ (Action::Fill(_) | Action::Compute(_)) => panic!("{action:?}"),
            }
        }
        self.look(&output);
    }

    fn task(&mut self, stream: StreamId) -> Option<&mut Task> {
        self.tasks.iter_mut().find(|task| task.stream == stream)
    }

    /// What was sent are frames that may be, in an order that may be, with content that may be.
    fn look(&mut self, mut output: &[u8]) {
        while let Some((head, rest)) = output.split_first_chunk::<HEAD_BYTES>() {
            let head = FrameHead::parse(head);
            head.check().unwrap();
            let payload = &rest[..head.len];
            output = &rest[head.len..];
            self.windows.sent(head);
            let is_content = matches!(head.kind, Kind::Headers | Kind::Data);
            assert!(
                !is_content || !self.ended.contains(&head.stream),
                "behind the end"
            );
            match head.kind {
                Kind::Headers => self.fields(head, payload),
                Kind::Data => {
                    if let Some(left) = self.announced.get_mut(&head.stream) {
                        *left -= head.len as i64;
                    }
                }
                Kind::RstStream => self.ended.push(head.stream),
                _ => {}
            }
            if is_content && head.has(flags::END_STREAM) {
                let left = self.announced.get(&head.stream);
                assert!(left.is_none_or(|left| *left == 0), "{left:?} bytes left");
                self.ended.push(head.stream);
            }
        }
        assert!(output.is_empty(), "a part of a frame");
    }

    /// A field block. A response that ends with its head has no content, whatever it announces (HEAD).
    fn fields(&mut self, head: FrameHead, block: &[u8]) {
        let mut len: Option<i64> = None;
        let decoded = self.decoder.decode(block, &mut Vec::new(), |name, value| {
            if name == b"content-length" {
                len = str::from_utf8(value).unwrap().parse().ok();
            }
        });
        decoded.unwrap();
        if let Some(len) = len
            && !head.has(flags::END_STREAM)
        {
            self.announced.insert(head.stream, len);
        }
    }
}

/// In one of four ways, for all requests or by their streams.
fn handle(mode: u8, exchange: &mut Exchange, cx: &mut Context<'_>) -> Outcome {
    if mode & COLLECT != 0 && matches!(exchange.request.body, RequestBody::Pending { .. }) {
        return Outcome::Collect { bytes_max: 200 };
    }
    let more = match mode & MIXED {
        0 => 0,
        _ => exchange.stream.0 / 2,
    };
    let content = vec![b'x'; usize::from(mode) * 300];
    match (u32::from(mode >> 1) + more) % 4 {
        0 => exchange.response.body = Body::Bytes(content),
        1 => return Outcome::Blocking,
        2 => return Outcome::Later(TaskOptions::default()),
        _ => exchange.answer_borrowed(Status::OK, &Fields::default(), &content, cx),
    }
    Outcome::Ready
}
