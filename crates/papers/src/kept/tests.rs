//! Made-up runs, as they were and as they are kept.

use std::collections::BTreeMap;

use loadline_lab::analysis::{Measured, Second};
use loadline_lab::cells::Cells;
use loadline_lab::journal::ServerFacts;

use super::parts::{of_part, together};
use super::*;
use crate::results::{Entry, open, page};
use crate::tests::plan;
use crate::{PAPERS, PaperTime, claims, figures};

/// Three blocks of every cell of a grid, with a value of every metric.
fn measured(paper: &Paper, grid: &Grid) -> Run {
    let plan = plan(paper, grid);
    let cells = Cells::of(&plan, &[0, 1], &[]).unwrap().cells;
    let mut run = Run::default();
    run.head.name = paper.name.to_owned();
    run.head.plan_toml = grid.plan_text(&paper.text(), paper.name).unwrap();
    run.head.seed = plan.seed;
    run.head.command = ["/a/loadline", "lab", "paper", "--full", "--keep", "there"]
        .map(str::to_owned)
        .into();
    for block in 0..3 {
        for (index, cell) in cells.iter().enumerate() {
            let value = (1000 + index % 13 * 7 + (index + block as usize) % 5) as f64;
            let number = run.trials.len();
            let reasons = |every: usize| match number % every {
                5 => vec!["It was late.".to_owned()],
                _ => Vec::new(),
            };
            let second = |second| Second {
                second,
                counted: second > 0,
                values: [
                    (Metric::CompletedPerS, value + f64::from(second)),
                    (Metric::P50Us, 500.0 + f64::from(second)),
                ]
                .into(),
            };
            let series = plan.series[cell.series].name.clone();
            let seconds = if series == "soak" { 90 } else { 3 };
            let values = Metric::ALL.iter().map(|metric| (*metric, value));
            run.trials.push(Measured {
                number: number as u32,
                series,
                levels: cell.levels.clone(),
                replicate: block + 1,
                block,
                server: ServerFacts {
                    cpus: "0-1".to_owned(),
                    ..ServerFacts::default()
                },
                discarded: reasons(61),
                times_discarded: reasons(31),
                client_limited: number % 7 == 3,
                is_short: number % 31 == 5,
                server_busy: Some(0.8),
                values: values.collect(),
                seconds: (0..seconds).map(second).collect(),
                offered: 10_000,
                connections: 2000,
                timeouts: 400 + index as u64 % 3,
                ..Measured::default()
            });
        }
    }
    run
}

fn put(kept: &mut Kept, run: &Run) {
    kept.put(run, &Report::new(run, &[], Vec::new())).unwrap();
}

fn only(series: &[&str]) -> Grid {
    of_part(series.iter().map(|name| (*name).to_owned()).collect())
}

fn said(kept: &Kept) -> Vec<String> {
    let sources = kept.sources().unwrap().into_iter();
    sources.map(|source| source.facts).collect()
}

#[test]
fn a_paper_is_judged_and_drawn_the_same_from_what_is_kept() {
    for paper in &PAPERS {
        let run = measured(paper, &in_full());
        let mut kept = Kept::new(paper);
        put(&mut kept, &run);
        let again = Kept::parse(&kept.text().unwrap()).unwrap();
        assert_eq!(again, kept);
        let merged = again.run().unwrap();
        assert_eq!(merged.trials.len(), run.trials.len());
        let [first, second] = [&run, &merged].map(claims::judged);
        for (one, other) in first.iter().zip(&second) {
            assert_eq!(one, other);
        }
        assert_eq!(first.len(), second.len());
        assert!(figures::of(&run) == figures::of(&merged), "{}", paper.name);
        assert_eq!(open::of(&run), open::of(&merged));
        assert!(!open::of(&run).is_empty(), "{}", paper.name);
    }
}

#[test]
fn every_metric_is_kept_and_the_seconds_of_long_trials() {
    let paper = Paper::named("P1").unwrap();
    let mut run = measured(paper, &only(&["light", "soak"]));
    for trial in &mut run.trials {
        trial.values.remove(&Metric::RecoveryUs);
    }
    run.trials[0].values.remove(&Metric::Threads);
    let mut kept = Kept::new(paper);
    put(&mut kept, &run);
    // What no trial has takes no room.
    assert_eq!(kept.parts[0].head.metrics.len(), Metric::ALL.len() - 1);
    let merged = kept.run().unwrap();
    assert_eq!(merged.trials.len(), run.trials.len());
    let mut long = 0;
    for (trial, kept) in run.trials.iter().zip(&merged.trials) {
        assert_eq!(trial.values, kept.values);
        let counted = trial.seconds.iter().filter(|second| second.counted);
        let counted: Vec<_> = counted.map(|second| &second.values).collect();
        let seconds: Vec<_> = kept.seconds.iter().map(|second| &second.values).collect();
        match trial.series.as_str() {
            "soak" => assert_eq!(seconds, counted),
            _ => assert_eq!(seconds.len(), 0),
        }
        long += usize::from(trial.series == "soak");
    }
    assert!(long > 0 && long < run.trials.len());
}

#[test]
fn parts_in_any_order_are_the_same_paper() {
    let paper = Paper::named("P4").unwrap();
    let whole = measured(paper, &in_full());
    let mut kept = Kept::new(paper);
    for group in together(paper).unwrap().into_iter().rev() {
        let names: Vec<&str> = group.iter().map(String::as_str).collect();
        let mut part = whole.clone();
        part.head.plan_toml = only(&names).plan_text(&paper.text(), "P4").unwrap();
        part.trials.retain(|trial| group.contains(&trial.series));
        put(&mut kept, &part);
    }
    assert_eq!(kept.parts.len(), 4);
    let merged = kept.run().unwrap();
    assert_eq!(claims::judged(&merged), claims::judged(&whole));
    let facts = said(&kept).join("\n");
    for wrong in ["Not measured", "has changed", "Measured again"] {
        assert!(!facts.contains(wrong), "{facts}");
    }
}

#[test]
fn a_series_that_is_measured_again_replaces_what_was_kept_of_it() {
    let paper = Paper::named("P4").unwrap();
    let mut kept = Kept::new(paper);
    let whole = measured(paper, &in_full());
    put(&mut kept, &whole);
    let again = measured(paper, &only(&["loops"]));
    put(&mut kept, &again);
    assert_eq!(kept.run().unwrap().trials.len(), whole.trials.len());
    let facts = said(&kept);
    assert!(
        facts[0].starts_with("**connections, new-connections, capacity**: ")
            && facts[0].ends_with(" Measured again since: loops.")
            && facts[1].starts_with("**loops**: "),
        "{facts:?}"
    );
    // Nothing of the first run of it is left.
    put(&mut kept, &again);
    assert_eq!(kept.parts.len(), 2);
    put(&mut kept, &whole);
    assert_eq!(kept.parts.len(), 1);
}

#[test]
fn the_page_says_of_each_part_where_it_is_from_and_what_is_missing() {
    let paper = Paper::named("P3").unwrap();
    let mut kept = Kept::new(paper);
    let mut put_of = |grid: &Grid, commit: &str| {
        let mut run = measured(paper, grid);
        for trial in &mut run.trials {
            commit.clone_into(&mut trial.commit);
        }
        put(&mut kept, &run);
    };
    put_of(&only(&["rates", "client"]), "0123456789ab");
    // By the other grid its trials are others.
    let mut reduced = only(&["computing"]);
    reduced.full = false;
    put_of(&reduced, "ba9876543210, with changes");
    let run = kept.run().unwrap();
    let report = Report::new(&run, &[], claims::judged(&run));
    let entry = Entry::of_kept(&kept, &run, report).unwrap();
    let page = page("Papers", "there", &[entry]);
    for part in [
        "\n**rates, client**: ",
        ". Measured on commit 0123456789ab.\n\n**computing**: ",
        ". Measured on commit ba9876543210, with changes. **Its plan has changed since.**\n\n\
         Not measured: connections, near-capacity.\n",
        "\n```console\n$ loadline lab paper --full\n$ loadline lab paper --full\n```\n",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert_eq!(page.matches("has changed since").count(), 1);
}

#[test]
fn every_part_of_a_paper_takes_75_minutes_at_most() {
    let mut largest: BTreeMap<&str, f64> = BTreeMap::new();
    for paper in &PAPERS {
        for group in together(paper).unwrap() {
            let time = PaperTime::of(paper, &of_part(group.clone())).unwrap();
            assert!(time.all_s < 75.0 * 60.0, "{group:?}: {time:?}");
            let most = largest.entry(paper.name).or_default();
            *most = most.max(time.all_s);
        }
        let said = parts_said(paper).unwrap();
        assert!(said.starts_with(&format!("parts of {}: ", paper.name)));
    }
    assert_eq!(largest.len(), PAPERS.len());
}

#[test]
fn what_a_claim_takes_together_is_measured_together() {
    let paper = Paper::named("P1").unwrap();
    let groups = together(paper).unwrap();
    let several: Vec<&Vec<String>> = groups.iter().filter(|group| group.len() > 1).collect();
    assert_eq!(several, [&["best", "shared"].map(str::to_owned).to_vec()]);
    let check = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        check_whole(paper, &names)
    };
    let rights: [&[&str]; 3] = [&[], &["soak"], &["shared", "loops", "best"]];
    for right in rights {
        assert!(check(right).is_ok(), "{right:?}");
    }
    let message = check(&["best", "soak"]).unwrap_err().to_string();
    assert_eq!(
        message,
        "P1: a claim takes best and shared together; right would be --only best,shared"
    );
    for other in &PAPERS[1..] {
        let groups = together(other).unwrap();
        assert!(groups.iter().all(|group| group.len() == 1), "{groups:?}");
    }
}

#[test]
fn what_is_no_file_of_a_paper_is_refused_with_its_line() {
    let mut kept = Kept::new(Paper::named("P4").unwrap());
    let run = measured(kept.paper, &only(&["capacity"]));
    put(&mut kept, &run);
    let text = kept.text().unwrap();
    let (head, trials) = text.split_once('\n').unwrap();
    let fewer: String = trials.lines().skip(1).map(|it| format!("{it}\n")).collect();
    for (text, right) in [
        (String::new(), "no part is kept here"),
        ("x\n".to_owned(), "line 1: expected"),
        (
            "{}\n".to_owned(),
            "line 1: its form is ; right would be loadline-paper/1",
        ),
        (
            format!("{head}\n{fewer}"),
            "line 1: 5 of its 6 trials follow",
        ),
        (format!("{head}\n{{\n{fewer}"), "line 2: EOF"),
        (
            format!("{text}{}", text.replace("\"P4\"", "\"P5\"")),
            "line 8: it is of another paper",
        ),
        (text.replace("\"P4\"", "\"P9\""), "no paper P9"),
    ] {
        let problem = Kept::parse(&text).unwrap_err();
        assert!(problem.contains(right), "{problem}");
    }
}
