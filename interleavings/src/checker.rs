//! Runs a case under every interleaving.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::model::Builder;

/// Where the fences of `SeqCst` accesses stand.
///
/// loom takes a `SeqCst` access for `AcqRel`; only `fence(SeqCst)` gives it the one order of all. So
/// each such access gets a fence. Compilers do the same for some processors, either before every access
/// or behind every access, and both are correct. Each case runs under both: with fences on both sides, a
/// strong access would hide that the one beside it is too weak.
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

/// Preemptions in one execution, unless `LOOM_MAX_PREEMPTIONS` says otherwise. Faults that were put in
/// by hand needed two or three; one more takes some five times as long.
const PREEMPTIONS_MAX: usize = 3;

/// Checks a case in all executions of up to [`PREEMPTIONS_MAX`] preemptions.
pub(crate) fn check(case: impl Fn() + Send + Sync + 'static) {
    check_within(PREEMPTIONS_MAX, case);
}

/// The same with another bound.
pub(crate) fn check_within(preemptions_max: usize, case: impl Fn() + Send + Sync + 'static) {
    let case = Arc::new(case);
    for fences in [Fences::Leading, Fences::Trailing] {
        FENCES.set(fences);
        println!("{fences:?} fences");
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
        println!("{executions:?} executions");
    }
}
