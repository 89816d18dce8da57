//! From a plan to trials in the order in which they are run: randomised, interleaved blocks.
//!
//! A block has every cell once, and A/A cells twice, in an order drawn from the seed; so whatever
//! happens to the machine for a while happens to all cells alike. No part of this reads a clock or
//! starts anything.

use std::collections::BTreeMap;

use loadline_spec::load::LoadSpec;
use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_pcg::Pcg64;

use crate::cells::{Cell, Cells};
use crate::journal::AddedBlocks;
use crate::plan::{Plan, PlanError};

/// Trials of a run: more is a slip.
const TRIALS_MAX: usize = 1_000_000;

/// Time that a trial takes beside its load, before one has been measured: the start of the server,
/// the check of its answer, the last answers, the end.
pub const OVERHEAD_S: f64 = 0.5;

/// A run as it will be.
#[derive(Clone, Debug, PartialEq)]
pub struct Expansion {
    /// The cells.
    pub cells: Vec<Cell>,
    /// What is made below the document root: path and size in bytes.
    pub files: BTreeMap<String, u64>,
    /// The trials in their order.
    pub trials: Vec<PlannedTrial>,
}

/// A trial that is to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedTrial {
    /// Its place in the order, from 0.
    pub number: u32,
    /// Index into [`Expansion::cells`].
    pub cell: usize,
    /// From 1.
    pub replicate: u32,
    /// From 0.
    pub block: u32,
    /// Whether it is the second of two that are the same.
    pub is_a_a: bool,
    /// Of its load: the same for all of a block, so that cells differ in what the plan varies and in
    /// nothing else.
    pub load_seed: u64,
}

/// Orders the trials of a plan on a machine with these CPUs, without servers that are not installed.
/// The same arguments give the same order.
///
/// # Errors
/// What does not fit together and what would be right.
pub fn expand(
    plan: &Plan,
    seed: u64,
    cpus: &[usize],
    left_out: &[String],
) -> Result<Expansion, PlanError> {
    let Cells { cells, files } = Cells::of(plan, cpus, left_out)?;
    let replicates = |cell: &Cell| plan.series[cell.series].replicates;
    let block_count = cells.iter().map(replicates).max().unwrap_or(0);
    let mut run = Expansion {
        cells,
        files,
        trials: Vec::new(),
    };
    for block in 0..block_count {
        let mut trials = Vec::new();
        for (index, cell) in run.cells.iter().enumerate() {
            if block < replicates(cell) {
                trials.push((index, false));
                trials.extend(cell.is_repeated.then_some((index, true)));
            }
        }
        run.add_block(seed, trials)?;
    }
    Ok(run)
}

impl Expansion {
    /// Adds blocks of some cells behind all others, in orders drawn from the seed of the run.
    ///
    /// # Errors
    /// A cell that there is not, or too many trials.
    pub fn add_blocks(&mut self, seed: u64, blocks: &AddedBlocks) -> Result<(), PlanError> {
        let trials = blocks.cells.iter().map(|cell| (*cell as usize, false));
        let trials: Vec<(usize, bool)> = trials.collect();
        if trials.iter().any(|(cell, _)| *cell >= self.cells.len()) {
            return Err(PlanError::Whole(
                "a block of cells that the plan does not have".to_owned(),
            ));
        }
        (0..blocks.count).try_for_each(|_| self.add_block(seed, trials.clone()))
    }

    /// Adds a block of trials: the cell of each, and whether it is the second of two that are the same.
    fn add_block(&mut self, seed: u64, mut trials: Vec<(usize, bool)>) -> Result<(), PlanError> {
        let block = self.block_count();
        let load_seed = mixed(seed, block);
        if self.trials.len() + trials.len() > TRIALS_MAX {
            return Err(PlanError::Whole(format!(
                "more than {TRIALS_MAX} trials; right would be fewer levels or replicates"
            )));
        }
        trials.shuffle(&mut Pcg64::seed_from_u64(mixed(load_seed, 0)));
        let planned = |(number, (cell, is_a_a))| PlannedTrial {
            number,
            cell,
            replicate: block + 1,
            block,
            is_a_a,
            load_seed,
        };
        let first = self.trials.len() as u32;
        self.trials.extend((first..).zip(trials).map(planned));
        Ok(())
    }

    /// The cell of a trial.
    #[must_use]
    pub fn cell(&self, trial: &PlannedTrial) -> &Cell {
        &self.cells[trial.cell]
    }

    /// How long a trial is under load, and until its clients are connected before that.
    #[must_use]
    pub fn load_s(&self, plan: &Plan, trial: &PlannedTrial) -> f64 {
        let cell = self.cell(trial);
        let series = &plan.series[cell.series];
        series.duration_s + series.warm_up_s + connect_s(&cell.load)
    }

    /// How long trials will take, if each takes `overhead_s` beside its load.
    #[must_use]
    pub fn estimate_s(&self, plan: &Plan, trials: &[PlannedTrial], overhead_s: f64) -> f64 {
        let each = trials
            .iter()
            .map(|trial| self.load_s(plan, trial) + overhead_s);
        each.sum()
    }

    /// How many blocks there are.
    #[must_use]
    pub fn block_count(&self) -> u32 {
        self.trials.last().map_or(0, |trial| trial.block + 1)
    }
}

/// How long clients take until they are connected and logged in, as seen on two CPUs: 3 s for 10,000, and
/// 10 s for 20,000. A user of a scenario may have to log in, which hashes a password, a task of
/// some 25 ms, twice.
pub(crate) fn connect_s(load: &LoadSpec) -> f64 {
    const FEW: usize = 1000;
    const MANY: f64 = 20_000.0;
    const MANY_S: f64 = 10.0;
    const EXPONENT: f64 = 1.75;
    const USER_S: f64 = 0.05;
    let users = &load.users;
    let counts = [
        load.clients.connections.map(|count| count.get()),
        load.hostile.idle_connections.map(|count| count.get()),
        users.players.map(|count| count.get()),
    ];
    let most = counts.into_iter().flatten().max().unwrap_or(0);
    let connect_s = match most {
        0..FEW => 0.0,
        _ => MANY_S * (most as f64 / MANY).powf(EXPONENT),
    };
    let logged_in = users.users.filter(|_| users.scenario.is_some());
    connect_s + USER_S * logged_in.map_or(0.0, |count| count.get() as f64)
}

/// A number for each pair (the finaliser of SplitMix64).
fn mixed(seed: u64, index: u32) -> u64 {
    let mut mixed = seed.wrapping_add(
        u64::from(index)
            .wrapping_add(1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15),
    );
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    fn plan(loops: usize, replicates: u32, more: u32) -> Plan {
        let levels: Vec<String> = (1..=loops).map(|it| it.to_string()).collect();
        let text = format!(
            "name = \"t\"\n[servers.loadline]\n\
             [[series]]\nname = \"a\"\nreplicates = {replicates}\nduration_s = 2\nwarm_up_s = 0.5\n\
             factors = {{ loops = [{}] }}\n\
             [[series]]\nname = \"b\"\nreplicates = {more}\na_a = false\nduration_s = 1\n\
             warm_up_s = 0",
            levels.join(", ")
        );
        Plan::parse(&text, "plan.toml", Path::new("/")).unwrap()
    }

    proptest! {
        #[test]
        fn blocks_are_balanced_interleaved_and_repeatable(
            loops in 1_usize..12,
            replicates in 1_u32..6,
            more in 1_u32..6,
            seed: u64,
        ) {
            let plan = plan(loops, replicates, more);
            let run = expand(&plan, seed, &[0, 1], &[]).unwrap();
            prop_assert_eq!(&run, &expand(&plan, seed, &[0, 1], &[]).unwrap());
            let sum = (loops + 1) * replicates as usize + more as usize;
            prop_assert_eq!(run.trials.len(), sum);
            prop_assert_eq!(run.block_count(), replicates.max(more));
            let numbers: Vec<u32> = run.trials.iter().map(|it| it.number).collect();
            prop_assert_eq!(numbers, (0..sum as u32).collect::<Vec<_>>());
            for block in 0..run.block_count() {
                let of_block: Vec<&PlannedTrial> =
                    run.trials.iter().filter(|it| it.block == block).collect();
                // Each cell once, and the A/A cell twice, side by side in time with all others.
                let once: BTreeSet<(usize, bool)> =
                    of_block.iter().map(|it| (it.cell, it.is_a_a)).collect();
                prop_assert_eq!(once.len(), of_block.len());
                let in_a = if block < replicates { loops + 1 } else { 0 };
                let in_b = usize::from(block < more);
                prop_assert_eq!(of_block.len(), in_a + in_b);
                prop_assert!(of_block.windows(2).all(|it| it[0].number + 1 == it[1].number));
                prop_assert!(of_block.iter().all(|it| it.replicate == block + 1));
                prop_assert!(of_block.iter().all(|it| it.load_seed == of_block[0].load_seed));
            }
        }
    }

    #[test]
    fn each_seed_and_each_block_has_an_order_of_its_own() {
        let plan = plan(10, 2, 2);
        let order = |seed: u64, block: u32| {
            let run = expand(&plan, seed, &[0, 1], &[]).unwrap();
            let trials = run.trials.into_iter().filter(|it| it.block == block);
            trials.map(|it| (it.cell, it.is_a_a)).collect::<Vec<_>>()
        };
        let orders = [order(1, 0), order(1, 1), order(2, 0), order(2, 1)];
        for (index, one) in orders.iter().enumerate() {
            assert!(orders[..index].iter().all(|other| other != one));
        }
    }

    #[test]
    fn over_many_seeds_each_cell_is_as_often_first() {
        let plan = plan(4, 1, 1); // five cells and one of them twice
        let mut firsts = [0_u32; 5];
        for seed in 0..6_000 {
            let run = expand(&plan, seed, &[0, 1], &[]).unwrap();
            firsts[run.trials[0].cell] += 1;
        }
        // 1000 are expected (2000 of the one that is there twice); five standard deviations are 145.
        assert!((1_800..2_200).contains(&firsts[0]), "{firsts:?}");
        assert!(
            firsts[1..].iter().all(|it| (850..1_150).contains(it)),
            "{firsts:?}"
        );
    }

    #[test]
    fn a_block_that_is_added_has_the_cells_that_it_is_given() {
        let plan = plan(5, 2, 2);
        let mut run = expand(&plan, 3, &[0, 1], &[]).unwrap();
        let before = run.trials.clone();
        let blocks = |cells: &[u32]| AddedBlocks {
            count: 1,
            blocks_max: 9,
            cells: cells.to_vec(),
        };
        run.add_blocks(3, &blocks(&[0, 2, 4])).unwrap();
        let (planned, added) = run.trials.split_at(before.len());
        assert_eq!(planned, before);
        let mut cells: Vec<usize> = added.iter().map(|it| it.cell).collect();
        cells.sort_unstable();
        assert_eq!(cells, [0, 2, 4]);
        for (number, trial) in (before.len() as u32..).zip(added) {
            let found = (trial.number, trial.block, trial.replicate, trial.is_a_a);
            assert_eq!(found, (number, 2, 3, false));
            assert!(before.iter().all(|it| it.load_seed != trial.load_seed));
        }
        assert!(run.add_blocks(3, &blocks(&[99])).is_err());
    }

    #[test]
    fn the_estimate_is_load_and_overhead() {
        let plan = plan(2, 2, 1);
        let run = expand(&plan, 1, &[0, 1], &[]).unwrap();
        // (2 + the A/A cell) x 2 of 2.5 s, and one of 1 s; 0.5 s beside each.
        let estimate_s = run.estimate_s(&plan, &run.trials, 0.5);
        assert!((estimate_s - (6.0 * 3.0 + 1.5)).abs() < 1e-9);
    }

    #[test]
    fn many_connections_take_their_time() {
        let estimate_s = |connections: u32| {
            let text = format!(
                "name = \"t\"\n[servers.loadline]\n[[series]]\nname = \"a\"\nreplicates = 1\n\
                 a_a = false\nduration_s = 2\nwarm_up_s = 0\nload = {{ connections = {connections} }}"
            );
            let plan = Plan::parse(&text, "plan.toml", Path::new("/")).unwrap();
            let run = expand(&plan, 1, &[0, 1], &[]).unwrap();
            run.estimate_s(&plan, &run.trials, 0.5)
        };
        for (connections, expected_s) in [(64, 2.5), (10_000, 5.5), (20_000, 12.5)] {
            let found_s = estimate_s(connections);
            assert!(
                (found_s - expected_s).abs() < 0.1,
                "{connections}: {found_s}"
            );
        }
    }
}
