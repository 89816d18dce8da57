//! The client of a trial: `loadline load` as a process, and the record that it leaves.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use loadline_record::TrialRecord;

use super::child::{Bounds, Guarded, THIS_PROGRAM, last_words};
use super::launch_context::LaunchContext;
use super::servers::{fill, names};
use super::site::Content;
use crate::cells::cpus_text;
use crate::plan::{OptionValue, Options, words};

/// How long a client may take beyond what was planned: connections, the last answers, its files.
const CLIENT_PATIENCE: Duration = Duration::from_secs(120);
/// How often it is looked whether somebody wants the run to end.
const GLANCE: Duration = Duration::from_millis(50);
/// A process may have 20,000 descriptors on many machines, and needs some for itself.
const SPIN_CONNECTIONS_MAX: usize = 16_000;
/// Time for a single answer.
const ANSWER_TIMEOUT_S: u64 = 5;

/// What a client is asked to do.
#[derive(Debug)]
pub(super) struct Task<'a> {
    pub(super) context: &'a LaunchContext<'a>,
    pub(super) path: &'a str,
    pub(super) load: &'a Options,
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

/// How a client ended.
#[derive(Debug)]
pub(super) enum Heard {
    /// With a record.
    Record(Box<TrialRecord>),
    /// Without one, for this reason.
    Nothing(String),
    /// It was given up, since the run is to end.
    Interrupted,
}

impl Task<'_> {
    fn command(&self, json: &Path) -> Vec<String> {
        let mut command = vec![
            THIS_PROGRAM.to_owned(),
            "load".to_owned(),
            format!("http://{}{}", self.context.address(), self.path),
            format!("--duration={}s", self.duration_s),
            format!("--seed={}", self.seed),
            format!("--cpus={}", cpus_text(self.cpus)),
            format!("--server-pid={}", self.server_pid),
            format!("--json={}", json.display()),
            format!("--hdr={}", self.hdr.display()),
            "--quiet".to_owned(),
            "--allow-client-limited".to_owned(),
        ];
        if self.warm_up_s > 0.0 {
            command.push(format!("--warm-up={}s", self.warm_up_s));
        }
        let watched = self.watched.iter();
        command.extend(watched.map(|(name, pid)| format!("--watch={name}={pid}")));
        if can_spin(self.load, self.cpus, self.server_cpus) {
            command.push("--spin".to_owned());
        }
        command.extend(expected(self.load, self.content));
        let names = names(self.context);
        command.extend(words(self.load).iter().map(|word| fill(word, &names)));
        command
    }

    /// Runs it to its end, or until the run is to end.
    pub(super) fn run(&self, is_over: &dyn Fn() -> bool) -> Heard {
        let json = self.context.scratch.join("load.json");
        let log = self.context.scratch.join("load.log");
        let command = self.command(&json);
        let namespace = self.context.link.of_client();
        let bounds = Bounds {
            network: namespace.as_deref(),
            ..Bounds::cpus(self.cpus)
        };
        let mut client = match Guarded::start(&command, &bounds, &log) {
            Ok(client) => client,
            Err(why) => return Heard::Nothing(format!("The client cannot be started: {why}.")),
        };
        let planned_s = self.duration_s + self.warm_up_s;
        let until = Instant::now() + Duration::from_secs_f64(planned_s) + CLIENT_PATIENCE;
        let how = loop {
            if let Some(how) = client.ended_by(Instant::now() + GLANCE) {
                break how.to_owned();
            }
            if is_over() {
                return Heard::Interrupted;
            }
            if Instant::now() > until {
                return Heard::Nothing("The client did not end.".to_owned());
            }
        };
        match read_record(&json) {
            Some(record) => Heard::Record(record),
            None => {
                let words = last_words(&log).unwrap_or(how);
                Heard::Nothing(format!("The client gave up: {words}."))
            }
        }
    }
}

/// Where requests are due by the clock, and the client has CPUs of its own, it need not sleep on
/// them: a CPU that sleeps takes 20 to 100 us and more to wake up in a virtual machine, which would
/// be counted as the server's time. More connections than a process has descriptors for are left out:
/// the client then has more threads than CPUs.
fn can_spin(load: &Options, cpus: &[usize], server_cpus: &[usize]) -> bool {
    let is_given = |name: &str| {
        let value = load.get(name);
        value.is_some_and(|value| !matches!(value, OptionValue::Absent))
    };
    let by_clock = ["rate", "steps", "ramp"].into_iter().any(is_given);
    let has_actors = ["scenario", "player", "users", "players"]
        .into_iter()
        .any(is_given);
    let says_itself = ["spin", "threads", "processes"]
        .iter()
        .any(|name| load.contains_key(*name));
    let connections = load.get("connections").and_then(|value| value.text());
    let connections = connections.map_or(Ok(0), str::parse);
    by_clock
        && !has_actors
        && !says_itself
        && connections.is_ok_and(|count: usize| count <= SPIN_CONNECTIONS_MAX)
        && !cpus.is_empty()
        && cpus.iter().all(|cpu| !server_cpus.contains(cpu))
}

/// What answers have to be, where the plan does not say so and plain clients ask for one thing alone.
fn expected(load: &Options, content: Option<&Content>) -> Vec<String> {
    const OTHERS: [&str; 9] = [
        "scenario",
        "player",
        "replay",
        "urls",
        "method",
        "expect-status",
        "expect-length",
        "expect-sha256",
        "connections",
    ];
    let is_other = |name: &&str| match load.get(*name) {
        None | Some(OptionValue::Absent) => false,
        // No plain clients at all.
        Some(value) if *name == "connections" => value.text() == Some("0"),
        Some(_) => true,
    };
    let Some(content) = content.filter(|_| !OTHERS.iter().any(is_other)) else {
        return Vec::new();
    };
    vec![
        format!("--expect-length={}", content.bytes),
        format!("--expect-sha256={}", content.sha256),
    ]
}

fn read_record(path: &PathBuf) -> Option<Box<TrialRecord>> {
    let bytes = fs::read(path).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Asks once, as the load will, and says what is wrong with the answer.
pub(super) fn check(
    context: &LaunchContext<'_>,
    (path, load): (&str, &Options),
    content: Option<&Content>,
    cpus: &[usize],
) -> Result<(), String> {
    let json = context.scratch.join("check.json");
    let log = context.scratch.join("check.log");
    let mut command = vec![
        THIS_PROGRAM.to_owned(),
        "load".to_owned(),
        format!("http://{}{path}", context.address()),
        "--requests=1".to_owned(),
        "--connections=1".to_owned(),
        "--threads=1".to_owned(),
        format!("--timeout={ANSWER_TIMEOUT_S}s"),
        "--quiet".to_owned(),
        "--allow-client-limited".to_owned(),
        format!("--json={}", json.display()),
    ];
    if let Some(content) = content {
        command.push(format!("--expect-length={}", content.bytes));
        command.push(format!("--expect-sha256={}", content.sha256));
        command.push("--content-sample=1".to_owned());
    }
    // What makes an answer another one.
    let shared = ["expect-status", "header", "http", "user"];
    let some: Options = load
        .iter()
        .filter(|(name, _)| shared.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    command.extend(words(&some).iter().map(|word| fill(word, &names(context))));
    let namespace = context.link.of_client();
    let bounds = Bounds {
        network: namespace.as_deref(),
        ..Bounds::cpus(cpus)
    };
    let mut client = Guarded::start(&command, &bounds, &log)?;
    let within = Duration::from_secs(ANSWER_TIMEOUT_S) + CLIENT_PATIENCE;
    let how = client.ended_by(Instant::now() + within).map(str::to_owned);
    let Some(record) = read_record(&json) else {
        let words = last_words(&log).or(how);
        return Err(words.unwrap_or_else(|| "no answer came".to_owned()));
    };
    judge_answer(&record)
}

fn judge_answer(record: &TrialRecord) -> Result<(), String> {
    let tally = &record.everything;
    if tally.good > 0 {
        return Ok(());
    }
    let status = tally.status_codes.first().map(|(status, _)| *status);
    let kind = loadline_record::ErrorKind::ALL
        .iter()
        .zip(tally.errors)
        .find(|(_, count)| *count > 0)
        .map_or("no answer", |(kind, _)| kind.name());
    Err(match status {
        Some(status @ 200..=299) => format!("status {status}, and {kind}"),
        Some(403) => {
            "status 403; right would be a folder that the server's user may read, with all \
                      folders above it"
                .to_owned()
        }
        Some(status) => format!("status {status}"),
        None => kind.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_known_answer_is_expected() {
        let content = Content {
            bytes: 5,
            sha256: "ab".to_owned(),
        };
        let of = |name: &str, value: &str| {
            let value = OptionValue::Text(value.to_owned());
            expected(&[(name.to_owned(), value)].into(), Some(&content)).len()
        };
        assert_eq!(of("connections", "100"), 2);
        assert_eq!(expected(&Options::new(), None).len(), 0);
        for (name, value) in [
            ("scenario", "x.toml"),
            ("connections", "0"),
            ("expect-length", "3"),
        ] {
            assert_eq!(of(name, value), 0, "{name}");
        }
        let absent = [("player".to_owned(), OptionValue::Absent)].into();
        assert_eq!(expected(&absent, Some(&content)).len(), 2);
    }

    #[test]
    fn who_has_cpus_of_its_own_and_sends_by_the_clock_spins() {
        let of = |words: &[(&str, &str)], cpus: &[usize], server: &[usize]| {
            let load = words.iter().map(|(name, value)| {
                let value = match *value {
                    "false" => OptionValue::Absent,
                    text => OptionValue::Text(text.to_owned()),
                };
                ((*name).to_owned(), value)
            });
            can_spin(&load.collect(), cpus, server)
        };
        let rate = ("rate", "2000");
        assert!(of(&[rate, ("connections", "2000")], &[0], &[1]));
        assert!(of(&[rate, ("player", "false")], &[0], &[1]));
        assert!(!of(&[rate], &[0, 1], &[1]));
        assert!(!of(&[("connections", "2000")], &[0], &[1]));
        assert!(!of(&[rate, ("connections", "20000")], &[0], &[1]));
        assert!(!of(&[rate, ("spin", "false")], &[0], &[1]));
        assert!(!of(&[rate, ("scenario", "x.toml")], &[0], &[1]));
    }

    #[test]
    fn what_is_wrong_with_an_answer_is_said() {
        let mut record = TrialRecord::default();
        let tally = &mut record.everything;
        tally.errors[loadline_record::ErrorKind::Refused as usize] = 1;
        assert_eq!(judge_answer(&record), Err("refused".to_owned()));
        record.everything.status_codes = vec![(403, 1)];
        assert!(
            judge_answer(&record)
                .unwrap_err()
                .contains("status 403; right would be")
        );
        record.everything.status_codes = vec![(200, 1)];
        record.everything.errors = Default::default();
        record.everything.errors[loadline_record::ErrorKind::WrongContent as usize] = 1;
        let right = "status 200, and wrong_content".to_owned();
        assert_eq!(judge_answer(&record), Err(right));
        record.everything.good = 1;
        assert_eq!(judge_answer(&record), Ok(()));
    }
}
