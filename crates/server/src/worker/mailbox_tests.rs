//! A mailbox between real threads, over a real eventfd.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;

use loadline_sys::{Events, Interest, Poller};

use super::mailbox::Mailbox;

fn events(poller: &Poller, timeout_ms: u64) -> usize {
    poller.wait(&mut Events::new(), Some(timeout_ms)).unwrap()
}

#[test]
fn a_batch_wakes_once_and_only_a_sleeper() {
    let mailbox = Mailbox::new().unwrap();
    let poller = Poller::new().unwrap();
    poller
        .add(mailbox.waker().as_fd(), 0, Interest::Waker)
        .unwrap();
    mailbox.post(1);
    assert_eq!(
        events(&poller, 0),
        0,
        "a loop that is awake needs no waking"
    );
    assert!(!mailbox.fall_asleep(), "there is mail");
    let mut taken = Vec::new();
    mailbox.take(&mut taken);
    assert_eq!(taken, [1]);
    taken.clear();
    assert!(mailbox.fall_asleep());
    for message in 2..10 {
        mailbox.post(message);
    }
    assert_eq!(events(&poller, 1000), 1);
    assert_eq!(events(&poller, 0), 0, "once");
    mailbox.wake_up();
    mailbox.take(&mut taken);
    assert_eq!(taken, (2..10).collect::<Vec<_>>());
}

#[test]
fn no_message_is_slept_through() {
    const SENDERS: u64 = 4;
    const EACH: u64 = 20_000;
    let mailbox = Arc::new(Mailbox::new().unwrap());
    let poller = Poller::new().unwrap();
    poller
        .add(mailbox.waker().as_fd(), 0, Interest::Waker)
        .unwrap();
    let senders: Vec<_> = (0..SENDERS)
        .map(|_| {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || (0..EACH).for_each(|number| mailbox.post(number)))
        })
        .collect();
    let (mut sum, mut count, mut taken) = (0, 0, Vec::new());
    while count < SENDERS * EACH {
        if mailbox.fall_asleep() {
            assert_eq!(events(&poller, 10_000), 1, "asleep with mail: {count} came");
            mailbox.wake_up();
        }
        mailbox.take(&mut taken);
        count += taken.len() as u64;
        sum += taken.drain(..).sum::<u64>();
    }
    senders
        .into_iter()
        .for_each(|sender| sender.join().unwrap());
    assert_eq!(sum, SENDERS * EACH * (EACH - 1) / 2);
}
