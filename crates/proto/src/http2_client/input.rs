//! Bytes of the server cut into frames, however they come. Content is handed on where it lies; other
//! frames are kept until they are whole.

use crate::http2::frame::{ErrorCode, FrameHead, HEAD_BYTES, Kind, flags};

use super::bounds::{BLOCK_BYTES_MAX, BLOCK_FRAMES_MAX, KEPT_BYTES_MAX};

/// A piece of the server's bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FramePiece<'b> {
    /// A frame that is no DATA, whole.
    Frame(FrameHead, FramePayload<'b>),
    /// A DATA frame begins: so much of the windows it takes, with its padding.
    Data(FrameHead),
    /// Content of the DATA frame that has begun.
    Content(&'b [u8]),
    /// It has ended.
    DataEnd(FrameHead),
}

/// The payload of a frame: where it came, or put together from pieces.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FramePayload<'b> {
    Whole(&'b [u8]),
    Kept(Vec<u8>),
}

impl FramePayload<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Whole(bytes) => bytes,
            Self::Kept(bytes) => bytes,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Between frames, or within the head of one.
    #[default]
    Head,
    /// Within a frame that is no DATA.
    Frame(FrameHead),
    /// Before the length of the padding of a DATA frame.
    Padding(FrameHead),
    /// Within a DATA frame: bytes of content and of padding that are still to come.
    Data(FrameHead, usize, usize),
}

/// Cuts the bytes of one connection.
#[derive(Debug, Default)]
pub(super) struct FrameInput {
    state: State,
    head: [u8; HEAD_BYTES],
    head_len: usize,
    kept: Vec<u8>,
}

impl FrameInput {
    /// The next piece of `bytes`, which are taken as far as it goes; `None`: more have to come.
    ///
    /// # Errors
    /// The connection error.
    #[inline]
    pub(super) fn next<'b>(
        &mut self,
        bytes: &mut &'b [u8],
    ) -> Result<Option<FramePiece<'b>>, ErrorCode> {
        loop {
            match self.state {
                State::Head => {
                    let Some(head) = self.take_head(bytes) else {
                        return Ok(None);
                    };
                    head.check()?;
                    if head.kind != Kind::Data {
                        self.state = State::Frame(head);
                        continue;
                    }
                    self.state = match head.has(flags::PADDED) {
                        true => State::Padding(head),
                        false => State::Data(head, head.len, 0),
                    };
                    return Ok(Some(FramePiece::Data(head)));
                }
                State::Frame(head) => return Ok(self.frame(head, bytes)),
                State::Padding(head) => {
                    let Some((padding, rest)) = bytes.split_first() else {
                        return Ok(None);
                    };
                    *bytes = rest;
                    let padding = usize::from(*padding);
                    let content = (head.len - 1).checked_sub(padding);
                    let content = content.ok_or(ErrorCode::Protocol)?;
                    self.state = State::Data(head, content, padding);
                }
                State::Data(head, 0, 0) => {
                    self.state = State::Head;
                    return Ok(Some(FramePiece::DataEnd(head)));
                }
                State::Data(head, 0, padding) => {
                    if bytes.is_empty() {
                        return Ok(None);
                    }
                    let taken = split(bytes, padding);
                    self.state = State::Data(head, 0, padding - taken.len());
                }
                State::Data(head, content, padding) => {
                    if bytes.is_empty() {
                        return Ok(None);
                    }
                    let taken = split(bytes, content);
                    self.state = State::Data(head, content - taken.len(), padding);
                    return Ok(Some(FramePiece::Content(taken)));
                }
            }
        }
    }

    /// Memory of a frame that came in pieces serves again.
    pub(super) fn give_back(&mut self, payload: FramePayload<'_>) {
        if let FramePayload::Kept(mut bytes) = payload
            && bytes.capacity() <= KEPT_BYTES_MAX
        {
            bytes.clear();
            self.kept = bytes;
        }
    }

    #[inline]
    fn take_head(&mut self, bytes: &mut &[u8]) -> Option<FrameHead> {
        if self.head_len == 0
            && let Some((head, rest)) = bytes.split_first_chunk()
        {
            *bytes = rest;
            return Some(FrameHead::parse(head));
        }
        let taken = split(bytes, HEAD_BYTES - self.head_len);
        self.head[self.head_len..][..taken.len()].copy_from_slice(taken);
        self.head_len += taken.len();
        if self.head_len < HEAD_BYTES {
            return None;
        }
        self.head_len = 0;
        Some(FrameHead::parse(&self.head))
    }

    #[inline]
    fn frame<'b>(&mut self, head: FrameHead, bytes: &mut &'b [u8]) -> Option<FramePiece<'b>> {
        if self.kept.is_empty() && bytes.len() >= head.len {
            self.state = State::Head;
            return Some(FramePiece::Frame(
                head,
                FramePayload::Whole(split(bytes, head.len)),
            ));
        }
        let taken = split(bytes, head.len - self.kept.len());
        self.kept.extend_from_slice(taken);
        if self.kept.len() < head.len {
            return None;
        }
        self.state = State::Head;
        let kept = std::mem::take(&mut self.kept);
        Some(FramePiece::Frame(head, FramePayload::Kept(kept)))
    }
}

/// Takes so many bytes off the front, or all that are there.
#[inline]
fn split<'b>(bytes: &mut &'b [u8], most: usize) -> &'b [u8] {
    let (taken, rest) = bytes.split_at(most.min(bytes.len()));
    *bytes = rest;
    taken
}

/// A field block that comes in several frames (RFC 9113 section 6.10).
#[derive(Debug, Default)]
pub(super) struct PartialBlock {
    /// The frame that it began with; `None`: none has begun.
    begun: Option<FrameHead>,
    frames: u32,
    bytes: Vec<u8>,
}

impl PartialBlock {
    /// Whether the next frame has to go on with it.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.begun.is_some()
    }

    pub(super) fn begin(&mut self, head: FrameHead, piece: &[u8]) {
        self.begun = Some(head);
        self.frames = 1;
        self.bytes.extend_from_slice(piece);
    }

    /// Takes the next frame; returns the block and the frame that it began with, once it is whole.
    ///
    /// # Errors
    /// Another frame, or a block that is too large or comes in too many frames.
    pub(super) fn go_on(
        &mut self,
        head: FrameHead,
        piece: &[u8],
    ) -> Result<Option<(FrameHead, Vec<u8>)>, ErrorCode> {
        let begun = self
            .begun
            .filter(|begun| head.kind == Kind::Continuation && head.stream == begun.stream);
        let begun = begun.ok_or(ErrorCode::Protocol)?;
        self.frames += 1;
        if self.bytes.len() + piece.len() > BLOCK_BYTES_MAX || self.frames > BLOCK_FRAMES_MAX {
            return Err(ErrorCode::EnhanceYourCalm);
        }
        self.bytes.extend_from_slice(piece);
        if !head.has(flags::END_HEADERS) {
            return Ok(None);
        }
        self.begun = None;
        Ok(Some((begun, std::mem::take(&mut self.bytes))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::frame::frame;

    /// What pieces of `bytes`, each this long, come to: frames, and content put together.
    fn cut(bytes: &[u8], len: usize) -> Vec<(Kind, Vec<u8>)> {
        let (mut input, mut found) = (FrameInput::default(), Vec::new());
        let mut content = Vec::new();
        for mut piece in bytes.chunks(len) {
            while let Some(piece) = input.next(&mut piece).unwrap() {
                match piece {
                    FramePiece::Frame(head, payload) => {
                        found.push((head.kind, payload.bytes().to_vec()));
                        input.give_back(payload);
                    }
                    FramePiece::Data(_) => content.clear(),
                    FramePiece::Content(bytes) => content.extend_from_slice(bytes),
                    FramePiece::DataEnd(head) => found.push((head.kind, content.clone())),
                }
            }
        }
        found
    }

    #[test]
    fn frames_come_to_the_same_however_they_are_cut() {
        let bytes = [
            frame(Kind::Settings, 0, 0, &[0; 12]),
            frame(Kind::Data, 0, 1, b""),
            frame(Kind::Data, 0, 1, b"content"),
            frame(Kind::Data, flags::PADDED, 1, b"\x03abc\0\0\0"),
            frame(Kind::Data, flags::PADDED, 1, b"\x02\0\0"),
            frame(Kind::Settings, flags::ACK, 0, b""),
            frame(Kind::Headers, 0, 1, &[7; 3000]),
            frame(Kind::Ping, 0, 0, b"12345678"),
        ]
        .concat();
        let whole = cut(&bytes, bytes.len());
        let kinds: Vec<Kind> = whole.iter().map(|(kind, _)| *kind).collect();
        let data = [Kind::Data; 4];
        let expected = [
            &[Kind::Settings][..],
            &data,
            &[Kind::Settings, Kind::Headers, Kind::Ping],
        ];
        assert_eq!(kinds, expected.concat());
        let content: Vec<&[u8]> = whole[1..5].iter().map(|(_, bytes)| &bytes[..]).collect();
        assert_eq!(content, [&b""[..], b"content", b"abc", b""]);
        for len in 1..100 {
            assert_eq!(cut(&bytes, len), whole, "{len}");
        }
    }

    #[test]
    fn padding_is_not_longer_than_its_frame() {
        let bytes = frame(Kind::Data, flags::PADDED, 1, b"\x03ab");
        let (mut input, mut rest) = (FrameInput::default(), &bytes[..]);
        assert!(matches!(
            input.next(&mut rest),
            Ok(Some(FramePiece::Data(_)))
        ));
        assert_eq!(input.next(&mut rest), Err(ErrorCode::Protocol));
    }

    #[test]
    fn a_block_in_pieces_is_bounded_and_not_interrupted() {
        let of = |kind, flags, stream| FrameHead {
            len: 0,
            kind,
            flags,
            stream,
        };
        let begun = of(Kind::Headers, flags::END_STREAM, 1);
        let mut block = PartialBlock::default();
        block.begin(begun, b"a");
        let more = of(Kind::Continuation, 0, 1);
        assert_eq!(block.go_on(more, b"b"), Ok(None));
        let last = of(Kind::Continuation, flags::END_HEADERS, 1);
        assert_eq!(block.go_on(last, b"c"), Ok(Some((begun, b"abc".to_vec()))));
        for other in [more, of(Kind::Headers, 0, 1), of(Kind::Continuation, 0, 3)] {
            let mut block = PartialBlock::default();
            if other != more {
                block.begin(begun, b"a");
            }
            assert_eq!(
                block.go_on(other, b"b"),
                Err(ErrorCode::Protocol),
                "{other:?}"
            );
        }
        block.begin(begun, &[0; 16_384]);
        assert_eq!(block.go_on(more, &[0; 16_384]), Ok(None));
        assert_eq!(block.go_on(more, b"x"), Err(ErrorCode::EnhanceYourCalm));
        let mut block = PartialBlock::default();
        block.begin(begun, b"a");
        for _ in 1..BLOCK_FRAMES_MAX {
            assert_eq!(block.go_on(more, b""), Ok(None));
        }
        assert_eq!(block.go_on(more, b""), Err(ErrorCode::EnhanceYourCalm));
    }
}
