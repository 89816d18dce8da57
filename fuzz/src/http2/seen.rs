//! What a client has received, by frames.

use std::collections::BTreeMap;

use loadline_proto::hpack::Decoder;
use loadline_proto::http2::frame::{FrameHead, HEAD_BYTES, Kind, flags, number, unwrapped};

use super::CONTENT;
use crate::windows::Windows;

/// What became of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// A response has ended.
    Response {
        /// Its status.
        status: u16,
        /// How much content the request had, as it says.
        len: Option<u64>,
    },
    /// It was reset, for this reason.
    Reset(u32),
}

/// All of it.
#[derive(Debug, Default)]
pub struct Seen {
    decoder: Decoder,
    unread: Vec<u8>,
    block: Vec<u8>,
    /// Heads of responses.
    pub heads: BTreeMap<u32, Fate>,
    /// Content that has come, in bytes.
    pub content: BTreeMap<u32, usize>,
    /// What is left of the client's windows.
    pub windows: Windows,
    /// Those that have ended: by the first end that was received.
    pub streams: BTreeMap<u32, Fate>,
    /// Why the connection ends.
    pub go_away: Option<u32>,
    /// Answers to settings and to pings.
    pub acknowledgements: [usize; 2],
}

impl Seen {
    /// Reads more bytes.
    ///
    /// # Panics
    /// A frame is none, or has other content than its request asks for, or more than the windows have room for.
    pub fn read(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
        let unread = std::mem::take(&mut self.unread);
        let mut rest = &unread[..];
        while let Some((head, behind)) = rest.split_first_chunk::<HEAD_BYTES>() {
            let head = FrameHead::parse(head);
            let Some((payload, behind)) = behind.split_at_checked(head.len) else {
                break;
            };
            head.check().expect("a frame that may be");
            self.frame(head, payload);
            rest = behind;
        }
        self.unread = rest.to_vec();
    }

    fn frame(&mut self, head: FrameHead, payload: &[u8]) {
        self.windows.sent(head);
        match head.kind {
            Kind::Data if head.len > 0 => self.data(head, payload),
            Kind::Headers | Kind::Continuation => {
                self.block.extend_from_slice(payload);
                if head.has(flags::END_HEADERS) {
                    self.fields(head.stream);
                }
            }
            Kind::RstStream => self.end(head.stream, Some(Fate::Reset(number(payload)))),
            Kind::GoAway => self.go_away = Some(number(&payload[4..])),
            Kind::Settings if head.has(flags::ACK) => self.acknowledgements[0] += 1,
            Kind::Ping if head.has(flags::ACK) => self.acknowledgements[1] += 1,
            _ => {}
        }
        let may_end = matches!(head.kind, Kind::Data | Kind::Headers);
        if may_end && head.has(flags::END_STREAM) {
            self.end(head.stream, None);
        }
    }

    fn data(&mut self, head: FrameHead, payload: &[u8]) {
        let piece = unwrapped(head, payload).expect("padding that may be");
        let before = self.content.entry(head.stream).or_default();
        let range = *before..*before + piece.len();
        *before = range.end;
        // Errors have content of their own.
        if let Some(Fate::Response { status: 200, .. }) = self.heads.get(&head.stream) {
            assert!(CONTENT.get(range) == Some(piece), "other content");
        }
    }

    fn fields(&mut self, stream: u32) {
        let block = std::mem::take(&mut self.block);
        let (mut status, mut len) = (None, None);
        let decoded = self.decoder.decode(&block, &mut Vec::new(), |name, value| {
            let value = std::str::from_utf8(value).unwrap_or_default();
            match name {
                b":status" => status = value.parse().ok(),
                b"x-len" => len = value.parse().ok(),
                _ => {}
            }
        });
        decoded.expect("a field block");
        if let Some(status) = status.filter(|status| *status >= 200) {
            self.heads.insert(stream, Fate::Response { status, len });
        }
    }

    fn end(&mut self, stream: u32, fate: Option<Fate>) {
        let response = self.heads.get(&stream).copied();
        let fate = fate.or(response).expect("an end without a head");
        self.streams.entry(stream).or_insert(fate);
    }
}
