//! What went wrong on a connection, and whose fault it is.

use crate::Status;

/// Whose fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blame {
    /// The peer broke the protocol.
    Peer,
    /// Something of ours failed.
    Local,
    /// A limit was reached.
    Limit,
    /// Time was up.
    Timeout,
}

/// Why a request was refused or a connection ended early. Static: costs no allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Whose fault it is.
    pub blame: Blame,
    /// The answer it maps to; `None` if none can be given.
    pub status: Option<Status>,
    /// What happened, for logs.
    pub text: &'static str,
}

impl Fault {
    /// The peer broke the protocol: 400.
    #[must_use]
    pub const fn bad_request(text: &'static str) -> Self {
        Self::peer(Status::BAD_REQUEST, text)
    }

    /// The peer asked for what is refused with `status`.
    #[must_use]
    pub const fn peer(status: Status, text: &'static str) -> Self {
        Self {
            blame: Blame::Peer,
            status: Some(status),
            text,
        }
    }

    /// A limit was reached.
    #[must_use]
    pub const fn limit(status: Status, text: &'static str) -> Self {
        Self {
            blame: Blame::Limit,
            status: Some(status),
            text,
        }
    }

    /// Fields, or what counts as such, are beyond a limit: 431.
    pub(crate) const fn large_fields(text: &'static str) -> Self {
        Self::limit(Status::REQUEST_HEADER_FIELDS_TOO_LARGE, text)
    }

    /// Time was up; `status` if an answer is due.
    #[must_use]
    pub const fn timeout(status: Option<Status>, text: &'static str) -> Self {
        Self {
            blame: Blame::Timeout,
            status,
            text,
        }
    }
}
