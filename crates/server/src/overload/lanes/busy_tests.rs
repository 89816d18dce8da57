//! What busy workers say of the jobs that wait.

use super::*;

const GOAL: Duration = Duration::from_secs(1);

/// Two workers that have done files of 1 ms, and `long` jobs of 400 ms.
fn after_long_jobs(long: &Charge) -> LaneControl {
    let mut control = LaneControl::new(GOAL, 2);
    for index in 0..64 {
        control.done(index * 5_000, &Charge::of(Lane::Files), 0, 1_000);
        control.done(index * 5_000, long, 0, 400_000);
    }
    control
}

/// Parts of large files, and tasks that were woken, counted as refused when they had waited for long: new requests
/// that were in time were refused for that.
#[test]
fn a_job_that_cannot_be_refused_is_no_refusal() {
    let mut control = after_long_jobs(&Charge::of(Lane::Apps));
    let waited = JobWait {
        here_us: 700_000,
        before_us: 0,
    };
    let charge = Charge::of(Lane::Apps);
    for now_us in (1_000_000..2_000_000).step_by(50_000) {
        control.take_begun(now_us, &charge, waited, 10);
    }
    assert!(!control.of(Lane::Apps).is_lasting());
    for now_us in (2_000_000..3_000_000).step_by(50_000) {
        assert!(control.take(now_us, &charge, waited, 10).is_err());
    }
    assert!(control.of(Lane::Apps).is_lasting());
}

/// Four begin for each that is refused. Three of them have been left: what is left is refused half of the time.
#[test]
fn a_job_that_is_not_done_after_all_has_not_begun() {
    for (is_only, counts) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut control = LaneControl::new(GOAL, 2);
        let mut charge = Charge::of(Lane::Files);
        charge.is_only = is_only;
        let waited = |here_us| JobWait {
            here_us,
            before_us: 0,
        };
        for now_us in (0..=250_000).step_by(10_000) {
            (0..4).for_each(|_| assert!(control.take(now_us, &charge, waited(20_000), 10).is_ok()));
            if !counts {
                (0..3).for_each(|_| control.not_taken(&charge));
            }
            assert!(
                control
                    .take(now_us, &charge, waited(1_000_000), 10)
                    .is_err()
            );
        }
        let of_lane = match is_only {
            true => &control.single,
            false => &control.lanes,
        };
        let is_lasting = of_lane[Lane::Files as usize].is_lasting();
        assert_eq!(is_lasting, !counts, "{is_only}");
    }
}

/// Only those that waited were known. Where they all ran, files were refused that could be read in time.
#[test]
fn workers_that_carry_out_long_jobs_of_another_lane_are_no_stall() {
    let mut control = after_long_jobs(&Charge::of(Lane::Apps));
    let now_us = 1_000_000;
    control.comes_first(now_us, Lane::Files);
    let mut offer = |after_us, runs| {
        let ahead = Ahead {
            jobs: 20,
            runs: [false, runs, false],
            ..Ahead::default()
        };
        let offered = control.offer(now_us + after_us, Lane::Files, ahead);
        offered.is_ok()
    };
    assert!(offer(390_000, true));
    assert!(!offer(390_000, false), "no worker was free for 390 ms");
    assert!(!offer(700_000, true), "they should have ended");
}

/// It was judged by long jobs of others once one of these was refused, and taken out of the queue.
#[test]
fn a_job_that_waits_alone_is_late_by_its_like() {
    let mut control = after_long_jobs(&Charge::of(Lane::Apps));
    let mut alone = Charge::of(Lane::Apps);
    alone.is_only = true;
    control.done(400_000, &alone, 0, 10_000);
    let is_late = |is_only| control.is_late(Lane::Apps, is_only, 700_000);
    assert!(!is_late(true));
    assert!(is_late(false));
}
