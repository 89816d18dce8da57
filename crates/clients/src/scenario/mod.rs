//! Users with a scenario: each logs in, looks around and buys, with cookies and forms of its own.
//!
//! A scenario is a TOML file (`docs/scenarios.md`) of steps; each step is a request, what is expected
//! of its answer, and what is taken from it for later ones. One user is one client on one connection,
//! a [`VirtualUser`](crate::VirtualUser); it thinks, asks, waits, and goes on. A step that fails is
//! counted as the error it is, and its user begins anew, with nothing of what it had.
//!
//! ```text
//!   file ──► script (steps, templates) ──► user: think ─► ask ─► answer ─► capture ─► next step
//!                                            ▲                      └─ failed: from the beginning
//!                                            └── cookies, captured values, random numbers by the seed
//! ```
//!
//! Steps of a setup are taken once by each user, before the start, and are in no figure; what they
//! leave is what the user begins with, each time. One that fails ends the run.
//!
//! Latency counts from when the think time ended, so that the time to connect and the time that the
//! client itself was late are in it. A redirect is a request of its own, due when it came.
//!
//! What a step's requests came to is recorded in their group. Besides, each step
//! counts its requests and failures, and keeps the first failure in words ([`Scenario::steps`]; other
//! processes send theirs at their end, [`Scenario::add`]): enough to find the step that breaks, at the price of one counter.

mod answer;
mod capture;
mod cookies;
mod file;
mod link;
mod request;
mod script;
mod state;
mod table;
mod template;
#[cfg(test)]
mod tests;
mod user;

pub(crate) use capture::header;
pub use file::ScenarioError;

use std::path::Path;
use std::sync::Arc;

use loadline_record::StepReport;
use script::Script;

use crate::UserFactory;

/// A scenario, ready for its users.
#[derive(Clone, Debug)]
pub struct Scenario {
    script: Arc<Script>,
}

/// Server and bounds of a scenario: the same for all users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Whether the server is reached by TLS.
    pub is_https: bool,
    /// What the Host field says: host, and port unless it is that of the scheme.
    pub authority: String,
    /// What the Authorization field says, unless a step says it.
    pub authorization: Option<String>,
    /// What stands in front of the paths in the file; empty, or `/shop`, without a slash at the end.
    pub path_prefix: String,
    /// Nanoseconds from sent to the last byte after which a request has failed.
    pub timeout_ns: u64,
    /// Nanoseconds from due to the last byte beyond which an answer is not good.
    pub deadline_ns: Option<u64>,
}

impl Setting {
    /// Scheme, host and port.
    fn origin(&self) -> String {
        let scheme = if self.is_https { "https" } else { "http" };
        format!("{scheme}://{}", self.authority)
    }
}

impl Scenario {
    /// Reads a scenario file and the files that it names, which are looked for beside it.
    ///
    /// # Errors
    /// One line with the file, its line, what is wrong and what would be right.
    pub fn read(path: &Path) -> Result<Self, ScenarioError> {
        let script = Arc::new(file::read(path)?);
        Ok(Self { script })
    }

    #[cfg(test)]
    fn parse(text: &str, name: &str, folder: &Path) -> Result<Self, ScenarioError> {
        let script = Arc::new(file::parse(text, name, folder)?);
        Ok(Self { script })
    }

    /// Makes the users of a group.
    #[must_use]
    pub fn factory(&self, setting: Setting) -> UserFactory {
        let script = Arc::clone(&self.script);
        let setting = Arc::new(setting);
        Arc::new(move |number, seed| {
            let (script, setting) = (Arc::clone(&script), Arc::clone(&setting));
            Box::new(user::User::new(script, setting, number, seed))
        })
    }

    /// For how many users the users file has lines; with more, they begin from the first one again.
    /// `None`: there is no users file.
    #[must_use]
    pub fn users(&self) -> Option<usize> {
        let count = self.script.rows.len();
        (count > 0).then_some(count)
    }

    /// How the steps fared so far.
    #[must_use]
    pub fn steps(&self) -> Vec<StepReport> {
        let steps = self.script.steps.iter();
        steps.map(|step| step.counts().clone()).collect()
    }

    /// Adds how the steps fared elsewhere; of the first failures the one that is known already stays.
    pub fn add(&self, reports: &[StepReport]) {
        for (step, report) in self.script.steps.iter().zip(reports) {
            step.counts().merge(report);
        }
    }
}
