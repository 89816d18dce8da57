//! Results of the steps of a scenario.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Results of a step, over all users in this process, and in others that were added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepReport {
    /// Its name in the file, or "step 3".
    pub name: String,
    /// Requests that became due, those to redirects included.
    pub requests: u64,
    /// Requests that did not end well.
    pub failures: u64,
    /// Times that a user took the step and it ended well, redirects included.
    #[serde(default)]
    pub successes: u64,
    /// The first failure, in words.
    pub first_failure: Option<String>,
}

impl StepReport {
    /// Adds those of another process; of the first failures the one that is known already stays.
    pub fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.failures += other.failures;
        self.successes += other.successes;
        if self.first_failure.is_none() {
            self.first_failure.clone_from(&other.first_failure);
        }
    }

    /// Whether it failed, and never once ended well.
    #[must_use]
    pub fn never_succeeded(&self) -> bool {
        self.failures > 0 && self.successes == 0
    }
}

impl fmt::Display for StepReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, failures, requests) = (&self.name, self.failures, self.requests);
        write!(f, "{name}: {failures} of {requests} failed")?;
        match &self.first_failure {
            Some(words) => write!(f, "; first: {words}"),
            None => Ok(()),
        }
    }
}
