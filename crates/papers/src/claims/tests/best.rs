//! Models at their best numbers, chosen on other blocks than tested.

use super::*;

const REACHES: &str = "Several reactors with threads reach 3 times";

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
    // The geometric mean of 8 and 4.
    assert!(
        claim.interval.unwrap().contains(32.0_f64.sqrt()),
        "{claim:?}"
    );
    let best = "(best: 2 x 16 with service_us=0, 2 x 50 with service_us=1000)";
    assert!(claim.why.contains(best), "{}", claim.why);
    // The numbers that serve most, not those with the shortest times.
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
    // 3 of 5 blocks are even: there the others are 2 and 2, and both are alike; in odd blocks what is best
    // in the even ones is not.
    let claim = made.claim(REACHES);
    let interval = claim.interval.unwrap();
    assert!(
        interval.low < 3.0,
        "the best of each block is 4 in all of them: {claim:?}"
    );
    // A single block chooses nothing.
    made.run.trials.retain(|trial| trial.block == 0);
    let claim = made.claim(REACHES);
    assert_eq!(claim.verdict, NotTestable, "{claim:?}");
}
