//! The same bytes come to the same however they are cut; and whatever comes, nothing breaks.

use loadline_proto::http2::frame::{Kind, flags};
use loadline_proto::{Http2Client, Limits};

use super::tape::*;

/// A conversation with something of everything.
fn conversation() -> Vec<u8> {
    let split = block(":status: 200\nserver: some server\ncontent-length: 300");
    let (front, back) = split.split_at(7);
    [
        headers(0, 1, ":status: 103\nlink: </style.css>"),
        headers(0, 1, ":status: 200\ncontent-length: 5"),
        frame(Kind::Headers, 0, 3, front),
        frame(Kind::Continuation, flags::END_HEADERS, 3, back),
        data(0, 3, &[b'x'; 290]),
        frame(Kind::Ping, 0, 0, b"12345678"),
        data(flags::PADDED, 1, b"\x03hel\0\0\0"),
        data(end(), 1, b"lo"),
        data(
            flags::PADDED,
            3,
            &[&[100][..], b"0123456789", &[0; 100]].concat(),
        ),
        frame(Kind::Unknown, 0, 3, b"something else"),
        settings(&[(3, 50), (4, 1000)]),
        headers(end(), 3, "x-sum: 1"),
        frame(Kind::RstStream, 0, 5, &[0, 0, 0, 8]),
        headers(0, 7, ":status: 200"),
        frame(Kind::GoAway, 0, 0, b"\0\0\0\x07\0\0\0\0goodbye"),
        data(end(), 7, b"last"),
    ]
    .concat()
}

fn played(bytes: &[u8], cuts: &[usize]) -> (Seen, Vec<Frame>) {
    let mut client = greeted(5);
    for slot in 0..5 {
        client.request(slot, &request("GET"), b"");
    }
    drained(&mut client);
    let (mut seen, mut from) = (Seen::default(), 0);
    for at in cuts.iter().copied().chain([bytes.len()]) {
        seen.take(&mut client, &bytes[from..at]);
        from = at;
    }
    (seen, drained(&mut client))
}

#[test]
fn at_every_place_and_in_equal_pieces() {
    let bytes = conversation();
    let whole = played(&bytes, &[]);
    assert_eq!(whole.0.events.len(), 7, "{whole:?}");
    for at in 0..=bytes.len() {
        assert_eq!(played(&bytes, &[at]), whole, "cut at {at}");
    }
    for len in 1..50 {
        let cuts: Vec<usize> = (len..bytes.len()).step_by(len).collect();
        assert_eq!(played(&bytes, &cuts), whole, "in pieces of {len}");
    }
}

/// A generator of numbers that repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        let (by, more) = (6_364_136_223_846_793_005, 1_442_695_040_888_963_407);
        self.0 = self.0.wrapping_mul(by).wrapping_add(more);
        (self.0 >> 33) % most
    }
}

#[test]
fn whatever_a_server_sends_the_client_stands() {
    let bytes = conversation();
    let mut random = Random(7);
    let limits = Limits::default();
    for round in 0..5_000 {
        let mut damaged = bytes.clone();
        for _ in 0..=random.below(4) {
            let at = random.below(damaged.len() as u64) as usize;
            damaged[at] = random.below(256) as u8;
        }
        let mut client = Http2Client::new(5, 100);
        let mut rest = &settings(&[])[..];
        let _ = client.receive(&mut rest, &limits, &mut ());
        let mut slots_out = 0;
        for slot in 0..5 {
            client.request(slot, &request("GET"), &[0; 3][..random.below(4) as usize]);
            slots_out += 1;
        }
        let mut rest = &damaged[..];
        while !rest.is_empty() {
            let len = random.below(rest.len() as u64) as usize + 1;
            let (mut piece, behind) = rest.split_at(len);
            rest = behind;
            while let Some(event) = client.receive(&mut piece, &limits, &mut ()) {
                use loadline_proto::ClientEvent::{Failed, Reply};
                slots_out -= u32::from(matches!(event, Reply { .. } | Failed { .. }));
            }
        }
        assert_eq!(client.open_count(), slots_out, "round {round}");
    }
}
