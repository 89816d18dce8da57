//! Where a user stands, and what it knows.

use super::cookies::Jar;

/// Where a user stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The first connection is opened, before anything is due.
    Opening,
    /// Nothing until then; then the next step is due.
    Thinking { until_ns: u64 },
    /// A request is due; a connection may be missing, or in the making.
    Due,
    /// The request is on its way out, or its answer is awaited, until then.
    Awaiting { until_ns: u64 },
    /// The setup is done, which has not been reported.
    SetUp,
    /// The start is awaited.
    Starting,
    /// It does nothing any more.
    Done,
}

/// What a user has from the answers so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) jar: Jar,
    pub(super) captured: Vec<Option<Vec<u8>>>,
    /// The target of the last page: links are relative to it.
    pub(super) page: Vec<u8>,
}

impl Known {
    /// Forgets what came since `base`, and keeps the memory.
    pub(super) fn reset_to(&mut self, base: &Self) {
        self.jar.clone_from(&base.jar);
        self.captured.clone_from(&base.captured);
        self.page.clone_from(&base.page);
    }
}
