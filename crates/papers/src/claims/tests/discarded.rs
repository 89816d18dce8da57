//! Claims about several conditions, of which one has no trials that count: they are not decided by the
//! others. And times of late clients, which bound the server's.

use super::*;
use crate::claims::evidence::Layout;
use crate::claims::finding::Bound;
use crate::claims::late;
use crate::claims::quantity::Quantity;
use crate::claims::value::Value;

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

const SERVED_FAST: &str = "Those whom 1000 threads serve";

fn be_late(trial: &mut Measured) {
    trial
        .times_discarded
        .push("The client was late.".to_owned());
}

/// Clients that were late in each trial, and most of whose requests failed.
fn served_late(latency_us: f64) -> Made {
    let mut made = Made::new("P3");
    let levels = [("model", "1000 threads"), ("rate_per_s", "10000")];
    let values = [
        (Metric::ServiceP50Us, 30.0),
        (Metric::P50Us, latency_us),
        (ErrorShare, 0.6),
    ];
    made.cell("rates", (&levels, &values), 0.1).each(be_late);
    made
}

fn is_open_for_late_clients(made: &Made, claim: &str) {
    let claim = made.claim(claim);
    assert_eq!(claim.verdict, NotTestable, "{claim:?}");
    assert_eq!(claim.undecided, Some(Undecided::Discarded), "{claim:?}");
    assert!(claim.why.ends_with("The client was late."), "{claim:?}");
}

#[test]
fn late_clients_bound_the_times_of_a_server() {
    let claim = served_late(40.0).claim(SERVED_FAST);
    assert_eq!(claim.verdict, Reproduced, "{claim:?}");
    // Of latency, since the server may be quicker for what is sent late.
    assert!(claim.interval.unwrap().contains(40.0), "{claim:?}");
    let said = [
        ": median service time at 10000/s in us (at most: the client was late): ",
        "In 5 of 5 trials the client was late, which makes times longer: the server's are at most these.",
        "There latency is taken for service time",
    ];
    let is_said = said.iter().all(|words| claim.why.contains(*words));
    assert!(is_said, "{claim:?}");
    assert!(claim.published.starts_with("1760 us"), "{claim:?}");
    // A trial that counts does so by its own times.
    let mut made = served_late(40.0);
    made.run.trials[0].times_discarded.clear();
    let claim = made.claim(SERVED_FAST);
    assert_eq!(claim.verdict, Reproduced, "{claim:?}");
    assert!(claim.why.contains("In 4 of 5 trials"), "{claim:?}");
}

#[test]
fn late_clients_prove_nothing_above_a_bound() {
    for latency_us in [10_000.0, 50_000.0] {
        is_open_for_late_clients(&served_late(latency_us), SERVED_FAST);
    }
}

#[test]
fn late_clients_of_two_blocks_are_too_few() {
    let mut made = served_late(40.0);
    made.run.trials.retain(|trial| trial.block < 2);
    is_open_for_late_clients(&made, SERVED_FAST);
}

#[test]
fn trials_that_are_short_bound_nothing() {
    let mut made = served_late(40.0);
    made.each(|trial| trial.is_short = true);
    is_open_for_late_clients(&made, SERVED_FAST);
}

#[test]
fn discarded_trials_bound_nothing() {
    let mut made = served_late(40.0);
    made.discard(DIED, |_| true);
    is_open(&made, SERVED_FAST);
}

#[test]
fn late_clients_do_not_prove_that_times_are_long() {
    let mut made = Made::new("P3");
    let levels = [("model", "one event loop"), ("rate_per_s", "200000")];
    let values = [(MeanUs, 5e6), (ErrorShare, 0.0)];
    made.cell("rates", (&levels, &values), 0.1).each(be_late);
    is_open_for_late_clients(&made, "One event loop serves them");
}

/// The slowest may be among those that failed.
#[test]
fn a_mean_of_late_clients_is_taken_where_none_failed() {
    let claim = "The latency of several event loops";
    let made = |errors: &[f64]| {
        let mut made = Made::new("P3");
        let levels = [("model", "several event loops"), ("rate_per_s", "200000")];
        let values = [(MeanUs, 2e3)];
        made.cell("rates", (&levels, &values), 0.1).each(be_late);
        for (trial, errors) in made.run.trials.iter_mut().zip(errors) {
            trial.values.insert(ErrorShare, *errors);
        }
        made
    };
    assert_eq!(made(&[0.0; 5]).verdicts([claim]), [Reproduced]);
    // In one trial they did, or it is not known.
    is_open_for_late_clients(&made(&[0.0, 0.0, 0.0, 0.0, 0.001]), claim);
    is_open_for_late_clients(&made(&[0.0; 4]), claim);
}

#[test]
fn late_clients_decide_a_part_of_a_claim() {
    let claim = "At a rate between";
    let made = |of_one_us: f64| {
        let mut made = Made::new("P3");
        for (server, mean_us) in [("one-loop", of_one_us), ("several-loops", 800.0)] {
            let values = [(MeanUs, mean_us), (ErrorShare, 0.0)];
            let levels = [("server", server)];
            made.cell("computing", (&levels, &values), 0.1);
        }
        made.each(be_late);
        made.claim(claim)
    };
    let found = made(5e6);
    assert_eq!(found.verdict, Reproduced, "{found:?}");
    assert!(found.why.contains("In 5 of 5 trials"), "{found:?}");
    assert_eq!(found.measures.len(), 2, "{found:?}");
    assert_eq!(made(2e3).verdict, NotReproduced);
}

/// In a closed loop a late client asks for less.
#[test]
fn the_largest_time_of_late_clients_of_an_open_loop() {
    for (paper, series, levels, is_open_loop) in [
        ("P3", "rates", ("rate_per_s", "10000"), true),
        ("P3", "computing", ("server", "one-loop"), true),
        ("P1", "best", ("service_us", "0"), false),
    ] {
        let mut made = Made::new(paper);
        let values = [(Metric::MaxUs, 5000.0), (ErrorShare, 0.0)];
        made.cell(series, (&[levels], &values), 0.1).each(be_late);
        let value = Value::Largest {
            of: vec![series.to_owned()].into(),
            quantity: Quantity::Metric(Metric::MaxUs),
        };
        let layout = Layout::new(&made.run);
        let found = |most: f64| {
            let asked = ("{count}", Bound::AtMost(most));
            late::bounded(&value, asked, &layout.at(0.95))
        };
        let beginning = "5 (at most: the client was late): 5500 (";
        let why = found(5600.0).map(|finding| finding.why);
        let is_said = why.is_some_and(|why| why.starts_with(beginning));
        assert_eq!(is_said, is_open_loop, "{series}");
        assert!(found(5400.0).is_none(), "{series}");
    }
}
