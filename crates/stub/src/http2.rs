//! HTTP/2 as far as a responder needs it (RFC 9113): where requests end, and the frames of an answer.
//!
//! Less than HTTP/2: what fields say is not looked at, so nothing of them is decoded; HEAD is answered as
//! GET is. Windows of the client are taken to be large enough. It is for clients that send what they
//! should; everything else is not understood.

use crate::answer::After;
use crate::record::Times;
use crate::request::{Parsed, Request};
use crate::{Fault, StubOptions};

/// What a client begins with.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const HEAD_BYTES: usize = 9;
/// The largest payload that every end takes.
const PAYLOAD_BYTES_MAX: usize = 16_384;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// A request whose answer is not due yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) times: Times,
    pub(crate) stream: u32,
    pub(crate) fault: Option<Fault>,
}

/// What is done with the connection after an answer, and whether a client sees a complete one.
pub(crate) type Answered = (After, bool);

/// One connection.
#[derive(Debug)]
pub(crate) struct Http2 {
    /// Requests whose answers are not due yet.
    pub(crate) waiting: Vec<Waiting>,
    /// Frames that the socket has not taken.
    pub(crate) out: Vec<u8>,
    /// Stream and flags of a request's fields that go on in other frames.
    open_block: Option<(u32, u8)>,
}

impl Http2 {
    /// The preface has come.
    pub(crate) fn new() -> Self {
        let mut out = Vec::new();
        frame(&mut out, SETTINGS, 0, 0, &[]);
        Self {
            waiting: Vec::new(),
            out,
            open_block: None,
        }
    }

    /// Takes frames up to the end of a request.
    pub(crate) fn take(&mut self, input: &mut Vec<u8>) -> Parsed {
        let mut at = 0;
        let taken = loop {
            let rest = &input[at..];
            let Some(&[high, middle, low, kind, flags, ref stream @ ..]) =
                rest.first_chunk::<HEAD_BYTES>()
            else {
                break Parsed::More;
            };
            let len = u32::from_be_bytes([0, high, middle, low]) as usize;
            if len > PAYLOAD_BYTES_MAX {
                break Parsed::Not;
            }
            let Some(payload) = rest.get(HEAD_BYTES..HEAD_BYTES + len) else {
                break Parsed::More;
            };
            at += HEAD_BYTES + len;
            let stream = u32::from_be_bytes(*stream) & 0x7fff_ffff;
            match self.frame(kind, flags, stream, payload) {
                Parsed::More => {}
                other => break other,
            }
        };
        input.drain(..at);
        taken
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Parsed {
        if let Some((open, of_first)) = self.open_block {
            if kind != CONTINUATION || stream != open {
                return Parsed::Not;
            }
            return match flags & END_HEADERS != 0 {
                true => self.fields_end(stream, of_first),
                false => Parsed::More,
            };
        }
        match kind {
            HEADERS if flags & END_HEADERS == 0 => self.open_block = Some((stream, flags)),
            HEADERS => return self.fields_end(stream, flags),
            DATA => {
                // Room for as much again.
                let len = (payload.len() as u32).to_be_bytes();
                if !payload.is_empty() {
                    frame(&mut self.out, WINDOW_UPDATE, 0, 0, &len);
                }
                if flags & END_STREAM != 0 {
                    return complete(stream);
                }
                if !payload.is_empty() {
                    frame(&mut self.out, WINDOW_UPDATE, 0, stream, &len);
                }
            }
            SETTINGS | PING if flags & ACK != 0 => {}
            SETTINGS => frame(&mut self.out, SETTINGS, ACK, 0, &[]),
            PING => frame(&mut self.out, PING, ACK, 0, payload),
            RST_STREAM => self.waiting.retain(|one| one.stream != stream),
            CONTINUATION | PUSH_PROMISE => return Parsed::Not,
            _ => {}
        }
        Parsed::More
    }

    fn fields_end(&mut self, stream: u32, flags: u8) -> Parsed {
        self.open_block = None;
        match flags & END_STREAM != 0 {
            true => complete(stream),
            false => Parsed::More,
        }
    }

    /// Takes out the request with this number.
    pub(crate) fn due(&mut self, number: u64) -> Option<Waiting> {
        let at = self
            .waiting
            .iter()
            .position(|one| one.times.number == number)?;
        Some(self.waiting.swap_remove(at))
    }

    /// The frames of an answer.
    pub(crate) fn answer(&mut self, waiting: &Waiting, options: &StubOptions) -> Answered {
        let (body, out, stream) = (&options.body, &mut self.out, waiting.stream);
        let len = body.len();
        let kept = |is_complete| (After::Keep, is_complete);
        match waiting.fault {
            None | Some(Fault::Late { .. } | Fault::Never) => whole(out, stream, 200, len, body),
            Some(Fault::Status(status)) => whole(out, stream, status, len, body),
            Some(fault @ (Fault::Content | Fault::Longer { .. } | Fault::Shorter { .. })) => {
                let content = fault.content(body);
                whole(out, stream, 200, content.len(), &content);
            }
            Some(fault @ Fault::Excess { .. }) => {
                whole(out, stream, 200, len, &fault.content(body));
            }
            Some(Fault::CutBody) => {
                whole(out, stream, 200, len, &body[..len / 2]);
                return kept(false);
            }
            Some(Fault::Malformed(_)) => {
                // `:status 2x0`, as a literal.
                frame(
                    out,
                    HEADERS,
                    END_HEADERS | END_STREAM,
                    stream,
                    b"\x08\x032x0",
                );
                return kept(false);
            }
            Some(Fault::Reset | Fault::ResetInBody) => {
                const INTERNAL_ERROR: [u8; 4] = [0, 0, 0, 2];
                frame(out, RST_STREAM, 0, stream, &INTERNAL_ERROR);
                return kept(false);
            }
            Some(Fault::Close | Fault::CutHead) => return (After::Close, false),
        }
        kept(true)
    }
}

/// The request of this stream, which has ended.
fn complete(stream: u32) -> Parsed {
    Parsed::Request(Request {
        stream,
        ..Request::default()
    })
}

/// A head that announces `len` bytes, and content.
fn whole(out: &mut Vec<u8>, stream: u32, status: u16, len: usize, content: &[u8]) {
    let mut fields = match status {
        200 => vec![0x88],
        _ => vec![0x08, 3], // `:status`, as a literal of three bytes
    };
    if status != 200 {
        fields.extend_from_slice(status.to_string().as_bytes());
    }
    let length = len.to_string();
    // `content-length`, the 28th of the static table, as a literal.
    fields.extend_from_slice(&[0x0f, 28 - 15, length.len() as u8]);
    fields.extend_from_slice(length.as_bytes());
    let is_empty = content.is_empty();
    let end = if is_empty { END_STREAM } else { 0 };
    frame(out, HEADERS, END_HEADERS | end, stream, &fields);
    let mut rest = content;
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(rest.len().min(PAYLOAD_BYTES_MAX));
        rest = behind;
        let end = if rest.is_empty() { END_STREAM } else { 0 };
        frame(out, DATA, end, stream, piece);
    }
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let len = (payload.len() as u32).to_be_bytes();
    out.extend_from_slice(&[len[1], len[2], len[3], kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_end_where_their_streams_do() {
        let mut bytes = Vec::new();
        frame(&mut bytes, SETTINGS, 0, 0, &[0; 6]);
        frame(&mut bytes, HEADERS, END_HEADERS | END_STREAM, 1, b"\x82");
        frame(&mut bytes, HEADERS, END_HEADERS, 3, b"\x83");
        frame(&mut bytes, HEADERS, END_STREAM, 5, b"\x82");
        frame(&mut bytes, CONTINUATION, END_HEADERS, 5, b"\x84");
        frame(&mut bytes, DATA, 0, 3, b"con");
        frame(&mut bytes, DATA, END_STREAM, 3, b"tent");
        for len in 1..=bytes.len() {
            let (mut http2, mut input, mut found) = (Http2::new(), Vec::new(), Vec::new());
            for piece in bytes.chunks(len) {
                input.extend_from_slice(piece);
                while let Parsed::Request(request) = http2.take(&mut input) {
                    found.push(request.stream);
                }
            }
            assert_eq!(found, [1, 5, 3], "in pieces of {len}");
        }
        let mut input = Vec::new();
        frame(&mut input, CONTINUATION, 0, 1, b"");
        assert_eq!(Http2::new().take(&mut input), Parsed::Not);
    }
}
