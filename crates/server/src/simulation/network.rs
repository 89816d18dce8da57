//! Connections without a kernel: what each end has sent, and the events that a loop gets.

use std::collections::{HashMap, VecDeque};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use loadline_base::{Chunk, Token, Transmit};
use loadline_sys::Accepted;

use crate::transport::socket::Readiness;

/// Bytes that one event of a completion brings at most.
const RECEIVE_BYTES: usize = 4 << 10;

/// How late the end of a lazy send is reported, in microseconds.
const LAZY_US: u64 = 50_000;

/// What a simulated driver reports to a connection.
#[derive(Debug)]
pub(super) enum Event {
    /// By readiness.
    Ready(Readiness),
    /// By completion.
    Received(Vec<u8>),
    Ended,
    Progress(u64),
    Sent(Transmit),
    SendFailed(Transmit),
    HungUp,
}

/// What waits in the queue of a loop.
#[derive(Debug)]
pub(super) enum Pending {
    Arrived(Accepted),
    Event(Token, Event),
}

/// Who owns the server's end of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) loop_index: usize,
    pub(super) token: Token,
}

/// One connection, seen from between its ends.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    /// What the client has sent and the server has not received.
    pub(super) inbox: VecDeque<u8>,
    /// The client will send no more.
    pub(super) inbox_ended: bool,
    /// The client has gone without a word.
    pub(super) is_reset: bool,
    /// What the server has sent and the client has not read.
    pub(super) outbox: VecDeque<u8>,
    /// The most that it holds.
    pub(super) window: usize,
    /// The server will send no more.
    pub(super) is_finished: bool,
    /// The server has closed its end.
    pub(super) is_closed: bool,
    /// It has done so with input unread.
    pub(super) has_left_input: bool,
    /// Input was unread then, or has come since: what the client has not read is lost.
    pub(super) has_reset_client: bool,
    pub(super) owner: Option<Owner>,
    /// By completion: the server asks for bytes; the end was reported; what is being sent.
    pub(super) is_armed: bool,
    /// The server has received something.
    pub(super) has_received: bool,
    has_reported_end: bool,
    sending: Option<(Transmit, bool)>,
}

/// Everything between the clients and the loops.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) now_us: &'static AtomicU64,
    pub(super) pipes: Vec<Pipe>,
    pub(super) queues: Vec<VecDeque<Pending>>,
    /// Sends that are reported late: when, and for which connection.
    lazy: VecDeque<(u64, usize, Transmit)>,
    /// By the descriptor that stands for a socket.
    by_descriptor: HashMap<RawFd, usize>,
    /// Pipes whose client has something to see.
    pub(super) stirred: Vec<usize>,
    pub(super) is_completion: bool,
}

impl Network {
    pub(super) fn new(now_us: &'static AtomicU64, loops: usize, is_completion: bool) -> Self {
        Self {
            now_us,
            pipes: Vec::new(),
            queues: (0..loops).map(|_| VecDeque::new()).collect(),
            lazy: VecDeque::new(),
            by_descriptor: HashMap::new(),
            stirred: Vec::new(),
            is_completion,
        }
    }

    /// A connection is established; a loop is to accept it.
    pub(super) fn connect(&mut self, loop_index: usize, window: usize) -> usize {
        use std::os::fd::AsRawFd;
        // A descriptor stands for the socket, so that it is owned and closed as one.
        let socket = std::fs::File::open("/dev/null").expect("a descriptor");
        let pipe = self.pipes.len();
        self.by_descriptor.insert(socket.as_raw_fd(), pipe);
        self.pipes.push(Pipe {
            window,
            ..Pipe::default()
        });
        let accepted = Accepted {
            socket: socket.into(),
            peer: None,
            listener: 0,
        };
        self.queues[loop_index].push_back(Pending::Arrived(accepted));
        pipe
    }

    pub(super) fn pipe_of(&self, descriptor: RawFd) -> usize {
        self.by_descriptor[&descriptor]
    }

    /// A loop has it from now on. What has come to it while no loop had it is an event at once.
    pub(super) fn adopt(&mut self, pipe: usize, owner: Owner) {
        let one = &mut self.pipes[pipe];
        one.owner = Some(owner);
        match self.is_completion {
            false if one.inbox_ended || one.is_reset => self.ready(pipe, true, true),
            true if one.is_reset => self.report(pipe, Event::HungUp),
            _ => {}
        }
    }

    /// A loop stops it from receiving. `true`: nothing of it is in flight any more, and the loop has let
    /// go of it.
    pub(super) fn let_go(&mut self, pipe: usize) -> bool {
        let one = &mut self.pipes[pipe];
        let Some(owner) = one.owner else { return false };
        one.is_armed = false;
        let is_of = |pending: &Pending| {
            self.is_completion
                && matches!(pending, Pending::Event(token, _) if *token == owner.token)
        };
        let is_in_flight = one.sending.is_some()
            || self.lazy.iter().any(|lazy| lazy.1 == pipe)
            || self.queues[owner.loop_index].iter().any(is_of);
        if !is_in_flight {
            one.owner = None;
        }
        !is_in_flight
    }

    /// A lazy send is reported with what happens next.
    fn report(&mut self, pipe: usize, event: Event) {
        if let Some(index) = self.lazy.iter().position(|lazy| lazy.1 == pipe)
            && let Some((_, _, transmit)) = self.lazy.remove(index)
        {
            self.report(pipe, Event::Sent(transmit));
        }
        if let Some(Owner { loop_index, token }) = self.pipes[pipe].owner {
            self.queues[loop_index].push_back(Pending::Event(token, event));
        }
    }

    fn ready(&mut self, pipe: usize, readable: bool, writable: bool) {
        let one = &self.pipes[pipe];
        let event = Event::Ready(Readiness {
            readable,
            writable,
            hung_up: one.inbox_ended || one.is_reset,
            gone: one.is_reset || (one.inbox_ended && one.is_finished),
        });
        self.report(pipe, event);
    }

    /// The client's bytes arrive.
    pub(super) fn deliver(&mut self, pipe: usize, bytes: &[u8]) {
        let one = &mut self.pipes[pipe];
        if one.is_closed {
            one.reset_client();
            return;
        }
        one.inbox.extend(bytes);
        self.inbox_changed(pipe);
    }

    /// The client's end of input arrives.
    pub(super) fn end_input(&mut self, pipe: usize) {
        self.pipes[pipe].inbox_ended = true;
        self.inbox_changed(pipe);
    }

    fn inbox_changed(&mut self, pipe: usize) {
        match self.is_completion {
            true => self.push_received(pipe),
            false => self.ready(pipe, true, false),
        }
    }

    /// The client resets the connection.
    pub(super) fn reset(&mut self, pipe: usize) {
        let one = &mut self.pipes[pipe];
        one.is_reset = true;
        one.outbox.clear();
        if !self.is_completion {
            return self.ready(pipe, true, true);
        }
        if let Some((transmit, _)) = self.pipes[pipe].sending.take() {
            self.report(pipe, Event::SendFailed(transmit));
        }
        self.report(pipe, Event::HungUp);
    }

    /// By completion: the server asks for bytes, or does so no more.
    pub(super) fn arm(&mut self, pipe: usize, is_armed: bool) {
        self.pipes[pipe].is_armed = is_armed;
        self.push_received(pipe);
    }

    /// By completion: what is there goes to whoever has asked for it.
    fn push_received(&mut self, pipe: usize) {
        while self.pipes[pipe].is_armed && self.pipes[pipe].owner.is_some() {
            let one = &mut self.pipes[pipe];
            if one.inbox.is_empty() {
                if one.inbox_ended && !std::mem::replace(&mut one.has_reported_end, true) {
                    self.report(pipe, Event::Ended);
                }
                return;
            }
            let count = one.inbox.len().min(RECEIVE_BYTES);
            let bytes = one.inbox.drain(..count).collect();
            one.has_received = true;
            self.report(pipe, Event::Received(bytes));
        }
    }

    /// Whether something has come that was not reported.
    pub(super) fn has_input(&self, pipe: usize) -> bool {
        let one = &self.pipes[pipe];
        let is_input = |pending: &Pending| {
            let Pending::Event(token, Event::Received(_) | Event::Ended) = pending else {
                return false;
            };
            one.owner.is_some_and(|owner| owner.token == *token)
        };
        let queue = one.owner.map(|owner| &self.queues[owner.loop_index]);
        !one.inbox.is_empty()
            || (one.inbox_ended && !one.has_reported_end)
            || queue.is_some_and(|queue| queue.iter().any(is_input))
    }

    /// By completion: begins to send.
    pub(super) fn submit(&mut self, pipe: usize, transmit: Transmit, is_lazy: bool) {
        if self.pipes[pipe].is_reset {
            return self.report(pipe, Event::SendFailed(transmit));
        }
        self.pipes[pipe].sending = Some((transmit, is_lazy));
        self.go_on_sending(pipe);
    }

    fn go_on_sending(&mut self, pipe: usize) {
        let Some((mut transmit, is_lazy)) = self.pipes[pipe].sending.take() else {
            return;
        };
        let taken = self.take(pipe, &mut transmit, u64::MAX);
        if !transmit.is_done() {
            self.pipes[pipe].sending = Some((transmit, false));
            if taken > 0 {
                self.report(pipe, Event::Progress(taken));
            }
        } else if is_lazy {
            let at_us = self.now_us.load(Relaxed) + LAZY_US;
            self.lazy.push_back((at_us, pipe, transmit));
        } else {
            self.report(pipe, Event::Sent(transmit));
        }
    }

    /// Lazy sends whose time has come are reported; says when the next one is due.
    pub(super) fn report_lazy(&mut self) -> Option<u64> {
        let now_us = self.now_us.load(Relaxed);
        while let Some((at_us, ..)) = self.lazy.front() {
            if *at_us > now_us {
                return Some(*at_us);
            }
            if let Some((_, pipe, transmit)) = self.lazy.pop_front() {
                self.report(pipe, Event::Sent(transmit));
            }
        }
        None
    }

    /// The client's socket takes what it has room for; says how much.
    pub(super) fn take(&mut self, pipe: usize, transmit: &mut Transmit, budget: u64) -> u64 {
        let one = &mut self.pipes[pipe];
        let room = one.window.saturating_sub(one.outbox.len()) as u64;
        let mut left = room.min(budget);
        let mut taken = 0;
        while left > 0
            && let Some(chunk) = transmit.front()
        {
            let Chunk::Memory(bytes) = chunk else {
                unreachable!("the simulated handler sends no files");
            };
            let count = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            one.outbox.extend(&bytes[..count]);
            transmit.advance(count as u64);
            left -= count as u64;
            taken += count as u64;
        }
        if taken > 0 {
            self.stirred.push(pipe);
        }
        taken
    }

    /// The client reads up to `count` bytes.
    pub(super) fn read(&mut self, pipe: usize, count: usize) -> Vec<u8> {
        let one = &mut self.pipes[pipe];
        let was_full = one.outbox.len() >= one.window;
        let count = count.min(one.outbox.len());
        let bytes = one.outbox.drain(..count).collect();
        if self.is_completion {
            self.go_on_sending(pipe);
        } else if was_full && count > 0 {
            self.ready(pipe, false, true);
        }
        bytes
    }

    pub(super) fn finish(&mut self, pipe: usize) {
        self.pipes[pipe].is_finished = true;
        self.stirred.push(pipe);
    }

    pub(super) fn close(&mut self, pipe: usize) {
        let one = &mut self.pipes[pipe];
        one.is_closed = true;
        one.owner = None;
        one.sending = None;
        if !one.inbox.is_empty() {
            one.has_left_input = true;
            one.reset_client();
        }
        self.lazy.retain(|lazy| lazy.1 != pipe);
        self.stirred.push(pipe);
    }
}

impl Pipe {
    fn reset_client(&mut self) {
        self.has_reset_client = true;
        self.outbox.clear();
    }
}
