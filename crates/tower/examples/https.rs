//! An app over https that greets its client by the name in the client's certificate:
//! `https CERT KEY [CLIENT_CA]`. Without the third file no client is asked for a certificate.
//!
//! `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost
//! -addext subjectAltName=DNS:localhost -out c.pem -keyout k.pem` makes a certificate to try it with;
//! then `curl --cacert c.pem https://localhost:8443/`.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program of its own"
)]

use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use axum::routing::get;
use axum::{Extension, Router};
use loadline_server::Server;
use loadline_tls::TlsFiles;
use loadline_tower::{Security, Tower};

async fn greet(Extension(tls): Extension<Arc<Security>>) -> String {
    let client = tls.client_subject.as_deref().unwrap_or("nobody");
    format!("hello {client}, by {}\n", tls.version)
}

fn serve(files: TlsFiles) -> io::Result<()> {
    let app = Router::new().route("/", get(greet));
    let server = Server::new(Tower::new(app)?)
        .listen_tls(([127, 0, 0, 1], 8443), files.open()?)
        .start()?;
    println!("serving at https://localhost:8443/");
    server.wait().map(drop)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let files = match &arguments[..] {
        [certificate, key] => TlsFiles::new(certificate, key),
        [certificate, key, ca] => TlsFiles::new(certificate, key).optional_client_ca(ca),
        _ => {
            eprintln!("right would be: https CERT KEY [CLIENT_CA]");
            return ExitCode::from(2);
        }
    };
    if let Err(error) = serve(files) {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
