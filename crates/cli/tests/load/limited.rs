//! The verdict: a client that was the limit is called so, one that was not is not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::util::{Running, server, signal};

/// Lets a process run for a fifth of the time, until told to stop.
fn held_to_a_fifth(id: u32) -> (Arc<AtomicBool>, std::thread::JoinHandle<()>) {
    let is_over = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&is_over);
    let hold = move || {
        while !asked.load(Ordering::Relaxed) {
            signal(id, "STOP");
            std::thread::sleep(Duration::from_millis(80));
            signal(id, "CONT");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    (is_over, std::thread::spawn(hold))
}

#[test]
fn a_client_held_to_a_fifth_of_a_cpu_is_limited() {
    let (server, _site) = server(&[]);
    let mut running = Running::start(&format!(
        "http://{}/ -c 16 -d 2s --rate 2000 --quiet",
        server.address()
    ));
    let (is_over, holding) = held_to_a_fifth(running.id());
    std::thread::sleep(Duration::from_millis(2_500));
    is_over.store(true, Ordering::Relaxed);
    holding.join().unwrap();
    let (status, out, err) = running.end();
    assert_eq!(status.code(), Some(5), "{out}{err}");
    assert!(err.contains("client-limited: "), "{err}");
}
