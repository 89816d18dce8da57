//! The order of levels: as in the plan, where it can be read, else numbers by size and names by the
//! alphabet.

use std::collections::BTreeMap;
use std::path::Path;

use loadline_base::sorting::sort_by;

use crate::analysis::{Cell, compare};
use crate::journal::{Level, RunHead};
use crate::plan::Plan;

/// Levels by series and factor, in the plan's order.
#[derive(Default)]
pub struct Order {
    levels: BTreeMap<(String, String), Vec<Level>>,
}

impl Order {
    /// Of the plan that was run; a plan that this version cannot read gives no order.
    pub fn new(head: &RunHead) -> Self {
        let mut order = Self::default();
        let Ok(plan) = Plan::parse(&head.plan_toml, &head.name, Path::new(".")) else {
            return order;
        };
        for series in plan.series {
            let servers = series.servers.into_iter().map(Level::Text).collect();
            order.put(&series.name, "server", servers);
            for factor in series.factors {
                let levels = factor.levels.into_iter().map(|level| level.level).collect();
                order.put(&series.name, &factor.name, levels);
            }
        }
        order
    }

    /// Several series may have one name.
    fn put(&mut self, series: &str, factor: &str, levels: Vec<Level>) {
        let known = self
            .levels
            .entry((series.to_owned(), factor.to_owned()))
            .or_default();
        for level in levels {
            if !known.contains(&level) {
                known.push(level);
            }
        }
    }

    /// The levels of a factor that cells have, in order. Numbers are always in the order of their
    /// size.
    pub fn levels(&self, series: &str, factor: &str, cells: &[&Cell<'_>]) -> Vec<Level> {
        let mut levels: Vec<Level> = Vec::new();
        for level in cells.iter().filter_map(|cell| cell.level(factor)) {
            if !levels.contains(level) {
                levels.push(level.clone());
            }
        }
        let key = (series.to_owned(), factor.to_owned());
        let known = self.levels.get(&key).map_or(&[][..], Vec::as_slice);
        let place = |level: &Level| known.iter().position(|it| it == level);
        let is_number = |level: &Level| matches!(level, Level::Number(_));
        sort_by(&mut levels, |one, other| match (place(one), place(other)) {
            _ if is_number(one) && is_number(other) => compare(one, other),
            (Some(one), Some(other)) => one.cmp(&other),
            _ => compare(one, other),
        });
        levels
    }
}
