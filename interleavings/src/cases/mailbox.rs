//! Messages for a loop that goes to sleep.

use std::sync::Arc;

use loom::thread;

use crate::checker::check;
use crate::worker::mailbox::Mailbox;

/// One turn of a loop that waits for its mailbox alone.
fn turn(mailbox: &Mailbox<usize>, taken: &mut Vec<usize>) {
    if mailbox.fall_asleep() {
        mailbox.waker().wait_edge();
    }
    mailbox.wake_up();
    let mut mail = Vec::new();
    mailbox.take(&mut mail);
    taken.append(&mut mail);
}

/// The mailbox and threads that post these messages to it.
fn senders(messages: &[&[usize]]) -> Arc<Mailbox<usize>> {
    let mailbox = Arc::new(Mailbox::new().unwrap());
    for own in messages {
        let (own, mailbox) = (own.to_vec(), Arc::clone(&mailbox));
        thread::spawn(move || own.into_iter().for_each(|message| mailbox.post(message)));
    }
    mailbox
}

/// Lost messages are a deadlock.
#[test]
fn every_message_is_taken_once_and_in_order() {
    check(|| {
        let mailbox = senders(&[&[1, 2, 3]]);
        let mut taken = Vec::new();
        while taken.len() < 3 {
            turn(&mailbox, &mut taken);
        }
        assert_eq!(taken, [1, 2, 3]);
    });
}

#[test]
fn senders_do_not_hide_each_other() {
    check(|| {
        let mailbox = senders(&[&[1], &[2]]);
        let (mut taken, mut turns) = (Vec::new(), 0);
        while taken.len() < 2 {
            turn(&mailbox, &mut taken);
            turns += 1;
        }
        taken.sort_unstable();
        assert_eq!(taken, [1, 2]);
        let wakes = mailbox.waker().wakes();
        assert!(wakes <= turns, "{wakes} wake-ups in {turns} turns");
    });
}

/// An event of a socket ends the wait: a wake-up that comes then must not be missing later.
#[test]
fn a_loop_that_something_else_wakes_loses_nothing() {
    check(|| {
        let mailbox = senders(&[&[1, 2]]);
        let (mut taken, mut mail) = (Vec::new(), Vec::new());
        mailbox.fall_asleep();
        mailbox.wake_up();
        mailbox.take(&mut mail);
        taken.append(&mut mail);
        while taken.len() < 2 {
            turn(&mailbox, &mut taken);
        }
        assert_eq!(taken, [1, 2]);
    });
}

/// What is nudged about stands elsewhere, written before.
#[test]
fn a_nudge_brings_a_turn_that_sees_its_reason() {
    check(|| {
        let mailbox = Arc::new(Mailbox::<usize>::new().unwrap());
        let reason = Arc::new(loom::sync::atomic::AtomicBool::new(false));
        thread::spawn({
            let (mailbox, reason) = (Arc::clone(&mailbox), Arc::clone(&reason));
            move || {
                reason.store(true, loom::sync::atomic::Ordering::Relaxed);
                mailbox.nudge();
            }
        });
        while !reason.load(loom::sync::atomic::Ordering::Relaxed) {
            turn(&mailbox, &mut Vec::new());
        }
    });
}
