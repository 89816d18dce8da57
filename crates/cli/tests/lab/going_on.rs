//! Runs that are interrupted, killed, and begun again.

use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

use crate::bench::{Bench, numbers, said};

/// Trials as short as they can be.
fn plan(replicates: u32) -> String {
    format!(
        "name = \"t\"\nfiles = {{ \"index.html\" = 93 }}\n\
         [servers.loop]\nkind = \"loadline\"\noptions = {{ loops = 1, workers = 0 }}\n\
         [servers.pool]\nkind = \"loadline\"\n\
         options = {{ architecture = \"thread-pool\", threads = 4 }}\n\
         [[series]]\nname = \"s\"\npath = \"/index.html\"\nreplicates = {replicates}\n\
         duration_s = 0.02\nwarm_up_s = 0\nload = {{ connections = 2, rate = 500 }}\n\
         allow = {{ steal = 1, others = 1 }}"
    )
}

/// How often a run is killed.
const KILLS: usize = 20;
/// From its start to the kill, at most: some trials.
const LIFE_MS_MAX: u64 = 500;

#[test]
fn killed_at_random_moments_nothing_is_lost_but_the_trial_in_progress() {
    let bench = Bench::new(&plan(12)); // two cells and an A/A cell: 36 trials
    let random = RandomState::new();
    let mut before = Vec::new();
    for kill in 0..KILLS {
        let life = Duration::from_millis(random.hash_one(kill) % LIFE_MS_MAX);
        let until = Instant::now() + life;
        let mut running = bench.start();
        let mut told = before.len();
        while Instant::now() < until {
            let rest = until.saturating_duration_since(Instant::now());
            told += running.line_within(rest).map_or(0, |line| is_trial(&line));
        }
        running.signal("KILL");
        let (_, rest) = running.end();
        told += rest.iter().map(|line| is_trial(line)).sum::<usize>();
        bench.wait_until_nothing_runs();
        if !bench.out().join("journal.jsonl").exists() {
            assert_eq!(told, 0);
            continue;
        }
        let recorded = numbers(&bench.journal().trials);
        assert!(
            recorded.starts_with(&before),
            "{recorded:?} after {before:?}"
        );
        assert!(
            recorded.len() >= told,
            "{told} were told, {recorded:?} are there"
        );
        before = recorded;
    }
    let trials = bench.complete();
    assert_eq!(numbers(&trials), (0..36).collect::<Vec<_>>());
    for trial in &trials {
        assert!(trial.load.is_some(), "{trial:?}");
        let hdr = trial.hdr_file.as_ref().unwrap();
        let log = fs::read_to_string(bench.out().join(hdr)).unwrap();
        assert!(log.contains("HIST"), "{log}");
    }
    bench.wait_until_nothing_runs();
}

/// 1 for a line that says that a trial is recorded.
fn is_trial(line: &str) -> usize {
    usize::from(line.contains("block "))
}

#[test]
fn an_interruption_gives_up_the_trial_in_progress_and_the_same_command_goes_on() {
    let long = plan(1).replace("duration_s = 0.02", "duration_s = 60");
    // Some seconds of trials, so that the run is not over before the signal is there.
    let bench = Bench::new(&plan(8));
    let mut running = bench.start();
    running.wait_for("2/24, block 1/8");
    running.signal("INT");
    let (status, lines) = running.end();
    assert_eq!(status.code(), Some(130), "{lines:?}");
    assert!(
        lines
            .last()
            .unwrap()
            .contains("interrupted: what was recorded is in")
    );
    bench.wait_until_nothing_runs();
    let before = numbers(&bench.journal().trials);
    assert!(before.len() >= 2 && before.len() < 24, "{before:?}");
    assert_eq!(numbers(&bench.complete()), (0..24).collect::<Vec<_>>());

    // In the middle of a load.
    let bench = Bench::new(&long);
    let mut running = bench.start();
    running.wait_for("3 trials in 1 blocks");
    let scratch = bench.out().join("scratch");
    let loads = || {
        let mut trials = fs::read_dir(&scratch).into_iter().flatten().flatten();
        trials.any(|trial| trial.path().join("load.log").exists())
    };
    while !loads() {
        assert!(running.line_within(Duration::from_millis(2)).is_none());
    }
    running.signal("TERM");
    assert_eq!(running.end().0.code(), Some(130));
    bench.wait_until_nothing_runs();
    assert!(bench.journal().trials.is_empty());
}

#[test]
fn what_is_drawn_can_be_changed_after_it_was_measured() {
    let bench = Bench::new(&plan(1));
    let before = bench.complete();
    let chart = "\n[[chart]]\nseries = \"s\"\nkind = \"bars\"\nx = \"server\"\ntitle = \"Later\"\n";
    for title in ["Later", "Latest"] {
        bench.write(&(plan(1) + &chart.replace("Later", title)));
        assert_eq!(bench.complete(), before);
        let head = bench.journal().head.unwrap();
        assert!(head.plan_toml.contains(title), "{}", head.plan_toml);
        let run = loadline_lab::analysis::Run::read(&bench.out()).unwrap();
        assert_eq!(run.head, *head);
        assert_eq!(run.trials.len(), before.len());
    }
    bench.write(&(plan(2) + chart));
    assert_eq!(bench.run(&[]).status.code(), Some(2));
}

#[test]
fn a_folder_holds_one_run_of_one_plan() {
    let bench = Bench::new(&plan(1).replace("duration_s = 0.02", "duration_s = 60"));
    let running = bench.start();
    running.wait_for("trials in 1 blocks");
    let second = bench.run(&[]);
    assert_eq!(second.status.code(), Some(2), "{}", said(&second));
    assert!(said(&second).contains("another run is going on in this folder"));
    drop(running);
    bench.wait_until_nothing_runs();
    let other = bench.run(&["--seed", "7"]);
    assert_eq!(other.status.code(), Some(2));
    assert!(said(&other).contains("has the seed 1, not 7; right would be another --out"));
    bench.write(&plan(2));
    let other = bench.run(&[]);
    assert_eq!(other.status.code(), Some(2));
    assert!(
        said(&other).contains("the run in it has another plan"),
        "{}",
        said(&other)
    );
    assert_eq!(bench.journal().trials.len(), 0);
}
