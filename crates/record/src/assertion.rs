//! What a run is held to: `p99 < 50ms`, `errors < 0.1%`, `rate >= 5000`.
//!
//! An assertion is about the plain clients over the counted phases; where there are none, about the
//! headline group. Where a load is divided between HTTP/1.1 and HTTP/2, it is about those of HTTP/1.1,
//! and [`Assertion::check_http2`] about the others. What was not measured well enough to be known does
//! not hold.
//!
//! A percentile is that of all requests, not of those alone that were answered: for latency of all
//! that were due, for service time and first byte of all that were sent. One that had no complete
//! answer took longer than any that had; a percentile that falls among those does not hold, whatever
//! it is compared with. An answer that was not expected has its time: `errors` counts it. Mean,
//! deviation and extremes are of complete answers, and the line says how many requests had none.
//! Connect and handshake times are of those that were done, since nobody counts connections that were
//! wanted: the others are in `errors`.

mod sample;

use std::cmp::Ordering;
use std::str::FromStr;

use thiserror::Error;

use sample::{Lack, Sample};

use crate::distribution::samples_min;
use crate::report::number::{bytes, count, rate, significant, time_us};
use crate::{ErrorKind, GroupRecord, Results, TrialRecord};

/// One line of `--assert`.
#[derive(Clone, Debug, PartialEq)]
pub struct Assertion {
    text: String,
    quantity: Quantity,
    /// How what was measured may stand to the bound.
    orders: &'static [Ordering],
    /// In the unit of what is compared: microseconds, per second, a part of 1, a count.
    bound: f64,
    scale: Scale,
}

/// Whether an assertion held, and what was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct AssertionFinding {
    /// Whether it held.
    pub holds: bool,
    /// Whether there were samples enough to know.
    pub is_known: bool,
    /// One line for people: the assertion and what was measured.
    pub line: String,
}

/// How far from its bound a percentile is: requests on the wrong side of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beyond {
    /// Requests that took too long, or never got an answer.
    pub count: u64,
    /// Of this number.
    pub of: u64,
    /// The part of them that may: 0.01 for p99.
    pub allowed: f64,
    /// The bound, in microseconds.
    pub bound_us: f64,
}

/// Why a text is no assertion, or none that is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct AssertionError(String);

impl From<String> for AssertionError {
    fn from(why: String) -> Self {
        Self(why)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Quantity {
    Time(Times, Statistic),
    Rate(Stage),
    /// Of one stage in another, over all requests.
    Ratio(Stage, Stage),
    Errors,
    ErrorsOf(ErrorKind),
    Transfer,
    Requests,
    Connections,
    Unfinished,
}

/// Which times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    Latency,
    Service,
    FirstByte,
    Lag,
    Connect,
    Handshake,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Statistic {
    Percentile(f64),
    Mean,
    Stdev,
    Min,
    Max,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Offered,
    Sent,
    Completed,
    Good,
}

/// What kind of number is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    TimeUs,
    PerSecond,
    BytesPerSecond,
    Part,
    Count,
}

/// What may stand on the left, for messages.
const KNOWN: &str = "p50, p90, p99, p99.9 (any percentile), mean, stdev, min or max, each also of \
    'service', 'first-byte', 'connect', 'handshake' or 'lag' (as in 'service p99'); rate, offered, sent, completed, good; \
    sent/offered, completed/offered, good/completed and the like; errors or one kind of them";

impl Statistic {
    fn samples_min(self) -> u64 {
        match self {
            Self::Percentile(percent) => samples_min(percent),
            Self::Stdev => 2,
            Self::Mean | Self::Min | Self::Max => 1,
        }
    }
}

/// Comparisons, and the orders that they allow. Longer ones first: `<=` begins with `<`.
const COMPARISONS: [(&str, &[Ordering]); 6] = [
    ("<=", &[Ordering::Less, Ordering::Equal]),
    (">=", &[Ordering::Greater, Ordering::Equal]),
    ("==", &[Ordering::Equal]),
    ("!=", &[Ordering::Less, Ordering::Greater]),
    ("<", &[Ordering::Less]),
    (">", &[Ordering::Greater]),
];

impl Stage {
    const ALL: [(&'static str, Self); 4] = [
        ("offered", Self::Offered),
        ("sent", Self::Sent),
        ("completed", Self::Completed),
        ("good", Self::Good),
    ];

    fn named(name: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, stage)| *stage)
    }

    fn per_second(self, results: &Results) -> f64 {
        match self {
            Self::Offered => results.rates.offered_per_s,
            Self::Sent => results.rates.sent_per_s,
            Self::Completed => results.rates.completed_per_s,
            Self::Good => results.rates.good_per_s,
        }
    }

    fn in_all(self, results: &Results) -> u64 {
        match self {
            Self::Offered => results.tally.offered,
            Self::Sent => results.tally.sent,
            // A request that was tried again may have had several complete answers.
            Self::Completed => results.tally.requests_completed(),
            Self::Good => results.tally.good,
        }
    }
}

impl FromStr for Assertion {
    type Err = AssertionError;

    fn from_str(text: &str) -> Result<Self, AssertionError> {
        let wrong = |why: AssertionError| AssertionError(format!("'{text}': {why}"));
        let begin = text.find(['<', '>', '=', '!']).ok_or_else(|| {
            format!("'{text}': no comparison: one of <, <=, >, >=, == or != is needed")
        })?;
        let (left, right) = text.split_at(begin);
        let found = COMPARISONS.iter().find(|(sign, _)| right.starts_with(sign));
        let (sign, orders) = found.ok_or_else(|| {
            let seen: String = right.chars().take(2).collect();
            format!(
                "'{text}': unknown comparison '{}': <, <=, >, >=, == and != are known",
                seen.trim()
            )
        })?;
        let quantity = quantity(left).map_err(wrong)?;
        let value = right[sign.len()..].trim();
        let (bound, scale) = bound(value, quantity).map_err(wrong)?;
        Ok(Self {
            text: text.trim().to_owned(),
            quantity,
            orders: *orders,
            bound,
            scale,
        })
    }
}

/// `service p99`, `timeouts`, `sent/offered`.
fn quantity(text: &str) -> Result<Quantity, AssertionError> {
    let text = text.trim().to_ascii_lowercase().replace('_', "-");
    let words: Vec<&str> = text.split_whitespace().collect();
    if let Some((of, whole)) = text.split_once('/') {
        let stages = (Stage::named(of.trim()), Stage::named(whole.trim()));
        if let (Some(of), Some(whole)) = stages {
            return Ok(Quantity::Ratio(of, whole));
        }
    }
    let kinds = ErrorKind::ALL.map(ErrorKind::name).join(", ");
    let unknown = || {
        AssertionError(format!(
            "unknown quantity '{text}'; known are {KNOWN}: {kinds}"
        ))
    };
    match words.as_slice() {
        [] => Err(format!("what is compared is missing: {KNOWN}: {kinds}").into()),
        [word] => single(word)?.ok_or_else(unknown),
        [times, word] => {
            let times = match *times {
                "latency" => Times::Latency,
                "service" => Times::Service,
                "first-byte" => Times::FirstByte,
                "lag" => Times::Lag,
                "connect" => Times::Connect,
                "handshake" => Times::Handshake,
                _ => return Err(unknown()),
            };
            let statistic = statistic(word)?.ok_or_else(unknown)?;
            Ok(Quantity::Time(times, statistic))
        }
        _ => Err(unknown()),
    }
}

fn single(word: &str) -> Result<Option<Quantity>, AssertionError> {
    if let Some(statistic) = statistic(word)? {
        return Ok(Some(Quantity::Time(Times::Latency, statistic)));
    }
    if let Some(stage) = Stage::named(word) {
        return Ok(Some(Quantity::Rate(stage)));
    }
    let quantity = match word {
        "rate" => Quantity::Rate(Stage::Completed),
        "errors" => Quantity::Errors,
        "transfer" => Quantity::Transfer,
        "requests" => Quantity::Requests,
        "connections" => Quantity::Connections,
        "unfinished" => Quantity::Unfinished,
        _ => {
            let plural = word.strip_suffix('s').unwrap_or(word);
            let is_named = |kind: &ErrorKind| {
                let name = kind.name().replace('_', "-");
                let short = name.strip_prefix("status-").unwrap_or(&name);
                let is_it = |word: &str| word == name || word == short;
                is_it(word) || is_it(plural)
            };
            let kind = ErrorKind::ALL.into_iter().find(is_named);
            return Ok(kind.map(Quantity::ErrorsOf));
        }
    };
    Ok(Some(quantity))
}

fn statistic(word: &str) -> Result<Option<Statistic>, AssertionError> {
    let statistic = match word {
        "mean" => Statistic::Mean,
        "stdev" => Statistic::Stdev,
        "min" => Statistic::Min,
        "max" => Statistic::Max,
        "median" => Statistic::Percentile(50.0),
        _ => {
            let digits = word.strip_prefix('p').unwrap_or_default();
            let is_number = digits.starts_with(|first: char| first.is_ascii_digit());
            let (true, Ok(percent)) = (is_number, digits.parse::<f64>()) else {
                return Ok(None);
            };
            if !(percent > 0.0 && percent < 100.0) {
                return Err(AssertionError(format!(
                    "'{word}' is no percentile: they lie between p0 and p100; the ends are min and max"
                )));
            }
            Statistic::Percentile(percent)
        }
    };
    Ok(Some(statistic))
}

/// The number on the right in the unit of the comparison.
fn bound(text: &str, quantity: Quantity) -> Result<(f64, Scale), AssertionError> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'));
    let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
    let unit = unit.trim();
    let number: f64 = digits
        .replace('_', "")
        .parse()
        .map_err(|_| format!("'{text}' does not begin with a number"))?;
    const TIMES: &[(&str, f64)] = &[("us", 1.0), ("ms", 1e3), ("s", 1e6), ("min", 60e6)];
    const RATES: &[(&str, f64)] = &[("", 1.0), ("/s", 1.0), ("k", 1e3), ("k/s", 1e3)];
    const TRANSFERS: &[(&str, f64)] = &[
        ("B/s", 1.0),
        ("KB/s", 1e3),
        ("MB/s", 1e6),
        ("GB/s", 1e9),
        ("KiB/s", 1024.0),
        ("MiB/s", 1_048_576.0),
        ("GiB/s", 1_073_741_824.0),
    ];
    let (name, scale, units) = match quantity {
        Quantity::Time(..) => ("a time", Scale::TimeUs, TIMES),
        Quantity::Rate(_) => ("a rate", Scale::PerSecond, RATES),
        Quantity::Transfer => ("a transfer rate", Scale::BytesPerSecond, TRANSFERS),
        Quantity::Ratio(..) => ("a ratio", Scale::Part, &[("%", 0.01), ("", 1.0)][..]),
        Quantity::Errors | Quantity::ErrorsOf(_) => match unit {
            "%" => ("errors", Scale::Part, &[("%", 0.01)][..]),
            _ => ("errors", Scale::Count, &[("", 1.0), ("%", 0.01)][..]),
        },
        Quantity::Requests | Quantity::Connections | Quantity::Unfinished => {
            ("a count", Scale::Count, &[("", 1.0)][..])
        }
    };
    let found = units.iter().find(|(known, _)| *known == unit);
    let (_, factor) = found.ok_or_else(|| {
        let shown = |known: &str| if known.is_empty() { "none" } else { known }.to_owned();
        let known: Vec<String> = units.iter().map(|(known, _)| shown(known)).collect();
        let what = match unit {
            "" => "a unit is missing".to_owned(),
            unit => format!("unknown unit '{unit}'"),
        };
        format!("{what}: {name} has one of {}", known.join(", "))
    })?;
    Ok((number * factor, scale))
}

impl Assertion {
    /// As it was given.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The time that it is about, in microseconds; `None`: it is not about a time.
    #[must_use]
    pub fn time_us(&self) -> Option<f64> {
        (self.scale == Scale::TimeUs).then_some(self.bound)
    }

    /// Answers that are needed for it to be known.
    #[must_use]
    pub fn samples_min(&self) -> u64 {
        match self.quantity {
            Quantity::Time(_, which) => which.samples_min(),
            _ => 1,
        }
    }

    /// How many requests of a record were beyond the bound of a percentile, those without an answer
    /// among them, as in [`Self::check`]. `None`: it is no percentile of times of the server with an
    /// upper bound, or nothing was measured.
    #[must_use]
    pub fn beyond(&self, record: &TrialRecord) -> Option<Beyond> {
        let results = &judged_group(record)?.total;
        let Quantity::Time(times, Statistic::Percentile(percent)) = self.quantity else {
            return None;
        };
        let allows = |order| self.orders.contains(&order);
        let is_upper = allows(Ordering::Less) && !allows(Ordering::Greater);
        if times == Times::Lag || !is_upper {
            return None;
        }
        let sample = Sample::of(times, record, results);
        let is_beyond = |us: u64| !self.holds(us as f64);
        let buckets = sample.times.iter_recorded();
        let slow = buckets.filter(|bucket| is_beyond(bucket.value_iterated_to()));
        let slow: u64 = slow.map(|bucket| bucket.count_at_value()).sum();
        Some(Beyond {
            count: slow + sample.missing,
            of: sample.times.len() + sample.missing,
            allowed: 1.0 - percent / 100.0,
            bound_us: self.bound,
        })
    }

    /// Whether it holds of a record.
    #[must_use]
    pub fn check(&self, record: &TrialRecord) -> AssertionFinding {
        self.check_group(record, judged_group(record))
    }

    /// Whether it holds of the plain clients that speak HTTP/2 beside those of HTTP/1.1. `None`: there
    /// are none, or it is about an amount, of which they have a part only, or about the lag of all
    /// threads.
    #[must_use]
    pub fn check_http2(&self, record: &TrialRecord) -> Option<AssertionFinding> {
        let is_for_each = match self.quantity {
            Quantity::Time(times, _) => times != Times::Lag,
            Quantity::Ratio(..)
            | Quantity::Errors
            | Quantity::ErrorsOf(_)
            | Quantity::Unfinished => true,
            Quantity::Rate(_) | Quantity::Transfer | Quantity::Requests | Quantity::Connections => {
                false
            }
        };
        let group = record.http2_beside().filter(|_| is_for_each)?;
        let finding = self.check_group(record, Some(group));
        Some(AssertionFinding {
            line: format!("HTTP/2: {}", finding.line),
            ..finding
        })
    }

    fn check_group(&self, record: &TrialRecord, group: Option<&GroupRecord>) -> AssertionFinding {
        let measured = match group {
            Some(group) => self.measured(record, &group.total),
            None => Err(Lack::of("nothing was measured".to_owned())),
        };
        let (holds, is_known, why) = match measured {
            Ok((measured, remark)) => {
                let why = format!("it was {}{remark}", self.shown(measured));
                (self.holds(measured), true, why)
            }
            Err(Lack { why, is_known }) => (false, is_known, why),
        };
        let verb = if holds { "holds" } else { "does not hold" };
        AssertionFinding {
            holds,
            is_known,
            line: format!("{} {verb}: {why}", self.text),
        }
    }

    fn holds(&self, measured: f64) -> bool {
        let order = measured.partial_cmp(&self.bound);
        order.is_some_and(|order| self.orders.contains(&order))
    }

    /// What was measured, and what has to be said of it.
    fn measured(&self, record: &TrialRecord, results: &Results) -> Result<(f64, String), Lack> {
        match self.quantity {
            Quantity::Time(times, which) => Sample::of(times, record, results).statistic(which),
            _ => self.counted(results).map(|value| (value, String::new())),
        }
    }

    fn counted(&self, results: &Results) -> Result<f64, Lack> {
        let tally = &results.tally;
        let part = |of: u64, whole: u64, name: &str| match whole {
            0 => Err(Lack::of(format!("no request was {name}"))),
            whole => Ok(of as f64 / whole as f64),
        };
        // Idle connections have errors without having requests.
        let is_tried = tally.offered + tally.held + tally.closes > 0;
        let number = |of: u64| match of {
            0 if !is_tried => Err(Lack::of("no request was offered".to_owned())),
            of => Ok(of as f64),
        };
        let errors = |errors: u64| match self.scale {
            Scale::Part => part(errors, tally.offered, "offered"),
            _ => number(errors),
        };
        match self.quantity {
            Quantity::Time(..) => Err(Lack::of("a time is not counted".to_owned())),
            Quantity::Rate(stage) => Ok(stage.per_second(results)),
            Quantity::Ratio(of, whole) => {
                let name = Stage::ALL.iter().find(|(_, stage)| *stage == whole);
                let name = name.map_or("there", |(name, _)| *name);
                part(of.in_all(results), whole.in_all(results), name)
            }
            Quantity::Errors => errors(tally.errors_total()),
            Quantity::ErrorsOf(kind) => errors(tally.errors_of(kind)),
            Quantity::Transfer => Ok(results.rates.bytes_received_per_s),
            Quantity::Requests => Ok(tally.completed as f64),
            Quantity::Connections => Ok(tally.connections as f64),
            Quantity::Unfinished => number(tally.unfinished),
        }
    }

    fn shown(&self, measured: f64) -> String {
        match self.scale {
            Scale::TimeUs => time_us(measured),
            Scale::PerSecond => format!("{}/s", rate(measured)),
            Scale::BytesPerSecond => format!("{}/s", bytes(measured)),
            Scale::Part => format!("{} %", significant(measured * 100.0, 4)),
            Scale::Count => count(measured as u64),
        }
    }
}

/// The plain clients, even if none of their requests became due in the counted phases: another group
/// says nothing of them.
fn judged_group(record: &TrialRecord) -> Option<&GroupRecord> {
    match record.run.connections {
        0 => record.headline(),
        _ => record.groups.first(),
    }
}
