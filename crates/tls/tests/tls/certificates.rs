//! Certificates: how they are loaded, what is wrong with them, and which one a client gets.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use loadline_proto::{Layer as _, Limits};
use loadline_tls::{
    Authorities, Certificate, Certificates, Profile, TlsClient, TlsClientOptions, TlsOptions,
    TlsServer, Trust, Warning, WarningKind,
};
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256, RsaKeySize};
use rustls::ClientConnection;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};

use crate::drive::{Driver, config, echo};
use crate::pair::{Pair, certificate, client_with, exchange, trusting};

/// A certificate and its key, in PEM.
fn pem(names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> (String, String) {
    signed_by(&KeyPair::generate().unwrap(), names, change)
}

pub(crate) fn signed_by(
    key: &KeyPair,
    names: &[&str],
    change: impl FnOnce(&mut CertificateParams),
) -> (String, String) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    change(&mut params);
    (params.self_signed(key).unwrap().pem(), key.serialize_pem())
}

pub(crate) fn load(certificate: &str, key: &str) -> Result<Certificate, String> {
    let certificate = ("c.pem", certificate.as_bytes());
    Certificate::from_pem(certificate, ("k.pem", key.as_bytes())).map_err(|error| error.to_string())
}

#[test]
fn a_good_pair() {
    let (chain, key) = pem(&["Example.org", "*.example.org", "127.0.0.1"], |_| {});
    let certificate = load(&chain, &key).unwrap();
    assert_eq!(certificate.names(), ["example.org", "*.example.org"]);
    assert_eq!(certificate.warning(SystemTime::now()), None);
    // Both in one file, as some have it.
    let both = chain + &key;
    assert!(load(&both, &both).is_ok());
}

#[test]
fn what_is_refused_and_in_which_words() {
    let (chain, key) = pem(&["a"], |_| {});
    let (_, other_key) = pem(&["a"], |_| {});
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let legacy = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: x\n\nMAA=\n-----END RSA PRIVATE KEY-----\n";
    let broken = chain.replacen("MII", "AAA", 1);
    for (chain, key, message) in [
        (
            &chain[..],
            &other_key[..],
            "k.pem: this key does not belong to the certificate in c.pem",
        ),
        (&chain, encrypted, "k.pem: the private key is encrypted"),
        (&chain, legacy, "k.pem: the private key is encrypted"),
        (&chain, &chain, "k.pem: no private key in it"),
        (&key, &key, "c.pem: no certificate in it"),
        ("", &key, "c.pem: no certificate in it"),
        (&broken, &key, "c.pem: not a certificate"),
        (
            "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
            &key,
            "c.pem: not a certificate",
        ),
    ] {
        let error = load(chain, key).unwrap_err();
        assert!(error.starts_with(message), "{error}");
    }
    let missing = Certificate::from_files("/nowhere/c.pem".as_ref(), "/nowhere/k.pem".as_ref());
    let error = missing.unwrap_err().to_string();
    assert!(error.starts_with("/nowhere/c.pem: "), "{error}");
}

#[test]
fn expired_and_early_ones_are_served_with_a_warning() {
    let day = Duration::from_secs(24 * 3600);
    let now = SystemTime::now();
    let valid = |from: SystemTime, to: SystemTime| {
        let (chain, key) = pem(&["a"], |params| {
            params.not_before = from.into();
            params.not_after = to.into();
        });
        let warning = load(&chain, &key).unwrap().warning(now);
        warning.map(|it| it.to_string())
    };
    assert_eq!(valid(now - day, now + 30 * day), None);
    let warning = valid(now - 9 * day, now - 3 * day).unwrap();
    assert!(
        warning.starts_with("c.pem: expired 3 days ago"),
        "{warning}"
    );
    let warning = valid(now + 3 * day, now + 9 * day).unwrap();
    assert!(
        warning.starts_with("c.pem: not valid for another "),
        "{warning}"
    );
    let warning = valid(now - 60 * day, now + day).unwrap();
    assert!(warning.starts_with("c.pem: expires in 2"), "{warning}");
}

#[test]
fn what_is_soon_for_a_certificate_follows_its_life() {
    let (hour, now) = (Duration::from_secs(3600), SystemTime::now());
    for (life, soon) in [
        (90_u32 * 24, 7_u32 * 24),
        (42 * 24, 7 * 24),
        (6 * 24, 24),
        (24, 4),
        (6, 1),
    ] {
        let (chain, key) = pem(&["a"], |params| {
            params.not_before = now.into();
            params.not_after = (now + life * hour).into();
        });
        let certificate = load(&chain, &key).unwrap();
        let end = certificate.not_after();
        let minute = Duration::from_secs(60);
        let before = certificate.warning(end - soon * hour - minute);
        assert_eq!(before, None, "{life} hours");
        let warning = certificate.warning(end - soon * hour + minute).unwrap();
        assert_eq!(warning.kind, WarningKind::ExpiresSoon, "{warning}");
    }
}

/// Which of these a client gets that asks for a name and trusts only that one.
fn is_served(server: &TlsServer, certificate: &Certificate, name: &str) -> bool {
    Pair::handling(server, &trusting(certificate), name, echo)
        .settle()
        .is_ok()
}

#[test]
fn the_name_decides() {
    let first = certificate(&["first.org", "www.first.org"]);
    let wild = certificate(&["*.wild.org"]);
    let exact = certificate(&["exact.wild.org"]);
    let all = [first, wild, exact];
    let certificates = Arc::new(Certificates::new(all.to_vec()));
    let server = TlsServer::new(&certificates, &TlsOptions::default()).unwrap();
    for (name, index) in [
        ("first.org", 0),
        ("WWW.first.org", 0),
        ("a.wild.org", 1),
        ("exact.wild.org", 2),
    ] {
        for (at, certificate) in all.iter().enumerate() {
            assert_eq!(
                is_served(&server, certificate, name),
                at == index,
                "{name} {at}"
            );
        }
    }
    // A wildcard stands for one label.
    assert!(!is_served(&server, &all[1], "a.b.wild.org"));
    // They are replaced while they are served.
    certificates.replace(vec![certificate(&["other.org"])]);
    assert!(!is_served(&server, &all[0], "first.org"));
}

#[test]
fn a_name_that_awaits_its_certificate_gets_no_other() {
    let first = certificate(&["a.org"]);
    let certificates = Arc::new(Certificates::default());
    certificates.replace_awaiting(vec![first.clone()], vec!["b.org".to_owned()]);
    let server = TlsServer::new(&certificates, &TlsOptions::default()).unwrap();
    for (name, is_served) in [
        ("a.org", true),
        ("b.org", false),
        ("B.org", false),
        ("unknown.org", true),
        ("127.0.0.1", true), // no name in the handshake
    ] {
        assert_eq!(gets_any(&server, name), is_served, "{name}");
    }
    // It comes.
    certificates.replace(vec![first, certificate(&["b.org"])]);
    assert!(gets_any(&server, "b.org"));
}

/// Whether a client that trusts anybody gets a certificate for a name.
fn gets_any(server: &TlsServer, name: &str) -> bool {
    let trusting_all = TlsClientOptions {
        trust: Trust::Anyone,
        profile: Profile::Intermediate,
        certificate: None,
        resumes: false,
        key_exchange: None,
        cipher: None,
    };
    let client = TlsClient::with(&trusting_all).unwrap();
    let mut pair = Pair::handling(server, &client, name, echo);
    pair.settle().is_ok() && pair.client.is_open()
}

#[test]
fn rsa_beside_ecdsa() {
    let rsa = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
    let (chain, key) = signed_by(&rsa, &["localhost"], |_| {});
    let rsa = load(&chain, &key).unwrap();
    let ecdsa = certificate(&["localhost"]);
    for (served, seen) in [
        (vec![rsa.clone()], &rsa),
        (vec![rsa.clone(), ecdsa.clone()], &ecdsa), // smaller and quicker, whatever the order
    ] {
        let certificates = Arc::new(Certificates::new(served));
        let server = TlsServer::new(&certificates, &TlsOptions::default()).unwrap();
        assert!(is_served(&server, seen, "localhost"));
    }
}

/// That takes signatures by RSA keys alone.
fn rsa_only() -> CryptoProvider {
    let mut provider = default_provider();
    let algorithms = &mut provider.signature_verification_algorithms;
    let all = algorithms.mapping.iter().copied();
    let is_rsa = |name: &str| name.starts_with("RSA_");
    let of_rsa = all.filter(|(scheme, _)| scheme.as_str().is_some_and(is_rsa));
    algorithms.mapping = of_rsa.collect::<Vec<_>>().leak();
    provider
}

/// The first pair was the only one for clients that send no name if it had none, so that those that take RSA keys alone
/// were refused.
#[test]
fn who_sends_no_name_gets_a_pair_for_an_address_of_the_first_whose_key_it_takes() {
    let rsa = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
    let (chain, key) = signed_by(&rsa, &["127.0.0.1"], |_| {});
    let rsa = load(&chain, &key).unwrap();
    let ecdsa = certificate(&["::1", "127.0.0.1"]);
    let named = certificate(&["localhost", "127.0.0.1"]);
    let elsewhere = certificate(&["127.0.0.2"]);
    for (served, of_all, of_rsa, unused, address) in [
        ([&ecdsa, &rsa], &ecdsa, Some(&rsa), 0, "127.0.0.1"),
        ([&rsa, &ecdsa], &ecdsa, Some(&rsa), 0, "127.0.0.1"),
        ([&named, &rsa], &named, Some(&rsa), 0, "127.0.0.1"),
        ([&rsa, &elsewhere], &rsa, Some(&rsa), 1, "127.0.0.1"),
        ([&elsewhere, &rsa], &elsewhere, None, 1, "127.0.0.2"),
    ] {
        let certificates = Arc::new(Certificates::new(served.map(Certificate::clone).to_vec()));
        let warnings = certificates.warnings(SystemTime::now()).into_iter();
        let warnings = warnings.filter(|it| it.kind == WarningKind::Unused);
        assert_eq!(warnings.count(), unused);
        let server = TlsServer::new(&certificates, &TlsOptions::default()).unwrap();
        for (provider, expected) in [(default_provider(), Some(of_all)), (rsa_only(), of_rsa)] {
            for version in [&TLS12, &TLS13] {
                let trusted = expected.unwrap_or(of_all);
                let client = client_with(trusted, provider.clone(), &[version]);
                let name = ServerName::try_from(address).unwrap();
                let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
                let of_server = config(Limits::default());
                let mut driver = Driver::speaking(server.protocol(), &of_server, echo);
                exchange(&mut client, &mut driver, &mut 0);
                assert_eq!(client.is_handshaking(), expected.is_none());
                let seen = client.peer_certificates().map(|it| it[0].as_ref());
                assert_eq!(seen, expected.map(Certificate::der));
            }
        }
    }
}

/// One for `localhost` that is valid between these days from now.
fn lasting(key: &KeyPair, label: &str, from: i64, to: i64) -> Certificate {
    lasting_for("localhost", key, label, (from, to))
}

fn lasting_for(name: &str, key: &KeyPair, label: &str, (from, to): (i64, i64)) -> Certificate {
    let at = |days: i64| {
        let time = Duration::from_secs(days.unsigned_abs() * 24 * 3600);
        match days < 0 {
            true => SystemTime::now() - time,
            false => SystemTime::now() + time,
        }
    };
    let (chain, key) = signed_by(key, &[name], |params| {
        (params.not_before, params.not_after) = (at(from).into(), at(to).into());
    });
    Certificate::from_pem((label, chain.as_bytes()), ("k.pem", key.as_bytes())).unwrap()
}

#[test]
fn of_certificates_for_the_same_name_the_one_that_lasts_longest_is_served() {
    let keys = [(), ()].map(|()| KeyPair::generate().unwrap());
    // The second one is served, whatever the order.
    for (other, served) in [
        ((-60, -1), (-1, 30)),
        ((1, 90), (-1, 30)),
        ((-60, 20), (-1, 30)),
        ((1, 90), (1, 99)),
    ] {
        let other = lasting(&keys[0], "other.pem", other.0, other.1);
        let served = lasting(&keys[1], "served.pem", served.0, served.1);
        for all in [[&other, &served], [&served, &other]] {
            let certificates = Arc::new(Certificates::new(all.map(Certificate::clone).to_vec()));
            let unused = certificates.warnings(SystemTime::now()).into_iter();
            let mut unused = unused.filter(|it| it.kind == WarningKind::Unused);
            let warning = unused.next().unwrap();
            assert_eq!(warning.label, "other.pem", "{warning}");
            assert!(unused.next().is_none(), "the other one is served");
            if served.warning(SystemTime::now()).is_none() {
                let server = TlsServer::new(&certificates, &TlsOptions::default()).unwrap();
                assert!(is_served(&server, &served, "localhost"));
            }
        }
    }
}

#[test]
fn a_valid_certificate_is_served_before_an_expired_one_of_a_better_kind() {
    let rsa = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
    let rsa = lasting(&rsa, "rsa.pem", -60, 30);
    let ecdsa = lasting(&KeyPair::generate().unwrap(), "ecdsa.pem", -60, 20);
    let (now, day) = (SystemTime::now(), Duration::from_secs(24 * 3600));
    let certificates = Arc::new(Certificates::new(vec![ecdsa.clone(), rsa.clone()]));
    let server = TlsServer::new(&certificates, &TlsOptions::default()).unwrap();
    for (time, served) in [
        (now, &ecdsa),
        (now + 25 * day, &rsa),   // the other one has expired
        (now + 35 * day, &ecdsa), // both have
    ] {
        certificates.passed(time);
        assert!(is_served(&server, served, "localhost"));
        // Clients that take one kind alone get that one.
        let mut warnings = certificates.warnings(time).into_iter();
        assert!(warnings.all(|it| it.kind != WarningKind::Unused));
    }
}

/// The one for the exact name was served in any case.
#[test]
fn a_valid_wildcard_is_served_before_an_expired_exact_name() {
    let keys = [(), ()].map(|()| KeyPair::generate().unwrap());
    let exact = lasting_for("a.wild.org", &keys[0], "exact.pem", (-60, 20));
    let wild = lasting_for("*.wild.org", &keys[1], "wild.pem", (-60, 30));
    let (now, day) = (SystemTime::now(), Duration::from_secs(24 * 3600));
    let certificates = Arc::new(Certificates::new(vec![exact.clone(), wild.clone()]));
    let server = TlsServer::new(&certificates, &TlsOptions::default()).unwrap();
    for (time, served) in [
        (now, &exact),
        (now + 25 * day, &wild),  // the other one has expired
        (now + 35 * day, &exact), // both have
        (now, &exact),            // the clock was set back
    ] {
        certificates.passed(time);
        assert!(is_served(&server, served, "a.wild.org"));
        assert!(is_served(&server, &wild, "b.wild.org"));
    }
}

/// One expires, another one becomes valid, and a machine without a battery starts in 1970.
#[test]
fn which_certificate_is_served_changes_with_the_time() {
    let keys = [(), ()].map(|()| KeyPair::generate().unwrap());
    let first = lasting(&keys[0], "first.pem", -60, 20);
    let second = lasting(&keys[1], "second.pem", 10, 90);
    let (now, day) = (SystemTime::now(), Duration::from_secs(24 * 3600));
    let certificates = Arc::new(Certificates::default());
    let awaited = vec!["awaited.org".to_owned()];
    certificates.replace_awaiting(vec![first.clone(), second], awaited);
    let server = TlsServer::new(&certificates, &TlsOptions::default()).unwrap();
    for (time, unused) in [
        (SystemTime::UNIX_EPOCH, "first.pem"),
        (now, "second.pem"),
        (now + 15 * day, "first.pem"),
        (now + 5 * day, "second.pem"), // the clock was set back
        (now + 30 * day, "first.pem"),
    ] {
        certificates.passed(time);
        let mut warnings = certificates.warnings(time).into_iter();
        let warning = warnings.find(|it| it.kind == WarningKind::Unused).unwrap();
        assert_eq!(warning.label, unused);
        assert!(!gets_any(&server, "awaited.org"), "no other one");
        assert!(gets_any(&server, "unknown.org"));
    }
    certificates.passed(now);
    assert!(is_served(&server, &first, "localhost"));
}

#[test]
fn a_pair_that_some_client_gets_is_none_to_be_warned_of() {
    let rsa = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
    let p384 = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
    let localhost = [KeyPair::generate().unwrap(), p384, rsa];
    let mut all: Vec<_> = (localhost.iter().zip(1..))
        .map(|(key, days)| lasting(key, "localhost.pem", -30, days * 30))
        .collect();
    all.push(certificate(&["localhost", "www.localhost"])); // for one of its names
    let unused = |all: &[Certificate]| {
        let warnings = Certificates::new(all.to_vec()).warnings(SystemTime::now());
        let is_unused = |it: &&Warning| it.kind == WarningKind::Unused;
        warnings.iter().filter(is_unused).count()
    };
    assert_eq!(unused(&all[1..]), 0);
    assert_eq!(unused(&all), 1, "the first one ends before the last one");
    // One without a name is for clients that ask for none, if it is the first.
    let address = certificate(&["127.0.0.1"]);
    let other = certificate(&["localhost"]);
    assert_eq!(unused(&[address.clone(), other.clone()]), 0);
    assert_eq!(unused(&[other, address]), 1);
}

/// It was warned of since the expired one is of its kind and for the first name.
#[test]
fn a_pair_for_an_address_is_served_instead_of_an_expired_one_for_the_first_name() {
    let (chain, key) = pem(&["localhost", "127.0.0.1"], |params| {
        params.not_after = (SystemTime::now() - Duration::from_secs(24 * 3600)).into();
    });
    let expired = load(&chain, &key).unwrap();
    let certificates = Certificates::new(vec![expired, certificate(&["127.0.0.1"])]);
    let mut warnings = certificates.warnings(SystemTime::now()).into_iter();
    assert!(warnings.all(|it| it.kind != WarningKind::Unused));
}

#[test]
fn a_challenge_has_a_certificate_of_its_own() {
    let (site, challenge) = (certificate(&["localhost"]), certificate(&["localhost"]));
    let certificates = Arc::new(Certificates::new(vec![site.clone()]));
    certificates.answer_challenge("localhost", Some(challenge.clone()));
    let server = TlsServer::new(&certificates, &TlsOptions::default()).unwrap();
    assert!(is_served(&server, &site, "localhost"), "who asks for HTTP");
    let trusted = Authorities::one(challenge.der()).unwrap();
    let authority = TlsClient::new(&trusted, Profile::Intermediate).unwrap();
    let authority = authority.asking_for(&[b"acme-tls/1"]);
    let mut pair = Pair::new(&server, &authority);
    pair.open();
    assert!(pair.server.is_closed(), "nothing else is to be had there");
    certificates.answer_challenge("localhost", None);
    assert!(Pair::new(&server, &authority).settle().is_err());
}
