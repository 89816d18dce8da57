//! What an authority's clients connect to: TLS with a certificate of its own, and whatever answers behind
//! it. It can be down.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use loadline_proto::{ClientSession, Limits, Method, Received, ReplyObserver};
use loadline_tls::{Authorities, Profile, TlsClient};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A request as it came.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    pub method: String,
    pub path: String,
    pub body: Vec<u8>,
    raw: Vec<u8>,
}

/// A response to it.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub fields: Vec<(String, String)>,
    pub content: Vec<u8>,
}

/// The answer to a request, given the URL before its path. `None`: the connection is closed without one.
type Answers = dyn FnMut(&ReceivedRequest, &str) -> Option<Answer> + Send;

pub struct Front {
    address: SocketAddr,
    shared: Arc<Shared>,
    certificate: String,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    is_down: AtomicBool,
    has_ended: AtomicBool,
    connections: AtomicUsize,
    paths: Mutex<Vec<String>>,
}

impl Front {
    /// Begins to answer.
    pub fn start(mut answers: Box<Answers>) -> Self {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let config = server_config(&certificate, &key);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let shared = Arc::new(Shared {
            is_down: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            paths: Mutex::default(),
        });
        let address = listener.local_addr().unwrap();
        let of_thread = Arc::clone(&shared);
        let base = format!("https://{address}");
        let serve = move || {
            let mut answers = |request: &ReceivedRequest| answers(request, &base);
            for socket in listener.incoming() {
                if of_thread.has_ended.load(SeqCst) {
                    return;
                }
                of_thread.connections.fetch_add(1, SeqCst);
                if !of_thread.is_down.load(SeqCst) {
                    let _ = answer(socket.unwrap(), &config, &of_thread, &mut answers);
                }
            }
        };
        Self {
            address,
            shared,
            certificate: certificate.pem(),
            thread: Some(thread::spawn(serve)),
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    /// The certificate that its clients have to trust.
    pub fn trusted(&self) -> Authorities {
        Authorities::from_pem("the front", self.certificate.as_bytes()).unwrap()
    }

    /// The same as a file has it.
    #[allow(dead_code, reason = "tests of the program use it")]
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Whether connections are closed at once.
    pub fn set_down(&self, is_down: bool) {
        self.shared.is_down.store(is_down, SeqCst);
    }

    pub fn connections(&self) -> usize {
        self.shared.connections.load(SeqCst)
    }

    /// The paths asked for since this was called last.
    pub fn take_paths(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.paths.lock().unwrap())
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, SeqCst);
        let _ = TcpStream::connect(self.address); // so that it looks
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A request to an authority, and its response: the address has a certificate that is trusted.
pub fn forward(address: SocketAddr, trusted: &Authorities, raw: &[u8]) -> Option<Answer> {
    let client = TlsClient::new(trusted, Profile::Intermediate).unwrap();
    let socket = TcpStream::connect(address).ok()?;
    let mut stream = client.stream(&address.ip().to_string(), socket).unwrap();
    stream.write_all(raw).ok()?;
    let mut session = ClientSession::new();
    session.requested(match raw.starts_with(b"HEAD ") {
        true => Method::Head,
        false => Method::Post,
    });
    let (mut seen, mut piece) = (Seen::default(), [0; 4096]);
    loop {
        let count = stream.read(&mut piece).ok()?;
        let received = match count {
            0 => session.received_eof(),
            _ => session.received(&piece[..count], &Limits::default(), &mut seen),
        };
        match received {
            Received::More => {}
            Received::Reply(reply) => return Some(seen.answer(reply.status)),
            Received::Fault(_) => return None,
        }
    }
}

impl ReceivedRequest {
    /// The same for an authority behind.
    pub fn raw(&self) -> &[u8] {
        &self.raw
    }
}

impl Answer {
    fn written(&self) -> Vec<u8> {
        let mut text = format!("HTTP/1.1 {} -\r\n", self.status);
        for (name, value) in &self.fields {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        let len = self.content.len();
        text.push_str(&format!(
            "content-length: {len}\r\nconnection: close\r\n\r\n"
        ));
        [text.as_bytes(), &self.content].concat()
    }
}

#[derive(Default)]
struct Seen {
    head: Vec<u8>,
    content: Vec<u8>,
}

impl Seen {
    fn answer(self, status: u16) -> Answer {
        const OWN: [&str; 3] = ["content-length", "transfer-encoding", "connection"];
        let head = String::from_utf8(self.head).unwrap();
        let fields = head.lines().filter_map(|line| line.split_once(": "));
        let fields = fields.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
        Answer {
            status,
            fields: fields
                .filter(|(name, _)| !OWN.contains(&name.as_str()))
                .collect(),
            content: self.content,
        }
    }
}

impl ReplyObserver for Seen {
    fn head(&mut self, head: &[u8]) {
        self.head.extend_from_slice(head);
    }

    fn content(&mut self, piece: &[u8]) {
        self.content.extend_from_slice(piece);
    }
}

fn answer(
    socket: TcpStream,
    config: &Arc<ServerConfig>,
    shared: &Shared,
    answers: &mut dyn FnMut(&ReceivedRequest) -> Option<Answer>,
) -> Option<()> {
    let connection = ServerConnection::new(Arc::clone(config)).unwrap();
    let mut stream = StreamOwned::new(connection, socket);
    let request = read(&mut stream)?;
    shared.paths.lock().unwrap().push(request.path.clone());
    let answer = answers(&request)?;
    let mut text = answer.written();
    if request.method == "HEAD" {
        text.truncate(text.len() - answer.content.len());
    }
    stream.write_all(&text).ok()?;
    stream.conn.send_close_notify();
    stream.flush().ok()
}

fn read(stream: &mut StreamOwned<ServerConnection, TcpStream>) -> Option<ReceivedRequest> {
    let (mut raw, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let end = raw.windows(4).position(|it| it == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8(raw[..end].to_vec()).unwrap();
            let (line, fields) = head.split_once("\r\n").unwrap();
            let mut fields = fields.lines().filter_map(|line| line.split_once(": "));
            let len = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
            let len = len.map_or(0, |(_, value)| value.parse().unwrap());
            let body = &raw[end + 4..];
            if body.len() >= len {
                let mut words = line.split(' ');
                return Some(ReceivedRequest {
                    method: words.next()?.to_owned(),
                    path: words.next()?.to_owned(),
                    body: body.to_vec(),
                    raw,
                });
            }
        }
        match stream.read(&mut piece).ok()? {
            0 => return None,
            count => raw.extend_from_slice(&piece[..count]),
        }
    }
}

fn server_config(certificate: &rcgen::Certificate, key: &KeyPair) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key);
    Arc::new(config.unwrap())
}
