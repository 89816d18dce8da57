//! Which loop a connection goes to, when it is new and later.

use std::sync::atomic::{AtomicBool, Ordering};

use loadline_server::{Accept, Architecture, Balance, ServerOptions};

use super::util::*;

on_loops! {
    round_robin_spreads_evenly_and_the_counters_show_it,
    least_connections_fills_up_the_emptiest,
    least_busy_spares_the_loop_that_computes,
    least_connections_feeds_the_loop_that_computes,
    expensive_connections_of_one_loop_are_spread,
}

fn handoff(architecture: Architecture, loops: usize, balance: Balance) -> Server {
    start(ServerOptions {
        accept: Accept::Handoff,
        balance,
        ..options(architecture, loops, 0)
    })
}

fn round_robin_spreads_evenly_and_the_counters_show_it(architecture: Architecture) {
    let server = handoff(architecture, 4, Balance::RoundRobin);
    let mut clients: Vec<_> = (0..40).map(|_| server.connect()).collect();
    clients
        .iter_mut()
        .for_each(|client| assert_eq!(client.get("/").status, 200));
    let loops = server.loops();
    assert_eq!(
        loops.iter().map(|l| l.connections).collect::<Vec<_>>(),
        [10; 4]
    );
    assert_eq!(
        loops.iter().map(|l| l.requests()).collect::<Vec<_>>(),
        [10; 4]
    );
    assert!(loops.iter().all(|l| l.busy_us > 0));
}

fn least_connections_fills_up_the_emptiest(architecture: Architecture) {
    let server = handoff(architecture, 3, Balance::LeastConnections);
    let mut taken_in: Vec<_> = (0..9).map(|_| server.connect_taken_in()).collect();
    assert!(server.loops().iter().all(|l| l.connections == 3));
    // The second loop loses its three; the next three are its own.
    taken_in.retain(|(_, index)| *index != 1);
    eventually(|| server.loops()[1].connections == 0);
    let next = [(); 3].map(|()| server.connect_taken_in());
    assert!(next.iter().all(|(_, index)| *index == 1));
}

/// One loop has 10 connections whose requests spin, the other 200 idle ones. Returns how many of
/// 50 new connections go to the idle one.
fn to_the_idle_one(architecture: Architecture, balance: Balance) -> usize {
    let server = handoff(architecture, 2, balance);
    let (mut busy, mut idle) = (Vec::new(), Vec::new());
    // A client cannot choose its loop: those beyond the share of a loop are closed afterwards.
    while busy.len() < 10 || idle.len() < 200 {
        let (client, index) = server.connect_taken_in();
        match index {
            0 if busy.len() < 10 => busy.push(client),
            1 if idle.len() < 200 => idle.push(client),
            // Kept for now, or least-connections would go on choosing this loop.
            0 => busy.push(client),
            _ => idle.push(client),
        }
    }
    busy.truncate(10);
    idle.truncate(200);
    eventually(|| {
        let loops = server.loops();
        loops[0].connections == 10 && loops[1].connections == 200
    });
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for client in &mut busy {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(client.get("/spin").status, 200);
                }
            });
        }
        // The window of 100 ms has to fill.
        let began_us = server.loops()[0].busy_us;
        eventually(|| server.loops()[0].busy_us > began_us + 150_000);
        let more: Vec<_> = (0..50).map(|_| server.connect_taken_in()).collect();
        stop.store(true, Ordering::Relaxed);
        more.iter().filter(|(_, index)| *index == 1).count()
    })
}

fn least_busy_spares_the_loop_that_computes(architecture: Architecture) {
    // Where something else has the CPUs, no loop is busy for a while.
    once_in(5, || {
        match to_the_idle_one(architecture, Balance::LeastBusy) {
            45.. => Ok(()),
            idle => Err(format!(
                "{idle} of 50 new connections went to the idle loop"
            )),
        }
    });
}

fn least_connections_feeds_the_loop_that_computes(architecture: Architecture) {
    let idle = to_the_idle_one(architecture, Balance::LeastConnections);
    assert_eq!(idle, 0, "of 50 new connections went to the idle loop");
}

/// Four connections that compute begin at one of two loops, beside many that ask for little.
fn expensive_connections_of_one_loop_are_spread(architecture: Architecture) {
    let server = handoff(architecture, 2, Balance::Adaptive);
    let (mut busy, mut other) = (Vec::new(), Vec::new());
    while busy.len() < 4 {
        match server.connect_taken_in() {
            (client, 0) => busy.push(client),
            (client, _) => other.push(client),
        }
    }
    drop(other);
    eventually(|| server.loops()[1].connections == 0);
    let before = server.loops()[1].requests();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for client in &mut busy {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let answer = client.get("/spin");
                    assert!(answer.status == 200 && answer.text().starts_with("loop "));
                }
            });
        }
        // Only those that have moved ask there.
        eventually(|| server.loops()[1].requests() >= before + 20);
        stop.store(true, Ordering::Relaxed);
    });
    let (total, loops) = (server.total(), server.loops());
    assert!(
        total.connections_moved > 0 && loops[0].connections_moved > 0,
        "{loops:?}"
    );
    eventually(|| server.total().connections == 4);
    assert!(server.end().is_clean());
}
