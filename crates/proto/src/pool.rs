//! Spare memory of a thread.

use loadline_base::{BoxPool, BufferPool, Segment};

use crate::Exchange;
use crate::http2::{Http2Memory, STREAMS_MAX};
use crate::progress::Progress;

/// What a thread keeps for the next requests. 64: as many as one turn has at once.
const SPARE_MAX: usize = 64;

/// Spare memory of one thread: buffers and exchanges, bounded in number and size.
#[derive(Debug, Default)]
pub struct Pool {
    /// Byte buffers.
    pub buffers: BufferPool,
    /// As many as one connection of HTTP/2 has at one time.
    exchanges: BoxPool<Exchange, STREAMS_MAX>,
    segments: Vec<Vec<Segment>>,
    /// What HTTP/1 keeps of its own.
    pub(crate) http1: BoxPool<Progress, SPARE_MAX>,
    /// And HTTP/2.
    pub(crate) http2: Http2Memory,
    is_short: bool,
}

impl Pool {
    /// An empty pool; it fills as things come back.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the process has no memory left for what needs much of it: then large content is refused.
    pub fn set_short(&mut self, is_short: bool) {
        self.is_short = is_short;
    }

    pub(crate) fn is_short(&self) -> bool {
        self.is_short
    }

    /// Frees what is kept for later.
    pub fn free_spare(&mut self) {
        *self = Self {
            is_short: self.is_short,
            ..Self::default()
        };
    }

    /// Takes back an exchange whose connection is gone.
    pub fn give_exchange(&mut self, mut exchange: Box<Exchange>) {
        if let Some(borrowed) = exchange.borrowed_output.take() {
            self.buffers.give(borrowed.output);
        }
        exchange.clear();
        if !exchange.is_oversized() {
            self.exchanges.give(exchange);
        }
    }

    pub(crate) fn take_exchange(&mut self) -> Box<Exchange> {
        self.exchanges.take()
    }

    pub(crate) fn take_segments(&mut self) -> Vec<Segment> {
        self.segments.pop().unwrap_or_default()
    }

    /// Takes back output that was sent or is no longer wanted.
    pub fn give_segments(&mut self, mut segments: Vec<Segment>) {
        for segment in segments.drain(..) {
            if let Segment::Buffer(buffer) = segment {
                self.buffers.give(buffer);
            }
        }
        if self.segments.len() < SPARE_MAX && segments.capacity() <= 64 {
            self.segments.push(segments);
        }
    }
}
