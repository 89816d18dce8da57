//! Any bytes as a chunked body, and any bytes put into one: the cuts do not matter, a slow and
//! obvious decoder agrees, and what was encoded comes back.
//!
//! The first byte says how the rest is cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loadline_fuzz::as_text;
use loadline_proto::http1::ChunkedDecoder;
use loadline_proto::{Limits, Status};

/// What decoding came to: the content, the bytes used, whether the end was seen, or the refusal.
#[derive(Debug, PartialEq)]
struct Decoded {
    content: Vec<u8>,
    outcome: Result<(usize, bool), Option<Status>>,
}

fuzz_target!(|bytes: &[u8]| {
    let Some((cut, body)) = bytes.split_first() else {
        return;
    };
    let piece = usize::from(*cut).max(1);
    let at_once = decode(body, body.len().max(1));
    assert_eq!(decode(body, piece), at_once, "{}", as_text(body));
    assert_eq!(decode(body, 1), at_once, "{}", as_text(body));
    let of_request = decode_by(ChunkedDecoder::of_request(), body, piece);
    if of_request != at_once {
        let may_be = match of_request.outcome {
            Err(Some(Status::BAD_REQUEST)) => names_a_field_of_the_head(body),
            // Those of a response are not counted.
            Err(Some(Status::REQUEST_HEADER_FIELDS_TOO_LARGE)) => {
                body.split(|byte| *byte == b'\n').count() > Limits::default().fields_max
            }
            _ => false,
        };
        assert!(may_be, "{}", as_text(body));
    }
    let too_large = Err(Some(Status::REQUEST_HEADER_FIELDS_TOO_LARGE));
    if at_once.outcome != too_large {
        let whole = match at_once.outcome {
            Ok((used, true)) => Some((at_once.content, used)),
            _ => None,
        };
        assert_eq!(slowly(body), whole, "{}", as_text(body));
    }

    let mut encoded = encode(body, piece);
    let len = encoded.len();
    encoded.extend_from_slice(b"GET / HTTP/1.1\r\n"); // the next request is not touched
    let decoded = decode(&encoded, usize::from(cut.reverse_bits()).max(1));
    assert_eq!(decoded.outcome, Ok((len, true)));
    assert_eq!(decoded.content, body);
});

/// Whether there is a line that a request may not have among its trailers. (Perhaps not as one.)
fn names_a_field_of_the_head(body: &[u8]) -> bool {
    const NAMES: &str = "content-length transfer-encoding host cache-control expect max-forwards \
         pragma range te if-match if-none-match if-modified-since if-unmodified-since if-range \
         authorization proxy-authorization cookie set-cookie content-encoding content-type \
         content-range trailer connection keep-alive proxy-connection upgrade forwarded \
         x-forwarded-for x-forwarded-host x-forwarded-proto x-real-ip";
    let lower = String::from_utf8_lossy(body).to_ascii_lowercase();
    NAMES
        .split(' ')
        .any(|name| lower.contains(&format!("\n{name}:")))
}

fn decode(body: &[u8], piece: usize) -> Decoded {
    decode_by(ChunkedDecoder::default(), body, piece)
}

fn decode_by(mut decoder: ChunkedDecoder, body: &[u8], piece: usize) -> Decoded {
    let limits = Limits::default();
    let mut content = Vec::new();
    let mut used = 0;
    for piece in body.chunks(piece) {
        match decoder.decode(piece, &limits, |bytes| content.extend_from_slice(bytes)) {
            Ok(count) => used += count,
            Err(fault) => {
                let outcome = Err(fault.status);
                return Decoded { content, outcome };
            }
        }
        if decoder.is_done() {
            break;
        }
    }
    assert!(content.len() <= used && used <= body.len());
    assert!(decoder.is_done() || used == body.len());
    let outcome = Ok((used, decoder.is_done()));
    Decoded { content, outcome }
}

/// The content of a whole chunked body and its length, line by line; `None`: not whole or not good.
fn slowly(body: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut rest = body;
    let mut content = Vec::new();
    loop {
        let line = take_line(&mut rest)?;
        let (size, extension) = match line.split_once(';') {
            Some((size, extension)) => (size.trim_end_matches([' ', '\t']), extension),
            None => (&line[..], ""),
        };
        let is_hex = !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_hex || !is_text(extension) {
            return None;
        }
        let digits = size.trim_start_matches('0');
        if digits.is_empty() {
            break;
        }
        let len = usize::from_str_radix(digits, 16).ok()?;
        let (piece, after) = rest.split_at_checked(len)?;
        content.extend_from_slice(piece);
        rest = after.strip_prefix(b"\r\n")?;
    }
    loop {
        let line = take_line(&mut rest)?;
        if line.is_empty() {
            return Some((content, body.len() - rest.len()));
        }
        let (name, value) = line.split_once(':')?;
        let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if name.is_empty() || !name.chars().all(is_token) || !is_text(value) {
            return None;
        }
    }
}

/// Up to the next CR, which an LF must follow; bytes beyond ASCII stand for themselves.
fn take_line(rest: &mut &[u8]) -> Option<String> {
    let end = rest.iter().position(|byte| *byte == b'\r')?;
    let line = rest[..end].iter().map(|byte| char::from(*byte)).collect();
    *rest = rest[end..].strip_prefix(b"\r\n")?;
    Some(line)
}

fn is_text(text: &str) -> bool {
    text.chars().all(|c| c == '\t' || c >= ' ' && c != '\x7f')
}

fn encode(content: &[u8], piece: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in content.chunks(piece) {
        out.extend_from_slice(format!("{:X};x=\"y\"\r\n", piece.len()).as_bytes());
        out.extend_from_slice(piece);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\nX-Sum: x\r\n\r\n");
    out
}
