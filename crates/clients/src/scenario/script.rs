//! A scenario as users follow it: every name resolved, every file read.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use loadline_proto::Method;
use loadline_record::StepReport;

use super::capture::Capture;
use super::template::Template;

/// What every user does.
#[derive(Debug)]
pub(super) struct Script {
    /// Those of the setup, then those that are taken again and again: at least one.
    pub(super) steps: Vec<Step>,
    /// How many of them are the setup, which each user goes through once, before the start.
    pub(super) setup_count: usize,
    /// How often; `None`: until the end of the run.
    pub(super) repeat: Option<u64>,
    /// Whether cookies and captured values stay from one time to the next.
    pub(super) keeps_state: bool,
    /// Whether cookies marked Secure are sent all the same.
    pub(super) sends_secure_cookies: bool,
    /// A row for each user; none if there is no users file.
    pub(super) rows: Vec<Vec<String>>,
    /// How many values are taken from answers.
    pub(super) captured_count: usize,
    /// When the file was read: what cookies' dates refer to where a server sends no date of its own.
    pub(super) read_at: SystemTime,
}

/// One request and what is expected of its answer.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) method: Method,
    pub(super) path: Template,
    pub(super) headers: Vec<(String, Template)>,
    pub(super) content: Content,
    pub(super) think: Think,
    /// Statuses that are good; empty: 200 to 299.
    pub(super) statuses: Vec<u16>,
    pub(super) contains: Option<Template>,
    /// Redirects that are followed, one after the other.
    pub(super) follow_max: u32,
    /// What is taken from the answer, and where it is kept.
    pub(super) captures: Vec<(usize, Capture)>,
    /// How it fared, over all users of this process.
    pub(super) counts: Mutex<StepReport>,
}

/// What a request carries.
#[derive(Debug)]
pub(super) enum Content {
    Nothing,
    /// Names, encoded, and values.
    Form(Vec<(String, Template)>),
    Text(Template),
    File(Vec<u8>),
}

/// Whether a header with this name is among these.
pub(super) fn has_header(headers: &[(String, Template)], name: &str) -> bool {
    let is_named = |header: &(String, Template)| header.0.eq_ignore_ascii_case(name);
    headers.iter().any(is_named)
}

/// The time before a request, in nanoseconds: at random in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Think {
    pub(super) least_ns: u64,
    pub(super) most_ns: u64,
}

impl Think {
    /// The time that a random number stands for.
    pub(super) fn chosen(self, random: u64) -> u64 {
        let range = u128::from(self.most_ns - self.least_ns) + 1;
        self.least_ns + ((u128::from(random) * range) >> 64) as u64
    }
}

impl Step {
    /// How it fared so far, to be counted on.
    pub(super) fn counts(&self) -> MutexGuard<'_, StepReport> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner) // counts are never half written
    }

    /// Whether the content of the answer has to be kept.
    pub(super) fn needs_content(&self) -> bool {
        self.contains.is_some() || self.captures.iter().any(|(_, one)| one.is_in_content())
    }
}
