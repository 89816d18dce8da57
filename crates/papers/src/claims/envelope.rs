//! The best of several configurations over the best of others, under each condition and pooled over these.
//!
//! A paper that compares servers "at their best numbers" takes the largest of many measurements, which is
//! too large by the luck of it. To choose on all blocks but one and to compare in that one is no way around it
//! ([`loadline_capacity::stats::Steps`] says why). So nothing is chosen: the interval holds for all
//! configurations that may be the best at once ([`PooledBest`]).

use std::collections::BTreeMap;

use loadline_base::sorting::{to_map, to_set};
use loadline_capacity::stats::{Alternatives, PooledBest, Range};
use loadline_lab::analysis::Metric;
use serde::Deserialize;

use super::evidence::{Estimate, Evidence, Untestable};
use super::finding::number;
use super::select::Select;

/// `of / over`, each at its best over all levels of some factors.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Envelope {
    pub(super) of: Select,
    pub(super) over: Select,
    factors: Vec<String>,
    /// What is compared, and what each is the best in.
    metric: Metric,
}

/// By what is varied beside, by configuration in words, by block.
type ByCondition = BTreeMap<String, BTreeMap<String, BTreeMap<u32, Range>>>;

/// A condition, and what its alternatives are.
struct Condition {
    name: String,
    names: [Vec<String>; 2],
    runs: Alternatives,
}

impl Envelope {
    /// In words: what each was at its best, and by how much the one is above the other under each
    /// condition.
    pub(super) fn measured(
        &self,
        evidence: &Evidence<'_>,
        what: &mut String,
    ) -> Result<Estimate, Untestable> {
        let other = self.of.but(&self.over);
        evidence.all_above_0(&|trial| trial.range(self.metric), &[&self.of, &other])?;
        let [these, others] = [&self.of, &other].map(|select| self.conditions(evidence, select));
        let lacking = if these.is_empty() { &self.of } else { &other };
        let conditions: Vec<Condition> = these
            .into_iter()
            .filter_map(|(name, these)| Condition::new(name.clone(), these, others.get(&name)?))
            .collect();
        let shared = evidence.shared_rests(&[&self.of, &other], &self.factors);
        if conditions.len() < shared.len() {
            return Err(evidence.unpaired(&self.of, &other));
        }
        let is_most = self.metric.more_is_better() != Some(false);
        let runs: Vec<Alternatives> = conditions.iter().map(|it| it.runs.clone()).collect();
        let best = PooledBest::new(&runs, is_most, evidence.level)
            .ok_or_else(|| evidence.missing(lacking))?;
        let found = || conditions.iter().zip(&best.conditions);
        let named = |side: usize| {
            let names = found().map(|(condition, best)| {
                let index = [best.this, best.other][side];
                condition.with(&condition.names[side][index])
            });
            names.collect::<Vec<_>>().join(", ")
        };
        let each = found().map(|(condition, best)| condition.with(&number(best.ratio)));
        for (placeholder, text) in [
            ("{this}", named(0)),
            ("{other}", named(1)),
            ("{each}", each.collect::<Vec<_>>().join(", ")),
        ] {
            *what = what.replace(placeholder, &text);
        }
        Ok(Estimate {
            value: best.value,
            interval: Some(best.interval),
            blocks: None,
            is_widened: best.is_widened,
        })
    }

    fn conditions(&self, evidence: &Evidence<'_>, select: &Select) -> ByCondition {
        let (metric, mut conditions) = (self.metric, ByCondition::new());
        for cell in evidence.cells(select) {
            let levels = self.factors.iter().filter_map(|name| cell.level(name));
            let levels: Vec<String> = levels.map(ToString::to_string).collect();
            let trials = cell.counted.iter();
            let ranges = trials.filter_map(|trial| Some((trial.block, trial.range(metric)?)));
            let trials = to_map(ranges);
            if !trials.is_empty() {
                let rest = select.rest(cell.levels, &self.factors);
                let alternatives = conditions.entry(rest).or_default();
                alternatives.insert(levels.join(" "), trials);
            }
        }
        conditions
    }
}

impl Condition {
    /// In the blocks that all alternatives have; `None`: these are fewer than two, and say nothing about
    /// noise.
    fn new(
        name: String,
        these: BTreeMap<String, BTreeMap<u32, Range>>,
        others: &BTreeMap<String, BTreeMap<u32, Range>>,
    ) -> Option<Self> {
        let all = || these.values().chain(others.values());
        let mut blocks = to_set(all().flat_map(BTreeMap::keys).copied());
        blocks.retain(|block| all().all(|trials| trials.contains_key(block)));
        if blocks.len() < 2 {
            return None;
        }
        let runs_of = |side: &BTreeMap<String, BTreeMap<u32, Range>>| {
            let runs = side
                .values()
                .map(|trials| blocks.iter().map(|block| trials[block]).collect());
            runs.collect::<Vec<Vec<Range>>>()
        };
        Some(Self {
            name,
            runs: Alternatives {
                these: runs_of(&these),
                others: runs_of(others),
            },
            names: [&these, others].map(|side| side.keys().cloned().collect()),
        })
    }

    /// "2 x 50 with service_us=1000", without the name of the only server.
    fn with(&self, text: &str) -> String {
        let parts = self.name.split(", ");
        let parts: Vec<&str> = parts.filter(|part| !part.starts_with("server=")).collect();
        match parts.concat().is_empty() {
            true => text.to_owned(),
            false => format!("{text} with {}", parts.join(", ")),
        }
    }
}
