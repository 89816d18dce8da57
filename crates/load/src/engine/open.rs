//! The open loop: requests are due by the clock, and take a connection that is free.

use loadline_record::ErrorKind;

use super::idle::IdleConnections;
use super::retries::{Attempt, RetryQueue};
use super::starts::IntendedStarts;
use super::{Driver, Engine};

/// Requests sent in one go before events are looked at again.
pub(super) const SENT_MAX: usize = 64;

/// A tenth of the clients or fewer are hardly any: a connection is free for a moment between two
/// requests, too.
const FREE_SHARE: usize = 10;

/// The queue of requests, and the free connections.
#[derive(Debug)]
pub(super) struct OpenLoop {
    queue: IntendedStarts,
    /// Goes on by time alone, whatever is sent: what was offered.
    offered: IntendedStarts,
    /// By server.
    idle: Vec<IdleConnections>,
    is_dropping: bool,
    /// Whether the first request of the queue waits for a connection.
    is_held: bool,
    /// Until when the first request of the queue, and all behind it, last waited for a connection.
    held_until_ns: u64,
    /// The request that is next in the queue, once it has been looked at.
    chosen: Option<u32>,
    pub(super) retries: Box<RetryQueue>,
    next_ns: u64,
}

impl OpenLoop {
    /// No client is free yet.
    pub(super) fn new(
        starts: IntendedStarts,
        servers: usize,
        is_dropping: bool,
        retries: RetryQueue,
    ) -> Self {
        Self {
            offered: starts.clone(),
            queue: starts,
            idle: (0..servers).map(|_| IdleConnections::default()).collect(),
            is_dropping,
            is_held: false,
            held_until_ns: 0,
            chosen: None,
            retries: Box::new(retries),
            next_ns: u64::MAX,
        }
    }

    /// When the next request is due; `u64::MAX`: nothing can be done before a client becomes free.
    #[inline]
    pub(super) fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Whether no request is due any more.
    pub(super) fn is_exhausted(&self) -> bool {
        self.queue.is_exhausted() && self.retries.is_empty()
    }

    /// A request is to be tried again at `at_ns`.
    pub(super) fn look_at(&mut self, at_ns: u64) {
        self.next_ns = self.next_ns.min(at_ns);
    }

    /// A client is free now, or the queue is another: whatever comes first is next.
    #[inline]
    fn look_at_all(&mut self, now_ns: u64) {
        let retry_ns = match self.retries.is_held() {
            true => now_ns,
            false => self.retries.next_ns(),
        };
        self.next_ns = self.queue.next_ns().min(retry_ns);
    }

    fn pop(&mut self) {
        self.queue.pop();
        self.chosen = None;
    }

    /// How many requests became due before `until_ns` since the last time.
    #[inline]
    fn offered_until(&mut self, until_ns: u64) -> u64 {
        let mut count = 0;
        while self.offered.next_ns() < until_ns {
            self.offered.pop();
            count += 1;
        }
        count
    }
}

/// What is to be done with the first request of the queue.
enum Step {
    /// Nothing before a client becomes free.
    Wait,
    /// There is no client to send it.
    Fail(ErrorKind),
    /// This connection takes it.
    Send { connection: u32, server: u16 },
}

impl Engine<'_> {
    /// The first request is about to be due.
    pub(super) fn start_open(&mut self, start_ns: u64) {
        let open = self.open();
        open.queue.start(start_ns);
        open.offered.start(start_ns);
        open.next_ns = open.queue.next_ns();
    }

    /// A client is free, with a connection or (where one is opened for each request) without.
    #[inline]
    pub(super) fn put_idle(&mut self, index: u32) {
        if let Driver::OwnSchedules(own) = &mut self.driver {
            return own.put(index, self.time.now_ns);
        }
        let server = self.client(index).server;
        self.list_free(index, server);
    }

    /// A client is not free: its connection is gone, and being opened anew.
    pub(super) fn take_from_idle(&mut self, index: u32) {
        if let Driver::OwnSchedules(own) = &mut self.driver {
            return own.remove(index);
        }
        let server = self.client(index).server;
        self.unlist(index, server);
    }

    /// A connection can be given a request: a client's, by the client's number, or one of HTTP/2. One that
    /// is known to be free stays where it is in the order.
    #[inline]
    pub(super) fn list_free(&mut self, connection: u32, server: u16) {
        let now_ns = self.time.now_ns;
        let Driver::Open(open) = &mut self.driver else {
            return;
        };
        let idle = &mut open.idle[usize::from(server)];
        if idle.contains(connection) {
            return;
        }
        idle.put(connection, now_ns);
        if std::mem::take(&mut open.is_held) {
            open.held_until_ns = now_ns;
            self.time.meter.released(now_ns);
        }
        open.look_at_all(now_ns);
    }

    /// A connection can be given no request.
    #[inline]
    pub(super) fn unlist(&mut self, connection: u32, server: u16) {
        if let Driver::Open(open) = &mut self.driver {
            open.idle[usize::from(server)].remove(connection);
        }
    }

    /// Takes a place of a connection that is free; whose it is.
    #[inline]
    fn take_place(&mut self, connection: u32, server: u16) -> u32 {
        let (index, has_more) = match self.http2.is_empty() {
            true => (connection, false),
            false => self.http2.take_place(connection),
        };
        let idle = &mut self.open().idle[usize::from(server)];
        match has_more {
            true => idle.move_last(connection),
            false => idle.remove(connection),
        }
        index
    }

    /// Sends what is due, as far as there are free connections.
    pub(super) fn send_due(&mut self) {
        for _ in 0..SENT_MAX {
            let due_ns = self.open().queue.next_ns();
            if due_ns > self.time.now_ns {
                if self.retry() {
                    continue;
                }
                let open = self.open();
                open.next_ns = due_ns.min(open.retries.next_ns());
                return;
            }
            // It is chosen even if it is too late for it, so that a log's lines keep to their times.
            let request = self.chosen();
            let late_ns = self.time.now_ns - due_ns;
            if self.plan.deadline_ns.is_some_and(|most| late_ns > most) {
                self.open().pop();
                let phase = self.time.calendar.phase_of(due_ns);
                self.recorder.failed(phase, ErrorKind::Late, late_ns);
                continue;
            }
            match self.next_step(request) {
                Step::Wait => {
                    let open = self.open();
                    (open.is_held, open.next_ns) = (true, u64::MAX);
                    self.time.meter.held(self.time.now_ns);
                    return;
                }
                Step::Fail(kind) => {
                    self.open().pop();
                    let phase = self.time.calendar.phase_of(due_ns);
                    self.recorder.tally(phase).error(kind);
                }
                Step::Send { connection, server } => {
                    self.send_on(connection, server, request, due_ns);
                    self.time.look_at_clock();
                }
            }
        }
        self.open().next_ns = self.time.now_ns;
    }

    fn next_step(&mut self, request: u32) -> Step {
        let wanted = self.plan.mix.requests.get(request as usize);
        let server = wanted.map_or(0, |request| request.server);
        let open = self.open();
        let idle = open.idle.get(usize::from(server));
        let idle = idle.filter(|idle| idle.has_members());
        let Some(idle) = idle else {
            return Step::Fail(ErrorKind::ConnectFailed); // this thread has no client for it
        };
        let Some(connection) = idle.first() else {
            return match open.is_dropping {
                true => Step::Fail(ErrorKind::Dropped),
                false => Step::Wait,
            };
        };
        Step::Send { connection, server }
    }

    /// Sends the first request that is to be tried again, if it is due and a connection is free. Those
    /// that are due for the first time come before it.
    fn retry(&mut self) -> bool {
        let (now_ns, deadline_ns) = (self.time.now_ns, self.plan.deadline_ns);
        let open = self.open();
        let Some((attempt, server)) = open.retries.due(now_ns) else {
            return false;
        };
        let is_late = deadline_ns.is_some_and(|most| now_ns - attempt.due_ns > most);
        match open.idle[usize::from(server)].first() {
            _ if is_late => {
                open.retries.pop();
                let late_ns = now_ns - attempt.attempt_due_ns;
                self.recorder
                    .failed(attempt.phase, ErrorKind::Late, late_ns);
                self.count_if_unsent(&attempt);
            }
            Some(connection) => {
                open.retries.pop();
                let index = self.take_place(connection, server);
                self.take_up(index, attempt);
                self.time.look_at_clock();
            }
            None if open.is_dropping => {
                open.retries.pop();
                self.recorder.tally(attempt.phase).error(ErrorKind::Dropped);
                self.count_if_unsent(&attempt);
            }
            None => {
                open.retries.hold();
                return false;
            }
        }
        true
    }

    /// A request that gets no further attempt: it was not sent if none of its connections came to be.
    fn count_if_unsent(&mut self, attempt: &Attempt) {
        let tally = self.recorder.tally(attempt.phase);
        tally.not_accepted += u64::from(!attempt.was_sent);
    }

    fn send_on(&mut self, connection: u32, server: u16, request: u32, due_ns: u64) {
        let now_ns = self.time.now_ns;
        let open = self.open();
        let idle = &open.idle[usize::from(server)];
        // A request that waited for a server, or behind one that did, did not wait for this
        // thread.
        let was_idle = open.held_until_ns <= due_ns && idle.was_one_at(due_ns);
        open.pop();
        let index = self.take_place(connection, server);
        if was_idle {
            self.lagged(now_ns - due_ns);
        }
        let phase = self.time.calendar.phase_of(due_ns);
        self.take_up(index, Attempt::first(request, due_ns, phase));
    }

    fn chosen(&mut self) -> u32 {
        if let Some(request) = self.open().chosen {
            return request;
        }
        let request = self.choices.next();
        self.open().chosen = Some(request);
        request
    }

    /// Counts what became due before `until_ns`, in `phase`.
    #[inline]
    pub(super) fn count_offered(&mut self, until_ns: u64, phase: u16) {
        let count = match &mut self.driver {
            Driver::Closed(_) => return,
            Driver::Open(open) => open.offered_until(until_ns),
            Driver::OwnSchedules(own) => own.offered_until(until_ns),
        };
        if count > 0 {
            self.recorder.tally(phase).offered += count;
        }
    }

    /// Gives up what was due before `until_ns` and not sent; returns how many those were, or, of
    /// schedules for each connection, those whose connection was not free.
    pub(super) fn give_up_queue(&mut self, until_ns: u64) -> u64 {
        let Driver::Open(open) = &mut self.driver else {
            return self.give_up_own(until_ns);
        };
        let mut count = 0;
        while open.queue.next_ns() < until_ns {
            let phase = self.time.calendar.phase_of(open.queue.next_ns());
            self.recorder.tally(phase).unfinished += 1;
            open.pop();
            count += 1;
        }
        count
    }

    /// Gives up what was to be tried again.
    pub(super) fn give_up_retries(&mut self) {
        if let Driver::Open(open) = &mut self.driver {
            for attempt in open.retries.drain() {
                let tally = self.recorder.tally(attempt.phase);
                tally.unfinished += 1;
                tally.not_accepted += u64::from(!attempt.was_sent);
            }
        }
    }

    /// The warm-up is over: what was due in it and still waits is given up, or a server that is
    /// behind would answer nothing else while it is measured.
    pub(super) fn forget_queue(&mut self, until_ns: u64) {
        self.give_up_queue(until_ns);
        if let Driver::Open(open) = &mut self.driver {
            open.is_held = false;
            open.look_at_all(until_ns);
            self.time.meter.released(until_ns);
        }
    }

    /// Whether more than a few clients wait for something to do.
    pub(super) fn has_free_clients(&self) -> bool {
        let Driver::Open(open) = &self.driver else {
            return false;
        };
        let (free, all) = match self.http2.is_empty() {
            true => {
                let is_free = |index: &u32| open.idle.iter().any(|idle| idle.contains(*index));
                let free = (0..self.client_count()).filter(is_free).count();
                (free, self.clients.len() as u64)
            }
            false => (self.http2.free_places(), self.http2.in_flight_max()),
        };
        (free * FREE_SHARE) as u64 > all
    }
}
