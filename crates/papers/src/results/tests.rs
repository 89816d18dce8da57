//! The page of made-up reports.

use super::*;
use loadline_lab::plan::{ChartKind, Spread};
use loadline_lab::report::{Axis, Claim, Fact, Figure};

fn report() -> Report {
    let claim = |verdict, text: &str| Claim {
        paper: "P1".to_owned(),
        text: text.to_owned(),
        source: "Fig. 20".to_owned(),
        published: "3".to_owned(),
        verdict,
        why: "a | b: 3.4".to_owned(),
        interval: None,
        measures: Vec::new(),
        undecided: None,
    };
    let mut report = Report {
        name: "P1".to_owned(),
        title: "Reactor models under load?".to_owned(),
        answer: "Most: 48,210/s.".to_owned(),
        figures: vec![],
        claims: vec![
            claim(Verdict::Reproduced, "Throughput falls."),
            claim(Verdict::NotTestable, "More help."),
            claim(Verdict::NotComparable, "It answers 5 a second."),
        ],
        trials_counted: 9,
        ..Report::default()
    };
    report.environment.command = [
        "target/release/loadline",
        "lab",
        "paper",
        "P1",
        "--out",
        "elsewhere/P1",
    ]
    .map(str::to_owned)
    .into();
    report.environment.facts = vec![Fact {
        name: "Processor".to_owned(),
        value: "AMD EPYC".to_owned(),
    }];
    report
}

#[test]
fn each_run_has_its_claims_its_machine_and_its_command() {
    let report = report();
    let entry = Entry::new(&Run::default(), report.clone());
    let one = page(
        "The five papers",
        "papers-results",
        std::slice::from_ref(&entry),
    );
    assert!(
        one.starts_with("# The five papers\n\nWritten by `./x bench papers`, of reduced grids")
    );
    for part in [
        "\n\n## What the reduced grids leave undecided\n\n- P1, 1 of 3 claims: “More help”.\n\n## P1: ",
        "## P1: reactor models under load?\n\n**Of 3 claims 1 holds here, 1 is undecided and 1 \
         is not comparable.** Of the 2 comparable claims 1 is decided (50 %); nine tenths are 2, 1 more.\n\n\
         Holds: Throughput falls.\n\n",
        "| Throughput falls. | Fig. 20 | 3 | **reproduced** | a \\| b: 3.4 |",
        "| More help. | Fig. 20 | 3 | not testable here |",
        "| It answers 5 a second. | Fig. 20 | 3 | not comparable |",
        "AMD EPYC",
        "9 trials in ",
        "```console\n$ loadline lab paper P1\n```",
    ] {
        assert!(one.contains(part), "{part}: {one}");
    }
    let mut full = report.clone();
    full.environment.command.push("--full".to_owned());
    let full = [Entry::new(&Run::default(), full)];
    let published = page("The five papers", "papers-results", &full);
    assert!(published.starts_with("# The five papers\n\nWritten by `./x bench papers --full`;"));
    assert!(published.contains("(papers.md#claims)") && !one.contains("(papers.md#claims)"));
    assert!(!published.contains("leave undecided"), "{published}");
    let mut drawn = report;
    drawn.figures = vec![Figure {
        id: "models".to_owned(),
        kind: ChartKind::default(),
        spread: Spread::default(),
        series: "models".to_owned(),
        title: "Three models".to_owned(),
        note: "Fig. 25. Its points are lost.".to_owned(),
        finding: String::new(),
        x: Axis::default(),
        y: None,
        value: Axis::default(),
        legend: Vec::new(),
        panels: Vec::new(),
        scaling: Vec::new(),
    }];
    let with_picture = page(
        "The five papers",
        "papers-results",
        &[Entry::new(&Run::default(), drawn)],
    );
    let note = "(papers-results/P1.svg)\n\nFig. 25. Its points are lost.\n\n![P1: what was ";
    assert!(with_picture.contains(note), "{with_picture}");
    assert!(with_picture.contains(
        "1 reproduced, 1 not testable here, 1 not comparable. The table below has the numbers.]\
         (papers-results/P1-claims.svg)"
    ));
    let two = page("The five papers", "papers-results", &[entry.clone(), entry]);
    assert!(
        two.contains("| P1: reactor models under load? | 1 | 0 | 1 | 1 | 9 | 0 |"),
        "{two}"
    );
    let decided =
        "|\n\nOf the 4 comparable claims 2 are decided (50 %); nine tenths are 4, 2 more.\n\n## ";
    assert!(two.contains(decided), "{two}");
}

#[test]
fn a_picture_that_is_linked_does_not_stand_on_the_page() {
    let mut picture = Picture {
        file: "P1-fig-24.svg".to_owned(),
        svg: String::new(),
        heading: "Fig. 24".to_owned(),
        alternative: "More at 200 us".to_owned(),
        note: "The points are lost.".to_owned(),
        is_linked: false,
    };
    let written = |picture: &Picture| {
        let mut page = String::new();
        picture.write("there", &mut page);
        page
    };
    assert_eq!(
        written(&picture),
        "### Fig. 24\n\n![More at 200 us](there/P1-fig-24.svg)\n\nThe points are lost.\n\n"
    );
    picture.is_linked = true;
    assert_eq!(
        written(&picture),
        "[Fig. 24](there/P1-fig-24.svg).\n\nThe points are lost.\n\n"
    );
}
