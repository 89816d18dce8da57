//! Texts of pictures: none is beyond an edge, and none stands on another one.

use super::canvas::fitted;
use super::*;
use crate::analysis::{Estimate, Unit};
use crate::plan::ChartKind;
use crate::report::figure::{Axis, Curve, Panel, Point};

/// A text with its box.
struct Text {
    text: String,
    x: (f64, f64),
    y: (f64, f64),
}

/// What stands in quotes behind a name.
fn attribute<'t>(element: &'t str, name: &str) -> Option<&'t str> {
    let (_, rest) = element.split_once(&format!("{name}=\""))?;
    Some(rest.split_once('"')?.0)
}

fn texts(svg: &str) -> Vec<Text> {
    let elements = svg.split("<text ").skip(1);
    elements
        .map(|element| {
            let (attributes, rest) = element.split_once('>').unwrap();
            let text = rest.split_once("</text>").unwrap().0.to_owned();
            let value = |name| attribute(attributes, name).unwrap();
            let number = |name| value(name).parse::<f64>().unwrap();
            let (x, y, size) = (number("x"), number("y"), number("font-size"));
            let is_bold = attribute(attributes, "font-weight").is_some();
            let width = text_width(&text, if is_bold { size * BOLD } else { size });
            let from = match attribute(attributes, "text-anchor") {
                Some("middle") => -width / 2.0,
                Some("end") => -width,
                _ => 0.0,
            };
            let (along, across) = ((from, from + width), (-size * 0.75, size * 0.2));
            // Upright, or turned to the left.
            let (dx, dy) = match attributes.contains("rotate") {
                true => (across, along),
                false => (along, across),
            };
            Text {
                text,
                x: (x + dx.0, x + dx.1),
                y: (y + dy.0, y + dy.1),
            }
        })
        .collect()
}

/// Texts that are not wholly within the picture.
pub(super) fn outside(svg: &str) -> Vec<String> {
    let size = attribute(svg, "viewBox").unwrap();
    let size: Vec<f64> = size.split(' ').map(|it| it.parse().unwrap()).collect();
    let is_within = |(from, to): (f64, f64), end: f64| from >= -0.1 && to <= end + 0.1;
    let texts = texts(svg).into_iter();
    let outside = texts.filter(|it| !is_within(it.x, size[2]) || !is_within(it.y, size[3]));
    outside.map(|it| it.text).collect()
}

/// Texts that stand on others.
pub(super) fn touching(svg: &str) -> Vec<String> {
    let texts = texts(svg);
    let is_common = |one: (f64, f64), other: (f64, f64)| one.0 < other.1 && other.0 < one.1;
    let mut touching = Vec::new();
    for (index, one) in texts.iter().enumerate() {
        let others = texts[index + 1..].iter();
        let others = others.filter(|it| is_common(one.x, it.x) && is_common(one.y, it.y));
        touching.extend(others.map(|other| format!("{} | {}", one.text, other.text)));
    }
    touching
}

fn curve(legend: usize, points: &[(f64, f64)]) -> Curve {
    let points = points.iter().map(|(x, value)| Point {
        x: *x,
        estimate: Estimate::new(&[*value]),
        ..Point::default()
    });
    Curve {
        legend,
        points: points.collect(),
        ..Curve::default()
    }
}

fn axis(label: &str) -> Axis {
    Axis {
        label: label.to_owned(),
        ..Axis::default()
    }
}

/// As a picture of its own, and as a part of a narrow one.
fn pictures(figure: &Figure) -> [String; 2] {
    let parts = [figure.clone(), figure.clone()].map(|figure| StackPart {
        figure,
        bands: Vec::new(),
    });
    [draw(figure), stack(&figure.title, "", &parts)]
}

fn check(figure: &Figure) -> [String; 2] {
    let pictures = pictures(figure);
    for svg in &pictures {
        assert_eq!(outside(svg), [""; 0], "{svg}");
        assert_eq!(touching(svg), [""; 0], "{svg}");
    }
    pictures
}

#[test]
fn long_names_of_bars_stand_in_rows() {
    let names = [
        "sequential",
        "thread-per-connection",
        "thread-pool of 1,000 threads",
        "reactor with 2 loops and 4 workers",
        "proactor",
        "everything else that was measured",
    ];
    let points: Vec<(f64, f64)> = (0..6).map(|at| (f64::from(at), 5.0)).collect();
    let figure = Figure {
        title: "Throughput of six architectures at 200,000 requests/s, on a machine with two CPUs, and \
                beside it what was published"
            .to_owned(),
        x: Axis {
            names: names.map(str::to_owned).into(),
            ..axis("model")
        },
        value: axis("Completed requests (per second)"),
        legend: vec![
            "measured here".to_owned(),
            "published, of another machine, with another kernel and another number of connections"
                .to_owned(),
        ],
        ..Figure::of(ChartKind::Bars, vec![curve(0, &points), curve(1, &points)])
    };
    for svg in check(&figure) {
        for name in names {
            assert!(svg.contains(&format!(">{name}</text>")), "{name}: {svg}");
        }
    }
}

#[test]
fn small_and_large_values_have_room_at_their_axis() {
    for factor in [1.0, 1e-9, 1e8] {
        let points = [(1.0, 12_345.0 * factor), (2.0, 23_456.0 * factor)];
        let mut figure = Figure {
            title: "Values".to_owned(),
            x: axis("connections"),
            value: axis("Mean time from intended start to the end of the response (seconds)"),
            ..Figure::of(ChartKind::Lines, vec![curve(0, &points)])
        };
        check(&figure);
        let panel = Panel {
            title: "service time 200 µs, connections 10,000, architecture thread-per-connection"
                .to_owned(),
            ..figure.panels[0].clone()
        };
        figure.panels = vec![panel; 3];
        let svg = draw(&figure);
        assert_eq!(outside(&svg), [""; 0], "{svg}");
        assert_eq!(touching(&svg), [""; 0], "{svg}");
    }
}

#[test]
fn percentiles_of_a_narrow_spectrum_do_not_touch() {
    let points = [(1.0, 10.0), (10.0, 20.0), (100_000.0, 90.0)];
    let mut figure = Figure {
        title: "Latency".to_owned(),
        x: Axis {
            log: true,
            ..axis("percentile")
        },
        ..Figure::of(ChartKind::Spectrum, vec![curve(0, &points)])
    };
    figure.panels = vec![figure.panels[0].clone(); 3];
    for svg in check(&figure) {
        assert!(svg.contains(">0 %</text>") && svg.contains(">99.9 %</text>"));
    }
}

#[test]
fn a_heat_map_has_room_for_its_names_and_values() {
    let columns: Vec<(f64, f64)> = (0..12)
        .map(|at| (f64::from(at), 1_234_567.0 + f64::from(at)))
        .collect();
    let row = |y| Curve {
        y,
        ..curve(0, &columns)
    };
    let names = (0..12).map(|at| format!("{at}00,000"));
    let rows = ["thread-per-connection", "thread-pool"];
    let figure = Figure {
        title: "Throughput".to_owned(),
        x: Axis {
            names: names.collect(),
            ..axis("rate")
        },
        y: Some(Axis {
            names: rows.map(str::to_owned).into(),
            ..axis("architecture")
        }),
        value: Axis {
            unit: Some(Unit::PerSecond),
            ..Axis::default()
        },
        ..Figure::of(ChartKind::HeatMap, vec![row(0.0), row(1.0)])
    };
    for svg in check(&figure) {
        assert!(svg.contains(">1,234,567/s</text>"), "{svg}");
        assert!(svg.contains(">thread-per-connection</text>"), "{svg}");
    }
}

/// Ten numbers of threads at eleven service times, as in a figure of a paper.
#[test]
fn a_narrow_heat_map_has_a_number_in_each_cell() {
    let row = |y: u32| {
        let columns = (0..10).map(|x| (f64::from(x), f64::from(20_000 + 100 * y + x)));
        Curve {
            y: f64::from(y),
            ..curve(0, &columns.collect::<Vec<_>>())
        }
    };
    let figure = Figure {
        title: "Throughput".to_owned(),
        x: axis("threads"),
        y: Some(axis("service time")),
        value: Axis {
            unit: Some(Unit::PerSecond),
            ..Axis::default()
        },
        ..Figure::of(ChartKind::HeatMap, (0..11).map(row).collect())
    };
    let [_, narrow] = check(&figure);
    // The picture has it twice, and each row ten times.
    assert_eq!(narrow.matches(">20k</text>").count(), 20, "{narrow}");
    assert_eq!(narrow.matches(">20.1k</text>").count(), 20);
    assert_eq!(narrow.matches(">21k</text>").count(), 20);
}

#[test]
fn texts_of_bands_stay_in_the_plot() {
    let figure = Figure {
        title: "Throughput".to_owned(),
        ..Figure::of(
            ChartKind::Lines,
            vec![curve(0, &[(0.0, 1.0), (100.0, 2.0)])],
        )
    };
    let text =
        "where the paper says that the threads of its server begin to bend, and others do not";
    let band = |on, from, to| Band {
        on,
        from,
        to,
        text: text.to_owned(),
    };
    for band in [
        band(BandAxis::X, 1.0, 2.0),
        band(BandAxis::X, 50.0, 50.0),
        band(BandAxis::X, 98.0, 99.0),
        band(BandAxis::X, 2.0, 98.0),
        band(BandAxis::Value, 1.2, 1.2),
    ] {
        let part = StackPart {
            figure: figure.clone(),
            bands: vec![band],
        };
        let svg = stack("Fig. 1", "", &[part]);
        assert_eq!(outside(&svg), [""; 0], "{svg}");
        assert_eq!(touching(&svg), [""; 0], "{svg}");
    }
}

#[test]
fn texts_are_broken_and_cut_by_their_width() {
    let width = |text: &str| text_width(text, 10.0);
    assert_eq!(
        wrapped("one two three", 10.0, width("one two")),
        ["one two", "three"]
    );
    assert_eq!(wrapped("abcdef", 10.0, width("abcd")), ["abcd", "ef"]);
    assert_eq!(wrapped("ab", 10.0, 0.0), ["a", "b"]);
    assert_eq!(wrapped(" ", 10.0, 50.0), [""; 0]);
    assert_eq!(fitted("abcdef", 10.0, width("abcdef")), "abcdef");
    let cut = fitted("abcdef", 10.0, width("abcde"));
    assert!(cut.ends_with('…') && width(&cut) <= width("abcde"), "{cut}");
}
