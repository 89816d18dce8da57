//! An app over https from files, on a server that is built in code. A program of its own: a signal is for all
//! servers of a process, and what listens to logs listens to all threads.

#![allow(clippy::unwrap_used, reason = "a test may")]
#![allow(unreachable_pub, reason = "modules of a test")]
#![allow(dead_code, reason = "what it shares with other suites it uses in part")]

#[macro_use]
#[expect(unused_macros, reason = "a part of it is used here")]
#[path = "../../server/tests/conformance/model.rs"]
mod model;
#[path = "../../proto/tests/drive/answers.rs"]
mod answers;
#[path = "../../server/tests/conformance/client.rs"]
mod client;
#[path = "shared/client_certificate.rs"]
mod client_certificate;
#[path = "../../server/tests/shared/log.rs"]
mod log;
#[path = "../../server/tests/conformance/translated.rs"]
mod translated;

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::routing::get;
use axum::{Extension, Router};
use client::TIMEOUT;
use client_certificate::authority_and_client;
use loadline_base::Buffer;
use loadline_proto::Layer as _;
use loadline_server::{Server, ServerHandle};
use loadline_tls::{
    Authorities, Certificate, Profile, TlsClient, TlsClientOptions, TlsError, TlsFiles, TlsOptions,
};
use loadline_tower::{Security, Tower};
use log::Log;
use model::Model;
use rcgen::{CertificateParams, KeyPair};
use rustix::process::{Signal, getpid, kill_process};
use rustls::{ClientConnection, StreamOwned};
use translated::Translated;

const MODELS: [Model; 2] = [Model::Reactor1xM, Model::ThreadPool];

type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// Another file each time: within a tick of the kernel's clock, a change of the same one may not show.
fn put(path: &Path, pem: &str) {
    let new = path.with_extension("new");
    fs::write(&new, pem).unwrap();
    fs::rename(&new, path).unwrap();
}

/// A certificate for this name, and its key.
fn write_pair(folder: &Path, name: &str) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new([name.to_owned()]).unwrap();
    let certificate = certificate.self_signed(&key).unwrap();
    put(&folder.join("c.pem"), &certificate.pem());
    put(&folder.join("k.pem"), &key.serialize_pem());
}

fn files(folder: &Path) -> TlsFiles {
    TlsFiles::new(folder.join("c.pem"), folder.join("k.pem"))
}

/// An authority, in its file, and a certificate of it for a client.
fn write_authority(path: &Path) -> Certificate {
    let (authority, client) = authority_and_client();
    put(path, &authority);
    client
}

async fn greet(Extension(tls): Extension<Arc<Security>>) -> String {
    let client = tls.client_subject.as_deref().unwrap_or("nobody");
    format!("hello {client}!")
}

fn start(model: Model, files: TlsFiles) -> ServerHandle {
    let app = Tower::new(Router::new().route("/", get(greet))).unwrap();
    Server::new(app)
        .options(model.options())
        .listen_tls(([127, 0, 0, 1], 0), files.open().unwrap())
        .start()
        .unwrap()
}

fn end(server: ServerHandle) {
    server.drain();
    assert!(server.wait().unwrap().is_clean());
}

/// That trusts the certificate in this folder, and shows one of its own.
fn client(folder: &Path, own: Option<&Certificate>) -> TlsClient {
    let trusted = Authorities::from_file(&folder.join("c.pem")).unwrap();
    let options = TlsClientOptions {
        certificate: own.cloned(),
        resumes: false, // which would not ask for the server's certificate again
        ..TlsClientOptions::trusting(&trusted, Profile::Intermediate)
    };
    TlsClient::with(&options).unwrap()
}

/// `None`: the client does not trust the server.
fn connect(client: &TlsClient, address: SocketAddr, name: &str, alpn: &str) -> Option<TlsStream> {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let client = client.asking_for(&[alpn.as_bytes()]);
    let mut stream = client.stream(name, socket).unwrap();
    while stream.conn.is_handshaking() {
        match stream.conn.complete_io(&mut stream.sock) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::InvalidData => return None,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(stream.conn.alpn_protocol(), Some(alpn.as_bytes()));
    Some(stream)
}

fn get_by_http1(client: &TlsClient, address: SocketAddr, name: &str) -> Option<String> {
    let mut stream = connect(client, address, name, "http/1.1")?;
    let request = format!("GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    Some(response)
}

/// The response as HTTP/1.
fn get_by_http2(client: &TlsClient, address: SocketAddr, name: &str) -> Option<String> {
    let mut stream = connect(client, address, name, "h2")?;
    let mut preface = Vec::new();
    let mut layer = Translated::new("https", &mut preface);
    let mut out = Buffer::from(preface);
    let request = format!("GET / HTTP/1.1\r\nHost: {name}\r\n\r\n");
    layer.send(request.as_bytes(), &mut out);
    let (mut plain, mut piece) = (Buffer::default(), [0; 4096]);
    while !plain.ends_with(b"!") {
        stream.write_all(&std::mem::take(&mut out)).unwrap();
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "the end after {} bytes", plain.len());
        layer
            .received(&mut piece[..count], &mut plain, &mut out)
            .unwrap();
    }
    Some(String::from_utf8(plain.to_vec()).unwrap())
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "it never came about that {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_app_by_both_versions_of_http_with_several_certificates() {
    for model in MODELS {
        let folders = [(), ()].map(|()| tempfile::tempdir().unwrap());
        let [one, two] = [folders[0].path(), folders[1].path()];
        write_pair(one, "localhost");
        write_pair(two, "other.test");
        let ada = write_authority(&one.join("ca.pem"));
        let files = files(one)
            .and(two.join("c.pem"), two.join("k.pem"))
            .optional_client_ca(one.join("ca.pem"))
            .reload_on_hang_up(false); // another test counts what the signal does
        let server = start(model, files);
        let address = server.tcp_address().unwrap();
        for (folder, name, own, said) in [
            (one, "localhost", None, "hello nobody!"),
            (one, "localhost", Some(&ada), "hello CN=ada!"),
            (two, "other.test", None, "hello nobody!"),
        ] {
            let client = client(folder, own);
            for response in [
                get_by_http1(&client, address, name),
                get_by_http2(&client, address, name),
            ] {
                let response = response.expect("the certificate for this name");
                assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
                assert!(response.ends_with(said), "{response}");
            }
        }
        end(server);
    }
}

#[test]
fn files_are_taken_up_again_when_they_change_and_at_a_hang_up() {
    let log = Log::listen(tracing::Level::INFO);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_pair(folder, "localhost");
    let before = client(folder, None);
    let servers = MODELS.map(|model| start(model, files(folder)));
    let addresses = servers.each_ref().map(|it| it.tcp_address().unwrap());
    let serve = |client: &TlsClient| {
        let is_served = |at| get_by_http1(client, at, "localhost").is_some();
        addresses.into_iter().all(is_served)
    };
    assert!(serve(&before));

    // Files that have not changed are taken up by the signal alone.
    let mut logged = String::new();
    kill_process(getpid(), Signal::HUP).unwrap();
    eventually("each server took its files up", || {
        logged.push_str(&log.take());
        logged.matches("certificates taken up again").count() == servers.len()
    });

    write_pair(folder, "localhost");
    let after = client(folder, None);
    eventually("the new certificate is served", || serve(&after));
    for address in addresses {
        assert!(get_by_http1(&before, address, "localhost").is_none());
    }
    servers.into_iter().for_each(end);
}

#[test]
fn what_cannot_be_served_is_an_error_of_one_line_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_pair(folder, "localhost");
    let missing = TlsFiles::new(folder.join("none.pem"), folder.join("k.pem")).open();
    let missing = std::io::Error::from(missing.unwrap_err());
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert!(missing.to_string().contains("none.pem"), "{missing}");
    write_authority(&folder.join("ca.pem"));
    let early = files(folder).options(TlsOptions {
        early_data: true,
        ..TlsOptions::default()
    });
    for refused in [
        early.clone().client_ca(folder.join("ca.pem")),
        early.ticket_keys([folder.join("ticket.key")]),
    ] {
        assert!(matches!(refused.open(), Err(TlsError::EarlyData(_))));
    }
    fs::write(folder.join("k.pem"), "nothing").unwrap();
    let error = files(folder).open().unwrap_err();
    assert!(matches!(error, TlsError::NoKey { .. }), "{error}");
    // As `?` makes it one in a program.
    let (text, error) = (error.to_string(), std::io::Error::from(error));
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(error.to_string(), text);
    assert!(text.contains("k.pem"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}
