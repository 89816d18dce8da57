//! Options by name, as a plan file or JSON gives them: `{ loops = 2, keep_alive = "off" }`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Options by their long name without dashes: "service-time".
pub type Table = BTreeMap<String, Value>;

/// What an option is given.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged, from = "Scalar")]
pub enum Value {
    /// It stands alone (true); it does not stand there, whatever was set before (false).
    Switch(bool),
    /// Its value.
    Text(String),
    /// The option several times, with these values.
    Several(Vec<String>),
}

/// As it stands in a file.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected true, false, a number, a text or a list of texts"
)]
enum Scalar {
    Switch(bool),
    Number(i64),
    Fraction(f64),
    Text(String),
    Several(Vec<String>),
}

impl From<Scalar> for Value {
    fn from(scalar: Scalar) -> Self {
        match scalar {
            Scalar::Switch(is_on) => Self::Switch(is_on),
            Scalar::Number(number) => Self::Text(number.to_string()),
            Scalar::Fraction(number) => Self::Text(number.to_string()),
            Scalar::Text(text) => Self::Text(text),
            Scalar::Several(texts) => Self::Several(texts),
        }
    }
}

impl Value {
    /// The value, if there is one and no more.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Several(texts) => match texts.as_slice() {
                [text] => Some(text),
                _ => None,
            },
            Self::Switch(_) => None,
        }
    }

    /// What a message shows of it.
    pub(crate) fn shown(&self) -> Option<&str> {
        match self {
            Self::Several(texts) => texts.last().map(String::as_str),
            value => value.text(),
        }
    }

    /// All texts in it.
    #[must_use]
    pub fn texts(&self) -> &[String] {
        match self {
            Self::Switch(_) => &[],
            Self::Text(text) => std::slice::from_ref(text),
            Self::Several(texts) => texts,
        }
    }

    /// The same with other texts.
    #[must_use]
    pub fn map(&self, change: impl Fn(&str) -> String) -> Self {
        match self {
            Self::Switch(is_on) => Self::Switch(*is_on),
            Self::Text(text) => Self::Text(change(text)),
            Self::Several(texts) => Self::Several(texts.iter().map(|text| change(text)).collect()),
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// The words of a command line: `--loops=2 --keep-alive=off`. A value is never taken for an option.
#[must_use]
pub fn table_words(table: &Table) -> Vec<String> {
    let mut words = Vec::new();
    for (name, value) in table {
        match value {
            Value::Switch(true) => words.push(format!("--{name}")),
            Value::Switch(false) => {}
            value => words.extend(value.texts().iter().map(|text| format!("--{name}={text}"))),
        }
    }
    words
}
