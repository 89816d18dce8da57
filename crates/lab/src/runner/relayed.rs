//! A relay as the runner sees it: a process that ends with the trial, and with the runner.

use std::io::{BufRead as _, BufReader};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use loadline_record::from_json;
use loadline_sys::{process, wait_readable};

use super::child::THIS_PROGRAM;
use super::namespaces::Namespaces;
use super::report::RelayReport;
use crate::cells::cpus_text;
use crate::journal::LinkFacts;
use crate::link::LinkSpec;
use crate::plan::Placement;

/// How long a relay may take to begin and to end, on a machine that is busy.
const REPORTS_WITHIN_MS: u64 = 20_000;

/// Killed when dropped.
#[derive(Debug)]
pub(super) struct Relayed {
    relay: Child,
    /// Its end is an order to end.
    orders: Option<ChildStdin>,
    reports: BufReader<ChildStdout>,
    pub(super) server: Namespaces,
    pub(super) client: Namespaces,
}

impl Relayed {
    /// Starts one for a trial.
    pub(super) fn start(link: &LinkSpec, seed: u64, placement: &Placement) -> Result<Self, String> {
        let mut command = Command::new(THIS_PROGRAM);
        command
            .args(["lab", "relay", &link.to_string()])
            .arg(format!("--seed={seed}"))
            .arg(format!("--server-cpus={}", cpus_text(&placement.server)))
            .arg(format!("--client-cpus={}", cpus_text(&placement.client)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0); // an interruption from the terminal goes to the runner alone
        process::die_with_parent(&mut command);
        let cannot =
            |error: &dyn std::fmt::Display| format!("its relay cannot be started: {error}");
        let mut relay = command.spawn().map_err(|error| cannot(&error))?;
        let orders = relay.stdin.take();
        let reports = relay.stdout.take();
        let reports = reports.ok_or_else(|| cannot(&"no standard output"))?;
        let nowhere = Namespaces {
            network: PathBuf::new(),
            user: None,
        };
        let mut relayed = Self {
            relay,
            orders,
            reports: BufReader::new(reports),
            server: nowhere.clone(),
            client: nowhere,
        };
        relayed.wait_until_ready()?;
        Ok(relayed)
    }

    fn wait_until_ready(&mut self) -> Result<(), String> {
        let (has_own_user, server, client) = match self.report()? {
            RelayReport::Ready {
                has_own_user,
                server,
                client,
            } => (has_own_user, server, client),
            RelayReport::Failed(why) => return Err(why),
            RelayReport::Ended(_) => return Err("its relay has ended".to_owned()),
        };
        let folder = PathBuf::from(format!("/proc/{}", self.relay.id()));
        let of = |descriptor: i32| Namespaces {
            network: folder.join("fd").join(descriptor.to_string()),
            user: has_own_user.then(|| folder.join("ns/user")),
        };
        (self.server, self.client) = (of(server), of(client));
        Ok(())
    }

    fn report(&mut self) -> Result<RelayReport, String> {
        let nothing = || "its relay does not report".to_owned();
        let readable = wait_readable(&[self.reports.get_ref().as_fd()], Some(REPORTS_WITHIN_MS));
        let mut line = String::new();
        match readable {
            Ok([true]) => _ = self.reports.read_line(&mut line).map_err(|_| nothing())?,
            _ => return Err(nothing()),
        }
        if line.is_empty() {
            return Err("its relay has ended".to_owned());
        }
        from_json(line.as_bytes()).map_err(|error| format!("its relay reports {line:?}: {error}"))
    }

    /// Ends it. Returns what it has carried.
    pub(super) fn stop(mut self) -> Result<LinkFacts, String> {
        drop(self.orders.take());
        match self.report()? {
            RelayReport::Ended(facts) => Ok(facts),
            RelayReport::Failed(why) => Err(why),
            RelayReport::Ready { .. } => Err("its relay reports twice that it is ready".to_owned()),
        }
    }
}

impl Drop for Relayed {
    fn drop(&mut self) {
        let _ = self.relay.kill(); // it may have ended
        let _ = self.relay.wait();
    }
}
