//! The same over TLS: counts exactly, latency as well as over plain connections. The stub speaks TLS by
//! rustls itself, so that nothing of the layer under test has a part in the truth.

use std::sync::{Arc, OnceLock};

use loadline_load::Plan;
use loadline_proto::Connector;
use loadline_stub::{Stub, StubOptions, TlsIdentity};
use loadline_tls::{Authorities, Profile, TlsClient, TlsClientOptions};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivatePkcs8KeyDer;

use crate::distributions::{check_closed_exponential_by, check_exponential_by};
use crate::run::{self, closed};

/// The stub's identity, and clients that trust it: without and with resumption.
struct Ends {
    stub: TlsIdentity,
    clients: [Arc<dyn Connector>; 2],
}

fn ends() -> &'static Ends {
    static ENDS: OnceLock<Ends> = OnceLock::new();
    ENDS.get_or_init(|| {
        let made = rcgen::generate_simple_self_signed(["stub".to_owned()]).unwrap();
        let certificate = made.cert.der().clone();
        let trusted = Authorities::one(&certificate).unwrap();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let config = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key.into())
            .unwrap();
        let client = |resumes| {
            let options = TlsClientOptions {
                resumes,
                ..TlsClientOptions::trusting(&trusted, Profile::Intermediate)
            };
            let client = TlsClient::with(&options).unwrap();
            Arc::new(client.to("stub").unwrap()) as Arc<dyn Connector>
        };
        Ends {
            stub: TlsIdentity(Arc::new(config)),
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
