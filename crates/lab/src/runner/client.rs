//! The client of a trial: `loadline load` as a process, and the record that it leaves.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use loadline_record::TrialRecord;
use loadline_spec::field::Preset;
use loadline_spec::load::LoadSpec;
use loadline_spec::load::values::{Cpus, Pid, Seed, Watched};
use loadline_spec::values::{Auto, Count, RunTime, Size, Timeout};
use loadline_spec::{SpecError, words};

use super::Stop;
use super::child::{Bounds, Guarded, THIS_PROGRAM, last_words};
use super::error::RunnerError;
use super::launch_context::LaunchContext;
use super::servers::names;
use super::site::Content;
use crate::expand::connect_s;
use crate::plan::in_place;

/// How long a client may take beyond what was planned: connections, the last answers, its files.
const CLIENT_GRACE: Duration = Duration::from_secs(120);
/// How often a wait checks whether the run is to end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// A process may have 20,000 descriptors on many machines, and needs some for itself.
const SPIN_CONNECTIONS_MAX: usize = 16_000;
/// Before the reason.
const CANNOT: &str = "the client cannot be started";
/// Time for a single answer.
const ANSWER_TIMEOUT_S: u64 = 5;

/// What a client is asked to do.
#[derive(Debug)]
pub(super) struct Task<'a> {
    pub(super) context: &'a LaunchContext<'a>,
    pub(super) url: String,
    pub(super) load: &'a LoadSpec,
    pub(super) may_spin: bool,
    pub(super) content: Option<&'a Content>,
    pub(super) duration_s: f64,
    pub(super) warm_up_s: f64,
    pub(super) seed: u64,
    pub(super) cpus: &'a [usize],
    pub(super) server_cpus: &'a [usize],
    pub(super) server_pid: u32,
    /// What is watched besides, by name.
    pub(super) watched: &'a [(String, u32)],
    pub(super) hdr: &'a Path,
}

impl Task<'_> {
    /// The whole load: what the plan says of it, and what the lab sets itself.
    fn spec(&self) -> Result<LoadSpec, SpecError> {
        let mut spec = in_place(self.load, &names(self.context))?;
        spec.url = vec![self.url.clone().into()];
        spec.clients.duration = Some(RunTime::clamped_s(self.duration_s));
        if self.warm_up_s > 0.0 {
            spec.clients.warm_up = Some(RunTime::clamped_s(self.warm_up_s));
        }
        let watched = self.watched.iter().map(|(name, pid)| Watched {
            name: name.clone(),
            pid: Pid(*pid),
        });
        spec.machine.watch.extend(watched);
        spec.machine.seed = Some(Seed(self.seed));
        spec.machine.cpus = Some(Cpus(self.cpus.to_vec()));
        spec.machine.server_pid = Some(Pid(self.server_pid));
        spec.machine.spin |= self.may_spin && can_spin(&spec, self.cpus, self.server_cpus);
        expect(&mut spec, self.content);
        Ok(spec)
    }

    fn command(&self, json: &Path) -> Result<Vec<String>, SpecError> {
        let mut command = client_command(&self.spec()?, json);
        command.push(format!("--hdr={}", self.hdr.display()));
        Ok(command)
    }

    /// Runs it to its end, or until the run is to end.
    pub(super) fn run(&self, is_over: &dyn Fn() -> bool) -> Result<Box<TrialRecord>, Stop> {
        let json = self.context.scratch.join("load.json");
        let log = self.context.scratch.join("load.log");
        let command = self.command(&json).map_err(RunnerError::at(CANNOT))?;
        let namespaces = self.context.link.of_client();
        let bounds = Bounds {
            network: namespaces.as_ref(),
            ..Bounds::cpus(self.cpus)
        };
        let planned_s = self.duration_s + self.warm_up_s + connect_s(self.load);
        run_client(&command, &bounds, (&json, &log), planned_s, is_over)
    }
}

/// Runs `loadline load`, which is to take so long, to its end, or until all is to end. Its record and its
/// output go into these files.
pub(crate) fn run_client(
    command: &[String],
    bounds: &Bounds<'_>,
    (json, log): (&Path, &Path),
    planned_s: f64,
    is_over: &dyn Fn() -> bool,
) -> Result<Box<TrialRecord>, Stop> {
    let _ = fs::remove_file(json); // of the one before: it must not be taken for this one's
    let client = Guarded::start(command, bounds, log);
    let mut client = client.map_err(RunnerError::at(CANNOT))?;
    let until = Instant::now() + Duration::from_secs_f64(planned_s) + CLIENT_GRACE;
    let how = loop {
        if let Some(how) = client.ended_by(Instant::now() + POLL_INTERVAL) {
            break how.to_owned();
        }
        if is_over() {
            return Err(Stop::Interrupted);
        }
        if Instant::now() > until {
            return Err("the client did not end".to_owned().into());
        }
    };
    let record = fs::read(json).ok();
    let record = record.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    record.ok_or_else(|| {
        let words = last_words(log).unwrap_or(how);
        format!(
            "the client gave up: {}",
            words.trim_start_matches("loadline: ")
        )
        .into()
    })
}

/// Where requests are due by the clock, and the client has CPUs of its own, it need not sleep on
/// them: a CPU that sleeps takes 20 to 100 us and more to wake up in a virtual machine, which would
/// be counted as the server's time. More connections than a process has descriptors for are left out:
/// the client then has more threads than CPUs.
fn can_spin(load: &LoadSpec, cpus: &[usize], server_cpus: &[usize]) -> bool {
    let (users, machine) = (&load.users, &load.machine);
    let counts_actors = users.users.is_some() || users.players.is_some();
    let divides_itself = machine.threads.given().is_some() || machine.processes.given().is_some();
    let connections = load.clients.connections.map_or(0, |count| *count);
    load.is_open()
        && !load.has_actors()
        && !counts_actors
        && !divides_itself
        && connections <= SPIN_CONNECTIONS_MAX
        && !cpus.is_empty()
        && cpus.iter().all(|cpu| !server_cpus.contains(cpu))
}

/// Expects a content, where the plan does not say otherwise and plain clients ask for it alone.
fn expect(load: &mut LoadSpec, content: Option<&Content>) {
    let (requests, expect) = (&load.requests, &load.expect);
    let has_no_plain_clients = load.clients.connections.is_some_and(|count| *count == 0);
    let is_something_else = load.has_actors()
        || has_no_plain_clients
        || requests.replay.is_some()
        || requests.urls.is_some()
        || requests.method.is_some()
        || expect.expect_status.is_some()
        || expect.expect_length.is_some()
        || expect.expect_sha256.is_some();
    if let Some(content) = content.filter(|_| !is_something_else) {
        load.expect.expect_length = Some(Size::clamped(content.bytes));
        load.expect.expect_sha256 = Some(content.sha256.clone());
    }
}

/// How a client is started that leaves its record in a file.
pub(crate) fn client_command(load: &LoadSpec, json: &Path) -> Vec<String> {
    let first = [THIS_PROGRAM, "load", "--quiet", "--allow-client-limited"].map(str::to_owned);
    let json = format!("--json={}", json.display());
    first.into_iter().chain(words(load)).chain([json]).collect()
}

/// Asks once, as the load will, and says what is wrong with the answer.
pub(super) fn check(
    context: &LaunchContext<'_>,
    (url, load): (String, &LoadSpec),
    content: Option<&Content>,
    cpus: &[usize],
) -> Result<(), RunnerError> {
    let json = context.scratch.join("check.json");
    let log = context.scratch.join("check.log");
    let asked = in_place(load, &names(context))?;
    let mut one = LoadSpec {
        url: vec![url.into()],
        tls: asked.tls,
        ..LoadSpec::default()
    };
    one.clients.requests = Some(Count::clamped(1));
    one.clients.connections = Some(Count::clamped(1));
    one.clients.timeout = Preset(Timeout::clamped(Duration::from_secs(ANSWER_TIMEOUT_S)));
    one.machine.threads = Preset(Auto::Given(Count::clamped(1)));
    // What makes a response another one.
    one.requests.header = asked.requests.header;
    one.requests.http = asked.requests.http;
    one.requests.http2 = asked.requests.http2;
    one.requests.user = asked.requests.user;
    one.expect.expect_status = asked.expect.expect_status;
    if let Some(content) = content {
        one.expect.expect_length = Some(Size::clamped(content.bytes));
        one.expect.expect_sha256 = Some(content.sha256.clone());
        one.expect.content_sample = Some(Count::clamped(1));
    }
    let command = client_command(&one, &json);
    let namespaces = context.link.of_check();
    let bounds = Bounds {
        network: namespaces.as_ref(),
        ..Bounds::cpus(cpus)
    };
    let answer_s = ANSWER_TIMEOUT_S as f64;
    match run_client(&command, &bounds, (&json, &log), answer_s, &|| false) {
        Ok(record) => judge_answer(&record),
        Err(Stop::Failed(why)) => Err(why),
        Err(Stop::Interrupted) => Err("interrupted".to_owned().into()),
    }
}

/// What is wrong with the one answer of a record.
pub(crate) fn judge_answer(record: &TrialRecord) -> Result<(), RunnerError> {
    let tally = &record.everything;
    if tally.good > 0 {
        return Ok(());
    }
    let status = tally.status_codes.first().map(|(status, _)| *status);
    let kind = loadline_record::ErrorKind::ALL
        .iter()
        .zip(tally.errors)
        .find(|(_, count)| *count > 0)
        .map_or("no response", |(kind, _)| kind.name());
    Err(match status {
        Some(status @ 200..=299) => format!("status {status}, and {kind}"),
        Some(403) => {
            "status 403; right would be a folder that the server's user may read, with all \
                      folders above it"
                .to_owned()
        }
        Some(status) => format!("status {status}"),
        None => kind.to_owned(),
    }
    .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> LoadSpec {
        loadline_spec::fill(&toml::from_str(text).unwrap()).unwrap()
    }

    #[test]
    fn a_single_known_content_is_expected() {
        let content = Content {
            bytes: 5,
            sha256: "ab".to_owned(),
        };
        let expects = |text: &str, content: Option<&Content>| {
            let mut load = load(text);
            let before = load.expect.clone();
            expect(&mut load, content);
            load.expect != before
        };
        assert!(expects("connections = 100", Some(&content)));
        assert!(!expects("", None));
        for text in [
            "scenario = \"x.toml\"",
            "player = \"5Mbps\"",
            "connections = 0",
            "expect-length = 3",
        ] {
            assert!(!expects(text, Some(&content)), "{text}");
        }
        assert!(expects("player = false", Some(&content)));
    }

    #[test]
    fn a_client_with_cpus_of_its_own_that_sends_by_the_clock_spins() {
        let spins = |text: &str, cpus: &[usize], server: &[usize]| {
            can_spin(&load(&format!("rate = 2000\n{text}")), cpus, server)
        };
        assert!(spins("connections = 2000", &[0], &[1]));
        assert!(spins("player = false", &[0], &[1]));
        assert!(!spins("", &[0, 1], &[1]));
        assert!(!spins("connections = 20000", &[0], &[1]));
        assert!(!spins("threads = 2", &[0], &[1]));
        assert!(!spins("scenario = \"x.toml\"", &[0], &[1]));
        assert!(!can_spin(&load("connections = 2000"), &[0], &[1]));
    }

    #[test]
    fn what_is_wrong_with_an_answer_is_said() {
        let mut record = TrialRecord::default();
        let tally = &mut record.everything;
        tally.errors[loadline_record::ErrorKind::Refused as usize] = 1;
        let why = |record: &TrialRecord| judge_answer(record).unwrap_err().to_string();
        assert_eq!(why(&record), "refused");
        record.everything.status_codes = vec![(403, 1)];
        assert!(why(&record).contains("status 403; right would be"));
        record.everything.status_codes = vec![(200, 1)];
        record.everything.errors = Default::default();
        record.everything.errors[loadline_record::ErrorKind::WrongContent as usize] = 1;
        assert_eq!(why(&record), "status 200, and wrong_content");
        record.everything.good = 1;
        judge_answer(&record).unwrap();
    }
}
