//! `loadline-stub`: the responder by hand, for benchmarks.
//!
//! ```text
//! loadline-stub --latency exp:5ms --servers 1 --stall 1s/10s
//! ```
//!
//! It prints the address at which it listens, and at SIGTERM or SIGINT what it has counted.
#![forbid(unsafe_code)]

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::mpsc;

use clap::Parser;
use loadline_stub::{
    Closing, ConnectionFault, Draw, Every, Fault, Framing, Latency, Listening, Report, Stall, Stub,
    StubOptions, text,
};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// A responder with a programmed truth: what it answers, and when, is known beforehand.
#[derive(Debug, Parser)]
#[command(name = "loadline-stub", version)]
struct Flags {
    /// Where to listen; port 0: the kernel chooses.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Whether anybody is there: answering, refusing, deaf.
    #[arg(long, default_value = "answering", value_parser = text::listening)]
    listening: Listening,
    /// How long an answer takes: 5ms, exp:5ms, bimodal:1ms,10ms,5%.
    #[arg(long, default_value = "0", value_parser = text::latency)]
    latency: Latency,
    /// Of each so many answers in a row, one from each of as many equal parts of the distribution.
    #[arg(long, value_name = "COUNT")]
    strata: Option<u32>,
    /// Requests that are served at once; the others wait in one queue.
    #[arg(long, alias = "capacity", value_name = "COUNT")]
    servers: Option<u32>,
    /// A pause of everything, for so long, every so often: 1s/10s.
    #[arg(long, value_parser = text::stall)]
    stall: Option<Stall>,
    /// The first answers of connections are later by times spread over this.
    #[arg(long, default_value = "0", value_name = "TIME", value_parser = text::duration_ns)]
    spread: u64,
    /// Bytes of content of an answer.
    #[arg(long, default_value_t = 13, value_name = "BYTES")]
    body: usize,
    /// How the end of the content is marked: length, chunked, until-close.
    #[arg(long, default_value = "length", value_parser = text::framing)]
    framing: Framing,
    /// When connections close: as-asked, announced, silent, ignored.
    #[arg(long, default_value = "as-asked", value_parser = text::closing)]
    closing: Closing,
    /// What is wrong with every Nth answer: cut-body@10, status:503@7, late:2s@100.
    #[arg(long, value_name = "FAULT@N", value_parser = text::fault)]
    fault: Vec<Every<Fault>>,
    /// What happens to every Nth connection: close@10, reset@10.
    #[arg(long, value_name = "FAULT@N", value_parser = text::connection_fault)]
    connection_fault: Vec<Every<ConnectionFault>>,
    /// Repeats what is drawn.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long before an answer the clock is looked at all the time.
    #[arg(long, default_value = "50us", value_name = "TIME", value_parser = text::duration_ns)]
    spin: u64,
    /// The CPU to run on.
    #[arg(long)]
    cpu: Option<usize>,
    /// Requests whose times are kept, for the last line.
    #[arg(long, default_value_t = 1_000_000, value_name = "COUNT")]
    times: usize,
    /// Also end when standard input does.
    #[arg(long)]
    until_eof: bool,
}

impl Flags {
    fn options(self) -> StubOptions {
        StubOptions {
            address: self.listen,
            listening: self.listening,
            latency: self.latency,
            draw: match self.strata {
                None => Draw::Independent,
                Some(strata) => Draw::Stratified { strata },
            },
            servers: self.servers,
            stall: self.stall,
            spread_ns: self.spread,
            body: vec![b'x'; self.body],
            framing: self.framing,
            closing: self.closing,
            faults: self.fault,
            connection_faults: self.connection_fault,
            seed: self.seed,
            spin_ns: self.spin,
            cpu: self.cpu,
            times_max: self.times,
        }
    }
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    match run(flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A closed standard error leaves nobody to tell.
            let _ = writeln!(io::stderr(), "loadline-stub: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(flags: Flags) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let (until_eof, faults) = (flags.until_eof, flags.fault.clone());
    let stub = Stub::start(flags.options())?;
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
