//! A server of https by rustls alone, which does what our own never does: it speaks TLS 1.2 though the
//! client offers 1.3, cuts responses, and interrupts requests.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{
    CipherSuite, HandshakeKind, NamedGroup, ServerConfig, ServerConnection, StreamOwned,
    SupportedProtocolVersion,
};
use tempfile::TempDir;

/// What follows a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The next request.
    None,
    /// `close_notify`, and the end of the connection.
    Said,
    /// The same after a time without a request.
    SaidLater,
    /// The end of the connection alone, which anybody between could have made.
    Cut,
}

/// How long a connection may be idle before it ends by [`Ending::SaidLater`].
const IDLE_TIMEOUT: Duration = Duration::from_millis(100);

/// What [`Peer::interrupting`] reads of a body at once, after a pause in which the client is kept waiting.
const PIECE_BYTES: usize = 1 << 20;
const PIECE_PAUSE: Duration = Duration::from_millis(2);

/// A connection, from its handshake on.
type Stream = StreamOwned<ServerConnection, TcpStream>;

/// Handshakes that a peer has done.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    pub(crate) full: AtomicU64,
    pub(crate) resumed: AtomicU64,
    /// The key exchange and the cipher of each.
    pub(crate) agreed: Mutex<Vec<(Option<NamedGroup>, Option<CipherSuite>)>>,
}

/// Runs until it is dropped, and its clients have gone.
pub(crate) struct Peer {
    address: SocketAddr,
    folder: TempDir,
    pub(crate) handshakes: Arc<Handshakes>,
    is_over: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

impl Peer {
    /// Speaks these versions, and sends this response to each request. With tickets, or with sessions of
    /// its own memory.
    pub(crate) fn start(
        versions: &[&'static SupportedProtocolVersion],
        has_tickets: bool,
        (response, ending): (&str, Ending),
    ) -> Self {
        let response = response.to_owned();
        Self::serving(versions, has_tickets, move |stream, handshakes| {
            serve(stream, &response, ending, handshakes)
        })
    }

    /// Takes requests with this body, and sends an interim response behind each piece of it. Counts the
    /// bytes of the requests that arrive as they should.
    pub(crate) fn interrupting(body: Vec<u8>, arrived_bytes: Arc<AtomicU64>) -> Self {
        let versions = [&rustls::version::TLS13];
        Self::serving(&versions, false, move |stream, _| {
            interrupt(stream, &body, &arrived_bytes)
        })
    }

    fn serving(
        versions: &[&'static SupportedProtocolVersion],
        has_tickets: bool,
        serve: impl Fn(Stream, &Handshakes) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let own = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let own = own.self_signed(&key).unwrap();
        std::fs::write(folder.path().join("c.pem"), own.pem()).unwrap();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let mut config = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into())
            .with_protocol_versions(versions)
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.der().clone()], key.into())
            .unwrap();
        if has_tickets {
            config.ticketer = aws_lc_rs::Ticketer::new().unwrap();
        }
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let handshakes = Arc::<Handshakes>::default();
        let is_over = Arc::<AtomicBool>::default();
        let acceptor = std::thread::spawn({
            let (handshakes, is_over) = (Arc::clone(&handshakes), Arc::clone(&is_over));
            move || {
                let (serve, handshakes) = (&serve, &handshakes);
                std::thread::scope(|scope| {
                    while let Ok((stream, _)) = listener.accept() {
                        if is_over.load(SeqCst) {
                            return;
                        }
                        let tls = ServerConnection::new(Arc::clone(&config)).unwrap();
                        // A client may leave at any time: what it measured says whether that was right.
                        scope.spawn(move || {
                            let stream = StreamOwned::new(tls, stream);
                            let _ = serve(stream, handshakes);
                        });
                    }
                });
            }
        });
        Self {
            address,
            folder,
            handshakes,
            is_over,
            acceptor: Some(acceptor),
        }
    }

    /// The URL, and that its certificate is trusted.
    pub(crate) fn trusted(&self) -> String {
        let certificate = self.folder.path().join("c.pem");
        format!(
            "https://{}/ --cacert {}",
            self.address,
            certificate.display()
        )
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.is_over.store(true, SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn serve(
    mut stream: Stream,
    response: &str,
    ending: Ending,
    handshakes: &Handshakes,
) -> io::Result<()> {
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    match stream.conn.handshake_kind() {
        Some(HandshakeKind::Resumed) => &handshakes.resumed,
        _ => &handshakes.full,
    }
    .fetch_add(1, SeqCst);
    let group = stream.conn.negotiated_key_exchange_group();
    let suite = stream.conn.negotiated_cipher_suite();
    let agreed = (group.map(|it| it.name()), suite.map(|it| it.suite()));
    handshakes.agreed.lock().unwrap().push(agreed);
    let mut input = Vec::new();
    loop {
        while !input.ends_with(b"\r\n\r\n") {
            let mut piece = [0; 4096];
            match stream.read(&mut piece)? {
                0 => return Ok(()),
                count => input.extend_from_slice(&piece[..count]),
            }
        }
        input.clear();
        stream.write_all(response.as_bytes())?;
        stream.flush()?;
        if ending != Ending::None {
            break;
        }
    }
    if ending == Ending::SaidLater {
        std::thread::sleep(IDLE_TIMEOUT);
    }
    if ending != Ending::Cut {
        stream.conn.send_close_notify();
        stream.flush()?;
    }
    stream.sock.shutdown(Shutdown::Write)?;
    // Closed before the client's last bytes are read, it would be reset.
    io::copy(&mut stream.sock, &mut io::sink()).map(drop)
}

/// Each piece is read while the client waits for room: it is about to send when it receives something.
fn interrupt(mut stream: Stream, body: &[u8], arrived_bytes: &AtomicU64) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            head.extend_from_slice(&byte);
        }
        for expected in body.chunks(PIECE_BYTES) {
            std::thread::sleep(PIECE_PAUSE);
            let piece = &mut piece[..expected.len()];
            stream.read_exact(piece)?;
            if *piece != *expected {
                return Ok(());
            }
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            stream.flush()?;
        }
        arrived_bytes.fetch_add((head.len() + body.len()) as u64, SeqCst);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
        stream.flush()?;
    }
}
