//! A kernel that takes only some of the entries, without memory for all: what it has not taken has not
//! been sent, and may not be reported so.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::sync::LazyLock;

use super::*;

/// The next entries are taken so far; then nothing is waited for.
fn take(ring: &mut Ring, entries: u32) {
    ring.entries_left = Some(entries);
    ring.wait(Some(0)).unwrap();
}

fn pair() -> (UnixStream, OwnedFd) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    theirs.set_nonblocking(true).unwrap();
    (ours, theirs.into())
}

/// All that there is.
fn drain(stream: &mut UnixStream, into: &mut Vec<u8>) {
    let mut chunk = [0; 65_536];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return,
            Ok(count) => into.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Whose send something is reported of next.
fn reported(ring: &mut Ring) -> Option<Token> {
    match ring.next_completion()? {
        Completion::Sent { token, .. } | Completion::Progress { token, .. } => Some(token),
        other => panic!("{other:?}"),
    }
}

/// Orders what does nothing, so that something is left whatever else the kernel takes.
fn order_nothing(ring: &mut Ring) {
    ring.push_chore(opcode::Nop::new().build());
}

/// A socket whose quiet send goes in two pieces, while the kernel never takes all that was ordered,
/// stood in the list twice: for that one and for its next. So the one after the next was reported as sent
/// with it, before the kernel had seen it.
#[test]
fn a_send_that_the_kernel_had_not_taken_was_reported_as_sent() {
    let Some(mut ring) = ring(&SMALL) else { return };
    if !ring.features().quiet_sends {
        return;
    }
    let ((mut a_peer, a), (_b_peer, b)) = (pair(), pair());
    let ((a, a_owner), (b, _)) = (adopt(&mut ring, a), adopt(&mut ring, b));
    let too_much = vec![b'1'; SEND_BYTES_MAX];
    assert!(ring.send(a, memory(&too_much), SentReport::WithTheNext));
    assert!(ring.send(b, memory(b"b"), SentReport::WithTheNext));
    take(&mut ring, 1);
    assert_eq!(reported(&mut ring), Some(a_owner), "a part has left");
    assert_eq!(reported(&mut ring), None);
    let mut arrived = Vec::new();
    drain(&mut a_peer, &mut arrived);
    order_nothing(&mut ring);
    take(&mut ring, 2); // that of B, and the rest
    while reported(&mut ring).is_some() {}
    drain(&mut a_peer, &mut arrived);
    assert!(arrived == too_much, "{} bytes", arrived.len());

    assert!(ring.send(a, memory(b"second"), SentReport::WithTheNext));
    ring.entries_left = None;
    ring.wait(Some(0)).unwrap();
    while reported(&mut ring).expect("the second has left") != a_owner {}
    assert!(ring.send(a, memory(b"third"), SentReport::WithTheNext));
    while let Some(token) = reported(&mut ring) {
        assert_ne!(token, a_owner, "the third was not even submitted");
    }
    ring.wait(Some(0)).unwrap();
    assert_eq!(reported(&mut ring), Some(a_owner));
    arrived.clear();
    drain(&mut a_peer, &mut arrived);
    assert_eq!(arrived, b"secondthird");
}

/// One end of a pair, and what it was to get.
struct Peer {
    stream: UnixStream,
    id: SocketId,
    owner: Token,
    ordered: Vec<u8>,
    arrived: Vec<u8>,
    is_sending: bool,
}

impl Peer {
    fn send(&mut self, ring: &mut Ring, random: &mut u32) {
        let len = match next(random) % 8 {
            0 => SEND_BYTES_MAX,
            1 => 40_000,
            few => few as usize * 10,
        };
        let reported = match next(random) % 4 {
            0 => SentReport::AtOnce,
            _ => SentReport::WithTheNext,
        };
        // From another place of it each time, so that no two batches are alike.
        let start = next(random) as usize % NOISE.len();
        let content = &NOISE[start..][..len.min(NOISE.len() - start)];
        self.ordered.extend_from_slice(content);
        ring.send(self.id, memory(content), reported);
        self.is_sending = true;
    }
}

static NOISE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut random = 1;
    (0..SEND_BYTES_MAX)
        .map(|_| next(&mut random) as u8)
        .collect()
});

/// Numbers without a pattern that matters (Numerical Recipes' constants).
fn next(random: &mut u32) -> u32 {
    *random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    *random >> 16
}

/// However few entries the kernel takes at a time, and in whichever pieces they go: when a batch is
/// reported as sent, all of it has arrived, and nothing ever arrives that was not ordered.
#[test]
fn what_is_reported_as_sent_has_left_whatever_the_kernel_refuses() {
    for seed in 0..10 {
        let Some(mut ring) = ring(&SMALL) else { return };
        let mut random = seed;
        let mut peers: Vec<Peer> = (0..6)
            .map(|_| {
                let (stream, theirs) = pair();
                let (id, owner) = adopt(&mut ring, theirs);
                Peer {
                    stream,
                    id,
                    owner,
                    ordered: Vec::new(),
                    arrived: Vec::new(),
                    is_sending: false,
                }
            })
            .collect();
        for round in 0..300 {
            let is_last = round >= 200; // from here on everything comes to its end
            for peer in &mut peers {
                if !is_last && !peer.is_sending && next(&mut random).is_multiple_of(2) {
                    peer.send(&mut ring, &mut random);
                }
                if is_last || next(&mut random).is_multiple_of(3) {
                    drain(&mut peer.stream, &mut peer.arrived);
                }
            }
            ring.entries_left = (!is_last).then(|| next(&mut random) % 5);
            ring.wait(Some(0)).unwrap();
            while let Some(completion) = ring.next_completion() {
                let Completion::Sent { token, transmit } = completion else {
                    continue;
                };
                assert!(transmit.is_done());
                drop(transmit);
                let peer = peers.iter_mut().find(|peer| peer.owner == token).unwrap();
                drain(&mut peer.stream, &mut peer.arrived);
                assert!(
                    peer.is_sending && peer.arrived == peer.ordered,
                    "seed {seed}"
                );
                (peer.is_sending, peer.arrived, peer.ordered) = (false, Vec::new(), Vec::new());
                if !is_last && next(&mut random).is_multiple_of(2) {
                    peer.send(&mut ring, &mut random); // while others are still to be reported
                }
            }
        }
        for peer in &mut peers {
            drain(&mut peer.stream, &mut peer.arrived);
            assert!(
                !peer.is_sending && peer.arrived == peer.ordered,
                "seed {seed}"
            );
        }
    }
}
