//! A client's end: which servers it trusts, and a layer for each of its connections.

use std::net::TcpStream;
use std::sync::Arc;

use loadline_base::Buffer;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, StreamOwned};

use crate::{Authorities, Profile, TlsError, TlsLayer};

/// What a client's connections share: whom it trusts, and sessions that may be resumed.
#[derive(Clone, Debug)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
}

impl TlsClient {
    /// A client that trusts certificates of these authorities.
    ///
    /// # Errors
    /// The library refuses the profile.
    pub fn new(trusted: &Authorities, profile: Profile) -> Result<Self, TlsError> {
        let builder = ClientConfig::builder_with_provider(profile.provider())
            .with_protocol_versions(profile.versions())?
            .with_root_certificates(Arc::clone(trusted.roots()));
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self {
            config: Arc::new(config),
        })
    }

    /// The same with a certificate of its own.
    ///
    /// # Errors
    /// The library refuses the profile.
    pub fn with_certificate(
        trusted: &Authorities,
        profile: Profile,
        certificate: &crate::Certificate,
    ) -> Result<Self, TlsError> {
        let builder = ClientConfig::builder_with_provider(profile.provider())
            .with_protocol_versions(profile.versions())?
            .with_root_certificates(Arc::clone(trusted.roots()));
        let key = Arc::clone(&certificate.key);
        let resolver =
            rustls::sign::SingleCertAndKey::from(rustls::sign::CertifiedKey::clone(&key));
        let mut config = builder.with_client_cert_resolver(Arc::new(resolver));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self {
            config: Arc::new(config),
        })
    }

    /// The same that asks for these protocols in place of HTTP/1.1 (ALPN).
    #[must_use]
    pub fn asking_for(&self, protocols: &[&[u8]]) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
        Self {
            config: Arc::new(config),
        }
    }

    /// A new connection to the server of this name over a socket that blocks: for whoever asks so seldom
    /// that a thread may wait. Errors say what is wrong with the server's certificate.
    ///
    /// # Errors
    /// It is not a name.
    pub fn stream(
        &self,
        name: &str,
        socket: TcpStream,
    ) -> Result<StreamOwned<ClientConnection, TcpStream>, TlsError> {
        let server = ServerName::try_from(name.to_owned())
            .map_err(|_| TlsError::ServerName(name.to_owned()))?;
        let connection = ClientConnection::new(Arc::clone(&self.config), server)?;
        Ok(StreamOwned::new(connection, socket))
    }

    /// A new connection to the server of this name. What it opens with is in `out`.
    ///
    /// # Errors
    /// It is not a name.
    pub fn connect(&self, name: &str, out: &mut Buffer) -> Result<TlsLayer, TlsError> {
        let server = ServerName::try_from(name.to_owned())
            .map_err(|_| TlsError::ServerName(name.to_owned()))?;
        let connection = ClientConnection::new(Arc::clone(&self.config), server)?;
        Ok(TlsLayer::client(Connection::from(connection), out))
    }
}
