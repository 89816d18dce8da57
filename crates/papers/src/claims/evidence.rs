//! What tests look at: values by block, ratios within blocks, values along a factor.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use loadline_base::sorting::{to_map, to_set};
use loadline_capacity::stats::{self, BestRatio, Interval, Range, Steps};
use loadline_lab::analysis::{self, Cell, Measured, Metric, Run};
use loadline_lab::journal::Level;
use loadline_lab::plan::{Plan, Series};
use loadline_lab::report::Undecided;

use super::select::Select;
use super::taken::Taken;

/// A run, laid out for tests.
pub(super) struct Layout<'r> {
    cells: Vec<Cell<'r>>,
    plan: Option<Plan>,
}

/// What a run says at a level: every interval that a test makes of it is one of this level.
#[derive(Clone, Copy)]
pub(super) struct Evidence<'r> {
    layout: &'r Layout<'r>,
    pub(super) level: f64,
}

/// With fewer blocks than this, what is undecided is so for those that are missing.
pub(super) const BLOCKS_MIN: usize = 3;

/// Something of a trial; `None`: it has none.
type Quantity<'q, T = f64> = &'q dyn Fn(&Measured) -> Option<T>;

/// The numbers of a factor, each with a value by block.
pub(super) type Along = Vec<(f64, BTreeMap<u32, Range>)>;

/// By what is varied beside, by block.
pub(super) type ByRest = BTreeMap<String, BTreeMap<u32, Range>>;

/// Why nothing can be said of a claim, in a sentence, and what of.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Untestable(pub(super) String, pub(super) Undecided);

/// A mean of trials, or how something compares with something else.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    /// Of a ratio, the geometric mean over blocks.
    pub(super) value: f64,
    /// `None`: a single block.
    pub(super) interval: Option<Interval>,
    /// Of how many it is the mean; `None`: it is of no simple mean.
    pub(super) blocks: Option<usize>,
    /// Whether its interval reaches as far as CPU time left room for, since the client was the limit
    /// in some of the trials.
    pub(super) is_widened: bool,
}

impl From<(f64, Option<Interval>)> for Estimate {
    fn from((value, interval): (f64, Option<Interval>)) -> Self {
        Self {
            value,
            interval,
            blocks: None,
            is_widened: false,
        }
    }
}

impl Estimate {
    pub(super) fn of_blocks(self, count: usize) -> Self {
        Self {
            blocks: Some(count),
            ..self
        }
    }
}

impl<'r> Layout<'r> {
    pub(super) fn new(run: &'r Run) -> Self {
        let plan = Plan::parse(&run.head.plan_toml, &run.head.name, Path::new("."));
        Self {
            cells: analysis::cells(run),
            plan: plan.ok(),
        }
    }

    pub(super) fn at(&'r self, level: f64) -> Evidence<'r> {
        Evidence {
            layout: self,
            level,
        }
    }
}

impl<'r> Evidence<'r> {
    /// For each of several things that a claim says at once: any of them may be the one that fails,
    /// so that each may go wrong in its part of the cases only (Bonferroni).
    pub(super) fn among(self, parts: usize) -> Self {
        Self {
            level: 1.0 - (1.0 - self.level) / parts.max(1) as f64,
            ..self
        }
    }

    pub(super) fn cells(&self, select: &Select) -> impl Iterator<Item = &'r Cell<'r>> {
        let cells = self.layout.cells.iter();
        cells.filter(|cell| select.takes(cell))
    }

    /// The series of a name, as planned.
    pub(super) fn series(&self, name: &str) -> impl Iterator<Item = &'r Series> {
        let plan = self.layout.plan.iter();
        let all = plan.flat_map(|plan| &plan.series);
        all.filter(move |one| one.name == name)
    }

    /// Why nothing can be said about some cells: the limit that was met.
    pub(super) fn missing(&self, select: &Select) -> Untestable {
        let cells: Vec<&Cell<'_>> = self.cells(select).collect();
        let what = select.text();
        let discarded: Vec<&Measured> = cells
            .iter()
            .flat_map(|cell| &cell.discarded)
            .copied()
            .collect();
        if cells.is_empty() {
            let why = format!("This run has no trial of {what}.");
            return Untestable(why, Undecided::NoTrials);
        }
        if let Some(reason) = most_frequent(discarded.iter().map(|trial| &trial.discarded)) {
            let count = discarded.len();
            let why =
                format!("Too few trials of {what} count; {count} are discarded, as in: {reason}");
            return Untestable(why, Undecided::Discarded);
        }
        let late = cells.iter().flat_map(|cell| &cell.counted);
        let late = late.map(|trial| &trial.times_discarded);
        let late: Vec<&Vec<String>> = late.filter(|reasons| !reasons.is_empty()).collect();
        match most_frequent(late.iter().copied()) {
            Some(reason) => {
                let count = late.len();
                let why = format!(
                    "Too few times of {what} count; those of {count} trials are discarded, as in: {reason}"
                );
                Untestable(why, Undecided::Discarded)
            }
            None => {
                let why = format!("Too few trials of {what} have what is to be compared.");
                Untestable(why, Undecided::NoTrials)
            }
        }
    }

    /// Why only so many blocks of some cells say anything, if they are few and trials of others are discarded.
    pub(super) fn lost_blocks(&self, taken: &[Taken], count: usize) -> Option<String> {
        let cells = self.layout.cells.iter();
        let is_taken = |cell: &&Cell<'_>| {
            let mut taken = taken.iter();
            taken.any(|one| one.takes(cell.series, cell.levels))
        };
        let cells: Vec<&'r Cell<'r>> = cells.filter(is_taken).collect();
        let of_cell = |cell: &'r Cell<'r>| cell.counted.iter().chain(&cell.discarded);
        let trials = || cells.iter().copied().flat_map(of_cell);
        // Some cells may have more blocks than those that they are compared with.
        let blocks_of = |cell: &'r Cell<'r>| to_set(of_cell(cell).map(|trial| trial.block)).len();
        let blocks = cells.iter().copied().map(blocks_of).min()?;
        let is_enough = count >= BLOCKS_MIN && 2 * count > blocks;
        if is_enough || count >= blocks {
            return None;
        }
        let reasons = trials().map(|trial| match trial.discarded.is_empty() {
            true => &trial.times_discarded,
            false => &trial.discarded,
        });
        let reason = most_frequent(reasons)?;
        Some(format!(
            "Only {count} of {blocks} blocks count, since trials are discarded, as in: {reason}"
        ))
    }

    /// Why two selections cannot be compared under each condition that both have cells of.
    pub(super) fn unpaired(&self, this: &Select, other: &Select) -> Untestable {
        let is_discarded = |select: &&Select| {
            let mut cells = self.cells(select);
            cells.any(|cell| {
                let mut counted = cell.counted.iter();
                !cell.discarded.is_empty() || counted.any(|it| !it.times_discarded.is_empty())
            })
        };
        let lacking = [this, other].into_iter().find(is_discarded);
        self.missing(lacking.unwrap_or(other))
    }

    /// What is varied beside in the cells of all of them, whether their trials count or not.
    pub(super) fn shared_rests(&self, selects: &[&Select], but: &[String]) -> BTreeSet<String> {
        let rests = selects.iter().map(|select| {
            let cells = self.cells(select);
            to_set(cells.map(|cell| select.rest(cell.levels, but)))
        });
        let shared = rests.reduce(|mut shared, others| {
            shared.retain(|rest| others.contains(rest));
            shared
        });
        shared.unwrap_or_default()
    }

    /// Values by what is varied beside; `but` are factors that are not part of that.
    fn by_rest(&self, select: &Select, but: &[String], quantity: Quantity<'_, Range>) -> ByRest {
        let mut values = ByRest::new();
        for cell in self.cells(select) {
            let of_cell = values.entry(select.rest(cell.levels, but)).or_default();
            for trial in &cell.counted {
                of_cell.extend(quantity(trial).map(|value| (trial.block, value)));
            }
        }
        values.retain(|_, blocks| !blocks.is_empty());
        values
    }

    /// An error, if what is compared is 0 in a trial that counts. There is no ratio of it, and without
    /// such trials the claim would be about those alone in which a server did something.
    pub(super) fn all_above_0(
        &self,
        quantity: Quantity<'_, Range>,
        selects: &[&Select],
    ) -> Result<(), Untestable> {
        for select in selects {
            let trials = self.trials(select);
            let is_0 = |trial: &&&Measured| quantity(trial).is_some_and(|it| it.low <= 0.0);
            let zeros = trials.iter().filter(is_0).count();
            if zeros > 0 {
                let (count, what) = (trials.len(), select.text());
                let why = format!(
                    "{zeros} of {count} trials of {what} have 0 of what is compared: no ratio."
                );
                return Err(Untestable(why, Undecided::NothingDone));
            }
        }
        Ok(())
    }

    /// Logarithms of `this / other`, one for each block, as the ends of what they can be: pairs of the
    /// same block and the same other levels, their mean. Conditions that lack a pair in a block do not
    /// shift it; one without any pair would be missing from the claim, which is then not decided.
    fn log_ratios(
        &self,
        metric: Metric,
        this: &Select,
        other: &Select,
    ) -> Result<BTreeMap<u32, Range>, Untestable> {
        let quantity = |trial: &Measured| trial.range(metric);
        self.all_above_0(&quantity, &[this, other])?;
        let (these, others) = (
            self.by_rest(this, &[], &quantity),
            self.by_rest(other, &[], &quantity),
        );
        let is_unpaired = |rest: &String| match (these.get(rest), others.get(rest)) {
            (Some(one), Some(other)) => !one.keys().any(|block| other.contains_key(block)),
            _ => true,
        };
        let shared = self.shared_rests(&[this, other], &[]);
        if shared.iter().any(is_unpaired) {
            return Err(self.unpaired(this, other));
        }
        let lacking = if these.is_empty() { this } else { other };
        log_ratios_of(&these, &others).ok_or_else(|| self.missing(lacking))
    }

    /// `this / other`, within blocks.
    pub(super) fn ratio(
        &self,
        metric: Metric,
        this: &Select,
        other: &Select,
    ) -> Result<Estimate, Untestable> {
        let logs = self.log_ratios(metric, this, other)?;
        self.compared(logs.into_values(), this)
    }

    /// One such ratio over another: by how much it grows.
    pub(super) fn ratio_of_ratios(
        &self,
        metric: Metric,
        this: [&Select; 2],
        other: [&Select; 2],
    ) -> Result<Estimate, Untestable> {
        let these = self.log_ratios(metric, this[0], this[1])?;
        let others = self.log_ratios(metric, other[0], other[1])?;
        let differences = these.iter().filter_map(|(block, log)| {
            let other = others.get(block)?;
            Some(Range {
                low: log.low - other.high,
                value: log.value - other.value,
                high: log.high - other.low,
            })
        });
        self.compared(differences, this[0])
    }

    /// Compares logarithms of ratios with 0.
    fn compared(
        &self,
        logs: impl Iterator<Item = Range>,
        about: &Select,
    ) -> Result<Estimate, Untestable> {
        let ratios = logs.map(|log| Range {
            low: log.low.exp(),
            value: log.value.exp(),
            high: log.high.exp(),
        });
        let ratios: Vec<Range> = ratios.collect();
        let comparison = stats::compare_ranges_at(&ratios, 0.0, self.level);
        let comparison = comparison.ok_or_else(|| self.missing(about))?;
        Ok(Estimate {
            value: comparison.ratio,
            interval: comparison.interval,
            blocks: Some(ratios.len()),
            is_widened: !ratios.iter().all(Range::is_exact),
        })
    }

    /// The best of some numbers of a factor over the best of others, pooled over what is not named: the
    /// two numbers, and how they compare. The interval holds for all numbers that may be the best at
    /// once, since it is the same trials that say which are.
    pub(super) fn best_over(
        &self,
        metric: Metric,
        (select, factor): (&Select, &str),
        is_this: &dyn Fn(f64) -> bool,
        is_other: &dyn Fn(f64) -> bool,
    ) -> Result<([f64; 2], Estimate), Untestable> {
        let steps = self.steps(metric, select, factor)?;
        let BestRatio {
            this,
            other,
            value,
            interval,
            is_widened,
        } = steps
            .best_over(is_this, is_other, self.level)
            .ok_or_else(|| self.missing(select))?;
        let ratio = Estimate {
            value,
            interval: Some(interval),
            blocks: None,
            is_widened,
        };
        Ok(([this, other], ratio))
    }

    /// A quantity by the numbers of a factor, a value for each block: the geometric mean of all
    /// conditions. One of which a number is missing would be missing from the claim.
    pub(super) fn along(
        &self,
        quantity: Quantity<'_, Range>,
        select: &Select,
        factor: &str,
    ) -> Result<Along, Untestable> {
        self.all_above_0(quantity, &[select])?;
        let numbers = self.numbers(select, factor);
        let selects: Vec<Select> = numbers
            .iter()
            .map(|number| select.clone().is(factor, *number))
            .collect();
        let but = [factor.to_owned()];
        let tables: Vec<ByRest> = selects
            .iter()
            .map(|select| self.by_rest(select, &but, quantity))
            .collect();
        let rests = self.shared_rests(&selects.iter().collect::<Vec<_>>(), &but);
        let in_all = |rest: &String| tables.iter().all(|table| table.contains_key(rest));
        if rests.is_empty() || !rests.iter().all(in_all) {
            return Err(self.missing(select));
        }
        let cells = || {
            rests
                .iter()
                .flat_map(|rest| tables.iter().map(move |table| &table[rest]))
        };
        let mut blocks = to_set(cells().flat_map(BTreeMap::keys).copied());
        blocks.retain(|block| cells().all(|cell| cell.contains_key(block)));
        if blocks.is_empty() {
            return Err(self.missing(select));
        }
        let pooled = |table: &ByRest, block: &u32| {
            let of_end = |end: fn(&Range) -> f64| {
                let logs = rests.iter().map(|rest| end(&table[rest][block]).ln());
                stats::mean(&logs.collect::<Vec<_>>()).exp()
            };
            Range {
                low: of_end(|range| range.low),
                value: of_end(|range| range.value),
                high: of_end(|range| range.high),
            }
        };
        let of_table = |table: &ByRest| -> BTreeMap<u32, Range> {
            let blocks = blocks.iter();
            to_map(blocks.map(|block| (*block, pooled(table, block))))
        };
        Ok(numbers
            .into_iter()
            .zip(tables.iter().map(of_table))
            .collect())
    }

    /// The same as levels with runs.
    pub(super) fn steps(
        &self,
        metric: Metric,
        select: &Select,
        factor: &str,
    ) -> Result<Steps, Untestable> {
        let along = self.along(&|trial| trial.range(metric), select, factor)?;
        let levels: Vec<(f64, Vec<Range>)> = along
            .into_iter()
            .map(|(x, blocks)| (x, blocks.into_values().collect()))
            .collect();
        Steps::new(&levels).ok_or_else(|| {
            let why = format!(
                "{} has fewer than two levels of {factor}, or no two blocks in which each of them has \
                 trials that count.",
                select.text()
            );
            Untestable(why, Undecided::FewBlocks)
        })
    }

    /// The numbers of a factor in the cells selected, rising.
    pub(super) fn numbers(&self, select: &Select, factor: &str) -> Vec<f64> {
        let mut numbers: Vec<f64> = self
            .cells(select)
            .filter_map(|cell| match cell.level(factor) {
                Some(Level::Number(number)) => Some(*number),
                _ => None,
            })
            .collect();
        numbers.sort_by(f64::total_cmp);
        numbers.dedup();
        numbers
    }

    /// The mean of a quantity in all conditions.
    pub(super) fn mean(
        &self,
        quantity: Quantity<'_>,
        select: &Select,
    ) -> Result<Estimate, Untestable> {
        let conditions = self.conditions(quantity, select);
        match conditions.iter().any(BTreeMap::is_empty) {
            true => Err(self.missing(select)),
            false => self.mean_over(conditions, select),
        }
    }

    /// The same over the conditions that have trials which count.
    pub(super) fn mean_of_some(
        &self,
        quantity: Quantity<'_>,
        select: &Select,
    ) -> Result<Estimate, Untestable> {
        let mut conditions = self.conditions(quantity, select);
        conditions.retain(|blocks| !blocks.is_empty());
        self.mean_over(conditions, select)
    }

    /// A quantity of each cell, by block.
    fn conditions(&self, quantity: Quantity<'_>, select: &Select) -> Vec<BTreeMap<u32, f64>> {
        let of_cell = |cell: &Cell<'_>| -> BTreeMap<u32, f64> {
            let trials = cell.counted.iter();
            to_map(trials.filter_map(|trial| Some((trial.block, quantity(trial)?))))
        };
        self.cells(select).map(of_cell).collect()
    }

    /// With its interval over blocks: what several conditions have in a block has its effect in common, and is
    /// one value. Geometric where all values are above 0.
    fn mean_over(
        &self,
        mut conditions: Vec<BTreeMap<u32, f64>>,
        about: &Select,
    ) -> Result<Estimate, Untestable> {
        if conditions.is_empty() {
            return Err(self.missing(about));
        }
        let mut all = conditions.iter_mut().flat_map(BTreeMap::values_mut);
        let is_positive = all.all(|value| *value > 0.0);
        if is_positive {
            let all = conditions.iter_mut().flat_map(BTreeMap::values_mut);
            all.for_each(|value| *value = value.ln());
        }
        let values: Vec<f64> = by_block(&conditions).into_values().collect();
        let (value, interval) = (
            stats::mean(&values),
            stats::mean_interval(&values, self.level),
        );
        let estimate = |value: f64, interval: Option<Interval>| {
            let estimate = Estimate::from((value, interval));
            estimate.of_blocks(values.len())
        };
        if !is_positive {
            return Ok(estimate(value, interval));
        }
        let interval = interval.map(|of_logs| Interval {
            low: of_logs.low.exp(),
            high: of_logs.high.exp(),
            ..of_logs
        });
        Ok(estimate(value.exp(), interval))
    }

    /// The trials of the cells that count.
    pub(super) fn trials(&self, select: &Select) -> Vec<&'r Measured> {
        let trials = self.cells(select).flat_map(|cell| &cell.counted);
        trials.copied().collect()
    }
}

/// Of the first reasons of trials.
fn most_frequent<'t>(trials: impl Iterator<Item = &'t Vec<String>>) -> Option<&'t str> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in trials.filter_map(|reasons| reasons.first()) {
        *counts.entry(reason).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    most.map(|(reason, _)| reason)
}

/// Logarithms of `this / other` of values by what is varied beside, one for each block; `None`: there is
/// no pair.
fn log_ratios_of(these: &ByRest, others: &ByRest) -> Option<BTreeMap<u32, Range>> {
    let mut conditions: Vec<BTreeMap<u32, Range>> = Vec::new();
    for (rest, blocks) in these {
        let Some(partner) = others.get(rest) else {
            continue;
        };
        let pairs = blocks
            .iter()
            .filter_map(|(block, range)| Some((*block, range.over(partner.get(block)?))));
        conditions.push(to_map(pairs));
    }
    conditions.retain(|pairs| !pairs.is_empty());
    if conditions.is_empty() {
        return None;
    }
    let of_end = |end: fn(&Range) -> f64| {
        let logs = conditions.iter().map(|pairs| {
            let logs = pairs.iter().map(|(block, range)| (*block, end(range).ln()));
            to_map(logs)
        });
        by_block(&logs.collect::<Vec<_>>())
    };
    let (low, high) = (of_end(|range| range.low), of_end(|range| range.high));
    let values = of_end(|range| range.value).into_iter();
    let ranges = values.map(|(block, value)| {
        let range = Range {
            low: low[&block],
            value,
            high: high[&block],
        };
        (block, range)
    });
    Some(to_map(ranges))
}

/// Values of blocks, of which the mean over conditions is the mean. A block has what its conditions lie above
/// their own means in it, each by its part of the sum: one that few blocks have counts for more in each of
/// these, so that the scatter of blocks is that of the mean (Liang and Zeger 1986). Of a condition with a
/// single block nothing is known about how blocks differ, and so nothing of the mean: one value is left.
fn by_block(conditions: &[BTreeMap<u32, f64>]) -> BTreeMap<u32, f64> {
    let center = |pairs: &BTreeMap<u32, f64>| {
        let logs: Vec<f64> = pairs.values().copied().collect();
        stats::mean(&logs)
    };
    let centers: Vec<f64> = conditions.iter().map(center).collect();
    let level = stats::mean(&centers);
    let blocks = conditions.iter().flat_map(BTreeMap::keys);
    let mut values = to_map(blocks.map(|block| (*block, level)));
    if conditions.iter().any(|pairs| pairs.len() < 2) {
        let first = values.pop_first();
        return to_map(first);
    }
    let count = values.len() as f64;
    for (pairs, center) in conditions.iter().zip(&centers) {
        let weight = count / (conditions.len() * pairs.len()) as f64;
        for (block, log) in pairs {
            if let Some(value) = values.get_mut(block) {
                *value += weight * (log - center);
            }
        }
    }
    values
}
