//! How many buffers the kernel gets.

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
