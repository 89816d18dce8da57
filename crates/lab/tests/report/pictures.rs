//! Pictures of the manual that are drawn from tables.

use std::fs;

use loadline_lab::analysis::Estimate;
use loadline_lab::plan::{ChartKind, Spread};
use loadline_lab::report::{Axis, Curve, Figure, Panel, Point, svg};

/// Goodput against offered load, as `crates/server/src/overload/simulation.rs` has simulated it.
#[test]
fn the_picture_of_goodput_under_overload_is_that_of_its_table() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/pictures");
    let table = fs::read_to_string(format!("{folder}/overload-goodput.csv")).unwrap();
    let path = format!("{folder}/overload-goodput.svg");
    let drawn = svg::draw(&goodput(&table));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &drawn).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == drawn,
        "{path}: run it again with UPDATE_DOCS=1 in the environment"
    );
}

fn goodput(table: &str) -> Figure {
    let mut figure = Figure {
        id: "overload-goodput".to_owned(),
        kind: ChartKind::Lines,
        spread: Spread::MinMax,
        series: String::new(),
        title: "Responses in time, by what is offered (simulated, two workers, 10 ms a request)".to_owned(),
        note: String::new(),
        finding: "Up to ten times the capacity, a queue with a latency goal responds to as many in time \
                  as its workers can serve; a queue that is bounded by its length responds to hardly any."
            .to_owned(),
        x: Axis {
            label: "offered, in multiples of the capacity".to_owned(),
            log: true,
            ..Axis::default()
        },
        y: None,
        value: Axis {
            label: "in time, by capacity".to_owned(),
            ..Axis::default()
        },
        legend: Vec::new(),
        panels: Vec::new(),
        scaling: Vec::new(),
    };
    for row in table.lines().skip(1) {
        let (retries, row) = row.split_once(",\"").expect(row);
        let (rule, row) = row.split_once("\",").expect(row);
        let (load, goodputs) = row.split_once(',').expect(row);
        let title = match retries {
            "0" => "clients that give up after 2 s",
            _ => "clients that try again twice",
        };
        if figure
            .panels
            .last()
            .is_none_or(|panel| panel.title != title)
        {
            figure.panels.push(Panel {
                title: title.to_owned(),
                curves: Vec::new(),
            });
        }
        if !figure.legend.iter().any(|name| name == rule) {
            figure.legend.push(rule.to_owned());
        }
        let legend = figure.legend.iter().position(|name| name == rule).unwrap();
        let curves = &mut figure.panels.last_mut().unwrap().curves;
        if curves.last().is_none_or(|curve| curve.legend != legend) {
            curves.push(Curve {
                legend,
                ..Curve::default()
            });
        }
        let values: Vec<f64> = goodputs.split(' ').map(|it| it.parse().unwrap()).collect();
        curves.last_mut().unwrap().points.push(Point {
            x: load.parse().unwrap(),
            x_text: load.to_owned(),
            estimate: Estimate::new(&values),
            ..Point::default()
        });
    }
    figure
}
