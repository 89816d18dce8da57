//! Attacks that cost a client little and a server much, and their bounds.

use loadline_proto::http2::frame::{ErrorCode, Kind, Setting, flags, frame};
use loadline_proto::{Http2Count, Limits, Session};

use crate::connection::Connection;

const WHOLE: u8 = flags::END_HEADERS | flags::END_STREAM;
const CALM: (u32, u32) = (0, ErrorCode::EnhanceYourCalm as u32);

/// Sends these until the connection fails; how often that was.
fn flood(connection: &mut Connection, mut one: impl FnMut(&mut Connection, u32)) -> u32 {
    for count in 0..5_000 {
        one(connection, 2 * count + 1);
        if Connection::errors(&connection.take()).contains(&CALM) {
            return count;
        }
    }
    panic!("no end to it")
}

#[test]
fn each_flood_has_an_end() {
    type One = fn(&mut Connection, u32);
    let floods: [(&str, One); 6] = [
        ("rapid reset", |it, stream| {
            it.get(stream, "/block")
                .frame(Kind::RstStream, 0, stream, &[0, 0, 0, 8]);
        }),
        ("settings", |it, _| {
            _ = it.setting(Setting::HEADER_TABLE_SIZE, 0)
        }),
        ("priorities", |it, _| {
            _ = it.frame(Kind::Priority, 0, 1, &[0, 0, 0, 3, 1])
        }),
        ("updates of priorities", |it, _| {
            _ = it.frame(Kind::PriorityUpdate, 0, 0, b"\0\0\0\x01u=3")
        }),
        ("heads that are too large", |it, stream| {
            let mut block = it.request("GET", "/", &[("a", &"x".repeat(3_000))]);
            block.extend([0xbe; 30]); // 30 times the newest entry
            it.frame(Kind::Headers, WHOLE, stream, &block);
        }),
        ("malformed requests", |it, stream| {
            let block = it.block(&[(":method", "GET")]);
            it.frame(Kind::Headers, WHOLE, stream, &block);
        }),
    ];
    for (name, one) in floods {
        let mut connection = Connection::new();
        connection.hold_blocking = true;
        let count = flood(&mut connection, one);
        assert!((100..1_000).contains(&count), "{name}: {count}");
        assert_eq!(connection.counted(Http2Count::Floods), 1, "{name}");
        assert!(
            connection.parked.len() <= 128,
            "{name}: {}",
            connection.parked.len()
        );
    }
    let mut connection = Connection::new();
    connection.post(1, "/p", &[]);
    let count = flood(&mut connection, |it, _| _ = it.frame(Kind::Data, 0, 1, &[]));
    assert!(
        (100..1_000).contains(&count),
        "empty frames of content: {count}"
    );
    assert_eq!(connection.counted(Http2Count::Floods), 1);
}

/// MadeYouReset in each form: the client breaks a rule of one stream, whose work has begun.
#[test]
fn whatever_makes_the_server_reset_streams_has_an_end() {
    type One = fn(&mut Connection, u32);
    // How many streams each ends: the first settings have taken one of 500. Streams that are refused, beyond the 128
    // that workers have, take one each, and fields behind their ends another one.
    let ways: [(&str, u64, One); 5] = [
        ("a window that grows by nothing", 499, |it, stream| {
            it.get(stream, "/block").window(stream, 0);
        }),
        ("a window beyond its limit", 499, |it, stream| {
            it.get(stream, "/block").window(stream, (1 << 31) - 1);
        }),
        ("content behind the end", 499, |it, stream| {
            it.get(stream, "/block").frame(Kind::Data, 0, stream, b"x");
        }),
        ("fields behind the end", 128 + 186, |it, stream| {
            it.get(stream, "/block");
            let block = it.block(&[("a", "b")]);
            it.frame(Kind::Headers, WHOLE, stream, &block);
        }),
        ("more content than announced", 499, |it, stream| {
            it.post(stream, "/block", &[("content-length", "1")]);
            it.frame(Kind::Data, flags::END_STREAM, stream, b"xx");
        }),
    ];
    for (name, ended, one) in ways {
        let mut connection = Connection::new();
        connection.hold_blocking = true;
        flood(&mut connection, one);
        assert_eq!(connection.counted(Http2Count::Floods), 1, "{name}");
        let [reset, refused] = [Http2Count::ServerResets, Http2Count::RefusedStreams]
            .map(|what| connection.counted(what));
        assert!(reset >= 128, "{name}: {reset} {refused}");
        assert_eq!(reset + refused, ended, "{name}: {reset} {refused}");
        assert!(connection.parked.len() <= 128, "{name}");
    }
}

/// Each changes the windows of all streams, and 2,730 fit into a frame.
#[test]
fn window_sizes_in_a_frame_of_settings_are_bounded() {
    let sizes = |count: u32| {
        let mut payload = Vec::new();
        for value in 1..=count {
            let id = Setting::INITIAL_WINDOW_SIZE;
            Setting { id, value }.write(&mut payload);
        }
        payload
    };
    let mut connection = Connection::new();
    connection.frame(Kind::Settings, 0, 0, &sizes(100));
    connection.get(1, "/bytes/200");
    let frames = connection.take();
    assert_eq!(Connection::errors(&frames), []);
    let content = Connection::content(&frames, 1);
    assert_eq!(content, (vec![b'x'; 100], false), "the last one counts");
    connection.frame(Kind::Settings, 0, 0, &sizes(2_000));
    assert_eq!(Connection::errors(&connection.take()), [CALM]);
    assert_eq!(connection.counted(Http2Count::Floods), 1);
}

/// They were decoded for nothing, however many there were.
#[test]
fn trailers_of_streams_that_were_reset_have_an_end() {
    let mut connection = Connection::new();
    connection.post(1, "/p", &[]).window(1, 0);
    let resets = Connection::errors(&connection.take());
    assert_eq!(resets, [(1, ErrorCode::Protocol as u32)]);
    let count = flood(&mut connection, |it, _| {
        let trailers = it.block(&[("x-sum", "7")]);
        it.frame(Kind::Headers, WHOLE, 1, &trailers);
    });
    assert!((100..1_000).contains(&count), "{count}");
    assert_eq!(connection.counted(Http2Count::Floods), 1);
}

/// Some clients reset each stream whose response they have, perhaps before all of the request has left.
#[test]
fn resets_behind_complete_responses_are_no_flood() {
    let mut connection = Connection::new();
    connection.window(0, 1 << 20);
    for stream in (1..20_000).step_by(2) {
        connection.get(stream, "/a");
        assert!(Connection::content(&connection.take(), stream).1);
        connection.frame(Kind::RstStream, 0, stream, &[0, 0, 0, 8]);
    }
    for stream in (20_001..22_000).step_by(2) {
        connection.post(stream, "/deaf", &[]);
        assert!(Connection::content(&connection.take(), stream).1);
        connection.frame(Kind::RstStream, 0, stream, &[0, 0, 0, 8]);
    }
    assert_eq!(Connection::errors(&connection.take()), []);
    assert_eq!(connection.counted(Http2Count::ClientResets), 11_000);
    assert_eq!(connection.counted(Http2Count::Floods), 0);
}

/// Of a proxy's many requests some are cancelled.
#[test]
fn a_reset_for_each_answered_request_is_no_flood() {
    let mut connection = Connection::new();
    connection.window(0, 1 << 20);
    for stream in (1..8_000).step_by(4) {
        connection.get(stream, "/a").get(stream + 2, "/task");
        assert!(Connection::content(&connection.take(), stream).1);
        connection.frame(Kind::RstStream, 0, stream + 2, &[0, 0, 0, 8]);
    }
    assert_eq!(connection.cancelled.len(), 2_000);
    assert_eq!(connection.counted(Http2Count::Floods), 0);
    // What was answered before is no reason for more than is allowed at once, of which the last reset has taken one.
    let cancels = flood(&mut connection, |it, stream| {
        let stream = 8_000 + stream;
        it.get(stream, "/task")
            .frame(Kind::RstStream, 0, stream, &[0, 0, 0, 8]);
    });
    assert_eq!(cancels, 499);
}

/// A stream that was reset counts until its worker has come back.
#[test]
fn no_more_work_is_begun_than_streams_are_allowed() {
    let mut connection = Connection::new();
    connection.hold_blocking = true;
    for stream in (1..600).step_by(2) {
        connection.get(stream, "/block");
        connection.frame(Kind::RstStream, 0, stream, &[0, 0, 0, 8]);
    }
    assert_eq!(connection.parked.len(), 128);
    assert!(
        connection
            .parked
            .values()
            .all(|exchange| exchange.hang_up.is_gone())
    );
    for stream in (1..256).step_by(2) {
        connection.complete(stream);
    }
    let frames = connection.take();
    assert_eq!(Connection::statuses(&frames), [], "nobody reads them");
    assert_eq!(connection.counted(Http2Count::ClientResets), 300);
    connection.get(601, "/a");
    assert!(Connection::content(&connection.take(), 601).1);
}

/// A client that leaves its GOAWAY unread, while a step for it is still carried out, counted anew with whatever
/// was received.
#[test]
fn what_ends_a_connection_counts_once() {
    for (what, kind, stream) in [
        (Http2Count::Floods, Kind::Settings, 0),
        (Http2Count::LargeBlocks, Kind::Continuation, 3),
    ] {
        let mut connection = Connection::new();
        connection.hold_blocking = true;
        connection.get(1, "/block");
        connection.hold_output = true;
        if kind == Kind::Continuation {
            connection.frame(Kind::Headers, 0, stream, &[]);
        }
        for _ in 0..600 {
            connection.frame(kind, 0, stream, &[]);
        }
        assert_eq!(connection.parked.len(), 1);
        assert_eq!(connection.counted(what), 1, "{what:?}");
    }
}

#[test]
fn continuations_without_end() {
    for piece in [&b""[..], &[0; 16_000]] {
        let mut connection = Connection::new();
        connection.frame(Kind::Headers, 0, 1, b"");
        let mut count = 0;
        while Connection::errors(&connection.take()) != [CALM] {
            connection.frame(Kind::Continuation, 0, 1, piece);
            count += 1;
        }
        assert!(count <= 16, "{count}");
        assert_eq!(connection.counted(Http2Count::LargeBlocks), 1);
    }
}

/// Heads that are too large without a trick: in number, or in length over several frames.
#[test]
fn heads_beyond_the_limits_are_431_and_others_go_on() {
    let mut connection = Connection::new();
    let many = vec![("a", "b"); Limits::default().fields_max + 1];
    let block = connection.request("GET", "/", &many);
    connection.frame(Kind::Headers, WHOLE, 1, &block);
    // Huffman's code makes them shorter: they fit into the bytes of a block.
    let long: Vec<_> = (0..10)
        .map(|n| format!("{n}{}", "x".repeat(3_500)))
        .collect();
    let long: Vec<_> = long.iter().map(|value| ("a", &**value)).collect();
    let block = connection.request("GET", "/", &long);
    let (first, rest) = block.split_at(16_384);
    connection.frame(Kind::Headers, flags::END_STREAM, 3, first);
    connection.frame(Kind::Continuation, flags::END_HEADERS, 3, rest);
    connection.get(5, "/a");
    let statuses = Connection::statuses(&connection.take());
    let expected = [(1, "431"), (3, "431"), (5, "200")];
    assert_eq!(statuses, expected.map(|(id, it)| (id, it.to_owned())));
    assert_eq!(connection.faults(), [0, 0, 2, 0]);
    assert_eq!(connection.counted(Http2Count::LargeHeads), 2);
    assert_eq!(connection.counted(Http2Count::LargeBlocks), 0);
}

/// A large entry of the dynamic table, named again and again.
#[test]
fn a_bomb_of_fields_is_431_and_holds_no_memory() {
    let mut connection = Connection::new();
    let large = "x".repeat(3_000);
    let mut block = connection.request("GET", "/", &[("a", &large)]);
    block.extend([0xbe; 30]); // 30 times the newest entry
    connection.feed(&frame(Kind::Headers, WHOLE, 1, &block));
    assert_eq!(
        Connection::statuses(&connection.take()),
        [(1, "431".to_owned())]
    );
    assert_eq!(connection.faults(), [0, 0, 1, 0]);
    assert_eq!(connection.counted(Http2Count::LargeHeads), 1);
    let held = connection.session().held_bytes();
    assert!(held < 64 << 10, "{held}");
    connection.get(3, "/a");
    assert!(Connection::content(&connection.take(), 3).1);
}

/// Requests that are each within the limits, of some bytes each, whose responses are not read: 3 MB of heads.
#[test]
fn heads_of_all_requests_together_are_bounded() {
    let large = "x".repeat(3_000);
    let mut fields = vec![("a", &*large); 9];
    fields.push(("x-forwarded-for", "192.0.2.1"));
    let refused = ErrorCode::RefusedStream as u32;
    for (mut connection, is_short, begun) in [
        (Connection::new(), false, 19),
        (Connection::new(), true, 2),
        (Connection::of_proxy(), false, 100),
        (Connection::of_proxy(), true, 100),
    ] {
        connection.pool.set_short(is_short);
        connection.setting(Setting::INITIAL_WINDOW_SIZE, 0);
        let ask = |connection: &mut Connection, stream| {
            let block = connection.request("GET", "/a", &fields);
            connection.frame(Kind::Headers, WHOLE, stream, &block);
        };
        for stream in (1..200).step_by(2) {
            ask(&mut connection, stream);
        }
        let frames = connection.take();
        assert_eq!(Connection::statuses(&frames).len(), begun);
        let errors = Connection::errors(&frames);
        assert_eq!(errors.len(), 100 - begun);
        assert!(errors.iter().all(|it| it.1 == refused), "{errors:?}");
        let counted = connection.counted(Http2Count::RefusedStreams);
        assert_eq!(counted, errors.len() as u64);
        let held = connection.session().held_bytes();
        assert!(held < (begun + 1) * (64 << 10), "{held}");
        // Those that have begun are answered, and make room.
        connection.setting(Setting::INITIAL_WINDOW_SIZE, 1_000);
        ask(&mut connection, 201);
        let frames = connection.take();
        assert!(Connection::content(&frames, 1).1);
        assert!(Connection::content(&frames, 201).1);
        assert_eq!(Connection::errors(&frames), []);
    }
}

/// More of it is not decoded: it would cost a hundred megabytes of copies and comparisons.
#[test]
fn a_large_bomb_of_fields_ends_the_connection() {
    let large = "x".repeat(3_000);
    let named = [0xbe; 10_000];
    let renamed = [0x7e, 0].repeat(5_000); // its name with an empty value, as a new entry
    for (bomb, is_trailer) in [(&named[..], false), (&renamed, false), (&named, true)] {
        let mut connection = Connection::new();
        let mut block = match is_trailer {
            true => {
                connection.post(1, "/p", &[]);
                connection.block(&[("a", &large)])
            }
            false => connection.request("GET", "/", &[(&large, "a")]),
        };
        block.extend(bomb);
        connection.feed(&frame(Kind::Headers, WHOLE, 1, &block));
        let errors = Connection::errors(&connection.take());
        assert_eq!(errors, [CALM], "{is_trailer}");
        assert_eq!(connection.counted(Http2Count::LargeBlocks), 1);
    }
}

/// Frames that are hardly more than their heads: pings whose answers are read, content byte by byte, windows
/// that open byte by byte, and what the server only takes note of.
#[test]
fn overhead_is_bounded() {
    type One = fn(&mut Connection);
    let floods: [(&str, One); 5] = [
        ("pings", |it| _ = it.frame(Kind::Ping, 0, 0, &[0; 8])),
        ("acknowledgements", |it| {
            _ = it.frame(Kind::Settings, flags::ACK, 0, &[])
        }),
        ("GOAWAY", |it| _ = it.frame(Kind::GoAway, 0, 0, &[0; 8])),
        ("content byte by byte", |it| {
            _ = it.frame(Kind::Data, 0, 1, b"x")
        }),
        ("windows byte by byte", |it| _ = it.window(3, 1)),
    ];
    for (name, one) in floods {
        let limits = Limits {
            body_bytes_max: 1 << 30,
            ..Limits::default()
        };
        let mut connection = Connection::within(limits);
        connection.setting(Setting::INITIAL_WINDOW_SIZE, 1);
        connection.post(1, "/deaf-no", &[]).get(3, "/bytes/1000000");
        let mut count = 0;
        while Connection::errors(&connection.take()) != [CALM] {
            one(&mut connection);
            count += 1;
            assert!(count < 300_000, "{name}: no end to it");
        }
        assert!(count > 50_000, "{name}: {count}");
        assert_eq!(connection.counted(Http2Count::Floods), 1, "{name}");
    }
}

/// A client that gives back each 512 bytes of files, and one that sends pings behind each head: what they are sent
/// allows for that. Before, files that are kept and heads of responses counted for nothing.
#[test]
fn what_is_sent_allows_for_the_frames_that_come_for_it() {
    let window = |stream| frame(Kind::WindowUpdate, 0, stream, &512_u32.to_be_bytes());
    let mut connection = Connection::new();
    for stream in (1..3_000).step_by(2) {
        let windows = [window(0), window(stream)].concat().repeat(32);
        connection.get(stream, "/kept/16384").feed(&windows);
        let frames = connection.take();
        assert_eq!(Connection::errors(&frames), [], "{stream}");
        assert!(Connection::content(&frames, stream).1, "{stream}");
    }
    let pings = frame(Kind::Ping, 0, 0, &[0; 8]).repeat(11);
    for table_bytes in [4096, 0] {
        // Without a table no response is encoded straight into the output.
        let mut connection = Connection::new();
        connection.setting(Setting::HEADER_TABLE_SIZE, table_bytes);
        for stream in (1..16_000).step_by(2) {
            connection.get(stream, "/kept/0").feed(&pings);
            let frames = connection.take();
            assert_eq!(Connection::errors(&frames), [], "{table_bytes} {stream}");
            let (_, has_ended) = Connection::content(&frames, stream);
            assert!(has_ended, "{table_bytes} {stream}");
        }
    }
}

/// Streams that are opened and never read.
#[test]
fn responses_that_nobody_takes_are_bounded() {
    let mut connection = Connection::new();
    connection.get(1, "/bytes/65535"); // uses the connection's window up
    for stream in (3..257).step_by(2) {
        connection.get(stream, "/bytes/20000");
    }
    let begun = connection.ran.len();
    assert!((50..60).contains(&begun), "{begun}");
    let held = connection.session().held_bytes();
    assert!(held < 5 << 18, "{held}");
    connection.take();
    connection.window(0, 1 << 30);
    let frames = connection.take();
    for stream in (3..257).step_by(2) {
        assert_eq!(
            Connection::content(&frames, stream),
            (vec![b'x'; 20_000], true)
        );
    }
}

/// The same behind windows of one byte: each is given up after its time, and counted.
#[test]
fn responses_behind_tiny_windows_are_given_up() {
    let mut connection = Connection::new();
    connection.setting(Setting::INITIAL_WINDOW_SIZE, 1);
    let streams = || (1..81_u32).step_by(2);
    for stream in streams() {
        connection.get(stream, "/bytes/20000");
    }
    let frames = connection.take();
    for stream in streams() {
        let taken = Connection::content(&frames, stream);
        assert_eq!(taken, (b"x".to_vec(), false), "{stream}");
    }
    connection.pass(19_000);
    assert_eq!(Connection::errors(&connection.take()), []);
    connection.pass(2_000);
    let mut errors = Connection::errors(&connection.take());
    errors.sort_unstable();
    let expected = streams().map(|stream| (stream, ErrorCode::Cancel as u32));
    assert_eq!(errors, expected.collect::<Vec<_>>());
    assert_eq!(connection.counted(Http2Count::SlowStreams), 40);
    let held = connection.session().held_bytes();
    assert!(held < 256 << 10, "{held}");
}

/// A client that does not read is not read from.
#[test]
fn output_is_bounded() {
    let mut connection = Connection::new();
    connection
        .setting(Setting::INITIAL_WINDOW_SIZE, 1 << 20)
        .window(0, 1 << 30);
    connection.hold_output = true;
    let mut stream = 1;
    connection.get(stream, "/bytes/10000");
    while connection.reads {
        stream += 2;
        connection.get(stream, "/bytes/10000");
        assert!(stream < 100, "it goes on reading");
    }
    assert!(connection.counted(Http2Count::Unread) > 0);
    let held = connection.session().held_bytes();
    assert!(held < 256 << 10, "{held}");
    connection.release();
    assert!(connection.reads);
    let frames = connection.take();
    assert_eq!(
        Connection::statuses(&frames).len() as u32,
        stream.div_ceil(2)
    );
}

/// Pings cost no more than they bring, as long as the client takes their answers.
#[test]
fn pings_are_bounded_by_the_output() {
    let mut connection = Connection::new();
    for _ in 0..5_000 {
        connection.frame(Kind::Ping, 0, 0, &[0; 8]);
    }
    assert_eq!(connection.take().len(), 5_000);
    connection.hold_output = true;
    let mut pings = 0;
    while connection.reads {
        connection.frame(Kind::Ping, 0, 0, &[0; 8]);
        pings += 1;
        assert!(pings < 10_000, "it goes on reading");
    }
    assert!(connection.counted(Http2Count::Unread) > 0);
}

#[test]
fn content_that_waits_is_bounded_by_windows() {
    let limits = Limits::default();
    let all = limits.connection_window_bytes as usize;
    let mut connection = Connection::within(limits);
    connection.hold_blocking = true;
    let mut sent = 0;
    'streams: for stream in (1..100).step_by(2) {
        connection.post(stream, "/task", &[]);
        for _ in 0..4 {
            if sent + 16_000 > all {
                break 'streams;
            }
            connection.frame(Kind::Data, 0, stream, &[0; 16_000]);
            sent += 16_000;
        }
    }
    let held = connection.session().held_bytes();
    assert!(held < 2 * all + (64 << 10), "{held}");
    connection.frame(Kind::Data, 0, 1, &[0; 16_000]);
    let errors = Connection::errors(&connection.take());
    assert_eq!(errors.last(), Some(&(0, ErrorCode::FlowControl as u32)));
}
