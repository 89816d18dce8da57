//! A drain that begins in the middle of a TLS handshake: its first request is answered all the same.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use loadline_proto::Protocol;
use loadline_tls::{Certificates, TlsOptions, TlsServer, self_signed};
use rustls::pki_types::ServerName;
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::client::TIMEOUT;
use crate::fixture::{Gate, Model, Server};
use crate::handshake_bound::{HeldTls, OpenAtTheEnd};
use crate::tls::client_of;

every_model! {
    a_drain_awaits_a_handshake_that_is_computed,
    a_drain_awaits_a_handshake_that_has_begun,
    a_drain_serves_a_handshake_that_has_arrived,
}

fn a_drain_awaits_a_handshake_that_is_computed(model: Model) {
    let (tls, client) = ends();
    let gate = Arc::new(Gate::default());
    let held = HeldTls {
        tls,
        gate: Arc::clone(&gate),
    };
    let server = Server::start_speaking(model.options(), Protocol::Shared(Arc::new(held)));
    let gate = OpenAtTheEnd(gate);
    let begun = Begun::new(&server, &client);
    gate.0.await_waiting(1);
    server.control.drain();
    gate.0.open();
    begun.finish();
    assert_eq!(server.end(), 0);
}

fn a_drain_awaits_a_handshake_that_has_begun(model: Model) {
    let (tls, client) = ends();
    let server = Server::start_speaking(model.options(), tls.protocol());
    let begun = Begun::new(&server, &client);
    let answered = begun.socket.peek(&mut [0]).unwrap();
    assert_eq!(answered, 1, "its first message is answered");
    server.control.drain();
    begun.finish();
    assert_eq!(server.end(), 0);
}

/// In the backlog, perhaps.
fn a_drain_serves_a_handshake_that_has_arrived(model: Model) {
    let (tls, client) = ends();
    for _ in 0..5 {
        let server = Server::start_speaking(model.options(), tls.protocol());
        let begun = Begun::new(&server, &client);
        server.control.drain();
        begun.finish();
        assert_eq!(server.end(), 0);
    }
}

/// A server's TLS, and a client of rustls alone.
fn ends() -> (TlsServer, Arc<ClientConfig>) {
    let own = self_signed(&["localhost".to_owned()]).unwrap();
    let client = Arc::new(client_of(&own, &[&TLS13]));
    let certificates = Arc::new(Certificates::new(vec![own]));
    let tls = TlsServer::new(&certificates, &TlsOptions::default()).unwrap();
    (tls, client)
}

/// A client that has sent its first message.
struct Begun {
    connection: ClientConnection,
    socket: TcpStream,
}

impl Begun {
    fn new(server: &Server, client: &Arc<ClientConfig>) -> Self {
        let name = ServerName::try_from("localhost").unwrap();
        let mut connection = ClientConnection::new(Arc::clone(client), name).unwrap();
        let mut socket = TcpStream::connect(server.address).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        connection.write_tls(&mut socket).unwrap();
        Self { connection, socket }
    }

    /// Carries the handshake on and sends the last request. Its last message and its request
    /// leave in one piece: on a slow machine the second one might come too late.
    fn finish(self) {
        let Self {
            mut connection,
            mut socket,
        } = self;
        while connection.is_handshaking() {
            let count = connection.read_tls(&mut socket).unwrap();
            assert!(count > 0, "the end instead of a handshake");
            connection.process_new_packets().unwrap();
        }
        let request = b"GET /-/echo HTTP/1.1\r\nHost: h\r\n\r\n";
        connection.writer().write_all(request).unwrap();
        let mut last = Vec::new();
        while connection.wants_write() {
            connection.write_tls(&mut last).unwrap();
        }
        socket.write_all(&last).unwrap();
        let mut response = String::new();
        let mut stream = StreamOwned::new(connection, socket);
        stream.read_to_string(&mut response).unwrap(); // fails without close_notify
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
        let response = response.to_ascii_lowercase();
        assert!(response.contains("\r\nconnection: close\r\n"), "{response}");
    }
}
