//! What is left of measurements beside a fitted curve: of their blocks, and of each by itself.

use std::collections::BTreeMap;

use loadline_base::sorting::{sort, to_map};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use statrs::distribution::{ContinuousCDF, FisherSnedecor, Normal, StudentsT};

use crate::stats::mean;

/// Parameters of the curve.
const PARAMETERS: usize = 3;

/// The noise of measurements, in two parts.
#[derive(Clone, Debug)]
pub(super) struct Noise {
    /// The block of each measurement, from 0.
    blocks: Vec<usize>,
    /// Standard deviation of what a block shares, wider for few blocks; 0 with one.
    block_stdev: f64,
    /// What is left of each measurement, wider for few of them.
    rest: Vec<f64>,
    /// How likely so much distance of the levels from the curve is by chance.
    pub(super) lack_of_fit_p: Option<f64>,
}

impl Noise {
    /// Of the residuals of points; `blocks` as many as those, or empty.
    pub(super) fn of(points: &[(f64, f64)], blocks: &[u32], residuals: &[f64]) -> Self {
        let center = mean(residuals);
        let centered: Vec<f64> = residuals.iter().map(|one| one - center).collect();
        let blocks = numbered(blocks, points.len());
        let shared = means(&centered, &blocks);
        let rest: Vec<f64> = (centered.iter().zip(&blocks))
            .map(|(one, block)| one - shared[block])
            .collect();
        let count = shared.len();
        let squares: f64 = shared.values().map(|one| one * one).sum();
        let block_freedom = count.saturating_sub(1);
        let block_stdev = match block_freedom {
            0 => 0.0,
            freedom => (squares / freedom as f64).sqrt() * wider(freedom),
        };
        let freedom = points
            .len()
            .saturating_sub(PARAMETERS + block_freedom)
            .max(1);
        let inflation = (points.len() as f64 / freedom as f64).sqrt() * wider(freedom);
        Self {
            lack_of_fit_p: lack_of_fit_p(points, &rest, block_freedom),
            blocks,
            block_stdev,
            rest: rest.iter().map(|one| one * inflation).collect(),
        }
    }

    /// Noise for each measurement.
    pub(super) fn draw(&self, generator: &mut Pcg64Mcg) -> Vec<f64> {
        let count = self.blocks.iter().max().map_or(0, |most| most + 1);
        // Two or three blocks cannot stand for all that there might be, so they are not drawn again.
        let normal = Normal::standard();
        let mut shared = vec![0.0; count];
        if self.block_stdev > 0.0 {
            for one in &mut shared {
                let chance = generator.random_range(1e-9..1.0 - 1e-9);
                *one = self.block_stdev * normal.inverse_cdf(chance);
            }
        }
        let blocks = self.blocks.iter();
        blocks
            .map(|block| shared[*block] + self.rest[generator.random_range(0..self.rest.len())])
            .collect()
    }
}

/// Few residuals know little of the noise: as much wider as Student's t is beyond the normal
/// distribution.
fn wider(freedom: usize) -> f64 {
    StudentsT::new(0.0, 1.0, freedom as f64).map_or(1.0, |t| t.inverse_cdf(0.975) / 1.96)
}

/// Blocks by number from 0; one for all if they are not known.
fn numbered(blocks: &[u32], count: usize) -> Vec<usize> {
    let mut names = blocks.to_vec();
    sort(&mut names);
    names.dedup();
    match blocks.len() == count {
        true => (blocks.iter())
            .map(|block| names.partition_point(|name| name < block))
            .collect(),
        false => vec![0; count],
    }
}

fn means(values: &[f64], groups: &[usize]) -> BTreeMap<usize, f64> {
    let mut sums: BTreeMap<usize, (f64, usize)> = BTreeMap::new();
    for (value, group) in values.iter().zip(groups) {
        let (sum, count) = sums.entry(*group).or_default();
        *sum += value;
        *count += 1;
    }
    let sums = sums.into_iter();
    to_map(sums.map(|(group, (sum, count))| (group, sum / count as f64)))
}

/// The test for lack of fit: what levels are off by, over what their replicates differ by.
fn lack_of_fit_p(points: &[(f64, f64)], rest: &[f64], block_freedom: usize) -> Option<f64> {
    let mut levels: Vec<f64> = points.iter().map(|point| point.0).collect();
    levels.sort_by(f64::total_cmp);
    levels.dedup();
    let level_of = |n: f64| levels.partition_point(|level| *level < n);
    let groups: Vec<usize> = points.iter().map(|point| level_of(point.0)).collect();
    let off = means(rest, &groups);
    let pure: f64 = (rest.iter().zip(&groups))
        .map(|(one, group)| (one - off[group]).powi(2))
        .sum();
    let of_levels: f64 = groups.iter().map(|group| off[group].powi(2)).sum();
    let freedom = levels.len().checked_sub(PARAMETERS)?;
    let pure_freedom = points.len().checked_sub(levels.len() + block_freedom)?;
    if freedom == 0 || pure_freedom == 0 || pure <= 0.0 {
        return None;
    }
    let (freedom, pure_freedom) = (freedom as f64, pure_freedom as f64);
    let ratio = (of_levels / freedom) / (pure / pure_freedom);
    let law = FisherSnedecor::new(freedom, pure_freedom).ok()?;
    Some(law.sf(ratio))
}
