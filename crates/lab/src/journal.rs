//! The journal of a run: what each trial was, where, and what came of it, as lines of JSON.
//!
//! A line is appended, and reaches the disk, before the next trial begins; a run that was killed
//! loses the trial in progress and nothing else. Whatever a report says is derived from these
//! lines.

mod error;
mod link;
mod store;

use std::collections::BTreeMap;
use std::fmt;

use loadline_record::{TrialRecord, from_json};
use loadline_spec::load::values::Cpus;
use serde::{Deserialize, Serialize};

pub use error::JournalError;
pub use link::{DirectionFacts, LinkFacts};
pub(crate) use store::each_line;
pub use store::{Contents, Store, read};

/// Name and version of the form: the number grows when a field changes its meaning.
pub const SCHEMA: &str = "loadline-lab/1";

/// Its name in the folder of a run.
pub const JOURNAL_FILE: &str = "journal.jsonl";

/// One line of `journal.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum Line {
    /// The first line: the plan that is run.
    Run(Box<RunHead>),
    /// The plan again, since it was given other charts: the trials are the same.
    Charts(Box<ChartsChange>),
    /// A trial that measured what a server carries, before the first block: rates are multiples of
    /// it.
    Capacity(Box<CapacityTrial>),
    /// Blocks behind those of the plan, since comparisons were not decided.
    Blocks(AddedBlocks),
    /// A trial that was run to its end, discarded or not.
    Trial(Box<Trial>),
}

/// Its kind alone.
#[derive(Deserialize)]
struct LineTag {
    line: LineKind,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum LineKind {
    Run,
    Charts,
    Capacity,
    Blocks,
    Trial,
}

impl Line {
    /// Reads one from JSON, twice: first for its kind. Serde's own way with a tag would compile all that
    /// a record has a second time.
    pub(crate) fn read(json: &[u8]) -> serde_json::Result<Self> {
        let LineTag { line } = from_json(json)?;
        Ok(match line {
            LineKind::Run => Self::Run(from_json(json)?),
            LineKind::Charts => Self::Charts(from_json(json)?),
            LineKind::Capacity => Self::Capacity(from_json(json)?),
            LineKind::Blocks => Self::Blocks(from_json(json)?),
            LineKind::Trial => Self::Trial(from_json(json)?),
        })
    }
}

/// What a run is drawn by from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChartsChange {
    /// In place of that of [`RunHead`].
    pub plan_toml: String,
}

/// Blocks of some cells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AddedBlocks {
    /// How many.
    pub count: u32,
    /// The most that the run may have in all, by which it was fixed when to look.
    pub blocks_max: u32,
    /// The cells, by their places in the order of the plan, from 0.
    pub cells: Vec<u32>,
}

/// A trial of a closed loop, of which the rates of some cells are multiples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CapacityTrial {
    /// Which of the run's capacities, from 0.
    pub of: u32,
    /// What was run and what came of it. Its number is none of the run's trials.
    pub trial: Trial,
}

/// What a run is: everything that its report needs besides the trials.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunHead {
    /// [`SCHEMA`].
    pub schema: String,
    /// The plan's name: "P1", "compare".
    pub name: String,
    /// The plan as it was read, whole, so that the run can be gone on with and repeated.
    pub plan_toml: String,
    /// The folder of the plan's file: what it names beside it is there. Empty in older journals.
    pub plan_folder: String,
    /// The seed of the order of trials and of their loads.
    pub seed: u64,
    /// Version of Loadline.
    pub version: String,
    /// How the run was begun, one element for each word.
    pub command: Vec<String>,
    /// When it began: milliseconds since 1970-01-01 00:00 UTC.
    pub start_unix_ms: u64,
    /// CPUs that the run could use: what `split`, `one` and `shared` of a plan are parts of.
    pub cpus: Vec<usize>,
    /// Servers that the plan calls optional and that were not installed: their cells are left out.
    pub left_out: Vec<String>,
}

/// A value of a factor: what a cell is distinguished by.
#[derive(Clone, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(untagged, expecting = "a level is a number or a name")]
pub enum Level {
    /// A quantity, in the unit that the factor's name ends with.
    Number(f64),
    /// A name.
    Text(String),
}

impl From<f64> for Level {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Level {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// The levels of a cell, by the name of the factor: `architecture`, `workers`, `service_us`,
/// `connections`, `rate_per_s`, `file_bytes`, ... The server's name is the level of `server`.
pub type Levels = BTreeMap<String, Level>;

/// One trial: one replicate of one cell, with a server of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trial {
    /// Position in the run's order, from 0. A trial that is run again keeps its number; the last
    /// one counts.
    pub number: u32,
    /// How often it had been run before, and disturbed.
    pub repeat: u32,
    /// Part of the plan that the cell belongs to: the name of a chart's data, "models", "surface".
    pub series: String,
    /// What distinguishes the cell from the others of its series.
    pub levels: Levels,
    /// From 1.
    pub replicate: u32,
    /// The block of interleaved trials that it ran in, from 0.
    pub block: u32,
    /// True for the second of two cells that are the same: their difference is the noise.
    pub is_a_a: bool,
    /// When it began: milliseconds since 1970-01-01 00:00 UTC.
    pub start_unix_ms: u64,
    /// The commit that the program is built from, if whoever started the run said so:
    /// "0123456789ab", "0123456789ab, with changes".
    pub commit: String,
    /// The server.
    pub server: ServerFacts,
    /// What the client measured: `loadline load --json`, whole. The latencies of every second stand
    /// in `hdr_file`.
    pub load: Option<Box<TrialRecord>>,
    /// The HDR log of the trial, below the run's folder.
    pub hdr_file: Option<String>,
    /// Why the trial counts for nothing, in sentences: empty if it counts. It is shown all the
    /// same, struck out.
    #[serde(alias = "void")]
    pub discarded: Vec<String>,
    /// Why its times alone count for nothing, in sentences: all else does. The client of an open loop
    /// sent everything, but late.
    #[serde(alias = "times_void")]
    pub times_discarded: Vec<String>,
    /// What is worth knowing and does not discard it: what the plan allows, or that no steady state
    /// was seen.
    pub notes: Vec<String>,
    /// The client of a closed loop was at its end. The trial counts, and what was carried is the
    /// least that the server can carry.
    pub client_limited: bool,
    /// It is discarded for a reason that lies outside of what was measured: others had the CPUs. It is run
    /// again, a few times at most.
    pub disturbed: bool,
    /// How long it took altogether: start of the server, connections, load, end of the server.
    pub took_s: f64,
}

/// The server of a trial, and where both sides ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerFacts {
    /// "loadline", "nginx-tuned", a user's own.
    pub name: String,
    /// As it says itself: "nginx/1.22.1".
    pub version: String,
    /// How it was started, one element for each word, with port and root filled in.
    pub command: Vec<String>,
    /// The configuration file that was generated for it, whole.
    pub configuration: Option<String>,
    /// CPUs that it could use: "1", "0-1".
    pub cpus: String,
    /// CPUs that the client could use.
    pub client_cpus: String,
    /// What both sides were joined by: "loopback", "namespaces", or "relay" if there was a link; empty in
    /// older journals.
    pub network: String,
    /// The link between them, and what it has carried; `None`: none.
    pub link: Option<LinkFacts>,
    /// The quota of CPU time that it had, and how often that was spent; `None`: none.
    pub cpu_quota: Option<CpuQuota>,
    /// CPU time of its processes while the load was counted, in user mode.
    pub cpu_user_s: f64,
    /// The same, in the kernel.
    pub cpu_kernel_s: f64,
    /// Of one CPU, by the busiest thread: what share of the time it ran.
    pub busiest_thread: Option<f64>,
    /// Its name: "loop 0", "worker 3".
    pub busiest_thread_name: Option<String>,
    /// Context switches of all its threads while the load was counted, voluntary and not.
    pub context_switches: Option<u64>,
    /// Proportional share of memory at its highest, all processes together.
    pub pss_bytes_max: Option<u64>,
    /// Threads at their highest number.
    pub threads_max: Option<u32>,
    /// What the server counted itself, where it can (`/status` of Loadline).
    pub requests_counted: Option<u64>,
    /// The same of each of its event loops, to a few; empty: it has none, or does not say.
    pub responses_by_loop: Vec<u64>,
    /// What it counted of its workers; `None`: they had no job, or it does not say.
    pub jobs: Option<WorkerJobs>,
    /// Database servers that the lab started for it. What they used is in none of the figures above.
    pub databases: Vec<DatabaseFacts>,
}

/// Jobs of a server's workers while the load ran, warm-up included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerJobs {
    /// Jobs that were carried out.
    pub count: u64,
    /// Time that they had waited for a worker, all together, in microseconds.
    pub waited_us: u64,
}

impl WorkerJobs {
    /// What was counted since an earlier count.
    #[must_use]
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            count: self.count.saturating_sub(before.count),
            waited_us: self.waited_us.saturating_sub(before.waited_us),
        }
    }

    /// How long a job had waited on average; `None`: there was none.
    #[must_use]
    pub fn mean_wait_us(self) -> Option<f64> {
        (self.count > 0).then(|| self.waited_us as f64 / self.count as f64)
    }
}

/// A quota of CPU time, of all processes of a server together, and what came of it while the load ran,
/// warm-up included.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuQuota {
    /// CPU time for each second: 0.4 is 40 % of one CPU.
    pub cpus: f64,
    /// In each period of this length, so much of it can be used.
    pub period_us: u64,
    /// Periods in which the server had something to do.
    pub periods: u64,
    /// Those in which it had more to do than the quota.
    pub periods_throttled: u64,
    /// Time in which it was held back, summed over CPUs.
    pub throttled_s: f64,
}

impl CpuQuota {
    /// What was counted since an earlier count.
    #[must_use]
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            cpus: self.cpus,
            period_us: self.period_us,
            periods: self.periods.saturating_sub(before.periods),
            periods_throttled: self
                .periods_throttled
                .saturating_sub(before.periods_throttled),
            throttled_s: (self.throttled_s - before.throttled_s).max(0.0),
        }
    }

    /// In what share of the periods it was held back.
    #[must_use]
    pub fn throttled_share(&self) -> Option<f64> {
        (self.periods > 0).then(|| self.periods_throttled as f64 / self.periods as f64)
    }
}

impl ServerFacts {
    /// How many CPUs it could use at once, by what it was given of them and by its quota; `None`: not
    /// known.
    #[must_use]
    pub fn cpus_usable(&self) -> Option<f64> {
        let count = cpus_of(&self.cpus).len();
        let quota = self.cpu_quota.as_ref().map(|quota| quota.cpus);
        let cpus = (count > 0).then_some(count as f64);
        match (cpus, quota) {
            (Some(cpus), Some(quota)) => Some(cpus.min(quota)),
            (one, other) => one.or(other),
        }
    }
}

/// A database server that the lab started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DatabaseFacts {
    /// "MariaDB", "PostgreSQL".
    pub name: String,
    /// As it says itself.
    pub version: String,
    /// How it was started, one element for each word.
    pub command: Vec<String>,
    /// CPUs that it could use: those of the server.
    pub cpus: String,
    /// CPU time of its processes while the load was counted, in user mode.
    pub cpu_user_s: f64,
    /// The same, in the kernel.
    pub cpu_kernel_s: f64,
}

/// The CPUs of a text like "0-3,8"; of one that is none, none.
#[must_use]
pub fn cpus_of(text: &str) -> Vec<usize> {
    text.parse::<Cpus>().unwrap_or_default().0
}
