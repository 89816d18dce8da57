//! The clients without sockets, with a clock that the test moves.

use std::sync::Arc;

use loadline_load::recorder::GroupRecorder;
use loadline_load::{Expectation, Message, Prepared};
use loadline_proto::Method;
use loadline_record::{ErrorKind, Tally};
use proptest::prelude::*;

use super::*;

const NS_PER_S: u64 = 1_000_000_000;
const REQUEST: &[u8] = b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 40\r\n\r\n\
    0123456789012345678901234567890123456789";
const TIMEOUT_NS: u64 = 3 * NS_PER_S;

fn spec() -> RequestSpec {
    RequestSpec {
        request: Prepared {
            keep: Arc::from(REQUEST),
            last: Arc::from(REQUEST),
            method: Method::Post,
            expectation: 0,
            server: 0,
        },
        expectation: Expectation::default(),
        timeout_ns: TIMEOUT_NS,
    }
}

/// A virtual user and its context.
struct Rehearsal {
    user: Box<dyn VirtualUser>,
    recorder: GroupRecorder,
    now_ns: u64,
    is_ending: bool,
}

impl Rehearsal {
    /// Member `number` of a user group, a second after the machine was started.
    fn new(user_group: &UserGroup, number: u64) -> Self {
        Self {
            user: (user_group.make)(number, 1),
            recorder: GroupRecorder::new(1),
            now_ns: NS_PER_S,
            is_ending: false,
        }
    }

    /// One that has its connection.
    fn connected(user_group: &UserGroup, number: u64) -> Self {
        let mut rehearsal = Self::new(user_group, number);
        assert_eq!(rehearsal.order(), Order::Connect);
        rehearsal.tell(|user, context| user.connected(context));
        rehearsal
    }

    fn tell<R>(&mut self, fact: impl FnOnce(&mut dyn VirtualUser, &mut UserContext<'_>) -> R) -> R {
        let mut context = UserContext {
            now_ns: self.now_ns,
            phase: 0,
            recorder: &mut self.recorder,
            is_ending: self.is_ending,
        };
        fact(&mut *self.user, &mut context)
    }

    fn order(&mut self) -> Order {
        self.tell(|user, context| user.next_order(context))
    }

    fn received(&mut self, bytes: &[u8]) {
        self.tell(|user, context| user.received(bytes, context));
    }

    fn wakes_at(&mut self, ns: u64) {
        self.now_ns = self.now_ns.max(ns);
        self.tell(|user, context| user.woken(context));
    }

    /// Sends what is given, until it wants something else: that order, and the bytes sent.
    fn send(&mut self) -> (Order, usize) {
        let mut sent = 0;
        loop {
            match self.order() {
                Order::Send(bytes) => {
                    sent += bytes.len();
                    self.tell(|user, context| user.sent(context));
                }
                order => return (order, sent),
            }
        }
    }

    fn tally(&mut self) -> Tally {
        let mut tally = Tally::default();
        self.recorder.flush(0, 0, false, &mut |message| {
            if let Message::Interval(interval) = message {
                tally.merge(&interval.tally);
            }
        });
        tally
    }
}

fn answer(content_bytes: usize) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {content_bytes}\r\n\r\n");
    let mut answer = head.into_bytes();
    answer.resize(answer.len() + content_bytes, b'x');
    answer
}

/// How many bytes a reader takes in so many seconds from a server that always has some, when each
/// wake-up is late by the next of these.
fn read_in(bytes_per_second: u64, seconds: u64, late_ns: &[u64]) -> u64 {
    let user_group = slow_reader::user_group(1, 0, 1, bytes_per_second, spec());
    let mut reader = Rehearsal::connected(&user_group, 0);
    let (order, _) = reader.send();
    assert!(matches!(order, Order::ReceiveUntil { .. }), "{order:?}");
    reader.received(b"HTTP/1.1 200 OK\r\nContent-Length: 1099511627776\r\n\r\n");
    let (begin_ns, mut late, mut bytes) = (reader.now_ns, late_ns.iter().cycle(), 0);
    while reader.now_ns - begin_ns < seconds * NS_PER_S {
        match reader.order() {
            Order::ReceiveUntil { bytes_max, .. } => {
                bytes += bytes_max as u64;
                reader.received(&vec![b'x'; bytes_max]);
            }
            Order::SleepUntil { ns } => reader.wakes_at(ns + late.next().unwrap()),
            order => panic!("{order:?}"),
        }
    }
    bytes
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
    let user_group = slow_reader::user_group(1, 0, 1, 1000, spec());
    let mut reader = Rehearsal::connected(&user_group, 0);
    let _ = reader.send();
    reader.received(&answer(1000)[..100]);
    for _ in 0..20 {
        // One byte just in time.
        loop {
            match reader.order() {
                Order::SleepUntil { ns } => reader.wakes_at(ns),
                Order::ReceiveUntil { ns, .. } => {
                    reader.now_ns = ns - 1;
                    reader.received(b"x");
                    break;
                }
                order => panic!("{order:?}"),
            }
        }
    }
    assert_eq!(reader.tally().errors_total(), 0);
    loop {
        match reader.order() {
            Order::SleepUntil { ns } => reader.wakes_at(ns),
            Order::ReceiveUntil { ns, .. } => {
                reader.wakes_at(ns);
                break;
            }
            order => panic!("{order:?}"),
        }
    }
    assert_eq!(reader.order(), Order::Close { reset: true });
    assert_eq!(reader.tally().errors_of(ErrorKind::Timeout), 1);
    assert!(matches!(reader.order(), Order::SleepUntil { .. }));
}

/// Drips until the whole request is out; how many bytes went at once at first and at last, and how
/// long it took.
fn drip(user_group: &UserGroup) -> (usize, usize, u64, Rehearsal) {
    let mut sender = Rehearsal::connected(user_group, 0);
    let (begin_ns, mut sizes) = (sender.now_ns, Vec::new());
    while sizes.iter().sum::<usize>() < REQUEST.len() {
        let (order, sent) = sender.send();
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
    let (first, last, took_ns, mut sender) = drip(&slow_head::user_group(1, 0, 1, 2, spec()));
    assert_eq!((first, last), (1, 41));
    assert_eq!(took_ns, (head_bytes as u64 - 1) * NS_PER_S / 2);
    sender.received(&answer(3));
    // Again on the same connection, at once.
    assert_eq!(sender.send().1, 1);
    let tally = sender.tally();
    assert_eq!((tally.offered, tally.sent, tally.good), (2, 2, 1));

    let (first, last, took_ns, _) = drip(&slow_body::user_group(1, 0, 1, 100, spec()));
    assert_eq!((first, last), (head_bytes + 10, 10));
    assert_eq!(took_ns, 3 * NS_PER_S / 10);
}

#[test]
fn a_server_that_has_had_enough_is_heard_between_the_drops() {
    let user_group = slow_head::user_group(1, 0, 1, 1, spec());
    let mut sender = Rehearsal::connected(&user_group, 0);
    for _ in 0..3 {
        let (order, sent) = sender.send();
        assert_eq!(sent, 1);
        let Order::ReceiveUntil { ns, .. } = order else {
            panic!("{order:?}");
        };
        sender.wakes_at(ns);
    }
    sender.received(b"HTTP/1.1 408 Enough\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(sender.order(), Order::Close { reset: false });
    let Order::SleepUntil { ns } = sender.order() else {
        panic!("no pause");
    };
    assert_eq!(ns, sender.now_ns + 10_000_000);
    sender.wakes_at(ns);
    assert_eq!(sender.order(), Order::Connect);
    let tally = sender.tally();
    assert_eq!(tally.errors_of(ErrorKind::Status4xx), 1);
    assert_eq!((tally.offered, tally.sent, tally.completed), (2, 1, 1));
}

#[test]
fn vanishing_clients_vanish_by_turns() {
    let user_group = vanishing::user_group(1, 0, 6, spec());
    let mut client = Rehearsal::new(&user_group, 0);
    for turn in 0..12 {
        assert_eq!(client.order(), Order::Connect, "turn {turn}");
        client.tell(|user, context| user.connected(context));
        let (mut order, sent) = client.send();
        match turn % 3 {
            0 => assert_eq!(sent, REQUEST.len() / 2),
            1 => assert_eq!(sent, REQUEST.len()),
            _ => {
                assert!(matches!(order, Order::ReceiveUntil { .. }), "{order:?}");
                client.received(b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n");
                let Order::ReceiveUntil { bytes_max, .. } = client.order() else {
                    panic!("it is half of 2000 bytes");
                };
                assert_eq!(bytes_max, 1000);
                client.received(&[b'x'; 999]);
                assert!(matches!(client.order(), Order::ReceiveUntil { .. }));
                client.received(b"x");
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
    let user_group = idle::user_group(1, 0, 100, None);
    let mut pauses = Vec::new();
    for number in 0..100 {
        let mut client = Rehearsal::connected(&user_group, number);
        assert!(matches!(client.order(), Order::Receive { .. }));
        client.received(b"HTTP/1.1 408 So\r\n\r\n");
        assert!(matches!(client.order(), Order::Receive { .. }));
        client.tell(|user, context| user.closed(context));
        let Order::SleepUntil { ns } = client.order() else {
            panic!("no pause");
        };
        pauses.push(ns - client.now_ns);
        client.wakes_at(ns);
        assert_eq!(client.order(), Order::Connect);
        client.tell(|user, context| user.connected(context));
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

/// What may happen to a virtual user that has given this order, by a number.
fn happen(rehearsal: &mut Rehearsal, order: Order, what: u8) {
    let fail = |rehearsal: &mut Rehearsal, kind| {
        rehearsal.tell(|user, context| user.failed(kind, context));
    };
    match (order, what % 8) {
        (Order::Connect, 0) => fail(rehearsal, ErrorKind::Refused),
        (Order::Connect, _) => rehearsal.tell(|user, context| user.connected(context)),
        (Order::Send(_), 0) => fail(rehearsal, ErrorKind::Reset),
        (Order::Send(_), _) => rehearsal.tell(|user, context| user.sent(context)),
        (Order::SleepUntil { ns } | Order::ReceiveUntil { ns, .. }, 0) => rehearsal.wakes_at(ns),
        (Order::SleepUntil { ns }, _) => rehearsal.wakes_at(ns),
        (Order::Receive { .. } | Order::ReceiveUntil { .. }, 1) => {
            fail(rehearsal, ErrorKind::Reset)
        }
        (Order::Receive { .. } | Order::ReceiveUntil { .. }, 2) => {
            rehearsal.tell(|user, context| user.closed(context));
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
            rehearsal.received(&bytes[..bytes.len().min(bytes_max)]);
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
            0 => slow_reader::user_group(1, 0, 1, 100, spec()),
            1 => slow_head::user_group(1, 0, 1, 20, spec()),
            2 => slow_body::user_group(1, 0, 1, 20, spec()),
            3 => vanishing::user_group(1, 0, 1, spec()),
            4 => player::user_group(1, 0, 1, 800_000, spec()),
            _ => idle::user_group(1, 0, 1, Some(spec())),
        };
        let mut rehearsal = Rehearsal::new(&user_group, 0);
        let mut failed_to_connect = 0;
        for what in facts {
            let order = rehearsal.order();
            prop_assert_ne!(&order, &Order::Done);
            failed_to_connect += u64::from(order == Order::Connect && what % 8 == 0);
            happen(&mut rehearsal, order, what);
        }
        rehearsal.is_ending = true;
        let mut orders = 0;
        loop {
            match rehearsal.order() {
                Order::Done => break,
                Order::ReceiveUntil { .. } if abandoned => {
                    rehearsal.tell(|user, context| user.abandoned(context));
                    break;
                }
                Order::ReceiveUntil { ns, .. } => rehearsal.wakes_at(ns),
                Order::Close { .. } => {}
                order => prop_assert!(false, "after the end: {order:?}"),
            }
            orders += 1;
            prop_assert!(orders < 100, "it finds no end");
        }
        prop_assert_eq!(rehearsal.user.requests_out(), 0);
        let tally = rehearsal.tally();
        let errors = tally.errors_total() - if kind == 5 { failed_to_connect } else { 0 };
        prop_assert_eq!(tally.offered, tally.good + errors + tally.unfinished, "{:?}", tally);
        prop_assert!(tally.sent <= tally.offered && tally.completed <= tally.sent);
    }
}
