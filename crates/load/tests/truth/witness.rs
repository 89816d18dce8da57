//! Who kept whom from running: whether the machine can explain that a time was too long.
//!
//! The stub's record holds its own delays, since the kernel stamps what arrives. What is left is the
//! client's thread, kept from running by others on its CPU or by the hypervisor. A witness sleeps on
//! that CPU, a millisecond at a time, and looks how late it wakes: the share of late wake-ups is the
//! share of moments in which a client without fault would have been late as well.

use std::fmt;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use loadline_sys::clock::monotonic_ns;
use loadline_sys::{affinity, usage};

use crate::run::{self, MS, Outcome, US};

/// Runs of one test at most, each with a new seed, if none is good.
const ATTEMPTS: usize = 5;
/// Time that all tests together may spend on repeating, in milliseconds: the suite is to end.
const REPEATING_MS_MAX: u64 = 60_000;
/// A wake-up or an answer that is later than this was disturbed. Within it lie a virtual CPU's way
/// out of its sleep, an interrupt, and the turns that threads on one CPU take.
const LATE_NS: u64 = 200 * US;
/// How often the witness looks.
const LOOK_NS: u64 = MS;
/// A request passes the client's thread twice: when it is sent and when its answer is read.
const PASSES: f64 = 2.0;

/// The share of the quickest requests that is judged in every run: of ten thousand, ten. However
/// much the machine disturbs, some requests go undisturbed, but an error of the client is in all.
pub(crate) const QUICKEST_SHARE: f64 = 0.001;
/// What measuring may add to those, in microseconds: 15 to 56 were measured, in a debug build on a
/// disturbed machine.
pub(crate) const QUICKEST_ADDED_US: f64 = 90.0;

/// What the witnesses saw.
pub(crate) struct Disturbance {
    /// Share of the moments in which a thread on the client's CPU woke late.
    client_share: f64,
    /// Share of the stub's answers that were late.
    stub_share: f64,
}

impl Disturbance {
    fn of(outcome: &Outcome, client_share: f64) -> Self {
        let times = &outcome.report.times;
        let late = times.iter().filter(|one| one.late_ns() > LATE_NS).count();
        Self {
            client_share,
            stub_share: late as f64 / times.len().max(1) as f64,
        }
    }

    /// Whether as large a part of the times can be too long for reasons of the machine.
    fn explains(&self, found: &TooLong) -> bool {
        match found.whose {
            Whose::Client => PASSES * self.client_share >= found.beyond,
            Whose::Stub => self.stub_share >= found.beyond,
            Whose::Nobody => false,
        }
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (client, stub) = (self.client_share * 100.0, self.stub_share * 100.0);
        write!(
            f,
            "on the client's CPU {client:.2} % of wake-ups, and {stub:.2} % of the stub's answers, \
             were more than {} us late",
            LATE_NS / US
        )
    }
}

/// Sleeps and wakes on the client's CPU.
struct Witness {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<f64>,
}

impl Witness {
    fn begin() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let looked_at = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            if let Some(cpu) = run::client_cpu() {
                affinity::pin_thread(&[cpu]).unwrap();
            }
            let _ = usage::wake_promptly(); // as the client's thread does
            let _ = usage::sleep_precisely();
            let (mut looks, mut late) = (0_u64, 0_u64);
            while !looked_at.load(Ordering::Relaxed) {
                let due_ns = monotonic_ns() + LOOK_NS;
                std::thread::sleep(Duration::from_nanos(LOOK_NS));
                let late_ns = monotonic_ns().saturating_sub(due_ns);
                // One that was kept for long has missed as many moments.
                looks += 1 + late_ns / LOOK_NS;
                late += u64::from(late_ns > LATE_NS) + late_ns / LOOK_NS;
            }
            late as f64 / looks.max(1) as f64
        });
        Self { is_over, thread }
    }

    fn end(self) -> f64 {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Whose time a time is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// What the client reports, against the record.
    Client,
    /// What the record has, against the program.
    Stub,
    /// The machine has no part in it.
    Nobody,
}

/// A time that is too long, and which part of all times it concerns: 0.01 where the 99th percentile
/// is too large.
#[derive(Debug)]
pub(crate) struct TooLong {
    pub(crate) whose: Whose,
    pub(crate) what: String,
    pub(crate) beyond: f64,
}

/// Runs and judges until a run is good. If none is, and the machine explains all that was wrong with
/// half of them or more, the case is skipped, which is told past the capture of the test's output.
/// Otherwise it has failed: an error of the client is in every run, a disturbance is not.
pub(crate) fn judged(run: impl Fn() -> Outcome, judge: impl Fn(&Outcome) -> Vec<TooLong>) {
    static REPEATING_MS: AtomicU64 = AtomicU64::new(0);
    let (mut attempts, mut unexplained) = (0, Vec::new());
    while attempts < ATTEMPTS {
        attempts += 1;
        let (begin, witness) = (Instant::now(), Witness::begin());
        let outcome = run();
        let disturbance = Disturbance::of(&outcome, witness.end());
        let found = judge(&outcome);
        eprintln!("run {attempts}: {disturbance}");
        for one in &found {
            eprintln!("  {}", one.what);
        }
        if found.is_empty() {
            return;
        }
        let error = found.iter().find(|one| !disturbance.explains(one));
        unexplained.extend(error.map(|one| format!("{}, though {disturbance}", one.what)));
        let took_ms = begin.elapsed().as_millis() as u64;
        if REPEATING_MS.fetch_add(took_ms, Ordering::Relaxed) + took_ms > REPEATING_MS_MAX {
            break;
        }
    }
    assert!(
        unexplained.len() * 2 <= attempts,
        "none of {attempts} runs was good, and the machine does not explain: {unexplained:#?}"
    );
    let name = std::thread::current().name().unwrap_or("?").to_owned();
    let message = format!("{name}: SKIPPED, the machine disturbed {attempts} runs of {ATTEMPTS}\n");
    assert!(
        std::env::var_os("LOADLINE_TRUTH_STRICT").is_none(),
        "{message}"
    );
    std::io::stderr().write_all(message.as_bytes()).unwrap();
}
