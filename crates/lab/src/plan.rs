//! What a run is: servers, series of cells, the load, and where both sides run, as a TOML file says
//! it (docs/lab.md). `expand` makes trials of it.
//!
//! A plan says nothing that depends on the machine, except where it names CPUs.

mod chart;
mod error;
mod factors;
mod file;
mod goal;
mod load;
mod options;
mod series;
mod server;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

pub use chart::{Chart, ChartKind, Reference, Spread};
pub use error::PlanError;
pub(crate) use file::check_site_bytes;
pub use goal::{Bound, CellLevels, Goal};
pub(crate) use load::PlannedLoad;
pub use loadline_spec::table_words as words;
pub(crate) use options::fill;
pub use options::in_place;
pub(crate) use series::{has_level, levels_of};
pub(crate) use server::spellings;
pub use server::{Server, ServerKind, ServerSpec};

use loadline_base::choice;
use loadline_spec::values::OrOff;
use loadline_spec::{Table, ValueError};
use serde::Deserialize;

use crate::analysis::Metric;
use crate::journal::{Level, Levels};
use crate::link::LinkSpec;

/// The smallest quota of a CPU, which has a period of 100 ms, and the largest.
const CPU_QUOTA: RangeInclusive<f64> = 0.01..=1024.0;

/// A plan is written by hand.
pub(crate) const PLAN_BYTES_MAX: u64 = 1 << 20;

/// A run as it was planned.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// "P1", "compare": also what the report is called.
    pub name: String,
    /// What it is about, in a sentence; may be empty.
    pub title: String,
    /// The file as it was read, whole.
    pub text: String,
    /// The folder that the file is in: `{plan}` in options and commands.
    pub folder: PathBuf,
    /// Of the order of trials and of their loads.
    pub seed: u64,
    /// Time that the run may take: blocks that do not fit are not begun.
    pub budget_s: Option<f64>,
    /// What the servers serve.
    pub site: Site,
    /// The servers, by name.
    pub servers: BTreeMap<String, Server>,
    /// CPUs by name, in addition to [`Placement::NAMES`].
    pub placements: BTreeMap<String, Placement>,
    /// What is measured, in the order of the file. Several may have the same name: they are drawn
    /// together.
    pub series: Vec<Series>,
    /// What its cells are held to.
    pub goals: Vec<Goal>,
    /// What the report draws, in this order; none: what varies decides.
    pub charts: Vec<Chart>,
}

/// The document root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Site {
    /// Files that are made for the run: path below the root and size in bytes.
    Made(BTreeMap<String, u64>),
    /// A folder that is there.
    Folder(PathBuf),
}

/// Where both sides run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// CPUs of the server.
    pub server: Vec<usize>,
    /// CPUs of the client.
    pub client: Vec<usize>,
}

impl Placement {
    /// Placements that every plan has, whatever the machine: `split` gives the server the second
    /// half of the CPUs and the client the first, `one` gives the server the last one and the client
    /// all others, `shared` gives both all of them.
    pub const NAMES: [&str; 3] = ["split", "one", "shared"];

    /// One of [`Placement::NAMES`] on these CPUs. With a single CPU all are the same.
    #[must_use]
    pub fn named(name: &str, cpus: &[usize]) -> Option<Self> {
        let server_count = match name {
            "split" => cpus.len() / 2,
            "one" => usize::from(cpus.len() > 1),
            "shared" => 0,
            _ => return None,
        };
        if server_count == 0 {
            return Some(Self::shared(cpus));
        }
        let (client, server) = cpus.split_at(cpus.len() - server_count);
        Some(Self {
            server: server.to_vec(),
            client: client.to_vec(),
        })
    }

    /// All of these CPUs for both sides.
    pub(crate) fn shared(cpus: &[usize]) -> Self {
        Self {
            server: cpus.to_vec(),
            client: cpus.to_vec(),
        }
    }
}

choice! {
    /// What server and client are joined by, in the order of the documentation.
    #[derive(Default, Deserialize)]
    #[serde(try_from = "String")]
    Network {
        /// The loopback of this machine.
        #[default]
        Loopback "loopback",
        /// A network namespace for each side and a veth pair between them.
        Namespaces "namespaces",
    }
}

impl TryFrom<String> for Network {
    type Error = ValueError;

    fn try_from(name: String) -> Result<Self, ValueError> {
        Self::parse(&name).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|it| it.name()).collect();
            ValueError::new(format!("no network {name}"), names.join(" or "))
        })
    }
}

/// A part of the plan that belongs together, as a chart does.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Series {
    /// "models", "surface".
    #[serde(deserialize_with = "series::name")]
    pub name: String,
    /// What it shows, in words; may be empty.
    pub title: String,
    /// The servers that it is run with: the levels of the factor `server`.
    pub servers: Vec<String>,
    /// What is varied, each with each: names with their levels.
    #[serde(deserialize_with = "series::elsewhere")]
    pub factors: Vec<Factor>,
    /// Cells that are left out: those that have all levels of one of these.
    pub except: Vec<Levels>,
    /// Options of the server in every cell.
    #[serde(deserialize_with = "series::options")]
    pub serve: Table,
    /// Options of `loadline load` in every cell.
    #[serde(deserialize_with = "series::options")]
    pub load: Table,
    /// What is asked for: "/index.html".
    #[serde(deserialize_with = "series::path")]
    pub path: String,
    /// Name of the placement.
    pub cpus: String,
    /// CPUs that the server's processes may use on average; `None`: all of theirs.
    #[serde(deserialize_with = "series::quota")]
    pub cpu_quota: Option<f64>,
    /// What both sides are joined by, where there is no link.
    pub network: Network,
    /// A slow network between them; `None`: none.
    #[serde(deserialize_with = "series::link")]
    pub link: Option<LinkSpec>,
    /// How often each cell is run.
    #[serde(deserialize_with = "series::replicates")]
    pub replicates: u32,
    /// How long each trial is measured.
    #[serde(deserialize_with = "series::duration")]
    pub duration_s: f64,
    /// How long each trial is under load before that.
    #[serde(deserialize_with = "series::warm_up")]
    pub warm_up_s: f64,
    /// Which cells are run twice in each block, under two names.
    pub a_a: Repeated,
    /// What may be amiss although the trial counts.
    pub allow: Allow,
    /// What is to be decided between its cells; `None`: nothing is said of it.
    pub compare: Option<Compared>,
}

/// What a series is to decide: how each cell compares with the one that differs in these levels alone.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compared {
    /// In what.
    pub metric: Metric,
    /// Levels of the cells that others are compared with.
    #[serde(deserialize_with = "series::some_levels")]
    pub with: Levels,
}

/// Which cells are A/A cells: run twice in each block, so that the difference of the two is the noise
/// of the machine.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "RepeatedTable")]
pub enum Repeated {
    /// None.
    None,
    /// The first of the series.
    First,
    /// Those that have all levels of one of these.
    Of(Vec<Levels>),
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected true (the first cell), false, or a list of levels as [{ loops = 1 }]"
)]
enum RepeatedTable {
    Switch(bool),
    Of(Vec<Levels>),
}

impl From<RepeatedTable> for Repeated {
    fn from(table: RepeatedTable) -> Self {
        match table {
            RepeatedTable::Switch(true) => Self::First,
            RepeatedTable::Switch(false) => Self::None,
            RepeatedTable::Of(cells) => Self::Of(cells),
        }
    }
}

/// Something that is varied.
#[derive(Clone, Debug, PartialEq)]
pub struct Factor {
    /// `architecture`, `workers`, `service_us`, ...
    pub name: String,
    /// Its levels, in the order of the file.
    pub levels: Vec<FactorLevel>,
}

/// A level, and what it sets.
#[derive(Clone, Debug, PartialEq)]
pub struct FactorLevel {
    /// As it stands in the journal.
    pub level: Level,
    /// What it sets.
    pub sets: Settings,
}

/// What a level sets; what it does not set stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Name of the server.
    pub server: Option<String>,
    /// Options of the server.
    #[serde(deserialize_with = "series::options")]
    pub serve: Table,
    /// Options of `loadline load`.
    #[serde(deserialize_with = "series::options")]
    pub load: Table,
    /// What is asked for.
    pub path: Option<String>,
    /// A file of this size, in bytes, is made and asked for.
    pub file_bytes: Option<u64>,
    /// Name of the placement.
    pub cpus: Option<String>,
    /// CPUs that the server's processes may use on average.
    #[serde(deserialize_with = "series::quota")]
    pub cpu_quota: Option<f64>,
    /// What both sides are joined by, where there is no link.
    pub network: Option<Network>,
    /// A slow network between them, or none.
    #[serde(deserialize_with = "series::link_level")]
    pub link: Option<OrOff<LinkSpec>>,
}

/// What may be amiss although the trial counts. It is noted all the same.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Allow {
    /// Share of requests that may fail or be answered otherwise than expected.
    #[serde(deserialize_with = "series::share")]
    pub errors: f64,
    /// That the client was the limit.
    pub client_limited: bool,
    /// That connections were refused or delayed because a queue of the kernel was full.
    pub overflows: bool,
    /// Share of the machine's time that the hypervisor may keep.
    #[serde(deserialize_with = "series::share")]
    pub steal: f64,
    /// Share of its time that a thread of the client may wait for a CPU that others have, where
    /// nothing of the trial shares the CPU with it.
    #[serde(deserialize_with = "series::share")]
    pub others: f64,
}

impl Default for Allow {
    fn default() -> Self {
        Self {
            errors: 0.0,
            client_limited: false,
            overflows: false,
            // Beyond it, the hypervisor decides about differences of a few per cent.
            steal: 0.02,
            // On an idle machine the kernel's own threads were seen to take up to 14 %, in trials of
            // a second with thousands of connections; a compiler in the background takes 30 to 85 %.
            others: 0.25,
        }
    }
}

/// A quota of CPU time as it may be.
///
/// # Errors
/// It is none.
pub fn check_cpu_quota(cpus: f64) -> Result<f64, ValueError> {
    match CPU_QUOTA.contains(&cpus) {
        true => Ok(cpus),
        false => Err(ValueError::new(
            format!("{cpus} is no quota"),
            format!(
                "{} to {} CPUs: 0.4 for 40 % of one",
                CPU_QUOTA.start(),
                CPU_QUOTA.end()
            ),
        )),
    }
}

impl Plan {
    /// Reads a plan.
    ///
    /// # Errors
    /// The file, its line, what is wrong and what would be right.
    pub fn read(path: &Path) -> Result<Self, PlanError> {
        file::read(path)
    }

    /// The same from a text; `name` stands for the file in messages, `folder` is where what it names
    /// is looked for.
    ///
    /// # Errors
    /// As [`Plan::read`].
    pub fn parse(text: &str, name: &str, folder: &Path) -> Result<Self, PlanError> {
        file::parse(text, name, folder)
    }

    /// A placement of the plan or of [`Placement::NAMES`], on these CPUs.
    #[must_use]
    pub fn placement(&self, name: &str, cpus: &[usize]) -> Option<Placement> {
        let own = self.placements.get(name).cloned();
        own.or_else(|| Placement::named(name, cpus))
    }
}
