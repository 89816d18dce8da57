//! Which series of a paper are measured together, and how long each part takes.

use loadline_record::report::number::span_s;

use super::{in_full, series_of};
use crate::error::GridError;
use crate::{Grid, Paper, PaperError, PaperTime, claims};

/// The series of a paper in full, with those in one group that a claim takes together: they are to be of
/// the same machine and hour.
pub(super) fn together(paper: &Paper) -> Result<Vec<Vec<String>>, PaperError> {
    let plan = in_full().plan_text(&paper.text(), paper.name)?;
    let series = series_of(&plan).map_err(|problem| failed(paper, problem))?;
    let mut groups: Vec<Vec<String>> = series.into_iter().map(|name| vec![name]).collect();
    for (_, taken) in claims::taken(paper.name) {
        let is_taken = |name: &String| taken.iter().any(|one| one.series() == name);
        let places = groups.iter().enumerate();
        let places = places.filter(|(_, group)| group.iter().any(is_taken));
        let places: Vec<usize> = places.map(|(place, _)| place).collect();
        let [first, others @ ..] = places.as_slice() else {
            continue;
        };
        for other in others.iter().rev() {
            let more = groups.remove(*other);
            groups[*first].extend(more);
        }
    }
    Ok(groups)
}

/// Refuses to measure some series by themselves, if a claim takes one of them together with another one.
/// None: all are measured.
///
/// # Errors
/// What would be right.
pub fn check_whole(paper: &Paper, only: &[String]) -> Result<(), PaperError> {
    for group in together(paper)? {
        let count = group.iter().filter(|name| only.contains(name)).count();
        if count > 0 && count < group.len() {
            let problem = GridError::Split(group.join(" and "), group.join(","));
            return Err(failed(paper, problem));
        }
    }
    Ok(())
}

/// How long each part takes that can be measured by itself, in a line.
///
/// # Errors
/// The plan cannot be read.
pub fn parts_said(paper: &Paper) -> Result<String, PaperError> {
    let mut said = Vec::new();
    for group in together(paper)? {
        let name = group.join(",");
        let time = PaperTime::of(paper, &of_part(group))?;
        said.push(format!("{name} {}", span_s(time.all_s.round())));
    }
    Ok(format!("parts of {}: {}", paper.name, said.join("; ")))
}

/// These series in full.
pub(super) fn of_part(series: Vec<String>) -> Grid {
    Grid {
        only: series,
        ..in_full()
    }
}

fn failed(paper: &Paper, problem: GridError) -> PaperError {
    PaperError::Plan {
        file: paper.name.to_owned(),
        problem,
    }
}
