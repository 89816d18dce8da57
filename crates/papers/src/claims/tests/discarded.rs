//! Claims about several conditions, of which one has no trials that count: they are not decided by the
//! others.

use super::*;

const DIED: &str = "The server died.";

fn is_open(made: &Made, claim: &str) {
    let claim = made.claim(claim);
    assert_eq!(claim.verdict, NotTestable, "{claim:?}");
    assert_eq!(claim.undecided, Some(Undecided::Discarded), "{claim:?}");
    assert!(claim.why.contains("The server died"), "{claim:?}");
}

#[test]
fn an_optimum_at_each_service_time() {
    let by_time = [("0", [9e3, 8e3, 7e3, 6e3]), ("200", [3e3, 6e3, 9e3, 8e3])];
    let mut made = surface("slower-threads", "workers", &by_time);
    made.discard(DIED, |it| it.levels["service_us"] == level("200"));
    is_open(&made, "Beyond the optimum of threads");
    is_open(&made, "Too many threads lose");
    is_open(&made, "The optimal number of threads");
    // One that fails is enough.
    let by_time = [("0", [1e3, 2e3, 4e3, 7e3]), ("200", [3e3, 6e3, 9e3, 8e3])];
    let mut made = surface("slower-threads", "workers", &by_time);
    made.discard(DIED, |it| it.levels["service_us"] == level("200"));
    let found = made.verdicts(["Beyond the optimum of threads"]);
    assert_eq!(found, [NotReproduced]);
}

/// Two others do not say whether the optimum moves.
#[test]
fn an_optimum_that_may_move() {
    let by_time = ["0", "200", "1000"].map(|service_us| (service_us, [9e3, 8e3, 7e3, 6e3]));
    let mut made = surface("slower-threads", "workers", &by_time);
    let moves = "The optimal number of threads";
    assert_eq!(made.verdicts([moves]), [NotReproduced]);
    made.discard(DIED, |it| it.levels["service_us"] == level("200"));
    is_open(&made, moves);
}

#[test]
fn the_best_of_each_service_time() {
    let mut made = headline(4000.0, 0.02);
    made.discard(DIED, |trial| {
        trial.levels["service_us"] == level("1000") && trial.block > 0
    });
    is_open(&made, "Several reactors with threads reach 3 times");
}

/// The loop serves a fifth more than the workers, on each database and for each number of users.
fn page() -> Made {
    let mut made = Made::new("P2");
    for database in DATABASES {
        for users in ["10", "50"] {
            for (arm, rate) in [("workers", 1000.0), ("loop", 1200.0)] {
                let levels = [("arm", arm), ("database", database), ("users", users)];
                made.cell("page", (&levels, &[(GoodPerS, rate)]), 0.02);
            }
        }
    }
    made
}

#[test]
fn a_ratio_over_numbers_of_users() {
    let claim = "Behind the login, too, the loop";
    let mut made = page();
    assert_eq!(made.verdicts([claim]), [Reproduced]);
    made.discard(DIED, |it| it.levels["users"] == level("50"));
    is_open(&made, claim);
    // Of a single block it is not known how much it would be in another.
    let mut made = page();
    made.discard(DIED, |trial| {
        trial.levels["users"] == level("50") && trial.block > 0
    });
    is_open(&made, claim);
}

#[test]
fn a_ratio_up_to_a_rate() {
    let claim = "Threads have lower response times";
    let mut made = Made::new("P5");
    for rate in ["100", "300", "500", "1000"] {
        for (server, time) in [("threads", 400.0), ("event-loop", 800.0)] {
            let levels = [("server", server), ("rate_per_s", rate)];
            made.cell("rates", (&levels, &[(MeanUs, time)]), 0.02);
        }
    }
    let beyond = |trial: &Measured| trial.levels["rate_per_s"] == level("1000");
    made.discard(DIED, beyond);
    assert_eq!(made.verdicts([claim]), [Reproduced]);
    made.discard(DIED, |it| {
        it.levels["rate_per_s"] == level("300") && it.levels["server"] == level("threads")
    });
    is_open(&made, claim);
}

#[test]
fn few_blocks_since_times_are_discarded() {
    let late = "The client was late.";
    for (kept, undecided) in [(2, Undecided::Discarded), (4, Undecided::FewBlocks)] {
        let mut made = Made::new("P5");
        for server in ["threads", "event-loop"] {
            let levels = [("server", server), ("rate_per_s", "300")];
            made.cell("rates", (&levels, &[(MeanUs, 400.0)]), 0.3);
        }
        for trial in made.run.trials.iter_mut().filter(|it| it.block >= kept) {
            trial.times_discarded.push(late.to_owned());
        }
        let claim = made.claim("Threads have lower response times");
        assert_eq!(claim.undecided, Some(undecided), "{claim:?}");
        let why =
            "Only 2 of 5 blocks count, since trials are discarded, as in: The client was late.";
        let is_said = claim.why.ends_with(why) && !claim.why.contains("Not distinguishable");
        assert_eq!(is_said, kept == 2, "{claim:?}");
    }
}

#[test]
fn a_mean_over_numbers_of_connections() {
    let claim = "Round robin divides";
    let mut made = Made::new("P4");
    for connections in ["1000", "10000"] {
        let levels = [("loops", "4"), ("connections", connections)];
        made.cell("loops", (&levels, &[(Metric::LoopImbalance, 1.02)]), 0.01);
    }
    assert_eq!(made.verdicts([claim]), [Reproduced]);
    made.discard(DIED, |it| it.levels["connections"] == level("10000"));
    is_open(&made, claim);
}

/// Two blocks are half of the mean, and scatter by as much as they are known by.
#[test]
fn a_condition_of_few_blocks_widens_the_interval_of_a_mean() {
    for (second, verdict) in [(1.0, Reproduced), (1.2, NotTestable)] {
        let mut made = Made::new("P4");
        for (connections, of_second_block) in [("1000", 1.0), ("10000", second)] {
            let levels = [("loops", "4"), ("connections", connections)];
            made.cell("loops", (&levels, &[(Metric::LoopImbalance, 1.0)]), 0.01);
            made.each(|trial| {
                if trial.block == 1 {
                    trial.values.insert(Metric::LoopImbalance, of_second_block);
                }
            });
        }
        made.discard(DIED, |trial| {
            trial.levels["connections"] == level("10000") && trial.block > 1
        });
        assert_eq!(made.verdicts(["Round robin divides"]), [verdict]);
    }
}

/// A server that did nothing in a trial is not compared by the other trials alone.
#[test]
fn a_trial_in_which_nothing_was_done() {
    let found = |of_first_block: f64| {
        let mut made = Made::new("P5");
        for (server, rate) in [
            ("apache", 6000.0),
            ("event-loop", 3000.0),
            ("nginx", 3000.0),
            ("threads", 3000.0),
        ] {
            let levels = [("server", server), ("rate_per_s", "6000")];
            made.cell("rates", (&levels, &[(GoodPerS, rate)]), 0.01);
        }
        made.each(|trial| {
            if trial.block == 0 {
                trial.values.insert(GoodPerS, of_first_block);
            }
        });
        made.claim("The same at 6000")
    };
    assert_eq!(found(3000.0).verdict, Reproduced);
    let claim = found(0.0);
    assert_eq!(claim.verdict, NotTestable, "{claim:?}");
    assert_eq!(claim.undecided, Some(Undecided::NothingDone), "{claim:?}");
    assert!(claim.why.contains("1 of 5 trials of"), "{claim:?}");
}

#[test]
fn the_largest_of_each_service_time() {
    let claim = "No request of 20,000 clients";
    let errors = |at_0: f64| {
        let mut made = Made::new("P1");
        for (service_us, errors) in [("0", at_0), ("1000", 0.0)] {
            let levels = [
                ("model", SINGLE),
                ("numbers", "1 x 1"),
                ("service_us", service_us),
            ];
            made.cell("best", (&levels, &[(ErrorShare, errors)]), 0.02);
        }
        made
    };
    assert_eq!(errors(0.0).verdicts([claim]), [Reproduced]);
    // A trial that fails is enough.
    for at_0 in [0.0, 0.01] {
        let mut made = errors(at_0);
        made.discard(DIED, |it| it.levels["service_us"] == level("1000"));
        match at_0 > 0.0 {
            true => assert_eq!(made.verdicts([claim]), [NotReproduced]),
            false => is_open(&made, claim),
        }
    }
}

#[test]
fn the_best_number_over_service_times() {
    let claim = "Where requests wait";
    let by_time = [("100", [1e3, 2e3, 3e3, 6e3]), ("200", [1e3, 2e3, 4e3, 7e3])];
    let mut made = surface("slower-threads", "workers", &by_time);
    assert_eq!(made.verdicts([claim]), [Reproduced]);
    made.discard(DIED, |it| {
        it.levels["service_us"] == level("200") && it.levels["workers"] == level("30")
    });
    is_open(&made, claim);
}
