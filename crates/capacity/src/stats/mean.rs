//! A mean and its interval, by Student's t: exact for runs that are normally distributed, from two up.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::Interval;

/// The mean; `NaN` without a value.
#[must_use]
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The interval that holds the true mean of what is normally distributed at `level`, however few runs
/// there are (Student 1908). `None`: fewer than two values.
///
/// Two or three runs cannot be drawn again often enough for a bootstrap to reach a level: with two it
/// holds the truth in half of all cases, with three in three quarters.
#[must_use]
pub fn mean_interval(values: &[f64], level: f64) -> Option<Interval> {
    let reach = quantile_of_t(values.len(), level)? * standard_error(values)?;
    let center = mean(values);
    Some(Interval {
        low: center - reach,
        high: center + reach,
        level,
    })
}

/// Of how many runs an interval reaches `wanted` to either side at most, if one of `runs` reaches `reach`, and
/// their noise stays as it is. `None`: of more than `most`.
#[must_use]
pub fn runs_wanted(
    (runs, reach): (usize, f64),
    wanted: f64,
    level: f64,
    most: usize,
) -> Option<usize> {
    let noise = reach * (runs as f64).sqrt() / quantile_of_t(runs, level)?;
    let is_enough = |count: &usize| {
        let quantile = quantile_of_t(*count, level).unwrap_or(f64::INFINITY);
        quantile * noise / (*count as f64).sqrt() <= wanted
    };
    (runs..=most).find(is_enough)
}

/// How many standard errors an interval over runs reaches to either side; `None`: fewer than two runs.
fn quantile_of_t(runs: usize, level: f64) -> Option<f64> {
    let freedom = runs.checked_sub(1)?;
    let student = StudentsT::new(0.0, 1.0, freedom as f64).ok()?;
    Some(student.inverse_cdf(f64::midpoint(1.0, level)))
}

/// The mean of runs with its interval: the geometric one where all are above 0, since the noise of a rate
/// or a time grows with it. `None`: no run.
#[must_use]
pub fn center(values: &[f64], level: f64) -> Option<(f64, Option<Interval>)> {
    if values.is_empty() {
        return None;
    }
    if !values.iter().all(|value| *value > 0.0) {
        return Some((mean(values), mean_interval(values, level)));
    }
    let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    let interval = mean_interval(&logs, level).map(|of_logs| Interval {
        low: of_logs.low.exp(),
        high: of_logs.high.exp(),
        ..of_logs
    });
    Some((mean(&logs).exp(), interval))
}

/// Student's test of a mean against 0, two-sided. Nothing that differs gives 1, or 0 where all
/// values are the same other than 0.
#[must_use]
pub fn t_test(values: &[f64]) -> f64 {
    let Some(error) = standard_error(values) else {
        return 1.0;
    };
    let center = mean(values);
    if error == 0.0 {
        return if center == 0.0 { 1.0 } else { 0.0 };
    }
    let student = StudentsT::new(0.0, 1.0, (values.len() - 1) as f64);
    student.map_or(1.0, |student| 2.0 * student.cdf(-(center / error).abs()))
}

/// Of the mean; `None`: fewer than two values.
fn standard_error(values: &[f64]) -> Option<f64> {
    let (count, center) = (values.len() as f64, mean(values));
    let squares: f64 = values.iter().map(|value| (value - center).powi(2)).sum();
    (values.len() >= 2).then(|| (squares / (count - 1.0) / count).sqrt())
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;
    use statrs::distribution::Normal;

    use super::*;
    use crate::stats::LEVEL;

    #[test]
    fn the_t_test_as_tabled() {
        // A mean of exactly t = 2.776 standard errors with 4 degrees of freedom: p = 0.05.
        let spread = [-2.0, -1.0, 0.0, 1.0, 2.0_f64];
        let error = (10.0_f64 / 4.0 / 5.0).sqrt();
        let values = spread.map(|value| value + 2.776_445 * error);
        assert!((t_test(&values) - 0.05).abs() < 1e-5);
        let interval = mean_interval(&values, LEVEL).unwrap();
        assert!(interval.low.abs() < 1e-5);
        assert_eq!((mean_interval(&[1.0], LEVEL), t_test(&[1.0])), (None, 1.0));
    }

    #[test]
    fn more_runs_narrow_by_their_root_and_by_t() {
        // With 2 degrees of freedom t is 4.303, with 7 it is 2.365, and with 8 it is 2.306.
        let enough = |wanted, most| runs_wanted((3, 3.0), wanted, LEVEL, most);
        assert_eq!(enough(3.001, 300), Some(3));
        assert_eq!(enough(1.0, 300), Some(9));
        assert_eq!(enough(1.0, 8), None);
        assert_eq!(enough(0.0, 300), None);
        assert_eq!(runs_wanted((1, 3.0), 1.0, LEVEL, 300), None);
    }

    /// How many of 2000 intervals over normal runs hold the true mean: 95 % of them, give or take
    /// four standard deviations.
    #[test]
    fn intervals_hold_the_truth_as_often_as_they_say() {
        let normal = Normal::new(0.0, 1.0).unwrap();
        for runs in [2, 3, 4, 5, 10, 30] {
            let held = (0..2000_u64).filter(|seed| {
                let mut generator = Pcg64Mcg::seed_from_u64(*seed);
                let values: Vec<f64> = (0..runs)
                    .map(|_| normal.inverse_cdf(generator.random_range(1e-12..1.0)))
                    .collect();
                mean_interval(&values, LEVEL).unwrap().contains(0.0)
            });
            let held = held.count();
            assert!((1861..=1939).contains(&held), "{runs} runs: {held} of 2000");
        }
    }
}
