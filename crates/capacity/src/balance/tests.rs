//! Adaptive balance on made-up servers, beside the best fixed rule.
//!
//! The hundreds: `cargo test -p loadline-capacity --profile fast -- --ignored --nocapture balance`.

mod skewed;
mod world;

use super::*;
use world::Skew;

/// Loops that were busy for these shares of an interval; costs by loop, of connections 10, 11, ...
/// of the first, 20, 21, ... of the second.
fn measured(busy: &[f64], costs: &[&[u64]]) -> Vec<LoopMeasured> {
    let of_loop = |(index, busy): (usize, &f64)| {
        let costs = costs.get(index).copied().unwrap_or_default();
        LoopMeasured {
            busy_us: (busy * 100_000.0) as u64,
            cpu_us: (busy * 100_000.0) as u64,
            handled: 100,
            ready: 0,
            connections: 10,
            top: (10 * (index as u64 + 1)..)
                .zip(costs)
                .map(|(connection, cpu_us)| ConnectionCost {
                    connection,
                    cpu_us: *cpu_us,
                })
                .collect(),
        }
    };
    busy.iter().enumerate().map(of_loop).collect()
}

/// Moves of so many equal intervals.
fn moves(balancer: &mut Balancer, measured: &[LoopMeasured], intervals: usize) -> Vec<Move> {
    (0..intervals)
        .flat_map(|_| balancer.decide(100_000, measured).moves)
        .collect()
}

#[test]
fn new_connections_of_an_idle_server_go_to_each_loop_in_turn() {
    let mut balancer = Balancer::new(3);
    let placed: Vec<_> = (0..6).map(|_| balancer.place()).collect();
    assert_eq!(placed, [1, 2, 0, 1, 2, 0]);
}

#[test]
fn new_connections_fill_the_loop_with_the_least_load() {
    let mut balancer = Balancer::new(2);
    balancer.decide(100_000, &measured(&[0.6, 0.4], &[]));
    // Each counts as 1.0 / 20 CPUs: after four, the loads are alike.
    let placed: Vec<_> = (0..4).map(|_| balancer.place()).collect();
    assert_eq!(placed, [1; 4]);
    let later: Vec<_> = (0..10).map(|_| balancer.place()).collect();
    assert!(later.contains(&0) && later.contains(&1), "{later:?}");
}

/// It counted four fifths, however long ago it was: new connections kept away from a loop that had been busy then,
/// and one that had cost much, and may have been closed, was to move.
#[test]
fn what_was_before_a_pause_says_nothing_of_loops_and_connections() {
    let mut balancer = Balancer::new(2);
    let costs: &[&[u64]] = &[&[30_000, 60_000]];
    for _ in 0..20 {
        balancer.decide(100_000, &measured(&[0.9, 0.9], costs));
    }
    // One loop has been busy since, with others.
    let mut since = measured(&[0.0, 0.0], &[]);
    since[0].busy_us = 3_000_000_000;
    since[0].cpu_us = 3_000_000_000;
    let decision = balancer.decide(3_600_000_000, &since);
    assert!(decision.loads[0] > 0.8, "{decision:?}");
    assert!(decision.loads[1] < 1e-3, "{decision:?}");
    assert_eq!(decision.moves, []);
}

#[test]
fn alike_loops_keep_their_connections() {
    let mut balancer = Balancer::new(2);
    let measured = measured(&[0.52, 0.48], &[&[2000, 2000], &[2000]]);
    assert_eq!(moves(&mut balancer, &measured, 100), []);
}

#[test]
fn of_three_expensive_connections_one_moves() {
    let mut balancer = Balancer::new(2);
    let measured = measured(&[0.9, 0.1], &[&[30_000, 30_000, 29_000], &[]]);
    let moves = moves(&mut balancer, &measured, 2);
    let [one] = moves.as_slice() else {
        panic!("{moves:?}");
    };
    assert_eq!((one.connection, one.from, one.to), (10, 0, 1));
    assert!((0.25..0.35).contains(&one.load), "{one:?}");
}

#[test]
fn a_connection_that_is_too_much_for_any_loop_stays_and_the_others_leave() {
    let mut balancer = Balancer::new(2);
    let measured = measured(&[1.0, 0.1], &[&[80_000, 10_000, 10_000], &[]]);
    let moves = moves(&mut balancer, &measured, 4);
    let moved: Vec<_> = moves.iter().map(|one| one.connection).collect();
    assert_eq!(moved, [11, 12]);
}

#[test]
fn a_connection_that_was_closed_does_not_move() {
    let mut balancer = Balancer::new(2);
    let open = measured(&[0.5, 0.5], &[&[30_000], &[]]);
    assert_eq!(moves(&mut balancer, &open, 2), []);
    assert_eq!(moves(&mut balancer, &measured(&[0.5, 0.5], &[]), 3), []);
    assert_eq!(moves(&mut balancer, &measured(&[0.9, 0.1], &[]), 50), []);
}

#[test]
fn a_loop_with_half_a_cpu_gives_connections_away() {
    let mut balancer = Balancer::new(2);
    let mut measured = measured(&[0.9, 0.5], &[&[5000; 9], &[5000; 10]]);
    measured[0].cpu_us = 45_000;
    let decision = (0..20)
        .map(|_| balancer.decide(100_000, &measured))
        .find(|decision| !decision.moves.is_empty())
        .unwrap();
    assert_eq!(decision.moves[0].from, 0);
    assert!(decision.speeds[0] < 0.9, "{decision:?}");
}

#[test]
fn moves_of_an_interval_are_bounded() {
    let mut balancer = Balancer::new(2);
    let measured = measured(&[0.9, 0.1], &[&[1000; TOP], &[]]);
    for _ in 0..10 {
        assert!(balancer.decide(100_000, &measured).moves.len() <= MOVES_MAX);
    }
}

#[test]
fn adaptive_balance_is_better_under_skew_and_no_worse_without() {
    skewed::assert_goals(2);
}

#[test]
#[ignore = "by hand: a quarter of an hour with --profile fast"]
fn adaptive_balance_is_better_under_skew_over_150_scenarios_by_hand() {
    skewed::assert_goals(150);
}

/// It runs at the same time as the next test: each has a CPU.
#[test]
#[ignore = "by hand: some 20 minutes with --profile fast"]
fn a_tenth_that_makes_nine_tenths_over_1000_seeds_by_hand() {
    skewed::assert_goal(Skew::Tenth, 1_000);
}

#[test]
#[ignore = "by hand: some 20 minutes with --profile fast"]
fn bursts_of_a_tenth_over_1000_seeds_by_hand() {
    skewed::assert_goal(Skew::Bursts, 1_000);
}
