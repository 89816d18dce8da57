//! Every form against its golden file, and every example in the documentation against the same.

use std::fs;
use std::path::{Path, PathBuf};

use loadline_record::report::{Page, Style, live, notes, text};
use loadline_record::{
    ErrorKind, GroupVerdict, LittleRecord, SecondRecord, Snapshot, Tally, TrialRecord,
};

use crate::records;

const ASCII: Page = Page {
    width: 80,
    is_utf8: false,
};

fn file(name: &str) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    tests.join("record/golden").join(name)
}

fn is_update() -> bool {
    std::env::var_os("UPDATE_GOLDEN").is_some()
}

fn check(name: &str, text: &str) {
    if is_update() {
        fs::write(file(name), text).unwrap();
        return;
    }
    let golden = fs::read_to_string(file(name)).unwrap_or_default();
    assert!(
        golden == text,
        "{name} is different (UPDATE_GOLDEN=1 writes it anew):\n{text}"
    );
}

/// Each golden file by its name, and the text that it has to be.
fn all() -> Vec<(&'static str, String)> {
    let shown = |record: TrialRecord, style| text(&[record], style, Page::default());
    let rounds: Vec<TrialRecord> = (1..=3).map(|round| records::closed(round, 3)).collect();
    vec![
        ("summary-open.txt", shown(records::open(), Style::Summary)),
        (
            "summary-ascii.txt",
            text(&[records::open()], Style::Summary, ASCII),
        ),
        (
            "summary-rounds.txt",
            text(&rounds, Style::Summary, Page::default()),
        ),
        (
            "summary-retries.txt",
            shown(records::retried(), Style::Summary),
        ),
        ("summary-steps.txt", shown(records::steps(), Style::Summary)),
        (
            "summary-interrupted.txt",
            shown(records::interrupted(), Style::Summary),
        ),
        (
            "summary-silent.txt",
            shown(records::silent(), Style::Summary),
        ),
        ("wrk2.txt", shown(records::open(), Style::Wrk2)),
        (
            "webbench.txt",
            shown(records::closed(1, 1), Style::Webbench),
        ),
        (
            "weighttp.txt",
            shown(records::closed(1, 1), Style::Weighttp),
        ),
        ("vegeta.txt", shown(records::steps(), Style::Vegeta)),
        ("vegeta-silent.txt", shown(records::silent(), Style::Vegeta)),
        ("wrk2-silent.txt", shown(records::silent(), Style::Wrk2)),
        (
            "notes.txt",
            notes(&records::interrupted()).join("\n") + "\n",
        ),
        (
            "live.txt",
            live::lines(&snapshot(), Page::default()).join("\n") + "\n",
        ),
        ("plain.txt", live::line(&snapshot()) + "\n"),
    ]
}

fn snapshot() -> Snapshot {
    let mut total = Tally {
        offered: 24_060,
        completed: 24_031,
        good: 24_024,
        ..Tally::default()
    };
    total.errors[ErrorKind::Timeout as usize] = 12;
    total.errors[ErrorKind::Status5xx as usize] = 7;
    let idle = Tally {
        connections: 10_000,
        ..Tally::default()
    };
    Snapshot {
        elapsed_ns: 12_040_000_000,
        planned_ns: Some(30_000_000_000),
        planned_per_s: Some(2000.0),
        connections: 100,
        last: Some(SecondRecord {
            completed: 1998,
            errors: 2,
            p50_us: Some(1077),
            p90_us: Some(1721),
            p99_us: Some(2643),
            max_us: Some(4380),
            lag_max_us: 68,
            in_flight: Some(2.41),
            ..SecondRecord::default()
        }),
        recent_completed: vec![
            1200, 1640, 1990, 2005, 1998, 2010, 1400, 1720, 2001, 1995, 2004, 1998,
        ],
        total,
        others: vec![("idle".to_owned(), idle)],
        ..Snapshot::default()
    }
}

#[test]
fn every_form_is_as_its_golden_file() {
    for (name, text) in all() {
        check(name, &text);
    }
}

#[test]
fn no_summary_is_wider_than_its_page() {
    let mut some = [records::open(), records::steps(), records::interrupted()];
    some[0].run.urls[0] = "http://h/".to_owned();
    for record in some {
        let text = text(&[record], Style::Summary, Page::default());
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}

#[test]
fn of_many_threads_the_busiest_are_shown() {
    let mut record = records::open();
    let mut threads = vec![record.threads[0].clone(); 20];
    for (index, thread) in threads.iter_mut().enumerate() {
        thread.name = format!("engine {index}");
        thread.busy_share = index as f64 / 100.0;
    }
    record.threads = threads;
    let text = text(&[record], Style::Summary, Page::default());
    assert!(text.contains("busiest threads, 12 more"), "{text}");
    assert!(
        text.contains("engine 19 ") && !text.contains("engine 11 "),
        "{text}"
    );
}

#[test]
fn ascii_is_ascii() {
    let records = [
        records::open(),
        records::interrupted(),
        records::closed(1, 1),
    ];
    for record in records {
        assert!(text(&[record], Style::Summary, ASCII).is_ascii());
    }
}

#[test]
fn a_crowd_without_plain_clients_is_the_headline() {
    let mut record = records::interrupted();
    record.groups[0].total = loadline_record::Results::default();
    let text = text(&[record], Style::Summary, Page::default());
    assert!(
        text.contains("and 100 connections of slow-readers"),
        "{text}"
    );
}

#[test]
fn a_schedule_for_each_connection_is_part_of_the_heading() {
    let mut record = records::open();
    record.run.own_schedules = true;
    let text = text(&[record], Style::Summary, Page::default());
    let words: Vec<&str> = text.split_whitespace().collect();
    let heading = "Poisson arrivals, a schedule for each connection";
    assert!(words.join(" ").contains(heading), "{text}");
}

#[test]
fn players_alone_are_shown_as_what_they_are_and_how_often_they_stood_still() {
    let mut record = records::closed(1, 1);
    record.run.connections = 0;
    record.groups.truncate(1);
    let players = &mut record.groups[0];
    players.name = "players".to_owned();
    players.total.tally.connections = 3;
    players.total.tally.stalls = 2;
    players.total.tally.stalled_ns = 1_500_000_000;
    let text = text(&[record], Style::Summary, Page::default());
    assert!(text.contains("and 3 connections of players"), "{text}");
    assert!(text.contains("players: 2 stalls, 1.50 s"), "{text}");
}

/// It was not to be seen that a part of its requests was never sent.
#[test]
fn what_another_group_was_to_send_and_whether_it_is_to_be_trusted_is_said() {
    let mut record = records::interrupted();
    let tally = &mut record.groups[1].total.tally;
    (tally.sent, tally.unfinished) = (150, 7);
    let law = LittleRecord {
        in_flight: 9.0,
        ..LittleRecord::default()
    };
    record.verdict.beside = vec![GroupVerdict {
        name: "slow-readers".to_owned(),
        little: Some(law),
        ..GroupVerdict::default()
    }];
    assert!(notes(&record)[1].starts_with("slow-readers: MEASURING FAULT"));
    let text = text(&[record], Style::Summary, Page::default());
    for line in [
        "    slow-readers: 150 of 200 offered were sent\n",
        "    slow-readers: 7 were given up because the run ended\n",
        "    slow-readers: MEASURING FAULT: Little's law does not hold",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

/// An example in the documentation is the block below `<!-- golden: NAME -->`.
#[test]
fn the_documentation_shows_what_is_printed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/load-output.md");
    let page = fs::read_to_string(&path).unwrap_or_default();
    let mut fresh = page.clone();
    for (name, text) in all() {
        let mark = format!("<!-- golden: {name} -->\n```text\n");
        let Some(at) = fresh.find(&mark) else {
            continue;
        };
        let begin = at + mark.len();
        let end = begin + fresh[begin..].find("```").unwrap();
        fresh.replace_range(begin..end, &text);
    }
    let styles = [
        "wrk2.txt",
        "webbench.txt",
        "weighttp.txt",
        "vegeta.txt",
        "summary-open.txt",
    ];
    for name in styles {
        assert!(
            page.contains(&format!("<!-- golden: {name} -->")),
            "{name} is not shown"
        );
    }
    if is_update() {
        fs::write(&path, fresh).unwrap();
        return;
    }
    assert!(
        fresh == page,
        "an example is different (UPDATE_GOLDEN=1 writes it anew)"
    );
}
