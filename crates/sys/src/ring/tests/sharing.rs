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

/// Accepts until told to stop; returns how often it was woken.
fn accept_until(
    mut ring: Ring,
    listener: &TcpListener,
    stop: &Waker,
    accepted: &mpsc::Sender<()>,
) -> u64 {
    ring.accept(0, listener.as_fd());
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
                Completion::Accepted { .. } => accepted.send(()).unwrap(),
                Completion::Signal { .. } => return waits() - began,
                other => panic!("{other:?}"),
            }
        }
    }
}

/// A newcomer wakes one of the rings that wait for it: the kernel queues each as an exclusive waiter.
/// All four would wake four times as often.
#[test]
fn a_newcomer_wakes_one_of_the_rings_that_share_a_listener() {
    let rings: Vec<Ring> = (0..RINGS).map_while(|_| ring(&SMALL)).collect();
    if rings.len() < RINGS || !rings[0].features().multishot_accept {
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
