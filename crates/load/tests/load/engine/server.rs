//! A small server for tests: a thread for each connection, which does what its script says.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;

/// What is done about one request.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// These bytes are sent.
    Send(Vec<u8>),
    /// These bytes are sent, then the connection is closed in good order.
    SendAndClose(Vec<u8>),
    /// The connection is reset.
    Reset,
    /// Nothing happens until the client goes.
    Hang,
}

/// What happened at a server.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) connections: AtomicU64,
    pub(crate) requests: AtomicU64,
    /// The largest number of requests on one connection.
    pub(crate) requests_max: AtomicU64,
    /// Requests that said `Connection: close`.
    pub(crate) last_ones: AtomicU64,
    /// Connections that the client has reset while it waited ([`Act::Hang`]).
    pub(crate) resets: AtomicU64,
}

/// Decides by the request's number on its connection, both counted from 0: (connection, request).
type Script = dyn Fn(u64, u64) -> Act + Send + Sync;

/// Runs until it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) counts: Arc<Counts>,
    is_over: Arc<AtomicBool>,
    /// Not kept open by this: a connection ends when its thread lets go of it.
    streams: Arc<Mutex<Vec<Weak<TcpStream>>>>,
    acceptor: Option<JoinHandle<()>>,
}

impl Server {
    /// Answers as the script says.
    pub(crate) fn start(script: impl Fn(u64, u64) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let counts = Arc::new(Counts::default());
        let is_over = Arc::new(AtomicBool::new(false));
        let streams = Arc::new(Mutex::new(Vec::<Weak<TcpStream>>::new()));
        let script: Arc<Script> = Arc::new(script);
        let acceptor = std::thread::spawn({
            let (counts, is_over) = (Arc::clone(&counts), Arc::clone(&is_over));
            let streams = Arc::clone(&streams);
            move || {
                let mut threads = Vec::new();
                while let Ok((stream, _)) = listener.accept() {
                    if is_over.load(Ordering::SeqCst) {
                        break;
                    }
                    let number = counts.connections.fetch_add(1, Ordering::SeqCst);
                    let stream = Arc::new(stream);
                    streams.lock().unwrap().push(Arc::downgrade(&stream));
                    let (counts, script) = (Arc::clone(&counts), Arc::clone(&script));
                    threads.push(std::thread::spawn(move || {
                        let _ = serve(&stream, number, &counts, &*script);
                    }));
                }
                shut_down(&streams);
                for thread in threads {
                    thread.join().unwrap();
                }
            }
        });
        Self {
            address,
            counts,
            is_over,
            streams,
            acceptor: Some(acceptor),
        }
    }

    /// Answers each request with this body, and status 200.
    pub(crate) fn answering(body: &'static str) -> Self {
        Self::start(move |_, _| Act::Send(answer(200, body)))
    }

    pub(crate) fn connections(&self) -> u64 {
        self.counts.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn requests(&self) -> u64 {
        self.counts.requests.load(Ordering::SeqCst)
    }

    /// Closes all connections in good order.
    pub(crate) fn close_all(&self) {
        shut_down(&self.streams);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn shut_down(streams: &Mutex<Vec<Weak<TcpStream>>>) {
    for stream in streams.lock().unwrap().drain(..) {
        if let Some(stream) = stream.upgrade() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// An answer with a length.
pub(crate) fn answer(status: u16, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}

fn serve(
    mut stream: &TcpStream,
    connection: u64,
    counts: &Counts,
    script: &Script,
) -> io::Result<()> {
    let mut input = Vec::new();
    for request in 0.. {
        let Some(head) = read_head(stream, &mut input)? else {
            return Ok(());
        };
        counts.requests.fetch_add(1, Ordering::SeqCst);
        counts.requests_max.fetch_max(request + 1, Ordering::SeqCst);
        if head.contains("Connection: close") {
            counts.last_ones.fetch_add(1, Ordering::SeqCst);
        }
        match script(connection, request) {
            Act::Send(bytes) => stream.write_all(&bytes)?,
            Act::SendAndClose(bytes) => {
                stream.write_all(&bytes)?;
                return stream.shutdown(Shutdown::Both);
            }
            Act::Reset => {
                loadline_sys::connect::reset_on_close(stream.as_fd());
                return Ok(());
            }
            Act::Hang => {
                let ended = stream.read(&mut [0; 1]);
                if ended.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset) {
                    counts.resets.fetch_add(1, Ordering::SeqCst);
                }
                return Ok(());
            }
        }
    }
    Ok(())
}

fn read_head(mut stream: &TcpStream, input: &mut Vec<u8>) -> io::Result<Option<String>> {
    loop {
        if let Some(at) = input.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = input.drain(..at + 4).collect();
            return Ok(Some(String::from_utf8(head).unwrap()));
        }
        let mut piece = vec![0; 64 << 10];
        match stream.read(&mut piece)? {
            0 => return Ok(None),
            count => input.extend_from_slice(&piece[..count]),
        }
    }
}
