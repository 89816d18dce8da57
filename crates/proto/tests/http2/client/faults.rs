//! What ends a connection, and what a server may ask for.

use loadline_proto::http2::frame::{ErrorCode, Kind, Setting, flags};
use loadline_proto::{ClientEvent, Http2Client};

use super::tape::*;

/// The fault that these bytes are, and the code that is sent to the server.
fn fault(client: &mut Http2Client, bytes: &[u8]) -> (Option<&'static str>, u32) {
    let mut seen = Seen::default();
    seen.take(client, bytes);
    let text = match seen.events.last() {
        Some(ClientEvent::Fault(text)) => Some(*text),
        _ => None,
    };
    let frames_sent = drained(client);
    let code = match frames_sent.last() {
        Some(frame) if frame.kind == Kind::GoAway => u32::from(frame.payload[7]),
        _ => u32::MAX,
    };
    (text, code)
}

#[test]
fn what_no_server_may_send() {
    use ErrorCode::{Compression, EnhanceYourCalm, FlowControl, FrameSize, Protocol, StreamClosed};
    let done = headers(end(), 1, ":status: 200");
    let wide = frame(Kind::WindowUpdate, 0, 0, &[0x7f, 0xff, 0xff, 0xff]);
    let open_block = frame(Kind::Headers, 0, 1, &block(":status: 200"));
    let long = frame(Kind::Continuation, 0, 1, &[0; 16_384]);
    let empty = frame(Kind::Continuation, 0, 1, b"").repeat(16);
    for (bytes, code) in [
        (headers(0, 2, ":status: 200"), Protocol),
        (headers(0, 5, ":status: 200"), Protocol),
        (data(0, 5, b"x"), Protocol),
        (data(0, 0, b"x"), Protocol),
        (frame(Kind::RstStream, 0, 5, &[0; 4]), Protocol),
        (frame(Kind::RstStream, 0, 1, &[0; 3]), FrameSize),
        (
            frame(Kind::PushPromise, flags::END_HEADERS, 1, &[0, 0, 0, 2]),
            Protocol,
        ),
        (frame(Kind::PriorityUpdate, 0, 0, &[0; 4]), Protocol),
        (
            frame(Kind::Continuation, flags::END_HEADERS, 1, b""),
            Protocol,
        ),
        (
            [open_block.clone(), frame(Kind::Ping, 0, 0, &[0; 8])].concat(),
            Protocol,
        ),
        ([open_block.clone(), data(0, 1, b"x")].concat(), Protocol),
        (
            [open_block.clone(), headers(0, 1, ":status: 200")].concat(),
            Protocol,
        ),
        ([open_block.clone(), empty].concat(), EnhanceYourCalm),
        ([open_block, long.repeat(2)].concat(), EnhanceYourCalm),
        (
            frame(Kind::Headers, flags::END_HEADERS, 1, &[0xff]),
            Compression,
        ),
        (frame(Kind::Data, 0, 1, &[0; 16_385]), FrameSize),
        (frame(Kind::Data, flags::PADDED, 1, b"\x03ab"), Protocol),
        ([done.clone(), data(end(), 1, b"x")].concat(), StreamClosed),
        ([done.clone(), done].concat(), StreamClosed),
        (wide, FlowControl),
        (frame(Kind::WindowUpdate, 0, 0, &[0; 4]), Protocol),
        (
            settings(&[(Setting::INITIAL_WINDOW_SIZE, 1 << 31)]),
            FlowControl,
        ),
        (settings(&[(Setting::MAX_FRAME_SIZE, 1)]), Protocol),
        (settings(&[(Setting::ENABLE_PUSH, 1)]), Protocol),
        (frame(Kind::Settings, flags::ACK, 0, &[0; 6]), FrameSize),
        (frame(Kind::GoAway, 0, 0, &[0; 7]), FrameSize),
        (
            frame(Kind::Ping, 0, 0, &[0; 8]).repeat(1025),
            EnhanceYourCalm,
        ),
    ] {
        let mut client = greeted(2);
        client.request(0, &request("GET"), b"");
        client.request(1, &request("GET"), b"");
        drained(&mut client);
        let (text, sent) = fault(&mut client, &bytes);
        assert_eq!(sent, code as u32, "{text:?} {:?}", frames(&bytes).first());
        assert!(text.is_some() && client.is_spent() && !client.has_room());
        // Whatever comes behind it is passed over.
        let mut seen = Seen::default();
        seen.take(&mut client, &bytes);
        assert_eq!(seen, Seen::default());
    }
}

#[test]
fn a_server_of_http_1_is_noticed_at_once() {
    for bytes in [
        &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
        &frame(Kind::Ping, 0, 0, &[0; 8]),
        &frame(Kind::Settings, flags::ACK, 0, b""),
        b"\0\0\0\0\0\0\0\0\0\0\0",
    ] {
        let mut client = Http2Client::new(1, 100);
        let (text, code) = fault(&mut client, bytes);
        assert!(text.is_some() && !client.is_established(), "{bytes:?}");
        assert_ne!(code, u32::MAX);
    }
}

#[test]
fn what_a_server_asks_for_is_answered() {
    let mut client = greeted(1);
    let mut seen = Seen::default();
    let bytes = [
        frame(Kind::Ping, 0, 0, b"12345678"),
        frame(Kind::Ping, flags::ACK, 0, b"12345678"),
        settings(&[(0x99, 1), (Setting::MAX_FRAME_SIZE, 16_384)]),
        frame(Kind::Settings, flags::ACK, 0, b""),
        frame(Kind::Unknown, 0xff, 77, b"whatever"),
        frame(Kind::Priority, 0, 1, &[0; 5]),
    ];
    seen.take(&mut client, &bytes.concat());
    assert_eq!(seen.events, [ClientEvent::Settings]);
    let pong = Frame {
        kind: Kind::Ping,
        flags: flags::ACK,
        stream: 0,
        payload: b"12345678".to_vec(),
    };
    let seen = Frame {
        kind: Kind::Settings,
        payload: Vec::new(),
        ..pong
    };
    assert_eq!(drained(&mut client), [pong, seen]);
}

#[test]
fn late_frames_of_a_stream_that_was_given_up_are_passed_over() {
    let mut client = greeted(2);
    client.request(0, &request("GET"), b"");
    client.cancel(0);
    client.cancel(0);
    client.request(0, &request("GET"), b"");
    let kinds: Vec<Kind> = drained(&mut client).iter().map(|it| it.kind).collect();
    assert_eq!(kinds, [Kind::Headers, Kind::RstStream, Kind::Headers]);
    let mut seen = Seen::default();
    let bytes = [
        headers(0, 1, ":status: 200\nx: y"),
        data(end(), 1, b"late"),
        frame(Kind::RstStream, 0, 1, &[0; 4]),
        frame(Kind::WindowUpdate, 0, 1, &[0, 0, 0, 1]),
    ];
    seen.take(&mut client, &bytes.concat());
    assert_eq!(seen, Seen::default());
    assert_eq!(client.open_count(), 1);
    client.end();
    client.end();
    assert_eq!(drained(&mut client).len(), 1);
}

/// The server reads one answer after the other, and the output is never empty.
#[test]
fn answers_that_have_left_no_longer_count() {
    let mut client = greeted(1);
    let ping = frame(Kind::Ping, 0, 0, &[0; 8]);
    let mut seen = Seen::default();
    seen.take(&mut client, &ping.repeat(2));
    for _ in 0..5_000 {
        client.sent(ping.len());
        seen.take(&mut client, &ping);
    }
    seen.take(&mut client, &ping.repeat(1022));
    assert_eq!(seen.events, []);
    let (text, code) = fault(&mut client, &ping);
    assert!(text.is_some());
    assert_eq!(code, ErrorCode::EnhanceYourCalm as u32);
}

#[test]
fn resets_that_a_server_causes_and_does_not_read_are_bounded() {
    let mut client = greeted(1);
    for _ in 0..2_000 {
        client.request(0, &request("GET"), b"");
        client.cancel(0); // as the client wants it
    }
    let mut seen = Seen::default();
    for stream in (4_001..6_050).step_by(2) {
        client.request(0, &request("GET"), b"");
        seen.take(&mut client, &data(0, stream, b"content without a head"));
    }
    let (last, before) = seen.events.split_last().expect("some events");
    let is_fault = |event: &ClientEvent| matches!(event, ClientEvent::Fault(_));
    assert!(is_fault(last) && !before.iter().any(is_fault), "{last:?}");
    assert_eq!(before.len(), 1_025);
}
