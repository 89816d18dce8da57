//! A protocol for tests with many streams on one connection, as HTTP/2 has them.
//!
//! A frame is a stream's number and a length, two bytes each, and that many bytes; none end the
//! stream's input or output. On each stream HTTP/1 is spoken, by a session of its own.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use loadline_base::{Millis, Segment, Transmit};
use loadline_proto::{
    Action, ClientKey, CloseReason, Computation, ConnectionRecord, Context, Exchange, Fill,
    Http1Session, Outcome, Piece, Protocol, Security, Session, SessionConfig, StreamId, Then,
};

const FRAME_BYTES_MAX: usize = 60_000;

/// What the connections of such a server speak.
pub const PROTOCOL: Protocol = Protocol::Other(|config, peer, _| {
    Box::new(ManyStreams {
        config: Arc::clone(config),
        peer,
        streams: Vec::new(),
        next: 0,
        unread: Vec::new(),
        out: Vec::new(),
        is_sending: false,
        eof: false,
        is_draining: false,
        is_closed: false,
        record: None,
    })
});

/// A frame, or as many as these bytes need.
pub fn frames(stream: u16, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in bytes.chunks(FRAME_BYTES_MAX) {
        out.extend(header(StreamId(u32::from(stream)), piece.len()));
        out.extend_from_slice(piece);
    }
    out
}

/// The end of a stream.
pub fn end(stream: u16) -> [u8; 4] {
    header(StreamId(u32::from(stream)), 0)
}

/// The frame at the beginning of these bytes: its stream and its content.
pub fn next_frame(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let ([s0, s1, l0, l1], rest) = bytes.split_first_chunk::<4>()?;
    let len = usize::from(u16::from_be_bytes([*l0, *l1]));
    Some((u16::from_be_bytes([*s0, *s1]), rest.get(..len)?))
}

fn header(stream: StreamId, len: usize) -> [u8; 4] {
    let ([s0, s1], [l0, l1]) = ((stream.0 as u16).to_be_bytes(), (len as u16).to_be_bytes());
    [s0, s1, l0, l1]
}

#[derive(Debug)]
struct Stream {
    id: StreamId,
    http: Http1Session,
    /// It waits for an event.
    rests: bool,
    /// Its output is in `out`, or on its way.
    is_sending: bool,
    has_ended: bool,
}

#[derive(Debug)]
struct ManyStreams {
    config: Arc<SessionConfig>,
    peer: Option<SocketAddr>,
    streams: Vec<Stream>,
    /// Whose turn it is.
    next: usize,
    unread: Vec<u8>,
    out: Vec<Segment>,
    is_sending: bool,
    eof: bool,
    is_draining: bool,
    is_closed: bool,
    record: Option<Box<ConnectionRecord>>,
}

impl ManyStreams {
    fn stream(&mut self, id: StreamId) -> Option<&mut Stream> {
        let stream = self.streams.iter_mut().find(|stream| stream.id == id)?;
        stream.rests = false;
        Some(stream)
    }

    fn every(&mut self, mut event: impl FnMut(&mut Http1Session)) {
        for stream in &mut self.streams {
            stream.rests = false;
            event(&mut stream.http);
        }
    }

    /// The output of a stream, in frames. Files stay files.
    fn put(out: &mut Vec<Segment>, id: StreamId, transmit: Transmit) {
        for segment in transmit.into_segments() {
            match segment {
                Segment::File { file, offset, len } => {
                    let mut at = 0;
                    while at < len {
                        let piece = (len - at).min(FRAME_BYTES_MAX as u64);
                        out.push(Segment::Buffer(header(id, piece as usize).to_vec().into()));
                        out.push(Segment::File {
                            file: Arc::clone(&file),
                            offset: offset + at,
                            len: piece,
                        });
                        at += piece;
                    }
                }
                Segment::Buffer(bytes) => {
                    out.push(Segment::Buffer(frames(id.0 as u16, &bytes).into()));
                }
                Segment::Shared { bytes, start, end } => {
                    let framed = frames(id.0 as u16, &bytes[start..end]);
                    out.push(Segment::Buffer(framed.into()));
                }
            }
        }
    }

    /// The next order of the stream at this place; `None`: it waits, or is gone.
    fn order_of(&mut self, index: usize, cx: &mut Context<'_>) -> Option<Action> {
        loop {
            let stream = &mut self.streams[index];
            let id = stream.id;
            let order = Http1Session::next_action(&mut stream.http, cx);
            match order {
                Action::Run(mut exchange) => {
                    exchange.stream = id;
                    return Some(Action::Run(exchange));
                }
                Action::Block(mut exchange) => {
                    exchange.stream = id;
                    return Some(Action::Block(exchange));
                }
                Action::Start(mut exchange) => {
                    exchange.stream = id;
                    return Some(Action::Start(exchange));
                }
                Action::Offer(_, piece) => return Some(Action::Offer(id, piece)),
                Action::Pull(_, room) => return Some(Action::Pull(id, room)),
                Action::Cancel(_) => return Some(Action::Cancel(id)),
                Action::Send { transmit, .. } => {
                    stream.is_sending = true;
                    Self::put(&mut self.out, id, transmit);
                }
                Action::ReceivePending { .. } => stream.http.nothing_pending(cx),
                Action::Finish => {
                    stream.has_ended = true;
                    self.out
                        .push(Segment::Buffer(header(id, 0).to_vec().into()));
                    stream.http.received_eof(cx);
                }
                Action::Close => {
                    if !stream.has_ended {
                        self.out
                            .push(Segment::Buffer(header(id, 0).to_vec().into()));
                    }
                    self.streams[index].http.ended(cx);
                    self.streams.remove(index);
                    return None;
                }
                Action::Wait { .. } => {
                    stream.rests = true;
                    return None;
                }
                action @ (Action::Fill(_) | Action::Compute(_)) => {
                    panic!("{action:?} without a layer")
                }
            }
        }
    }
}

impl Session for ManyStreams {
    fn next_action(&mut self, cx: &mut Context<'_>) -> Action {
        while let Some(index) = {
            let from = self.next.min(self.streams.len());
            let mut places = (from..self.streams.len()).chain(0..from);
            places.find(|index| !self.streams[*index].rests)
        } {
            self.next = index + 1;
            if let Some(action) = self.order_of(index, cx) {
                return action;
            }
        }
        if self.is_closed {
            return Action::Close;
        }
        if !self.is_sending && !self.out.is_empty() {
            self.is_sending = true;
            return Action::Send {
                transmit: Transmit::new(std::mem::take(&mut self.out)),
                then: Then::More,
            };
        }
        let may_end = self.eof || self.is_draining;
        if may_end && self.streams.is_empty() && !self.is_sending {
            self.is_closed = true;
            return Action::Close;
        }
        Action::Wait {
            read: !self.eof,
            hang_up: false,
        }
    }

    fn received(&mut self, bytes: &mut [u8], cx: &mut Context<'_>) {
        self.unread.extend_from_slice(bytes);
        let unread = std::mem::take(&mut self.unread);
        let mut at = 0;
        while let Some((number, content)) = next_frame(&unread[at..]) {
            at += 4 + content.len();
            let id = StreamId(u32::from(number));
            if self.stream(id).is_none() {
                if content.is_empty() {
                    continue; // it is over on both sides
                }
                self.streams.push(Stream {
                    id,
                    http: Http1Session::new(&self.config, self.peer, cx),
                    rests: false,
                    is_sending: false,
                    has_ended: false,
                });
            }
            let stream = self.stream(id).unwrap();
            match content {
                [] => stream.http.received_eof(cx),
                content => stream.http.received(&mut content.to_vec(), cx),
            }
        }
        self.unread = unread[at..].to_vec();
    }

    fn layer_opened(&mut self, _security: &Arc<Security>, _cx: &mut Context<'_>) {}

    fn received_eof(&mut self, cx: &mut Context<'_>) {
        self.eof = true;
        self.every(|http| http.received_eof(cx));
    }

    fn delayed(&mut self, _us: u64) {}

    fn half_closed(&mut self) {
        self.every(Http1Session::half_closed);
    }

    fn nothing_pending(&mut self, _cx: &mut Context<'_>) {}

    fn hold_requests(&mut self, _are_held: bool) -> bool {
        false
    }

    fn progressed(&mut self, _bytes: u64, _cx: &mut Context<'_>) {}

    fn sent(&mut self, transmit: Transmit, cx: &mut Context<'_>) {
        cx.pool.give_segments(transmit.into_segments());
        self.is_sending = false;
        let waits: Vec<StreamId> = self.out.iter().filter_map(stream_of).collect();
        for stream in &mut self.streams {
            if stream.is_sending && !waits.contains(&stream.id) {
                stream.is_sending = false;
                stream.rests = false;
                stream.http.sent(Transmit::default(), cx);
            }
        }
    }

    fn filled(&mut self, _fill: Box<Fill>, _cx: &mut Context<'_>) {}

    fn not_cached(&mut self, _fill: Box<Fill>, _cx: &mut Context<'_>) {}

    fn cached(&mut self, _cx: &mut Context<'_>) {}

    fn computed(&mut self, _: Box<dyn Computation>, _cx: &mut Context<'_>) {}

    fn peer_gone(&mut self, cx: &mut Context<'_>) {
        self.is_closed = true;
        self.every(|http| http.peer_gone(cx));
    }

    fn ran(&mut self, exchange: Box<Exchange>, outcome: Outcome, cx: &mut Context<'_>) {
        match self.stream(exchange.stream) {
            Some(stream) => stream.http.ran(exchange, outcome, cx),
            None => cx.pool.give_exchange(exchange),
        }
    }

    fn completed(&mut self, exchange: Box<Exchange>, cx: &mut Context<'_>) {
        match self.stream(exchange.stream) {
            Some(stream) => stream.http.completed(exchange, cx),
            None => cx.pool.give_exchange(exchange),
        }
    }

    fn answered(&mut self, exchange: Box<Exchange>, cx: &mut Context<'_>) {
        match self.stream(exchange.stream) {
            Some(stream) => stream.http.answered(exchange, cx),
            None => cx.pool.give_exchange(exchange),
        }
    }

    fn consumed(&mut self, stream: StreamId, bytes: usize, cx: &mut Context<'_>) {
        if let Some(stream) = self.stream(stream) {
            stream.http.consumed(StreamId(0), bytes, cx);
        }
    }

    fn produced(&mut self, stream: StreamId, piece: Piece, cx: &mut Context<'_>) {
        if let Some(stream) = self.stream(stream) {
            stream.http.produced(StreamId(0), piece, cx);
        }
    }

    fn expired(&mut self, cx: &mut Context<'_>) {
        self.every(|http| http.expired(cx));
    }

    fn draining(&mut self, cx: &mut Context<'_>) {
        self.is_draining = true;
        self.every(|http| http.draining(cx));
    }

    fn refuse(&mut self, _reason: CloseReason, _cx: &mut Context<'_>) {
        self.is_closed = true;
    }

    fn abort(&mut self, reason: CloseReason) {
        self.is_closed = true;
        self.every(|http| http.abort(reason));
    }

    fn keep_record(&mut self, record: Option<Box<ConnectionRecord>>) {
        self.record = record;
    }

    fn release(&mut self, cx: &mut Context<'_>) {
        self.every(|http| http.release(cx));
    }

    fn ended(&mut self, cx: &mut Context<'_>) -> Option<Box<ConnectionRecord>> {
        for mut stream in self.streams.drain(..) {
            stream.http.ended(cx);
        }
        self.record.take()
    }

    fn deadline(&self) -> Option<Millis> {
        let deadlines = self.streams.iter().filter_map(|it| it.http.deadline());
        deadlines.min()
    }

    fn is_idle(&self) -> bool {
        self.streams.is_empty() && self.unread.is_empty() && self.out.is_empty() && !self.is_sending
    }

    fn client_address(&self) -> Option<IpAddr> {
        self.streams.first().and_then(|it| it.http.client_address())
    }

    fn proxied_client(&self) -> Option<ClientKey> {
        self.streams.first().and_then(|it| it.http.proxied_client())
    }

    fn is_before_handshake(&self) -> bool {
        false
    }

    fn handshake_us(&self, _now: Millis) -> u64 {
        0
    }

    fn is_multiplexed(&self) -> bool {
        true
    }

    fn has_steps(&self) -> bool {
        self.streams.iter().any(|it| it.http.has_steps())
    }

    fn is_cut(&self) -> bool {
        self.streams.iter().any(|it| it.http.is_cut())
    }

    fn has_work_out(&self) -> bool {
        false
    }

    fn awaits_client_since(&self) -> Option<Millis> {
        let since = self.streams.iter().map(|it| it.http.awaits_client_since());
        since.min().flatten()
    }

    fn held_bytes(&self) -> usize {
        let streams = self.streams.iter().map(|stream| stream.http.held_bytes());
        self.unread.capacity() + streams.sum::<usize>()
    }
}

/// Whose frame a piece of output begins.
fn stream_of(segment: &Segment) -> Option<StreamId> {
    let Segment::Buffer(bytes) = segment else {
        return None;
    };
    let number = bytes.first_chunk::<2>()?;
    Some(StreamId(u32::from(u16::from_be_bytes(*number))))
}
