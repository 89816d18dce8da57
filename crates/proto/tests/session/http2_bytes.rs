//! What a client of HTTP/2 sends, as bytes.

use loadline_proto::hpack::{Encoder, Indexing};
use loadline_proto::http2::frame::{Kind, PREFACE, flags, write_frame};

/// A client, as far as it sends.
pub(crate) struct Http2Bytes(Encoder);

impl Http2Bytes {
    /// With what a connection begins with.
    pub(crate) fn begin() -> (Self, Vec<u8>) {
        let mut bytes = PREFACE.to_vec();
        write_frame(Kind::Settings, 0, 0, &[], &mut bytes);
        (Self(Encoder::default()), bytes)
    }

    /// A request with these fields beside those of its path, whose content follows if it does not end with
    /// its head.
    pub(crate) fn request(
        &mut self,
        stream: u32,
        (method, path): (&str, &str),
        fields: &[(&str, &str)],
        is_end: bool,
    ) -> Vec<u8> {
        let mut block = Vec::new();
        self.0.begin(&mut block);
        let own = [
            (":method", method),
            (":scheme", "http"),
            (":authority", "h:81"),
            (":path", path),
        ];
        for (name, value) in own.iter().chain(fields) {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            self.0.field(name, value, Indexing::Kept, &mut block);
        }
        let end = if is_end { flags::END_STREAM } else { 0 };
        let (mut bytes, flag) = (Vec::new(), flags::END_HEADERS | end);
        write_frame(Kind::Headers, flag, stream, &block, &mut bytes);
        bytes
    }

    /// The last of a request's content.
    pub(crate) fn last_content(stream: u32, content: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_frame(Kind::Data, flags::END_STREAM, stream, content, &mut bytes);
        bytes
    }
}
