//! A relay before PostgreSQL, behind which the server can vanish without a word.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy, sink};
use tokio::net::{TcpListener, TcpStream};

/// `Sync` without a statement before it: so the driver asks whether a connection is well.
const PING: [u8; 5] = *b"S\0\0\0\x04";

/// As long as the runtime of the test runs.
pub(crate) struct Relay {
    pub(crate) port: u16,
    about: Arc<About>,
}

#[derive(Default)]
struct About {
    vanishes: AtomicBool,
    vanished: AtomicUsize,
}

impl Relay {
    /// To a port of this machine.
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let about = Arc::new(About::default());
        let shared = Arc::clone(&about);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", port)).await;
                let server = server.expect("the server listens");
                tokio::spawn(pass(client, server, Arc::clone(&shared)));
            }
        });
        Self {
            port: address.port(),
            about,
        }
    }

    /// From now on the server vanishes, or no longer, from connections that are given back. Those from which
    /// it has vanished stay so.
    pub(crate) fn vanish(&self, vanishes: bool) {
        self.about.vanishes.store(vanishes, Ordering::SeqCst);
    }

    /// From how many connections the server has vanished.
    pub(crate) fn vanished(&self) -> usize {
        self.about.vanished.load(Ordering::SeqCst)
    }
}

async fn pass(client: TcpStream, server: TcpStream, about: Arc<About>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    tokio::spawn(async move { copy(&mut from_server, &mut to_client).await });
    let mut buffer = vec![0; 16 * 1024];
    let mut was_asked = false;
    while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
        let sent = &buffer[..length];
        let vanishes = about.vanishes.load(Ordering::SeqCst);
        if vanishes && was_asked && *sent == PING {
            about.vanished.fetch_add(1, Ordering::SeqCst);
            // Nothing is answered, and nothing is closed before the client closes.
            let _ = copy(&mut from_client, &mut sink()).await;
            return;
        }
        was_asked = vanishes;
        if to_server.write_all(sent).await.is_err() {
            return;
        }
    }
}
