//! The head of an answer: its status line and the fields that say where it ends and whether the
//! connection stays, read line by line as they come.
//!
//! A line counts once it is complete, so the same bytes come to the same whatever way they are cut.

use memchr::memchr;

use super::head::is_token_byte;
use crate::Limits;

/// How every answer begins that a client of HTTP/1 can read.
const BEGIN: &[u8] = b"HTTP/1.";

/// Where the content of an answer ends (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyFraming {
    /// There is none.
    Empty,
    /// After so many bytes, at least one.
    Length(u64),
    /// With the last chunk and the trailers.
    Chunked,
    /// With the connection.
    UntilClose,
}

/// What the fields announce; what is wrong with it, for answers whose content it would frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Announced<T> {
    Nothing,
    Is(T),
    Wrong(&'static str),
}

/// A head as far as it has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyHead {
    /// 100 to 599; 0 before the status line.
    pub(crate) status: u16,
    is_http10: bool,
    closes: bool,
    keeps_alive: bool,
    fields: usize,
    /// Bytes of lines that were read.
    read: usize,
    length: Announced<u64>,
    chunked: Announced<()>,
}

impl ReplyHead {
    /// Nothing read yet.
    #[inline]
    pub(crate) const fn new() -> Self {
        Self {
            status: 0,
            is_http10: false,
            closes: false,
            keeps_alive: false,
            fields: 0,
            read: 0,
            length: Announced::Nothing,
            chunked: Announced::Nothing,
        }
    }

    /// Reads on in `bytes`, which must begin with all that earlier calls were shown; how long the
    /// head is, once it is complete.
    ///
    /// # Errors
    /// What is wrong with it.
    #[inline]
    pub(crate) fn read(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
    ) -> Result<Option<usize>, &'static str> {
        let window = &bytes[..bytes.len().min(limits.head_bytes_max)];
        while let Some(len) = memchr(b'\n', &window[self.read..]) {
            let lf = self.read + len;
            let Some((b'\r', line)) = window[self.read..lf].split_last() else {
                return Err("a line of the head ends in a bare LF");
            };
            self.read = lf + 1;
            if self.status == 0 {
                self.status_line(line)?;
            } else if line.is_empty() {
                return Ok(Some(self.read));
            } else {
                self.field(line, limits)?;
            }
        }
        if self.status == 0 {
            let known = window.len().min(BEGIN.len());
            if window[..known] != BEGIN[..known] {
                return Err("the answer does not begin with HTTP/1");
            }
        }
        if window.len() == limits.head_bytes_max {
            return Err("the head is larger than allowed");
        }
        Ok(None)
    }

    /// `HTTP/1.x NNN reason` (RFC 9112 section 4). The space behind the status may be missing, as
    /// readers by words have it; nothing depends on it.
    fn status_line(&mut self, line: &[u8]) -> Result<(), &'static str> {
        let Some((version, rest)) = line.split_first_chunk::<9>() else {
            return Err("the status line is too short");
        };
        let [begin @ .., minor, space] = version;
        if begin != BEGIN {
            return Err("the answer does not begin with HTTP/1");
        }
        if !minor.is_ascii_digit() || *space != b' ' {
            return Err("the version is malformed");
        }
        let Some((digits, reason)) = rest.split_first_chunk::<3>() else {
            return Err("the status is not three digits");
        };
        if !digits.iter().all(u8::is_ascii_digit) || !matches!(reason, [] | [b' ', ..]) {
            return Err("the status is not three digits");
        }
        if has_control(reason) {
            return Err("a control character in the reason phrase");
        }
        let status = digits
            .iter()
            .fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
        if !(100..=599).contains(&status) {
            return Err("a status outside 100 to 599");
        }
        self.is_http10 = *minor == b'0';
        self.status = status;
        Ok(())
    }

    /// A field line (RFC 9112 section 5).
    fn field(&mut self, line: &[u8], limits: &Limits) -> Result<(), &'static str> {
        self.fields += 1;
        if self.fields > limits.fields_max {
            return Err("more fields than allowed");
        }
        let name_len = line
            .iter()
            .position(|byte| !is_token_byte(*byte))
            .unwrap_or(line.len());
        let (name, rest) = line.split_at(name_len);
        let value = match rest {
            [b':', value @ ..] if name_len > 0 => value,
            _ => return Err(bad_name(name_len, rest)),
        };
        if has_control(value) {
            return Err("a control character in a field value");
        }
        match name_len {
            10 if name.eq_ignore_ascii_case(b"connection") => self.connection(value),
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                self.content_length(value.trim_ascii());
                Ok(())
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                self.transfer_encoding(value.trim_ascii());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn connection(&mut self, value: &[u8]) -> Result<(), &'static str> {
        for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            if !option.iter().all(|byte| is_token_byte(*byte)) {
                return Err("Connection is not a list of tokens");
            }
            self.closes |= option.eq_ignore_ascii_case(b"close");
            self.keeps_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
        Ok(())
    }

    fn content_length(&mut self, value: &[u8]) {
        self.length = match (self.length, parse_length(value)) {
            // Even if equal: readers differ in which counts.
            (Announced::Is(_), _) => Announced::Wrong("more than one Content-Length"),
            (Announced::Nothing, Ok(length)) => Announced::Is(length),
            (Announced::Nothing, Err(text)) => Announced::Wrong(text),
            (wrong, _) => wrong,
        };
    }

    fn transfer_encoding(&mut self, value: &[u8]) {
        self.chunked = match self.chunked {
            Announced::Nothing if value.eq_ignore_ascii_case(b"chunked") => Announced::Is(()),
            Announced::Nothing => Announced::Wrong("a transfer coding other than chunked"),
            _ => Announced::Wrong("more than one Transfer-Encoding"),
        };
    }

    /// Where the content ends. An answer to HEAD has none, nor has one with status 1xx, 204 or 304,
    /// whatever they announce.
    ///
    /// # Errors
    /// What two readers could understand differently.
    #[inline]
    pub(crate) fn framing(&self, is_to_head: bool) -> Result<ReplyFraming, &'static str> {
        if is_to_head || matches!(self.status, 0..200 | 204 | 304) {
            return Ok(ReplyFraming::Empty);
        }
        match (self.length, self.chunked) {
            (Announced::Is(0), Announced::Nothing) => Ok(ReplyFraming::Empty),
            (Announced::Is(length), Announced::Nothing) => Ok(ReplyFraming::Length(length)),
            (Announced::Nothing, Announced::Nothing) => Ok(ReplyFraming::UntilClose),
            (Announced::Wrong(text), _) | (Announced::Nothing, Announced::Wrong(text)) => Err(text),
            (Announced::Is(_), _) => Err("both Content-Length and Transfer-Encoding"),
            (Announced::Nothing, Announced::Is(())) if self.is_http10 => {
                Err("Transfer-Encoding in HTTP/1.0")
            }
            (Announced::Nothing, Announced::Is(())) => Ok(ReplyFraming::Chunked),
        }
    }

    /// Whether the connection may stay open (RFC 9112 section 9.3).
    #[inline]
    pub(crate) const fn persists(&self) -> bool {
        !self.closes && (!self.is_http10 || self.keeps_alive)
    }
}

fn parse_length(value: &[u8]) -> Result<u64, &'static str> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err("Content-Length is not a number");
    }
    let length = value.iter().try_fold(0_u64, |sum, digit| {
        sum.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    });
    length.ok_or("Content-Length is beyond 64 bits")
}

fn has_control(text: &[u8]) -> bool {
    text.iter().fold(false, |found, byte| {
        found | ((*byte < 0x20) & (*byte != b'\t')) | (*byte == 0x7f)
    })
}

fn bad_name(name_len: usize, rest: &[u8]) -> &'static str {
    match rest.first() {
        Some(b' ' | b'\t') if name_len == 0 => "a folded field line",
        Some(b' ' | b'\t') => "white space between a field name and its colon",
        _ => "a field line without a valid name",
    }
}
