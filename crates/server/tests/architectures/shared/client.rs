//! A client with a time limit on everything.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use loadline_proto::http2::frame::{Kind, PREFACE, write_frame};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

use super::TIMEOUT;
use super::http2::request;

/// A client over any stream.
pub(crate) struct Client<S = TcpStream> {
    pub(crate) stream: S,
    unread: Vec<u8>,
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) content: Vec<u8>,
}

impl Answer {
    pub(crate) fn says(&self, field: &str) -> bool {
        self.head.to_ascii_lowercase().contains(field)
    }
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::patient(TcpStream::connect(address).unwrap())
    }

    /// From this address of the loopback network, as another client.
    pub(crate) fn connect_from(source: [u8; 4], address: SocketAddr) -> Self {
        let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
        let socket = net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        net::bind(&socket, &SocketAddr::from((source, 0))).unwrap();
        net::connect(&socket, &address).unwrap();
        Self::patient(socket.into())
    }

    fn patient(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        Self::over(stream)
    }
}

impl<S: Read + Write> Client<S> {
    pub(crate) fn over(stream: S) -> Self {
        Self {
            stream,
            unread: Vec::new(),
        }
    }

    pub(crate) fn ask(&mut self, path: &str) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n");
        self.stream.write_all(request.as_bytes()).unwrap();
    }

    /// Asks for a client, as a proxy does.
    pub(crate) fn ask_for(&mut self, client: [u8; 4], path: &str) {
        let from = super::forwarded_for(client);
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\n{from}\r\n");
        self.stream.write_all(request.as_bytes()).unwrap();
    }

    /// Begins HTTP/2, and asks over so many streams at once. What comes is not read.
    pub(crate) fn ask_by_streams(&mut self, path: &str, count: u32) {
        let mut frames = PREFACE.to_vec();
        write_frame(Kind::Settings, 0, 0, &[], &mut frames);
        for stream in 0..count {
            request(2 * stream + 1, path, &mut frames);
        }
        self.stream.write_all(&frames).unwrap();
    }

    /// Ends the streams that it has begun.
    pub(crate) fn reset_streams(&mut self, count: u32) {
        let mut frames = Vec::new();
        for stream in 0..count {
            let cancel = [0, 0, 0, 8];
            write_frame(Kind::RstStream, 0, 2 * stream + 1, &cancel, &mut frames);
        }
        self.stream.write_all(&frames).unwrap();
    }

    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.ask(path);
        self.answer().unwrap()
    }

    /// The next answer, by its Content-Length.
    pub(crate) fn answer(&mut self) -> io::Result<Answer> {
        let head_len = loop {
            if let Some(at) = self.unread.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            self.read_more()?;
        };
        let head = take_first(&mut self.unread, head_len);
        let head = String::from_utf8(head).unwrap();
        let lower = head.to_ascii_lowercase();
        let (_, after) = lower.split_once("content-length: ").unwrap();
        let len: usize = after.split("\r\n").next().unwrap().parse().unwrap();
        while self.unread.len() < len {
            self.read_more()?;
        }
        Ok(Answer {
            status: head[9..12].parse().unwrap(),
            content: take_first(&mut self.unread, len),
            head,
        })
    }

    fn read_more(&mut self) -> io::Result<()> {
        let mut bytes = [0; 64 << 10];
        match self.stream.read(&mut bytes)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.unread.extend_from_slice(&bytes[..count]);
                Ok(())
            }
        }
    }

    /// Whether the server closes within the time limit without another byte.
    pub(crate) fn is_closed(&mut self) -> bool {
        match self.stream.read(&mut [0]) {
            Ok(0) => self.unread.is_empty(),
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
            Ok(_) => false,
        }
    }
}

/// So many bytes from the beginning, in one piece: without optimising, `drain` moves one after the other.
fn take_first(bytes: &mut Vec<u8>, count: usize) -> Vec<u8> {
    let rest = bytes.split_off(count);
    std::mem::replace(bytes, rest)
}

/// Closes with a reset instead of a regular end.
pub(crate) fn reset(client: Client) {
    let at_once = Some(std::time::Duration::ZERO);
    net::sockopt::set_socket_linger(&client.stream, at_once).unwrap();
}
