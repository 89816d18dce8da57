//! Threads of connections have short time slices once there are many of them.

use std::thread;
use std::time::Duration;

use loadline_server::{Architecture, ServerOptions};
use loadline_sys::time_slice::ThreadNumber;

use super::util::{Client, one_at_a_time, options, say_skipped, start, time_slice};

/// From so many connections on.
const MANY: usize = 512;
/// In nanoseconds, as the kernel shows it.
const SHORTEST: &[u8] = b"100000";

#[test]
fn with_a_latency_goal_all_threads_have_short_slices_from_many_connections_on() {
    let granted = thread::spawn(|| {
        let asked = ThreadNumber::own().ask_for_shortest_slices();
        asked.is_ok() && time_slice() == SHORTEST
    });
    if !granted.join().unwrap() {
        return say_skipped("time slices: the kernel grants no short ones, or does not show them");
    }
    let _turn = one_at_a_time();
    loadline_sys::usage::raise_descriptor_limit();
    for (latency_goal, short) in [(Some(Duration::from_secs(60)), MANY), (None, 0)] {
        let server = start(ServerOptions {
            latency_goal,
            ..options(Architecture::ThreadPerConnection)
        });
        let connect = || {
            let mut client = server.connect();
            assert_eq!(client.get("/").status, 200);
            client
        };
        let mut clients: Vec<Client> = (1..MANY).map(|_| connect()).collect();
        assert_eq!(count_short(&mut clients), 0);
        clients.push(connect());
        assert_eq!(count_short(&mut clients), short);
        // So it stays, also for new threads.
        clients.truncate(1);
        clients.push(connect());
        assert_eq!(count_short(&mut clients), short.min(2));
        drop(clients);
        assert!(server.end().is_clean());
    }
}

/// Connections whose threads have the shortest slices.
fn count_short(clients: &mut [Client]) -> usize {
    let slices = clients.iter_mut();
    let slices = slices.map(|client| client.get("/time-slice").content);
    slices.filter(|slice| slice == SHORTEST).count()
}
