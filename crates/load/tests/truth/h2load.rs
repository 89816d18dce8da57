//! Beside h2load, which others wrote, in an open loop: neither reports less than the stub's record has, and
//! what this generator adds to that is no more than what h2load adds.
//!
//! h2load sends by timers of its own, and its times begin where a request is sent, not where it is due. So
//! requests are evenly spaced, none waits in either client, and a time takes 50 ms: h2load added 1.3 to
//! 3.7 ms where the same was measured with shorter times (docs/measuring.md).

use std::cell::RefCell;
use std::path::Path;
use std::process::Command;

use loadline_load::Arrivals;
use loadline_stub::{Latency, Report, StubOptions};
use loadline_sys::affinity;

use crate::observer::{Lateness, PASSES_FROM_DUE, PASSES_GRANTED, TooLong, judged};
use crate::protocol::{Protocol, STREAMS};
use crate::run::{self, MS, Outcome, SECOND, US, open};
use crate::statistics::quantile;

const SERVICE_NS: u64 = 50 * MS;
const RATE: u64 = 300;
const REQUESTS: u64 = 3 * RATE;
/// 2 %, by which this generator may be off where h2load is not.
const TOLERANCE_US: u64 = SERVICE_NS / US / 50;
/// What h2load may add to the median and to the 90th percentile: beyond that the record would be wrong.
const H2LOAD_ADDED_US: u64 = 10_000;
/// Microseconds that both clocks round to, and by which stamps of the kernel may be of another clock.
const ROUNDED_US: u64 = 10;

/// What h2load reported and what the stub recorded of the same run, each in order.
struct Theirs {
    found_us: Vec<u64>,
    true_us: Vec<u64>,
}

fn options() -> StubOptions {
    StubOptions {
        latency: Latency::Constant { ns: SERVICE_NS },
        ..StubOptions::default()
    }
}

fn true_us(report: &Report) -> Vec<u64> {
    let times = report.times.iter();
    let mut all_us: Vec<u64> = times.map(|one| one.true_ns() / US).collect();
    all_us.sort_unstable();
    all_us
}

/// h2load on the client's CPU. Over HTTP/1.1 no connection is asked while it is busy, over HTTP/2 five
/// requests share one at a time.
fn ask(protocol: Protocol, url: &str, log: &Path) {
    let load: &[&str] = match protocol.is_http2() {
        false => &["--h1", "-c30", "--rps=10"],
        true => &["-c3", "-m10", "--rps=100"],
    };
    let mut command = Command::new("h2load");
    command.arg(format!("-n{REQUESTS}")).args(load);
    command.arg("--log-file").arg(log).arg(url);
    let start = move || {
        if let Some(cpu) = run::client_cpu() {
            affinity::pin_thread(&[cpu]).unwrap();
        }
        command.output()
    };
    let output = std::thread::spawn(start).join().unwrap();
    let output = output.expect("h2load starts (apt-get install nghttp2-client)");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
}

fn theirs(protocol: Protocol) -> Theirs {
    let stub = protocol.stub(options());
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let scheme = if protocol.is_secure() {
        "https"
    } else {
        "http"
    };
    ask(protocol, &format!("{scheme}://{}/", stub.address()), &log);
    let report = stub.stop().unwrap();
    // When it was sent, the status, and microseconds until the end of the response.
    let text = std::fs::read_to_string(&log).unwrap();
    let times = text.lines().map(|line| {
        let columns: Vec<&str> = line.split('\t').collect();
        assert_eq!(columns[1], "200", "{line}");
        columns[2].parse::<u64>().unwrap()
    });
    let mut found_us: Vec<u64> = times.collect();
    found_us.sort_unstable();
    assert_eq!(found_us.len() as u64, REQUESTS);
    let counts = &report.counts;
    assert_eq!((counts.requests, counts.answers), (REQUESTS, REQUESTS));
    Theirs {
        found_us,
        true_us: true_us(&report),
    }
}

fn own(protocol: Protocol) -> Outcome {
    let stub = protocol.stub(options());
    let (rate, duration_ns) = (RATE as f64, REQUESTS * SECOND / RATE);
    let plan = open(stub.address(), 60, rate, duration_ns, Arrivals::Constant);
    run::run(protocol.spoken(plan, STREAMS), stub)
}

fn compare(p: f64, theirs: &Theirs, outcome: &Outcome, lateness: &Lateness) -> Vec<TooLong> {
    let added_us = |found_us: u64, true_us: &[u64]| {
        let happened_us = quantile(true_us, p);
        assert!(
            found_us + ROUNDED_US >= happened_us,
            "p{p} of {found_us} us is shorter than what happened, {happened_us} us"
        );
        found_us.saturating_sub(happened_us)
    };
    let theirs_us = added_us(quantile(&theirs.found_us, p), &theirs.true_us);
    let own_us = outcome.results().latency.percentile_us(p * 100.0).unwrap();
    let own_us = added_us(own_us, &true_us(&outcome.report));
    eprintln!("p{p}: h2load adds {theirs_us} us, loadline {own_us} us");
    let late_ns = lateness.added_to(&[0; 1000], PASSES_FROM_DUE + PASSES_GRANTED);
    let granted_us = quantile(&late_ns, p) / US;
    let too_long = |who: &str, added_us: u64, most_us: u64| {
        (added_us > most_us).then(|| TooLong {
            what: format!("p{p}: {who} adds {added_us} us, and {most_us} us are allowed"),
            is_explained: added_us <= most_us + granted_us,
        })
    };
    let found = [
        too_long("h2load", theirs_us, H2LOAD_ADDED_US),
        too_long("loadline", own_us, theirs_us + TOLERANCE_US),
    ];
    found.into_iter().flatten().collect()
}

pub(crate) fn an_open_loop_beside_h2load(protocol: Protocol) {
    let of_run = RefCell::new(None);
    judged(
        &format!("beside h2load, {protocol:?}"),
        || {
            let theirs = theirs(protocol);
            *of_run.borrow_mut() = Some(theirs);
            own(protocol)
        },
        |outcome, lateness| {
            assert_eq!(outcome.results().tally.good, REQUESTS);
            assert_eq!(outcome.report.counts.answers, REQUESTS);
            let theirs = of_run.take().unwrap();
            let found = [0.5, 0.9].map(|p| compare(p, &theirs, outcome, lateness));
            found.into_iter().flatten().collect()
        },
    );
}
