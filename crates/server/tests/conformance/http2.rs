//! HTTP/2 over sockets, under every model: cases of other files, as streams of one connection, and how a
//! connection begins.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use loadline_base::Buffer;
use loadline_proto::{Http2, Layer as _};
use loadline_tls::{
    Authorities, Certificate, Certificates, Profile, TlsClient, TlsOptions, TlsServer, self_signed,
};
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::client::{Client, PATIENCE};
use crate::fixture::{Model, Server, limits, over_http2, pattern};
use crate::tls::client_of;
use crate::translated::Translated;

/// Cases of other files, over HTTP/2.
macro_rules! every_model_over_http2 {
    ($($(#[$attribute:meta])? $file:ident::$case:ident,)*) => {
        $(mod $case {
            fn over_http2(model: crate::model::Model) {
                crate::fixture::over_http2(crate::$file::$case, model);
            }
            every_model! { $(#[$attribute])? over_http2, }
        })*
    };
}

every_model_over_http2! {
    files::files_byte_for_byte,
    files::head_says_what_get_says,
    files::folders,
    files::nothing_escapes_the_root,
    #[ignore = "long: half a second for each model, or more"]
    files::a_changed_file_is_seen_within_a_second,
    selection::ranges,
    selection::several_ranges,
    selection::conditions,
    selection::conditions_on_ranges,
    selection::encoded_neighbours,
    compression::files_are_compressed_for_those_who_accept_it,
    framing::pipelined_requests_are_answered_in_order,
    framing::bodies_of_every_framing,
    connections::a_half_close_still_gets_its_answers,
    connections::clients_that_vanish_leave_nothing_behind,
    connections::many_clients_at_once,
    failures::a_panic_is_a_500_and_costs_nothing,
    later::an_answer_of_a_task,
    later::a_task_woken_by_another_thread,
    #[ignore = "long: half a second for each model, or more"]
    replaced::fifty_renames_under_load_cut_no_answer,
    #[ignore = "long: half a second for each model, or more"]
    shutdown::before_a_drain_after_a_delay_all_is_as_ever,
}

every_model! {
    a_connection_speaks_what_it_begins_with,
    a_server_of_one_version_alone,
    the_version_is_agreed_on_over_tls,
    a_request_for_another_host_is_misdirected,
    a_drain_finishes_streams,
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const GET: &str = "GET /-/echo HTTP/1.1\r\nHost: h\r\n\r\n";

/// Reads the server's first frame, which is SETTINGS.
fn first_frame(client: &mut Client) {
    let head = client.bytes(9);
    assert_eq!((head[3], &head[5..]), (4, &[0; 4][..]), "{head:?}");
}

fn a_connection_speaks_what_it_begins_with(model: Model) {
    let server = Server::start(model);
    // However the preface is cut.
    for cut in [1, 5, 13, 14, 15, 24, 30] {
        let mut client = server.connect();
        let (first, then) = PREFACE.split_at(cut);
        client.send(first).send(then);
        first_frame(&mut client);
        drop(client);
        server.await_no_connections();
    }
    // What only looks like it for a while.
    let mut client = server.connect();
    let answer = client
        .send("PR")
        .send("I /-/echo HTTP/1.1\r\nHost: h\r\n\r\n")
        .answer();
    assert_eq!(answer.status, 501);
    // Behind a request it is too late.
    assert_eq!(client.send(GET).answer().status, 200);
    assert_eq!(client.send(PREFACE).answer().status, 505);
    client.end();
}

fn a_server_of_one_version_alone(model: Model) {
    let server = Server::start_of(Http2::Off, model.options(), limits());
    let mut client = server.connect();
    assert_eq!(client.send(&PREFACE[..14]).answer().status, 505);
    client.half_close().end();
    drop(server);

    let server = Server::start_of(Http2::Only, model.options(), limits());
    let mut client = server.connect();
    client.send(PREFACE);
    first_frame(&mut client);
    drop(client);
    let mut client = server.connect();
    client.send(GET);
    first_frame(&mut client);
    let rest = client.half_close().rest();
    assert!(!rest.windows(4).any(|it| it == b"HTTP"), "HTTP/1");
    let go_away = rest.len() - 17;
    assert_eq!(
        (rest[go_away + 3], rest[rest.len() - 1]),
        (7, 1),
        "GOAWAY, PROTOCOL_ERROR"
    );
}

/// The response to a request of HTTP/2, as HTTP/1: its head and its content.
fn get_over(stream: &mut (impl Read + Write), host: &str, path: &str) -> (String, Vec<u8>) {
    let mut preface = Vec::new();
    let mut layer = Translated::new("https", &mut preface);
    let mut out = Buffer::from(preface);
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    layer.send(request.as_bytes(), &mut out);
    let (mut plain, mut piece) = (Buffer::default(), [0; 16_384]);
    loop {
        let end = plain.windows(4).position(|it| it == b"\r\n\r\n");
        if let Some(head_len) = end.map(|end| end + 4) {
            let head = String::from_utf8(plain[..head_len].to_vec()).unwrap();
            let (_, len) = head.split_once("content-length: ").unwrap();
            let len: usize = len.split("\r\n").next().unwrap().parse().unwrap();
            if plain.len() == head_len + len {
                return (head, plain[head_len..].to_vec());
            }
        }
        stream.write_all(&std::mem::take(&mut out)).unwrap();
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "the end after {} bytes", plain.len());
        let bytes = &mut piece[..count];
        layer.received(bytes, &mut plain, &mut out).unwrap();
    }
}

/// A server, and its certificate.
fn start(model: Model, http2: Http2) -> (Server, Certificate) {
    let own = self_signed(&["localhost".to_owned()]).unwrap();
    let trusted = Authorities::one(own.der()).unwrap();
    let client = TlsClient::new(&trusted, Profile::Intermediate).unwrap();
    let certificates = Arc::new(Certificates::new(vec![own.clone()]));
    let options = TlsOptions {
        http2,
        ..TlsOptions::default()
    };
    let tls = TlsServer::new(&certificates, &options).unwrap();
    (
        Server::start_tls(model.options(), limits(), (tls, client)),
        own,
    )
}

/// A connection to it, once its handshake is done.
fn connect(server: &Server, mut config: ClientConfig, offered: &[&str]) -> TlsStream {
    config.alpn_protocols = offered.iter().map(|it| it.as_bytes().to_vec()).collect();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(server.address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut stream = StreamOwned::new(connection, socket);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).unwrap();
    }
    stream
}

type TlsStream = StreamOwned<ClientConnection, TcpStream>;

fn a_request_for_another_host_is_misdirected(model: Model) {
    let (server, own) = start(model, Http2::On);
    for (host, status) in [
        ("localhost", 200),
        ("LOCALHOST:8443", 200),
        ("other.example", 421),
    ] {
        let mut stream = connect(&server, client_of(&own, &[&TLS13]), &["h2"]);
        let (head, _) = get_over(&mut stream, host, "/-/echo");
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status} ")),
            "{host}: {head}"
        );
    }
}

fn the_version_is_agreed_on_over_tls(model: Model) {
    const LEN: usize = 1_000_000;
    for (http2, offered, agreed) in [
        (Http2::On, &["h2", "http/1.1"][..], Some("h2")),
        (Http2::On, &["http/1.1", "h2"], Some("h2")),
        (Http2::On, &["http/1.1"], Some("http/1.1")),
        (Http2::On, &[], None),
        (Http2::Off, &["h2", "http/1.1"], Some("http/1.1")),
        (Http2::Only, &["h2", "http/1.1"], Some("h2")),
    ] {
        let (server, own) = start(model, http2);
        let content = pattern(LEN);
        std::fs::write(server.path().join("large.bin"), &content).unwrap();
        for version in [&TLS12, &TLS13] {
            let mut stream = connect(&server, client_of(&own, &[version]), offered);
            let protocol = stream.conn.alpn_protocol().map(<[u8]>::to_vec);
            assert_eq!(protocol.as_deref(), agreed.map(str::as_bytes));
            if agreed == Some("h2") {
                let (head, got) = get_over(&mut stream, "localhost", "/large.bin");
                assert!(head.starts_with("HTTP/1.1 200 ") && got == content);
            } else {
                let get = "GET /large.bin HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
                stream.write_all(get.as_bytes()).unwrap();
                let mut response = Vec::new();
                stream.read_to_end(&mut response).unwrap();
                assert!(response.starts_with(b"HTTP/1.1 200 ") && response.ends_with(&content));
            }
        }
    }
}

fn a_drain_finishes_streams(model: Model) {
    over_http2(drain, model);
}

fn drain(model: Model) {
    let server = Server::start(model);
    let mut client = server.connect();
    // The second one has arrived behind the first, and overtakes it where a worker has that.
    client.send(format!("GET /-/gate HTTP/1.1\r\nHost: h\r\n\r\n{GET}"));
    server.site.gate.await_waiting(1);
    server.control.drain();
    server.site.gate.open();
    assert_eq!(client.answer().body, b"GET /-/gate");
    assert_eq!(client.answer().body, b"GET /-/echo");
    client.end();
    drop(client); // the server waits for its end, so that it reads GOAWAY
    assert_eq!(server.end(), 0);
}
