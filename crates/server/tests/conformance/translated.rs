//! A client's layer that sends HTTP/1 requests as HTTP/2 streams, and gives their responses back as
//! HTTP/1, in the order of the requests: so a case that is not about HTTP/1's bytes runs over HTTP/2.

use std::collections::BTreeMap;

use loadline_base::Buffer;
use loadline_proto::hpack::{Decoder, Encoder, Indexing};
use loadline_proto::http2::frame::{FrameHead, HEAD_BYTES, Kind, PREFACE, Setting, flags, number};
use loadline_proto::{Fault, Layer};

use crate::client::take_first;

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
    Chunked,
}

#[derive(Debug, Default)]
struct Stream {
    is_head: bool,
    window: i64,
    /// Content that waits for the window, and whether it is all.
    waiting: Vec<u8>,
    is_all: bool,
    is_end_sent: bool,
    /// The response, as HTTP/1.
    response: Vec<u8>,
    has_head: bool,
    is_chunked: bool,
    is_done: bool,
}

impl Translated {
    /// A new connection. What it opens with is in `out`.
    pub fn new(scheme: &'static str, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(PREFACE);
        let mut settings = Vec::new();
        let window = Setting {
            id: Setting::INITIAL_WINDOW_SIZE,
            value: WINDOW,
        };
        window.write(&mut settings);
        frame(Kind::Settings, 0, 0, &settings, out);
        frame(Kind::WindowUpdate, 0, 0, &WINDOW.to_be_bytes(), out);
        Self {
            encoder: Encoder::default(),
            decoder: Decoder::default(),
            scheme,
            unsent: Vec::new(),
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
                return;
            }
        }
    }

    /// A request that is whole; `false`: more of it has to come, or there are too many.
    fn begin_request(&mut self, out: &mut Vec<u8>) -> bool {
        if self.streams.len() == STREAMS_MAX {
            return false;
        }
        let Some(end) = self.unsent.windows(4).position(|it| it == b"\r\n\r\n") else {
            return false;
        };
        let head = take_first(&mut self.unsent, end + 4);
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let mut line = lines.next().unwrap().split(' ');
        let (method, target) = (line.next().unwrap(), line.next().unwrap());
        let mut authority = "";
        let mut fields = Vec::new();
        self.content = Content::None;
        for line in lines {
            let (name, value) = line.split_once(':').unwrap();
            let (name, value) = (name.to_ascii_lowercase(), value.trim());
            match name.as_str() {
                "host" => authority = value,
                "connection" | "keep-alive" => {}
                "transfer-encoding" => self.content = Content::Chunked,
                _ => {
                    if name == "content-length" {
                        self.content = Content::Length(value.parse().unwrap());
                    }
                    fields.push((name, value));
                }
            }
        }
        let mut block = Vec::new();
        self.encoder.begin(&mut block);
        let mut add = |name: &str, value: &str| {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            self.encoder.field(name, value, Indexing::Kept, &mut block);
        };
        add(":method", method);
        add(":scheme", self.scheme);
        add(":authority", authority);
        add(":path", target);
        for (name, value) in fields {
            add(&name, value);
        }
        let is_end = matches!(self.content, Content::None | Content::Length(0));
        if is_end {
            self.content = Content::None;
        }
        let flag = flags::END_HEADERS | if is_end { flags::END_STREAM } else { 0 };
        frame(Kind::Headers, flag, self.next_stream, &block, out);
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

    /// Moves content from HTTP/1 to the last stream.
    fn take_content(&mut self) -> bool {
        let Some(mut last) = self.streams.last_entry() else {
            return false;
        };
        let stream = last.get_mut();
        match &mut self.content {
            Content::None => return false,
            Content::Length(left) => {
                let len = self.unsent.len().min(*left);
                stream.waiting.extend_from_slice(&self.unsent[..len]);
                self.unsent.drain(..len);
                *left -= len;
                if *left > 0 {
                    return false;
                }
            }
            Content::Chunked => loop {
                let line = self.unsent.windows(2).position(|it| it == b"\r\n");
                let Some(line_len) = line else {
                    return false;
                };
                let digits = std::str::from_utf8(&self.unsent[..line_len]).unwrap();
                let digits = digits.split(';').next().unwrap().trim();
                let len = usize::from_str_radix(digits, 16).unwrap();
                let end = line_len + 2 + len + 2;
                if self.unsent.len() < end {
                    return false;
                }
                stream
                    .waiting
                    .extend_from_slice(&self.unsent[line_len + 2..end - 2]);
                self.unsent.drain(..end);
                if len == 0 {
                    break;
                }
            },
        }
        stream.is_all = true;
        self.content = Content::None;
        true
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
                let piece = take_first(&mut stream.waiting, len);
                let flag = if is_end { flags::END_STREAM } else { 0 };
                frame(Kind::Data, flag, *id, &piece, out);
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
                frame(Kind::Settings, flags::ACK, 0, &[], out);
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
                let stream = self.streams.get_mut(&head.stream).unwrap();
                if stream.is_chunked && !payload.is_empty() {
                    let line = format!("{:x}\r\n", payload.len());
                    stream.response.extend_from_slice(line.as_bytes());
                }
                stream.response.extend_from_slice(payload);
                if stream.is_chunked && !payload.is_empty() {
                    stream.response.extend_from_slice(b"\r\n");
                }
            }
            Kind::GoAway | Kind::RstStream => {
                let code = if head.kind == Kind::GoAway { 4 } else { 0 };
                self.has_ended |= number(&payload[code..]) != 0;
            }
            _ => {}
        }
        if matches!(head.kind, Kind::Data | Kind::Headers)
            && head.has(flags::END_STREAM)
            && let Some(stream) = self.streams.get_mut(&head.stream)
        {
            if stream.is_chunked {
                stream.response.extend_from_slice(b"0\r\n\r\n");
            }
            stream.is_done = true;
        }
    }

    /// A head, or trailers, which nobody looks at.
    fn fields(&mut self, id: u32) {
        let block = std::mem::take(&mut self.block);
        let (mut status, mut lines, mut has_len) = (String::new(), String::new(), false);
        let decoded = self.decoder.decode(&block, &mut Vec::new(), |name, value| {
            let name = String::from_utf8(name.to_vec()).unwrap();
            let value = String::from_utf8(value.to_vec()).unwrap();
            assert!(
                !name.bytes().any(|byte| byte.is_ascii_uppercase()),
                "{name}"
            );
            let is_of_connection = ["connection", "keep-alive", "transfer-encoding"];
            assert!(!is_of_connection.contains(&name.as_str()), "{name}");
            has_len |= name == "content-length";
            match name.as_str() {
                ":status" => status = value,
                _ => lines.push_str(&format!("{name}: {value}\r\n")),
            }
        });
        decoded.unwrap();
        let stream = self.streams.get_mut(&id).unwrap();
        if stream.has_head {
            return;
        }
        stream.has_head = !status.starts_with('1');
        let has_content = stream.has_head && !stream.is_head && status != "204" && status != "304";
        stream.is_chunked = has_content && !has_len;
        if stream.is_chunked {
            lines.push_str("Transfer-Encoding: chunked\r\n");
        }
        let head = format!("HTTP/1.1 {status} \r\n{lines}\r\n");
        stream.response.extend_from_slice(head.as_bytes());
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

fn frame(kind: Kind, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    let head = FrameHead {
        len: payload.len(),
        kind,
        flags,
        stream,
    };
    head.write(out);
    out.extend_from_slice(payload);
}
