//! Factors: the names that the lab knows with what their levels set, and those that a plan defines
//! itself.

use std::ops::Range;

use loadline_spec::load::LoadSpec;
use loadline_spec::toml_file::{Located, at, read};
use loadline_spec::{Value, ValueError};
use serde::Deserialize;
use toml::Spanned;
use toml::de::DeValue;

use super::{Factor, FactorLevel, Network, Settings, check_cpu_quota};
use crate::journal::Level;

/// Levels of one factor.
const LEVELS_MAX: usize = 1000;

/// What the levels of a known factor set.
#[derive(Clone, Copy, Debug)]
enum Meaning<'a> {
    /// An option of the server, and what is put behind a number.
    Serve(&'a str, &'a str),
    /// The same of `loadline load`.
    Load(&'a str, &'a str),
    /// The same; the number 0 is to do without the option.
    LoadUnlessZero(&'a str, &'a str),
    /// An option of `loadline load` without a value: on or off.
    LoadSwitch(&'a str),
    Server,
    KeepAlive,
    Path,
    FileBytes,
    Cpus,
    CpuQuota,
    Network,
    Link,
}

/// Factors with a meaning of their own, as docs/lab.md lists them. Besides, every option of a load is a
/// factor by its name.
const KNOWN: [(&str, Meaning<'static>); 34] = [
    ("server", Meaning::Server),
    ("architecture", Meaning::Serve("architecture", "")),
    ("loops", Meaning::Serve("loops", "")),
    ("workers", Meaning::Serve("workers", "")),
    ("threads", Meaning::Serve("threads", "")),
    ("worker_pools", Meaning::Serve("worker-pools", "")),
    ("accept", Meaning::Serve("accept", "")),
    ("balance", Meaning::Serve("balance", "")),
    ("queue", Meaning::Serve("queue", "")),
    ("queue_max", Meaning::Serve("queue-max", "")),
    ("socket_io", Meaning::Serve("socket-io", "")),
    ("parse", Meaning::Serve("parse", "")),
    ("file_io", Meaning::Serve("file-io", "")),
    ("capacity_per_loop", Meaning::Serve("capacity-per-loop", "")),
    ("connections_max", Meaning::Serve("connections-max", "")),
    ("backlog", Meaning::Serve("backlog", "")),
    ("idle_timeout_s", Meaning::Serve("idle-timeout", "s")),
    ("service_us", Meaning::Serve("service-time", "us")),
    ("service_kind", Meaning::Serve("service-kind", "")),
    ("rate_per_s", Meaning::Load("rate", "")),
    ("rate_of_capacity", Meaning::Load("rate-of-capacity", "")),
    ("keep_alive", Meaning::KeepAlive),
    ("http2", Meaning::LoadSwitch("http2")),
    ("think_us", Meaning::LoadUnlessZero("think", "us")),
    (
        "idle_connections",
        Meaning::LoadUnlessZero("idle-connections", ""),
    ),
    (
        "slow_readers",
        Meaning::LoadUnlessZero("slow-readers", "@10KB/s"),
    ),
    ("slow_heads", Meaning::LoadUnlessZero("slow-heads", "@1B/s")),
    ("vanishing", Meaning::LoadUnlessZero("vanishing", "")),
    ("path", Meaning::Path),
    ("file_bytes", Meaning::FileBytes),
    ("cpus", Meaning::Cpus),
    ("cpu_quota", Meaning::CpuQuota),
    ("network", Meaning::Network),
    ("link", Meaning::Link),
];

/// Levels that set one option.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OptionFactor {
    serve: Option<String>,
    load: Option<String>,
    /// What is put behind a number: "us".
    #[serde(default)]
    unit: String,
    levels: Levels,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a list of numbers and names, or a row of numbers as \"100..2500/100\""
)]
enum Levels {
    Row(String),
    List(Vec<Level>),
}

/// A factor as it stands in the file, and the place of each level.
pub(super) fn factor(
    name: &str,
    value: Spanned<DeValue<'_>>,
) -> Located<(Factor, Vec<Range<usize>>)> {
    let named =
        |(span, problem): (Range<usize>, ValueError)| (span, problem.at(format!("factor {name}")));
    let place = value.span();
    let whole = |problem| named((place.clone(), problem));
    let everywhere = |levels: Vec<FactorLevel>| {
        let places = vec![place.clone(); levels.len()];
        (levels, places)
    };
    let (levels, places) = match value.get_ref() {
        DeValue::String(row) => {
            let levels = row_of(row).map_err(whole)?.into_iter();
            let known = levels.map(|level| known(name, level));
            everywhere(known.collect::<Result<_, _>>().map_err(whole)?)
        }
        DeValue::Table(_) => {
            let option = read(&value).map_err(named)?;
            everywhere(of_option(option).map_err(whole)?)
        }
        DeValue::Array(levels) => {
            let levels = levels.iter().map(|value| {
                let place = value.span();
                Ok((level(name, value.clone()).map_err(named)?, place))
            });
            levels.collect::<Located<Vec<_>>>()?.into_iter().unzip()
        }
        _ => {
            return Err(whole(ValueError::from(
                "expected a list of levels, a row of numbers as \"100..2500/100\", or a table with serve \
                 or load (an option) and levels",
            )));
        }
    };
    check(&levels).map_err(whole)?;
    let name = name.to_owned();
    Ok((Factor { name, levels }, places))
}

fn check(levels: &[FactorLevel]) -> Result<(), ValueError> {
    if levels.is_empty() {
        return Err(ValueError::new("no levels", "a list of at least one"));
    }
    if levels.len() > LEVELS_MAX {
        let problem = format!("{} levels", levels.len());
        return Err(ValueError::new(problem, format!("{LEVELS_MAX} at most")));
    }
    for (index, level) in levels.iter().enumerate() {
        if let Level::Number(number) = level.level
            && !number.is_finite()
        {
            let problem = format!("the level {number} is no number");
            return Err(ValueError::new(problem, "a finite one, or a name"));
        }
        if levels[..index].iter().any(|one| one.level == level.level) {
            let level = &level.level;
            return Err(format!("the level {level} stands there twice").into());
        }
    }
    Ok(())
}

/// `100..2500/100`: from, to and step.
fn row_of(text: &str) -> Result<Vec<Level>, ValueError> {
    let fail = || {
        let problem = format!("`{text}` is not a row of numbers");
        ValueError::new(problem, "100..2500/100")
    };
    let (from, rest) = text.split_once("..").ok_or_else(fail)?;
    let (to, step) = rest.split_once('/').ok_or_else(fail)?;
    let number = |text: &str| text.trim().parse::<u32>().map_err(|_| fail());
    let (from, to, step) = (number(from)?, number(to)?, number(step)?);
    if step == 0 || from > to || (to - from) / step >= LEVELS_MAX as u32 {
        return Err(fail());
    }
    let numbers = (0..=(to - from) / step).map(|index| from + index * step);
    Ok(numbers.map(|at| Level::Number(f64::from(at))).collect())
}

fn of_option(factor: OptionFactor) -> Result<Vec<FactorLevel>, ValueError> {
    let [serve, load] = [factor.serve, factor.load].map(|it| it.map(|it| it.replace('_', "-")));
    let meaning = match (&serve, &load) {
        (Some(option), None) => Meaning::Serve(option, &factor.unit),
        (None, Some(option)) => Meaning::Load(option, &factor.unit),
        _ => {
            let problem = "either serve or load has to name an option";
            return Err(ValueError::new(problem, "serve = \"queue\""));
        }
    };
    let levels = match factor.levels {
        Levels::Row(text) => row_of(&text)?,
        Levels::List(levels) => levels,
    };
    let levels = levels.into_iter().map(|level| level_of(meaning, level));
    levels.collect()
}

/// A level of a known factor, or a table with what it sets.
fn level(name: &str, mut value: Spanned<DeValue<'_>>) -> Located<FactorLevel> {
    let fail = at(&value);
    let DeValue::Table(table) = value.get_mut() else {
        return known(name, read(&value)?).map_err(fail);
    };
    let level = table.remove("level");
    let level =
        level.ok_or_else(|| fail("level is missing; right would be level = \"name\"".into()))?;
    Ok(FactorLevel {
        level: read(&level)?,
        sets: read(&value)?,
    })
}

fn known(name: &str, level: Level) -> Result<FactorLevel, ValueError> {
    if let Some((_, meaning)) = KNOWN.iter().find(|(known, _)| *known == name) {
        return level_of(*meaning, level);
    }
    let option = name.replace('_', "-");
    match loadline_spec::names::<LoadSpec>().contains(&option) {
        true => level_of(Meaning::Load(&option, ""), level),
        false => Err(unknown(name)),
    }
}

fn unknown(name: &str) -> ValueError {
    let names: Vec<&str> = KNOWN.iter().map(|(known, _)| *known).collect();
    let remedy = format!(
        "serve = \"OPTION\" or load = \"OPTION\" beside its levels, an option of loadline load, or \
         one of {}",
        names.join(", ")
    );
    ValueError::new(format!("what {name} sets is not known"), remedy)
}

/// A level, and what it sets by its meaning.
fn level_of(meaning: Meaning<'_>, level: Level) -> Result<FactorLevel, ValueError> {
    let mut sets = Settings::default();
    let option = |name: &str, value| [(name.to_owned(), value)].into();
    match meaning {
        Meaning::Serve(name, unit) => {
            sets.serve = option(name, Value::Text(with_unit(&level, unit)));
        }
        Meaning::LoadUnlessZero(name, _) if level == Level::Number(0.0) => {
            sets.load = option(name, Value::Switch(false));
        }
        Meaning::Load(name, unit) | Meaning::LoadUnlessZero(name, unit) => {
            sets.load = option(name, Value::Text(with_unit(&level, unit)));
        }
        Meaning::LoadSwitch(name) => sets.load = option(name, Value::Switch(is_on(&level)?)),
        Meaning::KeepAlive => {
            sets.load = option("new-connection", Value::Switch(!is_on(&level)?));
        }
        Meaning::Server => sets.server = Some(level.to_string()),
        Meaning::Path => sets.path = Some(level.to_string()),
        Meaning::Cpus => sets.cpus = Some(level.to_string()),
        Meaning::CpuQuota => match &level {
            Level::Number(cpus) => sets.cpu_quota = Some(check_cpu_quota(*cpus)?),
            Level::Text(text) => {
                return Err(ValueError::new(format!("`{text}` is not a number"), "0.4"));
            }
        },
        Meaning::Network => sets.network = Some(Network::try_from(level.to_string())?),
        Meaning::Link => sets.link = Some(level.to_string().parse()?),
        Meaning::FileBytes => sets.file_bytes = Some(bytes(&level)?),
    }
    Ok(FactorLevel { level, sets })
}

fn is_on(level: &Level) -> Result<bool, ValueError> {
    match level.to_string().as_str() {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("right would be the levels on and off".into()),
    }
}

/// A name has its unit, if any, with it.
fn with_unit(level: &Level, unit: &str) -> String {
    match level {
        Level::Number(number) => format!("{number}{unit}"),
        Level::Text(text) => text.clone(),
    }
}

fn bytes(level: &Level) -> Result<u64, ValueError> {
    match level {
        // Sizes of files are far from where whole numbers end.
        Level::Number(number) if *number >= 0.0 && number.fract() == 0.0 && *number < 1e15 => {
            Ok(*number as u64)
        }
        _ => Err(ValueError::new(
            format!("`{level}` is not a size in bytes"),
            "1024",
        )),
    }
}
