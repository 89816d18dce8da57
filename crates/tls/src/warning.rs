//! What an operator should know of certificates in service, and of keys in files.

use std::fmt;

/// What an operator should know of a certificate in service, or of a key's file, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// What it is about.
    pub kind: WarningKind,
    /// Where the certificate, or the key, came from.
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
    /// All users of the machine can read the file of a key.
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
