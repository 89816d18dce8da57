//! A response of which everything is at hand: its head and its content as frames.

use loadline_base::{Buffer, BufferPool};

use super::frame::{FrameHead, HEAD_BYTES, Kind, PAYLOAD_BYTES_MAX, flags};
use crate::ascii::push_decimal;
use crate::{Fields, Status, StreamId};

/// Status and Content-Length, encoded.
const OWN_BYTES_MAX: usize = 32;

/// A response whose fields and content are only borrowed.
pub(crate) struct Borrowed<'a> {
    pub(crate) stream: StreamId,
    pub(crate) status: Status,
    /// Fields of the session and of the connection, encoded.
    pub(crate) common: &'a [u8],
    pub(crate) fields: &'a Fields,
    /// What Content-Length says.
    pub(crate) stated_len: Option<usize>,
    pub(crate) content: &'a [u8],
    /// Output that is sent together, as far as that can be foreseen.
    pub(crate) batch_bytes: usize,
}

impl Borrowed<'_> {
    /// Whether its head is one frame, and its content one that may leave now.
    pub(crate) fn fits(&self, content_bytes_max: usize) -> bool {
        let block_len = self.common.len() + self.fields.http2_block().len() + OWN_BYTES_MAX;
        let is_own = !self.fields.has_server() && !self.fields.has_date();
        is_own && block_len <= PAYLOAD_BYTES_MAX && self.content.len() <= content_bytes_max
    }

    /// Writes it behind the output; returns the length of its content.
    pub(crate) fn write(&self, output: &mut Buffer, buffers: &mut BufferPool) -> u64 {
        let fields = self.fields.http2_block();
        let content = self.content;
        let own = 2 * HEAD_BYTES + OWN_BYTES_MAX + self.common.len() + fields.len();
        let most = own + content.len();
        // The first one makes room for those behind it: a buffer that grows is copied.
        let room = match output.is_empty() {
            true => most.max(self.batch_bytes),
            false => most,
        };
        buffers.reserve(output, room);
        let is_end = content.is_empty();
        let end = |is_end: bool| if is_end { flags::END_STREAM } else { 0 };
        let start = output.len();
        output.extend_from_slice(&[0; HEAD_BYTES]); // once its length is known
        status(self.status, output);
        output.extend_from_slice(self.common);
        output.extend_from_slice(fields);
        if let Some(len) = self.stated_len {
            content_length(len as u64, output);
        }
        let head = FrameHead {
            len: output.len() - start - HEAD_BYTES,
            kind: Kind::Headers,
            flags: flags::END_HEADERS | end(is_end),
            stream: self.stream.0,
        };
        output[start..start + HEAD_BYTES].copy_from_slice(&head.bytes());
        if !is_end {
            let head = FrameHead {
                len: content.len(),
                kind: Kind::Data,
                flags: end(true),
                stream: self.stream.0,
            };
            head.write(output);
            output.extend_from_slice(content);
        }
        content.len() as u64
    }
}

/// `:status`, as a static entry where there is one.
pub(crate) fn status(status: Status, out: &mut Vec<u8>) {
    let code = status.code();
    let entry = match code {
        200 => 8,
        204 => 9,
        206 => 10,
        304 => 11,
        400 => 12,
        404 => 13,
        500 => 14,
        _ => 0,
    };
    if entry > 0 {
        return out.push(0x80 | entry);
    }
    let digits = [code / 100, code / 10 % 10, code % 10].map(|digit| b'0' + digit as u8);
    out.extend_from_slice(&[0x08, 3]); // a literal, with the name of entry 8
    out.extend_from_slice(&digits);
}

/// Content-Length, as a literal that no table keeps.
pub(crate) fn content_length(len: u64, out: &mut Vec<u8>) {
    const ENTRY: u8 = 28;
    // With the entry's name (RFC 7541 section 6.2.2), and the length of the digits in front of them.
    out.extend_from_slice(&[0x0f, ENTRY - 0x0f, 0]);
    let start = out.len();
    push_decimal(out, len);
    out[start - 1] = (out.len() - start) as u8;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_response_makes_room_for_those_behind_it() {
        let (mut output, mut buffers) = (Buffer::default(), BufferPool::new());
        let fields = Fields::default().with("A", "b");
        let mut response = Borrowed {
            stream: StreamId(1),
            status: Status::OK,
            common: &[],
            fields: &fields,
            stated_len: Some(500),
            content: &[b'x'; 500],
            batch_bytes: 30_000,
        };
        assert_eq!(response.write(&mut output, &mut buffers), 500);
        let (capacity, place) = (output.capacity(), output.as_ptr());
        assert!(capacity >= 30_000);
        response.stream = StreamId(3);
        while output.len() < 29_000 {
            response.write(&mut output, &mut buffers);
        }
        assert_eq!((output.capacity(), output.as_ptr()), (capacity, place));
    }
}
