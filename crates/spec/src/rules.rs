//! Which options fit together, as data beside their declaration.

use crate::{SpecError, Table, Value, ValueError};

/// Something that holds of every specification.
#[derive(Clone, Copy, Debug)]
pub enum Rule {
    /// At most one of these is given.
    OneOf(&'static [&'static str]),
    /// The first goes with one of the others; the text says which, for a message.
    Needs(&'static str, &'static [&'static str], &'static str),
    /// The first would do nothing beside one of the others; the text says why.
    Useless(&'static str, &'static [&'static str], &'static str),
}

/// The first rule that does not hold of what is given.
///
/// # Errors
/// Says which option does not fit, and why.
pub fn check(rules: &[Rule], given: &Table) -> Result<(), SpecError> {
    rules.iter().try_for_each(|rule| rule.check(given))
}

impl Rule {
    fn check(self, given: &Table) -> Result<(), SpecError> {
        match self {
            Self::OneOf(options) => {
                let mut some = options.iter().filter(|name| given.contains_key(**name));
                match (some.next(), some.next()) {
                    (Some(first), Some(second)) => Err(SpecError::new(
                        first,
                        format!("it excludes --{second}"),
                        "one of them",
                    )),
                    _ => Ok(()),
                }
            }
            Self::Needs(option, others, shown) => {
                match given.contains_key(option) && first_of(given, others).is_none() {
                    true => Err(unfit(option, format!("it goes with {shown}"))),
                    false => Ok(()),
                }
            }
            Self::Useless(option, others, why) => {
                match given.contains_key(option) && first_of(given, others).is_some() {
                    true => Err(unfit(option, why.to_owned())),
                    false => Ok(()),
                }
            }
        }
    }

    /// The options that it names.
    #[must_use]
    pub fn options(self) -> Vec<&'static str> {
        match self {
            Self::OneOf(options) => options.to_vec(),
            Self::Needs(option, others, _) | Self::Useless(option, others, _) => {
                [&[option], others].concat()
            }
        }
    }
}

/// Refuses options that something else sets, each with what would be right.
///
/// # Errors
/// Names the first that is given.
pub fn refuse(own: &[(&str, &str)], problem: &'static str, given: &Table) -> Result<(), SpecError> {
    let is_given = |option: &str| {
        given
            .get(option)
            .is_some_and(|it| *it != Value::Switch(false))
    };
    match own.iter().find(|(option, _)| is_given(option)) {
        None => Ok(()),
        Some((option, right)) => Err(SpecError::new(option, problem, (*right).to_owned())),
    }
}

/// Refuses the first of these options that is given, and says why.
pub(crate) fn exclude(options: &[&'static str], why: &str, given: &Table) -> Result<(), SpecError> {
    match first_of(given, options) {
        Some(option) => Err(unfit(option, why.to_owned())),
        None => Ok(()),
    }
}

/// The first of these options that is given.
#[must_use]
pub fn first_of(given: &Table, options: &[&'static str]) -> Option<&'static str> {
    options
        .iter()
        .copied()
        .find(|name| given.contains_key(*name))
}

/// An option that does not fit.
#[must_use]
pub fn unfit(option: &str, why: String) -> SpecError {
    SpecError::of(option, ValueError::from(why))
}
