//! Whether a single thread of a server was its limit.

use loadline_lab::analysis::{Measured, Metric};
use loadline_lab::report::Undecided;

use super::evidence::{Evidence, Untestable};
use super::select::Select;

/// What is busy for so much of the time is at its end: the rest is the kernel's, for the packets of both sides.
const BUSY_SHARE_MIN: f64 = 0.95;

/// An error, unless the busiest thread in some cells was at its end, and the server's CPUs were not.
pub(super) fn is_a_thread(evidence: &Evidence<'_>, cells: &Select) -> Result<(), Untestable> {
    let of_cpus = |trial: &Measured| {
        let busy = trial.value(Metric::CpuUserShare)? + trial.value(Metric::CpuKernelShare)?;
        Some(busy / trial.server.cpus_usable()?)
    };
    let thread = evidence.mean(&|trial| trial.value(Metric::BusiestThreadShare), cells)?;
    let cpus = evidence.mean(&of_cpus, cells)?;
    let are_cpus = cpus.value >= BUSY_SHARE_MIN;
    if thread.value >= BUSY_SHARE_MIN && !are_cpus {
        return Ok(());
    }
    let why = format!(
        "No single thread was the limit of {}: the busiest ran for {:.0} % of the time, and all CPUs of the \
         server were busy for {:.0} %.",
        cells.text(),
        100.0 * thread.value,
        100.0 * cpus.value
    );
    let undecided = match are_cpus {
        true => Undecided::FewCpus,
        false => Undecided::ClientLimited,
    };
    Err(Untestable(why, undecided))
}
