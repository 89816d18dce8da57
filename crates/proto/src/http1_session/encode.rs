//! Answers as bytes: status line, Server and Date, the handler's fields, framing, content.

use std::sync::Arc;

use loadline_base::{Buffer, Segment};

use crate::ascii::push_decimal;
use crate::{
    Body, Context, Exchange, Fields, HttpDate, Limits, Method, Request, Response, Security, Status,
    Version,
};

/// What an answer needs besides the handler's own field lines: status line, Server and Date,
/// Connection, Content-Length, empty line.
const HEAD_EXTRA_BYTES: usize = 256;

/// What becomes of the connection behind an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// It ends.
    Close,
    /// It stays open; idle, for `promised_s` at least, if that is not 0.
    Stay { promised_s: u32 },
}

impl After {
    #[inline]
    pub(crate) fn new(persist: bool, promised_s: u32) -> Self {
        match persist {
            true => Self::Stay { promised_s },
            false => Self::Close,
        }
    }
}

/// An answer whose fields and content are only borrowed.
#[derive(Clone, Copy)]
pub(crate) struct Borrowed<'a> {
    pub(crate) status: Status,
    pub(crate) fields: &'a Fields,
    pub(crate) content: &'a [u8],
    /// Field lines that belong to the connection.
    pub(crate) connection_lines: &'a [u8],
}

/// Encodes borrowed content behind its head, in one piece. Returns the length of what will be sent.
#[inline]
pub(crate) fn borrowed(
    output: &mut Buffer,
    request: &Request,
    after: After,
    answer: Borrowed<'_>,
    cx: &mut Context<'_>,
) -> u64 {
    let Borrowed {
        status,
        fields,
        content,
        connection_lines,
    } = answer;
    let content_len = if request.method == Method::Head {
        0
    } else {
        content.len()
    };
    let lines = fields.http1_lines();
    let lines_len = lines.len() + connection_lines.len();
    cx.pool
        .buffers
        .reserve(output, HEAD_EXTRA_BYTES + lines_len + content_len);
    begin_head(output, request.version, after, status, fields, cx.date);
    output.extend_from_slice(lines);
    output.extend_from_slice(connection_lines);
    end_head(output, Some(content.len() as u64));
    output.extend_from_slice(&content[..content_len]);
    content_len as u64
}

/// Encodes a response behind the output so far; content too large to copy goes to `segments`, behind
/// that output. Returns the length of the content that will be sent.
pub(crate) fn answer(
    exchange: &mut Exchange,
    after: After,
    output: &mut Buffer,
    segments: &mut Vec<Segment>,
    limits: &Limits,
    cx: &mut Context<'_>,
) -> u64 {
    let Exchange {
        request,
        response,
        security,
        ..
    } = exchange;
    let connection_lines = match response.fields.has_transport_security() {
        true => &[],
        false => connection_lines(security),
    };
    let mut body = std::mem::take(&mut response.body);
    let stated = stated_len(request, response, &body);
    let is_chunked = is_chunked(request, response, &body);
    if request.method == Method::Head
        || response.status.has_no_content()
        || matches!(body, Body::Stream { .. })
    {
        body = Body::Empty;
    }
    let len = body.len();
    let is_inline = len <= limits.inline_body_bytes_max as u64
        && !matches!(body, Body::File { .. } | Body::Segments(_));
    let inline_len = if is_inline {
        usize::try_from(len).unwrap_or_default()
    } else {
        0
    };
    let fields = &response.fields;
    let lines = fields.http1_lines();
    let lines_len = lines.len() + connection_lines.len();
    cx.pool
        .buffers
        .reserve(output, HEAD_EXTRA_BYTES + lines_len + inline_len);
    let status = response.status;
    begin_head(output, request.version, after, status, fields, cx.date);
    output.extend_from_slice(lines);
    output.extend_from_slice(connection_lines);
    if is_chunked {
        output.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    end_head(output, stated);
    match body {
        Body::Bytes(bytes) if is_inline => {
            output.extend_from_slice(&bytes);
            response.keep(bytes);
        }
        Body::Shared { bytes, start, end } if is_inline => {
            output.extend_from_slice(&bytes[start..end]);
        }
        Body::Empty | Body::Encoded { .. } | Body::Stream { .. } => {}
        body if len > 0 => {
            if segments.capacity() == 0 {
                *segments = cx.pool.take_segments();
            }
            segments.push(Segment::Buffer(std::mem::take(output)));
            push_large(body, segments);
        }
        _ => {}
    }
    len
}

/// Field lines of a response that belong to its connection.
#[inline]
pub(crate) fn connection_lines(security: &Option<Arc<Security>>) -> &[u8] {
    let security = security.as_deref();
    security.map_or(&[], |security| &security.response_lines)
}

/// What Content-Length is to say, if anything.
#[inline]
pub(crate) fn stated_len(request: &Request, response: &Response, body: &Body) -> Option<u64> {
    let known = match body {
        Body::Stream { len } => *len,
        body => Some(body.len()),
    };
    match response.status {
        status if status.code() < 200 || status == Status::NO_CONTENT => None,
        Status::NOT_MODIFIED => response.stated_len,
        _ if request.method == Method::Head => response.stated_len.or(known),
        _ => known,
    }
}

#[inline]
fn is_chunked(request: &Request, response: &Response, body: &Body) -> bool {
    matches!(body, Body::Stream { len: None })
        && request.method != Method::Head
        && !response.status.has_no_content()
        && request.version == Version::Http11
}

/// Content that is too large to be copied.
fn push_large(body: Body, segments: &mut Vec<Segment>) {
    match body {
        Body::Bytes(bytes) => segments.push(Segment::Buffer(Buffer::from(bytes))),
        Body::Shared { bytes, start, end } => {
            segments.push(Segment::Shared { bytes, start, end });
        }
        Body::File { file, offset, len } => {
            segments.push(Segment::File { file, offset, len });
        }
        Body::Segments(pieces) => {
            segments.extend(pieces.into_iter().filter(|piece| !piece.is_empty()));
        }
        Body::Empty | Body::Encoded { .. } | Body::Stream { .. } => {}
    }
}

/// A piece shorter than this is copied, so that it leaves in one with its framing: a copy of 16 KiB
/// costs as much as a second piece.
const COPY_BYTES_MAX: usize = 16 << 10;

/// Adds streamed content behind the output so far: a chunk, or the bytes alone.
pub(crate) fn content(
    bytes: Buffer,
    chunked: bool,
    output: &mut Buffer,
    segments: &mut Vec<Segment>,
    cx: &mut Context<'_>,
) {
    const FRAMING_BYTES: usize = 20; // 16 digits and two line ends
    let copied = bytes.len() <= COPY_BYTES_MAX;
    let len = if copied { bytes.len() } else { 0 };
    cx.pool.buffers.reserve(output, FRAMING_BYTES + len);
    if chunked {
        push_hexadecimal(output, bytes.len());
        output.extend_from_slice(b"\r\n");
    }
    if copied {
        output.extend_from_slice(&bytes);
        cx.pool.buffers.give(bytes);
    } else {
        if segments.capacity() == 0 {
            *segments = cx.pool.take_segments();
        }
        if !output.is_empty() {
            segments.push(Segment::Buffer(std::mem::take(output)));
        }
        segments.push(Segment::Buffer(bytes));
        cx.pool.buffers.reserve(output, FRAMING_BYTES);
    }
    if chunked {
        output.extend_from_slice(b"\r\n");
    }
}

/// The end of chunked content.
pub(crate) fn last_chunk(trailers: &Fields, output: &mut Buffer, cx: &mut Context<'_>) {
    let lines = trailers.http1_lines();
    cx.pool.buffers.reserve(output, lines.len() + 5);
    output.extend_from_slice(b"0\r\n");
    output.extend_from_slice(lines);
    output.extend_from_slice(b"\r\n");
}

/// Whether the client has said that it does not drop trailers (RFC 9110 section 6.5.1).
pub(crate) fn takes_trailers(request: &Request) -> bool {
    let has_it = |value: &[u8]| {
        let mut codings = value.split(|byte| *byte == b',');
        codings.any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"))
    };
    let mut fields = request.fields();
    fields.any(|(name, value)| name.eq_ignore_ascii_case(b"te") && has_it(value))
}

fn push_hexadecimal(output: &mut Vec<u8>, number: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = (usize::BITS - number.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        output.push(DIGITS[number >> (4 * digit) & 15]);
    }
}

#[inline]
fn begin_head(
    output: &mut Buffer,
    version: Version,
    after: After,
    status: Status,
    fields: &Fields,
    date: &HttpDate,
) {
    match status.line() {
        Some(line) => output.extend_from_slice(line.as_bytes()),
        None => {
            output.extend_from_slice(b"HTTP/1.1 ");
            push_decimal(output, u64::from(status.code()));
            output.extend_from_slice(b" \r\n");
        }
    }
    output.extend_from_slice(match (fields.has_server(), fields.has_date()) {
        (false, false) => date.field_lines(),
        (true, false) => date.date_line(),
        (false, true) => date.server_line(),
        (true, true) => b"",
    });
    match (after, version) {
        (After::Stay { promised_s: 0 }, Version::Http11) => {}
        (After::Close, _) => output.extend_from_slice(b"Connection: close\r\n"),
        (After::Stay { promised_s }, _) => push_keep_alive(output, promised_s),
    }
}

/// The promise counts only where the Connection field names it (RFC 2068 section 19.7.1).
#[inline(never)]
fn push_keep_alive(output: &mut Buffer, promised_s: u32) {
    output.extend_from_slice(b"Connection: keep-alive\r\n");
    if promised_s > 0 {
        output.extend_from_slice(b"Keep-Alive: timeout=");
        push_decimal(output, u64::from(promised_s));
        output.extend_from_slice(b"\r\n");
    }
}

#[inline]
fn end_head(output: &mut Buffer, stated_len: Option<u64>) {
    if let Some(len) = stated_len {
        output.extend_from_slice(b"Content-Length: ");
        push_decimal(output, len);
        output.extend_from_slice(b"\r\n");
    }
    output.extend_from_slice(b"\r\n");
}
