//! Plan files: TOML in, a plan out, or one line that says what is wrong and where.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use loadline_spec::load::values::Cpus;
use loadline_spec::toml_file::{self, Located, at};
use loadline_spec::{Table, ValueError};
use serde::Deserialize;
use toml::Spanned;
use toml::de::DeValue;

use super::chart::Chart;
use super::goal::GoalTable;
use super::options::options;
use super::series::{factor_names, series, take};
use super::{
    PLAN_BYTES_MAX, Placement, Plan, PlanError, Series, Server, ServerKind, ServerSpec, Site,
};
use crate::file_error::FileError;

/// All files of a document root together: they are made on the disk, and kept in memory by servers.
const SITE_BYTES_MAX: u64 = 8 << 30;
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanTable {
    name: Spanned<String>,
    #[serde(default)]
    title: String,
    #[serde(default = "one")]
    seed: u64,
    budget_s: Option<Spanned<f64>>,
    root: Option<Spanned<String>>,
    files: Option<Spanned<BTreeMap<String, u64>>>,
    #[serde(default)]
    cpus: BTreeMap<String, Spanned<CpusTable>>,
    servers: BTreeMap<String, Spanned<ServerTable>>,
    #[serde(default)]
    goal: Vec<GoalTable>,
    #[serde(default)]
    chart: Vec<Spanned<Chart>>,
}

fn one() -> u64 {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CpusTable {
    server: String,
    client: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerTable {
    kind: Option<String>,
    #[serde(default)]
    options: Table,
    #[serde(default)]
    command: Vec<String>,
    configuration: Option<String>,
    #[serde(default)]
    version: Vec<String>,
    #[serde(default)]
    optional: bool,
    #[serde(default)]
    reference: bool,
}

pub(super) fn read(path: &Path) -> Result<Plan, PlanError> {
    let name = path.display().to_string();
    let fail = FileError::of(path);
    let no_plan = |problem: String| PlanError::NoPlan {
        file: name.clone(),
        problem,
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(&fail)?;
    file.take(PLAN_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(&fail)?;
    if bytes.len() as u64 > PLAN_BYTES_MAX {
        let most = PLAN_BYTES_MAX >> 20;
        return Err(no_plan(format!("larger than a plan may be ({most} MiB)")));
    }
    let text = String::from_utf8(bytes).map_err(|_| no_plan("not UTF-8".to_owned()))?;
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    // Servers and clients are started elsewhere.
    let folder = std::path::absolute(folder.join("."))
        .and_then(std::fs::canonicalize)
        .map_err(fail)?;
    parse(&text, &name, &folder)
}

pub(super) fn parse(text: &str, name: &str, folder: &Path) -> Result<Plan, PlanError> {
    let line = |at: usize| {
        let before = &text.as_bytes()[..at.min(text.len())];
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    };
    let wrong = |at: usize, problem: ValueError| PlanError::InFile {
        file: name.to_owned(),
        line: line(at),
        problem,
    };
    let read = || {
        let mut table = toml_file::parse(text)?;
        let series = take(table.get_mut())?;
        plan(toml_file::read_table(&table)?, series, text, folder)
    };
    read().map_err(|(span, problem)| wrong(span.start, problem))
}

fn plan(
    table: PlanTable,
    all_series: Vec<Spanned<DeValue<'_>>>,
    text: &str,
    folder: &Path,
) -> Located<Plan> {
    if table.name.get_ref().is_empty() {
        return Err(at(&table.name)(
            "the name is empty; right would be \"models\", say".to_owned(),
        ));
    }
    let budget_s = table.budget_s.as_ref().map(budget).transpose()?;
    let site = site(table.root.as_ref(), table.files.as_ref(), folder)?;
    let mut servers = BTreeMap::new();
    for (name, table) in table.servers {
        servers.insert(name.clone(), server(name, table)?);
    }
    if servers.is_empty() || all_series.is_empty() {
        return Err((
            0..0,
            "nothing to measure; right would be at least one [servers.NAME] and one [[series]]"
                .into(),
        ));
    }
    let mut placements = BTreeMap::new();
    for (name, table) in table.cpus {
        let placement = placement(&name, &table)?;
        placements.insert(name, placement);
    }
    let all_series = all_series.into_iter();
    let series = all_series
        .map(|one| series(one, &servers, &placements))
        .collect::<Located<Vec<_>>>()?;
    let goals = table.goal.into_iter().map(|goal| goal.into_goals(&series));
    let goals = goals.collect::<Located<Vec<_>>>()?.concat();
    let charts = table
        .chart
        .into_iter()
        .map(|chart| checked_chart(chart, &series))
        .collect::<Located<Vec<_>>>()?;
    Ok(Plan {
        name: table.name.into_inner(),
        title: table.title,
        text: text.to_owned(),
        folder: folder.to_path_buf(),
        seed: table.seed,
        budget_s,
        site,
        servers,
        placements,
        series,
        goals,
        charts,
    })
}

/// A chart of series and factors that are there.
fn checked_chart(chart: Spanned<Chart>, series: &[Series]) -> Located<Chart> {
    let fail = at(&chart);
    let chart = chart.into_inner();
    let factors = factor_names(series, &chart.series);
    if factors.is_empty() {
        let names: Vec<&str> = series.iter().map(|series| series.name.as_str()).collect();
        let names = names.join(", ");
        return Err(fail(format!(
            "chart: no series `{}`; right would be one of {names}",
            chart.series
        )));
    }
    let checked = chart.check(&factors);
    checked.map_err(|message| fail(format!("chart: {message}")))?;
    Ok(chart)
}

fn budget(seconds: &Spanned<f64>) -> Located<f64> {
    match *seconds.get_ref() {
        some if some > 0.0 && some.is_finite() => Ok(some),
        some => Err(at(seconds)(format!(
            "budget_s {some} is no time; right would be 1200 for 20 minutes"
        ))),
    }
}

fn site(
    root: Option<&Spanned<String>>,
    files: Option<&Spanned<BTreeMap<String, u64>>>,
    folder: &Path,
) -> Located<Site> {
    match (root, files) {
        (Some(root), None) => Ok(Site::Folder(folder.join(root.get_ref()))),
        (Some(root), Some(_)) => Err(at(root)(
            "root and files exclude each other; right would be one of them".to_owned(),
        )),
        (None, None) => Ok(Site::Made(BTreeMap::new())),
        (None, Some(files)) => {
            for path in files.get_ref().keys() {
                check_file_name(path).map_err(at(files))?;
            }
            check_site_bytes(files.get_ref()).map_err(at(files))?;
            Ok(Site::Made(files.get_ref().clone()))
        }
    }
}

/// Whether files of these sizes are few enough bytes together.
pub(crate) fn check_site_bytes(files: &BTreeMap<String, u64>) -> Result<(), ValueError> {
    let sizes = files.values();
    match sizes.fold(0_u64, |sum, size| sum.saturating_add(*size)) {
        0..=SITE_BYTES_MAX => Ok(()),
        sum => Err(ValueError::new(
            format!("{sum} bytes of files"),
            format!("{SITE_BYTES_MAX} at most"),
        )),
    }
}

/// A path below the root, of plain names.
fn check_file_name(path: &str) -> Result<(), ValueError> {
    let is_plain = |part: &str| {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        !part.is_empty() && !part.starts_with('.') && part.bytes().all(is_known)
    };
    if path.split('/').all(is_plain) {
        return Ok(());
    }
    Err(ValueError::from(format!(
        "`{}` is not a path of plain names; right would be \"index.html\" or \"videos/a.mp4\"",
        path.escape_debug()
    )))
}

fn server(name: String, table: Spanned<ServerTable>) -> Located<Server> {
    let span = table.span();
    let fail = |problem: String| (span.clone(), format!("server {name}: {problem}").into());
    let table = table.into_inner();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_plain) {
        return Err(fail(
            "a name is letters, digits and -._+; right would be reactor-2".to_owned(),
        ));
    }
    let kind = match (&table.kind, table.command.is_empty()) {
        (None, false) => ServerKind::Command,
        (None, true) => ServerKind::parse(&name)
            .filter(|kind| *kind != ServerKind::Command)
            .ok_or_else(|| {
                fail(format!(
                    "neither kind nor command is given; right would be kind = one of {}, or command = \
                     [\"PROGRAM\", \"{{port}}\", \"{{root}}\"]",
                    kinds()
                ))
            })?,
        (Some(kind), is_empty) => {
            let known = ServerKind::parse(kind).ok_or_else(|| {
                fail(format!("kind {kind} is not known; right would be one of {}", kinds()))
            })?;
            if (known == ServerKind::Command) == is_empty {
                return Err(fail(
                    "a command goes with kind = \"command\", and with no other".to_owned(),
                ));
            }
            known
        }
    };
    if kind != ServerKind::Command && (table.configuration.is_some() || !table.version.is_empty()) {
        return Err(fail(format!(
            "configuration and version go with a command; {} has its own",
            kind.name()
        )));
    }
    let server = Server {
        kind,
        spec: ServerSpec::Other(Table::new()),
        command: table.command,
        configuration: table.configuration,
        version: table.version,
        optional: table.optional,
        is_reference: table.reference,
        name: name.clone(),
    };
    let options = options(&table.options).map_err(|error| fail(error.to_string()))?;
    let server = server.with_options(&options);
    server.map_err(|error| fail(error.to_string()))
}

fn kinds() -> String {
    let names: Vec<&str> = ServerKind::ALL.iter().map(|kind| kind.name()).collect();
    names.join(", ")
}

fn placement(name: &str, table: &Spanned<CpusTable>) -> Located<Placement> {
    if Placement::NAMES.contains(&name) {
        return Err(at(table)(format!(
            "cpus {name} has a meaning already; right would be another name"
        )));
    }
    let list = |text: &str| {
        let cpus = text.replace(' ', "").parse::<Cpus>();
        cpus.map(|cpus| cpus.0).map_err(|_| {
            at(table)(format!(
                "cpus {name}: `{text}` is not a list of CPUs; right would be 1 or 0,2-3"
            ))
        })
    };
    Ok(Placement {
        server: list(&table.get_ref().server)?,
        client: list(&table.get_ref().client)?,
    })
}
