//! The published numbers: `lab/papers/published.csv`.

use std::sync::LazyLock;

use crate::packed::packed;

/// A row of the table, as far as it is drawn.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PublishedRow {
    pub(crate) paper: String,
    pub(crate) server: String,
    /// `None`: the row is of no number of connections.
    pub(crate) connections: Option<f64>,
    pub(crate) metric: String,
    pub(crate) value: f64,
    pub(crate) unit: String,
}

/// All rows, in the order of the file. A test sees to it that none is left out.
pub(crate) static ROWS: LazyLock<Vec<PublishedRow>> = LazyLock::new(|| {
    let text = packed!("published.csv").text();
    text.lines().skip(1).filter_map(row).collect()
});

fn row(line: &str) -> Option<PublishedRow> {
    let columns = columns(line);
    let [paper, _, server, _, connections, metric, value, unit, _] = columns.as_slice() else {
        return None;
    };
    Some(PublishedRow {
        paper: paper.clone(),
        server: server.clone(),
        connections: connections.parse().ok(),
        metric: metric.clone(),
        value: value.parse().ok()?,
        unit: unit.clone(),
    })
}

/// Within quotes, commas are text.
fn columns(line: &str) -> Vec<String> {
    let mut columns = vec![String::new()];
    let mut is_quoted = false;
    for c in line.chars() {
        match (c, columns.last_mut()) {
            ('"', _) => is_quoted = !is_quoted,
            (',', _) if !is_quoted => columns.push(String::new()),
            (c, Some(column)) => column.push(c),
            (_, None) => {}
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_read() {
        let text = packed!("published.csv").text();
        assert_eq!(ROWS.len(), text.lines().count() - 1);
        assert_eq!(columns("a,\"b, c\",,d"), ["a", "b, c", "", "d"]);
    }
}
