//! What is measured in a trial, by name, with its unit and which direction is the better one.

use serde::{Deserialize, Serialize};

/// A quantity that a trial has one value of.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Complete answers per second.
    #[default]
    CompletedPerS,
    /// Complete answers per second that were as expected and in time.
    GoodPerS,
    /// Requests per second that became due.
    OfferedPerS,
    /// Bytes per second that the client received.
    BytesPerS,
    /// Requests that failed or were answered otherwise than expected, of those offered.
    ErrorShare,
    /// Mean of latency: from due to the last byte.
    MeanUs,
    /// Latency below which half of the answers were.
    P50Us,
    /// The same for 90 %.
    P90Us,
    /// The same for 99 %.
    P99Us,
    /// The same for 99.9 %.
    #[serde(rename = "p99_9_us")]
    P999Us,
    /// The largest latency.
    MaxUs,
    /// Service time (from sent to the last byte) below which half of the answers were.
    ServiceP50Us,
    /// The same for 99 %.
    ServiceP99Us,
    /// Requests in flight, on average.
    InFlight,
    /// CPU time of the server for each complete answer.
    CpuUsPerRequest,
    /// The same with the CPU time of the client: on the loopback each does part of the other's work.
    CpuBothUsPerRequest,
    /// The part of the server's in user mode.
    CpuUserUsPerRequest,
    /// The part of it in the kernel.
    CpuKernelUsPerRequest,
    /// CPUs that the server kept busy in user mode, on average.
    CpuUserShare,
    /// CPUs that it kept busy in the kernel, on average.
    CpuKernelShare,
    /// What part of the time the server's busiest thread ran.
    BusiestThreadShare,
    /// In what share of the periods of its CPU quota the server was held back.
    ThrottledShare,
    /// Context switches of the server for each complete answer.
    ContextSwitchesPerRequest,
    /// Proportional share of memory at its highest.
    MemoryBytes,
    /// Threads of the server at their highest number.
    Threads,
}

/// In what a metric is counted, and so how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Events per second.
    PerSecond,
    /// Bytes per second.
    BytesPerSecond,
    /// Microseconds.
    Microseconds,
    /// A part of 1.
    Share,
    /// Bytes.
    Bytes,
    /// A plain number.
    Count,
}

impl Metric {
    /// All, in the order of tables.
    pub const ALL: [Self; 25] = [
        Self::CompletedPerS,
        Self::GoodPerS,
        Self::OfferedPerS,
        Self::BytesPerS,
        Self::ErrorShare,
        Self::MeanUs,
        Self::P50Us,
        Self::P90Us,
        Self::P99Us,
        Self::P999Us,
        Self::MaxUs,
        Self::ServiceP50Us,
        Self::ServiceP99Us,
        Self::InFlight,
        Self::CpuUsPerRequest,
        Self::CpuBothUsPerRequest,
        Self::CpuUserUsPerRequest,
        Self::CpuKernelUsPerRequest,
        Self::CpuUserShare,
        Self::CpuKernelShare,
        Self::BusiestThreadShare,
        Self::ThrottledShare,
        Self::ContextSwitchesPerRequest,
        Self::MemoryBytes,
        Self::Threads,
    ];

    /// As in plans and exports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CompletedPerS => "completed_per_s",
            Self::GoodPerS => "good_per_s",
            Self::OfferedPerS => "offered_per_s",
            Self::BytesPerS => "bytes_per_s",
            Self::ErrorShare => "error_share",
            Self::MeanUs => "mean_us",
            Self::P50Us => "p50_us",
            Self::P90Us => "p90_us",
            Self::P99Us => "p99_us",
            Self::P999Us => "p99_9_us",
            Self::MaxUs => "max_us",
            Self::ServiceP50Us => "service_p50_us",
            Self::ServiceP99Us => "service_p99_us",
            Self::InFlight => "in_flight",
            Self::CpuUsPerRequest => "cpu_us_per_request",
            Self::CpuBothUsPerRequest => "cpu_both_us_per_request",
            Self::CpuUserUsPerRequest => "cpu_user_us_per_request",
            Self::CpuKernelUsPerRequest => "cpu_kernel_us_per_request",
            Self::CpuUserShare => "cpu_user_share",
            Self::CpuKernelShare => "cpu_kernel_share",
            Self::BusiestThreadShare => "busiest_thread_share",
            Self::ThrottledShare => "throttled_share",
            Self::ContextSwitchesPerRequest => "context_switches_per_request",
            Self::MemoryBytes => "memory_bytes",
            Self::Threads => "threads",
        }
    }

    /// In words, to stand at an axis; the unit is said beside it.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::CompletedPerS => "Completed requests",
            Self::GoodPerS => "Good requests",
            Self::OfferedPerS => "Offered requests",
            Self::BytesPerS => "Received",
            Self::ErrorShare => "Errors",
            Self::MeanUs => "Mean latency",
            Self::P50Us => "Median latency",
            Self::P90Us => "Latency p90",
            Self::P99Us => "Latency p99",
            Self::P999Us => "Latency p99.9",
            Self::MaxUs => "Largest latency",
            Self::ServiceP50Us => "Median service time",
            Self::ServiceP99Us => "Service time p99",
            Self::InFlight => "Requests in flight",
            Self::CpuUsPerRequest => "CPU time per request",
            Self::CpuBothUsPerRequest => "CPU time per request, server and client",
            Self::CpuUserUsPerRequest => "CPU time per request, user",
            Self::CpuKernelUsPerRequest => "CPU time per request, kernel",
            Self::CpuUserShare => "CPU use, user",
            Self::CpuKernelShare => "CPU use, kernel",
            Self::BusiestThreadShare => "Busiest thread",
            Self::ThrottledShare => "Throttled by the CPU quota",
            Self::ContextSwitchesPerRequest => "Context switches per request",
            Self::MemoryBytes => "Memory",
            Self::Threads => "Threads",
        }
    }

    /// In what it is counted.
    #[must_use]
    pub fn unit(self) -> Unit {
        match self {
            Self::CompletedPerS | Self::GoodPerS | Self::OfferedPerS => Unit::PerSecond,
            Self::BytesPerS => Unit::BytesPerSecond,
            Self::ErrorShare
            | Self::CpuUserShare
            | Self::CpuKernelShare
            | Self::BusiestThreadShare
            | Self::ThrottledShare => Unit::Share,
            Self::MeanUs
            | Self::P50Us
            | Self::P90Us
            | Self::P99Us
            | Self::P999Us
            | Self::MaxUs
            | Self::ServiceP50Us
            | Self::ServiceP99Us
            | Self::CpuUsPerRequest
            | Self::CpuBothUsPerRequest
            | Self::CpuUserUsPerRequest
            | Self::CpuKernelUsPerRequest => Unit::Microseconds,
            Self::MemoryBytes => Unit::Bytes,
            Self::InFlight | Self::ContextSwitchesPerRequest | Self::Threads => Unit::Count,
        }
    }

    /// Whether more is better; `None`: neither is.
    #[must_use]
    pub fn more_is_better(self) -> Option<bool> {
        match self {
            Self::CompletedPerS | Self::GoodPerS | Self::BytesPerS => Some(true),
            Self::OfferedPerS
            | Self::InFlight
            | Self::Threads
            | Self::CpuUserShare
            | Self::CpuKernelShare
            | Self::BusiestThreadShare
            | Self::ThrottledShare => None,
            _ => Some(false),
        }
    }

    /// Whether it is made of times that the client took: a client that is late makes it wrong.
    #[must_use]
    pub fn is_of_times(self) -> bool {
        self.spectrum().is_some() || matches!(self, Self::MeanUs | Self::InFlight)
    }

    /// Whether trials have it for each of their seconds.
    #[must_use]
    pub fn per_second(self) -> bool {
        matches!(
            self,
            Self::CompletedPerS
                | Self::GoodPerS
                | Self::OfferedPerS
                | Self::BytesPerS
                | Self::ErrorShare
                | Self::P50Us
                | Self::P90Us
                | Self::P99Us
                | Self::MaxUs
                | Self::InFlight
        )
    }

    /// Of which distribution it is a percentile.
    #[must_use]
    pub fn spectrum(self) -> Option<Times> {
        match self {
            Self::P50Us | Self::P90Us | Self::P99Us | Self::P999Us | Self::MaxUs => {
                Some(Times::Latency)
            }
            Self::ServiceP50Us | Self::ServiceP99Us => Some(Times::Service),
            _ => None,
        }
    }

    /// Names of those for which something holds, for messages.
    #[must_use]
    pub fn names(holds: impl Fn(Self) -> bool) -> String {
        let names = Self::ALL.into_iter().filter(|metric| holds(*metric));
        names.map(Self::name).collect::<Vec<_>>().join(", ")
    }
}

/// Which times of a request a spectrum shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Times {
    /// From due to the last byte.
    Latency,
    /// From sent to the last byte.
    Service,
}

impl Times {
    /// In words, to stand at an axis.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Latency => "Latency",
            Self::Service => "Service time",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_files() {
        for metric in Metric::ALL {
            let json = serde_json::to_value(metric).unwrap();
            assert_eq!(json, metric.name());
        }
    }
}
