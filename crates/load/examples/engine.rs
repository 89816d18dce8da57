//! The engine on one thread against a running server: requests per second of its own CPU time.
//!
//! `cargo run --release --example engine -- ADDRESS PATH CONNECTIONS SECONDS [--rate R] [--new]`
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::time::Duration;

use loadline_load::engine::run;
use loadline_load::{
    Arrivals, Control, Loop, Message, Overflow, Phase, Plan, Prepared, Schedule, Share,
    ThreadReport,
};
use loadline_record::{Tally, latencies};
use loadline_sys::clock::monotonic_ns;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, path, connections, seconds, rest @ ..] = arguments.as_slice() else {
        return Err("ADDRESS PATH CONNECTIONS SECONDS [--rate R] [--new]".into());
    };
    let duration = Duration::from_secs(seconds.parse()?);
    let rate = rest.iter().position(|word| word == "--rate");
    let load = match rate.and_then(|at| rest.get(at + 1)) {
        None => Loop::Closed {
            think_ns: 0,
            coalesces: true,
        },
        Some(rate) => Loop::Open {
            schedule: Schedule::constant(rate.parse()?, duration)?,
            arrivals: Arrivals::Poisson,
            overflow: Overflow::Queue,
        },
    };
    let is_new = rest.iter().any(|word| word == "--new");
    let phase = Phase {
        label: "all".to_owned(),
        end_ns: u64::try_from(duration.as_nanos())?,
        counted: true,
        ..Phase::default()
    };
    let plan = Plan {
        load,
        connections: connections.parse()?,
        requests_per_connection: is_new.then_some(1),
        timeout_ns: 2_000_000_000,
        content_sample: 0,
        ..Plan::new(address.parse()?, Prepared::get(address, path), vec![phase])
    };

    let control = Control::new();
    let (mut tally, mut latency) = (Tally::default(), latencies());
    let mut report = None;
    loadline_sys::usage::raise_descriptor_limit();
    run(
        &plan,
        Share::WHOLE,
        &control,
        &mut |message| match message {
            Message::Ready { .. } => control.start_at(monotonic_ns() + 10_000_000),
            Message::Interval(interval) => {
                tally.merge(&interval.tally);
                let _ = latency.add(&interval.latency.0); // the bounds are the same
            }
            Message::Finished(finished) => report = Some(finished),
            Message::Steps(_) => {}
        },
    )?;
    let report = report.ok_or("no report")?;
    print(&report, &tally);
    for percentile in [0.5, 0.99, 0.999] {
        let us = latency.value_at_quantile(percentile);
        let lag_us = report.lag.value_at_quantile(percentile);
        println!(
            "p{:<5} latency {us} us, lag {lag_us} us",
            percentile * 100.0
        );
    }
    Ok(())
}

fn print(report: &ThreadReport, tally: &Tally) {
    let (wall_s, cpu_s) = (report.wall_ns as f64 / 1e9, report.cpu_ns as f64 / 1e9);
    let completed = tally.completed as f64;
    println!(
        "{} requests of which {} good, {} errors, {} unfinished, {} connections",
        tally.completed,
        tally.good,
        tally.errors_total(),
        tally.unfinished,
        tally.connections
    );
    println!(
        "{:.0} requests/s, {:.0} requests per CPU second, {:.2} us of CPU each, {:.0} % busy",
        completed / wall_s,
        completed / cpu_s,
        cpu_s * 1e6 / completed,
        100.0 * cpu_s / wall_s
    );
    println!(
        "{:.1} events a turn, waited {:.0} % of the time, {:.2} s in the run queue",
        report.events as f64 / report.turns as f64,
        100.0 * report.waited_ns as f64 / report.wall_ns as f64,
        report.run_delay_ns as f64 / 1e9
    );
}
