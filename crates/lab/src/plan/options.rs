//! Options of a command line as a plan gives them: `{ loops = 2, keep_alive = "off" }`.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Options by their long name without dashes: "service-time".
pub type Options = BTreeMap<String, OptionValue>;

/// What an option is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionValue {
    /// The option stands alone.
    Alone,
    /// It does not stand there, whatever was set before.
    Absent,
    /// Its value.
    Text(String),
    /// The option several times, with these values.
    Several(Vec<String>),
}

impl OptionValue {
    /// The value, if there is one.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Alone | Self::Absent | Self::Several(_) => None,
        }
    }
}

/// The words of a command line: `--loops=2 --keep-alive=off`. A value is never taken for an option.
#[must_use]
pub fn words(options: &Options) -> Vec<String> {
    let mut words = Vec::new();
    for (name, value) in options {
        match value {
            OptionValue::Alone => words.push(format!("--{name}")),
            OptionValue::Absent => {}
            OptionValue::Text(text) => words.push(format!("--{name}={text}")),
            OptionValue::Several(texts) => {
                words.extend(texts.iter().map(|text| format!("--{name}={text}")));
            }
        }
    }
    words
}

/// Options as they stand in the file.
pub(super) type OptionsTable = BTreeMap<String, OptionTable>;

#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected true, false, a number, a text or a list of texts"
)]
pub(super) enum OptionTable {
    Switch(bool),
    Number(i64),
    Fraction(f64),
    Text(String),
    Several(Vec<String>),
}

/// `keep_alive` and `keep-alive` are the same option.
pub(super) fn options(table: &OptionsTable) -> Options {
    table
        .iter()
        .map(|(name, value)| (name.replace('_', "-"), value.to_value()))
        .collect()
}

impl OptionTable {
    fn to_value(&self) -> OptionValue {
        match self {
            Self::Switch(true) => OptionValue::Alone,
            Self::Switch(false) => OptionValue::Absent,
            Self::Number(number) => OptionValue::Text(number.to_string()),
            Self::Fraction(number) => OptionValue::Text(number.to_string()),
            Self::Text(text) => OptionValue::Text(text.clone()),
            Self::Several(texts) => OptionValue::Several(texts.clone()),
        }
    }
}
