//! What client and stub speak: HTTP/1.1 or HTTP/2, in the clear or over TLS.
//!
//! The stub speaks TLS by rustls itself, and takes the frames of HTTP/2 apart by code of its own, so that
//! nothing of what is tested has a part in the truth.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use loadline_load::{Http2Plan, Plan};
use loadline_proto::Connector;
use loadline_stub::{Stub, StubOptions, TlsIdentity};
use loadline_tls::{Authorities, Profile, TlsClient, TlsClientOptions};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::run::{self, MS};

const HTTP_1: &[u8] = b"http/1.1";
const HTTP_2: &[u8] = b"h2";
/// Requests that share a connection of HTTP/2, where nothing else is said.
pub(crate) const STREAMS: u32 = 10;
/// What a slow handshake waits for.
pub(crate) const HANDSHAKE_NS: u64 = 20 * MS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http1Tls,
    Http2,
    Http2Tls,
}

impl Protocol {
    pub(crate) const ALL: [Self; 4] = [Self::Http1, Self::Http1Tls, Self::Http2, Self::Http2Tls];

    pub(crate) fn is_secure(self) -> bool {
        matches!(self, Self::Http1Tls | Self::Http2Tls)
    }

    pub(crate) fn is_http2(self) -> bool {
        matches!(self, Self::Http2 | Self::Http2Tls)
    }

    /// A stub that speaks it.
    pub(crate) fn stub(self, options: StubOptions) -> Stub {
        let tls = self.is_secure().then(|| ends().stub.clone());
        run::stub(StubOptions { tls, ..options })
    }

    /// The same with handshakes, if there are any, that wait for [`HANDSHAKE_NS`].
    pub(crate) fn stub_of_slow_handshakes(self, options: StubOptions) -> Stub {
        let tls = self.is_secure().then(|| ends().slow.clone());
        run::stub(StubOptions { tls, ..options })
    }

    /// The same plan, whose clients speak it: over HTTP/2 as many in all, so many to a connection.
    pub(crate) fn spoken(self, plan: Plan, streams: u32) -> Plan {
        let connectors = match self {
            Self::Http1 | Self::Http2 => Vec::new(),
            Self::Http1Tls => vec![Some(Arc::clone(&ends().http1))],
            Self::Http2Tls => vec![Some(Arc::clone(&ends().http2))],
        };
        match self.is_http2() {
            false => Plan { connectors, ..plan },
            true => Plan {
                connections: plan.connections / streams,
                http2: Some(Http2Plan::new(&plan.mix, streams, connectors)),
                ..plan
            },
        }
    }
}

/// Connections of HTTP/1.1 that resume the sessions of earlier ones.
pub(crate) fn resuming() -> Arc<dyn Connector> {
    Arc::clone(&ends().resuming)
}

/// The stub's identity, the same with slow handshakes, and clients that trust it.
struct Ends {
    stub: TlsIdentity,
    slow: TlsIdentity,
    http1: Arc<dyn Connector>,
    resuming: Arc<dyn Connector>,
    http2: Arc<dyn Connector>,
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
            let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_cert_resolver(Arc::new(After(delay, Arc::clone(&key))));
            config.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1.to_vec()];
            TlsIdentity(Arc::new(config))
        };
        Ends {
            stub: identity(0),
            slow: identity(HANDSHAKE_NS),
            http1: connector(&trusted, HTTP_1, false),
            resuming: connector(&trusted, HTTP_1, true),
            http2: connector(&trusted, HTTP_2, false),
        }
    })
}

fn connector(trusted: &Authorities, protocol: &[u8], resumes: bool) -> Arc<dyn Connector> {
    let options = TlsClientOptions {
        resumes,
        ..TlsClientOptions::trusting(trusted, Profile::Intermediate)
    };
    let client = TlsClient::with(&options).unwrap().asking_for(&[protocol]);
    Arc::new(client.to("stub").unwrap())
}
