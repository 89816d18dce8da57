//! The program with Pebble as authority: a certificate for each name under every architecture by both kinds
//! of validation, and a restart.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::thread;

use loadline_tls::{Authorities, Profile, TlsClient};

use crate::alone;
use crate::pebble::{Pebble, Trouble};
use crate::program::{Server, architectures, site};

const NAMES: [&str; 2] = ["a.example.org", "b.example.org"];

/// Of an account that Pebble asks for.
const KEY: &str = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";

/// The content of the start page, and the names of the certificate that came with it.
fn get(address: SocketAddr, name: &str, trusted: &Authorities) -> String {
    let client = TlsClient::new(trusted, Profile::Intermediate).unwrap();
    let socket = TcpStream::connect(address).unwrap();
    let mut stream = client.stream(name, socket).unwrap();
    let request = format!("GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
#[ignore = "long: 20 s, and Pebble"]
fn certificates_of_pebble_under_every_architecture() {
    let _alone = alone();
    for architecture in architectures() {
        // Both kinds of validation at the same time: for the most part they wait.
        thread::scope(|scope| {
            for is_plain in [true, false] {
                scope.spawn(move || check_certificates(architecture, is_plain));
            }
        });
    }
}

/// Names are validated over HTTP, or over TLS: without an http address there is nothing else.
fn check_certificates(architecture: &str, is_plain: bool) {
    // Ports that Pebble knows before the server starts.
    let ports = [(), ()].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [http, https] = ports.map(|it| it.local_addr().unwrap());
    let trouble = Trouble {
        sleep_s: 1,
        nonces_rejected_percent: 5,
        blocked: Vec::new(),
        external_key: Some(("kid-1".to_owned(), KEY.to_owned())),
    };
    let pebble = Pebble::start(http.port(), https.port(), &trouble);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("ca.pem"), pebble.certificate()).unwrap();
    fs::write(path("eab.key"), KEY).unwrap();
    let key = path("eab.key");
    let directory = format!("https://{}/dir", pebble.address());
    let (http, listen) = (http.to_string(), format!("https://{https}"));
    let (ca, state) = (path("ca.pem"), path("state"));
    let mut all = vec!["--architecture", architecture, "--listen", &listen];
    if is_plain {
        all.extend(["--listen", &http, "--https-redirect"]);
    }
    all.extend(["--acme", "you@example.org", "--acme-agree-to-terms"]);
    all.extend(["--acme-eab-kid", "kid-1", "--acme-eab-key", &key]);
    all.extend(["--acme-domain", NAMES[0], "--acme-domain", NAMES[1]]);
    all.extend([
        "--acme-directory",
        &directory,
        "--acme-ca",
        &ca,
        "--acme-dir",
        &state,
    ]);
    let site = site();
    let server = Server::start_with(site.path(), &all, Stdio::null());
    for _ in NAMES {
        server.line_with("a certificate until");
    }
    for name in NAMES {
        let response = get(https, name, &pebble.root());
        assert!(response.contains("hello"), "{architecture}: {response}");
    }
    drop(server);
    let root = pebble.root();
    drop(pebble);
    let server = Server::start_with(site.path(), &all, Stdio::null());
    let response = get(https, NAMES[1], &root);
    assert!(
        response.contains("hello"),
        "{architecture}: without an authority"
    );
    drop(server);
}
