//! `[[series]]` of a plan: its fields, checked one by one, and what `[defaults]` says for all of them.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::{Range, RangeInclusive};

use loadline_base::sorting::sort;
use loadline_spec::toml_file::{Located, at, read};
use loadline_spec::values::OrOff;
use loadline_spec::{SpecError, Table, ValueError};
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::check_cpu_quota;
use super::factors::factor;
use super::load::PlannedLoad;
use super::{Allow, Factor, Network, Placement, Repeated, Series, Server};
use crate::journal::{Level, Levels};
use crate::link::{LinkOrOff, LinkSpec};

/// The longest trial: a day, beyond which a slip is likelier.
const DURATION_S_MAX: f64 = 24.0 * 3600.0;
/// The shortest are those of tests, which have no time.
const DURATIONS_S: RangeInclusive<f64> = 0.01..=DURATION_S_MAX;
/// More are never needed; each is another block.
const REPLICATES: RangeInclusive<u32> = 1..=1000;
/// What each series says for itself.
const NO_DEFAULTS: [&str; 5] = ["name", "title", "factors", "except", "compare"];

impl Default for Series {
    fn default() -> Self {
        Self {
            name: String::new(),
            title: String::new(),
            servers: Vec::new(),
            factors: Vec::new(),
            except: Vec::new(),
            serve: Table::new(),
            load: Table::new(),
            path: "/".to_owned(),
            cpus: "split".to_owned(),
            cpu_quota: None,
            network: Network::Loopback,
            link: None,
            replicates: 5,
            duration_s: 5.0,
            warm_up_s: 1.0,
            a_a: Repeated::First,
            allow: Allow::default(),
            compare: None,
        }
    }
}

/// Takes the series out of a plan's file, each with what `[defaults]` says and it does not.
pub(super) fn take<'t>(plan: &mut DeTable<'t>) -> Located<Vec<Spanned<DeValue<'t>>>> {
    let wrong = "defaults is not a table; right would be [defaults]";
    let defaults = table_of(plan.remove("defaults"), wrong)?;
    if let Some(name) = (defaults.keys()).find(|it| NO_DEFAULTS.contains(&it.get_ref().as_ref())) {
        let problem = format!(
            "{} is of a single series; right would be in [[series]]",
            name.get_ref()
        );
        return Err(at(name)(problem));
    }
    let Some(series) = plan.remove("series") else {
        return Ok(Vec::new());
    };
    let fail = at(&series);
    let DeValue::Array(series) = series.into_inner() else {
        return Err(fail("series is not a list; right would be [[series]]"));
    };
    let mut all: Vec<Spanned<DeValue<'t>>> = series.into_iter().collect();
    for one in &mut all {
        if let DeValue::Table(one) = one.get_mut() {
            merge(&defaults, one);
        }
    }
    Ok(all)
}

/// Adds what is not there. `keep_alive` and `keep-alive` are the same.
fn merge<'t>(under: &DeTable<'t>, over: &mut DeTable<'t>) {
    for (name, value) in under {
        let plain = |name: &Spanned<DeString<'t>>| name.get_ref().replace('_', "-");
        let own = over.iter_mut().find(|(own, _)| plain(own) == plain(name));
        match own.map(|(_, own)| (own.get_mut(), value.get_ref())) {
            None => _ = over.insert(name.clone(), value.clone()),
            Some((DeValue::Table(own), DeValue::Table(value))) => merge(value, own),
            Some(_) => {}
        }
    }
}

/// Reads a series, of servers and CPUs that are there.
pub(super) fn series(
    table: Spanned<DeValue<'_>>,
    servers: &BTreeMap<String, Server>,
    placements: &BTreeMap<String, Placement>,
) -> Located<Series> {
    let place = table.span();
    let name = table
        .get_ref()
        .get("name")
        .and_then(|name| name.get_ref().as_str());
    let name = name.map_or_else(String::new, |name| format!("series {name}"));
    let named = |(span, problem): (Range<usize>, ValueError)| match name.as_str() {
        "" => (span, problem),
        name => (span, problem.at(name)),
    };
    let names_servers = table.get_ref().get("servers").is_some();
    let factors = table.get_ref().get("factors").cloned();
    let mut series: Series = read(&table).map_err(named)?;
    let mut places = Vec::new();
    let wrong = "factors is not a table; right would be factors = { loops = [1, 2] }";
    for (name, value) in table_of(factors, wrong).map_err(named)? {
        let (factor, of_levels) = factor(name.get_ref(), value).map_err(named)?;
        series.factors.push(factor);
        places.push(of_levels);
    }
    if !names_servers {
        series.servers = servers.keys().cloned().collect();
    }
    if series.name.is_empty() {
        let problem = ValueError::new("a series has no name", "name = \"models\", say");
        return Err((place, problem));
    }
    check_names(&series, servers, placements).map_err(|problem| named((place, problem)))?;
    check_levels(&series, &places, servers).map_err(named)?;
    Ok(series)
}

/// A table, empty if nothing is there; anything else is wrong.
fn table_of<'t>(value: Option<Spanned<DeValue<'t>>>, wrong: &'static str) -> Located<DeTable<'t>> {
    let Some(value) = value else {
        return Ok(DeTable::new());
    };
    let fail = at(&value);
    match value.into_inner() {
        DeValue::Table(table) => Ok(table),
        _ => Err(fail(wrong)),
    }
}

/// Factors of all series of a name, with `server`; none: there is no such series.
pub(super) fn factor_names<'s>(series: &'s [Series], name: &str) -> Vec<&'s str> {
    let named = series.iter().filter(|one| one.name == name);
    let factors = named.flat_map(|one| {
        let factors = one.factors.iter().map(|factor| factor.name.as_str());
        factors.chain(["server"])
    });
    let mut names: Vec<&str> = factors.collect();
    sort(&mut names);
    names.dedup();
    names
}

/// Whether all servers, placements and factors that a series names are there.
fn check_names(
    series: &Series,
    servers: &BTreeMap<String, Server>,
    placements: &BTreeMap<String, Placement>,
) -> Result<(), ValueError> {
    let levels = || series.factors.iter().flat_map(|factor| &factor.levels);
    let of_levels = levels().filter_map(|level| level.sets.server.as_ref());
    for name in series.servers.iter().chain(of_levels) {
        if !servers.contains_key(name) {
            let names: Vec<&str> = servers.keys().map(String::as_str).collect();
            let right = format!("one of {}", names.join(", "));
            return Err(ValueError::new(format!("no server {name}"), right));
        }
    }
    if series.servers.is_empty() {
        return Err(ValueError::new("servers is empty", "at least one name"));
    }
    let of_levels = levels().filter_map(|level| level.sets.cpus.as_ref());
    for name in of_levels.chain([&series.cpus]) {
        if !placements.contains_key(name) && !Placement::NAMES.contains(&name.as_str()) {
            let own = placements.keys().map(String::as_str);
            let names: Vec<&str> = Placement::NAMES.into_iter().chain(own).collect();
            let right = format!("one of {}", names.join(", "));
            return Err(ValueError::new(format!("no cpus {name}"), right));
        }
    }
    let selected = match &series.a_a {
        Repeated::Of(cells) => cells.as_slice(),
        Repeated::None | Repeated::First => &[],
    };
    let compared = series.compare.iter().map(|compared| &compared.with);
    let named = series.except.iter().chain(selected).chain(compared);
    let is_factor = |name: &String| series.factors.iter().any(|factor| factor.name == *name);
    let mut unknown = named.flat_map(Levels::keys);
    if let Some(name) = unknown.find(|name| *name != "server" && !is_factor(name)) {
        return Err(ValueError::from(format!(
            "except, a_a and compare name levels of factors, and {name} is none of this series"
        )));
    }
    // Parts of a plan keep its exceptions and comparisons (`full`, claims), whatever levels they have: those
    // of a whole plan are checked when it is run (`unmatched`).
    let mut repeated = selected.iter().flatten();
    match repeated.find(|(name, level)| !has_level(series, name, level)) {
        None => Ok(()),
        Some((name, level)) => Err(ValueError::from(format!(
            "a_a: {name} has no level {level} in this series"
        ))),
    }
}

/// Whether a factor of a series has a level.
pub(crate) fn has_level(series: &Series, name: &str, level: &Level) -> bool {
    levels_of(series, name).contains(level)
}

/// The levels of a factor; those of `server` are the servers, however they are named.
pub(crate) fn levels_of(series: &Series, name: &str) -> Vec<Level> {
    let factors = series.factors.iter();
    if name != "server" {
        let of_name = factors.filter(|factor| factor.name == name);
        let levels = of_name.flat_map(|factor| &factor.levels);
        return levels.map(|level| level.level.clone()).collect();
    }
    let of_levels = factors.flat_map(|factor| &factor.levels);
    let of_levels = of_levels.filter_map(|level| level.sets.server.as_deref());
    let servers = series.servers.iter().map(String::as_str).chain(of_levels);
    servers.map(Level::from).collect()
}

/// Whether the load takes what each level sets, and so does a server that may have it. `places` are
/// those of the levels.
fn check_levels(
    series: &Series,
    places: &[Vec<Range<usize>>],
    servers: &BTreeMap<String, Server>,
) -> Located<()> {
    let levels = || series.factors.iter().flat_map(|factor| &factor.levels);
    let of_levels = levels().filter_map(|level| level.sets.server.as_ref());
    let all: Vec<&String> = series.servers.iter().chain(of_levels).collect();
    let checked = |factor: &Factor, index: usize| -> Result<(), SpecError> {
        let sets = &factor.levels[index].sets;
        PlannedLoad::new(sets.load.clone())?;
        let own = sets.server.as_ref().map(|server| vec![server]);
        let taken = own.as_ref().unwrap_or(&all).iter();
        let mut taken = taken.map(|name| servers[*name].varied(&sets.serve).map(drop));
        let first = taken.next().unwrap_or(Ok(()));
        first.or_else(|error| match taken.any(|other| other.is_ok()) {
            true => Ok(()),
            false => Err(error),
        })
    };
    for (factor, places) in series.factors.iter().zip(places) {
        for (index, place) in places.iter().enumerate() {
            checked(factor, index).map_err(|error| {
                let (name, level) = (&factor.name, &factor.levels[index].level);
                let problem = format!("factor {name}: level {level}: {error}");
                (place.clone(), problem.into())
            })?;
        }
    }
    Ok(())
}

/// A value of a file, or what is wrong with it.
fn checked<'de, T: Deserialize<'de>, D: Deserializer<'de>, U, E: Display>(
    from: D,
    check: impl Fn(T) -> Result<U, E>,
) -> Result<U, D::Error> {
    check(T::deserialize(from)?).map_err(D::Error::custom)
}

/// Factors are read with the places of their levels: see [`series`].
pub(super) fn elsewhere<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Factor>, D::Error> {
    IgnoredAny::deserialize(from).map(|_| Vec::new())
}

pub(super) fn name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    checked(from, |name: String| match name.is_empty() {
        true => Err("the name is empty; right would be \"models\", say"),
        false => Ok(name),
    })
}

pub(super) fn options<'de, D: Deserializer<'de>>(from: D) -> Result<Table, D::Error> {
    checked(from, |table: Table| super::options::options(&table))
}

pub(super) fn path<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    checked(from, |path: String| {
        let is_visible = path.bytes().all(|byte| byte.is_ascii_graphic());
        match path.starts_with('/') && is_visible {
            true => Ok(path),
            false => Err(ValueError::new(
                format!("`{}` is not a path", path.escape_debug()),
                "/index.html",
            )),
        }
    })
}

pub(super) fn quota<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    checked(from, check_cpu_quota).map(Some)
}

pub(super) fn link<'de, D: Deserializer<'de>>(from: D) -> Result<Option<LinkSpec>, D::Error> {
    LinkOrOff::deserialize(from).map(|it| it.0.0)
}

pub(super) fn link_level<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<OrOff<LinkSpec>>, D::Error> {
    LinkOrOff::deserialize(from).map(|it| Some(it.0))
}

pub(super) fn replicates<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    checked(from, |count: u32| within(count, REPLICATES, "replicates"))
}

pub(super) fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    checked(from, |s: f64| within(s, DURATIONS_S, "seconds"))
}

pub(super) fn warm_up<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    checked(from, |s: f64| within(s, 0.0..=DURATION_S_MAX, "seconds"))
}

pub(super) fn share<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    checked(from, |share: f64| match (0.0..=1.0).contains(&share) {
        true => Ok(share),
        false => Err(ValueError::new(
            format!("{share} is not a share"),
            "0 to 1: 0.01 for one in a hundred",
        )),
    })
}

pub(super) fn some_levels<'de, D: Deserializer<'de>>(from: D) -> Result<Levels, D::Error> {
    checked(from, |levels: Levels| match levels.is_empty() {
        true => Err("compare names no level; right would be with = { loops = 1 }"),
        false => Ok(levels),
    })
}

fn within<T: PartialOrd + Display>(
    value: T,
    range: RangeInclusive<T>,
    unit: &str,
) -> Result<T, ValueError> {
    match range.contains(&value) {
        true => Ok(value),
        false => Err(ValueError::new(
            format!("{value} {unit}"),
            format!("{} to {}", range.start(), range.end()),
        )),
    }
}
