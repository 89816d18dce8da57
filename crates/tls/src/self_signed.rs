//! Certificates that are signed by nobody but themselves: for trying things out, and for an authority that
//! validates a name.

use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::{Certificate, TlsError};

/// As long as those of authorities: browsers refuse very long ones.
const VALID: Duration = Duration::from_secs(90 * 24 * 3600);

/// Of SHA-256.
const DIGEST_BYTES: usize = 32;

/// Clocks of clients may be late.
const BEFORE: Duration = Duration::from_secs(3600);

/// A certificate for these names (DNS names or IP addresses), with a new ECDSA key, for 90 days.
///
/// # Errors
/// A name is none.
pub fn self_signed(names: &[String]) -> Result<Certificate, TlsError> {
    let mut params = CertificateParams::new(names)?;
    let first = names.first().map_or("localhost", String::as_str);
    params.distinguished_name.push(DnType::CommonName, first);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let now = SystemTime::now();
    params.not_before = (now - BEFORE).into();
    params.not_after = (now + VALID).into();
    signed(&params, "the self-signed certificate")
}

/// The certificate by which an authority sees that a name is this server's (TLS-ALPN-01, RFC 8737), with the
/// SHA-256 digest that it looks for: for [`crate::Certificates::answer_challenge`].
///
/// # Errors
/// The name is none, or the digest is not one.
pub fn challenge_certificate(name: &str, digest: &[u8]) -> Result<Certificate, TlsError> {
    if digest.len() != DIGEST_BYTES {
        return Err(TlsError::ChallengeDigest { len: digest.len() });
    }
    let mut params = CertificateParams::new([name.to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let now = SystemTime::now();
    params.not_before = (now - BEFORE).into();
    params.not_after = (now + VALID).into();
    signed(&params, "the certificate of a challenge")
}

fn signed(params: &CertificateParams, label: &str) -> Result<Certificate, TlsError> {
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    Certificate::made(label, certificate.der().clone(), key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_has_its_digest_in_a_critical_extension() {
        let digest = [0xd5; DIGEST_BYTES];
        let made = challenge_certificate("a.example", &digest).unwrap();
        assert_eq!(made.names(), ["a.example"]);
        // id-pe-acmeIdentifier, critical, the digest as an octet string in an octet string.
        let head = b"\x06\x08\x2b\x06\x01\x05\x05\x07\x01\x1f\x01\x01\xff\x04\x22\x04\x20";
        let extension = [&head[..], &digest].concat();
        let mut windows = made.der().windows(extension.len());
        assert!(windows.any(|it| it == extension));
        let error = challenge_certificate("a.example", &[0; 20]).unwrap_err();
        assert!(
            error.to_string().starts_with("20 bytes are no digest"),
            "{error}"
        );
    }
}
