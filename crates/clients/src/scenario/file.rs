//! Scenario files: TOML in, a script out, or one line that says what is wrong and where.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::time::SystemTime;

use loadline_proto::Method;
use serde::Deserialize;
use toml::Spanned;

use super::capture::Capture;
use super::script::{Content, Script, Step, StepCounts, Think};
use super::table;
use super::template::{Names, Template, push_form};

/// A scenario is written by hand.
const SCENARIO_BYTES_MAX: u64 = 1 << 20;
/// Some millions of users.
const USERS_BYTES_MAX: u64 = 256 << 20;
/// A body is kept once and copied for each request that is on its way.
const BODY_BYTES_MAX: u64 = 64 << 20;
/// Redirects that `follow = true` follows: as many as curl's users usually allow.
const FOLLOW_MAX: u32 = 10;
/// Beyond that the unit was mistaken.
const THINK_NS_MAX: u64 = 24 * 3600 * 1_000_000_000;
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
    capture: BTreeMap<String, Spanned<CaptureTable>>,
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

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum CaptureTable {
    FormField(String),
    Meta(String),
    Header(String),
    Cookie(String),
    Between(String, String),
}

/// A message, and which bytes of the file it is about.
type Located<T> = Result<T, (Range<usize>, String)>;

/// Reads a scenario file and the files that it names, which are looked for beside it.
///
/// # Errors
/// One line with the file, its line, what is wrong and what would be right.
pub(super) fn read(path: &Path) -> Result<Script, String> {
    let text = read_text(path, SCENARIO_BYTES_MAX)?;
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    parse(&text, &path.display().to_string(), folder)
}

/// The same from a text; `name` stands for the file in messages.
pub(super) fn parse(text: &str, name: &str, folder: &Path) -> Result<Script, String> {
    let line = |at: usize| {
        text.as_bytes()[..at.min(text.len())]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count()
            + 1
    };
    let table: ScenarioTable = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let message = error.message().replace('\n', " ");
        format!("{name}:{}: {message}", line(at))
    })?;
    script(table, folder)
        .map_err(|(span, message)| format!("{name}:{}: {message}", line(span.start)))
}

fn script(table: ScenarioTable, folder: &Path) -> Located<Script> {
    let mut names = Names::new();
    for (name, value) in &table.variables {
        names.constant(name, value.get_ref()).map_err(at(value))?;
    }
    let mut rows = Vec::new();
    if let Some(users) = &table.users {
        let users = users_table(&users.file, folder, &mut names)?;
        rows = users.rows;
    }
    if let Some(repeat) = &table.repeat
        && *repeat.get_ref() == 0
    {
        return Err((
            repeat.span(),
            "repeat 0 is nothing; right would be 1 or more, or no `repeat` for as \
             often as there is time"
                .to_owned(),
        ));
    }
    if table.step.is_empty() {
        return Err((
            0..0,
            "no steps; right would be [[step]] with path = \"/\"".to_owned(),
        ));
    }
    let follow_max = table.follow.as_ref().map_or(0, follow_max);
    let common = Common {
        headers: &table.headers,
        follow_max,
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

/// Puts a place to a message.
fn at<T>(place: &Spanned<T>) -> impl Fn(String) -> (Range<usize>, String) + use<T> {
    let span = place.span();
    move |message| (span.clone(), message)
}

fn users_table(file: &Spanned<String>, folder: &Path, names: &mut Names) -> Located<table::Table> {
    let path = folder.join(file.get_ref());
    let text = read_text(&path, USERS_BYTES_MAX).map_err(at(file))?;
    let users = table::parse(&text)
        .map_err(|(line, message)| at(file)(format!("{}:{line}: {message}", path.display())))?;
    for (index, column) in users.columns.iter().enumerate() {
        names
            .column(column, index)
            .map_err(|message| at(file)(format!("{}:1: {message}", path.display())))?;
    }
    Ok(users)
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
        let named = |(span, message)| (span, format!("{name}: {message}"));
        self.named_step(step.into_inner(), name.clone(), names)
            .map_err(named)
    }

    fn named_step(&self, table: StepTable, name: String, names: &mut Names) -> Located<Step> {
        let content = content(&table, names, self.folder)?;
        let step = Step {
            name,
            method: method(table.method.as_ref(), &content)?,
            path: path(&table.path, names)?,
            headers: self.headers(&table, &content, names)?,
            content,
            think: think(table.think.as_ref())?,
            statuses: table
                .expect
                .status
                .as_ref()
                .map_or(Ok(Vec::new()), statuses)?,
            contains: template(table.expect.contains.as_ref(), names)?,
            follow_max: table.follow.as_ref().map_or(self.follow_max, follow_max),
            captures: captures(&table.capture, names)?,
            counts: StepCounts::default(),
        };
        if step.method == Method::Head && step.needs_content() {
            return Err((
                table.path.span(),
                "an answer to HEAD has no content; right would be GET".to_owned(),
            ));
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
            if has(&headers, name) {
                continue;
            }
            check_header(name, value)?;
            headers.push((
                name.clone(),
                names.template(value.get_ref()).map_err(at(value))?,
            ));
        }
        if matches!(content, Content::Form(_)) && !has(&headers, "Content-Type") {
            let kind = names
                .template("application/x-www-form-urlencoded")
                .unwrap_or_default();
            headers.push(("Content-Type".to_owned(), kind));
        }
        Ok(headers)
    }
}

fn has(headers: &[(String, Template)], name: &str) -> bool {
    headers
        .iter()
        .any(|(one, _)| one.eq_ignore_ascii_case(name))
}

fn check_header(name: &str, value: &Spanned<String>) -> Located<()> {
    let fail = |message| Err((value.span(), message));
    if http::HeaderName::from_bytes(name.as_bytes()).is_err() {
        return fail(format!("`{name}` is not the name of a header"));
    }
    if OWN_FIELDS.iter().any(|own| own.eq_ignore_ascii_case(name)) {
        return fail(format!(
            "the header {name} is set by the client itself; right would be without it"
        ));
    }
    if value
        .get_ref()
        .bytes()
        .any(|byte| byte.is_ascii_control() && byte != b'\t')
    {
        return fail(format!("a control character in the header {name}"));
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
        return Err((
            second,
            "more than one of `form`, `body` and `body_file`; right would be one".to_owned(),
        ));
    }
    if let Some(form) = &table.form {
        let mut fields = Vec::new();
        for (name, values) in form.get_ref() {
            let mut encoded = Vec::new();
            push_form(name.as_bytes(), &mut encoded);
            let encoded = String::from_utf8_lossy(&encoded).into_owned();
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
        return Ok(Content::Text(
            names.template(body.get_ref()).map_err(at(body))?,
        ));
    }
    match &table.body_file {
        Some(file) => {
            let path = folder.join(file.get_ref());
            let bytes = read_bytes(&path, BODY_BYTES_MAX).map_err(at(file))?;
            Ok(Content::File(bytes))
        }
        None => Ok(Content::Nothing),
    }
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
        None | Some(Method::Connect | Method::Trace) => Err((
            named.span(),
            format!(
                "the method `{}` cannot be sent; right would be GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS",
                named.get_ref()
            ),
        )),
        Some(method) => Ok(method),
    }
}

fn path(text: &Spanned<String>, names: &Names) -> Located<Template> {
    let template = names.template(text.get_ref()).map_err(at(text))?;
    let is_absolute = template
        .first_text()
        .is_none_or(|first| first.starts_with('/'));
    let is_clean = template.texts().all(|part| {
        part.bytes()
            .all(|byte| (0x21..=0x7e).contains(&byte) && byte != b'#')
    });
    if !is_absolute || !is_clean {
        return Err((
            text.span(),
            format!(
                "`{}` is not a path; right would be /a/path?and=query, with other characters \
                 percent-encoded, or {{{{variable}}}} with a link that an earlier step captured",
                text.get_ref()
            ),
        ));
    }
    Ok(template)
}

fn template(text: Option<&Spanned<String>>, names: &Names) -> Located<Option<Template>> {
    text.map(|text| names.template(text.get_ref()).map_err(at(text)))
        .transpose()
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
        Some(status) => Err((
            statuses.span(),
            format!("{status} is not the status of an answer; right would be 200 to 599"),
        )),
        None => Ok(list),
    }
}

fn captures(
    table: &BTreeMap<String, Spanned<CaptureTable>>,
    names: &mut Names,
) -> Located<Vec<(usize, Capture)>> {
    let mut captures = Vec::new();
    for (name, place) in table {
        let index = names.captured(name).map_err(at(place))?;
        let capture = match place.get_ref() {
            CaptureTable::FormField(field) => Capture::FormField(field.clone()),
            CaptureTable::Meta(name) => Capture::Meta(name.clone()),
            CaptureTable::Header(name) => Capture::Header(name.clone()),
            CaptureTable::Cookie(name) => Capture::Cookie(name.clone()),
            CaptureTable::Between(first, second) if first.is_empty() || second.is_empty() => {
                return Err((
                    place.span(),
                    "between an empty text; right would be two texts".to_owned(),
                ));
            }
            CaptureTable::Between(first, second) => Capture::Between(first.clone(), second.clone()),
        };
        captures.push((index, capture));
    }
    Ok(captures)
}

fn think(table: Option<&Spanned<ThinkTable>>) -> Located<Think> {
    let Some(table) = table else {
        return Ok(Think::default());
    };
    let ns = |text: &str| duration_ns(text).map_err(at(table));
    let think = match table.get_ref() {
        ThinkTable::Always(text) => Think {
            least_ns: ns(text)?,
            most_ns: ns(text)?,
        },
        ThinkTable::Between(least, most) => Think {
            least_ns: ns(least)?,
            most_ns: ns(most)?,
        },
    };
    if think.least_ns > think.most_ns {
        let message = "the least is more than the most; right would be the other way round";
        return Err((table.span(), message.to_owned()));
    }
    Ok(think)
}

/// `500ms`, `2s`, `1.5s`, `3m` in nanoseconds.
fn duration_ns(text: &str) -> Result<u64, String> {
    let fail = || format!("`{text}` is not a time; right would be 500ms, 2s or 1m, at most 24h");
    let unit_at = text
        .find(|c: char| c.is_ascii_alphabetic())
        .ok_or_else(fail)?;
    let (number, unit) = text.split_at(unit_at);
    let unit_ns = match unit {
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        "h" => 3600e9,
        _ => return Err(fail()),
    };
    let is_number = number
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number: f64 = number.parse().map_err(|_| fail())?;
    let ns = number * unit_ns;
    if !is_number || ns > THINK_NS_MAX as f64 {
        return Err(fail());
    }
    // Within 24 h by the line above.
    Ok(ns.round() as u64)
}

fn read_text(path: &Path, bytes_max: u64) -> Result<String, String> {
    String::from_utf8(read_bytes(path, bytes_max)?)
        .map_err(|_| format!("{}: not UTF-8", path.display()))
}

fn read_bytes(path: &Path, bytes_max: u64) -> Result<Vec<u8>, String> {
    let fail = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(fail)?;
    file.take(bytes_max + 1)
        .read_to_end(&mut bytes)
        .map_err(fail)?;
    if bytes.len() as u64 > bytes_max {
        return Err(format!(
            "{}: larger than {} MiB",
            path.display(),
            bytes_max >> 20
        ));
    }
    Ok(bytes)
}
