//! The rate at which a server bends: up to it, 99 % of what is offered is answered well, or the latency
//! stays low.

use std::collections::{BTreeMap, BTreeSet};

use loadline_base::sorting::to_set;
use loadline_capacity::stats::{self, Interval, Range};
use loadline_lab::analysis::{Measured, Metric};
use loadline_lab::report::{Undecided, Verdict};
use serde::Deserialize;

use super::evidence::{Estimate, Evidence, Untestable};
use super::finding::{Bound, number};
use super::select::Select;

const RATE: &str = "rate_per_s";
/// A rate is carried if this share of what is offered is answered well: the knee of saturation.
const CARRIED_SHARE: f64 = 0.99;
/// Latency is low up to this multiple of the lowest mean at any lower rate: twice the time means that
/// requests wait as long as they are served.
const LATENCY_RISE_MAX: f64 = 2.0;
/// A bend below the lowest rate, or above the highest, lies between these: a terabyte a second is more
/// than any machine's memory carries.
const ANYWHERE_PER_S: (f64, f64) = (1.0, 1e6);

/// What bends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum BendOf {
    /// Good responses fall behind what is offered.
    #[default]
    Throughput,
    /// The mean latency rises.
    Latency,
}

impl BendOf {
    fn metric(self) -> Metric {
        match self {
            Self::Throughput => Metric::GoodPerS,
            Self::Latency => Metric::MeanUs,
        }
    }

    /// Of a trial at a rate; `None`: it does not count for this.
    fn value(self, trial: &Measured) -> Option<f64> {
        match self {
            Self::Throughput => Some(trial.value(self.metric()).unwrap_or_default()),
            Self::Latency => trial.value(self.metric()),
        }
    }

    /// The lowest rate that is beyond the bend.
    fn beyond(self, of_block: &BTreeMap<u64, f64>) -> Option<u64> {
        let mut least = f64::INFINITY;
        let mut rates = of_block.iter();
        let is_beyond = |(rate, value): &(&u64, &f64)| match self {
            Self::Throughput => **value / (**rate as f64) < CARRIED_SHARE,
            Self::Latency => {
                let is_risen = **value > LATENCY_RISE_MAX * least;
                least = least.min(**value);
                is_risen
            }
        };
        rates.find(is_beyond).map(|(rate, _)| *rate)
    }
}

/// Where a server bends in each block.
struct Bent {
    name: String,
    of: BendOf,
    /// Between the highest rate before the bend, and the lowest beyond it. The value is the former.
    by_block: BTreeMap<u32, Range>,
    /// Blocks in which it bends at no rate that counts.
    without: usize,
    /// Whether rates between those two do not count in some block.
    has_gaps: bool,
    /// The highest rate that counts.
    highest_per_s: f64,
    /// Why higher ones do not.
    limit: String,
}

impl Bent {
    fn new(evidence: &Evidence<'_>, (select, of): (&Select, BendOf)) -> Result<Self, Untestable> {
        let mut values: BTreeMap<u32, BTreeMap<u64, f64>> = BTreeMap::new();
        let rates = evidence.numbers(select, RATE);
        for rate in &rates {
            for trial in evidence.trials(&select.clone().is(RATE, *rate)) {
                // Whole numbers in a plan.
                let value = of.value(trial).map(|value| (*rate as u64, value));
                values.entry(trial.block).or_default().extend(value);
            }
        }
        let whole = whole_blocks(evidence, select);
        values.retain(|block, of_block| whole.contains(block) && !of_block.is_empty());
        let highest = values.values().flat_map(BTreeMap::keys).max();
        let highest_per_s = *highest.ok_or_else(|| evidence.missing(select))? as f64;
        let mut bent = Self {
            name: select
                .level("server")
                .map_or_else(String::new, ToString::to_string),
            of,
            by_block: BTreeMap::new(),
            without: 0,
            has_gaps: false,
            highest_per_s,
            limit: match rates.last() {
                Some(last) if *last > highest_per_s => {
                    evidence.missing(&select.clone().is(RATE, *last)).0
                }
                _ => "No higher one was asked for.".to_owned(),
            },
        };
        for (block, of_block) in values {
            let beyond = of.beyond(&of_block);
            bent.without += usize::from(beyond.is_none());
            let below = match &beyond {
                None => of_block.last_key_value(),
                Some(beyond) => of_block.range(..beyond).next_back(),
            };
            let low = below.map_or(ANYWHERE_PER_S.0, |(rate, _)| *rate as f64);
            let bend = Range {
                low,
                value: low,
                high: beyond.map_or(ANYWHERE_PER_S.1, |rate| rate as f64),
            };
            let is_within = |rate: &f64| bend.low < *rate && *rate < bend.high;
            bent.has_gaps |= rates.iter().any(is_within);
            bent.by_block.insert(block, bend);
        }
        Ok(bent)
    }

    /// One bend over the other, in each block that has both.
    fn over(&self, other: &Self) -> Vec<Range> {
        let pairs = self.by_block.iter().filter_map(|(block, bend)| {
            let other = other.by_block.get(block)?;
            Some(bend.over(other))
        });
        pairs.collect()
    }

    fn unseen(&self) -> Untestable {
        let why = format!(
            "{}: no bend{} is seen up to {}/s, the highest rate that counts. {}",
            self.name,
            match self.of {
                BendOf::Throughput => "",
                BendOf::Latency => " of the latency",
            },
            number(self.highest_per_s),
            self.limit
        );
        Untestable(why, Undecided::RateTooLow)
    }

    /// In how many blocks it is more than the rate that is reported.
    fn note(&self) -> String {
        match self.without {
            0 => String::new(),
            count => format!(
                " ({}: in {count} of {} runs {}, and it is more)",
                self.name,
                self.by_block.len(),
                match self.of {
                    BendOf::Throughput => "none was lost",
                    BendOf::Latency => "the latency stayed low",
                }
            ),
        }
    }
}

/// Blocks with all rates that any block has, whether their trials count or not. Others are more of some rates, or
/// the last of a run that was stopped: that a server bends at none of these says nothing.
fn whole_blocks(evidence: &Evidence<'_>, select: &Select) -> BTreeSet<u32> {
    let mut cells: BTreeMap<u32, usize> = BTreeMap::new();
    for cell in evidence.cells(select) {
        let trials = cell.counted.iter().chain(&cell.discarded);
        for block in to_set(trials.map(|trial| trial.block)) {
            *cells.entry(block).or_default() += 1;
        }
    }
    let most = cells.values().copied().max();
    let is_whole = |(_, count): &(u32, usize)| Some(*count) == most;
    to_set(cells.into_iter().filter(is_whole).map(|(block, _)| block))
}

/// The rate at which it bends.
pub(super) fn rate(
    evidence: &Evidence<'_>,
    of: (&Select, BendOf),
    what: &mut String,
) -> Result<Estimate, Untestable> {
    let bends = Bent::new(evidence, of)?;
    let rates: Vec<f64> = bends.by_block.values().map(|bend| bend.value).collect();
    let rate = stats::center(&rates, evidence.level).ok_or_else(|| bends.unseen())?;
    *what += &bends.note();
    Ok(rate.into())
}

/// The rate at which one server bends over that at which another does, or over another bend of the same.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bends {
    pub(super) of: Select,
    pub(super) over: Select,
    #[serde(default)]
    by: BendOf,
    #[serde(default)]
    over_by: BendOf,
}

impl Bends {
    fn bent(&self, evidence: &Evidence<'_>) -> [Result<Bent, Untestable>; 2] {
        let other = self.of.but(&self.over);
        [(&self.of, self.by), (&other, self.over_by)].map(|of| Bent::new(evidence, of))
    }

    /// Between two rates that were asked for, and above the highest, a bend can lie anywhere: the interval
    /// reaches as far.
    pub(super) fn measured(
        &self,
        evidence: &Evidence<'_>,
        what: &mut String,
    ) -> Result<Estimate, Untestable> {
        let [these, others] = self.bent(evidence);
        let (these, others) = (these?, others?);
        let ratio = stats::compare_ranges_at(&these.over(&others), 0.0, evidence.level);
        let ratio = ratio.ok_or_else(|| evidence.missing(&self.of))?;
        *what += &(these.note() + &others.note());
        Ok((ratio.ratio, ratio.interval).into())
    }

    /// Why more blocks do not decide the ratio: without any scatter, the steps between rates leave it open.
    pub(super) fn open_step(&self, evidence: &Evidence<'_>, bound: Bound) -> Option<Untestable> {
        let [Ok(these), Ok(others)] = self.bent(evidence) else {
            return None;
        };
        let ratios = these.over(&others);
        let end = |of: fn(&Range) -> f64| {
            let logs: Vec<f64> = ratios.iter().map(|ratio| of(ratio).ln()).collect();
            stats::mean(&logs).exp()
        };
        let interval = Interval {
            low: end(|ratio| ratio.low),
            high: end(|ratio| ratio.high),
            level: evidence.level,
        };
        if bound.verdict(&interval) != Verdict::NotTestable {
            return None;
        }
        let other = self.of.but(&self.over);
        let mut bent = [(&these, &self.of), (&others, &other)].into_iter();
        Some(match bent.find(|(bent, _)| bent.has_gaps) {
            Some((_, select)) => evidence.missing(select),
            None => Untestable(
                "The steps between rates leave it open, whatever the number of blocks.".to_owned(),
                Undecided::RatesApart,
            ),
        })
    }

    /// Why the ratio may be undecided: one of the servers bends nowhere.
    pub(super) fn unseen(&self, evidence: &Evidence<'_>) -> Option<String> {
        let bent = self.bent(evidence).into_iter().flatten();
        let mut unseen = bent.filter(|it| it.without > 0);
        unseen.next().map(|it| it.unseen().0)
    }
}
