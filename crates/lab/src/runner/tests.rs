//! The loop, with a made-up trial_runner.

use std::path::Path;

use loadline_record::TrialRecord;

use super::*;
use crate::expand::expand;
use crate::journal::{self, Contents, RunHead, SCHEMA, ServerFacts};
use crate::observer::RunProgress;

/// Trials that take 2 s each, until the one before which it stops.
#[derive(Default)]
struct MadeUp {
    run: Vec<u32>,
    stops_before: Option<(u32, Stop)>,
    /// Trials that are disturbed, and how often.
    disturbed: Vec<(u32, u32)>,
    waits: usize,
    /// How long each wait takes.
    wait: Duration,
    /// Descriptors that the machine grants.
    descriptors_max: Option<u64>,
    /// Version of the server.
    version: &'static str,
}

impl TrialRunner for MadeUp {
    fn run(&mut self, planned: &PlannedTrial, repeat: u32) -> Result<Trial, Stop> {
        if let Some((number, stop)) = &self.stops_before
            && *number == planned.number
        {
            return Err(stop.clone());
        }
        self.run.push(planned.number);
        let of_trial = |(number, times): &(u32, u32)| *number == planned.number && repeat < *times;
        let disturbed = self.disturbed.iter().any(of_trial);
        let mut load = Box::<TrialRecord>::default();
        load.machine.descriptors_max = self.descriptors_max;
        Ok(Trial {
            number: planned.number,
            block: planned.block,
            disturbed,
            discarded: disturbed.then(|| "others".to_owned()).into_iter().collect(),
            load: Some(load),
            server: ServerFacts {
                name: "loadline".to_owned(),
                version: self.version.to_owned(),
                ..ServerFacts::default()
            },
            took_s: 2.0,
            ..Trial::default()
        })
    }

    fn wait_until_idle(&mut self) -> Duration {
        self.waits += 1;
        self.wait
    }
}

#[derive(Default)]
struct Notes(Vec<(u32, usize, f64)>);

impl RunObserver for Notes {
    fn waits(&mut self, _: &PlannedTrial, _: &RunProgress) {}

    fn begins(&mut self, _: &PlannedTrial, _: &RunProgress) {}

    fn recorded(&mut self, trial: &Trial, progress: &RunProgress) {
        self.0
            .push((trial.number, progress.recorded, progress.left_s));
    }
}

/// Three blocks of four trials, of a second of load each.
fn plan(more: &str) -> Plan {
    plan_of(3, more)
}

/// The same of another number of blocks.
fn plan_of(blocks: u32, more: &str) -> Plan {
    let text = format!(
        "name = \"t\"\n{more}\n[servers.loadline]\n[[series]]\nname = \"s\"\nreplicates = {blocks}\n\
         duration_s = 0.75\nwarm_up_s = 0.25\nfactors = {{ loops = [1, 2, 3] }}"
    );
    Plan::parse(&text, "plan", Path::new("/")).unwrap()
}

struct Outcome {
    ending: Result<Ending, String>,
    run: Vec<u32>,
    waits: usize,
    noted: Vec<(u32, usize, f64)>,
}

fn run(plan: &Plan, folder: &Path, stops_before: Option<(u32, Stop)>) -> Outcome {
    let trial_runner = MadeUp {
        stops_before,
        ..MadeUp::default()
    };
    run_on(plan, folder, trial_runner)
}

/// The journal of a run that has begun, now or before.
pub(super) fn begun(folder: &Path) -> (Store, Contents) {
    let (mut store, contents) = Store::open(folder).unwrap();
    if contents.head.is_none() {
        let head = RunHead {
            schema: SCHEMA.to_owned(),
            ..RunHead::default()
        };
        store.append(&Line::Run(Box::new(head))).unwrap();
    }
    (store, contents)
}

fn run_on(plan: &Plan, folder: &Path, mut trial_runner: MadeUp) -> Outcome {
    let expansion = expand(plan, 5, &[0], &[]).unwrap();
    let (mut store, contents) = begun(folder);
    let mut notes = Notes::default();
    let (trials, capacities) = (&contents.trials, &contents.capacities);
    let mut runner = Runner::new(plan, &expansion, &mut store, trials, capacities);
    let ending = runner.run(&mut trial_runner, &mut notes);
    let ending = ending.map_err(|why| why.to_string());
    Outcome {
        ending,
        waits: trial_runner.waits,
        run: trial_runner.run,
        noted: notes.0,
    }
}

fn recorded(folder: &Path) -> Vec<u32> {
    let trials = journal::read(folder).unwrap().trials;
    trials.iter().map(|trial| trial.number).collect()
}

#[test]
fn every_trial_is_run_once_in_its_order() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = run(&plan(""), folder.path(), None);
    assert_eq!(outcome.ending, Ok(Ending::Complete));
    assert_eq!(outcome.run, (0..12).collect::<Vec<_>>());
    assert_eq!(recorded(folder.path()), outcome.run);
    // Each has taken 1 s beside its load, so each that is left will take 2 s.
    assert_eq!(outcome.noted[0], (0, 1, 22.0));
    assert_eq!(outcome.noted[11], (11, 12, 0.0));
}

#[test]
fn a_run_goes_on_where_it_stopped_wherever_that_was() {
    for number in 0..12 {
        let folder = tempfile::tempdir().unwrap();
        let stops = Some((number, Stop::Interrupted));
        let first = run(&plan(""), folder.path(), stops);
        assert_eq!(first.ending, Ok(Ending::Interrupted));
        assert_eq!(first.run, (0..number).collect::<Vec<_>>());
        let second = run(&plan(""), folder.path(), None);
        assert_eq!(second.ending, Ok(Ending::Complete));
        assert_eq!(second.run, (number..12).collect::<Vec<_>>());
        assert_eq!(recorded(folder.path()), (0..12).collect::<Vec<_>>());
        let third = run(&plan(""), folder.path(), None);
        assert_eq!((third.ending, third.run.len()), (Ok(Ending::Complete), 0));
    }
}

#[test]
fn what_cannot_be_measured_at_all_ends_the_run_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let stop = Stop::from("disk full".to_owned());
    let outcome = run(&plan(""), folder.path(), Some((2, stop)));
    assert_eq!(outcome.ending, Err("disk full".to_owned()));
    assert_eq!(recorded(folder.path()), [0, 1]);
}

#[test]
fn blocks_that_do_not_fit_the_budget_are_not_begun() {
    let folder = tempfile::tempdir().unwrap();
    // A block takes 8 s, which the first shows; two of them fit.
    let plan = plan("budget_s = 17");
    let outcome = run(&plan, folder.path(), None);
    assert_eq!(outcome.ending, Ok(Ending::BudgetSpent));
    assert_eq!(outcome.run.len(), 8);
    let again = run(&plan, folder.path(), None);
    assert_eq!(
        (again.ending, again.run.len()),
        (Ok(Ending::BudgetSpent), 0)
    );
}

#[test]
fn a_block_that_was_begun_is_ended_though_the_budget_is_spent() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan("budget_s = 16");
    let first = run(&plan, folder.path(), Some((6, Stop::Interrupted)));
    assert_eq!(first.run.len(), 6);
    let second = run(&plan, folder.path(), None);
    assert_eq!(second.ending, Ok(Ending::BudgetSpent));
    assert_eq!(second.run, [6, 7]);
}

#[test]
fn a_budget_for_less_than_a_block_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = run(&plan("budget_s = 5"), folder.path(), None);
    let message = outcome.ending.unwrap_err();
    assert!(
        message.starts_with("budget_s 5 is not enough for one block"),
        "{message}"
    );
    assert!(outcome.run.is_empty());
}

#[test]
fn waits_for_an_idle_machine_are_of_the_budget() {
    // Three blocks and a repetition take 26 s.
    for (wait_s, ending, count) in [(0, Ending::Complete, 13), (5, Ending::BudgetSpent, 9)] {
        let folder = tempfile::tempdir().unwrap();
        let trial_runner = MadeUp {
            wait: Duration::from_secs(wait_s),
            ..disturbed(&[(1, 1)])
        };
        let outcome = run_on(&plan("budget_s = 27"), folder.path(), trial_runner);
        assert_eq!((outcome.ending, outcome.run.len()), (Ok(ending), count));
    }
}

fn disturbed(disturbed: &[(u32, u32)]) -> MadeUp {
    MadeUp {
        disturbed: disturbed.to_vec(),
        ..MadeUp::default()
    }
}

#[test]
fn what_was_disturbed_is_run_again_at_the_end_of_its_block() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = run_on(&plan(""), folder.path(), disturbed(&[(1, 1), (2, 2)]));
    assert_eq!(outcome.ending, Ok(Ending::Complete));
    assert_eq!(outcome.run[..7], [0, 1, 2, 3, 1, 2, 2]);
    assert_eq!((outcome.run.len(), outcome.waits), (15, 3));
    let trials = journal::read(folder.path()).unwrap().trials;
    let of_two: Vec<_> = trials.iter().filter(|it| it.number == 2).collect();
    let seen: Vec<_> = of_two.iter().map(|it| (it.repeat, it.disturbed)).collect();
    assert_eq!(seen, [(0, true), (1, true), (2, false)]);
    // Nothing is left to be done.
    let again = run(&plan(""), folder.path(), None);
    assert_eq!((again.ending, again.run.len()), (Ok(Ending::Complete), 0));
}

#[test]
fn repeats_have_an_end() {
    let folder = tempfile::tempdir().unwrap();
    let always: Vec<(u32, u32)> = (0..12).map(|number| (number, 99)).collect();
    let outcome = run_on(&plan(""), folder.path(), disturbed(&always));
    assert_eq!(outcome.ending, Ok(Ending::Complete));
    assert_eq!((outcome.run.len(), outcome.waits), (16, 4));
    let one = tempfile::tempdir().unwrap();
    let outcome = run_on(&plan(""), one.path(), disturbed(&[(5, 99)]));
    assert_eq!((outcome.run.len(), outcome.waits), (14, 2));
}

#[test]
fn a_run_that_was_killed_between_repeats_goes_on_with_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut trial_runner = disturbed(&[(3, 9)]);
    trial_runner.stops_before = Some((4, Stop::Interrupted));
    let first = run_on(&plan(""), folder.path(), trial_runner);
    assert_eq!(first.run, [0, 1, 2, 3, 3, 3]);
    let second = run_on(&plan(""), folder.path(), disturbed(&[(3, 9), (4, 1)]));
    assert_eq!(second.run[..5], [4, 5, 6, 7, 4]);
    let third = run_on(&plan(""), folder.path(), disturbed(&[]));
    assert_eq!(third.run.len(), 0);
}

/// A run that grew could repeat more trials, and began with those of its first blocks.
#[test]
fn blocks_that_are_over_stay_so_when_others_are_added() {
    let folder = tempfile::tempdir().unwrap();
    let always = [(0, 9), (1, 9), (2, 9), (3, 9), (7, 9)];
    let first = run_on(&plan_of(2, ""), folder.path(), disturbed(&always));
    assert_eq!(first.run, [0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7]);
    // The run may have been stopped before the repetitions of its last block.
    let second = run_on(&plan_of(12, ""), folder.path(), disturbed(&always));
    assert_eq!(second.run[..4], [7, 7, 8, 9]);
    assert_eq!(second.run.len(), 2 + 40);
}

#[test]
fn trials_on_a_machine_that_has_changed_are_discarded() {
    let folder = tempfile::tempdir().unwrap();
    let granted = |descriptors_max, stop: Option<u32>| MadeUp {
        descriptors_max: Some(descriptors_max),
        stops_before: stop.map(|number| (number, Stop::Interrupted)),
        ..MadeUp::default()
    };
    run_on(&plan(""), folder.path(), granted(4096, Some(5)));
    run_on(&plan(""), folder.path(), granted(1024, Some(8)));
    run_on(&plan(""), folder.path(), granted(4096, None));
    let trials = journal::read(folder.path()).unwrap().trials;
    assert_eq!(discarded(&trials), [5, 6, 7]);
    assert!(trials[5].discarded[0].ends_with("descriptors of a process 1024, not 4096."));
}

fn discarded(trials: &[Trial]) -> Vec<u32> {
    let discarded = trials.iter().filter(|trial| !trial.discarded.is_empty());
    discarded.map(|trial| trial.number).collect()
}

#[test]
fn trials_of_another_version_of_a_server_are_discarded() {
    let folder = tempfile::tempdir().unwrap();
    let installed = |version: &'static str, stop: Option<u32>| MadeUp {
        version,
        stops_before: stop.map(|number| (number, Stop::Interrupted)),
        ..MadeUp::default()
    };
    run_on(&plan(""), folder.path(), installed("", Some(2)));
    run_on(&plan(""), folder.path(), installed("1.22", Some(5)));
    run_on(&plan(""), folder.path(), installed("1.24", Some(8)));
    run_on(&plan(""), folder.path(), installed("1.22", None));
    let trials = journal::read(folder.path()).unwrap().trials;
    assert_eq!(discarded(&trials), [5, 6, 7]);
    assert!(trials[5].discarded[0].ends_with("1.24, not 1.22."));
}

#[test]
fn capacities_were_measured_on_the_machine_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let (mut store, _) = begun(folder.path());
    let mut load = Box::<TrialRecord>::default();
    load.machine.descriptors_max = Some(4096);
    let mut capacity = CapacityTrial::default();
    capacity.trial.load = Some(load);
    store.append(&Line::Capacity(Box::new(capacity))).unwrap();
    drop(store);
    let changed = MadeUp {
        descriptors_max: Some(1024),
        ..MadeUp::default()
    };
    run_on(&plan(""), folder.path(), changed);
    let trials = journal::read(folder.path()).unwrap().trials;
    assert_eq!(discarded(&trials), (0..12).collect::<Vec<_>>());
}
