//! A server in this process, for plain HTTP and for TLS, whose certificates are automatic; and a client
//! that looks at them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use loadline_acme::{HttpChallenges, Tokens};
use loadline_proto::{Context, Exchange, Handler, Outcome, Protocol, SessionConfig, Status};
use loadline_server::{
    Config, ListenAddr, ListenerConfig, ServerConfig, ServerHandle, ServerOptions,
};
use loadline_tls::{Authorities, Certificates, Profile, TlsClient, TlsOptions, TlsServer};

use crate::challenge_client;

pub struct Site {
    pub certificates: Arc<Certificates>,
    pub tokens: Tokens,
    handle: ServerHandle,
}

/// Knows no page at all.
struct Nothing;

impl Handler for Nothing {
    type Local = ();

    fn local(&self) {}

    fn handle(&self, (): &mut (), exchange: &mut Exchange, _: &mut Context<'_>) -> Outcome {
        exchange.response.error(Status::NOT_FOUND);
        Outcome::Ready
    }

    fn handle_blocking(&self, _: &mut Exchange) {}
}

impl Site {
    pub fn start() -> Self {
        Self::start_with(ServerOptions::default())
    }

    pub fn start_with(options: ServerOptions) -> Self {
        let (certificates, tokens) = (Arc::new(Certificates::default()), Tokens::default());
        let tls = TlsServer::new(&certificates, &TlsOptions::default()).unwrap();
        let session = Arc::new(SessionConfig::default());
        let listener = |protocol| ListenerConfig {
            address: ListenAddr::Tcp(([127, 0, 0, 1], 0).into()),
            session: Arc::clone(&session),
            protocol,
        };
        let config = Config {
            handler: Arc::new(HttpChallenges::new(Nothing, Some(tokens.clone()))),
            listeners: vec![listener(Protocol::Http), listener(tls.protocol())],
        };
        let of_server = ServerConfig {
            options,
            ..ServerConfig::default()
        };
        Self {
            certificates,
            tokens,
            handle: loadline_server::serve(config, of_server).unwrap(),
        }
    }

    pub fn http(&self) -> SocketAddr {
        self.address(0)
    }

    pub fn https(&self) -> SocketAddr {
        self.address(1)
    }

    /// The response to a GET over plain HTTP.
    pub fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.http()).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }

    /// The certificate that a client gets who asks for this name and trusts these authorities; `None`:
    /// there is no connection.
    pub fn certificate(&self, name: &str, trusted: &Authorities) -> Option<Vec<u8>> {
        let client = TlsClient::new(trusted, Profile::Intermediate).unwrap();
        let socket = TcpStream::connect(self.https()).unwrap();
        let mut stream = client.stream(name, socket).unwrap();
        let request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        stream.write_all(request).ok()?;
        stream.read_exact(&mut [0; 12]).ok()?;
        Some(stream.conn.peer_certificates()?.first()?.to_vec())
    }

    /// The certificate of a handshake for `acme-tls/1`, as an authority does it (RFC 8737); `None`: there is no
    /// connection.
    pub fn challenge(&self, name: &str) -> Option<Vec<u8>> {
        challenge_client::certificate(name, self.https())
    }

    fn address(&self, index: usize) -> SocketAddr {
        match &self.handle.addresses()[index] {
            ListenAddr::Tcp(address) => *address,
            ListenAddr::Unix(_) => unreachable!("there is none"),
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.handle.stop_now();
    }
}
