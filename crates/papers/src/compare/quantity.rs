//! What is compared in each series of the plan.

use loadline_lab::analysis::{Metric, Unit};
use serde::{Serialize, Serializer};

/// Something that servers are compared in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// As trials have it.
    Of(Metric),
    /// By how many bytes memory grows with each idle connection.
    IdleBytes,
}

/// What is looked at in a series.
pub(super) struct Series {
    pub(super) name: &'static str,
    /// With their ratios.
    pub(super) compared: &'static [Quantity],
    /// Worth seeing beside them.
    pub(super) beside: &'static [Quantity],
}

pub(super) const GOOD: Quantity = Quantity::Of(Metric::GoodPerS);
pub(super) const CPU: Quantity = Quantity::Of(Metric::CpuUsPerRequest);
pub(super) const CPU_BOTH: Quantity = Quantity::Of(Metric::CpuBothUsPerRequest);
const P50: Quantity = Quantity::Of(Metric::P50Us);
pub(super) const P99: Quantity = Quantity::Of(Metric::P99Us);
const IN_GOAL: Quantity = Quantity::Of(Metric::InGoalPerS);
const RETRIES: Quantity = Quantity::Of(Metric::RetriesPerS);
const RECOVERY: Quantity = Quantity::Of(Metric::RecoveryUs);
const RESUMED: Quantity = Quantity::Of(Metric::ResumedShare);
const MEMORY: Quantity = Quantity::Of(Metric::MemoryBytes);

/// The series of `lab/compare.toml`, in the order of the page.
pub(super) static SERIES: [Series; 13] = [
    Series::new("small", &[GOOD, CPU], &[P50, P99, MEMORY]),
    Series::new("new-connections", &[GOOD, CPU], &[P50, P99]),
    // On the loopback much of a server's sending is done in its client's time.
    Series::new("large", &[GOOD, CPU_BOTH], &[CPU, P99]),
    Series::new("tls", &[GOOD, CPU], &[P50, P99, MEMORY]),
    Series::new("handshakes", &[GOOD, CPU], &[P50, P99, RESUMED]),
    Series::new("tls-large", &[GOOD, CPU], &[CPU_BOTH, P99]),
    Series::new("h2", &[GOOD, CPU], &[P50, P99, MEMORY]),
    Series::new("h2c", &[GOOD, CPU], &[P50, P99, MEMORY]),
    Series::new("idle", &[Quantity::IdleBytes], &[MEMORY]),
    Series::new("crowd", &[P99, CPU], &[GOOD]),
    Series::new("rate", &[P50, P99, CPU], &[]),
    Series::new("rate-of-nginx", &[P50, P99, CPU], &[]),
    Series::new("loops", &[GOOD, CPU], &[P99, MEMORY]),
];

/// What is looked at in the series of any other plan.
static ANY: Series = Series {
    name: "",
    compared: &[GOOD, CPU, P99],
    beside: &[IN_GOAL, RETRIES, RECOVERY, P50, MEMORY],
};

impl Series {
    const fn new(
        name: &'static str,
        compared: &'static [Quantity],
        beside: &'static [Quantity],
    ) -> Self {
        Self {
            name,
            compared,
            beside,
        }
    }
}

/// Those of a series, compared ones first.
pub(super) fn of_series(name: &str) -> impl Iterator<Item = Quantity> + use<> {
    let series = series(name);
    series.compared.iter().chain(series.beside).copied()
}

/// Whether its ratios are shown.
pub(super) fn is_compared(name: &str, quantity: Quantity) -> bool {
    series(name).compared.contains(&quantity)
}

fn series(name: &str) -> &'static Series {
    let found = SERIES.iter().find(|series| series.name == name);
    found.unwrap_or(&ANY)
}

impl Quantity {
    /// As in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Of(metric) => metric.name(),
            Self::IdleBytes => "bytes_per_idle_connection",
        }
    }

    /// In words, at the head of a column.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Of(Metric::GoodPerS) => "requests/s",
            Self::Of(Metric::CpuUsPerRequest) => "server CPU per request",
            Self::Of(Metric::CpuBothUsPerRequest) => "server and client CPU per request",
            Self::Of(Metric::P50Us) => "p50",
            Self::Of(Metric::P99Us) => "p99",
            Self::Of(Metric::MemoryBytes) => "memory",
            Self::Of(Metric::ResumedShare) => "resumed",
            Self::Of(metric) => metric.label(),
            Self::IdleBytes => "memory per idle connection",
        }
    }

    /// In what it is counted.
    #[must_use]
    pub fn unit(self) -> Unit {
        match self {
            Self::Of(metric) => metric.unit(),
            Self::IdleBytes => Unit::Bytes,
        }
    }

    /// Whether more is better.
    #[must_use]
    pub fn is_better_with_more(self) -> bool {
        match self {
            Self::Of(metric) => metric.more_is_better() == Some(true),
            Self::IdleBytes => false,
        }
    }

    /// Whether a client at its end makes it worse than the server is.
    #[must_use]
    pub fn is_limited_by_clients(self) -> bool {
        matches!(
            self,
            Self::Of(Metric::GoodPerS | Metric::P50Us | Metric::P99Us)
        )
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
