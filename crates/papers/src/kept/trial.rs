//! What is kept of a trial.

use loadline_base::sorting::to_map;
use loadline_lab::analysis::{Measured, Metric, Second};
use loadline_lab::journal::{CpuQuota, Levels, ServerFacts};
use serde::{Deserialize, Serialize};

/// Those that claims and figures take, and some that the open questions of the papers are about.
pub(super) const METRICS: &[Metric] = &[
    Metric::CompletedPerS,
    Metric::GoodPerS,
    Metric::BytesPerS,
    Metric::ErrorShare,
    Metric::StalledShare,
    Metric::MeanUs,
    Metric::P50Us,
    Metric::P99Us,
    Metric::MaxUs,
    Metric::ServiceP50Us,
    Metric::CpuUsPerRequest,
    Metric::CpuUserShare,
    Metric::CpuKernelShare,
    Metric::CpuShare,
    Metric::ClientCpuShare,
    Metric::BusiestThreadShare,
    Metric::LoopImbalance,
    Metric::ContextSwitchesPerRequest,
    Metric::QueueWaitUs,
    Metric::MemoryBytes,
];

/// The seconds of trials that are at least as long are kept: a claim is about how throughput goes on.
const LONG_S: usize = 60;

/// Fields are as in [`Measured`], if nothing else is said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct KeptTrial {
    pub(super) series: String,
    levels: Levels,
    block: u32,
    #[serde(skip_serializing_if = "is_default")]
    is_a_a: bool,
    #[serde(skip_serializing_if = "is_default")]
    discarded: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    times_discarded: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    client_limited: bool,
    #[serde(skip_serializing_if = "is_default")]
    is_short: bool,
    #[serde(skip_serializing_if = "is_default")]
    server_busy: Option<f64>,
    /// CPUs that the server could use at once.
    #[serde(skip_serializing_if = "is_default")]
    cpus_usable: Option<f64>,
    offered: u64,
    connections: u64,
    #[serde(skip_serializing_if = "is_default")]
    timeouts: u64,
    /// In the order of the part's metrics; `None`: not measured.
    values: Vec<Option<f64>>,
    /// Completed requests of each second that counts.
    #[serde(skip_serializing_if = "is_default")]
    completed: Vec<f64>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl KeptTrial {
    pub(super) fn of(trial: &Measured) -> Self {
        let values = METRICS.iter().map(|metric| trial.measured(*metric));
        let counted = trial.seconds.iter().filter(|second| second.counted);
        let completed = counted.filter_map(|it| it.values.get(&Metric::CompletedPerS));
        let mut completed: Vec<f64> = completed.copied().collect();
        if completed.len() < LONG_S {
            completed.clear();
        }
        Self {
            series: trial.series.clone(),
            levels: trial.levels.clone(),
            block: trial.block,
            is_a_a: trial.is_a_a,
            discarded: trial.discarded.clone(),
            times_discarded: trial.times_discarded.clone(),
            client_limited: trial.client_limited,
            is_short: trial.is_short,
            server_busy: trial.server_busy.map(rounded),
            cpus_usable: trial.server.cpus_usable(),
            offered: trial.offered,
            connections: trial.connections,
            timeouts: trial.timeouts,
            values: values.map(|value| value.map(rounded)).collect(),
            completed,
        }
    }

    /// As claims and figures look at it.
    pub(super) fn measured(&self, number: u32, metrics: &[Metric]) -> Measured {
        let values = metrics.iter().zip(&self.values);
        let second = |(second, completed): (u32, &f64)| Second {
            second,
            counted: true,
            values: to_map([(Metric::CompletedPerS, *completed)]),
        };
        // Which CPUs they were makes no difference: a quota says how many.
        let cpu_quota = self.cpus_usable.map(|cpus| CpuQuota {
            cpus,
            ..CpuQuota::default()
        });
        Measured {
            number,
            series: self.series.clone(),
            levels: self.levels.clone(),
            replicate: self.block + 1,
            block: self.block,
            is_a_a: self.is_a_a,
            server: ServerFacts {
                cpu_quota,
                ..ServerFacts::default()
            },
            discarded: self.discarded.clone(),
            times_discarded: self.times_discarded.clone(),
            client_limited: self.client_limited,
            is_short: self.is_short,
            server_busy: self.server_busy,
            values: to_map(values.filter_map(|(metric, value)| Some((*metric, (*value)?)))),
            seconds: (0..).zip(&self.completed).map(second).collect(),
            offered: self.offered,
            connections: self.connections,
            timeouts: self.timeouts,
            ..Measured::default()
        }
    }
}

/// To seven digits: a share of failures just below 1 stays below it.
fn rounded(value: f64) -> f64 {
    format!("{value:.6e}").parse().unwrap_or(value)
}
