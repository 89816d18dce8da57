//! Several rings, one listener.

use std::sync::mpsc;

use super::*;

const RINGS: usize = 4;
const CONNECTIONS: u64 = 100;

/// How often this thread has waited for something.
fn waits() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

/// Takes in all who wait; how many.
fn take_in(listener: &TcpListener) -> usize {
    let accept = || crate::socket::accept(listener.as_fd()).unwrap();
    std::iter::from_fn(accept).count()
}

/// Accepts until asked to stop; returns how often it was woken.
fn accept_until(
    mut ring: Ring,
    listener: &TcpListener,
    stop: &Waker,
    accepted: &mpsc::Sender<()>,
) -> u64 {
    ring.await_acceptable(0, listener.as_fd());
    ring.watch(0, stop.as_fd());
    let mut before = None;
    loop {
        ring.wait(before.is_none().then_some(0)).unwrap();
        let began = *before.get_or_insert_with(|| {
            accepted.send(()).unwrap(); // armed
            waits()
        });
        while let Some(completion) = ring.next_completion() {
            match completion {
                Completion::AcceptReady { .. } => {
                    (0..take_in(listener)).for_each(|_| accepted.send(()).unwrap());
                    ring.await_acceptable(0, listener.as_fd());
                }
                Completion::Signal { .. } => return waits() - began,
                other => panic!("{other:?}"),
            }
        }
    }
}

/// A new connection wakes one of the rings that wait for it: the kernel queues each as an exclusive waiter.
/// All four would wake four times as often.
#[test]
fn a_new_connection_wakes_one_of_the_rings_that_share_a_listener() {
    let rings: Vec<Ring> = (0..RINGS).map_while(|_| ring(&SMALL)).collect();
    if rings.len() < RINGS {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let stops: Vec<Waker> = (0..RINGS).map(|_| Waker::new().unwrap()).collect();
    let (sender, accepted) = mpsc::channel();
    let waits: u64 = std::thread::scope(|scope| {
        let spawn = |(ring, stop)| {
            let (listener, sender) = (&listener, sender.clone());
            scope.spawn(move || accept_until(ring, listener, stop, &sender))
        };
        let threads: Vec<_> = rings.into_iter().zip(&stops).map(spawn).collect();
        (0..RINGS).for_each(|_| accepted.recv().unwrap());
        for _ in 0..CONNECTIONS {
            let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            accepted.recv().unwrap();
        }
        stops.iter().for_each(Waker::wake);
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert!(
        waits < 2 * CONNECTIONS,
        "woken {waits} times for {CONNECTIONS}"
    );
}

/// A loop that is busy does not accept: one new connection may have been reported to it, and waits there until
/// the next comes, who wakes another loop.
#[test]
fn a_ring_that_does_not_wait_leaves_new_connections_to_the_others() {
    let (Some(mut busy), Some(mut idle)) = (ring(&SMALL), ring(&SMALL)) else {
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    for ring in [&mut busy, &mut idle] {
        ring.await_acceptable(0, listener.as_fd());
        assert_eq!(turn(ring, 0), 0);
    }
    let connect = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut clients = vec![connect(), connect()];
    drive(&mut idle, |_, seen| *seen == Seen::AcceptReady);
    assert_eq!(take_in(&listener), 2, "the first, too");
    for _ in 0..10 {
        idle.await_acceptable(0, listener.as_fd());
        clients.push(connect());
        drive(&mut idle, |_, seen| *seen == Seen::AcceptReady);
        assert_eq!(take_in(&listener), 1);
    }
    drive(&mut busy, |_, seen| *seen == Seen::AcceptReady);
    assert_eq!(take_in(&listener), 0, "in vain");
    busy.await_acceptable(0, listener.as_fd());
    busy.stop_accepting(0);
    drive(&mut busy, |_, seen| *seen == Seen::AcceptStopped);
}

#[test]
fn a_socket_goes_from_ring_to_ring_and_loses_nothing() {
    let (Some(mut one), Some(mut other)) = (ring(&SMALL), ring(&SMALL)) else {
        return;
    };
    let (mut ours, theirs) = connected();
    let (mut id, _) = adopt(&mut one, theirs);
    one.receive(id);
    let mut all = Vec::new();
    for round in 0..100_u8 {
        ours.write_all(&[round; 3]).unwrap();
        one.stop(id);
        let socket = loop {
            match one.give_up(id) {
                Some(socket) => break socket,
                None => all.extend(received_in_turn(&mut one)),
            }
        };
        assert!(one.is_empty());
        std::mem::swap(&mut one, &mut other);
        (id, _) = adopt(&mut one, socket);
        one.receive(id);
        if round % 3 == 0 {
            all.extend(received_in_turn(&mut one));
        }
    }
    while all.len() < 300 {
        all.extend(received_in_turn(&mut one));
    }
    let right: Vec<u8> = (0..100_u8).flat_map(|round| [round; 3]).collect();
    assert_eq!(all, right);
}

fn received_in_turn(ring: &mut Ring) -> Vec<u8> {
    let mut all = Vec::new();
    ring.wait(Some(1_000_000)).unwrap();
    while let Some(completion) = ring.next_completion() {
        if let Completion::Received { bytes, .. } = completion {
            all.extend_from_slice(bytes);
        }
    }
    all
}
