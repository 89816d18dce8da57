//! Runs that are interrupted, killed, and begun again.

use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

use crate::bench::{Bench, numbers, said};
use crate::program::run;

/// Trials as short as they can be.
fn plan(replicates: u32) -> String {
    format!(
        "name = \"t\"\nfiles = {{ \"index.html\" = 93 }}\n\
         [servers.loop]\nkind = \"loadline\"\noptions = {{ loops = 1, workers = 0 }}\n\
         [servers.pool]\nkind = \"loadline\"\n\
         options = {{ architecture = \"thread-pool\", threads = 4 }}\n\
         [[series]]\nname = \"s\"\npath = \"/index.html\"\nreplicates = {replicates}\n\
         duration_s = 0.02\nwarm_up_s = 0\nload = {{ connections = 2, rate = 500 }}\n\
         allow = {{ steal = 1, others = 1, client_limited = true }}"
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
        let mut printed = before.len();
        while Instant::now() < until {
            let rest = until.saturating_duration_since(Instant::now());
            printed += running.line_within(rest).map_or(0, |line| is_trial(&line));
        }
        running.signal("KILL");
        let (_, rest) = running.end();
        printed += rest.iter().map(|line| is_trial(line)).sum::<usize>();
        bench.wait_until_nothing_runs();
        if !bench.out().join("journal.jsonl").exists() {
            assert_eq!(printed, 0);
            continue;
        }
        let recorded = numbers(&bench.journal().trials);
        assert!(
            recorded.starts_with(&before),
            "{recorded:?} after {before:?}"
        );
        assert!(
            recorded.len() >= printed,
            "{printed} were printed, {recorded:?} are there"
        );
        before = recorded;
    }
    let trials = bench.complete();
    assert_eq!(numbers(&trials), (0..36).collect::<Vec<_>>());
    for trial in &trials {
        let load = trial.load.as_ref().unwrap();
        let hdr = trial.hdr_file.as_ref().unwrap();
        let log = fs::read_to_string(bench.out().join(hdr)).unwrap();
        // On a machine that is busy with others, 20 ms may pass without an answer.
        let has_answers = load.groups[0].total.tally.completed > 0;
        assert_eq!(log.contains("HIST"), has_answers, "{log}");
    }
    bench.wait_until_nothing_runs();
}

/// 1 for a line that says that a trial is recorded.
fn is_trial(line: &str) -> usize {
    usize::from(line.contains("block "))
}

#[test]
fn an_interruption_gives_up_the_trial_in_progress_and_the_same_command_goes_on() {
    // The third server to be started waits until the run has been interrupted.
    let bench = Bench::new("");
    bench.write(&gated_plan(&bench));
    bench.write_beside("hold", "");
    let mut running = bench.start();
    running.wait_for("2/6, block 1/2");
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
    assert_eq!(numbers(&bench.journal().trials), [0, 1]);
    fs::remove_file(bench.beside("hold")).unwrap();
    assert_eq!(numbers(&bench.complete()), (0..6).collect::<Vec<_>>());
}

/// Two blocks of two servers and an A/A cell, whose third start waits for as long as there is a file
/// `hold` beside the plan.
fn gated_plan(bench: &Bench) -> String {
    let (starts, hold) = (bench.beside("starts"), bench.beside("hold"));
    let script = format!(
        "echo >> '{starts}'; while [ -e '{hold}' ] && [ $(wc -l < '{starts}') -gt 2 ]; \
         do sleep 0.02; done; exec {{loadline}} serve {{root}} --listen=127.0.0.1:{{port}}",
        starts = starts.display(),
        hold = hold.display()
    );
    let server =
        |name: &str| format!("[servers.{name}]\ncommand = [\"sh\", \"-c\", \"{script}\"]\n");
    let plan = plan(2);
    let (head, _) = plan.split_once("[servers").unwrap();
    let (_, series) = plan.split_once("[[series]]").unwrap();
    format!("{head}{}{}[[series]]{series}", server("one"), server("two"))
}

#[test]
fn an_interruption_in_the_middle_of_a_load_leaves_nothing_of_the_trial() {
    let bench = Bench::new(&plan(1).replace("duration_s = 0.02", "duration_s = 60"));
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

/// The same text in another folder may mean other files.
#[test]
fn a_plan_with_files_beside_it_is_another_one_in_another_folder() {
    for (line, code) in [("", 0), ("\n# What is in {plan} belongs to it.", 2)] {
        let text = plan(1) + line;
        let bench = Bench::new(&text);
        bench.complete();
        let elsewhere = tempfile::tempdir().unwrap();
        let copy = elsewhere.path().join("plan.toml");
        fs::write(&copy, &text).unwrap();
        let (copy, out) = (copy.to_str().unwrap(), bench.out());
        let output = run(&["lab", "run", copy, "--out", out.to_str().unwrap()]);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(code), "{text}");
        let is_refused = text.contains("the run in it was begun with the plan in ");
        assert_eq!(is_refused, code == 2, "{text}");
        assert_eq!(bench.run(&[]).status.code(), Some(0));
    }
}
