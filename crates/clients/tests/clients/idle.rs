use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use loadline_clients::idle;
use loadline_record::ErrorKind;
use loadline_stub::{Listening, Stub, StubOptions};
use loadline_sys::{connect, usage};

use crate::server;
use crate::user_groups::{AGES, TestRun, get, plan};

/// As many as the issue asks for, or what the descriptor limit lets both ends have.
fn many() -> usize {
    let limit = usage::raise_descriptor_limit().soft;
    (usize::try_from(limit)
        .unwrap_or(usize::MAX)
        .saturating_sub(400)
        / 2)
    .min(10_000)
}

#[test]
fn ten_thousand_stay() {
    let count = many();
    let (address, kept) = server::keeper(count);
    let user_group = idle::user_group(Some(get())).of(1, count as u64);
    let run = TestRun::begin(plan(address, user_group, AGES));
    assert_eq!(run.ready, count as u64);
    let mut kept = kept.recv().unwrap();
    for stream in &mut kept {
        assert!(server::read_head(stream).is_some());
        stream.write_all(&server::answer(10)).unwrap();
    }
    let tally = run.stop().tally;
    assert_eq!(tally.connections, count as u64);
    assert_eq!(tally.held, tally.good);
    assert_eq!(tally.good + tally.unfinished, count as u64);
    assert_eq!((tally.closes, tally.errors_total()), (0, 0));
    // Each has gone, and nobody else came.
    for stream in &mut kept {
        assert_eq!(stream.read(&mut [0; 8]).unwrap_or(0), 0);
    }
}

#[test]
fn a_server_that_closes_idle_connections_gets_them_back() {
    const USERS: u64 = 40;
    let (notify, accepted) = mpsc::sync_channel(1000);
    let address = server::each(move |number, mut stream| {
        // Some in good order, some by reset: with something unread.
        if number % 2 == 0 {
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stream.read(&mut [0; 8]);
        } else {
            connect::reset_on_close(stream.as_fd());
        }
        drop(stream);
        let _ = notify.send(number);
    });
    let run = TestRun::begin(plan(address, idle::user_group(None).of(1, USERS), AGES));
    for _ in 0..3 * USERS {
        accepted.recv().unwrap();
    }
    let tally = run.stop().tally;
    // A reset may come before the connection was seen to be open: then it is an error.
    let failed = tally.errors_total();
    assert_eq!(tally.errors_of(ErrorKind::Reset), failed, "{tally:?}");
    assert!(tally.connections + failed >= 2 * USERS, "{tally:?}");
    assert!(tally.closes + tally.held <= tally.connections, "{tally:?}");
    assert!(tally.closes > 0, "{tally:?}");
}

#[test]
fn one_request_first_and_then_silence() {
    const USERS: u64 = 20;
    let answered = Arc::new(AtomicU64::new(0));
    let (notify, notified) = mpsc::sync_channel(1000);
    let counted = Arc::clone(&answered);
    let address = server::each(move |_, mut stream| {
        assert!(server::read_head(&mut stream).is_some());
        stream.write_all(&server::answer(100)).unwrap();
        counted.fetch_add(1, Ordering::Relaxed);
        let _ = notify.send(());
        // Silence from now on, up to the end.
        assert!(matches!(stream.read(&mut [0; 8]), Ok(0) | Err(_)));
    });
    let run = TestRun::begin(plan(
        address,
        idle::user_group(Some(get())).of(1, USERS),
        AGES,
    ));
    for _ in 0..USERS {
        notified.recv().unwrap();
    }
    let tally = run.stop().tally;
    assert_eq!((tally.offered, tally.sent), (USERS, USERS));
    assert_eq!(tally.completed + tally.unfinished, USERS);
    assert_eq!(tally.good, tally.completed);
    assert_eq!(tally.held, tally.completed);
}

#[test]
fn who_is_refused_counts_it() {
    let nobody = Stub::start(StubOptions {
        listening: Listening::Refusing,
        ..StubOptions::default()
    });
    let address = nobody.as_ref().unwrap().address();
    let run = TestRun::begin(plan(address, idle::user_group(None).of(1, 3), AGES));
    assert_eq!(run.ready, 0);
    let tally = run.stop().tally;
    assert_eq!(tally.errors_of(ErrorKind::Refused) % 3, 0, "{tally:?}");
    assert_eq!(tally.connections, 0);
}
