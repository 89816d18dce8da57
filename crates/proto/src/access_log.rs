//! The lines of the access log, formatted into memory; a loop hands them on.
//!
//! A small answer, copied behind its head, is logged when it is encoded, with all of its bytes. One
//! with a file or shared content is logged when its last byte has left or the connection has ended
//! before that, with the bytes of the content that were sent. One that an app streams is logged when
//! the app has ended it, with all of its bytes, or when the connection has ended, with those sent.

use std::io::Write as _;

pub use loadline_base::choices::AccessFormat;

use crate::ascii::push_decimal;
use crate::request::{FieldName, TargetForm};
use crate::{Exchange, HttpDate, Method, Status, Version};

/// Lines of one thread that wait to be handed on, always whole.
#[derive(Debug)]
pub struct AccessLog {
    format: AccessFormat,
    lines: Vec<u8>,
    now_us: u64,
    unix_us: u64,
    /// The second that was written last.
    second: HttpDate,
}

/// Text of a client's that is longer is cut in the log: its limit is a log line's, not HTTP's.
const TEXT_BYTES_MAX: usize = 2048;

const US_PER_S: u64 = 1_000_000;

impl AccessLog {
    /// An empty log.
    #[must_use]
    pub fn new(format: AccessFormat) -> Self {
        Self {
            format,
            lines: Vec::new(),
            now_us: 0,
            unix_us: 0,
            second: HttpDate::at(0),
        }
    }

    /// The time of the turn that begins, on the server's clock and since 1970.
    pub fn tick(&mut self, now_us: u64, unix_us: u64) {
        self.now_us = now_us;
        self.unix_us = unix_us;
    }

    pub(crate) fn now_us(&self) -> u64 {
        self.now_us
    }

    /// The lines so far; the caller takes them away by `std::mem::take` or `clear`.
    pub fn lines(&mut self) -> &mut Vec<u8> {
        &mut self.lines
    }

    /// Adds the line of one answer; `bytes` of its content were sent.
    pub fn add(&mut self, exchange: &Exchange, status: Status, bytes: u64, date: &HttpDate) {
        match self.format {
            AccessFormat::Common => self.add_common(exchange, status, bytes, date),
            AccessFormat::Combined => {
                self.add_common(exchange, status, bytes, date);
                for name in [FieldName::Referer, FieldName::UserAgent] {
                    self.lines.extend_from_slice(b" \"");
                    let value = exchange.request.field(name);
                    push_quoted(&mut self.lines, value.unwrap_or(b"-"));
                    self.lines.push(b'"');
                }
            }
            AccessFormat::Json => self.add_json(exchange, status, bytes),
        }
        self.lines.push(b'\n');
    }

    fn add_common(&mut self, exchange: &Exchange, status: Status, bytes: u64, date: &HttpDate) {
        match exchange.client() {
            // Writing to a vector cannot fail.
            Some(client) => drop(write!(self.lines, "{}", client.address)),
            None => self.lines.push(b'-'),
        }
        self.lines.extend_from_slice(b" - - [");
        self.lines.extend_from_slice(date.clf());
        self.lines.extend_from_slice(b"] \"");
        push_quoted(&mut self.lines, exchange.request.line());
        self.lines.extend_from_slice(b"\" ");
        push_decimal(&mut self.lines, u64::from(status.code()));
        self.lines.push(b' ');
        if bytes == 0 {
            self.lines.push(b'-');
        } else {
            push_decimal(&mut self.lines, bytes);
        }
    }

    fn add_json(&mut self, exchange: &Exchange, status: Status, bytes: u64) {
        let duration_us = self.now_us.saturating_sub(exchange.came_us);
        self.lines.extend_from_slice(b"{\"time\":\"");
        self.push_time(self.unix_us.saturating_sub(duration_us));
        self.lines.push(b'"');
        if let Some(client) = exchange.client() {
            self.push_text("client.address", format_args!("{}", client.address));
            if let Some(port) = client.port {
                self.push_number("client.port", port.into());
            }
        }
        if let Some(peer) = exchange.peer {
            let address = peer.ip().to_canonical();
            self.push_text("network.peer.address", format_args!("{address}"));
            self.push_number("network.peer.port", peer.port().into());
        }
        self.push_request(exchange);
        self.push_number("http.response.status_code", status.code().into());
        self.push_number("http.response.body.size", bytes);
        if let Some(agent) = exchange.request.field(FieldName::UserAgent) {
            self.push_string("user_agent.original", agent);
        }
        if let Some(referer) = exchange.request.field(FieldName::Referer) {
            self.push_name("http.request.header.referer");
            self.lines.extend_from_slice(b"[\"");
            push_json(&mut self.lines, referer);
            self.lines.extend_from_slice(b"\"]");
        }
        self.push_number("duration_us", duration_us);
        self.lines.push(b'}');
    }

    fn push_request(&mut self, exchange: &Exchange) {
        let request = &exchange.request;
        if request.path().is_empty() && request.form != TargetForm::Authority {
            // Refused before it was parsed.
            if !request.line().is_empty() {
                self.push_string("request", request.line());
            }
            return;
        }
        match request.method {
            Method::Other => {
                self.push_string("http.request.method", b"_OTHER");
                self.push_string("http.request.method_original", request.method_name());
            }
            known => self.push_string("http.request.method", known.as_str().as_bytes()),
        }
        let scheme: &[u8] = if exchange.is_secure() {
            b"https"
        } else {
            b"http"
        };
        self.push_string("url.scheme", scheme);
        if !request.path().is_empty() {
            self.push_string("url.path", request.path());
        }
        if let Some(query) = request.query() {
            self.push_string("url.query", query);
        }
        let (host, port) = host_and_port(request.authority());
        if !host.is_empty() {
            self.push_string("server.address", host);
        }
        if let Some(port) = port {
            self.push_number("server.port", port.into());
        }
        let version: &[u8] = match request.version {
            Version::Http10 => b"1.0",
            Version::Http11 => b"1.1",
            Version::Http2 => b"2",
        };
        self.push_string("network.protocol.version", version);
    }

    /// `2026-11-21T07:39:37.000123Z`, as in RFC 3339.
    fn push_time(&mut self, unix_us: u64) {
        let seconds = unix_us / US_PER_S;
        if seconds != self.second.unix_seconds() {
            self.second = HttpDate::at(seconds);
        }
        self.lines.extend_from_slice(&self.second.rfc3339());
        let _ = write!(self.lines, ".{:06}Z", unix_us % US_PER_S);
    }

    fn push_name(&mut self, name: &str) {
        self.lines.extend_from_slice(b",\"");
        self.lines.extend_from_slice(name.as_bytes());
        self.lines.extend_from_slice(b"\":");
    }

    fn push_number(&mut self, name: &str, number: u64) {
        self.push_name(name);
        push_decimal(&mut self.lines, number);
    }

    fn push_string(&mut self, name: &str, text: &[u8]) {
        self.push_name(name);
        self.lines.push(b'"');
        push_json(&mut self.lines, text);
        self.lines.push(b'"');
    }

    /// Text with nothing in it that would have to be escaped.
    fn push_text(&mut self, name: &str, text: std::fmt::Arguments<'_>) {
        self.push_name(name);
        let _ = write!(self.lines, "\"{text}\"");
    }
}

/// Appends text of a client's: nothing of it can end the line or the quotes.
fn push_quoted(lines: &mut Vec<u8>, text: &[u8]) {
    for byte in text.iter().take(TEXT_BYTES_MAX) {
        match byte {
            b'"' | b'\\' => lines.extend_from_slice(&[b'\\', *byte]),
            0x20..=0x7e => lines.push(*byte),
            _ => drop(write!(lines, "\\x{byte:02x}")),
        }
    }
}

/// The same in a JSON string: UTF-8 as it came, U+FFFD for what is none.
fn push_json(lines: &mut Vec<u8>, text: &[u8]) {
    for chunk in cut(text).utf8_chunks() {
        let mut rest = chunk.valid();
        while let Some(at) = rest.find(is_escaped) {
            let (plain, escaped) = rest.split_at(at);
            lines.extend_from_slice(plain.as_bytes());
            let mut chars = escaped.chars();
            match chars.next() {
                Some(c @ ('"' | '\\')) => lines.extend_from_slice(&[b'\\', c as u8]),
                Some(c) => drop(write!(lines, "\\u{:04x}", u32::from(c))),
                None => {}
            }
            rest = chars.as_str();
        }
        lines.extend_from_slice(rest.as_bytes());
        if !chunk.invalid().is_empty() {
            lines.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

/// What JSON wants escaped, and what some reader takes for the end of a line or a terminal for an order
/// (U+0085, U+009B).
fn is_escaped(c: char) -> bool {
    matches!(c, '"' | '\\' | '\u{2028}' | '\u{2029}') || c.is_control()
}

/// The begin of a text that is too long, not in the middle of a character.
fn cut(text: &[u8]) -> &[u8] {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while end < text.len() && end > TEXT_BYTES_MAX - 4 && text[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    &text[..end]
}

/// Takes an authority apart; the brackets of an IPv6 address are no part of it.
fn host_and_port(authority: &[u8]) -> (&[u8], Option<u16>) {
    let host_end = match authority {
        [b'[', ..] => memchr::memchr(b']', authority).map_or(authority.len(), |end| end + 1),
        _ => memchr::memchr(b':', authority).unwrap_or(authority.len()),
    };
    let (host, port) = authority.split_at(host_end);
    let host = host.strip_prefix(b"[").unwrap_or(host);
    let port = core::str::from_utf8(port.strip_prefix(b":").unwrap_or_default());
    (
        host.strip_suffix(b"]").unwrap_or(host),
        port.ok().and_then(|port| port.parse().ok()),
    )
}
