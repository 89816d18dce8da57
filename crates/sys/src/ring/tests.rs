//! The ring over real sockets: the ways in which operations end, and what must not happen then.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use loadline_base::{Buffer, Segment};

mod ahead;
mod growing;
mod refusals;
mod sharing;

use super::*;
use crate::Waker;
use ahead::uncached_file;

const SMALL: RingOptions = RingOptions {
    submissions: 8,
    completions: 16,
    buffers: 4,
    buffer_bytes: 64,
};

/// A ring, or `None` (visibly) where the machine has none.
fn ring(options: &RingOptions) -> Option<Ring> {
    match Ring::new(options) {
        Ok(ring) => Some(ring),
        Err(error) => {
            let _ = writeln!(io::stderr(), "\nskipped: {error}");
            None
        }
    }
}

fn large_ring() -> Option<Ring> {
    ring(&RingOptions::default())
}

fn connected() -> (TcpStream, OwnedFd) {
    let (ours, theirs) = crate::poller::tests::connected();
    theirs.set_nonblocking(true).unwrap(); // as accepted ones are
    (ours, theirs.into())
}

fn adopt(ring: &mut Ring, socket: OwnedFd) -> (SocketId, Token) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let owner = Token {
        index: NEXT.fetch_add(1, Relaxed),
        generation: 7,
    };
    (ring.adopt(socket, owner), owner)
}

fn memory(bytes: &[u8]) -> Transmit {
    Transmit::new(vec![Segment::Buffer(Buffer::from(bytes.to_vec()))])
}

/// A connection: the client's end, and the other, adopted.
fn adopted(ring: &mut Ring) -> (TcpStream, SocketId, Token) {
    let (ours, theirs) = connected();
    let (id, owner) = adopt(ring, theirs);
    (ours, id, owner)
}

/// What happened, without what is lent.
#[derive(Debug, PartialEq)]
enum Seen {
    Accepted,
    AcceptReady,
    AcceptFailed,
    AcceptStopped,
    Received(Token, Vec<u8>),
    Ended(Token, bool),
    Progress(Token, u64),
    Sent(Token),
    SendFailed(Token),
    Writable(Token),
    ReadAhead(Token, u64),
    HungUp(Token),
    Signal(u32),
}

/// All that happens until `done`, or nothing happens for 5 s.
fn drive(ring: &mut Ring, mut done: impl FnMut(&mut Ring, &Seen) -> bool) -> Vec<Seen> {
    let mut seen = Vec::new();
    loop {
        let began = std::time::Instant::now();
        ring.wait(Some(5_000_000_000)).unwrap();
        let waited = began.elapsed();
        let mut is_done = false;
        while let Some(completion) = ring.next_completion() {
            let one = match completion {
                Completion::Accepted { .. } => Seen::Accepted,
                Completion::AcceptReady { .. } => Seen::AcceptReady,
                Completion::AcceptFailed { .. } => Seen::AcceptFailed,
                Completion::AcceptStopped { .. } => Seen::AcceptStopped,
                Completion::Received { token, bytes } => Seen::Received(token, bytes.to_vec()),
                Completion::Ended { token, error } => Seen::Ended(token, error.is_none()),
                Completion::Progress { token, bytes } => Seen::Progress(token, bytes),
                Completion::Sent { token, transmit } => {
                    assert!(transmit.is_done());
                    Seen::Sent(token)
                }
                Completion::SendFailed { token, .. } => Seen::SendFailed(token),
                Completion::Writable { token } => Seen::Writable(token),
                Completion::ReadAhead { token, bytes } => Seen::ReadAhead(token, bytes),
                Completion::HungUp { token } => Seen::HungUp(token),
                Completion::Signal { id } => Seen::Signal(id),
            };
            is_done |= done(ring, &one);
            seen.push(one);
        }
        assert!(is_done || waited.as_secs() < 5, "nothing happens: {seen:?}");
        if is_done {
            return seen;
        }
    }
}

/// One wait of at most so many milliseconds; how many things happened.
fn turn(ring: &mut Ring, ms: u64) -> usize {
    ring.wait(Some(ms * 1_000_000)).unwrap();
    let mut count = 0;
    while ring.next_completion().is_some() {
        count += 1;
    }
    count
}

fn received(seen: &[Seen], of: Token) -> Vec<u8> {
    let mut bytes = Vec::new();
    for one in seen {
        if let Seen::Received(token, piece) = one
            && *token == of
        {
            bytes.extend_from_slice(piece);
        }
    }
    bytes
}

#[test]
fn receives_and_sends_until_the_end() {
    let Some(mut ring) = large_ring() else { return };
    let (mut ours, id, token) = adopted(&mut ring);
    ring.receive(id);
    for round in 0..3_u8 {
        ours.write_all(&[b'a' + round]).unwrap();
        let seen = drive(&mut ring, |_, one| matches!(one, Seen::Received(..)));
        assert_eq!(received(&seen, token), [b'a' + round]);
        let report = [SentReport::AtOnce, SentReport::WithTheNext][usize::from(round == 1)];
        ring.send(id, memory(b"answer"), report);
        if report == SentReport::WithTheNext {
            ours.write_all(b"next").unwrap();
        }
        let seen = drive(&mut ring, |_, one| matches!(one, Seen::Sent(_)));
        assert_eq!(seen[0], Seen::Sent(token));
        let mut answer = [0; 6];
        ours.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"answer");
    }
    ours.shutdown(Shutdown::Write).unwrap();
    let seen = drive(&mut ring, |_, one| matches!(one, Seen::Ended(..)));
    assert_eq!(seen, [Seen::Ended(token, true)]);
    ring.close(id);
    assert_eq!(turn(&mut ring, 0), 0);
    assert_eq!(ours.read(&mut [0; 8]).unwrap(), 0);
    assert!(ring.is_empty());
}

#[test]
fn a_stalled_reader_gets_all_of_a_long_batch_in_the_end() {
    let Some(mut ring) = large_ring() else { return };
    let (mut ours, id, _) = adopted(&mut ring);
    let shared: Arc<[u8]> = (0..8 << 20).map(|i: u32| i as u8).collect();
    let segments = vec![
        Segment::Buffer(Buffer::from(b"head".to_vec())),
        Segment::Shared {
            bytes: Arc::clone(&shared),
            start: 0,
            end: shared.len(),
        },
    ];
    ring.send(id, Transmit::new(segments), SentReport::WithTheNext);
    ring.wait(Some(50_000_000)).unwrap();
    let mut sent = false;
    while let Some(completion) = ring.next_completion() {
        sent |= matches!(completion, Completion::Sent { .. });
    }
    assert!(!sent, "8 MiB do not fit into a socket");
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        ours.read_to_end(&mut all).unwrap();
        all
    });
    let seen = drive(&mut ring, |_, one| matches!(one, Seen::Sent(_)));
    assert!(seen.iter().any(|one| matches!(one, Seen::Progress(..))));
    ring.close(id);
    ring.wait(Some(0)).unwrap();
    let all = reader.join().unwrap();
    assert_eq!(&all[..4], b"head");
    assert!(all[4..] == shared[..]);
}

/// The head waits in the kernel for what follows it.
#[test]
fn pieces_of_a_batch_leave_without_a_short_packet_between() {
    let Some(mut ring) = ring(&SMALL) else { return };
    let (mut ours, theirs) = connected();
    ours.set_nonblocking(true).unwrap();
    let (id, token) = adopt(&mut ring, theirs);
    rustix::net::sockopt::set_tcp_nodelay(ring.socket(id).unwrap(), true).unwrap();
    let pieces = [&b"head"[..], b"middle", b"tail"].map(|piece| Buffer::from(piece.to_vec()));
    let segments = pieces.into_iter().map(Segment::Buffer).collect();
    ring.send(id, Transmit::new(segments), SentReport::AtOnce);
    let mut bytes = [0; 20];
    drive(&mut ring, |_, one| match one {
        Seen::Progress(..) => {
            assert!(ours.read(&mut bytes).is_err(), "a short packet");
            false
        }
        one => *one == Seen::Sent(token),
    });
    assert_eq!(ours.read(&mut bytes).unwrap(), 14);
}

/// More completions than the queue has room for: the kernel keeps them.
#[test]
fn completions_that_overflow_the_queue_are_all_reported() {
    let Some(mut ring) = ring(&SMALL) else { return };
    let mut clients = Vec::new();
    for _ in 0..100 {
        let (ours, id, _) = adopted(&mut ring);
        ring.await_room(id);
        clients.push((ours, id));
    }
    // Refusals of what does not exist complete at once, in the submission: 100 of them do not fit.
    for _ in 0..100 {
        ring.cancel(user_data(OperationKind::Receive, 4_000_000));
    }
    let overflows = ring.uring.submission().cq_overflow();
    let mut left = clients.len();
    drive(&mut ring, |_, one| {
        left -= usize::from(matches!(one, Seen::Writable(_)));
        left == 0
    });
    assert!(overflows, "nothing overflowed");
    for (_, id) in clients {
        assert_eq!(ring.sockets.get(id).unwrap().in_flight, 0);
    }
}

#[test]
fn few_buffers_are_enough_for_many_who_send_at_once() {
    let Some(mut ring) = ring(&SMALL) else { return };
    let mut clients = Vec::new();
    for _ in 0..50 {
        let (ours, id, token) = adopted(&mut ring);
        ring.receive(id);
        clients.push((ours, token));
    }
    for (ours, _) in &mut clients {
        ours.write_all(&[7; 1000]).unwrap(); // 16 buffers each; there are 4, and 16 completions
    }
    let mut left = 50 * 1000;
    let seen = drive(&mut ring, |_, one| {
        if let Seen::Received(_, bytes) = one {
            left -= bytes.len();
        }
        left == 0
    });
    for (_, token) in &clients {
        assert_eq!(received(&seen, *token), vec![7; 1000]);
    }
}

/// The peer resets its connection.
fn assert_break_shows(ring: &mut Ring, ours: TcpStream, token: Token) {
    crate::connect::reset_on_close(ours.as_fd());
    drop(ours);
    drive(ring, |_, one| *one == Seen::HungUp(token));
}

#[test]
fn paused_means_paused_and_a_broken_connection_shows_all_the_same() {
    let Some(mut ring) = large_ring() else { return };
    let (mut ours, id, token) = adopted(&mut ring);
    ring.receive(id);
    turn(&mut ring, 0);
    ring.pause(id);
    turn(&mut ring, 0);
    ours.write_all(b"later").unwrap();
    assert_eq!(turn(&mut ring, 20), 0, "nobody asked for bytes");
    ring.receive(id);
    let seen = drive(&mut ring, |_, one| matches!(one, Seen::Received(..)));
    assert_eq!(received(&seen, token), b"later");
    ring.pause(id);
    turn(&mut ring, 0);
    assert_break_shows(&mut ring, ours, token);
}

/// What is being stopped and wanted again must not be forgotten.
#[test]
fn a_hang_up_that_is_watched_for_again_at_once_shows() {
    let Some(mut ring) = large_ring() else { return };
    let (ours, id, token) = adopted(&mut ring);
    ring.pause(id);
    turn(&mut ring, 0);
    ring.stop(id);
    ring.pause(id);
    turn(&mut ring, 0);
    assert_break_shows(&mut ring, ours, token);
}

#[test]
fn a_poll_for_a_hang_up_that_the_kernel_ends_is_armed_again() {
    let Some(mut ring) = large_ring() else { return };
    let (ours, id, token) = adopted(&mut ring);
    ring.pause(id);
    turn(&mut ring, 0);
    let poll = user_data(OperationKind::HangUp, id.0.index);
    ring.cancel(poll);
    loop {
        ring.wait(Some(1_000_000_000)).unwrap();
        let mut taken = ring.taken.iter_mut();
        if let Some(last) = taken.find(|taken| taken.user_data == poll) {
            assert_eq!(last.result, -libc::ECANCELED);
            last.result = 0; // as if the kernel had ended it by itself
            break;
        }
        while ring.next_completion().is_some() {}
    }
    assert!(ring.next_completion().is_none());
    assert_break_shows(&mut ring, ours, token);
}

/// While completions of others were unread, none was certain to be idle, so that none made room for others.
#[test]
fn what_others_have_sent_is_no_input_and_is_not_lost() {
    let Some(mut ring) = large_ring() else { return };
    let (mut first, first_id, _) = adopted(&mut ring);
    let (mut second, second_id, second_token) = adopted(&mut ring);
    let (_idle, idle_id, _) = adopted(&mut ring);
    for id in [first_id, second_id, idle_id] {
        ring.receive(id);
    }
    first.write_all(b"one").unwrap();
    while ring.left() == 0 {
        ring.wait(Some(1_000_000_000)).unwrap();
    }
    second.write_all(b"two").unwrap();
    while ring.uring.completion().is_empty() {
        ring.wait(Some(0)).unwrap(); // takes nothing before all was reported
    }
    assert!(ring.has_input(first_id) && ring.has_input(second_id));
    assert!(!ring.has_input(idle_id));
    let mut came = Vec::new();
    drive(&mut ring, |_, one| {
        came.extend(received(std::slice::from_ref(one), second_token));
        came == b"two"
    });
}

/// A client that has sent all it wants and waits for the answers has not gone.
#[test]
fn the_peer_s_regular_end_waits_behind_its_bytes_while_paused() {
    let Some(mut ring) = large_ring() else { return };
    let (mut ours, id, token) = adopted(&mut ring);
    ring.pause(id);
    ours.write_all(b"last words").unwrap();
    ours.shutdown(Shutdown::Write).unwrap();
    assert_eq!(turn(&mut ring, 20), 0);
    ring.receive(id);
    let seen = drive(&mut ring, |_, one| matches!(one, Seen::Ended(..)));
    let right = [
        Seen::Received(token, b"last words".to_vec()),
        Seen::Ended(token, true),
    ];
    assert_eq!(seen, right);
}

#[test]
fn asking_again_and_again_does_not_pile_up_operations() {
    let Some(mut ring) = ring(&SMALL) else { return };
    let (mut ours, id, _) = adopted(&mut ring);
    ring.send(id, memory(&vec![1; 16 << 20]), SentReport::AtOnce);
    for round in 0..1000 {
        ring.receive(id);
        ring.await_room(id);
        if round % 2 == 0 {
            turn(&mut ring, 0);
        }
        ring.pause(id);
        if round % 3 == 0 {
            turn(&mut ring, 0);
        }
        let in_flight = ring.sockets.get(id).map(|socket| socket.in_flight);
        assert!(in_flight.is_some_and(|count| count <= 4), "{in_flight:?}");
    }
    ring.close(id);
    while !ring.is_empty() {
        turn(&mut ring, 5000);
    }
    let _ = ours.read_to_end(&mut Vec::new());
}

#[test]
fn pausing_and_receiving_again_at_once_loses_nothing() {
    let Some(mut ring) = ring(&SMALL) else { return };
    let (mut ours, id, token) = adopted(&mut ring);
    ring.receive(id);
    let mut all = Vec::new();
    for round in 0..100_u8 {
        ours.write_all(&[round; 3]).unwrap();
        ring.pause(id);
        ring.receive(id);
        ring.wait(Some(1_000_000)).unwrap();
        while let Some(completion) = ring.next_completion() {
            if let Completion::Received { bytes, .. } = completion {
                all.extend_from_slice(bytes);
            }
        }
    }
    while all.len() < 300 {
        let seen = drive(&mut ring, |_, one| matches!(one, Seen::Received(..)));
        all.extend(received(&seen, token));
    }
    let right: Vec<u8> = (0..100_u8).flat_map(|round| [round; 3]).collect();
    assert_eq!(all, right);
}

#[test]
fn a_closed_socket_says_nothing_and_its_slot_waits_for_its_operations() {
    let Some(mut ring) = large_ring() else { return };
    let (mut ours, first, _) = adopted(&mut ring);
    ring.receive(first);
    ring.send(first, memory(&vec![1; 16 << 20]), SentReport::WithTheNext);
    turn(&mut ring, 0); // a receive and a long send are in flight
    ours.write_all(b"for nobody").unwrap();
    ring.close(first);
    let (mut other, second, owner) = adopted(&mut ring);
    assert_ne!(first.0.index, second.0.index, "still in use by the kernel");
    ring.receive(second);
    other.write_all(b"hello").unwrap();
    let seen = drive(&mut ring, |_, one| matches!(one, Seen::Received(..)));
    assert!(
        seen.iter()
            .all(|one| *one == Seen::Received(owner, b"hello".to_vec()))
    );
    ring.receive(first);
    ring.send(first, memory(b"nobody reads it"), SentReport::AtOnce);
    for _ in 0..50 {
        turn(&mut ring, 1);
        if ring.len() == 1 {
            break;
        }
    }
    assert_eq!(ring.len(), 1);
    let mut rest = Vec::new();
    let _ = ours.read_to_end(&mut rest); // ends, by a reset perhaps
    let (third, _) = adopt(&mut ring, connected().1);
    assert_eq!(third.0.index, first.0.index);
    assert_ne!(third.0.generation, first.0.generation);
}

#[test]
fn a_peer_that_vanishes_ends_receiving_and_fails_sending() {
    let Some(mut ring) = large_ring() else { return };
    let (ours, id, token) = adopted(&mut ring);
    ring.receive(id);
    ring.wait(Some(0)).unwrap();
    crate::connect::reset_on_close(ours.as_fd());
    drop(ours);
    let seen = drive(&mut ring, |_, one| matches!(one, Seen::Ended(..)));
    assert_eq!(seen, [Seen::Ended(token, false)]);
    ring.send(id, memory(b"too late"), SentReport::WithTheNext);
    drive(&mut ring, |_, one| *one == Seen::SendFailed(token));
}

#[test]
fn accepts_until_it_is_stopped() {
    let Some(mut ring) = ring(&SMALL) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap(); // as the server's own
    let address = listener.local_addr().unwrap();
    ring.accept(0, listener.as_fd());
    let clients: Vec<_> = (0..40)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    let mut count = 0;
    drive(&mut ring, |_, one| {
        count += usize::from(*one == Seen::Accepted);
        count == clients.len()
    });
    ring.stop_accepting(0);
    drive(&mut ring, |_, one| *one == Seen::AcceptStopped);
    ring.stop_accepting(0);
    let _late = TcpStream::connect(address).unwrap();
    assert_eq!(turn(&mut ring, 20), 0);
    ring.accept(0, listener.as_fd());
    drive(&mut ring, |_, one| *one == Seen::Accepted);
}

/// What is being stopped and wanted again must neither be forgotten nor be armed twice.
#[test]
fn accepting_that_is_stopped_and_asked_for_again_at_once_goes_on() {
    let Some(mut ring) = ring(&SMALL) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    ring.accept(0, listener.as_fd());
    for round in 0..50 {
        if round % 2 == 0 {
            turn(&mut ring, 0);
        }
        ring.stop_accepting(0);
        ring.accept(0, listener.as_fd());
        if round % 3 == 0 {
            ring.stop_accepting(0);
            turn(&mut ring, 0);
            ring.accept(0, listener.as_fd());
        }
        let _client = TcpStream::connect(address).unwrap();
        let seen = drive(&mut ring, |_, one| *one == Seen::Accepted);
        assert!(!seen.contains(&Seen::AcceptFailed));
        assert_eq!(ring.in_flight, 1);
    }
}

#[test]
fn what_may_be_reported_with_the_next_is_reported_soon_also_if_nothing_happens() {
    let Some(mut ring) = ring(&SMALL) else { return };
    let (_ours, id, token) = adopted(&mut ring);
    ring.receive(id);
    ring.send(id, memory(b"answer"), SentReport::WithTheNext);
    ring.wait(None).unwrap(); // would never end
    match ring.next_completion() {
        Some(Completion::Sent { token: of, .. }) => assert_eq!(of, token),
        other => panic!("{other:?}"),
    }
    assert!(ring.next_completion().is_none());
}

/// A wait that comes before all was taken must not throw away what is left.
#[test]
fn a_wait_keeps_what_was_not_taken() {
    let Some(mut ring) = ring(&SMALL) else { return };
    let mut clients = Vec::new();
    for _ in 0..3 {
        let (mut ours, id, _) = adopted(&mut ring);
        ring.receive(id);
        ours.write_all(b"x").unwrap();
        clients.push(ours);
    }
    let mut count = 0;
    while count < 3 {
        ring.wait(Some(5_000_000_000)).unwrap();
        count += usize::from(ring.next_completion().is_some());
        ring.wait(Some(0)).unwrap();
    }
}

#[test]
fn each_wake_is_a_signal_and_room_is_reported_once() {
    let Some(mut ring) = large_ring() else { return };
    let waker = Waker::new().unwrap();
    ring.watch(3, waker.as_fd());
    for _ in 0..3 {
        waker.wake();
        drive(&mut ring, |_, one| *one == Seen::Signal(3));
    }
    let (_ours, id, token) = adopted(&mut ring);
    ring.await_room(id);
    ring.await_room(id);
    drive(&mut ring, |_, one| *one == Seen::Writable(token));
    assert_eq!(turn(&mut ring, 0), 0);
}

#[test]
fn a_ring_ends_with_everything_in_flight() {
    for _ in 0..20 {
        let Some(mut ring) = large_ring() else { return };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        ring.accept(0, listener.as_fd());
        let (mut ours, id, _) = adopted(&mut ring);
        ring.receive(id);
        ring.send(id, memory(&vec![1; 16 << 20]), SentReport::WithTheNext);
        ring.read_ahead(id, &uncached_file(400_000), 0, 400_000);
        ring.wait(Some(0)).unwrap();
        ours.write_all(b"unheard").unwrap();
        drop(ring);
        let mut rest = Vec::new();
        let _ = ours.read_to_end(&mut rest);
        assert!(rest.len() < 16 << 20);
    }
}
