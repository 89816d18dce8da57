//! A run and its charts as tables for other programs: CSV (RFC 4180) and JSON.

use loadline_base::sorting::to_set;
use loadline_capacity::stats::Interval;

use super::table::{self, Of, TableRow};
use super::{Axis, Figure, Report, ReportError, words};
use crate::analysis::{Measured, Metric, Run};
use crate::journal::Level;

/// What a column says of a trial.
type Text = fn(&Measured) -> String;

/// Columns that every trial has, before its levels and its metrics.
const COLUMNS: [(&str, Text); 9] = [
    ("trial", |it| it.number.to_string()),
    ("series", |it| it.series.clone()),
    ("replicate", |it| it.replicate.to_string()),
    ("block", |it| it.block.to_string()),
    ("a_a", |it| it.is_a_a.to_string()),
    ("discarded", |it| it.discarded.join("; ")),
    ("times_discarded", |it| it.times_discarded.join("; ")),
    ("client_limited", |it| it.client_limited.to_string()),
    ("start_unix_ms", |it| it.start_unix_ms.to_string()),
];

/// One line for each trial, discarded ones and A/A ones among them: what it was, and every metric.
#[must_use]
pub fn trials_csv(run: &Run) -> String {
    let factors = to_set(run.trials.iter().flat_map(|it| it.levels.keys()));
    let is_measured = |metric| run.trials.iter().any(|it| it.measured(metric).is_some());
    let metrics = Metric::ALL.iter().copied();
    let metrics: Vec<Metric> = metrics.filter(|it| is_measured(*it)).collect();
    let head = COLUMNS.iter().map(|(name, _)| (*name).to_owned());
    // A metric may have the name of a factor: `threads` is both.
    let is_taken = |name: &str| {
        COLUMNS.iter().any(|(column, _)| *column == name)
            || metrics.iter().any(|metric| metric.name() == name)
    };
    let head = head.chain(factors.iter().map(|name| match is_taken(name) {
        true => format!("{name} (level)"),
        false => (*name).clone(),
    }));
    let head = head.chain(metrics.iter().map(|metric| metric.name().to_owned()));
    let mut csv = line(&head.collect::<Vec<_>>());
    for trial in &run.trials {
        let mut fields: Vec<String> = COLUMNS.iter().map(|(_, of)| of(trial)).collect();
        let level = |name: &&String| {
            let level = trial.levels.get(*name);
            level.map_or_else(String::new, ToString::to_string)
        };
        fields.extend(factors.iter().map(level));
        fields.extend(metrics.iter().map(|metric| number(trial.measured(*metric))));
        csv += &line(&fields);
    }
    csv
}

/// One line for each point of a chart, and for each discarded trial in it.
#[must_use]
pub fn figure_csv(figure: &Figure) -> String {
    let mut head = table::places(figure);
    let names = "trials center low high level mean min max metric discarded_trial discarded_value \
                 discarded_why room";
    head.extend(names.split(' ').map(str::to_owned));
    let mut csv = line(&head);
    for row in table::rows(figure) {
        let mut fields = place(figure, &row);
        let (mut estimate, mut discarded, mut room) = (Vec::new(), Vec::new(), None);
        match row.of {
            Of::Counted(it) => {
                let bound = |of: fn(&Interval) -> f64| number(it.interval.as_ref().map(of));
                estimate = vec![
                    it.count.to_string(),
                    it.center.to_string(),
                    bound(|it| it.low),
                    bound(|it| it.high),
                    bound(|it| it.level),
                    it.mean.to_string(),
                    it.min.to_string(),
                    it.max.to_string(),
                ];
                room = row.point.room;
            }
            Of::Discarded(mark) => {
                let why = mark.reasons.join("; ");
                discarded = vec![mark.trial.to_string(), number(mark.value), why];
            }
            Of::Nothing => estimate.push("0".to_owned()),
        }
        estimate.resize(8, String::new());
        discarded.resize(3, String::new());
        fields.extend(estimate);
        fields.push(figure.value.name.clone());
        fields.extend(discarded);
        fields.push(number(room));
        csv += &line(&fields);
    }
    csv
}

/// Which point a row is of. A reader wants numbers without commas.
fn place(figure: &Figure, row: &TableRow<'_>) -> Vec<String> {
    let mut fields = row.place(figure);
    let count = fields.len();
    let plain = |axis: &Axis, at: f64, text: &str| match axis.names.is_empty() {
        true => at.to_string(),
        false => without_commas(text),
    };
    if let (Some(y), Some(index)) = (&figure.y, count.checked_sub(2)) {
        fields[index] = plain(y, row.curve.y, &fields[index]);
    }
    if let Some(x) = fields.last_mut()
        && figure.x.name != "percentile"
    {
        *x = plain(&figure.x, row.point.x, x);
    }
    fields
}

/// A level that is a number among names; names stay as they are.
fn without_commas(text: &str) -> String {
    let digits = text.replace(',', "");
    let is_of = |number| words::level(&Level::Number(number)) == text;
    match digits.parse().is_ok_and(is_of) {
        true => digits,
        false => text.to_owned(),
    }
}

/// Everything that the report says.
///
/// # Errors
/// A number that JSON has no form for.
pub fn json(report: &Report) -> Result<String, ReportError> {
    Ok(serde_json::to_string_pretty(report)? + "\n")
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn line(fields: &[String]) -> String {
    let quoted = fields.iter().map(|field| {
        if field.contains([',', '"', '\n', '\r']) {
            format!("\"{}\"", field.replace('"', "\"\""))
        } else {
            field.clone()
        }
    });
    quoted.collect::<Vec<_>>().join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::ChartKind;
    use crate::report::Curve;

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        let fields = ["a", "b,c", "d\"e", "f\ng"].map(str::to_owned);
        assert_eq!(line(&fields), "a,\"b,c\",\"d\"\"e\",\"f\ng\"\n");
    }

    #[test]
    fn no_two_columns_have_the_same_name() {
        let trial = Measured {
            levels: [("threads".to_owned(), Level::Number(4.0))].into(),
            values: [(Metric::Threads, 7.0)].into(),
            ..Measured::default()
        };
        let run = Run {
            trials: vec![trial],
            ..Run::default()
        };
        let csv = trials_csv(&run);
        let mut head: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
        assert!(head.contains(&"threads (level)") && head.contains(&"threads"));
        let count = head.len();
        head.sort_unstable();
        head.dedup();
        assert_eq!(head.len(), count, "{csv}");
        assert!(csv.ends_with(",4,7\n"), "{csv}");
    }

    /// One point, at 2000 on the first axis and 10,000 on the second.
    fn grid(kind: ChartKind) -> Figure {
        let axis = |name: &str| Axis {
            name: name.to_owned(),
            ..Axis::default()
        };
        let curve = Curve {
            y: 10_000.0,
            ..Curve::through(&[(2000.0, 1.0)], None)
        };
        Figure {
            x: axis("workers"),
            y: kind.is_grid().then(|| axis("connections")),
            value: axis("good_per_s"),
            legend: vec!["10,000".to_owned()],
            ..Figure::of(kind, vec![curve])
        }
    }

    #[test]
    fn numbers_have_no_commas() {
        let csv = figure_csv(&grid(ChartKind::HeatMap));
        assert!(csv.contains("\n10000,2000,1,"), "{csv}");
        let mut bars = grid(ChartKind::Bars);
        bars.legend = vec!["a".to_owned()];
        // Bars stand over names, be these numbers or not.
        bars.x.names = vec!["2,000".to_owned(), "0,1".to_owned()];
        let csv = figure_csv(&bars);
        assert!(csv.contains("\na,2000,1,"), "{csv}");
        bars.panels[0].curves[0].points[0].x_text = "0,1".to_owned();
        let csv = figure_csv(&bars);
        assert!(csv.contains("\na,\"0,1\",1,"), "{csv}");
    }
}
