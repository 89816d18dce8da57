//! Bursts that are a little too large, and loads a little above the capacity.

use super::*;

/// This load, and after 3 s 225 requests within 100 ms: some eight more than can be answered within the goal.
fn with_burst(rule: Rule, load: f64, seed: u64) -> Seen {
    const BURST: u64 = 225;
    let mut simulation = Simulation::new(rule, Service::Constant, 0, seed);
    simulation.offer(0, 3_000_000, 0.8);
    for index in 0..BURST {
        let time_us = 3_000_000 + index * 100_000 / BURST;
        simulation.at(time_us, Event::Arrive { retries: 0 });
    }
    simulation.offer(3_100_000, 8_000_000, load);
    simulation.run()
}

/// Where some were still refused a quarter of a second later, all were until the queue was short.
#[test]
fn a_burst_that_is_a_little_too_large_loses_no_more_than_if_no_overload_lasted() {
    for load in [0.8, 0.9] {
        let (mut lost, mut lost_by_prediction) = (0, 0);
        for seed in 1..=20 {
            let seen = with_burst(Rule::Control, load, seed);
            lost += seen.refused + seen.dropped + seen.late;
            let predicted = with_burst(Rule::Predict, load, seed);
            lost_by_prediction += predicted.refused + predicted.late;
        }
        assert!(
            lost <= lost_by_prediction,
            "{load}: {lost} {lost_by_prediction}"
        );
    }
}

#[test]
fn a_burst_just_after_an_overload_loses_nothing() {
    for seed in 1..=20 {
        let mut simulation = Simulation::new(Rule::Control, Service::Constant, 0, seed);
        simulation.offer(0, 5_000_000, 5.0);
        for index in 0..190 {
            simulation.at(5_200_000 + index * 500, Event::Arrive { retries: 0 });
        }
        let seen = simulation.run();
        let refused: u64 = seen.refused_by_second.iter().skip(5).sum();
        assert_eq!(refused, 0, "{seed}");
    }
}

#[test]
fn a_little_above_the_capacity_the_queue_becomes_short_in_some_time() {
    for (load, service, seconds) in [
        (1.1, Service::Constant, 80_usize),
        (1.3, Service::Constant, 40),
        (1.3, Service::Exponential, 40),
    ] {
        for seed in 1..=5 {
            let mut simulation = Simulation::new(Rule::Control, service, 0, seed);
            simulation.offer(0, seconds as u64 * 1_000_000, load);
            let seen = simulation.run();
            let which = format!("{service:?} {load} {seed}");
            let goodput = seen.goodput(seconds);
            assert!(goodput > 0.95, "{which}: {goodput}");
            let late = seen.late as f64 / seen.good as f64;
            assert!(late < 0.02, "{which}: {late}");
            let longest_us = &seen.longest_us[..seconds];
            let long = longest_us.iter().position(|us| *us > 900_000);
            let later_us = &longest_us[long.unwrap_or(seconds)..];
            let is_short = later_us.iter().any(|us| *us < 250_000);
            assert!(is_short, "{which}: {longest_us:?}");
        }
    }
}
