//! Scenario files: TOML in, a script out, or one line that says what is wrong and where.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Mutex;
use std::time::SystemTime;

use loadline_proto::Method;
use loadline_record::StepReport;
use loadline_spec::toml_file::{self, Located, at};
use loadline_spec::values::duration;
use loadline_spec::{SpecError, ValueError};
use serde::Deserialize;
use thiserror::Error;
use toml::Spanned;
use url::form_urlencoded::byte_serialize;

use super::capture::Capture;
use super::script::{Content, Script, Step, Think, has_header};
use super::table;
use super::template::{Names, Template};

/// A scenario is written by hand.
const SCENARIO_BYTES_MAX: u64 = 1 << 20;
/// Some millions of users.
const USERS_BYTES_MAX: u64 = 256 << 20;
/// A body is kept once and copied for each request that is on its way.
const BODY_BYTES_MAX: u64 = 64 << 20;
/// Redirects that `follow = true` follows: as many as curl's users usually allow.
const FOLLOW_MAX: u32 = 10;
/// Fields that are the client's own to set.
const OWN_FIELDS: [&str; 5] = [
    "Connection",
    "Content-Length",
    "Cookie",
    "Transfer-Encoding",
    "Upgrade",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScenarioTable {
    repeat: Option<Spanned<u64>>,
    #[serde(default)]
    keep_state: bool,
    #[serde(default)]
    send_secure_cookies: bool,
    follow: Option<Spanned<Follow>>,
    #[serde(default)]
    headers: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    variables: BTreeMap<String, Spanned<String>>,
    users: Option<UsersTable>,
    #[serde(default)]
    setup: Vec<Spanned<StepTable>>,
    #[serde(default)]
    step: Vec<Spanned<StepTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UsersTable {
    file: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepTable {
    name: Option<String>,
    method: Option<Spanned<String>>,
    path: Spanned<String>,
    #[serde(default)]
    headers: BTreeMap<String, Spanned<String>>,
    form: Option<Spanned<BTreeMap<String, OneOrMore>>>,
    body: Option<Spanned<String>>,
    body_file: Option<Spanned<String>>,
    think: Option<Spanned<ThinkTable>>,
    follow: Option<Spanned<Follow>>,
    #[serde(default)]
    expect: ExpectTable,
    #[serde(default)]
    capture: BTreeMap<String, Spanned<Capture>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectTable {
    status: Option<Spanned<Statuses>>,
    contains: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a text or a list of texts")]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a status or a list of statuses")]
enum Statuses {
    One(u16),
    More(Vec<u16>),
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected true, false or how many redirects are followed"
)]
enum Follow {
    Any(bool),
    Most(u32),
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a time as \"2s\", or the least and the most as [\"1s\", \"3s\"]"
)]
enum ThinkTable {
    Always(String),
    Between(String, String),
}

/// Why a scenario cannot be used, in one line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("{0}")]
    File(ValueError),
    /// Something in it is wrong.
    #[error("{file}:{line}: {error}")]
    Line {
        /// The file.
        file: String,
        /// Its line, from 1.
        line: usize,
        /// What is wrong, and what would be right.
        error: ValueError,
    },
}

impl From<ScenarioError> for SpecError {
    fn from(error: ScenarioError) -> Self {
        Self::from(error.to_string())
    }
}

/// Reads a scenario file and the files that it names, which are looked for beside it.
pub(super) fn read(path: &Path) -> Result<Script, ScenarioError> {
    let text = read_text(path, SCENARIO_BYTES_MAX).map_err(ScenarioError::File)?;
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    parse(&text, &path.display().to_string(), folder)
}

/// The same from a text; `name` stands for the file in messages.
pub(super) fn parse(text: &str, name: &str, folder: &Path) -> Result<Script, ScenarioError> {
    let at = |at: usize, error: ValueError| ScenarioError::Line {
        file: name.to_owned(),
        line: memchr::memchr_iter(b'\n', &text.as_bytes()[..at.min(text.len())]).count() + 1,
        error,
    };
    let table = toml_file::parse(text).and_then(|table| toml_file::read_table(&table));
    let script = table.and_then(|table| script(table, folder));
    script.map_err(|(span, error)| at(span.start, error))
}

fn script(table: ScenarioTable, folder: &Path) -> Located<Script> {
    let mut names = Names::new();
    for (name, value) in &table.variables {
        names.constant(name, value.get_ref()).map_err(at(value))?;
    }
    let rows = match &table.users {
        Some(users) => user_rows(&users.file, folder, &mut names)?,
        None => Vec::new(),
    };
    if let Some(repeat) = &table.repeat
        && *repeat.get_ref() == 0
    {
        let right = "1 or more, or no `repeat` for as often as there is time";
        return wrong(repeat, "repeat 0 is nothing", right);
    }
    if table.step.is_empty() {
        let right = "[[step]] with path = \"/\"";
        return Err((0..0, ValueError::new("no steps", right)));
    }
    let common = Common {
        headers: &table.headers,
        follow_max: table.follow.as_ref().map_or(0, follow_max),
        folder,
    };
    let setup_count = table.setup.len();
    let numbered = |kind: &'static str, steps: Vec<Spanned<StepTable>>| {
        let named = move |(index, step)| (format!("{kind} {}", index + 1), step);
        steps.into_iter().enumerate().map(named)
    };
    let setup = numbered("setup", table.setup);
    let steps = setup
        .chain(numbered("step", table.step))
        .map(|(number, step)| common.step(number, step, &mut names))
        .collect::<Located<Vec<_>>>()?;
    Ok(Script {
        steps,
        setup_count,
        repeat: table.repeat.map(Spanned::into_inner),
        keeps_state: table.keep_state,
        sends_secure_cookies: table.send_secure_cookies,
        rows,
        captured_count: names.captured_count(),
        read_at: SystemTime::now(),
    })
}

/// What is wrong at a place, and what would be right.
fn wrong<T, P>(
    place: &Spanned<P>,
    problem: impl Into<Cow<'static, str>>,
    right: impl Into<Cow<'static, str>>,
) -> Located<T> {
    Err((place.span(), ValueError::new(problem, right)))
}

fn user_rows(
    file: &Spanned<String>,
    folder: &Path,
    names: &mut Names,
) -> Located<Vec<Vec<String>>> {
    let path = folder.join(file.get_ref());
    let text = read_text(&path, USERS_BYTES_MAX).map_err(at(file))?;
    let in_line = |(line, error): (usize, ValueError)| {
        at(file)(format!("{}:{line}: {error}", path.display()))
    };
    let users = table::parse(&text).map_err(in_line)?;
    for (index, column) in users.columns.iter().enumerate() {
        let named = names.column(column, index);
        named.map_err(|error| in_line((1, error)))?;
    }
    Ok(users.rows)
}

/// What the file says for all steps.
struct Common<'f> {
    headers: &'f BTreeMap<String, Spanned<String>>,
    follow_max: u32,
    folder: &'f Path,
}

impl Common<'_> {
    /// Messages about a step say which; one without a name is called by its number.
    fn step(&self, number: String, step: Spanned<StepTable>, names: &mut Names) -> Located<Step> {
        let name = step.get_ref().name.clone().unwrap_or(number);
        let named = |(span, error)| (span, format!("{name}: {error}").into());
        self.named_step(step.into_inner(), name.clone(), names)
            .map_err(named)
    }

    fn named_step(&self, table: StepTable, name: String, names: &mut Names) -> Located<Step> {
        let content = content(&table, names, self.folder)?;
        let (contains, status) = (&table.expect.contains, &table.expect.status);
        let contains = contains.as_ref().map(|text| template(text, names));
        let step = Step {
            counts: Mutex::new(StepReport {
                name,
                ..StepReport::default()
            }),
            method: method(table.method.as_ref(), &content)?,
            path: path(&table.path, names)?,
            headers: self.headers(&table, &content, names)?,
            content,
            think: think(table.think.as_ref())?,
            statuses: status.as_ref().map_or(Ok(Vec::new()), statuses)?,
            contains: contains.transpose()?,
            follow_max: table.follow.as_ref().map_or(self.follow_max, follow_max),
            captures: captures(&table.capture, names)?,
        };
        if step.method == Method::Head && step.needs_content() {
            return wrong(&table.path, "a response to HEAD has no content", "GET");
        }
        Ok(step)
    }

    /// Those of the step, then those of the file that the step has not.
    fn headers(
        &self,
        table: &StepTable,
        content: &Content,
        names: &Names,
    ) -> Located<Vec<(String, Template)>> {
        let mut headers: Vec<(String, Template)> = Vec::new();
        for (name, value) in table.headers.iter().chain(self.headers) {
            if has_header(&headers, name) {
                continue;
            }
            check_header(name, value)?;
            headers.push((name.clone(), template(value, names)?));
        }
        if matches!(content, Content::Form(_)) && !has_header(&headers, "Content-Type") {
            let kind = names
                .template("application/x-www-form-urlencoded")
                .unwrap_or_default();
            headers.push(("Content-Type".to_owned(), kind));
        }
        Ok(headers)
    }
}

fn check_header(name: &str, value: &Spanned<String>) -> Located<()> {
    let problem = |problem: String| Err((value.span(), problem.into()));
    if http::HeaderName::from_bytes(name.as_bytes()).is_err() {
        return problem(format!("`{name}` is not the name of a header"));
    }
    if OWN_FIELDS.iter().any(|own| own.eq_ignore_ascii_case(name)) {
        let problem = format!("the header {name} is set by the client itself");
        return wrong(value, problem, "without it");
    }
    let is_control = |byte: u8| byte.is_ascii_control() && byte != b'\t';
    if value.get_ref().bytes().any(is_control) {
        return problem(format!("a control character in the header {name}"));
    }
    Ok(())
}

fn content(table: &StepTable, names: &Names, folder: &Path) -> Located<Content> {
    let spans = [
        table.form.as_ref().map(Spanned::span),
        table.body.as_ref().map(Spanned::span),
        table.body_file.as_ref().map(Spanned::span),
    ];
    if let Some(second) = spans.into_iter().flatten().nth(1) {
        let problem = "more than one of `form`, `body` and `body_file`";
        return Err((second, ValueError::new(problem, "one")));
    }
    if let Some(form) = &table.form {
        let mut fields = Vec::new();
        for (name, values) in form.get_ref() {
            let encoded: String = byte_serialize(name.as_bytes()).collect();
            let values = match values {
                OneOrMore::One(value) => std::slice::from_ref(value),
                OneOrMore::More(values) => values,
            };
            for value in values {
                let value = names.template(value).map_err(at(form))?;
                fields.push((encoded.clone(), value));
            }
        }
        return Ok(Content::Form(fields));
    }
    if let Some(body) = &table.body {
        return Ok(Content::Text(template(body, names)?));
    }
    if let Some(file) = &table.body_file {
        let bytes = read_bytes(&folder.join(file.get_ref()), BODY_BYTES_MAX);
        return Ok(Content::File(bytes.map_err(at(file))?));
    }
    Ok(Content::Nothing)
}

/// POST if there is content, otherwise GET, unless it is said.
fn method(named: Option<&Spanned<String>>, content: &Content) -> Located<Method> {
    let Some(named) = named else {
        return Ok(match content {
            Content::Nothing => Method::Get,
            _ => Method::Post,
        });
    };
    match Method::from_token(named.get_ref().as_bytes()) {
        None | Some(Method::Connect | Method::Trace) => wrong(
            named,
            format!("the method `{}` cannot be sent", named.get_ref()),
            "GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS",
        ),
        Some(method) => Ok(method),
    }
}

fn path(text: &Spanned<String>, names: &Names) -> Located<Template> {
    let template = template(text, names)?;
    let first = template.first_text();
    let is_absolute = first.is_none_or(|first| first.starts_with('/'));
    let is_clean = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
    if !is_absolute || !template.texts().flat_map(str::bytes).all(is_clean) {
        return wrong(
            text,
            format!("`{}` is not a path", text.get_ref()),
            "/a/path?and=query, with other characters percent-encoded, or {{variable}} with a link \
             that an earlier step captured",
        );
    }
    Ok(template)
}

fn template(text: &Spanned<String>, names: &Names) -> Located<Template> {
    names.template(text.get_ref()).map_err(at(text))
}

fn follow_max(follow: &Spanned<Follow>) -> u32 {
    match follow.get_ref() {
        Follow::Any(false) => 0,
        Follow::Any(true) => FOLLOW_MAX,
        Follow::Most(count) => *count,
    }
}

fn statuses(statuses: &Spanned<Statuses>) -> Located<Vec<u16>> {
    let list = match statuses.get_ref() {
        Statuses::One(status) => vec![*status],
        Statuses::More(list) => list.clone(),
    };
    match list.iter().find(|status| !(200..=599).contains(*status)) {
        Some(status) => wrong(
            statuses,
            format!("{status} is not the status of a response"),
            "200 to 599",
        ),
        None => Ok(list),
    }
}

fn captures(
    table: &BTreeMap<String, Spanned<Capture>>,
    names: &mut Names,
) -> Located<Vec<(usize, Capture)>> {
    let mut captures = Vec::new();
    for (name, place) in table {
        let index = names.captured(name).map_err(at(place))?;
        let capture = place.get_ref();
        if matches!(capture, Capture::Between(one, other) if one.is_empty() || other.is_empty()) {
            return wrong(place, "between an empty text", "two texts");
        }
        captures.push((index, capture.clone()));
    }
    Ok(captures)
}

fn think(table: Option<&Spanned<ThinkTable>>) -> Located<Think> {
    let Some(table) = table else {
        return Ok(Think::default());
    };
    let ns = |text: &str| duration_ns(text).map_err(at(table));
    let (least, most) = match table.get_ref() {
        ThinkTable::Always(text) => (text, text),
        ThinkTable::Between(least, most) => (least, most),
    };
    let think = Think {
        least_ns: ns(least)?,
        most_ns: ns(most)?,
    };
    if think.least_ns > think.most_ns {
        return wrong(
            table,
            "the least is more than the most",
            "the other way round",
        );
    }
    Ok(think)
}

/// `500ms`, `2s`, `1.5s`, `3m` in nanoseconds.
fn duration_ns(text: &str) -> Result<u64, ValueError> {
    let time = duration(text).map_err(|_| {
        let problem = format!("`{text}` is not a time");
        ValueError::new(problem, "500ms, 2s or 1m, at most 24h")
    })?;
    Ok(time.as_nanos() as u64) // at most a day
}

fn read_text(path: &Path, bytes_max: u64) -> Result<String, ValueError> {
    String::from_utf8(read_bytes(path, bytes_max)?)
        .map_err(|_| format!("{}: not UTF-8", path.display()).into())
}

fn read_bytes(path: &Path, bytes_max: u64) -> Result<Vec<u8>, ValueError> {
    let mut bytes = Vec::new();
    let outcome =
        File::open(path).and_then(|file| file.take(bytes_max + 1).read_to_end(&mut bytes));
    outcome.map_err(|error| format!("{}: {error}", path.display()))?;
    if bytes.len() as u64 > bytes_max {
        let (path, mebibytes) = (path.display(), bytes_max >> 20);
        return Err(format!("{path}: larger than {mebibytes} MiB").into());
    }
    Ok(bytes)
}
