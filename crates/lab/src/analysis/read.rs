//! Reads the journal of a run.

use std::collections::BTreeMap;
use std::path::Path;

use super::Measured;
use crate::journal::{JournalError, Line, RunHead, Trial, each_line};

/// A run as its journal has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// What it is.
    pub head: RunHead,
    /// Its trials by number. Of a trial that was run again the last one counts.
    pub trials: Vec<Measured>,
    /// Trials that were disturbed, and run again.
    pub repeated: Vec<Measured>,
    /// Whether the journal ends in the middle of a line: the trial in progress when the run was
    /// killed, or when this was read.
    pub is_torn: bool,
}

impl Run {
    /// Reads the journal of the run in `folder`.
    ///
    /// # Errors
    /// As [`crate::journal::read`], or the run has not begun.
    pub fn read(folder: &Path) -> Result<Self, JournalError> {
        let mut run = Self::default();
        let (mut trials, mut has_begun) = (BTreeMap::new(), false);
        run.is_torn = each_line(folder, |line| {
            match line {
                Line::Run(head) => (run.head, has_begun) = (*head, true),
                Line::Charts(change) => run.head.plan_toml = change.plan_toml,
                // Rates follow from it, and stand in the trials' own commands.
                Line::Capacity(_) | Line::Blocks(_) => {}
                Line::Trial(trial) => {
                    let before = trials.insert(trial.number, Measured::new(*trial));
                    run.repeated.extend(before);
                }
            }
            Ok::<(), JournalError>(())
        })?;
        if !has_begun {
            return Err(JournalError::Empty(folder.to_owned()));
        }
        run.trials = trials.into_values().collect();
        Ok(run)
    }

    /// Gives the trials as the journal has them, one after the other, to `look`: their histograms
    /// together would not fit into memory.
    ///
    /// # Errors
    /// As [`crate::journal::read`], or what `look` says.
    pub fn each_trial<E: From<JournalError>>(
        folder: &Path,
        mut look: impl FnMut(&Trial) -> Result<(), E>,
    ) -> Result<(), E> {
        each_line(folder, |line| match line {
            Line::Run(_) | Line::Charts(_) | Line::Capacity(_) | Line::Blocks(_) => Ok(()),
            Line::Trial(trial) => look(&trial),
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{JOURNAL_FILE, SCHEMA};

    fn journal(lines: &[Line], rest: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let mut text = String::new();
        for line in lines {
            text += &serde_json::to_string(line).unwrap();
            text.push('\n');
        }
        std::fs::write(folder.path().join(JOURNAL_FILE), text + rest).unwrap();
        folder
    }

    fn head() -> Line {
        Line::Run(Box::new(RunHead {
            schema: SCHEMA.to_owned(),
            ..RunHead::default()
        }))
    }

    fn trial(number: u32, took_s: f64) -> Line {
        Line::Trial(Box::new(Trial {
            number,
            took_s,
            ..Trial::default()
        }))
    }

    #[test]
    fn the_last_of_a_number_counts_and_a_torn_line_is_none() {
        let lines = [head(), trial(1, 1.0), trial(0, 2.0), trial(1, 3.0)];
        let folder = journal(&lines, "{\"line\":\"tri");
        let run = Run::read(folder.path()).unwrap();
        let seen: Vec<_> = run.trials.iter().map(|it| (it.number, it.took_s)).collect();
        assert_eq!(seen, [(0, 2.0), (1, 3.0)]);
        assert_eq!((run.repeated.len(), run.repeated[0].took_s), (1, 1.0));
        assert!(run.is_torn);
    }

    #[test]
    fn a_run_that_has_not_begun_is_none() {
        let message = Run::read(journal(&[], "").path()).unwrap_err().to_string();
        assert!(message.contains("no run is described here"), "{message}");
    }
}
