//! What the papers published, one number a row: `lab/papers/published.csv`.

use std::sync::LazyLock;

/// A published number.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// "P1".
    pub paper: String,
    /// Figure, table or section.
    pub place: String,
    /// The server, as the paper calls it.
    pub server: String,
    /// How it was loaded.
    pub load: String,
    /// Connections; `None`: not said.
    pub connections: Option<u32>,
    /// What was measured.
    pub metric: String,
    /// How much.
    pub value: f64,
    /// Of what.
    pub unit: String,
    /// What is derived, inferred, or contradicts itself; may be empty.
    pub notes: String,
}

const TEXT: &str = include_str!("../../../lab/papers/published.csv");
/// Columns of the file.
const COLUMNS: usize = 9;

static ROWS: LazyLock<Vec<Published>> =
    LazyLock::new(|| TEXT.lines().skip(1).filter_map(row).collect());

/// All of them, in the order of the file.
#[must_use]
pub fn published() -> &'static [Published] {
    &ROWS
}

/// `None`: not a row; a test sees to it that there is none such.
fn row(line: &str) -> Option<Published> {
    let fields: [String; COLUMNS] = fields(line).try_into().ok()?;
    let [
        paper,
        place,
        server,
        load,
        connections,
        metric,
        value,
        unit,
        notes,
    ] = fields;
    Some(Published {
        paper,
        place,
        server,
        load,
        connections: match connections.as_str() {
            "" => None,
            number => Some(number.parse().ok()?),
        },
        metric,
        value: value.parse().ok()?,
        unit,
        notes,
    })
}

/// Fields between commas, or between quotes where they hold commas themselves.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut is_quoted = false;
    for letter in line.chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(String::new()),
            _ => {
                if let Some(field) = fields.last_mut() {
                    field.push(letter);
                }
            }
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_read() {
        let lines = TEXT.lines().filter(|line| !line.is_empty()).count();
        assert_eq!(published().len(), lines - 1);
        assert!(published().iter().all(|row| row.value.is_finite()));
    }

    #[test]
    fn commas_within_quotes_are_text() {
        let of = |server: &str| {
            published()
                .iter()
                .filter(|row| row.server == server)
                .count()
        };
        assert!(of("single thread, blocking") > 5);
        assert_eq!(fields("a,\"b, c\",,d"), ["a", "b, c", "", "d"]);
    }
}
