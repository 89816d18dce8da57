//! Database servers of a run: one of each kind and each set of CPUs, started when a trial first asks for
//! it, and ended with the run, however it ends. Each trial has a new, empty database on it.
//!
//! A plan asks for one by a placeholder in the options or the command of a server: `{mariadb}` and
//! `{postgresql}` stand for the address of the trial's database.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use loadline_databases::{DatabaseKind, Installed, NotInstalled, make_folder};

use super::child::{Bounds, Guarded, last_words};
use super::error::RunnerError;
use crate::cells::{Cell, cpus_text};
use crate::journal::DatabaseFacts;
use crate::plan::Server;

/// How long a new server may take: its files, and until it answers.
const PREPARED_WITHIN: Duration = Duration::from_secs(120);
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);
/// How long a statement may take.
const ASKED_WITHIN: Duration = Duration::from_secs(20);
/// The pause before it is asked again whether it answers.
const LOOK: Duration = Duration::from_millis(50);

/// Database servers of a run.
#[derive(Debug)]
pub(super) struct Databases {
    /// Where their output goes.
    folder: PathBuf,
    find: fn(DatabaseKind) -> Result<Installed, NotInstalled>,
    /// By kind and CPUs; or why there is none.
    servers: BTreeMap<(DatabaseKind, String), Result<Running, RunnerError>>,
}

/// What a trial has been given.
#[derive(Clone, Debug, Default)]
pub(super) struct Given {
    /// Addresses, by the placeholders that stand for them.
    pub(super) addresses: BTreeMap<String, String>,
    pub(super) facts: Vec<DatabaseFacts>,
    /// Their processes, to be watched under their names.
    pub(super) processes: Vec<(String, u32)>,
}

/// A server that runs.
#[derive(Debug)]
struct Running {
    installed: Installed,
    /// Its files: removed by its guard.
    folder: PathBuf,
    server: Guarded,
    cpus: Vec<usize>,
    /// Where the output of its clients goes.
    log: PathBuf,
    facts: DatabaseFacts,
    /// Databases made so far; the last is the one at hand.
    made: u32,
}

impl Databases {
    /// None yet. Output goes into this folder.
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            find: Installed::find,
            servers: BTreeMap::new(),
        }
    }

    /// New, empty databases for a trial, of the kinds that it asks for.
    pub(super) fn give(&mut self, server: &Server, cell: &Cell) -> Result<Given, RunnerError> {
        let mut given = Given::default();
        for kind in DatabaseKind::ALL {
            if !asks_for(kind, server, cell) {
                continue;
            }
            let cpus = &cell.placement.server;
            let running = self.running(kind, cpus)?;
            let address = running.new_database()?;
            given.addresses.insert(placeholder(kind), address);
            given.facts.push(running.facts.clone());
            let name = running.facts.name.clone();
            given.processes.push((name, running.server.pid()));
        }
        Ok(given)
    }

    /// The server of this kind on these CPUs, started if there is none.
    fn running(&mut self, kind: DatabaseKind, cpus: &[usize]) -> Result<&mut Running, RunnerError> {
        let key = (kind, cpus_text(cpus));
        if let Some(Ok(running)) = self.servers.get_mut(&key)
            && running.server.ended_by(Instant::now()).is_some()
        {
            self.servers.remove(&key); // it has died: another one
        }
        let entry = self.servers.entry(key);
        let running = entry.or_insert_with(|| {
            let log = |what: &str| self.folder.join(format!("{}-{what}.log", kind.name()));
            let installed = (self.find)(kind).map_err(|missing| missing.to_string())?;
            Running::start(installed, cpus, &log("server"), &log("client"))
        });
        running.as_mut().map_err(|why| why.clone())
    }
}

impl Drop for Databases {
    /// PostgreSQL leaves something in the kernel where it is killed.
    fn drop(&mut self) {
        for running in std::mem::take(&mut self.servers).into_values().flatten() {
            running.server.stop();
        }
    }
}

impl Running {
    fn start(
        installed: Installed,
        cpus: &[usize],
        log: &Path,
        client_log: &Path,
    ) -> Result<Self, RunnerError> {
        let kind = installed.kind();
        let cannot = format!("{} cannot be started", kind.title());
        let version = said(&installed.version(), cpus, client_log).unwrap_or_default();
        let folder = make_folder().map_err(|error| format!("{cannot}: its folder: {error}"))?;
        let prepared = carried_out(&installed.prepare(&folder), cpus, log, PREPARED_WITHIN);
        let command = installed.serve(&folder, true);
        let bounds = Bounds {
            remove: Some(&folder),
            ..Bounds::cpus(cpus)
        };
        let started = prepared.and_then(|()| Guarded::start(&command, &bounds, log));
        let server = started.map_err(|why| {
            // No guard has it, or that of the server has removed it.
            let _ = std::fs::remove_dir_all(&folder);
            RunnerError::at(&cannot)(why)
        })?;
        let mut running = Self {
            facts: DatabaseFacts {
                name: kind.title().to_owned(),
                version,
                command,
                cpus: cpus_text(cpus),
                ..DatabaseFacts::default()
            },
            installed,
            folder,
            server,
            cpus: cpus.to_owned(),
            log: client_log.to_owned(),
            made: 0,
        };
        let answers = running.wait_until_it_answers(log);
        answers.map_err(RunnerError::at(cannot))?;
        Ok(running)
    }

    /// It announces itself nowhere else.
    fn wait_until_it_answers(&mut self, log: &Path) -> Result<(), RunnerError> {
        let until = Instant::now() + ANSWERS_WITHIN;
        while let Err(why) = self.ask(&["SELECT 1"]) {
            if let Some(how) = self.server.ended_by(Instant::now()) {
                let how = how.to_owned();
                return Err(last_words(log).unwrap_or(how).into());
            }
            if Instant::now() > until {
                return Err(why);
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// The address of a new database; the one before goes.
    fn new_database(&mut self) -> Result<String, RunnerError> {
        let name = |number: u32| format!("trial{number}");
        let drop = format!("DROP DATABASE IF EXISTS {}", name(self.made));
        self.made += 1;
        let name = name(self.made);
        let create = format!("CREATE DATABASE {name}");
        let made = self.ask(&[&drop, &create]);
        let no_database = format!("{} makes no database", self.facts.name);
        made.map_err(RunnerError::at(no_database))?;
        Ok(self.installed.url(&self.folder, &name))
    }

    fn ask(&self, statements: &[&str]) -> Result<(), RunnerError> {
        let command = self.installed.ask(&self.folder, statements);
        carried_out(&command, &self.cpus, &self.log, ASKED_WITHIN)
    }
}

/// Runs a command to its end, which has to be a good one.
fn carried_out(
    command: &[String],
    cpus: &[usize],
    log: &Path,
    within: Duration,
) -> Result<(), RunnerError> {
    let mut child = Guarded::start(command, &Bounds::cpus(cpus), log)?;
    match child.ended_by(Instant::now() + within) {
        Some("exit status 0") => Ok(()),
        Some(how) => Err(last_words(log).unwrap_or_else(|| how.to_owned()).into()),
        None => Err(format!("no end within {} s", within.as_secs()).into()),
    }
}

/// The last line that a command prints.
fn said(command: &[String], cpus: &[usize], log: &Path) -> Option<String> {
    carried_out(command, cpus, log, ASKED_WITHIN).ok()?;
    last_words(log)
}

fn placeholder(kind: DatabaseKind) -> String {
    format!("{{{}}}", kind.name())
}

/// Whether a server, as this cell has it started, is to have a database of this kind.
fn asks_for(kind: DatabaseKind, server: &Server, cell: &Cell) -> bool {
    let placeholder = placeholder(kind);
    let options = cell.serve.table();
    let of_options = options.values().flat_map(|value| value.texts());
    let mut texts = of_options
        .chain(&server.command)
        .chain(&server.configuration);
    texts.any(|text| text.contains(&placeholder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::Cells;
    use crate::plan::Plan;

    fn plan() -> Plan {
        let text = "name = \"t\"\n[servers.loadline]\n\
            [servers.own]\ncommand = [\"own\"]\nconfiguration = \"db {mariadb}\"\n\
            [[series]]\nname = \"s\"\nservers = [\"loadline\"]\n[series.factors]\ndatabase = [\n\
            { level = \"none\" },\n\
            { level = \"sqlite\", serve = { accounts = \"sqlite:{dir}/a.db\" } },\n\
            { level = \"p\", serve = { accounts = \"{postgresql}\" } }]\n\
            [[series]]\nname = \"t\"\nservers = [\"own\"]";
        Plan::parse(text, "plan", Path::new("/")).unwrap()
    }

    #[test]
    fn a_placeholder_asks_for_a_database() {
        let plan = plan();
        let cells = Cells::of(&plan, &[0], &[]).unwrap().cells;
        let asked: Vec<Vec<DatabaseKind>> = cells
            .iter()
            .map(|cell| {
                let server = &plan.servers[&cell.server];
                let kinds = DatabaseKind::ALL.into_iter();
                kinds.filter(|kind| asks_for(*kind, server, cell)).collect()
            })
            .collect();
        let expected: [&[DatabaseKind]; 4] = [
            &[],
            &[],
            &[DatabaseKind::PostgreSql],
            &[DatabaseKind::MariaDb],
        ];
        assert_eq!(asked, expected);
    }

    #[test]
    fn what_is_not_installed_is_said_for_those_that_ask_for_it() {
        let plan = plan();
        let mut databases = Databases {
            find: |kind| Err(NotInstalled(kind)),
            folder: PathBuf::from("/nowhere"),
            servers: BTreeMap::new(),
        };
        let cells = Cells::of(&plan, &[0], &[]).unwrap().cells;
        let given = cells.iter().map(|cell| {
            let given = databases.give(&plan.servers[&cell.server], cell);
            let count = given.map(|given| given.addresses.len());
            count.map_err(|why| why.to_string())
        });
        let expected = [
            Ok(0),
            Ok(0),
            Err(NotInstalled(DatabaseKind::PostgreSql).to_string()),
            Err(NotInstalled(DatabaseKind::MariaDb).to_string()),
        ];
        assert_eq!(given.collect::<Vec<_>>(), expected);
    }
}
