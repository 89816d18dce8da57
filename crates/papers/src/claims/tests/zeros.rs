//! Shares that are 0 in every trial, or 1: what they say depends on how many blocks and requests there are.

use super::*;

const NONE_FAILS: &str = "Several event loops serve all";

/// Five trials, in each of which this share of so many requests fails.
fn several_loops(share: f64, offered: u64) -> Made {
    let mut made = Made::new("P3");
    let levels = [("model", "several event loops"), ("rate_per_s", "200000")];
    made.cell("rates", (&levels, &[(ErrorShare, share)]), 0.0)
        .each(|trial| trial.offered = offered);
    made
}

#[test]
fn zeros_of_two_blocks_decide_nothing() {
    for (blocks, verdict) in [(1, NotTestable), (2, NotTestable), (3, Reproduced)] {
        let mut made = several_loops(0.0, 10_000);
        made.run.trials.retain(|trial| trial.block < blocks);
        let claim = made.claim(NONE_FAILS);
        assert_eq!(claim.verdict, verdict, "{claim:?}");
        let is_said = claim.why.contains("value, 0, but in 2 blocks");
        assert_eq!(is_said, blocks == 2, "{claim:?}");
    }
    let mut made = several_loops(0.0, 10_000);
    made.discard("The server died.", |trial| trial.block > 1);
    let claim = made.claim(NONE_FAILS);
    assert_eq!(claim.undecided, Some(Undecided::Discarded), "{claim:?}");
    assert!(claim.why.ends_with("as in: The server died."), "{claim:?}");
}

#[test]
fn zeros_bound_a_share_by_the_number_of_requests() {
    for (offered, verdict) in [(0, NotTestable), (500, NotTestable), (10_000, Reproduced)] {
        let claim = several_loops(0.0, offered).claim(NONE_FAILS);
        assert_eq!(claim.verdict, verdict, "{claim:?}");
        // The only claim that can be judged, and so by 95 %.
        let interval = claim.interval.unwrap();
        let high = (3.0 / (5 * offered) as f64).min(1.0);
        let is_rule_of_three = (interval.high / high - 1.0).abs() < 0.01;
        let begins_at_0 = interval.low.abs() < 1e-12;
        assert!(is_rule_of_three && begins_at_0, "{interval:?}");
    }
    // A trial whose errors are not known says nothing of them, however many requests it had.
    let mut one_lacks = several_loops(0.0, 1_000);
    one_lacks.each(|trial| {
        if trial.block == 0 {
            trial.values.clear();
            trial.offered = 1_000_000;
        }
    });
    let high = one_lacks.claim(NONE_FAILS).interval.unwrap().high;
    assert!((high * 4_000.0 / 3.0 - 1.0).abs() < 0.01, "{high}");
    // What scatters is judged by its scatter.
    let mut some_failed = several_loops(0.0, 500);
    some_failed.each(|trial| {
        trial
            .values
            .insert(ErrorShare, f64::from(trial.block) * 1e-5);
    });
    assert_eq!(some_failed.verdicts([NONE_FAILS]), [Reproduced]);
}

#[test]
fn that_no_request_fails_is_seen_of_many_alone() {
    let claim = "No request of 20,000 clients";
    for (share, offered, verdict) in [
        (0.0, 100, NotTestable),
        // All that fail may be of one of the two cells, each with five trials.
        (0.0, 350, NotTestable),
        (0.0, 650, Reproduced),
        (0.0, 10_000, Reproduced),
        // One that fails is enough.
        (0.01, 100, NotReproduced),
    ] {
        let mut made = Made::new("P1");
        for service_us in ["0", "1000"] {
            let levels = [
                ("model", SINGLE),
                ("numbers", "1 x 1"),
                ("service_us", service_us),
            ];
            made.cell("best", (&levels, &[(ErrorShare, share)]), 0.0)
                .each(|trial| trial.offered = offered);
        }
        let found = made.claim(claim);
        assert_eq!(found.verdict, verdict, "{found:?}");
        let is_said = found.why.contains("failed, but they are so few");
        assert_eq!(is_said, verdict == NotTestable, "{found:?}");
        made.run.trials.retain(|trial| trial.block < 2);
        let of_two_blocks = match verdict {
            Reproduced => NotTestable,
            other => other,
        };
        assert_eq!(made.verdicts([claim]), [of_two_blocks]);
    }
}

#[test]
fn requests_that_all_fail_are_counted_too() {
    for (offered, verdict) in [(1, NotTestable), (10_000, Reproduced)] {
        let mut made = Made::new("P2");
        for (timer, share) in [("with", 0.0), ("without", 1.0)] {
            let levels = [("clients", "idle"), ("timer", timer)];
            made.cell("idle", (&levels, &[(ErrorShare, share)]), 0.0);
        }
        made.each(|trial| trial.offered = offered);
        let claim = made.claim("Closing idle connections prevents");
        assert_eq!(claim.verdict, verdict, "{claim:?}");
    }
}
