//! Several runs on one page of Markdown: the pictures of each, its claims with their verdicts, where it
//! was measured, and how to repeat it.

mod decided;
pub(crate) mod open;
mod paragraph;
mod pictures;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use loadline_lab::analysis::Run;
use loadline_lab::report::{Report, Verdict};

pub use pictures::Picture;

use crate::PaperError;
use crate::claims::{self, ClaimRow};
use crate::kept::Kept;
use crate::source::Source;

/// A run on the page.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its report.
    pub report: Report,
    /// What is drawn of it.
    pub pictures: Vec<Picture>,
    /// Figures of its paper that are not drawn, with why.
    pub left_out: Vec<String>,
    /// What else was measured, in Markdown.
    open: String,
    /// What is said of each claim beside what was measured.
    notes: &'static [ClaimRow],
    /// Whether it is of the whole grid, which may be published, or of no paper.
    is_full: bool,
    /// The runs that it is made of.
    sources: Vec<Source>,
}

impl Entry {
    /// Of a run and its report.
    #[must_use]
    pub fn new(run: &Run, report: Report) -> Self {
        let (pictures, left_out) = pictures::of(run, &report);
        let command = &report.environment.command;
        Self {
            is_full: report.claims.is_empty() || command.iter().any(|word| word == "--full"),
            sources: vec![Source::new(run, &report)],
            report,
            pictures,
            left_out,
            open: open::of(run),
            notes: claims::of_paper(&run.head.name),
        }
    }

    /// Of what was kept of a paper, as a run and its report.
    ///
    /// # Errors
    /// Its plan cannot be read.
    pub fn of_kept(kept: &Kept, run: &Run, report: Report) -> Result<Self, PaperError> {
        Ok(Self {
            is_full: true,
            sources: kept.sources()?,
            ..Self::new(run, report)
        })
    }
}

/// What stands before the runs.
const INTRODUCTION: &str = "\
Written by `./x bench papers --full`; each run's own report has everything that was measured. A claim is \
*reproduced* if the whole measured interval is on its side of the bound, *not reproduced* if the whole \
interval is on the other side, and *not testable here* if this machine or this run cannot decide it, with \
the limit that prevents it. Absolute rates of another machine, and numbers of another tool or of conditions \
that the paper does not name, are *not comparable*: the measured value stands beside them, with the reason. \
[How claims are judged](papers.md#claims). Hollow marks in charts are trials whose client was the limit: the \
server may carry more \
([when the client is the limit](lab.md#when-the-client-is-the-limit)).";

/// The same where it is no page of the documents.
const INTRODUCTION_OF_REDUCED: &str = "\
Written by `./x bench papers`, of reduced grids: fewer cells, shorter trials and fewer blocks than \
`./x bench papers --full` has, which writes docs/papers-results.md. How claims are judged is in docs/papers.md.";

/// The page. `folder` is where its pictures are, as it refers to them.
#[must_use]
pub fn page(title: &str, folder: &str, entries: &[Entry]) -> String {
    let is_full = entries.iter().all(|entry| entry.is_full);
    let introduction = match is_full {
        true => INTRODUCTION,
        false => INTRODUCTION_OF_REDUCED,
    };
    let mut page = format!("# {title}\n\n{introduction}\n");
    if entries.len() > 1 {
        let _ = write!(page, "\n{}", summary(entries));
        let claims = entries.iter().flat_map(|entry| &entry.report.claims);
        let decided = decided::decided(claims.map(|claim| claim.verdict));
        if !decided.is_empty() {
            let _ = writeln!(page, "\n{decided}");
        }
    }
    if !is_full {
        left_undecided(entries, &mut page);
    }
    for entry in entries {
        section(entry, folder, &mut page);
    }
    page
}

/// What reduced grids leave to full ones.
fn left_undecided(entries: &[Entry], page: &mut String) {
    let reduced = entries.iter().filter(|entry| !entry.is_full);
    let lines = reduced.filter_map(|Entry { report, notes, .. }| {
        let open = paragraph::open(&report.claims, notes);
        let (name, count) = (&report.name, open.len());
        (count > 0).then(|| {
            let all = report.claims.len();
            format!("- {name}, {count} of {all} claims: {}.", open.join("; "))
        })
    });
    let lines: Vec<String> = lines.collect();
    if !lines.is_empty() {
        let heading = "## What the reduced grids leave undecided";
        let _ = write!(page, "\n{heading}\n\n{}\n", lines.join("\n"));
    }
}

/// How many claims of each run came out how.
#[must_use]
pub fn summary(entries: &[Entry]) -> String {
    let mut table = "| | reproduced | not reproduced | not testable here | not comparable | trials | discarded | discarded in times alone |\n\
                     |---|---:|---:|---:|---:|---:|---:|---:|\n"
        .to_owned();
    for Entry { report, .. } in entries {
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            cell(&heading(report)),
            count(report, Verdict::Reproduced),
            count(report, Verdict::NotReproduced),
            count(report, Verdict::NotTestable),
            count(report, Verdict::NotComparable),
            report.trials_counted + report.discarded.len(),
            report.discarded.len(),
            report.times_discarded.len()
        );
    }
    table
}

/// How many claims came out so.
fn count(report: &Report, verdict: Verdict) -> usize {
    let claims = report.claims.iter();
    claims.filter(|claim| claim.verdict == verdict).count()
}

fn heading(report: &Report) -> String {
    format!("{}: {}", report.name, lower(&report.title))
}

fn section(entry: &Entry, folder: &str, page: &mut String) {
    let report = &entry.report;
    let _ = writeln!(page, "\n## {}\n", heading(report));
    match paragraph::of(&report.claims, entry.notes) {
        text if text.is_empty() => _ = writeln!(page, "{}\n", report.answer),
        text => _ = writeln!(page, "{text}\n"),
    }
    for picture in &entry.pictures {
        picture.write(folder, page);
    }
    if !entry.left_out.is_empty() {
        let _ = writeln!(page, "Not drawn: {}.\n", entry.left_out.join("; "));
    }
    table_of_claims(entry, page);
    page.push_str(&entry.open);
    for source in &entry.sources {
        let _ = writeln!(page, "{}\n", source.facts);
    }
    page.push_str("```console\n");
    for source in &entry.sources {
        let _ = writeln!(page, "$ {}", source.command);
    }
    page.push_str("```\n");
}

fn table_of_claims(Entry { report, notes, .. }: &Entry, page: &mut String) {
    if report.claims.is_empty() {
        return;
    }
    *page +=
        "| claim | source | published | verdict | what was measured |\n|---|---|---|---|---|\n";
    let decided_by = paragraph::decided_by(&report.claims, notes);
    for (claim, decided_by) in report.claims.iter().zip(decided_by) {
        let verdict = match claim.verdict {
            Verdict::Reproduced => "**reproduced**",
            Verdict::NotReproduced => "**not reproduced**",
            Verdict::NotTestable => "not testable here",
            Verdict::NotComparable => "not comparable",
        };
        let _ = writeln!(
            page,
            "| {} | {} | {} | {verdict} | {} |",
            cell(&claim.text),
            cell(&claim.source),
            cell(&claim.published),
            cell(&format!("{}{decided_by}", claim.why))
        );
    }
    page.push('\n');
}

fn lower(title: &str) -> String {
    let mut letters = title.chars();
    // "P1", not "pP": names of papers stay as they are.
    match (letters.next(), title.chars().nth(1)) {
        (Some(first), Some(second)) if second.is_lowercase() || second == ' ' => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => title.to_owned(),
    }
}

/// A text as a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
