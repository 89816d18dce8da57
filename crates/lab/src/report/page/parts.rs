//! What stands around the charts: the answer, claims, what to trust, where and how.

use std::fmt::Write as _;

use super::escaped;
use crate::report::{DiscardedTrial, Report, Verdict, shell, words};
use loadline_capacity::stats::Interval;

pub(super) fn head(report: &Report, page: &mut String) {
    let _ = writeln!(
        page,
        "<header class=\"head\">\n<p class=\"eyebrow\">Loadline, report of {}</p>\n<h1>{}</h1>\n\
         <p class=\"answer\">{}</p>\n<dl class=\"tally\">",
        escaped(&report.name),
        escaped(&report.title),
        escaped(&report.answer)
    );
    let mut tally = |name: &str, value: &str| {
        let _ = writeln!(
            page,
            "<div><dt>{name}</dt><dd>{}</dd></div>",
            escaped(value)
        );
    };
    tally(
        "Trials that count",
        &words::digits(report.trials_counted as f64, 9),
    );
    tally(
        "Discarded, struck out",
        &words::digits(report.discarded.len() as f64, 9),
    );
    if !report.claims.is_empty() {
        let held = report
            .claims
            .iter()
            .filter(|it| it.verdict == Verdict::Reproduced)
            .count();
        tally(
            "Claims reproduced",
            &format!("{held} of {}", report.claims.len()),
        );
    }
    for fact in ["Time in trials", "CPUs of the run"] {
        let found = report.environment.facts.iter().find(|it| it.name == fact);
        if let Some(found) = found {
            tally(fact, &found.value);
        }
    }
    page.push_str("</dl>\n</header>\n<nav aria-label=\"Contents\"><ul class=\"contents\">\n");
    let mut link = |id: &str, text: &str| {
        let _ = writeln!(
            page,
            "<li><a href=\"#{}\">{}</a></li>",
            escaped(id),
            escaped(text)
        );
    };
    for figure in &report.figures {
        link(&figure.id, &figure.title);
    }
    if !report.claims.is_empty() {
        link("claims", "Claims");
    }
    link("trust", "What to trust");
    link("environment", "Where, and how to repeat it");
    page.push_str("</ul></nav>\n");
}

pub(super) fn claims(report: &Report, page: &mut String) {
    if report.claims.is_empty() {
        return;
    }
    page.push_str(
        "<section class=\"card\" id=\"claims\">\n<h2>Claims</h2>\n<div class=\"table whole\"><table>\n\
         <thead><tr><th scope=\"col\">Paper</th><th scope=\"col\">Claim</th><th scope=\"col\">Source</th>\
         <th scope=\"col\">Published</th><th scope=\"col\">Verdict</th>\
         <th scope=\"col\">Interval</th><th scope=\"col\">Why</th></tr></thead>\n<tbody>\n",
    );
    for claim in &report.claims {
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"verdict {}\"><span aria-hidden=\"true\">{}</span> {}</td>\
             <td class=\"number\">{}</td><td>{}</td></tr>",
            escaped(&claim.paper),
            escaped(&claim.text),
            escaped(&claim.source),
            escaped(&claim.published),
            claim.verdict.name(),
            claim.verdict.mark(),
            claim.verdict.label(),
            claim
                .interval
                .as_ref()
                .map_or_else(|| "–".to_owned(), interval),
            escaped(&claim.why)
        );
    }
    page.push_str("</tbody></table></div>\n</section>\n");
}

fn interval(interval: &Interval) -> String {
    let text = |value| words::digits(value, 4);
    format!(
        "<span data-low=\"{}\" data-high=\"{}\">{} to {}</span>",
        interval.low,
        interval.high,
        text(interval.low),
        text(interval.high)
    )
}

/// Noise, discarded trials, notes, and what was left out.
pub(super) fn trust(report: &Report, page: &mut String) {
    page.push_str(
        "<section class=\"card\" id=\"trust\">\n<h2>What to trust</h2>\n\
         <p>The unit is the trial, with a server of its own. A point is the geometric mean of its cell's trials, \
         as in ratios; the band is the 95 % interval that holds the true mean (Student's t of logarithms). \
         Crosses are trials that are discarded: they count for nothing, and are shown all the same. Where a \
         client was late and nothing else, its times alone are discarded.</p>\n",
    );
    if !report.noise.is_empty() {
        page.push_str(
            "<h3>Noise</h3>\n<p>The same cell, run twice in each block: how the second differed from \
             the first. Differences of this size mean nothing.</p>\n<div class=\"table whole\"><table>\n\
             <thead><tr><th scope=\"col\">Series</th><th scope=\"col\">In</th>\
             <th scope=\"col\" class=\"number\">Pairs</th><th scope=\"col\" class=\"number\">Ratio</th>\
             <th scope=\"col\" class=\"number\">Interval</th>\
             <th scope=\"col\" class=\"number\">Largest difference</th></tr></thead>\n<tbody>\n",
        );
        for noise in &report.noise {
            let ratio = &noise.ratio;
            let _ = writeln!(
                page,
                "<tr><td>{}</td><td>{}</td><td class=\"number\">{}</td>\
                 <td class=\"number\" data-value=\"{}\">{}</td><td class=\"number\">{}</td>\
                 <td class=\"number\" data-value=\"{}\">{} %</td></tr>",
                escaped(&noise.series),
                noise.metric.label(),
                ratio.pairs,
                ratio.ratio,
                words::digits(ratio.ratio, 4),
                ratio
                    .interval
                    .as_ref()
                    .map_or_else(|| "–".to_owned(), interval),
                noise.largest,
                words::digits(noise.largest * 100.0, 3)
            );
        }
        page.push_str("</tbody></table></div>\n");
    }
    discarded(&report.discarded, "discarded trial", page);
    discarded(
        &report.times_discarded,
        "trial whose times are discarded",
        page,
    );
    discarded(
        &report.repeated,
        "trial that was disturbed and run again",
        page,
    );
    let notes = report.notes.iter().map(|note| {
        format!(
            "{} ({})",
            escaped(&note.text),
            words::count(note.trials, "trial")
        )
    });
    list("Notes", notes.collect(), page);
    let left_out = report.left_out.iter().map(|text| escaped(text));
    list("Charts without data", left_out.collect(), page);
    page.push_str("</section>\n");
}

fn discarded(trials: &[DiscardedTrial], what: &str, page: &mut String) {
    if trials.is_empty() {
        return;
    }
    let what = match what.split_once(' ') {
        Some((noun, rest)) if trials.len() > 1 && noun == "trial" => {
            format!(
                "{} {noun}s {}",
                trials.len(),
                rest.replacen("was", "were", 1)
            )
        }
        _ => words::count(trials.len(), what),
    };
    let _ = writeln!(
        page,
        "<details><summary>{what}</summary>\n<div class=\"table\" tabindex=\"0\" role=\"region\" \
         aria-label=\"{what}\"><table>\n<thead><tr><th scope=\"col\" class=\"number\">Trial</th>\
         <th scope=\"col\">Series</th><th scope=\"col\">Cell</th>\
         <th scope=\"col\" class=\"number\">Replicate</th><th scope=\"col\">Why</th></tr></thead>\n<tbody>"
    );
    for trial in trials {
        let _ = writeln!(
            page,
            "<tr class=\"discarded\"><td class=\"number\"><s>{}</s></td><td>{}</td><td>{}</td>\
             <td class=\"number\">{}</td><td>{}</td></tr>",
            trial.trial,
            escaped(&trial.series),
            escaped(&trial.cell),
            trial.replicate,
            escaped(&trial.reasons.join("; "))
        );
    }
    page.push_str("</tbody></table></div></details>\n");
}

fn list(title: &str, items: Vec<String>, page: &mut String) {
    if items.is_empty() {
        return;
    }
    let _ = writeln!(page, "<h3>{title}</h3>\n<ul>");
    for item in items {
        let _ = writeln!(page, "<li>{item}</li>");
    }
    page.push_str("</ul>\n");
}

pub(super) fn environment(report: &Report, page: &mut String) {
    page.push_str("<section class=\"card\" id=\"environment\">\n<h2>Where, and how to repeat it</h2>\n<dl class=\"facts\">\n");
    for fact in &report.environment.facts {
        let _ = writeln!(
            page,
            "<div><dt>{}</dt><dd>{}</dd></div>",
            escaped(&fact.name),
            escaped(&fact.value)
        );
    }
    page.push_str("</dl>\n");
    if !report.environment.command.is_empty() {
        let _ = writeln!(
            page,
            "<h3>Again</h3>\n<pre tabindex=\"0\"><code>{}</code></pre>",
            escaped(&shell(&report.environment.command))
        );
    }
    if !report.environment.plan_toml.is_empty() {
        let _ = writeln!(
            page,
            "<details><summary>The plan</summary><pre tabindex=\"0\"><code>{}</code></pre></details>",
            escaped(&report.environment.plan_toml)
        );
    }
    for server in &report.environment.servers {
        let version = match server.version.as_str() {
            "" => String::new(),
            version => format!(", {version}"),
        };
        let _ = write!(
            page,
            "<details><summary>{}{}</summary><pre tabindex=\"0\"><code>{}</code></pre>",
            escaped(&server.name),
            escaped(&version),
            escaped(&shell(&server.command))
        );
        if let Some(configuration) = &server.configuration {
            let _ = write!(
                page,
                "<pre tabindex=\"0\"><code>{}</code></pre>",
                escaped(configuration)
            );
        }
        page.push_str("</details>\n");
    }
    page.push_str(
        "<p class=\"tools\"><button type=\"button\" data-save=\"json\" data-needs-script hidden>All data \
         of this report (JSON)</button></p>\n</section>\n",
    );
}

pub(super) fn foot(page: &mut String) {
    let _ = writeln!(
        page,
        "<footer class=\"foot\"><p>Made by Loadline {}. Every number here is derived from the run’s \
         journal; <code>loadline lab verify</code> derives them again and compares. Charts are drawn by \
         plotly.js {} (© 2012–2025 Plotly, Inc., MIT licence), which is in this file.</p></footer>",
        env!("CARGO_PKG_VERSION"),
        env!("PLOTLY_JS_VERSION")
    );
}
