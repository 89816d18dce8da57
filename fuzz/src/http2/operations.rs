//! What a client does, as the input of a target says: whole frames, of which some are wrong in one way.

use loadline_proto::hpack::{Encoder, Indexing};
use loadline_proto::http2::frame::{Kind, Setting, flags, frame};

/// How many, at most: no bound that is there against floods is met.
const OPERATIONS_MAX: usize = 60;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A request on a new stream; which of `REQUESTS`.
    Request(usize),
    /// Content.
    Data,
    /// HEADERS on a stream that was begun: which of `TRAILERS`.
    Trailers(usize),
    /// RST_STREAM.
    Reset,
    /// WINDOW_UPDATE.
    Window,
    /// SETTINGS.
    Settings,
    /// PING.
    Ping,
    /// PRIORITY.
    Priority,
    /// PRIORITY_UPDATE, a type that is unknown to `h2`.
    PriorityUpdate,
    /// GOAWAY.
    GoAway,
    /// A frame of a type that clients do not send, or that there is not.
    Other,
}

/// What is sent for it.
#[derive(Debug)]
pub struct Operation {
    /// Which.
    pub what: What,
    /// Its stream; 0 is the connection.
    pub stream: u32,
    /// Its frames.
    pub bytes: Vec<u8>,
}

/// Operations, one after the other.
pub struct Operations<'i> {
    input: &'i [u8],
    left: usize,
    last_stream: u32,
    encoder: Encoder,
}

type Field = (&'static str, &'static str);

const METHOD: Field = (":method", "GET");
const SCHEME: Field = (":scheme", "http");
const AUTHORITY: Field = (":authority", "a");
const PATH: Field = (":path", "/");
const GET: [Field; 4] = [METHOD, SCHEME, AUTHORITY, PATH];

/// Take the place of `PATH`: each says how long the response is.
const PATHS: [&str; 8] = [
    "/", "/1", "/1000", "/16384", "/16385", "/65535", "/65536", "/70000",
];

/// Fields of requests: a good one, with a field more, and others.
const MORE: [Field; 18] = [
    ("accept", "*/*"),
    ("te", "trailers"),
    ("te", "gzip"),
    ("connection", "close"),
    ("transfer-encoding", "chunked"),
    ("Accept", "*/*"),
    ("host", "a"),
    ("host", "b"),
    ("x", " a"),
    ("x", "a\nb"),
    ("content-length", "5"),
    ("content-length", "x"),
    ("expect", "100-continue"),
    ("cookie", "a=b"),
    (":method", "GET"),
    (":status", "200"),
    (":other", "1"),
    ("priority", "u=1, i"),
];
const REQUESTS: [&[Field]; 12] = [
    &[SCHEME, AUTHORITY, PATH],
    &[METHOD, AUTHORITY, PATH],
    &[METHOD, SCHEME, AUTHORITY],
    &[METHOD, SCHEME, PATH],
    &[(":method", "GET"), (":scheme", "https"), AUTHORITY, PATH],
    &[METHOD, SCHEME, AUTHORITY, (":path", "")],
    &[METHOD, SCHEME, AUTHORITY, (":path", "a")],
    &[(":method", "CONNECT"), AUTHORITY],
    &[(":method", "OPTIONS"), SCHEME, AUTHORITY, (":path", "*")],
    &[METHOD, SCHEME, AUTHORITY, ("x", "1"), PATH],
    &[
        METHOD,
        SCHEME,
        AUTHORITY,
        PATH,
        ("content-length", "1"),
        ("content-length", "2"),
    ],
    &[],
];
const TRAILERS: [&[Field]; 4] = [&[("x", "1")], &[], &[PATH], &[("connection", "close")]];

impl<'i> Operations<'i> {
    /// As this input says.
    #[must_use]
    pub fn new(input: &'i [u8]) -> Self {
        Self {
            input,
            left: OPERATIONS_MAX,
            last_stream: 0,
            encoder: Encoder::default(),
        }
    }

    /// Each has four bytes: what, which of them, its stream, and flags. A request has the length of its response
    /// in place of the stream.
    fn operation(&mut self, [what, which, stream, flag]: [u8; 4]) -> Operation {
        let which = usize::from(which);
        let path = PATHS[usize::from(stream) % PATHS.len()];
        let stream = match stream {
            192.. => u32::from(stream % 16), // any, perhaps none
            _ => self.last_stream.saturating_sub(u32::from(stream % 8) * 2), // one of the last eight
        };
        let payload = |len: usize| vec![b'x'; len];
        match what % 13 {
            0..3 => self.request(which, path, flag),
            3..5 => self.frame(
                What::Data,
                Kind::Data,
                flag & 0x9,
                stream,
                &payload(which * 50),
            ),
            5 => self.trailers(which, stream, flag),
            6 => self.frame(What::Reset, Kind::RstStream, 0, stream, &[0, 0, 0, 8]),
            7 => {
                let more = [1, 0, 1_000, (1 << 31) - 1, 1 << 30, 65_536][which % 6];
                let more = u32::to_be_bytes(more);
                self.frame(What::Window, Kind::WindowUpdate, 0, stream, &more)
            }
            8 => self.settings(which),
            9 => {
                let payload = payload(if which % 8 == 7 { 7 } else { 8 });
                self.frame(What::Ping, Kind::Ping, flag & 1, 0, &payload)
            }
            10 => {
                let parent = [0, 1, stream, 3][which % 4].to_be_bytes();
                let payload = [&parent[..], &[0]].concat();
                let len = payload.len() - usize::from(which % 16 == 15);
                self.frame(What::Priority, Kind::Priority, 0, stream, &payload[..len])
            }
            11 => {
                let kinds = [Kind::Unknown, Kind::Continuation, Kind::PushPromise];
                match kinds.get(which % 4) {
                    Some(kind) => {
                        self.frame(What::Other, *kind, flags::END_HEADERS, stream, &[0; 8])
                    }
                    None => self.frame(What::GoAway, Kind::GoAway, 0, 0, &[0; 8]),
                }
            }
            _ => self.priority_update(which, stream),
        }
    }

    fn request(&mut self, which: usize, path: &'static str, flag: u8) -> Operation {
        let which = which % (MORE.len() + REQUESTS.len());
        let mut fields = match MORE.get(which) {
            Some(field) => [&GET[..], &[*field]].concat(),
            None => REQUESTS[which - MORE.len()].to_vec(),
        };
        for field in fields.iter_mut().filter(|field| **field == PATH) {
            field.1 = path;
        }
        self.last_stream += match self.last_stream {
            0 => 1,
            _ if flag & 0x40 != 0 => 4,
            _ => 2,
        };
        let stream = self.last_stream;
        let what = What::Request(which);
        self.head(what, stream, &fields, flag)
    }

    fn trailers(&mut self, which: usize, stream: u32, flag: u8) -> Operation {
        let which = which % TRAILERS.len();
        let what = What::Trailers(which);
        self.head(what, stream, TRAILERS[which], flag)
    }

    /// A field block in one frame or two, perhaps with padding and a priority.
    fn head(&mut self, what: What, stream: u32, fields: &[Field], flag: u8) -> Operation {
        let mut block = Vec::new();
        self.encoder.begin(&mut block);
        for (index, (name, value)) in fields.iter().enumerate() {
            let indexing = [Indexing::Kept, Indexing::Not, Indexing::Never][index % 3];
            let (name, value) = (name.as_bytes(), value.as_bytes());
            self.encoder.field(name, value, indexing, &mut block);
        }
        let (first, second) = match flag & 0x10 {
            0 => (&block[..], None),
            _ => {
                let (first, second) = block.split_at(block.len() / 2);
                (first, Some(second))
            }
        };
        let mut payload = Vec::new();
        if flag & flags::PADDED != 0 {
            payload.push(3);
        }
        if flag & flags::PRIORITY != 0 {
            payload.extend([0, 0, 0, 0, 15]);
        }
        payload.extend_from_slice(first);
        if flag & flags::PADDED != 0 {
            payload.extend([0; 3]);
        }
        let kept = flag & (flags::END_STREAM | flags::PADDED | flags::PRIORITY);
        let end = if second.is_none() {
            flags::END_HEADERS
        } else {
            0
        };
        let mut operation = self.frame(what, Kind::Headers, kept | end, stream, &payload);
        if let Some(second) = second {
            let more = self.frame(what, Kind::Continuation, flags::END_HEADERS, stream, second);
            operation.bytes.extend(more.bytes);
        }
        operation
    }

    /// For a request that has come, or for the next one (RFC 9218 section 7.1).
    fn priority_update(&mut self, which: usize, stream: u32) -> Operation {
        let of = match which & 0x40 {
            0 => stream,
            _ => (self.last_stream + 2) | 1,
        };
        let value = ["u=0", "u=7, i", "i", "", "u=8", "u"][which % 6];
        let mut payload = [&of.to_be_bytes()[..], value.as_bytes()].concat();
        if which % 16 == 15 {
            payload.truncate(3);
        }
        let place = if which > 250 { stream } else { 0 };
        self.frame(
            What::PriorityUpdate,
            Kind::PriorityUpdate,
            0,
            place,
            &payload,
        )
    }

    fn settings(&mut self, which: usize) -> Operation {
        let (id, value) = [
            (Setting::INITIAL_WINDOW_SIZE, 0),
            (Setting::INITIAL_WINDOW_SIZE, 65_535),
            (Setting::INITIAL_WINDOW_SIZE, (1 << 31) - 1),
            (Setting::INITIAL_WINDOW_SIZE, 1 << 31),
            (Setting::MAX_FRAME_SIZE, 16_384),
            (Setting::MAX_FRAME_SIZE, 16_383),
            (Setting::ENABLE_PUSH, 0),
            (Setting::ENABLE_PUSH, 2),
            (Setting::HEADER_TABLE_SIZE, 0),
            (Setting::HEADER_TABLE_SIZE, 100_000),
            (Setting::MAX_CONCURRENT_STREAMS, 0),
            (0x99, 7),
        ][which % 12];
        let mut payload = Vec::new();
        Setting { id, value }.write(&mut payload);
        if which > 250 {
            payload.pop();
        }
        self.frame(What::Settings, Kind::Settings, 0, 0, &payload)
    }

    fn frame(
        &mut self,
        what: What,
        kind: Kind,
        flags: u8,
        stream: u32,
        payload: &[u8],
    ) -> Operation {
        Operation {
            what,
            stream,
            bytes: frame(kind, flags, stream, payload),
        }
    }
}

impl Iterator for Operations<'_> {
    type Item = Operation;

    fn next(&mut self) -> Option<Operation> {
        let (first, rest) = self.input.split_first_chunk::<4>()?;
        self.left = self.left.checked_sub(1)?;
        self.input = rest;
        Some(self.operation(*first))
    }
}
