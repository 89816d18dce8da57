//! TLS as people get it: certificates from files that change, one for trying things out, redirects.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Stdio;

use loadline_base::Buffer;
use loadline_proto::Layer as _;
use loadline_tls::{Authorities, Profile, TlsClient};
use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;

use crate::util::{Server, architectures, exchange, run, site};

/// Writes a certificate for `localhost` and its key.
fn write_pair(folder: &Path) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["localhost".to_owned()]).unwrap();
    let certificate = certificate.self_signed(&key).unwrap();
    fs::write(folder.join("c.pem"), certificate.pem()).unwrap();
    fs::write(folder.join("k.pem"), key.serialize_pem()).unwrap();
}

/// A server with a certificate in a folder of its own.
fn start(site: &Path, more: &[&str]) -> (Server, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    write_pair(folder.path());
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (certificate, key) = (path("c.pem"), path("k.pem"));
    let own = [
        "--listen",
        "https://127.0.0.1:0",
        "--tls-cert",
        &certificate,
        "--tls-key",
        &key,
    ];
    let server = Server::start_with(site, &[&own, more].concat(), Stdio::null());
    (server, folder)
}

fn https_address(server: &Server) -> SocketAddr {
    let mut words = (server.start_up.iter()).flat_map(|line| line.split_ascii_whitespace());
    let url = words
        .find_map(|word| word.strip_prefix("https://"))
        .unwrap();
    url.trim_end_matches('/').parse().unwrap()
}

fn get_by_https(server: &Server, trusted: &Path, target: &str) -> Option<String> {
    get_at(https_address(server), trusted, target)
}

/// The response to a GET by a client that trusts the certificate in this folder; `None`: it does not
/// trust the server.
fn get_at(address: SocketAddr, trusted: &Path, target: &str) -> Option<String> {
    let authorities = Authorities::from_file(&trusted.join("c.pem")).unwrap();
    let client = TlsClient::new(&authorities, Profile::Intermediate).unwrap();
    let (mut plain, mut out) = (Buffer::default(), Buffer::default());
    let mut layer = client.connect("localhost", &mut out).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let mut is_asked = false;
    let mut piece = [0; 4096];
    while !layer.has_ended() {
        if layer.is_open() && !is_asked {
            is_asked = true;
            let request =
                format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
            layer.send(request.as_bytes(), &mut out);
        }
        let _ = stream.write_all(&out); // the server may have closed by then
        out.clear();
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "the end without close_notify");
        if layer
            .received(&mut piece[..count], &mut plain, &mut out)
            .is_err()
        {
            return None;
        }
    }
    Some(String::from_utf8(plain.to_vec()).unwrap())
}

#[test]
fn a_page_under_every_architecture() {
    let site = site();
    for architecture in architectures() {
        let (server, folder) = start(site.path(), &["--architecture", architecture]);
        let response = get_by_https(&server, folder.path(), "/").unwrap();
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
        assert!(response.ends_with("<p>hello</p>"), "{response}");
    }
}

#[test]
fn a_renewed_certificate_is_taken_up() {
    let site = site();
    let (server, folder) = start(site.path(), &[]);
    let before = tempfile::tempdir().unwrap();
    fs::copy(folder.path().join("c.pem"), before.path().join("c.pem")).unwrap();
    assert!(get_by_https(&server, folder.path(), "/").is_some());
    write_pair(folder.path());
    server.line_with("certificates taken up again");
    assert!(get_by_https(&server, folder.path(), "/").is_some());
    assert!(get_by_https(&server, before.path(), "/").is_none());
}

#[test]
fn a_broken_one_is_told_and_the_old_one_stays() {
    let site = site();
    let (server, folder) = start(site.path(), &[]);
    fs::write(folder.path().join("k.pem"), "nothing").unwrap();
    server.signal("HUP");
    let line = server.line_with("certificates of before stay in service");
    assert!(line.contains("k.pem: no private key in it"), "{line}");
    assert!(get_by_https(&server, folder.path(), "/").is_some());
}

#[test]
fn a_certificate_for_trying_things_out() {
    let (site, folder) = (site(), tempfile::tempdir().unwrap());
    write_pair(folder.path());
    let more = ["--tls", "self-signed", "--listen", "https://127.0.0.1:0"];
    let server = Server::start_with(site.path(), &more, Stdio::null());
    server.line_with("signed by nobody");
    // Nobody trusts it, and who speaks HTTP is told.
    assert!(get_by_https(&server, folder.path(), "/").is_none());
    let mut stream = TcpStream::connect(https_address(&server)).unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("speaks HTTPS"), "{answer}");
}

#[test]
fn http_leads_to_https() {
    let site = site();
    let more = [
        "--listen",
        "127.0.0.1:0",
        "--https-redirect",
        "--hsts",
        "365",
    ];
    let (server, folder) = start(site.path(), &more);
    let (head, _) = exchange(server.connect(), "/a?b=c");
    let port = https_address(&server).port();
    assert!(head.starts_with("HTTP/1.1 308 "), "{head}");
    let location = format!("\r\nLocation: https://x:{port}/a?b=c\r\n");
    assert!(
        head.contains(&location) && !head.contains("Strict-Transport"),
        "{head}"
    );
    let (head, _) = exchange(server.connect(), "/-/health");
    assert!(
        head.starts_with("HTTP/1.1 200 "),
        "a probe is answered: {head}"
    );
    let response = get_by_https(&server, folder.path(), "/missing").unwrap();
    assert!(response.starts_with("HTTP/1.1 404 "), "{response}");
    assert!(response.contains("\r\nStrict-Transport-Security: max-age=31536000\r\n"));
}

#[test]
fn what_cannot_be_served_is_refused_in_one_line() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_pair(one.path());
    write_pair(other.path());
    let path = |folder: &TempDir, name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (certificate, key) = (path(&one, "c.pem"), path(&one, "k.pem"));
    for (certificate, key, why) in [
        (
            &certificate,
            &path(&other, "k.pem"),
            "does not belong to the certificate",
        ),
        (&path(&one, "missing.pem"), &key, "No such file"),
        (&certificate, &certificate, "no private key in it"),
    ] {
        let listen = ["serve", "--listen", "https://127.0.0.1:0"];
        let files = ["--tls-cert", certificate, "--tls-key", key];
        let output = run(&[&listen[..], &files].concat());
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(
            message.contains("--tls-cert: ") && message.contains(why),
            "{message}"
        );
        assert_eq!(message.trim_end().lines().count(), 1, "{message}");
    }
}

#[test]
fn the_servers_own_pages_by_https() {
    let (site, folder) = (site(), tempfile::tempdir().unwrap());
    write_pair(folder.path());
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (certificate, key) = (path("c.pem"), path("k.pem"));
    let pages = ["--admin-listen", "https://127.0.0.1:0"];
    let pair = ["--tls-cert", &certificate, "--tls-key", &key];
    let server = Server::start(site.path(), &[&pages[..], &pair].concat());
    let line = server.line_with("status page at https://127.0.0.1:");
    let (_, url) = line.split_once("https://").unwrap();
    let (address, path) = url.split_once('/').unwrap();
    assert_eq!(path, "-/status");
    let address: SocketAddr = address.parse().unwrap();
    let get = |target: &str| get_at(address, folder.path(), target).unwrap();
    assert!(get("/-/health").ends_with("alive\n"));
    let response = get("/-/status");
    let (_, content) = response.split_once("\r\n\r\n").unwrap();
    let page: serde_json::Value = serde_json::from_str(content).expect(content);
    assert_eq!(page["tls"]["handshakes_full"], 0, "none of its own");
    assert_eq!(page["tls"]["certificates"], 1);
    assert!(get("/").starts_with("HTTP/1.1 404 "));
    let plain = TcpStream::connect(address).unwrap();
    assert!(exchange(plain, "/-/health").0.starts_with("HTTP/1.1 400 "));
    // The site has an address of its own, without TLS.
    let (head, content) = exchange(server.connect(), "/");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(content, "<p>hello</p>");
}
