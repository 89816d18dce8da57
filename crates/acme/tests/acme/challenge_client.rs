//! A client that asks for the certificate of a challenge over TLS, as an authority does (RFC 8737).

use std::io::Read as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, StreamOwned,
};

const PROTOCOL: &[u8] = b"acme-tls/1";

/// The certificate for this name; `None`: there is no connection.
pub(crate) fn certificate(name: &str, server: SocketAddr) -> Option<Vec<u8>> {
    let provider = Arc::new(default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Unchecked))
        .with_no_client_auth();
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(server).unwrap();
    let mut stream = StreamOwned::new(connection, socket);
    stream.conn.complete_io(&mut stream.sock).ok()?;
    assert_eq!(stream.conn.alpn_protocol(), Some(PROTOCOL));
    let certificate = stream.conn.peer_certificates()?.first()?.to_vec();
    let _ = stream.read_to_end(&mut Vec::new()); // the server ends it: there is nothing to ask for
    Some(certificate)
}

/// Checks nothing: webpki refuses each certificate with a critical extension that it does not know, and the test
/// looks at what is in it.
#[derive(Debug)]
struct Unchecked;

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = default_provider().signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}
