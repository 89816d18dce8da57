//! Turns of a loop, for what they cost to be counted: instructions by callgrind, system calls by
//! strace; allocations are printed. `./x bench core` does the arithmetic.
//!
//! `turns ARCHITECTURE BATCH ROUNDS`: see `gated.rs`.

#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod gated;

use std::alloc::System;

use loadline_server::{Architecture, ServerOptions};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use gated::{CONNECTIONS, with_server};

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const WARM_UP_ROUNDS: usize = 20;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [architecture, batch, rounds] = &arguments[..] else {
        println!("turns ARCHITECTURE BATCH ROUNDS: see ./x bench core");
        return;
    };
    let architecture = match architecture.as_str() {
        "reactor" => Architecture::Reactor,
        "proactor" => Architecture::Proactor,
        other => panic!("{other} has no turns"),
    };
    let batch: usize = batch.parse().expect("a number");
    let rounds: usize = rounds.parse().expect("a number");
    let latency_goal = ServerOptions::default().latency_goal;
    with_server(architecture, latency_goal, |client| {
        (0..WARM_UP_ROUNDS).for_each(|_| client.round(CONNECTIONS));
        let region = Region::new(COUNTING);
        (0..rounds).for_each(|_| client.round(batch));
        let change = region.change();
        println!("loop: {}", client.loop_thread());
        println!("allocations: {}", change.allocations + change.reallocations);
    });
}
