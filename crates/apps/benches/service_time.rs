//! How accurate the service time is: asked and got, in microseconds, for sleep and spin.
//!
//! `cargo bench -p loadline-apps --bench service_time`. The timer slack of the thread is 1 ns, as
//! the server sets it on the threads that serve. What is asked for: a spin within 5 %, a sleep not
//! shorter and at most 60 us longer (median; the worst is what the machine's scheduler makes it).

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::time::{Duration, Instant};

use loadline_apps::service_time::{ServiceKind, spend};

const ROUNDS: usize = 500;

fn main() {
    rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))
        .expect("prctl(PR_SET_TIMERSLACK)");
    println!("| kind | asked us | p50 us | p99 us | p50 - asked us | p50 / asked |");
    println!("|---|--:|--:|--:|--:|--:|");
    for kind in [ServiceKind::Spin, ServiceKind::Sleep] {
        for asked_us in (0..=1000).step_by(100) {
            report(kind, asked_us);
        }
    }
}

fn report(kind: ServiceKind, asked_us: u64) {
    let asked = Duration::from_micros(asked_us);
    let mut took: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begun = Instant::now();
            spend(asked, kind);
            begun.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    took.sort_by(f64::total_cmp);
    let (p50, p99) = (took[ROUNDS / 2], took[ROUNDS * 99 / 100]);
    let ratio = if asked_us == 0 {
        1.0
    } else {
        p50 / asked_us as f64
    };
    let over = p50 - asked_us as f64;
    println!("| {kind:?} | {asked_us} | {p50:.1} | {p99:.1} | {over:.1} | {ratio:.3} |");
}
