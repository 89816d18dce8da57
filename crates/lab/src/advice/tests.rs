//! Advice from made-up runs.

use std::collections::BTreeMap;

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;

use super::*;
use crate::analysis::Measured;
use crate::journal::{CpuQuota, RunHead};
use loadline_capacity::stats::Difference;

const PLAN: &str = r#"name = "t"
[servers.loadline]
[[series]]
name = "models"
[series.factors]
architecture = ["reactor", "proactor", "thread-pool"]
service_us = [0, 500]
"#;

/// Answers a second of each architecture at each service time, five blocks that differ by a half.
fn run(values: &[(&str, f64, f64)]) -> Run {
    let mut trials = Vec::new();
    for block in 0..5_u32 {
        for (index, (architecture, service_us, per_s)) in values.iter().enumerate() {
            let wobble = 1.0 + 0.004 * f64::from((block * 7 + index as u32 * 3) % 5);
            let value = per_s * wobble * (1.0 + 0.1 * f64::from(block));
            let mut trial = Measured {
                number: trials.len() as u32,
                series: "models".to_owned(),
                block,
                levels: levels(&[("service_us", Level::Number(*service_us))]),
                values: BTreeMap::from([(Metric::GoodPerS, value), (Metric::P99Us, 1e9 / value)]),
                ..Measured::default()
            };
            let name = Level::from(*architecture);
            trial.levels.insert("architecture".to_owned(), name);
            trial.server.command = vec!["loadline".to_owned(), (*architecture).to_owned()];
            trials.push(trial);
        }
    }
    Run {
        head: RunHead {
            plan_toml: PLAN.to_owned(),
            seed: 1,
            ..RunHead::default()
        },
        trials,
        ..Run::default()
    }
}

fn levels(of: &[(&str, Level)]) -> Levels {
    let pairs = of.iter();
    let pairs = pairs.map(|(name, level)| ((*name).to_owned(), level.clone()));
    pairs.collect()
}

fn question(workload: Levels) -> Question {
    Question {
        workload,
        ..Question::default()
    }
}

fn ask(run: &Run, service_us: f64) -> Result<Advice, AdviceError> {
    let asked = levels(&[("service_us", Level::Number(service_us))]);
    advise(run, &question(asked))
}

/// Whether no advice is given, and why not.
fn refused(advice: Result<Advice, AdviceError>, why: &str) {
    let refusal = advice.unwrap_err().to_string();
    assert!(refusal.contains(why), "{refusal}");
}

const RUN: [(&str, f64, f64); 6] = [
    ("reactor", 0.0, 60_000.0),
    ("proactor", 0.0, 59_700.0),
    ("thread-pool", 0.0, 40_000.0),
    ("reactor", 500.0, 2_000.0),
    ("proactor", 500.0, 2_000.0),
    ("thread-pool", 500.0, 8_000.0),
];

fn name(choice: &Choice) -> String {
    text(&choice.levels)
}

fn is(trial: &Measured, architecture: &str, service_us: f64) -> bool {
    trial.levels["architecture"] == Level::from(architecture)
        && trial.levels["service_us"] == Level::Number(service_us)
}

#[test]
fn the_best_its_ties_and_what_would_change_it() {
    let advice = ask(&run(&RUN), 0.0).unwrap();
    assert_eq!(name(&advice.best), "architecture = reactor");
    assert_eq!(advice.best.command, ["loadline", "reactor"]);
    let tied: Vec<String> = advice.tied.iter().map(name).collect();
    assert_eq!(tied, ["architecture = proactor"]);
    let (runner_up, comparison) = advice.runner_up.unwrap();
    assert_eq!(name(&runner_up), "architecture = proactor");
    assert!(!matches!(
        comparison.difference,
        Difference::More | Difference::Less
    ));
    let change = &advice.would_change[0];
    assert_eq!(
        (change.factor.as_str(), &change.level),
        ("service_us", &Level::Number(500.0))
    );
    assert_eq!(text(&change.best), "architecture = thread-pool");
    assert!((change.comparison.ratio - 4.0).abs() < 0.1);
}

/// It is not advised for what it did in the other blocks.
#[test]
fn a_choice_that_did_nothing_in_a_block() {
    let mut run = run(&RUN);
    let is_it = |trial: &&mut Measured| trial.block == 2 && is(trial, "reactor", 0.0);
    let failed = run.trials.iter_mut().find(is_it).unwrap();
    failed.values.insert(Metric::GoodPerS, 0.0);
    let advice = ask(&run, 0.0).unwrap();
    assert_eq!(name(&advice.best), "architecture = proactor");
}

/// Three blocks of six choices that are all the same, with 5 % of noise.
fn run_of_equals(seed: u64) -> Run {
    let names = ["a", "b", "c", "d", "e", "f"].into_iter();
    let equals = names.flat_map(|name| [(name, 0.0, 1.0), (name, 500.0, 1.0)]);
    let mut run = run(&equals.collect::<Vec<_>>());
    run.trials.retain(|trial| trial.block < 3);
    let mut luck = Pcg64::seed_from_u64(seed);
    for trial in &mut run.trials {
        // Nearly normal, with a variance of 1.
        let noise: f64 = (0..3).map(|_| luck.random_range(-1.0..1.0_f64)).sum();
        let value = 1000.0 * (0.05 * noise).exp();
        trial.values.insert(Metric::GoodPerS, value);
    }
    run
}

#[test]
fn among_choices_that_are_the_same_nothing_would_change_the_advice() {
    let changes = |seed: &u64| {
        let advice = ask(&run_of_equals(*seed), 0.0).unwrap();
        !advice.would_change.is_empty()
    };
    let wrong = (0..300).filter(changes).count();
    // Any of the five others differs from the best in 5 % at most, so a given one in 1 %; and three
    // standard deviations of what is counted.
    assert!(wrong <= 8, "{wrong} of 300");
}

#[test]
fn less_is_better_where_times_are_asked_for() {
    let mut asked = question(levels(&[("service_us", Level::Number(500.0))]));
    asked.goal = Goal::TailLatency;
    let advice = advise(&run(&RUN), &asked).unwrap();
    assert_eq!(name(&advice.best), "architecture = thread-pool");
    // 1e9 over 8000 answers a second, and more in later blocks.
    assert!((100_000.0..125_001.0).contains(&advice.best.value));
    assert!((advice.runner_up.unwrap().1.ratio - 4.0).abs() < 0.1);
}

#[test]
fn nothing_is_said_beyond_what_was_measured() {
    let trials = run(&RUN);
    refused(ask(&trials, 1000.0), "nothing can be said");
    let backwards = run(&[("reactor", 500.0, 2_000.0), ("reactor", 60.0, 9_000.0)]);
    let measured = "measured were service_us = 60; service_us = 500";
    let refusal = ask(&backwards, 1000.0).unwrap_err().to_string();
    assert!(refusal.ends_with(measured), "{refusal}");
    // Between the two the best one changes.
    refused(ask(&trials, 100.0), "the best choice changes");
    let strange = question(levels(&[("moon", Level::Number(1.0))]));
    for why in ["moon was not varied", "service_us, architecture"] {
        refused(advise(&trials, &strange), why);
    }
    let nothing = Question::default();
    refused(advise(&trials, &nothing), "service_us was varied");
    assert!(advise(&Run::default(), &nothing).is_err());
    // Two blocks are not enough.
    let mut few = trials;
    few.trials.retain(|trial| trial.block < 2);
    refused(ask(&few, 0.0), "every choice was measured: 2;");
}

#[test]
fn between_two_that_agree() {
    let agreeing = [
        ("reactor", 0.0, 60_000.0),
        ("thread-pool", 0.0, 40_000.0),
        ("reactor", 100.0, 30_000.0),
        ("thread-pool", 100.0, 20_000.0),
    ];
    let advice = ask(&run(&agreeing), 50.0).unwrap();
    assert_eq!(text(&advice.best.levels), "architecture = reactor");
    assert_eq!(advice.rests_on.len(), 2);
}

#[test]
fn discarded_trials_say_nothing_and_noise_is_believed() {
    let mut made_up = run(&RUN);
    for trial in &mut made_up.trials {
        if is(trial, "reactor", 0.0) {
            trial.discarded.push("disturbed".to_owned());
        }
    }
    let advice = ask(&made_up, 0.0).unwrap();
    assert_eq!(text(&advice.best.levels), "architecture = proactor");
    assert_eq!(advice.discarded, 5);
    // A/A cells that differ by a half make a third no difference.
    let mut again = run(&[("thread-pool", 0.0, 25_000.0)]).trials;
    for trial in &mut again {
        trial.is_a_a = true;
    }
    made_up.trials.extend(again);
    let advice = ask(&made_up, 0.0).unwrap();
    assert!(advice.matters > 0.4, "{}", advice.matters);
    assert_eq!(advice.tied.len(), 1);
}

#[test]
fn a_choice_that_was_made_is_not_questioned() {
    let made = levels(&[
        ("service_us", Level::Number(0.0)),
        ("architecture", Level::from("thread-pool")),
    ]);
    let advice = advise(&run(&RUN), &question(made)).unwrap();
    assert_eq!(name(&advice.best), "architecture = thread-pool");
    assert!(advice.runner_up.is_none() && advice.would_change.is_empty());
}

#[test]
fn where_the_client_was_the_limit_what_could_be_more_is_not_called_less() {
    let mut made_up = run(&RUN);
    for trial in &mut made_up.trials {
        if is(trial, "thread-pool", 0.0) {
            (trial.client_limited, trial.server_busy) = (true, Some(0.5));
        }
    }
    // It carried 40,000/s with half of its CPU: 80,000/s, for all that is known.
    let advice = ask(&made_up, 0.0).unwrap();
    assert_eq!(name(&advice.best), "architecture = reactor");
    let tied: Vec<String> = advice.tied.iter().map(name).collect();
    assert_eq!(
        tied,
        ["architecture = proactor", "architecture = thread-pool"]
    );
    assert!(advice.tied[1].is_client_limited);
    for trial in &mut made_up.trials {
        trial.server_busy = trial.server_busy.map(|_| 0.9);
    }
    assert_eq!(ask(&made_up, 0.0).unwrap().tied.len(), 1);
}

/// What an answer costs is the same whoever waited, so a saturated server is not needed to tell.
#[test]
fn where_the_client_was_the_limit_cpu_time_still_decides() {
    let mut made_up = run(&RUN);
    for trial in &mut made_up.trials {
        trial.server.cpu_quota = Some(CpuQuota {
            cpus: 0.4,
            ..CpuQuota::default()
        });
        let demand_us = match is(trial, "reactor", 0.0) {
            true => 12.0,
            false => 16.0,
        };
        let wobble = 1.0 + 0.001 * f64::from(trial.number % 7);
        trial
            .values
            .insert(Metric::CpuUsPerRequest, demand_us * wobble);
        (trial.client_limited, trial.server_busy) = (true, Some(0.3));
    }
    assert_eq!(ask(&made_up, 0.0).unwrap().tied.len(), 2);
    let mut asked = question(levels(&[("service_us", Level::Number(0.0))]));
    asked.goal = Goal::CpuTime;
    let advice = advise(&made_up, &asked).unwrap();
    assert_eq!(name(&advice.best), "architecture = reactor");
    assert!(advice.tied.is_empty() && !advice.best.is_client_limited);
    assert_eq!(advice.best.cpu_quota, Some(0.4));
    let (_, comparison) = advice.runner_up.unwrap();
    assert!(
        (comparison.ratio - 4.0 / 3.0).abs() < 0.02,
        "{comparison:?}"
    );
}

#[test]
fn one_of_several_series_has_to_be_named() {
    let mut made_up = run(&RUN);
    made_up.trials[0].series = "others".to_owned();
    let which = "--series with one of models, others";
    refused(ask(&made_up, 0.0), which);
    let asked = Question {
        series: Some("moon".to_owned()),
        ..Question::default()
    };
    let which = "no series moon; right would be one of models";
    refused(advise(&made_up, &asked), which);
}

#[test]
fn what_is_there_for_comparison_is_never_advised() {
    let mut run = run(&[("reactor", 0.0, 1000.0), ("proactor", 0.0, 3000.0)]);
    run.head.plan_toml = PLAN.replace(
        "[servers.loadline]",
        "[servers.loadline]\n[servers.bare]\ncommand = [\"bare\"]\nreference = true",
    );
    for trial in &mut run.trials {
        let is_reactor = trial.levels["architecture"] == Level::from("reactor");
        trial.server.name = if is_reactor { "loadline" } else { "bare" }.to_owned();
    }
    let best = advise(&run, &question(Levels::new())).unwrap().best;
    assert_eq!(best.levels["architecture"], Level::from("reactor"));
}
