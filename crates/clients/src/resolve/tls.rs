//! What connections by https begin with: whom the client trusts, and what it shows.

use std::sync::Arc;

use loadline_load::requests::Destination;
use loadline_proto::Connector;
use loadline_spec::load::{TlsClientSpec, values};
use loadline_spec::{SpecError, ValueError};
use loadline_tls::{
    Authorities, Certificate, Cipher, KeyExchange, Profile, TlsClient, TlsClientOptions, TlsError,
    Trust,
};

/// The protocols that connections by TLS ask for (ALPN).
pub(super) const HTTP_1: &[u8] = b"http/1.1";
pub(super) const HTTP_2: &[u8] = b"h2";

/// What makes the layer of connections to each of these; empty: none has one.
pub(super) fn connectors(
    spec: &TlsClientSpec,
    destinations: &[Destination],
    protocol: &[u8],
) -> Result<Vec<Option<Arc<dyn Connector>>>, SpecError> {
    if destinations.iter().all(|one| one.tls_name.is_none()) {
        return Ok(Vec::new());
    }
    let client = TlsClient::with(&options(spec)?).map_err(refused("cacert"))?;
    let client = client.asking_for(&[protocol]);
    let connector = |one: &Destination| match &one.tls_name {
        None => Ok(None),
        Some(name) => {
            let connector = client.to(name).map_err(refused("URL"))?;
            Ok(Some(Arc::new(connector) as Arc<dyn Connector>))
        }
    };
    destinations.iter().map(connector).collect()
}

fn options(spec: &TlsClientSpec) -> Result<TlsClientOptions, SpecError> {
    let trust = match &spec.cacert {
        _ if spec.insecure => Trust::Anyone,
        Some(file) => Trust::Authorities(Authorities::from_file(file).map_err(refused("cacert"))?),
        None => Trust::Authorities(Authorities::of_system().map_err(refused("cacert"))?),
    };
    let certificate = match (&spec.cert, &spec.key) {
        (Some(certificate), Some(key)) => {
            let pair = Certificate::from_files(certificate, key);
            Some(pair.map_err(refused("cert"))?)
        }
        _ => None,
    };
    Ok(TlsClientOptions {
        trust,
        profile: Profile::Intermediate,
        certificate,
        resumes: spec.tls_resume.0,
        key_exchange: spec.tls_key_exchange.map(|one| match one {
            values::KeyExchange::X25519Mlkem768 => KeyExchange::X25519Mlkem768,
            values::KeyExchange::X25519 => KeyExchange::X25519,
            values::KeyExchange::P256 => KeyExchange::P256,
            values::KeyExchange::P384 => KeyExchange::P384,
        }),
        cipher: spec.tls_cipher.map(|one| match one {
            values::Cipher::Aes128Gcm => Cipher::Aes128Gcm,
            values::Cipher::Aes256Gcm => Cipher::Aes256Gcm,
            values::Cipher::ChaCha20Poly1305 => Cipher::ChaCha20Poly1305,
        }),
    })
}

fn refused(option: &'static str) -> impl Fn(TlsError) -> SpecError {
    move |error| SpecError::of(option, ValueError::from(error.to_string()))
}
