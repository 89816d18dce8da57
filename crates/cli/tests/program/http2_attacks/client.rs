//! The attacker's end of a connection: what the server has said on it.

use std::io::{BufReader, ErrorKind, Read as _};
use std::net::TcpStream;

use loadline_proto::hpack::Decoder;
use loadline_proto::http2::frame::{FrameHead, HEAD_BYTES, Kind, number};

/// What tells how an attack has ended.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The code of GOAWAY.
    pub(super) go_away: Option<u32>,
    /// The code of each RST_STREAM.
    pub(super) resets: Vec<u32>,
    /// The status of each response.
    pub(super) statuses: Vec<u16>,
    /// How many pings were answered.
    pub(super) pongs: usize,
}

pub(super) struct Client<'s> {
    stream: BufReader<&'s TcpStream>,
    decoder: Decoder,
    pub(super) seen: Seen,
}

impl<'s> Client<'s> {
    pub(super) fn new(stream: &'s TcpStream) -> Self {
        Self {
            stream: BufReader::new(stream),
            decoder: Decoder::default(),
            seen: Seen::default(),
        }
    }

    /// Takes the next frame; `false`: the connection has ended.
    pub(super) fn take(&mut self) -> bool {
        let mut head = [0; HEAD_BYTES];
        if !self.fill(&mut head) {
            return false;
        }
        let head = FrameHead::parse(&head);
        let mut payload = vec![0; head.len];
        if !self.fill(&mut payload) {
            return false;
        }
        match head.kind {
            Kind::GoAway => self.seen.go_away = Some(number(&payload[4..])),
            Kind::RstStream => self.seen.resets.push(number(&payload)),
            Kind::Headers => self.response(&payload),
            Kind::Ping => self.seen.pongs += 1,
            _ => {}
        }
        true
    }

    fn response(&mut self, block: &[u8]) {
        let statuses = &mut self.seen.statuses;
        let decoded = self.decoder.decode(block, &mut Vec::new(), |name, value| {
            if name == b":status" {
                statuses.push(std::str::from_utf8(value).unwrap().parse().unwrap());
            }
        });
        decoded.unwrap();
    }

    fn fill(&mut self, bytes: &mut [u8]) -> bool {
        match self.stream.read_exact(bytes) {
            Ok(()) => true,
            Err(error) => match error.kind() {
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => false,
                _ => panic!("{error}; {:?}", self.seen),
            },
        }
    }
}
