//! Where a run was measured, and how to measure it again.

use std::path::Path;

use jiff::Timestamp;
use loadline_base::sorting::sort_by;
use loadline_record::report::number::span_s;
use serde::{Deserialize, Serialize};

use super::words;
use crate::analysis::{Measured, Run, Unit};
use crate::journal::RunHead;
use crate::plan::Plan;

/// The machine, the servers and the commands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Name and value, in the order of the page.
    pub facts: Vec<Fact>,
    /// Servers as their first trials started them, one for each name and version: port, folder and what
    /// the factors set differ in the others.
    pub servers: Vec<ServerSheet>,
    /// Words of the command that repeats the run.
    pub command: Vec<String>,
    /// The plan, whole.
    pub plan_toml: String,
}

/// Something about the machine or the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    /// What.
    pub name: String,
    /// How much, or which.
    pub value: String,
}

/// A server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerSheet {
    /// Its name in the plan.
    pub name: String,
    /// As it says itself.
    pub version: String,
    /// How its first trial started it.
    pub command: Vec<String>,
    /// The configuration file of that trial, if one was written.
    pub configuration: Option<String>,
}

/// What a run is about: the plan's title, else its name.
pub(super) fn title(head: &RunHead) -> String {
    let plan = Plan::parse(&head.plan_toml, &head.name, Path::new("."));
    let title = plan.map(|plan| plan.title).unwrap_or_default();
    if title.is_empty() {
        head.name.clone()
    } else {
        title
    }
}

impl Environment {
    /// Of a run.
    #[must_use]
    pub fn new(run: &Run) -> Self {
        Self {
            facts: facts(run),
            servers: servers(run),
            command: run.head.command.clone(),
            plan_toml: run.head.plan_toml.clone(),
        }
    }
}

/// What was so in any trial, each once.
fn distinct(texts: impl Iterator<Item = String>) -> String {
    let mut seen: Vec<String> = Vec::new();
    for text in texts {
        if !text.is_empty() && !seen.contains(&text) {
            seen.push(text);
        }
    }
    seen.join("; ")
}

fn facts(run: &Run) -> Vec<Fact> {
    let mut machines = run.trials.iter().map(|trial| &trial.machine);
    let machine = machines.find(|it| it.cpus > 0).cloned().unwrap_or_default();
    let each = |of: fn(&Measured) -> String| distinct(run.trials.iter().map(of));
    let steals_s = run.trials.iter().filter_map(|trial| trial.machine.steal_s);
    let steal_us = steals_s.sum::<f64>() * 1e6;
    let steal = words::value(steal_us, Some(Unit::Microseconds));
    let all = run.trials.iter().chain(&run.repeated);
    let took: f64 = all.map(|trial| trial.took_s).sum();
    let cpus: Vec<String> = run.head.cpus.iter().map(ToString::to_string).collect();
    let state = match run.is_torn {
        true => "a trial was in progress when the journal was read",
        false => "",
    };
    let cpus_all = Some(u64::from(machine.cpus)).filter(|cpus| *cpus > 0);
    let number = |number: Option<u64>| number.map_or_else(String::new, |it| it.to_string());
    let facts = [
        ("Loadline", run.head.version.clone()),
        ("Commit", each(|trial| trial.commit.clone())),
        ("Processor", machine.cpu_model.clone()),
        ("CPUs of the machine", number(cpus_all)),
        ("CPUs of the run", cpus.join(", ")),
        ("CPUs of server | client", each(cpus_of_both)),
        ("Network", each(|trial| trial.server.network.clone())),
        ("Link", each(link)),
        ("CPU quota of the server", each(cpu_quota)),
        ("Databases", databases(run)),
        ("Kernel", each(|trial| trial.machine.kernel.clone())),
        (
            "Congestion control",
            each(|trial| trial.machine.congestion_control.clone()),
        ),
        (
            "Clock rate set by",
            each(|trial| trial.machine.governor.clone()),
        ),
        ("Descriptors of a process", number(machine.descriptors_max)),
        ("Kept by the hypervisor", format!("{steal} of CPU time")),
        ("Begun", utc(run.head.start_unix_ms)),
        ("Time in trials", span_s(took.max(0.0).round())),
        ("Seed", run.head.seed.to_string()),
        ("Left out, not installed", run.head.left_out.join(", ")),
        ("State", state.to_owned()),
    ];
    let facts = facts.into_iter().filter(|(_, value)| !value.is_empty());
    let facts = facts.map(|(name, value)| Fact {
        name: name.to_owned(),
        value,
    });
    facts.collect()
}

fn cpus_of_both(trial: &Measured) -> String {
    let server = &trial.server;
    if server.cpus.is_empty() {
        return String::new();
    }
    format!("{} | {}", server.cpus, server.client_cpus)
}

fn link(trial: &Measured) -> String {
    let link = trial.server.link.as_ref();
    link.map_or_else(String::new, |link| link.settings.clone())
}

/// "0.4 of a CPU, in periods of 5 ms".
fn cpu_quota(trial: &Measured) -> String {
    let quota = trial.server.cpu_quota.as_ref();
    quota.map_or_else(String::new, |quota| {
        let period_ms = quota.period_us as f64 / 1e3;
        format!("{} CPUs, in periods of {period_ms} ms", quota.cpus)
    })
}

/// Which there were, each with its CPUs and how it was started.
fn databases(run: &Run) -> String {
    let databases = run.trials.iter().flat_map(|trial| &trial.server.databases);
    distinct(databases.map(|database| {
        format!(
            "{} on the CPUs of the server, {} ({}; {})",
            database.name,
            database.cpus,
            database.version,
            super::shell(&database.command)
        )
    }))
}

fn servers(run: &Run) -> Vec<ServerSheet> {
    let mut sheets: Vec<ServerSheet> = Vec::new();
    for server in run.trials.iter().map(|trial| &trial.server) {
        let is_same = |sheet: &ServerSheet| {
            sheet.name == server.name
                && sheet.version == server.version
                && sheet.configuration.is_some() == server.configuration.is_some()
        };
        if !server.name.is_empty() && !sheets.iter().any(is_same) {
            sheets.push(ServerSheet {
                name: server.name.clone(),
                version: server.version.clone(),
                command: server.command.clone(),
                configuration: server.configuration.clone(),
            });
        }
    }
    sort_by(&mut sheets, |one, other| one.name.cmp(&other.name));
    sheets
}

/// Date and time of day; empty: not known.
fn utc(unix_ms: u64) -> String {
    let time = i64::try_from(unix_ms).ok().filter(|ms| *ms > 0);
    let time = time.and_then(|ms| Timestamp::from_millisecond(ms).ok());
    time.map_or_else(String::new, |it| {
        it.strftime("%Y-%m-%d %H:%M UTC").to_string()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(utc(951_782_400_000), "2000-02-29 00:00 UTC");
        assert_eq!(utc(1_795_271_520_000), "2026-11-21 14:32 UTC");
    }
}
