//! A client's end of a layer: what each of its connections to a server begins with.

use core::fmt::Debug;

use loadline_base::Buffer;

use crate::{Fault, Layer};

/// Makes the layer of each connection to one server.
pub trait Connector: Debug + Send + Sync {
    /// The layer of a new connection. What it opens with is appended to `out`.
    ///
    /// # Errors
    /// The connection cannot begin.
    fn connect(&self, out: &mut Buffer) -> Result<Box<dyn ClientLayer>, Fault>;
}

/// A layer at a client's end.
pub trait ClientLayer: Layer {
    /// Whether the handshake went on with an earlier session; `None`: it is not over.
    fn is_resumed(&self) -> Option<bool>;

    /// Why the connection has failed, once a call has returned a fault.
    fn failure(&self) -> Option<&LayerFailure>;
}

/// Why a layer's connection has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerFailure {
    /// Whose or which fault.
    pub cause: FailureCause,
    /// What happened, about the server, as the part of a sentence.
    pub text: String,
}

/// What has made a layer's connection fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureCause {
    /// The server's certificate is not signed by a trusted authority.
    Authority,
    /// It is not accepted for another reason: its name, its time.
    Certificate,
    /// The server wants a certificate of the client, or another one.
    ClientCertificate,
    /// The server and the client do not fit together, and never will: what comes is no TLS, say.
    Unfit,
    /// This connection alone has failed.
    Other,
}

impl FailureCause {
    /// Whether every further connection would fail as well.
    #[must_use]
    pub fn is_lasting(self) -> bool {
        self != Self::Other
    }

    /// Whether it is about the server's certificate.
    #[must_use]
    pub fn is_of_certificate(self) -> bool {
        matches!(self, Self::Authority | Self::Certificate)
    }
}
