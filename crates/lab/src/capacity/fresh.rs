//! Trials against a command: a fresh server for each, by the runner of the lab, so that no trial
//! inherits what another one left.

use std::path::PathBuf;

use loadline_base::sorting::{sort, to_map};
use loadline_capacity::search::Try;

use super::client::{completed_per_s, own_folder, warm_up_s};
use super::{Stop, Trials};
use crate::expand::expand;
use crate::journal::Trial;
use crate::link::LinkSpec;
use crate::plan::{
    Allow, Network, Placement, Plan, Repeated, Series, Server, ServerKind, ServerSpec, Site,
};
use crate::runner::{self, Processes, RunnerError, TrialRunner as _};
use loadline_spec::load::LoadSpec;
use loadline_spec::load::values::Rate;
use loadline_spec::values::Count;
use loadline_spec::{Table, given};
use tempfile::TempDir;

/// The name of the server and of everything else that a plan names.
const NAME: &str = "capacity";
/// What is served if no folder is given, and its size.
const PAGE: &str = "index.html";
const PAGE_BYTES: u64 = 1024;

/// What every trial has in common.
#[derive(Clone, Debug)]
pub struct FreshOptions {
    /// How the server is started, one element for each word, with `{port}` and `{root}`.
    pub command: Vec<String>,
    /// What it serves: `{root}`; `None`: a page of 1 KiB, which is made.
    pub root: Option<PathBuf>,
    /// What is asked for: "/".
    pub path: String,
    /// Connections that there may be at once.
    pub connections: usize,
    /// Load before each measurement, not counted, in seconds.
    pub warm_up_s: f64,
    /// CPUs of both sides.
    pub placement: Placement,
    /// CPUs that the server's processes may use on average; `None`: all of theirs.
    pub cpu_quota: Option<f64>,
    /// What both sides are joined by.
    pub network: Network,
    /// A slow network between them; `None`: none.
    pub link: Option<LinkSpec>,
    /// What else the load is.
    pub load: LoadSpec,
    /// Of the arrivals; each trial has another one.
    pub seed: u64,
}

/// A fresh server and `loadline load`, trial after trial.
#[derive(Debug)]
pub struct Fresh {
    options: FreshOptions,
    /// Of logs and scratch files.
    folder: TempDir,
    trials: u64,
    is_over: fn() -> bool,
}

impl Fresh {
    /// Trials whose files go with them. `is_over` says whether somebody wants the search to end.
    ///
    /// # Errors
    /// A quota, namespaces or a link that cannot be had here, or no folder for scratch files, in
    /// one line.
    pub fn new(options: FreshOptions, is_over: fn() -> bool) -> Result<Self, Stop> {
        if let Some(cpus) = options.cpu_quota {
            runner::check_quota(cpus).map_err(RunnerError::at(format!("--cpu-quota {cpus}")))?;
        }
        if options.link.is_some() {
            runner::check_link().map_err(RunnerError::at("--link"))?;
        } else if options.network == Network::Namespaces {
            runner::check_network().map_err(RunnerError::at("--namespaces"))?;
        }
        Ok(Self {
            folder: own_folder()?,
            options,
            trials: 0,
            is_over,
        })
    }

    /// Of one trial; without a rate, of a closed loop.
    fn plan(&self, rate_per_s: Option<f64>, seconds: f64, warm_up_s: f64) -> Plan {
        let options = &self.options;
        let server = Server {
            name: NAME.to_owned(),
            kind: ServerKind::Command,
            spec: ServerSpec::Other(Table::new()),
            command: options.command.clone(),
            configuration: None,
            version: Vec::new(),
            optional: false,
            is_reference: false,
        };
        let mut load = options.load.clone();
        load.pace.rate = rate_per_s.map(Rate::clamped);
        load.clients.connections = Some(Count::clamped(options.connections));
        let series = Series {
            name: NAME.to_owned(),
            servers: vec![NAME.to_owned()],
            load: given(&load),
            path: options.path.clone(),
            cpus: NAME.to_owned(),
            cpu_quota: options.cpu_quota,
            network: options.network,
            link: options.link,
            replicates: 1,
            duration_s: seconds,
            warm_up_s,
            a_a: Repeated::None,
            // What the SLO says about errors decides, and its judge knows about the client.
            allow: Allow {
                errors: 1.0,
                client_limited: true,
                overflows: true,
                ..Allow::default()
            },
            ..Series::default()
        };
        Plan {
            name: NAME.to_owned(),
            title: String::new(),
            text: String::new(),
            folder: PathBuf::from("."),
            seed: options.seed,
            budget_s: None,
            site: match &options.root {
                Some(root) => Site::Folder(root.clone()),
                None => Site::Made(to_map([(PAGE.to_owned(), PAGE_BYTES)])),
            },
            servers: to_map([(NAME.to_owned(), server)]),
            placements: to_map([(NAME.to_owned(), options.placement.clone())]),
            series: vec![series],
            goals: Vec::new(),
            charts: Vec::new(),
        }
    }
}

impl Trials for Fresh {
    fn run(&mut self, trial: &Try) -> Result<Trial, Stop> {
        let warm_up_s = warm_up_s(self.options.warm_up_s, trial.length);
        self.run_plan(&self.plan(Some(trial.rate_per_s), trial.seconds, warm_up_s))
    }

    fn closed_loop(&mut self, seconds: f64) -> Result<f64, Stop> {
        let ran = self.run_plan(&self.plan(None, seconds, 0.0));
        if ran.is_err() {
            self.trials = 0; // whether the server starts at all is still to be seen
        }
        let ran = ran?;
        Ok(ran.load.as_deref().map_or(0.0, completed_per_s))
    }
}

impl Fresh {
    fn run_plan(&mut self, plan: &Plan) -> Result<Trial, Stop> {
        self.trials += 1;
        let seed = self.options.seed.wrapping_add(self.trials);
        let placement = &self.options.placement;
        let mut cpus = [placement.server.clone(), placement.client.clone()].concat();
        sort(&mut cpus);
        cpus.dedup();
        let expansion = expand(plan, seed, &cpus, &[])?;
        let folder = self.folder.path();
        let mut processes = Processes::new(plan, &expansion, folder, self.is_over)?;
        let planned = expansion.trials.first();
        let planned = planned.ok_or_else(|| "no trial was planned".to_owned())?;
        let ran = processes.run(planned, 0)?;
        // A server that does not even start will not do so the next time.
        if self.trials == 1 && ran.load.is_none() {
            return Err(ran.discarded.join(" ").into());
        }
        Ok(ran)
    }
}
