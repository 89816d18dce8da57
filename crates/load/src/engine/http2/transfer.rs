//! Bytes between the sockets of HTTP/2 and their sessions, with or without a layer.

use std::io;
use std::os::fd::AsFd;

use loadline_base::Buffer;
use loadline_record::ErrorKind;
use loadline_sys::arrival::{self, Stamped};
use loadline_sys::{Event, connect, socket};

use super::{LinkStage, token};
use crate::client_loop::ClientLoop as _;
use crate::engine::client::Stage;
use crate::engine::exchange::{RECEIVE_BYTES, RECEIVES_MAX, is_stamped, unstamped};
use crate::engine::{Driver, Engine};
use crate::judge;
use crate::secure_link::{SEALED_BYTES_MAX, UnfitServer};

impl Engine<'_> {
    /// Gives all output to the sockets.
    #[inline]
    pub(in crate::engine) fn flush_links(&mut self) {
        if self.http2.dirty.is_empty() {
            return;
        }
        // What is sent in any case takes them with it.
        if matches!(self.driver, Driver::Closed(_)) {
            self.begin_ready();
        }
        while let Some(number) = self.http2.dirty.pop() {
            self.http2.link(number).is_dirty = false;
            self.flush_output(number);
        }
    }

    pub(super) fn flush_output(&mut self, number: u32) {
        if !self.http2.link(number).stage.carries() {
            return;
        }
        loop {
            if self.http2.link(number).session.may_go_on() {
                self.go_on_with_content(number);
            }
            let is_last = self.http2.link(number).session.output().is_empty();
            self.time.look_at_clock();
            let Ok(is_blocked) = self.give_output(number) else {
                return self.not_taken(number);
            };
            if is_last || is_blocked {
                return;
            }
        }
    }

    /// Gives the socket what it takes; whether it takes no more for now.
    pub(super) fn give_output(&mut self, number: u32) -> io::Result<bool> {
        let link = self.http2.link(number);
        let Some(socket) = &link.socket else {
            return Ok(false);
        };
        let waiting = link.session.output().len();
        let (count, is_blocked) = match &mut link.layer {
            None if waiting == 0 => (0, false),
            None => {
                let sent = connect::send(socket.as_fd(), link.session.output())?;
                let count = sent.unwrap_or(0);
                (count, count < waiting)
            }
            Some(layer) => {
                let mut count = 0;
                if layer.is_flushed() && waiting > 0 {
                    count = waiting.min(SEALED_BYTES_MAX);
                    layer.seal(&link.session.output()[..count]);
                }
                layer.flush(socket.as_fd())?;
                (count, !layer.is_flushed())
            }
        };
        link.session.sent(count);
        link.is_blocked = is_blocked;
        if count > 0 {
            self.sent_some(number, count);
        }
        Ok(is_blocked)
    }

    /// So many bytes have left: requests among them are sent.
    #[inline]
    fn sent_some(&mut self, number: u32, count: usize) {
        let phase = self.time.calendar.phase();
        self.recorder.tally(phase).bytes_sent += count as u64;
        let (sent, _) = self.http2.link(number).session.progress();
        while let Some((index, begin)) = self.http2.link(number).unsent.front().copied()
            && begin < sent
        {
            self.http2.link(number).unsent.pop_front();
            let client = &mut self.clients[index as usize];
            if !client.has_request || client.stage != Stage::Sending {
                continue; // given up meanwhile
            }
            client.stage = Stage::Awaiting;
            client.sent_bytes = 1;
            self.begun(index);
        }
    }

    /// Content of requests that waited for room.
    #[cold]
    fn go_on_with_content(&mut self, number: u32) {
        let Some(plan) = self.http2.plan else {
            return;
        };
        let first = self.http2.clients_of(number).start;
        let (clients, requests) = (&self.clients, &self.plan.mix.requests);
        self.http2.links[number as usize].session.go_on(|slot| {
            let request = clients[(first + slot) as usize].request as usize;
            &requests[request].keep[plan.requests[request].body_start..]
        });
    }

    /// The socket takes nothing more. The server may have said why.
    #[cold]
    fn not_taken(&mut self, number: u32) {
        let generation = self.http2.link(number).generation;
        self.receive_link(number, true);
        if self.http2.link(number).generation == generation {
            self.link_lost(number, ErrorKind::Reset);
        }
    }

    /// Sends what a layer has to say.
    pub(super) fn flush_layer(&mut self, number: u32) {
        let link = self.http2.link(number);
        let (Some(socket), Some(layer)) = (&link.socket, &mut link.layer) else {
            return;
        };
        let is_broken = layer.flush(socket.as_fd()).is_err();
        if is_broken && link.stage == LinkStage::Handshaking {
            self.link_failed(number, ErrorKind::Reset);
        }
    }

    /// The client sends no further request over this connection.
    pub(super) fn part_link(&mut self, number: u32) {
        self.http2.link(number).session.end();
        let _ = self.give_output(number); // the end of the connection says it, too
        let link = self.http2.link(number);
        if let (Some(socket), Some(layer)) = (&link.socket, &mut link.layer) {
            layer.part(socket.as_fd());
        }
    }

    /// Something has happened on the socket of a connection.
    pub(in crate::engine) fn link_event(&mut self, number: u32, generation: u32, event: Event) {
        if self.http2.link(number).generation != generation {
            return;
        }
        if self.http2.link(number).stage == LinkStage::Connecting {
            if !event.is_writable() {
                return;
            }
            self.link_connected(number, event.is_gone());
        }
        if event.is_readable() && self.http2.link(number).generation == generation {
            self.receive_link(number, event.is_half_closed());
        }
        let link = self.http2.link(number);
        if link.generation != generation || !event.is_writable() {
            return;
        }
        match link.stage {
            LinkStage::Handshaking => self.flush_layer(number),
            _ if link.is_blocked => self.http2.touch(number),
            _ => {}
        }
    }

    /// Goes on reading a connection that had more than [`RECEIVES_MAX`] reads take.
    pub(in crate::engine) fn receive_more_of_link(
        &mut self,
        number: u32,
        generation: u32,
        is_half_closed: bool,
    ) {
        if self.http2.link(number).generation == generation {
            self.receive_link(number, is_half_closed);
        }
    }

    /// Reads what is there. `is_half_closed`: the peer will send no more after it.
    pub(super) fn receive_link(&mut self, number: u32, is_half_closed: bool) {
        let mut buffer = std::mem::take(&mut self.buffer);
        self.receive_into(number, is_half_closed, &mut buffer[..RECEIVE_BYTES]);
        self.buffer = buffer;
    }

    fn receive_into(&mut self, number: u32, is_half_closed: bool, buffer: &mut [u8]) {
        for _ in 0..RECEIVES_MAX {
            let link = self.http2.link(number);
            let Some(socket) = &link.socket else {
                return;
            };
            let received = match is_stamped(number) {
                true => arrival::receive(socket.as_fd(), buffer, false),
                false => socket::receive(socket.as_fd(), buffer).map(unstamped),
            };
            self.time.look_at_clock();
            let stamped = match received {
                Ok(None) => return,
                Ok(Some(Stamped { count: 0, .. })) => {
                    return self.link_lost(number, ErrorKind::ClosedEarly);
                }
                Ok(Some(stamped)) => stamped,
                Err(error) => return self.link_broken(number, &error),
            };
            let link = self.http2.link(number);
            link.received_ns = self.time.now_ns;
            let is_sealed = link.layer.is_some();
            let answered = self.http2.answered;
            let bytes = &mut buffer[..stamped.count];
            let goes_on = match is_sealed {
                false => self.took_frames(number, bytes),
                true => self.took_sealed(number, bytes),
            };
            if let Some(age_ns) = stamped.age_ns.filter(|_| self.http2.answered > answered) {
                self.time.meter.read_lagged(age_ns);
            }
            if !goes_on || (stamped.count < RECEIVE_BYTES && !is_half_closed) {
                return;
            }
        }
        let clients = self.clients.len();
        let token = token(self.http2.link(number), number, clients);
        self.unread.push_back((token, is_half_closed));
    }

    /// Takes in bytes of HTTP/2.
    #[inline]
    fn took_frames(&mut self, number: u32, bytes: &[u8]) -> bool {
        let phase = self.time.calendar.phase();
        self.recorder.tally(phase).bytes_received += bytes.len() as u64;
        self.feed(number, bytes)
    }

    /// Takes in bytes that come through a layer.
    fn took_sealed(&mut self, number: u32, bytes: &mut [u8]) -> bool {
        let mut plain = std::mem::take(&mut self.http2.plain);
        plain.clear();
        let goes_on = self.opened(number, bytes, &mut plain);
        self.http2.plain = plain;
        goes_on
    }

    fn opened(&mut self, number: u32, bytes: &mut [u8], plain: &mut Buffer) -> bool {
        let link = self.http2.link(number);
        let Some(layer) = &mut link.layer else {
            return false;
        };
        let is_handshake = link.stage == LinkStage::Handshaking;
        let result = layer.received(bytes, plain);
        if is_handshake {
            self.time.look_at_clock(); // its computations took long
        }
        if result.is_err() {
            if let Some(socket) = &link.socket {
                let _ = layer.flush(socket.as_fd()); // an alert, which the peer may have no use for
            }
            self.link_layer_failed(number);
            return false;
        }
        let (now_ns, generation) = (self.time.now_ns, link.generation);
        self.flush_layer(number);
        let link = self.http2.link(number);
        let Some(layer) = link
            .layer
            .as_ref()
            .filter(|_| link.generation == generation)
        else {
            return false;
        };
        let (handshake, has_ended) = (layer.handshake(now_ns), layer.has_ended());
        let is_agreed = layer.is_http2();
        if let Some(handshake) = handshake.filter(|_| is_handshake) {
            let phase = self.time.calendar.phase();
            self.recorder.handshake(phase, handshake);
            self.sample_in_flight(now_ns);
            if !is_agreed {
                self.refuse_server(number);
                self.link_failed(number, ErrorKind::Handshake);
                return false;
            }
            self.greet(number);
        }
        if !plain.is_empty() && !self.took_frames(number, plain) {
            return false;
        }
        if has_ended {
            self.link_lost(number, ErrorKind::ClosedEarly);
        }
        !has_ended
    }

    #[cold]
    fn link_broken(&mut self, number: u32, error: &io::Error) {
        let kind = match self.http2.link(number).stage {
            LinkStage::Connecting | LinkStage::Handshaking => judge::connect_fault(error),
            _ => judge::broken(error),
        };
        self.link_lost(number, kind);
    }

    /// The peer has broken the rules of the layer, or has not been accepted.
    #[cold]
    fn link_layer_failed(&mut self, number: u32) {
        let link = self.http2.link(number);
        let Some(layer) = &link.layer else {
            return;
        };
        let (kind, server) = (layer.error_kind(), usize::from(link.server));
        if let Some(failure) = layer.failure().cloned()
            && !self.http2.servers[server].is_proven
        {
            let address = self.plan.servers[server];
            if let Some(unfit) = UnfitServer::new(address, &failure) {
                self.secured.refuse(unfit);
            }
        }
        let link = self.http2.link(number);
        if link.stage == LinkStage::Open && link.session.open_count() == 0 {
            self.recorder.tally(self.time.calendar.phase()).error(kind);
        }
        self.link_lost(number, kind);
    }
}
