//! A session of HTTP/2 with a client in memory: a fake clock, a handler, and frames in and out.

use std::collections::BTreeMap;
use std::sync::Arc;

use loadline_base::{Chunk, Counter, Millis, Transmit};
use loadline_proto::hpack::{Decoder, Encoder, Indexing};
use loadline_proto::http2::frame::{FrameHead, HEAD_BYTES, Kind, PREFACE, Setting, flags, frame};
use loadline_proto::{
    Action, Body, CloseReason, Context, Counters, Exchange, Fields, ForwardedField, Http2Count,
    Http2Session, HttpDate, Limits, Outcome, Piece, Pool, RequestBody, Security, Session,
    SessionConfig, Status, StreamId, Then, TrustedProxies,
};

/// A frame with its payload; of HEADERS the decoded fields, as lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: Kind,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

/// What an app's task was given.
#[derive(Debug, Default)]
pub struct App {
    pub exchange: Option<Box<Exchange>>,
    pub content: Vec<u8>,
    pub trailers: Option<Fields>,
    pub has_end: bool,
    pub room: usize,
}

/// A connection and its client.
pub struct Connection {
    session: Option<Http2Session>,
    pub now: Millis,
    pub counters: Counters,
    pub pool: Pool,
    pub date: HttpDate,
    handle: fn(&mut Exchange, &mut Context<'_>) -> Outcome,
    pub encoder: Encoder,
    decoder: Decoder,
    unparsed: Vec<u8>,
    block: Vec<u8>,
    /// Frames that the client has not looked at.
    pub frames: Vec<Frame>,
    /// Keep what is sent, as if the socket were full.
    pub hold_output: bool,
    held: Option<Transmit>,
    /// Keep blocking steps, as if a worker had them.
    pub hold_blocking: bool,
    pub parked: BTreeMap<u32, Box<Exchange>>,
    pub apps: BTreeMap<u32, App>,
    pub cancelled: Vec<u32>,
    /// Requests that ran, in order.
    pub ran: Vec<u32>,
    pub reads: bool,
    pub has_finished: bool,
    /// The largest batch.
    pub batch_bytes_max: u64,
    /// What follows the last batch.
    pub then: Option<Then>,
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

/// Answers with the method, the target and the content.
pub fn echo(exchange: &mut Exchange, cx: &mut Context<'_>) -> Outcome {
    let target = String::from_utf8_lossy(exchange.request.target()).into_owned();
    if let Some(kept) = target.strip_prefix("/kept/") {
        return answer_kept(kept, exchange, cx);
    }
    if target.starts_with("/task") {
        return Outcome::Later(loadline_proto::TaskOptions::default());
    }
    if matches!(exchange.request.body, RequestBody::Pending { .. }) && !target.starts_with("/deaf")
    {
        return Outcome::Collect { bytes_max: 1 << 20 };
    }
    let blocks = target.starts_with("/block") || target.starts_with("/deaf-block");
    if blocks && exchange.response.body.is_empty() {
        return Outcome::Blocking;
    }
    let body = match target.strip_prefix("/bytes/") {
        Some(len) => vec![b'x'; len.parse().unwrap()],
        None => {
            let mut body = format!("{} {target} ", exchange.request.method.as_str()).into_bytes();
            if let RequestBody::Whole(content) = &exchange.request.body {
                body.extend_from_slice(content);
            }
            if let Some(trailers) = &exchange.request.trailers {
                body.extend_from_slice(trailers.http1_lines());
            }
            body
        }
    };
    exchange.response.field("Content-Type", "text/plain");
    if target == "/own-security" {
        let name = "Strict-Transport-Security";
        exchange.response.field(name, "max-age=7");
    }
    exchange.response.body = Body::Bytes(body);
    Outcome::Ready
}

/// Answers with what is kept somewhere: so many bytes, and then says what it wants to do.
fn answer_kept(kept: &str, exchange: &mut Exchange, cx: &mut Context<'_>) -> Outcome {
    let fields = Fields::default()
        .with("Content-Type", "text/plain")
        .with("ETag", "\"1\"")
        .with("Set-Cookie", "a=b")
        .with("X-Own", "y");
    let (len, then) = kept.split_once('/').unwrap_or((kept, ""));
    let content = vec![b'k'; len.parse().unwrap()];
    let status = match then {
        "304" => Status::NOT_MODIFIED,
        "404" => Status::NOT_FOUND,
        _ => Status::OK,
    };
    exchange.answer_borrowed(status, &fields, &content, cx);
    match then {
        "block" => Outcome::Blocking,
        "error" => {
            exchange.response.error(Status::INTERNAL_SERVER_ERROR);
            Outcome::Ready
        }
        _ => Outcome::Ready,
    }
}

impl Connection {
    /// Both have introduced themselves.
    pub fn new() -> Self {
        Self::within(Limits::default())
    }

    pub fn within(limits: Limits) -> Self {
        Self::silent(limits).introduced()
    }

    /// The client is a trusted proxy, which says by X-Forwarded-For whom it asks for.
    pub fn of_proxy() -> Self {
        let proxies = ["127.0.0.1".parse().unwrap()];
        let config = SessionConfig {
            trusted_proxies: TrustedProxies::new(&proxies, ForwardedField::XForwardedFor),
            ..SessionConfig::default()
        };
        Self::configured(config, None).introduced()
    }

    fn introduced(mut self) -> Self {
        let connection = &mut self;
        connection.feed(PREFACE);
        connection.frame(Kind::Settings, 0, 0, &[]);
        let frames = connection.take();
        let kinds: Vec<_> = frames
            .iter()
            .map(|frame| (frame.kind, frame.flags))
            .collect();
        assert_eq!(
            kinds,
            [
                (Kind::Settings, 0),
                (Kind::WindowUpdate, 0),
                (Kind::Settings, flags::ACK)
            ]
        );
        connection.frame(Kind::Settings, flags::ACK, 0, &[]);
        self
    }

    /// The client has sent nothing.
    pub fn silent(limits: Limits) -> Self {
        Self::over(None, limits)
    }

    /// The same over a layer.
    pub fn over(security: Option<Security>, limits: Limits) -> Self {
        let config = SessionConfig {
            limits,
            ..SessionConfig::default()
        };
        Self::configured(config, security)
    }

    fn configured(config: SessionConfig, security: Option<Security>) -> Self {
        let config = Arc::new(config);
        let mut connection = Self {
            session: None,
            now: Millis(1_000_000),
            counters: Counters::default(),
            pool: Pool::new(),
            date: HttpDate::at(784_111_777),
            handle: echo,
            encoder: Encoder::default(),
            decoder: Decoder::default(),
            unparsed: Vec::new(),
            block: Vec::new(),
            frames: Vec::new(),
            hold_output: false,
            held: None,
            hold_blocking: false,
            parked: BTreeMap::new(),
            apps: BTreeMap::new(),
            cancelled: Vec::new(),
            ran: Vec::new(),
            reads: false,
            has_finished: false,
            batch_bytes_max: 0,
            then: None,
        };
        let peer = Some("127.0.0.1:40000".parse().unwrap());
        connection.session = Some(Http2Session::new(
            &config,
            peer,
            security.map(Arc::new).as_ref(),
            cx!(connection),
        ));
        connection.drive();
        connection
    }

    pub fn session(&mut self) -> &mut Http2Session {
        self.session.as_mut().expect("an open connection")
    }

    pub fn is_closed(&self) -> bool {
        self.session.is_none()
    }

    pub fn counted(&self, what: Http2Count) -> u64 {
        self.counters.http2[what as usize].value()
    }

    /// Faults by blame: peer, local, limit, timeout.
    pub fn faults(&self) -> [u64; 4] {
        self.counters.faults.each_ref().map(Counter::value)
    }

    pub fn closes(&self, reason: CloseReason) -> u64 {
        self.counters.closed[reason as usize].value()
    }

    /// The client sends bytes.
    pub fn feed(&mut self, bytes: &[u8]) -> &mut Self {
        let session = self.session.as_mut().expect("an open connection");
        session.received(&mut bytes.to_vec(), cx!(self));
        self.drive();
        self
    }

    /// The client sends a frame.
    pub fn frame(&mut self, kind: Kind, flags: u8, stream: u32, payload: &[u8]) -> &mut Self {
        let bytes = frame(kind, flags, stream, payload);
        self.feed(&bytes)
    }

    /// The client sends a request without content.
    pub fn get(&mut self, stream: u32, path: &str) -> &mut Self {
        let block = self.request("GET", path, &[]);
        self.frame(
            Kind::Headers,
            flags::END_HEADERS | flags::END_STREAM,
            stream,
            &block,
        )
    }

    /// The proxy asks for one of its clients.
    pub fn get_for(&mut self, client: &str, stream: u32, path: &str) -> &mut Self {
        let block = self.request("GET", path, &[("x-forwarded-for", client)]);
        let of_both = flags::END_HEADERS | flags::END_STREAM;
        self.frame(Kind::Headers, of_both, stream, &block)
    }

    /// The client sends the head of a request with content.
    pub fn post(&mut self, stream: u32, path: &str, more: &[(&str, &str)]) -> &mut Self {
        let block = self.request("POST", path, more);
        self.frame(Kind::Headers, flags::END_HEADERS, stream, &block)
    }

    /// Its field block.
    pub fn request(&mut self, method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
        let all = [
            (":method", method),
            (":scheme", "http"),
            (":authority", "example.org"),
            (":path", path),
        ];
        self.block(&[&all[..], more].concat())
    }

    pub fn block(&mut self, fields: &[(&str, &str)]) -> Vec<u8> {
        let mut block = Vec::new();
        self.encoder.begin(&mut block);
        for (name, value) in fields {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            self.encoder.field(name, value, Indexing::Kept, &mut block);
        }
        block
    }

    pub fn setting(&mut self, id: u16, value: u32) -> &mut Self {
        let mut payload = Vec::new();
        Setting { id, value }.write(&mut payload);
        self.frame(Kind::Settings, 0, 0, &payload)
    }

    pub fn window(&mut self, stream: u32, more: u32) -> &mut Self {
        self.frame(Kind::WindowUpdate, 0, stream, &more.to_be_bytes())
    }

    /// Frames that have come since the last time.
    pub fn take(&mut self) -> Vec<Frame> {
        std::mem::take(&mut self.frames)
    }

    /// The content of a stream in these frames, and whether it has ended.
    pub fn content(frames: &[Frame], stream: u32) -> (Vec<u8>, bool) {
        let of_it = frames.iter().filter(|frame| frame.stream == stream);
        let mut content = Vec::new();
        let mut has_ended = false;
        for frame in of_it {
            assert!(
                !has_ended || frame.kind == Kind::RstStream,
                "{frame:?} behind the end"
            );
            if frame.kind == Kind::Data {
                content.extend_from_slice(&frame.payload);
            }
            has_ended |= matches!(frame.kind, Kind::Data | Kind::Headers)
                && frame.flags & flags::END_STREAM != 0;
        }
        (content, has_ended)
    }

    /// The status of each response in these frames.
    pub fn statuses(frames: &[Frame]) -> Vec<(u32, String)> {
        let heads = frames.iter().filter(|frame| frame.kind == Kind::Headers);
        heads
            .filter_map(|head| {
                let text = String::from_utf8_lossy(&head.payload);
                let status = text.strip_prefix(":status: ")?.get(..3)?.to_owned();
                Some((head.stream, status))
            })
            .collect()
    }

    /// The codes of RST_STREAM and GOAWAY in these frames, by stream; 0 is GOAWAY.
    pub fn errors(frames: &[Frame]) -> Vec<(u32, u32)> {
        let code = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
        let of = |frame: &Frame| match frame.kind {
            Kind::RstStream => Some((frame.stream, code(&frame.payload))),
            Kind::GoAway => Some((0, code(&frame.payload[4..8]))),
            _ => None,
        };
        frames.iter().filter_map(of).collect()
    }

    /// For so long the server waits for a part of a file that it is to send.
    pub fn read_for(&mut self, ms: u64) -> &mut Self {
        self.now = Millis(self.now.0 + ms);
        let session = self.session.as_mut().expect("an open connection");
        session.cached(cx!(self));
        self.drive();
        self
    }

    /// Time passes, and the session learns of each deadline when it passes.
    pub fn pass(&mut self, ms: u64) -> &mut Self {
        let end = Millis(self.now.0 + ms);
        for _ in 0..10_000 {
            let deadline = self.session.as_ref().and_then(Session::deadline);
            let Some(deadline) = deadline.filter(|deadline| *deadline <= end) else {
                self.now = end;
                return self;
            };
            self.now = self.now.max(deadline);
            let session = self.session.as_mut().expect("an open connection");
            session.expired(cx!(self));
            self.drive();
        }
        panic!("deadlines that never move on: a loop would spin");
    }

    pub fn drain(&mut self) -> &mut Self {
        let session = self.session.as_mut().expect("an open connection");
        session.draining(cx!(self));
        self.drive();
        self
    }

    pub fn eof(&mut self) -> &mut Self {
        let session = self.session.as_mut().expect("an open connection");
        session.received_eof(cx!(self));
        self.drive();
        self
    }

    /// The socket takes what was held.
    pub fn release(&mut self) -> &mut Self {
        self.hold_output = false;
        self.take_batch()
    }

    /// The socket takes what was held, and what comes then is held again.
    pub fn take_batch(&mut self) -> &mut Self {
        if let Some(transmit) = self.held.take() {
            self.deliver(transmit);
        }
        self.drive();
        self
    }

    /// A worker ends the blocking step of this stream.
    pub fn complete(&mut self, stream: u32) -> &mut Self {
        let mut exchange = self.parked.remove(&stream).expect("a parked exchange");
        exchange.response.body = Body::Bytes(b"blocked".to_vec());
        let session = self.session.as_mut().expect("an open connection");
        session.completed(exchange, cx!(self));
        self.drive();
        self
    }

    /// An app answers; its content follows.
    pub fn answer(&mut self, stream: u32, len: Option<u64>) -> &mut Self {
        self.answer_with(stream, Body::Stream { len })
    }

    /// An app answers with this content.
    pub fn answer_with(&mut self, stream: u32, body: Body) -> &mut Self {
        let app = self.apps.get_mut(&stream).expect("an app");
        let mut exchange = app.exchange.take().expect("its request");
        exchange.response.body = body;
        let session = self.session.as_mut().expect("an open connection");
        session.answered(exchange, cx!(self));
        self.drive();
        self
    }

    pub fn produce(&mut self, stream: u32, piece: Piece) -> &mut Self {
        if let Piece::Data(bytes) = &piece {
            let app = self.apps.get_mut(&stream).expect("an app");
            app.room = app.room.checked_sub(bytes.len()).expect("room");
        }
        let session = self.session.as_mut().expect("an open connection");
        session.produced(StreamId(stream), piece, cx!(self));
        self.drive();
        self
    }

    pub fn consume(&mut self, stream: u32, bytes: usize) -> &mut Self {
        let session = self.session.as_mut().expect("an open connection");
        session.consumed(StreamId(stream), bytes, cx!(self));
        self.drive();
        self
    }

    fn drive(&mut self) {
        for _ in 0..100_000 {
            let Some(session) = &mut self.session else {
                return;
            };
            match session.next_action(cx!(self)) {
                Action::Run(mut exchange) => {
                    self.ran.push(exchange.stream.0);
                    let outcome = (self.handle)(&mut exchange, cx!(self));
                    session.ran(exchange, outcome, cx!(self));
                }
                Action::Block(exchange) => {
                    let stream = exchange.stream.0;
                    assert!(self.parked.insert(stream, exchange).is_none());
                    if !self.hold_blocking {
                        let mut exchange = self.parked.remove(&stream).unwrap();
                        exchange.response.body = Body::Bytes(b"blocked".to_vec());
                        session.completed(exchange, cx!(self));
                    }
                }
                Action::Start(exchange) => {
                    let app = App {
                        room: exchange.stream_window_bytes,
                        has_end: matches!(exchange.request.body, RequestBody::Empty),
                        ..App::default()
                    };
                    let stream = exchange.stream.0;
                    let app = App {
                        exchange: Some(exchange),
                        ..app
                    };
                    assert!(self.apps.insert(stream, app).is_none());
                }
                Action::Offer(stream, piece) => {
                    let app = self.apps.get_mut(&stream.0).expect("an app");
                    assert!(!app.has_end, "the end twice");
                    match piece {
                        Piece::Data(bytes) => app.content.extend_from_slice(&bytes),
                        Piece::Trailers(fields) => app.trailers = Some(fields),
                        Piece::End => app.has_end = true,
                        other => panic!("{other:?}"),
                    }
                }
                Action::Pull(stream, room) => {
                    self.apps.get_mut(&stream.0).expect("an app").room += room;
                }
                Action::Cancel(stream) => self.cancelled.push(stream.0),
                Action::Send { transmit, then } => {
                    self.then = Some(then);
                    assert!(self.held.is_none(), "two batches out");
                    assert!(!self.has_finished, "Send after Finish");
                    self.batch_bytes_max = self.batch_bytes_max.max(transmit.remaining());
                    match self.hold_output {
                        true => self.held = Some(transmit),
                        false => self.deliver(transmit),
                    }
                }
                Action::ReceivePending { .. } => session.nothing_pending(cx!(self)),
                Action::Finish => {
                    assert!(!self.has_finished && self.held.is_none());
                    self.has_finished = true;
                }
                Action::Wait { read, .. } => {
                    self.reads = read;
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
        while let Some(chunk) = transmit.front() {
            let Chunk::Memory(bytes) = chunk else {
                panic!("a file in memory")
            };
            let len = bytes.len() as u64;
            self.unparsed.extend_from_slice(bytes);
            transmit.advance(len);
        }
        let session = self.session.as_mut().expect("an open connection");
        session.sent(transmit, cx!(self));
        self.parse();
    }

    fn parse(&mut self) {
        let bytes = std::mem::take(&mut self.unparsed);
        let mut rest = &bytes[..];
        while let Some((head, behind)) = rest.split_first_chunk::<HEAD_BYTES>() {
            let head = FrameHead::parse(head);
            head.check().expect("a frame that may be");
            let payload = &behind[..head.len];
            rest = &behind[head.len..];
            if matches!(head.kind, Kind::Headers | Kind::Continuation) {
                self.block.extend_from_slice(payload);
                if !head.has(flags::END_HEADERS) {
                    continue;
                }
            }
            let payload = match std::mem::take(&mut self.block) {
                block if block.is_empty() => payload.to_vec(),
                block => {
                    let mut lines = Vec::new();
                    let decoded = self.decoder.decode(&block, &mut Vec::new(), |name, value| {
                        assert!(!name.iter().any(u8::is_ascii_uppercase));
                        lines.extend([name, b": ", value, b"\n"].concat());
                    });
                    decoded.expect("a field block");
                    lines
                }
            };
            self.frames.push(Frame {
                kind: head.kind,
                flags: head.flags,
                stream: head.stream,
                payload,
            });
        }
        assert!(rest.is_empty(), "a batch ends with a frame");
    }
}
