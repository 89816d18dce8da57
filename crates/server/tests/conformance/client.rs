//! A client over a raw socket that knows nothing of the server's code and never waits for ever.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use loadline_base::Buffer;
use loadline_proto::Layer;

use crate::answers::{Answer, parse_answers};

/// The longest wait for anything before a test fails.
pub const TIMEOUT: Duration = Duration::from_secs(20);

pub struct Client {
    pub stream: TcpStream,
    layer: Option<Box<dyn Layer>>,
    /// Its requests go as streams of HTTP/2. Then a response does not say that the connection ends.
    pub is_http2: bool,
    unread: Vec<u8>,
    /// What it reads at once, at most.
    piece_bytes: usize,
    /// It rests between some pieces.
    is_slow: bool,
    /// Bytes that came, all in all.
    pub bytes_in: u64,
    pub bytes_out: u64,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        Self {
            stream,
            layer: None,
            is_http2: false,
            unread: Vec::new(),
            piece_bytes: 65_536,
            is_slow: false,
            bytes_in: 0,
            bytes_out: 0,
        }
    }

    /// Bounds what the kernel takes in before it is read, however large its buffers may become.
    pub fn receive_little(&mut self) -> &mut Self {
        rustix::net::sockopt::set_socket_recv_buffer_size(&self.stream, 1 << 16).unwrap();
        self
    }

    /// Reads less at once.
    pub fn receive_pieces(&mut self, bytes: usize) -> &mut Self {
        self.piece_bytes = bytes.min(65_536);
        self
    }

    /// Reads a large response in more time than the server takes to send it.
    pub fn receive_slowly(&mut self) -> &mut Self {
        self.is_slow = true;
        self.receive_pieces(20_000)
    }

    /// The same over a layer, TLS for example, with what it opens with.
    pub fn connect_over(address: SocketAddr, layer: Box<dyn Layer>, hello: &[u8]) -> Self {
        let mut client = Self::connect(address);
        client.send(hello);
        client.layer = Some(layer);
        client
    }

    /// Until its handshake is done.
    pub fn open(&mut self) -> &mut Self {
        while self.layer.as_ref().is_some_and(|layer| !layer.is_open()) {
            assert!(self.read().unwrap() > 0, "the end instead of a handshake");
        }
        self
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        let bytes = self.open().sealed(bytes.as_ref());
        self.bytes_out += bytes.len() as u64;
        self.stream.write_all(&bytes).unwrap();
        self
    }

    /// Sends more than sockets hold while the server may be waiting for its response to be read.
    pub fn send_much(&mut self, bytes: Vec<u8>) -> &mut Self {
        if self.layer.is_some() {
            return self.send(bytes); // what does not fit into windows waits in the layer
        }
        self.bytes_out += bytes.len() as u64;
        let mut stream = self.stream.try_clone().unwrap();
        std::thread::spawn(move || stream.write_all(&bytes)); // fails if the server ends the connection
        self
    }

    /// Asks for the last time: the server ends the connection with its response.
    pub fn send_last(&mut self, target: &str) -> &mut Self {
        self.send(format!(
            "GET {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
        ));
        if self.is_http2 {
            self.half_close(); // there is no such field
        }
        self
    }

    /// Sends as far as the server listens.
    pub fn send_in_vain(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        let bytes = self.open().sealed(bytes.as_ref());
        let _ = self.stream.write_all(&bytes);
        self
    }

    fn sealed(&mut self, bytes: &[u8]) -> Vec<u8> {
        let Some(layer) = &mut self.layer else {
            return bytes.to_vec();
        };
        let mut out = Buffer::default();
        layer.send(bytes, &mut out);
        out.to_vec()
    }

    /// Waits until what came ends with this.
    pub fn await_bytes(&mut self, end: &[u8]) {
        while self.unread.is_empty() || !self.unread.ends_with(end) {
            assert!(self.fill(), "the end instead of {}", end.escape_ascii());
        }
    }

    /// Whether something of a response has come: looks without waiting.
    pub fn is_answered(&mut self) -> bool {
        self.take_in();
        !self.unread.is_empty()
    }

    /// Takes what has come, if anything has.
    pub fn take_in(&mut self) {
        self.stream.set_nonblocking(true).unwrap();
        while matches!(self.read(), Ok(1..)) {}
        self.stream.set_nonblocking(false).unwrap();
    }

    /// Whether an answer is the last of its connection, as far as its HTTP says so.
    pub fn is_last(&self, answer: &Answer) -> bool {
        self.is_http2 || answer.closes()
    }

    /// Whether the server has said that its output ends.
    pub fn has_ended(&self) -> bool {
        self.layer.as_ref().is_none_or(|layer| layer.has_ended())
    }

    pub fn half_close(&mut self) -> &mut Self {
        if let Some(layer) = &mut self.open().layer {
            let mut out = Buffer::default();
            layer.finish(&mut out);
            self.stream.write_all(&out).unwrap();
        }
        self.stream.shutdown(Shutdown::Write).unwrap();
        self
    }

    /// A GET with these field lines, and its answer.
    pub fn get(&mut self, target: &str, lines: &str) -> Answer {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: h\r\n{lines}\r\n"));
        self.answer()
    }

    /// The same with HEAD.
    pub fn head(&mut self, target: &str, lines: &str) -> Answer {
        self.send(format!("HEAD {target} HTTP/1.1\r\nHost: h\r\n{lines}\r\n"));
        self.read_answer(true)
    }

    /// The next answer, whole.
    pub fn answer(&mut self) -> Answer {
        self.read_answer(false)
    }

    fn read_answer(&mut self, is_head: bool) -> Answer {
        let head_len = loop {
            if let Some(at) = self.unread.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(self.fill(), "the end instead of an answer");
        };
        let head = String::from_utf8(self.unread[..head_len].to_vec()).unwrap();
        let status: u16 = head[9..12].parse().unwrap();
        let has_content = !is_head && status >= 200 && status != 204 && status != 304;
        let content_len = head
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .map_or(0, |(_, value)| value.trim().parse().unwrap());
        let is_chunked =
            has_content && head.to_ascii_lowercase().contains("\r\ntransfer-encoding:");
        let len = loop {
            let len = match is_chunked {
                true => chunked_len(&self.unread[head_len..]).map(|len| head_len + len),
                false => Some(head_len + if has_content { content_len } else { 0 }),
            };
            match len {
                Some(len) if self.unread.len() >= len => break len,
                _ => assert!(self.fill(), "the end in the middle of an answer: {head}"),
            }
        };
        let bytes = take_first(&mut self.unread, len);
        let mut answers = parse_answers(&bytes, |_| is_head);
        assert_eq!(answers.len(), 1);
        answers.remove(0)
    }

    /// So many bytes, whatever they are.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        while self.unread.len() < count {
            assert!(self.fill(), "the end instead of {count} bytes");
        }
        take_first(&mut self.unread, count)
    }

    /// Asserts that the server ends the connection here, and without a reset.
    pub fn end(&mut self) {
        while self.fill() {}
        let shown = String::from_utf8_lossy(&self.unread).into_owned();
        assert!(shown.is_empty(), "more instead of the end: {shown:?}");
    }

    /// The same where the last answer ends the connection: one of HTTP/2 ends when its client does.
    pub fn end_with_answer(&mut self) {
        if self.is_http2 {
            self.half_close();
        }
        self.end();
    }

    /// Everything until the server ends the connection, or resets a stream, in whatever way.
    pub fn rest(&mut self) -> Vec<u8> {
        while !(self.is_http2 && self.has_ended()) {
            match self.read() {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => panic!("{error}"),
            }
        }
        std::mem::take(&mut self.unread)
    }

    fn fill(&mut self) -> bool {
        self.read().unwrap() > 0
    }

    /// What comes next, into `unread`; 0: the end.
    fn read(&mut self) -> io::Result<usize> {
        let mut chunk = [0; 65_536];
        let count = self.stream.read(&mut chunk[..self.piece_bytes])?;
        self.bytes_in += count as u64;
        if self.is_slow && count.is_multiple_of(16) {
            std::thread::sleep(Duration::from_micros(300));
        }
        let bytes = &mut chunk[..count];
        let Some(layer) = &mut self.layer else {
            self.unread.extend_from_slice(bytes);
            return Ok(count);
        };
        let (mut plain, mut out) = (Buffer::default(), Buffer::default());
        layer
            .received(bytes, &mut plain, &mut out)
            .expect("records");
        self.unread.extend_from_slice(&plain);
        if self.stream.write_all(&out).is_ok() {
            self.bytes_out += out.len() as u64;
        } // otherwise the server has closed
        Ok(count)
    }
}

/// The length of chunked content with its framing, once all of it is there.
fn chunked_len(bytes: &[u8]) -> Option<usize> {
    let line_len = |from: usize| {
        let rest = bytes.get(from..)?;
        rest.windows(2).position(|w| w == b"\r\n")
    };
    let mut at = 0;
    loop {
        let digits = line_len(at)?;
        let size = std::str::from_utf8(&bytes[at..at + digits]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        at += digits + 2;
        if size == 0 {
            break;
        }
        at += size + 2;
    }
    loop {
        match line_len(at)? {
            0 => return Some(at + 2),
            field => at += field + 2,
        }
    }
}

/// So many bytes from the beginning, in one piece: without optimising, `drain` moves one after the other.
fn take_first(bytes: &mut Vec<u8>, count: usize) -> Vec<u8> {
    let rest = bytes.split_off(count);
    std::mem::replace(bytes, rest)
}
