//! The comparison as Markdown: a page of tables, and one table of servers by loads.

use std::fmt::Write as _;

use loadline_lab::analysis::{Run, Unit};
use loadline_lab::goals::rows;
use loadline_lab::report::{Report, shell, words};

use super::quantity::{CPU, CPU_BOTH, GOOD, P99, is_compared};
use super::text::{baselines, quantities, ratio, table, value};
use super::{BASELINE, Load, NAME, Quantity, ServerResult, goals};
use crate::source::{commit, facts, measured_on};

/// What the plan of `loadline lab compare` is about.
const ABOUT: &str = "\
Loadline serves files from a directory, with all of its limits, timers and counters on; the others have \
the best settings found, except `nginx-default`. Rows named ceil-... are bare loops that parse nothing \
and send the same bytes for every request: the cost of the kernel's TCP and one loop. Each trial has a \
fresh server on CPUs of its own and `loadline load` on others; trials of all servers are interleaved in \
blocks, in random order.

";

/// How to read the tables.
const INTRODUCTION: &str = "\
Values are geometric means of trials. *x NAME* is the ratio of the value to that of NAME in the same \
blocks, with its 95 % interval: more requests/s are better, less of everything else. ≥ and ≤: the client \
was the limit, the server may do better, and intervals reach as far as \
the CPU time left room for by estimate ([when the client is the limit](lab.md#when-the-client-is-the-limit)). Configurations \
stand in the run's report.";

/// The page: how to read it, where it was measured and how, a table for each load.
#[must_use]
pub fn page(run: &Run, report: &Report, loads: &[Load]) -> String {
    let about = if run.head.name == NAME { ABOUT } else { "" };
    let mut page = format!("{about}{INTRODUCTION}\n\n{}\n", origin(run, report));
    let mut series = "";
    for load in loads.iter().filter(|load| !load.servers.is_empty()) {
        if load.series != series {
            let title = match load.title.as_str() {
                "" => &load.series,
                title => title,
            };
            let _ = writeln!(page, "\n## {title}");
            series = &load.series;
        }
        if !load.levels.is_empty() {
            let _ = writeln!(page, "\n{}:", words::capital(&load.levels));
        }
        let _ = writeln!(page, "\n{}", of_load(load));
    }
    let goals = goals(run);
    if !goals.is_empty() {
        let _ = writeln!(page, "\n## Goals\n\n{}", table(&rows(&goals)));
    }
    page
}

/// One row for each server, one column for each load that matters most.
#[must_use]
pub fn summary(run: &Run, report: &Report, loads: &[Load]) -> String {
    let find = |name: &str| loads.iter().find(|load| load.name == name);
    let columns: Vec<(&Load, &str, Quantity)> = SUMMARY
        .iter()
        .filter_map(|(name, head, quantity)| Some((find(name)?, *head, *quantity)))
        .collect();
    let mut servers: Vec<&ServerResult> = Vec::new();
    for server in columns.iter().flat_map(|(load, ..)| &load.servers) {
        if !servers.iter().any(|it| it.server == server.server) {
            servers.push(server);
        }
    }
    let mut head = vec!["server CPU us a request".to_owned()];
    head.extend(columns.iter().map(|(_, head, _)| (*head).to_owned()));
    let mut rows = vec![head];
    for server in servers {
        let mut row = vec![match server.is_ours {
            true => format!("**{}**", server.server),
            false => server.server.clone(),
        }];
        row.extend(columns.iter().map(|(load, _, quantity)| {
            let here = load.servers.iter().find(|it| it.server == server.server);
            here.map_or_else(String::new, |it| short(it, *quantity))
        }));
        rows.push(row);
    }
    format!(
        "{}\n\nIn brackets: times nginx-tuned's, in the same blocks. {}",
        table(&rows),
        origin(run, report)
    )
}

/// Loads of the summary: CPU time where the head says nothing else.
const SUMMARY: [(&str, &str, Quantity); 8] = [
    ("small, connections=64", "64 connections", CPU),
    ("small, connections=1000", "1000", CPU),
    ("small, connections=10000", "10,000", CPU),
    (
        "new-connections, connections=64",
        "new connection each",
        CPU,
    ),
    ("large, connections=64", "1 MiB: requests/s", GOOD),
    ("large, connections=64", "server + client us", CPU_BOTH),
    (
        "idle, idle_connections=10000",
        "bytes an idle connection",
        Quantity::IdleBytes,
    ),
    ("rate, rate_per_s=30000", "p99 us at 30,000/s", P99),
];

/// "7.86 (0.91)": the unit is said above.
fn short(server: &ServerResult, quantity: Quantity) -> String {
    let Some(figure) = server.figure(quantity) else {
        return String::new();
    };
    let Some(center) = figure.value else {
        return value(server, quantity); // discarded
    };
    let number = match quantity.unit() {
        Unit::Microseconds if center < 100.0 => format!("{center:.2}"),
        _ => format!("{center:.0}"),
    };
    match figure.ratio(BASELINE) {
        Some(comparison) => format!("{number} ({:.2})", comparison.ratio),
        None => number,
    }
}

/// Machine, versions, commit and command.
fn origin(run: &Run, report: &Report) -> String {
    let facts = facts(run, report);
    let commit = measured_on(&commit(run));
    let command = shell(&report.environment.command);
    format!("{facts}{commit} `{command}`")
}

/// Servers by quantities, each that is compared with its ratios.
fn of_load(load: &Load) -> String {
    let baselines = baselines(load);
    let mut rows = vec![vec!["server".to_owned()]];
    let has_discarded = load.servers.iter().any(|server| server.discarded > 0);
    for quantity in quantities(load) {
        rows[0].push(quantity.label().to_owned());
        if is_compared(&load.series, quantity) {
            rows[0].extend(baselines.iter().map(|to| format!("x {to}")));
        }
    }
    rows[0].extend(has_discarded.then(|| "discarded trials".to_owned()));
    for server in &load.servers {
        let mut row = vec![server.server.clone()];
        for quantity in quantities(load) {
            row.push(value(server, quantity));
            if is_compared(&load.series, quantity) {
                let figure = server.figure(quantity);
                let of = |to: &&str| figure.and_then(|it| it.ratio(to));
                row.extend(
                    baselines
                        .iter()
                        .map(|to| of(to).map_or_else(String::new, ratio)),
                );
            }
        }
        row.extend(has_discarded.then(|| server.discarded.to_string()));
        rows.push(row);
    }
    table(&rows)
}
