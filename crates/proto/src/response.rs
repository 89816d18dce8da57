//! An answer as data: status, fields, and a body that is not opened here.

use std::sync::Arc;

use loadline_base::{OpenFile, Segment};

use crate::ascii::decimal;
use crate::{Fields, Status};

/// More than this is not kept of content that was not sent.
const SPARE_BYTES_MAX: usize = 16 << 10;

/// The content of an answer.
#[derive(Debug, Default)]
pub enum Body {
    /// None; for an error status the session puts in its page (see `ErrorPages`).
    #[default]
    Empty,
    /// Bytes of its own.
    Bytes(Vec<u8>),
    /// Cached bytes too large to copy: a range of them.
    Shared {
        /// The content.
        bytes: Arc<[u8]>,
        /// First byte to send.
        start: usize,
        /// One past the last.
        end: usize,
    },
    /// A range of a file.
    File {
        /// The file.
        file: Arc<OpenFile>,
        /// First byte to send.
        offset: u64,
        /// Bytes to send.
        len: u64,
    },
    /// Several pieces in order, none of them empty (multipart/byteranges).
    Segments(Vec<Segment>),
    /// An app produces it, piece by piece; `len` if its length is known before.
    Stream {
        /// Bytes that will come.
        len: Option<u64>,
    },
    /// `Exchange::answer_borrowed` has put head and body into the output already.
    #[non_exhaustive]
    Encoded {
        /// Bytes of content among them.
        len: u64,
    },
}

impl Body {
    /// Its length in bytes; for a `Stream`, as far as known.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Shared { start, end, .. } => (end - start) as u64,
            Self::File { len, .. } | Self::Encoded { len } => *len,
            Self::Segments(segments) => segments.iter().map(Segment::len).sum(),
            Self::Stream { len } => len.unwrap_or(0),
        }
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// An answer in the making. The session adds the status line, Date, Server, Connection and, unless
/// the status forbids it, Content-Length; the handler adds everything else.
#[derive(Debug)]
pub struct Response {
    /// The status; 200 until said otherwise.
    pub status: Status,
    /// What the handler says of it. Neither Connection, Content-Length nor Transfer-Encoding, which
    /// are the session's; a Date or Server takes the place of the session's.
    pub fields: Fields,
    /// The content. For HEAD it is counted for Content-Length and not sent.
    pub body: Body,
    /// For an answer to HEAD without a body at hand, and for 304: the Content-Length to state.
    pub stated_len: Option<u64>,
    /// Close the connection after this answer.
    pub close: bool,
    /// Memory that small content was in.
    pub(crate) spare: Vec<u8>,
}

impl Default for Response {
    fn default() -> Self {
        Self {
            status: Status::OK,
            fields: Fields::default(),
            body: Body::Empty,
            stated_len: None,
            close: false,
            spare: Vec::new(),
        }
    }
}

impl Response {
    /// Adds a field; see [`Fields::add`].
    pub fn field(&mut self, name: &str, value: impl AsRef<[u8]>) {
        self.fields.add(name, value);
    }

    /// Memory for small content, empty: that of an earlier answer, if there was one. To be filled and
    /// given as [`Body::Bytes`].
    #[must_use]
    pub fn content_memory(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.spare)
    }

    /// Becomes a copy of what is borrowed, but for what else was said.
    #[inline(never)]
    pub(crate) fn copy(&mut self, status: Status, fields: &Fields, content: &[u8]) {
        self.status = status;
        self.fields.clear();
        self.fields.append(fields, 0);
        let mut memory = self.content_memory();
        memory.extend_from_slice(content);
        self.body = Body::Bytes(memory);
    }

    /// Whether memory of so many bytes is of use for the next answer.
    pub(crate) fn can_keep(&self, capacity: usize) -> bool {
        (self.spare.capacity()..=SPARE_BYTES_MAX).contains(&capacity)
    }

    /// Keeps the memory of content that was copied, for the next answer.
    pub(crate) fn keep(&mut self, mut content: Vec<u8>) {
        content.clear();
        self.spare = content;
    }

    /// Starts over as an error answer whose page the session fills in.
    pub fn error(&mut self, status: Status) {
        self.clear();
        self.status = status;
    }

    /// Starts over as the answer of a server that has no room for the request: 503, with the seconds
    /// after which to come back (RFC 9110 sections 15.6.4 and 10.2.3).
    pub fn overloaded(&mut self, retry_after_s: u32) {
        self.error(Status::SERVICE_UNAVAILABLE);
        let mut digits = [0; 20];
        self.field(
            "Retry-After",
            decimal(u64::from(retry_after_s), &mut digits),
        );
    }

    /// Empties it for the next answer, keeping its memory.
    pub fn clear(&mut self) {
        self.status = Status::OK;
        if let Body::Bytes(content) = std::mem::take(&mut self.body)
            && self.can_keep(content.capacity())
        {
            self.keep(content);
        }
        self.stated_len = None;
        self.close = false;
        self.fields.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_when_to_come_back_and_keeps_the_memory_of_the_content() {
        let mut response = Response::default();
        for (retry_after_s, text) in [(1, "1"), (60, "60"), (u32::MAX, "4294967295")] {
            let mut content = response.content_memory();
            content.extend_from_slice(&[b'a'; 600]);
            response.body = Body::Bytes(content);
            response.overloaded(retry_after_s);
            assert_eq!(response.status, Status::SERVICE_UNAVAILABLE);
            assert_eq!(response.fields.get("Retry-After"), Some(text.as_bytes()));
            assert!(matches!(response.body, Body::Empty), "{response:?}");
            assert!(response.spare.is_empty() && response.spare.capacity() >= 600);
        }
        response.body = Body::Bytes(vec![0; SPARE_BYTES_MAX + 1]);
        response.clear();
        assert!(response.spare.capacity() <= SPARE_BYTES_MAX);
    }
}
