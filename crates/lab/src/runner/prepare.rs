//! From a plan file and a folder to a run that can be begun or gone on with; every mistake that can be
//! seen before the first trial is reported here.

use std::path::{Path, PathBuf};

use toml::Table;

use super::child::find_program;
use super::error::RunnerError;
use super::servers::program;
use super::{network, quota};
use crate::cells::levels_text;
use crate::expand::{Expansion, expand};
use crate::journal::{
    self, AddedBlocks, CapacityTrial, ChartsChange, Contents, JournalError, Line, RunHead, SCHEMA,
    Store, Trial,
};
use crate::plan::{Network, Plan, Site};
use crate::unmatched::unmatched;

/// A run that is asked for.
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// The plan's file.
    pub plan: PathBuf,
    /// The run's folder.
    pub out: PathBuf,
    /// In place of the plan's own.
    pub seed: Option<u64>,
    /// CPUs of this process.
    pub cpus: Vec<usize>,
    /// Version of this program.
    pub version: String,
    /// The command line.
    pub command: Vec<String>,
    /// Now: milliseconds since 1970-01-01 00:00 UTC.
    pub now_unix_ms: u64,
    /// Whether nothing is to be written.
    pub is_dry: bool,
    /// Whether the plan is a part of another one: it keeps exceptions, comparisons and goals of levels
    /// that it does not have.
    pub is_part: bool,
}

/// A run that can be begun or gone on with.
#[derive(Debug)]
pub struct Prepared {
    /// The plan.
    pub plan: Plan,
    /// Its trials in their order.
    pub expansion: Expansion,
    /// The first line of the journal.
    pub head: Box<RunHead>,
    /// The journal; `None` where nothing is to be written.
    pub store: Option<Store>,
    /// What it has already.
    pub recorded: Vec<Trial>,
    /// Blocks of the plan.
    pub blocks_planned: u32,
    /// Those behind them.
    pub added: Vec<AddedBlocks>,
    /// The same of the trials that measured capacities.
    pub capacities: Vec<CapacityTrial>,
    /// Whether the journal is still empty.
    pub is_new: bool,
    /// What of the plan this machine does not allow, and why: its trials will be discarded.
    pub not_testable: Option<String>,
    /// Whether the plan has other charts than the journal knows.
    has_other_charts: bool,
}

impl Prepared {
    /// Writes the first line of a new run. A resumed run has one, and records changed charts.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn begin(&mut self) -> Result<(), JournalError> {
        let line = match (self.is_new, self.has_other_charts) {
            (true, _) => Line::Run(self.head.clone()),
            (false, true) => Line::Charts(Box::new(ChartsChange {
                plan_toml: self.plan.text.clone(),
            })),
            (false, false) => return Ok(()),
        };
        self.store
            .as_mut()
            .map_or(Ok(()), |store| store.append(&line))
    }
}

/// Prepares.
///
/// # Errors
/// What is wrong with the plan, a server, or the folder, and what would be right.
pub fn prepare(request: &RunRequest) -> Result<Prepared, RunnerError> {
    let plan = Plan::read(&request.plan)?;
    let (store, contents) = open(request)?;
    let (head, is_new) = match contents.head {
        Some(head) => {
            refuse_other(&plan, request, &head)?;
            (head, false)
        }
        None => (Box::new(new_head(&plan, request)?), true),
    };
    let (in_plan, in_run) = (request.plan.display(), request.out.display());
    let expansion = expand(&plan, head.seed, &head.cpus, &head.left_out);
    let mut expansion = expansion.map_err(RunnerError::at(&in_plan))?;
    if is_new && !request.is_part {
        refuse_unmatched(&plan, request, &head.cpus)?;
    }
    let blocks_planned = expansion.block_count();
    for blocks in &contents.blocks {
        let added = expansion.add_blocks(head.seed, blocks);
        added.map_err(RunnerError::at(&in_run))?;
    }
    // The smallest is what the kernel is likeliest to refuse.
    let quotas = expansion.cells.iter().filter_map(|cell| cell.cpu_quota);
    if let Some(smallest) = quotas.min_by(f64::total_cmp) {
        quota::check(smallest).map_err(RunnerError::at(format!("{in_plan}: cpu_quota")))?;
    }
    let mut cells = expansion.cells.iter();
    if cells.any(|cell| cell.network == Network::Namespaces && cell.link.is_none()) {
        network::check().map_err(RunnerError::at(format!("{in_plan}: network")))?;
    }
    let has_links = expansion.cells.iter().any(|cell| cell.link.is_some());
    let not_testable = has_links.then(network::check_link).and_then(Result::err);
    for trial in &contents.trials {
        refuse_stranger(&plan, &expansion, trial).map_err(RunnerError::at(&in_run))?;
    }
    Ok(Prepared {
        has_other_charts: head.plan_toml != plan.text,
        plan,
        expansion,
        head,
        store,
        blocks_planned,
        added: contents.blocks,
        recorded: contents.trials,
        capacities: contents.capacities,
        is_new,
        not_testable: not_testable.map(|why| format!("links are not testable here: {why}")),
    })
}

fn open(request: &RunRequest) -> Result<(Option<Store>, Contents), JournalError> {
    if !request.is_dry {
        let (store, contents) = Store::open(&request.out)?;
        return Ok((Some(store), contents));
    }
    let contents = match request.out.join(journal::JOURNAL_FILE).exists() {
        true => journal::read(&request.out)?,
        false => Contents::default(),
    };
    Ok((None, contents))
}

fn new_head(plan: &Plan, request: &RunRequest) -> Result<RunHead, RunnerError> {
    Ok(RunHead {
        schema: SCHEMA.to_owned(),
        name: plan.name.clone(),
        plan_toml: plan.text.clone(),
        plan_folder: plan.folder.display().to_string(),
        seed: request.seed.unwrap_or(plan.seed),
        version: request.version.clone(),
        command: request.command.clone(),
        start_unix_ms: request.now_unix_ms,
        cpus: request.cpus.clone(),
        left_out: missing_servers(plan, &request.plan)?,
    })
}

/// Servers that are not installed, if the plan can do without them.
fn missing_servers(plan: &Plan, file: &Path) -> Result<Vec<String>, RunnerError> {
    let mut left_out = Vec::new();
    for server in plan.servers.values() {
        let Some(program) = program(server).filter(|name| find_program(name).is_none()) else {
            continue;
        };
        if !server.optional {
            return Err(format!(
                "{}: server {}: {program} is not installed; right would be to install it, or optional \
                 = true to go on without it",
                file.display(),
                server.name
            )
            .into());
        }
        left_out.push(server.name.clone());
    }
    Ok(left_out)
}

/// An exception, a comparison or a goal that does nothing is a slip.
fn refuse_unmatched(plan: &Plan, request: &RunRequest, cpus: &[usize]) -> Result<(), RunnerError> {
    let file = request.plan.display();
    let found = unmatched(plan, cpus).map_err(RunnerError::at(&file))?;
    match found.first() {
        None => Ok(()),
        Some(first) => Err(format!("{file}: {first}").into()),
    }
}

/// A folder holds one run, of one plan, by one version, on one machine.
fn refuse_other(plan: &Plan, request: &RunRequest, head: &RunHead) -> Result<(), RunnerError> {
    let what = if !is_same_but_for_charts(&head.plan_toml, &plan.text) {
        let (name, file) = (&head.name, request.plan.display());
        format!("has another plan (\"{name}\", or {file} before a change)")
    } else if is_of_other_folder(plan, request, head) {
        let (then, now) = (&head.plan_folder, plan.folder.display());
        format!("was begun with the plan in {then}, and this one names files in {now}")
    } else if let Some(seed) = request.seed.filter(|seed| *seed != head.seed) {
        format!("has the seed {}, not {seed}", head.seed)
    } else if head.version != request.version {
        let (then, now) = (&head.version, &request.version);
        format!("was begun by version {then}, and this is {now}")
    } else if head.cpus != request.cpus {
        let (then, now) = (&head.cpus, &request.cpus);
        format!("was begun with the CPUs {then:?}, and these are {now:?}")
    } else {
        return Ok(());
    };
    Err(RunnerError::Refused(format!(
        "{}: the run in it {what}; right would be another --out, or the run as it was begun",
        request.out.display()
    )))
}

/// Whether the plan names files beside it, and others than when the run was begun. Parts of plans have
/// theirs in the folder of the run.
fn is_of_other_folder(plan: &Plan, request: &RunRequest, head: &RunHead) -> bool {
    let has_root = match &plan.site {
        Site::Folder(root) => root.starts_with(&plan.folder),
        Site::Made(_) => false,
    };
    let then = head.plan_folder.as_str();
    let is_other = !then.is_empty() && plan.folder.display().to_string() != then;
    is_other && !request.is_part && (has_root || plan.text.contains("{plan}"))
}

/// What is drawn can be changed after it was measured; what is run cannot.
fn is_same_but_for_charts(one: &str, other: &str) -> bool {
    let trials = |text: &str| -> Option<Table> {
        let mut plan: Table = text.parse().ok()?;
        plan.remove("chart");
        Some(plan)
    };
    one == other || trials(one).is_some_and(|one| trials(other) == Some(one))
}

/// A trial that the plan does not have there.
fn refuse_stranger(plan: &Plan, expansion: &Expansion, trial: &Trial) -> Result<(), RunnerError> {
    let planned = expansion.trials.get(trial.number as usize);
    let is_planned = planned.is_some_and(|planned| {
        let cell = expansion.cell(planned);
        let series = &plan.series[cell.series].name;
        cell.levels == trial.levels
            && *series == trial.series
            && (planned.replicate, planned.block, planned.is_a_a)
                == (trial.replicate, trial.block, trial.is_a_a)
    });
    if is_planned {
        return Ok(());
    }
    Err(format!(
        "trial {} of its journal ({}: {}) is none of this plan; right would be another --out",
        trial.number,
        trial.series,
        levels_text(&trial.levels)
    )
    .into())
}
