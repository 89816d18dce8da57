//! What the connections of a server share.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::server::danger::ClientCertVerifier;

use crate::counters::Counters;
use crate::handshake_permits::HandshakePermits;
use crate::{Certificates, ClientCertificates};

/// What the connections of a server share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) configs: RwLock<Arc<Configs>>,
    pub(crate) certificates: Arc<Certificates>,
    pub(crate) handshake_permits: HandshakePermits,
    pub(crate) counters: Counters,
    /// What HTTP responses say over these connections.
    pub(crate) response_lines: Arc<[u8]>,
}

/// What a handshake begins with. It depends on the authorities of clients, which can be replaced.
#[derive(Debug)]
pub(crate) struct Configs {
    pub(crate) config: Arc<ServerConfig>,
    /// The same for a client whose session is not to go on: it gets tickets, and none is taken.
    pub(crate) without_resumption: Arc<ServerConfig>,
    pub(crate) client_certificates: ClientCertificates,
    /// `None`: clients are not asked for certificates.
    pub(crate) verifier: Option<Arc<dyn ClientCertVerifier>>,
}

impl Shared {
    pub(crate) fn configs(&self) -> Arc<Configs> {
        Arc::clone(&self.configs.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn asks_clients(&self) -> bool {
        self.configs().verifier.is_some()
    }
}
