//! Any frames, or any bytes, that a server sends to a client of HTTP/2: nothing panics, the same happens at each
//! cut, what waits to be sent is bounded, and what the client sends are requests that can be decoded, with content
//! within the windows of the server.
//!
//! The first byte sets flags, and says how the rest is cut (its lower six bits). Then come frames (`frames`), or
//! bytes. A client of HTTP/2 knows no time: pauses are left out.
#![no_main]

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use loadline_fuzz::frames::frames;
use loadline_fuzz::windows::Windows;
use loadline_proto::hpack::Decoder;
use loadline_proto::http2::frame::{FrameHead, HEAD_BYTES, Kind, PREFACE};
use loadline_proto::{
    ClientEvent, Http2Client, Http2Fields, Limits, RequestBlocks, StreamObserver,
};

const CUT: u8 = 0x3f;
/// The rest is sent as it is.
const RAW: u8 = 0x40;
/// The first request is given up whenever settings come.
const CANCEL: u8 = 0x80;

/// Into how many pieces about the input is cut.
const PIECES_MAX: usize = 16_384;

const SLOTS: usize = 4;
/// Content of requests up to 256 KiB, a thousand answers, and some heads.
const OUTPUT_BYTES_MAX: usize = 320 << 10;

/// A field block: `:status: 200`.
const RESPONSE: [u8; 1] = [0x88];
const AUTHORITY: &[u8] = b"a.example";

/// By slot.
static REQUESTS: LazyLock<Vec<RequestBlocks>> = LazyLock::new(|| {
    let requests = ["GET", "HEAD", "POST", "POST"].map(|method| Http2Fields {
        method: method.as_bytes().to_vec(),
        scheme: "http",
        authority: AUTHORITY.to_vec(),
        path: b"/".to_vec(),
        fields: vec![(b"user-agent".to_vec(), b"fuzz".to_vec())],
    });
    RequestBlocks::prepare(&requests)
});
/// Their content; the last is longer than a frame.
static BODIES: [&[u8]; SLOTS] = [b"", b"", b"abc", &[b'x'; 20_000]];

fuzz_target!(|bytes: &[u8]| {
    let Some((how, rest)) = bytes.split_first() else {
        return;
    };
    let server = match how & RAW {
        0 => frames(&[], rest, &RESPONSE).bytes,
        _ => rest.to_vec(),
    };
    let whole = play(*how, &server, server.len().max(1));
    let piece_min = server.len() / PIECES_MAX + 1;
    for piece in [usize::from(how & CUT).max(piece_min), piece_min] {
        let cut = play(*how, &server, piece);
        assert_eq!(cut, whole, "in pieces of {piece}");
    }
});

/// What a client has made of it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    events: Vec<ClientEvent>,
    /// Content of the responses that have not ended, by slot. Of those that fail, how much is shown depends on
    /// the cuts.
    content: [Vec<u8>; SLOTS],
    /// Content of those that have ended well.
    replies: Vec<Vec<u8>>,
    /// Digests: an index of one byte may be a field of 4 KiB, and a reset of 13 bytes may bring a request of 20 KB.
    fields: u64,
    output: u64,
}

impl StreamObserver for Seen {
    fn field(&mut self, slot: u32, status: u16, name: &[u8], value: &[u8]) {
        self.fields = digest(&(self.fields, slot, status, name, value));
    }

    fn content(&mut self, slot: u32, piece: &[u8]) {
        self.content[slot as usize].extend_from_slice(piece);
    }
}

fn digest(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

fn play(how: u8, bytes: &[u8], piece: usize) -> Seen {
    let mut play = Play {
        client: Http2Client::new(SLOTS as u32, 100),
        is_out: [false; SLOTS],
        is_over: false,
        windows: Windows::default(),
        decoder: Decoder::default(),
        seen: Seen::default(),
    };
    let limits = Limits::default();
    play.go_on();
    for mut rest in bytes.chunks(piece) {
        loop {
            let before = rest;
            let event = play.client.receive(&mut rest, &limits, &mut play.seen);
            play.windows.received(&before[..before.len() - rest.len()]);
            assert!(play.client.output().len() <= OUTPUT_BYTES_MAX);
            match event {
                Some(event) => play.happened(event, how),
                None => break,
            }
        }
        assert!(rest.is_empty());
    }
    play.send();
    play.seen
}

/// A client, and what is known of it. It acts behind events alone, which do not depend on the cuts.
struct Play {
    client: Http2Client,
    is_out: [bool; SLOTS],
    is_over: bool,
    windows: Windows,
    decoder: Decoder,
    seen: Seen,
}

impl Play {
    fn happened(&mut self, event: ClientEvent, how: u8) {
        self.seen.events.push(event);
        match event {
            ClientEvent::Reply { slot, reply } => {
                let content = self.free(slot);
                assert!((200..=599).contains(&reply.status));
                assert_eq!(reply.content_bytes, content.len() as u64);
                self.seen.replies.push(content);
            }
            ClientEvent::Failed { slot, .. } => drop(self.free(slot)),
            ClientEvent::Settings if how & CANCEL != 0 && self.is_out[0] => {
                self.client.cancel(0);
                drop(self.free(0));
            }
            ClientEvent::Fault(_) => self.is_over = true,
            ClientEvent::Settings | ClientEvent::GoingAway => {}
        }
        let out_count = self.is_out.iter().filter(|is_out| **is_out).count();
        assert_eq!(self.client.open_count() as usize, out_count);
        self.go_on();
    }

    /// A request is over. Returns what has come of its content.
    fn free(&mut self, slot: u32) -> Vec<u8> {
        let slot = slot as usize;
        assert!(std::mem::take(&mut self.is_out[slot]), "it was not out");
        std::mem::take(&mut self.seen.content[slot])
    }

    /// Sends what may be sent: content that has waited, and a request in each free slot.
    fn go_on(&mut self) {
        if !self.is_over {
            self.client.go_on(|slot| BODIES[slot as usize]);
        }
        for slot in 0..SLOTS {
            if !self.is_out[slot] && self.client.has_room() {
                self.is_out[slot] = true;
                self.client
                    .request(slot as u32, &REQUESTS[slot], BODIES[slot]);
            }
        }
        self.send();
    }

    /// All of the output leaves.
    fn send(&mut self) {
        let output = self.client.output();
        self.seen.output = digest(&(self.seen.output, output));
        let mut rest = output.strip_prefix(PREFACE).unwrap_or(output);
        while let Some((head, behind)) = rest.split_first_chunk::<HEAD_BYTES>() {
            let head = FrameHead::parse(head);
            let (payload, behind) = behind.split_at(head.len);
            rest = behind;
            self.windows.sent(head);
            if head.kind == Kind::Headers {
                check_request(&mut self.decoder, payload);
            }
        }
        assert!(rest.is_empty(), "a part of a frame");
        let len = output.len();
        self.client.sent(len);
    }
}

/// The server's table is as the client takes it to be.
fn check_request(decoder: &mut Decoder, block: &[u8]) {
    let mut fields = Vec::new();
    let decoded = decoder.decode(block, &mut Vec::new(), |name, value| {
        fields.push((name.to_vec(), value.to_vec()));
    });
    decoded.expect("a field block");
    assert_eq!(fields.len(), 5, "{fields:?}");
    for (name, value) in [
        (&b":authority"[..], AUTHORITY),
        (b":path", b"/"),
        (b"user-agent", b"fuzz"),
    ] {
        let is_it = |field: &(Vec<u8>, Vec<u8>)| field.0 == name && field.1 == value;
        assert!(fields.iter().any(is_it), "{fields:?}");
    }
}
