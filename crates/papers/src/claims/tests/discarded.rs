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
    let mut made = surface("threads", "workers", &by_time);
    made.discard(DIED, |it| it.levels["service_us"] == level("200"));
    is_open(&made, "Beyond the optimum of threads");
    // One that fails is enough.
    let by_time = [("0", [1e3, 2e3, 4e3, 7e3]), ("200", [3e3, 6e3, 9e3, 8e3])];
    let mut made = surface("threads", "workers", &by_time);
    made.discard(DIED, |it| it.levels["service_us"] == level("200"));
    let found = made.verdicts(["Beyond the optimum of threads"]);
    assert_eq!(found, [NotReproduced]);
}

#[test]
fn the_best_of_each_service_time() {
    let mut made = headline(4000.0, 0.02);
    made.discard(DIED, |trial| {
        trial.levels["service_us"] == level("1000") && trial.block > 0
    });
    is_open(&made, "Several reactors with threads reach 3 times");
}

#[test]
fn a_ratio_over_numbers_of_users() {
    let claim = "Behind the login, too, the loop";
    let mut made = Made::new("P2");
    for database in DATABASES {
        for users in ["10", "50"] {
            for (arm, rate) in [("workers", 1000.0), ("loop", 1200.0)] {
                let levels = [("arm", arm), ("database", database), ("users", users)];
                made.cell("page", (&levels, &[(GoodPerS, rate)]), 0.02);
            }
        }
    }
    assert_eq!(made.verdicts([claim]), [Reproduced]);
    made.discard(DIED, |it| it.levels["users"] == level("50"));
    is_open(&made, claim);
}
