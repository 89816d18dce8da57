//! The time series as CSV (RFC 4180, with plain line feeds): one row for each second of each group,
//! groups one after the other within a second. A figure that could not be had is an empty cell.
//!
//! What came after the end is in one more row of its group, behind the last second: so the rows of a
//! group add up to all that it measured.

use std::io::{self, Write};

use crate::{GroupRecord, SecondRecord, Tally, TrialRecord};

/// Names of the columns, in order, as in the first row. Those that are also fields of the JSON's
/// `series` are the same.
pub const COLUMNS: [&str; 18] = [
    "round",
    "second",
    "unix_ms",
    "phase",
    "counted",
    "group",
    "offered",
    "sent",
    "completed",
    "good",
    "errors",
    "bytes_received",
    "p50_us",
    "p90_us",
    "p99_us",
    "max_us",
    "in_flight",
    "lag_max_us",
];

/// In place of the phase, in the row of what came after the end.
const AFTER_END: &str = "after the end";

/// Writes the series of all records below one header.
///
/// # Errors
/// The file cannot be written.
pub fn write_csv(records: &[TrialRecord], to: &mut impl Write) -> io::Result<()> {
    writeln!(to, "{}", COLUMNS.join(","))?;
    for record in records {
        let seconds = record.groups.iter().map(|group| group.series.len()).max();
        for at in 0..seconds.unwrap_or(0) {
            for group in &record.groups {
                if let Some(second) = group.series.get(at) {
                    let phase = record.phase_of(second.second);
                    let stretch = Stretch {
                        phase: phase.map_or("", |phase| &phase.label),
                        is_counted: phase.is_some_and(|phase| phase.counted),
                        begin_ms: u64::from(second.second) * 1000,
                    };
                    write_row(record, group, &stretch, second, to)?;
                }
            }
        }
        for group in &record.groups {
            write_after_end(record, group, to)?;
        }
    }
    to.flush()
}

/// What a row is of.
struct Stretch<'r> {
    phase: &'r str,
    is_counted: bool,
    /// From the start.
    begin_ms: u64,
}

fn write_after_end(
    record: &TrialRecord,
    group: &GroupRecord,
    to: &mut impl Write,
) -> io::Result<()> {
    let mut tally = Tally::default();
    for results in &group.phases {
        tally.merge(&results.after_end);
    }
    let late = SecondRecord {
        second: u32::try_from(group.series.len()).unwrap_or(u32::MAX),
        offered: tally.offered,
        sent: tally.sent,
        completed: tally.completed,
        good: tally.good,
        errors: tally.errors_total(),
        bytes_received: tally.bytes_received,
        ..group.after_end.figures()
    };
    if late.sent + late.completed + late.errors + late.bytes_received == 0 {
        return Ok(());
    }
    let stretch = Stretch {
        phase: AFTER_END,
        is_counted: true,
        begin_ms: (record.run.ran_s * 1000.0).round() as u64,
    };
    write_row(record, group, &stretch, &late, to)
}

fn write_row(
    record: &TrialRecord,
    group: &GroupRecord,
    stretch: &Stretch<'_>,
    second: &SecondRecord,
    to: &mut impl Write,
) -> io::Result<()> {
    let unix_ms = record.run.start_unix_ms + stretch.begin_ms;
    let or_empty = |us: Option<u64>| us.map_or_else(String::new, |us| us.to_string());
    let cells: [String; COLUMNS.len()] = [
        record.run.round.to_string(),
        second.second.to_string(),
        unix_ms.to_string(),
        quoted(stretch.phase),
        stretch.is_counted.to_string(),
        quoted(&group.name),
        second.offered.to_string(),
        second.sent.to_string(),
        second.completed.to_string(),
        second.good.to_string(),
        second.errors.to_string(),
        second.bytes_received.to_string(),
        or_empty(second.p50_us),
        or_empty(second.p90_us),
        or_empty(second.p99_us),
        or_empty(second.max_us),
        second
            .in_flight
            .map_or_else(String::new, |mean| format!("{mean:.2}")),
        second.lag_max_us.to_string(),
    ];
    writeln!(to, "{}", cells.join(","))
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
        results.after_end.errors[0] = 1;
        results.after_end.bytes_received = 270;
        clients.phases = vec![Results::default(), results];
        let mut histogram = latencies();
        histogram.saturating_record(700);
        clients.after_end.latency = compressed(&histogram).unwrap();
        record.groups = vec![clients, group("idle", vec![SecondRecord::default()])];
        let mut file = Vec::new();
        write_csv(&[record], &mut file).unwrap();
        let expected = "\
round,second,unix_ms,phase,counted,group,offered,sent,completed,good,errors,bytes_received,p50_us,p90_us,p99_us,max_us,in_flight,lag_max_us
1,0,1000000,warm-up,false,clients,12,11,10,9,1,900,150,,,2000,1.50,0
1,0,1000000,warm-up,false,idle,0,0,0,0,0,0,,,,,,0
1,1,1001000,\"all, \"\"really\"\"\",true,clients,12,11,20,9,1,900,150,,,2000,1.50,0
1,2,1001500,after the end,true,clients,0,0,3,2,1,270,,,,700,,0
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
