//! The latency spectrum as a picture: how long the share of requests on the horizontal axis had to
//! wait at most. The axis is logarithmic in 1/(1-q), so that 90 %, 99 % and 99.9 % are equally far
//! apart; the solid part of a column is service time, the light part above it is what a request
//! waited from when it was due to when it was sent.

use hdrhistogram::Histogram;

use super::Page;
use super::number::time_us;
use super::table::wrapped;
use crate::distribution::SAMPLES_BEYOND_MIN;

/// Rows of the picture, without its axis.
const ROWS: usize = 12;
/// Columns for the labels of the vertical axis, without the axis.
const LABEL: usize = 9;
/// A range of latencies wider than this factor is drawn on a logarithmic axis.
const LINEAR_FACTOR_MAX: f64 = 20.0;
/// Fewer columns show nothing.
const COLUMNS_MIN: usize = 20;

/// Draws latency and service time in microseconds, of the same requests. Empty if there are too few
/// samples or columns for a picture.
///
/// It ends where fewer than ten samples are left: beyond, it would show single requests.
#[must_use]
pub fn picture(latency: &Histogram<u64>, service: &Histogram<u64>, page: Page) -> String {
    let columns = page.width.saturating_sub(LABEL + 3).min(120);
    let decades = (latency.len() as f64 / SAMPLES_BEYOND_MIN).log10();
    if columns < COLUMNS_MIN || decades < 2_f64.log10() || service.is_empty() {
        return String::new();
    }
    let at = |histogram: &Histogram<u64>, column: usize| {
        let x = decades * column as f64 / (columns - 1) as f64;
        histogram.value_at_quantile(1.0 - 10_f64.powf(-x)) as f64
    };
    let tops: Vec<f64> = (0..columns).map(|column| at(latency, column)).collect();
    let solid: Vec<f64> = (0..columns).map(|column| at(service, column)).collect();
    let scale = Scale::of(&tops, &solid);
    let ink = Ink::of(page);
    let title = format!("Latency spectrum{} ({})", scale.name(), ink.legend);
    let mut out = wrapped("  ", &title, page.width);
    for row in (0..ROWS).rev() {
        let label = match row == ROWS - 1 || row % 3 == 2 {
            true => time_us(scale.value(row + 1)),
            false => String::new(),
        };
        let mut line = format!("{label:>LABEL$} {}", ink.axis);
        for (top, solid) in tops.iter().zip(&solid) {
            line.push(ink.cell(row, scale.height(*top), scale.height(*solid)));
        }
        out += line.trim_end();
        out.push('\n');
    }
    out += &horizontal_axis(decades, columns, &ink);
    out
}

fn horizontal_axis(decades: f64, columns: usize, ink: &Ink) -> String {
    let marks: [(f64, &str); 7] = [
        (0.0, "0"),
        (0.5, "50 %"),
        (0.9, "90 %"),
        (0.99, "99 %"),
        (0.999, "99.9 %"),
        (0.9999, "99.99 %"),
        (0.99999, "99.999 %"),
    ];
    let mut rule = vec![ink.rule; columns];
    let mut labels = String::new();
    for (quantile, label) in marks {
        let x = -(1.0 - quantile).log10();
        let column = (x / decades * (columns - 1) as f64).round() as usize;
        if column >= columns {
            break;
        }
        rule[column] = ink.tick;
        let begin = column.saturating_sub(label.len() / 2);
        let begin = begin.min(columns - label.len().min(columns));
        // A label that would touch the one before it is left out; its tick stays.
        if labels.is_empty() || begin > labels.len() {
            labels += &" ".repeat(begin - labels.len());
            labels += label;
        }
    }
    let rule: String = rule.into_iter().collect();
    let margin = " ".repeat(LABEL + 1);
    format!("{margin}{}{rule}\n{margin} {labels}\n", ink.corner)
}

/// From microseconds to rows: linear from 0, or logarithmic from above it.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn of(tops: &[f64], solid: &[f64]) -> Self {
        let high = tops.iter().copied().fold(1.0, f64::max);
        let all = tops.iter().chain(solid).copied();
        let least = all.filter(|us| *us > 0.0).fold(high, f64::min);
        // A row below the smallest, so that it is seen.
        let step = (high / least).powf(1.0 / (ROWS - 1) as f64);
        let low = match high / least <= LINEAR_FACTOR_MAX {
            true => 0.0,
            false => least / step,
        };
        Self { low, high }
    }

    fn is_logarithmic(&self) -> bool {
        self.low > 0.0
    }

    fn name(&self) -> &'static str {
        match self.is_logarithmic() {
            true => ", both axes logarithmic",
            false => "",
        }
    }

    /// In rows, from 0 to `ROWS`.
    fn height(&self, us: f64) -> f64 {
        let part = match self.is_logarithmic() {
            true => (us.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
            false => us / self.high,
        };
        part.clamp(0.0, 1.0) * ROWS as f64
    }

    /// The value at the top of `rows` rows.
    fn value(&self, rows: usize) -> f64 {
        let part = rows as f64 / ROWS as f64;
        match self.is_logarithmic() {
            true => self.low * (self.high / self.low).powf(part),
            false => self.high * part,
        }
    }
}

/// What is drawn with.
struct Ink {
    axis: char,
    corner: char,
    rule: char,
    tick: char,
    light: char,
    /// From one part of a cell to all of it.
    solid: &'static [char],
    legend: &'static str,
}

impl Ink {
    fn of(page: Page) -> Self {
        match page.is_utf8 {
            true => Self {
                axis: '│',
                corner: '└',
                rule: '─',
                tick: '┴',
                light: '░',
                solid: &['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
                legend: "█ service time, ░ waiting before it",
            },
            false => Self {
                axis: '|',
                corner: '+',
                rule: '-',
                tick: '+',
                light: '.',
                solid: &['#'],
                legend: "# service time, . waiting before it",
            },
        }
    }

    /// One cell of a column that is solid up to one height and light up to another.
    fn cell(&self, row: usize, top: f64, solid: f64) -> char {
        let base = row as f64;
        let part = (solid - base).clamp(0.0, 1.0);
        let eighths = (part * self.solid.len() as f64).round() as usize;
        // The lowest row is never empty: there was an answer.
        let eighths = match row {
            0 => eighths.max(1),
            _ => eighths,
        };
        let is_full = eighths == self.solid.len();
        let is_light = top - base >= 0.5;
        // Where waiting goes on above, a part of a cell would look like a gap.
        match eighths {
            0 if is_light => self.light,
            0 => ' ',
            _ if !is_full && is_light && top - solid >= 0.5 && part < 0.5 => self.light,
            _ => self.solid[eighths - 1],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latencies;

    fn page(width: usize, is_utf8: bool) -> Page {
        Page { width, is_utf8 }
    }

    fn uniform(count: u64, step_us: u64) -> Histogram<u64> {
        let mut histogram = latencies();
        for index in 1..=count {
            histogram.saturating_record(index * step_us);
        }
        histogram
    }

    #[test]
    fn too_few_samples_or_columns_draw_nothing() {
        let few = uniform(19, 10);
        assert_eq!(picture(&few, &few, Page::default()), "");
        let many = uniform(1000, 10);
        assert_eq!(picture(&many, &many, page(20, true)), "");
        assert_eq!(picture(&latencies(), &latencies(), Page::default()), "");
    }

    #[test]
    fn no_line_is_wider_than_the_page_and_ascii_is_ascii() {
        let (latency, service) = (uniform(50_000, 40), uniform(50_000, 7));
        for width in [40, 80, 133] {
            for is_utf8 in [false, true] {
                let text = picture(&latency, &service, page(width, is_utf8));
                let lines: Vec<&str> = text.lines().collect();
                assert!(lines.len() >= ROWS + 3);
                for line in lines {
                    assert!(line.chars().count() <= width, "{line}");
                }
                assert!(is_utf8 || text.is_ascii());
            }
        }
    }

    #[test]
    fn columns_do_not_fall_to_the_right() {
        let latency = uniform(10_000, 3);
        let text = picture(&latency, &latency, page(80, false));
        let rows: Vec<Vec<char>> = text.lines().map(|line| line.chars().collect()).collect();
        let height = |column: usize| {
            let cells = rows[1..=ROWS].iter().map(|row| row.get(column));
            cells.filter(|cell| *cell == Some(&'#')).count()
        };
        let heights: Vec<usize> = (LABEL + 2..79).map(height).collect();
        assert!(heights.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!(heights.last(), Some(&ROWS));
        let bars = rows[1..=ROWS]
            .iter()
            .flat_map(|row| row.iter().skip(LABEL + 2));
        assert!(bars.into_iter().all(|cell| *cell != '.'), "{text}");
    }

    #[test]
    fn waiting_is_drawn_above_service() {
        let (latency, service) = (uniform(10_000, 10), uniform(10_000, 2));
        let text = picture(&latency, &service, page(80, false));
        let rows: Vec<&str> = text.lines().collect();
        let top = rows[1].trim_end();
        assert!(top.ends_with('.') && !top.contains('#'));
        assert!(rows[ROWS].ends_with('#'));
    }
}
