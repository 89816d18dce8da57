//! Where a run was measured, and how to measure it again, as pages say it.

use loadline_base::sorting::sort;
use loadline_lab::analysis::Run;
use loadline_lab::report::{Report, shell};

use crate::distinct;

/// A run behind a page.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Source {
    /// Machine, versions, commit, day, and how much was measured.
    pub(crate) facts: String,
    /// The command that measures it again.
    pub(crate) command: String,
}

impl Source {
    pub(crate) fn new(run: &Run, report: &Report) -> Self {
        Self {
            facts: facts(run, report) + &measured_on(&commit(run)),
            command: command(report),
        }
    }
}

/// The command that repeats a run anywhere: where the program lay, and where the results went, is of
/// the machine that it was run on.
pub(crate) fn command(report: &Report) -> String {
    let mut words = report.environment.command.iter();
    let program = words.next().and_then(|path| path.rsplit('/').next());
    let mut kept: Vec<String> = program.map(str::to_owned).into_iter().collect();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--out" | "--keep" => _ = words.next(),
            word if word.starts_with("--out=") || word.starts_with("--keep=") => {}
            word => kept.push(word.to_owned()),
        }
    }
    shell(&kept)
}

/// The commits that trials were measured on, as they were recorded: several, if the run was resumed
/// on another one. Empty: none was recorded.
pub(crate) fn commit(run: &Run) -> String {
    let mut commits = distinct(run.trials.iter().map(|trial| trial.commit.as_str()));
    commits.retain(|commit| !commit.is_empty());
    commits.join("; ")
}

/// The same as a sentence behind others.
pub(crate) fn measured_on(commit: &str) -> String {
    match commit {
        "" => String::new(),
        _ => format!(" Measured on commit {commit}."),
    }
}

/// Facts of a report that not every run has.
const ALSO: [&str; 4] = [
    "CPU quota of the server",
    "Network",
    "Link",
    "Left out, not installed",
];

/// The machine, the programs, and how much was measured, in some sentences.
pub(crate) fn facts(run: &Run, report: &Report) -> String {
    let of = |name: &str| {
        let facts = report.environment.facts.iter();
        let mut found = facts.filter(|fact| fact.name == name);
        found.next().map_or("", |fact| fact.value.as_str())
    };
    let repeated = match report.repeated.len() {
        0 => String::new(),
        1 => "; 1 was disturbed and run again".to_owned(),
        count => format!("; {count} were disturbed and run again"),
    };
    let late = match report.times_discarded.len() {
        0 => String::new(),
        count => format!(", {count} more in their times alone"),
    };
    let also = ALSO.map(|name| (name, of(name).to_owned()));
    let also = programs(run).into_iter().chain(also);
    let also = also.filter(|(_, value)| !value.is_empty());
    let also: String = also
        .map(|(name, value)| format!(" {name}: {value}."))
        .collect();
    format!(
        "{} on {} CPUs of {}, Linux {}, congestion control {}, Loadline {}; CPUs of server | \
         client: {}.{also} {} trials in {}, {} of them discarded{late}{repeated}.",
        of("Begun"),
        of("CPUs of the machine"),
        of("Processor"),
        of("Kernel"),
        of("Congestion control"),
        of("Loadline"),
        of("CPUs of server | client"),
        report.trials_counted + report.discarded.len(),
        of("Time in trials"),
        report.discarded.len()
    )
}

/// What took part beside Loadline, by name and number; empty: nothing did.
fn programs(run: &Run) -> [(&'static str, String); 2] {
    let servers = run.trials.iter().map(|trial| &trial.server);
    let databases = servers.clone().flat_map(|server| &server.databases);
    let servers = versions(servers.map(|server| &server.version));
    let databases = versions(databases.map(|database| &database.version));
    [("Other servers", servers), ("Databases", databases)]
}

fn versions<'r>(said: impl Iterator<Item = &'r String>) -> String {
    let mut versions = distinct(said.map(|said| version(said)));
    versions.retain(|one| !one.is_empty() && !one.starts_with("loadline"));
    sort(&mut versions);
    versions.join(", ")
}

/// "nginx/1.22.1", "Apache/2.4.71", "h2o 2.2.5" of what a program says of itself.
fn version(said: &str) -> String {
    let has_number =
        |word: &&str| word.contains(|c: char| c.is_ascii_digit()) && word.contains('.');
    let Some(number) = said.split_whitespace().find(has_number) else {
        return String::new();
    };
    match (number.contains('/'), said.split_whitespace().next()) {
        (false, Some(name)) if name != number => format!("{name} {number}"),
        _ => number.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use loadline_lab::analysis::Measured;
    use loadline_lab::journal::{CpuQuota, DatabaseFacts, LinkFacts, ServerFacts};
    use loadline_lab::report::Environment;

    use super::*;

    fn trial(version: &str, commit: &str) -> Measured {
        Measured {
            server: ServerFacts {
                version: version.to_owned(),
                network: "loopback".to_owned(),
                ..ServerFacts::default()
            },
            commit: commit.to_owned(),
            ..Measured::default()
        }
    }

    fn source(run: &Run) -> Source {
        let report = Report {
            environment: Environment::new(run),
            trials_counted: run.trials.len(),
            ..Report::default()
        };
        Source::new(run, &report)
    }

    #[test]
    fn what_took_part_is_named_with_its_version() {
        let mut run = Run::default();
        run.head.left_out = vec!["lighttpd".to_owned()];
        for version in ["nginx/1.22.1", "loadline 0.1.0", "Apache/2.4.57 (Debian)"] {
            run.trials.push(trial(version, ""));
        }
        let server = &mut run.trials[1].server;
        server.cpu_quota = Some(CpuQuota {
            cpus: 0.4,
            period_us: 5000,
            ..CpuQuota::default()
        });
        server.databases.push(DatabaseFacts {
            version: "mariadbd  Ver 11.8.3-MariaDB for debian-linux-gnu".to_owned(),
            ..DatabaseFacts::default()
        });
        server.link = Some(LinkFacts {
            settings: "delay=75ms".to_owned(),
            ..LinkFacts::default()
        });
        let facts = source(&run).facts;
        for part in [
            ". Other servers: Apache/2.4.57, nginx/1.22.1. Databases: mariadbd 11.8.3-MariaDB. CPU",
            " CPU quota of the server: 0.4 CPUs, in periods of 5 ms. ",
            " Network: loopback. Link: delay=75ms. Left out, not installed: lighttpd. 3 trials ",
        ] {
            assert!(facts.contains(part), "{part}: {facts}");
        }
        run.trials = vec![trial("loadline 0.1.0", "")];
        let facts = source(&run).facts;
        for wrong in ["servers:", "Databases", "quota", "Link:", "commit"] {
            assert!(!facts.contains(wrong), "{wrong}: {facts}");
        }
    }

    #[test]
    fn every_commit_that_was_measured_on_is_named_once() {
        let commits = [
            "",
            "0123456789ab",
            "0123456789ab",
            "ba9876543210, with changes",
        ];
        let run = Run {
            trials: commits.map(|commit| trial("", commit)).into(),
            ..Run::default()
        };
        assert_eq!(commit(&run), "0123456789ab; ba9876543210, with changes");
        let facts = source(&run).facts;
        let end = ". Measured on commit 0123456789ab; ba9876543210, with changes.";
        assert!(facts.ends_with(end), "{facts}");
    }
}
