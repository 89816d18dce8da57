//! Certificates in files: of a server, which is trusted by it, and of a client with its authority.

use std::fs;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

/// A certificate for this name or address.
pub(crate) fn params(name: &str) -> CertificateParams {
    CertificateParams::new([name.to_owned()]).unwrap()
}

/// Writes `c.pem`, signed by itself, and its key `k.pem`.
pub(crate) fn write_server(folder: &Path, params: CertificateParams) {
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    fs::write(folder.join("c.pem"), pem).unwrap();
    fs::write(folder.join("k.pem"), key.serialize_pem()).unwrap();
}

/// Writes `ca.pem`, an authority of clients, and one of its clients: `ada-c.pem` and its key `ada-k.pem`.
pub(crate) fn write_client(folder: &Path) {
    let (ca_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut ca = params("authority.example");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
    let mut ada = params("ada.example");
    ada.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let pem = ada.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap().pem();
    fs::write(folder.join("ca.pem"), ca_pem).unwrap();
    fs::write(folder.join("ada-c.pem"), pem).unwrap();
    fs::write(folder.join("ada-k.pem"), key.serialize_pem()).unwrap();
}
