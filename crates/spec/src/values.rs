//! Values as people type them: counts, durations, sizes, switches. Each knows its bounds.

mod number;
mod size;
mod time;

pub use number::{Auto, Count, decimal, split_unit};
pub use size::Size;
pub use time::{AnyTime, DAY_S, RunTime, SomeTime, Time, Timeout, duration};

use std::ffi::OsString;
use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::field::{Field, is_named, name_of};
use crate::{Table, Value, ValueError};

/// A switch that is spelt out: on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnOff(pub bool);

as_text!(
    OnOff,
    |text| {
        match text {
            "on" => Ok(Self(true)),
            "off" => Ok(Self(false)),
            _ => Err(ValueError::new("unknown", "on or off")),
        }
    },
    |it, f| { f.write_str(if it.0 { "on" } else { "off" }) }
);

impl Field for OnOff {
    fn set(&mut self, own: &str, name: &str, value: &Value) -> Option<Result<(), ValueError>> {
        is_named(own, name).then(|| {
            *self = match value {
                Value::Switch(is_on) => Self(*is_on),
                value => value.text().unwrap_or_default().parse()?,
            };
            Ok(())
        })
    }

    fn values(&self, own: &str, table: &mut Table) {
        table.insert(name_of(own), Value::Text(self.to_string()));
    }

    fn takes_off(&self, own: &str, name: &str) -> bool {
        is_named(own, name)
    }
}

/// A value, or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrOff<T>(pub Option<T>);

impl<T: FromStr<Err = ValueError>> FromStr for OrOff<T> {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "off" => Ok(Self(None)),
            _ => match text.parse() {
                Ok(value) => Ok(Self(Some(value))),
                Err(error) => Err(error.or("off")),
            },
        }
    }
}

impl<T: fmt::Display> fmt::Display for OrOff<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("off"),
        }
    }
}

/// A file or a folder. On a command line its name may have any bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePath(pub PathBuf);

impl Deref for FilePath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl From<OsString> for FilePath {
    fn from(name: OsString) -> Self {
        Self(name.into())
    }
}

as_text!(FilePath, |text| Ok(Self(text.into())), |it, f| {
    fmt::Display::fmt(&it.0.display(), f)
});
