//! One `[[series]]` of a plan.

use std::collections::BTreeMap;

use loadline_spec::Table;
use serde::Deserialize;
use toml::Spanned;

use super::factors::{FactorTable, factor};
use super::located::{Located, at};
use super::options::options;
use super::{Allow, Compared, Network, Repeated, Series, check_cpu_quota};
use crate::analysis::Metric;
use crate::journal::Levels;

/// The longest trial: a day, beyond which a slip is likelier.
const DURATION_S_MAX: f64 = 24.0 * 3600.0;
/// The shortest: tests have no time.
const DURATION_S_MIN: f64 = 0.01;
/// More are never needed; each is another block.
const REPLICATES_MAX: u32 = 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SeriesTable {
    name: Spanned<String>,
    #[serde(default)]
    title: String,
    servers: Option<Vec<String>>,
    #[serde(default)]
    factors: BTreeMap<String, Spanned<FactorTable>>,
    #[serde(default)]
    except: Vec<Spanned<Levels>>,
    #[serde(default)]
    serve: Table,
    #[serde(default)]
    load: Table,
    path: Option<Spanned<String>>,
    cpus: Option<String>,
    cpu_quota: Option<Spanned<f64>>,
    network: Option<Spanned<String>>,
    replicates: Option<Spanned<u32>>,
    duration_s: Option<Spanned<f64>>,
    warm_up_s: Option<Spanned<f64>>,
    a_a: Option<Spanned<RepeatedTable>>,
    #[serde(default)]
    allow: AllowTable,
    compare: Option<Spanned<ComparedTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ComparedTable {
    metric: Metric,
    with: Levels,
}

/// `[defaults]`: what holds for every series that does not say otherwise.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Defaults {
    servers: Option<Vec<String>>,
    #[serde(default)]
    serve: Table,
    #[serde(default)]
    load: Table,
    path: Option<Spanned<String>>,
    cpus: Option<String>,
    cpu_quota: Option<Spanned<f64>>,
    network: Option<Spanned<String>>,
    replicates: Option<Spanned<u32>>,
    duration_s: Option<Spanned<f64>>,
    warm_up_s: Option<Spanned<f64>>,
    a_a: Option<Spanned<RepeatedTable>>,
    #[serde(default)]
    allow: AllowTable,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected true (the first cell), false, or a list of levels as [{ loops = 1 }]"
)]
enum RepeatedTable {
    Switch(bool),
    Of(Vec<Levels>),
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct AllowTable {
    errors: Option<Spanned<f64>>,
    client_limited: Option<bool>,
    overflows: Option<bool>,
    steal: Option<Spanned<f64>>,
    others: Option<Spanned<f64>>,
}

impl SeriesTable {
    pub(super) fn name(&self) -> &Spanned<String> {
        &self.name
    }

    /// `all_servers` are those of a series that names none.
    pub(super) fn into_series(
        self,
        defaults: &Defaults,
        all_servers: &[String],
    ) -> Located<Series> {
        if self.name.get_ref().is_empty() {
            return Err(at(&self.name)(
                "the name is empty; right would be \"models\", say".to_owned(),
            ));
        }
        let factors = self.factors.iter().map(|(name, table)| {
            factor(name, table.get_ref())
                .map_err(|message| at(table)(format!("factor {name}: {message}")))
        });
        let factors = factors.collect::<Located<Vec<_>>>()?;
        let except = self.except.iter().map(|levels| levels.get_ref().clone());
        let except = except.collect();
        let compare = self.compare.as_ref().map(compared).transpose()?;
        let common = self.common(defaults)?;
        Ok(Series {
            title: self.title,
            servers: (self.servers.as_ref())
                .or(defaults.servers.as_ref())
                .map_or_else(|| all_servers.to_vec(), Clone::clone),
            factors,
            except,
            serve: over(&defaults.serve, &self.serve),
            load: over(&defaults.load, &self.load),
            compare,
            name: self.name.into_inner(),
            ..common
        })
    }

    /// What can stand in either table.
    fn common(&self, defaults: &Defaults) -> Located<Series> {
        let path = self.path.as_ref().or(defaults.path.as_ref());
        let cpus = self.cpus.as_ref().or(defaults.cpus.as_ref());
        let cpu_quota = self.cpu_quota.as_ref().or(defaults.cpu_quota.as_ref());
        let network = self.network.as_ref().or(defaults.network.as_ref());
        let replicates = self.replicates.as_ref().or(defaults.replicates.as_ref());
        let duration_s = self.duration_s.as_ref().or(defaults.duration_s.as_ref());
        let warm_up_s = self.warm_up_s.as_ref().or(defaults.warm_up_s.as_ref());
        let a_a = self.a_a.as_ref().or(defaults.a_a.as_ref());
        Ok(Series {
            name: String::new(),
            title: String::new(),
            servers: Vec::new(),
            factors: Vec::new(),
            except: Vec::new(),
            serve: Table::new(),
            load: Table::new(),
            path: path.map_or_else(|| Ok("/".to_owned()), checked_path)?,
            cpus: cpus.map_or("split", String::as_str).to_owned(),
            cpu_quota: cpu_quota.map(checked_quota).transpose()?,
            network: network.map_or(Ok(Network::Loopback), checked_network)?,
            replicates: replicates.map_or(Ok(5), checked_replicates)?,
            duration_s: duration_s.map_or(Ok(5.0), |it| seconds(it, DURATION_S_MIN))?,
            warm_up_s: warm_up_s.map_or(Ok(1.0), |it| seconds(it, 0.0))?,
            a_a: a_a.map_or(Ok(Repeated::First), repeated)?,
            allow: self.allow.over(&defaults.allow)?,
            compare: None,
        })
    }
}

impl AllowTable {
    /// What this table says, else the other, else the default.
    fn over(&self, under: &Self) -> Located<Allow> {
        let default = Allow::default();
        let either = |one: &Option<Spanned<f64>>, other: &Option<Spanned<f64>>, default| {
            one.as_ref().or(other.as_ref()).map_or(Ok(default), share)
        };
        let switch = |one: Option<bool>, other: Option<bool>| one.or(other);
        Ok(Allow {
            errors: either(&self.errors, &under.errors, default.errors)?,
            steal: either(&self.steal, &under.steal, default.steal)?,
            others: either(&self.others, &under.others, default.others)?,
            client_limited: switch(self.client_limited, under.client_limited)
                .unwrap_or(default.client_limited),
            overflows: switch(self.overflows, under.overflows).unwrap_or(default.overflows),
        })
    }
}

fn over(under: &Table, upper: &Table) -> Table {
    let mut merged = options(under);
    merged.extend(options(upper));
    merged
}

fn checked_path(path: &Spanned<String>) -> Located<String> {
    let text = path.get_ref();
    let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
    if text.starts_with('/') && is_visible {
        return Ok(text.clone());
    }
    Err(at(path)(format!(
        "`{}` is not a path; right would be /index.html",
        text.escape_debug()
    )))
}

fn checked_quota(cpus: &Spanned<f64>) -> Located<f64> {
    check_cpu_quota(*cpus.get_ref()).map_err(at(cpus))
}

fn checked_network(name: &Spanned<String>) -> Located<Network> {
    Network::named(name.get_ref()).map_err(at(name))
}

fn checked_replicates(replicates: &Spanned<u32>) -> Located<u32> {
    match *replicates.get_ref() {
        count if (1..=REPLICATES_MAX).contains(&count) => Ok(count),
        count => Err(at(replicates)(format!(
            "{count} replicates; right would be 1 to {REPLICATES_MAX}"
        ))),
    }
}

fn seconds(seconds: &Spanned<f64>, least: f64) -> Located<f64> {
    match *seconds.get_ref() {
        some if (least..=DURATION_S_MAX).contains(&some) => Ok(some),
        some => Err(at(seconds)(format!(
            "{some} seconds; right would be {least} to {DURATION_S_MAX}"
        ))),
    }
}

fn share(share: &Spanned<f64>) -> Located<f64> {
    match *share.get_ref() {
        some if (0.0..=1.0).contains(&some) => Ok(some),
        some => Err(at(share)(format!(
            "{some} is not a share; right would be 0 to 1: 0.01 for one in a hundred"
        ))),
    }
}

fn compared(table: &Spanned<ComparedTable>) -> Located<Compared> {
    let with = table.get_ref().with.clone();
    if with.is_empty() {
        return Err(at(table)(
            "compare names no level; right would be with = { loops = 1 }".to_owned(),
        ));
    }
    Ok(Compared {
        metric: table.get_ref().metric,
        with,
    })
}

fn repeated(table: &Spanned<RepeatedTable>) -> Located<Repeated> {
    match table.get_ref() {
        RepeatedTable::Switch(true) => Ok(Repeated::First),
        RepeatedTable::Switch(false) => Ok(Repeated::None),
        RepeatedTable::Of(cells) => Ok(Repeated::Of(cells.clone())),
    }
}
