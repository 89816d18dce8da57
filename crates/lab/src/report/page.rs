//! The report as one HTML file: styles, script, library and data are in it, and it asks the network
//! for nothing (its own content policy forbids it).
//!
//! Without scripts, and in print, still pictures stand where the charts are; tables, downloads and
//! everything else are there in any case.

mod parts;

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::export;
use super::figure::{Figure, Point};
use super::svg::{self, COLOURS, DASHES};
use super::table::{self, Of};
use super::{Report, ReportError, scaling, words};
use crate::plan::ChartKind;

const STYLE: &str = include_str!("assets/report.css");
const SCRIPT: &str = include_str!("assets/report.js");
/// plotly.js, compressed (see `build.rs`).
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/plotly.js.gz"));
/// Nothing but what is in the file.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                      img-src data: blob:; form-action 'none'; base-uri 'none'";

/// What stands before and behind the data in the file.
pub(crate) const DATA_BEGIN: &str = "<script type=\"application/json\" id=\"report-data\">";
pub(crate) const DATA_END: &str = "</script>";

use super::words::escaped;

/// The file: the same report always gives the same text.
///
/// # Errors
/// A number that JSON has no form for.
pub fn page(report: &Report) -> Result<String, ReportError> {
    let mut page = String::with_capacity(2 * LIBRARY.len() + (1 << 20));
    let title = escaped(&report.title);
    let _ = writeln!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"generator\" content=\"Loadline {}\">\n<title>{title} – Loadline</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n<style>\n{STYLE}</style>\n</head>\n<body>",
        env!("CARGO_PKG_VERSION")
    );
    page += "<a class=\"skip\" href=\"#charts\">To the charts</a>\n<div class=\"frame\">\n";
    parts::head(report, &mut page);
    page += "<main>\n<section id=\"charts\" aria-label=\"Charts\">\n";
    for figure in &report.figures {
        chart(figure, &mut page);
    }
    page += "</section>\n";
    parts::claims(report, &mut page);
    parts::trust(report, &mut page);
    parts::environment(report, &mut page);
    page += "</main>\n";
    parts::foot(&mut page);
    page += "</div>\n";
    let _ = writeln!(page, "{DATA_BEGIN}{}{DATA_END}", embedded(report)?);
    let _ = writeln!(
        page,
        "<script type=\"text/plain\" id=\"plotly-packed\">{}</script>\n\
         <script>\n{SCRIPT}</script>\n</body>\n</html>",
        STANDARD.encode(LIBRARY)
    );
    Ok(page)
}

/// JSON that ends no element.
fn embedded(report: &Report) -> Result<String, ReportError> {
    Ok(serde_json::to_string(report)?.replace('<', "\\u003c"))
}

fn chart(figure: &Figure, page: &mut String) {
    let id = escaped(&figure.id);
    let _ = writeln!(
        page,
        "<figure class=\"card\" id=\"{id}\" data-figure=\"{id}\" aria-labelledby=\"{id}-title\">\n\
         <figcaption>\n<h2 id=\"{id}-title\">{}</h2>\n<p class=\"finding\" id=\"{id}-finding\">{}</p>",
        escaped(&figure.title),
        escaped(&figure.finding)
    );
    if !figure.note.is_empty() {
        let _ = writeln!(page, "<p class=\"note\">{}</p>", escaped(&figure.note));
    }
    if figure.has_room() {
        page.push_str(
            "<p class=\"note\">Hollow marks, and ≥ or ≤ in the table: the client was at its end, and the \
             server may do better than was measured; how far, its CPU time allows to estimate.</p>\n",
        );
    }
    page.push_str("</figcaption>\n");
    let _ = writeln!(
        page,
        "<div class=\"still\">{}</div>\n<div class=\"live\">",
        svg::draw(figure)
    );
    legend(figure, page);
    let columns = match figure.panels.len() {
        1 => 1,
        2 | 4 => 2,
        _ => 3,
    };
    let _ = writeln!(page, "<div class=\"panels\" data-columns=\"{columns}\">");
    let keys = match figure.kind {
        ChartKind::Surface => "Arrow keys turn it.",
        _ => "Arrow keys go from point to point.",
    };
    for panel in &figure.panels {
        page.push_str("<div class=\"panel\">");
        if !panel.title.is_empty() {
            let _ = write!(page, "<h3>{}</h3>", escaped(&panel.title));
        }
        let label = match panel.title.as_str() {
            "" => format!("{}. {} {keys}", figure.title, figure.finding),
            title => format!("{}, {title}. {} {keys}", figure.title, figure.finding),
        };
        let _ = writeln!(
            page,
            "<div class=\"plot\" data-kind=\"{}\" tabindex=\"0\" role=\"application\" \
             aria-roledescription=\"chart\" aria-label=\"{}\"></div></div>",
            figure.kind.name(),
            escaped(&label)
        );
    }
    page.push_str("</div>\n<p class=\"reading\" aria-live=\"polite\"></p>\n</div>\n");
    tools(figure, page);
    table_of(figure, page);
    scaling::table(figure, page);
    page.push_str("</figure>\n");
}

/// A button for each curve; grids have none.
fn legend(figure: &Figure, page: &mut String) {
    if figure.kind.is_grid() || figure.legend.iter().all(String::is_empty) {
        return;
    }
    page.push_str("<ul class=\"legend\" aria-label=\"Curves, shown or hidden\">\n");
    let references = figure.points().filter(|(_, curve, _)| curve.is_reference);
    let references: Vec<usize> = references.map(|(_, curve, _)| curve.legend).collect();
    for (index, name) in figure.legend.iter().enumerate() {
        let is_reference = references.contains(&index);
        let colour = match is_reference {
            true => "var(--soft)".to_owned(),
            false => format!("var(--c{})", index % COLOURS.len()),
        };
        let sample = sample(figure, index, is_reference, &colour);
        let _ = writeln!(
            page,
            "<li><button type=\"button\" aria-pressed=\"true\" data-legend=\"{index}\">\
             <svg viewBox=\"0 0 38 14\" aria-hidden=\"true\">{sample}</svg>{}</button></li>",
            escaped(name)
        );
    }
    page.push_str("</ul>\n");
}

fn sample(figure: &Figure, index: usize, is_reference: bool, colour: &str) -> String {
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

fn tools(figure: &Figure, page: &mut String) {
    let id = escaped(&figure.id);
    let csv = STANDARD.encode(export::figure_csv(figure));
    let _ = writeln!(
        page,
        "<p class=\"tools\"><a download=\"{id}.csv\" href=\"data:text/csv;charset=utf-8;base64,{csv}\">Data (CSV)</a>\
         <button type=\"button\" data-save=\"svg\" data-needs-script hidden>Picture (SVG)</button></p>"
    );
}

fn table_of(figure: &Figure, page: &mut String) {
    let rows = table::rows(figure);
    let _ = write!(
        page,
        "<details><summary>Table: {}</summary>\n<div class=\"table\" tabindex=\"0\" role=\"region\" \
         aria-labelledby=\"{1}-title\"><table>\n<caption>{2}, {3}</caption>\n<thead><tr>",
        words::count(rows.len(), "row"),
        escaped(&figure.id),
        escaped(&figure.title),
        escaped(&figure.value.title())
    );
    for name in table::places(figure) {
        let _ = write!(page, "<th scope=\"col\">{}</th>", escaped(&name));
    }
    for name in [
        "Trials", "Median", "From", "To", "Holds", "Mean", "Smallest", "Largest",
    ] {
        let _ = write!(page, "<th scope=\"col\" class=\"number\">{name}</th>");
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for row in rows {
        let class = if matches!(row.of, Of::Discarded(_)) {
            " class=\"discarded\""
        } else {
            ""
        };
        let _ = write!(page, "<tr{class}>");
        for text in row.place(figure) {
            let _ = write!(page, "<td>{}</td>", escaped(&text));
        }
        match row.of {
            Of::Counted(estimate) => estimate_cells(figure, row.point, estimate, page),
            Of::Discarded(mark) => discarded_cells(figure, mark, page),
            Of::Nothing => page.push_str("<td colspan=\"8\">not measured</td>"),
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div></details>\n");
}

fn estimate_cells(
    figure: &Figure,
    point: &Point,
    estimate: &crate::analysis::Estimate,
    page: &mut String,
) {
    let interval = estimate.interval;
    let number = |page: &mut String, value: Option<f64>| {
        let _ = match value {
            Some(value) => write!(
                page,
                "<td class=\"number\" data-value=\"{value}\">{}</td>",
                escaped(&table::cell(figure, value))
            ),
            None => write!(page, "<td class=\"number\">–</td>"),
        };
    };
    let _ = write!(
        page,
        "<td class=\"number\" data-value=\"{0}\">{0}</td>",
        estimate.count
    );
    let _ = write!(
        page,
        "<td class=\"number\" data-value=\"{}\"{}>{}{}</td>",
        estimate.center,
        point.room.map_or_else(String::new, |room| format!(
            " data-room=\"{room}\" title=\"by CPU time up to {}\"",
            escaped(&table::cell(figure, room))
        )),
        point.sign(),
        escaped(&table::cell(figure, estimate.center))
    );
    number(page, interval.map(|it| it.low));
    number(page, interval.map(|it| it.high));
    let _ = match interval {
        Some(it) => write!(
            page,
            "<td class=\"number\" data-value=\"{}\">{} %</td>",
            it.level,
            words::digits(it.level * 100.0, 3)
        ),
        None => write!(page, "<td class=\"number\">–</td>"),
    };
    number(page, Some(estimate.mean));
    number(page, Some(estimate.min));
    number(page, Some(estimate.max));
}

fn discarded_cells(figure: &Figure, mark: &super::DiscardedMark, page: &mut String) {
    let value = match mark.value {
        Some(value) => format!(
            "<s data-value=\"{value}\">{}</s>",
            escaped(&table::cell(figure, value))
        ),
        None => "<s>–</s>".to_owned(),
    };
    let _ = write!(
        page,
        "<td class=\"number\">discarded</td><td class=\"number\">{value}</td><td colspan=\"6\">trial {}: {}</td>",
        mark.trial,
        escaped(&mark.reasons.join("; "))
    );
}
