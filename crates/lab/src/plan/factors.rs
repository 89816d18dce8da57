//! Factors: the names that the lab knows with what their levels set, and those that a plan defines
//! itself.

use loadline_spec::load::LoadSpec;
use loadline_spec::{Table, Value, ValueError};
use serde::Deserialize;

use super::options::options;
use super::{Factor, FactorLevel, Network, Settings, check_cpu_quota};
use crate::journal::Level;

/// Levels of one factor.
const LEVELS_MAX: usize = 1000;

/// What the levels of a known factor set.
#[derive(Clone, Copy, Debug)]
enum Meaning {
    /// An option of the server, and what is put behind a number.
    Serve(&'static str, &'static str),
    /// The same of `loadline load`.
    Load(&'static str, &'static str),
    /// The same; the number 0 is to do without the option.
    LoadUnlessZero(&'static str, &'static str),
    Server,
    KeepAlive,
    Path,
    FileBytes,
    Cpus,
    CpuQuota,
    Network,
}

/// Factors with a meaning of their own, as docs/lab.md lists them. Besides, every option of a load is a
/// factor by its name.
const KNOWN: [(&str, Meaning); 31] = [
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
];

/// A factor as it stands in the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a list of levels, a row of numbers as \"100..2500/100\", or a table with \
                 serve or load (an option) and levels"
)]
pub(super) enum FactorTable {
    Row(String),
    Levels(Vec<LevelTable>),
    Option(OptionFactorTable),
}

/// Levels that set one option.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OptionFactorTable {
    serve: Option<String>,
    load: Option<String>,
    /// What is put behind a number: "us".
    #[serde(default)]
    unit: String,
    levels: Levels,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a list of numbers and names, or a row of numbers as \"100..2500/100\""
)]
enum Levels {
    Row(String),
    List(Vec<Plain>),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a number, a name, or a table with level and any of server, serve, load, \
                 path, file_bytes, cpus, cpu_quota, network"
)]
pub(super) enum LevelTable {
    Plain(Plain),
    Table(SettingsTable),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a number or a name")]
pub(super) enum Plain {
    Number(f64),
    Text(String),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SettingsTable {
    level: Plain,
    server: Option<String>,
    #[serde(default)]
    serve: Table,
    #[serde(default)]
    load: Table,
    path: Option<String>,
    file_bytes: Option<u64>,
    cpus: Option<String>,
    cpu_quota: Option<f64>,
    network: Option<String>,
}

/// Makes a factor of what stands in the file.
pub(super) fn factor(name: &str, table: &FactorTable) -> Result<Factor, ValueError> {
    let levels = match table {
        FactorTable::Row(row) => known(name, &self::row(row)?)?,
        FactorTable::Option(table) => of_option(table)?,
        FactorTable::Levels(levels) => levels
            .iter()
            .map(|level| match level {
                LevelTable::Plain(plain) => known_level(name, plain),
                LevelTable::Table(table) => described(table),
            })
            .collect::<Result<_, _>>()?,
    };
    check(&levels)?;
    Ok(Factor {
        name: name.to_owned(),
        levels,
    })
}

fn check(levels: &[FactorLevel]) -> Result<(), ValueError> {
    if levels.is_empty() {
        return Err(ValueError::from(
            "no levels; right would be a list of at least one",
        ));
    }
    if levels.len() > LEVELS_MAX {
        return Err(ValueError::from(format!(
            "{} levels; right would be {LEVELS_MAX} at most",
            levels.len()
        )));
    }
    for (index, level) in levels.iter().enumerate() {
        if levels[..index].iter().any(|one| one.level == level.level) {
            return Err(ValueError::from(format!(
                "the level {} stands there twice",
                level.level
            )));
        }
    }
    Ok(())
}

/// `100..2500/100`: from, to and step.
fn row(text: &str) -> Result<Vec<Plain>, ValueError> {
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
    Ok(numbers.map(|at| Plain::Number(f64::from(at))).collect())
}

fn of_option(table: &OptionFactorTable) -> Result<Vec<FactorLevel>, ValueError> {
    let (option, is_load) = match (&table.serve, &table.load) {
        (Some(option), None) => (option, false),
        (None, Some(option)) => (option, true),
        _ => {
            return Err(ValueError::from(
                "either serve or load has to name an option; right would be serve = \"queue\"",
            ));
        }
    };
    let levels = match &table.levels {
        Levels::Row(text) => row(text)?,
        Levels::List(levels) => levels.clone(),
    };
    let level = |plain: &Plain| {
        let value = Value::Text(plain.with_unit(&table.unit));
        let options = [(option.replace('_', "-"), value)].into();
        let mut sets = Settings::default();
        if is_load {
            sets.load = options;
        } else {
            sets.serve = options;
        }
        FactorLevel {
            level: plain.level(),
            sets,
        }
    };
    Ok(levels.iter().map(level).collect())
}

fn described(table: &SettingsTable) -> Result<FactorLevel, ValueError> {
    Ok(FactorLevel {
        level: table.level.level(),
        sets: Settings {
            server: table.server.clone(),
            serve: options(&table.serve),
            load: options(&table.load),
            path: table.path.clone(),
            file_bytes: table.file_bytes,
            cpus: table.cpus.clone(),
            cpu_quota: table.cpu_quota.map(check_cpu_quota).transpose()?,
            network: table.network.as_deref().map(Network::named).transpose()?,
        },
    })
}

fn known(name: &str, levels: &[Plain]) -> Result<Vec<FactorLevel>, ValueError> {
    levels
        .iter()
        .map(|plain| known_level(name, plain))
        .collect()
}

fn known_level(name: &str, plain: &Plain) -> Result<FactorLevel, ValueError> {
    let known = KNOWN.iter().find(|(known, _)| *known == name);
    let sets = match known {
        Some((_, meaning)) => sets(*meaning, plain)?,
        None => {
            let option = name.replace('_', "-");
            if !loadline_spec::names::<LoadSpec>().contains(&option) {
                return Err(unknown(name));
            }
            Settings {
                load: [(option, Value::Text(plain.text()))].into(),
                ..Settings::default()
            }
        }
    };
    Ok(FactorLevel {
        level: plain.level(),
        sets,
    })
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

fn sets(meaning: Meaning, plain: &Plain) -> Result<Settings, ValueError> {
    let mut sets = Settings::default();
    let option = |name: &str, value| [(name.to_owned(), value)].into();
    match meaning {
        Meaning::Serve(name, unit) => {
            sets.serve = option(name, Value::Text(plain.with_unit(unit)));
        }
        Meaning::LoadUnlessZero(name, _) if plain.is_zero() => {
            sets.load = option(name, Value::Switch(false));
        }
        Meaning::Load(name, unit) | Meaning::LoadUnlessZero(name, unit) => {
            sets.load = option(name, Value::Text(plain.with_unit(unit)));
        }
        Meaning::KeepAlive => {
            let value = match plain.text().as_str() {
                "on" => Value::Switch(false),
                "off" => Value::Switch(true),
                _ => return Err(ValueError::from("right would be the levels on and off")),
            };
            sets.load = option("new-connection", value);
        }
        Meaning::Server => sets.server = Some(plain.text()),
        Meaning::Path => sets.path = Some(plain.text()),
        Meaning::Cpus => sets.cpus = Some(plain.text()),
        Meaning::CpuQuota => sets.cpu_quota = Some(check_cpu_quota(plain.number()?)?),
        Meaning::Network => sets.network = Some(Network::named(&plain.text())?),
        Meaning::FileBytes => sets.file_bytes = Some(plain.bytes()?),
    }
    Ok(sets)
}

impl Plain {
    fn level(&self) -> Level {
        match self {
            Self::Number(number) => Level::Number(*number),
            Self::Text(text) => Level::Text(text.clone()),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }

    fn number(&self) -> Result<f64, ValueError> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Text(text) => Err(ValueError::from(format!(
                "`{text}` is not a number; right would be 0.4"
            ))),
        }
    }

    /// A name has its unit, if any, with it.
    fn with_unit(&self, unit: &str) -> String {
        match self {
            Self::Number(number) => format!("{number}{unit}"),
            Self::Text(text) => text.clone(),
        }
    }

    fn is_zero(&self) -> bool {
        matches!(self, Self::Number(number) if *number == 0.0)
    }

    fn bytes(&self) -> Result<u64, ValueError> {
        match self {
            // Sizes of files are far from where whole numbers end.
            Self::Number(number) if *number >= 0.0 && number.fract() == 0.0 && *number < 1e15 => {
                Ok(*number as u64)
            }
            _ => Err(ValueError::from(format!(
                "`{}` is not a size in bytes; right would be 1024",
                self.text()
            ))),
        }
    }
}
