//! Mistakes in the file of a plan, with where they are.

use std::ops::Range;

use toml::Spanned;

/// A message, and which bytes of the file it is about.
pub(super) type Located<T> = Result<T, (Range<usize>, String)>;

/// Puts a place to a message.
pub(super) fn at<T>(place: &Spanned<T>) -> impl Fn(String) -> (Range<usize>, String) + use<T> {
    let span = place.span();
    move |message| (span.clone(), message)
}
