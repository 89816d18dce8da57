//! A client over a raw socket that knows nothing of the server's code and never waits for ever.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::answers::{Answer, parse_answers};

/// The longest wait for anything before a test fails.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub struct Client {
    pub stream: TcpStream,
    unread: Vec<u8>,
    /// Bytes that came, all in all.
    pub bytes_in: u64,
    pub bytes_out: u64,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self {
            stream,
            unread: Vec::new(),
            bytes_in: 0,
            bytes_out: 0,
        }
    }

    /// Bounds what the kernel takes in before it is read, however large its buffers may become.
    pub fn receive_little(&mut self) -> &mut Self {
        rustix::net::sockopt::set_socket_recv_buffer_size(&self.stream, 1 << 16).unwrap();
        self
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.bytes_out += bytes.as_ref().len() as u64;
        self.stream.write_all(bytes.as_ref()).unwrap();
        self
    }

    /// Sends as far as the server listens.
    pub fn send_in_vain(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        let _ = self.stream.write_all(bytes.as_ref());
        self
    }

    pub fn half_close(&mut self) -> &mut Self {
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
        let bytes: Vec<u8> = self.unread.drain(..len).collect();
        let mut answers = parse_answers(&bytes, |_| is_head);
        assert_eq!(answers.len(), 1);
        answers.remove(0)
    }

    /// Asserts that the server ends the connection here, and without a reset.
    pub fn end(&mut self) {
        while self.fill() {}
        let shown = String::from_utf8_lossy(&self.unread).into_owned();
        assert!(shown.is_empty(), "more instead of the end: {shown:?}");
    }

    /// Everything until the server ends the connection, in whatever way.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut chunk = [0; 65_536];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => break,
                Ok(n) => self.unread.extend_from_slice(&chunk[..n]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => panic!("{error}"),
            }
        }
        std::mem::take(&mut self.unread)
    }

    fn fill(&mut self) -> bool {
        let mut chunk = [0; 65_536];
        let count = self.stream.read(&mut chunk).unwrap();
        self.bytes_in += count as u64;
        self.unread.extend_from_slice(&chunk[..count]);
        count > 0
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
