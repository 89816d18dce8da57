//! Responses in every form.

use loadline_proto::http2::frame::{Kind, Setting, flags};
use loadline_proto::{ClientEvent, Http2Client, Reply, StreamFault};

use super::tape::*;

fn reply(slot: u32, status: u16, content_bytes: u64) -> ClientEvent {
    let reply = Reply {
        status,
        content_bytes,
        keep_alive: true,
        excess_bytes: 0,
    };
    ClientEvent::Reply { slot, reply }
}

fn failed(slot: u32, fault: StreamFault) -> ClientEvent {
    ClientEvent::Failed { slot, fault }
}

#[test]
fn responses_end_where_they_say() {
    let ok = headers(0, 1, ":status: 200\ncontent-length: 5");
    let split = block(":status: 200\nserver: x");
    let (front, back) = split.split_at(3);
    let padded = [&[2][..], &block(":status: 204"), &[0, 0]].concat();
    let prioritized = [&[0, 0, 0, 0, 7][..], &block(":status: 200")].concat();
    let of_both = flags::END_STREAM | flags::END_HEADERS;
    for (bytes, expected) in [
        (headers(end(), 1, ":status: 404"), reply(0, 404, 0)),
        (
            [ok.clone(), data(end(), 1, b"hello")].concat(),
            reply(0, 200, 5),
        ),
        (
            [
                ok.clone(),
                data(0, 1, b"he"),
                data(0, 1, b"llo"),
                data(end(), 1, b""),
            ]
            .concat(),
            reply(0, 200, 5),
        ),
        (
            [
                headers(0, 1, ":status: 200"),
                data(flags::PADDED | end(), 1, b"\x02abc\0\0"),
            ]
            .concat(),
            reply(0, 200, 3),
        ),
        (
            [
                headers(0, 1, ":status: 103\nlink: </a>"),
                headers(0, 1, ":status: 100"),
                ok.clone(),
                data(0, 1, b"hello"),
                headers(end(), 1, "x-sum: 1"),
            ]
            .concat(),
            reply(0, 200, 5),
        ),
        (
            [
                frame(Kind::Headers, flags::END_STREAM, 1, front),
                frame(Kind::Continuation, 0, 1, b""),
                frame(Kind::Continuation, flags::END_HEADERS, 1, back),
            ]
            .concat(),
            reply(0, 200, 0),
        ),
        (
            frame(Kind::Headers, of_both | flags::PADDED, 1, &padded),
            reply(0, 204, 0),
        ),
        (
            frame(Kind::Headers, of_both | flags::PRIORITY, 1, &prioritized),
            reply(0, 200, 0),
        ),
        (
            headers(end(), 1, ":status: 304\ncontent-length: 9"),
            reply(0, 304, 0),
        ),
        // What is wrong with one response does not touch the others.
        (
            [ok.clone(), data(end(), 1, b"hell")].concat(),
            failed(0, StreamFault::Short),
        ),
        (
            headers(end(), 1, ":status: 200\ncontent-length: 5"),
            failed(0, StreamFault::Short),
        ),
        (
            [ok, data(end(), 1, b"hello!")].concat(),
            failed(0, StreamFault::Long),
        ),
        (
            [headers(0, 1, ":status: 204"), data(end(), 1, b"x")].concat(),
            failed(0, StreamFault::Long),
        ),
        (
            frame(Kind::RstStream, 0, 1, &[0, 0, 0, 7]),
            failed(0, StreamFault::Reset(7)),
        ),
    ] {
        let next = [bytes, headers(end(), 3, ":status: 200")].concat();
        let (client, seen) = answered(2, &next);
        assert_eq!(seen.events, [expected, reply(1, 200, 0)]);
        assert!(client.has_room() && client.open_count() == 0);
    }
}

#[test]
fn a_malformed_response_is_that_of_one_stream() {
    for bytes in [
        headers(end(), 1, "server: x"),
        headers(0, 1, ":status: 101"),
        headers(end(), 1, ":status: 100"),
        headers(end(), 1, ":status: 200\nServer: x"),
        headers(end(), 1, ":status: 200\nconnection: close"),
        data(0, 1, b"early"),
        [
            headers(0, 1, ":status: 200"),
            headers(end(), 1, ":status: 200"),
        ]
        .concat(),
        [headers(0, 1, ":status: 200"), headers(0, 1, "x-sum: 1")].concat(),
        headers(0, 1, ":status: 100").repeat(17),
        frame(Kind::WindowUpdate, 0, 1, &[0; 4]),
        frame(Kind::WindowUpdate, 0, 1, &[0x7f, 0xff, 0xff, 0xff]),
    ] {
        // What is still on its way of that stream is passed over.
        let behind = [data(end(), 1, b"rest"), headers(end(), 3, ":status: 200")].concat();
        let (mut client, seen) = answered(2, &[bytes, behind].concat());
        let fault = match seen.events[..] {
            [ClientEvent::Failed { slot: 0, fault }, last] if last == reply(1, 200, 0) => fault,
            _ => panic!("{seen:?}"),
        };
        assert!(matches!(fault, StreamFault::Malformed(_)), "{fault:?}");
        let sent = drained(&mut client);
        let kinds: Vec<(Kind, u32)> = sent
            .iter()
            .map(|frame| (frame.kind, frame.stream))
            .collect();
        assert_eq!(kinds, [(Kind::RstStream, 1)]);
    }
}

#[test]
fn a_head_response_has_no_content() {
    let mut client = greeted(2);
    client.request(0, &request("HEAD"), b"");
    client.request(1, &request("HEAD"), b"");
    let mut seen = Seen::default();
    let bytes = [
        headers(end(), 1, ":status: 200\ncontent-length: 99"),
        headers(0, 3, ":status: 200\ncontent-length: 99"),
        data(end(), 3, b"x"),
    ];
    seen.take(&mut client, &bytes.concat());
    assert_eq!(
        seen.events,
        [reply(0, 200, 0), failed(1, StreamFault::Long)]
    );
}

#[test]
fn what_passes_is_seen() {
    let bytes = [
        headers(0, 3, ":status: 503\nretry-after: 3"),
        headers(0, 1, ":status: 200"),
        data(0, 1, b"on"),
        data(end(), 3, b"other"),
        data(end(), 1, b"e"),
    ];
    let (_, seen) = answered(2, &bytes.concat());
    assert_eq!(seen.events, [reply(1, 503, 5), reply(0, 200, 3)]);
    assert_eq!(seen.content, [b"one".to_vec(), b"other".to_vec()]);
    assert_eq!(
        seen.fields,
        [
            "1 503 :status: 503",
            "1 503 retry-after: 3",
            "0 200 :status: 200"
        ]
    );
}

#[test]
fn a_server_that_goes_away_has_processed_some() {
    let go_away = |last: u8| frame(Kind::GoAway, 0, 0, &[0, 0, 0, last, 0, 0, 0, 0]);
    let bytes = [go_away(5), go_away(3), headers(end(), 3, ":status: 200")];
    let (client, seen) = answered(4, &bytes.concat());
    let unprocessed = |slot| failed(slot, StreamFault::Unprocessed);
    assert_eq!(
        seen.events,
        [
            ClientEvent::GoingAway,
            unprocessed(3),
            ClientEvent::GoingAway,
            unprocessed(2),
            reply(1, 200, 0)
        ]
    );
    assert!(client.is_spent() && !client.has_room() && client.open_count() == 1);
}

#[test]
fn the_server_says_how_many_streams_it_takes() {
    let mut client = Http2Client::new(100, 3);
    assert_eq!((client.streams_max(), client.has_room()), (3, true));
    let mut seen = Seen::default();
    let most = |count| settings(&[(Setting::MAX_CONCURRENT_STREAMS, count)]);
    seen.take(&mut client, &most(1));
    client.request(0, &request("GET"), b"");
    assert!(!client.has_room());
    seen.take(&mut client, &most(2));
    assert!(client.has_room());
    seen.take(&mut client, &settings(&[]));
    assert_eq!(client.streams_max(), 2, "it has said so once");
    assert_eq!(
        greeted(1).streams_max(),
        u32::MAX,
        "without a word there is no bound"
    );
}
