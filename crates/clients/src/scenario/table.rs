//! The users file: a line for each client, as comma-separated values (RFC 4180).

use loadline_spec::ValueError;

/// Columns by name, and rows of as many values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

/// Reads a table whose first line names its columns. Values may stand in quotation marks, with `""`
/// for one within; a value does not go over the end of its line. Empty lines are passed over.
///
/// # Errors
/// Number of the line and what is wrong with it.
pub(super) fn parse(text: &str) -> Result<Table, (usize, ValueError)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut table = Table::default();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let fail = |message| (index + 1, message);
        let values = values(line).map_err(fail)?;
        if table.columns.is_empty() {
            table.columns = values.iter().map(|name| name.trim().to_owned()).collect();
        } else if values.len() == table.columns.len() {
            table.rows.push(values);
        } else {
            let problem = format!("{} values", values.len());
            let right = format!("{}, as in the first line", table.columns.len());
            return Err(fail(ValueError::new(problem, right)));
        }
    }
    if table.rows.is_empty() {
        let right = "a line with the names of the columns and then a line for each user";
        let line = text.lines().count().max(1);
        return Err((line, ValueError::new("no users", right)));
    }
    Ok(table)
}

fn values(line: &str) -> Result<Vec<String>, ValueError> {
    let mut values = Vec::new();
    let mut rest = line;
    loop {
        let (value, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_value(quoted)?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                (rest[..end].to_owned(), &rest[end..])
            }
        };
        values.push(value);
        match after.strip_prefix(',') {
            Some(more) => rest = more,
            None if after.is_empty() => return Ok(values),
            None => return Err(ValueError::new("text behind a quoted value", "a comma")),
        }
    }
}

/// The value up to the closing mark, and what stands behind it.
fn quoted_value(text: &str) -> Result<(String, &str), ValueError> {
    let mut value = String::new();
    let mut rest = text;
    loop {
        let Some((before, after)) = rest.split_once('"') else {
            return Err("a quotation mark that is not closed in its line".into());
        };
        value.push_str(before);
        match after.strip_prefix('"') {
            Some(more) => {
                value.push('"');
                rest = more;
            }
            None => return Ok((value, after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table() {
        let table = parse("\u{feff}login, password\r\nann,a b\r\n\r\n\"x, \"\"y\"\"\",\n").unwrap();
        assert_eq!(table.columns, ["login", "password"]);
        assert_eq!(table.rows, [["ann", "a b"], ["x, \"y\"", ""]]);
    }

    #[test]
    fn mistakes_have_a_line() {
        for (text, line) in [
            ("", 1),
            ("a,b\n", 1),
            ("a,b\n1,2\n1\n", 3),
            ("a\n\"1\n", 2),
            ("a\n\"1\"x\n", 2),
        ] {
            assert_eq!(parse(text).unwrap_err().0, line, "{text:?}");
        }
    }
}
