//! What is wrong with an option, as data.

use std::borrow::Cow;
use std::fmt;

use crate::Value;

/// What is wrong with a value, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueError {
    /// "not a rate".
    pub problem: Cow<'static, str>,
    /// "requests a second: 5000, 20k or 0.5".
    pub remedy: Option<Cow<'static, str>>,
}

impl ValueError {
    /// A problem with its remedy.
    pub fn new(
        problem: impl Into<Cow<'static, str>>,
        remedy: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            problem: problem.into(),
            remedy: Some(remedy.into()),
        }
    }

    /// The same with another remedy beside the one that is there.
    #[must_use]
    pub fn or(self, other: &str) -> Self {
        let remedy = match self.remedy {
            Some(remedy) => Cow::Owned(format!("{remedy}, or {other}")),
            None => Cow::Owned(other.to_owned()),
        };
        Self {
            remedy: Some(remedy),
            ..self
        }
    }

    /// The same at a place: a file, or a line of it.
    #[must_use]
    pub fn at(self, place: impl fmt::Display) -> Self {
        Self {
            problem: format!("{place}: {}", self.problem).into(),
            ..self
        }
    }

    /// The option that has this value.
    #[must_use]
    pub fn of(self, option: &str, value: &Value) -> SpecError {
        let may_hold_a_password = option == "accounts";
        let value = value.shown().filter(|_| !may_hold_a_password);
        SpecError {
            value: value.map(str::to_owned),
            ..SpecError::of(option, self)
        }
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)?;
        match &self.remedy {
            Some(remedy) => write!(f, "; right would be {remedy}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ValueError {}

/// For types that say what is wrong in one line.
impl From<String> for ValueError {
    fn from(problem: String) -> Self {
        Self {
            problem: problem.into(),
            remedy: None,
        }
    }
}

impl From<&'static str> for ValueError {
    fn from(problem: &'static str) -> Self {
        Self {
            problem: problem.into(),
            remedy: None,
        }
    }
}

/// Nothing is ever wrong with such a value.
impl From<std::convert::Infallible> for ValueError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

/// What is wrong with a specification: which option, what, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    /// The option's long name without dashes, or `URL` and `DIR`; none: what is wrong is no single
    /// option's.
    pub option: Option<Cow<'static, str>>,
    /// The value that was given, where that helps.
    pub value: Option<String>,
    /// What is wrong.
    pub error: ValueError,
}

impl SpecError {
    /// An option, and what is wrong with it.
    #[must_use]
    pub fn of(option: &str, error: ValueError) -> Self {
        Self {
            option: Some(Cow::Owned(option.to_owned())),
            value: None,
            error,
        }
    }

    /// The same, with a remedy.
    pub fn new(
        option: &str,
        problem: impl Into<Cow<'static, str>>,
        remedy: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::of(option, ValueError::new(problem, remedy))
    }

    /// With the value that is wrong.
    #[must_use]
    pub fn with_value(self, value: impl fmt::Display) -> Self {
        Self {
            value: Some(value.to_string()),
            ..self
        }
    }
}

/// In one line, as the command line spells it: `--rate 5x: not a rate; right would be 5000`.
impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(option) = &self.option {
            let is_positional = option.starts_with(|first: char| first.is_uppercase());
            write!(f, "{}{option}", if is_positional { "" } else { "--" })?;
            match &self.value {
                Some(value) if value.is_empty() || value.contains(' ') => write!(f, " '{value}'")?,
                Some(value) => write!(f, " {value}")?,
                None => {}
            }
            f.write_str(": ")?;
        }
        self.error.fmt(f)
    }
}

impl std::error::Error for SpecError {}

/// What is no single option's.
impl From<ValueError> for SpecError {
    fn from(error: ValueError) -> Self {
        Self {
            option: None,
            value: None,
            error,
        }
    }
}

/// A file, a URL or a host that is named in the message itself.
impl From<String> for SpecError {
    fn from(problem: String) -> Self {
        ValueError::from(problem).into()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Each text is refused, in a message with the words beside it.
    #[track_caller]
    pub(crate) fn refused<T>(cases: &[(&str, &str)])
    where
        T: std::str::FromStr<Err = ValueError> + fmt::Debug,
    {
        for (text, part) in cases {
            let message = text.parse::<T>().unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
