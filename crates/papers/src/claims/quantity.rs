//! What a claim's value is made of: a metric of a trial, or something derived from it.

use loadline_capacity::stats;
use loadline_lab::analysis::{Measured, Metric};
use serde::Deserialize;

/// Something of a trial.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Quantity {
    Metric(Metric),
    Derived(Derived),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Derived {
    /// The share of the server's CPUs, in user mode and in the kernel.
    Cpu,
    /// Responses in the last third of a trial over those in the first.
    Kept,
    /// The share of connections without a response.
    Starved,
}

/// The connections of P3's load.
const CONNECTIONS: f64 = 2000.0;

impl Quantity {
    pub(super) fn of(self, trial: &Measured) -> Option<f64> {
        match self {
            Self::Metric(metric) => trial.value(metric),
            Self::Derived(Derived::Cpu) => {
                Some(trial.value(Metric::CpuUserShare)? + trial.value(Metric::CpuKernelShare)?)
            }
            Self::Derived(Derived::Kept) => {
                let counted = trial.seconds.iter().filter(|second| second.counted);
                let rate = |metric| counted.filter_map(move |it| it.values.get(&metric).copied());
                let rates: Vec<f64> = rate(Metric::CompletedPerS).collect();
                let third = rates.len() / 3;
                let last = rates.len() - third;
                (third > 0).then(|| stats::mean(&rates[last..]) / stats::mean(&rates[..third]))
            }
            // A connection whose response does not come is given up and opened anew, so those that were
            // opened and not given up are those that were served. Timeouts for each second would not do:
            // a short run has too few of them for each connection, and once the kernel's queue is full
            // of connections that were given up, no new ones come to be that could wait.
            Self::Derived(Derived::Starved) => {
                let served = trial.connections.checked_sub(trial.timeouts)?;
                Some(1.0 - served as f64 / CONNECTIONS)
            }
        }
    }

    /// How many requests, or connections, it is a share of; `None`: it is no share of a number.
    pub(super) fn counted(self, trial: &Measured) -> Option<f64> {
        match self {
            Self::Metric(Metric::ErrorShare) => Some(trial.offered as f64),
            Self::Derived(Derived::Starved) => Some(CONNECTIONS),
            _ => None,
        }
    }
}
