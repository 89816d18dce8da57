//! Connections of HTTP/2 are established, or are not.

use std::os::fd::AsFd;

use loadline_base::{Millis, Token};
use loadline_proto::{Connector, Http2Client};
use loadline_record::ErrorKind;
use loadline_sys::{Interest, connect};

use super::{LinkStage, token};
use crate::engine::client::Stage;
use crate::engine::exchange::Fate;
use crate::engine::{Driver, Engine};
use crate::judge;
use crate::secure_link::{SecureLink, UnfitServer};

impl Engine<'_> {
    /// Has a connection opened, unless there is one already.
    pub(in crate::engine) fn queue_link(&mut self, number: u32) {
        self.set_room(number, 0);
        let place = self.clients.len() as u32 + number;
        let link = self.http2.link(number);
        if link.stage == LinkStage::Closed && !std::mem::replace(&mut link.is_queued, true) {
            self.opener.push(place);
        }
    }

    /// Opens one that stood in the queue, unless it is on its way by now.
    pub(in crate::engine) fn open_link(&mut self, number: u32) {
        let link = self.http2.link(number);
        link.is_queued = false;
        if link.stage == LinkStage::Closed {
            link.is_opening = true;
            self.opener.in_progress += 1;
            self.connect_link(number);
        }
    }

    pub(super) fn connect_link(&mut self, number: u32) {
        self.time.look_at_clock();
        let begun_ns = self.time.now_ns;
        let server = self.http2.link(number).server;
        let socket = match self.begin_to_connect(number, server) {
            Ok(socket) => socket,
            Err(kind) => return self.link_failed(number, kind),
        };
        let clients = self.clients.len();
        let link = self.http2.link(number);
        link.stage = LinkStage::Connecting;
        link.deadline_ns = begun_ns.saturating_add(self.plan.timeout_ns);
        link.begun_ns = begun_ns;
        link.requests_left = self.requests_per_connection;
        link.is_used = false;
        let bits = token(link, number, clients).to_bits();
        let added = self.poller.add(&socket, bits, Interest::Connection);
        link.socket = Some(socket);
        if added.is_err() {
            return self.link_failed(number, ErrorKind::ConnectFailed);
        }
        if !link.is_timed {
            self.arm_link(number);
        }
    }

    /// The socket of a connection in the making has become writable, or failed.
    pub(super) fn link_connected(&mut self, number: u32, is_gone: bool) {
        let link = self.http2.link(number);
        if is_gone {
            let socket = link.socket.as_ref();
            let error = socket.and_then(|socket| connect::outcome(socket.as_fd()).err());
            let kind = error.map_or(ErrorKind::Reset, |error| judge::connect_fault(&error));
            return self.link_failed(number, kind);
        }
        self.time.look_at_clock();
        let took_ns = self.time.now_ns.saturating_sub(link.begun_ns);
        let server = usize::from(link.server);
        self.recorder.connected(self.time.calendar.phase(), took_ns);
        let plan = self.http2.plan;
        let connectors = plan.map_or(&[][..], |plan| plan.connectors.as_slice());
        match connectors.get(server) {
            Some(Some(connector)) => self.begin_link_handshake(number, &**connector),
            _ => self.greet(number),
        }
    }

    fn begin_link_handshake(&mut self, number: u32, connector: &dyn Connector) {
        let Ok(layer) = SecureLink::begin(connector, self.time.now_ns) else {
            return self.link_failed(number, ErrorKind::Handshake);
        };
        let link = self.http2.link(number);
        link.layer = Some(Box::new(layer));
        link.stage = LinkStage::Handshaking;
        self.flush_layer(number);
    }

    /// Bytes can be exchanged: the preface is sent, and what waits with it.
    pub(super) fn greet(&mut self, number: u32) {
        let streams = self.http2.streams;
        let server = self.http2.link(number).server;
        let assumed = self.http2.servers[usize::from(server)].streams_max;
        let link = self.http2.link(number);
        link.session = Http2Client::new(streams, assumed);
        link.stage = LinkStage::Greeting;
        self.http2.touch(number);
        self.send_waiting(number);
    }

    /// The server's settings have come.
    pub(super) fn settled(&mut self, number: u32) {
        let link = self.http2.link(number);
        let (stage, server) = (link.stage, usize::from(link.server));
        let (streams_max, is_kept) = (link.session.streams_max(), link.is_kept());
        let said = &mut self.http2.servers[server];
        (said.streams_max, said.is_proven) = (streams_max, true);
        if stage != LinkStage::Greeting {
            if is_kept {
                self.set_room(number, streams_max);
            }
            return;
        }
        let link = self.http2.link(number);
        self.opener.opened(&mut link.is_opening);
        link.stage = LinkStage::Open;
        // What was sent before may be all that the connection carries.
        let room = if link.is_kept() { streams_max } else { 0 };
        for (slot, index) in (0..).zip(self.http2.clients_of(number)) {
            let client = self.client(index);
            if !client.has_request {
                let has_room = slot < room;
                client.stage = if has_room { Stage::Idle } else { Stage::Closed };
            }
        }
        self.set_room(number, room);
    }

    /// A connection has not come to be of use. Requests that were to be sent over it have failed.
    #[cold]
    pub(super) fn link_failed(&mut self, number: u32, kind: ErrorKind) {
        let link = self.http2.link(number);
        self.opener.opened(&mut link.is_opening);
        link.close();
        let had_requests = self.fail_all(number, kind);
        if !had_requests && !self.time.is_started {
            self.recorder.tally(self.time.calendar.phase()).error(kind);
        }
        self.free_clients(number);
    }

    /// Fails the requests of all clients of a connection that is none any more; whether there were any.
    pub(super) fn fail_all(&mut self, number: u32, kind: ErrorKind) -> bool {
        self.http2.link(number).waiting.clear();
        let mut had_requests = false;
        for index in self.http2.clients_of(number) {
            self.client(index).stage = Stage::Closed;
            if !self.client(index).has_request {
                continue;
            }
            had_requests = true;
            self.count_failure(index, kind);
            if matches!(self.driver, Driver::Closed(_)) && !self.time.is_ending {
                self.pause(index);
            }
        }
        had_requests
    }

    /// Clients without a connection are free for requests, which open it again: as many as the server
    /// takes streams, as far as it has said.
    pub(in crate::engine) fn free_clients(&mut self, number: u32) {
        let server = usize::from(self.http2.link(number).server);
        let said = self.http2.servers[server];
        let room = match said.is_proven {
            true => said.streams_max.max(1), // a connection has to be opened for another number
            false => u32::MAX,
        };
        self.set_room(number, room);
    }

    /// Nothing is out over a connection that gets no further request: it is closed. Without the server's
    /// settings it has failed, and with it what was not sent.
    pub(super) fn see_to_drained(&mut self, number: u32) {
        let link = self.http2.link(number);
        let fate = link.fate;
        if fate == Fate::Kept || !link.stage.carries() || link.session.open_count() > 0 {
            return;
        }
        if link.stage == LinkStage::Greeting {
            return self.link_failed(number, ErrorKind::ConnectTimeout);
        }
        if fate == Fate::Spent {
            self.part_link(number);
        }
        let link = self.http2.link(number);
        link.close();
        let has_waiting = !link.waiting.is_empty();
        if self.time.is_ending {
            return;
        }
        match fate {
            Fate::Lost => self.reopen(number, ErrorKind::ClosedEarly),
            _ => {
                self.free_clients(number);
                if has_waiting {
                    self.connect_link(number);
                }
            }
        }
    }

    /// Opens a connection again that was lost. One that never served is opened when it is needed, not
    /// before: a server that closes whatever it accepts would be called without end.
    pub(super) fn reopen(&mut self, number: u32, kind: ErrorKind) {
        if self.time.is_ending {
            return;
        }
        if !self.http2.link(number).is_used {
            self.fail_all(number, kind);
            return self.free_clients(number);
        }
        let is_over = matches!(&self.driver, Driver::Closed(closed) if closed.is_exhausted());
        if !is_over || !self.http2.link(number).waiting.is_empty() {
            self.queue_link(number);
        }
    }

    /// The server does not speak HTTP/2, as far as is known: there is nothing to be measured.
    #[cold]
    pub(super) fn refuse_server(&mut self, number: u32) {
        let link = self.http2.link(number);
        let (server, is_secure) = (usize::from(link.server), link.layer.is_some());
        if !self.http2.servers[server].is_proven {
            let unfit = UnfitServer::without_http2(self.plan.servers[server], is_secure);
            self.secured.refuse(unfit);
        }
    }

    fn arm_link(&mut self, number: u32) {
        let index = self.clients.len() as u32 + number;
        let link = self.http2.link(number);
        link.is_timed = true;
        let deadline = Millis(link.deadline_ns.div_ceil(1_000_000));
        let generation = 0; // whichever connection it is
        self.wheel.arm(Token { index, generation }, deadline);
    }

    /// The time of a connection in the making has come.
    pub(in crate::engine) fn link_deadline(&mut self, number: u32) {
        let now_ns = self.time.now_ns;
        let link = self.http2.link(number);
        link.is_timed = false;
        match link.stage {
            LinkStage::Closed | LinkStage::Open => {}
            _ if link.deadline_ns > now_ns => self.arm_link(number),
            // Requests that are out have until their own timeouts. The last one ends the connection.
            LinkStage::Greeting if link.session.open_count() > 0 => {
                if link.fate == Fate::Kept {
                    self.drain(number, Fate::Lost);
                }
            }
            _ => self.link_failed(number, ErrorKind::ConnectTimeout),
        }
    }
}
