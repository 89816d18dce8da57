//! The best of several configurations under each condition, chosen on other blocks than tested.
//!
//! A paper that compares servers "at their best numbers" takes the largest of many measurements, which is
//! too large by the luck of it. Here each block is measured at what was best in all other blocks
//! (cross-validation), so that what chooses and what is tested have nothing in common. The noise of the
//! choice can only make the best seem less than it is.

use std::collections::BTreeMap;

use loadline_base::sorting::to_set;
use loadline_capacity::stats;
use loadline_lab::analysis::{Measured, Metric};
use serde::Deserialize;

use super::evidence::{ByRest, Estimate, Evidence, Untestable};
use super::select::Select;

/// `of / over`, each at its best over all levels of some factors.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Envelope {
    of: Select,
    over: Select,
    factors: Vec<String>,
    /// What is to be the best: throughput, unless it is said.
    #[serde(default = "throughput")]
    by: Metric,
    metric: Metric,
}

fn throughput() -> Metric {
    Metric::GoodPerS
}

/// By what was chosen between, in words.
type Alternatives<'r> = BTreeMap<String, BTreeMap<u32, &'r Measured>>;

impl Envelope {
    /// In words: what each was at its best.
    pub(super) fn measured(
        &self,
        evidence: &Evidence<'_>,
        what: &mut String,
    ) -> Result<Estimate, Untestable> {
        let other = self.of.but(&self.over);
        let (these, this_best) = self.best(evidence, &self.of);
        let (others, other_best) = self.best(evidence, &other);
        let ratio = evidence.ratio_of([&these, &others], [&self.of, &other])?;
        *what = what.replace("{this}", &this_best);
        *what = what.replace("{other}", &other_best);
        Ok(ratio)
    }

    /// Values of what was chosen, by what is varied beside; and in words what was chosen in most blocks.
    fn best(&self, evidence: &Evidence<'_>, select: &Select) -> (ByRest, String) {
        let mut conditions: BTreeMap<String, Alternatives<'_>> = BTreeMap::new();
        for cell in evidence.cells(select) {
            let alternatives = conditions.entry(select.rest(cell.levels, &self.factors));
            let levels = self.factors.iter().filter_map(|name| cell.level(name));
            let levels: Vec<String> = levels.map(ToString::to_string).collect();
            let trials = alternatives
                .or_default()
                .entry(levels.join(" "))
                .or_default();
            trials.extend(cell.counted.iter().map(|trial| (trial.block, *trial)));
        }
        let mut values = ByRest::new();
        let mut words = Vec::new();
        for (rest, alternatives) in conditions {
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            let blocks = to_set(alternatives.values().flat_map(BTreeMap::keys).copied());
            for block in blocks {
                let Some((name, trials)) = chosen(&alternatives, block, self.by) else {
                    continue;
                };
                let range = trials
                    .get(&block)
                    .and_then(|trial| trial.range(self.metric));
                if let Some(range) = range.filter(|range| range.low > 0.0) {
                    values.entry(rest.clone()).or_default().insert(block, range);
                    *counts.entry(name).or_default() += 1;
                }
            }
            let most = counts.into_iter().max_by_key(|(_, count)| *count);
            words.extend(most.map(|(name, _)| match rest.is_empty() {
                true => name.to_owned(),
                false => format!("{name} with {}", shown(&rest)),
            }));
        }
        (values, words.join(", "))
    }
}

/// The one with the most of it in all blocks but this one.
fn chosen<'a, 'r>(
    alternatives: &'a Alternatives<'r>,
    block: u32,
    by: Metric,
) -> Option<(&'a str, &'a BTreeMap<u32, &'r Measured>)> {
    let sign = if by.more_is_better() == Some(false) {
        -1.0
    } else {
        1.0
    };
    let elsewhere = |trials: &BTreeMap<u32, &Measured>| {
        let others = trials.iter().filter(|(of, _)| **of != block);
        let values = others.filter_map(|(_, trial)| trial.value(by));
        let logs: Vec<f64> = values.filter(|value| *value > 0.0).map(f64::ln).collect();
        (!logs.is_empty()).then(|| sign * stats::mean(&logs))
    };
    let is_only = alternatives.len() == 1;
    let scored = alternatives.iter().filter_map(|(name, trials)| {
        let score = if is_only { 0.0 } else { elsewhere(trials)? };
        Some((score, name.as_str(), trials))
    });
    let best = scored.max_by(|one, other| one.0.total_cmp(&other.0));
    best.map(|(_, name, trials)| (name, trials))
}

/// Without the name of the only server.
fn shown(rest: &str) -> String {
    let parts = rest.split(", ").filter(|part| !part.starts_with("server="));
    parts.collect::<Vec<_>>().join(", ")
}
