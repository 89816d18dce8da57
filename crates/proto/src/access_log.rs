//! The lines of the access log, formatted into memory; a loop hands them on.
//!
//! A small answer, copied behind its head, is logged when it is encoded, with all of its bytes. One
//! with a file or shared content is logged when its last byte has left or the connection has ended
//! before that, with the bytes of the content that were sent. One that an app streams is logged when
//! the app has ended it, with all of its bytes, or when the connection has ended, with those sent.

use crate::http1::push_decimal;
use crate::request::FieldName;
use crate::{Exchange, HttpDate, Status};

/// The form of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessFormat {
    /// Apache's common log format.
    Common,
    /// Common plus Referer and User-Agent.
    Combined,
    /// One JSON object a line.
    Json,
}

/// Lines of one thread that wait to be handed on, always whole.
#[derive(Debug)]
pub struct AccessLog {
    format: AccessFormat,
    lines: Vec<u8>,
}

/// A request target longer than this is cut in the log: its limit is a log line's, not HTTP's.
const TEXT_BYTES_MAX: usize = 2048;

impl AccessLog {
    /// An empty log.
    #[must_use]
    pub fn new(format: AccessFormat) -> Self {
        Self {
            format,
            lines: Vec::new(),
        }
    }

    /// The lines so far; the caller takes them away by `std::mem::take` or `clear`.
    pub fn lines(&mut self) -> &mut Vec<u8> {
        &mut self.lines
    }

    /// The form of the lines.
    #[must_use]
    pub fn format(&self) -> AccessFormat {
        self.format
    }

    /// Adds the line of one answer; `bytes` of its content were sent, after `duration_ms`.
    pub fn add(
        &mut self,
        exchange: &Exchange,
        status: Status,
        bytes: u64,
        duration_ms: u64,
        date: &HttpDate,
    ) {
        match self.format {
            AccessFormat::Common => self.add_common(exchange, status, bytes, date),
            AccessFormat::Combined => {
                self.add_common(exchange, status, bytes, date);
                self.lines.extend_from_slice(b" \"");
                self.push_field(exchange, FieldName::Referer, Escape::Quoted);
                self.lines.extend_from_slice(b"\" \"");
                self.push_field(exchange, FieldName::UserAgent, Escape::Quoted);
                self.lines.push(b'"');
            }
            AccessFormat::Json => self.add_json(exchange, status, bytes, duration_ms, date),
        }
        self.lines.push(b'\n');
    }

    fn add_common(&mut self, exchange: &Exchange, status: Status, bytes: u64, date: &HttpDate) {
        self.push_peer(exchange);
        self.lines.extend_from_slice(b" - - [");
        self.lines.extend_from_slice(date.clf());
        self.lines.extend_from_slice(b"] \"");
        self.push_escaped(exchange.request.line(), Escape::Quoted);
        self.lines.extend_from_slice(b"\" ");
        push_decimal(&mut self.lines, u64::from(status.code()));
        self.lines.push(b' ');
        if bytes == 0 {
            self.lines.push(b'-');
        } else {
            push_decimal(&mut self.lines, bytes);
        }
    }

    fn add_json(
        &mut self,
        exchange: &Exchange,
        status: Status,
        bytes: u64,
        duration_ms: u64,
        date: &HttpDate,
    ) {
        self.lines.extend_from_slice(b"{\"time\":");
        push_decimal(&mut self.lines, date.unix_seconds());
        self.lines.extend_from_slice(b",\"peer\":\"");
        self.push_peer(exchange);
        self.lines.extend_from_slice(b"\",\"request\":\"");
        self.push_escaped(exchange.request.line(), Escape::Json);
        self.lines.extend_from_slice(b"\",\"host\":\"");
        self.push_escaped(exchange.request.authority(), Escape::Json);
        self.lines.extend_from_slice(b"\",\"status\":");
        push_decimal(&mut self.lines, u64::from(status.code()));
        self.lines.extend_from_slice(b",\"bytes\":");
        push_decimal(&mut self.lines, bytes);
        self.lines.extend_from_slice(b",\"duration_ms\":");
        push_decimal(&mut self.lines, duration_ms);
        self.lines.extend_from_slice(b",\"referer\":\"");
        self.push_field(exchange, FieldName::Referer, Escape::Json);
        self.lines.extend_from_slice(b"\",\"user_agent\":\"");
        self.push_field(exchange, FieldName::UserAgent, Escape::Json);
        self.lines.extend_from_slice(b"\"}");
    }

    fn push_peer(&mut self, exchange: &Exchange) {
        use std::io::Write;
        match exchange.peer {
            // Writing to a vector cannot fail.
            Some(peer) => drop(write!(self.lines, "{}", peer.ip().to_canonical())),
            None => self.lines.push(b'-'),
        }
    }

    fn push_field(&mut self, exchange: &Exchange, name: FieldName, escape: Escape) {
        match (exchange.request.field(name), escape) {
            (Some(value), _) => self.push_escaped(value, escape),
            (None, Escape::Quoted) => self.lines.push(b'-'),
            (None, Escape::Json) => {}
        }
    }

    /// Appends text of a client's: nothing of it can end the line or the quotes.
    fn push_escaped(&mut self, text: &[u8], escape: Escape) {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        for byte in text.iter().take(TEXT_BYTES_MAX) {
            match byte {
                b'"' | b'\\' => self.lines.extend_from_slice(&[b'\\', *byte]),
                0x20..=0x7e => self.lines.push(*byte),
                _ => {
                    let prefix: &[u8] = match escape {
                        Escape::Quoted => b"\\x",
                        Escape::Json => b"\\u00",
                    };
                    self.lines.extend_from_slice(prefix);
                    self.lines.push(HEX[usize::from(byte >> 4)]);
                    self.lines.push(HEX[usize::from(byte & 15)]);
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Escape {
    Quoted,
    Json,
}
