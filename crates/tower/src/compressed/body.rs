//! Content in a content coding, encoded as it is asked for.
//!
//! An encoder passes on what it has when the content has nothing more for the moment, so that a client can
//! read at once what the service has written.

use std::io::{self, Write as _};
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use loadline_base::{MemoryAccount, MemoryBudget, MemoryPressure};
use loadline_codings::{Coding, Encoder, stream_bytes};
use pin_project_lite::pin_project;

use super::rules;
use crate::BoxError;

/// Encoders of one service for content of known length at a time, and as many for other content. A client that
/// reads slowly keeps its encoder, which takes up to 6 MiB if the length is known (brotli with 1 MiB of content),
/// and 1.3 MiB if it is not ([`stream_bytes`]). Memory may allow fewer.
const ENCODERS_MAX: usize = 128;

/// Memory of the encoders of one service that has no other budget. None begins once three quarters are used: 192 MiB
/// are all of them with gzip (104 MiB), 128 with zstd and 64 with gzip, or 32 with brotli and 1 MiB of content each.
/// Without a bound that would be 768 MiB with brotli alone.
const MEMORY_BYTES_MAX: u64 = 256 << 20;

/// Bytes that are encoded at once.
const STEP_BYTES: usize = 32 << 10;

/// Less is passed on only if there is no more for the moment.
const PIECE_BYTES_MIN: usize = 16 << 10;

/// So many bytes are encoded, in some milliseconds, before others have their turn.
const TURN_BYTES: usize = 256 << 10;

/// The encoders of one service.
#[derive(Debug)]
pub(super) struct Encoders {
    /// How many there are: for content of unknown length, and of known length.
    counts: [AtomicUsize; 2],
    /// Where their memory is counted.
    memory: Arc<MemoryBudget>,
}

impl Default for Encoders {
    fn default() -> Self {
        Self::within(MemoryBudget::new(Some(MEMORY_BYTES_MAX)))
    }
}

/// The place of one of them, and its memory; ends with the value.
struct Place {
    encoders: Arc<Encoders>,
    kind: usize,
    _memory: MemoryAccount,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.encoders.counts[self.kind].fetch_sub(1, Ordering::Relaxed);
    }
}

impl Encoders {
    pub(super) fn within(memory: Arc<MemoryBudget>) -> Self {
        Self {
            counts: Default::default(),
            memory,
        }
    }

    /// One more; `None` if there are enough of them, or memory is short.
    pub(super) fn begin<D>(
        self: &Arc<Self>,
        coding: Coding,
        len: Option<u64>,
    ) -> Option<Encoding<D>> {
        if self.memory.pressure() > MemoryPressure::None {
            return None;
        }
        let kind = usize::from(len.is_some());
        let others = self.counts[kind].fetch_add(1, Ordering::Relaxed);
        let mut account = MemoryAccount::of_one(&self.memory);
        account.change(0, stream_bytes(coding, len));
        let place = Place {
            encoders: Arc::clone(self),
            kind,
            _memory: account,
        };
        if others >= ENCODERS_MAX {
            return None;
        }
        Some(Encoding {
            encoder: Encoder::for_stream(coding, len, Vec::new()).ok()?,
            rest: None,
            left: len,
            is_flushed: true,
            turn_bytes: 0,
            _place: place,
        })
    }
}

/// Content on its way into a coding.
pub(super) struct Encoding<D> {
    encoder: Encoder<Vec<u8>>,
    /// What is still to be encoded of the last frame.
    rest: Option<D>,
    /// Bytes of content that are still to come, if that is known.
    left: Option<u64>,
    /// The client has all that was encoded.
    is_flushed: bool,
    /// So many bytes were encoded since others had their turn.
    turn_bytes: usize,
    _place: Place,
}

/// What encoding for a while has come to.
enum Encoded {
    Part(Bytes),
    /// There is no more content.
    All(Option<HeaderMap>),
}

impl<D: Buf> Encoding<D> {
    fn poll<B>(
        &mut self,
        mut body: Pin<&mut B>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Encoded, BoxError>>
    where
        B: Body<Data = D>,
        B::Error: Into<BoxError>,
    {
        loop {
            if self.turn_bytes >= TURN_BYTES {
                self.turn_bytes = 0;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.turn_bytes += self.encode_rest()?;
            if self.encoder.get_mut().len() >= PIECE_BYTES_MIN {
                return Poll::Ready(Ok(Encoded::Part(self.take_encoded())));
            }
            if self.rest.is_some() {
                continue;
            }
            if body.is_end_stream() {
                return Poll::Ready(Ok(Encoded::All(None)));
            }
            let frame = match body.as_mut().poll_frame(context) {
                Poll::Pending => {
                    self.turn_bytes = 0;
                    return self.flush();
                }
                Poll::Ready(None) => return Poll::Ready(Ok(Encoded::All(None))),
                Poll::Ready(Some(frame)) => frame.map_err(Into::<BoxError>::into)?,
            };
            match frame.into_data() {
                Ok(data) => self.add(data)?,
                Err(frame) => return Poll::Ready(Ok(Encoded::All(frame.into_trailers().ok()))),
            }
        }
    }

    fn add(&mut self, data: D) -> Result<(), BoxError> {
        if let Some(left) = &mut self.left {
            let rest = left.checked_sub(data.remaining() as u64);
            *left = rest.ok_or("it is longer than its length says")?;
        }
        self.rest = Some(data);
        Ok(())
    }

    /// Encodes some of what is left of the last frame; how many bytes.
    fn encode_rest(&mut self) -> io::Result<usize> {
        let Some(rest) = &mut self.rest else {
            return Ok(0);
        };
        let count = rest.chunk().len().min(STEP_BYTES);
        self.encoder.write_all(&rest.chunk()[..count])?;
        rest.advance(count);
        self.is_flushed &= count == 0;
        if !rest.has_remaining() {
            self.rest = None;
        }
        Ok(count)
    }

    /// There is nothing to encode for the moment.
    fn flush(&mut self) -> Poll<Result<Encoded, BoxError>> {
        if mem::replace(&mut self.is_flushed, true) {
            return Poll::Pending;
        }
        self.encoder.flush()?;
        Poll::Ready(Ok(Encoded::Part(self.take_encoded())))
    }

    fn take_encoded(&mut self) -> Bytes {
        mem::take(self.encoder.get_mut()).into()
    }

    /// The end of it.
    fn finish(self) -> Result<Bytes, BoxError> {
        if self.left.is_some_and(|left| left > 0) {
            return Err("it is shorter than its length says".into());
        }
        Ok(self.encoder.finish()?.into())
    }
}

pin_project! {
    /// The content of a compressed service's response: in a content coding, or as it is.
    pub struct CompressedBody<B>
    where
        B: Body,
    {
        #[pin]
        body: B,
        stage: Stage<B::Data>,
    }
}

/// A piece of a compressed service's response. What is not compressed is the service's own, and not copied.
#[derive(Debug)]
pub enum CompressedData<D> {
    /// As it came from the service.
    AsIs(D),
    /// In a content coding.
    Encoded(Bytes),
}

impl<D: Buf> Buf for CompressedData<D> {
    fn remaining(&self) -> usize {
        match self {
            Self::AsIs(data) => data.remaining(),
            Self::Encoded(bytes) => bytes.remaining(),
        }
    }

    fn chunk(&self) -> &[u8] {
        match self {
            Self::AsIs(data) => data.chunk(),
            Self::Encoded(bytes) => bytes.chunk(),
        }
    }

    fn advance(&mut self, count: usize) {
        match self {
            Self::AsIs(data) => data.advance(count),
            Self::Encoded(bytes) => bytes.advance(count),
        }
    }

    /// What is `Bytes` already is shared.
    fn copy_to_bytes(&mut self, len: usize) -> Bytes {
        match self {
            Self::AsIs(data) => data.copy_to_bytes(len),
            Self::Encoded(bytes) => bytes.copy_to_bytes(len),
        }
    }
}

enum Stage<D> {
    AsIs,
    Encoding(Box<Encoding<D>>),
    /// Nothing is left but trailers, if there are any.
    Ended(Option<HeaderMap>),
}

impl<B: Body> CompressedBody<B> {
    pub(super) fn as_is(body: B) -> Self {
        let stage = Stage::AsIs;
        Self { body, stage }
    }

    /// For a response to HEAD.
    pub(super) fn unsent(body: B) -> Self {
        let stage = Stage::Ended(None);
        Self { body, stage }
    }

    pub(super) fn encoded(body: B, encoding: Encoding<B::Data>) -> Self {
        let stage = Stage::Encoding(Box::new(encoding));
        Self { body, stage }
    }
}

impl<B> Body for CompressedBody<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = CompressedData<B::Data>;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, BoxError>>> {
        let this = self.project();
        let encoded = match this.stage {
            Stage::AsIs => {
                let frame = ready!(this.body.poll_frame(context));
                let as_is = |frame: Frame<B::Data>| frame.map_data(CompressedData::AsIs);
                return Poll::Ready(frame.map(|it| it.map(as_is).map_err(Into::into)));
            }
            Stage::Ended(trailers) => {
                return Poll::Ready(trailers.take().map(|it| Ok(Frame::trailers(it))));
            }
            Stage::Encoding(encoding) => ready!(encoding.poll(this.body, context)),
        };
        let (state, trailers) = match encoded {
            Ok(Encoded::Part(bytes)) => {
                return Poll::Ready(Some(Ok(Frame::data(CompressedData::Encoded(bytes)))));
            }
            Ok(Encoded::All(mut trailers)) => {
                if let Some(trailers) = &mut trailers {
                    rules::correct_trailers(trailers);
                }
                (Ok(()), trailers)
            }
            Err(error) => (Err(error), None),
        };
        let Stage::Encoding(encoding) = mem::replace(this.stage, Stage::Ended(trailers)) else {
            return Poll::Ready(None);
        };
        let last = state.and_then(|()| encoding.finish());
        let last = last.map(CompressedData::Encoded);
        Poll::Ready(Some(last.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.stage {
            Stage::AsIs => self.body.is_end_stream(),
            Stage::Encoding(_) => false,
            Stage::Ended(trailers) => trailers.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self.stage {
            Stage::AsIs => self.body.size_hint(),
            _ => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use http_body_util::Full;

    use super::*;

    #[test]
    fn encoders_have_a_bound_for_each_kind_of_length() {
        let encoders = Arc::<Encoders>::default();
        let begin = |len| encoders.begin::<Bytes>(Coding::Gzip, len);
        let mut streams: Vec<_> = (0..ENCODERS_MAX).map(|_| begin(None)).collect();
        assert!(streams.iter().all(Option::is_some));
        assert!(begin(None).is_none() && begin(None).is_none());
        assert!(begin(Some(9)).is_some(), "of the other kind");
        streams.pop();
        assert!(begin(None).is_some(), "in the place of the one that ended");
        drop(streams);
        assert_eq!(encoders.counts[0].load(Ordering::Relaxed), 0);
        assert_eq!(encoders.counts[1].load(Ordering::Relaxed), 0);
    }

    #[test]
    fn encoders_count_towards_a_budget_and_none_begins_while_it_is_short() {
        let memory = MemoryBudget::new(Some(4 << 20)); // it is short from 3 MiB on
        let encoders = Arc::new(Encoders::within(Arc::clone(&memory)));
        let begin = || encoders.begin::<Bytes>(Coding::Zstd, None);
        let mut all: Vec<_> = std::iter::from_fn(begin).collect();
        assert_eq!(all.len(), 3);
        let each = stream_bytes(Coding::Zstd, None);
        assert!(memory.used_bytes() >= 3 * each, "{}", memory.used_bytes());
        all.pop();
        assert!(begin().is_some(), "in the place of the one that ended");
        drop(all);
        assert_eq!(memory.used_bytes(), 0);
    }

    /// Without a budget there could be 768 MiB of them.
    #[test]
    fn encoders_of_a_service_without_a_budget_have_one_of_their_own() {
        const CONTENT_BYTES: u64 = 1 << 20;
        let begun = |coding, len| {
            let encoders = Arc::<Encoders>::default();
            let begin = || encoders.begin::<Bytes>(coding, len);
            let all: Vec<_> = std::iter::from_fn(begin).collect();
            assert!(encoders.memory.used_bytes() <= MEMORY_BYTES_MAX);
            all.len()
        };
        let brotli = begun(Coding::Brotli, Some(CONTENT_BYTES));
        assert!((30..=33).contains(&brotli), "{brotli}");
        assert_eq!(begun(Coding::Brotli, Some(1 << 10)), ENCODERS_MAX);
        assert_eq!(begun(Coding::Zstd, None), ENCODERS_MAX);
        assert_eq!(begun(Coding::Gzip, Some(CONTENT_BYTES)), ENCODERS_MAX);
    }

    /// It was copied whole, unless it was `Bytes`.
    #[test]
    fn what_is_not_compressed_is_not_copied() {
        let first = Bytes::from_static(b"not copied").chain(&b" at all"[..]);
        let place = first.chunk().as_ptr();
        let mut body = pin!(CompressedBody::as_is(Full::new(first)));
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(Some(Ok(frame))) = body.as_mut().poll_frame(&mut context) else {
            panic!("a frame");
        };
        let mut data = frame.into_data().unwrap();
        assert_eq!(data.chunk().as_ptr(), place);
        assert_eq!(data.copy_to_bytes(10).as_ptr(), place, "nor a part of it");
        assert_eq!(data.copy_to_bytes(data.remaining()), b" at all"[..]);
    }

    /// Each piece that was passed on began the count anew, so that only content that shrinks very much let others
    /// have their turn.
    #[test]
    fn others_have_their_turn_whatever_the_ratio() {
        let mut state = 1_u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let content: Bytes = (0..4 * TURN_BYTES).map(|_| random()).collect();
        let encoding = Arc::<Encoders>::default().begin(Coding::Gzip, None);
        let body = CompressedBody::encoded(Full::new(content), encoding.unwrap());
        let mut body = pin!(body);
        let mut context = Context::from_waker(Waker::noop());
        let (mut turns, mut turn_bytes) = (1, 0);
        loop {
            match body.as_mut().poll_frame(&mut context) {
                Poll::Ready(Some(frame)) => {
                    turn_bytes += frame.unwrap().into_data().unwrap().remaining();
                }
                Poll::Ready(None) => break,
                Poll::Pending => (turns, turn_bytes) = (turns + 1, 0),
            }
            assert!(turn_bytes < 2 * TURN_BYTES, "{turn_bytes}"); // some of it came from before
        }
        assert!(turns >= 4, "{turns}");
    }
}
