//! Requests as field blocks that are prepared once.
//!
//! The fields that all requests to a server have in common enter the dynamic table with the first
//! request of a connection; nothing else ever does. So the table is the same for every connection from
//! then on, and what each request says of these fields is known before the first connection is there:
//! an index.

use crate::hpack::{Encoder, Indexing, TABLE_BYTES, is_secret};

/// What an entry of the dynamic table counts beside its name and value (RFC 7541 section 4.1).
const ENTRY_BYTES: usize = 32;

/// The fields of a request to be prepared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Http2Fields {
    /// The method.
    pub method: Vec<u8>,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// Host and port.
    pub authority: Vec<u8>,
    /// Path and query.
    pub path: Vec<u8>,
    /// The others, their names in lower case.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A request in the three forms that a connection may need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestBlocks {
    /// The first of a connection: it fills the dynamic table.
    pub(super) first: Box<[u8]>,
    /// Each one behind it.
    pub(super) later: Box<[u8]>,
    /// Where the server has no room for the table.
    pub(super) literal: Box<[u8]>,
    /// What the table takes.
    pub(super) table_bytes: usize,
    /// Whether the response has no content.
    pub(super) is_head: bool,
}

impl RequestBlocks {
    /// Prepares all requests that go to one server.
    #[must_use]
    pub fn prepare(requests: &[Http2Fields]) -> Vec<Self> {
        let shared = shared(requests);
        let table_bytes = shared.iter().map(|(name, value)| entry(name, value)).sum();
        let blocks = |request: &Http2Fields| {
            let mut encoder = Encoder::default();
            let first = block(&mut encoder, request, &shared, Indexing::Kept);
            let later = block(&mut encoder, request, &shared, Indexing::Kept);
            let literal = block(&mut Encoder::default(), request, &shared, Indexing::Not);
            Self {
                first: first.into(),
                later: later.into(),
                literal: literal.into(),
                table_bytes,
                is_head: request.method == b"HEAD",
            }
        };
        requests.iter().map(blocks).collect()
    }

    /// Bytes of memory that it holds.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.first.len() + self.later.len() + self.literal.len()
    }
}

type Pair = (Vec<u8>, Vec<u8>);

/// The fields that enter the table, in the order in which each request has them.
fn shared(requests: &[Http2Fields]) -> Vec<Pair> {
    let Some(first) = requests.first() else {
        return Vec::new();
    };
    let mut room = TABLE_BYTES;
    let mut shared = Vec::new();
    let authority = (b":authority".to_vec(), first.authority.clone());
    if requests.iter().all(|one| one.authority == authority.1) {
        shared.push(authority);
    }
    let fields = first
        .fields
        .iter()
        .filter(|field| is_shared(field, requests));
    shared.extend(fields.cloned());
    shared.retain(|(name, value)| {
        let bytes = entry(name, value);
        let fits = bytes <= room;
        room -= if fits { bytes } else { 0 };
        fits
    });
    shared
}

/// Whether every request has this field, and no other of its name: fields of one name keep their order.
/// A length changes with the content, and a secret is not kept.
fn is_shared((name, value): &Pair, requests: &[Http2Fields]) -> bool {
    let is_only = |request: &Http2Fields| {
        let mut same = request.fields.iter().filter(|(this, _)| this == name);
        same.next().is_some_and(|(_, this)| this == value) && same.next().is_none()
    };
    name != b"content-length" && !is_secret(name) && requests.iter().all(is_only)
}

fn entry(name: &[u8], value: &[u8]) -> usize {
    name.len() + value.len() + ENTRY_BYTES
}

/// One request; fields that are shared come before the others, in the order of the table.
fn block(
    encoder: &mut Encoder,
    request: &Http2Fields,
    shared: &[Pair],
    of_shared: Indexing,
) -> Vec<u8> {
    let mut out = Vec::new();
    let is_shared = |name: &[u8]| shared.iter().any(|(this, _)| this == name);
    let mut field = |name: &[u8], value: &[u8]| {
        let indexing = match is_shared(name) {
            true => of_shared,
            false if is_secret(name) => Indexing::Never,
            false => Indexing::Not,
        };
        encoder.field(name, value, indexing, &mut out);
    };
    field(b":method", &request.method);
    field(b":scheme", request.scheme.as_bytes());
    field(b":authority", &request.authority);
    field(b":path", &request.path);
    for (name, value) in shared.iter().filter(|(name, _)| !name.starts_with(b":")) {
        field(name, value);
    }
    for (name, value) in &request.fields {
        if !is_shared(name) {
            field(name, value);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpack::Decoder;

    fn request(path: &str, fields: &[(&str, &str)]) -> Http2Fields {
        let pair =
            |(name, value): &(&str, &str)| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        Http2Fields {
            method: b"GET".to_vec(),
            scheme: "http",
            authority: b"127.0.0.1:8080".to_vec(),
            path: path.as_bytes().to_vec(),
            fields: fields.iter().map(pair).collect(),
        }
    }

    fn decoded(decoder: &mut Decoder, block: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        let result = decoder.decode(block, &mut Vec::new(), |name, value| {
            let text = |bytes| String::from_utf8_lossy(bytes);
            lines.push(format!("{}: {}", text(name), text(value)));
        });
        assert_eq!(result, Ok(()));
        lines
    }

    /// Whichever request comes first on a connection, those behind it are understood.
    #[test]
    fn the_first_request_fills_the_table_for_all() {
        let agent = ("user-agent", "loadline");
        let requests = [
            request("/a", &[agent, ("x-own", "1"), ("accept", "*/*")]),
            request(
                "/b",
                &[agent, ("accept", "*/*"), ("authorization", "Basic Zm9v")],
            ),
            request(
                "/",
                &[
                    ("accept", "*/*"),
                    agent,
                    ("accept-language", "en"),
                    ("accept-language", "fr"),
                ],
            ),
        ];
        let blocks = RequestBlocks::prepare(&requests);
        let whole = |request: &Http2Fields| {
            let mut lines = decoded(
                &mut Decoder::default(),
                &RequestBlocks::prepare(std::slice::from_ref(request))[0].literal,
            );
            lines.sort();
            lines
        };
        for first in 0..requests.len() {
            let mut decoder = Decoder::default();
            decoded(&mut decoder, &blocks[first].first);
            for (request, blocks) in requests.iter().zip(&blocks).cycle().take(7) {
                let mut lines = decoded(&mut decoder, &blocks.later);
                lines.sort();
                assert_eq!(lines, whole(request));
                assert!(blocks.later.len() < blocks.first.len());
            }
        }
        let in_order = decoded(&mut Decoder::default(), &blocks[2].first);
        let languages: Vec<&String> = in_order
            .iter()
            .filter(|line| line.contains("lang"))
            .collect();
        assert_eq!(languages, ["accept-language: en", "accept-language: fr"]);
    }

    #[test]
    fn a_request_costs_a_few_bytes() {
        let blocks = RequestBlocks::prepare(&[request("/", &[("user-agent", "loadline/0.9")])]);
        assert_eq!(*blocks[0].later, [0x82, 0x86, 0xbf, 0x84, 0xbe]);
        assert_eq!(blocks[0].table_bytes, 10 + 14 + 32 + 10 + 12 + 32);
    }

    #[test]
    fn what_has_no_room_in_the_table_is_sent_each_time() {
        let long = "x".repeat(TABLE_BYTES);
        let blocks =
            RequestBlocks::prepare(&[request("/", &[("x-long", &long), ("x-short", "1")])]);
        let mut decoder = Decoder::default();
        for block in [&blocks[0].first, &blocks[0].later, &blocks[0].later] {
            let lines = decoded(&mut decoder, block);
            assert!(
                lines.contains(&format!("x-long: {long}")) && lines.len() == 6,
                "{lines:?}"
            );
        }
        assert!(blocks[0].table_bytes <= TABLE_BYTES);
    }
}
