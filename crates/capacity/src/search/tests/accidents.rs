//! Searches in which a single trial is decided by something else than the server.

use std::cell::Cell;

use super::*;

/// As `outcome`, but the first trials at rates from `from_per_s` on come to `accidents`, one each.
fn beside(
    from_per_s: f64,
    accidents: &[TrialOutcome],
    outcome: impl Fn(f64) -> TrialOutcome,
) -> impl Fn(f64) -> TrialOutcome {
    let came = Cell::new(0_usize);
    move |rate_per_s| {
        let accident = accidents.get(came.get()).copied();
        match accident.filter(|_| rate_per_s >= from_per_s) {
            Some(accident) => {
                came.set(came.get() + 1);
                accident
            }
            None => outcome(rate_per_s),
        }
    }
}

/// It holds each rate up to its capacity.
fn holds_to(capacity_per_s: f64) -> impl Fn(f64) -> TrialOutcome {
    move |rate_per_s| match rate_per_s <= capacity_per_s {
        true => TrialOutcome::Holds,
        false => TrialOutcome::Fails,
    }
}

#[test]
fn one_discarded_trial_above_a_dip_does_not_end_the_way_up() {
    let with_dip = |rate_per_s: f64| match rate_per_s {
        1000.0..1600.0 => TrialOutcome::Fails,
        _ => holds_to(5000.0)(rate_per_s),
    };
    let outcome = beside(1600.0, &[TrialOutcome::Discarded], with_dip);
    let finding = run_with(limits(), outcome).finding();
    assert!(finding.interval.unwrap().contains(5000.0), "{finding:?}");
}

#[test]
fn the_client_is_the_limit_only_if_two_trials_in_a_row_say_so() {
    let accidents = [TrialOutcome::Discarded, TrialOutcome::ClientLimited];
    let outcome = beside(4000.0, &accidents, holds_to(8000.0));
    let finding = run_with(limits(), outcome).finding();
    assert!(finding.interval.unwrap().contains(8000.0), "{finding:?}");
}

#[test]
fn one_failure_at_the_highest_rate_that_may_be_tried_does_not_use_up_the_budget() {
    let bounded = Limits {
        rate_max_per_s: 3000.0,
        ..limits()
    };
    let outcome = beside(2950.0, &[TrialOutcome::Fails], holds_to(5000.0));
    let finding = run_with(bounded, outcome).finding();
    assert_eq!(finding.bound, Bound::AtLeast);
    assert_eq!(finding.capacity_per_s, None);
    assert!(finding.spent_s < limits().budget_s / 2.0, "{finding:?}");
}

#[test]
fn what_discards_trials_is_not_the_clients_limit() {
    let high = Limits {
        begin_per_s: 20_000.0,
        ..limits()
    };
    let mut accidents = vec![TrialOutcome::Discarded; 8];
    accidents.extend([TrialOutcome::ClientLimited; 3]);
    let outcome = beside(0.0, &accidents, holds_to(5000.0));
    let finding = run_with(high, outcome).finding();
    assert!(finding.interval.unwrap().contains(5000.0), "{finding:?}");
}

#[test]
fn no_rate_is_tried_above_the_highest_that_may_be_tried() {
    for rate_max_per_s in [3000.0, 3005.0, 3010.0, 3015.0] {
        let bounded = Limits {
            rate_max_per_s,
            ..limits()
        };
        let outcome = beside(rate_max_per_s, &[TrialOutcome::Fails], holds_to(5000.0));
        let search = run_with(bounded, outcome);
        let rates_per_s = search.tried().iter().map(|one| one.trial.rate_per_s);
        let highest_per_s = rates_per_s.fold(0.0, f64::max);
        assert!(highest_per_s <= rate_max_per_s, "{highest_per_s}");
    }
}

#[test]
fn the_highest_rate_may_have_more_digits_than_rates_are_tried_with() {
    for rate_max_per_s in [3000.5, 12_345.0, 123_456.0] {
        let bounded = || Limits {
            rate_max_per_s,
            ..limits()
        };
        let finding = run_with(bounded(), holds_to(10.0 * rate_max_per_s)).finding();
        assert_eq!(finding.bound, Bound::AtLeast, "{finding:?}");
        assert!(finding.spent_s < limits().budget_s / 2.0, "{finding:?}");
        let capacity_per_s = 0.8 * rate_max_per_s;
        let finding = run_with(bounded(), holds_to(capacity_per_s)).finding();
        let interval = finding.interval.unwrap();
        assert!(interval.contains(capacity_per_s), "{finding:?}");
    }
}
