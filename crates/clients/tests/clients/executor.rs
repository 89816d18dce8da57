//! What the executor promises to virtual users, with virtual users made for it.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use loadline_clients::{Event, Order, UserContext, UserGroup, VirtualUser};
use loadline_load::{Control, Share};
use loadline_record::ErrorKind;

use crate::server::{self, Notes};
use crate::user_groups::{AGES, TestRun, plan};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Fact {
    Connected,
    Sent,
    Received(Vec<u8>),
    Woken,
    Closed,
    Cut,
    Failed(ErrorKind),
    Abandoned,
}

/// Carries out a list of orders, and notes its events.
struct Scripted {
    orders: std::vec::IntoIter<Order>,
    facts: Notes<Fact>,
    notify: mpsc::Sender<()>,
}

impl VirtualUser for Scripted {
    fn prepares(&self) -> bool {
        let is_of_preparing = |order: &Order| matches!(order, Order::AwaitStart | Order::GiveUp(_));
        self.orders.as_slice().iter().any(is_of_preparing)
    }

    fn next_order(&mut self, context: &mut UserContext<'_>) -> Order {
        if context.is_ending {
            return Order::Done;
        }
        let order = self.orders.next();
        let sends = matches!(order, Some(Order::Send(_)));
        context.recorder.tally(context.phase).sent += u64::from(sends);
        match order {
            Some(Order::SleepUntil { ns }) => Order::SleepUntil {
                ns: context.now_ns + ns,
            },
            Some(Order::ReceiveUntil { bytes_max, ns }) => Order::ReceiveUntil {
                bytes_max,
                ns: context.now_ns + ns,
            },
            order => order.unwrap_or(Order::Done),
        }
    }

    fn on_event(&mut self, event: Event<'_>, _: &mut UserContext<'_>) {
        self.facts.lock().unwrap().push(match event {
            Event::Connected => Fact::Connected,
            Event::Sent => Fact::Sent,
            Event::Received(bytes) => Fact::Received(bytes.to_vec()),
            Event::Woken => Fact::Woken,
            Event::Closed => Fact::Closed,
            Event::Cut => Fact::Cut,
            Event::Failed(kind) => Fact::Failed(kind),
            Event::Abandoned => Fact::Abandoned,
        });
        let _ = self.notify.send(());
    }
}

/// One virtual user with these orders; times in them count from when they are given.
fn one(orders: Vec<Order>) -> (UserGroup, Notes<Fact>, mpsc::Receiver<()>) {
    let facts: Notes<Fact> = Arc::default();
    let (notify, notified) = mpsc::channel();
    let (noted, notify) = (Arc::clone(&facts), Mutex::new(notify));
    let make = Arc::new(move |number, _| {
        assert_eq!(number, 0);
        Box::new(Scripted {
            orders: orders.clone().into_iter(),
            facts: Arc::clone(&noted),
            notify: notify.lock().unwrap().clone(),
        }) as Box<dyn VirtualUser>
    });
    let user_group = UserGroup {
        sources: vec!["127.0.0.77".parse().unwrap()],
        ..UserGroup::new(make).of(1, 1)
    };
    (user_group, facts, notified)
}

const FOREVER_NS: u64 = 3_600_000_000_000;

#[test]
fn sips_and_a_sleep_that_the_end_of_the_connection_cuts_short() {
    let address = server::each(|_, mut stream| {
        assert_eq!(stream.peer_addr().unwrap().ip().to_string(), "127.0.0.77");
        let mut hello = [0; 5];
        stream.read_exact(&mut hello).unwrap();
        stream.write_all(&hello).unwrap();
    });
    let (user_group, facts, _) = one(vec![
        Order::Connect,
        Order::SleepUntil { ns: 1_000_000 },
        Order::Send(b"hello".to_vec()),
        Order::Receive { bytes_max: 2 },
        Order::Receive { bytes_max: 2 },
        Order::Receive { bytes_max: 100 },
        // All is read: the end is reported though nothing is read any more.
        Order::SleepUntil { ns: FOREVER_NS },
        Order::Connect,
        Order::ReceiveUntil {
            bytes_max: 1,
            ns: 1,
        },
        Order::Close { reset: true },
    ]);
    let outcome = TestRun::begin(plan(address, user_group, AGES)).end();
    let received = |bytes: &[u8]| Fact::Received(bytes.to_vec());
    let expected = [
        Fact::Connected,
        Fact::Woken,
        Fact::Sent,
        received(b"he"),
        received(b"ll"),
        received(b"o"),
        Fact::Closed,
        Fact::Connected,
        Fact::Woken,
    ];
    assert_eq!(*facts.lock().unwrap(), expected);
    let tally = outcome.tally;
    assert_eq!((tally.connections, tally.bytes_sent), (2, 5));
    assert_eq!(tally.bytes_received, 5);
    assert_eq!(outcome.report.name, "users 0");
    assert_eq!(outcome.report.group, 1);
}

#[test]
fn the_end_is_reported_to_a_sleeper_after_it_has_read_all_bytes() {
    let address = server::each(|_, mut stream| {
        stream.write_all(b"bye").unwrap();
    });
    let (user_group, facts, _) = one(vec![
        Order::Connect,
        Order::SleepUntil { ns: 50_000_000 },
        Order::SleepUntil { ns: 50_000_000 },
        Order::Receive { bytes_max: 10 },
        Order::Receive { bytes_max: 10 },
    ]);
    let _ = TestRun::begin(plan(address, user_group, AGES)).end();
    let expected = [
        Fact::Connected,
        Fact::Woken,
        Fact::Woken,
        Fact::Received(b"bye".to_vec()),
        Fact::Closed,
    ];
    assert_eq!(*facts.lock().unwrap(), expected);
}

#[test]
fn bytes_of_a_server_that_takes_no_more_are_received() {
    let (notify, notified) = mpsc::channel();
    let address = server::each(move |_, mut stream| {
        stream.read_exact(&mut [0; 4]).unwrap();
        stream.write_all(b"enough").unwrap();
        // Unread bytes behind these four: the close resets.
        while stream.peek(&mut [0; 8]).unwrap() < 4 {}
        drop(stream);
        notify.send(()).unwrap();
    });
    let (user_group, facts, _) = one(vec![
        Order::Connect,
        Order::Send(b"12345678".to_vec()),
        Order::ReceiveUntil {
            bytes_max: 3,
            ns: FOREVER_NS,
        },
        Order::ReceiveUntil {
            bytes_max: 3,
            ns: FOREVER_NS,
        },
        Order::SleepUntil { ns: FOREVER_NS },
        Order::SleepUntil { ns: 0 },
    ]);
    let _ = TestRun::begin(plan(address, user_group, AGES)).end();
    notified.recv().unwrap();
    let expected = [
        Fact::Connected,
        Fact::Sent,
        Fact::Received(b"eno".to_vec()),
        Fact::Received(b"ugh".to_vec()),
        Fact::Failed(ErrorKind::Reset),
        Fact::Woken,
    ];
    assert_eq!(*facts.lock().unwrap(), expected);
}

#[test]
fn who_waits_for_ever_is_asked_again_at_the_end_and_a_stop_abandons_nobody_who_is_done() {
    let (address, _kept) = server::keeper(1000);
    for duration in [Duration::from_millis(30), AGES] {
        let (user_group, facts, notified) =
            one(vec![Order::Connect, Order::Receive { bytes_max: 1 }]);
        let run = TestRun::begin(plan(address, user_group, duration));
        let outcome = if duration == AGES {
            notified.recv().unwrap();
            run.stop()
        } else {
            run.end()
        };
        let facts = facts.lock().unwrap();
        // A thread that was kept from running may find that all is over.
        assert!(facts.is_empty() && duration != AGES || *facts == [Fact::Connected]);
        assert_eq!(outcome.tally.connections, 1);
    }
}

#[test]
fn bytes_that_nobody_takes_are_given_up() {
    let (address, _kept) = server::keeper(1000);
    let (user_group, facts, notified) = one(vec![Order::Connect, Order::Send(vec![0; 64 << 20])]);
    let run = TestRun::begin(plan(address, user_group, AGES));
    notified.recv().unwrap();
    let _ = run.stop();
    assert_eq!(*facts.lock().unwrap(), [Fact::Connected, Fact::Abandoned]);
}

#[test]
fn a_peer_that_takes_nothing_more_is_a_timeout() {
    let (address, _kept) = server::keeper(1000);
    let (user_group, facts, _) = one(vec![Order::Connect, Order::Send(vec![0; 64 << 20])]);
    let mut plan = plan(address, user_group, AGES);
    plan.plan.timeout_ns = 50_000_000;
    let outcome = TestRun::begin(plan).end();
    let expected = [Fact::Connected, Fact::Failed(ErrorKind::Timeout)];
    assert_eq!(*facts.lock().unwrap(), expected);
    assert!(outcome.tally.bytes_sent > 0);
}

/// Orders a sleep that is over, for ever.
struct Restless;

impl VirtualUser for Restless {
    fn next_order(&mut self, context: &mut UserContext<'_>) -> Order {
        match context.is_ending {
            true => Order::Done,
            false => Order::SleepUntil { ns: context.now_ns },
        }
    }
    fn on_event(&mut self, _: Event<'_>, _: &mut UserContext<'_>) {}
}

#[test]
fn who_never_waits_keeps_nobody_from_their_turn() {
    let address = server::each(|_, mut stream| {
        let _ = stream.write_all(b"x");
    });
    let (user_group, facts, notified) = one(vec![
        Order::Connect,
        Order::Receive { bytes_max: 10 },
        Order::Receive { bytes_max: 10 },
    ]);
    let mut plan = plan(address, user_group, AGES);
    plan.user_groups
        .push(UserGroup::new(Arc::new(|_, _| Box::new(Restless))).of(1, 2));
    let run = TestRun::begin(plan);
    for _ in 0..3 {
        notified.recv().unwrap();
    }
    let _ = run.stop();
    let expected = [Fact::Connected, Fact::Received(b"x".to_vec()), Fact::Closed];
    assert_eq!(*facts.lock().unwrap(), expected);
}

fn echo() -> std::net::SocketAddr {
    server::each(|_, mut stream| {
        let mut word = [0; 5];
        while stream.read_exact(&mut word).is_ok() {
            stream.write_all(&word).unwrap();
        }
    })
}

/// Says hello before the start and again after it.
fn early() -> Vec<Order> {
    vec![
        Order::Connect,
        Order::Send(b"hello".to_vec()),
        Order::Receive { bytes_max: 5 },
        Order::AwaitStart,
        Order::Send(b"again".to_vec()),
        Order::Receive { bytes_max: 5 },
    ]
}

#[test]
fn what_is_done_before_the_start_is_not_counted() {
    let (mut user_group, facts, _) = one(early());
    user_group.count = 40; // more than prepare at once
    let make = Arc::clone(&user_group.make);
    user_group.make = Arc::new(move |_, seed| make(0, seed));
    let run = TestRun::begin(plan(echo(), user_group, AGES));
    assert_eq!(run.ready, 40);
    let outcome = run.end();
    let counts = (outcome.tally.bytes_sent, outcome.tally.bytes_received);
    assert_eq!((counts, outcome.tally.connections), ((200, 200), 40));
    assert_eq!(outcome.tally.sent, 40);
    let facts = facts.lock().unwrap();
    let early = Fact::Received(b"hello".to_vec());
    let last_early = facts.iter().rposition(|fact| *fact == early);
    let again = Fact::Received(b"again".to_vec());
    let first_late = facts.iter().position(|fact| *fact == again);
    assert!(last_early < first_late, "{facts:?}");
    assert_eq!(facts.len(), 40 * 5);
}

/// They were, so that a run had more connections than its users had opened.
#[test]
fn a_connection_that_is_closed_before_the_start_is_not_counted() {
    let mut orders = early();
    orders.insert(3, Order::Connect);
    orders.insert(3, Order::Close { reset: false });
    let (user_group, facts, _) = one(orders);
    let outcome = TestRun::begin(plan(echo(), user_group, AGES)).end();
    let facts = facts.lock().unwrap();
    let opened = facts.iter().filter(|fact| **fact == Fact::Connected);
    assert_eq!((opened.count(), outcome.tally.connections), (2, 1));
    assert_eq!(outcome.tally.bytes_sent, 5);
}

#[test]
fn a_connection_that_ends_before_the_start_is_reported_at_the_start() {
    let address = server::each(|_, mut stream| {
        let mut word = [0; 5];
        stream.read_exact(&mut word).unwrap();
        stream.write_all(&word).unwrap();
    });
    let mut orders = early();
    orders.insert(3, Order::SleepUntil { ns: FOREVER_NS }); // until the end is seen
    orders.truncate(5);
    let (user_group, facts, _) = one(orders);
    let run = TestRun::begin(plan(address, user_group, AGES));
    assert_eq!(run.ready, 0);
    let _ = run.end();
    let facts = facts.lock().unwrap();
    assert_eq!(
        facts[2..],
        [Fact::Received(b"hello".to_vec()), Fact::Closed]
    );
}

#[test]
fn who_cannot_prepare_ends_the_run_with_the_reason() {
    let (user_group, facts, _) = one(vec![Order::Connect, Order::GiveUp("no".to_owned())]);
    let plan = plan(echo(), user_group, AGES);
    let ended = loadline_clients::run(
        &plan.plan,
        &plan.user_groups,
        Share::WHOLE,
        &Control::new(),
        &mut |_| {},
    );
    assert_eq!(ended.unwrap_err().to_string(), "no");
    assert_eq!(*facts.lock().unwrap(), [Fact::Connected]);
}
