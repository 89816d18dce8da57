//! What a turn has left behind, and what came meanwhile, has waited.

use super::*;

/// What had come while a connection was queued passed for what had just come.
#[test]
fn a_look_without_a_timeout_is_no_wait() {
    let now_us = clock();
    now_us.store(1_000_000, Relaxed);
    let goal = Some(Duration::from_secs(1));
    let mut event_loop = event_loop_at::<_, Epoll>(now_us, Quiet, goal);
    let mut client = connect(&mut event_loop);
    let token = event_loop.slots.token_at(0).unwrap();
    event_loop.queue(token);
    event_loop.turn().unwrap();
    assert!(event_loop.has_waited, "nothing is older than the loop");
    event_loop.queue(token);
    event_loop.wait().unwrap();
    assert!(!event_loop.has_waited);
    event_loop.work().unwrap();
    assert!(event_loop.again.is_empty());
    event_loop.has_backlog = true;
    event_loop.queue(token);
    event_loop.wait().unwrap();
    assert!(
        event_loop.has_waited,
        "the kernel says how old a backlog is"
    );
    event_loop.work().unwrap();
    event_loop.has_backlog = false;
    client.write_all(GET).unwrap();
    event_loop.wait().unwrap();
    assert!(event_loop.has_waited);
}

/// A wait brings a part of what there is; the rest passed for what had just come, however long that went on.
#[test]
fn what_a_ring_has_left_in_the_kernel_has_waited() {
    if !has_rings() {
        return;
    }
    let now_us = clock();
    now_us.store(1_000_000, Relaxed);
    let goal = Some(Duration::from_secs(1));
    let mut event_loop = event_loop_at::<_, RingDriver>(now_us, Quiet, goal);
    let mut clients: Vec<_> = (0..100).map(|_| connect(&mut event_loop)).collect();
    let token = event_loop.slots.token_at(0).unwrap();
    event_loop.queue(token);
    event_loop.turn().unwrap();
    for client in &mut clients {
        client.write_all(GET).unwrap();
    }
    event_loop.turn().unwrap();
    assert!(event_loop.driver.is_full());
    now_us.fetch_add(1000, Relaxed);
    event_loop.wait().unwrap();
    assert!(event_loop.driver.left() > 0 && !event_loop.has_waited);
    event_loop.work().unwrap();
    let turn = event_loop.thread.turn.unwrap();
    assert_eq!(turn.oldest_us(), 1_000_000);
}
