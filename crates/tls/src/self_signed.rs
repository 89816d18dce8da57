//! A certificate for trying things out, signed by nobody but itself.

use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::{Certificate, TlsError};

/// As long as those of authorities: browsers refuse very long ones.
const VALID: Duration = Duration::from_secs(90 * 24 * 3600);

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
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let label = "the self-signed certificate";
    Certificate::from_der((label, vec![certificate.der().clone()]), (label, key))
}
