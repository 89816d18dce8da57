//! The report as one HTML file (`templates/report.html`): styles, script, library and data are in it, and
//! it asks the network for nothing (its own content policy forbids it).
//!
//! Without scripts, and in print, still pictures stand where the charts are; tables, downloads and
//! everything else are there in any case.

use askama::Template;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::figure::Figure;
use super::svg::{self, COLOURS, DASHES};
use super::table::{self, Of};
use super::{DiscardedTrial, Report, ReportError, Verdict, export, words};
use crate::analysis::Estimate;
use crate::plan::ChartKind;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const PLOTLY_VERSION: &str = "3.0.1";
const STYLE: &str = include_str!("assets/report.css");
const SCRIPT: &str = include_str!("assets/report.js");
/// plotly.js, compressed (see `assets/plotly.md`).
const LIBRARY: &[u8] = include_bytes!("assets/plotly.min.js.gz");

/// What stands before and behind the data in the file.
pub(crate) const DATA_BEGIN: &str = "<script type=\"application/json\" id=\"report-data\">";
pub(crate) const DATA_END: &str = "</script>";

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'r> {
    report: &'r Report,
    /// As JSON.
    data: String,
}

/// The file: the same report always gives the same text.
///
/// # Errors
/// A number that JSON has no form for.
pub fn page(report: &Report) -> Result<String, ReportError> {
    // No element ends in it.
    let data = serde_json::to_string(report)?.replace('<', "\\u003c");
    Ok(Page { report, data }.render()?)
}

/// What stands beside the answer.
fn tally(report: &Report) -> Vec<(&'static str, String)> {
    let number = |count: usize| words::digits(count as f64, 9);
    let mut tally = vec![
        ("Trials that count", number(report.trials_counted)),
        ("Discarded, struck out", number(report.discarded.len())),
    ];
    if !report.claims.is_empty() {
        let claims = report.claims.iter();
        let held = claims.filter(|it| it.verdict == Verdict::Reproduced);
        let held = format!("{} of {}", held.count(), report.claims.len());
        tally.push(("Claims reproduced", held));
    }
    for name in ["Time in trials", "CPUs of the run"] {
        let facts = report.environment.facts.iter();
        let found = facts.filter(|it| it.name == name);
        tally.extend(found.map(|fact| (name, fact.value.clone())));
    }
    tally
}

/// The sign of a curve in the legend.
fn sample(figure: &Figure, &index: &usize) -> String {
    let is_reference = figure.is_reference(index);
    let colour = match is_reference {
        true => "var(--soft)".to_owned(),
        false => format!("var(--c{})", index % COLOURS.len()),
    };
    if figure.kind == ChartKind::Bars {
        return format!("<rect x=\"12\" width=\"14\" height=\"14\" rx=\"3\" fill=\"{colour}\"/>");
    }
    let dash = match is_reference {
        true => "2.5 3",
        false => DASHES[index % DASHES.len()],
    };
    let line = format!(
        "<path d=\"M1 7H37\" stroke=\"{colour}\" stroke-width=\"2.4\" stroke-dasharray=\"{dash}\"/>"
    );
    let mark = match (is_reference, index % 4) {
        (true, _) => String::new(),
        (_, 0) => format!("<circle cx=\"19\" cy=\"7\" r=\"4.4\" fill=\"{colour}\"/>"),
        (_, 1) => format!("<rect x=\"15\" y=\"3\" width=\"8\" height=\"8\" fill=\"{colour}\"/>"),
        (_, 2) => format!("<path d=\"M19 1.6L24.4 7L19 12.4L13.6 7Z\" fill=\"{colour}\"/>"),
        _ => format!("<path d=\"M19 2L24.6 11.4H13.4Z\" fill=\"{colour}\"/>"),
    };
    line + &mark
}

fn library() -> String {
    STANDARD.encode(LIBRARY)
}

fn csv(figure: &Figure) -> String {
    STANDARD.encode(export::figure_csv(figure))
}

/// "2 trials that were disturbed".
fn trials(trials: &[DiscardedTrial], that: &str) -> String {
    match trials.len() {
        1 => format!("1 trial {}", that.replacen("were", "was", 1)),
        count => format!("{count} trials {that}"),
    }
}

/// Good responses by second, as steps of which the highest is the most.
fn timeline(per_s: &[f64]) -> String {
    const WIDTH: f64 = 120.0;
    const HEIGHT: f64 = 24.0;
    if per_s.is_empty() {
        return "–".to_owned();
    }
    let most = per_s.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let width = WIDTH / per_s.len() as f64;
    let steps = per_s.iter().enumerate().map(|(second, value)| {
        let to = if second == 0 { "M0 " } else { "V" };
        let y = HEIGHT * (1.0 - value / most);
        format!("{to}{y:.1}H{:.1}", width * (second + 1) as f64)
    });
    let steps: String = steps.collect();
    let values = per_s.iter().map(|value| words::digits(*value, 3));
    let values = values.collect::<Vec<_>>().join("; ");
    format!(
        "<svg class=\"timeline\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\
         <title>{values}</title>\
         <path d=\"{steps}\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.5\"/></svg>"
    )
}

fn count(count: &usize, one: &str) -> String {
    words::count(*count, one)
}

fn cell(figure: &Figure, value: &f64) -> String {
    words::value(*value, figure.value.unit)
}

/// Where the server may be, seen from what was measured: throughput has room above, times below.
fn way(room: &f64, measured: &Estimate) -> &'static str {
    match *room < measured.center {
        true => "down",
        false => "up",
    }
}

fn digits(value: &f64, count: usize) -> String {
    words::digits(*value, count)
}

fn percent(share: &f64) -> String {
    words::digits(share * 100.0, 3)
}
