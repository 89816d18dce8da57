//! A step of a server's handshake: what takes a processor for long, apart from its connection.

use std::io::{BufRead as _, Read as _};
use std::sync::{Arc, Weak};

use loadline_proto::Computation;
use rustls::pki_types::UnixTime;
use rustls::{Connection, HandshakeKind, ServerConfig, ServerConnection};

use crate::authorities::verify_again;
use crate::handshake_permits::HandshakePermit;
use crate::shared::{Configs, Shared};

/// A fatal alert in plain text, for a client that has not been answered yet: its certificate is no longer good
/// (RFC 8446 section 6.2).
const CERTIFICATE_EXPIRED: &[u8] = &[21, 3, 3, 0, 2, 2, 45];

/// What was received, to be understood and answered: key exchange, signature, the check of a client's
/// certificate.
#[derive(Debug)]
pub(crate) struct Handshake {
    server: Arc<Shared>,
    /// `None` before the client's first message.
    connection: Option<Box<Connection>>,
    /// What it began with.
    begun: Option<Arc<Configs>>,
    input: Vec<u8>,
    /// What was decrypted behind the handshake, and what is to be sent.
    pub(crate) plain: Vec<u8>,
    pub(crate) out: Vec<u8>,
    /// `None`: not carried out.
    result: Option<Result<Fed, rustls::Error>>,
    _permit: HandshakePermit,
    /// Of the connection: gone when that is closed.
    alive: Weak<()>,
}

/// A connection in its handshake, and what it began with: a client's end with nothing.
pub(crate) type Begun = (Box<Connection>, Option<Arc<Configs>>);

/// What came of bytes that were received.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fed {
    pub(crate) has_ended: bool,
}

impl Handshake {
    pub(crate) fn new(
        server: &Arc<Shared>,
        begun: Option<Begun>,
        input: Vec<u8>,
        permit: HandshakePermit,
        alive: Weak<()>,
    ) -> Self {
        let (connection, begun) = begun.unzip();
        Self {
            server: Arc::clone(server),
            connection,
            begun: begun.flatten(),
            input,
            plain: Vec::new(),
            out: Vec::new(),
            result: None,
            _permit: permit,
            alive,
        }
    }

    /// What has come of it; `None`: nothing, there was no room for it.
    #[expect(clippy::type_complexity, reason = "taken apart where it is called")]
    pub(crate) fn into_result(
        self,
    ) -> Option<(Result<Fed, rustls::Error>, Option<Begun>, Vec<u8>, Vec<u8>)> {
        let begun = self.connection.map(|connection| (connection, self.begun));
        Some((self.result?, begun, self.plain, self.out))
    }
}

impl Computation for Handshake {
    fn carry_out(&mut self) {
        self.result = Some(self.make_step());
    }

    fn is_abandoned(&self) -> bool {
        self.alive.strong_count() == 0
    }
}

impl Handshake {
    fn make_step(&mut self) -> Result<Fed, rustls::Error> {
        let configs = self.server.configs();
        let is_first = self.connection.is_none();
        if is_first {
            self.begun = Some(Arc::clone(&configs));
        }
        let mut fed = self.feed(&configs.config);
        // As if the client had brought no session: a full handshake asks for the certificate that it has now.
        if is_first && fed.is_ok() && self.verify(&configs).is_err() {
            self.connection = None;
            self.plain.clear();
            self.out.clear();
            fed = self.feed(&configs.without_resumption);
        }
        let fed = fed?;
        let is_handshaking = self
            .connection
            .as_ref()
            .is_some_and(|it| it.is_handshaking());
        self.verify(&configs).inspect_err(|_| {
            self.plain.clear();
            self.out.clear(); // or the client would have new tickets for the same certificate
            if is_handshaking {
                self.out.extend_from_slice(CERTIFICATE_EXPIRED);
            }
        })?;
        Ok(fed)
    }

    /// Understands what was received, by a new connection if there is none.
    fn feed(&mut self, config: &Arc<ServerConfig>) -> Result<Fed, rustls::Error> {
        let new = || {
            let connection = ServerConnection::new(Arc::clone(config))?;
            let mut connection = Connection::from(connection);
            connection.set_buffer_limit(None); // what is written is taken at once
            Ok::<_, rustls::Error>(Box::new(connection))
        };
        let mut connection = self.connection.take().map_or_else(new, Ok)?;
        let fed = feed(&mut connection, &self.input, &mut self.plain, &mut self.out);
        self.connection = Some(connection);
        fed
    }

    /// A resumed session brings the certificate of its first handshake along, unseen; and a full handshake has
    /// asked for what was right when it began.
    fn verify(&self, now: &Arc<Configs>) -> Result<(), rustls::Error> {
        let Some(connection) = &self.connection else {
            return Ok(());
        };
        let is_resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
        let begun = self.begun.as_ref();
        let is_replaced = begun.is_some_and(|begun| !Arc::ptr_eq(begun, now));
        let is_due = is_resumed || (is_replaced && !connection.is_handshaking());
        match &now.verifier {
            Some(verifier) if is_due => {
                let chain = connection.peer_certificates();
                verify_again(verifier.as_ref(), chain, UnixTime::now())
            }
            _ => Ok(()),
        }
    }
}

/// Understands bytes of the peer. What is to be answered is in `out` even if they are wrong.
pub(crate) fn feed(
    connection: &mut Connection,
    mut bytes: &[u8],
    plain: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<Fed, rustls::Error> {
    let mut fed = Ok(Fed::default());
    while !bytes.is_empty() {
        // From memory, and emptied after each step: it takes some of them, or the peer's end was read.
        match connection.read_tls(&mut bytes) {
            Ok(0) => break,
            Ok(_) => {}
            // A message takes more room, with the frames of its records, than there is for it.
            Err(error) => {
                fed = Err(rustls::Error::General(error.to_string()));
                break;
            }
        }
        let state = match connection.process_new_packets() {
            Ok(state) => state,
            Err(error) => {
                fed = Err(error);
                break;
            }
        };
        take_early(connection, plain);
        let mut reader = connection.reader();
        loop {
            let chunk = reader.fill_buf().unwrap_or_default(); // an error is that there is none
            if chunk.is_empty() {
                break;
            }
            plain.extend_from_slice(chunk);
            let len = chunk.len();
            reader.consume(len);
        }
        if state.peer_has_closed() {
            fed = Ok(Fed { has_ended: true });
            break;
        }
    }
    write(connection, out);
    fed
}

/// Takes what has come before the handshake was done, if that is served.
fn take_early(connection: &mut Connection, plain: &mut Vec<u8>) {
    if let Connection::Server(connection) = connection
        && let Some(mut early) = connection.early_data()
    {
        let _ = early.read_to_end(plain); // from memory
    }
}

/// Takes what is to be sent.
pub(crate) fn write(connection: &mut Connection, out: &mut Vec<u8>) {
    while connection.wants_write() {
        if connection.write_tls(out).is_err() {
            break; // memory takes everything
        }
    }
}
