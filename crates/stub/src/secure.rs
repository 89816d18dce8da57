//! TLS of one connection, straight by rustls: nothing of Loadline's own layer has a part in it.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::sync::Arc;

use rustls::{ServerConfig, ServerConnection};

/// What a responder shows to clients, and how it speaks TLS.
#[derive(Clone)]
pub struct TlsIdentity(pub Arc<ServerConfig>);

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsIdentity")
    }
}

/// The server's end.
#[derive(Debug)]
pub(crate) struct Secure {
    connection: ServerConnection,
    /// What waits to be sent, and how much of it has been.
    out: Vec<u8>,
    sent: usize,
}

impl Secure {
    pub(crate) fn new(identity: &TlsIdentity) -> Result<Self, rustls::Error> {
        let mut connection = ServerConnection::new(Arc::clone(&identity.0))?;
        connection.set_buffer_limit(None);
        Ok(Self {
            connection,
            out: Vec::new(),
            sent: 0,
        })
    }

    /// Bytes came: those of requests are appended to `plain`.
    pub(crate) fn received(&mut self, mut bytes: &[u8], plain: &mut Vec<u8>) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.connection.read_tls(&mut bytes)? == 0 {
                break;
            }
            let state = self.connection.process_new_packets();
            let state = state.map_err(io::Error::other)?;
            let len = plain.len();
            plain.resize(len + state.plaintext_bytes_to_read(), 0);
            self.connection.reader().read_exact(&mut plain[len..])?;
        }
        self.take_out()
    }

    /// Takes bytes that are to be sent.
    pub(crate) fn send(&mut self, plain: &[u8]) -> io::Result<()> {
        self.connection.writer().write_all(plain)?;
        self.take_out()
    }

    /// Says that no more will be sent.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        self.connection.send_close_notify();
        self.take_out()
    }

    /// What waits to be sent.
    pub(crate) fn waiting(&self) -> &[u8] {
        &self.out[self.sent..]
    }

    /// So many of these have been sent.
    pub(crate) fn sent(&mut self, count: usize) {
        self.sent += count;
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        }
    }

    fn take_out(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut self.out)?;
        }
        Ok(())
    }
}
