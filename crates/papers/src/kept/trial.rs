//! What is kept of a trial.

use std::collections::BTreeMap;

use loadline_base::sorting::to_map;
use loadline_lab::analysis::{Measured, Metric, Second};
use loadline_lab::journal::{CpuQuota, Levels, ServerFacts};
use serde::{Deserialize, Serialize};

/// What is kept of a second.
const SECOND_METRICS: [Metric; 2] = [Metric::CompletedPerS, Metric::P50Us];

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
    /// [`SECOND_METRICS`] of each second that counts; `None`: not measured.
    #[serde(skip_serializing_if = "is_default")]
    seconds: Vec<[Option<f64>; SECOND_METRICS.len()]>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl KeptTrial {
    /// With the values of these metrics.
    pub(super) fn of(trial: &Measured, metrics: &[Metric]) -> Self {
        let values = metrics.iter().map(|metric| trial.measured(*metric));
        let counted = trial.seconds.iter().filter(|second| second.counted);
        let kept = |second: &Second| SECOND_METRICS.map(|it| second.values.get(&it).copied());
        let mut seconds: Vec<_> = counted.map(kept).collect();
        if seconds.len() < LONG_S {
            seconds.clear();
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
            seconds,
        }
    }

    /// As claims and figures look at it.
    pub(super) fn measured(&self, number: u32, metrics: &[Metric]) -> Measured {
        let second = |(second, kept): (u32, &[Option<f64>; SECOND_METRICS.len()])| Second {
            second,
            counted: true,
            values: present(&SECOND_METRICS, kept),
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
            values: present(metrics, &self.values),
            seconds: (0..).zip(&self.seconds).map(second).collect(),
            offered: self.offered,
            connections: self.connections,
            timeouts: self.timeouts,
            ..Measured::default()
        }
    }
}

/// The values that were measured.
fn present(metrics: &[Metric], values: &[Option<f64>]) -> BTreeMap<Metric, f64> {
    let pairs = metrics.iter().zip(values);
    to_map(pairs.filter_map(|(metric, value)| Some((*metric, (*value)?))))
}

/// To seven digits: a share of failures just below 1 stays below it.
fn rounded(value: f64) -> f64 {
    format!("{value:.6e}").parse().unwrap_or(value)
}
