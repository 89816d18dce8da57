//! Options as data. A struct in [`spec!`](crate::spec!) declares each of its options once: name,
//! type (which knows the bounds of its values), default and help. From that declaration come
//!
//! * the options of a command line, their help and completions (clap's derive),
//! * reading a table of a plan file, or JSON ([`fill`]),
//! * writing both: a table ([`given`]) and the words of a command line ([`words`]).
//!
//! What is wrong with a value is data, too: [`SpecError`] says which option, what is wrong and what
//! would be right.
#![forbid(unsafe_code)]
#![allow(
    rustdoc::bare_urls,
    reason = "the comments of options are texts for a terminal, too"
)]

/// Gives a type its form as text: how it is read, and how it is shown, if not as what it wraps.
macro_rules! as_text {
    ($type:ty, $read:expr) => {
        as_text!($type, $read, |it, f| std::fmt::Display::fmt(&it.0, f));
    };
    ($type:ty, $read:expr, $show:expr) => {
        impl std::str::FromStr for $type {
            type Err = $crate::ValueError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let read: fn(&str) -> Result<Self, Self::Err> = $read;
                read(text)
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let show: fn(&Self, &mut std::fmt::Formatter<'_>) -> std::fmt::Result = $show;
                show(self, f)
            }
        }
    };
}

mod error;
pub mod field;
pub mod load;
pub mod rules;
pub mod serve;
mod table;
#[cfg(test)]
mod tests;
pub mod toml_file;
pub mod values;

#[doc(hidden)]
pub use serde; // for `whole!`

pub use error::{SpecError, ValueError};
pub use field::{Field, Spec};
pub use table::{Table, Value, table_words};

use std::collections::BTreeSet;

use clap::builder::{PossibleValuesParser, Resettable, TypedValueParser};
use loadline_base::sorting::to_set;

/// The options of a specification where nothing is given.
#[must_use]
pub fn preset<S: clap::Args>() -> S {
    // A default belongs to the program, not to the environment that it runs in.
    let command = S::augment_args(clap::Command::new("preset").no_binary_name(true))
        .mut_args(|option| option.env(Resettable::<clap::builder::OsStr>::Reset));
    let matches = command.get_matches_from(std::iter::empty::<&str>());
    S::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// Names of all options of a specification.
#[must_use]
pub fn names<S: clap::Args>() -> BTreeSet<String> {
    let command = S::augment_args(clap::Command::new("names"));
    let options = command.get_arguments();
    to_set(options.map(|option| {
        let name = option.get_long();
        name.unwrap_or_else(|| option.get_id().as_str()).to_owned()
    }))
}

/// A specification from a table: what the table does not name is as by default.
///
/// # Errors
/// An option that there is not, or a value that it does not take.
pub fn fill<S: Spec>(table: &Table) -> Result<S, SpecError> {
    let mut spec = S::default();
    for (name, value) in table {
        let filled = match value {
            // Whatever was set before: the option is not given.
            Value::Switch(false) if !spec.takes_off("", name) => Some(Ok(())),
            Value::Several(texts) if texts.is_empty() => Some(Ok(())),
            value => spec.set("", name, value),
        };
        let unknown = || SpecError::new(name, "no such option", similar(name, &names::<S>()));
        let set = filled.ok_or_else(unknown)?;
        set.map_err(|error| error.of(name, value))?;
    }
    Ok(spec)
}

/// What differs from the default.
#[must_use]
pub fn given<S: Spec>(spec: &S) -> Table {
    let (mut all, mut preset) = (Table::new(), Table::new());
    spec.values("", &mut all);
    S::default().values("", &mut preset);
    all.retain(|name, value| preset.get(name) != Some(value));
    all
}

/// The words of a command line that say the same.
#[must_use]
pub fn words<S: Spec>(spec: &S) -> Vec<String> {
    let mut table = given(spec);
    let mut words = match table.remove(S::POSITIONAL) {
        Some(Value::Text(text)) => vec![text],
        Some(Value::Several(texts)) => texts,
        Some(Value::Switch(_)) | None => Vec::new(),
    };
    words.extend(table_words(&table));
    words
}

/// One of a closed set, by name; known to the help, to completions and to suggestions.
pub fn one_of<T: Copy + Send + Sync + 'static>(
    all: &'static [T],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(all.iter().map(|choice| name(*choice))).try_map(move |text| {
        let mut choices = all.iter().copied();
        choices
            .find(|choice| name(*choice) == text)
            .ok_or("unknown")
    })
}

/// The name that is nearest to one that there is not, or where all of them are.
fn similar(name: &str, names: &BTreeSet<String>) -> String {
    let shared = |one: &&String| {
        let pairs = one.bytes().zip(name.bytes());
        pairs.take_while(|(a, b)| a == b).count()
    };
    match names.iter().max_by_key(shared) {
        Some(nearest) if shared(&nearest) >= 3 => {
            format!("{nearest}, or an option that --help lists")
        }
        _ => "an option that --help lists".to_owned(),
    }
}
