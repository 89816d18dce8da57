//! Certificates from files: an RSA 2048 pair and a P-256 pair for the same names at once.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, PKCS_RSA_SHA256, RsaKeySize,
};
use tempfile::TempDir;

use crate::program::Server;

/// Of both: without a name in the handshake (SNI) a client gets the first pair.
pub(crate) const NAME: &str = "localhost";

/// A server with both, and the folder of their files.
pub(crate) struct WithPairs {
    pub(crate) server: Server,
    _folder: TempDir,
}

impl WithPairs {
    /// With more options than those of TLS.
    pub(crate) fn start(site: &Path, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let rsa = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
        let p256 = KeyPair::generate().unwrap();
        let mut options = vec!["--listen".to_owned(), "https://127.0.0.1:0".to_owned()];
        for (name, key) in [("rsa", &rsa), ("p256", &p256)] {
            let path = |end: &str| folder.path().join(format!("{name}-{end}.pem"));
            let certificate = params().self_signed(key).unwrap();
            fs::write(path("c"), certificate.pem()).unwrap();
            fs::write(path("k"), key.serialize_pem()).unwrap();
            options.extend(["--tls-cert".to_owned(), path("c").display().to_string()]);
            options.extend(["--tls-key".to_owned(), path("k").display().to_string()]);
        }
        let own = options.iter().map(String::as_str);
        let options: Vec<&str> = own.chain(more.iter().copied()).collect();
        let server = Server::start_with(site, &options, Stdio::null());
        Self {
            server,
            _folder: folder,
        }
    }
}

/// As certificates of authorities are, but for the signer.
fn params() -> CertificateParams {
    let mut params = CertificateParams::new([NAME.to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, NAME);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let (now, day) = (SystemTime::now(), Duration::from_secs(24 * 3600));
    params.not_before = (now - day).into();
    params.not_after = (now + 89 * day).into();
    params
}
