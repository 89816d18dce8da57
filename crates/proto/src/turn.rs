//! What a loop lends the core for one turn: time, date, spare memory, counters, the log.

use loadline_base::{Buffer, BufferPool, Millis, Segment};

use crate::progress::Progress;
use crate::{AccessLog, Counters, Exchange, HttpDate};

/// Time, date and memory, lent per turn: so that tests run on a fake clock, and nothing on the hot
/// path allocates or reads a clock.
pub struct Turn<'t> {
    /// The time, read once per turn.
    pub now: Millis,
    /// The date, formatted once per second.
    pub date: &'t HttpDate,
    /// Spare memory of this thread.
    pub pool: &'t mut Pool,
    /// This thread's counters.
    pub counters: &'t Counters,
    /// This thread's access log, if there is one.
    pub log: Option<&'t mut AccessLog>,
}

impl Turn<'_> {
    /// The head of this one is complete, or there will be none.
    pub(crate) fn stamp(&self, exchange: &mut Exchange) {
        exchange.began = self.now;
        exchange.began_us = self.log.as_deref().map_or(0, AccessLog::now_us);
    }
}

/// Parcels of one thread that wait for the next request. 64: as many as one turn has at once.
const SPARE_MAX: usize = 64;

/// Spare memory of one thread: buffers and parcels, bounded in number and size.
#[allow(clippy::vec_box, reason = "the boxes themselves are what is kept")]
#[derive(Debug, Default)]
pub struct Pool {
    /// Byte buffers.
    pub buffers: BufferPool,
    exchanges: Vec<Box<Exchange>>,
    progress: Vec<Box<Progress>>,
    segments: Vec<Vec<Segment>>,
}

impl Pool {
    /// An empty pool; it fills as things come back.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes back a parcel whose connection is gone.
    pub fn give_exchange(&mut self, mut exchange: Box<Exchange>) {
        if let Some(lent) = exchange.lent.take() {
            self.buffers.give(lent.output);
        }
        exchange.clear();
        if self.exchanges.len() < SPARE_MAX && !exchange.is_oversized() {
            self.exchanges.push(exchange);
        }
    }

    pub(crate) fn take_exchange(&mut self) -> Box<Exchange> {
        self.exchanges.pop().unwrap_or_default()
    }

    pub(crate) fn take_progress(&mut self) -> Box<Progress> {
        self.progress.pop().unwrap_or_default()
    }

    pub(crate) fn give_progress(&mut self, progress: Box<Progress>) {
        if self.progress.len() < SPARE_MAX {
            self.progress.push(progress);
        }
    }

    pub(crate) fn take_segments(&mut self) -> Vec<Segment> {
        self.segments.pop().unwrap_or_default()
    }

    /// Takes back output that was sent, or that nobody wants any more.
    pub fn give_segments(&mut self, mut segments: Vec<Segment>) {
        for segment in segments.drain(..) {
            if let Segment::Buffer(buffer) = segment {
                self.give_buffer(buffer);
            }
        }
        if self.segments.len() < SPARE_MAX && segments.capacity() <= 64 {
            self.segments.push(segments);
        }
    }

    fn give_buffer(&mut self, buffer: Buffer) {
        self.buffers.give(buffer);
    }
}
