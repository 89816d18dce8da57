//! The forms of other tools, read as the scripts of their users read them, give back the numbers
//! that they were made from.

use std::collections::BTreeMap;

use loadline_record::report::{Page, Style, text};
use loadline_record::{ErrorKind, Results, TrialRecord};
use proptest::prelude::*;

use crate::records;

fn printed(record: &TrialRecord, style: Style) -> String {
    text(std::slice::from_ref(record), style, Page::default())
}

fn total(record: &TrialRecord) -> &Results {
    &record.headline().unwrap().total
}

/// The number that stands behind `mark`, up to what is no part of it.
fn behind(text: &str, mark: &str) -> f64 {
    let at = text
        .find(mark)
        .unwrap_or_else(|| panic!("no '{mark}' in\n{text}"));
    let rest = text[at + mark.len()..].trim_start();
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'));
    rest[..end.unwrap_or(rest.len())].parse().unwrap()
}

/// The number that stands before `mark`.
fn before(text: &str, mark: &str) -> f64 {
    let at = text
        .find(mark)
        .unwrap_or_else(|| panic!("no '{mark}' in\n{text}"));
    let begin = text[..at].rfind(|c: char| !(c.is_ascii_digit() || c == '.'));
    text[begin.map_or(0, |begin| begin + 1)..at]
        .parse()
        .unwrap()
}

/// wrk's times: `2.57ms`, `800.00us`, `1.50m`.
fn wrk_time_us(text: &str) -> f64 {
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap();
    let factor = match &text[end..] {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "m" => 60e6,
        unit => panic!("unknown unit {unit}"),
    };
    text[..end].parse::<f64>().unwrap() * factor
}

/// Go's durations: `1m2.5s`, `145.082ms`, `97µs`.
fn go_duration_ns(text: &str) -> f64 {
    let (mut rest, mut ns) = (text, 0.0);
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .unwrap();
        let number: f64 = rest[..end].parse().unwrap();
        rest = &rest[end..];
        let end = rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len());
        ns += number
            * match &rest[..end] {
                "ns" => 1.0,
                "µs" => 1e3,
                "ms" => 1e6,
                "s" => 1e9,
                "m" => 60e9,
                "h" => 3600e9,
                unit => panic!("unknown unit {unit}"),
            };
        rest = &rest[end..];
    }
    ns
}

fn close(one: f64, other: f64, tolerance: f64) -> bool {
    (one - other).abs() <= tolerance * other.abs().max(1e-9)
}

/// As `grep Requests/sec | awk '{print $2}'` and the spectrum plotted by HdrHistogram's page.
#[test]
fn wrk2_is_read_back() {
    let record = records::open();
    let text = printed(&record, Style::Wrk2);
    let results = total(&record);
    assert!(close(
        behind(&text, "Requests/sec:"),
        results.rates.completed_per_s,
        1e-5
    ));
    assert_eq!(before(&text, " requests in"), 59_960.0);
    assert_eq!(behind(&text, "timeout"), 41.0);
    assert_eq!(behind(&text, "Non-2xx or 3xx responses:"), 20.0);
    let transfer_kib = before(&text[text.find("Transfer/sec").unwrap()..], "KB");
    assert!(close(
        transfer_kib * 1024.0,
        results.rates.bytes_received_per_s,
        1e-4
    ));
    let shown: BTreeMap<&str, f64> = text
        .lines()
        .filter_map(|line| line.trim().split_once('%'))
        .filter(|(percent, _)| percent.len() == 6 || *percent == "100.000")
        .map(|(percent, time)| (percent, wrk_time_us(time.trim())))
        .collect();
    assert_eq!(shown.len(), 8);
    for (percent, us) in shown {
        let quantile = percent.parse::<f64>().unwrap() / 100.0;
        let recorded = results.latency.histogram().value_at_quantile(quantile);
        assert!(
            close(us, recorded as f64, 0.005),
            "{percent}: {us} {recorded}"
        );
    }
    let footer_count = behind(&text, "Total count    =");
    assert_eq!(footer_count, results.latency.count() as f64);
    assert!(close(
        behind(&text, "#[Mean    =") * 1000.0,
        results.latency.mean_us().unwrap(),
        1e-3
    ));
}

/// Each line of the spectrum is true of the histogram, and the lines go on to all samples.
#[test]
fn the_spectrum_of_wrk2_is_read_back() {
    let record = records::open();
    let text = printed(&record, Style::Wrk2);
    let histogram = total(&record).latency.histogram();
    let rows: Vec<Vec<f64>> = text
        .lines()
        .skip_while(|line| !line.contains("1/(1-Percentile)"))
        .skip(2)
        .take_while(|line| !line.starts_with('#'))
        .map(|line| {
            line.split_whitespace()
                .map(|cell| cell.parse().unwrap())
                .collect()
        })
        .collect();
    assert!(rows.len() > 60);
    for row in &rows {
        let us = (row[0] * 1000.0).round() as u64;
        assert_eq!(histogram.count_between(0, us), row[2] as u64);
        assert!(row[1] <= row[2] / histogram.len() as f64 + 1e-6);
        assert!(row[1] >= 1.0 || close(row[3], 1.0 / (1.0 - row[1]), 0.05));
    }
    assert!(
        rows.windows(2)
            .all(|pair| pair[0][0] <= pair[1][0] && pair[0][1] <= pair[1][1])
    );
    let last = rows.last().unwrap();
    assert_eq!((last[1], last[2]), (1.0, histogram.len() as f64));
}

#[test]
fn vegeta_is_read_back_rate_by_rate() {
    let record = records::steps();
    let text = printed(&record, Style::Vegeta);
    let blocks: Vec<&str> = text.split("\n\n").collect();
    assert_eq!(blocks.len(), 3);
    let group = record.headline().unwrap();
    for (block, results) in blocks.iter().zip(&group.phases[1..]) {
        let fields: BTreeMap<&str, Vec<&str>> = block
            .lines()
            .filter_map(|line| {
                let (name, rest) = line.split_once('[')?;
                let (_, values) = rest.split_once(']')?;
                Some((name.trim(), values.trim().split(", ").collect()))
            })
            .collect();
        let number = |name: &str, index: usize| fields[name][index].parse::<f64>().unwrap();
        assert_eq!(number("Requests", 0), results.tally.offered as f64);
        assert!(close(
            number("Requests", 1),
            results.rates.offered_per_s,
            1e-4
        ));
        let duration_s: Vec<f64> = fields["Duration"]
            .iter()
            .map(|one| go_duration_ns(one) / 1e9)
            .collect();
        assert_eq!(duration_s[1], results.seconds);
        assert!(close(duration_s[0], duration_s[1] + duration_s[2], 1e-3));
        let per_second = results.tally.good as f64 / duration_s[0];
        assert!(close(number("Requests", 2), per_second, 1e-4));
        let latencies = &fields["Latencies"];
        assert_eq!(latencies.len(), 7);
        for (index, quantile) in [(2, 0.5), (3, 0.9), (4, 0.95), (5, 0.99), (6, 1.0)] {
            let recorded_us = results.latency.histogram().value_at_quantile(quantile);
            assert!(close(
                go_duration_ns(latencies[index]),
                recorded_us as f64 * 1e3,
                1e-3
            ));
        }
        assert_eq!(number("Bytes In", 0), results.tally.content_bytes as f64);
        assert_eq!(number("Bytes Out", 0), results.tally.bytes_sent as f64);
        let codes: Vec<(u16, u64)> = fields["Status Codes"][0]
            .split_whitespace()
            .filter_map(|one| one.split_once(':'))
            .map(|(code, count)| (code.parse().unwrap(), count.parse().unwrap()))
            .filter(|(code, _)| *code > 0)
            .collect();
        assert_eq!(codes, results.tally.status_codes);
    }
}

/// As `grep Speed` and `grep susceed` in the papers' scripts.
#[test]
fn webbench_is_read_back() {
    let record = records::closed(1, 1);
    let text = printed(&record, Style::Webbench);
    let results = total(&record);
    let tally = &results.tally;
    assert_eq!(before(&text, " susceed"), tally.completed as f64);
    assert_eq!(before(&text, " failed"), tally.errors_total() as f64);
    assert_eq!(
        before(&text, " clients, running"),
        f64::from(record.run.connections)
    );
    assert_eq!(behind(&text, "running "), results.seconds);
    let ended = (tally.completed + tally.errors_total()) as f64;
    assert!((behind(&text, "Speed=") - ended / results.seconds * 60.0).abs() <= 1.0);
    assert!((before(&text, " bytes/sec") - results.rates.bytes_received_per_s).abs() <= 1.0);
}

#[test]
fn weighttp_is_read_back() {
    let record = records::steps();
    let text = printed(&record, Style::Weighttp);
    let last = &text[text.rfind("weighttp - ").unwrap()..];
    let results = &record.headline().unwrap().phases[3];
    let tally = &results.tally;
    assert_eq!(before(last, " total, "), tally.offered as f64);
    assert_eq!(before(last, " started"), tally.sent as f64);
    // Two of the answers came after the end.
    assert_eq!(before(last, " succeeded"), (tally.good - 2) as f64);
    assert_eq!(
        before(last, " failed"),
        tally.errors_of(ErrorKind::Status4xx) as f64
    );
    assert_eq!(
        before(last, " errored"),
        tally.errors_of(ErrorKind::Timeout) as f64
    );
    assert_eq!(before(last, " done"), (tally.offered - 2) as f64);
    for (class, name) in [" 2xx", " 3xx", " 4xx", " 5xx"].into_iter().enumerate() {
        let late = results.after_end.statuses[class + 1];
        assert_eq!(
            before(last, name),
            (tally.statuses[class + 1] - late) as f64
        );
    }
    let bytes = tally.bytes_received - results.after_end.bytes_received;
    let content_bytes = tally.content_bytes - results.after_end.content_bytes;
    assert_eq!(before(last, " bytes total"), bytes as f64);
    assert_eq!(before(last, " bytes data"), content_bytes as f64);
    assert_eq!(before(last, " bytes http"), (bytes - content_bytes) as f64);
    assert_eq!(behind(last, "finished in "), results.seconds.floor());
}

/// What a wrk user greps for stands in the summary too.
#[test]
fn the_summary_ends_as_wrk_does() {
    let record = records::open();
    let text = printed(&record, Style::Summary);
    let per_second = total(&record).rates.completed_per_s;
    assert!(close(behind(&text, "Requests/sec:"), per_second, 1e-3));
    assert!(text.starts_with("Running 30 s test @ http://127.0.0.1:8080/\n"));
}

fn with(counts: [u64; 4], seconds: f64) -> TrialRecord {
    let [good, client_errors, timeouts, refused] = counts;
    let mut record = records::open();
    let results = &mut record.groups[0].total;
    let tally = records::answered(
        good + client_errors + timeouts + refused,
        &[(200, good), (404, client_errors)],
        &[
            (ErrorKind::Status4xx, client_errors),
            (ErrorKind::Timeout, timeouts),
            (ErrorKind::Refused, refused),
        ],
    );
    *results = records::results(seconds, tally, 500.0, 100.0);
    record
}

proptest! {
    #[test]
    fn counts_survive_every_form(
        good in 0_u64..5000,
        client_errors in 0_u64..100,
        timeouts in 0_u64..100,
        refused in 0_u64..100,
        seconds in 0.1_f64..100.0,
    ) {
        let record = with([good, client_errors, timeouts, refused], seconds);
        let completed = (good + client_errors) as f64;
        let wrk2 = printed(&record, Style::Wrk2);
        prop_assert_eq!(before(&wrk2, " requests in"), completed);
        prop_assert!((behind(&wrk2, "Requests/sec:") - completed / seconds).abs() <= 0.006);
        if timeouts + refused > 0 {
            prop_assert_eq!(behind(&wrk2, "connect "), refused as f64);
            prop_assert_eq!(behind(&wrk2, "timeout "), timeouts as f64);
        }
        let webbench = printed(&record, Style::Webbench);
        prop_assert_eq!(before(&webbench, " susceed"), completed);
        prop_assert_eq!(before(&webbench, " failed"), (timeouts + refused) as f64);
        let weighttp = printed(&record, Style::Weighttp);
        prop_assert_eq!(before(&weighttp, " succeeded"), good as f64);
        prop_assert_eq!(before(&weighttp, " failed"), client_errors as f64);
        prop_assert_eq!(before(&weighttp, " errored"), (timeouts + refused) as f64);
        let vegeta = printed(&record, Style::Vegeta);
        let all = (good + client_errors + timeouts + refused) as f64;
        prop_assert_eq!(behind(&vegeta, "[total, rate, throughput]"), all);
    }
}
