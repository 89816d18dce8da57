//! A client's layer that sends HTTP/1 requests as HTTP/2 streams, and gives their responses back as
//! HTTP/1, in the order of the requests: so a case that is not about HTTP/1's bytes runs over HTTP/2.

use std::collections::{BTreeMap, VecDeque};
use std::io::Read as _;
use std::net::SocketAddr;

use loadline_base::Buffer;
use loadline_proto::hpack::{Decoder, Encoder, Indexing};
use loadline_proto::http2::frame::{
    FrameHead, HEAD_BYTES, Kind, PREFACE, Setting, flags, number, write_frame,
};
use loadline_proto::{Fault, Layer};

use crate::client::Client;

/// Requests at one time.
const STREAMS_MAX: usize = 100;
/// Room for content: as much as any test receives.
const WINDOW: u32 = 0x7fff_0000;

/// A connection, as its client sees it.
#[derive(Debug)]
pub struct Translated {
    encoder: Encoder,
    decoder: Decoder,
    scheme: &'static str,
    /// HTTP/1 that was sent, and is no whole head yet.
    unsent: Vec<u8>,
    /// How much of it is used up.
    used: usize,
    content: Content,
    /// Frames that came in part.
    partial: Vec<u8>,
    block: Vec<u8>,
    next_stream: u32,
    streams: BTreeMap<u32, Stream>,
    /// What the server takes: of the connection, and of each new stream.
    window: i64,
    initial_window: i64,
    has_ended: bool,
}

/// What of the last request is still to be sent.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Content {
    None,
    Length(usize),
    /// Of the chunk that has begun; `None`: the line of its size is next.
    Chunk(Option<usize>),
    /// Behind the last chunk.
    Trailers,
}

#[derive(Debug, Default)]
struct Stream {
    is_head: bool,
    window: i64,
    /// Content that waits for the window, and whether it is all.
    waiting: VecDeque<u8>,
    is_all: bool,
    /// Fields behind it.
    sent_trailers: Vec<(Vec<u8>, Vec<u8>)>,
    is_end_sent: bool,
    /// The response, as HTTP/1.
    response: Vec<u8>,
    has_head: bool,
    is_chunked: bool,
    /// The lines behind the content.
    trailers: Vec<u8>,
    is_done: bool,
}

impl Translated {
    /// A client that sends its requests so, in the clear.
    pub fn connect(address: SocketAddr) -> Client {
        let mut preface = Vec::new();
        let layer = Self::new("http", &mut preface);
        let mut client = Client::connect_over(address, Box::new(layer), &preface);
        client.is_http2 = true;
        client
    }

    /// A new connection. What it opens with is in `out`.
    pub fn new(scheme: &'static str, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(PREFACE);
        let mut settings = Vec::new();
        let window = Setting {
            id: Setting::INITIAL_WINDOW_SIZE,
            value: WINDOW,
        };
        window.write(&mut settings);
        write_frame(Kind::Settings, 0, 0, &settings, out);
        write_frame(Kind::WindowUpdate, 0, 0, &WINDOW.to_be_bytes(), out);
        Self {
            encoder: Encoder::default(),
            decoder: Decoder::default(),
            scheme,
            unsent: Vec::new(),
            used: 0,
            content: Content::None,
            partial: Vec::new(),
            block: Vec::new(),
            next_stream: 1,
            streams: BTreeMap::new(),
            window: 65_535,
            initial_window: 65_535,
            has_ended: false,
        }
    }

    /// Sends what can be sent now.
    fn go_on(&mut self, out: &mut Vec<u8>) {
        loop {
            let is_moving = match self.content {
                Content::None => self.begin_request(out),
                _ => self.take_content(),
            };
            self.send_content(out);
            if !is_moving {
                self.unsent.drain(..self.used);
                self.used = 0;
                return;
            }
        }
    }

    /// A request that is whole; `false`: more of it has to come, or there are too many.
    fn begin_request(&mut self, out: &mut Vec<u8>) -> bool {
        if self.streams.len() == STREAMS_MAX {
            return false;
        }
        let rest = &self.unsent[self.used..];
        let Some(end) = rest.windows(4).position(|it| it == b"\r\n\r\n") else {
            return false;
        };
        let head = rest[..end + 4].to_vec();
        self.used += head.len();
        let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let line = std::str::from_utf8(lines.next().unwrap()).unwrap();
        let mut words = line.split(' ');
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        let mut authority: &[u8] = b"";
        let mut fields = Vec::new();
        self.content = Content::None;
        for line in lines.filter(|line| !line.is_empty()) {
            let colon = line.iter().position(|byte| *byte == b':').unwrap();
            let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
            let name = name.to_ascii_lowercase();
            match &name[..] {
                b"host" => authority = value,
                b"connection" | b"keep-alive" | b"upgrade" => {}
                b"transfer-encoding" => self.content = Content::Chunk(None),
                _ => {
                    if name == b"content-length" {
                        let len = std::str::from_utf8(value).unwrap();
                        self.content = Content::Length(len.parse().unwrap());
                    }
                    fields.push((name, value));
                }
            }
        }
        let mut block = Vec::new();
        self.encoder.begin(&mut block);
        let mut add = |name: &[u8], value: &[u8]| {
            self.encoder.field(name, value, Indexing::Kept, &mut block);
        };
        add(b":method", method.as_bytes());
        add(b":scheme", self.scheme.as_bytes());
        if !authority.is_empty() {
            add(b":authority", authority);
        }
        add(b":path", target.as_bytes());
        for (name, value) in fields {
            add(&name, value);
        }
        let is_end = matches!(self.content, Content::None | Content::Length(0));
        if is_end {
            self.content = Content::None;
        }
        let flag = flags::END_HEADERS | if is_end { flags::END_STREAM } else { 0 };
        write_frame(Kind::Headers, flag, self.next_stream, &block, out);
        let stream = Stream {
            is_head: method == "HEAD",
            window: self.initial_window,
            is_end_sent: is_end,
            ..Stream::default()
        };
        self.streams.insert(self.next_stream, stream);
        self.next_stream += 2;
        true
    }

    /// Moves content from HTTP/1 to the last stream. `false`: more of it has to come.
    fn take_content(&mut self) -> bool {
        let used = self.used;
        let rest = &self.unsent[used..];
        let content = match self.content {
            Content::None => return false,
            Content::Length(left) => match left - self.take(left) {
                0 => Content::None,
                left => Content::Length(left),
            },
            Content::Chunk(Some(left @ 1..)) => Content::Chunk(Some(left - self.take(left))),
            Content::Chunk(size) => {
                let Some(line_len) = line_len(rest) else {
                    return false;
                };
                self.used += line_len + 2;
                match size {
                    // The end of one.
                    Some(_) => Content::Chunk(None),
                    None => match size_of_chunk(&rest[..line_len]) {
                        0 => Content::Trailers,
                        size => Content::Chunk(Some(size)),
                    },
                }
            }
            Content::Trailers => match line_len(rest) {
                None => return false,
                Some(0) => {
                    self.used += 2;
                    Content::None
                }
                Some(len) => {
                    self.used += len + 2;
                    let line = &rest[..len];
                    let colon = line.iter().position(|byte| *byte == b':').unwrap();
                    let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
                    let field = (name.to_ascii_lowercase(), value.to_vec());
                    if let Some(mut last) = self.streams.last_entry() {
                        last.get_mut().sent_trailers.push(field);
                    }
                    Content::Trailers
                }
            },
        };
        let is_moving = content != self.content || self.used != used;
        self.content = content;
        if content == Content::None
            && let Some(mut last) = self.streams.last_entry()
        {
            last.get_mut().is_all = true;
        }
        is_moving
    }

    /// Moves so much of it at most; says how much there was.
    fn take(&mut self, len_max: usize) -> usize {
        let rest = &self.unsent[self.used..];
        let content = &rest[..rest.len().min(len_max)];
        if let Some(mut last) = self.streams.last_entry() {
            last.get_mut().waiting.extend(content);
        }
        self.used += content.len();
        content.len()
    }

    /// Sends content, as far as the windows allow.
    fn send_content(&mut self, out: &mut Vec<u8>) {
        for (id, stream) in &mut self.streams {
            while !stream.is_end_sent {
                let room = self.window.min(stream.window).clamp(0, 16_384) as usize;
                let len = stream.waiting.len().min(room);
                let is_end = stream.is_all && len == stream.waiting.len();
                if len == 0 && !is_end {
                    break;
                }
                let mut piece = vec![0; len];
                stream.waiting.read_exact(&mut piece).unwrap();
                let trailers = match is_end {
                    true => std::mem::take(&mut stream.sent_trailers),
                    false => Vec::new(),
                };
                let is_last = is_end && trailers.is_empty();
                let flag = if is_last { flags::END_STREAM } else { 0 };
                if !piece.is_empty() || is_last {
                    write_frame(Kind::Data, flag, *id, &piece, out);
                }
                if !trailers.is_empty() {
                    let mut block = Vec::new();
                    self.encoder.begin(&mut block);
                    for (name, value) in &trailers {
                        self.encoder.field(name, value, Indexing::Kept, &mut block);
                    }
                    let flag = flags::END_HEADERS | flags::END_STREAM;
                    write_frame(Kind::Headers, flag, *id, &block, out);
                }
                self.window -= len as i64;
                stream.window -= len as i64;
                stream.is_end_sent = is_end;
            }
        }
    }

    fn frame(&mut self, head: FrameHead, payload: &[u8], out: &mut Vec<u8>) {
        match head.kind {
            Kind::Settings if !head.has(flags::ACK) => {
                for setting in Setting::parse_all(payload) {
                    if setting.id == Setting::INITIAL_WINDOW_SIZE {
                        let more = i64::from(setting.value) - self.initial_window;
                        self.initial_window += more;
                        self.streams.values_mut().for_each(|it| it.window += more);
                    }
                }
                write_frame(Kind::Settings, flags::ACK, 0, &[], out);
            }
            Kind::WindowUpdate if head.stream == 0 => self.window += i64::from(number(payload)),
            Kind::WindowUpdate => {
                if let Some(stream) = self.streams.get_mut(&head.stream) {
                    stream.window += i64::from(number(payload));
                }
            }
            Kind::Headers | Kind::Continuation => {
                self.block.extend_from_slice(payload);
                if head.has(flags::END_HEADERS) {
                    self.fields(head.stream);
                }
            }
            Kind::Data => {
                // None is there behind what ends the connection here.
                let Some(stream) = self.streams.get_mut(&head.stream) else {
                    return;
                };
                if stream.is_chunked && !payload.is_empty() {
                    let line = format!("{:x}\r\n", payload.len());
                    stream.response.extend_from_slice(line.as_bytes());
                }
                stream.response.extend_from_slice(payload);
                if stream.is_chunked && !payload.is_empty() {
                    stream.response.extend_from_slice(b"\r\n");
                }
            }
            Kind::GoAway => self.has_ended |= number(&payload[4..]) != 0,
            Kind::RstStream => {
                self.has_ended |= number(payload) != 0;
                // What is left of its content is not wanted.
                if let Some(stream) = self.streams.get_mut(&head.stream) {
                    stream.waiting.clear();
                    stream.is_end_sent = true;
                }
                if self.streams.keys().next_back() == Some(&head.stream) {
                    self.content = Content::None;
                }
            }
            _ => {}
        }
        if matches!(head.kind, Kind::Data | Kind::Headers)
            && head.has(flags::END_STREAM)
            && let Some(stream) = self.streams.get_mut(&head.stream)
        {
            if stream.is_chunked {
                stream.response.extend_from_slice(b"0\r\n");
                stream.response.append(&mut stream.trailers);
                stream.response.extend_from_slice(b"\r\n");
            }
            stream.is_done = true;
        }
    }

    /// A head, or trailers.
    fn fields(&mut self, id: u32) {
        let block = std::mem::take(&mut self.block);
        let (mut status, mut lines, mut has_len) = (Vec::new(), Vec::new(), false);
        let decoded = self.decoder.decode(&block, &mut Vec::new(), |name, value| {
            let shown = name.escape_ascii();
            assert!(!name.iter().any(u8::is_ascii_uppercase), "{shown}");
            let is_of_connection: [&[u8]; 3] = [b"connection", b"keep-alive", b"transfer-encoding"];
            assert!(!is_of_connection.contains(&name), "{shown}");
            has_len |= name == b"content-length";
            match name {
                b":status" => status = value.to_vec(),
                _ => lines.extend([name, b": ", value, b"\r\n"].concat()),
            }
        });
        decoded.unwrap();
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.has_head {
            stream.trailers = lines;
            return;
        }
        let status = String::from_utf8(status).unwrap();
        stream.has_head = !status.starts_with('1');
        let has_content = stream.has_head && !stream.is_head && status != "204" && status != "304";
        stream.is_chunked = has_content && !has_len;
        if stream.is_chunked {
            lines.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        }
        let line = format!("HTTP/1.1 {status} \r\n").into_bytes();
        (stream.response).extend([&line[..], &lines[..], b"\r\n"].concat());
    }

    /// Gives back what came for the first request that is not answered.
    fn give_back(&mut self, plain: &mut Buffer) {
        while let Some(mut first) = self.streams.first_entry() {
            let stream = first.get_mut();
            plain.extend_from_slice(&stream.response);
            stream.response.clear();
            if !(stream.is_done && stream.is_end_sent) {
                return;
            }
            first.remove();
        }
    }
}

impl Layer for Translated {
    fn received(
        &mut self,
        bytes: &mut [u8],
        plain: &mut Buffer,
        out: &mut Buffer,
    ) -> Result<(), Fault> {
        self.partial.extend_from_slice(bytes);
        let mut partial = std::mem::take(&mut self.partial);
        let mut answer = Vec::new();
        let mut used = 0;
        while let Some((head, rest)) = partial[used..].split_first_chunk::<HEAD_BYTES>() {
            let head = FrameHead::parse(head);
            let Some(payload) = rest.get(..head.len) else {
                break;
            };
            self.frame(head, payload, &mut answer);
            used += HEAD_BYTES + head.len;
        }
        partial.drain(..used);
        self.partial = partial;
        self.give_back(plain);
        self.go_on(&mut answer);
        out.extend_from_slice(&answer);
        Ok(())
    }

    fn send(&mut self, plain: &[u8], out: &mut Buffer) {
        self.unsent.extend_from_slice(plain);
        let mut frames = Vec::new();
        self.go_on(&mut frames);
        out.extend_from_slice(&frames);
    }

    fn finish(&mut self, _out: &mut Buffer) {}

    fn is_open(&self) -> bool {
        true
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }
}

/// Where the line at the beginning ends. Content is not looked through for that: without optimising it takes long.
fn line_len(bytes: &[u8]) -> Option<usize> {
    bytes.windows(2).position(|it| it == b"\r\n")
}

/// What the line before a chunk says.
fn size_of_chunk(line: &[u8]) -> usize {
    let line = std::str::from_utf8(line).unwrap();
    let digits = line.split(';').next().unwrap().trim();
    usize::from_str_radix(digits, 16).unwrap()
}
