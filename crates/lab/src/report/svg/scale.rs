//! From values to positions, and the values that are written at an axis.

use crate::report::words;

/// One axis of a panel.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    log: bool,
    pub(super) low: f64,
    pub(super) high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// Over a range of values, drawn from one position to the other. A linear axis of a quantity
    /// begins at 0 (`with_zero`): what is cut off makes small differences look large.
    pub(super) fn new(range: (f64, f64), log: bool, with_zero: bool, ends: (f64, f64)) -> Self {
        let (mut low, mut high) = range;
        if log {
            if low <= 0.0 {
                low = (high / 1000.0).max(f64::MIN_POSITIVE);
            }
            (low, high) = (low / 1.12, high.max(low * 1.01) * 1.12);
        } else if with_zero {
            low = low.min(0.0);
            high += if high > low { (high - low) * 0.06 } else { 1.0 };
        } else {
            let margin = if high > low { (high - low) * 0.03 } else { 1.0 };
            (low, high) = (low - margin, high + margin);
        }
        Self::exact((low, high), log, ends)
    }

    /// Over a range without a margin; that of a logarithmic axis is above 0.
    pub(super) fn exact((low, high): (f64, f64), log: bool, (from, to): (f64, f64)) -> Self {
        Self {
            log,
            low,
            high,
            from,
            to,
        }
    }

    /// Whether a value is not beyond the axis.
    pub(super) fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Where a value lies; what is beyond the axis lies at its end.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + (self.to - self.from) * share.clamp(0.0, 1.0)
    }

    /// About `count` round values with their text, in units of `divisor`.
    pub(super) fn ticks(&self, count: usize, divisor: f64) -> Vec<(f64, String)> {
        let (low, high) = (self.low / divisor, self.high / divisor);
        let values = if self.log {
            log_ticks(low, high, count)
        } else {
            linear_ticks(low, high, count)
        };
        values
            .into_iter()
            .map(|value| (value * divisor, tick(value)))
            .collect()
    }
}

fn linear_ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    let raw = (high - low) / count.max(1) as f64;
    let power = 10_f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= raw * 0.999)
        .unwrap_or(power * 10.0);
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last.min(first + 50))
        .map(|index| index as f64 * step)
        .collect()
}

fn log_ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let decades = (last - first) as usize;
    let factors: &[f64] = match decades {
        _ if high < 3.0 * low => &[1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0],
        _ if high < 10.0 * low => &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
        0..=1 => &[1.0, 2.0, 3.0, 5.0, 7.0],
        2..=3 if count > 4 => &[1.0, 2.0, 5.0],
        _ => &[1.0],
    };
    let every = decades.div_ceil(count.max(1)).max(1);
    (first..=last)
        .step_by(every)
        .flat_map(|power| {
            factors
                .iter()
                .map(move |factor| factor * 10_f64.powi(power))
        })
        .filter(|value| (low..=high).contains(value))
        .collect()
}

/// "40k", "2.5M", "0.001".
fn tick(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if size >= 1e6 => words::digits(value / 1e6, 4) + "M",
        _ if size >= 1e4 => words::digits(value / 1e3, 4) + "k",
        _ => words::digits(value, 4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(scale: &Scale, count: usize) -> Vec<String> {
        let ticks = scale.ticks(count, 1.0);
        ticks.into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn ticks_are_round() {
        let linear = Scale::new((0.0, 48_000.0), false, true, (300.0, 0.0));
        assert_eq!(texts(&linear, 5), ["0", "20k", "40k"]);
        let log = Scale::new((1.0, 10_000.0), true, false, (0.0, 100.0));
        assert_eq!(texts(&log, 6), ["1", "10", "100", "1,000", "10k"]);
        let narrow = Scale::new((0.9, 1.3), true, false, (0.0, 100.0));
        assert_eq!(texts(&narrow, 4), ["1", "1.25"]);
        assert!(log.at(100.0) > 49.0 && log.at(100.0) < 51.0);
    }

    #[test]
    fn odd_ranges_have_an_axis() {
        for range in [(0.0, 0.0), (5.0, 5.0), (-3.0, 2.0)] {
            for log in [false, true] {
                let scale = Scale::new(range, log, true, (0.0, 100.0));
                assert!(scale.at(range.1).is_finite(), "{range:?} {log}");
                assert!(scale.ticks(5, 1.0).len() < 60);
            }
        }
    }
}
