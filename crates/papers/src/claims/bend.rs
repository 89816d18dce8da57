//! The rate at which a server bends: up to it, 99 % of what is offered is answered well.

use std::collections::BTreeMap;

use loadline_capacity::stats::{self, Range};
use loadline_lab::analysis::Metric;

use super::evidence::{Estimate, Evidence, Untestable};
use super::finding::number;
use super::select::Select;

const RATE: &str = "rate_per_s";
/// A rate is carried if this share of what is offered is answered well: the knee of saturation.
const CARRIED_SHARE: f64 = 0.99;
/// A bend below the lowest rate, or above the highest, lies between these: a terabyte a second is more
/// than any machine's memory carries.
const ANYWHERE_PER_S: (f64, f64) = (1.0, 1e6);

/// Where a server bends in each block.
struct Bends {
    name: String,
    /// Between the highest rate up to which every rate was carried, and the lowest of which some was
    /// lost. The value is the former.
    by_block: BTreeMap<u32, Range>,
    /// Blocks in which every rate that counts was carried.
    without: usize,
    /// The highest rate that counts.
    highest_per_s: f64,
    /// Why higher ones do not.
    limit: String,
}

impl Bends {
    fn new(evidence: &Evidence<'_>, select: &Select) -> Result<Self, Untestable> {
        let mut shares: BTreeMap<u32, BTreeMap<u64, f64>> = BTreeMap::new();
        let rates = evidence.numbers(select, RATE);
        for rate in &rates {
            for trial in evidence.trials(&select.clone().is(RATE, *rate)) {
                let good = trial.value(Metric::GoodPerS).unwrap_or_default();
                // Whole numbers in a plan.
                let of_block = shares.entry(trial.block).or_default();
                of_block.insert(*rate as u64, good / rate);
            }
        }
        let highest = shares.values().flat_map(BTreeMap::keys).max();
        let highest_per_s = *highest.ok_or_else(|| evidence.missing(select))? as f64;
        let mut bends = Self {
            name: select
                .level("server")
                .map_or_else(String::new, ToString::to_string),
            by_block: BTreeMap::new(),
            without: 0,
            highest_per_s,
            limit: match rates.last() {
                Some(last) if *last > highest_per_s => {
                    evidence.missing(&select.clone().is(RATE, *last)).0
                }
                _ => "No higher one was asked for.".to_owned(),
            },
        };
        for (block, of_block) in shares {
            let lost = of_block.iter().find(|(_, share)| **share < CARRIED_SHARE);
            bends.without += usize::from(lost.is_none());
            let below = match lost {
                None => of_block.last_key_value(),
                Some((lost, _)) => of_block.range(..lost).next_back(),
            };
            let low = below.map_or(ANYWHERE_PER_S.0, |(rate, _)| *rate as f64);
            let bend = Range {
                low,
                value: low,
                high: lost.map_or(ANYWHERE_PER_S.1, |(rate, _)| *rate as f64),
            };
            bends.by_block.insert(block, bend);
        }
        Ok(bends)
    }

    fn unseen(&self) -> Untestable {
        Untestable(format!(
            "{}: no bend is seen up to {}/s, the highest rate that counts. {}",
            self.name,
            number(self.highest_per_s),
            self.limit
        ))
    }

    /// In how many blocks it is more than the rate that is reported.
    fn note(&self) -> String {
        match self.without {
            0 => String::new(),
            count => format!(
                " ({}: in {count} of {} runs none was lost, and it is more)",
                self.name,
                self.by_block.len()
            ),
        }
    }
}

/// The rate at which it bends.
pub(super) fn rate(
    evidence: &Evidence<'_>,
    select: &Select,
    what: &mut String,
) -> Result<Estimate, Untestable> {
    let bends = Bends::new(evidence, select)?;
    let rates: Vec<f64> = bends.by_block.values().map(|bend| bend.value).collect();
    let rate = stats::center(&rates, evidence.level).ok_or_else(|| bends.unseen())?;
    *what += &bends.note();
    Ok(rate.into())
}

/// The rate at which one bends over that at which the other does. Between two rates that were asked
/// for, and above the highest, a bend can lie anywhere: the interval reaches as far.
pub(super) fn ratio(
    evidence: &Evidence<'_>,
    [this, other]: [&Select; 2],
    what: &mut String,
) -> Result<Estimate, Untestable> {
    let [these, others] = [Bends::new(evidence, this)?, Bends::new(evidence, other)?];
    let pairs = these.by_block.iter().filter_map(|(block, bend)| {
        let other = others.by_block.get(block)?;
        Some(bend.over(other))
    });
    let pairs: Vec<Range> = pairs.collect();
    let ratio = stats::compare_ranges_at(&pairs, 0.0, evidence.level);
    let ratio = ratio.ok_or_else(|| evidence.missing(this))?;
    *what += &(these.note() + &others.note());
    Ok((ratio.ratio, ratio.interval).into())
}

/// Why the ratio may be undecided: one of the servers bends nowhere.
pub(super) fn unseen(evidence: &Evidence<'_>, servers: [&Select; 2]) -> Option<String> {
    let bends = servers.map(|select| Bends::new(evidence, select));
    let unseen = bends.into_iter().flatten().find(|it| it.without > 0);
    unseen.map(|it| it.unseen().0)
}
