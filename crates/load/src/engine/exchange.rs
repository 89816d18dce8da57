//! A request and its answer on one connection, from taking it up to counting it.

use std::io;
use std::os::fd::AsFd;

use loadline_proto::{Limits, Received, Reply, ReplyFault};
use loadline_record::ErrorKind;
use loadline_sys::arrival::{self, Stamped};
use loadline_sys::connect::{self, Unread};
use loadline_sys::socket;

use super::client::{Client, Stage};
use super::retries::{Attempt, Looking};
use super::{Driver, Engine};
use crate::{Prepared, judge};

/// Times that one connection is read before the others have their turn: an answer
/// without end does not delay them.
pub(super) const RECEIVES_MAX: usize = 16;
/// What is received at once while every byte is looked at: larger pieces fall out of the cache.
pub(super) const RECEIVE_BYTES: usize = 64 << 10;
/// What is thrown away at once.
pub(super) const DISCARD_BYTES: usize = 1 << 20;
/// The same where requests are due at times: a megabyte takes a tenth of a millisecond or two, and what is due
/// then would be late.
const DISCARD_BYTES_OPEN: usize = 64 << 10;
/// Content that is worth being thrown away unseen instead of being received.
const DISCARD_BYTES_MIN: u64 = 8 << 10;

/// One in this many clients has its answers stamped by the kernel when they come: how late they are read
/// is known from them.
const STAMPED_OF: u32 = 8;

/// Whether this client's answers are stamped.
#[inline]
pub(super) fn is_stamped(index: u32) -> bool {
    index.is_multiple_of(STAMPED_OF)
}

#[inline]
pub(super) fn unstamped(count: Option<usize>) -> Option<Stamped> {
    let age_ns = None;
    count.map(|count| Stamped { count, age_ns })
}

/// What is done with a connection after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It stays.
    Kept,
    /// It has carried as many requests as it may: the client closes it.
    Spent,
    /// The server closes it.
    Lost,
}

impl Engine<'_> {
    /// Gives a request to a client, which sends it as soon as it has a connection.
    #[inline]
    pub(super) fn take_up(&mut self, index: u32, attempt: Attempt) {
        let client = self.client(index);
        client.request = attempt.request;
        client.stamps.due_ns = attempt.due_ns;
        client.attempt_due_ns = attempt.attempt_due_ns;
        client.retries = attempt.retries;
        client.was_sent = attempt.was_sent;
        client.is_put_back = false;
        client.retry_after_s = 0; // of the request before
        client.phase = attempt.phase;
        client.sent_bytes = 0;
        client.has_request = true;
        let stage = client.stage;
        self.in_hand += 1;
        if self.http2.has(index) {
            return self.take_up_stream(index);
        }
        match stage {
            Stage::Idle => self.send_request(index),
            Stage::Closed => self.connect(index),
            _ => {} // sent when it is connected
        }
    }

    /// Sends the request in hand over an open connection.
    #[inline]
    pub(super) fn send_request(&mut self, index: u32) {
        let deadline_ns = self.time.now_ns.saturating_add(self.plan.timeout_ns);
        let client = self.client(index);
        client.deadline_ns = deadline_ns;
        client.stage = Stage::Sending;
        self.send_rest(index);
        self.see_to_timer(index);
    }

    /// Sends what the socket takes of the request.
    #[inline]
    pub(super) fn send_rest(&mut self, index: u32) {
        if self.secured.has(index) {
            return self.send_secured(index);
        }
        match self.give_to_kernel(index) {
            Ok(Some(count)) => self.sent(index, count),
            Ok(None) => {}
            Err(_) => self.fail(index, ErrorKind::Reset),
        }
    }

    /// Tries to send over a connection that may not be established yet.
    pub(super) fn send_early(&mut self, index: u32) {
        match self.give_to_kernel(index) {
            Ok(Some(count)) => {
                self.connected(index);
                let deadline_ns = self.time.now_ns.saturating_add(self.plan.timeout_ns);
                self.client(index).deadline_ns = deadline_ns;
                self.sent(index, count);
            }
            Ok(None) => {}
            Err(error) => self.not_connected(index, judge::connect_fault(&error)),
        }
    }

    #[inline]
    fn give_to_kernel(&self, index: u32) -> io::Result<Option<usize>> {
        let client = &self.clients[index as usize];
        let Some(socket) = &client.socket else {
            return Ok(None);
        };
        let request = &self.plan.mix.requests[client.request as usize];
        let bytes = wire(request, client.requests_left);
        connect::send(socket.as_fd(), &bytes[client.sent_bytes as usize..])
    }

    #[inline]
    pub(super) fn sent(&mut self, index: u32, count: usize) {
        let plan = self.plan;
        let client = &mut self.clients[index as usize];
        let request = &plan.mix.requests[client.request as usize];
        let len = wire(request, client.requests_left).len();
        self.recorder.tally(client.phase).bytes_sent += count as u64;
        if client.sent_bytes == 0 {
            client.session.requested(request.method);
            self.begun(index);
        }
        let client = &mut self.clients[index as usize];
        client.sent_bytes += count as u32;
        client.stage = match client.sent_bytes as usize == len {
            true => Stage::Awaiting,
            false => Stage::Sending,
        };
    }

    /// The first byte of the request in hand leaves.
    #[inline]
    pub(super) fn begun(&mut self, index: u32) {
        let client = &mut self.clients[index as usize];
        // One that was put back has been in flight all the time.
        if !std::mem::take(&mut client.is_put_back) {
            let tally = self.recorder.tally(client.phase);
            match std::mem::replace(&mut client.was_sent, true) {
                false => tally.sent += 1,
                true => tally.retries += 1,
            }
            self.in_flight += 1;
            client.stamps.sent_ns = self.time.now_ns;
        }
        client.retry_after_s = 0;
        client.stamps.first_ns = 0;
        let request = &self.plan.mix.requests[client.request as usize];
        let expected = &self.plan.mix.expectations[request.expectation as usize];
        if expected.sha256.is_some() {
            client.hasher = self.sampler.next();
        }
    }

    /// Reads what is there. `is_half_closed`: the peer will send no more after it.
    #[inline]
    pub(super) fn receive(&mut self, index: u32, is_half_closed: bool) {
        let is_secured = self.secured.has(index);
        let is_open = !matches!(self.driver, Driver::Closed(_));
        let discard_bytes = if is_open {
            DISCARD_BYTES_OPEN
        } else {
            DISCARD_BYTES
        };
        for _ in 0..RECEIVES_MAX {
            let client = &self.clients[index as usize];
            let Some(socket) = &client.socket else {
                return;
            };
            let left = client.session.content_left().unwrap_or(0);
            let discards = left >= DISCARD_BYTES_MIN && client.hasher.is_none() && !is_secured;
            let most = match discards {
                // One more than is left: what lies behind the content is to be seen.
                true => left.saturating_add(1).min(discard_bytes as u64) as usize,
                false => RECEIVE_BYTES,
            };
            let buffer = &mut self.buffer[..most];
            let received = match (is_stamped(index), discards) {
                (true, _) => arrival::receive(socket.as_fd(), buffer, discards),
                (false, true) => socket::discard(socket.as_fd(), buffer).map(unstamped),
                (false, false) => socket::receive(socket.as_fd(), buffer).map(unstamped),
            };
            self.time.look_at_clock();
            let stamped = match received {
                Ok(None) => return,
                Ok(Some(Stamped { count: 0, .. })) if is_secured => return self.cut(index),
                Ok(Some(Stamped { count: 0, .. })) => return self.ended(index),
                Ok(Some(stamped)) => stamped,
                Err(error) => return self.broken(index, &error),
            };
            let is_full = stamped.count == most;
            let goes_on = match is_secured {
                true => self.unseal(index, stamped, is_half_closed),
                false => {
                    let received = self.took(index, stamped.count, discards, is_full);
                    self.understood(index, received, stamped.age_ns, is_half_closed)
                }
            };
            if !goes_on || (stamped.count < most && !is_half_closed) {
                return;
            }
            if is_open && discards {
                self.drive();
            }
        }
        let token = self.clients[index as usize].token(index);
        self.unread.push_back((token, is_half_closed));
    }

    /// Goes on with what was understood. Whether the same connection may go on reading.
    #[inline]
    pub(super) fn understood(
        &mut self,
        index: u32,
        received: Received,
        age_ns: Option<u64>,
        is_half_closed: bool,
    ) -> bool {
        match received {
            Received::More => return true,
            Received::Reply(reply) => {
                if let Some(age_ns) = age_ns {
                    self.time.meter.read_lagged(age_ns);
                }
                self.replied(index, reply, is_half_closed);
            }
            Received::Fault(fault) => self.faulted(index, fault),
        }
        false
    }

    /// An answer that ended where the buffer did: bytes that are there already belong to it, and not
    /// to the next one.
    #[cold]
    fn with_what_follows(&self, index: u32, reply: Reply) -> Reply {
        let socket = self.clients[index as usize].socket.as_ref();
        let unread = socket.map(|socket| connect::unread(socket.as_fd()));
        match unread {
            Some(Ok(Unread::Some)) => Reply {
                keep_alive: false,
                excess_bytes: 1,
                ..reply
            },
            _ => reply,
        }
    }

    /// Takes in what was received, which fills the buffer (`is_full`) or does not.
    #[inline]
    fn took(&mut self, index: u32, count: usize, is_discarded: bool, is_full: bool) -> Received {
        self.count_received(index, count);
        let client = &mut self.clients[index as usize];
        let looks = self.plan.retries.is_some();
        let received = match is_discarded {
            true => client.session.skipped(count as u64),
            false => understand(client, &self.buffer[..count], &self.limits, looks),
        };
        match received {
            Received::Reply(reply) if is_full && reply.excess_bytes == 0 => {
                Received::Reply(self.with_what_follows(index, reply))
            }
            received => received,
        }
    }

    /// The same of bytes that came through a layer.
    pub(super) fn took_plain(&mut self, index: u32, plain: &[u8]) -> Received {
        self.count_received(index, plain.len());
        let client = &mut self.clients[index as usize];
        understand(client, plain, &self.limits, self.plan.retries.is_some())
    }

    #[inline]
    fn count_received(&mut self, index: u32, count: usize) {
        let client = &mut self.clients[index as usize];
        if client.has_request {
            self.recorder.tally(client.phase).bytes_received += count as u64;
        }
        if client.stamps.first_ns == 0 {
            client.stamps.first_ns = self.time.now_ns;
        }
    }

    /// A complete answer: within its time, or not.
    #[inline]
    fn replied(&mut self, index: u32, reply: Reply, is_half_closed: bool) {
        let deadline_ns = self.clients[index as usize].deadline_ns;
        match self.waits.came_after(deadline_ns) {
            true => self.give_up_waiting(index),
            false => self.completed(index, reply, is_half_closed),
        }
    }

    #[inline]
    fn completed(&mut self, index: u32, reply: Reply, is_half_closed: bool) {
        self.count_reply(index, &reply);
        let client = &mut self.clients[index as usize];
        client.has_request = false;
        client.is_used = true;
        client.pause_ms = 0;
        if client.requests_left != u32::MAX {
            client.requests_left -= 1;
        }
        // Before all of a request has left, its connection is of no further use.
        let is_whole = client.stage == Stage::Awaiting;
        let fate = match client.requests_left {
            0 => Fate::Spent,
            _ if reply.keep_alive && is_whole && !is_half_closed => Fate::Kept,
            _ => Fate::Lost,
        };
        match fate {
            Fate::Kept => client.stage = Stage::Idle,
            Fate::Spent => self.part(index),
            Fate::Lost => client.close(),
        }
        self.in_hand -= 1;
        self.in_flight -= 1;
        self.go_on(index, fate);
    }

    /// Counts a complete answer: the request is over, or is tried again.
    #[inline]
    pub(super) fn count_reply(&mut self, index: u32, reply: &Reply) {
        let now_ns = self.time.now_ns;
        let client = &mut self.clients[index as usize];
        let request = &self.plan.mix.requests[client.request as usize];
        let expected = &self.plan.mix.expectations[request.expectation as usize];
        let sha256 = client.hasher.take().map(|hasher| self.sampler.end(hasher));
        client.stamps.last_ns = now_ns;
        let latency_ns = now_ns.saturating_sub(client.stamps.due_ns);
        let is_late = self.plan.deadline_ns.is_some_and(|most| latency_ns > most);
        let fault = judge::fault(reply, request.method, expected, sha256)
            .or_else(|| is_late.then_some(ErrorKind::Late));
        let tally = self.recorder.tally(client.phase);
        tally.answered(reply.status, reply.content_bytes);
        match fault {
            Some(kind) if self.is_tried_again(index, kind, Some(reply.status)) => {
                let client = &self.clients[index as usize];
                self.recorder
                    .attempt_completed(client.phase, &client.stamps);
            }
            _ => self.judged(index, fault, reply.status),
        }
    }

    /// Counts the complete answer that ends a request.
    #[inline]
    fn judged(&mut self, index: u32, fault: Option<ErrorKind>, status: u16) {
        let client = &self.clients[index as usize];
        let attempt_ns = client.stamps.last_ns.saturating_sub(client.attempt_due_ns);
        let goal_ns = self.plan.latency_goal_ns;
        let is_in_goal = fault.is_none() && goal_ns.is_some_and(|most| attempt_ns <= most);
        let tally = self.recorder.tally(client.phase);
        tally.judged(fault, status);
        tally.in_goal += u64::from(is_in_goal);
        self.recorder.completed(client.phase, &client.stamps);
    }

    /// What comes after a complete answer.
    #[inline]
    fn go_on(&mut self, index: u32, fate: Fate) {
        if self.time.is_ending {
            return;
        }
        match self.driver {
            Driver::Closed(_) => {
                self.next_of_client(index);
                if fate == Fate::Lost && !self.closed().is_exhausted() {
                    self.queue_opening(index);
                }
            }
            Driver::Open(_) | Driver::OwnSchedules(_) if fate == Fate::Lost => {
                self.queue_opening(index);
            }
            Driver::Open(_) | Driver::OwnSchedules(_) => self.put_idle(index),
        }
    }

    /// The peer will send no more.
    #[cold]
    pub(super) fn ended(&mut self, index: u32) {
        if !self.client(index).has_request {
            return self.lost_while_idle(index);
        }
        match self.client(index).session.received_eof() {
            Received::Reply(reply) => self.replied(index, reply, true),
            Received::Fault(fault) => self.faulted(index, fault),
            Received::More => self.fail(index, ErrorKind::ClosedEarly),
        }
    }

    /// The connection is gone.
    #[cold]
    pub(super) fn broken(&mut self, index: u32, error: &io::Error) {
        let client = self.client(index);
        match (client.stage, client.has_request) {
            (Stage::Handshaking, _) => self.not_connected(index, judge::connect_fault(error)),
            (_, true) => self.fail(index, judge::broken(error)),
            (_, false) => self.lost_while_idle(index),
        }
    }

    #[cold]
    pub(super) fn faulted(&mut self, index: u32, fault: ReplyFault) {
        let kind = judge::cut(fault);
        if self.client(index).has_request {
            return self.fail(index, kind);
        }
        // Bytes that belong to no request are the last answer's, which was longer than it said.
        self.recorder.tally(self.time.calendar.phase()).error(kind);
        self.lost_while_idle(index);
    }

    /// No answer within the time; or no connection.
    #[cold]
    pub(super) fn timed_out(&mut self, index: u32) {
        if self.http2.has(index) {
            return self.stream_timed_out(index);
        }
        if self.client(index).stage.is_connecting() {
            return self.not_connected(index, ErrorKind::ConnectTimeout);
        }
        // It may be there, and have waited for this thread: then it is not the server's fault.
        self.receive(index, false);
        let now_ns = self.time.now_ns;
        let client = self.client(index);
        if client.has_request && client.is_under_way() && client.deadline_ns <= now_ns {
            self.give_up_waiting(index);
        }
    }

    /// The time of the request in hand is over: its connection is reset, or closed in good order.
    #[cold]
    fn give_up_waiting(&mut self, index: u32) {
        if !self.plan.closes_on_timeout
            && let Some(socket) = &self.client(index).socket
        {
            connect::reset_on_close(socket.as_fd());
        }
        self.fail(index, ErrorKind::Timeout);
    }

    /// The request in hand has failed, and its connection with it.
    #[cold]
    pub(super) fn fail(&mut self, index: u32, kind: ErrorKind) {
        self.client(index).close();
        self.count_failure(index, kind);
        if self.time.is_ending {
            return;
        }
        // A timeout was a pause already.
        let has_served = self.client(index).is_used || kind == ErrorKind::Timeout;
        match self.driver {
            Driver::Closed(_) => self.next_after_failure(index, has_served),
            Driver::Open(_) | Driver::OwnSchedules(_) if self.requests_per_connection == 1 => {
                self.put_idle(index);
            }
            Driver::Open(_) | Driver::OwnSchedules(_) => self.queue_opening(index),
        }
    }

    /// Counts the attempt in hand as failed; the request is over, unless it is tried again.
    pub(super) fn count_failure(&mut self, index: u32, kind: ErrorKind) {
        let now_ns = self.time.now_ns;
        self.drop_request(index);
        let client = &self.clients[index as usize];
        let (phase, after_ns) = (client.phase, now_ns.saturating_sub(client.attempt_due_ns));
        let is_unsent = !client.was_sent;
        if self.is_tried_again(index, kind, None) {
            return self.recorder.attempt_failed(phase, after_ns);
        }
        // Ports and descriptors that are missing are the client's own.
        if is_unsent && kind != ErrorKind::ConnectFailed {
            self.recorder.tally(phase).not_accepted += 1;
        }
        self.recorder.failed(phase, kind, after_ns);
    }

    /// The client has no request any more.
    pub(super) fn drop_request(&mut self, index: u32) {
        let client = &mut self.clients[index as usize];
        if let Some(hasher) = client.hasher.take() {
            let _ = self.sampler.end(hasher); // of an answer that does not count
        }
        client.has_request = false;
        self.in_hand -= 1;
        self.in_flight -= u64::from(client.sent_bytes > 0 || client.is_put_back);
        if self.http2.has(index) {
            self.vacate(index);
        }
    }

    /// An idle connection is gone: servers may close those at any time.
    #[cold]
    pub(super) fn lost_while_idle(&mut self, index: u32) {
        let client = self.client(index);
        client.close();
        // One that never served is opened again when it is needed, not before: a server that closes
        // whatever it accepts would be called without end.
        if client.is_used && !self.time.is_ending {
            self.queue_opening(index);
        }
    }
}

/// Follows an answer. `looks`: what it says about trying again is of use. Beside a check of the content it
/// is looked at in any case: nobody reads it where nothing is tried again.
#[inline]
fn understand(client: &mut Client, bytes: &[u8], limits: &Limits, looks: bool) -> Received {
    if !looks && client.hasher.is_none() {
        return client.session.received(bytes, limits, &mut ());
    }
    let mut looking = Looking {
        hasher: client.hasher.as_deref_mut(),
        retry_after_s: &mut client.retry_after_s,
    };
    client.session.received(bytes, limits, &mut looking)
}

/// The bytes of a request on a connection that may still carry `left`.
#[inline]
pub(super) fn wire(request: &Prepared, requests_left: u32) -> &[u8] {
    match requests_left {
        1 => &request.last,
        _ => &request.keep,
    }
}
