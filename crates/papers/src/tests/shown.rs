//! Every cell of a full plan is in a claim, in a figure or in a table of the results page, or is listed here with
//! a reason.

use loadline_lab::cells::{Cells, levels_text};
use loadline_lab::journal::Levels;

use super::*;
use crate::claims::taken;
use crate::results::open;
use crate::{distinct, figures};

/// Cells that stand nowhere on the page: in the run's own report they do.
struct Unshown {
    paper: &'static str,
    series: &'static str,
    /// Factors and their levels; others are of any level.
    levels: &'static [(&'static str, &'static str)],
    why: &'static str,
}

const UNSHOWN: &[Unshown] = &[
    Unshown {
        paper: "P1",
        series: "obstruction",
        levels: &[("rate_per_s", "1500"), ("model", "single reactor, threads")],
        why: "the claim at this rate is about the other two models",
    },
    Unshown {
        paper: "P1",
        series: "others",
        levels: &[("service_us", "0")],
        why: "the table has 200 us: with three times it would be three times as long",
    },
    Unshown {
        paper: "P1",
        series: "others",
        levels: &[("service_us", "1000")],
        why: "the table has 200 us: with three times it would be three times as long",
    },
    Unshown {
        paper: "P2",
        series: "arms",
        levels: &[("timer", "without")],
        why: "what the timer costs is drawn at 10,000 clients, as in the paper",
    },
    Unshown {
        paper: "P2",
        series: "burden",
        levels: &[("work", "none"), ("arm", "loop")],
        why: "the claim about clients is about the workers alone",
    },
    Unshown {
        paper: "P2",
        series: "threads",
        levels: &[("arm", "loop")],
        why: "the claims are about the workers, the kernel and threads of a connection each",
    },
    Unshown {
        paper: "P2",
        series: "idle",
        levels: &[("clients", "slow"), ("timer", "without")],
        why: "the claims about slow clients are about the two timers",
    },
    Unshown {
        paper: "P2",
        series: "work",
        levels: &[("connections", "10")],
        why: "the table has 10,000 clients, as the paper",
    },
    Unshown {
        paper: "P2",
        series: "work",
        levels: &[("connections", "1000")],
        why: "the table has 10,000 clients, as the paper",
    },
    Unshown {
        paper: "P5",
        series: "computing",
        levels: &[("server", "pool"), ("cpus", "one")],
        why: "the claim about the pool is about all CPUs",
    },
];

impl Unshown {
    fn is(&self, series: &str, levels: &Levels) -> bool {
        let has = |(factor, level): &(&str, &str)| {
            let found = levels.get(*factor);
            found.is_some_and(|it| it.to_string() == *level)
        };
        series == self.series && self.levels.iter().all(has)
    }
}

#[test]
fn every_cell_is_in_a_claim_a_figure_or_a_table() {
    for paper in &PAPERS {
        let plan = plan(paper, &full());
        let taken: Vec<_> = taken(paper.name)
            .into_iter()
            .flat_map(|(_, taken)| taken)
            .collect();
        let cells = Cells::of(&plan, &[0, 1], &[]).unwrap().cells;
        let cells = cells.iter().map(|cell| {
            let series = plan.series[cell.series].name.as_str();
            (series, &cell.levels)
        });
        // Neither in a claim nor in a figure.
        let rest = cells.filter(|(series, levels)| {
            let is_taken = taken.iter().any(|one| one.takes(series, levels));
            !is_taken && !figures::draws(paper.name, series, levels)
        });
        let rest: Vec<(&str, &Levels)> = rest.collect();
        let listed = UNSHOWN.iter().filter(|one| one.paper == paper.name);
        let listed: Vec<&Unshown> = listed.collect();
        for (series, levels) in &rest {
            let is_listed = listed.iter().any(|one| one.is(series, levels));
            let is_shown = open::shows(paper.name, series, levels);
            let cell = levels_text(levels);
            assert!(is_shown || is_listed, "{} {series}: {cell}", paper.name);
        }
        // No table and no reason is there in vain.
        let tables = open::series(paper.name);
        for table in &tables {
            assert!(rest.iter().any(|(series, _)| series == table), "{table}");
        }
        let planned = distinct(plan.series.iter().map(|one| one.name.as_str()));
        let in_order = planned.into_iter().filter(|name| tables.contains(name));
        assert_eq!(in_order.collect::<Vec<_>>(), tables);
        for one in listed {
            let is_needed = rest.iter().any(|(series, levels)| {
                one.is(series, levels) && !open::shows(paper.name, series, levels)
            });
            assert!(is_needed, "{} {}: {}", one.paper, one.series, one.why);
        }
    }
}
