//! Fields of a specification, by name.

use std::fmt;
use std::str::FromStr;

use crate::{Table, Value, ValueError};

/// A whole specification: what `fill`, `given` and `words` need of it.
pub trait Spec: Field + clap::Args + Clone + Default {
    /// The option that stands on a command line without its name.
    const POSITIONAL: &'static str;
}

/// An option, or several in a struct of their own.
pub trait Field {
    /// Sets the option of this name; `own` is the field's name. `None`: it is another one.
    fn set(&mut self, own: &str, name: &str, value: &Value) -> Option<Result<(), ValueError>>;

    /// Adds what it says.
    fn values(&self, own: &str, table: &mut Table);

    /// Whether `false` is a value of the option of this name, rather than its absence.
    fn takes_off(&self, _own: &str, _name: &str) -> bool {
        false
    }
}

/// A value with a form as text. Every type that can be read and shown is one.
pub trait Text: FromStr<Err: Into<ValueError>> + fmt::Display + PartialEq {}

impl<T: FromStr<Err: Into<ValueError>> + fmt::Display + PartialEq> Text for T {}

/// Whether a field of a struct is the option of this name: `idle_timeout` and `idle-timeout` are the
/// same.
pub(crate) fn is_named(own: &str, name: &str) -> bool {
    own.len() == name.len()
        && own
            .bytes()
            .zip(name.bytes())
            .all(|(a, b)| a == b || (a == b'_' && b == b'-'))
}

/// The option's name.
pub(crate) fn name_of(own: &str) -> String {
    own.replace('_', "-")
}

fn read<T: Text>(text: &str) -> Result<T, ValueError> {
    text.parse().map_err(Into::into)
}

/// The one value of an option that takes one.
fn single<T: Text>(value: &Value) -> Result<T, ValueError> {
    match (value, value.text()) {
        (_, Some(text)) => read(text),
        (Value::Switch(_), None) => Err(value_missing()),
        _ => Err(ValueError::new("given more than once", "one of them")),
    }
}

fn value_missing() -> ValueError {
    ValueError::new("the value is missing", "a number or a text")
}

/// An option without a value.
impl Field for bool {
    fn set(&mut self, own: &str, name: &str, value: &Value) -> Option<Result<(), ValueError>> {
        is_named(own, name).then(|| match value {
            Value::Switch(is_on) => {
                *self = *is_on;
                Ok(())
            }
            _ => Err(ValueError::new("it takes no value", "true or false")),
        })
    }

    fn values(&self, own: &str, table: &mut Table) {
        if *self {
            table.insert(name_of(own), Value::Switch(true));
        }
    }
}

/// An option that may be absent.
impl<T: Text> Field for Option<T> {
    fn set(&mut self, own: &str, name: &str, value: &Value) -> Option<Result<(), ValueError>> {
        is_named(own, name).then(|| single(value).map(|value| *self = Some(value)))
    }

    fn values(&self, own: &str, table: &mut Table) {
        if let Some(value) = self {
            table.insert(name_of(own), Value::Text(value.to_string()));
        }
    }
}

/// An option that may be given several times.
impl<T: Text> Field for Vec<T> {
    fn set(&mut self, own: &str, name: &str, value: &Value) -> Option<Result<(), ValueError>> {
        is_named(own, name).then(|| {
            if matches!(value, Value::Switch(_)) {
                return Err(value_missing());
            }
            *self = value
                .texts()
                .iter()
                .map(|text| read(text))
                .collect::<Result<_, _>>()?;
            Ok(())
        })
    }

    fn values(&self, own: &str, table: &mut Table) {
        if !self.is_empty() {
            let texts = self.iter().map(ToString::to_string).collect();
            table.insert(name_of(own), Value::Several(texts));
        }
    }
}

/// An option that always has a value: its default, where none is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset<T>(pub T);

impl<T> std::ops::Deref for Preset<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: FromStr> FromStr for Preset<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        text.parse().map(Self)
    }
}

impl<T: Text> Field for Preset<T> {
    fn set(&mut self, own: &str, name: &str, value: &Value) -> Option<Result<(), ValueError>> {
        is_named(own, name).then(|| single(value).map(|value| self.0 = value))
    }

    fn values(&self, own: &str, table: &mut Table) {
        table.insert(name_of(own), Value::Text(self.0.to_string()));
    }
}

/// Declares options: a struct with clap's attributes, a [`clap::Args`], whose fields can be set and read
/// by name.
///
/// A field is a `bool`, an `Option`, a `Vec` or a [`Preset`], or a struct of the same kind with
/// `#[command(flatten)]`.
#[macro_export]
macro_rules! spec {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$of_field:meta])* $field_vis:vis $field:ident: $type:ty,)*
    }) => {
        #[derive(clap::Args, Clone, Debug, PartialEq)]
        $(#[$meta])*
        $vis struct $name {
            $($(#[$of_field])* $field_vis $field: $type,)*
        }

        impl $crate::Field for $name {
            fn set(
                &mut self,
                _own: &str,
                name: &str,
                value: &$crate::Value,
            ) -> Option<Result<(), $crate::ValueError>> {
                let set = None;
                $(let set = set.or_else(|| {
                    $crate::Field::set(&mut self.$field, stringify!($field), name, value)
                });)*
                set
            }

            fn values(&self, _own: &str, table: &mut $crate::Table) {
                $($crate::Field::values(&self.$field, stringify!($field), table);)*
            }

            fn takes_off(&self, _own: &str, name: &str) -> bool {
                false $(|| $crate::Field::takes_off(&self.$field, stringify!($field), name))*
            }
        }
    };
}

/// Makes a struct of [`spec!`](crate::spec!) a whole specification: with a default, and serialised as a
/// table of what differs from it.
#[macro_export]
macro_rules! whole {
    ($name:ident, positional: $positional:literal) => {
        impl Default for $name {
            fn default() -> Self {
                static PRESET: std::sync::OnceLock<$name> = std::sync::OnceLock::new();
                PRESET.get_or_init($crate::preset).clone()
            }
        }

        impl $crate::Spec for $name {
            const POSITIONAL: &'static str = $positional;
        }

        impl $crate::serde::Serialize for $name {
            fn serialize<S: $crate::serde::Serializer>(
                &self,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                $crate::serde::Serialize::serialize(&$crate::given(self), serializer)
            }
        }

        impl<'de> $crate::serde::Deserialize<'de> for $name {
            fn deserialize<D: $crate::serde::Deserializer<'de>>(
                deserializer: D,
            ) -> Result<Self, D::Error> {
                let table =
                    <$crate::Table as $crate::serde::Deserialize>::deserialize(deserializer)?;
                $crate::fill(&table).map_err(<D::Error as $crate::serde::de::Error>::custom)
            }
        }
    };
}
