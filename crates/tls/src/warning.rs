//! What an operator should know of certificates in service, and of their keys.

use std::fmt;

/// What an operator should know of a certificate in service, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// What it is about.
    pub kind: WarningKind,
    /// Where the certificate, or its key, came from.
    pub label: String,
    text: String,
}

/// What a warning is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WarningKind {
    /// Clients refuse it: it has expired.
    Expired,
    /// Clients refuse it: it is not valid yet.
    NotYetValid,
    /// It expires soon.
    ExpiresSoon,
    /// No client gets it: others are for its names.
    Unused,
    /// All users of the machine can read the file of its key.
    ReadableKey,
}

impl Warning {
    pub(crate) fn new(kind: WarningKind, label: &str, text: &str) -> Self {
        Self {
            kind,
            label: label.to_owned(),
            text: text.to_owned(),
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.label, self.text)
    }
}
