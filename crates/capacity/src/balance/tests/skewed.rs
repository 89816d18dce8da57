//! Goals of adaptive balance under even and uneven loads.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::world::{FIXED, Rule, Scenario, Skew, World};
use crate::stats::{geometric_mean, quantile};

const RUN_S: f64 = 12.0;
const MEASURED_FROM_S: f64 = 4.0;
/// A rule's p99 is the geometric mean over so many draws of the same scenario.
const DRAWS: u64 = 3;

struct Outcome {
    scenario: Scenario,
    best: Rule,
    /// p99, as a multiple of the best fixed rule's.
    p99: f64,
    /// The same of that rule, with other draws.
    again: f64,
    moves_per_s: f64,
    /// Connections that came back to a loop that they had left.
    returned: usize,
}

/// Measures and checks; prints a table.
pub(super) fn assert_goals(seeds: u64) {
    for skew in [
        Skew::Even,
        Skew::Tenth,
        Skew::Zipf,
        Skew::Neighbour,
        Skew::Bursts,
    ] {
        assert_goal(skew, seeds);
    }
}

/// The same of one load.
pub(super) fn assert_goal(skew: Skew, seeds: u64) {
    println!(
        "load        life      n  p99 mean   50%   95%  (again mean   95%)  moves/s 50%   95%"
    );
    let outcomes: Vec<_> = (0..seeds).map(|seed| judge(skew, seed)).collect();
    let lives = [LIVES_S[0], LIVES_S[1], LIVES_S[2], f64::NAN];
    for life_s in lives {
        let those: Vec<_> = outcomes
            .iter()
            .filter(|one| life_s.is_nan() || one.scenario.life_s == life_s)
            .collect();
        if !those.is_empty() {
            print(skew, life_s, &those);
        }
    }
    let ratios: Vec<_> = outcomes.iter().map(|one| one.p99).collect();
    let again: Vec<_> = outcomes.iter().map(|one| one.again).collect();
    let mean = geometric_mean(&ratios).unwrap();
    let mean_again = geometric_mean(&again).unwrap();
    if skew == Skew::Even {
        assert!(mean <= 1.05 * mean_again.max(1.0), "{mean} {mean_again}");
    } else {
        assert!(mean <= 0.8, "{skew:?}: {mean}");
    }
    assert!(outcomes.iter().all(|one| one.returned == 0));
}

/// Mean lives of connections.
const LIVES_S: [f64; 3] = [10.0, 60.0, 1000.0];

fn scenario(skew: Skew, seed: u64) -> Scenario {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    Scenario {
        skew,
        loops: [2, 4, 4, 8][rng.random_range(0..4)],
        connections: [60, 150, 400][rng.random_range(0..3)],
        utilisation: rng.random_range(0.6..0.8),
        service_us: rng.random_range(300.0..900.0),
        life_s: LIVES_S[rng.random_range(0..3)],
    }
}

fn judge(skew: Skew, seed: u64) -> Outcome {
    let scenario = scenario(skew, seed);
    let (best, best_us) = FIXED
        .iter()
        .map(|rule| (*rule, p99_us(&run(scenario, *rule, seed))))
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .unwrap();
    let again_us = p99_us(&run(scenario, best, seed + 1_000_000));
    let worlds = run(scenario, Rule::Adaptive, seed);
    let moves: usize = worlds.iter().map(|world| world.moves.len()).sum();
    Outcome {
        scenario,
        best,
        p99: p99_us(&worlds) / best_us,
        again: again_us / best_us,
        moves_per_s: moves as f64 / (RUN_S - MEASURED_FROM_S) / DRAWS as f64,
        returned: worlds.iter().map(returned).sum(),
    }
}

fn run(scenario: Scenario, rule: Rule, seed: u64) -> Vec<World> {
    let draw = |draw| {
        let mut world = World::new(scenario, rule, seed * DRAWS + draw);
        world.run(RUN_S, MEASURED_FROM_S);
        world
    };
    (0..DRAWS).map(draw).collect()
}

fn p99_us(worlds: &[World]) -> f64 {
    let p99_us = |world: &World| quantile(&world.responses_us, 0.99).unwrap();
    geometric_mean(&worlds.iter().map(p99_us).collect::<Vec<_>>()).unwrap()
}

fn returned(world: &World) -> usize {
    let came_back = |(index, one): (usize, &(u64, usize, usize))| {
        let before = &world.moves[..index];
        before.contains(&(one.0, one.2, one.1))
    };
    world
        .moves
        .iter()
        .enumerate()
        .filter(|one| came_back(*one))
        .count()
}

fn print(skew: Skew, life_s: f64, outcomes: &[&Outcome]) {
    let values = |what: fn(&Outcome) -> f64| -> Vec<f64> {
        outcomes.iter().map(|outcome| what(outcome)).collect()
    };
    let of = |what: fn(&Outcome) -> f64, share: f64| quantile(&values(what), share).unwrap();
    let mean = |what: fn(&Outcome) -> f64| geometric_mean(&values(what)).unwrap();
    let mut best: Vec<_> = outcomes
        .iter()
        .map(|one| format!("{:?}", one.best))
        .collect();
    best.sort_unstable();
    best.dedup();
    println!(
        "{:10} {life_s:5} {:6}    {:6.2}{:6.2}{:6.2}       {:6.2}{:6.2}        {:5.1} {:5.1}  {}",
        format!("{skew:?}"),
        outcomes.len(),
        mean(|one| one.p99),
        of(|one| one.p99, 0.5),
        of(|one| one.p99, 0.95),
        mean(|one| one.again),
        of(|one| one.again, 0.95),
        of(|one| one.moves_per_s, 0.5),
        of(|one| one.moves_per_s, 0.95),
        best.join(" "),
    );
}

/// What `docs/pictures/balance.svg` is drawn from. A row is a kind of load, a rule, and p99 as a multiple of
/// the best fixed rule's for each seed.
///
/// `UPDATE_DOCS=1 cargo test --profile fast -p loadline-capacity --lib p99_by_rule -- --ignored`, and then
/// `UPDATE_DOCS=1 cargo test -p loadline-lab --test report pictures`.
#[test]
#[ignore = "by hand: prints a table; see docs/overload.md"]
fn p99_by_rule_by_hand() {
    const SEEDS: u64 = 10;
    let loads = [
        (Skew::Even, "alike"),
        (Skew::Tenth, "a tenth makes nine tenths"),
        (Skew::Zipf, "sizes by Zipf"),
        (Skew::Neighbour, "one CPU is shared"),
        (Skew::Bursts, "bursts of a tenth"),
    ];
    let rules = [
        (Rule::Share, "share"),
        (Rule::RoundRobin, "round-robin"),
        (Rule::LeastConnections, "least-connections"),
        (Rule::LeastPending, "least-pending"),
        (Rule::LeastBusy, "least-busy"),
        (Rule::Adaptive, "adaptive"),
    ];
    let mut table = "load,rule,p99 over the best fixed rule's\n".to_owned();
    for (skew, load) in loads {
        let p99s_us = |seed| rules.map(|(rule, _)| p99_us(&run(scenario(skew, seed), rule, seed)));
        let seeds: Vec<_> = (0..SEEDS).map(p99s_us).collect();
        for (index, (_, rule)) in rules.iter().enumerate() {
            let ratios = seeds.iter().map(|p99s_us| {
                let fixed = p99s_us[..FIXED.len()].iter().copied();
                format!(
                    "{:.3}",
                    p99s_us[index] / fixed.fold(f64::INFINITY, f64::min)
                )
            });
            let ratios: Vec<_> = ratios.collect();
            table += &format!("\"{load}\",\"{rule}\",{}\n", ratios.join(" "));
        }
    }
    print!("{table}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write("../../docs/pictures/balance.csv", table).unwrap();
    }
}
