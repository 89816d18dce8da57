//! Clients with a script: what they send and when, and what they may get for it.

use std::collections::VecDeque;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// How a client behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// Sends all, reads all, then closes.
    Regular,
    /// The same, and keeps its connection open until the server closes it.
    Stays,
    /// Closes its sending half behind its last request.
    HalfCloses,
    /// Reads little at a time.
    ReadsSlowly,
    /// Stops in the middle of a request.
    Stalls,
    /// Resets the connection at some time.
    Resets,
}

/// What answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Quick,
    Block,
    Collect,
    Task,
}

/// One request and the content of its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) id: u64,
    pub(super) kind: Kind,
    pub(super) answer_bytes: usize,
}

/// What is sent at once.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) bytes: Vec<u8>,
    pub(super) delay_us: u64,
    /// Not before so many answers have come.
    pub(super) after_answers: usize,
    /// Requests that are complete with it.
    pub(super) completes: usize,
    /// Behind a request that asks for the end of the connection.
    pub(super) is_surplus: bool,
}

/// One client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) manner: Manner,
    pub(super) pipe: usize,
    requests: Vec<Request>,
    pub(super) parts: VecDeque<Part>,
    received: Vec<u8>,
    /// Status codes of the answers so far.
    pub(super) answers: Vec<u16>,
    /// Requests that have arrived whole while the server's end was open.
    pub(super) accepted: usize,
    /// When the last of them did.
    pub(super) accepted_us: u64,
    /// An answer has said that it is the last.
    pub(super) has_last_answer: bool,
    pub(super) is_sending: bool,
    pub(super) is_reading: bool,
    /// It has closed its end, or seen that of the server.
    pub(super) is_over: bool,
}

pub(super) fn content(id: u64, bytes: usize) -> Vec<u8> {
    let mut content = format!("{id}:").into_bytes();
    content.resize(bytes.max(content.len()), b'.');
    content
}

impl Request {
    fn random(id: u64, luck: &mut Pcg64Mcg) -> Self {
        let kind = match luck.random_range(0..10) {
            0..4 => Kind::Quick,
            4..6 => Kind::Collect,
            6..8 => Kind::Task,
            _ => Kind::Block,
        };
        let answer_bytes = match luck.random_range(0..20) {
            0 => luck.random_range(10_000..40_000),
            1..4 => luck.random_range(1_000..10_000),
            _ => luck.random_range(20..1_000),
        };
        Self {
            id,
            kind,
            answer_bytes,
        }
    }

    fn encode(&self, is_last: bool, luck: &mut Pcg64Mcg) -> Vec<u8> {
        let letter = match self.kind {
            Kind::Quick => 'q',
            Kind::Block => 'b',
            Kind::Collect => 'c',
            Kind::Task => 't',
        };
        let target = format!("/{letter}/{}/{}", self.id, self.answer_bytes);
        let has_content = matches!(self.kind, Kind::Collect | Kind::Task) && luck.random_bool(0.7);
        let close = if is_last { "Connection: close\r\n" } else { "" };
        if !has_content {
            return format!("GET {target} HTTP/1.1\r\nHost: s\r\n{close}\r\n").into_bytes();
        }
        let length = luck.random_range(1..3_000);
        let head = format!("POST {target} HTTP/1.1\r\nHost: s\r\n{close}");
        let mut bytes = head.into_bytes();
        if luck.random_bool(0.5) {
            bytes.extend(format!("Content-Length: {length}\r\n\r\n").bytes());
            bytes.resize(bytes.len() + length, b'x');
        } else {
            bytes.extend(format!("Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n").bytes());
            bytes.resize(bytes.len() + length, b'x');
            bytes.extend(b"\r\n0\r\n\r\n");
        }
        bytes
    }
}

impl Client {
    pub(super) fn random(first_id: u64, luck: &mut Pcg64Mcg) -> Self {
        let manner = match luck.random_range(0..20) {
            0..10 => Manner::Regular,
            10..12 => Manner::Stays,
            12..14 => Manner::HalfCloses,
            14..16 => Manner::ReadsSlowly,
            16..17 => Manner::Stalls,
            _ => Manner::Resets,
        };
        let count = luck.random_range(1..5);
        let requests: Vec<Request> = (0..count)
            .map(|index| Request::random(first_id + index, luck))
            .collect();
        let pipelines = luck.random_bool(0.3);
        let asks_for_end = luck.random_bool(0.2);
        let mut parts = VecDeque::new();
        for (index, request) in requests.iter().enumerate() {
            let is_last = asks_for_end && index + 1 == requests.len();
            let bytes = request.encode(is_last, luck);
            let pieces = luck.random_range(1..4).min(bytes.len());
            let size = bytes.len().div_ceil(pieces);
            let mut chunks = bytes.chunks(size).peekable();
            while let Some(chunk) = chunks.next() {
                parts.push_back(Part {
                    bytes: chunk.to_vec(),
                    delay_us: luck.random_range(0..2_000),
                    after_answers: if pipelines { 0 } else { index },
                    completes: usize::from(chunks.peek().is_none()),
                    is_surplus: false,
                });
            }
        }
        if asks_for_end && luck.random_bool(0.5) {
            parts.push_back(Part {
                bytes: b"GET /q/0/20 HTTP/1.1\r\nHost: s\r\n\r\n".to_vec(),
                delay_us: luck.random_range(0..300),
                after_answers: 0,
                completes: 0,
                is_surplus: true,
            });
        }
        if manner == Manner::Stalls {
            let keep = luck.random_range(0..parts.len());
            parts.truncate(keep);
            if let Some(last) = parts.back_mut()
                && last.completes == 1
                && last.bytes.len() > 1
            {
                last.bytes.pop();
                last.completes = 0;
            }
        }
        Self {
            manner,
            pipe: usize::MAX,
            requests,
            parts,
            received: Vec::new(),
            answers: Vec::new(),
            accepted: 0,
            accepted_us: 0,
            has_last_answer: false,
            is_sending: false,
            is_reading: false,
            is_over: false,
        }
    }

    /// Whether every request has its answer.
    pub(super) fn is_answered(&self) -> bool {
        self.answers.len() >= self.requests.len()
    }

    /// Takes in what came from the server; `Err`: what no server may send.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.received.extend(bytes);
        while let Some((answer, used)) = Answer::parse(&self.received)? {
            self.received.drain(..used);
            self.check(&answer)?;
            self.answers.push(answer.status);
            self.has_last_answer |= answer.is_last;
        }
        Ok(())
    }

    fn check(&self, answer: &Answer) -> Result<(), String> {
        let index = self.answers.len();
        if self.has_last_answer {
            return Err(format!("answer {index} after the last: {answer:?}"));
        }
        let Some(request) = self.requests.get(index) else {
            return Err(format!("answer {index} to no request: {answer:?}"));
        };
        let may_time_out = matches!(self.manner, Manner::Stalls | Manner::ReadsSlowly);
        match answer.status {
            200 => {}
            503 => return Ok(()),
            408 if may_time_out => return Ok(()),
            status => return Err(format!("{status} to {request:?}")),
        }
        if answer.content != content(request.id, request.answer_bytes) {
            let start = String::from_utf8_lossy(&answer.content[..answer.content.len().min(24)]);
            return Err(format!("the content {start:?} to {request:?}"));
        }
        Ok(())
    }
}

/// One answer.
#[derive(Debug)]
struct Answer {
    status: u16,
    content: Vec<u8>,
    is_last: bool,
}

impl Answer {
    /// The first of these bytes, and its length; `None`: not whole yet.
    fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, String> {
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            return Ok(None);
        };
        let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        let Some(status) = status else {
            return Err(format!("no status line: {head:?}"));
        };
        let is_last = head.contains("connection: close");
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .and_then(|length| length.parse().ok());
        let start = end + 4;
        let body = match length {
            Some(length) => {
                let length: usize = length;
                let content = bytes[start..].get(..length).map(<[u8]>::to_vec);
                content.map(|content| (content, length))
            }
            None => dechunked(&bytes[start..])?,
        };
        Ok(body.map(|(content, used)| {
            let answer = Self {
                status,
                content,
                is_last,
            };
            (answer, start + used)
        }))
    }
}

/// Chunked content and its length as sent; `None`: not whole yet.
fn dechunked(mut bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, String> {
    let (mut content, mut used) = (Vec::new(), 0);
    loop {
        let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") else {
            return Ok(None);
        };
        let line = String::from_utf8_lossy(&bytes[..end]);
        let size = usize::from_str_radix(&line, 16).map_err(|_| format!("chunk line {line:?}"))?;
        let whole = end + 2 + size + 2;
        let Some(chunk) = bytes.get(end + 2..whole) else {
            return Ok(None);
        };
        content.extend(&chunk[..size]);
        used += whole;
        bytes = &bytes[whole..];
        if size == 0 {
            return Ok(Some((content, used)));
        }
    }
}
