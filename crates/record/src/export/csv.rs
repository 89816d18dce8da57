//! The time series as CSV (RFC 4180, with plain line feeds): one row for each second of each group,
//! groups one after the other within a second. A figure that could not be had is an empty cell.
//!
//! What came after the end is in one more row of its group, behind the last second, and what came then for
//! requests of the warm-up in another one: so the rows of a group add up to all that it measured.

use std::io::{self, Write};

use crate::{GroupRecord, SecondRecord, Tally, TrialRecord};

/// A column's name, and what stands below it.
type Column = (&'static str, fn(&CsvRow<'_>) -> String);

/// The columns in order. Those that are also fields of the JSON's `series` have the same names.
const COLUMNS: [Column; 20] = [
    ("round", |row| row.record.run.round.to_string()),
    ("second", |row| row.second.second.to_string()),
    ("unix_ms", |row| {
        (row.record.run.start_unix_ms + row.begin_ms).to_string()
    }),
    ("phase", |row| quoted(row.phase)),
    ("counted", |row| row.is_counted.to_string()),
    ("group", |row| quoted(&row.group.name)),
    ("offered", |row| row.second.offered.to_string()),
    ("sent", |row| row.second.sent.to_string()),
    ("completed", |row| row.second.completed.to_string()),
    ("good", |row| row.second.good.to_string()),
    ("errors", |row| row.second.errors.to_string()),
    ("bytes_received", |row| {
        row.second.bytes_received.to_string()
    }),
    ("p50_us", |row| or_empty(row.second.p50_us)),
    ("p90_us", |row| or_empty(row.second.p90_us)),
    ("p99_us", |row| or_empty(row.second.p99_us)),
    ("max_us", |row| or_empty(row.second.max_us)),
    ("in_flight", |row| {
        or_empty(row.second.in_flight.map(|mean| format!("{mean:.2}")))
    }),
    ("lag_max_us", |row| row.second.lag_max_us.to_string()),
    ("in_goal", |row| row.second.in_goal.to_string()),
    ("retries", |row| row.second.retries.to_string()),
];

/// In place of the phase, in the row of what came after the end.
const AFTER_END: &str = "after the end";

/// Writes the series of all records below one header.
///
/// # Errors
/// The file cannot be written.
pub fn write_csv(records: &[TrialRecord], to: &mut impl Write) -> io::Result<()> {
    writeln!(to, "{}", COLUMNS.map(|(name, _)| name).join(","))?;
    for record in records {
        let seconds = record.groups.iter().map(|group| group.series.len()).max();
        for at in 0..seconds.unwrap_or(0) {
            for group in &record.groups {
                if let Some(second) = group.series.get(at) {
                    let phase = record.phase_of(second.second);
                    let row = CsvRow {
                        record,
                        group,
                        second,
                        phase: phase.map_or("", |phase| &phase.label),
                        is_counted: phase.is_some_and(|phase| phase.counted),
                        begin_ms: u64::from(second.second) * 1000,
                    };
                    row.write(to)?;
                }
            }
        }
        for group in &record.groups {
            for is_counted in [false, true] {
                write_after_end(record, group, is_counted, to)?;
            }
        }
    }
    to.flush()
}

/// What a row is of.
struct CsvRow<'r> {
    record: &'r TrialRecord,
    group: &'r GroupRecord,
    second: &'r SecondRecord,
    phase: &'r str,
    is_counted: bool,
    /// From the start.
    begin_ms: u64,
}

/// Of the requests that count, or of those of the warm-up.
fn write_after_end(
    record: &TrialRecord,
    group: &GroupRecord,
    is_counted: bool,
    to: &mut impl Write,
) -> io::Result<()> {
    let mut tally = Tally::default();
    for (index, results) in group.phases.iter().enumerate() {
        let phase = record.phases.get(index);
        if phase.is_none_or(|phase| phase.counted) == is_counted {
            tally.merge(&results.after_end);
        }
    }
    let blobs = match is_counted {
        true => &group.after_end,
        false => &group.warm_up_after_end,
    };
    let late = SecondRecord {
        second: u32::try_from(group.series.len()).unwrap_or(u32::MAX),
        offered: tally.offered,
        sent: tally.sent,
        completed: tally.completed,
        good: tally.good,
        in_goal: tally.in_goal,
        retries: tally.retries,
        errors: tally.errors_total(),
        bytes_received: tally.bytes_received,
        ..blobs.figures()
    };
    if late.sent + late.completed + late.errors + late.bytes_received == 0 {
        return Ok(());
    }
    let row = CsvRow {
        record,
        group,
        second: &late,
        phase: AFTER_END,
        is_counted,
        begin_ms: (record.run.ran_s * 1000.0).round() as u64,
    };
    row.write(to)
}

impl CsvRow<'_> {
    fn write(&self, to: &mut impl Write) -> io::Result<()> {
        writeln!(to, "{}", COLUMNS.map(|(_, cell)| cell(self)).join(","))
    }
}

fn or_empty<T: ToString>(figure: Option<T>) -> String {
    figure.map_or_else(String::new, |figure| figure.to_string())
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::compressed;
    use crate::{PhaseRecord, Results, latencies};

    #[test]
    fn a_row_a_second_and_group() {
        let mut record = TrialRecord::default();
        record.run.round = 1;
        record.run.start_unix_ms = 1_000_000;
        let phase = |label: &str, begin_s, end_s, counted| PhaseRecord {
            label: label.to_owned(),
            begin_s,
            end_s,
            planned_per_s: None,
            counted,
        };
        record.phases = vec![
            phase("warm-up", 0.0, 1.0, false),
            phase("all, \"really\"", 1.0, 2.0, true),
        ];
        let second = |second, completed| SecondRecord {
            second,
            offered: 12,
            sent: 11,
            completed,
            good: 9,
            errors: 1,
            bytes_received: 900,
            p50_us: Some(150),
            max_us: Some(2000),
            in_flight: Some(1.5),
            in_goal: u64::from(second) * 8,
            retries: u64::from(second) * 4,
            ..SecondRecord::default()
        };
        let group = |name: &str, series| GroupRecord {
            name: name.to_owned(),
            series,
            ..GroupRecord::default()
        };
        record.run.ran_s = 1.5;
        let mut clients = group("clients", vec![second(0, 10), second(1, 20)]);
        let mut results = Results::default();
        results.after_end.completed = 3;
        results.after_end.good = 2;
        results.after_end.in_goal = 1;
        results.after_end.errors[0] = 1;
        results.after_end.bytes_received = 270;
        let mut warm_up = Results::default();
        warm_up.after_end.completed = 5;
        warm_up.after_end.bytes_received = 450;
        clients.phases = vec![warm_up, results];
        let of_one = |us| {
            let mut histogram = latencies();
            histogram.saturating_record(us);
            compressed(&histogram).unwrap()
        };
        clients.after_end.latency = of_one(700);
        clients.warm_up_after_end.latency = of_one(900);
        record.groups = vec![clients, group("idle", vec![SecondRecord::default()])];
        let mut file = Vec::new();
        write_csv(&[record], &mut file).unwrap();
        let expected = "\
round,second,unix_ms,phase,counted,group,offered,sent,completed,good,errors,bytes_received,p50_us,p90_us,p99_us,max_us,in_flight,lag_max_us,in_goal,retries
1,0,1000000,warm-up,false,clients,12,11,10,9,1,900,150,,,2000,1.50,0,0,0
1,0,1000000,warm-up,false,idle,0,0,0,0,0,0,,,,,,0,0,0
1,1,1001000,\"all, \"\"really\"\"\",true,clients,12,11,20,9,1,900,150,,,2000,1.50,0,8,4
1,2,1001500,after the end,false,clients,0,0,5,0,0,450,,,,900,,0,0,0
1,2,1001500,after the end,true,clients,0,0,3,2,1,270,,,,700,,0,1,0
";
        assert_eq!(String::from_utf8(file).unwrap(), expected);
    }

    #[test]
    fn of_nothing_there_is_a_header() {
        let mut file = Vec::new();
        write_csv(&[], &mut file).unwrap();
        assert_eq!(file.iter().filter(|byte| **byte == b'\n').count(), 1);
    }
}
