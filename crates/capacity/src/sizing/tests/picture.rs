//! What `docs/pictures/sizes.svg` is drawn from.

use std::fmt::Write;

use super::trial::best_fixed;
use super::{MACHINE, asked, closed, open, sizes};
use crate::sizing::tests::world::{Kind, Load, Phase};

/// Each load lasts so long; the last one, under which threads are given up, longer.
const LOAD_S: f64 = 10.0;
const LAST_S: f64 = 30.0;
/// Of the sizes, one in so many is drawn.
const STEP: usize = 2;

/// A row is a curve, a time in seconds, a size.
///
/// `UPDATE_DOCS=1 cargo test --profile fast -p loadline-capacity --lib picture -- --ignored`, and then
/// `UPDATE_DOCS=1 cargo test -p loadline-lab --test report pictures`.
#[test]
#[ignore = "by hand: prints a table; see docs/overload.md"]
fn sizes_while_the_load_changes_by_hand() {
    let loads = loads();
    let last = loads.len() - 1;
    let phases = loads.into_iter().enumerate().map(|(index, load)| {
        let lasts_s = if index == last { LAST_S } else { LOAD_S };
        (lasts_s, load)
    });
    let phases: Vec<_> = phases.collect();
    let mut table = "curve,seconds,size\n".to_owned();
    let mut from_s = 0.0;
    for (lasts_s, load) in &phases {
        let (best, _) = best_fixed(MACHINE, load, super::THREADS.bounds, 7);
        for at_s in [from_s, from_s + lasts_s] {
            writeln!(table, "\"the best fixed size\",{at_s},{best}").unwrap();
        }
        from_s += lasts_s;
    }
    for (index, size) in sizes(&phases, 2, true).iter().enumerate().step_by(STEP) {
        let at_s = (index + 1) as f64 / 10.0;
        writeln!(table, "\"--workers auto\",{at_s},{size}").unwrap();
    }
    print!("{table}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write("../../docs/pictures/sizes.csv", table).unwrap();
    }
}

/// As docs/overload.md names them.
fn loads() -> Vec<Load> {
    let mut mixed = asked(Phase::Compute(1000.0), closed(40));
    mixed.kinds.push(Kind {
        phases: [Phase::Sleep(10_000.0), Phase::Nothing, Phase::Nothing],
        ..mixed.kinds[0].clone()
    });
    let mut log_in = asked(Phase::Compute(100.0), closed(40));
    log_in.kinds[0].phases[1] = Phase::Station(2000.0);
    vec![
        asked(Phase::Compute(1000.0), closed(40)),
        asked(Phase::Sleep(10_000.0), closed(40)),
        log_in,
        mixed,
        asked(Phase::Sleep(10_000.0), open(100.0)),
    ]
}
