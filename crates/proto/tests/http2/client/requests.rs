//! What a client sends, as a server decodes it.

use loadline_proto::hpack::Decoder;
use loadline_proto::http2::frame::{Kind, Setting, flags};
use loadline_proto::{Http2Client, Http2Fields, RequestBlocks};

use super::tape::*;

/// The field blocks of some frames, decoded in their order.
fn decoded(decoder: &mut Decoder, frames: &[Frame]) -> Vec<Vec<String>> {
    let (mut all, mut block) = (Vec::new(), Vec::new());
    for frame in frames {
        if !matches!(frame.kind, Kind::Headers | Kind::Continuation) {
            continue;
        }
        block.extend_from_slice(&frame.payload);
        if frame.flags & flags::END_HEADERS == 0 {
            continue;
        }
        let mut lines = Vec::new();
        let result = decoder.decode(
            &std::mem::take(&mut block),
            &mut Vec::new(),
            |name, value| {
                let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                lines.push(format!("{}: {}", text(name), text(value)));
            },
        );
        assert_eq!(result, Ok(()));
        all.push(lines);
    }
    all
}

const FIELDS: [&str; 5] = [
    ":method: GET",
    ":scheme: http",
    ":authority: h",
    ":path: /",
    "user-agent: test",
];

#[test]
fn the_second_request_is_shorter_and_says_the_same() {
    let (mut client, mut decoder) = (greeted(3), Decoder::default());
    for slot in 0..3 {
        client.request(slot, &request("GET"), b"");
    }
    let sent = drained(&mut client);
    let places: Vec<(u32, u8)> = sent
        .iter()
        .map(|frame| (frame.stream, frame.flags))
        .collect();
    let of_both = flags::END_STREAM | flags::END_HEADERS;
    assert_eq!(places, [(1, of_both), (3, of_both), (5, of_both)]);
    assert_eq!(decoded(&mut decoder, &sent), vec![FIELDS; 3]);
    let lens: Vec<usize> = sent.iter().map(|frame| frame.payload.len()).collect();
    assert_eq!(lens[1..], [5, 5]);
    assert!(lens[0] > 5);
}

/// A decoder whose table is as small as the server has said it is.
#[test]
fn a_server_without_room_for_the_table_gets_literals() {
    for (first, second) in [(Some(0), None), (None, Some(0)), (Some(4096), Some(10))] {
        let (mut client, mut decoder) = (Http2Client::new(9, 100), Decoder::default());
        let mut seen = Seen::default();
        let size = |size: Option<u32>| {
            let setting = size.map(|size| (Setting::HEADER_TABLE_SIZE, size));
            settings(setting.as_slice())
        };
        seen.take(&mut client, &size(first));
        client.request(0, &request("GET"), b"");
        client.request(1, &request("GET"), b"");
        assert_eq!(
            decoded(&mut decoder, &drained(&mut client)),
            vec![FIELDS; 2]
        );
        seen.take(&mut client, &size(second));
        client.request(2, &request("GET"), b"");
        client.request(3, &request("GET"), b"");
        let sent = drained(&mut client);
        assert_eq!(decoded(&mut decoder, &sent), vec![FIELDS; 2]);
        let last = &sent.last().unwrap().payload;
        assert!(last.len() > 5, "{first:?} {second:?}");
    }
}

/// Smaller, and large enough: the server needs an update (RFC 7541 section 4.2).
#[test]
fn another_size_of_the_table_is_said_once() {
    let (mut client, mut decoder) = (greeted(3), Decoder::default());
    client.request(0, &request("GET"), b"");
    let mut sent = drained(&mut client);
    let mut seen = Seen::default();
    seen.take(
        &mut client,
        &settings(&[(Setting::HEADER_TABLE_SIZE, 1024)]),
    );
    client.request(1, &request("GET"), b"");
    client.request(2, &request("GET"), b"");
    sent.extend(drained(&mut client));
    assert_eq!(decoded(&mut decoder, &sent), vec![FIELDS; 3]);
    let blocks: Vec<&Frame> = sent.iter().filter(|it| it.kind == Kind::Headers).collect();
    assert_eq!(blocks[1].payload[0] & 0xe0, 0x20, "the size");
    assert_eq!(blocks[2].payload.len(), 5);
}

#[test]
fn a_large_block_goes_in_pieces() {
    let fields = Http2Fields {
        method: b"GET".to_vec(),
        scheme: "https",
        authority: b"h".to_vec(),
        path: vec![b'~'; 40_000],
        fields: Vec::new(),
    };
    let blocks = RequestBlocks::prepare(&[fields]).remove(0);
    let (mut client, mut decoder) = (greeted(2), Decoder::default());
    client.request(0, &blocks, b"");
    client.request(1, &blocks, b"content");
    let sent = drained(&mut client);
    let kinds: Vec<(Kind, u8)> = sent.iter().map(|it| (it.kind, it.flags)).collect();
    use Kind::{Continuation, Data, Headers};
    assert_eq!(
        kinds,
        [
            (Headers, flags::END_STREAM),
            (Continuation, 0),
            (Continuation, flags::END_HEADERS),
            (Headers, 0),
            (Continuation, 0),
            (Continuation, flags::END_HEADERS),
            (Data, flags::END_STREAM),
        ]
    );
    let lines = decoded(&mut decoder, &sent);
    assert!(lines.len() == 2 && lines[0][3].len() == 7 + 40_000);
}

#[test]
fn progress_is_counted_in_bytes() {
    let mut client = greeted(2);
    let (sent, position) = client.progress();
    assert_eq!(sent, position);
    client.request(0, &request("GET"), b"");
    let len = client.output().len() as u64;
    assert_eq!(client.progress(), (sent, sent + len));
    client.sent(3);
    assert_eq!(client.progress(), (sent + 3, sent + len));
    client.request(1, &request("GET"), b"");
    let rest = client.output().len();
    client.sent(rest);
    let (sent, position) = client.progress();
    assert_eq!(sent, position);
}
