//! Requests and responses of clients that share a connection.

use loadline_proto::{ClientEvent, Reply, StreamFault, StreamObserver};
use loadline_record::ErrorKind;
use sha2::Digest;

use super::LinkStage;
use crate::engine::client::{Client, Stage};
use crate::engine::exchange::Fate;
use crate::engine::retries::retry_seconds;
use crate::engine::{Driver, Engine};
use crate::judge;

/// Looks at responses for the clients of one connection.
struct Watching<'c> {
    clients: &'c mut [Client],
    now_ns: u64,
}

impl StreamObserver for Watching<'_> {
    #[inline]
    fn begun(&mut self, slot: u32) {
        let stamps = &mut self.clients[slot as usize].stamps;
        if stamps.first_ns == 0 {
            stamps.first_ns = self.now_ns;
        }
    }

    #[inline]
    fn field(&mut self, slot: u32, status: u16, name: &[u8], value: &[u8]) {
        if status >= 400 && name == b"retry-after" {
            let seconds = retry_seconds(value).unwrap_or(0);
            self.clients[slot as usize].retry_after_s = seconds;
        }
    }

    #[inline]
    fn content(&mut self, slot: u32, piece: &[u8]) {
        if let Some(hasher) = &mut self.clients[slot as usize].hasher {
            hasher.update(piece);
        }
    }
}

impl Engine<'_> {
    /// Sends the request in hand as soon as its connection has room for it.
    #[inline]
    pub(in crate::engine) fn take_up_stream(&mut self, index: u32) {
        let (number, _) = self.http2.place(index);
        let link = self.http2.link(number);
        if link.waiting.is_empty() && link.may_send() {
            return self.send_stream(index);
        }
        link.waiting.push_back(index);
        if link.stage == LinkStage::Closed && !link.is_queued {
            self.connect_link(number);
        }
    }

    #[inline]
    fn send_stream(&mut self, index: u32) {
        let Some(plan) = self.http2.plan else {
            return;
        };
        let deadline_ns = self.time.now_ns.saturating_add(self.plan.timeout_ns);
        let (number, slot) = self.http2.place(index);
        let client = &mut self.clients[index as usize];
        client.deadline_ns = deadline_ns;
        client.stage = Stage::Sending;
        let request = &plan.requests[client.request as usize];
        let bytes = &self.plan.mix.requests[client.request as usize].keep;
        let link = self.http2.link(number);
        let (_, begin) = link.session.progress();
        link.session
            .request(slot, &request.blocks, &bytes[request.body_start..]);
        link.unsent.push_back((index, begin));
        if link.requests_left != u32::MAX {
            link.requests_left -= 1;
        }
        let is_last = link.requests_left == 0 || link.session.is_spent();
        self.http2.touch(number);
        self.see_to_timer(index);
        if is_last {
            self.drain(number, Fate::Spent);
        }
    }

    /// Sends what waits, as far as there is room.
    pub(super) fn send_waiting(&mut self, number: u32) {
        while self.http2.link(number).may_send()
            && let Some(index) = self.http2.link(number).waiting.pop_front()
        {
            let client = self.client(index);
            let is_waiting = client.has_request && client.sent_bytes == 0;
            if is_waiting && client.stage != Stage::Sending {
                self.send_stream(index);
            }
        }
    }

    /// The connection gets no further request.
    pub(super) fn drain(&mut self, number: u32, fate: Fate) {
        self.http2.link(number).fate = fate;
        self.set_room(number, 0);
        for index in self.http2.clients_of(number) {
            let client = self.client(index);
            if client.stage == Stage::Idle {
                client.stage = Stage::Closed;
            }
        }
    }

    /// Takes in bytes of the server; whether the same connection goes on.
    pub(super) fn feed(&mut self, number: u32, mut bytes: &[u8]) -> bool {
        let generation = self.http2.link(number).generation;
        let clients = self.http2.clients_of(number);
        let received_ns = self.time.now_ns;
        loop {
            let range = clients.start as usize..clients.end as usize;
            let mut watching = Watching {
                clients: &mut self.clients[range],
                now_ns: received_ns,
            };
            let session = &mut self.http2.links[number as usize].session;
            let Some(event) = session.receive(&mut bytes, &self.limits, &mut watching) else {
                break;
            };
            match event {
                ClientEvent::Reply { slot, reply } => {
                    let index = clients.start + slot;
                    if self.clients[index as usize].sent_bytes == 0 {
                        self.link_broke_rules(number); // that request has not left
                        return false;
                    }
                    // However long those before it have taken.
                    self.time.now_ns = received_ns;
                    self.replied_to_stream(index, &reply);
                }
                ClientEvent::Failed { slot, fault } => {
                    self.stream_failed(clients.start + slot, fault);
                }
                ClientEvent::Settings => self.settled(number),
                ClientEvent::GoingAway => self.drain(number, Fate::Lost),
                ClientEvent::Fault(_) => {
                    self.link_broke_rules(number);
                    return false;
                }
            }
        }
        self.send_waiting(number);
        let link = self.http2.link(number);
        if !link.session.output().is_empty() || link.session.may_go_on() {
            self.http2.touch(number);
        }
        self.see_to_drained(number);
        self.http2.link(number).generation == generation
    }

    /// A complete response: within its time, or not.
    #[inline]
    fn replied_to_stream(&mut self, index: u32, reply: &Reply) {
        let (number, _) = self.http2.place(index);
        self.http2.link(number).is_used = true;
        self.http2.answered += 1;
        let deadline_ns = self.clients[index as usize].deadline_ns;
        match self.waits.came_after(deadline_ns) {
            true => self.fail_stream(index, ErrorKind::Timeout),
            false => self.completed_stream(index, reply),
        }
    }

    #[inline]
    fn completed_stream(&mut self, index: u32, reply: &Reply) {
        self.count_reply(index, reply);
        let (number, _) = self.http2.place(index);
        let is_kept = self.http2.link(number).is_kept();
        let client = self.client(index);
        client.has_request = false;
        client.pause_ms = 0;
        client.stage = if is_kept { Stage::Idle } else { Stage::Closed };
        self.in_hand -= 1;
        self.in_flight -= 1;
        self.vacate(index);
        if self.time.is_ending {
            return;
        }
        match self.driver {
            Driver::Closed(_) => self.next_of_client(index),
            Driver::Open(_) | Driver::OwnSchedules(_) => self.list_link(number),
        }
    }

    /// A request will have no complete response. One that the server has not processed, as it says, is
    /// sent again over the next connection (RFC 9113 section 8.7), unless this one has brought nothing: a
    /// server that does no more than say goodbye would be called without end.
    #[cold]
    fn stream_failed(&mut self, index: u32, fault: StreamFault) {
        let (number, _) = self.http2.place(index);
        let may_go_on = self.http2.link(number).is_used && !self.time.is_ending;
        match fault {
            StreamFault::Unprocessed if may_go_on => self.put_back(index),
            fault => self.fail_stream(index, judge::stream_fault(fault)),
        }
    }

    /// Has a request wait for the next connection. It stays in flight: it was sent, and has no response.
    fn put_back(&mut self, index: u32) {
        let (number, _) = self.http2.place(index);
        let client = &mut self.clients[index as usize];
        client.stage = Stage::Closed;
        client.is_put_back |= client.sent_bytes > 0;
        client.sent_bytes = 0;
        if let Some(hasher) = client.hasher.take() {
            let _ = self.sampler.end(hasher); // of a response that does not count
        }
        self.http2.link(number).waiting.push_back(index);
    }

    /// A request has failed; the others of its connection go on.
    #[cold]
    pub(super) fn fail_stream(&mut self, index: u32, kind: ErrorKind) {
        let (number, _) = self.http2.place(index);
        let link = self.http2.link(number);
        let (is_kept, is_used) = (link.is_kept(), link.is_used);
        self.client(index).stage = if is_kept { Stage::Idle } else { Stage::Closed };
        self.count_failure(index, kind);
        if self.time.is_ending {
            return;
        }
        // A timeout was a pause already.
        let has_served = is_used || kind == ErrorKind::Timeout;
        match self.driver {
            Driver::Closed(_) => self.next_after_failure(index, has_served),
            Driver::Open(_) | Driver::OwnSchedules(_) => self.list_link(number),
        }
    }

    /// No response within the time.
    #[cold]
    pub(in crate::engine) fn stream_timed_out(&mut self, index: u32) {
        let (number, slot) = self.http2.place(index);
        // It may be there, and have waited for this thread: then it is not the server's fault.
        self.receive_link(number, false);
        let now_ns = self.time.now_ns;
        let client = self.client(index);
        if !client.has_request || !client.is_under_way() || client.deadline_ns > now_ns {
            return;
        }
        let (stage, sent_ns) = (client.stage, client.stamps.sent_ns);
        let link = self.http2.link(number);
        link.session.cancel(slot);
        let is_dead = stage == Stage::Sending || link.received_ns < sent_ns;
        self.http2.touch(number);
        if is_dead {
            self.drain(number, Fate::Lost);
        }
        self.send_waiting(number); // there is room for one
        self.fail_stream(index, ErrorKind::Timeout);
        self.see_to_drained(number);
    }

    /// The request in hand is not worth sending, or waiting for, any more.
    pub(in crate::engine) fn give_up_stream(&mut self, index: u32) {
        let (number, slot) = self.http2.place(index);
        let client = self.client(index);
        let is_out = client.is_under_way();
        client.stage = Stage::Closed;
        if is_out {
            self.http2.link(number).session.cancel(slot);
            self.http2.touch(number);
        }
    }

    /// An established connection is gone, and the requests with it that were out.
    #[cold]
    pub(super) fn link_lost(&mut self, number: u32, kind: ErrorKind) {
        if self.http2.link(number).stage != LinkStage::Open {
            return self.link_failed(number, kind);
        }
        self.drain(number, Fate::Lost);
        for (slot, index) in (0..).zip(self.http2.clients_of(number)) {
            if !self.client(index).is_under_way() {
                continue;
            }
            let has_begun = self.http2.link(number).session.has_begun(slot);
            let kind = match kind {
                ErrorKind::ClosedEarly if has_begun => ErrorKind::ShortBody,
                kind => kind,
            };
            self.fail_stream(index, kind);
        }
        self.http2.link(number).close();
        self.reopen(number, kind);
    }

    /// The server has violated the protocol.
    #[cold]
    fn link_broke_rules(&mut self, number: u32) {
        let mut clients = self.http2.clients_of(number);
        let is_idle = !clients.any(|index| self.clients[index as usize].is_under_way());
        let _ = self.give_output(number); // GOAWAY says why
        if !self.http2.link(number).session.is_established() {
            self.refuse_server(number);
        } else if is_idle {
            let phase = self.time.calendar.phase();
            self.recorder.tally(phase).error(ErrorKind::Malformed);
        }
        self.link_lost(number, ErrorKind::Malformed);
    }
}
