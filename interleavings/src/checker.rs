//! Runs a case under every interleaving.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::model::Builder;

/// How `SeqCst` accesses are ordered.
///
/// loom takes them for `AcqRel`, and orders by `fence(SeqCst)` alone. So each access gets a fence, as
/// compilers make them for processors that have nothing else: either before it or behind it. Both are
/// right, so correct code passes under both. Code that needs two `SeqCst` accesses in a row of which
/// one is weaker fails under one of the two: with fences on both sides the stronger one would stand
/// in for the weaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fences {
    Leading,
    Trailing,
}

thread_local! {
    // loom runs the threads of a case on the one that checks it.
    static FENCES: Cell<Fences> = const { Cell::new(Fences::Leading) };
}

pub(crate) fn fences() -> Fences {
    FENCES.get()
}

/// Preemptions in one execution, unless `LOOM_MAX_PREEMPTIONS` says otherwise. Faults need two or
/// three; each more takes some five times as long.
const PREEMPTIONS_MAX: usize = 3;

/// Checks a case under all executions of up to [`PREEMPTIONS_MAX`] preemptions.
pub(crate) fn check(case: impl Fn() + Send + Sync + 'static) {
    check_within(PREEMPTIONS_MAX, case);
}

/// The same with another bound.
pub(crate) fn check_within(preemptions_max: usize, case: impl Fn() + Send + Sync + 'static) {
    let case = Arc::new(case);
    for fences in [Fences::Leading, Fences::Trailing] {
        FENCES.set(fences);
        let executions = Arc::new(AtomicUsize::new(0));
        let mut builder = Builder::new();
        builder.preemption_bound.get_or_insert(preemptions_max);
        let log = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_env("LOOM_LOG"))
            .without_time()
            .with_test_writer()
            .finish();
        let _logging = tracing::subscriber::set_default(log);
        builder.check({
            let (case, executions) = (Arc::clone(&case), Arc::clone(&executions));
            move || {
                executions.fetch_add(1, Ordering::Relaxed);
                case();
            }
        });
        println!("{executions:?} executions, {fences:?} fences");
    }
}
