//! The comparison as a text for terminals: a table for each load and each quantity that is compared.

use std::fmt::Write as _;

use loadline_base::sorting::sort_by_key;
use loadline_capacity::stats::{Comparison, Difference};
use loadline_lab::goals::{Judged, rows};
use loadline_lab::report::words;

use super::quantity::is_compared;
use super::{Load, Quantity, ServerResult};
use crate::distinct;

/// All loads, and what came of goals.
#[must_use]
pub fn text(loads: &[Load], goals: &[Judged]) -> String {
    let mut text = String::new();
    for load in loads {
        for quantity in quantities(load) {
            if is_compared(&load.series, quantity) {
                one(load, quantity, &mut text);
            }
        }
    }
    if !goals.is_empty() {
        let _ = writeln!(text, "\n{}", table(&rows(goals)));
    }
    text
}

/// Quantities of a load that any server has; a load may be without one of its series'.
pub(super) fn quantities(load: &Load) -> Vec<Quantity> {
    let figures = load.servers.iter().flat_map(|server| &server.figures);
    let there = figures.filter(|figure| figure.value.is_some());
    distinct(there.map(|figure| figure.quantity))
}

/// What servers are compared with in a load, in the order of columns.
pub(super) fn baselines(load: &Load) -> Vec<&str> {
    let figures = load.servers.iter().flat_map(|server| &server.figures);
    let ratios = figures.flat_map(|figure| &figure.ratios);
    let mut found = distinct(ratios.map(|ratio| ratio.to.as_str()));
    // As servers follow each other some lack one that others have.
    sort_by_key(&mut found, |to| match *to {
        "alone" | "one loop" => 0,
        super::BASELINE => 1,
        _ => 2,
    });
    found
}

fn one(load: &Load, quantity: Quantity, text: &mut String) {
    let better = match quantity.is_better_with_more() {
        true => "more",
        false => "less",
    };
    let _ = writeln!(
        text,
        "\n{}: {}, {better} is better",
        load.name,
        quantity.label()
    );
    let baselines = baselines(load);
    let mut rows = vec![vec![String::new(), String::new()]];
    rows[0].extend(baselines.iter().map(|to| format!("x {to}")));
    for server in &load.servers {
        let mut row = vec![server.server.clone(), value(server, quantity)];
        row.extend(baselines.iter().map(|to| {
            let figure = server.figure(quantity);
            let ratio = figure.and_then(|figure| figure.ratio(to));
            ratio.map_or_else(String::new, with_words)
        }));
        rows.push(row);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..rows[0].len()).filter_map(width).collect();
    for row in &rows {
        let mut line = format!("  {:<1$}  {2:>3$}", row[0], widths[0], row[1], widths[1]);
        for (cell, width) in row.iter().zip(&widths).skip(2) {
            let _ = write!(line, "  {cell:<width$}");
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

/// The value with its unit. Where the client was the limit in most trials, it is a bound.
pub(super) fn value(server: &ServerResult, quantity: Quantity) -> String {
    let Some(center) = server.figure(quantity).and_then(|figure| figure.value) else {
        return match server.discarded {
            0 => String::new(),
            _ => "discarded".to_owned(),
        };
    };
    let is_bound = quantity.is_limited_by_clients() && server.client_limited * 2 > server.counted;
    let bound = match (is_bound, quantity.is_better_with_more()) {
        (false, _) => "",
        (true, true) => "≥ ",
        (true, false) => "≤ ",
    };
    format!("{bound}{}", words::value(center, Some(quantity.unit())))
}

fn with_words(comparison: &Comparison) -> String {
    let text = ratio(comparison);
    match comparison.difference {
        Difference::More | Difference::Less => text,
        Difference::Alike => text + " alike",
        Difference::Unknown => text + " ?",
    }
}

/// "1.14 (1.05 to 1.21)".
pub(super) fn ratio(comparison: &Comparison) -> String {
    let mut text = format!("{:.2}", comparison.ratio);
    if let Some(interval) = comparison.interval {
        let _ = write!(text, " ({:.2} to {:.2})", interval.low, interval.high);
    }
    text
}

/// A table of Markdown. The first row is the head; numbers stand to the right.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = match column {
                0 => write!(text, "| {cell:<width$} |"),
                _ => write!(text, " {cell:>width$} |"),
            };
        }
        text.push('\n');
        if index == 0 {
            for (column, width) in widths.iter().enumerate() {
                text += &match column {
                    0 => format!("|{}|", "-".repeat(width + 2)),
                    _ => format!("{}:|", "-".repeat(width + 1)),
                };
            }
            text.push('\n');
        }
    }
    text.trim_end().to_owned()
}
