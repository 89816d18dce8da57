//! Goals of a plan, judged by the trials of a run: whether the middle of what was measured is within
//! its bound.

use std::collections::BTreeMap;

use loadline_base::sorting::to_map;
use serde::Serialize;

use crate::analysis::{self, Cell, Measured, Metric, Run};
use crate::plan::{Bound, CellLevels, Goal};
use crate::report::words;
use loadline_capacity::stats::{self, Interval, Range};

/// What came of a goal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// What it says, in words.
    pub name: String,
    /// "at least 0.95", "at most 20 MiB".
    pub bound: String,
    /// The geometric mean of the trials, or of the ratios within the same blocks; `None`: not measured.
    pub value: Option<f64>,
    /// Its interval, from two trials on.
    pub interval: Option<Interval>,
    /// The value and its interval in words, with the unit; empty: not measured.
    pub measured: String,
    /// Whether the value is within the bound; `None`: not measured.
    pub is_met: Option<bool>,
}

/// All goals, in the order of the plan.
#[must_use]
pub fn judged(run: &Run, goals: &[Goal]) -> Vec<Judged> {
    let cells = analysis::cells(run);
    goals.iter().map(|goal| judge(goal, &cells)).collect()
}

/// Their rows for a table, with its head.
#[must_use]
pub fn rows(judged: &[Judged]) -> Vec<Vec<String>> {
    let head = ["goal", "bound", "measured (95 % interval)", "verdict"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(judged.iter().map(|one| {
        let verdict = match one.is_met {
            Some(true) => "met",
            Some(false) => "**not met**",
            None => "not measured",
        };
        let [name, bound, measured] = [&one.name, &one.bound, &one.measured].map(String::clone);
        vec![name, bound, measured, verdict.to_owned()]
    }));
    rows
}

fn judge(goal: &Goal, cells: &[Cell<'_>]) -> Judged {
    let of = values(&goal.of, goal.metric, cells);
    let (value, interval) = match &goal.over {
        None => {
            let values: Vec<f64> = of.values().map(|range| range.value).collect();
            stats::center(&values, stats::LEVEL).unzip()
        }
        Some(over) => {
            let over = values(over, goal.metric, cells);
            let ratios: Vec<Range> = (of.iter())
                .filter_map(|(block, range)| Some(range.over(over.get(block)?)))
                .collect();
            let found = stats::compare_ranges(&ratios, 0.0);
            found.map(|it| (it.ratio, it.interval)).unzip()
        }
    };
    let interval = interval.flatten();
    let number = |value: f64| match goal.over {
        Some(_) => words::digits(value, 4),
        None => words::value(value, Some(goal.metric.unit())),
    };
    let measured = value.map_or_else(String::new, |value| match &interval {
        Some(it) => {
            let [value, low, high] = [value, it.low, it.high].map(number);
            format!("{value} ({low} to {high})")
        }
        None => number(value),
    });
    let bound = match goal.bound {
        Bound::AtLeast(least) => format!("at least {}", number(least)),
        Bound::AtMost(most) => format!("at most {}", number(most)),
    };
    Judged {
        name: goal.name.clone(),
        bound,
        measured,
        is_met: value.map(|value| goal.bound.is_met_by(value)),
        value,
        interval,
    }
}

/// Of the one cell that has these levels, by block; none, if there is no such cell, or several.
fn values(of: &CellLevels, metric: Metric, cells: &[Cell<'_>]) -> BTreeMap<u32, Range> {
    let is_it = |cell: &&Cell<'_>| {
        let mut levels = of.levels.iter();
        cell.series == of.series && levels.all(|(name, level)| cell.levels.get(name) == Some(level))
    };
    let mut found = cells.iter().filter(is_it);
    let (Some(cell), None) = (found.next(), found.next()) else {
        return BTreeMap::new();
    };
    // Errors discard a trial: a bound on them is a bound on those trials, too.
    let (discarded, value): (_, fn(&Measured, Metric) -> Option<Range>) = match metric {
        Metric::ErrorShare => (cell.discarded.as_slice(), |trial, metric| {
            trial.measured(metric).map(Range::exact)
        }),
        _ => (&[][..], Measured::range),
    };
    let trials = cell.counted.iter().chain(discarded);
    to_map(trials.filter_map(|trial| Some((trial.block, value(trial, metric)?))))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::journal::Level;
    use crate::plan::Plan;

    const PLAN: &str = "name = \"t\"\n[servers.one]\nkind = \"loadline\"\n[servers.two]\n\
        kind = \"loadline\"\n[[series]]\nname = \"s\"\nfactors = { connections = [1, 2] }\n\
        [[series]]\nname = \"other\"\n";

    fn goals(text: &str) -> Result<Vec<Goal>, String> {
        let plan = Plan::parse(&format!("{PLAN}{text}"), "plan", Path::new("/"));
        let plan = plan.map_err(|error| error.to_string());
        plan.map(|plan| plan.goals)
    }

    /// In each block the first server has so much, and the second 1000.
    fn run(metric: Metric, values: &[f64]) -> Run {
        let mut run = Run::default();
        for (block, value) in (0..).zip(values) {
            for (server, value) in [("one", *value), ("two", 1000.0)] {
                let server = ("server".to_owned(), Level::from(server));
                let connections = ("connections".to_owned(), Level::Number(1.0));
                for (series, levels) in [
                    ("s", [server.clone(), connections].into()),
                    ("other", [server].into()),
                ] {
                    run.trials.push(Measured {
                        series: series.to_owned(),
                        block,
                        levels,
                        values: [(metric, value)].into(),
                        ..Measured::default()
                    });
                }
            }
        }
        run
    }

    #[test]
    fn a_goal_is_judged_by_the_middle_of_its_blocks() {
        let goals = goals(
            "[[goal]]\nname = \"ratio\"\nseries = \"s\"\nmetric = \"good_per_s\"\n\
             of = { server = \"one\" }\nover = { server = \"two\" }\nat_least = 0.95\n\
             [[goal]]\nname = \"series\"\nseries = \"s\"\nmetric = \"good_per_s\"\n\
             of = { server = \"one\", connections = 1 }\nover_series = \"other\"\n\
             over = { server = \"two\" }\nat_most = 0.95\n\
             [[goal]]\nname = \"amount\"\nseries = \"s\"\nmetric = \"good_per_s\"\n\
             of = { server = \"one\" }\nat_most = 1100\n\
             [[goal]]\nname = \"nowhere\"\nseries = \"s\"\nmetric = \"good_per_s\"\n\
             of = { server = \"one\", connections = 2 }\nat_most = 1\n\
             [[goal]]\nname = \"any\"\nseries = \"s\"\nmetric = \"good_per_s\"\nof = {}\nat_most = 1",
        )
        .unwrap();
        let judged = judged(&run(Metric::GoodPerS, &[900.0, 1100.0]), &goals);
        let verdicts: Vec<Option<bool>> = judged.iter().map(|it| it.is_met).collect();
        // No trial has 2 connections, and several cells are no one's.
        assert_eq!(verdicts, [Some(true), Some(false), Some(true), None, None]);
        let ratio = (0.9_f64 * 1.1).sqrt();
        assert!((judged[0].value.unwrap() - ratio).abs() < 1e-9);
        assert!((judged[2].value.unwrap() - 1000.0 * ratio).abs() < 1e-6);
        assert!(judged[0].interval.unwrap().contains(1.0));
        let rows = rows(&judged);
        assert_eq!(rows[1][..2], ["ratio", "at least 0.95"]);
        assert!(rows[1][2].starts_with("0.995 ("), "{rows:?}");
        assert_eq!(rows[2][3], "**not met**");
        assert_eq!(rows[3][1], "at most 1,100/s");
        assert_eq!(rows[4][2..], ["", "not measured"]);
    }

    #[test]
    fn a_goal_of_several_levels_is_one_for_each() {
        let text = "[[goal]]\nname = \"{server} with {connections}\"\nseries = \"s\"\n\
                    metric = \"good_per_s\"\nat_least = 950\n\
                    of = { server = [\"one\", \"two\"], connections = 1 }";
        let judged = judged(&run(Metric::GoodPerS, &[900.0]), &goals(text).unwrap());
        let found: Vec<_> = judged.iter().map(|it| (&*it.name, it.is_met)).collect();
        assert_eq!(
            found,
            [("one with 1", Some(false)), ("two with 1", Some(true))]
        );
    }

    #[test]
    fn errors_of_discarded_trials_count_against_a_goal() {
        let goals = goals(
            "[[goal]]\nname = \"none\"\nseries = \"s\"\nmetric = \"error_share\"\n\
             of = { server = \"one\" }\nat_most = 0",
        )
        .unwrap();
        let mut run = run(Metric::ErrorShare, &[0.0, 0.0, 0.0]);
        assert_eq!(judged(&run, &goals)[0].is_met, Some(true));
        let one = run.trials.iter_mut().find(|trial| trial.series == "s");
        let one = one.unwrap();
        one.values.insert(Metric::ErrorShare, 0.1);
        one.discarded = vec!["errors".to_owned()];
        assert_eq!(judged(&run, &goals)[0].is_met, Some(false));
    }

    #[test]
    fn factors_of_every_series_of_a_name_are_known() {
        let series = "[[series]]\nname = \"s\"\nservers = [\"one\"]\nfactors = { loops = [3] }\n";
        let goal = "[[goal]]\nname = \"g\"\nseries = \"s\"\nmetric = \"good_per_s\"\nat_most = 1\n";
        let found = goals(&format!("{series}{goal}of = {{ loops = 3 }}")).unwrap();
        assert_eq!(found[0].of.levels["loops"], Level::Number(3.0));
    }

    #[test]
    fn what_a_goal_names_has_to_be_there() {
        let goal = "[[goal]]\nname = \"g\"\nmetric = \"good_per_s\"\n";
        // A goal's lines, parted by "; ", and a part of the message.
        let table = r#"
            series = "x"; of = {}; at_most = 1 => no series `x`
            series = "s"; of = { loops = 1 }; at_most = 1 => has no factor `loops`
            series = "s"; of = {} => right would be one bound
            series = "s"; of = {}; at_most = 1; at_least = 1 => right would be one bound
            series = "s"; of = { connections = [1, 2] }; at_most = 1 => a name with {connections} in it
            series = "s"; of = {}; at_most = 1; over_series = "s" => over_series goes with"#;
        for row in table.lines().skip(1) {
            let (rest, why) = row.trim().split_once(" => ").unwrap();
            let rest = rest.replace("; ", "\n");
            let error = goals(&format!("{goal}{rest}")).unwrap_err();
            assert!(error.contains(why) && error.starts_with("plan:"), "{error}");
        }
    }
}
