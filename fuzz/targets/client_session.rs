//! Any bytes as what a server sends: the cuts do not matter, another parser takes the same heads,
//! and the content is where a slow and obvious reader finds it.
//!
//! The first byte says how the rest is cut (its lower six bits) and whether the request was HEAD.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loadline_fuzz::as_text;
use loadline_proto::{ClientSession, Limits, Method, Received, Reply, ReplyFault, ReplyObserver};

/// What an answer came to, and what of it was shown.
#[derive(Debug, Default, PartialEq)]
struct Read {
    head: Vec<u8>,
    content: Vec<u8>,
    result: Option<Result<Reply, ReplyFault>>,
    at_eof: bool,
}

impl ReplyObserver for Read {
    fn head(&mut self, head: &[u8]) {
        assert!(
            self.head.is_empty() && !head.is_empty(),
            "one head an answer"
        );
        self.head.extend_from_slice(head);
    }

    fn content(&mut self, piece: &[u8]) {
        assert!(!self.head.is_empty() && !piece.is_empty());
        self.content.extend_from_slice(piece);
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((how, bytes)) = bytes.split_first() else {
        return;
    };
    let method = if how & 0x80 == 0 {
        Method::Get
    } else {
        Method::Head
    };
    let at_once = read(method, bytes, bytes.len().max(1));
    // Bytes behind an answer are reported with it only if they come with it.
    let behind = match &at_once.result {
        Some(Ok(reply)) => reply.excess_bytes as usize,
        _ => 0,
    };
    let message = &bytes[..bytes.len() - behind];
    let whole = read(method, message, message.len().max(1));
    let piece = usize::from(how & 0x3f).max(1);
    assert_eq!(read(method, message, piece), whole, "{}", as_text(message));
    assert_eq!(read(method, message, 1), whole, "{}", as_text(message));
    if let Some(Ok(reply)) = whole.result {
        check(method, message, &whole, reply);
    }
});

fn read(method: Method, bytes: &[u8], piece: usize) -> Read {
    let limits = Limits::default();
    let mut session = ClientSession::new();
    let mut read = Read::default();
    session.requested(method);
    let mut fed = 0;
    for piece in bytes.chunks(piece) {
        fed += piece.len() as u64;
        let received = session.received(piece, &limits, &mut read);
        assert!(session.content_left() != Some(0));
        read.result = match received {
            Received::More => continue,
            Received::Reply(reply) => Some(Ok(reply)),
            Received::Fault(fault) => Some(Err(fault)),
        };
        break;
    }
    if read.result.is_none() {
        read.at_eof = true;
        read.result = match session.received_eof() {
            Received::More => panic!("an end that is none"),
            Received::Reply(reply) => Some(Ok(reply)),
            Received::Fault(fault) => Some(Err(fault)),
        };
    }
    if let Some(Ok(reply)) = read.result {
        assert!((200..=599).contains(&reply.status));
        assert_eq!(reply.content_bytes, read.content.len() as u64);
        assert!(reply.content_bytes + reply.excess_bytes + read.head.len() as u64 <= fed);
        assert!(!reply.keep_alive || reply.excess_bytes == 0 && !read.at_eof);
    }
    read
}

/// Where the final head begins: behind whole interim ones, in which the same bytes may stand too.
fn final_head(message: &[u8], head: &[u8]) -> usize {
    let mut start = 0;
    while !message[start..].starts_with(head) {
        let end = message[start..]
            .windows(4)
            .position(|part| part == b"\r\n\r\n");
        start += end.expect("interim heads end") + 4;
    }
    start
}

/// Whatever is taken here, the parser of most Rust clients takes as well, and understands alike.
fn check(method: Method, message: &[u8], read: &Read, reply: Reply) {
    let mut fields = [httparse::EMPTY_HEADER; 128];
    let mut other = httparse::Response::new(&mut fields);
    let text = as_text(&read.head);
    if !(b'0'..=b'1').contains(&read.head[7]) {
        return; // it does not take minor versions beyond 1
    }
    let parsed = other.parse(&read.head);
    let len = read.head.len();
    assert_eq!(parsed, Ok(httparse::Status::Complete(len)), "{text}");
    assert_eq!(other.code, Some(reply.status), "{text}");
    let field = |name: &str| {
        let mut fields = other.headers.iter();
        let found = fields.find(|field| field.name.eq_ignore_ascii_case(name));
        found.map(|field| field.value)
    };
    let content = &message[final_head(message, &read.head) + len..];
    let no_content = method == Method::Head || matches!(reply.status, 204 | 304);
    if no_content {
        assert!(content.is_empty() && read.content.is_empty() && !read.at_eof);
    } else if field("transfer-encoding").is_some() {
        assert!(field("content-length").is_none() && content.len() > read.content.len());
    } else if let Some(length) = field("content-length") {
        let length: u64 = str::from_utf8(length).unwrap().trim().parse().unwrap();
        assert!(
            length == reply.content_bytes && content == read.content,
            "{text}"
        );
    } else {
        assert!(
            read.at_eof && content == read.content && !reply.keep_alive,
            "{text}"
        );
    }
}
