//! The usual value, by order statistics: it asks nothing of the distribution.

/// The middle value, or the mean of the two in the middle; `None` without a value.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        len if len % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// The value below which a share of the values lies, in a straight line between the two nearest
/// (Hyndman and Fan's type 7); `None` without a value.
#[must_use]
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let sorted = sorted(values);
    let last = sorted.len().checked_sub(1)?;
    let at = share.clamp(0.0, 1.0) * last as f64;
    let (below, part) = (at.floor() as usize, at.fract());
    let above = (below + 1).min(last);
    Some(sorted[below] + part * (sorted[above] - sorted[below]))
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|one| !one.is_nan()).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn medians_and_quantiles() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.25), Some(2.0));
        assert_eq!(quantile(&[10.0, 20.0], 0.9), Some(19.0));
    }

    proptest! {
        #[test]
        fn quantiles_rise(values in prop::collection::vec(-1e6..1e6, 1..60), a in 0.0..1.0, b in 0.0..1.0) {
            let (low, high) = if a < b { (a, b) } else { (b, a) };
            prop_assert!(quantile(&values, low) <= quantile(&values, high));
            let (middle, median) = (quantile(&values, 0.5).unwrap(), median(&values).unwrap());
            prop_assert!((middle - median).abs() <= 1e-9 * median.abs().max(1.0));
        }
    }
}
