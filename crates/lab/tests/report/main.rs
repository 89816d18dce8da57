//! Reports of a made-up run, held against its journal.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod fixture;
mod pictures;

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use loadline_capacity::stats::{Interval, LEVEL, center};
use loadline_lab::analysis::{Metric, Run};
use loadline_lab::journal::{JOURNAL_FILE, Level, Trial};
use loadline_lab::plan::Chart;
use loadline_lab::plan::Plan;
use loadline_lab::report::export;
use loadline_lab::report::page::page;
use loadline_lab::report::{Claim, Figure, REPORT, Report, Verdict, svg};
use loadline_lab::verify::{Verification, verify};

struct Made {
    folder: tempfile::TempDir,
    trials: Vec<Trial>,
    run: Run,
    report: Report,
}

fn charts() -> Vec<Chart> {
    Plan::parse(fixture::PLAN, "made-up.toml", Path::new("."))
        .unwrap()
        .charts
}

fn claims() -> Vec<Claim> {
    vec![Claim {
        paper: "P1".to_owned(),
        text: "More <loops> help".to_owned(),
        source: "Fig. 23(b)".to_owned(),
        published: String::new(),
        verdict: Verdict::NotReproduced,
        why: "the ratio's interval holds 1".to_owned(),
        interval: Some(Interval {
            low: 0.98,
            high: 1.03,
            level: 0.95,
        }),
        measures: Vec::new(),
        undecided: None,
    }]
}

/// One for all tests that only look at it.
fn shown() -> &'static Made {
    static MADE: OnceLock<Made> = OnceLock::new();
    MADE.get_or_init(made)
}

fn made() -> Made {
    let folder = tempfile::tempdir().unwrap();
    let trials = fixture::write_run(folder.path());
    let run = Run::read(folder.path()).unwrap();
    let report = Report::new(&run, &charts(), claims());
    Made {
        folder,
        trials,
        run,
        report,
    }
}

fn figure<'r>(report: &'r Report, title: &str) -> &'r Figure {
    report
        .figures
        .iter()
        .find(|figure| figure.title == title)
        .unwrap()
}

/// What the journal says of a cell: completed per second of the trials that count.
fn rates(trials: &[Trial], architecture: &str, service_us: f64) -> Vec<f64> {
    let is_wanted = |trial: &&Trial| {
        trial.series == "models"
            && !trial.is_a_a
            && trial.discarded.is_empty()
            && trial.levels["architecture"] == Level::from(architecture)
            && trial.levels["service_us"] == Level::Number(service_us)
    };
    let wanted = trials.iter().filter(is_wanted);
    let loads = wanted.filter_map(|trial| trial.load.as_ref());
    loads
        .map(|load| load.groups[0].total.rates.completed_per_s)
        .collect()
}

#[test]
fn every_chart_of_the_plan_is_there_with_every_trial() {
    let made = shown();
    assert_eq!(made.report.left_out, Vec::<String>::new());
    assert_eq!(made.report.figures.len(), charts().len());
    let lines = figure(&made.report, "Throughput against service time");
    assert_eq!(
        lines.legend.len(),
        5,
        "four architectures and what was published"
    );
    assert_eq!(lines.legend[0], "thread-pool", "in the order of the plan");
    let mut marks = 0;
    for (_, curve, point) in lines.points().filter(|(_, curve, _)| !curve.is_reference) {
        let values = rates(&made.trials, lines.name_of(curve), point.x);
        let estimate = point.estimate.unwrap();
        assert_eq!(estimate.count, values.len());
        assert_eq!(
            Some((estimate.center, estimate.interval)),
            center(&values, LEVEL)
        );
        marks += point.trials.len() + point.discarded.len();
    }
    let of_series = made
        .trials
        .iter()
        .filter(|it| it.series == "models" && !it.is_a_a);
    assert_eq!(marks, of_series.count());
    let surface = figure(&made.report, "Throughput over loops and workers");
    assert_eq!(surface.panels.len(), 2);
    assert_eq!(surface.points().count(), 72);
}

#[test]
fn an_envelope_has_the_best_cell_at_each_point_and_says_which() {
    let made = shown();
    let chart = |keys: &str| -> Chart {
        let text = format!("series = \"surface\"\nx = \"loops\"\nlines = \"service_us\"\n{keys}");
        toml::from_str(&text).unwrap()
    };
    for metric in ["completed_per_s", "p99_us"] {
        let metric = format!("metric = \"{metric}\"");
        let best = chart(&format!("{metric}\nbest_of = \"workers\""));
        let report = Report::new(&made.run, &[chart(&metric), best], Vec::new());
        let [all, best] = &report.figures[..] else {
            panic!("{:?}", report.left_out)
        };
        // A curve for each pair of service time and workers, and one for each service time.
        assert_eq!((all.legend.len(), best.legend.len()), (12, 2));
        assert_eq!(best.points().count(), 12);
        let is_better = |one: f64, other: f64| match metric.contains("p99") {
            true => one <= other,
            false => one >= other,
        };
        for (_, curve, point) in best.points() {
            let center = point.estimate.unwrap().center;
            let alternatives = all.points().filter(|(_, other, it)| {
                let name = best.name_of(curve);
                it.x == point.x && all.name_of(other).split(", ").any(|part| part == name)
            });
            let centers: Vec<f64> = alternatives
                .filter_map(|(_, _, it)| Some(it.estimate?.center))
                .collect();
            assert_eq!(centers.len(), 6, "{}", best.name_of(curve));
            assert!(centers.iter().all(|other| is_better(center, *other)));
        }
        let note = &best.note;
        assert_eq!(note.matches("workers ").count(), 12, "{note}");
        assert!(note.contains("; ") && note.contains(" at 50"), "{note}");
    }
}

#[test]
fn discarded_trials_are_part_of_nothing_and_shown() {
    let made = shown();
    assert_eq!(made.report.discarded.len(), 3);
    assert_eq!(made.report.trials_counted, made.trials.len() - 3);
    for trial in made
        .trials
        .iter()
        .filter(|trial| !trial.discarded.is_empty())
    {
        let points = || made.report.figures.iter().flat_map(Figure::points);
        assert!(points().all(|(_, _, point)| !point.trials.contains(&trial.number)));
        assert!(points().any(|(_, _, point)| {
            point
                .discarded
                .iter()
                .any(|mark| mark.trial == trial.number && mark.reasons == trial.discarded)
        }));
    }
}

#[test]
fn a_discarded_trial_has_a_timeline() {
    let made = shown();
    let mut timelines = 0;
    for listed in (made.report.discarded.iter()).chain(&made.report.times_discarded) {
        let mut trials = made.trials.iter();
        let trial = trials.find(|it| it.number == listed.trial).unwrap();
        let groups = trial.load.iter().flat_map(|load| &load.groups);
        let seconds = groups.flat_map(|group| &group.series);
        let good: Vec<f64> = seconds.map(|second| second.good as f64).collect();
        assert_eq!(listed.good_per_s, good, "{listed:?}");
        timelines += usize::from(!good.is_empty());
    }
    // One server died, and nothing is known of its trial.
    assert_eq!(timelines, 3);
    let text = page(&made.report).unwrap();
    assert_eq!(text.matches("<svg class=\"timeline\"").count(), timelines);
}

#[test]
fn a_late_client_makes_times_discarded_and_nothing_else() {
    let made = shown();
    let late = made.trials.iter().find(|it| !it.times_discarded.is_empty());
    let late = late.unwrap();
    let listed: Vec<u32> = (made.report.times_discarded.iter())
        .map(|it| it.trial)
        .collect();
    assert_eq!(listed, [late.number]);
    let counts_in = |title: &str| {
        let mut points = figure(&made.report, title).points();
        points.any(|(_, _, point)| point.trials.contains(&late.number))
    };
    let is_struck_out_in = |title: &str| {
        let mut marks =
            (figure(&made.report, title).points()).flat_map(|(_, _, point)| point.discarded.iter());
        marks.any(|mark| mark.trial == late.number && mark.reasons == late.times_discarded)
    };
    let (throughput, tail) = (
        "Throughput against service time",
        "The slowest of a hundred answers",
    );
    assert!(counts_in(throughput) && !is_struck_out_in(throughput));
    assert!(!counts_in(tail) && is_struck_out_in(tail));
}

#[test]
fn words_say_what_numbers_say() {
    let made = shown();
    // Made 1 % apart, with a noise of 3 %: nobody can tell, and none is called the best.
    let answer = &made.report.answer;
    assert!(
        answer.starts_with("Not distinguishable: ") || answer.starts_with("Nothing is better"),
        "{answer}"
    );
    let texts: Vec<&str> = made
        .report
        .figures
        .iter()
        .map(|it| it.finding.as_str())
        .collect();
    assert!(texts[2].contains("and workers"), "{}", texts[2]);
    assert!(texts[4].contains("loadline"), "{}", texts[4]);
    assert!(texts[5].contains("took less than"), "{}", texts[5]);
    assert!(texts[6].contains("teady"), "{}", texts[6]);
    assert_eq!(made.report.noise.len(), 2);
}

#[test]
fn a_plan_without_charts_gets_some() {
    let made = shown();
    let report = Report::new(&made.run, &[], Vec::new());
    assert!(report.left_out.is_empty());
    let kinds: Vec<&str> = report
        .figures
        .iter()
        .map(|figure| figure.kind.name())
        .collect();
    for kind in [
        "lines",
        "bars",
        "heat_map",
        "surface",
        "spectrum",
        "time_series",
    ] {
        assert!(kinds.contains(&kind) || kind == "bars", "{kinds:?}");
    }
    let mut ids: Vec<&str> = report
        .figures
        .iter()
        .map(|figure| figure.id.as_str())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), report.figures.len());
}

#[test]
fn a_run_that_has_just_begun_has_a_report() {
    let folder = tempfile::tempdir().unwrap();
    fixture::write_run(folder.path());
    let path = folder.path().join(JOURNAL_FILE);
    let journal = fs::read_to_string(&path).unwrap();
    for lines in [1, 2] {
        let begun: Vec<&str> = journal.lines().take(lines).collect();
        fs::write(&path, begun.join("\n") + "\n").unwrap();
        let run = Run::read(folder.path()).unwrap();
        let report = Report::new(&run, &charts(), Vec::new());
        assert_eq!(report.figures.len() + report.left_out.len(), charts().len());
        page(&report).unwrap();
    }
}

#[test]
fn pictures_stand_alone() {
    let made = shown();
    for figure in &made.report.figures {
        let picture = svg::draw(figure);
        assert!(picture.starts_with("<svg xmlns="), "{}", figure.id);
        assert!(
            !picture.contains("NaN") && !picture.contains("inf"),
            "{}",
            figure.id
        );
        assert_eq!(picture, svg::draw(figure), "the same every time");
        assert!(
            picture.len() < 200_000,
            "{}: {} bytes",
            figure.id,
            picture.len()
        );
    }
}

#[test]
fn a_chart_without_a_point_is_left_out() {
    let mut run = shown().run.clone();
    for trial in &mut run.trials {
        trial.seconds.clear(); // of half a second, say
    }
    let report = Report::new(&run, &charts(), Vec::new());
    let [why] = &report.left_out[..] else {
        panic!("{:?}", report.left_out)
    };
    assert!(why.starts_with("“Second by second at 200 µs”"), "{why}");
    assert!(why.contains("no trial has a whole second"), "{why}");
    for report in [report, Report::new(&run, &[], Vec::new())] {
        for figure in &report.figures {
            assert!(!svg::draw(figure).contains("NaN"), "{}", figure.id);
        }
    }
}

#[test]
fn a_table_says_which_mean_it_has_and_on_which_side_room_is() {
    let mut report = shown().report.clone();
    for (times, way) in [(2.0, "up"), (0.5, "down")] {
        let point = &mut report.figures[0].panels[0].curves[1].points[2];
        let room = point.estimate.unwrap().center * times;
        point.room = Some(room);
        let text = page(&report).unwrap();
        let title = format!("data-room=\"{room}\" title=\"by CPU time {way} to ");
        assert!(text.contains(&title), "{title}");
        assert!(text.contains(">Geometric mean</th>") && !text.contains(">Median</th>"));
    }
}

#[test]
fn tables_for_others_have_a_line_for_each_trial() {
    let made = shown();
    let csv = export::trials_csv(&made.run);
    assert_eq!(csv.lines().count(), made.trials.len() + 1);
    let head: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    for name in ["trial", "architecture", "service_us", Metric::P99Us.name()] {
        assert!(head.contains(&name), "{head:?}");
    }
    let json: Report = serde_json::from_str(&export::json(&made.report).unwrap()).unwrap();
    assert_eq!(json, made.report);
}

fn verified(made: &Made) -> Verification {
    verify(
        made.folder.path(),
        &made.folder.path().join(REPORT),
        &made.report,
    )
    .unwrap()
}

#[test]
fn a_report_that_is_true_is_found_to_be_so() {
    let made = made();
    let text = page(&made.report).unwrap();
    assert_eq!(text, page(&made.report).unwrap(), "the same every time");
    fs::write(made.folder.path().join(REPORT), text).unwrap();
    let outcome = verified(&made);
    assert_eq!(outcome.differences, Vec::<String>::new());
    assert_eq!(outcome.trials, made.trials.len() - 1, "one has no log");
    assert!(
        outcome.latencies > 1_000_000 && outcome.numbers > 1000,
        "{outcome:?}"
    );
}

#[test]
fn a_number_that_was_changed_is_found() {
    let made = made();
    let text = page(&made.report).unwrap();
    let report = made.folder.path().join(REPORT);
    let estimate = made.report.figures[0].panels[0].curves[1].points[2]
        .estimate
        .unwrap();
    let center = format!(
        "\"center\":{}",
        serde_json::to_string(&estimate.center).unwrap()
    );
    assert!(text.contains(&center));
    fs::write(&report, text.replacen(&center, "\"center\":1.5", 1)).unwrap();
    let outcome = verified(&made);
    assert_eq!(outcome.differences.len(), 1, "{outcome:?}");
    assert!(
        outcome.differences[0].contains("center is 1.5"),
        "{outcome:?}"
    );
    // A table alone.
    let cell = format!("data-value=\"{}\"", estimate.center);
    assert!(text.contains(&cell));
    fs::write(&report, text.replacen(&cell, "data-value=\"2\"", 1)).unwrap();
    let outcome = verified(&made);
    assert!(
        outcome.differences[0].contains("not the one"),
        "{outcome:?}"
    );
}

#[test]
fn a_log_that_says_otherwise_is_found() {
    let made = made();
    fs::write(made.folder.path().join(REPORT), page(&made.report).unwrap()).unwrap();
    let of = |number: u32| made.folder.path().join(format!("hdr/{number}.hlog"));
    fs::copy(of(1), of(2)).unwrap();
    fs::remove_file(of(5)).unwrap();
    let outcome = verified(&made);
    let found = |what: &str| outcome.differences.iter().any(|it| it.contains(what));
    assert!(
        found("trial 2: latency of clients") && found("trial 5: "),
        "{outcome:?}"
    );
}
