//! The clients without sockets, with a clock that the test moves.

use std::sync::Arc;

use loadline_load::{Expectation, Prepared};
use loadline_proto::Method;
use loadline_record::ErrorKind;
use proptest::prelude::*;

use super::*;
use crate::harness::Harness;

const NS_PER_S: u64 = 1_000_000_000;
const REQUEST: &[u8] = b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 40\r\n\r\n\
    0123456789012345678901234567890123456789";
const TIMEOUT_NS: u64 = 3 * NS_PER_S;

fn spec() -> RequestSpec {
    RequestSpec {
        request: Prepared {
            keep: Arc::from(REQUEST),
            method: Method::Post,
            ..Prepared::get("here", "/")
        },
        expectation: Expectation::default(),
        timeout_ns: TIMEOUT_NS,
    }
}

type Client = Harness<dyn VirtualUser>;

/// Virtual user `number` of a user group.
fn client(user_group: &UserGroup, number: u64) -> Client {
    Harness::new((user_group.make)(number, 1))
}

/// One that has its connection.
fn connected(user_group: &UserGroup, number: u64) -> Client {
    let mut client = client(user_group, number);
    assert_eq!(client.order(), Order::Connect);
    client.on_event(Event::Connected);
    client
}

/// Sends what is given, until it wants something else: that order, and the bytes sent.
fn send(client: &mut Client) -> (Order, usize) {
    let mut sent = 0;
    loop {
        match client.order() {
            Order::Send(bytes) => {
                sent += bytes.len();
                client.on_event(Event::Sent);
            }
            order => return (order, sent),
        }
    }
}

fn answer(content_bytes: usize) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {content_bytes}\r\n\r\n");
    let mut answer = head.into_bytes();
    answer.resize(answer.len() + content_bytes, b'x');
    answer
}

/// How many bytes a reader takes in `seconds` from a server that always has some, when each
/// wake-up is late by the next of these.
fn read_in(bytes_per_second: u64, seconds: u64, late_ns: &[u64]) -> u64 {
    let user_group = slow_reader::user_group(bytes_per_second, spec());
    let mut reader = connected(&user_group, 0);
    let (order, _) = send(&mut reader);
    assert!(matches!(order, Order::ReceiveUntil { .. }), "{order:?}");
    reader.on_event(Event::Received(
        b"HTTP/1.1 200 OK\r\nContent-Length: 1099511627776\r\n\r\n",
    ));
    let (begin_ns, mut late, mut bytes) = (reader.now_ns, late_ns.iter().cycle(), 0);
    while reader.now_ns - begin_ns < seconds * NS_PER_S {
        match reader.order() {
            Order::ReceiveUntil { bytes_max, .. } => {
                bytes += bytes_max as u64;
                reader.on_event(Event::Received(&vec![b'x'; bytes_max]));
            }
            Order::SleepUntil { ns } => reader.wakes_at(ns + late.next().unwrap()),
            order => panic!("{order:?}"),
        }
    }
    bytes
}

/// Sleeps until it wants to receive; until when it does.
fn receives_until(reader: &mut Client) -> u64 {
    loop {
        match reader.order() {
            Order::SleepUntil { ns } => reader.wakes_at(ns),
            Order::ReceiveUntil { ns, .. } => return ns,
            order => panic!("{order:?}"),
        }
    }
}

#[test]
fn slow_readers_keep_their_rate() {
    for (rate, seconds) in [
        (1, 200),
        (7, 100),
        (1000, 60),
        (10_240, 60),
        (5_000_000, 20),
    ] {
        for late_ns in [&[0][..], &[0, 20_000_000, 50_000_000, 1_000]] {
            let bytes = read_in(rate, seconds, late_ns);
            let expected = rate * seconds;
            // The head counts as well; it is 48 bytes in the first moment.
            let off = bytes.abs_diff(expected) as f64 / (expected as f64 + 500.0);
            assert!(off < 0.1, "{rate} B/s for {seconds} s: {bytes} bytes");
        }
    }
}

#[test]
fn a_server_that_falls_silent_is_a_timeout_and_its_slowness_is_not() {
    let user_group = slow_reader::user_group(1000, spec());
    let mut reader = connected(&user_group, 0);
    let _ = send(&mut reader);
    reader.on_event(Event::Received(&answer(1000)[..100]));
    for _ in 0..20 {
        // One byte just in time.
        reader.now_ns = receives_until(&mut reader) - 1;
        reader.on_event(Event::Received(b"x"));
    }
    assert_eq!(reader.tally().errors_total(), 0);
    let ns = receives_until(&mut reader);
    reader.wakes_at(ns);
    assert_eq!(reader.order(), Order::Close { reset: true });
    assert_eq!(reader.tally().errors_of(ErrorKind::Timeout), 1);
    assert!(matches!(reader.order(), Order::SleepUntil { .. }));
}

/// Drips until the whole request is out; how many bytes went at once at first and at last, and how
/// long it took.
fn drip(user_group: &UserGroup) -> (usize, usize, u64, Client) {
    let mut sender = connected(user_group, 0);
    let (begin_ns, mut sizes) = (sender.now_ns, Vec::new());
    while sizes.iter().sum::<usize>() < REQUEST.len() {
        let (order, sent) = send(&mut sender);
        sizes.push(sent);
        match order {
            Order::ReceiveUntil { ns, .. } if sizes.iter().sum::<usize>() < REQUEST.len() => {
                sender.wakes_at(ns);
            }
            Order::ReceiveUntil { .. } => {}
            order => panic!("{order:?}"),
        }
    }
    let (first, last) = (sizes[0], *sizes.last().unwrap());
    let took_ns = sender.now_ns - begin_ns;
    (first, last, took_ns, sender)
}

#[test]
fn heads_drip_to_their_end_and_bodies_from_there_on() {
    let head_bytes = REQUEST.len() - 40;
    let (first, last, took_ns, mut sender) = drip(&slow_sender::heads(2, spec()));
    assert_eq!((first, last), (1, 41));
    assert_eq!(took_ns, (head_bytes as u64 - 1) * NS_PER_S / 2);
    sender.on_event(Event::Received(&answer(3)));
    // Again on the same connection, at once.
    assert_eq!(send(&mut sender).1, 1);
    let tally = sender.tally();
    assert_eq!((tally.offered, tally.sent, tally.good), (2, 2, 1));

    let (first, last, took_ns, _) = drip(&slow_sender::bodies(100, spec()));
    assert_eq!((first, last), (head_bytes + 10, 10));
    assert_eq!(took_ns, 3 * NS_PER_S / 10);
}

#[test]
fn the_answer_of_a_server_that_gives_up_is_read_between_portions() {
    let user_group = slow_sender::heads(1, spec());
    let mut sender = connected(&user_group, 0);
    for _ in 0..3 {
        let (order, sent) = send(&mut sender);
        assert_eq!(sent, 1);
        let Order::ReceiveUntil { ns, .. } = order else {
            panic!("{order:?}");
        };
        sender.wakes_at(ns);
    }
    sender.on_event(Event::Received(
        b"HTTP/1.1 408 Enough\r\nContent-Length: 0\r\n\r\n",
    ));
    assert_eq!(sender.order(), Order::Close { reset: false });
    let Order::SleepUntil { ns } = sender.order() else {
        panic!("no pause");
    };
    assert!((5_000_000..15_000_000).contains(&(ns - sender.now_ns)));
    sender.wakes_at(ns);
    assert_eq!(sender.order(), Order::Connect);
    let tally = sender.tally();
    assert_eq!(tally.errors_of(ErrorKind::Status4xx), 1);
    assert_eq!((tally.offered, tally.sent, tally.completed), (2, 1, 1));
}

/// The pauses of a user whose connections are cut 0.5 s after they were opened.
fn pauses_after_cuts(user_group: &UserGroup, number: u64) -> Vec<u64> {
    let mut client = client(user_group, number);
    let mut pauses = Vec::new();
    for _ in 0..10 {
        assert_eq!(client.order(), Order::Connect);
        client.on_event(Event::Connected);
        let _ = send(&mut client);
        client.now_ns += NS_PER_S / 2;
        client.on_event(Event::Cut);
        let Order::SleepUntil { ns } = client.order() else {
            panic!("no pause");
        };
        pauses.push(ns - client.now_ns);
        client.wakes_at(ns);
    }
    pauses
}

/// A thousand slow clients that a server cuts at one moment came back at one moment, time after time.
#[test]
fn users_that_fail_at_one_moment_come_back_at_different_ones() {
    let user_group = slow_sender::heads(2, spec());
    let all = (0..1000).map(|number| pauses_after_cuts(&user_group, number));
    let all: Vec<Vec<u64>> = all.collect();
    let means_ms = [10, 20, 40, 80, 160, 320, 640, 1000, 1000, 1000];
    for (turn, mean_ms) in means_ms.into_iter().enumerate() {
        let mean_ns = mean_ms * 1_000_000;
        let mut pauses: Vec<u64> = all.iter().map(|pauses| pauses[turn]).collect();
        pauses.sort_unstable();
        assert!(pauses[0] >= mean_ns / 2 && pauses[999] < mean_ns * 3 / 2);
        // The standard error of a mean of a thousand is 0.9 % of it.
        let off_ns = (pauses.iter().sum::<u64>() / 1000).abs_diff(mean_ns);
        assert!(off_ns < mean_ns / 20, "turn {turn}: off by {off_ns} ns");
        // In a tenth of the time in which all come, of 100 in the mean.
        let most = (0..10_u64).map(|part| {
            let begin_ns = mean_ns / 2 + part * mean_ns / 10;
            let within = begin_ns..begin_ns + mean_ns / 10;
            pauses.iter().filter(|ns| within.contains(*ns)).count()
        });
        assert!(most.max() < Some(160), "turn {turn}");
    }
    assert_eq!(all[7], pauses_after_cuts(&user_group, 7));
}

#[test]
fn vanishing_clients_vanish_by_turns() {
    let user_group = vanishing::user_group(spec());
    let mut client = client(&user_group, 0);
    for turn in 0..12 {
        assert_eq!(client.order(), Order::Connect, "turn {turn}");
        client.on_event(Event::Connected);
        let (mut order, sent) = send(&mut client);
        match turn % 3 {
            0 => assert_eq!(sent, REQUEST.len() / 2),
            1 => assert_eq!(sent, REQUEST.len()),
            _ => {
                assert!(matches!(order, Order::ReceiveUntil { .. }), "{order:?}");
                client.on_event(Event::Received(
                    b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n",
                ));
                let Order::ReceiveUntil { bytes_max, .. } = client.order() else {
                    panic!("it is half of 2000 bytes");
                };
                assert_eq!(bytes_max, 1000);
                client.on_event(Event::Received(&[b'x'; 999]));
                assert!(matches!(client.order(), Order::ReceiveUntil { .. }));
                client.on_event(Event::Received(b"x"));
                order = client.order();
            }
        }
        let reset = turn / 3 % 2 == 0;
        assert_eq!(order, Order::Close { reset }, "turn {turn}");
        let Order::SleepUntil { ns } = client.order() else {
            panic!("no pause");
        };
        assert!((50_000_000..150_000_000).contains(&(ns - client.now_ns)));
        client.wakes_at(ns);
    }
    let tally = client.tally();
    assert_eq!((tally.offered, tally.sent, tally.unfinished), (12, 12, 12));
}

#[test]
fn idle_clients_come_back_after_pauses_of_their_own() {
    let user_group = idle::user_group(None);
    let mut pauses = Vec::new();
    for number in 0..100 {
        let mut client = connected(&user_group, number);
        assert!(matches!(client.order(), Order::Receive { .. }));
        client.on_event(Event::Received(b"HTTP/1.1 408 So\r\n\r\n"));
        assert!(matches!(client.order(), Order::Receive { .. }));
        client.on_event(Event::Closed);
        let Order::SleepUntil { ns } = client.order() else {
            panic!("no pause");
        };
        pauses.push(ns - client.now_ns);
        client.wakes_at(ns);
        assert_eq!(client.order(), Order::Connect);
        client.on_event(Event::Connected);
        assert!(matches!(client.order(), Order::Receive { .. }));
        client.is_ending = true;
        assert_eq!(client.order(), Order::Close { reset: false });
        assert_eq!(client.order(), Order::Done);
        let tally = client.tally();
        assert_eq!((tally.closes, tally.held, tally.offered), (1, 1, 0));
    }
    pauses.sort_unstable();
    assert!(pauses[0] >= NS_PER_S / 2 && pauses[99] < NS_PER_S * 3 / 2);
    assert!(pauses[99] - pauses[0] > NS_PER_S / 2);
}

/// One that was connected when the run ended was not counted.
#[test]
fn what_is_open_at_the_end_is_held() {
    let mut client = connected(&idle::user_group(Some(spec())), 0);
    client.is_ending = true;
    assert_eq!(client.order(), Order::Close { reset: false });
    assert_eq!(client.tally().held, 1);
}

/// What may happen to a virtual user that has given this order, by a number.
fn carry_out(client: &mut Client, order: Order, what: u8) {
    let fail = |client: &mut Client, kind| {
        client.on_event(Event::Failed(kind));
    };
    match (order, what % 8) {
        (Order::Connect, 0) => fail(client, ErrorKind::Refused),
        (Order::Connect, _) => client.on_event(Event::Connected),
        (Order::Send(_), 0) => fail(client, ErrorKind::Reset),
        (Order::Send(_), _) => client.on_event(Event::Sent),
        (Order::SleepUntil { ns } | Order::ReceiveUntil { ns, .. }, 0) => client.wakes_at(ns),
        (Order::SleepUntil { ns }, _) => client.wakes_at(ns),
        (Order::Receive { .. } | Order::ReceiveUntil { .. }, 1) => fail(client, ErrorKind::Reset),
        (Order::Receive { .. } | Order::ReceiveUntil { .. }, 2) => {
            client.on_event(Event::Closed);
        }
        (Order::Receive { bytes_max } | Order::ReceiveUntil { bytes_max, .. }, what) => {
            let bytes = match what {
                3 => b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc".to_vec(),
                4 => b"HTTP/1.1 503 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec(),
                5 => b"HTTP/1.1 206 OK\r\nContent-Length: 9\r\n\
                       Content-Range: bytes 0-8/9\r\n\r\nabcdefghi"
                    .to_vec(),
                6 => b"x".to_vec(),
                _ => b"HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\nabc".to_vec(),
            };
            client.on_event(Event::Received(&bytes[..bytes.len().min(bytes_max)]));
        }
        (Order::Close { .. } | Order::Done | Order::AwaitStart | Order::GiveUp(_), _) => {}
    }
}

proptest! {
    /// Whatever happens, each request is counted once: good, an error, or unfinished; and each
    /// virtual user comes to an end.
    #[test]
    fn each_request_is_counted_once(
        kind in 0_u8..6,
        facts in prop::collection::vec(any::<u8>(), 0..200),
        abandoned in any::<bool>(),
    ) {
        let user_group = match kind {
            0 => slow_reader::user_group(100, spec()),
            1 => slow_sender::heads(20, spec()),
            2 => slow_sender::bodies(20, spec()),
            3 => vanishing::user_group(spec()),
            4 => player::user_group(800_000, spec()),
            _ => idle::user_group(Some(spec())),
        };
        let mut client = client(&user_group, 0);
        let mut failed_to_connect = 0;
        for what in facts {
            let order = client.order();
            prop_assert_ne!(&order, &Order::Done);
            failed_to_connect += u64::from(order == Order::Connect && what % 8 == 0);
            carry_out(&mut client, order, what);
        }
        client.is_ending = true;
        let mut orders = 0;
        loop {
            match client.order() {
                Order::Done => break,
                Order::ReceiveUntil { .. } if abandoned => {
                    client.on_event(Event::Abandoned);
                    break;
                }
                Order::ReceiveUntil { ns, .. } => client.wakes_at(ns),
                Order::Close { .. } => {}
                order => prop_assert!(false, "after the end: {order:?}"),
            }
            orders += 1;
            prop_assert!(orders < 100, "it finds no end");
        }
        prop_assert_eq!(client.user.requests_out(), 0);
        let tally = client.tally();
        let errors = tally.errors_total() - if kind == 5 { failed_to_connect } else { 0 };
        prop_assert_eq!(tally.offered, tally.good + errors + tally.unfinished, "{:?}", tally);
        prop_assert!(tally.sent <= tally.offered && tally.completed <= tally.sent);
    }
}
