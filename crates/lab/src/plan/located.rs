//! Mistakes in the file of a plan, with where they are.

use std::ops::Range;

use loadline_spec::ValueError;
use toml::Spanned;

/// A mistake, and which bytes of the file it is about.
pub(super) type Located<T> = Result<T, (Range<usize>, ValueError)>;

/// Puts a place to a mistake.
pub(super) fn at<T, M: Into<ValueError>>(
    place: &Spanned<T>,
) -> impl Fn(M) -> (Range<usize>, ValueError) + use<T, M> {
    let span = place.span();
    move |message| (span.clone(), message.into())
}
