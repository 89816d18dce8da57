//! Every latency as a log of HdrHistogram intervals (V2 histograms, log format 1.3), one interval a
//! second, in microseconds. HistogramLogProcessor and HistogramLogAnalyzer read it.
//!
//! Tags separate what must not be mixed: `latency` (from due) and `service` (from sent) of the plain
//! clients in the counted phases; before them stands `warm-up.` where a second does not count, and
//! the name of the group where it is another. What came after the end is one more interval behind the
//! last second, so that all intervals of a tag together hold every answer.

use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{
    IntervalLogWriter, IntervalLogWriterBuilder, IntervalLogWriterError, Tag,
};

use crate::distribution::decompressed;
use crate::{GroupRecord, SecondBlobs, TrialRecord};

/// The column of the maximum, which is there for people, is in milliseconds.
const US_PER_MS: f64 = 1000.0;

/// Writes one log for all records; times in it count from the start of the first.
///
/// # Errors
/// The file cannot be written.
pub fn write_hdr(records: &[TrialRecord], to: &mut impl Write) -> io::Result<()> {
    let start_ms = records.first().map_or(0, |record| record.run.start_unix_ms);
    let start = UNIX_EPOCH + Duration::from_millis(start_ms);
    writeln!(
        to,
        "#[Logged with loadline {}, values in microseconds]",
        env!("CARGO_PKG_VERSION")
    )?;
    writeln!(to, "#[Histogram log format version 1.3]")?;
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .with_start_time(start)
        .with_base_time(start)
        .with_max_value_divisor(US_PER_MS)
        .begin_log_with(to, &mut serializer)?;
    for record in records {
        let offset_ms = record.run.start_unix_ms.saturating_sub(start_ms);
        write_record(record, Duration::from_millis(offset_ms), &mut log)?;
    }
    drop(log);
    to.flush()
}

type Log<'l, W> = IntervalLogWriter<'l, 'l, W, V2DeflateSerializer>;

fn write_record<W: Write>(
    record: &TrialRecord,
    offset: Duration,
    log: &mut Log<'_, W>,
) -> io::Result<()> {
    let ran = Duration::from_secs_f64(record.run.ran_s.max(0.0));
    let seconds = record.groups.iter().map(|group| group.series.len()).max();
    for at in 0..seconds.unwrap_or(0) {
        for (index, group) in record.groups.iter().enumerate() {
            let Some(second) = group.series.get(at) else {
                continue;
            };
            let phase = record.phase_of(second.second);
            let prefix = prefix(index, group, phase.is_none_or(|phase| phase.counted));
            let begin = Duration::from_secs(u64::from(second.second));
            let len = ran.saturating_sub(begin).min(Duration::from_secs(1));
            write_blobs(&second.blobs, &prefix, offset + begin, len, log)?;
        }
    }
    let wait = Duration::from_secs_f64(record.wait_s());
    for (index, group) in record.groups.iter().enumerate() {
        for (blobs, is_counted) in [(&group.warm_up_after_end, false), (&group.after_end, true)] {
            let prefix = prefix(index, group, is_counted);
            write_blobs(blobs, &prefix, offset + ran, wait, log)?;
        }
    }
    Ok(())
}

/// What stands before `latency` and `service` in the tags of a group.
fn prefix(index: usize, group: &GroupRecord, is_counted: bool) -> String {
    let mut prefix = String::new();
    if !is_counted {
        prefix += "warm-up.";
    }
    if index > 0 {
        // What ends a tag in the log is not part of it.
        prefix += &group.name.replace([',', ' ', '\r', '\n'], "-");
        prefix += ".";
    }
    prefix
}

fn write_blobs<W: Write>(
    blobs: &SecondBlobs,
    prefix: &str,
    begin: Duration,
    len: Duration,
    log: &mut Log<'_, W>,
) -> io::Result<()> {
    for (blob, name) in [(&blobs.latency, "latency"), (&blobs.service, "service")] {
        if blob.is_empty() {
            continue;
        }
        let histogram = decompressed(blob).map_err(io::Error::other)?;
        let tag = format!("{prefix}{name}");
        let written = log.write_histogram(&histogram, begin, len, Tag::new(&tag));
        written.map_err(|error| match error {
            IntervalLogWriterError::IoError(error) => error,
            IntervalLogWriterError::SerializeError(error) => io::Error::other(error.to_string()),
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::*;
    use crate::distribution::{compressed, from_text};
    use crate::{PhaseRecord, SecondRecord, ThreadRecord, latencies};

    fn blobs(us: u64, count: u64) -> SecondBlobs {
        let mut histogram = latencies();
        histogram.saturating_record_n(us, count);
        let latency = compressed(&histogram).unwrap();
        SecondBlobs {
            latency,
            service: Vec::new(),
        }
    }

    fn record(start_unix_ms: u64) -> TrialRecord {
        let mut record = TrialRecord::default();
        record.run.start_unix_ms = start_unix_ms;
        record.run.ran_s = 2.5;
        record.threads = vec![ThreadRecord {
            after_end_s: 0.25,
            ..ThreadRecord::default()
        }];
        record.phases = vec![
            PhaseRecord {
                end_s: 1.0,
                ..PhaseRecord::default()
            },
            PhaseRecord {
                begin_s: 1.0,
                end_s: 2.5,
                counted: true,
                ..PhaseRecord::default()
            },
        ];
        let series = (0..3_u32).map(|second| SecondRecord {
            second,
            blobs: blobs(1000 * u64::from(second + 1), 10),
            ..SecondRecord::default()
        });
        let series: Vec<SecondRecord> = series.collect();
        record.groups = vec![
            GroupRecord {
                series: series.clone(),
                after_end: blobs(90_000, 1),
                ..GroupRecord::default()
            },
            GroupRecord {
                name: "slow readers".to_owned(),
                series,
                ..GroupRecord::default()
            },
        ];
        record
    }

    fn written(records: &[TrialRecord]) -> String {
        let mut file = Vec::new();
        write_hdr(records, &mut file).unwrap();
        String::from_utf8(file).unwrap()
    }

    #[test]
    fn another_reader_finds_every_latency_below_its_tag() {
        let text = written(&[record(1_700_000_000_500)]);
        let mut sums = BTreeMap::<String, Histogram<u64>>::new();
        let mut last_s = 0.0;
        for entry in IntervalLogIterator::new(text.as_bytes()) {
            match entry.unwrap() {
                LogEntry::StartTime(time) | LogEntry::BaseTime(time) => {
                    assert_eq!(time.as_millis(), 1_700_000_000_500);
                }
                LogEntry::Interval(interval) => {
                    let begin_s = interval.start_timestamp().as_secs_f64();
                    assert!(begin_s >= last_s, "in the order of time");
                    last_s = begin_s;
                    let histogram = from_text(interval.encoded_histogram()).unwrap();
                    let max_ms = histogram.max() as f64 / 1000.0;
                    assert!((interval.max() - max_ms).abs() < 0.001);
                    let tag = interval.tag().unwrap().as_str().to_owned();
                    sums.entry(tag)
                        .or_insert_with(latencies)
                        .add(&histogram)
                        .unwrap();
                }
            }
        }
        let counts: Vec<(&str, u64)> = sums
            .iter()
            .map(|(tag, sum)| (tag.as_str(), sum.len()))
            .collect();
        let expected = [
            ("latency", 21),
            ("slow-readers.latency", 20),
            ("warm-up.latency", 10),
            ("warm-up.slow-readers.latency", 10),
        ];
        assert_eq!(counts, expected);
        assert!(sums["latency"].max() >= 90_000);
    }

    /// The form that HistogramLogReader documents: `[Tag=tag,]start,length,max,base64`, with
    /// comments before it; three decimals as HistogramLogWriter has them.
    #[test]
    fn lines_have_the_documented_form() {
        let text = written(&[record(1_700_000_000_500)]);
        let mut lines = text.lines();
        let comments: Vec<&str> = lines.by_ref().take(5).collect();
        assert!(comments.iter().all(|line| line.starts_with("#[")));
        assert_eq!(comments[1], "#[Histogram log format version 1.3]");
        assert_eq!(
            comments[2],
            "#[StartTime: 1700000000.500 (seconds since epoch)]"
        );
        assert_eq!(
            comments[3],
            "#[BaseTime: 1700000000.500 (seconds since epoch)]"
        );
        let first = lines.next().unwrap();
        assert!(
            first.starts_with("Tag=warm-up.latency,0.000,1.000,1.000,HISTFAAAA"),
            "{first}"
        );
        // The last second was half of one.
        let third = lines
            .find(|line| line.starts_with("Tag=latency,2."))
            .unwrap();
        assert!(third.starts_with("Tag=latency,2.000,0.500,3.00"), "{third}");
        assert!(text.contains("\nTag=latency,2.500,0.250,90."));
    }

    #[test]
    fn rounds_follow_each_other_in_time() {
        let text = written(&[record(5_000), record(11_250)]);
        assert_eq!(text.matches("#[StartTime").count(), 1);
        assert!(text.contains("Tag=latency,1.000,"));
        assert!(text.contains("Tag=latency,7.250,"));
    }
}
