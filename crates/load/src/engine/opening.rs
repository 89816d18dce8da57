//! Connections are established, or are not.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use loadline_base::{Millis, Token};
use loadline_record::ErrorKind;
use loadline_sys::{Interest, arrival, connect};

use super::client::Stage;
use super::exchange::is_stamped;
use super::{Driver, Engine};
use crate::{Share, judge};

/// Connections in the making at once without a request that waits for them, of all threads and
/// processes of a group together. Listeners have room for at least 128, mostly 511 or 4096; one that
/// is full drops what comes, and the kernel tries again after a second.
const OPENING_MAX: u32 = 256;

/// Opens connections that no request waits for yet: all of them before the start, and later those
/// that a server closed while they were idle.
#[derive(Debug)]
pub(super) struct Opener {
    queue: VecDeque<u32>,
    pub(super) in_progress: u32,
    /// Before the start: this thread's part of [`OPENING_MAX`], at least 1.
    in_progress_max: u32,
}

impl Opener {
    /// With room for `clients`, of a thread that has this share of the load.
    pub(super) fn new(clients: usize, share: Share) -> Self {
        let in_progress_max = share.count(u64::from(OPENING_MAX)).max(1);
        Self {
            queue: VecDeque::with_capacity(clients),
            in_progress: 0,
            in_progress_max: in_progress_max as u32,
        }
    }

    /// One more is to be opened: a client's, or one that clients share, behind all clients.
    pub(super) fn push(&mut self, place: u32) {
        self.queue.push_back(place);
    }

    /// One of those in the making is no more, if it is one.
    pub(super) fn opened(&mut self, is_opening: &mut bool) {
        if std::mem::take(is_opening) {
            self.in_progress -= 1;
        }
    }

    /// Whether nothing is left to be opened.
    pub(super) fn is_done(&self) -> bool {
        self.queue.is_empty() && self.in_progress == 0
    }
}

impl Engine<'_> {
    /// Has a connection opened that no request waits for, unless there is one already.
    pub(super) fn queue_opening(&mut self, index: u32) {
        self.take_from_idle(index);
        if self.client(index).stage != Stage::Closed {
            return;
        }
        if !std::mem::replace(&mut self.client(index).is_queued, true) {
            self.opener.push(index);
        }
    }

    /// Goes on opening, within the bound.
    pub(super) fn open_more(&mut self) {
        // Requests may wait for what is opened later.
        let most = match self.time.is_started {
            true => OPENING_MAX,
            false => self.opener.in_progress_max,
        };
        while self.opener.in_progress < most
            && let Some(index) = self.opener.queue.pop_front()
        {
            if let Some(number) = self.link_at(index) {
                self.open_link(number);
                continue;
            }
            let client = self.client(index);
            client.is_queued = false;
            if client.stage == Stage::Closed && !client.has_request && !client.is_pausing {
                client.is_opening = true;
                self.opener.in_progress += 1;
                self.connect(index);
            }
        }
    }

    /// Opens a connection for this client. A request that waits for it is sent at once: on loopback
    /// the connection is there when the call returns, and a turn of the loop is saved.
    pub(super) fn connect(&mut self, index: u32) {
        self.time.look_at_clock();
        let begun_ns = self.time.now_ns;
        let deadline_ns = begun_ns.saturating_add(self.plan.timeout_ns);
        let requests = self.requests_per_connection;
        let server = self.client(index).server;
        match self.begin_to_connect(index, server) {
            Ok(socket) => {
                let client = self.client(index);
                client.begin(socket, requests, deadline_ns);
                client.stamps.sent_ns = begun_ns; // until a request is sent
            }
            Err(kind) => return self.not_connected(index, kind),
        }
        if self.client(index).has_request && self.secured.connector(server).is_none() {
            self.time.look_at_clock();
            self.send_early(index);
        }
        let client = &self.clients[index as usize];
        let Some(socket) = &client.socket else {
            return; // it failed meanwhile
        };
        let bits = client.token(index).to_bits();
        if self.poller.add(socket, bits, Interest::Connection).is_err() {
            return self.not_connected(index, ErrorKind::ConnectFailed);
        }
        self.see_to_timer(index);
    }

    /// Begins connection `number` of this thread.
    pub(super) fn begin_to_connect(&self, number: u32, server: u16) -> Result<OwnedFd, ErrorKind> {
        let (plan, place) = (self.plan, self.first_client + u64::from(number));
        let source = match plan.sources.len() as u64 {
            0 => None,
            sources => plan.sources.get((place % sources) as usize).copied(),
        };
        let socket = connect::connect(&plan.servers[usize::from(server)], source, None)
            .map_err(|error| judge::connect_fault(&error))?;
        if is_stamped(number) {
            let _ = arrival::stamp(socket.as_fd()); // without, nothing is known of reading
        }
        Ok(socket)
    }

    /// The socket of a connection in the making has become writable, or failed.
    pub(super) fn connecting(&mut self, index: u32, is_gone: bool) {
        if is_gone {
            let socket = self.clients[index as usize].socket.as_ref();
            let error = socket.and_then(|socket| connect::outcome(socket.as_fd()).err());
            let kind = error.map_or(ErrorKind::Reset, |error| judge::connect_fault(&error));
            return self.not_connected(index, kind);
        }
        self.time.look_at_clock();
        let server = self.client(index).server;
        self.count_connection(index);
        match self.secured.connector(server) {
            Some(connector) => self.begin_handshake(index, &**connector),
            None => self.usable(index),
        }
    }

    /// The connection can be used: for the request that waits for it, if there is one.
    pub(super) fn usable(&mut self, index: u32) {
        let client = &mut self.clients[index as usize];
        self.opener.opened(&mut client.is_opening);
        client.stage = Stage::Idle;
        match client.has_request {
            true => self.send_request(index),
            false => self.put_idle(index),
        }
    }

    /// There is a connection now, to which a request is being given.
    pub(super) fn connected(&mut self, index: u32) {
        self.count_connection(index);
        let client = &mut self.clients[index as usize];
        self.opener.opened(&mut client.is_opening);
        client.stage = Stage::Idle;
    }

    fn count_connection(&mut self, index: u32) {
        let begun_ns = self.client(index).stamps.sent_ns;
        let took_ns = self.time.now_ns.saturating_sub(begun_ns);
        self.recorder.connected(self.time.calendar.phase(), took_ns);
    }

    /// There is none; if a request waits for it, that has failed.
    #[cold]
    pub(super) fn not_connected(&mut self, index: u32, kind: ErrorKind) {
        let client = &mut self.clients[index as usize];
        self.opener.opened(&mut client.is_opening);
        client.close();
        if client.has_request {
            self.count_failure(index, kind);
            match self.driver {
                Driver::Closed(_) => self.pause(index),
                Driver::Open(_) | Driver::OwnSchedules(_) => self.put_idle(index),
            }
            return;
        }
        if !self.time.is_started {
            self.recorder.tally(self.time.calendar.phase()).error(kind);
        }
        self.put_idle(index);
    }

    /// A client of a closed loop waits before it tries again: a server that is gone, or ends each
    /// connection at once, is not called without end.
    pub(super) fn pause(&mut self, index: u32) {
        let now_ns = self.time.now_ns;
        let client = self.client(index);
        client.is_pausing = true;
        client.deadline_ns = now_ns + u64::from(client.next_pause_ms()) * 1_000_000;
        self.arm(index);
    }

    /// Sees to it that the deadline of this client is not missed. Deadlines mostly move later, and
    /// a timer that comes too early is set again then.
    #[inline]
    pub(super) fn see_to_timer(&mut self, index: u32) {
        if !self.clients[index as usize].is_timed {
            self.arm(index);
        }
    }

    fn arm(&mut self, index: u32) {
        let client = &mut self.clients[index as usize];
        client.is_timed = true;
        let generation = 0; // of the client, whatever its connection
        let deadline = Millis(client.deadline_ns.div_ceil(1_000_000));
        self.wheel.arm(Token { index, generation }, deadline);
    }

    /// Looks after the clients whose timer has come.
    pub(super) fn see_to_deadlines(&mut self) {
        while let Some(token) = self.wheel.expired(Millis(self.time.now_ns / 1_000_000)) {
            let (index, now_ns) = (token.index, self.time.now_ns);
            if let Some(number) = self.link_at(index) {
                self.link_deadline(number);
                continue;
            }
            let client = self.client(index);
            client.is_timed = false;
            if !client.is_pausing && !client.is_under_way() {
                continue;
            }
            if client.deadline_ns > now_ns {
                self.arm(index);
                continue;
            }
            if std::mem::take(&mut client.is_pausing) {
                if !self.time.is_ending {
                    self.resume(index);
                }
                continue;
            }
            self.timed_out(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each thread had the whole bound: with 16 of them, 4,096 connections came to a listener at once.
    #[test]
    fn threads_share_the_bound_of_connections_in_the_making() {
        let most = |index, of| Opener::new(0, Share { index, of }).in_progress_max;
        for of in [1, 3, 16, 256] {
            let all: u32 = (0..of).map(|index| most(index, of)).sum();
            assert_eq!(all, OPENING_MAX, "{of}");
        }
        assert_eq!(most(999, 1000), 1);
    }
}
