//! A server in this process, and connections to it.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use loadline_proto::{Handler, Protocol, SessionConfig};
use loadline_server::{Config, ListenerConfig, ServerConfig, ServerHandle, serve};
use loadline_tls::{Certificates, TlsOptions, TlsServer, self_signed};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::model::Model;

/// The longest wait for anything before a test fails: every architecture is tested at once.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// What HTTP/2 is spoken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    Plain,
    Tls,
}

impl Over {
    pub const BOTH: [Self; 2] = [Self::Plain, Self::Tls];
}

/// A running server. Dropping it drains it.
pub struct Served {
    pub address: SocketAddr,
    pub over: Over,
    certificate: Vec<u8>,
    handle: Option<ServerHandle>,
}

/// A connection's bytes.
pub trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

impl Served {
    pub fn start(model: Model, over: Over, handler: impl Handler) -> Self {
        let own = self_signed(&["localhost".to_owned()]).unwrap();
        let certificate = own.der().to_vec();
        let certificates = Arc::new(Certificates::new(vec![own]));
        let tls = TlsServer::new(&certificates, &TlsOptions::default()).unwrap();
        let served = Config {
            handler: Arc::new(handler),
            listeners: vec![ListenerConfig {
                address: ([127, 0, 0, 1], 0).into(),
                session: Arc::<SessionConfig>::default(),
                protocol: match over {
                    Over::Plain => Protocol::Http,
                    Over::Tls => tls.protocol(),
                },
            }],
        };
        let config = ServerConfig {
            options: model.options(),
            ..ServerConfig::default()
        };
        let handle = serve(served, config).unwrap();
        Self {
            address: handle.tcp_address().unwrap(),
            over,
            certificate,
            handle: Some(handle),
        }
    }

    /// An address of it.
    pub fn url(&self, path: &str) -> String {
        let scheme = match self.over {
            Over::Plain => "http",
            Over::Tls => "https",
        };
        format!("{scheme}://localhost:{}{path}", self.address.port())
    }

    /// A new connection, which has agreed on HTTP/2.
    pub async fn connect(&self) -> Box<dyn Bytes> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        if self.over == Over::Plain {
            return Box::new(stream);
        }
        let mut roots = RootCertStore::empty();
        let certificate = CertificateDer::from(self.certificate.clone());
        roots.add(certificate).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let name = ServerName::try_from("localhost").unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        let stream = connector.connect(name, stream).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        Box::new(stream)
    }

    /// Its certificate as a file has it.
    pub fn certificate_pem(&self) -> String {
        let text = base64::engine::general_purpose::STANDARD.encode(&self.certificate);
        let lines = text.as_bytes().chunks(64).map(String::from_utf8_lossy);
        let lines: Vec<_> = lines.collect();
        let lines = lines.join("\n");
        format!("-----BEGIN CERTIFICATE-----\n{lines}\n-----END CERTIFICATE-----\n")
    }

    pub fn drain(&self) {
        self.handle.as_ref().expect("until it is dropped").drain();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else {
            return;
        };
        if std::thread::panicking() {
            handle.stop_now();
            return;
        }
        handle.drain();
        assert!(handle.wait().unwrap().is_clean(), "a clean drain");
    }
}

/// Runs clients, for as long as a test may wait. What they have left open ends with it.
pub fn run<T>(clients: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let limited = async { tokio::time::timeout(TIMEOUT, clients).await };
    runtime.block_on(limited).expect("in time")
}

/// Waits for what comes about on another thread.
pub async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "it never came about that {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
