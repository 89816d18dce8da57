//! Figures of made-up runs.

use loadline_lab::analysis::Measured;

use super::*;
use crate::tests::{begun, plan};
use crate::{Grid, Paper};

/// Three blocks of trials: what each has is `of` its block.
fn run(paper: &str, series: &str, cells: &[(&[(&str, Level)], f64)]) -> Run {
    let mut run = begun(paper);
    for block in 0..3_u32 {
        for (levels, value) in cells {
            let levels = levels
                .iter()
                .map(|(name, level)| ((*name).to_owned(), level.clone()));
            let value = value * (1.0 + f64::from(block) / 100.0);
            run.trials.push(Measured {
                number: run.trials.len() as u32,
                block,
                series: series.to_owned(),
                levels: levels.collect(),
                values: [
                    (Metric::GoodPerS, value),
                    (Metric::CompletedPerS, value),
                    (Metric::ErrorShare, value / 1e6),
                    (Metric::CpuShare, 0.75),
                    (Metric::ClientCpuShare, 0.5),
                ]
                .into(),
                ..Measured::default()
            });
        }
    }
    run
}

fn named<'f>(figures: &'f [Result<Redrawn, String>], name: &str) -> &'f Redrawn {
    let mut drawn = figures.iter().flatten();
    let found = drawn.find(|figure| figure.title.starts_with(name));
    found.unwrap_or_else(|| panic!("no {name}: {figures:?}"))
}

#[test]
fn every_figure_is_read_and_fits_the_plan_of_its_paper() {
    let figures: BTreeMap<String, Vec<PaperFigure>> =
        from_json(packed!("figures.json").text().as_bytes()).unwrap();
    assert_eq!(figures.len(), crate::PAPERS.len());
    for (paper, figures) in &figures {
        let mut files: Vec<String> = figures.iter().map(|it| words::slug(&it.name)).collect();
        files.sort_unstable();
        files.dedup();
        assert_eq!(files.len(), figures.len(), "{paper}");
        let plan = plan(Paper::named(paper).unwrap(), &Grid::default());
        for figure in figures.iter().filter(|it| it.not_drawn.is_empty()) {
            let chart = &figure.chart;
            let series = plan.series.iter().find(|one| one.name == chart.series);
            let factors = series.unwrap().factors.iter();
            let mut factors: Vec<&str> = factors.map(|factor| factor.name.as_str()).collect();
            factors.push("server");
            assert_eq!(chart.check(&factors), Ok(()), "{}", figure.name);
            for points in figure.published.iter().flat_map(|curve| &curve.rows) {
                let is_there = crate::published::ROWS.iter().any(|row| {
                    row.paper == *paper
                        && row.server == points.server
                        && row.metric == points.metric
                        && (points.at.is_some() || row.connections.is_some())
                });
                assert!(is_there, "{}: {points:?}", figure.name);
            }
            // Something of the paper stands beside ours, or it is said why not.
            let whence = [
                !figure.published.is_empty(),
                figure.lost,
                figure.not_in_paper,
            ];
            let count = whence.iter().filter(|it| **it).count();
            assert_eq!(count, 1, "{}", figure.name);
        }
    }
}

#[test]
fn published_points_stand_beside_ours_as_parts_of_the_largest() {
    let at = |server: &str, connections: f64| {
        [
            ("server", Level::from(server)),
            ("connections", Level::Number(connections)),
        ]
    };
    // A tenth of what the paper has at 1000 and at 8000 connections.
    let (few, many) = (at("handoff", 1000.0), at("handoff", 8000.0));
    let figures = of(&run(
        "P4",
        "connections",
        &[(&few, 2488.0), (&many, 12_760.5)],
    ));
    let figure = named(&figures, "Fig. 7");
    assert!(figure.note.contains("ours of 12,888/s"), "{}", figure.note);
    assert!(
        figure.note.contains("the paper's of 127,605 requests/s"),
        "{}",
        figure.note
    );
    for text in [
        "Part of the largest (%)",
        "Statix, mean",
        "Ours over the paper",
        "CPUs that the server kept busy",
        "CPUs that the client kept busy",
    ] {
        assert!(figure.svg.contains(text), "{text}: {}", figure.svg);
    }
    // The other server has no trial, which is said.
    let left_out: Vec<_> = figures.iter().filter_map(|it| it.as_ref().err()).collect();
    assert!(
        left_out.iter().any(|why| why.starts_with("Fig. 8")),
        "{left_out:?}"
    );
}

#[test]
fn where_the_paper_has_none_there_is_no_ratio() {
    let at = |model: &str| {
        [
            ("model", Level::from(model)),
            ("rate_per_s", Level::Number(200_000.0)),
        ]
    };
    let (one, several) = (at("one blocking thread"), at("several event loops"));
    let run = run("P3", "rates", &[(&one, 5000.0), (&several, 1000.0)]);
    let mut figures = FIGURES["P3"].iter();
    let about = figures.find(|it| it.name == "Outputs: timeouts").unwrap();
    let mut figure = report::figure(&run, &about.chart).unwrap();
    let (said, ratio) = parts::beside(&mut figure, about, "P3");
    assert!(said.contains("the paper's of 28,860 requests"), "{said}");
    let ratio = ratio.unwrap();
    let points: Vec<_> = ratio.points().collect();
    let [(_, _, point)] = &points[..] else {
        panic!("{points:?}");
    };
    assert!((point.estimate.unwrap().center - 1.0).abs() < 1e-9);
}

#[test]
fn the_ratio_is_within_blocks_and_what_is_claimed_stands_beside_it() {
    let at = |model: &str| {
        [
            ("model", Level::from(model)),
            ("numbers", Level::from(model)),
            ("service_us", Level::Number(0.0)),
        ]
    };
    let (one, several) = (
        at("single reactor, single thread"),
        at("several reactors, threads"),
    );
    let run = run("P1", "best", &[(&one, 1000.0), (&several, 2000.0)]);
    let figures = of(&run);
    let figure = named(&figures, "Fig. 25");
    for text in [
        "claimed ratio: 3",
        "Over single reactor, single thread, within blocks",
    ] {
        assert!(figure.svg.contains(text), "{text}: {}", figure.svg);
    }
    let note = "points are lost: its figures are not in its text. What its text says stands in their \
                place: claimed ratio: 3.";
    assert!(figure.note.contains(note), "{}", figure.note);
    let chart = &FIGURES["P1"]
        .iter()
        .find(|it| it.name == "Fig. 25")
        .unwrap()
        .chart;
    let resolved = report::figure(&run, chart).unwrap();
    let over = "single reactor, single thread";
    let ratio = Trials::of(&run)
        .ratio(&resolved, Metric::GoodPerS, over)
        .unwrap();
    let points: Vec<_> = ratio.points().collect();
    let [(_, curve, point)] = &points[..] else {
        panic!("{points:?}");
    };
    assert_eq!(ratio.name_of(curve), "several reactors, threads");
    assert!((point.estimate.unwrap().center - 2.0).abs() < 1e-9);
}

#[test]
fn columns_of_a_grid_are_compared_with_one_of_them() {
    let at = |workers: f64| {
        [
            ("workers", Level::Number(workers)),
            ("service_us", Level::Number(100.0)),
        ]
    };
    let (one, eight) = (at(1.0), at(8.0));
    let figures = of(&run("P1", "threads", &[(&one, 100.0), (&eight, 500.0)]));
    let figure = named(&figures, "Fig. 21");
    assert!(
        figure.svg.contains("Over workers 1, within blocks"),
        "{}",
        figure.svg
    );
    assert!(figure.svg.contains(">5</text>"), "{}", figure.svg);
}

fn numbers<'n>(factors: &[(&'n str, f64)]) -> Vec<(&'n str, Level)> {
    let levels = factors.iter();
    let levels = levels.map(|(name, number)| (*name, Level::Number(*number)));
    levels.collect()
}

#[test]
fn notes_say_which_numbers_are_best_at_each_service_time() {
    let threads =
        |workers, service_us| numbers(&[("workers", workers), ("service_us", service_us)]);
    let cells = [
        (threads(1.0, 0.0), 500.0),
        (threads(8.0, 0.0), 400.0),
        (threads(1.0, 200.0), 50.0),
        (threads(8.0, 200.0), 300.0),
    ];
    let cells = cells.iter().map(|(levels, value)| (&levels[..], *value));
    let cells: Vec<_> = cells.collect();
    for (series, name, text) in [
        (
            "slower-threads",
            "Fig. 21, with 40 %",
            "Workers with the most: 1 (service time 0 µs) and 8 (service time 200 µs).",
        ),
        (
            "threads",
            "Fig. 25, of the grid of Fig. 21",
            "Best are workers 1 at 0, workers 8 at 200.",
        ),
    ] {
        let figures = of(&run("P1", series, &cells));
        let note = &named(&figures, name).note;
        assert!(note.contains(text), "{note}");
    }
    let pair = |loops, workers| {
        numbers(&[
            ("loops", loops),
            ("workers", workers),
            ("service_us", 1000.0),
        ])
    };
    let (few, many) = (pair(1.0, 4.0), pair(2.0, 50.0));
    let figures = of(&run(
        "P1",
        "reactors",
        &[(&few[..], 10.0), (&many[..], 20.0)],
    ));
    let note = &named(&figures, "Fig. 25, of the grids of Figs. 22").note;
    let text = "Best are loops 2 and workers 50 at 1,000.";
    assert!(note.contains(text), "{note}");
}

#[test]
fn of_several_grids_the_note_says_where_the_client_was_the_limit() {
    let cell = |(workers, service_us)| {
        numbers(&[
            ("loops", 1.0),
            ("workers", workers),
            ("service_us", service_us),
        ])
    };
    let at_0 = [(1.0, 0.0), (8.0, 0.0)];
    let others = [200.0, 300.0, 500.0, 900.0].map(|service_us| (1.0, service_us));
    let cells: Vec<_> = at_0.into_iter().chain(others).map(cell).collect();
    let cells: Vec<_> = cells.iter().map(|levels| (&levels[..], 1000.0)).collect();
    let mut run = run("P1", "reactors", &cells);
    for trial in &mut run.trials {
        let is = |name: &str, number| trial.levels[name] == Level::Number(number);
        if is("workers", 8.0) && is("service_us", 0.0) {
            trial.client_limited = true;
            trial.server_busy = Some(0.5);
        }
    }
    let figures = of(&run);
    let several = named(&figures, "Fig. 24: ");
    let text = "the server may carry more: 1 of 2 (service time 0 µs).";
    assert!(several.note.contains(text), "{}", several.note);
    let one = named(&figures, "Fig. 22: ");
    assert!(!one.note.contains("the limit"), "{}", one.note);
    let text = "CPUs that the client kept busy";
    let counts = [one, several].map(|it| it.svg.matches(text).count());
    assert_eq!(counts, [1, 0]);
    assert!(!one.is_linked && !several.is_linked);
    let linked = named(&figures, "Fig. 24, the other");
    assert!(linked.is_linked);
    let text = "The client was the limit in none of the cells.";
    assert!(linked.note.contains(text), "{}", linked.note);
    let mut left_out = figures.iter().filter_map(|it| it.as_ref().err());
    let text = "Fig. 19: the output of one run";
    assert!(left_out.any(|why| why.starts_with(text)));
}
