//! Content in both directions, within windows.

use loadline_proto::http2::frame::{Kind, Setting, flags};
use loadline_proto::{ClientEvent, Http2Client};

use super::tape::*;

fn content_of(frames: &[Frame], stream: u32) -> (Vec<u8>, bool) {
    let of = |frame: &&Frame| frame.kind == Kind::Data && frame.stream == stream;
    let content = frames.iter().filter(of).flat_map(|it| it.payload.clone());
    let has_end = frames
        .iter()
        .filter(of)
        .any(|it| it.flags & flags::END_STREAM != 0);
    (content.collect(), has_end)
}

fn widened(stream: u32, by: u32) -> Vec<u8> {
    frame(Kind::WindowUpdate, 0, stream, &by.to_be_bytes())
}

#[test]
fn content_waits_for_room_of_its_stream_and_of_the_connection() {
    let body: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
    let mut client = greeted(2);
    client.request(0, &request("POST"), &body);
    client.request(1, &request("POST"), b"small");
    let sent = drained(&mut client);
    assert_eq!(content_of(&sent, 1), (body[..65_535].to_vec(), false));
    assert_eq!(
        content_of(&sent, 3),
        (Vec::new(), false),
        "the connection's window is used up"
    );
    assert!(sent.iter().all(|frame| frame.payload.len() <= 16_384));
    let mut seen = Seen::default();
    let bodies = |slot: u32| if slot == 0 { &body[..] } else { &b"small"[..] };
    seen.take(&mut client, &widened(0, 20_000));
    assert!(client.may_go_on());
    client.go_on(bodies);
    let more = drained(&mut client);
    assert_eq!(
        content_of(&more, 1),
        (Vec::new(), false),
        "its own window is"
    );
    assert_eq!(content_of(&more, 3), (b"small".to_vec(), true));
    seen.take(
        &mut client,
        &[widened(1, 100_000), widened(0, 100_000)].concat(),
    );
    client.go_on(bodies);
    let rest = drained(&mut client);
    assert_eq!(content_of(&rest, 1), (body[65_535..].to_vec(), true));
    assert!(!client.may_go_on());
}

#[test]
fn a_server_may_change_the_windows_and_the_frames() {
    let mut client = Http2Client::new(2, 100);
    let mut seen = Seen::default();
    let window = |bytes| settings(&[(Setting::INITIAL_WINDOW_SIZE, bytes)]);
    seen.take(&mut client, &window(10));
    client.request(0, &request("POST"), &[b'a'; 30]);
    assert_eq!(content_of(&drained(&mut client), 1).0.len(), 10);
    seen.take(&mut client, &window(4));
    client.go_on(|_| &[b'a'; 30]);
    assert!(
        drained(&mut client)
            .iter()
            .all(|it| it.kind == Kind::Settings)
    );
    seen.take(&mut client, &widened(1, 8));
    client.go_on(|_| &[b'a'; 30]);
    assert_eq!(
        content_of(&drained(&mut client), 1).0.len(),
        2,
        "4 - 10 + 8"
    );
    let large = settings(&[
        (Setting::INITIAL_WINDOW_SIZE, 1 << 20),
        (Setting::MAX_FRAME_SIZE, 1 << 15),
    ]);
    seen.take(&mut client, &large);
    client.go_on(|_| &[b'a'; 30]);
    assert_eq!(content_of(&drained(&mut client), 1), (vec![b'a'; 18], true));
    client.request(1, &request("POST"), &[b'b'; 40_000]);
    let lens: Vec<usize> = drained(&mut client)
        .iter()
        .map(|it| it.payload.len())
        .collect();
    assert_eq!(lens[1..], [32_768, 40_000 - 32_768]);
}

#[test]
fn output_that_nobody_takes_is_bounded() {
    let body = vec![b'x'; 10 << 20];
    let mut client = greeted(1);
    let mut seen = Seen::default();
    let most = (1 << 31) - 1 - 65_535;
    seen.take(
        &mut client,
        &[
            settings(&[(Setting::INITIAL_WINDOW_SIZE, (1 << 31) - 1)]),
            widened(0, most),
        ]
        .concat(),
    );
    client.request(0, &request("POST"), &body);
    let mut total = 0;
    for _ in 0..10_000 {
        assert!(client.output().len() <= (256 << 10) + 1024);
        let taken = client.output().len().min(10_000);
        if taken == 0 {
            break;
        }
        client.sent(taken);
        total += taken;
        if client.may_go_on() {
            client.go_on(|_| &body);
        }
    }
    assert!(total > body.len() && client.output().is_empty());
}

#[test]
fn a_response_that_comes_before_all_of_the_content_ends_both() {
    let mut client = greeted(1);
    client.request(0, &request("POST"), &[0; 100_000]);
    drained(&mut client);
    let mut seen = Seen::default();
    seen.take(&mut client, &headers(end(), 1, ":status: 413"));
    assert!(matches!(
        seen.events[..],
        [ClientEvent::Reply { slot: 0, .. }]
    ));
    let sent = drained(&mut client);
    assert_eq!((sent.len(), sent[0].kind), (1, Kind::RstStream));
    client.request(0, &request("GET"), b"");
    seen.take(
        &mut client,
        &[widened(0, 9), frame(Kind::RstStream, 0, 1, &[0; 4])].concat(),
    );
    client.go_on(|_| &[0; 100_000]);
    let kinds: Vec<Kind> = drained(&mut client).iter().map(|it| it.kind).collect();
    assert_eq!(kinds, [Kind::Headers], "nothing of the old content");
}

/// What the client makes room for, in pieces of half a window.
#[test]
fn room_is_given_back_in_bulk() {
    let mut client = greeted(1);
    client.request(0, &request("GET"), b"");
    drained(&mut client);
    let mut seen = ();
    let limits = loadline_proto::Limits::default();
    let head = headers(0, 1, ":status: 200");
    assert_eq!(client.receive(&mut &head[..], &limits, &mut seen), None);
    let piece = data(0, 1, &[0; 16_384]);
    let updates: u64 = (0..200_000)
        .map(|_| {
            assert_eq!(client.receive(&mut &piece[..], &limits, &mut seen), None);
            drained(&mut client).len() as u64
        })
        .sum();
    assert_eq!(updates, 6, "three GiB: three for each");
}
