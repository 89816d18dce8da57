//! The closed loop: each client sends when its last answer has come and it has thought.

use std::collections::VecDeque;

use super::Engine;
use super::client::Stage;
use super::retries::Attempt;

/// Requests begun in one go before events are looked at again: the first ones of 10,000 clients do
/// not keep the answers to each other waiting.
const BEGUN_MAX: usize = 256;

/// Answers that are read before the next requests of their clients are sent. Reading for a while and
/// then sending for a while costs less than taking turns (a twentieth at 64 connections, a tenth at
/// 1000): the kernel's code for each stays in the cache, and a server that slept is woken once. Few,
/// since the first of them waits for the last.
const READY_MAX: usize = 16;

/// Who waits, and how many requests are left.
#[derive(Debug)]
pub(super) struct ClosedLoop {
    think_ns: u64,
    /// Clients whose next request has a due time, in its order: all think for as long.
    waiting: VecDeque<u32>,
    /// Who has been answered in this turn and does not think.
    ready: Vec<u32>,
    /// At this number they begin.
    ready_max: usize,
    left: u64,
    next_ns: u64,
}

impl ClosedLoop {
    /// For `clients`, which send at most `requests_max` requests.
    pub(super) fn new(think_ns: u64, coalesces: bool, clients: usize, requests_max: u64) -> Self {
        Self {
            think_ns,
            waiting: VecDeque::with_capacity(clients),
            ready: Vec::with_capacity(READY_MAX),
            ready_max: if coalesces { READY_MAX } else { 1 },
            left: requests_max,
            next_ns: u64::MAX,
        }
    }

    /// When the next client has thought; `u64::MAX`: none is thinking.
    #[inline]
    pub(super) fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Whether no request may be begun any more.
    pub(super) fn is_exhausted(&self) -> bool {
        self.left == 0
    }
}

impl Engine<'_> {
    /// The first request of every client is due.
    pub(super) fn start_closed(&mut self, start_ns: u64) {
        for index in 0..self.client_count() {
            if !self.http2.has(index) || !self.http2.is_beyond_room(index) {
                self.think(index, start_ns);
            }
        }
    }

    /// An answer is complete: the client thinks, or goes on at once.
    #[inline]
    pub(super) fn next_of_client(&mut self, index: u32) {
        let think_ns = self.closed().think_ns;
        match think_ns {
            0 if self.client(index).stage == Stage::Idle => {
                let due_ns = self.time.now_ns;
                self.client(index).stamps.due_ns = due_ns;
                self.closed().ready.push(index);
                if self.closed().ready.len() >= self.closed().ready_max {
                    self.begin_ready();
                }
            }
            0 => self.begin_next(index, self.time.now_ns), // it needs a connection first
            _ => self.think(index, self.time.now_ns.saturating_add(think_ns)),
        }
    }

    /// A request failed. The next one waits for the loop's next round even without thinking, so
    /// that a peer that fails at once does not hold the others up. `has_served`: the connection has
    /// been of use.
    pub(super) fn next_after_failure(&mut self, index: u32, has_served: bool) {
        let think_ns = self.closed().think_ns;
        match think_ns {
            0 if !has_served => self.pause(index),
            _ => self.think(index, self.time.now_ns.saturating_add(think_ns)),
        }
    }

    /// A client that paused goes on.
    pub(super) fn resume(&mut self, index: u32) {
        let due_ns = self.time.now_ns;
        self.client(index).stamps.due_ns = due_ns;
        self.closed().waiting.push_front(index);
        self.closed().next_ns = due_ns;
    }

    /// Begins the requests of clients whose answers have been read in this turn.
    #[inline]
    pub(super) fn begin_ready(&mut self) {
        for at in 0..self.closed().ready.len() {
            if at > 0 {
                self.time.look_at_clock();
            }
            let index = self.closed().ready[at];
            let due_ns = self.client(index).stamps.due_ns;
            self.begin_next(index, due_ns);
        }
        self.closed().ready.clear();
    }

    fn think(&mut self, index: u32, due_ns: u64) {
        self.client(index).stamps.due_ns = due_ns;
        let closed = self.closed();
        closed.waiting.push_back(index);
        closed.next_ns = closed.next_ns.min(due_ns);
    }

    /// Begins the requests that are due.
    pub(super) fn begin_due(&mut self) {
        for _ in 0..BEGUN_MAX {
            let first = self.closed().waiting.front().copied();
            let due_ns = first.map_or(u64::MAX, |index| self.client(index).stamps.due_ns);
            self.closed().next_ns = due_ns;
            let Some(index) = first.filter(|_| due_ns <= self.time.now_ns) else {
                return;
            };
            self.closed().waiting.pop_front();
            self.begin_next(index, due_ns);
            self.time.look_at_clock();
        }
        self.closed().next_ns = self.time.now_ns;
    }

    #[inline]
    fn begin_next(&mut self, index: u32, due_ns: u64) {
        if self.time.is_ending || self.closed().left == 0 {
            return;
        }
        let server = self.client(index).server;
        let Some(request) = self.choices.next_for(server) else {
            return self.pause(index); // the others have requests enough for now
        };
        self.closed().left -= 1;
        let phase = self.time.calendar.phase_of(due_ns);
        self.recorder.tally(phase).offered += 1;
        let since_ns = self.waits.ended_ns.max(due_ns);
        self.lagged(self.time.now_ns.saturating_sub(since_ns));
        self.take_up(index, Attempt::first(request, due_ns, phase));
    }
}
