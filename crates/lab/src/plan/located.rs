//! Mistakes in the file of a plan, with where they are.

use std::ops::Range;

use loadline_spec::ValueError;
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer, Error, ValueDeserializer};

/// A mistake, and which bytes of the file it is about.
pub(super) type Located<T> = Result<T, (Range<usize>, ValueError)>;

/// Puts a place to a mistake.
pub(super) fn at<T, M: Into<ValueError>>(
    place: &Spanned<T>,
) -> impl Fn(M) -> (Range<usize>, ValueError) + use<T, M> {
    let span = place.span();
    move |message| (span.clone(), message.into())
}

/// What stands at a place of the file.
pub(super) fn read<'t, T: Deserialize<'t>>(value: Spanned<DeValue<'t>>) -> Located<T> {
    T::deserialize(ValueDeserializer::from(value)).map_err(of_toml)
}

/// The same of the whole file, or what is left of it.
pub(super) fn read_table<'t, T: Deserialize<'t>>(table: Spanned<DeTable<'t>>) -> Located<T> {
    T::deserialize(Deserializer::from(table)).map_err(of_toml)
}

pub(super) fn of_toml(error: Error) -> (Range<usize>, ValueError) {
    let message = error.message().replace('\n', " ");
    (error.span().unwrap_or_default(), message.into())
}
