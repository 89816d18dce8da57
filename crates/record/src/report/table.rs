//! Columns of text: the first one to the left, the others to the right, as wide as they need.

/// Rows that stand below each other.
#[derive(Debug)]
pub(super) struct Table {
    indent: usize,
    gap: usize,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty one.
    pub(super) fn new(indent: usize, gap: usize) -> Self {
        Self {
            indent,
            gap,
            rows: Vec::new(),
        }
    }

    /// Adds a row; rows may have different lengths.
    pub(super) fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// One line for each row, without spaces at the ends.
    pub(super) fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |index: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(index));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = " ".repeat(self.indent);
            for (index, (cell, width)) in row.iter().zip(&widths).enumerate() {
                match index {
                    0 => line += &format!("{cell:<width$}"),
                    _ => line += &format!("{}{cell:>width$}", " ".repeat(self.gap)),
                }
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

/// Breaks a sentence into lines of at most `width` columns; the first begins with `lead`, the
/// others are indented as far as its text.
pub(super) fn wrapped(lead: &str, sentence: &str, width: usize) -> String {
    let indent = lead.chars().count();
    let mut text = String::from(lead);
    let mut column = indent;
    for word in sentence.split_whitespace() {
        let len = word.chars().count();
        if column > indent && column + 1 + len > width {
            text.push('\n');
            text += &" ".repeat(indent);
            column = indent;
        }
        if column > indent {
            text.push(' ');
            column += 1;
        }
        text += word;
        column += len;
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_right() {
        let mut table = Table::new(2, 3);
        table.row(["", "count", "share"]);
        table.row(["timeouts", "7", "0.1 %"]);
        table.row(["resets", "1,234"]);
        let expected =
            "             count   share\n  timeouts       7   0.1 %\n  resets     1,234\n";
        assert_eq!(table.text(), expected);
    }

    #[test]
    fn sentences_are_broken_between_words() {
        let text = wrapped("  - ", "one two three fourteenletters", 14);
        assert_eq!(text, "  - one two\n    three\n    fourteenletters\n");
        assert_eq!(wrapped("* ", "", 10), "* \n");
    }
}
