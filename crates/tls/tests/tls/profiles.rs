//! What both ends agree on: versions, cipher suites, key exchange.

use std::sync::Arc;

use loadline_proto::{Layer as _, Limits};
use loadline_tls::{Certificate, Certificates, Profile, TlsOptions, TlsServer};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256, RsaKeySize};
use rustls::crypto::aws_lc_rs::{ALL_CIPHER_SUITES, default_provider, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, NamedGroup, ProtocolVersion, SupportedProtocolVersion};

use crate::certificates::{load, signed_by};
use crate::drive::{Driver, config, echo};
use crate::pair::{Pair, certificate, client_with, connection, exchange, trusting_by};

#[test]
fn both_versions() {
    let certificate = certificate(&["localhost"]);
    let certificates = Arc::new(Certificates::new(vec![certificate.clone()]));
    for (profile, theirs, version) in [
        (Profile::Intermediate, Profile::Intermediate, "TLSv1.3"),
        (Profile::Intermediate, Profile::Modern, "TLSv1.3"),
        (Profile::Modern, Profile::Intermediate, "TLSv1.3"),
    ] {
        let options = TlsOptions {
            profile,
            ..TlsOptions::default()
        };
        let server = TlsServer::new(&certificates, &options).unwrap();
        let mut pair = Pair::new(&server, &trusting_by(&certificate, theirs));
        pair.open();
        assert_eq!(pair.client.security().unwrap().version, version);
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Agreed {
    version: ProtocolVersion,
    suite: CipherSuite,
    key_exchange: NamedGroup,
}

/// What a server agrees on with a client of rustls that offers this; `None`: there is no connection.
fn agreed(
    profile: Profile,
    provider: CryptoProvider,
    versions: &[&'static SupportedProtocolVersion],
) -> Option<Agreed> {
    agreed_by(certificate(&["localhost"]), profile, provider, versions)
}

/// The same of a server with this certificate.
fn agreed_by(
    certificate: Certificate,
    profile: Profile,
    provider: CryptoProvider,
    versions: &[&'static SupportedProtocolVersion],
) -> Option<Agreed> {
    let client = client_with(&certificate, provider, versions);
    let options = TlsOptions {
        profile,
        ..TlsOptions::default()
    };
    let certificates = Arc::new(Certificates::new(vec![certificate]));
    let server = TlsServer::new(&certificates, &options).unwrap();
    let mut client = connection(&Arc::new(client));
    let mut driver = Driver::speaking(server.protocol(), &config(Limits::default()), echo);
    exchange(&mut client, &mut driver, &mut 0);
    if client.is_handshaking() {
        assert!(driver.is_closed());
        assert_eq!(server.counts().failed, 1);
        return None;
    }
    Some(Agreed {
        version: client.protocol_version().unwrap(),
        suite: client.negotiated_cipher_suite().unwrap().suite(),
        key_exchange: client.negotiated_key_exchange_group().unwrap().name(),
    })
}

#[test]
fn a_client_of_tls_1_2_is_for_the_intermediate_profile_alone() {
    let of = |profile| agreed(profile, default_provider(), &[&TLS12]);
    let version = of(Profile::Intermediate).map(|it| it.version);
    assert_eq!(version, Some(ProtocolVersion::TLSv1_2));
    assert_eq!(of(Profile::Modern), None);
}

#[test]
fn the_suites_of_each_profile_and_the_servers_choice() {
    let (p256, p384) = (&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384);
    let keys = [p256, p384].map(|kind| KeyPair::generate_for(kind).unwrap());
    let rsa = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
    for (key, kind) in [
        (&keys[0], "_ECDSA_"),
        (&keys[1], "_ECDSA_"),
        (&rsa, "_RSA_"),
    ] {
        let (chain, key) = signed_by(key, &["localhost"], |_| {});
        let own = load(&chain, &key).unwrap();
        for offered in ALL_CIPHER_SUITES {
            let versions = [offered.tls13().map_or(&TLS12, |_| &TLS13)];
            let provider = || CryptoProvider {
                cipher_suites: vec![*offered],
                ..default_provider()
            };
            let is_tls13 = offered.tls13().is_some();
            let is_for_key = format!("{offered:?}").contains(kind);
            for (profile, is_served) in [
                (Profile::Intermediate, is_tls13 || is_for_key),
                (Profile::Modern, is_tls13),
            ] {
                let agreed = agreed_by(own.clone(), profile, provider(), &versions);
                let expected = is_served.then(|| offered.suite());
                let agreed = agreed.map(|it| it.suite);
                assert_eq!(agreed, expected, "{kind} {profile:?} {offered:?}");
            }
        }
    }
    // In whatever order they are offered.
    for (versions, chosen) in [
        (
            [&TLS12],
            CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        ),
        ([&TLS13], CipherSuite::TLS13_AES_128_GCM_SHA256),
    ] {
        for reversed in [false, true] {
            let mut provider = default_provider();
            if reversed {
                provider.cipher_suites.reverse();
            }
            let agreed = agreed(Profile::Intermediate, provider, &versions);
            assert_eq!(agreed.map(|it| it.suite), Some(chosen), "{reversed}");
        }
    }
}

#[test]
fn keys_are_exchanged_by_the_hybrid_where_the_client_prefers_it() {
    let of = |groups: &[&'static dyn SupportedKxGroup]| {
        let provider = CryptoProvider {
            kx_groups: groups.to_vec(),
            ..default_provider()
        };
        agreed(Profile::Intermediate, provider, &[&TLS13]).map(|it| it.key_exchange)
    };
    let (hybrid, x25519) = (kx_group::X25519MLKEM768, kx_group::X25519);
    assert_eq!(of(&[hybrid, x25519]), Some(NamedGroup::X25519MLKEM768));
    assert_eq!(of(&[x25519, hybrid]), Some(NamedGroup::X25519));
    assert_eq!(of(&[x25519]), Some(NamedGroup::X25519));
    assert_eq!(of(&[kx_group::SECP256R1]), Some(NamedGroup::secp256r1));
    assert_eq!(of(&[kx_group::SECP384R1]), Some(NamedGroup::secp384r1));
}
