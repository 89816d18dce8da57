//! What becomes of a new connection.

use loadline_sys::Accepted;

/// A connection on its way to the loop that will serve it.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) accepted: Accepted,
    pub(crate) welcome: Welcome,
}

/// What becomes of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Welcome {
    /// There is room.
    Serve,
    /// There will be once the oldest idle connection is closed.
    MakeRoom,
    /// There is none: 503.
    Refuse,
}
