//! Where a curve of load and latency bends: three different questions, never mixed.
//!
//! | knee | question | here |
//! |---|---|---|
//! | SLO | up to which rate is the objective held? | [`loadline_capacity::search`] |
//! | saturation | up to which rate is 99 % of what is offered completed? | [`saturation_knee`] |
//! | shape | where does the curve look as if it bends? | [`shape_knee`], [`power_knee`] |
//!
//! A response time that grows as in a queue has no knee of its own: where it seems to bend depends
//! on how far the axes reach (Gunther). So the first is the headline, and the third describes a
//! picture.

use std::fmt;

use loadline_base::sorting::sort_by;
use serde::{Deserialize, Serialize};

use crate::slo::COMPLETED_SHARE_MIN;
use loadline_capacity::stats::median;

/// A trial on the curve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Requests that became due, per second.
    pub offered_per_s: f64,
    /// Complete answers, per second.
    pub completed_per_s: f64,
    /// Mean latency, or any other statistic of it, the same in all points, in microseconds.
    pub latency_us: f64,
}

/// A knee: never without its kind.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Knee {
    /// Which of the questions this answers.
    pub kind: KneeKind,
    /// The highest rate before the bend, of those that were measured.
    pub at_per_s: f64,
    /// The next rate, which is beyond it; `None`: the curve ends before.
    pub beyond_per_s: Option<f64>,
}

/// Which knee.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KneeKind {
    /// What is offered is completed up to there.
    Saturation,
    /// The curve of the latency bends there, by Kneedle.
    Shape,
    /// Throughput over latency is largest there.
    Power,
}

impl fmt::Display for KneeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Saturation => "saturation (completed/offered under 0.99)",
            Self::Shape => "shape (Kneedle, describes the picture)",
            Self::Power => "shape (throughput over latency, describes the picture)",
        })
    }
}

/// The highest rate up to which, by the median of its trials, at least 99 % of what was offered was
/// completed. `None`: not even at the lowest rate.
#[must_use]
pub fn saturation_knee(points: &[Point]) -> Option<Knee> {
    let completed = by_rate(points, |point| point.completed_per_s / point.offered_per_s);
    let is_good = |(_, share): &&(f64, f64)| *share >= COMPLETED_SHARE_MIN;
    let good = completed.iter().take_while(is_good).count();
    Some(knee(&completed, good.checked_sub(1)?, KneeKind::Saturation))
}

/// Where the latency bends upwards, by Kneedle (Satopaa et al., "Finding a Kneedle in a Haystack",
/// ICDCS workshops 2011) with a sensitivity of 1, on medians. `None`: fewer than five rates, or no
/// bend.
#[must_use]
pub fn shape_knee(points: &[Point]) -> Option<Knee> {
    const SENSITIVITY: f64 = 1.0;
    let curve = by_rate(points, |point| point.latency_us);
    if curve.len() < RATES_MIN {
        return None;
    }
    let (first, last) = (curve.first()?.0, curve.last()?.0);
    let least = curve.iter().map(|(_, y)| *y).fold(f64::INFINITY, f64::min);
    let most = curve.iter().map(|(_, y)| *y).fold(0.0, f64::max);
    if most <= least {
        return None;
    }
    // How far the curve is below the straight line between its corners.
    let below: Vec<f64> = (curve.iter())
        .map(|(x, y)| (x - first) / (last - first) - (y - least) / (most - least))
        .collect();
    let mut candidate: Option<(usize, f64)> = None;
    let margin = SENSITIVITY / (curve.len() - 1) as f64;
    for at in 1..curve.len() {
        let is_top =
            below[at] >= below[at - 1] && below.get(at + 1).is_none_or(|next| below[at] > *next);
        if let Some((top, threshold)) = candidate
            && below[at] < threshold
        {
            return Some(knee(&curve, top, KneeKind::Shape));
        }
        if is_top && below[at] > 0.0 && candidate.is_none_or(|(top, _)| below[at] > below[top]) {
            candidate = Some((at, below[at] - margin));
        }
    }
    None
}

/// Where throughput over latency is largest (Kleinrock's power), on medians. `None`: fewer than five
/// rates, or it is largest at an end of the curve.
#[must_use]
pub fn power_knee(points: &[Point]) -> Option<Knee> {
    let power = by_rate(points, |point| point.completed_per_s / point.latency_us);
    if power.len() < RATES_MIN {
        return None;
    }
    let pairs = power.iter().enumerate();
    let (best, _) = pairs.max_by(|one, other| one.1.1.total_cmp(&other.1.1))?;
    let is_inside = best > 0 && best + 1 < power.len();
    is_inside.then(|| knee(&power, best, KneeKind::Power))
}

/// Rates that a shape needs.
const RATES_MIN: usize = 5;

/// The median of the trials of each rate in some quantity, by rising rate.
fn by_rate(points: &[Point], of: fn(&Point) -> f64) -> Vec<(f64, f64)> {
    let mut sorted: Vec<Point> = (points.iter().copied())
        .filter(|point| point.offered_per_s > 0.0)
        .collect();
    sort_by(&mut sorted, |one, other| {
        one.offered_per_s.total_cmp(&other.offered_per_s)
    });
    // The offered rate is as planned to within a request: what is nearer than that is one rate.
    let groups = sorted.chunk_by(|one, other| other.offered_per_s <= one.offered_per_s * 1.002);
    let medians = groups.filter_map(|group| {
        let values: Vec<f64> = group.iter().map(of).collect();
        Some((group[0].offered_per_s, median(&values)?))
    });
    medians.collect()
}

fn knee(curve: &[(f64, f64)], at: usize, kind: KneeKind) -> Knee {
    Knee {
        kind,
        at_per_s: curve[at].0,
        beyond_per_s: curve.get(at + 1).map(|point| point.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue that saturates at 1000/s, offered 100, 200, ... 1500.
    fn queue() -> Vec<Point> {
        (1..=15)
            .map(|step| {
                let offered_per_s = f64::from(step) * 100.0;
                let free = (1.0 - offered_per_s / 1000.0).max(0.001);
                Point {
                    offered_per_s,
                    completed_per_s: offered_per_s.min(1000.0),
                    latency_us: 1000.0 / free,
                }
            })
            .collect()
    }

    fn at(knee: Option<Knee>) -> (f64, Option<f64>) {
        let knee = knee.unwrap();
        (knee.at_per_s, knee.beyond_per_s)
    }

    #[test]
    fn three_knees_are_three_rates() {
        let points = queue();
        assert_eq!(at(saturation_knee(&points)), (1000.0, Some(1100.0)));
        // An M/M/1 queue has its greatest power at half of its capacity.
        assert_eq!(at(power_knee(&points)), (500.0, Some(600.0)));
        let shape = shape_knee(&points[..9]).unwrap();
        assert!((600.0..900.0).contains(&shape.at_per_s), "{shape:?}");
        assert!(shape.kind.to_string().contains("describes the picture"));
    }

    #[test]
    fn replicates_are_one_rate() {
        let mut points = queue();
        points.extend(queue());
        assert_eq!(at(saturation_knee(&points)), (1000.0, Some(1100.0)));
    }

    #[test]
    fn a_curve_that_does_not_bend() {
        let straight: Vec<Point> = (1..=10)
            .map(|step| Point {
                offered_per_s: f64::from(step),
                completed_per_s: f64::from(step),
                latency_us: 100.0,
            })
            .collect();
        assert_eq!(shape_knee(&straight), None);
        assert_eq!(power_knee(&straight), None);
        assert_eq!(at(saturation_knee(&straight)), (10.0, None));
        assert_eq!(saturation_knee(&[]), None);
    }
}
