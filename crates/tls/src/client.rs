//! A client's end: which servers it trusts, and a layer for each of its connections.

use std::io::{Read, Write};
use std::sync::Arc;

use loadline_base::Buffer;
use loadline_proto::{ClientLayer, Connector, Fault};
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, StreamOwned};

use crate::anyone::Anyone;
use crate::sessions::Sessions;
use crate::{Authorities, Certificate, Cipher, KeyExchange, Profile, TlsError, TlsLayer};

/// Which servers are trusted.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Those whose certificate one of these has signed for their name, and that has not expired.
    Authorities(Authorities),
    /// All: whoever is between could read everything.
    Anyone,
}

/// What a client's connections have in common.
#[derive(Clone, Debug)]
pub struct TlsClientOptions {
    /// Which servers are trusted.
    pub trust: Trust,
    /// Versions and cipher suites.
    pub profile: Profile,
    /// What the client shows to servers that ask.
    pub certificate: Option<Certificate>,
    /// Whether a connection may go on with the session of an earlier one.
    pub resumes: bool,
    /// The only key exchange that is offered, in place of all.
    pub key_exchange: Option<KeyExchange>,
    /// The only cipher that is offered, in place of all; TLS 1.2 is not offered then.
    pub cipher: Option<Cipher>,
}

/// What a client's connections share: whom it trusts, and sessions that may be resumed.
#[derive(Clone, Debug)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
}

/// The connections of a client to one server.
#[derive(Clone, Debug)]
pub struct TlsConnector {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TlsClient {
    /// A client that trusts certificates of these authorities, and resumes sessions.
    ///
    /// # Errors
    /// The library refuses the profile.
    pub fn new(trusted: &Authorities, profile: Profile) -> Result<Self, TlsError> {
        Self::with(&TlsClientOptions::trusting(trusted, profile))
    }

    /// The same with a certificate of its own.
    ///
    /// # Errors
    /// The library refuses the profile.
    pub fn with_certificate(
        trusted: &Authorities,
        profile: Profile,
        certificate: &Certificate,
    ) -> Result<Self, TlsError> {
        Self::with(&TlsClientOptions {
            certificate: Some(certificate.clone()),
            ..TlsClientOptions::trusting(trusted, profile)
        })
    }

    /// A client of HTTP/1.1 with these options.
    ///
    /// # Errors
    /// The library refuses the profile, or the authorities.
    pub fn with(options: &TlsClientOptions) -> Result<Self, TlsError> {
        let profile = options.profile;
        let provider = profile.provider_of(options.key_exchange, options.cipher);
        let verifier: Arc<dyn ServerCertVerifier> = match &options.trust {
            Trust::Anyone => Arc::new(Anyone::new(&provider)),
            Trust::Authorities(trusted) => {
                let roots = Arc::clone(trusted.roots());
                let builder =
                    WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
                builder.build().map_err(|error| trusted.unusable(&error))?
            }
        };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(profile.versions())?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match &options.certificate {
            None => builder.with_no_client_auth(),
            Some(certificate) => {
                let key = rustls::sign::CertifiedKey::clone(&certificate.key);
                let resolver = rustls::sign::SingleCertAndKey::from(key);
                builder.with_client_cert_resolver(Arc::new(resolver))
            }
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = match options.resumes {
            true => Resumption::store(Arc::new(Sessions::default())),
            false => Resumption::disabled(),
        };
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
    pub fn stream<S: Read + Write>(
        &self,
        name: &str,
        socket: S,
    ) -> Result<StreamOwned<ClientConnection, S>, TlsError> {
        let server = ServerName::try_from(name.to_owned())
            .map_err(|_| TlsError::ServerName(name.to_owned()))?;
        let connection = ClientConnection::new(Arc::clone(&self.config), server)?;
        Ok(StreamOwned::new(connection, socket))
    }

    /// Connections to the server of this name or address.
    ///
    /// # Errors
    /// It is neither.
    pub fn to(&self, name: &str) -> Result<TlsConnector, TlsError> {
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| TlsError::ServerName(name.to_owned()))?;
        let config = Arc::clone(&self.config);
        Ok(TlsConnector { config, name })
    }

    /// A new connection to the server of this name. What it opens with is in `out`.
    ///
    /// # Errors
    /// It is not a name.
    pub fn connect(&self, name: &str, out: &mut Buffer) -> Result<TlsLayer, TlsError> {
        Ok(self.to(name)?.layer(out)?)
    }
}

impl TlsConnector {
    fn layer(&self, out: &mut Buffer) -> Result<TlsLayer, rustls::Error> {
        let connection = ClientConnection::new(Arc::clone(&self.config), self.name.clone())?;
        Ok(TlsLayer::client(Connection::from(connection), out))
    }
}

impl Connector for TlsConnector {
    fn connect(&self, out: &mut Buffer) -> Result<Box<dyn ClientLayer>, Fault> {
        let layer = self.layer(out);
        let layer = layer.map_err(|_| Fault::bad_request("a TLS connection could not begin"))?;
        Ok(Box::new(layer))
    }
}

impl TlsClientOptions {
    /// Trusts these; the sessions of servers may be resumed.
    #[must_use]
    pub fn trusting(trusted: &Authorities, profile: Profile) -> Self {
        Self {
            trust: Trust::Authorities(trusted.clone()),
            profile,
            certificate: None,
            resumes: true,
            key_exchange: None,
            cipher: None,
        }
    }
}
