//! Replaying access logs: the requests of any server's log, in their order and proportions, and
//! with the log's own timing if wanted.
//!
//! A log is read as a stream (`log.rs`), line by line (`line.rs`, `json.rs`, `time.rs`). Lines that
//! contain no request are counted and passed over. The host in a log is not followed: everything
//! goes to the server that the user names.

pub mod json;
pub mod line;
pub mod log;
pub mod logged;
pub mod time;

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::sync::Arc;

use loadline_spec::ValueError;

pub use self::log::{Log, LogError, LogReport, Wanted};
use crate::requests::template::{Ask, Template};
use crate::requests::url::Url;
use crate::requests::{Destination, Expected, RequestOptions, Requests};
use crate::schedule::DURATION_NS_MAX;
use crate::{Mix, MixOrder};

/// Which log, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayOptions {
    /// The log.
    pub path: PathBuf,
    /// All methods, not only GET and HEAD.
    pub all_methods: bool,
    /// The log's own timing, its times multiplied by this: 0.1 plays an hour in six minutes.
    pub time_scale: Option<f64>,
}

/// A log, ready to be replayed.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Its requests, in turn.
    pub mix: Mix,
    /// Where they go.
    pub servers: Vec<Destination>,
    /// When, if the log's own timing was wanted.
    pub timing: Option<Timing>,
    /// How it was read.
    pub report: LogReport,
}

/// The timing of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Nanoseconds from the start, in order, one for each line of the mix's sequence.
    pub due_ns: Arc<[u64]>,
    /// From the start to the end of the log: of its last second if it has whole ones, else a little
    /// beyond its last line.
    pub duration_ns: u64,
}

/// Reads a log and makes its requests ready for the first of the URLs, with the fields, credentials
/// and expectations of the options.
///
/// # Errors
/// One line: what is wrong, where, and what would be right.
pub fn prepare(replay: &ReplayOptions, options: &RequestOptions) -> Result<Replay, ValueError> {
    let [url] = options.urls.as_slice() else {
        return Err("a log is replayed against one URL, the server's".into());
    };
    if options.list.is_some() || options.method.is_some() || options.body.is_some() {
        return Err("a log says itself what is asked for: no list, method or body".into());
    }
    if let Some(scale) = replay.time_scale
        && !(scale > 0.0 && scale <= SCALE_MAX)
    {
        return Err(format!("the time scale {scale} is not above 0, at most {SCALE_MAX:e}").into());
    }
    let url = Url::parse(url)?;
    let template = Template::new(options.version, &options.headers, options.user.as_deref())?;
    let located = |error: LogError| format!("cannot replay {}: {error}", replay.path.display());
    let file = File::open(&replay.path).map_err(|error| located(error.into()))?;
    let wanted = Wanted {
        all_methods: replay.all_methods,
        times: replay.time_scale.is_some(),
        lines_max: log::LINES_MAX,
    };
    let mut log = Log::read(BufReader::with_capacity(READ_BYTES, file), wanted).map_err(located)?;
    let timing = match replay.time_scale {
        Some(scale) => Some(timing(&mut log, scale).map_err(located)?),
        None => None,
    };
    let mut requests = Requests::default();
    let server = requests.server(&url)?;
    let expectation = Expected::default().or(&options.expected);
    for (method, target) in &log.requests {
        let ask = Ask {
            method: *method,
            target,
            authority: &url.authority,
            user: url.user.as_deref(),
            body: b"",
        };
        requests.push(&ask, &template, server, &expectation)?;
    }
    let (mix, servers) = requests.finish(MixOrder::InTurn(log.sequence.into()));
    Ok(Replay {
        mix,
        servers,
        timing,
        report: log.report,
    })
}

/// Reading a log in pieces of this size.
const READ_BYTES: usize = 128 * 1024;
/// A second may last a day.
const SCALE_MAX: f64 = 86_400.0;
const NS_PER_S: u64 = 1_000_000_000;
/// A run goes on at least this long after its last request is due: at the very end nothing is
/// begun any more, and no thread wakes up to the nanosecond.
const LAST_NS: u64 = 20_000_000;

/// Orders the lines of a log by their times (servers write a line when an answer ends, some with
/// the time when it began), and says when each is due. Times in whole seconds are spread evenly
/// within their second.
fn timing(log: &mut Log, scale: f64) -> Result<Timing, LogError> {
    let times = std::mem::take(&mut log.times_ns).into_iter();
    let mut lines: Vec<(i64, u32)> = times.zip(log.sequence.iter().copied()).collect();
    lines.sort_by_key(|(time_ns, _)| *time_ns); // stable: lines of the same time keep their order
    for (place, (_, request)) in log.sequence.iter_mut().zip(&lines) {
        *place = *request;
    }
    let first_ns = lines.first().map_or(0, |(time_ns, _)| *time_ns);
    let last_ns = lines.last().map_or(0, |(time_ns, _)| *time_ns);
    let span_ns = last_ns.abs_diff(first_ns);
    let resolution_ns = if log.is_whole_seconds { NS_PER_S } else { 1 };
    let duration_ns = scaled(span_ns.saturating_add(resolution_ns), scale);
    if duration_ns > DURATION_NS_MAX {
        let days = span_ns / NS_PER_S / 86_400;
        let scaled_days = duration_ns / NS_PER_S / 86_400;
        return Err(LogError::TooLong {
            days,
            scaled_days,
            scale,
        });
    }
    let mut due_ns = Vec::with_capacity(lines.len());
    for same in lines.chunk_by(|one, other| one.0 == other.0) {
        for (index, (time_ns, _)) in same.iter().enumerate() {
            let within_ns = match log.is_whole_seconds {
                true => index as u64 * NS_PER_S / same.len() as u64,
                false => 0,
            };
            due_ns.push(scaled(time_ns.abs_diff(first_ns) + within_ns, scale));
        }
    }
    Ok(Timing {
        duration_ns: duration_ns.max(due_ns.last().map_or(0, |last| last + LAST_NS)),
        due_ns: due_ns.into(),
    })
}

fn scaled(ns: u64, scale: f64) -> u64 {
    (ns as f64 * scale) as u64
}

#[cfg(test)]
mod tests;
