//! Pictures of the manual that are drawn from tables.

use std::fs;

use loadline_lab::analysis::Estimate;
use loadline_lab::plan::{ChartKind, Spread};
use loadline_lab::report::{Axis, Curve, Figure, Panel, Point, svg};

/// Goodput against offered load, as `crates/server/src/overload/simulation.rs` has simulated it.
#[test]
fn the_picture_of_goodput_under_overload_is_that_of_its_table() {
    check("overload-goodput", goodput);
}

/// As `crates/capacity/src/sizing/tests/picture.rs` has simulated it.
#[test]
fn the_picture_of_sizes_is_that_of_its_table() {
    check("sizes", sizes);
}

/// As `crates/capacity/src/balance/tests/skewed.rs` has simulated it.
#[test]
fn the_picture_of_balance_is_that_of_its_table() {
    check("balance", balance);
}

fn check(name: &str, figure: fn(&str) -> Figure) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/pictures");
    let table = fs::read_to_string(format!("{folder}/{name}.csv")).unwrap();
    let path = format!("{folder}/{name}.svg");
    let drawn = svg::draw(&figure(&table));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &drawn).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == drawn,
        "{path}: run it again with UPDATE_DOCS=1 in the environment"
    );
}

fn figure(id: &str, kind: ChartKind, title: &str, finding: &str, x: Axis, value: Axis) -> Figure {
    Figure {
        id: id.to_owned(),
        kind,
        spread: Spread::MinMax,
        series: String::new(),
        title: title.to_owned(),
        note: String::new(),
        finding: finding.to_owned(),
        x,
        y: None,
        value,
        legend: Vec::new(),
        panels: Vec::new(),
        scaling: Vec::new(),
    }
}

fn axis(label: &str, log: bool) -> Axis {
    Axis {
        label: label.to_owned(),
        log,
        ..Axis::default()
    }
}

/// The curve of this name in the last panel.
fn curve<'f>(figure: &'f mut Figure, name: &str) -> &'f mut Curve {
    if !figure.legend.iter().any(|known| known == name) {
        figure.legend.push(name.to_owned());
    }
    let legend = figure
        .legend
        .iter()
        .position(|known| known == name)
        .unwrap();
    let curves = &mut figure.panels.last_mut().unwrap().curves;
    let index = curves.iter().position(|curve| curve.legend == legend);
    let index = index.unwrap_or_else(|| {
        curves.push(Curve {
            legend,
            ..Curve::default()
        });
        curves.len() - 1
    });
    &mut curves[index]
}

fn point(x: f64, x_text: &str, values: &str) -> Point {
    let values: Vec<f64> = values.split(' ').map(|it| it.parse().unwrap()).collect();
    Point {
        x,
        x_text: x_text.to_owned(),
        estimate: Estimate::new(&values),
        ..Point::default()
    }
}

fn sizes(table: &str) -> Figure {
    let mut figure = figure(
        "sizes",
        ChartKind::Lines,
        "Number of workers while the load changes (simulated, two CPUs, 40 clients)",
        "The pool has as many workers as CPUs while requests compute, one for each client while they sleep, \
         and gives up what is not used.",
        axis("seconds", false),
        axis("workers", false),
    );
    figure.panels.push(Panel::default());
    for row in table.lines().skip(1) {
        let (name, row) = row[1..].split_once("\",").expect(row);
        let (seconds, size) = row.split_once(',').expect(row);
        let point = point(seconds.parse().unwrap(), seconds, size);
        curve(&mut figure, name).points.push(point);
    }
    figure
}

fn balance(table: &str) -> Figure {
    let mut figure = figure(
        "balance",
        ChartKind::Bars,
        "p99 by rule, over that of the best fixed rule (simulated, ten servers each)",
        "In even load adaptive balance is as good as the best fixed rule; in uneven load its p99 is shorter \
         than that of any.",
        axis("connections", false),
        axis("p99 over the best fixed rule's", true),
    );
    figure.panels.push(Panel::default());
    for row in table.lines().skip(1) {
        let (load, row) = row[1..].split_once("\",\"").expect(row);
        let (rule, ratios) = row.split_once("\",").expect(row);
        if !figure.x.names.iter().any(|known| known == load) {
            figure.x.names.push(load.to_owned());
        }
        let place = figure.x.names.len() - 1;
        let point = point(place as f64, load, ratios);
        curve(&mut figure, rule).points.push(point);
    }
    figure
}

fn goodput(table: &str) -> Figure {
    let mut figure = figure(
        "overload-goodput",
        ChartKind::Lines,
        "Responses in time, by what is offered (simulated, two workers, 10 ms a request)",
        "Up to ten times the capacity, a queue with a latency goal responds to as many in time as its workers \
         can serve; a queue that is bounded by its length responds to hardly any.",
        axis("offered, in multiples of the capacity", true),
        axis("in time, by capacity", false),
    );
    for row in table.lines().skip(1) {
        let (retries, row) = row.split_once(",\"").expect(row);
        let (rule, row) = row.split_once("\",").expect(row);
        let (load, goodputs) = row.split_once(',').expect(row);
        let title = match retries {
            "0" => "clients that give up after 2 s",
            _ => "clients that try again twice",
        };
        let panels = &mut figure.panels;
        if panels.last().is_none_or(|panel| panel.title != title) {
            panels.push(Panel {
                title: title.to_owned(),
                ..Panel::default()
            });
        }
        let point = point(load.parse().unwrap(), load, goodputs);
        curve(&mut figure, rule).points.push(point);
    }
    figure
}
