//! Trials that all have the same value, such as a share of failures that is 0 in each: an interval made of
//! their scatter has no width, however few they are.

use loadline_base::sorting::to_set;
use loadline_capacity::stats::Interval;
use loadline_lab::analysis::Cell;
use loadline_lab::report::Undecided;

use super::evidence::{BLOCKS_MIN, Estimate, Evidence, Untestable};
use super::finding::number;
use super::quantity::Quantity;
use super::select::Select;
use super::taken::Taken;

/// Fewer failures than one in a thousand count as none.
const NONE_SHARE_MAX: f64 = 0.001;

/// The mean over trials. If it is a share that is 0 in all of them, or 1, its interval is as wide as the
/// number of requests behind it makes it.
pub(super) fn mean(
    evidence: &Evidence<'_>,
    quantity: Quantity,
    select: &Select,
) -> Result<Estimate, Untestable> {
    let mean = evidence.mean(&|trial| quantity.of(trial), select)?;
    let (Some(interval), Some(value), Some((fewest, cells))) = (
        mean.interval,
        same_value(evidence, quantity, select),
        fewest_requests(evidence, quantity, select),
    ) else {
        return Ok(mean);
    };
    // All conditions have the same weight: the one with the fewest requests limits what the mean can say.
    let share = unseen_share(evidence, fewest * cells as f64);
    let interval = if value <= 0.0 {
        Interval {
            high: share,
            ..interval
        }
    } else if value >= 1.0 {
        Interval {
            low: 1.0 - share,
            ..interval
        }
    } else {
        interval
    };
    Ok(Estimate {
        interval: Some(interval),
        ..mean
    })
}

/// An error, if all trials have the same value in too few blocks.
pub(super) fn has_blocks(
    evidence: &Evidence<'_>,
    quantity: Quantity,
    select: &Select,
) -> Result<(), Untestable> {
    let Some(value) = same_value(evidence, quantity, select) else {
        return Ok(());
    };
    let blocks_of = |cell: &Cell<'_>| {
        let trials = cell.counted.iter();
        let measured = trials.filter(|trial| quantity.of(trial).is_some());
        to_set(measured.map(|trial| trial.block)).len()
    };
    let blocks = evidence.cells(select).map(blocks_of).min().unwrap_or(0);
    // Of a single block there is no interval, which says enough.
    if !(2..BLOCKS_MIN).contains(&blocks) {
        return Ok(());
    }
    let why = format!(
        "All trials of {} have the same value, {}, but in {blocks} blocks alone: without scatter, \
         {BLOCKS_MIN} blocks are needed.",
        select.text(),
        number(value)
    );
    let (why, undecided) = match evidence.lost_blocks(&[Taken::all(select)], blocks) {
        Some(lost) => (format!("{why} {lost}"), Undecided::Discarded),
        None => (why, Undecided::FewBlocks),
    };
    Err(Untestable(why, undecided))
}

/// An error, if none of some requests failed, but they are too few to say that none does.
pub(super) fn has_requests(
    evidence: &Evidence<'_>,
    quantity: Quantity,
    select: &Select,
) -> Result<(), Untestable> {
    // Whatever fails may all fail under one condition.
    let fewest = fewest_requests(evidence, quantity, select);
    match fewest.map(|(fewest, _)| unseen_share(evidence, fewest)) {
        Some(share) if share > NONE_SHARE_MAX => {
            let why = format!(
                "No request of {} failed, but they are so few that a share of {} may; at most \
                 {NONE_SHARE_MAX} counts as none.",
                select.text(),
                number(share)
            );
            Err(Untestable(why, Undecided::FewBlocks))
        }
        _ => Ok(()),
    }
}

/// What all trials have; `None`: they differ.
fn same_value(evidence: &Evidence<'_>, quantity: Quantity, select: &Select) -> Option<f64> {
    let trials = evidence.trials(select).into_iter();
    let values: Vec<f64> = trials.filter_map(|trial| quantity.of(trial)).collect();
    let least = values.iter().copied().reduce(f64::min)?;
    let most = values.iter().copied().reduce(f64::max)?;
    (least >= most).then_some(least)
}

/// Of the requests of each cell, in the trials that say something, the fewest, and how many cells there are.
/// `None`: the quantity is no share.
fn fewest_requests(
    evidence: &Evidence<'_>,
    quantity: Quantity,
    select: &Select,
) -> Option<(f64, usize)> {
    let of_cell = |cell: &Cell<'_>| -> Option<f64> {
        let trials = cell.counted.iter();
        let measured = trials.filter(|trial| quantity.of(trial).is_some());
        measured.map(|trial| quantity.counted(trial)).sum()
    };
    let counts: Option<Vec<f64>> = evidence.cells(select).map(of_cell).collect();
    let counts = counts?;
    let fewest = counts.iter().copied().reduce(f64::min)?;
    Some((fewest, counts.len()))
}

/// The largest share that may fail although none of `count` requests did: at a level of 95 % about 3 / count
/// (the rule of three).
fn unseen_share(evidence: &Evidence<'_>, count: f64) -> f64 {
    -((1.0 - evidence.level).ln() / count).exp_m1()
}
