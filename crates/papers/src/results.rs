//! Several runs on one page of Markdown: the headline chart of each, its claims with their verdicts,
//! where it was measured, and how to repeat it.

use std::fmt::Write as _;

use loadline_lab::report::{Figure, Report, Verdict, shell};

/// A run on the page.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'r> {
    /// Its report.
    pub report: &'r Report,
    /// The picture of its first chart, as the page refers to it; `None`: it has none.
    pub picture: Option<&'r str>,
}

/// What stands before the runs.
const INTRODUCTION: &str = "\
Written by `./x bench papers`; each run's own report has everything that was measured. A claim is \
*reproduced* if the whole measured interval is on its side of the bound, *not reproduced* if the whole \
interval is on the other side, and *not testable here* if this machine or this run cannot decide it, with \
the limit that prevents it. Absolute rates of another machine are *not comparable*: the measured value \
stands beside them. [How claims are judged](papers.md#claims). Hollow marks in charts are trials \
whose client was the limit: the server may carry more \
([when the client is the limit](lab.md#when-the-client-is-the-limit)).";

/// The headline of a report: the first of its charts that is one.
#[must_use]
pub fn headline(report: &Report) -> Option<&Figure> {
    report.figures.first()
}

/// The page.
#[must_use]
pub fn page(title: &str, entries: &[Entry<'_>]) -> String {
    let mut page = format!("# {title}\n\n{INTRODUCTION}\n");
    if entries.len() > 1 {
        let _ = write!(page, "\n{}", summary(entries));
    }
    for entry in entries {
        section(entry, &mut page);
    }
    page
}

/// How many claims of each run came out how.
#[must_use]
pub fn summary(entries: &[Entry<'_>]) -> String {
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

fn section(entry: &Entry<'_>, page: &mut String) {
    let report = entry.report;
    let _ = writeln!(page, "\n## {}\n", heading(report));
    if let (Some(picture), Some(figure)) = (entry.picture, headline(report)) {
        let _ = writeln!(page, "![{}]({picture})\n", alternative(figure));
        if !figure.note.is_empty() {
            let _ = writeln!(page, "{}\n", figure.note);
        }
    }
    let _ = writeln!(page, "{}\n", report.answer);
    claims(report, page);
    let _ = writeln!(page, "{}\n", facts(report));
    let _ = writeln!(
        page,
        "```console\n$ {}\n```",
        shell(&repeated(&report.environment.command))
    );
}

/// The command that repeats a run anywhere: where the program lay, and where the results went, is of
/// the machine that it was run on.
fn repeated(command: &[String]) -> Vec<String> {
    let mut words = command.iter();
    let program = words.next().and_then(|path| path.rsplit('/').next());
    let mut kept: Vec<String> = program.map(str::to_owned).into_iter().collect();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--out" => _ = words.next(),
            word if word.starts_with("--out=") => {}
            word => kept.push(word.to_owned()),
        }
    }
    kept
}

fn claims(report: &Report, page: &mut String) {
    if report.claims.is_empty() {
        return;
    }
    *page +=
        "| claim | source | published | verdict | what was measured |\n|---|---|---|---|---|\n";
    for claim in &report.claims {
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
            cell(&claim.why)
        );
    }
    page.push('\n');
}

/// The machine, and how much was measured, in a sentence or two.
pub(crate) fn facts(report: &Report) -> String {
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
    format!(
        "{} on {} CPUs of {}, Linux {}, congestion control {}, Loadline {}; server | client on CPUs {}. {} \
         trials in {}, {} of them discarded{late}{repeated}.",
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

/// What a picture shows, for those who do not see it.
fn alternative(figure: &Figure) -> String {
    let text = format!("{}. {}", figure.title, figure.finding);
    text.replace(['[', ']'], "").replace('\n', " ")
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

#[cfg(test)]
mod tests {
    use super::*;
    use loadline_lab::plan::{ChartKind, Spread};
    use loadline_lab::report::{Axis, Claim, Fact};

    fn report() -> Report {
        let claim = |verdict, text: &str| Claim {
            paper: "P1".to_owned(),
            text: text.to_owned(),
            source: "Fig. 20".to_owned(),
            published: "3".to_owned(),
            verdict,
            why: "a | b: 3.4".to_owned(),
            interval: None,
        };
        let mut report = Report {
            name: "P1".to_owned(),
            title: "Reactor models under load?".to_owned(),
            answer: "Most: 48,210/s.".to_owned(),
            figures: vec![],
            claims: vec![
                claim(Verdict::Reproduced, "Throughput falls."),
                claim(Verdict::NotTestable, "More help."),
                claim(Verdict::NotComparable, "It answers 5 a second."),
            ],
            trials_counted: 9,
            ..Report::default()
        };
        report.environment.command = [
            "target/release/loadline",
            "lab",
            "paper",
            "P1",
            "--out",
            "elsewhere/P1",
        ]
        .map(str::to_owned)
        .into();
        report.environment.facts = vec![Fact {
            name: "Processor".to_owned(),
            value: "AMD EPYC".to_owned(),
        }];
        report
    }

    #[test]
    fn each_run_has_its_claims_its_machine_and_its_command() {
        let report = report();
        let entry = Entry {
            report: &report,
            picture: None,
        };
        let one = page("The five papers", &[entry]);
        assert!(one.starts_with("# The five papers\n\nWritten by `./x bench papers`"));
        for part in [
            "## P1: reactor models under load?\n\nMost: 48,210/s.",
            "| Throughput falls. | Fig. 20 | 3 | **reproduced** | a \\| b: 3.4 |",
            "| More help. | Fig. 20 | 3 | not testable here |",
            "| It answers 5 a second. | Fig. 20 | 3 | not comparable |",
            "AMD EPYC",
            "9 trials in ",
            "```console\n$ loadline lab paper P1\n```",
        ] {
            assert!(one.contains(part), "{part}: {one}");
        }
        let mut drawn = report.clone();
        drawn.figures = vec![Figure {
            id: "models".to_owned(),
            kind: ChartKind::default(),
            spread: Spread::default(),
            series: "models".to_owned(),
            title: "Three models".to_owned(),
            note: "Fig. 25. Its points are lost.".to_owned(),
            finding: String::new(),
            x: Axis::default(),
            y: None,
            value: Axis::default(),
            legend: Vec::new(),
            panels: Vec::new(),
            scaling: Vec::new(),
        }];
        let entry_drawn = Entry {
            report: &drawn,
            picture: Some("papers-results/P1.svg"),
        };
        let with_picture = page("The five papers", &[entry_drawn]);
        let note = "(papers-results/P1.svg)\n\nFig. 25. Its points are lost.\n\nMost: ";
        assert!(with_picture.contains(note), "{with_picture}");
        let two = page("The five papers", &[entry, entry]);
        assert!(
            two.contains("| P1: reactor models under load? | 1 | 0 | 1 | 1 | 9 | 0 |"),
            "{two}"
        );
    }
}
