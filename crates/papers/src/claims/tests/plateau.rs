//! Curves that are flat beyond their optimum.

use super::*;

fn reactors(by_time: [(&str, [f64; 4]); 2]) -> Made {
    let mut made = Made::new("P1");
    for (service_us, rates) in by_time {
        for (loops, rate) in ["1", "4", "16", "50"].into_iter().zip(rates) {
            let levels = [("loops", loops), ("service_us", service_us)];
            made.cell("loops", (&levels, &[(GoodPerS, rate)]), 0.001);
        }
    }
    made
}

#[test]
fn a_plateau_is_no_fall_and_its_ends_are_no_optima_that_move() {
    let (falls, moves) = (
        "Beyond the optimum of reactors",
        "The optimal number of reactors",
    );
    let flat = reactors([("100", [5e3, 9e3, 9e3, 9e3]), ("500", [1e3, 2e3, 2e3, 2e3])]);
    assert_eq!(flat.verdicts([falls, moves]), [NotReproduced; 2]);
    let Claim { why, .. } = flat.claim(moves);
    assert!(why.contains(" 4 of them are as good as any"), "{why}");
    // One number is as good as any, at both times, and the largest is not.
    let falling = reactors([
        ("100", [5e3, 9e3, 9e3, 8e3]),
        ("500", [1e3, 2e3, 2e3, 1.8e3]),
    ]);
    assert_eq!(
        falling.verdicts([falls, moves]),
        [Reproduced, NotReproduced]
    );
    // It keeps what it was judged by, at each time.
    let Claim { measures, .. } = falling.claim(falls);
    let [short, long] = &measures[..] else {
        panic!("{measures:?}");
    };
    for (measure, us, value) in [(short, "100", 8.0 / 9.0), (long, "500", 0.9)] {
        let what = format!("At {us} us: loops 50 over ");
        assert!(measure.what.starts_with(&what), "{measure:?}");
        assert_eq!(measure.most, Some(1.0 - 0.02));
        assert!((measure.value - value).abs() < 0.01, "{measure:?}");
    }
    let moving = reactors([("100", [9e3, 8e3, 7e3, 6e3]), ("500", [1e3, 2e3, 3e3, 2e3])]);
    assert_eq!(moving.verdicts([falls, moves]), [Reproduced; 2]);
    // By less than what matters, at one of the times.
    let slight = reactors([
        ("100", [9e3, 8e3, 7e3, 8.95e3]),
        ("500", [2e3, 1e3, 1e3, 1e3]),
    ]);
    assert_eq!(slight.verdicts([falls]), [NotReproduced]);
}

/// The number that decides is kept, with both of what is asked for.
#[test]
fn too_many_threads_keep_less_throughput_and_more_switches() {
    let by_time = [("0", [9e3, 5e3, 4e3, 3e3]), ("200", [3e3, 6e3, 9e3, 6e3])];
    let claim = surface("slower-threads", "workers", &by_time).claim("Too many threads lose");
    assert_eq!(claim.verdict, Reproduced);
    let whats: Vec<&str> = claim.measures.iter().map(|it| it.what.as_str()).collect();
    let expected = [
        "At 0 us: workers 30 over 1",
        "At 0 us: workers 30 over 1, context switches",
        "At 200 us: workers 30 over 16",
        "At 200 us: workers 30 over 16, context switches",
    ];
    assert_eq!(whats, expected);
    assert_eq!(claim.measures[0].most, Some(1.0 - 0.02));
    assert_eq!(claim.measures[1].least, Some(1.0 + 0.02));
}

/// A number that would do for all times, and how far behind it is at most.
#[test]
fn whether_optima_move_is_judged_by_a_number_for_all_times() {
    const MOVES: &str = "The optimal number of threads";
    let measure = |rates: [[f64; 4]; 2]| {
        let by_time = [("0", rates[0]), ("200", rates[1])];
        let claim = surface("slower-threads", "workers", &by_time).claim(MOVES);
        (claim.verdict, claim.measures)
    };
    let (verdict, measures) = measure([[9e3; 4]; 2]);
    assert_eq!((verdict, measures.len()), (NotTestable, 1), "{measures:?}");
    assert_eq!(measures[0].most, Some(1.0 - 0.02));
    let interval = measures[0].interval.unwrap();
    assert!(interval.contains(0.98), "{interval:?}");
    let (verdict, measures) = measure([[9e3, 3e3, 2e3, 1e3], [9e3, 3e3, 2e3, 1e3]]);
    assert_eq!(
        (verdict, measures.len()),
        (NotReproduced, 1),
        "{measures:?}"
    );
    assert!((measures[0].value - 3.0).abs() < 0.1, "{measures:?}");
    let (verdict, measures) = measure([[9e3, 3e3, 2e3, 1e3], [1e3, 2e3, 3e3, 9e3]]);
    assert_eq!((verdict, measures), (Reproduced, Vec::new()));
}

/// More blocks say nothing about what a client leaves open that is at its end.
#[test]
fn optima_that_the_client_leaves_open() {
    let by_time = [("0", [9e3; 4]), ("200", [9e3; 4])];
    let mut made = surface("slower-threads", "workers", &by_time);
    for trial in &mut made.run.trials {
        (trial.client_limited, trial.server_busy) = (true, Some(0.5));
    }
    for claim in [
        "Beyond the optimum of threads",
        "The optimal number of threads",
        "Too many threads lose",
    ] {
        let claim = made.claim(claim);
        assert_eq!(claim.verdict, NotTestable, "{claim:?}");
        let cause = claim.undecided;
        assert_eq!(cause, Some(Undecided::ClientLimited), "{claim:?}");
    }
}
