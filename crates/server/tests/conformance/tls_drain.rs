//! A drain that begins in the middle of a TLS handshake, or of a record: its request is answered all the same.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use loadline_proto::Protocol;
use loadline_tls::{Certificates, TlsOptions, TlsServer, self_signed};
use rustls::pki_types::ServerName;
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, Stream, StreamOwned};

use crate::client::TIMEOUT;
use crate::fixture::{Gate, Model, Server};
use crate::handshake_bound::{HeldTls, OpenAtTheEnd};
use crate::tls::client_of;

every_model! {
    a_drain_awaits_a_handshake_that_is_computed,
    a_drain_awaits_a_handshake_that_has_begun,
    a_drain_serves_a_handshake_that_has_arrived,
    a_drain_awaits_the_rest_of_a_record,
}

const GET: &[u8] = b"GET /-/echo HTTP/1.1\r\nHost: h\r\n\r\n";
const HEAD: &[u8] = b"HEAD /-/echo HTTP/1.1\r\nHost: h\r\n\r\n";

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

fn a_drain_awaits_the_rest_of_a_record(model: Model) {
    let (tls, client) = ends();
    // Cut in the middle, and within the record's head.
    for parts in [2, 20] {
        let server = Server::start_speaking(model.options(), tls.protocol());
        let idle = model.is_concurrent().then(|| {
            let mut idle = Begun::new(&server, &client);
            idle.shake_hands();
            let asked = idle.sealed(HEAD);
            idle.ask(&asked);
            idle
        });
        let mut begun = Begun::new(&server, &client);
        begun.shake_hands();
        let (first, last) = (begun.sealed(HEAD), begun.sealed(GET));
        let (part, rest) = last.split_at(last.len() / parts);
        // In one piece: the response to the first says that the part of the second has arrived, too.
        begun.ask(&[&first[..], part].concat());
        server.control.drain();
        if let Some(idle) = idle {
            assert_eq!(idle.rest(), "", "the drain has begun");
        }
        begun.socket.write_all(rest).unwrap();
        begun.last_response();
        assert_eq!(server.end(), 0);
    }
}

/// A server's TLS, and a client of rustls alone.
pub fn ends() -> (TlsServer, Arc<ClientConfig>) {
    let own = self_signed(&["localhost".to_owned()]).unwrap();
    let client = Arc::new(client_of(&own, &[&TLS13]));
    let certificates = Arc::new(Certificates::new(vec![own]));
    let tls = TlsServer::new(&certificates, &TlsOptions::default()).unwrap();
    (tls, client)
}

/// A client that has sent its first message.
pub struct Begun {
    connection: ClientConnection,
    pub socket: TcpStream,
}

impl Begun {
    pub fn new(server: &Server, client: &Arc<ClientConfig>) -> Self {
        let name = ServerName::try_from("localhost").unwrap();
        let mut connection = ClientConnection::new(Arc::clone(client), name).unwrap();
        let mut socket = TcpStream::connect(server.address).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        connection.write_tls(&mut socket).unwrap();
        Self { connection, socket }
    }

    /// Carries the handshake on and sends the last request. Its last message and its request
    /// leave in one piece: on a slow machine the second one might come too late.
    fn finish(mut self) {
        self.shake_hands();
        let last = self.sealed(GET);
        self.socket.write_all(&last).unwrap();
        self.last_response();
    }

    /// Carries the handshake on. Its last message stands before what is sealed first.
    pub fn shake_hands(&mut self) {
        while self.connection.is_handshaking() {
            let count = self.connection.read_tls(&mut self.socket).unwrap();
            assert!(count > 0, "the end instead of a handshake");
            self.connection.process_new_packets().unwrap();
        }
    }

    /// A request as it goes over the network.
    pub fn sealed(&mut self, request: &[u8]) -> Vec<u8> {
        self.connection.writer().write_all(request).unwrap();
        let mut sealed = Vec::new();
        while self.connection.wants_write() {
            self.connection.write_tls(&mut sealed).unwrap();
        }
        sealed
    }

    /// What it reads from.
    pub fn stream(&mut self) -> Stream<'_, ClientConnection, TcpStream> {
        Stream::new(&mut self.connection, &mut self.socket)
    }

    /// Sends these bytes and reads the response to a HEAD request, which ends with its head.
    fn ask(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
        let mut stream = self.stream();
        let (mut head, mut byte) = (Vec::<u8>::new(), [0_u8]);
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        assert!(
            head.starts_with(b"HTTP/1.1 200 "),
            "{}",
            head.escape_ascii()
        );
    }

    /// Everything until the end of TLS.
    pub fn rest(self) -> String {
        let mut rest = String::new();
        let mut stream = StreamOwned::new(self.connection, self.socket);
        stream.read_to_string(&mut rest).unwrap(); // fails without close_notify
        rest
    }

    fn last_response(self) {
        let response = self.rest();
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
        let response = response.to_ascii_lowercase();
        assert!(response.contains("\r\nconnection: close\r\n"), "{response}");
    }
}
