//! Results as text: the summary, the forms of other tools, and the live view.
//!
//! Everything here is a function of what was measured; nothing is measured or printed here. The
//! forms are explained, with an example of each, in docs/load-output.md.

mod family;
pub mod live;
pub mod number;
mod parts;
pub mod spectrum;
mod summary;
mod table;
mod vegeta;
mod webbench;
mod weighttp;
mod words;
mod wrk2;

use crate::{PhaseRecord, Results, TrialRecord};

pub use words::notes;

/// In which form results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Loadline's own.
    #[default]
    Summary,
    /// As wrk2 with `--latency`.
    Wrk2,
    /// As Webbench 1.5.
    Webbench,
    /// As weighttp.
    Weighttp,
    /// As `vegeta report`.
    Vegeta,
}

impl Style {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Summary,
        Self::Wrk2,
        Self::Webbench,
        Self::Weighttp,
        Self::Vegeta,
    ];

    /// As given to `--style`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Summary => "summary",
            Self::Wrk2 => "wrk2",
            Self::Webbench => "webbench",
            Self::Weighttp => "weighttp",
            Self::Vegeta => "vegeta",
        }
    }
}

/// What text is drawn on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Columns; the forms of other tools pay no heed to it.
    pub width: usize,
    /// Whether it shows more than ASCII.
    pub is_utf8: bool,
}

impl Default for Page {
    fn default() -> Self {
        Self {
            width: 80,
            is_utf8: true,
        }
    }
}

/// Results as text: the rounds of a trial, in order, in the form asked for.
///
/// A form of another tool has one block for each round and counted phase, as if that tool had been
/// run once for each; what it has no place for is in [`notes`].
#[must_use]
pub fn text(rounds: &[TrialRecord], style: Style, page: Page) -> String {
    let block: fn(&Block<'_>) -> String = match style {
        Style::Summary => return summary::text(rounds, page),
        Style::Wrk2 => wrk2::text,
        Style::Webbench => webbench::text,
        Style::Weighttp => weighttp::text,
        Style::Vegeta => vegeta::text,
    };
    let blocks: Vec<String> = rounds
        .iter()
        .flat_map(|record| blocks(record).into_iter().map(|one| block(&one)))
        .collect();
    blocks.join("\n")
}

/// What another tool would have reported as one run.
struct Block<'r> {
    record: &'r TrialRecord,
    results: &'r Results,
    /// How long the threads waited after it for what was still out: nothing is waited for between
    /// steps.
    wait_s: f64,
    /// By second, those that lie wholly in it: complete answers.
    completed: Vec<u64>,
}

fn blocks(record: &TrialRecord) -> Vec<Block<'_>> {
    let Some(group) = record.headline() else {
        return Vec::new();
    };
    let full_seconds = |phase: &PhaseRecord| -> Vec<u64> {
        let inside = |second: u32| {
            let begin_s = f64::from(second);
            // A run is stopped by a clock that is a little late.
            begin_s >= phase.begin_s && begin_s + 1.0 <= phase.end_s + 0.01
        };
        let seconds = group.series.iter().filter(|one| inside(one.second));
        seconds.map(|one| one.completed).collect()
    };
    let counted = || record.phases.iter().filter(|phase| phase.counted);
    let wait_s = record.wait_s();
    if !record.has_steps() {
        return vec![Block {
            record,
            results: &group.total,
            wait_s,
            completed: counted().flat_map(full_seconds).collect(),
        }];
    }
    let phases = record.phases.iter().zip(&group.phases);
    let steps = phases.filter(|(phase, _)| phase.counted);
    // An interrupted run has steps that never began.
    let begun = steps.filter(|(phase, _)| phase.len_s() > 0.0);
    begun
        .map(|(phase, results)| Block {
            record,
            results,
            wait_s: match results.after_end.completed + results.after_end.errors_total() {
                0 => 0.0,
                _ => wait_s,
            },
            completed: full_seconds(phase),
        })
        .collect()
}
