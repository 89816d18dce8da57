//! The client of a trial: `loadline load` as a process, and the record that it leaves.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use loadline_record::{TrialRecord, from_json};
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
use crate::cells::Cell;
use crate::expand::connect_s;
use crate::plan::{Series, in_place};

/// How long a client may take beyond what was planned: connections, its files.
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
    pub(super) cell: &'a Cell,
    pub(super) series: &'a Series,
    pub(super) content: Option<&'a Content>,
    pub(super) seed: u64,
    pub(super) server_pid: u32,
    /// What is watched besides, by name.
    pub(super) watched: &'a [(String, u32)],
    pub(super) hdr: &'a Path,
}

impl Task<'_> {
    /// The whole load: what the plan says of it, and what the lab sets itself.
    fn spec(&self) -> Result<LoadSpec, SpecError> {
        let (cell, placement) = (self.cell, &self.cell.placement);
        let mut spec = in_place(&cell.load, &names(self.context))?;
        spec.url = vec![self.context.url(cell).into()];
        spec.clients.duration = Some(RunTime::clamped_s(self.series.duration_s));
        if self.series.warm_up_s > 0.0 {
            spec.clients.warm_up = Some(RunTime::clamped_s(self.series.warm_up_s));
        }
        let watched = self.watched.iter().map(|(name, pid)| Watched {
            name: name.clone(),
            pid: Pid(*pid),
        });
        spec.machine.watch.extend(watched);
        spec.machine.seed = Some(Seed(self.seed));
        spec.machine.cpus = Some(Cpus(placement.client.clone()));
        spec.machine.server_pid = Some(Pid(self.server_pid));
        spec.machine.spin |= cell.may_spin && can_spin(&spec, &placement.client, &placement.server);
        expect(&mut spec, self.content);
        Ok(spec)
    }

    /// Runs it to its end, or until the run is to end.
    pub(super) fn run(&self, is_over: &dyn Fn() -> bool) -> Result<Box<TrialRecord>, Stop> {
        let load = self.spec().map_err(RunnerError::at(CANNOT))?;
        let namespaces = self.context.link.of_client();
        let bounds = Bounds {
            network: namespaces.as_ref(),
            ..Bounds::cpus(&self.cell.placement.client)
        };
        let load_s = self.series.duration_s + self.series.warm_up_s;
        let planned_s = client_s(&self.cell.load, load_s);
        let files = (self.context.scratch, "load");
        run_client(&load, Some(self.hdr), &bounds, files, planned_s, is_over)
    }
}

/// How long a client takes whose load takes so long: before it everybody connects and logs in, and at its
/// end responses are waited for, up to their timeout.
pub(crate) fn client_s(load: &LoadSpec, load_s: f64) -> f64 {
    connect_s(load) + load_s + load.clients.timeout.as_secs_f64()
}

/// Runs `loadline load`, which is to take so long, to its end, or until all is to end. Its record and its
/// output go into files of this folder and name, and the latencies of every second to `hdr`.
pub(crate) fn run_client(
    load: &LoadSpec,
    hdr: Option<&Path>,
    bounds: &Bounds<'_>,
    (folder, name): (&Path, &str),
    planned_s: f64,
    is_over: &dyn Fn() -> bool,
) -> Result<Box<TrialRecord>, Stop> {
    let [json, log] = ["json", "log"].map(|end| folder.join(format!("{name}.{end}")));
    let _ = fs::remove_file(&json); // of the one before: it must not be taken for this one's
    let mut command = client_command(load, &json);
    command.extend(hdr.map(|hdr| format!("--hdr={}", hdr.display())));
    let client = Guarded::start(&command, bounds, &log);
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
    let record = fs::read(&json).ok();
    let record = record.and_then(|bytes| from_json(&bytes).ok());
    record.ok_or_else(|| {
        let words = last_words(&log).unwrap_or(how);
        format!(
            "the client gave up: {}",
            words.trim_start_matches("loadline: ")
        )
        .into()
    })
}

/// Where requests are due by the clock, and the client has CPUs of its own, it need not sleep on
/// them: a CPU that sleeps takes 20 to 100 us and more to wake up in a virtual machine, which would
/// be counted as the server's time. More connections than a process has descriptors for are left out,
/// and so are loads of two protocols: the client then has more threads than CPUs.
fn can_spin(load: &LoadSpec, cpus: &[usize], server_cpus: &[usize]) -> bool {
    let (users, machine) = (&load.users, &load.machine);
    let counts_actors = users.users.is_some() || users.players.is_some();
    let divides_itself = machine.threads.given().is_some() || machine.processes.given().is_some();
    let connections = load.clients.connections.map_or(0, |count| *count);
    load.is_open()
        && !load.has_actors()
        && !counts_actors
        && !divides_itself
        && load.requests.http2_share.is_none()
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
        || requests.body.is_some()
        || requests.body_file.is_some()
        || expect.expect_status.is_some()
        || expect.expect_length.is_some()
        || expect.expect_sha256.is_some();
    if let Some(content) = content.filter(|_| !is_something_else) {
        load.expect.expect_length = Some(Size::clamped(content.bytes));
        load.expect.expect_sha256 = Some(content.sha256.clone());
    }
}

/// How a client is started that leaves its record in a file.
fn client_command(load: &LoadSpec, json: &Path) -> Vec<String> {
    let first = [THIS_PROGRAM, "load", "--quiet", "--allow-client-limited"].map(str::to_owned);
    let json = format!("--json={}", json.display());
    first.into_iter().chain(words(load)).chain([json]).collect()
}

/// Asks once, as the load will, and says what is wrong with the answer.
pub(super) fn check(
    context: &LaunchContext<'_>,
    cell: &Cell,
    content: Option<&Content>,
) -> Result<(), RunnerError> {
    let load = in_place(&cell.load, &names(context))?;
    let one = single(context.url(cell), load, content);
    let namespaces = context.link.of_check();
    let bounds = Bounds {
        network: namespaces.as_ref(),
        ..Bounds::cpus(&cell.placement.client)
    };
    let (files, answer_s) = ((context.scratch, "check"), ANSWER_TIMEOUT_S as f64);
    match run_client(&one, None, &bounds, files, answer_s, &|| false) {
        Ok(record) => judge_answer(&record),
        Err(Stop::Failed(why)) => Err(why),
        Err(Stop::Interrupted) => Err("interrupted".to_owned().into()),
    }
}

/// One request as a load sends it, and what it expects of the response.
fn single(url: String, load: LoadSpec, content: Option<&Content>) -> LoadSpec {
    let (asked, expected) = (load.requests, load.expect);
    let mut one = LoadSpec {
        url: vec![url.into()],
        tls: load.tls,
        ..LoadSpec::default()
    };
    one.clients.requests = Some(Count::clamped(1));
    one.clients.connections = Some(Count::clamped(1));
    one.clients.timeout = Preset(Timeout::clamped(Duration::from_secs(ANSWER_TIMEOUT_S)));
    one.machine.threads = Preset(Auto::Given(Count::clamped(1)));
    // What makes a response another one.
    one.requests.header = asked.header;
    one.requests.http = asked.http;
    one.requests.http2 = asked.http2;
    one.requests.user = asked.user;
    if asked.urls.is_none() && asked.replay.is_none() {
        one.requests.method = asked.method;
        one.requests.body = asked.body;
        one.requests.body_file = asked.body_file;
        one.expect = expected;
    } else {
        // The rest is of what stands in the list or log.
        one.expect.expect_status = expected.expect_status;
    }
    expect(&mut one, content);
    let has_hash = one.expect.expect_sha256.is_some();
    one.expect.content_sample = has_hash.then(|| Count::clamped(1));
    one
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
            "body = \"x\"",
            "body-file = \"x\"",
        ] {
            assert!(!expects(text, Some(&content)), "{text}");
        }
        assert!(expects("player = false", Some(&content)));
    }

    #[test]
    fn the_first_response_has_to_be_what_the_load_expects() {
        let content = Content {
            bytes: 93,
            sha256: "ab".to_owned(),
        };
        // A load, its lines parted by "; ", and in the first request: method, status, length and hash.
        let table = r#"
            => - - 93 ab
            header = ["Range: bytes=0-9"]; expect-status = "206" => - 206 - -
            expect-length = 5; expect-sha256 = "cd" => - - 5 cd
            method = "POST" => POST - - -
            urls = "list"; method = "POST"; expect-length = 5 => - - 93 ab"#;
        for row in table.trim().lines() {
            let (text, right) = row.split_once("=> ").unwrap();
            let load = load(&text.replace("; ", "\n"));
            let one = single("http://127.0.0.1:9/".to_owned(), load, Some(&content));
            let (method, expect) = (one.requests.method, one.expect);
            let length = expect.expect_length.map(|it| it.to_string());
            let sample = expect.expect_sha256.as_ref().map(|_| 1);
            assert_eq!(expect.content_sample.map(|it| *it), sample, "{text}");
            let found = [method, expect.expect_status, length, expect.expect_sha256];
            let found = found.map(|it| it.unwrap_or_else(|| "-".to_owned()));
            assert_eq!(found.join(" "), right, "{text}");
        }
        let one = single("http://127.0.0.1:9/".to_owned(), load("body = \"x\""), None);
        assert_eq!(one.requests.body.as_deref(), Some("x"));
    }

    #[test]
    fn a_client_is_given_the_time_to_log_in_and_that_of_its_last_responses() {
        for (text, right_s) in [
            ("", 12.0),
            ("timeout = \"600s\"", 610.0),
            ("scenario = \"x.toml\"\nusers = 5000", 262.0),
            ("connections = 20000", 22.0),
        ] {
            let found_s = client_s(&load(text), 10.0);
            assert!((found_s - right_s).abs() < 1e-9, "{text}: {found_s}");
        }
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
        assert!(spins("http2 = true", &[0], &[1]));
        assert!(!spins("http2 = true\nhttp2-share = \"50%\"", &[0], &[1]));
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
