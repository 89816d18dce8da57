//! The page about the files names every field that is written, and the columns as they are.

use std::collections::BTreeSet;

use loadline_record::export::write_csv;
use loadline_record::{
    ErrorKind, GroupRecord, GroupVerdict, LittleRecord, LoadRecord, PhaseRecord, Results, SCHEMA,
    SecondRecord, SegmentRecord, ThreadRecord, TrialRecord, Verdict, WatchedRecord, WatchedSample,
};
use serde_json::Value;

const PAGE: &str = include_str!("../../../../docs/load-json.md");

/// A record in which nothing is left out, once with each kind of load.
fn full(load: LoadRecord) -> TrialRecord {
    let mut record = TrialRecord {
        phases: vec![PhaseRecord::default()],
        threads: vec![ThreadRecord::default()],
        verdict: Verdict {
            little: Some(LittleRecord::default()),
            beside: vec![GroupVerdict::default()],
            ..Verdict::default()
        },
        watched: vec![WatchedRecord {
            series: vec![WatchedSample::default()],
            ..WatchedRecord::default()
        }],
        groups: vec![GroupRecord {
            phases: vec![Results::default()],
            series: vec![SecondRecord::default()],
            ..GroupRecord::default()
        }],
        ..TrialRecord::default()
    };
    record.run.load = load;
    for kind in ErrorKind::ALL {
        record.everything.error(kind);
    }
    record
}

fn fields(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                into.insert(name.clone());
                fields(value, into);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| fields(value, into)),
        _ => {}
    }
}

#[test]
fn every_field_is_explained() {
    let loads = [
        LoadRecord::default(),
        LoadRecord::Open {
            arrivals: "poisson".to_owned(),
            overflow: "queue".to_owned(),
            segments: vec![SegmentRecord::default()],
        },
        LoadRecord::Timed {
            overflow: "drop".to_owned(),
            requests: 1,
        },
    ];
    let mut names = BTreeSet::new();
    for load in loads {
        fields(&serde_json::to_value(full(load)).unwrap(), &mut names);
    }
    assert!(names.len() > 100, "{}", names.len());
    let is_missing = |name: &&String| {
        let forms = [format!("`{name}`"), format!("\"{name}\"")];
        !forms.iter().any(|form| PAGE.contains(form))
    };
    let missing: Vec<&String> = names.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "not in docs/load-json.md: {missing:?}");
    assert!(PAGE.contains(SCHEMA));
}

#[test]
fn the_columns_are_those_of_the_page() {
    let mut header = Vec::new();
    write_csv(&[], &mut header).unwrap();
    let header = String::from_utf8(header).unwrap();
    assert!(PAGE.contains(&format!("```text\n{header}```")));
}
