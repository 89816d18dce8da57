//! `loadline-stub`: the responder by hand, for benchmarks.
//!
//! ```text
//! loadline-stub --latency exp:5ms --servers 1 --stall 1s/10s
//! ```
//!
//! It prints the address at which it listens, and at SIGTERM or SIGINT what it has counted.
#![forbid(unsafe_code)]

use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::sync::mpsc;

use clap::Parser;
use loadline_stub::{Every, Fault, Report, Stub, StubOptions};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// A responder with a programmed truth: what it answers, and when, is known beforehand.
#[derive(Debug, Parser)]
#[command(name = "loadline-stub", version)]
struct Flags {
    #[command(flatten)]
    options: StubOptions,
    /// Also end when standard input does.
    #[arg(long)]
    until_eof: bool,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    match run(flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "loadline-stub: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(flags: Flags) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let (until_eof, faults) = (flags.until_eof, flags.options.faults.clone());
    let stub = Stub::start(flags.options)?;
    let mut out = io::stdout();
    writeln!(out, "{}", stub.address())?;
    out.flush()?;
    let (end, is_over) = mpsc::channel();
    if until_eof {
        let end = end.clone();
        std::thread::spawn(move || {
            let _ = io::copy(&mut io::stdin().lock().take(u64::MAX), &mut io::sink());
            let _ = end.send(());
        });
    }
    std::thread::spawn(move || {
        let _ = signals.forever().next();
        let _ = end.send(());
    });
    let _ = is_over.recv();
    let report = stub.stop()?;
    out.write_all(summary(&report, &faults).as_bytes())
}

fn summary(report: &Report, faults: &[Every<Fault>]) -> String {
    let counts = &report.counts;
    let mut text = format!(
        "connections {}\nrequests {}\nanswers {}\nmissed {}\nnot-understood {}\n",
        counts.connections, counts.requests, counts.answers, counts.missed, counts.not_understood
    );
    for (rule, count) in faults.iter().zip(&counts.faults) {
        text += &format!("fault {:?}@{} {count}\n", rule.fault, rule.every);
    }
    let times = [
        ("true-us", sorted_us(report, |times| times.true_ns())),
        ("late-us", sorted_us(report, |times| times.late_ns())),
    ];
    for (name, values) in times {
        let at = |p: f64| {
            let rank = (p * values.len() as f64).ceil() as usize;
            values.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
        };
        let (p50, p99, p999, max) = (at(0.5), at(0.99), at(0.999), at(1.0));
        text += &format!("{name} p50 {p50:.1} p99 {p99:.1} p99.9 {p999:.1} max {max:.1}\n");
    }
    text
}

fn sorted_us(report: &Report, ns: impl Fn(&loadline_stub::Times) -> u64) -> Vec<f64> {
    let mut values: Vec<u64> = report.times.iter().map(ns).collect();
    values.sort_unstable();
    values.iter().map(|ns| *ns as f64 / 1e3).collect()
}
