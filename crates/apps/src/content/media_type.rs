//! The media type of a file by the extension of its name.

use std::borrow::Cow;
use std::collections::HashMap;

/// Media types by extension: a maintained table, and what the options put over it.
#[derive(Clone, Debug, Default)]
pub struct MediaTypes {
    overrides: HashMap<Box<str>, Box<str>>,
}

/// An override that is not an extension and a media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidOverride;

impl MediaTypes {
    /// The table alone.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Has `extension` (with or without its dot, any case) mean `media_type`, taken as it is.
    ///
    /// # Errors
    /// If either is not what it should be: a media type is `type/subtype`, with or without
    /// parameters.
    pub fn set(&mut self, extension: &str, media_type: &str) -> Result<(), InvalidOverride> {
        let _ = (extension, media_type, &mut self.overrides);
        unimplemented!()
    }

    /// The Content-Type for a file of this name or path; text says that it is UTF-8.
    #[must_use]
    pub fn of(&self, name: &[u8]) -> Cow<'_, str> {
        let _ = name;
        unimplemented!()
    }
}
