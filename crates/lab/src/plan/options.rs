//! Options as a plan gives them, `{ loops = 2, keep_alive = "off" }`, with their placeholders.

use std::collections::BTreeMap;

use loadline_spec::{Spec, SpecError, Table, ValueError, given};

/// `keep_alive` and `keep-alive` are the same option: one of them can be given.
pub(super) fn options(table: &Table) -> Result<Table, ValueError> {
    let mut options = Table::new();
    for (name, value) in table {
        let before = options.insert(name.replace('_', "-"), value.clone());
        if before.is_some() {
            let problem = format!("{name} and another spelling of it are both given");
            return Err(ValueError::new(problem, "one of them"));
        }
    }
    Ok(options)
}

/// The same options with `{root}` and others replaced by what they stand for.
///
/// # Errors
/// What stands in their place does not fit.
pub fn in_place<S: Spec>(spec: &S, names: &BTreeMap<String, String>) -> Result<S, SpecError> {
    let mut table = given(spec);
    for value in table.values_mut() {
        *value = value.map(|text| fill(text, names));
    }
    loadline_spec::fill(&table)
}

/// Replaces placeholders; braces around anything else stay, since configurations are full of them.
pub(crate) fn fill(text: &str, names: &BTreeMap<String, String>) -> String {
    let mut filled = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        let (before, from) = rest.split_at(at);
        filled.push_str(before);
        let end = from.find('}').map(|end| end + 1);
        match end.and_then(|end| Some((names.get(&from[..end])?, end))) {
            Some((value, end)) => {
                filled.push_str(value);
                rest = &from[end..];
            }
            None => {
                filled.push('{');
                rest = &from[1..];
            }
        }
    }
    filled + rest
}
