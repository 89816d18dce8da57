//! Models at their best numbers, whichever these are.

use loadline_capacity::stats;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::*;
use crate::claims::evidence::Layout;
use crate::claims::select::Select;
use crate::claims::value::Value;

const REACHES: &str = "Several reactors with threads reach 3 times";
const POOLED: &str = "The same, pooled over 0 and 1000 us";

#[test]
fn each_condition_has_a_best_of_its_own() {
    let mut made = Made::new("P1");
    for (service_us, rates) in [("0", [8000.0, 2000.0]), ("1000", [1000.0, 4000.0])] {
        let mut cell = |model, numbers, rate: f64| {
            let levels = [
                ("model", model),
                ("numbers", numbers),
                ("service_us", service_us),
            ];
            let values = [(GoodPerS, rate), (MeanUs, 1e6 / rate)];
            made.cell("best", (&levels, &values), 0.01);
        };
        cell(SINGLE, "1 x 1", 1000.0);
        cell(SEVERAL, "2 x 16", rates[0]);
        cell(SEVERAL, "2 x 50", rates[1]);
    }
    let claim = made.claim(REACHES);
    assert_eq!(claim.verdict, Reproduced);
    for best in [
        "At 0 us: several reactors, threads (best: 2 x 16)",
        "(best: 2 x 50)",
    ] {
        assert!(claim.why.contains(best), "{}", claim.why);
    }
    let claim = made.claim(POOLED);
    assert_eq!(claim.verdict, NotComparable);
    // The geometric mean of 8 and 4.
    assert!(
        claim.interval.unwrap().contains(32.0_f64.sqrt()),
        "{claim:?}"
    );
    let best = "(best: 2 x 16 with service_us=0, 2 x 50 with service_us=1000)";
    assert!(claim.why.contains(best), "{}", claim.why);
    let times = made.claim("Several reactors with threads have shorter");
    assert!(times.why.contains(best), "{}", times.why);
    assert!(times.interval.unwrap().contains(1.0 / 32.0_f64.sqrt()));
}

#[test]
fn what_is_best_by_luck_is_not() {
    let mut made = Made::new("P1");
    for (model, numbers) in [(SINGLE, "1 x 1"), (SEVERAL, "2 x 16"), (SEVERAL, "2 x 50")] {
        let levels = [("model", model), ("numbers", numbers), ("service_us", "0")];
        made.cell("best", (&levels, &[(GoodPerS, 1000.0)]), 0.0);
        made.each(|trial| {
            // In each block, one of the two is 4 times as good as in all others.
            let is_lucky = (trial.block % 2 == 0) == (numbers == "2 x 16");
            if model == SEVERAL && is_lucky {
                trial.values.insert(GoodPerS, 4000.0);
            }
        });
    }
    // The mean of either is 1.7 or 2.3, and what is best in a block is 4 in all of them.
    let claim = made.claim(REACHES);
    let interval = claim.interval.unwrap();
    assert!(
        interval.low < 3.0,
        "the best of each block is 4 in all of them: {claim:?}"
    );
    // A single block says nothing about noise.
    made.run.trials.retain(|trial| trial.block == 0);
    let claim = made.claim(REACHES);
    assert_eq!(claim.verdict, NotTestable, "{claim:?}");
}

/// Trials of one series, by levels, block and value.
fn study(trials: impl IntoIterator<Item = (Vec<(String, Level)>, u32, f64)>) -> Run {
    let mut run = Run::default();
    for (levels, block, value) in trials {
        run.trials.push(Measured {
            number: run.trials.len() as u32,
            block,
            series: "best".to_owned(),
            levels: levels.into_iter().collect(),
            values: [(GoodPerS, value)].into(),
            ..Measured::default()
        });
    }
    run
}

/// Where each block was compared at what was best in all others, 954 of these intervals missed.
#[test]
fn of_null_studies_one_in_twenty_envelopes_misses_at_most() {
    const STUDIES: u64 = 8000;
    let rows: std::collections::BTreeMap<String, Value> = toml::from_str(
        "[value.envelope]\nof = [\"best\", \"model=a\"]\nover = [\"model=b\"]\nfactors = [\"numbers\"]\n\
         metric = \"good_per_s\"",
    )
    .unwrap();
    let value = &rows["value"];
    let is_missed = |seed: &u64| {
        let mut noise = Pcg64Mcg::seed_from_u64(*seed);
        // Normal enough: the sum of twelve.
        let mut drawn = || (0..12).map(|_| noise.random_range(-0.5..0.5)).sum::<f64>();
        let blocks: Vec<f64> = (0..4).map(|_| 0.05 * drawn()).collect();
        let mut trials = Vec::new();
        for (model, count) in [("a", 6), ("b", 4)] {
            for number in 0..count {
                for (block, effect) in (0..).zip(&blocks) {
                    let levels = [
                        ("model".to_owned(), Level::from(model)),
                        ("numbers".to_owned(), Level::Number(f64::from(number))),
                    ];
                    let value = 1000.0 * (effect + 0.05 * drawn()).exp();
                    trials.push((levels.to_vec(), block, value));
                }
            }
        }
        let run = study(trials);
        let layout = Layout::new(&run);
        let found = value.measured(&layout.at(stats::LEVEL), &mut String::new());
        !found.unwrap().interval.unwrap().contains(1.0)
    };
    let missed = (0..STUDIES).filter(is_missed).count();
    println!("missed: {missed} of {STUDIES}");
    assert!(missed <= STUDIES as usize / 20, "{missed} of {STUDIES}");
}

/// Two conditions with the same three blocks are three values, and not six.
#[test]
fn conditions_of_a_block_are_one_value_of_a_mean() {
    let effects = [0.9, 1.0, 1.15];
    let conditions = [("0", 1000.0), ("1000", 500.0)];
    let trials = conditions.into_iter().flat_map(|(service_us, rate)| {
        let trials = (0..).zip(effects);
        trials.map(move |(block, effect)| {
            let levels = vec![("service_us".to_owned(), level(service_us))];
            (levels, block, rate * effect)
        })
    });
    let run = study(trials);
    let layout = Layout::new(&run);
    let of = Select::from(vec!["best".to_owned()]);
    let found = layout
        .at(stats::LEVEL)
        .mean(&|trial| trial.value(GoodPerS), &of)
        .unwrap();
    let level_of_all = (1000.0_f64 * 500.0).sqrt();
    let (value, interval) =
        stats::center(&effects.map(|it| level_of_all * it), stats::LEVEL).unwrap();
    let (interval, expected) = (found.interval.unwrap(), interval.unwrap());
    assert!((found.value - value).abs() < 1e-6);
    assert!((interval.low - expected.low).abs() < 1e-6, "{interval:?}");
    assert!((interval.high - expected.high).abs() < 1e-6, "{interval:?}");
}
