//! A run and its charts as tables for other programs: CSV (RFC 4180) and JSON.

use loadline_base::sorting::to_set;

use super::table::{self, Of};
use super::{Figure, Report, ReportError};
use crate::analysis::{Metric, Run};

/// One line for each trial, discarded ones and A/A ones among them: what it was, and every metric.
#[must_use]
pub fn trials_csv(run: &Run) -> String {
    let factors = to_set(run.trials.iter().flat_map(|it| it.levels.keys()));
    let metrics: Vec<Metric> = Metric::ALL
        .iter()
        .copied()
        .filter(|metric| {
            run.trials
                .iter()
                .any(|trial| trial.measured(*metric).is_some())
        })
        .collect();
    let fixed = [
        "trial",
        "series",
        "replicate",
        "block",
        "a_a",
        "discarded",
        "times_discarded",
        "client_limited",
        "start_unix_ms",
    ];
    let head = fixed.into_iter().map(str::to_owned);
    let head = head.chain(factors.iter().map(|name| (*name).clone()));
    let head = head.chain(metrics.iter().map(|metric| metric.name().to_owned()));
    let mut csv = line(&head.collect::<Vec<_>>());
    for trial in &run.trials {
        let mut fields = vec![
            trial.number.to_string(),
            trial.series.clone(),
            trial.replicate.to_string(),
            trial.block.to_string(),
            trial.is_a_a.to_string(),
            trial.discarded.join("; "),
            trial.times_discarded.join("; "),
            trial.client_limited.to_string(),
            trial.start_unix_ms.to_string(),
        ];
        let level = |name: &&String| {
            trial
                .levels
                .get(*name)
                .map_or_else(String::new, ToString::to_string)
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
    let unit = figure.value.name.as_str();
    let mut head = table::places(figure);
    let names = "trials center low high level mean min max metric discarded_trial discarded_value \
                 discarded_why room";
    head.extend(names.split(' ').map(str::to_owned));
    let mut csv = line(&head);
    for row in table::rows(figure) {
        let mut fields = row.place(figure);
        // A reader wants numbers without commas.
        if let Some(x) = fields.last_mut()
            && figure.x.names.is_empty()
            && figure.x.name != "percentile"
        {
            *x = row.point.x.to_string();
        }
        let none = || String::new();
        match row.of {
            Of::Counted(it) => {
                let bound = |of: fn(&loadline_capacity::stats::Interval) -> f64| {
                    number(it.interval.as_ref().map(of))
                };
                fields.extend([
                    it.count.to_string(),
                    it.center.to_string(),
                    bound(|it| it.low),
                    bound(|it| it.high),
                    bound(|it| it.level),
                    it.mean.to_string(),
                    it.min.to_string(),
                    it.max.to_string(),
                    unit.to_owned(),
                    none(),
                    none(),
                    none(),
                    number(row.point.room),
                ]);
            }
            Of::Discarded(mark) => {
                fields.extend(std::iter::repeat_with(none).take(8));
                fields.push(unit.to_owned());
                fields.extend([
                    mark.trial.to_string(),
                    number(mark.value),
                    mark.reasons.join("; "),
                    none(),
                ]);
            }
            Of::Nothing => {
                fields.push("0".to_owned());
                fields.extend(std::iter::repeat_with(none).take(7));
                fields.push(unit.to_owned());
                fields.extend(std::iter::repeat_with(none).take(4));
            }
        }
        csv += &line(&fields);
    }
    csv
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

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        let fields = ["a", "b,c", "d\"e", "f\ng"].map(str::to_owned);
        assert_eq!(line(&fields), "a,\"b,c\",\"d\"\"e\",\"f\ng\"\n");
    }
}
