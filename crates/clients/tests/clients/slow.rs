use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use loadline_clients::{slow_reader, slow_sender, vanishing};
use loadline_proto::Method;
use loadline_record::ErrorKind;

use crate::server;
use crate::user_groups::{AGES, TestRun, get, plan, spec};

#[test]
fn slow_readers_get_whole_answers() {
    const USERS: u64 = 5;
    const BODY_BYTES: usize = 10_000;
    let (notify, notified) = mpsc::channel();
    let address = server::each(move |_, mut stream| {
        while server::read_head(&mut stream).is_some() {
            let _ = notify.send(());
            if stream.write_all(&server::answer(BODY_BYTES)).is_err() {
                return;
            }
        }
    });
    let user_group = slow_reader::user_group(100_000, get()).of(1, USERS);
    let run = TestRun::begin(plan(address, user_group, AGES));
    for _ in 0..3 * USERS {
        notified.recv().unwrap();
    }
    let tally = run.stop().tally;
    // Of each reader all but the last answer were complete before it asked again.
    assert!(tally.completed >= 2 * USERS, "{tally:?}");
    assert_eq!(tally.good, tally.completed);
    assert_eq!(tally.errors_total(), 0);
    assert_eq!(tally.content_bytes, tally.completed * BODY_BYTES as u64);
    assert_eq!(tally.sent, tally.completed + tally.unfinished);
}

#[test]
fn a_reader_that_sleeps_leaves_the_bytes_where_they_are() {
    let (notify, notified) = mpsc::channel();
    let address = server::each(move |_, mut stream| {
        assert!(server::read_head(&mut stream).is_some());
        let length = 1 << 30;
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream.set_nonblocking(true).unwrap();
        let (chunk, mut written) = (vec![b'x'; 1 << 16], 0);
        // Until nothing more is taken: the kernel's buffers are full, and nobody reads.
        while let Ok(count) = stream.write(&chunk) {
            written += count;
            assert!(written < 1 << 28, "somebody reads");
        }
        notify.send(()).unwrap();
        stream.set_nonblocking(false).unwrap();
        let _ = stream.read(&mut [0; 8]);
    });
    let run = TestRun::begin(plan(
        address,
        slow_reader::user_group(10, get()).of(1, 1),
        AGES,
    ));
    notified.recv().unwrap();
    let tally = run.stop().tally;
    assert_eq!((tally.sent, tally.unfinished), (1, 1));
    assert!(tally.bytes_received < 10_000, "{tally:?}");
}

#[test]
fn a_slow_head_that_is_answered_408_is_counted_by_that_status() {
    const USERS: u64 = 4;
    let (notify, notified) = mpsc::channel();
    let address = server::each(move |_, mut stream| {
        let mut first = [0; 1];
        if stream.read_exact(&mut first).is_err() {
            return;
        }
        let answer =
            b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        let _ = stream.write_all(answer);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        let _ = notify.send(rest.len());
    });
    let run = TestRun::begin(plan(
        address,
        slow_sender::heads(10, get()).of(1, USERS),
        AGES,
    ));
    for _ in 0..3 * USERS {
        notified.recv().unwrap();
    }
    let tally = run.stop().tally;
    assert!(tally.completed >= 3 * USERS, "{tally:?}");
    assert_eq!(tally.errors_of(ErrorKind::Status4xx), tally.completed);
    assert_eq!(tally.errors_total(), tally.completed);
    assert_eq!(tally.offered, tally.completed + tally.unfinished);
}

#[test]
fn slow_heads_and_bodies_get_through_where_they_are_let() {
    let answered = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&answered);
    let (notify, notified) = mpsc::channel();
    let address = server::each(move |_, mut stream| {
        while let Some(head) = server::read_head(&mut stream) {
            let text = String::from_utf8(head).unwrap();
            let (head, rest) = text.split_once("\r\n\r\n").unwrap();
            let length = head.split_once("Content-Length: ");
            let length = length.map_or(0, |length| length.1.trim().parse().unwrap());
            let mut content = vec![0; length - rest.len()];
            if stream.read_exact(&mut content).is_err() {
                return;
            }
            counted.fetch_add(1, Ordering::Relaxed);
            if stream.write_all(&server::answer(10)).is_err() {
                return;
            }
            let _ = notify.send(());
        }
    });
    let post =
        "POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 30\r\n\r\n012345678901234567890123456789";
    let bodies = slow_sender::bodies(300, spec(Method::Post, post)).of(1, 3);
    let mut plan = plan(address, bodies, AGES);
    plan.user_groups
        .push(slow_sender::heads(500, get()).of(1, 3));
    let run = TestRun::begin(plan);
    for _ in 0..12 {
        notified.recv().unwrap();
    }
    let tally = run.stop().tally;
    assert_eq!(tally.errors_total(), 0, "{tally:?}");
    assert_eq!(tally.sent, tally.completed + tally.unfinished);
    assert!(answered.load(Ordering::Relaxed) >= tally.completed);
    assert!(tally.completed >= 6, "{tally:?}");
}

/// How a connection ended, as the server saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    HalfARequest,
    Request,
}

#[test]
fn vanishing_clients_come_back_and_vanish_in_every_manner() {
    let (notify, notified) = mpsc::channel();
    let address = server::each(move |_, mut stream| {
        let seen = match server::read_head(&mut stream) {
            None => Seen::HalfARequest,
            Some(_) => Seen::Request,
        };
        if seen == Seen::Request {
            let _ = stream.write_all(&server::answer(1 << 20));
        }
        let _ = notify.send(seen);
    });
    let run = TestRun::begin(plan(address, vanishing::user_group(get()).of(1, 6), AGES));
    let mut seen: Vec<Seen> = (0..60).map(|_| notified.recv().unwrap()).collect();
    let tally = run.stop().tally;
    seen.sort_unstable();
    // A third of them is halves; what was reset before it was read looks like one, too.
    assert!(
        seen.iter()
            .filter(|one| **one == Seen::HalfARequest)
            .count()
            >= 15
    );
    assert!(seen.contains(&Seen::Request));
    assert!(tally.sent >= 60, "{tally:?}");
    assert_eq!(tally.offered, tally.unfinished, "{tally:?}");
}
