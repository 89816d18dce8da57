//! How many buffers the kernel gets, and what a wait leaves for the next one.

use super::*;

#[test]
fn the_kernel_gets_more_buffers_when_they_have_run_out() {
    let Some(mut ring) = large_ring() else { return };
    let mut clients = Vec::new();
    for _ in 0..100 {
        let (ours, id, token) = adopted(&mut ring);
        ring.receive(id);
        clients.push((ours, token));
    }
    let first = ring.buffers.given();
    for (ours, token) in &mut clients {
        ours.write_all(b"one after the other").unwrap();
        drive(
            &mut ring,
            |_, one| matches!(one, Seen::Received(it, _) if it == token),
        );
    }
    assert_eq!(ring.buffers.given(), first, "one is needed at a time");
    turn(&mut ring, 0); // the last one is back
    const MANY: usize = 100 << 10; // 25 buffers each
    for (ours, _) in &mut clients[..4] {
        ours.write_all(&[7; MANY]).unwrap();
    }
    let mut left = 4 * MANY;
    drive(&mut ring, |_, one| {
        if let Seen::Received(_, bytes) = one {
            left -= bytes.len();
        }
        left == 0
    });
    turn(&mut ring, 0);
    let given = ring.buffers.given();
    assert!((2 * first..512).contains(&given), "{given}");
}

/// Each of so many clients has sent something; what a wait has not brought it says to have left.
fn all_is_brought_or_left(options: &RingOptions, count: usize) {
    let Some(mut ring) = ring(options) else {
        return;
    };
    let mut clients: Vec<_> = (0..count).map(|_| adopted(&mut ring)).collect();
    for (_, id, _) in &clients {
        ring.receive(*id);
    }
    ring.wait(Some(0)).unwrap();
    assert!(!ring.is_full(), "nothing has come");
    for (ours, ..) in &mut clients {
        ours.write_all(b"request").unwrap();
    }
    while !clients.iter().all(|(_, id, _)| ring.has_input(*id)) {
        std::thread::yield_now();
    }
    let (mut brought, mut seen) = (0, 0);
    while brought < count {
        ring.wait(Some(5_000_000_000)).unwrap();
        brought += ring.inputs();
        assert!(ring.is_full() || brought == count, "{brought} of {count}");
        while let Some(completion) = ring.next_completion() {
            seen += usize::from(matches!(completion, Completion::Received { .. }));
        }
        assert_eq!(brought, seen);
    }
    turn(&mut ring, 0);
    assert!(!ring.is_full(), "all was brought");
}

/// The kernel completes some twenty receives in a wait: what it left passed for what came after that.
#[test]
fn a_wait_says_that_it_has_left_some() {
    all_is_brought_or_left(&RingOptions::default(), 100);
}

/// That was known only once all was reported, and what had found no buffer counted as brought.
#[test]
fn a_wait_says_that_buffers_have_run_out() {
    all_is_brought_or_left(&SMALL, 12);
}

/// By this it is known that what waited before has been brought.
#[test]
fn a_mark_comes_behind_what_was_there() {
    let Some(mut ring) = large_ring() else { return };
    ring.buffers.grow();
    ring.buffers.grow(); // one for each
    let mut clients: Vec<_> = (0..100).map(|_| adopted(&mut ring)).collect();
    for (_, id, _) in &clients {
        ring.receive(*id);
    }
    turn(&mut ring, 0);
    for (ours, ..) in &mut clients {
        ours.write_all(b"request").unwrap();
    }
    while !clients.iter().all(|(_, id, _)| ring.has_input(*id)) {
        std::thread::yield_now();
    }
    for before in [clients.len(), 0] {
        ring.mark();
        let (mut brought, mut waits) = (0, 0);
        while !ring.take_mark() {
            assert!(waits < 1000, "no mark");
            waits += 1;
            ring.wait(Some(1_000_000_000)).unwrap();
            brought += ring.inputs();
            while ring.next_completion().is_some() {}
        }
        assert_eq!(brought, before);
    }
    assert!(!ring.take_mark(), "it was taken");
}
