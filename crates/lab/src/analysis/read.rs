//! Reads the journal of a run.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::Measured;
use crate::journal::{JOURNAL_FILE, Line, RunHead, SCHEMA, Trial};

/// The longest line: a trial of a day has 86,400 seconds of about 250 bytes, in several groups.
const LINE_BYTES_MAX: u64 = 256 << 20;

/// A run as its journal has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// Its folder.
    pub folder: PathBuf,
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
    /// One line: the file, its line, what is wrong and what would be right.
    pub fn read(folder: &Path) -> Result<Self, String> {
        let mut run = Self {
            folder: folder.to_path_buf(),
            ..Self::default()
        };
        let mut trials = BTreeMap::new();
        run.is_torn = each_line(folder, |number, line| {
            match (number, line) {
                (1, Line::Run(head)) => run.head = *head,
                (1, _) => return Err("the first line is not that of a run".to_owned()),
                (_, Line::Charts(change)) => run.head.plan_toml = change.plan_toml,
                (_, Line::Run(_)) => return Err("a second run in one journal".to_owned()),
                // Rates follow from it, and stand in the trials' own commands.
                (_, Line::Capacity(_) | Line::Blocks(_)) => {}
                (_, Line::Trial(trial)) => {
                    let before = trials.insert(trial.number, Measured::new(*trial));
                    run.repeated.extend(before);
                }
            }
            Ok(())
        })?;
        if run.head.schema != SCHEMA {
            return Err(format!(
                "{}:1: schema `{}`; this version reads {SCHEMA}",
                folder.join(JOURNAL_FILE).display(),
                run.head.schema.escape_debug()
            ));
        }
        run.trials = trials.into_values().collect();
        Ok(run)
    }

    /// Gives the trials as the journal has them, one after the other, to `look`: their histograms
    /// together would not fit into memory.
    ///
    /// # Errors
    /// As [`Run::read`], or what `look` says.
    pub fn each_trial(
        folder: &Path,
        mut look: impl FnMut(&Trial) -> Result<(), String>,
    ) -> Result<(), String> {
        each_line(folder, |_, line| match line {
            Line::Run(_) | Line::Charts(_) | Line::Capacity(_) | Line::Blocks(_) => Ok(()),
            Line::Trial(trial) => look(&trial),
        })?;
        Ok(())
    }
}

/// Gives every line with its number, from 1; says whether a torn one follows.
fn each_line(
    folder: &Path,
    mut look: impl FnMut(u64, Line) -> Result<(), String>,
) -> Result<bool, String> {
    let path = folder.join(JOURNAL_FILE);
    let file = File::open(&path).map_err(|error| {
        format!(
            "{}: {error}; right would be the folder of a run (--out of loadline lab run)",
            path.display()
        )
    })?;
    let mut reader = BufReader::new(file);
    let mut bytes = Vec::new();
    for number in 1.. {
        bytes.clear();
        let fail = |error: &dyn std::fmt::Display| format!("{}:{number}: {error}", path.display());
        let length = reader
            .by_ref()
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut bytes)
            .map_err(|error| fail(&error))?;
        if bytes.last() != Some(&b'\n') {
            if length as u64 == LINE_BYTES_MAX {
                return Err(fail(&format!("a line of more than {LINE_BYTES_MAX} bytes")));
            }
            if number == 1 {
                return Err(fail(&"no run is described here"));
            }
            return Ok(length > 0);
        }
        let line = serde_json::from_slice(&bytes).map_err(|error| fail(&error))?;
        look(number, line).map_err(|error| fail(&error))?;
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn what_is_wrong_is_said_with_its_line() {
        let fails = |folder: tempfile::TempDir, what: &str| {
            let message = Run::read(folder.path()).unwrap_err();
            assert!(message.contains(what), "{message}");
        };
        fails(journal(&[], ""), "journal.jsonl:1: no run");
        fails(journal(&[trial(0, 1.0)], ""), ":1: the first line");
        fails(journal(&[head(), head()], ""), ":2: a second run");
        fails(journal(&[head()], "nonsense\n"), ":2: expected");
        fails(
            journal(&[Line::Run(Box::default())], ""),
            "this version reads",
        );
        fails(tempfile::tempdir().unwrap(), "the folder of a run");
    }
}
