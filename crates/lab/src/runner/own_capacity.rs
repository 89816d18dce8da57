//! The capacities that a plan's rates are multiples of: what each server carries in a closed loop,
//! measured before the first block.
//!
//! Cells that differ in their rates alone share one. Each is the median of a few trials, which stand in
//! the journal like all others, so a run that goes on has the same capacities and rates.

use crate::cells::{Cell, levels_text};
use crate::expand::{Expansion, PlannedTrial};
use crate::journal::{CapacityTrial, Line, Store, Trial};
use crate::plan::Plan;
use loadline_capacity::stats::median;
use loadline_spec::load::LoadSpec;
use loadline_spec::load::values::Rate;

use super::{Stop, TrialRunner};

/// Trials of which a capacity is the median.
const TRIALS: usize = 3;
/// Attempts at those, of one server in one go: a machine that is never idle gives none.
const ATTEMPTS_MAX: usize = 6;
/// A trial counts if at most this part of its requests failed, whatever the plan allows: a server that
/// turns away more is busy with that.
const FAILED_SHARE_MAX: f64 = 0.1;
/// Trials of the run have the numbers below.
const NUMBER_FIRST: u32 = 1_000_000;

/// The capacities that a run needs.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnCapacities {
    /// Their trials, and their cells: closed loops.
    pub expansion: Expansion,
    /// For each cell of the run, which of those its rate is a multiple of.
    of_cells: Vec<Option<usize>>,
}

impl OwnCapacities {
    /// Of a run whose order is drawn from `seed`; `None`: no rate is a multiple.
    #[must_use]
    pub fn of(run: &Expansion, seed: u64) -> Option<Self> {
        let mut cells: Vec<Cell> = Vec::new();
        let of_cells = run.cells.iter().map(|cell| {
            cell.rate_of_capacity?;
            let closed = closed(cell.capacity_cell(&run.cells)?);
            let known = cells.iter().position(|one| is_same(one, &closed));
            Some(known.unwrap_or_else(|| {
                cells.push(closed);
                cells.len() - 1
            }))
        });
        let of_cells: Vec<Option<usize>> = of_cells.collect();
        let trial = |(number, cell)| PlannedTrial {
            number,
            cell,
            replicate: 1,
            block: 0,
            is_a_a: false,
            load_seed: seed,
        };
        let trials = (NUMBER_FIRST..).zip(0..cells.len()).map(trial).collect();
        (!cells.is_empty()).then(|| Self {
            expansion: Expansion {
                cells,
                files: run.files.clone(),
                trials,
            },
            of_cells,
        })
    }

    /// How long what is missing takes at least, if each trial takes `overhead_s` beside its load.
    #[must_use]
    pub fn left_s(&self, plan: &Plan, recorded: &[CapacityTrial], overhead_s: f64) -> f64 {
        let each = self.expansion.trials.iter().map(|trial| {
            let missing = TRIALS.saturating_sub(self.carried(trial.cell, recorded).len());
            missing as f64 * self.expansion.estimate_s(plan, &[*trial], overhead_s)
        });
        each.sum()
    }

    /// Measures what is missing, in rounds over all servers; each trial is recorded before the next
    /// begins. `notify` gets each of them with its cell, and what was carried, if it counts.
    ///
    /// # Errors
    /// Somebody wants the run to end, or a server's capacity cannot be measured.
    pub fn measure(
        &self,
        trial_runner: &mut dyn TrialRunner,
        store: &mut Store,
        recorded: &mut Vec<CapacityTrial>,
        notify: &mut dyn FnMut(&Cell, &Trial, Option<f64>),
    ) -> Result<(), Stop> {
        let planned = &self.expansion.trials;
        for attempt in 0..=ATTEMPTS_MAX {
            let is_missing = |it: &&PlannedTrial| self.carried(it.cell, recorded).len() < TRIALS;
            let missing: Vec<PlannedTrial> = planned.iter().filter(is_missing).copied().collect();
            let Some(first) = missing.first() else { break };
            if attempt == ATTEMPTS_MAX {
                return Err(self.failure(first.cell, recorded).into());
            }
            for planned in missing {
                let before = recorded.iter().filter(|it| it.of as usize == planned.cell);
                let repeat = before.count() as u32;
                // Each has arrivals of its own.
                let planned = PlannedTrial {
                    load_seed: planned.load_seed.wrapping_add(u64::from(repeat)),
                    ..planned
                };
                let mut trial = Trial {
                    repeat,
                    ..trial_runner.run(&planned, repeat)?
                };
                if trial.discarded.is_empty() {
                    trial.discarded = too_many_failed(&trial).into_iter().collect();
                }
                notify(self.expansion.cell(&planned), &trial, carried(&trial));
                let one = CapacityTrial {
                    of: planned.cell as u32,
                    trial,
                };
                let line = Line::Capacity(Box::new(one.clone()));
                store.append(&line)?;
                recorded.push(one);
            }
        }
        Ok(())
    }

    /// Gives each cell of the run its rate. Every capacity has been measured.
    pub fn set_rates(&self, run: &mut Expansion, recorded: &[CapacityTrial]) {
        for (cell, of) in run.cells.iter_mut().zip(&self.of_cells) {
            if let Some(multiple) = cell.rate_of_capacity
                && let Some(per_s) = of.and_then(|of| self.capacity(of, recorded))
            {
                let tenths = (multiple * per_s * 10.0).round().max(1.0);
                cell.load.pace.rate = Some(Rate::clamped(tenths / 10.0));
            }
        }
    }

    /// Good answers per second, the median of its trials; `None`: too few.
    #[must_use]
    pub fn capacity(&self, of: usize, recorded: &[CapacityTrial]) -> Option<f64> {
        median(self.carried(of, recorded).get(..TRIALS)?)
    }

    /// Of those trials that count, in the order in which they were run.
    fn carried(&self, of: usize, recorded: &[CapacityTrial]) -> Vec<f64> {
        let of_cell = recorded.iter().filter(|it| it.of as usize == of);
        of_cell.filter_map(|it| carried(&it.trial)).collect()
    }

    fn failure(&self, of: usize, recorded: &[CapacityTrial]) -> String {
        let last = recorded.iter().rfind(|it| it.of as usize == of);
        let why = last.map_or_else(
            || "nothing was answered".to_owned(),
            |it| it.trial.discarded.join(" "),
        );
        format!(
            "the capacity of {} cannot be measured, and rates are multiples of it: {why}",
            levels_text(&self.expansion.cells[of].levels)
        )
    }
}

/// What a trial carried, if it counts.
fn carried(trial: &Trial) -> Option<f64> {
    let load = trial.load.as_ref().filter(|_| trial.discarded.is_empty())?;
    let each = load.measured_groups();
    let per_s: f64 = each.map(|group| group.total.rates.good_per_s).sum();
    (per_s > 0.0).then_some(per_s)
}

/// Why a trial does not count in which much failed.
fn too_many_failed(trial: &Trial) -> Option<String> {
    let (mut failed, mut offered) = (0, 0);
    for group in trial.load.as_ref()?.measured_groups() {
        failed += group.total.tally.errors_total();
        offered += group.total.tally.offered;
    }
    (failed as f64 > offered as f64 * FAILED_SHARE_MAX).then(|| {
        format!(
            "{failed} of {offered} requests failed: what a server carries is measured with at most \
             {:.0} %.",
            FAILED_SHARE_MAX * 100.0
        )
    })
}

/// The same server under a closed loop, without what its cells may differ in.
fn closed(cell: &Cell) -> Cell {
    let mut closed = cell.clone();
    closed.rate_of_capacity = None;
    closed.capacity_of = None;
    closed.is_repeated = false;
    closed.levels.retain(|name, _| name != "rate_of_capacity");
    // Every option there goes with an open loop.
    closed.load.pace = LoadSpec::default().pace;
    closed.load.machine.spin = false;
    closed
}

/// Whether two closed loops measure the same: what a plan calls them does not matter.
fn is_same(one: &Cell, other: &Cell) -> bool {
    let rest = |cell: &Cell| Cell {
        levels: Default::default(),
        load: LoadSpec::default(),
        ..cell.clone()
    };
    rest(one) == rest(other) && one.load == other.load
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use loadline_record::{ErrorKind, GroupRecord, TrialRecord};

    use super::*;
    use crate::expand::expand;
    use crate::journal;
    use crate::runner::tests::begun;

    const PLAN: &str = "name = \"t\"\n[servers.one]\nkind = \"loadline\"\n[servers.two]\n\
        kind = \"loadline\"\noptions = { loops = 2 }\n[[series]]\nname = \"s\"\na_a = false\n\
        duration_s = 2\nwarm_up_s = 1\nload = { connections = 9, arrivals = \"constant\" }\n\
        factors = { rate_of_capacity = [0.5, 1.7] }\n[[series]]\nname = \"closed\"";

    /// Servers that carry so many per second, trial after trial; `None`: it is discarded.
    struct Carrying {
        cells: Vec<Cell>,
        per_s: Vec<Option<f64>>,
        /// Of a thousand requests.
        failed: u64,
        runs: usize,
        stops_after: usize,
    }

    impl TrialRunner for Carrying {
        fn run(&mut self, planned: &PlannedTrial, _: u32) -> Result<Trial, Stop> {
            if self.runs == self.stops_after {
                return Err(Stop::Interrupted);
            }
            self.runs += 1;
            let cell = &self.cells[planned.cell];
            assert!(cell.load.pace.rate.is_none() && cell.load.pace.arrivals.is_none());
            let per_s = self.per_s[self.runs - 1];
            let mut group = GroupRecord::default();
            let rates = &mut group.total.rates;
            rates.good_per_s = per_s.unwrap_or(1.0);
            rates.completed_per_s = 90.0 * rates.good_per_s; // refusals are quick
            group.total.tally.offered = 1000;
            group.total.tally.errors[ErrorKind::Status5xx as usize] = self.failed;
            Ok(Trial {
                number: planned.number,
                load: Some(Box::new(TrialRecord {
                    groups: vec![group],
                    ..TrialRecord::default()
                })),
                discarded: per_s.map_or_else(|| vec!["others".to_owned()], |_| Vec::new()),
                ..Trial::default()
            })
        }

        fn wait_until_idle(&mut self) -> Duration {
            Duration::ZERO
        }
    }

    fn run_of(plan: &str) -> (Plan, Expansion, OwnCapacities) {
        let plan = Plan::parse(plan, "plan", Path::new("/")).unwrap();
        let run = expand(&plan, 1, &[0, 1], &[]).unwrap();
        let own = OwnCapacities::of(&run, 1).unwrap();
        (plan, run, own)
    }

    /// One go; how many trials it has run.
    fn go(
        own: &OwnCapacities,
        folder: &Path,
        per_s: &[Option<f64>],
        stops_after: usize,
    ) -> Result<usize, String> {
        go_failing(own, folder, per_s, stops_after, 0)
    }

    /// The same with so many failures in a thousand requests.
    fn go_failing(
        own: &OwnCapacities,
        folder: &Path,
        per_s: &[Option<f64>],
        stops_after: usize,
        failed: u64,
    ) -> Result<usize, String> {
        let (mut store, contents) = begun(folder);
        let mut trial_runner = Carrying {
            cells: own.expansion.cells.clone(),
            per_s: per_s.to_vec(),
            failed,
            runs: 0,
            stops_after,
        };
        let mut recorded = contents.capacities;
        let ignore = &mut |_: &Cell, _: &Trial, _: Option<f64>| {};
        own.measure(&mut trial_runner, &mut store, &mut recorded, ignore)
            .map_err(|stop| stop.to_string())?;
        Ok(trial_runner.runs)
    }

    fn rates(run: &Expansion) -> Vec<Option<String>> {
        let rate = |cell: &Cell| cell.load.pace.rate.map(|rate| rate.to_string());
        run.cells.iter().map(rate).collect()
    }

    #[test]
    fn rates_follow_from_the_median_of_each_server() {
        let folder = tempfile::tempdir().unwrap();
        let (plan, mut run, own) = run_of(PLAN);
        // Two servers in place of four cells; cells without a multiple need none.
        assert_eq!(own.expansion.cells.len(), 2);
        assert!((own.left_s(&plan, &[], 0.5) - 6.0 * 3.5).abs() < 1e-9);
        // In rounds: one, two, one, two, one, two; a discarded one is made up for.
        let mut per_s = [1000.0, 500.0, 0.0, 540.0, 900.0, 520.0, 1300.0].map(Some);
        per_s[2] = None;
        assert_eq!(go(&own, folder.path(), &per_s, usize::MAX), Ok(7));
        let recorded = journal::read(folder.path()).unwrap().capacities;
        assert_eq!(own.capacity(0, &recorded), Some(1000.0));
        assert_eq!(own.capacity(1, &recorded), Some(520.0));
        assert!(own.left_s(&plan, &recorded, 0.5) < 1e-9);
        own.set_rates(&mut run, &recorded);
        let mut found = rates(&run);
        found[..4].sort();
        let right = ["1700", "260", "500", "884"].map(|rate| Some(rate.to_owned()));
        assert_eq!(found[..4], right);
        assert_eq!(found[4..], [None, None]);
    }

    #[test]
    fn rates_can_be_multiples_of_what_another_server_carries() {
        let text = PLAN.replace("[0.5, 1.7]", "[\"0.7 of two\"]");
        let (plan, mut run, own) = run_of(&text);
        let servers = own.expansion.cells.iter().map(|cell| cell.server.as_str());
        assert_eq!(servers.collect::<Vec<_>>(), ["two"]);
        let folder = tempfile::tempdir().unwrap();
        let per_s = [Some(1000.0); 3];
        assert_eq!(go(&own, folder.path(), &per_s, usize::MAX), Ok(3));
        let recorded = journal::read(folder.path()).unwrap().capacities;
        own.set_rates(&mut run, &recorded);
        let rate = Some("700".to_owned());
        assert_eq!(rates(&run)[..2], [rate.clone(), rate]);
        // Where that server is not installed there is no such rate; one that is not there is a slip.
        let run = expand(&plan, 1, &[0, 1], &["two".to_owned()]).unwrap();
        assert!(run.cells.iter().all(|cell| cell.rate_of_capacity.is_none()));
        let text = text.replace("of two", "of three");
        let plan = Plan::parse(&text, "plan", Path::new("/")).unwrap();
        let error = expand(&plan, 1, &[0, 1], &[]).unwrap_err().to_string();
        assert!(
            error.contains("of three, which the series is not run with"),
            "{error}"
        );
    }

    #[test]
    fn an_interruption_costs_the_trial_in_progress_and_no_number() {
        let folder = tempfile::tempdir().unwrap();
        let (_, _, own) = run_of(PLAN);
        let all = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0].map(Some);
        let interrupted = Err(Stop::Interrupted.to_string());
        assert_eq!(go(&own, folder.path(), &all, 4), interrupted);
        assert_eq!(go(&own, folder.path(), &all[4..], usize::MAX), Ok(2));
        let recorded = journal::read(folder.path()).unwrap().capacities;
        assert_eq!(own.capacity(0, &recorded), Some(30.0));
        assert_eq!(own.capacity(1, &recorded), Some(40.0));
        // Nothing is measured again.
        assert_eq!(go(&own, folder.path(), &[], usize::MAX), Ok(0));
    }

    #[test]
    fn a_server_that_is_never_measured_ends_the_run_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let (_, _, own) = run_of(PLAN);
        let ended = go(&own, folder.path(), &[None; 2 * ATTEMPTS_MAX], usize::MAX);
        let why =
            "the capacity of server=one cannot be measured, and rates are multiples of it: others";
        assert_eq!(ended, Err(why.to_owned()));
    }

    #[test]
    fn what_two_protocols_carry_is_their_sum() {
        let group = |name: &str, good_per_s: f64, failed: u64| {
            let mut group = GroupRecord {
                name: name.to_owned(),
                ..GroupRecord::default()
            };
            group.total.rates.good_per_s = good_per_s;
            group.total.tally.offered = 1000;
            group.total.tally.errors[ErrorKind::Reset as usize] = failed;
            group
        };
        let trial = |http2_failed: u64| Trial {
            load: Some(Box::new(TrialRecord {
                groups: vec![
                    group("clients", 300.0, 0),
                    group("http2", 100.0, http2_failed),
                    group("slow-heads", 7.0, 900),
                ],
                ..TrialRecord::default()
            })),
            ..Trial::default()
        };
        assert_eq!(carried(&trial(200)), Some(400.0));
        assert_eq!(too_many_failed(&trial(200)), None);
        assert!(too_many_failed(&trial(201)).is_some());
    }

    #[test]
    fn what_is_refused_is_not_carried() {
        let (_, _, own) = run_of(PLAN);
        let per_s = [Some(1000.0); 2 * ATTEMPTS_MAX];
        let go = |folder: &Path, failed| go_failing(&own, folder, &per_s, usize::MAX, failed);
        let few = tempfile::tempdir().unwrap();
        assert_eq!(go(few.path(), 100), Ok(6));
        let recorded = journal::read(few.path()).unwrap().capacities;
        assert_eq!(own.capacity(0, &recorded), Some(1000.0));
        let many = tempfile::tempdir().unwrap();
        let why = go(many.path(), 101).unwrap_err();
        assert!(why.contains("101 of 1000 requests failed"), "{why}");
    }

    #[test]
    fn options_of_open_loops_are_not_those_of_the_closed_ones() {
        let options = "overflow = \"drop\", retries = 2, retry_pause = \"50ms\", burst = \"1s/1s\", \
                       burst_base = 10";
        let text = PLAN.replace("connections = 9", &format!("connections = 9, {options}"));
        let (_, run, own) = run_of(&text);
        assert_eq!(own.expansion.cells.len(), 2);
        for cell in &own.expansion.cells {
            assert_eq!(cell.load.check(), Ok(()));
            assert_eq!(
                cell.load.clients.connections,
                run.cells[0].load.clients.connections
            );
        }
    }

    #[test]
    fn plans_without_multiples_need_none() {
        let text = PLAN.replace("rate_of_capacity", "rate_per_s");
        let plan = Plan::parse(&text, "plan", Path::new("/")).unwrap();
        let run = expand(&plan, 1, &[0], &[]).unwrap();
        assert!(run.cells.iter().all(|cell| cell.rate_of_capacity.is_none()));
        assert_eq!(OwnCapacities::of(&run, 1), None);
    }
}
