//! How long the papers take.

use std::path::Path;

use loadline_lab::expand::{OVERHEAD_S, expand};
use loadline_lab::plan::Plan;
use loadline_lab::runner::OwnCapacities;
use loadline_record::report::number::span_s;

use crate::{Grid, PAPERS, Paper, PaperError};

/// P1's long run, which `--full` has apart from all else.
const LONG_RUN: &str = "soak";

/// How long a paper takes with a grid, as far as that is known before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PaperTime {
    /// "P1".
    pub paper: &'static str,
    /// All of its trials, those that measure capacities among them, with what starting and connecting takes.
    pub all_s: f64,
    /// The long run among them.
    pub long_run_s: f64,
}

impl PaperTime {
    /// On two CPUs with every server installed.
    ///
    /// # Errors
    /// The grid asks for what the paper does not have.
    pub fn of(paper: &Paper, grid: &Grid) -> Result<Self, PaperError> {
        let text = grid.plan_text(&paper.text(), paper.name)?;
        Self::of_plan(paper.name, &text)
    }

    pub(crate) fn of_plan(paper: &'static str, text: &str) -> Result<Self, PaperError> {
        let plan = Plan::parse(text, paper, Path::new("."))?;
        let run = expand(&plan, plan.seed, &[0, 1], &[])?;
        let is_long = |series: usize| plan.series[series].name == LONG_RUN;
        let (long, others): (Vec<_>, Vec<_>) = run
            .trials
            .iter()
            .copied()
            .partition(|trial| is_long(run.cell(trial).series));
        let [long_run_s, others_s] =
            [long, others].map(|trials| run.estimate_s(&plan, &trials, OVERHEAD_S));
        let capacities = OwnCapacities::of(&run, plan.seed);
        let capacities_s = capacities.map_or(0.0, |it| it.left_s(&plan, &[], OVERHEAD_S));
        Ok(Self {
            paper,
            all_s: long_run_s + others_s + capacities_s,
            long_run_s,
        })
    }
}

/// All papers with the same grid, in a line.
///
/// # Errors
/// As [`PaperTime::of`].
pub fn sum_said(grid: &Grid) -> Result<String, PaperError> {
    let times = PAPERS.iter().map(|paper| PaperTime::of(paper, grid));
    let times: Vec<PaperTime> = times.collect::<Result<_, _>>()?;
    let sum_s: f64 = times.iter().map(|it| it.all_s).sum();
    let long_s: f64 = times.iter().map(|it| it.long_run_s).sum();
    let each = times
        .iter()
        .map(|it| format!("{} {}", it.paper, span_s(it.all_s.round())));
    Ok(format!(
        "all papers with this grid: about {} ({}), {} of it the long run",
        span_s(sum_s.round()),
        each.collect::<Vec<_>>().join(", "),
        span_s(long_s.round())
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::full;
    use crate::{claims, focused};

    #[test]
    fn all_papers_take_less_than_two_hours_and_in_full_less_than_ten_without_the_long_run() {
        for (grid, most_h) in [(Grid::default(), 2.0), (full(), 10.0)] {
            let times = PAPERS.iter().map(|it| PaperTime::of(it, &grid).unwrap());
            let times: Vec<PaperTime> = times.collect();
            let sum_s: f64 = times.iter().map(|it| it.all_s - it.long_run_s).sum();
            assert!(sum_s < most_h * 3600.0, "{sum_s} s: {times:?}");
            assert!(times[0].long_run_s > 0.0 && times[1].long_run_s == 0.0);
            let said = sum_said(&grid).unwrap();
            assert!(
                said.contains("of it the long run") && said.contains("P5 "),
                "{said}"
            );
        }
    }

    /// Five minutes, unless three blocks take longer; some claims have the same text.
    #[test]
    fn a_claim_by_itself_takes_six_minutes_at_most() {
        for paper in &PAPERS {
            let claims = claims::taken(paper.name);
            for (text, _) in &claims {
                let plan = focused(paper, &Grid::default(), text).unwrap();
                let time = PaperTime::of_plan(paper.name, &plan.text).unwrap();
                let same = claims.iter().filter(|(it, _)| claims::contains(it, text));
                let most_s = 360.0 * same.count() as f64;
                assert!(time.all_s < most_s, "{text}: {time:?}");
            }
        }
    }
}
