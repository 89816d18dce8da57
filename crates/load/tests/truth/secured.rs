//! The same over TLS: counts exactly, latency as well as over plain connections. The stub speaks TLS by
//! rustls itself, so that nothing of the layer under test has a part in the truth.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use loadline_load::Plan;
use loadline_proto::Connector;
use loadline_stub::{Latency, Stub, StubOptions, TlsIdentity};
use loadline_tls::{Authorities, Profile, TlsClient, TlsClientOptions};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::distributions::{check_closed_exponential_by, check_exponential_by};
use crate::run::{self, MS, US, closed};

/// What a slow handshake waits for, and what each response then waits for.
const HANDSHAKE_NS: u64 = 20 * MS;
const RESPONSE_NS: u64 = 60 * MS;

/// The stub's identity, the same with slow handshakes, and clients that trust it: without and with
/// resumption.
struct Ends {
    stub: TlsIdentity,
    slow: TlsIdentity,
    clients: [Arc<dyn Connector>; 2],
}

/// Chooses its only certificate, before ServerHello is made, and takes this long.
#[derive(Debug)]
struct After(Duration, Arc<CertifiedKey>);

impl ResolvesServerCert for After {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        std::thread::sleep(self.0);
        Some(Arc::clone(&self.1))
    }
}

fn ends() -> &'static Ends {
    static ENDS: OnceLock<Ends> = OnceLock::new();
    ENDS.get_or_init(|| {
        let made = rcgen::generate_simple_self_signed(["stub".to_owned()]).unwrap();
        let certificate = made.cert.der().clone();
        let trusted = Authorities::one(&certificate).unwrap();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let provider = Arc::new(aws_lc_rs::default_provider());
        let key = CertifiedKey::from_der(vec![certificate], key.into(), &provider).unwrap();
        let key = Arc::new(key);
        let identity = |delay_ns| {
            let delay = Duration::from_nanos(delay_ns);
            let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_cert_resolver(Arc::new(After(delay, Arc::clone(&key))));
            TlsIdentity(Arc::new(config))
        };
        let client = |resumes| {
            let options = TlsClientOptions {
                resumes,
                ..TlsClientOptions::trusting(&trusted, Profile::Intermediate)
            };
            let client = TlsClient::with(&options).unwrap();
            Arc::new(client.to("stub").unwrap()) as Arc<dyn Connector>
        };
        Ends {
            stub: identity(0),
            slow: identity(HANDSHAKE_NS),
            clients: [client(false), client(true)],
        }
    })
}

/// A stub that speaks TLS.
pub(crate) fn stub(options: StubOptions) -> Stub {
    let tls = Some(ends().stub.clone());
    run::stub(StubOptions { tls, ..options })
}

/// A plan whose connections are to such a stub.
pub(crate) fn secured(plan: Plan, resumes: bool) -> Plan {
    Plan {
        connectors: vec![Some(Arc::clone(&ends().clients[usize::from(resumes)]))],
        ..plan
    }
}

#[test]
fn counts_are_those_of_the_stub() {
    let _turn = run::turn();
    let requests = 300;
    for (requests_per_connection, resumes) in [
        (None, false),
        (Some(1), false),
        (Some(1), true),
        (Some(10), false),
    ] {
        for body_bytes in [13, 100_000] {
            let stub = stub(StubOptions {
                body: vec![b'x'; body_bytes],
                ..StubOptions::default()
            });
            let mut plan = secured(closed(stub.address(), 6, requests), resumes);
            plan.requests_per_connection = requests_per_connection;
            plan.mix.expectations[0].length = Some(body_bytes as u64);
            let outcome = run::run(plan, stub);
            let tally = &outcome.record.everything;
            let counts = &outcome.report.counts;
            assert_eq!((tally.good, tally.errors_total()), (requests, 0));
            assert_eq!((counts.requests, counts.answers), (requests, requests));
            assert_eq!(tally.connections, counts.connections);
            let handshakes = tally.handshakes_full + tally.handshakes_resumed;
            assert_eq!(handshakes, tally.connections);
            // The first of each client is a full one; the client of the run before has tickets left.
            match resumes {
                true => assert!(tally.handshakes_full <= 6, "{tally:?}"),
                false => assert_eq!(tally.handshakes_resumed, 0),
            }
            let results = outcome.results();
            assert_eq!(results.handshake.count(), handshakes);
            assert_eq!(results.connect.count(), tally.connections);
            assert_eq!(results.first_byte.count(), requests);
        }
    }
}

/// Each delay is in its own part, however busy the machine is; and since the parts together are no longer than
/// the whole, it is in no other part, unless the machine adds as much as a delay to every request.
#[test]
fn a_connections_time_is_divided_where_the_stub_waits() {
    let _turn = run::turn();
    let requests = 10;
    let stub = run::stub(StubOptions {
        tls: Some(ends().slow.clone()),
        latency: Latency::Constant { ns: RESPONSE_NS },
        ..StubOptions::default()
    });
    let mut plan = secured(closed(stub.address(), 1, requests), false);
    plan.requests_per_connection = Some(1);
    let outcome = run::run(plan, stub);
    let results = outcome.results();
    for (name, part, least_ns) in [
        ("handshake", &results.handshake, HANDSHAKE_NS),
        ("first byte", &results.first_byte, RESPONSE_NS),
    ] {
        assert_eq!(part.count(), requests, "{name}");
        // Three digits of a time are kept, and the stub's stamps are of another clock than its delays.
        let least_us = least_ns / US * 99 / 100;
        let min_us = part.min_us().unwrap();
        assert!(min_us >= least_us, "{name}: {min_us} us");
    }
    let parts = [&results.connect, &results.handshake, &results.first_byte];
    let parts_us = parts.map(|part| part.mean_us().unwrap());
    let whole_us = results.latency.mean_us().unwrap();
    assert!(
        parts_us.iter().sum::<f64>() <= whole_us * 1.005,
        "connect, handshake and first byte take {parts_us:?} us of {whole_us} us"
    );
}

#[test]
fn an_open_loop_over_tls_reports_what_passed_from_due() {
    let _turn = run::turn();
    check_exponential_by("exponential, open loop, TLS", &stub, &|plan| {
        secured(plan, false)
    });
}

#[test]
#[ignore = "long: some seconds that nothing else may take"]
fn a_closed_loop_over_tls_reports_what_its_clients_waited() {
    let _turn = run::turn();
    check_closed_exponential_by("exponential, closed loop, TLS", &stub, &|plan| {
        secured(plan, false)
    });
}
