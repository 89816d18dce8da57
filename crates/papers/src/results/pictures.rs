//! The pictures of a run, as files beside the page.

use std::fmt::Write as _;

use loadline_lab::analysis::Run;
use loadline_lab::report::{Report, Verdict, svg, words};

use crate::figures;

/// One of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// Its name in the folder.
    pub file: String,
    /// What is in the file.
    pub svg: String,
    /// What stands above it on the page; may be empty.
    pub heading: String,
    /// What it shows, for those who do not see it.
    pub alternative: String,
    /// What stands below it on the page; may be empty.
    pub note: String,
    /// Whether the page has a link in its place: it is long, and few ask for it.
    pub is_linked: bool,
}

impl Picture {
    /// The picture and its note, in Markdown.
    pub(super) fn write(&self, folder: &str, page: &mut String) {
        if self.is_linked {
            let _ = writeln!(page, "[{}]({folder}/{}).\n", self.heading, self.file);
        } else {
            let alternative = self.alternative.replace(['[', ']'], "").replace('\n', " ");
            if !self.heading.is_empty() {
                let _ = writeln!(page, "### {}\n", self.heading);
            }
            let _ = writeln!(page, "![{alternative}]({folder}/{})\n", self.file);
        }
        if !self.note.is_empty() {
            let _ = writeln!(page, "{}\n", self.note);
        }
    }
}

/// The claims as a forest plot, and the figures of the paper, with those that are not drawn. A run of no
/// paper has its first chart instead.
pub(super) fn of(run: &Run, report: &Report) -> (Vec<Picture>, Vec<String>) {
    let name = slug(&report.name);
    let mut pictures: Vec<Picture> = forest(report, &name).into_iter().collect();
    let mut left_out = Vec::new();
    for figure in figures::of(run) {
        match figure {
            Ok(figure) => pictures.push(Picture {
                file: format!("{name}-{}.svg", words::slug(&figure.name)),
                alternative: format!("{}. {}", figure.title, figure.finding),
                heading: figure.title,
                svg: figure.svg,
                note: figure.note,
                is_linked: figure.is_linked,
            }),
            Err(why) => left_out.push(why),
        }
    }
    let has_figures = pictures.iter().any(|picture| !picture.heading.is_empty());
    if let (false, Some(figure)) = (has_figures, report.figures.first()) {
        let headline = Picture {
            file: format!("{name}.svg"),
            svg: svg::draw(figure),
            heading: String::new(),
            alternative: format!("{}. {}", figure.title, figure.finding),
            note: figure.note.clone(),
            is_linked: false,
        };
        pictures.insert(0, headline);
    }
    (pictures, left_out)
}

fn forest(report: &Report, name: &str) -> Option<Picture> {
    if report.claims.is_empty() {
        return None;
    }
    let title = format!("{}: what was claimed, and what was measured", report.name);
    Some(Picture {
        file: format!("{name}-claims.svg"),
        heading: String::new(),
        svg: svg::forest(&title, &report.claims),
        alternative: format!(
            "{title}: {}. The table below has the numbers.",
            tally(report)
        ),
        note: String::new(),
        is_linked: false,
    })
}

/// "2 reproduced, 1 not reproduced".
fn tally(report: &Report) -> String {
    let verdicts = Verdict::ALL.iter().filter_map(|verdict| {
        let count = super::count(report, *verdict);
        (count > 0).then(|| format!("{count} {}", verdict.label().to_lowercase()))
    });
    verdicts.collect::<Vec<_>>().join(", ")
}

/// Fit for a file name and for a link.
fn slug(name: &str) -> String {
    let fit = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    name.chars().map(fit).collect()
}
