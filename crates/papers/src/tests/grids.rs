//! The reduced grid of a paper and its full one: the same claims, and in full never less of a series.

use std::collections::BTreeSet;

use loadline_lab::cells::{Cells, levels_text};
use loadline_lab::journal::Levels;
use toml::{Table, Value};

use super::*;
use crate::claims::{Taken, taken};

/// Series whose full form is shorter, or has fewer blocks, than what full trials are by default. No
/// series may have less than its own reduced form.
const SHORTER: [(&str, &str); 3] = [
    ("P1", "threads"),  // 110 cells: a second each, as in the reduced grid
    ("P1", "reactors"), // 396 cells: 0.8 s each, as in the reduced grid
    ("P2", "work"),     // no claim is about it: 4 blocks
];

/// What `[full.defaults]` says.
fn full_default(paper: &Paper, key: &str) -> Option<f64> {
    let plan: Table = paper.text().parse().unwrap();
    let value = plan.get("full")?.get("defaults")?.get(key)?;
    match value {
        Value::Integer(number) => Some(*number as f64),
        value => value.as_float(),
    }
}

#[test]
fn no_series_has_less_in_full() {
    for paper in &PAPERS {
        let (reduced, full) = (plan(paper, &Grid::default()), plan(paper, &full()));
        assert_eq!(reduced.series.len(), full.series.len());
        let least_s = full_default(paper, "duration_s").unwrap_or(0.0);
        let least = full_default(paper, "replicates").unwrap_or(0.0);
        for (reduced, full) in reduced.series.iter().zip(&full.series) {
            let what = format!("{} {}", paper.name, full.name);
            assert_eq!(reduced.name, full.name);
            assert!(full.duration_s >= reduced.duration_s, "{what}");
            assert!(full.replicates >= reduced.replicates, "{what}");
            if SHORTER.contains(&(paper.name, full.name.as_str())) {
                continue;
            }
            assert!(full.duration_s >= least_s, "{what}");
            assert!(f64::from(full.replicates) >= least, "{what}");
        }
    }
}

/// Claims for which the full grid has more cells, by a part of their text.
const MORE_IN_FULL: [(&str, &str); 14] = [
    // The best of more numbers.
    ("P1", "reach 3 times"),
    ("P1", "The same, pooled"),
    ("P1", "shorter response times"),
    ("P1", "suit high concurrency"),
    // Bends are found among more rates, or the claim is about the rates.
    ("P5", "Threads win"),
    ("P5", "event loop bends later than the threads"),
    ("P5", "It bends at 1.15"),
    ("P5", "latency of"),
    ("P5", "Threads bend at"),
    ("P5", "The event loop bends at about"),
    // More rates up to the same one, the most of more rates, or more rates of the event loop.
    ("P5", "Threads have lower response"),
    ("P5", "Threads make better use"),
    ("P5", "answers more than 1000"),
    ("P5", "Up to modest rates"),
];

#[test]
fn both_grids_judge_the_same() {
    let all = |plan: &Plan| {
        let cells = Cells::of(plan, &[0, 1], &[]).unwrap().cells.into_iter();
        let named = cells.map(|cell| (plan.series[cell.series].name.clone(), cell.levels));
        named.collect::<Vec<_>>()
    };
    let texts = |cells: &[(String, Levels)], taken: &[Taken]| -> BTreeSet<String> {
        let is_taken = |(series, levels): &&(String, Levels)| {
            taken.iter().any(|one| one.takes(series, levels))
        };
        let taken = cells.iter().filter(is_taken);
        let texts = taken.map(|(series, levels)| format!("{series}: {}", levels_text(levels)));
        texts.collect()
    };
    for paper in &PAPERS {
        let plans = [plan(paper, &Grid::default()), plan(paper, &full())];
        let [reduced, full] = plans.each_ref().map(all);
        for (text, taken) in taken(paper.name) {
            let [in_reduced, in_full] = [&reduced, &full].map(|cells| texts(cells, &taken));
            let mut listed = MORE_IN_FULL.iter();
            let is_listed = listed.any(|(of, part)| *of == paper.name && text.contains(part));
            match is_listed {
                true => assert!(in_full.len() > in_reduced.len(), "{text}"),
                false => assert_eq!(in_reduced, in_full, "{} {text}", paper.name),
            }
        }
    }
}
