//! A session over a layer that changes its bytes: the same answers as without it, whatever the cuts.

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use loadline_base::{ContentVersion, Millis, OpenFile};
use loadline_proto::http2::frame::{HEAD_BYTES, Kind, flags, frame};
use loadline_proto::{
    Body, CloseReason, Context, Exchange, FIRST_REQUEST_GRACE_MS, Http1Session, Http2Session,
    Layered, Limits, Outcome, Protocol,
};

use crate::cuts::{conversation, handle, output_of};
use crate::drive::records::{END, Records, hello, plain, records};
use crate::drive::{Driver, Event, config};
use crate::http2_bytes::Http2Bytes;

/// HTTP/1 over records.
pub(crate) const LAYERED: Protocol = Protocol::Other(|config, peer, cx| {
    let http = Http1Session::new(config, peer, cx);
    Box::new(Layered::new(Records::default(), http, config, cx))
});

/// HTTP/2 over records.
const HTTP2_LAYERED: Protocol = Protocol::Other(|config, peer, cx| {
    let http2 = Http2Session::new(config, peer, None, cx);
    Box::new(Layered::new(Records::default(), http2, config, cx))
});

fn driver() -> Driver<'static> {
    Driver::speaking(LAYERED, &config(Limits::default()), handle)
}

/// What was sent, without the records; the layer's end was sent, too.
fn sent(driver: &Driver<'_>) -> Vec<u8> {
    let (plain, ended) = plain(&driver.output);
    assert!(ended, "the end of the records");
    plain
}

#[test]
fn the_same_answers_whatever_the_cuts() {
    let expected = output_of([&conversation()[..]]);
    let bytes = [hello(), records(&conversation())].concat();
    for piece in [1, 2, 3, 7, 100, 1000, bytes.len()] {
        let mut driver = driver();
        for piece in bytes.chunks(piece) {
            driver.feed(piece);
        }
        if !driver.is_closed() {
            driver.feed(&END);
        }
        if !driver.is_closed() {
            driver.eof();
        }
        assert!(driver.is_closed(), "it ends");
        assert_eq!(sent(&driver), expected, "in pieces of {piece}");
    }
}

#[test]
fn the_same_answers_however_slowly_they_leave() {
    let expected = output_of([&conversation()[..]]);
    let mut driver = driver();
    driver.hold_output = true;
    driver.feed(&[hello(), records(&conversation())].concat());
    while driver.held.is_some() {
        driver.progress(777);
    }
    if !driver.is_closed() {
        driver.eof();
    }
    assert_eq!(sent(&driver), expected);
}

/// A file of this length, with a pattern in it.
fn file(len: usize) -> (std::fs::File, Arc<OpenFile>, Vec<u8>) {
    let content: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(&content).expect("written");
    let open = OpenFile {
        fd: file.as_fd().try_clone_to_owned().expect("a descriptor"),
        version: ContentVersion::default(),
        is_local: true,
    };
    (file, Arc::new(open), content)
}

fn with_file(file: &Arc<OpenFile>, len: u64) -> Driver<'static> {
    let file = Arc::clone(file);
    let answer = move |exchange: &mut Exchange, _: &mut Context<'_>| {
        exchange.response.body = Body::File {
            file: Arc::clone(&file),
            offset: 0,
            len,
        };
        Outcome::Ready
    };
    Driver::speaking(LAYERED, &config(Limits::default()), answer)
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";

#[test]
fn a_file_leaves_through_memory_in_pieces() {
    for len in [1, 15_999, 16_384, 65_536, 200_003] {
        let (_, open, content) = file(len);
        let mut driver = with_file(&open, len as u64);
        driver.feed(&[hello(), records(GET), records(GET)].concat());
        driver.feed(&END).eof();
        let answers = crate::drive::parse_answers(&sent(&driver), |_| false);
        assert_eq!(answers.len(), 2, "{len} bytes");
        assert!(answers.iter().all(|answer| answer.body == content));
        let most = driver.events.iter().map(|event| match event {
            Event::Send(bytes) => *bytes,
            _ => 0,
        });
        assert!(
            most.max() <= Some((64 << 10) + 200),
            "pieces of a bounded length"
        );
    }
}

#[test]
fn a_file_that_has_become_shorter_cuts_its_answer() {
    let (file, open, _) = file(100_000);
    let mut driver = with_file(&open, 100_000);
    driver.hold_output = true;
    driver.feed(&[hello(), records(GET)].concat());
    file.set_len(10).unwrap();
    driver.release_output();
    assert!(driver.is_closed());
    assert_eq!(driver.closes(CloseReason::Failed), 1);
    let (_, ended) = plain(&driver.output);
    assert!(!ended, "a client sees that the end is missing");
}

#[test]
fn a_handshake_has_a_deadline_and_rules() {
    let mut silent = driver();
    silent.feed(&hello()[..3]);
    assert!(!silent.is_idle());
    silent.pass(Limits::default().head_pace.grace_ms);
    assert_eq!(silent.closes(CloseReason::Slow), 1);
    assert!(silent.output.is_empty());

    let mut wrong = driver();
    wrong.feed(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    // Their first two bytes are a length: it waits for more.
    assert!(!wrong.is_closed());
    let mut wrong = driver();
    wrong.feed(&records(b"what"));
    assert!(wrong.is_closed() && wrong.seen.is_empty());
    assert_eq!(wrong.output, records(b"alert"));
    assert_eq!(wrong.closes(CloseReason::BadRequest), 1);
}

#[test]
fn ends_of_either_side() {
    // The server's, after the answer to a client that asked for it.
    let mut driver = driver();
    driver.feed(&hello());
    driver.feed(&records(
        b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
    ));
    assert!(driver.is_closed());
    assert!(!sent(&driver).is_empty());

    // The client's, while its answer is being made.
    let mut half = self::driver();
    half.hold_blocking = true;
    half.feed(
        &[
            hello(),
            records(b"GET /blocking HTTP/1.1\r\nHost: h\r\n\r\n"),
        ]
        .concat(),
    );
    half.feed(&END);
    half.complete();
    assert!(half.is_closed() && !sent(&half).is_empty());

    // Idle for too long.
    let mut idle = self::driver();
    idle.feed(&hello());
    assert!(idle.is_idle());
    idle.pass(Limits::default().idle_timeout_ms);
    assert!(idle.is_closed() && sent(&idle).is_empty());

    // A client that does not read the end.
    let mut deaf = self::driver();
    deaf.feed(&hello());
    deaf.hold_output = true;
    deaf.pass(Limits::default().idle_timeout_ms);
    assert!(!deaf.is_closed());
    deaf.pass(Limits::default().linger_pace.total_max_ms);
    assert!(deaf.is_closed());

    let mut gone = self::driver();
    gone.feed(&hello()).peer_gone();
    assert!(gone.is_closed());
    assert_eq!(
        gone.output,
        records(b"welcome"),
        "nothing to a client that is gone"
    );
}

#[test]
fn the_last_answer_is_not_destroyed_by_what_comes_behind_its_request() {
    let last = records(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    for comes_later in [false, true] {
        let mut driver = driver();
        driver.feed(&hello());
        driver.hold_output = true;
        driver.feed(&last);
        driver.receive_anyway(&records(b"more"));
        driver.release_output();
        // Closed at once, the socket would answer with a reset.
        assert!(driver.is_lingering());
        if comes_later {
            driver.feed(&records(b"and more"));
        }
        driver.feed(&END);
        if !driver.is_closed() {
            driver.eof();
        }
        assert!(driver.is_closed() && !sent(&driver).is_empty());
    }
}

#[test]
fn a_drain_answers_what_has_come() {
    let mut driver = driver();
    driver.hold_blocking = true;
    driver.feed(
        &[
            hello(),
            records(b"GET /blocking HTTP/1.1\r\nHost: h\r\n\r\n"),
        ]
        .concat(),
    );
    driver.draining();
    driver.complete();
    assert!(driver.is_closed());
    let answers = crate::drive::parse_answers(&sent(&driver), |_| false);
    assert_eq!(answers[0].field("connection"), Some("close"));

    let mut idle = self::driver();
    idle.feed(&hello()).pass(FIRST_REQUEST_GRACE_MS).draining();
    assert!(idle.is_closed() && sent(&idle).is_empty());
}

/// The only answer says that the connection ends, and it has ended.
fn assert_last(driver: &Driver<'_>) {
    assert!(driver.is_closed());
    let answers = crate::drive::parse_answers(&sent(driver), |_| false);
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].field("connection"), Some("close"));
}

#[test]
fn a_drain_awaits_a_handshake_and_for_a_moment_its_first_request() {
    let hello = hello();
    for cut in 1..=hello.len() {
        let mut driver = driver();
        driver.feed(&hello[..cut]).draining();
        assert!(!driver.is_closed(), "after {cut} bytes");
        driver.feed(&hello[cut..]).pass(FIRST_REQUEST_GRACE_MS - 1);
        assert!(!driver.is_closed(), "after {cut} bytes");
        driver.feed(&records(GET));
        assert_last(&driver);
    }
    // Its first message is in the socket.
    let mut arrived = driver();
    arrived.reading = Some(false);
    arrived.feed(&hello).draining().feed(&records(GET));
    assert_last(&arrived);

    let mut silent = driver();
    silent.feed(&hello).draining().pass(FIRST_REQUEST_GRACE_MS);
    assert!(silent.is_closed() && sent(&silent).is_empty());
    let mut nothing = driver();
    assert!(nothing.draining().is_closed());
}

#[test]
fn half_a_record_is_a_request_that_arrives() {
    let limits = Limits::default();
    let record = records(GET);
    for cut in [1, 2, 10, record.len() - 1] {
        let begun = || {
            let mut driver = driver();
            driver.feed(&hello()).pass(limits.idle_timeout_ms - 1);
            driver.feed(&record[..cut]);
            assert!(!driver.is_idle(), "after {cut} bytes");
            driver
        };
        let mut draining = begun();
        draining.draining();
        assert!(!draining.is_closed(), "after {cut} bytes");
        draining.feed(&record[cut..]);
        assert_last(&draining);

        let mut slow = begun();
        slow.pass(limits.head_pace.grace_ms - 1);
        assert!(!slow.is_closed(), "after {cut} bytes");
        slow.pass(100);
        assert_eq!(slow.closes(CloseReason::Slow), 1);
    }
}

#[test]
fn a_record_has_the_pace_of_a_head() {
    let limits = Limits::default();
    let head = b"GET / HTTP/1.1\r\nHost: h\r\nX-Large: ";
    let large = records(&[&head[..], &[b'x'; 12_000], b"\r\n\r\n"].concat());
    let mut steady = driver();
    steady.feed(&hello());
    for piece in large.chunks(1_000) {
        steady.pass(1_000).feed(piece);
    }
    assert_eq!(steady.seen.len(), 1);

    let mut dripping = driver();
    dripping.feed(&hello());
    for byte in &large[..9] {
        dripping.feed(&[*byte]).pass(1_000);
    }
    assert!(!dripping.is_closed());
    dripping.pass(1_000 + 100);
    assert_eq!(dripping.closes(CloseReason::Slow), 1);

    // Behind a request that takes the server long.
    let mut behind = driver();
    behind.hold_blocking = true;
    let slow = records(b"GET /blocking HTTP/1.1\r\nHost: h\r\n\r\n");
    let next = records(GET);
    let (half, rest) = next.split_at(10);
    behind.feed(&[&hello()[..], &slow, half].concat());
    behind.pass(limits.head_pace.grace_ms + 2_000).complete();
    behind.pass(limits.head_pace.grace_ms - 1);
    assert!(!behind.is_closed());
    behind.feed(rest);
    assert_eq!(behind.seen.len(), 2);
}

/// Of HTTP/2, where the client may send other things than requests.
#[test]
fn half_a_record_holds_a_drain_for_the_time_of_a_head() {
    let limits = Limits::default();
    let ping = records(&frame(Kind::Ping, 0, 0, &[0; 8]));
    let (half, rest) = ping.split_at(2);
    let begun = || {
        let mut driver = Driver::speaking(HTTP2_LAYERED, &config(limits.clone()), handle);
        let (mut client, opening) = Http2Bytes::begin();
        let request = client.request(1, ("GET", "/"), &[], true);
        driver.feed(&[hello(), records(&opening), records(&request)].concat());
        assert_eq!(driver.seen.len(), 1);
        driver.feed(half).draining();
        assert!(!driver.is_closed());
        (driver, client)
    };
    let (mut silent, _) = begun();
    silent.pass(limits.head_pace.grace_ms - 1);
    assert!(!silent.is_closed());
    silent.pass(100);
    assert_eq!(silent.closes(CloseReason::Slow), 1);

    let again = [rest, half].concat();
    let (mut pinging, _) = begun();
    pinging.pass(limits.head_pace.grace_ms / 2).feed(&again);
    assert!(!pinging.is_closed());
    pinging.pass(limits.head_pace.grace_ms / 2 + 100);
    assert_eq!(pinging.closes(CloseReason::Slow), 1);

    let (mut asking, mut client) = begun();
    asking.pass(limits.head_pace.grace_ms / 2);
    let request = records(&client.request(3, ("GET", "/"), &[], true));
    asking.feed(&[rest, &request, half].concat());
    assert_eq!(asking.seen.len(), 2);
    asking.pass(limits.head_pace.grace_ms - 1);
    assert!(!asking.is_closed());
    asking.pass(100);
    assert_eq!(asking.closes(CloseReason::Slow), 1);
}

fn http2_driver() -> Driver<'static> {
    Driver::speaking(HTTP2_LAYERED, &config(Limits::default()), handle)
}

/// The next request, or the rest of it.
#[test]
fn half_a_record_holds_a_drain_whatever_stands_before_it() {
    let linger_ms = Limits::default().linger_pace.grace_ms;
    for before in ["part of a frame", "part of a field block", "unread content"] {
        let (mut client, opening) = Http2Bytes::begin();
        let first = match before {
            "unread content" => {
                let fields = [("content-length", "7")];
                client.request(1, ("POST", "/unread"), &fields, false)
            }
            _ => client.request(1, ("GET", "/"), &[], true),
        };
        let next = client.request(3, ("GET", "/"), &[], true);
        let block = &next[HEAD_BYTES..];
        let (begun, rest) = match before {
            "part of a frame" => (next[..5].to_vec(), next[5..].to_vec()),
            "part of a field block" => (
                frame(Kind::Headers, flags::END_STREAM, 3, &block[..1]),
                frame(Kind::Continuation, flags::END_HEADERS, 3, &block[1..]),
            ),
            _ => (Vec::new(), next),
        };
        let rest = records(&rest);
        let (half, rest) = rest.split_at(4);
        let mut driver = http2_driver();
        driver.feed(&[hello(), records(&opening), records(&first)].concat());
        driver.feed(&[&records(&begun)[..], half].concat());
        driver.draining().pass(linger_ms);
        assert!(!driver.is_lingering() && !driver.is_closed(), "{before}");
        assert_eq!(driver.seen.len(), 1, "{before}");
        driver.feed(rest);
        assert_eq!(driver.seen.len(), 2, "{before}");
        assert!(driver.is_lingering(), "{before}: it was the last");
    }
}

/// The time for a frame begins anew with each, that for a record in a drain does not.
#[test]
fn pings_that_are_cut_into_records_hold_no_drain() {
    let grace_ms = Limits::default().head_pace.grace_ms;
    let ping = frame(Kind::Ping, 0, 0, &[0; 8]);
    let (head, payload) = ping.split_at(HEAD_BYTES);
    let (head, payload) = (records(head), records(payload));
    let (half, rest) = payload.split_at(2);
    let mut driver = http2_driver();
    let (mut client, opening) = Http2Bytes::begin();
    let request = client.request(1, ("GET", "/"), &[], true);
    driver.feed(&[hello(), records(&opening), records(&request)].concat());
    driver.feed(&[&head[..], half].concat()).draining();
    driver.pass(grace_ms / 2);
    driver.feed(&[rest, &head[..], half].concat());
    assert!(!driver.is_lingering() && !driver.is_closed());
    driver.pass(grace_ms / 2 + 100);
    assert_eq!(driver.closes(CloseReason::Slow), 1);
}

/// Each in a write of its own, so that for a moment no part of a record is there.
#[test]
fn pings_in_several_writes_hold_no_drain() {
    let grace_ms = Limits::default().head_pace.grace_ms;
    let ping = records(&frame(Kind::Ping, 0, 0, &[0; 8]));
    let (half, rest) = ping.split_at(2);
    let mut driver = http2_driver();
    let (mut client, opening) = Http2Bytes::begin();
    let request = client.request(1, ("GET", "/"), &[], true);
    driver.feed(&[hello(), records(&opening), records(&request)].concat());
    driver.feed(half).draining().pass(grace_ms / 2);
    driver.reading = Some(false);
    driver.feed(half).receive_anyway(rest);
    assert!(!driver.is_lingering() && !driver.is_closed());
    driver.pass(grace_ms / 2 + 100);
    assert_eq!(driver.closes(CloseReason::Slow), 1);
}

/// The bytes of one record bought time for that record alone.
#[test]
fn a_large_head_in_several_records_has_the_time_of_a_head_in_a_drain() {
    let (mut client, opening) = Http2Bytes::begin();
    let first = client.request(1, ("GET", "/"), &[], true);
    let large = "x".repeat(16_000);
    let head = client.request(3, ("GET", "/"), &[("x-large", &large)], true);
    let head: Vec<u8> = head.chunks(1_000).flat_map(records).collect();
    let mut driver = http2_driver();
    driver.feed(&[hello(), records(&opening), records(&first)].concat());
    let (begun, rest) = head.split_at(501);
    driver.feed(begun).draining();
    for piece in rest.chunks(700) {
        driver.pass(1_000).feed(piece);
    }
    assert!(driver.now.since(Millis(1_000_000)) > 15_000);
    assert_eq!(driver.seen.len(), 2);
    assert!(driver.is_lingering());
}

/// Some part of a record is there all the time, which is longer than one may take.
#[test]
fn an_upload_in_a_drain_has_the_time_for_content() {
    let (mut client, opening) = Http2Bytes::begin();
    let fields = [("content-length", "40000")];
    let request = client.request(1, ("POST", "/"), &fields, false);
    let content = (0..40).map(|n| {
        let flag = if n == 39 { flags::END_STREAM } else { 0 };
        records(&frame(Kind::Data, flag, 1, &[b'x'; 1000]))
    });
    let content = content.collect::<Vec<_>>().concat();
    let (begun, rest) = content.split_at(500);
    let mut driver = http2_driver();
    driver.feed(&[hello(), records(&opening), records(&request)].concat());
    driver.feed(begun).draining();
    for piece in rest.chunks(content.len() / 40) {
        driver.pass(1_000).feed(piece);
    }
    assert_eq!(driver.seen[0].body, Some(vec![b'x'; 40_000]));
    assert!(driver.is_lingering());
}

#[test]
fn a_broken_record_ends_the_connection_whatever_is_in_progress() {
    let broken = [&END[..], &records(b"behind the end")].concat();
    // While a response is on its way: that one leaves, then what the layer has to say.
    let mut sending = driver();
    sending.hold_output = true;
    sending.feed(&hello()).release_output();
    sending.hold_output = true;
    sending.feed(&records(b"GET /big HTTP/1.1\r\nHost: h\r\n\r\n"));
    sending.receive_anyway(&broken);
    sending.release_output();
    assert!(sending.is_closed());
    assert!(sending.output.ends_with(&records(b"alert")));
    // While a part of a file is read.
    let (_, open, _) = file(100_000);
    let mut filling = with_file(&open, 100_000);
    filling.hold_fill = true;
    filling.feed(&[hello(), records(GET)].concat());
    filling.receive_anyway(&broken);
    assert!(filling.is_closed());
    assert_eq!(filling.closes(CloseReason::BadRequest), 1);
}

#[test]
fn without_the_layer_nothing_is_filled() {
    let (_, open, content) = file(200_000);
    let file = Arc::clone(&open);
    let mut plain = Driver::new(&config(Limits::default()), move |exchange, _| {
        exchange.response.body = Body::File {
            file: Arc::clone(&file),
            offset: 0,
            len: 200_000,
        };
        Outcome::Ready
    });
    plain.feed(GET);
    assert_eq!(plain.answers()[0].body, content);
    assert_eq!(plain.filled, 0);
}

#[test]
fn a_part_of_a_file_that_the_disk_is_slow_to_give_is_no_delay_of_the_client() {
    let (_, open, _) = file(200_000);
    let mut driver = with_file(&open, 200_000);
    driver.feed(&hello());
    driver.hold_output = true;
    driver.feed(&records(GET));
    driver.pass(1_000);
    driver.hold_fill = true;
    driver.progress(u64::MAX);
    assert_eq!(driver.deadline(), None);
    driver.hold_fill = false;
    driver.read_for(60_000);
    assert!(!driver.is_closed() && driver.held.is_some());
    driver.pass(Limits::default().write_pace.grace_ms - 1);
    assert!(!driver.is_closed());
}

#[test]
fn an_end_that_is_taken_in_drips_has_a_deadline_too() {
    let mut driver = driver();
    driver.feed(&hello());
    driver.hold_output = true;
    driver.feed(&records(
        b"GET /big HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
    ));
    let pace = Limits::default().write_pace;
    driver.pass(pace.grace_ms);
    assert!(!driver.is_closed(), "the rest may still be taken");
    let start = driver.now;
    while !driver.is_closed() {
        driver.progress(1).pass(100);
        assert!(driver.now.since(start) < 10_000, "10 bytes a second");
    }
    assert_eq!(driver.closes(CloseReason::Slow), 1);
}
