//! Charts one below the other in one picture, which share their curves: what was measured, a ratio, CPU use.

use super::band::Band;
use super::canvas::{BOLD, Canvas, Frame, TITLE, fitted, wrapped};
use super::{grid, legend, lines};
use crate::report::figure::Figure;

/// Narrow, so that its text is large enough on a phone.
const WIDTH: f64 = 520.0;
/// Heights of a panel: of the first chart, of those below it, and of grids and names, which need room.
const FIRST: f64 = 270.0;
const BELOW: f64 = 170.0;
const LINE: f64 = 15.0;
/// Between texts and both edges.
const MARGIN: f64 = 16.0;
/// Width of a panel.
const PANEL: f64 = WIDTH - 8.0;

/// A chart of the picture.
#[derive(Clone, Debug, PartialEq)]
pub struct StackPart {
    /// The chart; its title stands above it.
    pub figure: Figure,
    /// What stands behind its curves.
    pub bands: Vec<Band>,
}

/// Draws them. `about` says the same for those who do not see it.
#[must_use]
pub fn stack(title: &str, about: &str, parts: &[StackPart]) -> String {
    let titles = wrapped(title, 16.0 * BOLD, WIDTH - 2.0 * MARGIN);
    let first = parts.first().map(|part| &part.figure);
    let legend_height = first.map_or(0.0, |figure| legend::height(figure, 12.0, WIDTH));
    let top = 30.0 + titles.len() as f64 * 20.0 + legend_height;
    let height: f64 = parts.iter().enumerate().map(height_of).sum();
    let mut canvas = Canvas::alone(WIDTH, top + height + 8.0);
    canvas.describe(title, about);
    let mut y = 28.0;
    for line in &titles {
        let style = "class=\"title\" font-size=\"16\" font-weight=\"650\"";
        canvas.text(MARGIN, y, line, style);
        y += 20.0;
    }
    if let Some(figure) = first {
        legend::draw(figure, &mut canvas, (12.0, y), WIDTH);
    }
    y = top;
    for (index, part) in parts.iter().enumerate() {
        draw_part(part, index, y, &mut canvas);
        y += height_of((index, part));
    }
    canvas.finish()
}

fn panel_height(index: usize, figure: &Figure) -> f64 {
    let height = match (figure.kind.is_grid(), index) {
        (true, _) => FIRST.max(grid::readable_height(figure)),
        (false, 0) => FIRST,
        (false, _) => BELOW,
    };
    height + lines::more_height(figure, PANEL)
}

fn title_of(figure: &Figure) -> Vec<String> {
    wrapped(&figure.title, 13.0 * BOLD, WIDTH - 2.0 * MARGIN)
}

/// With the title, and with the names of panels where there are several.
fn height_of((index, part): (usize, &StackPart)) -> f64 {
    let panels = part.figure.panels.len() as f64;
    let titles = title_of(&part.figure).len() as f64;
    titles * LINE + 8.0 + panels * panel_height(index, &part.figure)
}

fn draw_part(part: &StackPart, index: usize, top: f64, canvas: &mut Canvas) {
    let figure = &part.figure;
    let mut y = top + LINE;
    for line in title_of(figure) {
        canvas.text(MARGIN, y, &line, "font-size=\"13\" font-weight=\"600\"");
        y += LINE;
    }
    let height = panel_height(index, figure);
    for panel in &figure.panels {
        let frame = Frame {
            left: 4.0,
            top: y - 8.0,
            width: PANEL,
            height,
        };
        if !panel.title.is_empty() {
            let title = fitted(&panel.title, TITLE, WIDTH - 66.0 - MARGIN);
            canvas.label((66.0, y + 6.0), &title, TITLE, "start");
        }
        let frame = frame.below(if panel.title.is_empty() { 0.0 } else { 12.0 });
        lines::panel(figure, panel, &frame, &part.bands, canvas);
        y += height;
    }
}

#[cfg(test)]
mod tests {
    use super::super::band::BandAxis;
    use super::*;
    use crate::analysis::Estimate;
    use crate::plan::ChartKind;
    use crate::report::figure::{Curve, Point};

    fn figure(title: &str) -> Figure {
        let point = |x: f64| Point {
            x,
            estimate: Estimate::new(&[x, x + 0.5]),
            ..Point::default()
        };
        let curve = |legend, is_reference| Curve {
            legend,
            is_reference,
            points: vec![point(1.0), point(2.0)],
            ..Curve::default()
        };
        Figure {
            series: "s".to_owned(),
            title: title.to_owned(),
            legend: ["ours", "theirs", "others'"].map(str::to_owned).into(),
            ..Figure::of(
                ChartKind::Lines,
                vec![curve(0, false), curve(1, true), curve(2, true)],
            )
        }
    }

    #[test]
    fn charts_stand_below_each_other_with_one_legend_and_their_bands() {
        let part = |title, on, (from, to), text: &str| StackPart {
            figure: figure(title),
            bands: vec![Band {
                on,
                from,
                to,
                text: text.to_owned(),
            }],
        };
        let parts = [
            part("Throughput", BandAxis::X, (1.2, 1.5), "claimed bend"),
            part("Ratio", BandAxis::Value, (9.0, 9.0), "claimed: 9 times"),
        ];
        let svg = stack("Fig. 1: a chart", "It rises.", &parts);
        for part in [
            "viewBox=\"0 0 520 ",
            "<title>Fig. 1: a chart</title><desc>It rises.</desc>",
            ">Throughput</text>",
            ">Ratio</text>",
            ">claimed bend</text>",
            ">claimed: 9 times</text>",
        ] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        assert_eq!(svg.matches(">theirs</text>").count(), 1);
        // Curves of others have one colour, and dashes of their own.
        assert!(
            svg.contains("stroke-dasharray=\"9 4\"") && svg.contains("stroke-dasharray=\"1 4\"")
        );
        assert!(!svg.contains("NaN"), "{svg}");
    }
}
