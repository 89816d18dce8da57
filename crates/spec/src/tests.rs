//! What holds of every specification: words, a table and data make each other.

use std::collections::BTreeSet;
use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Spec, Table, fill, given, words};

/// Options, each with a value in TOML that is not its default.
pub(crate) type Every = [(&'static str, &'static str)];

pub(crate) fn table(text: &str) -> Table {
    toml::from_str(text).unwrap()
}

pub(crate) fn read<S: Spec>(words: impl IntoIterator<Item = String>) -> S {
    let command = S::augment_args(clap::Command::new("read").no_binary_name(true));
    let matches = command.try_get_matches_from(words).unwrap();
    S::from_arg_matches(&matches).unwrap()
}

/// Every option is a field, and every field an option.
pub(crate) fn check_names<S: Spec>(every: &Every, names: &BTreeSet<String>) {
    let known: BTreeSet<String> = every.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(*names, known);
    for (name, value) in every {
        let spec: S = fill(&table(&format!("{name} = {value}"))).unwrap();
        assert_eq!(given(&spec).keys().collect::<Vec<_>>(), [name], "{value}");
    }
}

/// Words, tables and data say the same.
pub(crate) fn check_forms<S>(some: &Every)
where
    S: Spec + Debug + PartialEq + Serialize + DeserializeOwned,
{
    let line = |(name, value): &(&str, &str)| format!("{name} = {value}\n");
    let lines: String = some.iter().map(line).collect();
    let spec: S = fill(&table(&lines)).unwrap();
    let json = serde_json::to_string(&toml::from_str::<toml::Table>(&lines).unwrap()).unwrap();
    let from_json: Table = serde_json::from_str(&json).unwrap();
    assert_eq!(from_json, table(&lines), "{json}");
    assert_eq!(read::<S>(words(&spec)), spec, "{some:?}");
    let text = toml::to_string(&spec).unwrap();
    assert_eq!(toml::from_str::<S>(&text).unwrap(), spec, "{some:?}");
    let text = serde_json::to_string(&spec).unwrap();
    assert_eq!(serde_json::from_str::<S>(&text).unwrap(), spec, "{some:?}");
}
