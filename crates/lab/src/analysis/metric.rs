//! What is measured in a trial, by name, with its unit and which direction is the better one.

use serde::{Deserialize, Serialize};

/// Declares the metrics, in the order of tables: each with its name in plans and exports, its label at an
/// axis, its unit, and what is better.
macro_rules! metrics {
    ($(
        $(#[$attribute:meta])* $metric:ident = $name:literal, $label:literal, $unit:ident, $better:ident;
    )*) => {
        /// A quantity that a trial has one value of.
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        pub enum Metric {
            $($(#[$attribute])* #[serde(rename = $name)] $metric,)*
        }

        impl Metric {
            /// All, in the order of tables.
            pub const ALL: &'static [Self] = &[$(Self::$metric,)*];

            /// As in plans and exports.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$metric => $name,)*
                }
            }

            /// In words, to stand at an axis; the unit is said beside it.
            #[must_use]
            pub fn label(self) -> &'static str {
                match self {
                    $(Self::$metric => $label,)*
                }
            }

            /// In what it is counted.
            #[must_use]
            pub fn unit(self) -> Unit {
                match self {
                    $(Self::$metric => Unit::$unit,)*
                }
            }

            /// Whether more is better; `None`: neither is.
            #[must_use]
            pub fn more_is_better(self) -> Option<bool> {
                match self {
                    $(Self::$metric => $better,)*
                }
            }
        }
    };
}

/// What is better.
const MORE: Option<bool> = Some(true);
const LESS: Option<bool> = Some(false);
const NEITHER: Option<bool> = None;

metrics! {
    /// Complete answers per second.
    #[default]
    CompletedPerS = "completed_per_s", "Completed requests", PerSecond, MORE;
    /// Complete answers per second that were as expected and in time.
    GoodPerS = "good_per_s", "Good requests", PerSecond, MORE;
    /// Good answers per second that came within the latency goal after their attempt was due.
    InGoalPerS = "in_goal_per_s", "Good requests within the latency goal", PerSecond, MORE;
    /// The part of the good answers that did: of requests that were due while it was measured, where the rate counts
    /// what came meanwhile.
    InGoalShare = "in_goal_share", "Good requests within the latency goal", Share, MORE;
    /// Further attempts per second of requests that had failed.
    RetriesPerS = "retries_per_s", "Retries", PerSecond, NEITHER;
    /// Requests per second that became due.
    OfferedPerS = "offered_per_s", "Offered requests", PerSecond, NEITHER;
    /// Bytes per second that the client received.
    BytesPerS = "bytes_per_s", "Received", BytesPerSecond, MORE;
    /// Requests that failed or were answered otherwise than expected, of those offered.
    ErrorShare = "error_share", "Errors", Share, LESS;
    /// Handshakes of TLS that went on with an earlier session, of all.
    ResumedShare = "resumed_share", "Resumed handshakes", Share, NEITHER;
    /// The part of their time that players of videos stood still for, on average.
    StalledShare = "stalled_share", "Players that stood still", Share, LESS;
    /// Time from the last fall of the offered rate to the end of the last second with an error, or of the
    /// run.
    RecoveryUs = "recovery_us", "Recovery after overload", Microseconds, LESS;
    /// Mean of latency: from due to the last byte.
    MeanUs = "mean_us", "Mean latency", Microseconds, LESS;
    /// Its standard deviation.
    StdevUs = "stdev_us", "Standard deviation of latency", Microseconds, LESS;
    /// Latency below which half of the answers were.
    P50Us = "p50_us", "Median latency", Microseconds, LESS;
    /// The same for 90 %.
    P90Us = "p90_us", "Latency p90", Microseconds, LESS;
    /// The same for 99 %.
    P99Us = "p99_us", "Latency p99", Microseconds, LESS;
    /// The same for 99.9 %.
    P999Us = "p99_9_us", "Latency p99.9", Microseconds, LESS;
    /// The largest latency.
    MaxUs = "max_us", "Largest latency", Microseconds, LESS;
    /// Service time (from sent to the last byte) below which half of the answers were.
    ServiceP50Us = "service_p50_us", "Median service time", Microseconds, LESS;
    /// The same for 99 %.
    ServiceP99Us = "service_p99_us", "Service time p99", Microseconds, LESS;
    /// Requests in flight, on average.
    InFlight = "in_flight", "Requests in flight", Count, NEITHER;
    /// CPU time of the server for each complete answer.
    CpuUsPerRequest = "cpu_us_per_request", "CPU time per request", Microseconds, LESS;
    /// The same with the CPU time of the client: on the loopback each does part of the other's work.
    CpuBothUsPerRequest = "cpu_both_us_per_request", "CPU time per request, server and client", Microseconds, LESS;
    /// The part of the server's in user mode.
    CpuUserUsPerRequest = "cpu_user_us_per_request", "CPU time per request, user", Microseconds, LESS;
    /// The part of it in the kernel.
    CpuKernelUsPerRequest = "cpu_kernel_us_per_request", "CPU time per request, kernel", Microseconds, LESS;
    /// CPUs that the server kept busy in user mode, on average.
    CpuUserShare = "cpu_user_share", "CPU use, user", Share, NEITHER;
    /// CPUs that it kept busy in the kernel, on average.
    CpuKernelShare = "cpu_kernel_share", "CPU use, kernel", Share, NEITHER;
    /// CPUs that it kept busy in either, on average.
    CpuShare = "cpu_share", "CPU use", Share, NEITHER;
    /// CPUs that the client's threads kept busy, on average.
    ClientCpuShare = "client_cpu_share", "CPU use of the client", Share, NEITHER;
    /// What part of the time the server's busiest thread ran.
    BusiestThreadShare = "busiest_thread_share", "Busiest thread", Share, NEITHER;
    /// Responses of the event loop that had most, over the mean of all loops: 1 is even.
    LoopImbalance = "loop_imbalance", "Busiest loop over the mean of all", Count, LESS;
    /// In what share of the periods of its CPU quota the server was held back.
    ThrottledShare = "throttled_share", "Throttled by the CPU quota", Share, NEITHER;
    /// Context switches of the server for each complete answer.
    ContextSwitchesPerRequest = "context_switches_per_request", "Context switches per request", Count, LESS;
    /// How long a job waited on average until one of the server's workers had taken it.
    QueueWaitUs = "queue_wait_us", "Wait for a worker", Microseconds, LESS;
    /// Proportional share of memory at its highest.
    MemoryBytes = "memory_bytes", "Memory", Bytes, LESS;
    /// Threads of the server at their highest number.
    Threads = "threads", "Threads", Count, NEITHER;
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

impl Unit {
    /// The largest of its forms of which a value has at least one, as "ms", with how much that is.
    pub(crate) fn scale(self, value: f64) -> (f64, &'static str) {
        const KIB: f64 = 1024.0;
        const MIB: f64 = KIB * KIB;
        const GIB: f64 = KIB * MIB;
        let scales: &[(f64, &str)] = match self {
            Self::PerSecond => &[(1.0, "per second")],
            Self::BytesPerSecond => &[(1.0, "B/s"), (1e3, "kB/s"), (1e6, "MB/s"), (1e9, "GB/s")],
            Self::Microseconds => &[(1.0, "µs"), (1e3, "ms"), (1e6, "s")],
            Self::Share => &[(0.01, "%")],
            Self::Bytes => &[(1.0, "B"), (KIB, "KiB"), (MIB, "MiB"), (GIB, "GiB")],
            Self::Count => &[(1.0, "")],
        };
        let fits = |(scale, _): &&(f64, &str)| value >= *scale;
        *scales.iter().rev().find(fits).unwrap_or(&scales[0])
    }
}

impl Metric {
    /// Whether it is made of times that the client took: a client that is late makes it wrong.
    #[must_use]
    pub fn is_of_times(self) -> bool {
        let is_of_sums = matches!(self, Self::MeanUs | Self::StdevUs | Self::InFlight);
        let is_of_goal = matches!(self, Self::InGoalPerS | Self::InGoalShare);
        self.spectrum().is_some() || is_of_sums || is_of_goal
    }

    /// Whether trials have it for each of their seconds.
    #[must_use]
    pub fn per_second(self) -> bool {
        matches!(
            self,
            Self::CompletedPerS
                | Self::GoodPerS
                | Self::InGoalPerS
                | Self::RetriesPerS
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
        let names = Self::ALL.iter().copied().filter(|metric| holds(*metric));
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
