//! The bytes of an answer, right or wrong, and what becomes of the connection after it.

use std::io::Write;
use std::sync::Arc;

use crate::request::Request;
use crate::{Closing, Fault, Framing, Malformed, StubOptions};

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// It stays open.
    Keep,
    /// No more is sent, and what still comes is thrown away until the client closes, too.
    Close,
    /// It is reset.
    Reset,
}

/// What is done when an answer is due.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) after: After,
    /// Whether a client sees a complete answer, be it the expected one or not.
    pub(crate) is_complete: bool,
}

/// Makes answers.
#[derive(Debug)]
pub(crate) struct Answers {
    body: Vec<u8>,
    framing: Framing,
    closing: Closing,
    /// Without a fault, by whether to HEAD, and by whether the request asks for closing.
    plain: Vec<Answer>,
}

/// The fields of an endless head go on for so long: beyond what any client takes, and more than
/// sockets hold.
const ENDLESS_BYTES: usize = 8 << 20;

impl Answers {
    pub(crate) fn new(options: &StubOptions) -> Self {
        let mut answers = Self {
            body: options.body.clone(),
            framing: options.framing,
            closing: options.closing,
            plain: Vec::new(),
        };
        for (is_head, wants_close) in [(false, false), (false, true), (true, false), (true, true)] {
            let plain = answers.complete(is_head, wants_close, 200, &answers.body);
            answers.plain.push(plain);
        }
        answers
    }

    /// The answer to `request`; with `Fault::Never` there is none.
    pub(crate) fn answer(&self, request: Request, fault: Option<Fault>) -> Answer {
        let (is_head, wants_close) = (request.is_head, request.wants_close);
        let complete = |status, body: &[u8]| self.complete(is_head, wants_close, status, body);
        let plain = &self.plain[2 * usize::from(is_head) + usize::from(wants_close)];
        match fault {
            None | Some(Fault::Late { .. } | Fault::Never) => plain.clone(),
            Some(Fault::Close) => broken(Vec::new(), After::Close),
            Some(Fault::Reset) => broken(Vec::new(), After::Reset),
            Some(Fault::CutHead) => {
                let head_bytes = self.head(200, wants_close, Some(self.body.len())).len();
                broken(plain.bytes[..head_bytes / 2].to_vec(), After::Close)
            }
            Some(Fault::CutBody) => broken(self.half(wants_close), After::Close),
            Some(Fault::ResetInBody) => broken(self.half(wants_close), After::Reset),
            Some(Fault::Status(status)) => complete(status, &self.body),
            Some(fault @ (Fault::Content | Fault::Longer { .. } | Fault::Shorter { .. })) => {
                complete(200, &fault.content(&self.body))
            }
            Some(fault @ Fault::Excess { .. }) => Answer {
                bytes: Arc::from(fault.content(&plain.bytes)),
                ..plain.clone()
            },
            Some(Fault::Malformed(malformed)) => broken(self.malformed(malformed), After::Close),
        }
    }

    fn complete(&self, is_head: bool, wants_close: bool, status: u16, body: &[u8]) -> Answer {
        let has_content = !matches!(status, 204 | 304);
        let mut bytes = self.head(status, wants_close, has_content.then_some(body.len()));
        if has_content && !is_head {
            match self.framing {
                Framing::Chunked => chunks(&mut bytes, body),
                Framing::Length | Framing::UntilClose => bytes.extend_from_slice(body),
            }
        }
        let closes = match self.closing {
            _ if self.framing == Framing::UntilClose => true,
            Closing::AsAsked => wants_close,
            Closing::Announced | Closing::Silent => true,
            Closing::Ignored => false,
        };
        Answer {
            bytes: Arc::from(bytes),
            after: if closes { After::Close } else { After::Keep },
            is_complete: true,
        }
    }

    /// `content_bytes`: `None` where an answer has no content by its status.
    fn head(&self, status: u16, wants_close: bool, content_bytes: Option<usize>) -> Vec<u8> {
        let reason = if status == 200 { "OK" } else { "As Programmed" };
        let mut head = format!("HTTP/1.1 {status} {reason}\r\n").into_bytes();
        match (content_bytes, self.framing) {
            (None, _) | (Some(_), Framing::UntilClose) => {}
            (Some(bytes), Framing::Length) => put(&mut head, "Content-Length", &bytes.to_string()),
            (Some(_), Framing::Chunked) => put(&mut head, "Transfer-Encoding", "chunked"),
        }
        let says_close = match self.closing {
            _ if self.framing == Framing::UntilClose => true,
            Closing::AsAsked | Closing::Ignored => wants_close,
            Closing::Announced => true,
            Closing::Silent => false,
        };
        if says_close {
            put(&mut head, "Connection", "close");
        }
        head.extend_from_slice(b"\r\n");
        head
    }

    /// The head, and half of the content.
    fn half(&self, wants_close: bool) -> Vec<u8> {
        let mut bytes = self.head(200, wants_close, Some(self.body.len()));
        let half = &self.body[..self.body.len() / 2];
        match self.framing {
            Framing::Chunked => chunk(&mut bytes, half),
            Framing::Length | Framing::UntilClose => bytes.extend_from_slice(half),
        }
        bytes
    }

    fn malformed(&self, malformed: Malformed) -> Vec<u8> {
        let length = self.body.len();
        let head = match malformed {
            Malformed::Protocol => "SSH-2.0-Stub\r\n\r\n".to_owned(),
            Malformed::Status => format!("HTTP/1.1 2x0 OK\r\nContent-Length: {length}\r\n\r\n"),
            Malformed::Length => format!("HTTP/1.1 200 OK\r\nContent-Length: {length}x\r\n\r\n"),
            Malformed::Lengths => {
                let other = length + 1;
                format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nContent-Length: {other}\r\n\r\n"
                )
            }
            Malformed::ChunkSize => {
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nmany\r\n".to_owned()
            }
            Malformed::FieldName => {
                format!("HTTP/1.1 200 OK\r\nContent-Length : {length}\r\n\r\n")
            }
            Malformed::EndlessHead => {
                let field = "X-Endless: and on and on and on and on and on and on and on\r\n";
                let times = ENDLESS_BYTES / field.len();
                format!("HTTP/1.1 200 OK\r\n{}", field.repeat(times))
            }
        };
        let mut bytes = head.into_bytes();
        if malformed != Malformed::EndlessHead {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }
}

fn broken(bytes: Vec<u8>, after: After) -> Answer {
    Answer {
        bytes: Arc::from(bytes),
        after,
        is_complete: false,
    }
}

fn put(head: &mut Vec<u8>, name: &str, value: &str) {
    let _ = write!(head, "{name}: {value}\r\n"); // memory does not refuse
}

fn chunks(bytes: &mut Vec<u8>, body: &[u8]) {
    let (first, second) = body.split_at(body.len() / 2);
    chunk(bytes, first);
    chunk(bytes, second);
    bytes.extend_from_slice(b"0\r\n\r\n");
}

/// A chunk of nothing would be the last one.
fn chunk(bytes: &mut Vec<u8>, piece: &[u8]) {
    if !piece.is_empty() {
        let _ = write!(bytes, "{:x}\r\n", piece.len());
        bytes.extend_from_slice(piece);
        bytes.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: Request = Request {
        head_bytes: 0,
        content_bytes: 0,
        is_head: false,
        wants_close: false,
        stream: 0,
    };

    fn answer(options: &StubOptions, request: Request, fault: Option<Fault>) -> (String, After) {
        let answer = Answers::new(options).answer(request, fault);
        let text = String::from_utf8_lossy(&answer.bytes).into_owned();
        (text, answer.after)
    }

    #[test]
    fn framing_and_closing() {
        let wants_close = Request {
            wants_close: true,
            ..GET
        };
        let head = Request {
            is_head: true,
            ..GET
        };
        let length = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde";
        let closed = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nabcde";
        let until_close = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabcde";
        let chunked =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n";
        let no_content = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        use {After::*, Closing::*, Framing::*};
        for (framing, closing, request, text, after) in [
            (Length, AsAsked, GET, length, Keep),
            (Length, AsAsked, wants_close, closed, Close),
            (Length, AsAsked, head, no_content, Keep),
            (Length, Announced, GET, closed, Close),
            (Length, Silent, GET, length, Close),
            (Length, Ignored, wants_close, closed, Keep),
            (Chunked, AsAsked, GET, chunked, Keep),
            (UntilClose, AsAsked, GET, until_close, Close),
            (UntilClose, Ignored, GET, until_close, Close),
        ] {
            let options = StubOptions {
                body: b"abcde".to_vec(),
                framing,
                closing,
                ..StubOptions::default()
            };
            assert_eq!(answer(&options, request, None), (text.to_owned(), after));
        }
    }

    #[test]
    fn what_is_wrong_with_an_answer() {
        let options = StubOptions {
            body: b"abcd".to_vec(),
            ..StubOptions::default()
        };
        let ok =
            |length, body| format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
        use After::{Close, Keep, Reset};
        for (fault, text, after) in [
            (Fault::Close, String::new(), Close),
            (Fault::Reset, String::new(), Reset),
            (Fault::CutHead, "HTTP/1.1 200 OK\r\nCo".to_owned(), Close),
            (Fault::CutBody, ok(4, "ab"), Close),
            (Fault::ResetInBody, ok(4, "ab"), Reset),
            (Fault::Longer { bytes: 2 }, ok(6, "abcd++"), Keep),
            (Fault::Shorter { bytes: 1 }, ok(3, "abc"), Keep),
            (Fault::Shorter { bytes: 9 }, ok(0, ""), Keep),
            (Fault::Excess { bytes: 1 }, ok(4, "abcd+"), Keep),
            (Fault::Late { by_ns: 1 }, ok(4, "abcd"), Keep),
            (
                Fault::Status(204),
                "HTTP/1.1 204 As Programmed\r\n\r\n".to_owned(),
                Keep,
            ),
            (
                Fault::Malformed(Malformed::ChunkSize),
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nmany\r\nabcd".to_owned(),
                Close,
            ),
        ] {
            let expected = (text, after);
            assert_eq!(answer(&options, GET, Some(fault)), expected, "{fault:?}");
        }
    }

    #[test]
    fn other_content_is_as_long() {
        let answers = Answers::new(&StubOptions::default());
        let right = answers.answer(GET, None).bytes;
        let wrong = answers.answer(GET, Some(Fault::Content)).bytes;
        assert_eq!(right.len(), wrong.len());
        assert_ne!(right, wrong);
    }
}
