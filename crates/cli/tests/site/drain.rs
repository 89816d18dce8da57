//! SIGTERM under load: nothing that was accepted is lost.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::util::{ARCHITECTURES, Client, Server, is_offered, options, small_site};

/// Every client has a request in progress when the signal comes: each gets its whole answer.
fn finishes_what_is_in_progress(architecture: &str) {
    const CLIENTS: usize = 16;
    let root = small_site();
    let mut all = options(architecture);
    // Two workers need longer than the default goal for all of them.
    all.extend(["--service-time", "300ms", "--latency-goal", "60s"]);
    if architecture.starts_with("reactor") || architecture.starts_with("proactor") {
        all.extend(["--grace", "30s"]);
    }
    let server = Server::start(root.path(), &all);
    let barrier = Barrier::new(CLIENTS + 1);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = Client::connect(server.addr);
                client.send("/file.html").unwrap();
                barrier.wait();
                let answer = client
                    .answer()
                    .expect("an answer to what was sent before the signal");
                assert_eq!((answer.status, answer.body.len()), (200, 600));
                // Encoded before the signal came, the answer may not say so; it closes all the same.
                assert!(client.answer().is_none(), "closed after it");
            });
        }
        barrier.wait();
        server.signal("TERM");
    });
    let (status, lines) = server.wait();
    assert_eq!(status.code(), Some(0), "a clean drain: {lines:?}");
}

/// Clients that never stop: an answer is whole or was never begun, and it was not accepted then.
fn never_cuts_an_answer(architecture: &str) {
    const CLIENTS: usize = 16;
    let root = small_site();
    let server = Server::start(root.path(), &options(architecture));
    let answered = AtomicU64::new(0);
    // All of them before the first answer: the listener is closed once a thousand have come.
    let clients: Vec<Client> = (0..CLIENTS).map(|_| Client::connect(server.addr)).collect();
    std::thread::scope(|scope| {
        for mut client in clients {
            let answered = &answered;
            scope.spawn(move || {
                while client.send("/file.html").is_ok() {
                    let Some(answer) = client.answer() else { break };
                    assert_eq!((answer.status, answer.body.len()), (200, 600));
                    answered.fetch_add(1, Ordering::Relaxed);
                    if answer.closes() {
                        break;
                    }
                }
            });
        }
        while answered.load(Ordering::Relaxed) < 1000 {
            std::thread::sleep(Duration::from_millis(1));
        }
        server.signal("TERM");
    });
    let (status, lines) = server.wait();
    assert_eq!(status.code(), Some(0), "a clean drain: {lines:?}");
}

/// All at once: their servers sleep, and those that do so one request after the other take seconds.
#[test]
fn requests_in_progress_are_finished() {
    std::thread::scope(|scope| {
        for (name, _) in ARCHITECTURES
            .iter()
            .filter(|(name, _)| *name != "sequential" && is_offered(name))
        {
            scope.spawn(move || finishes_what_is_in_progress(name));
        }
    });
}

#[test]
fn answers_are_never_cut() {
    for (name, _) in ARCHITECTURES
        .iter()
        .filter(|(name, _)| *name != "sequential" && is_offered(name))
    {
        never_cuts_an_answer(name);
    }
}
