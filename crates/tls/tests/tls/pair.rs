//! Both ends of a connection, and certificates for them.

use std::sync::Arc;

use loadline_base::Buffer;
use loadline_proto::{Context, Exchange, Layer as _, Limits, Outcome};
use loadline_tls::{
    Authorities, Certificate, Certificates, Profile, TlsClient, TlsLayer, TlsOptions, TlsServer,
    self_signed,
};

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};

use crate::drive::{Answer, Driver, config, echo, parse_answers};

/// A certificate of its own authority for these names.
pub fn certificate(names: &[&str]) -> Certificate {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    self_signed(&names).unwrap()
}

/// A client that trusts this one.
pub fn trusting(certificate: &Certificate) -> TlsClient {
    trusting_by(certificate, Profile::Intermediate)
}

pub fn trusting_by(certificate: &Certificate, profile: Profile) -> TlsClient {
    TlsClient::new(&Authorities::one(certificate.der()).unwrap(), profile).unwrap()
}

/// A client of rustls alone that trusts this one.
pub fn client_of(
    trusted: &Certificate,
    versions: &[&'static SupportedProtocolVersion],
) -> ClientConfig {
    client_with(trusted, aws_lc_rs::default_provider(), versions)
}

/// The same with this cryptography.
pub fn client_with(
    trusted: &Certificate,
    provider: CryptoProvider,
    versions: &[&'static SupportedProtocolVersion],
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.der().to_vec().into()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(provider));
    let builder = builder.with_protocol_versions(versions).unwrap();
    builder.with_root_certificates(roots).with_no_client_auth()
}

/// A connection of it.
pub fn connection(client: &Arc<ClientConfig>) -> ClientConnection {
    let name = ServerName::try_from("localhost").unwrap();
    ClientConnection::new(Arc::clone(client), name).unwrap()
}

/// What it has to send.
pub fn sent_by(client: &mut ClientConnection) -> Vec<u8> {
    let mut out = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut out).unwrap();
    }
    out
}

/// Passes on what either end has to say; `seen` is how much of the server's the client has read.
pub fn exchange(client: &mut ClientConnection, server: &mut Driver<'_>, seen: &mut usize) {
    loop {
        let out = sent_by(client);
        if out.is_empty() || server.is_closed() {
            return;
        }
        server.feed(&out);
        receive(client, server, seen);
    }
}

/// Passes on what the server has said.
pub fn receive(client: &mut ClientConnection, server: &Driver<'_>, seen: &mut usize) {
    let new = server.output[*seen..].to_vec();
    *seen += new.len();
    let mut new = &new[..];
    while !new.is_empty() {
        client.read_tls(&mut new).unwrap();
        let _ = client.process_new_packets(); // the server's alert is an error here
    }
}

/// The same records with less in each.
pub fn cut_records(records: &[u8], piece: usize) -> Vec<u8> {
    let (mut rest, mut cut) = (records, Vec::new());
    while let [kind, major, minor, high, low, after @ ..] = rest {
        let (content, next) = after.split_at(usize::from(u16::from_be_bytes([*high, *low])));
        for piece in content.chunks(piece) {
            cut.extend_from_slice(&[*kind, *major, *minor]);
            cut.extend_from_slice(&(piece.len() as u16).to_be_bytes());
            cut.extend_from_slice(piece);
        }
        rest = next;
    }
    cut
}

/// A server of this certificate, and a client that trusts it.
pub fn ends(options: &TlsOptions) -> (TlsServer, TlsClient) {
    let certificate = certificate(&["localhost"]);
    let client = trusting(&certificate);
    let certificates = Arc::new(Certificates::new(vec![certificate]));
    (TlsServer::new(&certificates, options).unwrap(), client)
}

/// A client's end, and a driver of the server's session.
pub struct Pair<'h> {
    pub client: TlsLayer,
    pub server: Driver<'h>,
    /// What the client has understood.
    pub plain: Buffer,
    /// What it has to send.
    pub out: Buffer,
    delivered: usize,
    pub piece: usize,
}

impl<'h> Pair<'h> {
    pub fn new(server: &TlsServer, client: &TlsClient) -> Self {
        Self::handling(server, client, "localhost", echo)
    }

    pub fn handling(
        server: &TlsServer,
        client: &TlsClient,
        name: &str,
        handle: impl FnMut(&mut Exchange, &mut Context<'_>) -> Outcome + 'h,
    ) -> Self {
        let mut out = Buffer::default();
        Self {
            client: client.connect(name, &mut out).unwrap(),
            server: Driver::speaking(server.protocol(), &config(Limits::default()), handle),
            plain: Buffer::default(),
            out,
            delivered: 0,
            piece: usize::MAX,
        }
    }

    /// Carries bytes to and fro until nothing moves. `Err`: the client takes the server's for wrong.
    pub fn settle(&mut self) -> Result<(), &'static str> {
        loop {
            let mut moved = false;
            let out = std::mem::take(&mut self.out);
            if !self.server.is_closed() {
                for piece in out.chunks(self.piece.min(out.len()).max(1)) {
                    moved = true;
                    if !self.server.is_closed() {
                        self.server.feed(piece);
                    }
                }
            }
            let mut new = self.server.output[self.delivered..].to_vec();
            self.delivered += new.len();
            let piece = self.piece.min(new.len()).max(1);
            for piece in new.chunks_mut(piece) {
                moved = true;
                let received = self.client.received(piece, &mut self.plain, &mut self.out);
                received.map_err(|fault| fault.text)?;
            }
            if !moved {
                return Ok(());
            }
        }
    }

    /// The handshake.
    pub fn open(&mut self) -> &mut Self {
        self.settle().unwrap();
        assert!(self.client.is_open(), "the handshake is done");
        self
    }

    pub fn send(&mut self, plain: impl AsRef<[u8]>) -> &mut Self {
        self.client.send(plain.as_ref(), &mut self.out);
        self
    }

    /// Sends this, and returns all answers that come.
    pub fn ask(&mut self, plain: impl AsRef<[u8]>) -> Vec<Answer> {
        self.send(plain).settle().unwrap();
        parse_answers(&std::mem::take(&mut self.plain), |_| false)
    }
}
