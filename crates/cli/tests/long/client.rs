//! A plain client that shares no code with the program.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd as _;

use loadline_sys::connect::{connect, outcome};
use loadline_sys::{Events, Interest, Poller};

use crate::program::GRACE;

/// One answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The value of a field of the head.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let found = lines.find(|(it, _)| it.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn closes(&self) -> bool {
        self.field("connection") == Some("close")
    }
}

/// One connection.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self::of(TcpStream::connect(address).expect("the server listens"))
    }

    /// From an address of loopback.
    pub(crate) fn from(source: IpAddr, address: SocketAddr) -> Self {
        let socket = connect(&address, Some(source), None).expect("an address of this machine");
        let (poller, mut events) = (Poller::new().unwrap(), Events::new());
        poller.add(&socket, 1, Interest::Connection).unwrap();
        let timeout_ms = u64::try_from(GRACE.as_millis()).unwrap();
        let ready = poller.wait(&mut events, Some(timeout_ms)).unwrap();
        assert_eq!(ready, 1, "connecting takes too long");
        outcome(socket.as_fd()).expect("the server listens");
        let stream = TcpStream::from(socket);
        stream.set_nonblocking(false).unwrap();
        Self::of(stream)
    }

    fn of(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(GRACE)).unwrap();
        stream.set_write_timeout(Some(GRACE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream: BufReader::with_capacity(64 << 10, stream),
        }
    }

    /// The socket itself, which must not be read.
    pub(crate) fn socket(&self) -> &TcpStream {
        self.stream.get_ref()
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).expect("sent");
    }

    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.send(request("GET", path, "").as_bytes());
        self.answer().expect("an answer")
    }

    /// Says that nothing more comes.
    pub(crate) fn shut(&self) {
        self.socket().shutdown(Shutdown::Write).unwrap();
    }

    /// Reads one answer to anything but HEAD; `None` if the connection ended before its first byte.
    pub(crate) fn answer(&mut self) -> Option<Answer> {
        let mut answer = self.head()?;
        let length = match answer.status {
            204 | 304 => 0,
            _ => {
                let length = answer.field("content-length");
                let length = length.unwrap_or_else(|| panic!("no length: {}", answer.head));
                length.parse().expect("a number")
            }
        };
        answer.body = vec![0; length];
        let head = &answer.head;
        let read = self.stream.read_exact(&mut answer.body);
        read.unwrap_or_else(|error| panic!("{error} within the content: {head}"));
        Some(answer)
    }

    /// Reads the head of an answer; `None` if the connection ended before its first byte.
    pub(crate) fn head(&mut self) -> Option<Answer> {
        let mut head = String::new();
        loop {
            let length = head.len();
            match self.stream.read_line(&mut head) {
                Ok(0) if head.is_empty() => return None,
                Ok(0) => panic!("the connection ended within a head: {head:?}"),
                Ok(_) => {}
                Err(error) => panic!("{error} after {head:?}"),
            }
            if &head[length..] == "\r\n" {
                break;
            }
        }
        let status = head.split(' ').nth(1).expect("a status line");
        let status = status.parse().expect("a status");
        Some(Answer {
            status,
            head,
            body: Vec::new(),
        })
    }

    /// Reads what is there, at most so many bytes.
    pub(crate) fn some(&mut self, bytes_max: usize) -> Vec<u8> {
        let mut piece = vec![0; bytes_max];
        let count = self.stream.read(&mut piece).expect("more of the answer");
        piece.truncate(count);
        piece
    }

    /// Asserts that the server says no more and closes.
    pub(crate) fn ends(&mut self) {
        let mut rest = Vec::new();
        let read = self.stream.read_to_end(&mut rest);
        let rest = String::from_utf8_lossy(&rest).into_owned();
        assert!(read.is_ok() && rest.is_empty(), "{read:?}, {rest}");
    }
}

/// A request without content; `fields` end with an empty line's worth of CRLF each.
pub(crate) fn request(method: &str, path: &str, fields: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n")
}
