//! Records as lines of JSON: one line for each round, so that a file of one round is one JSON
//! document, and files can be put one behind the other.

use std::io::{self, Write};

use thiserror::Error;

use crate::{SCHEMA, TrialRecord, from_json};

/// Writes records, one on a line.
///
/// # Errors
/// The file cannot be written.
pub fn write_json(records: &[TrialRecord], to: &mut impl Write) -> io::Result<()> {
    for record in records {
        let mut line = serde_json::to_vec(record)?; // as everywhere: each other way is all of this code again
        line.push(b'\n');
        to.write_all(&line)?;
    }
    to.flush()
}

/// Why a file is not one of records.
#[derive(Debug, Error)]
pub enum ReadError {
    /// A line (from 1) is not a record.
    #[error("line {0} is not the record of a trial: {1}")]
    Line(usize, serde_json::Error),
    /// A line is of a schema that this version does not know.
    #[error("line {0} has the schema \"{1}\", known is \"{SCHEMA}\"")]
    Schema(usize, String),
}

/// Reads records, one on a line; empty lines are passed over, and so are fields that later versions
/// have added.
///
/// # Errors
/// A line is not a record, or of another schema.
pub fn read_json(text: &str) -> Result<Vec<TrialRecord>, ReadError> {
    let lines = text.lines().enumerate();
    lines
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(index, line)| {
            let record: TrialRecord =
                from_json(line.as_bytes()).map_err(|error| ReadError::Line(index + 1, error))?;
            if record.schema == SCHEMA {
                Ok(record)
            } else {
                Err(ReadError::Schema(index + 1, record.schema))
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(round: u32) -> TrialRecord {
        let mut record = TrialRecord {
            schema: SCHEMA.to_owned(),
            ..TrialRecord::default()
        };
        record.run.round = round;
        record.run.command = vec!["two\nlines".to_owned()];
        record
    }

    #[test]
    fn each_round_is_a_line() {
        let records = [round(1), round(2)];
        let mut file = Vec::new();
        write_json(&records, &mut file).unwrap();
        let text = String::from_utf8(file).unwrap();
        assert_eq!(text.lines().count(), 2);
        assert_eq!(read_json(&text).unwrap(), records);
        assert_eq!(read_json(&format!("\n{text}\n")).unwrap().len(), 2);
    }

    #[test]
    fn what_is_no_record_is_refused_by_its_line() {
        let error = |text: &str| read_json(text).unwrap_err().to_string();
        assert!(error("\nhello").starts_with("line 2 is not the record"));
        assert!(error("{\"schema\":\"loadline-load/9\"}").contains("known is \"loadline-load/1\""));
        assert!(error("{}").contains("the schema \"\""));
    }
}
