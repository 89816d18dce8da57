//! What is read of a certificate besides its key: names, validity, subject.

use std::net::IpAddr;
use std::time::SystemTime;

use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{AuthorityKeyIdentifier, SubjectAltName};

/// What a certificate says of itself.
#[derive(Debug)]
pub(crate) struct Facts {
    /// DNS names, in lower case, wildcards included.
    pub(crate) names: Vec<String>,
    /// IP addresses as text.
    pub(crate) addresses: Vec<String>,
    pub(crate) not_before: SystemTime,
    pub(crate) not_after: SystemTime,
}

/// Reads a certificate.
pub(crate) fn facts(der: &[u8]) -> Result<Facts, String> {
    let certificate = x509_cert::Certificate::from_der(der).map_err(|error| error.to_string())?;
    let tbs = certificate.tbs_certificate();
    let all = match tbs.get_extension::<SubjectAltName>() {
        Ok(Some((_, SubjectAltName(all)))) => all,
        Ok(None) => Vec::new(),
        Err(error) => return Err(error.to_string()),
    };
    let (mut names, mut addresses) = (Vec::new(), Vec::new());
    for name in all {
        match name {
            GeneralName::DnsName(name) => names.push(name.as_str().to_ascii_lowercase()),
            GeneralName::IpAddress(bytes) => addresses.extend(address(bytes.as_bytes())),
            _ => {}
        }
    }
    Ok(Facts {
        names,
        addresses,
        not_before: tbs.validity().not_before.to_system_time(),
        not_after: tbs.validity().not_after.to_system_time(),
    })
}

/// An address of one of both lengths as text.
fn address(bytes: &[u8]) -> Option<String> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let v6 = <[u8; 16]>::try_from(bytes).map(IpAddr::from);
    v4.or(v6).ok().map(|address| address.to_string())
}

/// The identifier of the key that has signed a certificate, and the certificate's number, as bytes of
/// their DER.
pub(crate) fn authority_and_serial(der: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let certificate = x509_cert::Certificate::from_der(der).ok()?;
    let tbs = certificate.tbs_certificate();
    let (_, authority) = tbs.get_extension::<AuthorityKeyIdentifier>().ok()??;
    let authority = authority.key_identifier?.as_bytes().to_vec();
    Some((authority, tbs.serial_number().as_bytes().to_vec()))
}

/// Whom a certificate is for, by RFC 4514.
pub(crate) fn subject(der: &[u8]) -> Option<String> {
    let certificate = x509_cert::Certificate::from_der(der).ok()?;
    Some(certificate.tbs_certificate().subject().to_string())
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
        SerialNumber,
    };

    use super::*;

    /// As in RFC 9773 section 4.1: the zero before a high bit is a part of the number.
    #[test]
    fn authorities_name_a_certificate_by_key_and_number() {
        let (key, own) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut params = CertificateParams::new(["ca.example".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = Issuer::new(params, key);
        let mut params = CertificateParams::new(["a.example".to_owned()]).unwrap();
        params.serial_number = Some(SerialNumber::from(vec![0x87, 0x65, 0x43, 0x21]));
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&own, &issuer).unwrap();
        let (authority, serial) = authority_and_serial(certificate.der()).unwrap();
        assert_eq!(serial, [0, 0x87, 0x65, 0x43, 0x21]);
        assert_eq!(authority.len(), 20);
        let alone = CertificateParams::new(["b.example".to_owned()]).unwrap();
        let alone = alone.self_signed(&own).unwrap();
        assert_eq!(authority_and_serial(alone.der()), None);
    }

    /// RFC 4514 section 2.4. Otherwise a common name could look like further attributes.
    #[test]
    fn a_subject_has_its_special_characters_escaped() {
        let key = KeyPair::generate().unwrap();
        for (name, expected) in [
            ("ada,O=Other", r"CN=ada\,O=Other,O=Example"),
            ("ada+UID=root", r"CN=ada\+UID=root,O=Example"),
            (r"ada\,O=Other", r"CN=ada\\\,O=Other,O=Example"),
            (r#""<ada>;""#, r#"CN=\"\<ada\>\;\",O=Example"#),
            ("#ada ", r"CN=\#ada\ ,O=Example"),
            (" ada\n", r"CN=\ ada\0a,O=Example"),
        ] {
            let mut params = CertificateParams::default();
            params.distinguished_name = DistinguishedName::new();
            let attributes = &mut params.distinguished_name;
            attributes.push(DnType::OrganizationName, "Example");
            attributes.push(DnType::CommonName, name);
            let certificate = params.self_signed(&key).unwrap();
            let subject = subject(certificate.der());
            assert_eq!(subject.as_deref(), Some(expected), "{name:?}");
        }
    }
}
