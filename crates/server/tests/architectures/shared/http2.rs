//! A client of HTTP/2 with a time limit on everything.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use loadline_proto::hpack::Decoder;
use loadline_proto::http2::frame::{FrameHead, HEAD_BYTES, Kind, PREFACE, flags, write_frame};

use super::{Client, eventually};

/// A client that looks at each stream of its connection.
pub(crate) struct Http2Client {
    stream: TcpStream,
    unread: Vec<u8>,
    decoder: Decoder,
    responses: BTreeMap<u32, Response>,
}

/// What has come on a stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) has_retry_after: bool,
    pub(crate) content: Vec<u8>,
    is_whole: bool,
}

impl Http2Client {
    pub(crate) fn over(client: Client) -> Self {
        let mut this = Self {
            stream: client.stream,
            unread: Vec::new(),
            decoder: Decoder::default(),
            responses: BTreeMap::new(),
        };
        let mut frames = PREFACE.to_vec();
        write_frame(Kind::Settings, 0, 0, &[], &mut frames);
        this.stream.write_all(&frames).unwrap();
        this
    }

    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::over(Client::connect(address))
    }

    /// Asks for a path over these streams at once.
    pub(crate) fn ask(&mut self, streams: impl IntoIterator<Item = u32>, path: &str) {
        self.ask_each(streams.into_iter().map(|stream| (stream, path)));
    }

    /// Asks over streams at once, for a path each.
    pub(crate) fn ask_each<'p>(&mut self, requests: impl IntoIterator<Item = (u32, &'p str)>) {
        let mut frames = Vec::new();
        for (stream, path) in requests {
            request(stream, path, &mut frames);
        }
        self.stream.write_all(&frames).unwrap();
    }

    /// Asks for a path over a stream whose content comes later.
    pub(crate) fn announce(&mut self, stream: u32, path: &str) {
        let mut frames = Vec::new();
        head(stream, flags::END_HEADERS, path, &mut frames);
        self.stream.write_all(&frames).unwrap();
    }

    /// Sends the content of a stream, all of it.
    pub(crate) fn send(&mut self, stream: u32, content: &[u8]) {
        let mut frames = Vec::new();
        write_frame(Kind::Data, flags::END_STREAM, stream, content, &mut frames);
        self.stream.write_all(&frames).unwrap();
    }

    /// Ends streams.
    pub(crate) fn reset(&mut self, streams: impl IntoIterator<Item = u32>) {
        let mut frames = Vec::new();
        for stream in streams {
            let cancel = [0, 0, 0, 8];
            write_frame(Kind::RstStream, 0, stream, &cancel, &mut frames);
        }
        self.stream.write_all(&frames).unwrap();
    }

    /// Waits until the server's end of the connection has all that was sent, read or not.
    pub(crate) fn await_delivery(&self) {
        let port = format!(":{:04X}", self.stream.local_addr().unwrap().port());
        eventually(|| {
            let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
            let mut lines = sockets.lines().map(str::split_ascii_whitespace);
            let queues = lines.find_map(|mut fields| {
                let is_mine = fields.nth(1)?.ends_with(&port);
                is_mine.then(|| fields.nth(2))?
            });
            queues.unwrap().starts_with("00000000:")
        });
    }

    /// The response to this stream, once all of it has come.
    pub(crate) fn response(&mut self, stream: u32) -> Response {
        loop {
            if let Some(response) = self.responses.get(&stream)
                && response.is_whole
            {
                return response.clone();
            }
            self.read_frame();
        }
    }

    fn read_frame(&mut self) {
        let head = FrameHead::parse(&self.bytes(HEAD_BYTES).try_into().unwrap());
        let payload = self.bytes(head.len);
        let response = match head.kind {
            Kind::Headers | Kind::Data => self.responses.entry(head.stream).or_default(),
            Kind::RstStream | Kind::GoAway => panic!("{head:?}: {payload:?}"),
            _ => return,
        };
        if head.kind == Kind::Data {
            response.content.extend_from_slice(&payload);
        } else {
            assert!(head.has(flags::END_HEADERS), "it fits into one frame");
            let mut memory = Vec::new();
            let decoded = self
                .decoder
                .decode(&payload, &mut memory, |name, value| match name {
                    b":status" => {
                        response.status = std::str::from_utf8(value).unwrap().parse().unwrap();
                    }
                    b"retry-after" => response.has_retry_after = true,
                    _ => {}
                });
            decoded.unwrap();
        }
        response.is_whole = head.has(flags::END_STREAM);
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        while self.unread.len() < len {
            let mut bytes = [0; 16 << 10];
            let count = self.stream.read(&mut bytes).unwrap();
            assert!(count > 0, "the connection has ended");
            self.unread.extend_from_slice(&bytes[..count]);
        }
        self.unread.drain(..len).collect()
    }
}

/// A request on a stream.
pub(crate) fn request(stream: u32, path: &str, out: &mut Vec<u8>) {
    head(stream, flags::END_HEADERS | flags::END_STREAM, path, out);
}

/// Its head, with these flags.
fn head(stream: u32, flags: u8, path: &str, out: &mut Vec<u8>) {
    // Indexed fields, and literals of known names (RFC 7541 section 6 and appendix A): GET, http.
    let (get, http, authority, path_name) = (0x82, 0x86, 0x01, 0x04);
    let mut block = vec![get, http, authority, 1, b'h', path_name, path.len() as u8];
    block.extend_from_slice(path.as_bytes());
    write_frame(Kind::Headers, flags, stream, &block, out);
}
