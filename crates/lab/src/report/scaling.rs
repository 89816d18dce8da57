//! How throughput grows with the number of what works at once: Gunther's law for the curves of a chart.

use std::collections::BTreeMap;

use loadline_base::sorting::to_map;
use loadline_capacity::usl::{LEVELS_MIN, Usl, Weighting};

use super::figure::{Curve, Figure, Scaling};
use crate::analysis::{Cell, Metric};
use crate::plan::{Chart, ChartKind};

/// Factors whose numbers are of what works at once.
const COUNTS: [&str; 5] = ["connections", "users", "loops", "workers", "threads"];

/// Of each curve of throughput over a count with levels enough; charts of anything else have none.
pub(super) fn of(chart: &Chart, figure: &Figure, picked: &[&Cell<'_>], seed: u64) -> Vec<Scaling> {
    let is_throughput = matches!(chart.metric, Metric::CompletedPerS | Metric::GoodPerS);
    let is_count = COUNTS.contains(&chart.x.as_str()) && figure.x.names.is_empty();
    // At a rate that is offered, throughput does not depend on how many ask.
    let rates = ["rate_per_s", "rate_of_capacity"];
    let has_rate = |cell: &&Cell<'_>| rates.iter().any(|name| cell.level(name).is_some());
    let is_open = picked.iter().any(has_rate);
    if chart.kind != ChartKind::Lines || !is_throughput || !is_count || is_open {
        return Vec::new();
    }
    let counted = picked.iter().flat_map(|cell| &cell.counted);
    let values: Values = to_map(
        counted.filter_map(|trial| Some((trial.number, (trial.value(chart.metric)?, trial.block)))),
    );
    let curves = figure.panels.iter().flat_map(|panel| {
        let measured = panel.curves.iter().filter(|curve| !curve.is_reference);
        measured.map(move |curve| (panel, curve))
    });
    let enough = curves.filter(|(_, curve)| curve.points.len() >= LEVELS_MIN);
    enough
        .map(|(panel, curve)| {
            let fitted = fit(curve, &values, seed);
            let says = match &fitted {
                Ok(law) => law.peak_claim.clone(),
                Err(why) => format!("not fitted: {why}"),
            };
            Scaling {
                panel: panel.title.clone(),
                curve: figure.name_of(curve).to_owned(),
                law: fitted.ok(),
                says,
            }
        })
        .collect()
}

/// Throughput and block by the number of the trial.
type Values = BTreeMap<u32, (f64, u32)>;

/// The law of a curve, or why it has none.
fn fit(curve: &Curve, values: &Values, seed: u64) -> Result<Usl, String> {
    if curve.points.iter().any(|point| point.room.is_some()) {
        return Err("the client was the limit in some trials".to_owned());
    }
    let trials = curve.points.iter().flat_map(|point| {
        let numbers = point.trials.iter();
        numbers.map(move |number| (point.x, number))
    });
    let measured = trials.filter_map(|(x, number)| {
        let (per_s, block) = values.get(number)?;
        Some(((x, *per_s), *block))
    });
    let (points, blocks): (Vec<(f64, f64)>, Vec<u32>) = measured.unzip();
    let law = Usl::fit(&points, &blocks, Weighting::Relative, seed);
    law.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{Measured, Run};
    use crate::journal::Level;
    use crate::report::Report;
    use crate::report::page::page;

    /// Throughput by workers: three trials at each number.
    fn run(at: impl Fn(f64) -> f64) -> Run {
        let mut run = Run::default();
        for (number, workers) in [1, 2, 4, 8, 16, 32].repeat(3).into_iter().enumerate() {
            let noise = 1.0 + 0.004 * ((number * 7 % 5) as f64 - 2.0);
            let workers = f64::from(workers);
            run.trials.push(Measured {
                number: number as u32,
                block: number as u32 / 6,
                series: "s".to_owned(),
                levels: [("workers".to_owned(), Level::Number(workers))].into(),
                values: [(Metric::GoodPerS, at(workers) * noise)].into(),
                ..Measured::default()
            });
        }
        run
    }

    fn scaling(run: &Run) -> (Vec<Scaling>, String) {
        let chart = Chart {
            series: "s".to_owned(),
            metric: Metric::GoodPerS,
            x: "workers".to_owned(),
            ..Chart::default()
        };
        let report = Report::new(run, &[chart], Vec::new());
        let page = page(&report).unwrap();
        (report.figures[0].scaling.clone(), page)
    }

    #[test]
    fn a_peak_is_reported_only_where_there_is_one() {
        let law =
            |n: f64, kappa: f64| 1000.0 * n / (1.0 + 0.05 * (n - 1.0) + kappa * n * (n - 1.0));
        let (peaked, page) = scaling(&run(|n| law(n, 0.01)));
        let fitted = peaked[0].law.as_ref().unwrap();
        assert!(fitted.kappa.interval.contains(0.01), "{fitted:?}");
        let peak = (0.95_f64 / 0.01).sqrt();
        assert!(fitted.peak.unwrap().n.interval.contains(peak), "{fitted:?}");
        assert!(page.contains("N is workers") && page.contains("the peak is at N = 10"));
        let (rising, page) = scaling(&run(|n| law(n, 0.0)));
        assert!(rising[0].law.as_ref().unwrap().peak.is_none());
        assert!(page.contains("no peak claimed"), "{page}");
    }

    #[test]
    fn no_law_is_made_of_what_the_client_could_send() {
        let mut limited = run(|n| 1000.0 * n);
        limited.trials[3].client_limited = true;
        let (scaling, page) = scaling(&limited);
        assert!(scaling[0].law.is_none());
        assert!(page.contains("the client was the limit"), "{page}");
    }

    #[test]
    fn few_levels_are_no_law() {
        let mut few = run(|n| 1000.0 * n);
        let is_few = |trial: &Measured| trial.levels["workers"] != Level::Number(32.0);
        few.trials.retain(is_few);
        let (scaling, page) = scaling(&few);
        assert!(scaling.is_empty() && !page.contains("Scalability law, N is"));
    }
}
