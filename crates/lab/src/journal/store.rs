//! The journal on the disk: one run in a folder, appended to by one process at a time.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{AddedBlocks, CapacityTrial, JOURNAL_FILE, JournalError, Line, RunHead, SCHEMA, Trial};
use crate::file_error::FileError;

/// A line with more is none of ours: a trial of a day, second by second, has less.
const LINE_BYTES_MAX: u64 = 256 << 20;
/// How the first line of every journal begins.
const RUN_BEGINS: &[u8] = b"{\"line\":\"run\"";

/// What stands in a journal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents {
    /// The first line, with the charts that it was given last; `None`: the run has not begun.
    pub head: Option<Box<RunHead>>,
    /// The trials that measured capacities, in their order.
    pub capacities: Vec<CapacityTrial>,
    /// Blocks behind those of the plan.
    pub blocks: Vec<AddedBlocks>,
    /// The trials in the order in which they ended.
    pub trials: Vec<Trial>,
}

impl Contents {
    fn add(&mut self, line: Line) {
        match line {
            Line::Run(head) => self.head = Some(head),
            Line::Capacity(one) => self.capacities.push(*one),
            Line::Blocks(blocks) => self.blocks.push(blocks),
            Line::Trial(trial) => self.trials.push(*trial),
            Line::Charts(change) => {
                if let Some(head) = &mut self.head {
                    head.plan_toml = change.plan_toml;
                }
            }
        }
    }
}

/// Reads the journal of a run, also of one that still goes on. A last line that was torn off is passed
/// over.
///
/// # Errors
/// The folder or the line, what is wrong, what would be right.
pub fn read(folder: &Path) -> Result<Contents, JournalError> {
    let mut contents = Contents::default();
    each_line(folder, |line| {
        contents.add(line);
        Ok::<(), JournalError>(())
    })?;
    Ok(contents)
}

/// Gives every whole line of a run's journal to `look`, and says whether a torn one follows.
///
/// # Errors
/// As [`read`], or what `look` says.
pub(crate) fn each_line<E: From<JournalError>>(
    folder: &Path,
    look: impl FnMut(Line) -> Result<(), E>,
) -> Result<bool, E> {
    let path = folder.join(JOURNAL_FILE);
    let file = File::open(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => JournalError::NoRun(folder.to_owned()),
        _ => FileError::of(&path)(error).into(),
    })?;
    let (_, is_torn) = each_line_of(&file, &path, look)?;
    Ok(is_torn)
}

/// The journal of a run that goes on, held against a second one in the same folder.
#[derive(Debug)]
pub struct Store {
    file: File,
    path: PathBuf,
}

impl Store {
    /// Opens or creates the journal of a folder, which is made if it is missing; cuts off a last line
    /// that was torn off, and nothing else.
    ///
    /// # Errors
    /// Another run holds it, or it cannot be read or written.
    pub fn open(folder: &Path) -> Result<(Self, Contents), JournalError> {
        let path = folder.join(JOURNAL_FILE);
        let fail = FileError::of(&path);
        fs::create_dir_all(folder)
            .map_err(|error| JournalError::Folder(FileError::of(folder)(error)))?;
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&path).map_err(&fail)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => JournalError::Held(folder.to_owned()),
            TryLockError::Error(error) => fail(error).into(),
        })?;
        let mut contents = Contents::default();
        let (end, _) = each_line_of(&file, &path, |line| {
            contents.add(line);
            Ok::<(), JournalError>(())
        })?;
        file.set_len(end).map_err(&fail)?;
        file.seek(SeekFrom::Start(end)).map_err(&fail)?;
        sync_folder(folder).map_err(fail)?;
        Ok((Self { file, path }, contents))
    }

    /// Appends a line; it is on the disk when this returns.
    ///
    /// # Errors
    /// It cannot be written. What was written of it is a torn line for whoever opens it next.
    pub fn append(&mut self, line: &Line) -> Result<(), JournalError> {
        let bytes = serde_json::to_vec(line);
        let mut bytes = bytes.map_err(|error| JournalError::Json(Arc::new(error)))?;
        bytes.push(b'\n');
        let written = self
            .file
            .write_all(&bytes)
            .and_then(|()| self.file.sync_data());
        Ok(written.map_err(FileError::of(&self.path))?)
    }
}

/// A new file in a folder is there for good when the folder is written too.
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Gives every whole line to `look`: the first is that of the run, and no other. Returns where the last
/// of them ends, and whether a torn one follows.
fn each_line_of<E: From<JournalError>>(
    file: &File,
    path: &Path,
    mut look: impl FnMut(Line) -> Result<(), E>,
) -> Result<(u64, bool), E> {
    let wrong = |problem: String| JournalError::Line {
        path: path.to_owned(),
        problem,
    };
    let mut reader = BufReader::new(file);
    let (mut number, mut end) = (0, 0);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        number += 1;
        let mut line = reader.by_ref().take(LINE_BYTES_MAX);
        let count = line.read_until(b'\n', &mut bytes);
        let count = count.map_err(|error| JournalError::from(FileError::of(path)(error)))? as u64;
        if bytes.last() != Some(&b'\n') {
            if count == LINE_BYTES_MAX {
                return Err(wrong(format!("line {number}: longer than any line of ours")).into());
            }
            let is_ours = RUN_BEGINS.starts_with(&bytes) || bytes.starts_with(RUN_BEGINS);
            if number == 1 && !is_ours {
                return Err(wrong("line 1 is no line of a journal".to_owned()).into());
            }
            return Ok((end, count > 0));
        }
        end += count;
        let line = Line::read(&bytes)
            .map_err(|error| wrong(format!("line {number} is no line of a journal: {error}")))?;
        let problem = match &line {
            Line::Run(head) if number == 1 && head.schema != SCHEMA => {
                let schema = head.schema.escape_debug();
                format!("its form is {schema}; right would be {SCHEMA}")
            }
            line if matches!(line, Line::Run(_)) != (number == 1) => format!(
                "line {number} is out of place: the first line is the run, and none of the others"
            ),
            _ => {
                look(line)?;
                continue;
            }
        };
        return Err(wrong(problem).into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Line {
        Line::Run(Box::new(RunHead {
            schema: SCHEMA.to_owned(),
            name: "t".to_owned(),
            ..RunHead::default()
        }))
    }

    fn trial(number: u32) -> Line {
        Line::Trial(Box::new(Trial {
            number,
            discarded: vec!["a reason".to_owned()],
            ..Trial::default()
        }))
    }

    fn numbers(contents: &Contents) -> Vec<u32> {
        contents.trials.iter().map(|trial| trial.number).collect()
    }

    #[test]
    fn what_was_appended_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("a/b");
        let (mut store, contents) = Store::open(&folder).unwrap();
        assert_eq!(contents, Contents::default());
        for line in [head(), trial(3), trial(1)] {
            store.append(&line).unwrap();
        }
        assert_eq!(numbers(&read(&folder).unwrap()), [3, 1]);
        drop(store);
        let (mut store, contents) = Store::open(&folder).unwrap();
        assert_eq!(contents.head.unwrap().name, "t");
        store.append(&trial(2)).unwrap();
        assert_eq!(numbers(&read(&folder).unwrap()), [3, 1, 2]);
    }

    /// Runs of before say that a trial is void.
    #[test]
    fn names_of_before_are_read() {
        use loadline_capacity::search::{RateRow, TrialOutcome};
        let line = r#"{"line":"trial","number":3,"void":["a reason"],"times_void":["another"]}"#;
        let Line::Trial(read) = Line::read(line.as_bytes()).unwrap() else {
            panic!("no trial");
        };
        assert_eq!(
            (read.discarded, read.times_discarded),
            (vec!["a reason".to_owned()], vec!["another".to_owned()])
        );
        let outcome: TrialOutcome = serde_json::from_str("\"void\"").unwrap();
        assert_eq!(outcome, TrialOutcome::Discarded);
        let row = r#"{"rate_per_s":5.0,"held":0,"failed":0,"void":2,"seconds":1.0}"#;
        assert_eq!(serde_json::from_str::<RateRow>(row).unwrap().discarded, 2);
        let point = r#"{"x":1.0,"x_text":"1","estimate":null,"trials":[],"void":[]}"#;
        serde_json::from_str::<crate::report::Point>(point).unwrap();
    }

    #[test]
    fn wherever_a_line_is_torn_off_the_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let (mut store, _) = Store::open(folder).unwrap();
        store.append(&head()).unwrap();
        store.append(&trial(1)).unwrap();
        let whole = fs::read(folder.join(JOURNAL_FILE)).unwrap();
        store.append(&trial(2)).unwrap();
        drop(store);
        let all = fs::read(folder.join(JOURNAL_FILE)).unwrap();
        let first = all.iter().position(|byte| *byte == b'\n').unwrap();
        for end in 0..=first {
            let alone = tempfile::tempdir().unwrap();
            fs::write(alone.path().join(JOURNAL_FILE), &all[..end]).unwrap();
            let (_, contents) = Store::open(alone.path()).unwrap();
            assert_eq!(contents, Contents::default());
        }
        for end in whole.len()..all.len() {
            fs::write(folder.join(JOURNAL_FILE), &all[..end]).unwrap();
            assert_eq!(numbers(&read(folder).unwrap()), [1]);
            let (mut store, contents) = Store::open(folder).unwrap();
            assert_eq!(numbers(&contents), [1]);
            store.append(&trial(5)).unwrap();
            assert_eq!(numbers(&read(folder).unwrap()), [1, 5]);
        }
    }

    #[test]
    fn two_runs_in_one_folder_are_one_too_many() {
        let folder = tempfile::tempdir().unwrap();
        let _held = Store::open(folder.path()).unwrap();
        let message = Store::open(folder.path()).unwrap_err().to_string();
        assert!(message.contains("another run is going on"), "{message}");
    }

    #[test]
    fn what_is_no_journal_is_refused_and_left_alone() {
        for (text, right) in [
            ("hello\n", "line 1 is no line of a journal"),
            ("hello", "line 1 is no line of a journal"),
            ("{\"line\":\"run\",\"schema\":\"x/1\"}\n", "its form is x/1"),
            ("{\"line\":\"trial\"}\n", "line 1 is out of place"),
            (
                "{\"line\":\"run\",\"schema\":\"loadline-lab/1\"}\n{\"line\":\"run\"}\n",
                "line 2 is out of place",
            ),
            (
                "{\"line\":\"run\",\"schema\":\"loadline-lab/1\"}\nx\n{\"line\":\"trial\"}\n",
                "line 2 is no line",
            ),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(JOURNAL_FILE);
            fs::write(&path, text).unwrap();
            let message = Store::open(folder.path()).unwrap_err().to_string();
            assert!(message.contains(right), "{message}");
            let message = read(folder.path()).unwrap_err().to_string();
            assert!(message.contains(right), "{message}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        let nowhere = tempfile::tempdir().unwrap();
        let message = read(nowhere.path()).unwrap_err().to_string();
        assert!(
            message.contains("no journal.jsonl; right would be"),
            "{message}"
        );
    }
}
