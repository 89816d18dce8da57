//! The head of an answer: its status line and the fields that say where it ends and whether the
//! connection stays, read line by line as they come.
//!
//! A line counts once it is complete, so the same bytes come to the same whatever way they are cut.
//! Bytes are judged eight at a time, as one number: this is the client's hot path. Byte by byte the
//! head of nginx (238 bytes) took 160 ns, eight at a time it takes 80.

use memchr::memchr;

use super::framing;
use super::lines::{Stop, line_end, name_end, repeated};
use crate::Limits;
use crate::ascii::is_token_byte;

/// How every answer begins that a client of HTTP/1 can read.
const BEGIN: &[u8] = b"HTTP/1.";

/// Where the content of an answer ends (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyFraming {
    /// There is none.
    Empty,
    /// After this many bytes, at least one.
    Length(u64),
    /// With the last chunk and the trailers.
    Chunked,
    /// With the connection.
    UntilClose,
}

/// What the fields announce; what is wrong with it, for answers whose content it would frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Announced<T> {
    #[default]
    Nothing,
    Is(T),
    Wrong(&'static str),
}

/// A head as far as it has been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
        match self.lines(window, limits) {
            Ok(len) => Ok(Some(len)),
            Err(stop) => self.stopped(stop, window, limits),
        }
    }

    /// The same, given that `known` bytes were shown before. A line that drips in is read once.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn read_on(
        &mut self,
        bytes: &[u8],
        known: usize,
        limits: &Limits,
    ) -> Result<Option<usize>, &'static str> {
        if memchr(b'\n', &bytes[known..]).is_some() {
            return self.read(bytes, limits);
        }
        let window = &bytes[..bytes.len().min(limits.head_bytes_max)];
        self.stopped(Stop::Cut, window, limits)
    }

    #[inline]
    fn lines(&mut self, window: &[u8], limits: &Limits) -> Result<usize, Stop> {
        if self.status == 0 {
            self.status_line(window)?;
        }
        loop {
            match window[self.read..] {
                [b'\r', b'\n', ..] => return Ok(self.read + 2),
                [b'\r'] => return Err(Stop::Cut),
                _ => self.field(window, limits)?,
            }
        }
    }

    /// A line that is not complete is not judged yet, but for how the answer begins.
    #[cold]
    fn stopped(
        &self,
        stop: Stop,
        window: &[u8],
        limits: &Limits,
    ) -> Result<Option<usize>, &'static str> {
        let begun = window.len().min(BEGIN.len());
        if self.status == 0 && window[..begun] != BEGIN[..begun] {
            return Err("the response does not begin with HTTP/1");
        }
        match stop {
            Stop::Bad(text) if memchr(b'\n', &window[self.read..]).is_some() => Err(text),
            _ if window.len() == limits.head_bytes_max => Err("the head is larger than allowed"),
            _ => Ok(None),
        }
    }

    /// `HTTP/1.x NNN reason` (RFC 9112 section 4). The space behind the status may be missing, as
    /// readers by words have it; nothing depends on it.
    #[inline]
    fn status_line(&mut self, window: &[u8]) -> Result<(), Stop> {
        let Some((line, reason)) = window.split_first_chunk::<12>() else {
            // Cut, unless the line is there.
            return Err(Stop::Bad(TOO_SHORT));
        };
        let [begin @ .., minor, space, hundreds, tens, ones] = line;
        if begin != BEGIN || !minor.is_ascii_digit() || *space != b' ' {
            return Err(bad_begin(line, "the version is malformed"));
        }
        let digits = [*hundreds, *tens, *ones].map(|byte| u16::from(byte.wrapping_sub(b'0')));
        if digits.iter().any(|digit| *digit > 9) || !matches!(reason, [] | [b' ' | b'\r', ..]) {
            return Err(bad_begin(line, "the status is not three digits"));
        }
        let status = digits[0] * 100 + digits[1] * 10 + digits[2];
        if !(100..=599).contains(&status) {
            return Err(Stop::Bad("a status outside 100 to 599"));
        }
        self.read = line_end(window, line.len())? + 2;
        self.is_http10 = *minor == b'0';
        self.status = status;
        Ok(())
    }

    /// A field line (RFC 9112 section 5).
    #[inline]
    fn field(&mut self, window: &[u8], limits: &Limits) -> Result<(), Stop> {
        let start = self.read;
        let colon = name_end(window, start)?;
        let end = line_end(window, colon + 1)?;
        let (name, value) = (&window[start..colon], &window[colon + 1..end]);
        match name.len() {
            10 if is_name(name, b"connection") => self.connection(value)?,
            14 if is_name(name, b"content-length") => self.content_length(trimmed(value)),
            17 if is_name(name, b"transfer-encoding") => self.transfer_encoding(trimmed(value)),
            _ => {}
        }
        if self.fields == limits.fields_max {
            return Err(Stop::Bad("more fields than allowed"));
        }
        self.fields += 1;
        self.read = end + 2;
        Ok(())
    }

    #[inline]
    fn connection(&mut self, value: &[u8]) -> Result<(), Stop> {
        if value == b" keep-alive" {
            self.keeps_alive = true;
            return Ok(());
        }
        self.connection_options(value)
    }

    #[cold]
    fn connection_options(&mut self, value: &[u8]) -> Result<(), Stop> {
        for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            if !option.iter().all(|byte| is_token_byte(*byte)) {
                return Err(Stop::Bad("Connection is not a list of tokens"));
            }
            self.closes |= option.eq_ignore_ascii_case(b"close");
            self.keeps_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
        Ok(())
    }

    #[inline]
    fn content_length(&mut self, value: &[u8]) {
        self.length = match self.length {
            Announced::Nothing => parse_length(value),
            // Even if equal: readers differ in which counts.
            _ => Announced::Wrong("more than one Content-Length"),
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

const TOO_SHORT: &str = "the status line is too short";

/// The same for a line that ends too soon, whether what follows it has come or not.
#[cold]
fn bad_begin(line: &[u8], text: &'static str) -> Stop {
    Stop::Bad(if line.contains(&b'\n') {
        TOO_SHORT
    } else {
        text
    })
}

#[inline]
fn parse_length(value: &[u8]) -> Announced<u64> {
    /// As many as cannot be beyond 64 bits.
    const SAFE_DIGITS: usize = 19;
    let (first, more) = value.split_at(value.len().min(SAFE_DIGITS));
    let mut length = 0;
    for byte in first {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Announced::Wrong("Content-Length is not a number");
        }
        length = length * 10 + u64::from(digit);
    }
    match (first.is_empty(), more.is_empty()) {
        (true, _) => Announced::Wrong("Content-Length is not a number"),
        (_, true) => Announced::Is(length),
        _ => parse_long_length(value),
    }
}

/// With zeros in front, say.
#[cold]
fn parse_long_length(value: &[u8]) -> Announced<u64> {
    match framing::parse_length(value) {
        Ok(length) => Announced::Is(length),
        Err(text) => Announced::Wrong(text),
    }
}

/// A field value without white space around it; usually one space in front.
#[inline]
fn trimmed(value: &[u8]) -> &[u8] {
    match value {
        [b' ', rest @ ..] if rest.first() > Some(&b' ') && rest.last() > Some(&b' ') => rest,
        _ => value.trim_ascii(),
    }
}

/// Whether a token is this name in lower case: letters and hyphens, at least eight of them.
#[inline]
fn is_name<const N: usize>(token: &[u8], name: &[u8; N]) -> bool {
    // Setting the bit makes letters lower case, and makes nothing else of a token a letter or a hyphen.
    let lower = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes) | repeated(0x20);
    token.len() == N
        && (
            token.first_chunk().map(lower),
            token.last_chunk().map(lower),
        ) == (name.first_chunk().map(lower), name.last_chunk().map(lower))
        && (N <= 16 || token[8..N - 8].eq_ignore_ascii_case(&name[8..N - 8]))
}
