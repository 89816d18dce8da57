//! One trial from begin to end: a fresh server, the check of its answer, the load, what both used, and
//! the verdict.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use loadline_record::TrialRecord;
use loadline_sys::clock::unix_ms;

use super::child::{Bounds, Guarded, find_program, last_words};
use super::client::{Task, check};
use super::databases::{Databases, Given};
use super::error::RunnerError;
use super::judge::judge;
use super::judge_link::judge_link;
use super::launch_context::LaunchContext;
use super::network::Link;
use super::quota::QuotaGroup;
use super::reach::{Counted, counted, free_port, is_free, listens};
use super::servers::{self, Launch, launch, shown, version_command};
use super::site::{Root, large_files};
use super::{Stop, TrialRunner};
use crate::cells::{Cell, cpus_text};
use crate::expand::{Expansion, PlannedTrial};
use crate::file_error::FileError;
use crate::journal::{CpuQuota, ServerFacts, Trial};
use crate::observer::IDLE_WAIT_MAX;
use crate::plan::{Plan, Server, ServerKind, Site};
use crate::report::words::capital;

/// How long a server may take until it listens: those with a virtual machine take seconds.
const LISTENS_WITHIN: Duration = Duration::from_secs(30);
/// How long it may take from then until its answer is right.
const RIGHT_WITHIN: Duration = Duration::from_secs(5);
/// How long a program may take to print its version.
const VERSION_WITHIN: Duration = Duration::from_secs(5);
/// Pauses between two looks: from the first to the last.
const LOOK: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_millis(100);
/// How often a server is started whose port somebody else took in between.
const STARTS_MAX: u32 = 3;
/// How long counters may lag behind answers: a proactor learns that a response was sent within 50 ms.
const COUNTED_WITHIN: Duration = Duration::from_millis(500);

/// The variable that names the commit which this program is built from. `./x bench` sets it.
const COMMIT: &str = "LOADLINE_COMMIT";

/// How often the CPUs are checked for work of other programs.
const IDLE_POLL: Duration = Duration::from_millis(500);
/// The machine counts as idle up to this part of one CPU.
const IDLE_SHARE_MAX: f64 = 0.1;
/// Of `/proc/stat` on every Linux of today.
const TICKS_PER_S: f64 = 100.0;

/// Servers and clients as processes of this machine.
#[derive(Debug)]
pub struct Processes<'p> {
    plan: &'p Plan,
    expansion: &'p Expansion,
    folder: PathBuf,
    root: Root,
    large_files: Vec<String>,
    /// By name of the server.
    versions: BTreeMap<String, String>,
    databases: Databases,
    is_over: fn() -> bool,
}

/// What a trial has to itself.
struct Own<'a> {
    scratch: &'a Path,
    link: Link,
    given: Given,
}

/// A server that runs, and what is known of it.
struct Running {
    server: Guarded,
    /// Behind the server: it ends first.
    group: Option<QuotaGroup>,
    name: String,
    log: PathBuf,
    address: SocketAddrV4,
    is_over: fn() -> bool,
}

impl<'p> Processes<'p> {
    /// Makes ready what all trials share, below the run's folder. `is_over` says whether the trial in
    /// progress is to be given up.
    ///
    /// # Errors
    /// A file or folder cannot be made or read.
    pub fn new(
        plan: &'p Plan,
        expansion: &'p Expansion,
        folder: &Path,
        is_over: fn() -> bool,
    ) -> Result<Self, RunnerError> {
        // Servers are started elsewhere.
        let folder = fs::canonicalize(folder).map_err(FileError::of(folder))?;
        for name in ["trials", "scratch"] {
            let path = folder.join(name);
            fs::create_dir_all(&path).map_err(FileError::of(&path))?;
        }
        let root = match &plan.site {
            Site::Made(_) => Root::make(&folder.join("root"), &expansion.files)?,
            Site::Folder(root) => Root::found(root)?,
        };
        let mut trial_runner = Self {
            plan,
            expansion,
            root,
            large_files: large_files(&expansion.files),
            versions: BTreeMap::new(),
            databases: Databases::new(&folder.join("scratch")),
            folder,
            is_over,
        };
        for server in plan.servers.values() {
            let version = trial_runner.version(server);
            trial_runner.versions.insert(server.name.clone(), version);
        }
        Ok(trial_runner)
    }

    fn version(&self, server: &Server) -> String {
        let command = resolved(version_command(server));
        let log = self.folder.join("scratch/version.log");
        if command.is_empty() {
            return String::new();
        }
        let first_line = Guarded::start(&command, &Bounds::default(), &log)
            .ok()
            .and_then(|mut it| {
                it.ended_by(Instant::now() + VERSION_WITHIN)?;
                let text = fs::read_to_string(&log).ok()?;
                // "nginx version: nginx/1.22.1"
                let line = text.lines().next()?.trim();
                let version = line.split_once("version: ").map_or(line, |(_, it)| it);
                Some(version.to_owned())
            });
        let _ = fs::remove_file(&log); // a leftover is overwritten by the next
        first_line.unwrap_or_default()
    }

    /// A server that listens, or why there is none.
    fn start(
        &self,
        planned: &PlannedTrial,
        cell: &Cell,
        own: &Own<'_>,
        facts: &mut ServerFacts,
    ) -> Result<Running, RunnerError> {
        let server = &self.plan.servers[&cell.server];
        let mut why = RunnerError::Refused(String::new());
        for attempt in 0..STARTS_MAX {
            // Runs beside each other begin their search in different places.
            let from = std::process::id().wrapping_mul(31) + planned.number * STARTS_MAX + attempt;
            let port = free_port(from).ok_or_else(|| "No port is free.".to_owned())?;
            let context = self.context(cell, own, port);
            let launch = launch(server, &cell.serve, &context)?;
            facts.command = shown(&launch.command);
            facts.configuration.clone_from(&launch.configuration);
            match start_one(&launch, cell, &context, facts, self.is_over) {
                Ok(running) => return Ok(running),
                Err(reason) => why = reason,
            }
            if is_free(port) {
                break; // that was not the reason
            }
        }
        Err(why)
    }

    fn context<'a>(&'a self, cell: &'a Cell, own: &'a Own<'_>, port: u16) -> LaunchContext<'a> {
        LaunchContext {
            port,
            link: &own.link,
            root: &self.root.folder,
            path: &cell.path,
            scratch: own.scratch,
            plan: &self.plan.folder,
            cpu_count: cell.placement.server.len(),
            large_files: &self.large_files,
            is_root: servers::is_root(),
            descriptors: loadline_sys::usage::descriptor_limit().hard.min(1 << 20),
            databases: &own.given.addresses,
        }
    }

    /// A fresh server that has been seen to answer rightly; or why there is none.
    fn start_right(
        &mut self,
        planned: &PlannedTrial,
        cell: &Cell,
        own: &mut Own<'_>,
        trial: &mut Trial,
    ) -> Result<Running, RunnerError> {
        let server = &self.plan.servers[&cell.server];
        let given = self.databases.give(server, cell);
        own.given = given.map_err(|why| format!("{why}."))?;
        trial.server.databases.clone_from(&own.given.facts);
        let mut running = self.start(planned, cell, own, &mut trial.server)?;
        let content = self.root.content(&cell.path);
        let context = self.context(cell, own, running.address.port());
        let check = || check(&context, cell, content.as_ref());
        running.wait_until_right(check).map_err(|why| {
            format!(
                "The response of the fresh server to {} is wrong: {why}.",
                cell.path
            )
        })?;
        Ok(running)
    }

    /// Everything between the start of the server and its end.
    fn measure(
        &mut self,
        planned: &PlannedTrial,
        cell: &Cell,
        scratch: &Path,
        trial: &mut Trial,
    ) -> Result<(), Stop> {
        let link = match Link::make(cell, planned.load_seed) {
            Ok(link) => link,
            Err(why) => {
                let what = match cell.link {
                    Some(_) => "Not testable here: there is no link",
                    None => "There is no network",
                };
                trial.discarded.push(format!("{what}: {why}."));
                return Ok(());
            }
        };
        let mut own = Own {
            scratch,
            link,
            given: Given::default(),
        };
        let measured = match self.start_right(planned, cell, &mut own, trial) {
            Ok(running) => self.load(planned, cell, (running, &own), trial),
            Err(_) if (self.is_over)() => Err(Stop::Interrupted),
            Err(why) => {
                trial.discarded.push(why.to_string());
                Ok(())
            }
        };
        if let Some(end) = own.link.end() {
            judge_link(end, trial);
        }
        measured
    }

    /// The load, and what both sides counted meanwhile.
    fn load(
        &mut self,
        planned: &PlannedTrial,
        cell: &Cell,
        (mut running, own): (Running, &Own<'_>),
        trial: &mut Trial,
    ) -> Result<(), Stop> {
        let content = self.root.content(&cell.path);
        let context = self.context(cell, own, running.address.port());
        let is_loadline = self.plan.servers[&cell.server].kind == ServerKind::Loadline;
        let counted_before = is_loadline.then(|| counted(&context)).flatten();
        let series = &self.plan.series[cell.series];
        let hdr_file = match trial.repeat {
            0 => format!("trials/{:06}.hdr", planned.number),
            repeat => format!("trials/{:06}-{repeat}.hdr", planned.number),
        };
        let hdr = self.folder.join(&hdr_file);
        let task = Task {
            context: &context,
            cell,
            series,
            content: content.as_ref(),
            seed: planned.load_seed,
            server_pid: running.server.pid(),
            watched: &own.given.processes,
            hdr: &hdr,
        };
        trial.start_unix_ms = unix_ms();
        let before = Counters::read(&running, &own.link);
        let end = task.run(&self.is_over);
        let counters = Counters::read(&running, &own.link).since(&before);
        trial.server.cpu_quota = counters.quota;
        if let Some(how) = running.server.ended_by(Instant::now()) {
            let words = last_words(&running.log).unwrap_or_default();
            trial
                .discarded
                .push(format!("The server ended under load: {how}. {words}"));
        }
        let mut record = match end {
            Ok(record) => record,
            Err(Stop::Interrupted) => return Err(Stop::Interrupted),
            Err(Stop::Failed(why)) => {
                let why = capital(&why.to_string());
                trial.discarded.push(format!("{why}."));
                return Ok(());
            }
        };
        add_overflows(&mut record, counters.overflows.unwrap_or(0));
        if let Some(before) = counted_before {
            let completed = record.everything.completed;
            if let Some(counted) = counted_since(&context, &before, completed) {
                counted.record_in(&mut trial.server);
            }
        }
        running.server.stop();
        seen(&record, &mut trial.server);
        judge(&record, &trial.server, &series.allow).record_in(trial);
        let file = fs::File::open(&hdr).and_then(|file| file.sync_all());
        file.map_err(FileError::of(&hdr))?;
        trial.hdr_file = Some(hdr_file);
        trial.load = Some(record);
        Ok(())
    }
}

impl TrialRunner for Processes<'_> {
    fn run(&mut self, planned: &PlannedTrial, repeat: u32) -> Result<Trial, Stop> {
        let began = Instant::now();
        let cell = self.expansion.cell(planned).clone();
        let scratch = self.folder.join(format!("scratch/{:06}", planned.number));
        let fresh = || {
            if scratch.exists() {
                fs::remove_dir_all(&scratch)?; // of a trial that was cut off
            }
            fs::create_dir_all(&scratch)
        };
        fresh().map_err(FileError::of(&scratch))?;
        let server = &self.plan.servers[&cell.server];
        let mut trial = Trial {
            number: planned.number,
            repeat,
            series: self.plan.series[cell.series].name.clone(),
            levels: cell.levels.clone(),
            replicate: planned.replicate,
            block: planned.block,
            is_a_a: planned.is_a_a,
            start_unix_ms: unix_ms(),
            commit: std::env::var(COMMIT).unwrap_or_default(),
            server: ServerFacts {
                name: server.name.clone(),
                version: self.versions.get(&server.name).cloned().unwrap_or_default(),
                cpus: cpus_text(&cell.placement.server),
                client_cpus: cpus_text(&cell.placement.client),
                network: Link::name(&cell).to_owned(),
                ..ServerFacts::default()
            },
            ..Trial::default()
        };
        self.measure(planned, &cell, &scratch, &mut trial)?;
        // If it cannot be removed now, the next start of the same trial removes it.
        let _ = fs::remove_dir_all(&scratch);
        trial.took_s = began.elapsed().as_secs_f64();
        Ok(trial)
    }

    fn wait_until_idle(&mut self) -> Duration {
        let began = Instant::now();
        while began.elapsed() < IDLE_WAIT_MAX && !(self.is_over)() {
            let before = busy_cpu();
            thread::sleep(IDLE_POLL);
            let Some((before, after)) = before.zip(busy_cpu()) else {
                break;
            };
            let busy_s = after.saturating_sub(before) as f64 / TICKS_PER_S;
            if busy_s < IDLE_POLL.as_secs_f64() * IDLE_SHARE_MAX {
                break;
            }
        }
        began.elapsed()
    }
}

/// Ticks that all CPUs have been busy for, since the machine was started.
fn busy_cpu() -> Option<u64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let fields = text.lines().next()?.split_ascii_whitespace().skip(1);
    let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
    // user, nice, system; then idle, iowait, irq, softirq, steal
    Some(ticks.get(..3)?.iter().sum())
}

fn start_one(
    launch: &Launch,
    cell: &Cell,
    context: &LaunchContext<'_>,
    facts: &ServerFacts,
    is_over: fn() -> bool,
) -> Result<Running, RunnerError> {
    let name = &facts.name;
    if let Some(text) = &launch.configuration {
        let path = context.configuration_file();
        fs::write(&path, text).map_err(|error| format!("{}.", FileError::of(&path)(error)))?;
    }
    let log = context.scratch.join("server.log");
    let command = resolved(launch.command.clone());
    let fail = |why: RunnerError| format!("The server {name} cannot be started: {why}.");
    let group = cell.cpu_quota.map(QuotaGroup::make).transpose();
    let group = group.map_err(fail)?;
    let namespaces = context.link.of_server();
    let bounds = Bounds {
        group: group.as_ref().map(QuotaGroup::folder),
        network: namespaces.as_ref(),
        ..Bounds::cpus(&cell.placement.server)
    };
    let server = Guarded::start(&command, &bounds, &log).map_err(fail)?;
    let mut running = Running {
        server,
        group,
        name: name.clone(),
        log,
        address: context.address(),
        is_over,
    };
    running.wait_until_it_listens(context.link)?;
    Ok(running)
}

impl Running {
    fn wait_until_it_listens(&mut self, link: &Link) -> Result<(), RunnerError> {
        let until = Instant::now() + LISTENS_WITHIN;
        let mut pause = LOOK;
        loop {
            let name = &self.name;
            if let Some(how) = self.server.ended_by(Instant::now() + pause) {
                let words = last_words(&self.log).unwrap_or_default();
                return Err(
                    format!("The server {name} ended before it answered: {how}. {words}").into(),
                );
            }
            if listens(link, self.server.pid(), self.address.port()) {
                return Ok(());
            }
            if Instant::now() > until || (self.is_over)() {
                let hint = match self.address.ip().is_loopback() {
                    true => "",
                    false => " In a command, {host} is its address.",
                };
                return Err(format!(
                    "The server {name} does not listen on {} after {} s.{hint}",
                    self.address,
                    LISTENS_WITHIN.as_secs()
                )
                .into());
            }
            pause = (pause * 2).min(LOOK_MAX);
        }
    }

    /// Some listen before they have everything to answer with.
    fn wait_until_right(
        &mut self,
        check: impl Fn() -> Result<(), RunnerError>,
    ) -> Result<(), RunnerError> {
        let until = Instant::now() + RIGHT_WITHIN;
        let mut pause = LOOK;
        loop {
            let Err(why) = check() else { return Ok(()) };
            if let Some(how) = self.server.ended_by(Instant::now() + pause) {
                let words = last_words(&self.log).unwrap_or_default();
                return Err(format!("it ended: {how} {words}").into());
            }
            if Instant::now() > until || (self.is_over)() {
                return Err(why);
            }
            pause = (pause * 2).min(LOOK_MAX);
        }
    }
}

/// The program by its whole path: what servers need is not always on the search path.
fn resolved(mut command: Vec<String>) -> Vec<String> {
    if let Some(program) = command.first_mut()
        && let Some(found) = find_program(program)
    {
        *program = found.display().to_string();
    }
    command
}

/// What was counted since `before`, in all without the response to that question.
fn counted_since(context: &LaunchContext<'_>, before: &Counted, completed: u64) -> Option<Counted> {
    let until = Instant::now() + COUNTED_WITHIN;
    let mut asked = 1;
    loop {
        let now = counted(context)?;
        let responses = now.responses.saturating_sub(before.responses + asked);
        if responses >= completed || Instant::now() > until {
            let loops = now.by_loop.iter().zip(&before.by_loop);
            return Some(Counted {
                responses,
                by_loop: loops
                    .map(|(now, before)| now.saturating_sub(*before))
                    .collect(),
                jobs: now.jobs.since(before.jobs),
            });
        }
        asked += 1;
        thread::sleep(LOOK_MAX);
    }
}

/// What the kernel counts where the server is.
struct Counters {
    quota: Option<CpuQuota>,
    /// Connections that met a full queue; `None`: the client sees them itself.
    overflows: Option<u64>,
}

impl Counters {
    fn read(running: &Running, link: &Link) -> Self {
        Self {
            quota: running.group.as_ref().map(QuotaGroup::read),
            overflows: link.listen_overflows(running.server.pid()),
        }
    }

    fn since(self, before: &Self) -> Self {
        let quota = self.quota.zip(before.quota.as_ref());
        let overflows = self.overflows.zip(before.overflows);
        Self {
            quota: quota.map(|(after, before)| after.since(before)),
            overflows: overflows.map(|(after, before)| after.saturating_sub(before)),
        }
    }
}

/// Queues of listeners are where the server is: a client in another namespace counts none.
fn add_overflows(record: &mut TrialRecord, met: u64) {
    let counters = &mut record.machine.network_after.listen_overflows;
    *counters = counters.map(|count| count + met);
}

/// What the client saw of the server's processes, and of its databases'.
pub(crate) fn seen(record: &TrialRecord, facts: &mut ServerFacts) {
    let of = |name: &str| record.watched.iter().find(|one| one.name == name);
    for database in &mut facts.databases {
        if let Some(watched) = of(&database.name) {
            database.cpu_user_s = watched.cpu_user_s;
            database.cpu_kernel_s = watched.cpu_kernel_s;
        }
    }
    let Some(watched) = of("server") else {
        return;
    };
    facts.cpu_user_s = watched.cpu_user_s;
    facts.cpu_kernel_s = watched.cpu_kernel_s;
    facts.busiest_thread = watched.busiest_share;
    facts
        .busiest_thread_name
        .clone_from(&watched.busiest_thread);
    facts.context_switches = Some(watched.switches_voluntary + watched.switches_involuntary);
    facts.pss_bytes_max = watched.pss_bytes_max;
    facts.threads_max = u32::try_from(watched.threads_max).ok();
}
