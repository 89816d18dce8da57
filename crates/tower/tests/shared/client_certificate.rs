//! A certificate that a client shows, and who has signed it.

use loadline_tls::Certificate;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};

/// An authority in PEM, and a certificate of it for a client: `CN=ada`.
pub fn authority_and_client() -> (String, Certificate) {
    let (ca_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut ca = CertificateParams::new([]).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
    let mut params = CertificateParams::new([]).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "ada");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let pem = params.signed_by(&key, &Issuer::new(ca, ca_key));
    let certificate = Certificate::from_pem(
        ("client.pem", pem.unwrap().pem().as_bytes()),
        ("key.pem", key.serialize_pem().as_bytes()),
    );
    (ca_pem, certificate.unwrap())
}
