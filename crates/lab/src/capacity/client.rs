//! Trials against a server that runs already: `loadline load` as a process, once for each.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Instant;

use loadline_capacity::search::{Length, Try};
use loadline_record::TrialRecord;
use loadline_spec::field::Preset;
use loadline_spec::load::LoadSpec;
use loadline_spec::load::values::{Cpus, Pid, Rate, Seed};
use loadline_spec::rules::refuse;
use loadline_spec::values::{Auto, Count, RunTime};
use loadline_spec::{SpecError, given};
use tempfile::TempDir;

use super::{Stop, Trials};
use crate::journal::Trial;
use crate::plan::Allow;
use crate::runner::{Bounds, client_s, judge_answer, run_client, seen, stolen};

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
    /// CPUs of the client.
    pub cpus: Option<Cpus>,
    /// What else the load is.
    pub load: LoadSpec,
    /// Of the arrivals; each trial has another one.
    pub seed: u64,
}

/// `loadline load`, trial after trial.
#[derive(Debug)]
pub struct Client {
    options: ClientOptions,
    folder: TempDir,
    trials: u64,
    is_over: fn() -> bool,
}

impl Client {
    /// A client that keeps its files in a folder of its own, which goes with it. `is_over` says
    /// whether somebody wants the search to end.
    ///
    /// # Errors
    /// The folder cannot be made, in one line.
    pub fn new(options: ClientOptions, is_over: fn() -> bool) -> Result<Self, Stop> {
        Ok(Self {
            options,
            folder: own_folder()?,
            trials: 0,
            is_over,
        })
    }

    /// Asks once.
    ///
    /// # Errors
    /// What is wrong with the answer, in one line.
    pub fn check(&self) -> Result<(), Stop> {
        let mut load = self.load(1);
        load.clients.requests = Some(Count::clamped(1));
        load.machine.threads = Preset(Auto::Given(Count::clamped(1)));
        let record = self.record(&load, 0.0)?;
        judge_answer(&record).map_err(|what| {
            let url = &self.options.url;
            Stop::from(format!(
                "{url} is not answered as it should be: {what}; right would be a URL that a single \
                 request gets a good response from"
            ))
        })
    }

    /// A load over this number of connections.
    fn load(&self, connections: usize) -> LoadSpec {
        let options = &self.options;
        let mut load = options.load.clone();
        load.url = vec![options.url.clone().into()];
        load.clients.connections = Some(Count::clamped(connections));
        load.machine.cpus.clone_from(&options.cpus);
        load
    }

    /// Runs it, which is to take so long, and reads what it leaves.
    fn record(&self, load: &LoadSpec, seconds: f64) -> Result<Box<TrialRecord>, Stop> {
        let (bounds, files) = (Bounds::default(), (self.folder.path(), "load"));
        let planned_s = client_s(load, seconds);
        run_client(load, None, &bounds, files, planned_s, &self.is_over)
    }
}

impl Trials for Client {
    fn run(&mut self, trial: &Try) -> Result<Trial, Stop> {
        let began = Instant::now();
        if (self.is_over)() {
            return Err(Stop::Interrupted);
        }
        self.trials += 1;
        let options = &self.options;
        let mut load = self.load(options.connections);
        load.pace.rate = Some(Rate::clamped(trial.rate_per_s));
        load.clients.duration = Some(in_whole_ms(trial.seconds));
        load.machine.seed = Some(Seed(options.seed.wrapping_add(self.trials)));
        let warm_up_s = warm_up_s(options.warm_up_s, trial.length);
        load.clients.warm_up = (warm_up_s > 0.0).then(|| in_whole_ms(warm_up_s));
        load.machine.server_pid = options.server_pid.map(Pid);
        let record = self.record(&load, trial.seconds + warm_up_s)?;
        if record.run.interrupted {
            return Err(Stop::Interrupted);
        }
        let mut ran = Trial::default();
        seen(&record, &mut ran.server);
        ran.discarded.extend(disturbed(&record, options));
        ran.load = Some(record);
        ran.took_s = began.elapsed().as_secs_f64();
        Ok(ran)
    }

    fn closed_loop(&mut self, seconds: f64) -> Result<f64, Stop> {
        let mut load = self.load(self.options.connections);
        load.clients.duration = Some(in_whole_ms(seconds));
        let record = self.record(&load, seconds)?;
        Ok(completed_per_s(&record))
    }
}

/// That the hypervisor kept the machine from the server, if it is known to be on this one.
fn disturbed(record: &TrialRecord, options: &ClientOptions) -> Option<String> {
    let is_here = options.server_pid.is_some() || record.run.is_over_loopback();
    stolen(record, Allow::default().steal).filter(|_| is_here)
}

/// What an option of a search may not say, since the search does.
///
/// # Errors
/// Names the option.
pub fn check_load(load: &LoadSpec) -> Result<(), SpecError> {
    const RIGHT: &str = "an option of lab capacity, which its --help lists";
    let own = [
        "url",
        "rate",
        "steps",
        "ramp",
        "replay-timing",
        "connections",
        "duration",
        "requests",
        "warm-up",
        "cpus",
        "seed",
        "server-pid",
    ]
    .map(|option| (option, RIGHT));
    let given = given(load);
    refuse(&own, "the search sets this itself", &given)?;
    // A rate of both would be judged by what one of them gets.
    let divided = [("http2-share", "--http2 for all requests, or HTTP/1.1")];
    refuse(&divided, "a search is for one protocol", &given)
}

/// A folder of one search for what its trials leave, gone with it. Servers may run as another user: they
/// may go through, and not look around.
pub(super) fn own_folder() -> Result<TempDir, Stop> {
    let folder = tempfile::Builder::new()
        .prefix("loadline-capacity-")
        .permissions(fs::Permissions::from_mode(0o711))
        .tempdir();
    folder.map_err(|error| {
        let place = std::env::temp_dir();
        Stop::from(format!(
            "{}: no folder can be made: {error}",
            place.display()
        ))
    })
}

/// As short as a trial may be, at least.
fn in_whole_ms(seconds: f64) -> RunTime {
    RunTime::clamped_s((seconds * 1e3).ceil() / 1e3)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_hypervisor_kept_disturbs_a_server_on_this_machine() {
        let is_disturbed = |steal_s: f64, server: &str, server_pid: Option<u32>| {
            let mut record = TrialRecord::default();
            record.run.ran_s = 10.0;
            record.run.servers = vec![server.to_owned()];
            record.machine.cpus = 2;
            record.machine.steal_s = Some(steal_s);
            let options = ClientOptions {
                server_pid,
                ..ClientOptions::default()
            };
            disturbed(&record, &options).is_some()
        };
        assert!(is_disturbed(0.5, "127.0.0.1:80", None));
        assert!(is_disturbed(0.5, "[::1]:80", None));
        assert!(is_disturbed(0.5, "192.0.2.1:80", Some(7)));
        assert!(!is_disturbed(0.5, "192.0.2.1:80", None));
        assert!(!is_disturbed(0.3, "127.0.0.1:80", Some(7)));
    }

    #[test]
    fn a_load_of_two_protocols_is_refused() {
        let checked =
            |text: &str| check_load(&loadline_spec::fill(&toml::from_str(text).unwrap()).unwrap());
        assert_eq!(checked("http2 = true"), Ok(()));
        let why = checked("http2 = true\nhttp2-share = \"50%\"").unwrap_err();
        let text = why.to_string();
        assert!(
            text.starts_with("--http2-share: a search is for one protocol"),
            "{text}"
        );
    }

    /// The message was about --duration, which nobody had written.
    #[test]
    fn a_log_with_its_own_times_is_refused_by_its_own_name() {
        let text = "replay = \"log\"\nreplay-timing = 1";
        let load = loadline_spec::fill(&toml::from_str(text).unwrap()).unwrap();
        let message = check_load(&load).unwrap_err().to_string();
        assert!(message.starts_with("--replay-timing: "), "{message}");
    }
}
