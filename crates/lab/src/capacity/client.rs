//! Trials against a server that runs already: `loadline load` as a process, once for each.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Instant;

use loadline_capacity::search::{Length, Try};
use loadline_record::TrialRecord;

use super::folder::OwnFolder;
use super::{Ran, Stop, Trials};
use crate::journal::ServerFacts;
use crate::runner::THIS_PROGRAM;

/// What every trial has in common.
#[derive(Clone, Debug, Default)]
pub struct ClientOptions {
    /// What is asked for.
    pub url: String,
    /// Connections that there may be at once.
    pub connections: usize,
    /// Load before each measurement, not counted, in seconds.
    pub warm_up_s: f64,
    /// The server's process, where it runs on this machine: it is watched.
    pub server_pid: Option<u32>,
    /// CPUs of the client: "0" or "0,2-3".
    pub cpus: Option<String>,
    /// Further options of `loadline load`, word by word.
    pub words: Vec<String>,
    /// Of the arrivals; each trial has another one.
    pub seed: u64,
}

/// `loadline load`, trial after trial.
#[derive(Debug)]
pub struct Client {
    options: ClientOptions,
    folder: OwnFolder,
    trials: u64,
    is_over: fn() -> bool,
}

impl Client {
    /// A client that keeps its files in a folder of its own, which goes with it. `is_over` says
    /// whether somebody wants the search to end.
    ///
    /// # Errors
    /// The folder cannot be made, in one line.
    pub fn new(options: ClientOptions, is_over: fn() -> bool) -> Result<Self, String> {
        Ok(Self {
            options,
            folder: OwnFolder::make()?,
            trials: 0,
            is_over,
        })
    }

    /// Asks once.
    ///
    /// # Errors
    /// What is wrong with the answer, in one line.
    pub fn check(&self) -> Result<(), Stop> {
        let mut command = self.command();
        command.args(["--requests=1", "--connections=1", "--threads=1"]);
        let record = self.record(command, "check.json")?;
        let tally = &record.everything;
        if tally.good > 0 {
            return Ok(());
        }
        let kinds = loadline_record::ErrorKind::ALL.iter().zip(tally.errors);
        let mut kinds = kinds.filter(|(_, count)| *count > 0);
        let kind = kinds.next().map_or("no answer", |(kind, _)| kind.name());
        let what = match tally.status_codes.first() {
            Some((status, _)) => format!("status {status} ({kind})"),
            None => kind.to_owned(),
        };
        let url = &self.options.url;
        Err(Stop::Failed(format!(
            "{url} is not answered as it should be: {what}; right would be a URL that a single \
             request gets a good answer from"
        )))
    }

    fn command(&self) -> Command {
        let options = &self.options;
        let mut command = Command::new(THIS_PROGRAM);
        command
            .args(["load", &options.url, "--quiet", "--allow-client-limited"])
            .args(&options.words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if let Some(cpus) = &options.cpus {
            command.arg(format!("--cpus={cpus}"));
        }
        command
    }

    /// Runs it and reads what it leaves.
    fn record(&self, mut command: Command, name: &str) -> Result<Box<TrialRecord>, Stop> {
        let path = self.folder.path().join(name);
        let _ = fs::remove_file(&path); // of the trial before: it must not be taken for this one's
        let output = command
            .arg(format!("--json={}", path.display()))
            .output()
            .map_err(|error| Stop::Failed(format!("the client cannot be started: {error}")))?;
        if (self.is_over)() {
            return Err(Stop::Interrupted);
        }
        let record = fs::read(&path).ok();
        let record = record.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        record.ok_or_else(|| {
            let said = String::from_utf8_lossy(&output.stderr);
            let last = said.lines().rev().find(|line| !line.trim().is_empty());
            let last = last.map_or("it left no record", |line| {
                line.trim_start_matches("loadline: ")
            });
            Stop::Failed(format!("the client gave up: {last}"))
        })
    }
}

impl Trials for Client {
    fn run(&mut self, trial: &Try) -> Result<Ran, Stop> {
        let began = Instant::now();
        if (self.is_over)() {
            return Err(Stop::Interrupted);
        }
        self.trials += 1;
        let options = &self.options;
        let mut command = self.command();
        command.args([
            format!("--rate={}", trial.rate_per_s),
            format!("--connections={}", options.connections),
            format!("--duration={}ms", (trial.seconds * 1e3).ceil()),
            format!("--seed={}", options.seed.wrapping_add(self.trials)),
        ]);
        let warm_up_s = warm_up_s(options.warm_up_s, trial.length);
        if warm_up_s > 0.0 {
            command.arg(format!("--warm-up={}ms", (warm_up_s * 1e3).ceil()));
        }
        if let Some(pid) = options.server_pid {
            command.arg(format!("--server-pid={pid}"));
        }
        let record = self.record(command, "trial.json")?;
        if record.run.interrupted {
            return Err(Stop::Interrupted);
        }
        let server = record.watched.iter().find(|one| one.name == "server");
        let facts = server.map_or_else(ServerFacts::default, |server| ServerFacts {
            cpu_user_s: server.cpu_user_s,
            cpu_kernel_s: server.cpu_kernel_s,
            pss_bytes_max: server.pss_bytes_max,
            threads_max: u32::try_from(server.threads_max).ok(),
            ..ServerFacts::default()
        });
        Ok(Ran {
            load: Some(record),
            server: facts,
            void: Vec::new(),
            took_s: began.elapsed().as_secs_f64(),
        })
    }

    fn closed_loop(&mut self, seconds: f64) -> Result<f64, Stop> {
        let mut command = self.command();
        command.args([
            format!("--connections={}", self.options.connections),
            format!("--duration={}ms", (seconds * 1e3).ceil()),
        ]);
        let record = self.record(command, "closed.json")?;
        Ok(completed_per_s(&record))
    }
}

/// Complete answers, while it lasted.
pub(super) fn completed_per_s(record: &TrialRecord) -> f64 {
    (record.headline()).map_or(0.0, |group| group.total.rates.completed_per_s)
}

/// A short trial has a short warm-up: half of it would be warm-up otherwise.
pub(super) fn warm_up_s(warm_up_s: f64, length: Length) -> f64 {
    match length {
        Length::Short => warm_up_s / 2.0,
        Length::Long => warm_up_s,
    }
}
