//! What kept threads from running: whether the machine can explain that a time was too long.
//!
//! The stub's record holds its own delays, since the kernel stamps what arrives. What is left is the
//! client's thread, kept from running by others on its CPU or by the hypervisor. An observer sleeps on
//! that CPU, a millisecond at a time, and looks how late it wakes: as late a client without fault
//! would have been as well. Added to what the record has, that is what such a client would report.

use std::fmt;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use loadline_sys::clock::monotonic_ns;
use loadline_sys::{affinity, usage};

use crate::run::{self, MS, Outcome, US};
use crate::statistics::{mean, quantile};

/// Runs of one test at most, each with a new seed, if none is good.
const ATTEMPTS: usize = 5;
/// Time that all tests together may spend on runs that are not good, in milliseconds.
const REPEATING_MS_MAX: u64 = 45_000;
/// Runs that a test has even then, if one of them is not explained: one alone proves nothing. One run
/// of each test of a commit takes 60 s, one of those that take long as well 210 s, and what is not judged
/// 10 s: were no run of any test good or explained, the suite would end after four minutes, or after twelve.
const ATTEMPTS_LEAST: usize = 3;
/// A wake-up or an answer that is later than this was disturbed, and by how much it is later says
/// little about another one. Within it lie a virtual CPU's way out of its sleep, an interrupt, and
/// the turns that threads on one CPU take.
pub(crate) const LATE_NS: u64 = 200 * US;
/// How often the observer looks.
const LOOK_NS: u64 = MS;

/// A request passes the client's thread when its answer is read, and from the moment when it is due
/// in an open loop also when it is sent.
pub(crate) const PASSES_OF_ANSWER: usize = 1;
pub(crate) const PASSES_FROM_DUE: usize = 2;
/// What is granted before an error is seen: the client, which works, may also be kept from running
/// while it does, and is so for longer than an observer that only sleeps.
pub(crate) const PASSES_GRANTED: usize = 1;

/// A run in which a thread is as late as this on average says nothing of any time: a client that
/// works gets so little of the CPU then that it never catches up.
const HOPELESS_S: f64 = 5e-3;
/// The same if that large a part of all moments is disturbed: then a client that works is so all the
/// time, and one delay of it meets the next.
const HOPELESS_SHARE: f64 = 0.2;

/// The same if the client's own thread could have run for that large a part of the time, and was not let. An
/// observer that mostly sleeps is given a CPU before one that works.
fn kept_from_running(outcome: &Outcome) -> f64 {
    let threads = outcome.record.threads.iter();
    threads.fold(0.0, |most, thread| thread.run_delay_share.max(most))
}

/// The same of the stub, which works as much as the client does and so is kept waiting as long, where
/// others work on all CPUs.
const HOPELESS_STUB_S: f64 = 1e-3;

/// How late a thread on the client's CPU was, at moments all over a run.
pub(crate) struct Lateness {
    sorted_ns: Vec<u64>,
}

impl Lateness {
    /// Of looks that were late by so much. One that was late for long has missed as many moments.
    fn of(looks_ns: &[u64]) -> Self {
        let missed = |late_ns: &u64| (0..=late_ns / LOOK_NS).map(|n| n * LOOK_NS);
        let moments = looks_ns
            .iter()
            .flat_map(|late_ns| missed(late_ns).map(move |since_ns| late_ns - since_ns));
        let mut sorted_ns: Vec<u64> = moments.collect();
        sorted_ns.sort_unstable();
        Self { sorted_ns }
    }

    /// What a client without fault would have found where these times happened: each with the
    /// lateness of so many moments, in order. The steps, powers of the root of x^4 = x + 1, choose
    /// the moments more evenly than chance would.
    pub(crate) fn added_to(&self, times_ns: &[u64], passes: usize) -> Vec<u64> {
        const STEPS: [f64; PASSES_FROM_DUE + PASSES_GRANTED] =
            [0.819_172_513, 0.671_043_607, 0.549_700_478];
        const MOMENTS_PER_TIME: usize = 8;
        let count = self.sorted_ns.len() as f64;
        let late_ns = |n: usize, step: f64| {
            let at = (n as f64 * step).fract() * count;
            self.sorted_ns.get(at as usize).copied().unwrap_or(0)
        };
        let found = (0..times_ns.len() * MOMENTS_PER_TIME).map(|n| {
            let late = STEPS[..passes].iter().map(|step| late_ns(n, *step));
            times_ns[n / MOMENTS_PER_TIME] + late.sum::<u64>()
        });
        let mut found: Vec<u64> = found.collect();
        found.sort_unstable();
        found
    }

    /// What that adds to a mean, in seconds.
    pub(crate) fn added_to_mean_s(&self, passes: usize) -> f64 {
        let late_s: Vec<f64> = self.sorted_ns.iter().map(|ns| *ns as f64 / 1e9).collect();
        mean(&late_s) * passes as f64
    }

    /// Whether that many of so many requests can have met a moment that was disturbed. How many did
    /// is chance as well, of which three standard deviations are granted.
    pub(crate) fn can_have_hit(&self, hit: f64, requests: usize, passes: usize) -> bool {
        let expected = self.disturbed_share() * (passes * requests) as f64;
        expected + 3.0 * expected.sqrt() >= hit
    }

    pub(crate) fn disturbed_share(&self) -> f64 {
        let within = self.sorted_ns.partition_point(|ns| *ns <= LATE_NS);
        1.0 - within as f64 / self.sorted_ns.len().max(1) as f64
    }
}

impl fmt::Display for Lateness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.sorted_ns.is_empty() {
            return write!(f, "nobody looked");
        }
        let [first, middle, last] = [0.1, 0.5, 0.9].map(|p| quantile(&self.sorted_ns, p) / US);
        write!(
            f,
            "a thread on the client's CPU woke {first}, {middle}, {last} us late (p10, p50, p90), \
             and {:.2} % of the time more than {} us",
            self.disturbed_share() * 100.0,
            LATE_NS / US
        )
    }
}

/// Sleeps and wakes on the client's CPU.
struct Observer {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Vec<u64>>,
}

impl Observer {
    fn begin() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let looked_at = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            if let Some(cpu) = run::client_cpu() {
                affinity::pin_thread(&[cpu]).unwrap();
            }
            let _ = usage::wake_promptly(); // as the client's thread does
            let _ = usage::sleep_precisely();
            let mut looks_ns = Vec::new();
            while !looked_at.load(Ordering::Relaxed) {
                let due_ns = monotonic_ns() + LOOK_NS;
                std::thread::sleep(Duration::from_nanos(LOOK_NS));
                looks_ns.push(monotonic_ns().saturating_sub(due_ns));
            }
            looks_ns
        });
        Self { is_over, thread }
    }

    fn end(self) -> Lateness {
        self.is_over.store(true, Ordering::Relaxed);
        Lateness::of(&self.thread.join().unwrap())
    }
}

/// Something that is too long, and whether the machine explains it.
#[derive(Debug)]
pub(crate) struct TooLong {
    pub(crate) what: String,
    pub(crate) is_explained: bool,
}

fn stub_late_s(outcome: &Outcome) -> f64 {
    let times = outcome.report.times.iter();
    let late_s: Vec<f64> = times.map(|times| times.late_ns() as f64 / 1e9).collect();
    mean(&late_s)
}

/// Runs and judges until a run is good. If none is, and the machine explains all that was wrong with
/// half of them or more, the case is skipped; the line that says so is not captured with the test's output.
/// Otherwise it has failed: an error of the client is in every run, a disturbance is not.
pub(crate) fn judged(
    case: &str,
    run: impl Fn() -> Outcome,
    judge: impl Fn(&Outcome, &Lateness) -> Vec<TooLong>,
) {
    static REPEATING_MS: AtomicU64 = AtomicU64::new(0);
    let (mut attempts, mut unexplained) = (0, Vec::new());
    while attempts < ATTEMPTS {
        attempts += 1;
        let (begin, observer) = (Instant::now(), Observer::begin());
        let outcome = run();
        let lateness = observer.end();
        let kept = kept_from_running(&outcome);
        eprintln!(
            "{case}, run {attempts}: {lateness}; the client was kept from running {:.1} % of the time",
            kept * 100.0
        );
        let found = judge(&outcome, &lateness);
        for one in &found {
            eprintln!("  {}, explained: {}", one.what, one.is_explained);
        }
        if found.is_empty() {
            return;
        }
        let is_hopeless = lateness.added_to_mean_s(1) > HOPELESS_S
            || lateness.disturbed_share() > HOPELESS_SHARE
            || kept > HOPELESS_SHARE
            || stub_late_s(&outcome) > HOPELESS_STUB_S;
        let error = found.iter().find(|one| !one.is_explained && !is_hopeless);
        unexplained.extend(error.map(|one| format!("{}, though {lateness}", one.what)));
        let took_ms = begin.elapsed().as_millis() as u64;
        let is_spent =
            REPEATING_MS.fetch_add(took_ms, Ordering::Relaxed) + took_ms > REPEATING_MS_MAX;
        if is_spent && (unexplained.is_empty() || attempts >= ATTEMPTS_LEAST) {
            break;
        }
    }
    assert!(
        unexplained.len() * 2 <= attempts,
        "{case}: none of {attempts} runs was good, and the machine does not explain: {unexplained:#?}"
    );
    let message = format!("{case}: SKIPPED, the machine disturbed {attempts} runs of {ATTEMPTS}\n");
    assert!(
        std::env::var_os("LOADLINE_TRUTH_STRICT").is_none(),
        "{message}"
    );
    std::io::stderr().write_all(message.as_bytes()).unwrap();
}

#[test]
fn what_waking_takes_is_added() {
    // Late by 2.5 ms, it has missed two moments more, which were late by 1.5 and 0.5 ms.
    let lateness = Lateness::of(&[100 * US, 2_500 * US, 0]);
    let moments_us = [0, 100, 500, 1_500, 2_500];
    assert_eq!(lateness.sorted_ns, moments_us.map(|us| us * US));
    assert!((lateness.added_to_mean_s(2) - 2.0 * 920e-6).abs() < 1e-12);
    let found = lateness.added_to(&[7 * MS; 1000], 1);
    for (n, us) in moments_us.into_iter().enumerate() {
        let p = (n as f64 + 0.5) / 5.0;
        assert_eq!(quantile(&found, p), 7 * MS + us * US);
    }
    // Twice: of the 25 pairs, 3 are no later than 100 us, and one is late by that twice.
    let found = lateness.added_to(&[0; 1000], 2);
    assert_eq!(quantile(&found, 0.11), 100 * US);
    assert_eq!(quantile(&found, 0.15), 200 * US);
    // Three of five moments are disturbed: 6 of 10, give or take 7.3.
    assert!(lateness.can_have_hit(13.3, 10, 1));
    assert!(!lateness.can_have_hit(13.4, 10, 1));
    assert!(!Lateness::of(&[200 * US]).can_have_hit(0.1, 1000, 2));
}
