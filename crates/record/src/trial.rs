//! What `--json` writes: one trial, described, measured and judged. Each field is explained once
//! more, for readers of the file, in docs/load-json.md.
//!
//! Times are seconds (`_s`, a number) or whole microseconds (`_us`). A number that could not be had
//! is null. Readers skip fields that they do not know; a field is never given another meaning under
//! the same name of the schema.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::distribution::{Distribution, decompressed, percentile_us};
use crate::{PhaseRecord, Tally, WatchedRecord};

/// Name and version of the form: the number grows when a field changes its meaning.
pub const SCHEMA: &str = "loadline-load/1";

/// Everything measured in one trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TrialRecord {
    /// [`SCHEMA`].
    pub schema: String,
    /// What was run.
    pub run: RunRecord,
    /// Where.
    pub machine: MachineRecord,
    /// The intervals with results of their own, in order.
    pub phases: Vec<PhaseRecord>,
    /// The groups of clients; the first one is the plain clients.
    pub groups: Vec<GroupRecord>,
    /// Of all groups and all phases, warm-up included, and what came after the end: what a server
    /// has counted in the meantime.
    pub everything: Tally,
    /// The threads of the client.
    pub threads: Vec<ThreadRecord>,
    /// Whether all this is to be trusted.
    pub verdict: Verdict,
    /// What was found to be short (descriptors, ports) and what was done about it, in sentences.
    pub limits: Vec<String>,
    /// Processes that were watched.
    pub watched: Vec<WatchedRecord>,
}

/// What was run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunRecord {
    /// Version of Loadline.
    pub version: String,
    /// The command line, one element for each word.
    pub command: Vec<String>,
    /// The options of the load that were given, by name, without passwords; empty in older files.
    pub spec: BTreeMap<String, serde_json::Value>,
    /// What was asked for.
    pub urls: Vec<String>,
    /// Addresses and ports that connections went to.
    pub servers: Vec<String>,
    /// When requests were due.
    pub load: LoadRecord,
    /// Whether each connection had a schedule of its own, for which its requests waited.
    pub own_schedules: bool,
    /// Method of the requests; null: there are several.
    pub method: Option<String>,
    /// Version of HTTP that is spoken: "1.1", "2"; null: there are several.
    pub http: Option<String>,
    /// Requests that a connection of HTTP/2 carries at one time, at most; null: HTTP/1.
    pub streams: Option<u32>,
    /// Plain clients: connections, and so the bound of requests in flight, times the streams.
    pub connections: u32,
    /// Requests after which the run was to end.
    pub requests_max: Option<u64>,
    /// Requests after which the client closed a connection.
    pub requests_per_connection: Option<u32>,
    /// Time for an answer, from sent to the last byte, and for a connection.
    pub timeout_s: f64,
    /// Time from due to the last byte beyond which an answer was not good.
    pub deadline_s: Option<f64>,
    /// Time from when an attempt was due to the last byte within which a good answer met the goal.
    pub latency_goal_s: Option<f64>,
    /// Attempts after the first that a request could have.
    pub retries_max: u32,
    /// Length that was planned, warm-up included; null: until the requests were done.
    pub planned_s: Option<f64>,
    /// Length that it had, warm-up included, without the wait for the last answers.
    pub ran_s: f64,
    /// Whether the threads of the plain clients never slept.
    pub spins: bool,
    /// Repeats every choice made at random.
    pub seed: u64,
    /// Processes of the client.
    pub processes: u32,
    /// When it began: milliseconds since 1970-01-01 00:00 UTC.
    pub start_unix_ms: u64,
    /// Number of this round, from 1.
    pub round: u32,
    /// How many rounds there are.
    pub rounds: u32,
    /// Stopped before its time.
    pub interrupted: bool,
}

/// When requests were due.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "loop", rename_all = "snake_case")]
pub enum LoadRecord {
    /// When the last answer had come.
    Closed {
        /// Time between an answer and the next request.
        #[serde(default)]
        think_s: f64,
        /// Whether a few answers may have been awaited before they were read, where they came thick.
        #[serde(default)]
        coalesces: bool,
    },
    /// By the clock.
    Open {
        /// `poisson` or `constant`.
        arrivals: String,
        /// When no connection was free: `queue` or `drop`.
        overflow: String,
        /// The offered rate: where it began and ended, and how long that took, in a straight line.
        #[serde(default)]
        segments: Vec<SegmentRecord>,
    },
    /// When a log said so.
    Timed {
        /// When no connection was free: `queue` or `drop`.
        overflow: String,
        /// Lines of the log.
        #[serde(default)]
        requests: u64,
    },
}

impl Default for LoadRecord {
    fn default() -> Self {
        Self::Closed {
            think_s: 0.0,
            coalesces: false,
        }
    }
}

/// A stretch of time in which the offered rate was constant or moved in a straight line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SegmentRecord {
    /// How long.
    pub len_s: f64,
    /// Requests per second at its begin.
    pub begin_per_s: f64,
    /// Requests per second at its end.
    pub end_per_s: f64,
}

/// Where it was run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineRecord {
    /// `model name` of /proc/cpuinfo.
    pub cpu_model: String,
    /// CPUs that are online.
    pub cpus: u32,
    /// CPUs that the client could use: its affinity mask and quota.
    pub cpus_usable: u32,
    /// Release of the kernel.
    pub kernel: String,
    /// Who chooses the clock rate of the CPUs (`scaling_governor`), several separated by commas; empty:
    /// the kernel has no say in it, as in most virtual machines.
    pub governor: String,
    /// `net.ipv4.tcp_congestion_control`.
    pub congestion_control: String,
    /// Descriptors that a process of the client could have open.
    pub descriptors_max: Option<u64>,
    /// First of the ports that the kernel takes for outgoing connections.
    pub port_first: Option<u16>,
    /// Last of them.
    pub port_last: Option<u16>,
    /// CPU time that the hypervisor kept from the machine in the counted time, all CPUs together.
    pub steal_s: Option<f64>,
    /// The part of that time for which the control group's quota held the client, summed over CPUs.
    pub throttled_s: Option<f64>,
    /// The network before the run.
    pub network_before: NetworkRecord,
    /// The network after it.
    pub network_after: NetworkRecord,
}

/// Counters of the machine's network (of the client's network namespace).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkRecord {
    /// Sockets in TIME_WAIT, at the moment.
    pub time_wait: Option<u64>,
    /// TCP sockets in use, at the moment.
    pub tcp_in_use: Option<u64>,
    /// Segments sent again, so far.
    pub retransmits: Option<u64>,
    /// Connections refused or delayed because a listener's queue was full, so far.
    pub listen_overflows: Option<u64>,
    /// Connections that a listener lost for any reason, so far.
    pub listen_drops: Option<u64>,
    /// Resets sent, so far.
    pub resets_sent: Option<u64>,
}

/// One group of clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupRecord {
    /// "clients", "slow-readers".
    pub name: String,
    /// Over the counted phases.
    pub total: Results,
    /// By phase, in their order.
    pub phases: Vec<Results>,
    /// By second, in order, warm-up included; seconds in which nothing happened are there too.
    pub series: Vec<SecondRecord>,
    /// The whole distributions of what came after the end, of requests that count, for the HDR log; not
    /// in the JSON.
    #[serde(skip)]
    pub after_end: SecondBlobs,
    /// The same of requests that were due in the warm-up.
    #[serde(skip)]
    pub warm_up_after_end: SecondBlobs,
}

/// What one group of clients measured in a stretch of time.
///
/// `tally` and the distributions are of the requests that were due in it, whenever they ended;
/// `rates` are of what happened while it lasted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Results {
    /// How long it was.
    pub seconds: f64,
    /// Per second.
    pub rates: Rates,
    /// Counts of the requests that were due in it.
    pub tally: Tally,
    /// The part of `tally` that came after the end of the run, while waiting for what was out.
    pub after_end: Tally,
    /// Requests in flight, on average while it lasted.
    pub in_flight: Option<f64>,
    /// From due to the last byte, of complete answers.
    pub latency: Distribution,
    /// From sent to the last byte, of complete answers.
    pub service: Distribution,
    /// From sent to the first byte, of complete answers.
    pub first_byte: Distribution,
    /// From when a connection was begun to when it was there, of those that came to be in it.
    pub connect: Distribution,
    /// From then to the end of the handshake of TLS.
    pub handshake: Distribution,
    /// From due to the failure, of requests that failed.
    pub failure: Distribution,
}

/// The four rates of a stretch of time: what happened while it lasted, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rates {
    /// Requests that became due.
    pub offered_per_s: f64,
    /// Requests of which the first byte was sent.
    pub sent_per_s: f64,
    /// Complete answers, of any status.
    pub completed_per_s: f64,
    /// Complete answers that were as expected and in time.
    pub good_per_s: f64,
    /// Those of them that came within the latency goal.
    pub in_goal_per_s: f64,
    /// Further attempts of requests that had failed.
    pub retries_per_s: f64,
    /// Bytes received, heads included.
    pub bytes_received_per_s: f64,
    /// Bytes sent.
    pub bytes_sent_per_s: f64,
}

/// One second of one group: what happened in it, whenever the requests were due.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SecondRecord {
    /// Whole seconds since the start at its begin.
    pub second: u32,
    /// Requests that became due.
    pub offered: u64,
    /// Requests sent.
    pub sent: u64,
    /// Complete answers.
    pub completed: u64,
    /// Complete answers that were good.
    pub good: u64,
    /// Those of them that came within the latency goal.
    pub in_goal: u64,
    /// Further attempts of requests that had failed.
    pub retries: u64,
    /// Errors of all kinds.
    pub errors: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Latency below which half of the answers were; null: not enough of them.
    pub p50_us: Option<u64>,
    /// The same for 90 %.
    pub p90_us: Option<u64>,
    /// The same for 99 %.
    pub p99_us: Option<u64>,
    /// The largest latency.
    pub max_us: Option<u64>,
    /// Requests in flight, on average.
    pub in_flight: Option<f64>,
    /// How much later than due a request was sent at worst, though a connection was free.
    pub lag_max_us: u64,
    /// The whole distributions, for the HDR log; not in the JSON.
    #[serde(skip)]
    pub blobs: SecondBlobs,
}

/// The distributions of one second (or of what came after the end), as compressed V2 histograms; empty: nothing was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecondBlobs {
    /// Of latency.
    pub latency: Vec<u8>,
    /// Of service time.
    pub service: Vec<u8>,
}

impl SecondRecord {
    /// Takes the figures of latency from a histogram of the second.
    pub fn set_latency(&mut self, latency: &Histogram<u64>) {
        self.p50_us = percentile_us(latency, 50.0);
        self.p90_us = percentile_us(latency, 90.0);
        self.p99_us = percentile_us(latency, 99.0);
        self.max_us = Some(latency.max());
    }
}

impl SecondBlobs {
    /// The figures of latency, in a record that has nothing else.
    pub(crate) fn figures(&self) -> SecondRecord {
        let mut record = SecondRecord::default();
        if let Ok(latency) = decompressed(&self.latency) {
            record.set_latency(&latency);
        }
        record
    }
}

/// A thread of the client, over the counted phases.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadRecord {
    /// "engine 0".
    pub name: String,
    /// Index into `groups` of the clients that it had.
    pub group: u16,
    /// How long it was looked at.
    pub wall_s: f64,
    /// CPU time over `wall_s`.
    pub cpu_share: f64,
    /// The part of the time in which it was not waiting for something to do, other than when it
    /// could not run: `1 - (waited - run delay) / wall`, so with the delay counted as busy.
    pub busy_share: f64,
    /// The part of the time in which it could have run and was not let.
    pub run_delay_share: f64,
    /// How long it waited after the end for what was still out.
    pub after_end_s: f64,
    /// Turns of its loop.
    pub turns: u64,
    /// Events in a turn, on average.
    pub batch: f64,
    /// Requests in flight, on average.
    pub in_flight: f64,
    /// How much later than due requests were sent, though a connection was free.
    pub lag: Distribution,
    /// How long after the kernel had received the end of an answer it was read: of one connection in
    /// eight.
    pub read_lag: Distribution,
}

/// Whether a trial is to be trusted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Verdict {
    /// The client, not the server, was the limit.
    pub client_limited: bool,
    /// Why, in sentences; empty if it was not.
    pub reasons: Vec<String>,
    /// What is worth knowing and does not decide: the plan was held back by the server, say.
    pub notes: Vec<String>,
    /// That times are in part the client's, as a sentence: requests were sent late though a connection
    /// was free; null: by little.
    pub late: Option<String>,
    /// The same of answers that were read late though the kernel had them.
    pub read_late: Option<String>,
    /// That times are of the clients that were served first, as a sentence: a closed loop was measured
    /// for fewer than three cycles; null: for as many, or it is none.
    pub short: Option<String>,
    /// Time in which each client of a closed loop is answered once: clients over throughput; null: an
    /// open loop, nothing was answered, or the run ended with its requests.
    pub cycle_s: Option<f64>,
    /// The mean response time by Little's law: that, less the time to think.
    pub cycle_mean_s: Option<f64>,
    /// The largest `busy_share` (or `cpu_share`, if that is larger) of the client's threads.
    pub busiest_share: Option<f64>,
    /// Which thread that was.
    pub busiest_thread: Option<String>,
    /// Lag of all threads together, below which 99 % were; null: not enough samples.
    pub lag_p99_us: Option<u64>,
    /// Lag of reading of all threads together, below which 99 % were; null: not enough samples.
    pub read_lag_p99_us: Option<u64>,
    /// Sent of what was offered, over the counted phases; null in a closed loop.
    pub sent_share: Option<f64>,
    /// The part of the counted time for which a request was due while every connection was out, so that
    /// it waited in the client; null in a closed loop.
    pub held_share: Option<f64>,
    /// Little's law.
    pub little: Option<LittleRecord>,
    /// Groups beside the plain clients that are measured, too: HTTP/2 beside HTTP/1.1. What makes the
    /// client the limit there stands among the reasons.
    pub beside: Vec<GroupVerdict>,
}

/// A group beside the plain clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupVerdict {
    /// Its name.
    pub name: String,
    /// Sent of what was offered to it; null in a closed loop.
    pub sent_share: Option<f64>,
    /// The part of the counted time for which a request was due while all of its streams were out; null
    /// in a closed loop.
    pub held_share: Option<f64>,
    /// Little's law.
    pub little: Option<LittleRecord>,
}

/// Little's law: the mean number of requests in flight is their rate times their mean time. The
/// left side was sampled by the loop, the right side comes from counts and service times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LittleRecord {
    /// Mean of requests in flight, sampled.
    pub in_flight: f64,
    /// Completed rate times mean service time, of the answers that came before the end.
    pub expected: f64,
    /// The same with requests that failed, and those whose answers came after the end, as long as
    /// they can have been in flight.
    pub expected_max: f64,
    /// By which part the two may differ.
    pub tolerance: f64,
    /// By how many requests they may differ besides.
    pub tolerance_requests: f64,
    /// Whether they agree; if not, something was measured wrongly.
    pub holds: bool,
}

impl RunRecord {
    /// Whether all connections went to loopback addresses: the server is on this machine.
    #[must_use]
    pub fn is_over_loopback(&self) -> bool {
        let is_loopback = |server: &String| {
            let address = server.parse::<SocketAddr>();
            address.is_ok_and(|address| address.ip().is_loopback())
        };
        !self.servers.is_empty() && self.servers.iter().all(is_loopback)
    }
}

impl TrialRecord {
    /// The plain clients, over the counted phases: the headline. A trial of user groups alone has its
    /// first user group here.
    #[must_use]
    pub fn headline(&self) -> Option<&GroupRecord> {
        let has_load = |group: &&GroupRecord| group.total.tally.offered > 0;
        let plain = usize::from(self.run.connections == 0 && self.groups.len() > 1);
        self.groups
            .iter()
            .find(has_load)
            .or_else(|| self.groups.get(plain))
    }

    /// The groups beside one of them.
    pub(crate) fn others(&self, one: &GroupRecord) -> impl Iterator<Item = &GroupRecord> {
        let is_other = move |group: &&GroupRecord| !std::ptr::eq(*group, one);
        self.groups.iter().filter(is_other)
    }

    /// How long the threads waited after the end for what was still out.
    pub(crate) fn wait_s(&self) -> f64 {
        let waits = self.threads.iter().map(|thread| thread.after_end_s);
        waits.fold(0.0, f64::max)
    }

    /// From the begin of the first counted phase to the end of the last; of none, the whole run.
    #[must_use]
    pub fn counted_span_s(&self) -> f64 {
        let mut counted = self.phases.iter().filter(|phase| phase.counted);
        let Some(first) = counted.next() else {
            return self.run.ran_s;
        };
        let last = counted.next_back().unwrap_or(first);
        (last.end_s - first.begin_s).max(0.0)
    }

    /// The phase at the middle of a second of the series, or the last one if it ended before;
    /// `None`: there is none.
    #[must_use]
    pub fn phase_of(&self, second: u32) -> Option<&PhaseRecord> {
        let at_s = f64::from(second) + 0.5;
        let is_there = |phase: &&PhaseRecord| phase.begin_s <= at_s && at_s < phase.end_s;
        let last = || self.phases.iter().rfind(|phase| phase.len_s() > 0.0);
        self.phases.iter().find(is_there).or_else(last)
    }

    /// Whether answers were measured in more than one counted phase.
    #[must_use]
    pub fn has_steps(&self) -> bool {
        self.phases.iter().filter(|phase| phase.counted).count() > 1
    }
}
