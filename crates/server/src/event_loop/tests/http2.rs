//! A client that asks over many streams at once.

use loadline_proto::http2::frame::{FrameHead, HEAD_BYTES, Kind, PREFACE, flags, write_frame};

/// A connection begins with these settings, and as many requests.
pub(in crate::event_loop) fn requests(settings: &[u8], streams: u32) -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    write_frame(Kind::Settings, 0, 0, settings, &mut bytes);
    for index in 0..streams {
        // Indexed fields, and one literal (RFC 7541 section 6 and appendix A): GET, http, /, authority.
        let block = [0x82, 0x86, 0x84, 0x01, 1, b'h'];
        let whole = flags::END_HEADERS | flags::END_STREAM;
        write_frame(Kind::Headers, whole, 2 * index + 1, &block, &mut bytes);
    }
    bytes
}

/// Responses whose heads are among these frames.
pub(in crate::event_loop) fn heads(frames: &[u8]) -> usize {
    let (mut rest, mut count) = (frames, 0);
    while let Some((head, behind)) = rest.split_first_chunk::<HEAD_BYTES>() {
        let head = FrameHead::parse(head);
        count += usize::from(head.kind == Kind::Headers);
        rest = &behind[head.len..];
    }
    count
}
