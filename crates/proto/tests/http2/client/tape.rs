//! Frames of a server, and what a client makes of them.

use loadline_proto::hpack::{Encoder, Indexing};
pub use loadline_proto::http2::frame::frame;
use loadline_proto::http2::frame::{FrameHead, HEAD_BYTES, Kind, PREFACE, Setting, flags};
use loadline_proto::{
    ClientEvent, Http2Client, Http2Fields, Limits, RequestBlocks, StreamObserver,
};

pub use crate::connection::Frame;

pub fn settings(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (id, value) in settings {
        let (id, value) = (*id, *value);
        Setting { id, value }.write(&mut payload);
    }
    frame(Kind::Settings, 0, 0, &payload)
}

/// Fields as literals, `name: value` on each line.
pub fn block(lines: &str) -> Vec<u8> {
    let (mut encoder, mut block) = (Encoder::default(), Vec::new());
    for line in lines.lines() {
        let at = line[1..].find(": ").unwrap() + 1;
        let (name, value) = (&line[..at], &line[at + 2..]);
        encoder.field(name.as_bytes(), value.as_bytes(), Indexing::Not, &mut block);
    }
    block
}

pub fn headers(of: u8, stream: u32, lines: &str) -> Vec<u8> {
    frame(
        Kind::Headers,
        of | flags::END_HEADERS,
        stream,
        &block(lines),
    )
}

pub fn data(of: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    frame(Kind::Data, of, stream, content)
}

pub fn end() -> u8 {
    flags::END_STREAM
}

/// A request without content.
pub fn request(method: &str) -> RequestBlocks {
    let fields = Http2Fields {
        method: method.as_bytes().to_vec(),
        scheme: "http",
        authority: b"h".to_vec(),
        path: b"/".to_vec(),
        fields: vec![(b"user-agent".to_vec(), b"test".to_vec())],
    };
    RequestBlocks::prepare(&[fields]).remove(0)
}

/// What has happened, in order, and the content of each slot.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub events: Vec<ClientEvent>,
    pub content: Vec<Vec<u8>>,
    pub fields: Vec<String>,
}

impl StreamObserver for Seen {
    fn field(&mut self, slot: u32, status: u16, name: &[u8], value: &[u8]) {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let line = format!("{slot} {status} {}: {}", text(name), text(value));
        self.fields.push(line);
    }

    fn content(&mut self, slot: u32, piece: &[u8]) {
        let slot = slot as usize;
        if self.content.len() <= slot {
            self.content.resize(slot + 1, Vec::new());
        }
        self.content[slot].extend_from_slice(piece);
    }
}

impl Seen {
    pub fn take(&mut self, client: &mut Http2Client, mut bytes: &[u8]) {
        let limits = Limits::default();
        while let Some(event) = client.receive(&mut bytes, &limits, self) {
            self.events.push(event);
        }
        assert!(bytes.is_empty());
    }
}

/// A client that has been greeted.
pub fn greeted(slots: u32) -> Http2Client {
    let mut client = Http2Client::new(slots, 100);
    assert!(client.output().starts_with(PREFACE) && !client.is_established());
    let mut seen = Seen::default();
    seen.take(&mut client, &settings(&[]));
    assert_eq!(seen.events, [ClientEvent::Settings]);
    assert!(client.is_established());
    let out = drained(&mut client);
    let of_connection = |frame: &Frame| frame.stream == 0;
    assert!(out.iter().all(of_connection));
    client
}

/// What it sends, as frames.
pub fn drained(client: &mut Http2Client) -> Vec<Frame> {
    let mut bytes = client.output().to_vec();
    client.sent(bytes.len());
    if bytes.starts_with(PREFACE) {
        bytes.drain(..PREFACE.len());
    }
    frames(&bytes)
}

pub fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() {
        let head = FrameHead::parse(head);
        let (payload, rest) = rest.split_at(head.len);
        frames.push(Frame {
            kind: head.kind,
            flags: head.flags,
            stream: head.stream,
            payload: payload.to_vec(),
        });
        bytes = rest;
    }
    assert!(bytes.is_empty());
    frames
}

/// What becomes of GETs in slots 0, 1, ... when these bytes come.
pub fn answered(gets: u32, bytes: &[u8]) -> (Http2Client, Seen) {
    let mut client = greeted(gets);
    for slot in 0..gets {
        client.request(slot, &request("GET"), b"");
    }
    drained(&mut client);
    let mut seen = Seen::default();
    seen.take(&mut client, bytes);
    (client, seen)
}
