//! Whether a report says what the raw files say: everything is derived again and compared.
//!
//! Two steps, since a report is derived in two. First each trial: the HDR log has every latency second
//! by second, written apart from the journal, and must come to the journal's distributions; those of
//! the phases must come to the totals. Then the report: it is made again from the journal, and every
//! number of the file is compared with the new one.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Component, Path};

use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry, LogIteratorError};
use hdrhistogram::{AdditionError, Histogram};
use loadline_record::distribution::{HistogramError, from_text};
use loadline_record::{Distribution, GroupRecord, Results, Tally, TrialRecord, latencies};
use serde_json::Value;
use thiserror::Error;

use crate::analysis::{Run, spectrum};
use crate::file_error::FileError;
use crate::journal::{JournalError, Trial};
use crate::report::page::{DATA_BEGIN, DATA_END, page};
use crate::report::{Report, ReportError};

/// What is read of a report or an HDR log: far beyond what any run writes.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// More are not read by anybody.
const DIFFERENCES_MAX: usize = 50;

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// Trials of which the journal was checked against the HDR log.
    pub trials: usize,
    /// Latencies in those logs.
    pub latencies: u64,
    /// Numbers of the report that were derived again.
    pub numbers: usize,
    /// What differs, in sentences: at most `DIFFERENCES_MAX` of them.
    pub differences: Vec<String>,
    /// What could not be checked, and why.
    pub unchecked: Vec<String>,
}

/// Why a report cannot be compared: one line.
#[derive(Debug, Error)]
pub enum VerifyError {
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A report or a log cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The report cannot be derived.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// The file is no report, or its data is broken.
    #[error("{file}: {problem}")]
    NoReport {
        /// The file.
        file: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
}

impl Verification {
    fn differs(&mut self, what: String) {
        if self.differences.len() < DIFFERENCES_MAX {
            self.differences.push(what);
        }
    }
}

/// Compares the report in `file` with the run in `folder`, of which `report` was made just now.
///
/// # Errors
/// A file cannot be read, or is not what it should be.
pub fn verify(folder: &Path, file: &Path, report: &Report) -> Result<Verification, VerifyError> {
    let mut outcome = Verification::default();
    Run::each_trial(folder, |trial| {
        check_trial(folder, trial, &mut outcome);
        Ok::<(), JournalError>(())
    })?;
    let text = read(file)?;
    // By text, as the page has it.
    let derived = serde_json::to_vec(report).and_then(|json| serde_json::from_slice(&json));
    let derived: Value = derived.map_err(ReportError::from)?;
    let said = data_of(&text).map_err(|problem| VerifyError::NoReport {
        file: file.display().to_string(),
        problem,
    })?;
    compare("report", &said, &derived, &mut outcome);
    if outcome.differences.is_empty() {
        compare_pages(&text, &page(report)?, &mut outcome);
    }
    Ok(outcome)
}

fn read(path: &Path) -> Result<String, FileError> {
    let mut text = String::new();
    let read =
        fs::File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text));
    read.map(|_| text).map_err(FileError::of(path))
}

/// The data in a report, or what is wrong with it.
fn data_of(page: &str) -> Result<Value, String> {
    let found = page.split_once(DATA_BEGIN);
    let (_, rest) = found.ok_or("no data; right would be a file of loadline lab report")?;
    let (json, _) = rest.split_once(DATA_END).ok_or("its data has no end")?;
    serde_json::from_slice(json.as_bytes()).map_err(|error| format!("its data: {error}"))
}

/// Every value below `path`.
fn compare(path: &str, said: &Value, derived: &Value, outcome: &mut Verification) {
    match (said, derived) {
        (Value::Object(one), Value::Object(other)) => {
            for (name, derived) in other {
                let said = one.get(name).unwrap_or(&Value::Null);
                compare(&format!("{path}.{name}"), said, derived, outcome);
            }
            for name in one.keys().filter(|name| !other.contains_key(*name)) {
                outcome.differs(format!("{path}.{name} is not in what was derived"));
            }
        }
        (Value::Array(one), Value::Array(other)) => {
            if one.len() != other.len() {
                let (one, other) = (one.len(), other.len());
                outcome.differs(format!("{path} has {one} entries, derived are {other}"));
            }
            for (index, (said, derived)) in one.iter().zip(other).enumerate() {
                compare(&format!("{path}[{index}]"), said, derived, outcome);
            }
        }
        _ => {
            outcome.numbers += usize::from(derived.is_number());
            if said != derived {
                outcome.differs(format!("{path} is {said}, derived is {derived}"));
            }
        }
    }
}

/// The tables and pictures beside the data: of the same version, the whole file is the same.
fn compare_pages(text: &str, derived: &str, outcome: &mut Verification) {
    if generator(text) != generator(derived) {
        outcome
            .unchecked
            .push("tables and pictures: another version of Loadline made the report".to_owned());
        return;
    }
    let mut lines = text.lines().zip(derived.lines()).zip(1..);
    if let Some((_, line)) = lines.find(|((one, other), _)| one != other) {
        outcome.differs(format!(
            "line {line} of the report is not the one that was derived"
        ));
    } else if text.len() != derived.len() {
        outcome.differs("the report is not as long as the one that was derived".to_owned());
    }
}

fn generator(page: &str) -> Option<&str> {
    let mut lines = page.lines();
    lines.find(|line| line.contains("name=\"generator\""))
}

fn check_trial(folder: &Path, trial: &Trial, outcome: &mut Verification) {
    let name = format!("trial {}", trial.number);
    let Some(load) = &trial.load else {
        outcome
            .unchecked
            .push(format!("{name}: nothing was measured"));
        return;
    };
    for group in &load.groups {
        check_phases(&name, load, group, outcome);
    }
    let Some(file) = &trial.hdr_file else {
        outcome.unchecked.push(format!("{name}: it has no HDR log"));
        return;
    };
    // The journal may come from anywhere.
    let is_below = |part: Component<'_>| matches!(part, Component::Normal(_));
    if !Path::new(file).components().all(is_below) {
        outcome.differs(format!(
            "{name}: its HDR log {file} is not below the run's folder"
        ));
        return;
    }
    let log = match read(&folder.join(file)) {
        Ok(log) => log,
        Err(error) => return outcome.differs(format!("{name}: {error}")),
    };
    match sums(&log) {
        Err(error) => outcome.differs(format!("{name}: its HDR log: {error}")),
        Ok(sums) => {
            outcome.trials += 1;
            check_log(&name, load, &sums, outcome);
        }
    }
}

/// Latencies of a group, or service times.
type Sums = BTreeMap<String, Histogram<u64>>;

/// What is wrong with an HDR log.
#[derive(Debug, Error)]
enum LogError {
    #[error("{0:?}")]
    Line(LogIteratorError),
    #[error(transparent)]
    Histogram(#[from] HistogramError),
    #[error(transparent)]
    Addition(#[from] AdditionError),
}

/// By tag, warm-up or not.
fn sums(log: &str) -> Result<Sums, LogError> {
    let mut sums = Sums::new();
    for entry in IntervalLogIterator::new(log.as_bytes()) {
        let LogEntry::Interval(interval) = entry.map_err(LogError::Line)? else {
            continue;
        };
        let histogram = from_text(interval.encoded_histogram())?;
        let tag = interval.tag().map_or("", |tag| tag.as_str());
        let tag = tag.strip_prefix("warm-up.").unwrap_or(tag);
        let sum = sums.entry(tag.to_owned()).or_insert_with(latencies);
        sum.add(&histogram)?;
    }
    Ok(sums)
}

/// Of a group or of a phase, which times of its responses.
type Times = fn(&Results) -> &Distribution;

/// Both, as an HDR log names them.
const TIMES: [(&str, Times); 2] = [("latency", |it| &it.latency), ("service", |it| &it.service)];

/// All intervals of a group together hold every answer, as all phases together do.
fn check_log(name: &str, load: &TrialRecord, sums: &Sums, outcome: &mut Verification) {
    for (index, group) in load.groups.iter().enumerate() {
        let prefix = match index {
            0 => String::new(),
            _ => group.name.replace([',', ' ', '\r', '\n'], "-") + ".",
        };
        for (tag, times) in TIMES {
            let Some(whole) = phases(group, times, |_| true) else {
                continue;
            };
            let empty = latencies();
            let logged = sums.get(&format!("{prefix}{tag}")).unwrap_or(&empty);
            outcome.latencies += if tag == "latency" { logged.len() } else { 0 };
            if let Some(difference) = differ(logged, &whole) {
                outcome.differs(format!(
                    "{name}: {tag} of {} in the HDR log and in the journal: {difference}",
                    group.name
                ));
            }
        }
    }
}

/// The counted phases come to the totals.
fn check_phases(name: &str, load: &TrialRecord, group: &GroupRecord, outcome: &mut Verification) {
    let is_counted = |index: usize| load.phases.get(index).is_some_and(|phase| phase.counted);
    for (_, times) in TIMES {
        let Some(sum) = phases(group, times, is_counted) else {
            continue;
        };
        if let Some(difference) = differ(&sum, times(&group.total).histogram()) {
            let group = &group.name;
            outcome.differs(format!("{name}: {group}, phases and total: {difference}"));
        }
    }
    let all = group.phases.iter().enumerate();
    let counted: Vec<_> = all.filter(|(index, _)| is_counted(*index)).collect();
    type Count = fn(&Tally) -> u64;
    let tallied: [(&str, Count); 4] = [
        ("offered", |tally| tally.offered),
        ("completed", |tally| tally.completed),
        ("good", |tally| tally.good),
        ("errors", Tally::errors_total),
    ];
    for (what, of) in tallied {
        let sum: u64 = counted.iter().map(|(_, phase)| of(&phase.tally)).sum();
        let total = of(&group.total.tally);
        if sum != total && !group.phases.is_empty() {
            outcome.differs(format!(
                "{name}: {what} of {} is {total} in all, {sum} by phase",
                group.name
            ));
        }
    }
}

/// Phases of a group together; `None`: it has none.
fn phases(
    group: &GroupRecord,
    times: Times,
    is_wanted: impl Fn(usize) -> bool,
) -> Option<Histogram<u64>> {
    let mut sum = latencies();
    for (index, phase) in group.phases.iter().enumerate() {
        if is_wanted(index) {
            sum.add(times(phase).histogram()).ok()?;
        }
    }
    (!group.phases.is_empty()).then_some(sum)
}

/// What is different, if anything is: counts, then values.
fn differ(one: &Histogram<u64>, other: &Histogram<u64>) -> Option<String> {
    if one.len() != other.len() {
        return Some(format!("{} and {} samples", one.len(), other.len()));
    }
    let spectra = [one, other].map(|it| spectrum(&Distribution::new(it.clone())));
    let [one, other] = &spectra;
    let found = one.iter().zip(other).find(|(one, other)| one != other);
    found.map(|((percent, one), (_, other))| format!("p{percent} is {one} µs and {other} µs"))
}
