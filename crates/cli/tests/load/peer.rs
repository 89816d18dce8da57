//! A server of https by rustls alone, which does what our own never does: it speaks TLS 1.2 though the
//! client offers 1.3, and cuts responses.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;

use rcgen::{CertificateParams, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{
    HandshakeKind, ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion,
};
use tempfile::TempDir;

/// What follows a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The next request.
    None,
    /// `close_notify`, and the end of the connection.
    Said,
    /// The end of the connection alone, which anybody between could have made.
    Cut,
}

/// Handshakes that a peer has done.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    pub(crate) full: AtomicU64,
    pub(crate) resumed: AtomicU64,
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
        let (config, response) = (Arc::new(config), Arc::<str>::from(response));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let handshakes = Arc::<Handshakes>::default();
        let is_over = Arc::<AtomicBool>::default();
        let acceptor = std::thread::spawn({
            let (handshakes, is_over) = (Arc::clone(&handshakes), Arc::clone(&is_over));
            move || {
                std::thread::scope(|scope| {
                    while let Ok((stream, _)) = listener.accept() {
                        if is_over.load(SeqCst) {
                            return;
                        }
                        let tls = ServerConnection::new(Arc::clone(&config)).unwrap();
                        let (response, handshakes) =
                            (Arc::clone(&response), Arc::clone(&handshakes));
                        // A client may leave at any time: what it measured says whether that was right.
                        scope.spawn(move || {
                            let stream = StreamOwned::new(tls, stream);
                            let _ = serve(stream, &response, ending, &handshakes);
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
    mut stream: StreamOwned<ServerConnection, TcpStream>,
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
    if ending == Ending::Said {
        stream.conn.send_close_notify();
        stream.flush()?;
    }
    stream.sock.shutdown(Shutdown::Write)?;
    // Closed before the client's last bytes are read, it would be reset.
    io::copy(&mut stream.sock, &mut io::sink()).map(drop)
}
