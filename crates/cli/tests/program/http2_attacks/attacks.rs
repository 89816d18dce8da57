//! The attacks: what is sent, how it ends, and what counts it.

use loadline_proto::hpack::{Encoder, Indexing};
use loadline_proto::http2::frame::{
    ErrorCode, Kind, PREFACE, Setting, WINDOW_BYTES, flags, write_frame,
};
use serde_json::Value;

use super::client::Seen;

pub(super) struct Attack {
    pub(super) name: &'static str,
    /// How its row in docs/supported-http.md begins.
    pub(super) row: &'static str,
    /// All that the client sends.
    pub(super) frames: Vec<u8>,
    pub(super) ends: Ends,
    pub(super) counts: Vec<Count>,
}

impl Attack {
    /// By how much each counter has grown, once that is enough.
    pub(super) fn grown(&self, before: &Value, after: &Value) -> Option<Vec<u64>> {
        let grown = |count: &Count| count.of(after) - count.of(before);
        let all: Vec<u64> = self.counts.iter().map(grown).collect();
        let mut pairs = self.counts.iter().zip(&all);
        let is_enough = pairs.all(|(count, grown)| *grown >= count.least);
        is_enough.then_some(all)
    }

    /// Whether this row of the manual is about it.
    pub(super) fn has_row(&self, row: &str) -> bool {
        row.strip_prefix("| ")
            .is_some_and(|row| row.starts_with(self.row))
    }
}

/// What ends, and how.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// The connection, by a GOAWAY of this code.
    Connection(ErrorCode),
    /// So many streams, by a RST_STREAM of this code each.
    Streams(ErrorCode, usize),
    /// A request, by a response of this status.
    Request(u16),
    /// The connection, without a word: the client reads nothing until then.
    Unread,
    /// So many streams or more, by a RST_STREAM of this code each.
    StreamsAtLeast(ErrorCode, usize),
    /// So many requests, by responses of this status, while one of another client has its response, of that status.
    RequestsBeside(u16, usize, u16),
}

impl Ends {
    /// Whether it has come so.
    pub(super) fn have_come(&self, seen: &Seen) -> bool {
        match *self {
            Self::Connection(code) => seen.go_away == Some(code as u32),
            Self::Streams(code, count) => {
                seen.resets.len() == count && seen.resets.iter().all(|it| *it == code as u32)
            }
            Self::Request(status) => seen.statuses == [status] && seen.resets.is_empty(),
            Self::Unread => seen.go_away.is_none(),
            Self::StreamsAtLeast(code, count) => {
                seen.resets.len() >= count && seen.resets.iter().all(|it| *it == code as u32)
            }
            Self::RequestsBeside(status, count, other) => {
                let statuses = &seen.statuses;
                let refused = statuses.iter().filter(|it| **it == status).count();
                refused == count && statuses.contains(&other) && seen.resets.is_empty()
            }
        }
    }

    /// Whether it has come, and the connection goes on.
    pub(super) fn can_stop(&self, seen: &Seen) -> bool {
        !matches!(self, Self::Connection(_) | Self::Unread) && self.have_come(seen)
    }
}

/// A counter, and by how much it grows.
#[derive(Debug)]
pub(super) struct Count {
    /// Where it is in `total` of the status page.
    pub(super) group: &'static str,
    pub(super) name: &'static str,
    pub(super) least: u64,
    pub(super) most: u64,
}

impl Count {
    pub(super) fn exactly(group: &'static str, name: &'static str, count: u64) -> Self {
        Self {
            group,
            name,
            least: count,
            most: count,
        }
    }

    pub(super) fn at_least(group: &'static str, name: &'static str, least: u64) -> Self {
        Self {
            most: u64::MAX,
            ..Self::exactly(group, name, least)
        }
    }

    /// What it counts in `total`.
    pub(super) fn of(&self, total: &Value) -> u64 {
        let value = &total[self.group][self.name];
        value
            .as_u64()
            .unwrap_or_else(|| panic!("{self:?}: {total}"))
    }

    /// The sum of its samples.
    pub(super) fn in_prometheus(&self, text: &str) -> u64 {
        let family = format!("loadline_{}_total{{", self.group);
        let label = format!("=\"{}\"}} ", self.name);
        let samples = text.lines().filter(|line| line.starts_with(&family));
        let values = samples.filter_map(|line| line.split_once(&label));
        values.map(|(_, value)| value.parse::<u64>().unwrap()).sum()
    }
}

// Rows of the manual.
const RESETS: &str = "Streams that are begun and reset";
pub(super) const WORK: &str = "The work behind streams that were reset";
const BLOCKS: &str = "A head in endless CONTINUATION frames";
const HEADS: &str = "Heads with more or larger fields";
const OVERHEAD: &str = "Frames that are hardly more than their heads";
const PINGS: &str = "Pings whose answers are not read";
pub(super) const WINDOWS: &str = "Tiny windows";
const CONTENT: &str = "Content byte by byte";
const FRAMES: &str = "Frames byte by byte";
const SILENCE: &str = "A silent connection";

/// No content of a response can be sent.
const SHUT: u32 = 0;

/// Requests, settings and the like, four times as many as a client may have reset.
const MANY: u32 = 2_000;

const CALM: Ends = Ends::Connection(ErrorCode::EnhanceYourCalm);

pub(super) fn attacks() -> Vec<Attack> {
    let by_bytes = [resets(), frames_without_use(), overhead(), heads()];
    let by_time = [slow(), silent()];
    let all = by_bytes.into_iter().chain(by_time).flatten();
    all.chain([many_heads()]).collect()
}

/// Streams that end before their responses do.
fn resets() -> Vec<Attack> {
    let floods = || Count::exactly("http2", "floods", 1);
    // While a worker reads the file again, a stream that was reset counts, and further ones are refused.
    let server_resets = || Count::at_least("http2", "server_resets", 128);
    vec![
        Attack {
            name: "rapid reset",
            row: RESETS,
            frames: repeated(MANY, SHUT, |stream, out| {
                get("/", stream, out);
                let cancel = (ErrorCode::Cancel as u32).to_be_bytes();
                write_frame(Kind::RstStream, 0, stream, &cancel, out);
            }),
            ends: CALM,
            // The first settings have taken two of 500. Some come back meanwhile.
            counts: vec![floods(), Count::at_least("http2", "client_resets", 498)],
        },
        Attack {
            name: "MadeYouReset, by windows that grow by nothing",
            row: RESETS,
            frames: repeated(MANY, SHUT, |stream, out| {
                get("/", stream, out);
                write_frame(Kind::WindowUpdate, 0, stream, &[0; 4], out);
            }),
            ends: CALM,
            counts: vec![floods(), server_resets()],
        },
        Attack {
            name: "MadeYouReset, by content behind the end",
            row: RESETS,
            frames: repeated(MANY, SHUT, |stream, out| {
                get("/", stream, out);
                write_frame(Kind::Data, 0, stream, b"x", out);
            }),
            ends: CALM,
            counts: vec![floods(), server_resets()],
        },
        Attack {
            name: "trailers for a stream that was reset",
            row: RESETS,
            frames: repeated(MANY, WINDOW_BYTES, |stream, out| {
                if stream == 1 {
                    post("/", &[], stream, out);
                    write_frame(Kind::WindowUpdate, 0, stream, &[0; 4], out);
                }
                write_frame(Kind::Headers, WHOLE, 1, &field("x-sum", "7"), out);
            }),
            ends: CALM,
            counts: vec![floods(), Count::exactly("http2", "server_resets", 1)],
        },
        Attack {
            name: "more streams than allowed",
            row: WORK,
            frames: repeated(200, SHUT, |stream, out| get("/", stream, out)),
            ends: Ends::Streams(ErrorCode::RefusedStream, 72),
            counts: vec![Count::exactly("http2", "refused_streams", 72)],
        },
    ]
}

/// Frames that cost the server more than they bring the client.
fn frames_without_use() -> Vec<Attack> {
    type One = fn(u32, &mut Vec<u8>);
    let floods: [(&str, One); 4] = [
        ("settings", |_, out| {
            write_frame(Kind::Settings, 0, 0, &[], out);
        }),
        ("priorities", |_, out| {
            write_frame(Kind::Priority, 0, 1, &[0, 0, 0, 3, 1], out);
        }),
        ("updates of priorities", |_, out| {
            write_frame(Kind::PriorityUpdate, 0, 0, b"\0\0\0\x01u=3", out);
        }),
        ("empty frames of content", |stream, out| {
            if stream == 1 {
                post("/", &[], stream, out);
            }
            write_frame(Kind::Data, 0, 1, &[], out);
        }),
    ];
    let attack = |(name, one): (&'static str, One)| Attack {
        name,
        row: RESETS,
        frames: repeated(MANY, WINDOW_BYTES, one),
        ends: CALM,
        counts: vec![Count::exactly("http2", "floods", 1)],
    };
    let mut attacks: Vec<Attack> = floods.into_iter().map(attack).collect();
    attacks.push(Attack {
        name: "window sizes in one frame of settings",
        row: RESETS,
        frames: window_sizes(2_000),
        ends: CALM,
        counts: vec![Count::exactly("http2", "floods", 1)],
    });
    attacks
}

/// More than a MiB of frames that are hardly more than their heads.
fn overhead() -> Vec<Attack> {
    let attack = |name, frames| Attack {
        name,
        row: OVERHEAD,
        frames,
        ends: CALM,
        counts: vec![Count::exactly("http2", "floods", 1)],
    };
    vec![
        attack("pings", repeated(100_000, WINDOW_BYTES, |_, out| ping(out))),
        attack(
            "acknowledgements",
            repeated(150_000, WINDOW_BYTES, |_, out| {
                write_frame(Kind::Settings, flags::ACK, 0, &[], out);
            }),
        ),
        attack(
            "one byte of content a frame",
            repeated(200_000, WINDOW_BYTES, |stream, out| {
                if stream == 1 {
                    post("/", &[], stream, out);
                }
                write_frame(Kind::Data, 0, 1, b"x", out);
            }),
        ),
        attack(
            "windows byte by byte",
            repeated(150_000, SHUT, |stream, out| {
                if stream == 1 {
                    get("/page.html", stream, out);
                }
                write_frame(Kind::WindowUpdate, 0, 1, &[0, 0, 0, 1], out);
            }),
        ),
    ]
}

/// Heads that are too large, as they are sent or as they are decoded.
fn heads() -> Vec<Attack> {
    let blocks = || vec![Count::exactly("http2", "large_blocks", 1)];
    let one_head = || {
        vec![
            Count::exactly("http2", "large_heads", 1),
            Count::exactly("faults", "limit", 1),
        ]
    };
    let many_fields = || head("GET", "/", &[("a", "b"); 101]);
    vec![
        Attack {
            name: "empty CONTINUATION frames",
            row: BLOCKS,
            frames: continued(&[], 100),
            ends: CALM,
            counts: blocks(),
        },
        Attack {
            name: "large CONTINUATION frames",
            row: BLOCKS,
            frames: continued(&[0; 16_000], 10),
            ends: CALM,
            counts: blocks(),
        },
        Attack {
            name: "an HPACK bomb",
            row: HEADS,
            frames: one_request(&bomb(10_000)),
            ends: CALM,
            counts: blocks(),
        },
        Attack {
            name: "a small HPACK bomb",
            row: HEADS,
            frames: one_request(&bomb(30)),
            ends: Ends::Request(431),
            counts: one_head(),
        },
        Attack {
            name: "an HPACK bomb in trailers",
            row: HEADS,
            frames: bomb_in_trailers(10_000),
            ends: CALM,
            counts: blocks(),
        },
        Attack {
            name: "more fields than allowed",
            row: HEADS,
            frames: one_request(&many_fields()),
            ends: Ends::Request(431),
            counts: one_head(),
        },
        Attack {
            name: "more fields than allowed, again and again",
            row: HEADS,
            frames: repeated(MANY, WINDOW_BYTES, |stream, out| {
                write_frame(Kind::Headers, WHOLE, stream, &many_fields(), out);
            }),
            ends: CALM,
            counts: vec![
                Count::exactly("http2", "floods", 1),
                Count::at_least("http2", "large_heads", 100),
            ],
        },
    ]
}

/// Each of 27 KB is allowed, and 19 of them are 512 KiB.
fn many_heads() -> Attack {
    Attack {
        name: "many small HPACK bombs that are allowed",
        row: HEADS,
        frames: repeated(60, SHUT, |stream, out| {
            write_frame(Kind::Headers, WHOLE, stream, &bomb(8), out);
        }),
        ends: Ends::Streams(ErrorCode::RefusedStream, 41),
        counts: vec![Count::exactly("http2", "refused_streams", 41)],
    }
}

/// Clients that let the server wait, until a limit of time.
fn slow() -> Vec<Attack> {
    let slow_streams = |count| vec![Count::exactly("http2", "slow_streams", count)];
    vec![
        Attack {
            name: "pings whose answers are not read",
            row: PINGS,
            // Less than a MiB, and more than the buffers hold.
            frames: repeated(55_000, WINDOW_BYTES, |_, out| ping(out)),
            ends: Ends::Unread,
            counts: vec![
                Count::at_least("http2", "unread", 1),
                Count::exactly("closed", "slow", 1),
            ],
        },
        Attack {
            name: "windows of a byte",
            row: WINDOWS,
            frames: repeated(20, 1, |stream, out| get("/page.html", stream, out)),
            ends: Ends::Streams(ErrorCode::Cancel, 20),
            counts: slow_streams(20),
        },
        Attack {
            name: "streams that are opened and never read",
            row: WINDOWS,
            // The connection's window is good for six of them.
            frames: repeated(60, WINDOW_BYTES, |stream, out| {
                get("/page.html", stream, out);
            }),
            ends: Ends::Streams(ErrorCode::Cancel, 54),
            counts: slow_streams(54),
        },
        Attack {
            name: "one byte of content a frame, and then nothing",
            row: CONTENT,
            frames: repeated(100, WINDOW_BYTES, |stream, out| {
                if stream == 1 {
                    let more = [
                        ("content-type", "application/x-www-form-urlencoded"),
                        ("content-length", "16000"),
                    ];
                    post("/accounts/login", &more, stream, out);
                }
                write_frame(Kind::Data, 0, 1, b"x", out);
            }),
            ends: Ends::Request(408),
            counts: slow_streams(1),
        },
    ]
}

/// Clients that say nothing any more, until the connection ends.
fn silent() -> Vec<Attack> {
    let closed = |reason| vec![Count::exactly("closed", reason, 1)];
    let silence = opening(WINDOW_BYTES);
    let part_of_a_frame = [&silence[..], &[0; 5]].concat();
    let mut part_of_a_head = silence.clone();
    write_frame(Kind::Headers, 0, 1, &[0x82], &mut part_of_a_head);
    vec![
        Attack {
            name: "a part of a head",
            row: BLOCKS,
            frames: part_of_a_head,
            ends: Ends::Connection(ErrorCode::NoError),
            counts: closed("slow"),
        },
        Attack {
            name: "a part of a frame",
            row: FRAMES,
            frames: part_of_a_frame,
            ends: Ends::Connection(ErrorCode::NoError),
            counts: closed("slow"),
        },
        Attack {
            name: "a preface, and then nothing",
            row: SILENCE,
            frames: PREFACE.to_vec(),
            ends: Ends::Connection(ErrorCode::NoError),
            counts: closed("slow"),
        },
        Attack {
            name: "silence",
            row: SILENCE,
            frames: silence,
            ends: Ends::Connection(ErrorCode::NoError),
            counts: closed("idle"),
        },
    ]
}

/// How a client begins whose streams have such a window.
pub(super) fn opening(window: u32) -> Vec<u8> {
    let mut setting = Vec::new();
    let window = Setting {
        id: Setting::INITIAL_WINDOW_SIZE,
        value: window,
    };
    window.write(&mut setting);
    let mut frames = PREFACE.to_vec();
    write_frame(Kind::Settings, 0, 0, &setting, &mut frames);
    frames
}

/// A frame of settings that changes the windows of all streams so many times.
fn window_sizes(count: u32) -> Vec<u8> {
    let mut settings = Vec::new();
    for value in 1..=count {
        let id = Setting::INITIAL_WINDOW_SIZE;
        Setting { id, value }.write(&mut settings);
    }
    let mut frames = opening(WINDOW_BYTES);
    write_frame(Kind::Settings, 0, 0, &settings, &mut frames);
    frames
}

/// The same for each of so many streams, of such a window.
fn repeated(count: u32, window: u32, one: impl Fn(u32, &mut Vec<u8>)) -> Vec<u8> {
    let mut frames = opening(window);
    for number in 0..count {
        one(2 * number + 1, &mut frames);
    }
    frames
}

/// A field block without an end, of so many such pieces.
fn continued(piece: &[u8], count: u32) -> Vec<u8> {
    let mut frames = opening(WINDOW_BYTES);
    write_frame(Kind::Headers, 0, 1, &[], &mut frames);
    for _ in 0..count {
        write_frame(Kind::Continuation, 0, 1, piece, &mut frames);
    }
    frames
}

pub(super) const WHOLE: u8 = flags::END_HEADERS | flags::END_STREAM;

fn one_request(block: &[u8]) -> Vec<u8> {
    let mut frames = opening(WINDOW_BYTES);
    write_frame(Kind::Headers, WHOLE, 1, block, &mut frames);
    frames
}

fn get(path: &str, stream: u32, out: &mut Vec<u8>) {
    write_frame(Kind::Headers, WHOLE, stream, &head("GET", path, &[]), out);
}

/// The head of a request whose content is to follow.
fn post(path: &str, more: &[(&str, &str)], stream: u32, out: &mut Vec<u8>) {
    let block = head("POST", path, more);
    write_frame(Kind::Headers, flags::END_HEADERS, stream, &block, out);
}

pub(super) fn ping(out: &mut Vec<u8>) {
    write_frame(Kind::Ping, 0, 0, &[0; 8], out);
}

/// The field block of a request.
pub(super) fn head(method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let own = [
        (":method", method),
        (":scheme", "http"),
        (":authority", "x"),
        (":path", path),
    ];
    let mut block = Vec::new();
    for (name, value) in own.iter().chain(more) {
        encode(name, value, Indexing::Not, &mut block);
    }
    block
}

/// The same with a large field that is kept in the table, and named so many times more.
fn bomb(times: usize) -> Vec<u8> {
    let mut block = head("GET", "/", &[]);
    large_field(times, &mut block);
    block
}

fn bomb_in_trailers(times: usize) -> Vec<u8> {
    let mut frames = opening(WINDOW_BYTES);
    post("/", &[], 1, &mut frames);
    let mut block = Vec::new();
    large_field(times, &mut block);
    write_frame(Kind::Headers, WHOLE, 1, &block, &mut frames);
    frames
}

fn large_field(times: usize, block: &mut Vec<u8>) {
    encode("a", &"x".repeat(3_000), Indexing::Kept, block);
    block.extend(vec![0xbe; times]); // the newest entry
}

fn field(name: &str, value: &str) -> Vec<u8> {
    let mut block = Vec::new();
    encode(name, value, Indexing::Not, &mut block);
    block
}

fn encode(name: &str, value: &str, indexing: Indexing, block: &mut Vec<u8>) {
    Encoder::default().field(name.as_bytes(), value.as_bytes(), indexing, block);
}
