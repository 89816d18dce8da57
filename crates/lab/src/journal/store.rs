//! The journal on the disk: one run in a folder, appended to by one process at a time.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use super::{AddedBlocks, CapacityTrial, Line, RunHead, SCHEMA, Trial};

/// Its name in the folder of a run.
pub const JOURNAL_FILE: &str = "journal.jsonl";

/// A line with more is none of ours: a trial of a day, second by second, has less.
const LINE_BYTES_MAX: u64 = 256 << 20;

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

/// Reads the journal of a run, also of one that still goes on. A last line that was torn off is passed
/// over.
///
/// # Errors
/// One line: the folder, what is wrong, what would be right.
pub fn read(folder: &Path) -> Result<Contents, String> {
    let path = folder.join(JOURNAL_FILE);
    let mut file = File::open(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!(
            "{}: no {JOURNAL_FILE}; right would be the folder that `loadline lab run` was given with \
             --out",
            folder.display()
        ),
        _ => format!("{}: {error}", path.display()),
    })?;
    let (contents, _) =
        read_lines(&mut file).map_err(|why| format!("{}: {why}", path.display()))?;
    Ok(contents)
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
    /// One line: another run holds it, or it cannot be read or written.
    pub fn open(folder: &Path) -> Result<(Self, Contents), String> {
        let path = folder.join(JOURNAL_FILE);
        let fail = |error: io::Error| format!("{}: {error}", path.display());
        fs::create_dir_all(folder)
            .map_err(|error| format!("--out {}: {error}", folder.display()))?;
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&path).map_err(fail)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(format!(
                    "{}: another run is going on in this folder; right would be another --out",
                    folder.display()
                ));
            }
            Err(TryLockError::Error(error)) => return Err(fail(error)),
        }
        let (contents, end) =
            read_lines(&mut file).map_err(|why| format!("{}: {why}", path.display()))?;
        file.set_len(end).map_err(fail)?;
        file.seek(SeekFrom::Start(end)).map_err(fail)?;
        sync_folder(folder).map_err(fail)?;
        Ok((Self { file, path }, contents))
    }

    /// Appends a line; it is on the disk when this returns.
    ///
    /// # Errors
    /// It cannot be written. What was written of it is a torn line for whoever opens it next.
    pub fn append(&mut self, line: &Line) -> Result<(), String> {
        let mut bytes = serde_json::to_vec(line).map_err(|error| error.to_string())?;
        bytes.push(b'\n');
        let written = self
            .file
            .write_all(&bytes)
            .and_then(|()| self.file.sync_data());
        written.map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

/// A new file in a folder is there for good when the folder is written too.
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// All whole lines, and where the last of them ends.
fn read_lines(file: &mut File) -> Result<(Contents, u64), String> {
    let mut contents = Contents::default();
    let mut reader = BufReader::new(file);
    let (mut number, mut end) = (0, 0);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let count = reader
            .by_ref()
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut bytes)
            .map_err(|error| error.to_string())?;
        if bytes.last() != Some(&b'\n') {
            if count as u64 == LINE_BYTES_MAX {
                return Err(format!("line {}: longer than any line of ours", number + 1));
            }
            return Ok((contents, end)); // the end, or a line that was torn off
        }
        number += 1;
        end += count as u64;
        let line = serde_json::from_slice::<Line>(&bytes)
            .map_err(|error| format!("line {number} is no line of a journal: {error}"))?;
        match line {
            Line::Run(head) if number == 1 && head.schema == SCHEMA => contents.head = Some(head),
            Line::Run(head) if number == 1 => {
                let schema = &head.schema;
                return Err(format!("its form is {schema}; right would be {SCHEMA}"));
            }
            Line::Capacity(one) if number > 1 => contents.capacities.push(*one),
            Line::Blocks(blocks) if number > 1 => contents.blocks.push(blocks),
            Line::Trial(trial) if number > 1 => contents.trials.push(*trial),
            Line::Charts(change) if number > 1 => {
                if let Some(head) = &mut contents.head {
                    head.plan_toml = change.plan_toml;
                }
            }
            Line::Run(_)
            | Line::Charts(_)
            | Line::Capacity(_)
            | Line::Blocks(_)
            | Line::Trial(_) => {
                return Err(format!(
                    "line {number} is out of place: the first line is the run, and none of the others"
                ));
            }
        }
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
        use loadline_capacity::search::{Outcome, Row};
        let line = r#"{"line":"trial","number":3,"void":["a reason"],"times_void":["another"]}"#;
        let Line::Trial(read) = serde_json::from_str(line).unwrap() else {
            panic!("no trial");
        };
        assert_eq!(
            (read.discarded, read.times_discarded),
            (vec!["a reason".to_owned()], vec!["another".to_owned()])
        );
        let outcome: Outcome = serde_json::from_str("\"void\"").unwrap();
        assert_eq!(outcome, Outcome::Discarded);
        let row = r#"{"rate_per_s":5.0,"held":0,"failed":0,"void":2,"seconds":1.0}"#;
        assert_eq!(serde_json::from_str::<Row>(row).unwrap().discarded, 2);
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
        let message = Store::open(folder.path()).unwrap_err();
        assert!(message.contains("another run is going on"), "{message}");
    }

    #[test]
    fn what_is_no_journal_is_refused_and_left_alone() {
        for (text, right) in [
            ("hello\n", "line 1 is no line of a journal"),
            ("{\"line\":\"run\",\"schema\":\"x/1\"}\n", "its form is x/1"),
            ("{\"line\":\"trial\"}\n", "line 1 is out of place"),
            (
                "{\"line\":\"run\",\"schema\":\"loadline-lab/1\"}\nx\n{\"line\":\"trial\"}\n",
                "line 2 is no line",
            ),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(JOURNAL_FILE);
            fs::write(&path, text).unwrap();
            let message = Store::open(folder.path()).unwrap_err();
            assert!(message.contains(right), "{message}");
            assert!(read(folder.path()).unwrap_err().contains(right));
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        let nowhere = tempfile::tempdir().unwrap();
        let message = read(nowhere.path()).unwrap_err();
        assert!(
            message.contains("no journal.jsonl; right would be"),
            "{message}"
        );
    }
}
