//! What reaches the app over TLS: who the client's certificate says it is, and early data.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::thread;

use loadline_base::Buffer;
use loadline_proto::Layer as _;
use loadline_tls::{
    Authorities, Certificate, Certificates, ClientCertificates, Profile, TlsClient, TlsOptions,
    TlsServer, self_signed,
};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::answers::{Answer, parse_answers};
use crate::app::pattern;
use crate::client::TIMEOUT;
use crate::client_certificate::authority_and_client;
use crate::fixture::{Running, is_over_http2, is_whole};
use crate::model::Model;
use crate::translated::Translated;
use crate::translated_tls::{RECORDS, connect};

every_model! {
    the_subject_of_a_clients_certificate,
    transport_security_is_said_once,
    early_data_is_marked_and_never_changes_anything,
    an_early_data_field_of_the_clients_own,
    an_echo_in_records_of_odd_sizes,
    a_slow_reader_of_much_content,
}

/// For the name of the handshake, and for the host of the requests: another one is 421 over HTTP/2.
fn own_certificate() -> Certificate {
    self_signed(&["localhost".to_owned(), "h".to_owned()]).unwrap()
}

pub fn the_subject_of_a_clients_certificate(model: Model) {
    let (authority, certificate_of_ada) = authority_and_client();
    let authority = Authorities::from_pem("ca.pem", authority.as_bytes()).unwrap();
    let own = own_certificate();
    let trusted = Authorities::one(own.der()).unwrap();
    let options = TlsOptions {
        client_certificates: ClientCertificates::Optional(authority),
        ..TlsOptions::default()
    };
    let tls = TlsServer::new(&Arc::new(Certificates::new(vec![own])), &options).unwrap();
    let server = Running::start_tls(model, tls.protocol());
    let nobody = TlsClient::new(&trusted, Profile::Intermediate).unwrap();
    let ada =
        TlsClient::with_certificate(&trusted, Profile::Intermediate, &certificate_of_ada).unwrap();
    // The second round is of resumed sessions.
    for resumed in [0, 2] {
        for (client, subject) in [(&ada, "CN=ada"), (&nobody, "nobody")] {
            let mut client = connect(client, server.address, is_over_http2());
            for _ in 0..2 {
                let said = String::from_utf8(client.get("/whoami", "").body).unwrap();
                assert_eq!(said, format!("{subject} by TLSv1.3 at localhost"));
            }
            client.half_close().end();
        }
        assert_eq!(tls.counts().resumed, resumed);
    }
    // Who uses no TLS is nobody without it.
    let plain = Running::start(model);
    assert_eq!(plain.connect().get("/whoami", "").status, 500);
}

/// By the app, if it says it, else by the server.
pub fn transport_security_is_said_once(model: Model) {
    let own = own_certificate();
    let trusted = Authorities::one(own.der()).unwrap();
    let options = TlsOptions {
        hsts_max_age_s: Some(9),
        ..TlsOptions::default()
    };
    let tls = TlsServer::new(&Arc::new(Certificates::new(vec![own])), &options).unwrap();
    let server = Running::start_tls(model, tls.protocol());
    let client = TlsClient::new(&trusted, Profile::Intermediate).unwrap();
    let mut client = connect(&client, server.address, is_over_http2());
    for (target, said) in [("/hello", "max-age=9"), ("/own-security", "max-age=7")] {
        let answer = client.get(target, "");
        let field = answer.field("strict-transport-security");
        assert_eq!(field, Some(said), "{target}");
    }
}

/// A server and a client of a name.
fn ends() -> (TlsServer, TlsClient) {
    let own = own_certificate();
    let trusted = Authorities::one(own.der()).unwrap();
    let client = TlsClient::new(&trusted, Profile::Intermediate).unwrap();
    let certificates = Arc::new(Certificates::new(vec![own]));
    let server = TlsServer::new(&certificates, &TlsOptions::default()).unwrap();
    (server, client)
}

/// Each piece in a record of its own.
fn send_in_records(tls: &Mutex<ClientConnection>, mut stream: &TcpStream, mut bytes: &[u8]) {
    for len in RECORDS.into_iter().cycle() {
        if bytes.is_empty() {
            return;
        }
        let (record, rest) = bytes.split_at(len.min(bytes.len()));
        let mut out = Vec::new();
        let mut locked = tls.lock().unwrap();
        locked.writer().write_all(record).unwrap();
        while locked.wants_write() {
            locked.write_tls(&mut out).unwrap();
        }
        drop(locked);
        stream.write_all(&out).unwrap();
        bytes = rest;
    }
}

/// Everything until `close_notify`.
fn read_all(tls: &Mutex<ClientConnection>, mut stream: &TcpStream) -> Vec<u8> {
    let (mut plain, mut piece) = (Vec::new(), [0; 10_007]);
    loop {
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "the end without close_notify");
        let (mut locked, mut rest) = (tls.lock().unwrap(), &piece[..count]);
        while !rest.is_empty() {
            locked.read_tls(&mut rest).unwrap();
            let state = locked.process_new_packets().unwrap();
            let len = plain.len();
            plain.resize(len + state.plaintext_bytes_to_read(), 0);
            locked.reader().read_exact(&mut plain[len..]).unwrap();
            if state.peer_has_closed() {
                return plain;
            }
        }
    }
}

/// Content of more than all windows goes through the app in both directions at once.
pub fn an_echo_in_records_of_odd_sizes(model: Model) {
    const LEN: usize = 3 << 20;
    let (tls, client) = ends();
    let server = Running::start_tls(model, tls.protocol());
    let content = pattern(LEN);
    let mut chunked = Vec::new();
    for piece in content.chunks(99_999) {
        write!(chunked, "{:x}\r\n", piece.len()).unwrap();
        chunked.extend_from_slice(piece);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    for (framing, body) in [
        (format!("Content-Length: {LEN}"), &content),
        ("Transfer-Encoding: chunked".to_owned(), &chunked),
    ] {
        let head = "POST /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\n";
        let head = format!("{head}{framing}\r\n\r\n");
        let answer = match is_over_http2() {
            true => echo_by_streams(&server, &client, &head, body),
            false => echo_by_http1(&server, &client, &head, body),
        };
        assert!(answer.body == content, "{framing}");
    }
}

fn echo_by_http1(server: &Running, client: &TlsClient, head: &str, body: &[u8]) -> Answer {
    let stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(TIMEOUT)).unwrap();
    let mut opened = client.stream("localhost", stream).unwrap();
    opened.conn.complete_io(&mut opened.sock).unwrap();
    let (tls, stream) = (Mutex::new(opened.conn), opened.sock);
    let received = thread::scope(|scope| {
        let reading = scope.spawn(|| read_all(&tls, &stream));
        send_in_records(&tls, &stream, head.as_bytes());
        send_in_records(&tls, &stream, body);
        reading.join().unwrap()
    });
    parse_answers(&received, |_| false).remove(0)
}

/// Windows bound what is sent at a time: more of it follows as the response comes.
fn echo_by_streams(server: &Running, client: &TlsClient, head: &str, body: &[u8]) -> Answer {
    let mut client = connect(client, server.address, is_over_http2());
    let answer = client.send(head).send(body).answer();
    client.half_close().end();
    answer
}

/// More than sockets hold, so that the app and the layer have to wait for the client.
pub fn a_slow_reader_of_much_content(model: Model) {
    const LEN: usize = 5_000_001;
    let (tls, client) = ends();
    let server = Running::start_tls(model, tls.protocol());
    let mut client = connect(&client, server.address, is_over_http2());
    client.receive_little().receive_pieces(4099);
    client.send_last(&format!("/unknown/{LEN}"));
    let answers = parse_answers(&client.rest(), |_| false);
    assert!(answers[0].body == pattern(LEN));
    assert!(client.has_ended(), "close_notify");
}

/// A server that serves early data, and a client that sends it where it may.
fn early_ends() -> (TlsServer, Arc<ClientConfig>) {
    let own = own_certificate();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(own.der().to_vec())).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let mut client = builder.with_root_certificates(roots).with_no_client_auth();
    client.enable_early_data = true;
    client.alpn_protocols = match is_over_http2() {
        true => vec![b"h2".to_vec()],
        false => vec![b"http/1.1".to_vec()],
    };
    let options = TlsOptions {
        early_data: true,
        ..TlsOptions::default()
    };
    let server = TlsServer::new(&Arc::new(Certificates::new(vec![own])), &options);
    (server.unwrap(), Arc::new(client))
}

/// A client of rustls alone, which finishes its handshake when the test says so.
struct EarlyClient {
    stream: TcpStream,
    tls: ClientConnection,
    /// If it speaks HTTP/2.
    streams: Option<Translated>,
    /// What is to be sent first.
    unsent: Buffer,
    /// Its handshake waits: what it has to send is not sent.
    is_holding: bool,
}

impl EarlyClient {
    fn connect(server: &Running, config: &Arc<ClientConfig>) -> Self {
        let stream = TcpStream::connect(server.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut unsent = Vec::new();
        let streams = is_over_http2().then(|| Translated::new("https", &mut unsent));
        Self {
            stream,
            tls: ClientConnection::new(Arc::clone(config), name).unwrap(),
            streams,
            unsent: unsent.into(),
            is_holding: false,
        }
    }

    /// With a request in its first message, and no more of the handshake.
    fn connect_with(server: &Running, config: &Arc<ClientConfig>, early: &str) -> Self {
        let mut client = Self::connect(server, config);
        let early = client.encoded(early);
        let mut writer = client.tls.early_data().expect("a session for it");
        writer.write_all(&early).unwrap();
        client.flush();
        client.is_holding = true;
        client
    }

    fn finish_handshake(&mut self) {
        self.is_holding = false;
        self.flush();
        assert!(self.tls.is_early_data_accepted());
    }

    fn flush(&mut self) {
        let mut out = Vec::new(); // one write, so that the first message and its early data stay together
        while self.tls.wants_write() {
            self.tls.write_tls(&mut out).unwrap();
        }
        self.stream.write_all(&out).unwrap();
    }

    /// A request of HTTP/1 as its bytes are in this version.
    fn encoded(&mut self, request: &str) -> Buffer {
        let mut out = std::mem::take(&mut self.unsent);
        match &mut self.streams {
            Some(streams) => streams.send(request.as_bytes(), &mut out),
            None => out.extend_from_slice(request.as_bytes()),
        }
        out
    }

    fn ask(&mut self, request: &str) -> Answer {
        let request = self.encoded(request);
        self.tls.writer().write_all(&request).unwrap();
        self.answer()
    }

    /// The next response, whose length its head says.
    fn answer(&mut self) -> Answer {
        let mut plain = Buffer::default();
        loop {
            if !self.is_holding {
                self.flush();
            }
            let mut received = Vec::new();
            match self.tls.reader().read_to_end(&mut received) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("{error}"),
            }
            self.take_in(&mut received, &mut plain);
            if is_whole(&plain) {
                return parse_answers(&plain, |_| false).remove(0);
            }
            assert!(self.tls.read_tls(&mut self.stream).unwrap() > 0, "the end");
            self.tls.process_new_packets().unwrap();
        }
    }

    fn take_in(&mut self, received: &mut [u8], plain: &mut Buffer) {
        let Some(streams) = &mut self.streams else {
            return plain.extend_from_slice(received);
        };
        let mut out = Buffer::default();
        streams.received(received, plain, &mut out).unwrap();
        self.tls.writer().write_all(&out).unwrap();
    }

    /// Ends it, so that a sequential server goes on.
    fn end(mut self) {
        self.tls.send_close_notify();
        self.flush();
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).unwrap();
    }
}

/// The `Early-Data` fields that the app saw.
fn early_fields(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.status, 200);
    let said = String::from_utf8(answer.body.clone()).unwrap();
    let values = said
        .lines()
        .filter_map(|it| it.strip_prefix("early-data: "));
    values.map(str::to_owned).collect()
}

const GET: &str = "GET /saw HTTP/1.1\r\nHost: localhost\r\n\r\n";
const POST: &str = "POST /swallow HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello";

pub fn early_data_is_marked_and_never_changes_anything(model: Model) {
    let (tls, config) = early_ends();
    let server = Running::start_tls(model, tls.protocol());
    let mut first = EarlyClient::connect(&server, &config);
    assert!(first.tls.early_data().is_none(), "there is no session yet");
    assert!(early_fields(&first.ask(GET)).is_empty());
    first.end();

    // Served before the handshake is done. After it the same connection is like any other.
    let mut get = EarlyClient::connect_with(&server, &config, GET);
    assert_eq!(early_fields(&get.answer()), ["1"]);
    get.finish_handshake();
    assert!(early_fields(&get.ask(GET)).is_empty());
    assert_eq!(get.ask(POST).body, b"5");
    get.end();

    // What the client says itself is replaced, however often it says so.
    let own = GET.replace("\r\n\r\n", "\r\nEarly-Data: 0\r\nEarly-Data: x\r\n\r\n");
    let mut marked = EarlyClient::connect_with(&server, &config, &own);
    assert_eq!(early_fields(&marked.answer()), ["1"]);
    marked.finish_handshake();
    marked.end();

    // Not even begun: the app sees the request that is sent again, and that one alone.
    let mut post = EarlyClient::connect_with(&server, &config, POST);
    assert_eq!(post.answer().status, 425);
    assert_eq!(server.shared.read.load(SeqCst), 5, "of the request before");
    post.finish_handshake();
    assert_eq!(post.ask(POST).body, b"5", "on the same connection");
    assert_eq!(server.shared.read.load(SeqCst), 10);
    post.end();
    let counts = tls.counts();
    assert_eq!((counts.full, counts.resumed, counts.failed), (1, 3, 0));
}

/// RFC 8470 section 5.1: it is passed on, since it says that the request was early on its way to whoever
/// sent it; only the app knows whether that matters.
pub fn an_early_data_field_of_the_clients_own(model: Model) {
    let (tls, config) = early_ends();
    let over_tls = Running::start_tls(model, tls.protocol());
    let request = GET.replace("\r\n\r\n", "\r\nEarly-Data: 1\r\n\r\n");
    let mut client = EarlyClient::connect(&over_tls, &config);
    assert_eq!(early_fields(&client.ask(&request)), ["1"]);
    assert_eq!(
        client
            .ask(&POST.replace("Host", "Early-Data: 1\r\nHost"))
            .body,
        b"5"
    );
    assert!(early_fields(&client.ask(GET)).is_empty());
    client.end();
    let plain = Running::start(model);
    assert_eq!(
        early_fields(&plain.connect().get("/saw", "Early-Data: 1\r\n")),
        ["1"]
    );
}
