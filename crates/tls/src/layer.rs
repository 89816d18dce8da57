//! TLS of one connection, for a server and for a client: the one place that speaks to rustls about
//! bytes.
//!
//! ```text
//!   server: Silent ─► Computing ─► Handshaking ─► (Computing ─►) Open
//!   client:                        Handshaking ─► Open
//! ```

use std::any::Any;
use std::io::{IoSlice, Write as _};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use loadline_base::Buffer;
use loadline_proto::{
    ClientKey, ClientLayer, Computation, Fault, Layer, LayerFailure, Security, Status,
};
use rustls::{Connection, HandshakeKind, ProtocolVersion};

use crate::certificates::{ACME_TLS_ALPN, HTTP_2_ALPN};
use crate::counters::{Counters, add};
use crate::failure;
use crate::first_message::{FirstMessage, HANDSHAKE, RECORD_HEAD_BYTES, record_len};
use crate::handshake::{Begun, Fed, Handshake, feed, write};
use crate::record_progress::RecordProgress;
use crate::shared::Shared;
use crate::x509;

/// The longest record: RFC 8446 section 5.2.
const RECORD_BYTES_MAX: usize = (16 << 10) + 256;

/// What is kept of a client's first message until it is whole: the longest that rustls takes, 64 KiB, in
/// records of any usual length. Browsers send two KiB.
const FIRST_MESSAGE_BYTES_MAX: usize = 68 << 10;

/// Steps of one handshake that are computed. A client of TLS 1.2 that shows a long chain of certificates
/// takes ten, with a message to a record; each record beyond that would be a job for nothing.
const STEPS_MAX: u8 = 16;

/// The response to a client that speaks plain HTTP to a port of TLS.
const NOT_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\
Content-Type: text/plain\r\nContent-Length: 54\r\n\r\n\
This port speaks HTTPS: the address begins with https.";

/// What a connection keeps of rustls, about: keys, states, and an empty buffer of 4 KiB.
const CONNECTION_BYTES: usize = 6 << 10;

/// What rustls keeps at most of what it cannot understand yet: parts of a message behind the handshake.
const UNREAD_BYTES_MAX: usize = 64 << 10;

/// TLS of one connection.
#[derive(Debug)]
pub struct TlsLayer {
    state: State,
    /// What was received in the handshake and not understood yet.
    input: Vec<u8>,
    progress: RecordProgress,
    /// What has come since the last content: rustls may keep it until the rest of a record or message comes.
    unread_bytes: usize,
    /// `None`: this is the client's end.
    server: Option<Arc<Shared>>,
    /// Who is at the other end, of a server's.
    peer: ClientKey,
    security: Option<Arc<Security>>,
    /// Of a client's end.
    failure: Option<Box<LayerFailure>>,
    /// Open for what comes before the handshake is done.
    is_early: bool,
    has_ended: bool,
    /// Steps of the handshake that were computed.
    steps: u8,
    /// What became of the handshake was counted.
    is_counted: bool,
}

#[derive(Debug)]
enum State {
    /// The client's first message has not come.
    Silent(FirstMessage),
    /// A step is to be computed, or on its way.
    Computing(
        Option<Box<Handshake>>,
        #[expect(dead_code, reason = "the step sees whether it is still there")] Arc<()>,
    ),
    Handshaking(Begun),
    /// The handshake is done. Kernel TLS would begin here.
    Open(Box<Connection>),
    Failed,
}

impl TlsLayer {
    /// A server's end of a new connection.
    pub(crate) fn server(server: &Arc<Shared>, peer: ClientKey) -> Self {
        Self {
            peer,
            ..Self::new(
                State::Silent(FirstMessage::default()),
                Some(Arc::clone(server)),
            )
        }
    }

    /// A client's end of a new connection. What it opens with is in `out`.
    pub(crate) fn client(connection: Connection, out: &mut Buffer) -> Self {
        let mut connection = Box::new(connection);
        connection.set_buffer_limit(None); // what is written is taken at once
        write(&mut connection, out);
        Self::new(State::Handshaking((connection, None)), None)
    }

    fn new(state: State, server: Option<Arc<Shared>>) -> Self {
        Self {
            state,
            input: Vec::new(),
            progress: RecordProgress::default(),
            unread_bytes: 0,
            server,
            peer: ClientKey::NOBODY,
            security: None,
            failure: None,
            is_early: false,
            has_ended: false,
            steps: 0,
            is_counted: false,
        }
    }

    /// A step of the handshake, if there is one to be made of what was received.
    fn step(&mut self, plain: &mut Buffer, out: &mut Buffer) -> Result<(), Fault> {
        match (
            std::mem::replace(&mut self.state, State::Failed),
            &self.server,
        ) {
            (State::Silent(mut message), Some(_)) => {
                if let Err(fault) = check_record(&self.input) {
                    self.count(|it| &it.plaintext);
                    if self.input.first().is_some_and(u8::is_ascii_uppercase) {
                        out.extend_from_slice(NOT_TLS);
                    }
                    return Err(fault);
                }
                if !message.is_whole(&self.input) {
                    if self.input.len() > FIRST_MESSAGE_BYTES_MAX {
                        return self.fail("a first message of TLS that is too long");
                    }
                    self.state = State::Silent(message);
                    return Ok(());
                }
                self.compute(None)
            }
            (State::Handshaking(begun), Some(server))
                if takes_long(&begun.0, server.asks_clients()) =>
            {
                if !has_record(&self.input) {
                    self.state = State::Handshaking(begun);
                    return Ok(());
                }
                self.compute(Some(begun))
            }
            (State::Handshaking(mut begun), _) => {
                let input = std::mem::take(&mut self.input);
                let fed = feed(&mut begun.0, &input, plain, out);
                self.fed(begun, fed)
            }
            (state, _) => {
                self.state = state;
                Ok(())
            }
        }
    }

    /// Has a step computed of what was received.
    fn compute(&mut self, begun: Option<Begun>) -> Result<(), Fault> {
        let Some(server) = &self.server else {
            return Ok(());
        };
        if self.steps == STEPS_MAX {
            return self.fail("a TLS handshake in too many records");
        }
        let Some(permit) = server.handshake_permits.take(self.peer) else {
            return self.refuse();
        };
        self.steps += 1;
        // Whether a record is whole is seen at its head: half of one stays here with it.
        let rest = self.input.split_off(whole_records_len(&self.input));
        let input = std::mem::replace(&mut self.input, rest);
        let alive = Arc::new(());
        let weak = Arc::downgrade(&alive);
        let handshake = Handshake::new(server, begun, input, permit, weak);
        self.state = State::Computing(Some(Box::new(handshake)), alive);
        Ok(())
    }

    fn refuse(&mut self) -> Result<(), Fault> {
        self.count(|it| &it.refused);
        Err(Fault::limit(
            Status::SERVICE_UNAVAILABLE,
            "no room for another handshake",
        ))
    }

    fn fail(&mut self, text: &'static str) -> Result<(), Fault> {
        self.count(|it| &it.failed);
        Err(Fault::bad_request(text))
    }

    /// Understands bytes that `progress` has counted.
    fn take_in(&mut self, bytes: &[u8], plain: &mut Buffer, out: &mut Buffer) -> Result<(), Fault> {
        let State::Open(connection) = &mut self.state else {
            self.input.extend_from_slice(bytes);
            return self.step(plain, out);
        };
        if self.has_ended {
            return Ok(()); // what comes behind the end says nothing
        }
        let plain_len = plain.len();
        let fed = match feed(connection, bytes, plain, out) {
            Ok(fed) => fed,
            Err(error) => {
                if self.server.is_none() {
                    self.failure = Some(Box::new(failure::of(&error)));
                }
                if self.is_early {
                    self.end_early();
                }
                if std::mem::take(&mut self.is_early) {
                    self.count(|it| &it.failed); // it was still going on
                }
                let text = "bytes that are no record of this connection";
                return Err(Fault::bad_request(text));
            }
        };
        self.unread_bytes = match plain.len() > plain_len {
            true => self.progress.partial_bytes(),
            false => (self.unread_bytes + bytes.len()).min(UNREAD_BYTES_MAX),
        };
        self.has_ended = fed.has_ended;
        if self.is_early {
            self.end_early();
        }
        Ok(())
    }

    /// Bytes of the handshake were understood.
    fn fed(
        &mut self,
        (mut connection, configs): Begun,
        fed: Result<Fed, rustls::Error>,
    ) -> Result<(), Fault> {
        match fed {
            Ok(fed) => self.has_ended |= fed.has_ended,
            Err(error) => {
                if self.server.is_none() {
                    self.failure = Some(Box::new(failure::of(&error)));
                }
                self.count(|it| &it.failed);
                return Err(Fault::bad_request("a TLS handshake failed"));
            }
        }
        self.is_early = is_early(&mut connection);
        if connection.is_handshaking() && !self.is_early {
            self.state = State::Handshaking((connection, configs));
            return Ok(());
        }
        if !self.is_early {
            let kind = connection.handshake_kind();
            self.count(|it| it.of(kind));
        }
        // An authority has seen what it wanted: it asks for nothing over such a connection.
        self.has_ended |= connection.alpn_protocol() == Some(ACME_TLS_ALPN);
        self.security = Some(Arc::new(self.security_of(&connection)));
        self.state = State::Open(connection);
        Ok(())
    }

    /// What became of the handshake, once: a client leaves after it has failed, too.
    fn count(&mut self, counter: impl FnOnce(&Counters) -> &AtomicU64) {
        if let Some(server) = &self.server
            && !std::mem::replace(&mut self.is_counted, true)
        {
            add(counter(&server.counters));
        }
    }

    /// What came before the handshake was done stays behind.
    fn end_early(&mut self) {
        let State::Open(connection) = &self.state else {
            return;
        };
        if connection.is_handshaking() {
            return;
        }
        let kind = connection.handshake_kind();
        self.count(|it| it.of(kind));
        self.is_early = false;
        if let Some(security) = &mut self.security {
            Arc::make_mut(security).is_early = false;
        }
    }

    fn security_of(&self, connection: &Connection) -> Security {
        let version = match connection.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
            _ => "TLSv1.3",
        };
        let (server_name, names, response_lines) = match (connection, &self.server) {
            (Connection::Server(connection), Some(server)) => (
                connection.server_name().map(Arc::from),
                server.certificates.names(),
                Arc::clone(&server.response_lines),
            ),
            _ => (None, Arc::default(), Arc::default()),
        };
        let certificates = connection
            .peer_certificates()
            .filter(|_| self.server.is_some());
        let shown = certificates.and_then(<[_]>::first);
        let client_subject = shown.and_then(|certificate| x509::subject(certificate));
        Security {
            version,
            is_http2: connection.alpn_protocol() == Some(HTTP_2_ALPN),
            server_name,
            names,
            has_client_certificate: shown.is_some(),
            client_subject: client_subject.map(Arc::from),
            is_early: self.is_early,
            response_lines,
        }
    }
}

impl Layer for TlsLayer {
    fn received(
        &mut self,
        bytes: &mut [u8],
        plain: &mut Buffer,
        out: &mut Buffer,
    ) -> Result<(), Fault> {
        self.progress.received(bytes);
        self.take_in(bytes, plain, out)
    }

    fn send(&mut self, plain: &[u8], out: &mut Buffer) {
        if let State::Open(connection) = &mut self.state {
            // Into memory without a limit: all of it is taken.
            let _ = connection.writer().write_all(plain);
            write(connection, out);
        }
    }

    fn send_pieces(&mut self, pieces: &[IoSlice<'_>], out: &mut Buffer) {
        if let State::Open(connection) = &mut self.state {
            // As above. A record holds what fits of them.
            let _ = connection.writer().write_vectored(pieces);
            write(connection, out);
        }
    }

    fn finish(&mut self, out: &mut Buffer) {
        if let State::Open(connection) | State::Handshaking((connection, _)) = &mut self.state {
            connection.send_close_notify();
            write(connection, out);
        }
    }

    fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    fn has_begun(&self) -> bool {
        !matches!(self.state, State::Silent(_))
    }

    fn partial_bytes(&self) -> usize {
        self.input.len().max(self.progress.partial_bytes())
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn take_computation(&mut self) -> Option<Box<dyn Computation>> {
        let State::Computing(handshake, _) = &mut self.state else {
            return None;
        };
        Some(handshake.take()?)
    }

    fn computed(
        &mut self,
        computation: Box<dyn Computation>,
        plain: &mut Buffer,
        out: &mut Buffer,
    ) -> Result<(), Fault> {
        let computation: Box<dyn Any> = computation;
        self.state = State::Failed;
        let handshake = computation.downcast::<Handshake>().ok();
        let result = handshake.and_then(|it| it.into_result());
        let Some((fed, begun, decrypted, answer)) = result else {
            return self.refuse();
        };
        plain.extend_from_slice(&decrypted);
        out.extend_from_slice(&answer);
        let Some(begun) = begun else {
            return self.fail("a TLS connection could not begin");
        };
        self.fed(begun, fed)?;
        if self.input.is_empty() {
            return Ok(());
        }
        let input = std::mem::take(&mut self.input); // what came meanwhile
        self.take_in(&input, plain, out)
    }

    fn truncated(&mut self) {
        if let Some(server) = &self.server {
            add(&server.counters.truncated);
        }
    }

    fn timed_out(&mut self) {
        self.count(|it| &it.timed_out);
    }

    fn abandoned(&mut self) {
        // Health probes connect, send nothing and close.
        let is_probe = matches!(self.state, State::Silent(_)) && self.input.is_empty();
        if !is_probe {
            self.count(|it| &it.failed);
        }
    }

    fn security(&self) -> Option<&Arc<Security>> {
        self.security.as_ref()
    }

    fn held_bytes(&self) -> usize {
        let connection = match &self.state {
            State::Silent(_) | State::Failed => 0,
            State::Computing(..) => CONNECTION_BYTES,
            State::Handshaking(_) => CONNECTION_BYTES + self.progress.partial_bytes(),
            State::Open(_) => CONNECTION_BYTES + self.unread_bytes,
        };
        connection + self.input.capacity()
    }
}

impl ClientLayer for TlsLayer {
    fn is_resumed(&self) -> Option<bool> {
        match &self.state {
            State::Open(connection) => {
                Some(connection.handshake_kind() == Some(HandshakeKind::Resumed))
            }
            _ => None,
        }
    }

    fn failure(&self) -> Option<&LayerFailure> {
        self.failure.as_deref()
    }
}

/// Whether it serves what comes before its handshake is done.
fn is_early(connection: &mut Connection) -> bool {
    let is_handshaking = connection.is_handshaking();
    match connection {
        Connection::Server(connection) => is_handshaking && connection.early_data().is_some(),
        Connection::Client(_) => false,
    }
}

/// Whether the next step of a server's handshake takes a processor for long. What is left of a TLS 1.3
/// handshake behind its first message does not, but for a client's certificate.
fn takes_long(connection: &Connection, asks_clients: bool) -> bool {
    asks_clients
        || connection.protocol_version() != Some(ProtocolVersion::TLSv1_3)
        || connection.handshake_kind() == Some(HandshakeKind::FullWithHelloRetryRequest)
}

/// Whether this begins as a handshake's record does.
fn check_record(input: &[u8]) -> Result<(), Fault> {
    let is_tls = input.first().is_none_or(|kind| *kind == HANDSHAKE)
        && input.get(1).is_none_or(|major| *major == 3)
        && record_len(input).is_none_or(|len| len <= RECORD_HEAD_BYTES + RECORD_BYTES_MAX);
    match is_tls {
        true => Ok(()),
        false => Err(Fault::bad_request("the client does not speak TLS")),
    }
}

/// Whether there is a whole record: half of one is not worth a worker's time.
fn has_record(input: &[u8]) -> bool {
    record_len(input).is_some_and(|len| input.len() >= len)
}

/// How long the records are that are whole, together.
fn whole_records_len(input: &[u8]) -> usize {
    let mut rest = input;
    while let Some(behind) = record_len(rest).and_then(|len| rest.get(len..)) {
        rest = behind;
    }
    input.len() - rest.len()
}

#[cfg(test)]
mod tests {
    use rustls::{CipherSuite, NamedGroup};

    use super::*;
    use crate::{
        Authorities, Certificates, Cipher, KeyExchange, Profile, TlsClient, TlsClientOptions,
        TlsOptions, TlsServer, self_signed,
    };

    /// A client and a server of ours, and the first step of their handshake.
    fn begin(
        key_exchange: Option<KeyExchange>,
        cipher: Option<Cipher>,
    ) -> (TlsLayer, TlsLayer, Box<dyn Computation>) {
        let own = self_signed(&["localhost".to_owned()]).unwrap();
        let trusted = Authorities::one(own.der()).unwrap();
        let client = TlsClient::with(&TlsClientOptions {
            key_exchange,
            cipher,
            ..TlsClientOptions::trusting(&trusted, Profile::default())
        });
        let certificates = Arc::new(Certificates::new(vec![own]));
        let server = TlsServer::new(&certificates, &TlsOptions::default()).unwrap();
        let (mut sent, mut answer, mut plain) = Default::default();
        let client = client.unwrap().connect("localhost", &mut sent).unwrap();
        let mut server = server.accept(ClientKey::NOBODY);
        server.received(&mut sent, &mut plain, &mut answer).unwrap();
        let computation = server.take_computation().unwrap();
        (client, server, computation)
    }

    #[test]
    fn a_step_is_needed_until_its_connection_is_closed() {
        let (_, server, computation) = begin(None, None);
        assert!(!computation.is_abandoned());
        drop(server);
        assert!(computation.is_abandoned());
    }

    /// What a client that offers this and a server of ours agree on.
    fn agreed(
        key_exchange: Option<KeyExchange>,
        cipher: Option<Cipher>,
    ) -> (NamedGroup, CipherSuite) {
        let (mut client, mut server, mut computation) = begin(key_exchange, cipher);
        let (mut answer, mut plain) = Default::default();
        computation.carry_out();
        server
            .computed(computation, &mut plain, &mut answer)
            .unwrap();
        client
            .received(&mut answer, &mut plain, &mut Buffer::default())
            .unwrap();
        let State::Open(connection) = &client.state else {
            panic!("the handshake is not done");
        };
        let group = connection.negotiated_key_exchange_group().unwrap();
        let suite = connection.negotiated_cipher_suite().unwrap();
        (group.name(), suite.suite())
    }

    #[test]
    fn a_client_and_a_server_exchange_keys_by_the_hybrid() {
        assert_eq!(agreed(None, None).0, NamedGroup::X25519MLKEM768);
        let of = Some(KeyExchange::X25519);
        assert_eq!(agreed(of, None).0, NamedGroup::X25519);
    }

    #[test]
    fn a_client_that_offers_one_cipher_gets_it_although_the_server_prefers_another() {
        use CipherSuite as Suite;
        for (offered, suite) in [
            (None, Suite::TLS13_AES_128_GCM_SHA256),
            (Some(Cipher::Aes128Gcm), Suite::TLS13_AES_128_GCM_SHA256),
            (Some(Cipher::Aes256Gcm), Suite::TLS13_AES_256_GCM_SHA384),
            (
                Some(Cipher::ChaCha20Poly1305),
                Suite::TLS13_CHACHA20_POLY1305_SHA256,
            ),
        ] {
            assert_eq!(agreed(None, offered).1, suite, "{offered:?}");
        }
    }
}
