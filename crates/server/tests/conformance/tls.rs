//! TLS over sockets, under every model: the cases that show what a layer could break, and TLS's own.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use loadline_proto::Limits;
use loadline_server::{Architecture, ServerOptions, SocketIo};
use loadline_tls::{
    Authorities, Certificate, Certificates, Profile, TlsClient, TlsOptions, TlsServer, self_signed,
};
use rustls::client::{Resumption, Tls12Resumption};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::TLS12;
use rustls::{
    ClientConfig, ClientConnection, ProtocolVersion, RootCertStore, StreamOwned,
    SupportedProtocolVersion,
};

use crate::client::TIMEOUT;
use crate::failures::LARGE;
use crate::fixture::{Model, Server, connect_by, eventually, limits, pattern, tls_ends};

/// Cases of other files, over TLS.
macro_rules! every_model_over_tls {
    ($($(#[$attribute:meta])? $file:ident::$case:ident,)*) => {
        $(mod $case {
            fn over_tls(model: crate::model::Model) {
                crate::fixture::over_tls(crate::$file::$case, model);
            }
            every_model! { $(#[$attribute])? over_tls, }
        })*
    };
}

every_model_over_tls! {
    files::files_byte_for_byte,
    files::head_says_what_get_says,
    framing::well_formed_requests_on_one_connection,
    framing::bad_requests_are_answered_and_end_the_connection,
    framing::pipelined_requests_are_answered_in_order,
    framing::bodies_of_every_framing,
    framing::content_beyond_the_limit,
    connections::a_half_close_still_gets_its_answers,
    connections::clients_that_vanish_leave_nothing_behind,
    connections::an_idle_connection_is_closed_without_an_answer,
    connections::many_clients_at_once,
    later::an_answer_of_a_task,
    shutdown::a_drain_closes_idle_connections_at_once,
    shutdown::a_drain_finishes_what_was_accepted,
    last_words::a_last_answer_is_whole_though_more_came_behind_its_request,
    replaced::a_rename_over_a_file_cut_those_who_were_downloading_it,
    replaced::permissions_and_links_cut_those_who_were_downloading_a_file,
    failures::a_file_rewritten_while_it_is_sent_never_completes_mixed,
    #[ignore = "long: half a second for each model, or more"]
    replaced::fifty_renames_under_load_cut_no_answer,
}

every_model! {
    sessions_are_resumed,
    an_end_without_close_notify_is_counted,
    a_cut_response_has_no_end,
    a_response_of_an_app_that_was_cut_has_no_end,
    what_is_no_tls_ends_at_once,
    a_client_that_stops_in_the_middle_is_closed,
    handshakes_of_many_clients_at_once,
    handshakes_of_tls_1_2_are_full_or_resumed,
    a_large_file_to_a_slow_reader,
}

const GET: &str = "GET /-/echo HTTP/1.1\r\nHost: h\r\n\r\n";

pub fn start(model: Model, limits: Limits) -> Server {
    Server::start_tls(model.options(), limits, tls_ends(&TlsOptions::default()))
}

pub fn sessions_are_resumed(model: Model) {
    let server = start(model, limits());
    for round in 0..3 {
        let mut client = server.connect();
        client.send(GET).answer();
        client.half_close().end();
        assert!(client.has_ended(), "close_notify");
        let (tls, _) = server.tls.as_ref().unwrap();
        assert_eq!((tls.counts().full, tls.counts().resumed), (1, round));
    }
}

fn an_end_without_close_notify_is_counted(model: Model) {
    let server = start(model, limits());
    let (tls, _) = server.tls.as_ref().unwrap();
    let mut client = server.connect();
    client.send(GET).answer();
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    client.end();
    eventually("it is counted", || tls.counts().truncated == 1);
}

/// A client of rustls alone that offers nothing newer than TLS 1.2.
fn client_of_tls_1_2(trusted: &Certificate, resumption: Resumption) -> Arc<ClientConfig> {
    let mut config = client_of(trusted, &[&TLS12]);
    config.resumption = resumption;
    Arc::new(config)
}

/// A client of rustls alone.
pub fn client_of(
    trusted: &Certificate,
    versions: &[&'static SupportedProtocolVersion],
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    let der = CertificateDer::from(trusted.der().to_vec());
    roots.add(der).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(versions).unwrap();
    builder.with_root_certificates(roots).with_no_client_auth()
}

fn handshakes_of_tls_1_2_are_full_or_resumed(model: Model) {
    const LEN: usize = 200_000;
    let own = self_signed(&["localhost".to_owned()]).unwrap();
    let trusted = Authorities::one(own.der()).unwrap();
    let client = TlsClient::new(&trusted, Profile::Intermediate).unwrap();
    let certificates = Arc::new(Certificates::new(vec![own.clone()]));
    let tls = TlsServer::new(&certificates, &TlsOptions::default()).unwrap();
    let server = Server::start_tls(model.options(), limits(), (tls.clone(), client));
    let content = pattern(LEN);
    let head = format!("POST /-/echo HTTP/1.1\r\nHost: h\r\nContent-Length: {LEN}\r\n");
    let tickets = Resumption::in_memory_sessions(8);
    let ids = Resumption::in_memory_sessions(8).tls12_resumption(Tls12Resumption::SessionIdOnly);
    for (resumption, full, resumed) in
        [(tickets, 1, 2), (ids, 1, 2), (Resumption::disabled(), 3, 0)]
    {
        let before = tls.counts();
        let config = client_of_tls_1_2(&own, resumption);
        for _ in 0..3 {
            let name = ServerName::try_from("localhost").unwrap();
            let connection = ClientConnection::new(Arc::clone(&config), name).unwrap();
            let socket = TcpStream::connect(server.address).unwrap();
            socket.set_read_timeout(Some(TIMEOUT)).unwrap();
            let mut stream = StreamOwned::new(connection, socket);
            write!(stream, "{head}Connection: close\r\n\r\n").unwrap();
            stream.write_all(&content).unwrap();
            let mut response = Vec::new();
            stream.read_to_end(&mut response).unwrap(); // fails without close_notify
            assert!(response.starts_with(b"HTTP/1.1 200 "));
            assert!(response.ends_with(&content));
            assert_eq!(
                stream.conn.protocol_version(),
                Some(ProtocolVersion::TLSv1_2)
            );
        }
        let after = tls.counts();
        let counted = (after.full - before.full, after.resumed - before.resumed);
        assert_eq!(counted, (full, resumed));
        assert_eq!((after.failed, after.refused), (0, 0));
    }
}

/// More than sockets hold: pieces are read, encrypted and sent as the client takes them.
fn a_large_file_to_a_slow_reader(model: Model) {
    let server = start(model, limits());
    let content = pattern(*LARGE);
    std::fs::write(server.path().join("large.bin"), &content).unwrap();
    let mut client = server.connect();
    client.receive_little().receive_pieces(4099);
    assert!(client.get("/large.bin", "").body == content);
    client.send(GET).answer();
    client.half_close().end();
}

fn a_cut_response_has_no_end(model: Model) {
    let server = start(model, limits());
    let path = server.path().join("victim.bin");
    std::fs::write(&path, pattern(*LARGE)).unwrap();
    let mut client = server.connect();
    client.receive_little();
    client.send("GET /victim.bin HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    eventually("the response has begun", || {
        server.control.snapshot().total.bytes_out > 100_000
    });
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_len(1000).unwrap();
    assert!(client.rest().len() < *LARGE);
    assert!(
        !client.has_ended(),
        "close_notify would say that it is whole"
    );
}

fn a_response_of_an_app_that_was_cut_has_no_end(model: Model) {
    let limits = Limits {
        app_silence_timeout_ms: 300,
        ..limits()
    };
    let server = start(model, limits);
    // A client of HTTP/1.0 has nothing else to go by.
    for (target, is_whole) in [("begun", false), ("slowly", true)] {
        let mut client = server.connect();
        client.send(format!("GET /-/later/{target} HTTP/1.0\r\n\r\n"));
        let response = client.rest();
        assert!(response.starts_with(b"HTTP/1.1 200 "), "{target}");
        assert_eq!(client.has_ended(), is_whole, "close_notify after {target}");
    }
}

fn what_is_no_tls_ends_at_once(model: Model) {
    let server = start(model, limits());
    let (tls, _) = server.tls.as_ref().unwrap();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(GET.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        assert!(bytes.starts_with(b"HTTP/1.1 400 "), "{bytes:?}");
    }
    assert_eq!(tls.counts().plaintext, 3);
    assert_eq!(server.connect().send(GET).answer().status, 200);
}

fn a_client_that_stops_in_the_middle_is_closed(model: Model) {
    let limits = Limits {
        handshake_timeout_ms: 300,
        ..limits()
    };
    let server = start(model, limits);
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(b"\x16\x03\x01\x01\x00\x01").unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    assert!(bytes.is_empty(), "{bytes:?}");
    assert_eq!(server.connect().send(GET).answer().status, 200);
}

fn handshakes_of_many_clients_at_once(model: Model) {
    let server = start(model, limits());
    let (tls, client) = server.tls.as_ref().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..6 {
                    let mut client = connect_by(client, server.address);
                    assert_eq!(client.send(GET).answer().status, 200);
                    client.half_close().end();
                }
            });
        }
    });
    let counts = tls.counts();
    assert_eq!(counts.full + counts.resumed, 48);
    assert_eq!((counts.failed, counts.refused, counts.truncated), (0, 0, 0));
    // Who has computed them.
    let options = model.options();
    if has_loops_for_sockets(&options) {
        let total = server.control.snapshot().total;
        match options.workers {
            0 => assert!(total.jobs == 0 && total.blocked_in_place >= 48, "{total:?}"),
            _ => assert!(total.jobs >= 48 && total.blocked_in_place == 0, "{total:?}"),
        }
    }
}

/// Where computing is another thread's work, if there is one.
pub fn has_loops_for_sockets(options: &ServerOptions) -> bool {
    let is_loop = matches!(
        options.architecture,
        Architecture::Reactor | Architecture::Proactor
    );
    is_loop && options.socket_io == SocketIo::Loop
}
