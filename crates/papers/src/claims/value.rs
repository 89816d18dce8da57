//! What is measured for a claim: means, ratios, slopes.

use std::collections::BTreeMap;

use loadline_capacity::stats::{self, Interval, Range};
use loadline_lab::analysis::{Measured, Metric};
use loadline_lab::report::Undecided;
use serde::Deserialize;

use super::bend::{self, BendOf, Bends};
use super::envelope::Envelope;
use super::evidence::{Estimate, Evidence, Untestable};
use super::finding::{Bound, number, within};
use super::quantity::Quantity;
use super::select::Select;
use super::taken::Taken;
use super::zeros;

/// A value that a claim is about.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Value {
    /// The mean over trials.
    Mean { of: Select, quantity: Quantity },
    /// The largest of any trial; `{count}` of them.
    Largest { of: Select, quantity: Quantity },
    /// The largest mean at numbers of a factor above one.
    Most {
        of: Select,
        factor: String,
        above: f64,
        /// The number whose trials say why there is none.
        end: f64,
        quantity: Quantity,
    },
    /// `of / over`, within blocks. `{per_s}` is the rate of other cells.
    Ratio {
        of: Select,
        over: Select,
        metric: Metric,
        per_s_of: Option<Select>,
    },
    /// The same over numbers of a factor up to one.
    RatioUpTo {
        of: Select,
        over: Select,
        factor: String,
        most: f64,
        metric: Metric,
    },
    /// `of / over`, each at its best. `{this}` and `{other}` are what was chosen.
    Envelope(Envelope),
    /// `of / over`, over `from / over`.
    Growth {
        of: Select,
        from: Select,
        over: Select,
        metric: Metric,
        /// Whether `from / over` has to be above 1: else there is no gain that could shrink.
        #[serde(default)]
        of_a_gain: bool,
    },
    /// The best of `these` numbers of a factor, `{this}`, over the best of all others, `{other}`, pooled
    /// over what is not named. Without `these`: all but the smallest.
    Best {
        of: Select,
        factor: String,
        these: Option<Bound>,
        metric: Metric,
    },
    /// The slope of a straight line through logarithms.
    Exponent {
        of: Select,
        factor: String,
        quantity: Quantity,
    },
    /// The highest rate up to which a server does not bend.
    Bend {
        of: Select,
        #[serde(default)]
        by: BendOf,
    },
    /// That of one server over that of another, or over another bend of the same.
    Bends(Bends),
}

impl Value {
    /// The cells that it is measured in.
    pub(super) fn taken(&self) -> Vec<Taken> {
        let pair = |of: &Select, over: &Select| [of, &of.but(over)].map(Taken::all).to_vec();
        match self {
            Self::Mean { of, .. }
            | Self::Largest { of, .. }
            | Self::Best { of, .. }
            | Self::Exponent { of, .. }
            | Self::Bend { of, .. } => vec![Taken::all(of)],
            Self::Most {
                of,
                factor,
                above,
                end,
                ..
            } => vec![
                Taken::between(of, factor, [above.next_up(), f64::INFINITY]),
                Taken::all(&of.clone().is(factor, *end)),
            ],
            Self::Ratio {
                of, over, per_s_of, ..
            } => {
                let rates = per_s_of.iter().map(Taken::all);
                pair(of, over).into_iter().chain(rates).collect()
            }
            Self::RatioUpTo {
                of,
                over,
                factor,
                most,
                ..
            } => [of, &of.but(over)]
                .map(|cells| Taken::between(cells, factor, [f64::NEG_INFINITY, *most]))
                .to_vec(),
            Self::Envelope(envelope) => pair(&envelope.of, &envelope.over),
            Self::Growth { of, from, over, .. } => [pair(of, over), pair(from, over)].concat(),
            Self::Bends(bends) => pair(&bends.of, &bends.over),
        }
    }

    /// An error, if too few blocks or requests all say the same, or some of what it is the largest of has no
    /// trials that count. A single trial that fails decides without them.
    pub(super) fn has_enough(&self, evidence: &Evidence<'_>) -> Result<(), Untestable> {
        match self {
            Self::Mean { of, quantity } => zeros::has_blocks(evidence, *quantity, of),
            Self::Largest { of, quantity } => {
                evidence.mean(&|trial| quantity.of(trial), of)?;
                zeros::has_blocks(evidence, *quantity, of)?;
                zeros::has_requests(evidence, *quantity, of)
            }
            _ => Ok(()),
        }
    }

    /// Fills in `what` was measured.
    pub(super) fn measured(
        &self,
        evidence: &Evidence<'_>,
        what: &mut String,
    ) -> Result<Estimate, Untestable> {
        let mut fill = |name: &str, text: String| *what = what.replace(name, &text);
        match self {
            Self::Mean { of, quantity } => zeros::mean(evidence, *quantity, of),
            Self::Largest { of, quantity } => {
                let (count, largest) = largest(evidence, *quantity, of)?;
                fill("{count}", count.to_string());
                Ok(largest)
            }
            Self::Most {
                of,
                factor,
                above,
                end,
                quantity,
            } => most(evidence, *quantity, (of, factor), *above)
                .ok_or_else(|| evidence.missing(&of.clone().is(factor, *end))),
            Self::Ratio {
                of,
                over,
                metric,
                per_s_of,
            } => {
                let ratio = evidence.ratio(*metric, of, &of.but(over))?;
                if let Some(cells) = per_s_of {
                    let rate = evidence.mean(&|trial| trial.value(Metric::GoodPerS), cells)?;
                    fill("{per_s}", format!("{:.0}", rate.value));
                }
                Ok(ratio)
            }
            Self::RatioUpTo {
                of,
                over,
                factor,
                most,
                metric,
            } => ratio_up_to(evidence, *metric, [of, &of.but(over)], (factor, *most)),
            Self::Envelope(envelope) => envelope.measured(evidence, what),
            Self::Growth {
                of,
                from,
                over,
                metric,
                of_a_gain,
            } => growth(evidence, *metric, [of, from, over], *of_a_gain),
            Self::Best {
                of,
                factor,
                these,
                metric,
            } => {
                let ([this, other], ratio) = best(evidence, *metric, (of, factor), *these)?;
                fill("{this}", number(this));
                fill("{other}", number(other));
                Ok(ratio)
            }
            Self::Exponent {
                of,
                factor,
                quantity,
            } => exponent(evidence, *quantity, of, factor),
            Self::Bend { of, by } => bend::rate(evidence, (of, *by), what),
            Self::Bends(bends) => bends.measured(evidence, what),
        }
    }
}

/// `of / over`, over `from / over`.
fn growth(
    evidence: &Evidence<'_>,
    metric: Metric,
    [of, from, over]: [&Select; 3],
    of_a_gain: bool,
) -> Result<Estimate, Untestable> {
    let (of_over, from_over) = (of.but(over), from.but(over));
    if of_a_gain {
        is_gain(evidence, metric, [from, &from_over])?;
    }
    evidence.ratio_of_ratios(metric, [of, &of_over], [from, &from_over])
}

/// An error, if `this` is not seen to be above `other`.
fn is_gain(
    evidence: &Evidence<'_>,
    metric: Metric,
    [this, other]: [&Select; 2],
) -> Result<(), Untestable> {
    let ratio = evidence.ratio(metric, this, other)?;
    match &ratio.interval {
        Some(interval) if interval.low <= 1.0 => {
            let why = format!(
                "There is no gain to be seen of {} over {}: {}{}.",
                this.text(),
                other.text(),
                number(ratio.value),
                within(&ratio)
            );
            Err(Untestable(why, Undecided::NoGain))
        }
        _ => Ok(()),
    }
}

/// Of how many trials, and the largest of them: it decides, however usual it is.
fn largest(
    evidence: &Evidence<'_>,
    quantity: Quantity,
    select: &Select,
) -> Result<(usize, Estimate), Untestable> {
    let trials = evidence.trials(select).into_iter();
    let values: Vec<f64> = trials.filter_map(|trial| quantity.of(trial)).collect();
    let largest = values.iter().copied().reduce(f64::max);
    let value = largest.ok_or_else(|| evidence.missing(select))?;
    let mean = evidence.mean_of_some(&|trial| quantity.of(trial), select)?;
    let interval = mean.interval.map(|it| Interval { high: value, ..it });
    Ok((values.len(), (value, interval).into()))
}

/// The interval holds for all numbers that may have the largest mean at once.
fn most(
    evidence: &Evidence<'_>,
    quantity: Quantity,
    (select, factor): (&Select, &str),
    above: f64,
) -> Option<Estimate> {
    let mut numbers = evidence.numbers(select, factor);
    numbers.retain(|number| *number > above);
    let one_of = evidence.among(numbers.len());
    let means = numbers.iter().map(|number| {
        let select = select.clone().is(factor, *number);
        one_of.mean(&|trial| quantity.of(trial), &select)
    });
    let means: Vec<Estimate> = means.flatten().collect();
    let value = means.iter().map(|mean| mean.value).reduce(f64::max)?;
    let intervals = || means.iter().filter_map(|mean| mean.interval);
    let low = intervals().map(|interval| interval.low).reduce(f64::max);
    let high = intervals().map(|interval| interval.high).reduce(f64::max);
    let interval = low.zip(high).map(|(low, high)| Interval {
        low,
        high,
        level: evidence.level,
    });
    Some((value, interval).into())
}

/// The two numbers, and one over the other.
fn best(
    evidence: &Evidence<'_>,
    metric: Metric,
    (select, factor): (&Select, &str),
    these: Option<Bound>,
) -> Result<([f64; 2], Estimate), Untestable> {
    let smallest = evidence.numbers(select, factor).first().copied();
    let is_this = |number| match these {
        Some(these) => these.holds(number),
        None => Some(number) != smallest,
    };
    let is_other = |number| !is_this(number);
    evidence.best_over(metric, (select, factor), &is_this, &is_other)
}

/// The mean of the ratios at each number that both have, for each block.
fn ratio_up_to(
    evidence: &Evidence<'_>,
    metric: Metric,
    [this, other]: [&Select; 2],
    (factor, most): (&str, f64),
) -> Result<Estimate, Untestable> {
    let mut numbers = evidence.numbers(other, factor);
    numbers.retain(|number| *number <= most);
    if numbers.is_empty() {
        return Err(evidence.missing(other));
    }
    let [this, other] = [this, other].map(|select| select.clone().any_of(factor, &numbers));
    evidence.ratio(metric, &this, &other)
}

/// The slope of a straight line through logarithms, for each block.
fn exponent(
    evidence: &Evidence<'_>,
    quantity: Quantity,
    select: &Select,
    factor: &str,
) -> Result<Estimate, Untestable> {
    let exact = |trial: &Measured| quantity.of(trial).map(Range::exact);
    let along = evidence.along(&exact, select, factor)?;
    let blocks = along.first().map(|(_, blocks)| blocks.keys());
    let slopes = blocks.into_iter().flatten().filter_map(|block| {
        let of = |(x, blocks): &(f64, BTreeMap<u32, Range>)| {
            Some((x.ln(), blocks.get(block)?.value.ln()))
        };
        slope(&along.iter().filter_map(of).collect::<Vec<_>>())
    });
    let slopes: Vec<f64> = slopes.collect();
    if slopes.is_empty() {
        return Err(evidence.missing(select));
    }
    let interval = stats::mean_interval(&slopes, evidence.level);
    let exponent = Estimate::from((stats::mean(&slopes), interval));
    Ok(exponent.of_blocks(slopes.len()))
}

fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let (xs, ys): (Vec<f64>, Vec<f64>) = points.iter().copied().unzip();
    let (x_mean, y_mean) = (stats::mean(&xs), stats::mean(&ys));
    let squares: f64 = xs.iter().map(|x| (x - x_mean).powi(2)).sum();
    let products: f64 = points
        .iter()
        .map(|(x, y)| (x - x_mean) * (y - y_mean))
        .sum();
    (squares > 0.0).then(|| products / squares)
}
