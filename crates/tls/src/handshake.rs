//! A step of a server's handshake: what takes a processor for long, apart from its connection.

use std::io::Read as _;
use std::sync::{Arc, Weak};

use loadline_proto::Computation;
use rustls::{Connection, ServerConfig, ServerConnection};

use crate::places::Place;

/// What was received, to be understood and answered: key exchange, signature, the check of a client's
/// certificate.
#[derive(Debug)]
pub(crate) struct Handshake {
    config: Arc<ServerConfig>,
    /// `None` before the client's first message.
    connection: Option<Box<Connection>>,
    input: Vec<u8>,
    /// What was decrypted behind the handshake, and what is to be sent.
    pub(crate) plain: Vec<u8>,
    pub(crate) out: Vec<u8>,
    /// `None`: not carried out.
    result: Option<Result<Fed, rustls::Error>>,
    _place: Place,
    /// Of the connection: gone when that is closed.
    alive: Weak<()>,
}

/// What came of bytes that were received.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fed {
    pub(crate) has_ended: bool,
}

impl Handshake {
    pub(crate) fn new(
        config: &Arc<ServerConfig>,
        connection: Option<Box<Connection>>,
        input: Vec<u8>,
        place: Place,
        alive: Weak<()>,
    ) -> Self {
        Self {
            config: Arc::clone(config),
            connection,
            input,
            plain: Vec::new(),
            out: Vec::new(),
            result: None,
            _place: place,
            alive,
        }
    }

    /// What has come of it; `None`: nothing, there was no room for it.
    #[expect(clippy::type_complexity, reason = "taken apart where it is called")]
    pub(crate) fn into_result(
        self,
    ) -> Option<(
        Result<Fed, rustls::Error>,
        Option<Box<Connection>>,
        Vec<u8>,
        Vec<u8>,
    )> {
        Some((self.result?, self.connection, self.plain, self.out))
    }
}

impl Computation for Handshake {
    fn carry_out(&mut self) {
        let new = || {
            let mut connection = Connection::from(ServerConnection::new(Arc::clone(&self.config))?);
            connection.set_buffer_limit(None); // what is written is taken at once
            Ok(Box::new(connection))
        };
        let connection = self.connection.take().map_or_else(new, Ok);
        self.result = Some(connection.and_then(|mut connection| {
            let fed = feed(&mut connection, &self.input, &mut self.plain, &mut self.out);
            self.connection = Some(connection);
            fed
        }));
    }

    fn is_abandoned(&self) -> bool {
        self.alive.strong_count() == 0
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
            Ok(count) if count > 0 => {}
            _ => break,
        }
        let state = match connection.process_new_packets() {
            Ok(state) => state,
            Err(error) => {
                fed = Err(error);
                break;
            }
        };
        take_early(connection, plain);
        let len = plain.len();
        plain.resize(len + state.plaintext_bytes_to_read(), 0);
        if plain.len() > len && connection.reader().read_exact(&mut plain[len..]).is_err() {
            plain.truncate(len); // it has what it says
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
