//! Any frames for a session of HTTP/2, at any cut: it comes to an end, holds bounded memory, sends frames that
//! may be, and ends each stream once.
//!
//! The first byte sets flags, the second is a length for the cuts. Each frame is a byte for its type, one for
//! its flags, one for its stream, one for its length, and its payload. A HEADERS frame whose payload begins
//! with a zero byte has a request in front of the rest.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use loadline_base::{Chunk, Millis, Transmit};
use loadline_proto::hpack::Decoder;
use loadline_proto::http2::frame::{FrameHead, HEAD_BYTES, Kind, PREFACE, flags};
use loadline_proto::{
    Action, Body, Context, Counters, Exchange, Http2Session, HttpDate, Limits, Outcome, Pool,
    RequestBody, Session, SessionConfig, TaskOptions,
};

const HELD_BYTES_MAX: usize = 4 << 20;

static CONFIG: LazyLock<Arc<SessionConfig>> = LazyLock::new(|| {
    let limits = Limits {
        body_bytes_max: 300,
        streams_max: 8,
        ..Limits::default()
    };
    Arc::new(SessionConfig {
        limits,
        ..SessionConfig::default()
    })
});

fuzz_target!(|bytes: &[u8]| {
    let [mode, cut, frames @ ..] = bytes else {
        return;
    };
    let mut client = PREFACE.to_vec();
    client.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    write_frames(frames, &mut client);
    run(*mode, &client, client.len());
    run(*mode, &client, usize::from(*cut).max(1));
});

/// Frames of known types and mostly of the first streams, as the input says.
fn write_frames(mut input: &[u8], out: &mut Vec<u8>) {
    while let [kind, flags, stream, len, rest @ ..] = input {
        let (payload, behind) = rest.split_at(rest.len().min(usize::from(*len)));
        input = behind;
        let mut payload = payload.to_vec();
        if *kind % 12 == 1 && payload.first() == Some(&0) {
            payload.splice(..1, [0x82, 0x86, 0x84, 0x41, 1, b'a']);
        }
        let head = [
            0,
            (payload.len() >> 8) as u8,
            payload.len() as u8,
            kind % 12,
            *flags,
        ];
        out.extend(head);
        out.extend([0, 0, 0, *stream]);
        out.extend(payload);
    }
}

fn run(mode: u8, bytes: &[u8], piece: usize) {
    let mut connection = Connection {
        mode,
        pool: Pool::new(),
        counters: Counters::default(),
        date: HttpDate::at(784_111_777),
        decoder: Decoder::default(),
        ended: Vec::new(),
        tasks: Vec::new(),
    };
    let cx = &mut Context {
        now: Millis(1_000),
        came: Millis(1_000),
        date: &connection.date,
        pool: &mut connection.pool,
        counters: &connection.counters,
        log: None,
    };
    let mut session = Http2Session::new(&CONFIG, None, None, cx);
    for piece in bytes.chunks(piece) {
        connection.with_session(&mut session, |session, cx| {
            session.received(&mut piece.to_vec(), cx)
        });
    }
    connection.with_session(&mut session, |session, cx| session.received_eof(cx));
    connection.with_session(&mut session, |session, cx| session.draining(cx));
    connection.with_session(&mut session, |session, cx| {
        session.abort(loadline_proto::CloseReason::Vanished);
        session.ended(cx);
    });
}

struct Connection {
    mode: u8,
    pool: Pool,
    counters: Counters,
    date: HttpDate,
    decoder: Decoder,
    ended: Vec<u32>,
    tasks: Vec<Box<Exchange>>,
}

impl Connection {
    fn with_session(
        &mut self,
        session: &mut Http2Session,
        event: impl FnOnce(&mut Http2Session, &mut Context<'_>),
    ) {
        let mut output = Vec::new();
        let cx = &mut Context {
            now: Millis(1_000),
            came: Millis(1_000),
            date: &self.date,
            pool: &mut self.pool,
            counters: &self.counters,
            log: None,
        };
        event(session, cx);
        for orders in 0.. {
            assert!(orders < 100_000, "orders without end");
            assert!(session.held_bytes() < HELD_BYTES_MAX);
            match session.next_action(cx) {
                Action::Run(mut exchange) => {
                    let outcome = handle(self.mode, &mut exchange);
                    session.ran(exchange, outcome, cx);
                }
                Action::Block(mut exchange) => {
                    exchange.response.body = Body::Bytes(b"blocked".to_vec());
                    session.completed(exchange, cx);
                }
                Action::Start(exchange) => self.tasks.push(exchange),
                Action::Cancel(stream) => self.tasks.retain(|it| it.stream != stream),
                Action::Offer(..) | Action::Pull(..) => {}
                Action::Send { transmit, .. } => {
                    let transmit = deliver(transmit, &mut output);
                    session.sent(transmit, cx);
                }
                Action::ReceivePending { .. } => session.nothing_pending(cx),
                Action::Finish => {}
                Action::Wait { .. } | Action::Close => break,
                action @ (Action::Fill(_) | Action::Compute(_)) => panic!("{action:?}"),
            }
        }
        self.look(&output);
    }

    /// What was sent are frames that may be, in an order that may be.
    fn look(&mut self, mut output: &[u8]) {
        while let Some((head, rest)) = output.split_first_chunk::<HEAD_BYTES>() {
            let head = FrameHead::parse(head);
            head.check().unwrap();
            let payload = &rest[..head.len];
            output = &rest[head.len..];
            let is_content = matches!(head.kind, Kind::Headers | Kind::Data);
            assert!(
                !is_content || !self.ended.contains(&head.stream),
                "behind the end"
            );
            match head.kind {
                Kind::Headers => {
                    let memory = &mut Vec::new();
                    self.decoder.decode(payload, memory, |_, _| ()).unwrap();
                }
                Kind::RstStream => self.ended.push(head.stream),
                _ => {}
            }
            if is_content && head.has(flags::END_STREAM) {
                self.ended.push(head.stream);
            }
        }
        assert!(output.is_empty(), "a part of a frame");
    }
}

fn handle(mode: u8, exchange: &mut Exchange) -> Outcome {
    if mode & 1 != 0 && matches!(exchange.request.body, RequestBody::Pending { .. }) {
        return Outcome::Collect { bytes_max: 200 };
    }
    match mode >> 1 & 3 {
        1 => Outcome::Blocking,
        2 => Outcome::Later(TaskOptions::default()),
        _ => {
            let len = usize::from(mode) * 300;
            exchange.response.body = Body::Bytes(vec![b'x'; len]);
            Outcome::Ready
        }
    }
}

fn deliver(mut transmit: Transmit, output: &mut Vec<u8>) -> Transmit {
    while let Some(Chunk::Memory(bytes)) = transmit.front() {
        output.extend_from_slice(bytes);
        let len = bytes.len() as u64;
        transmit.advance(len);
    }
    transmit
}
