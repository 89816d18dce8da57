//! The lines of the access log, formatted into memory; a loop hands them on.

/// The form of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessFormat {
    /// Apache's common log format.
    Common,
    /// Common plus Referer and User-Agent.
    Combined,
    /// One JSON object a line.
    Json,
}

/// Lines of one thread that wait to be handed on, always whole.
#[derive(Debug)]
pub struct AccessLog {
    format: AccessFormat,
    lines: Vec<u8>,
}

impl AccessLog {
    /// An empty log.
    #[must_use]
    pub fn new(format: AccessFormat) -> Self {
        Self {
            format,
            lines: Vec::new(),
        }
    }

    /// The lines so far; the caller takes them away by `std::mem::take` or `clear`.
    pub fn lines(&mut self) -> &mut Vec<u8> {
        &mut self.lines
    }

    /// The form of the lines.
    #[must_use]
    pub fn format(&self) -> AccessFormat {
        self.format
    }
}
