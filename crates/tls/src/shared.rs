//! What the connections of a server share.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::danger::ClientCertVerifier;

use crate::Certificates;
use crate::counters::Counters;
use crate::handshake_permits::HandshakePermits;

/// What the connections of a server share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Arc<ServerConfig>,
    /// The same for a client whose session is not to go on: it gets tickets, and none is taken.
    pub(crate) config_without_resumption: Arc<ServerConfig>,
    pub(crate) certificates: Arc<Certificates>,
    /// `None`: clients are not asked for certificates.
    pub(crate) verifier: Option<Arc<dyn ClientCertVerifier>>,
    pub(crate) handshake_permits: HandshakePermits,
    pub(crate) counters: Counters,
    /// What HTTP responses say over these connections.
    pub(crate) response_lines: Arc<[u8]>,
}
