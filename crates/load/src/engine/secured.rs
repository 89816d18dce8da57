//! Connections whose bytes pass through a layer: the handshake, what is sent and what is received.
//!
//! What it is not: HTTP and its counts are those of the plain connections (`exchange`). Bytes that are
//! counted are HTTP's, not those of the layer's records.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use loadline_base::Buffer;
use loadline_proto::{Connector, Received};
use loadline_record::ErrorKind;
use loadline_sys::arrival::Stamped;

use super::Engine;
use super::client::Stage;
use super::exchange::wire;
use crate::Plan;
use crate::client_loop::ClientLoop as _;
use crate::secure_link::{SecureLink, UnfitServer};

/// The layers of a thread's connections.
#[derive(Debug)]
pub(super) struct Secured<'p> {
    connectors: &'p [Option<Arc<dyn Connector>>],
    /// By client; empty: no server has one.
    links: Vec<Option<Box<SecureLink>>>,
    /// Of each server: whether something has come from it, so that it fits.
    is_proven: Vec<bool>,
    /// What was received and is understood next.
    plain: Buffer,
    /// Why there is nothing to be measured.
    unfit: Option<UnfitServer>,
}

impl<'p> Secured<'p> {
    /// For so many clients.
    pub(super) fn new(plan: &'p Plan, clients: usize) -> Self {
        let has_some = plan.connectors.iter().any(Option::is_some);
        let links = if has_some { clients } else { 0 };
        Self {
            connectors: &plan.connectors,
            links: std::iter::repeat_with(|| None).take(links).collect(),
            is_proven: vec![false; plan.connectors.len()],
            plain: Buffer::default(),
            unfit: None,
        }
    }

    /// Whether this client's connection has a layer.
    #[inline]
    pub(super) fn has(&self, index: u32) -> bool {
        matches!(self.links.get(index as usize), Some(Some(_)))
    }

    /// What makes layers for a server.
    pub(super) fn connector(&self, server: u16) -> Option<&'p Arc<dyn Connector>> {
        self.connectors.get(usize::from(server))?.as_ref()
    }

    /// # Errors
    /// Why no connection will ever be of use.
    pub(super) fn check(&mut self) -> io::Result<()> {
        let unfit = self.unfit.take();
        unfit.map_or(Ok(()), |unfit| Err(io::Error::other(unfit)))
    }

    /// There is nothing to be measured.
    pub(super) fn refuse(&mut self, unfit: UnfitServer) {
        self.unfit = Some(unfit);
    }

    fn link(&mut self, index: u32) -> Option<&mut SecureLink> {
        self.links.get_mut(index as usize)?.as_deref_mut()
    }
}

impl Engine<'_> {
    /// A connection is there: its handshake begins.
    pub(super) fn begin_handshake(&mut self, index: u32, connector: &dyn Connector) {
        match SecureLink::begin(connector, self.time.now_ns) {
            Ok(link) => self.secured.links[index as usize] = Some(Box::new(link)),
            Err(_) => return self.not_connected(index, ErrorKind::Handshake),
        }
        self.client(index).stage = Stage::Handshaking;
        self.flush_link(index);
    }

    /// Sends what waits of a handshake, or of the request in hand.
    pub(super) fn send_secured(&mut self, index: u32) {
        if self.client(index).stage == Stage::Handshaking {
            return self.flush_link(index);
        }
        loop {
            let client = &self.clients[index as usize];
            let Some(link) = self.secured.link(index) else {
                return;
            };
            if link.is_flushed() {
                let request = &self.plan.mix.requests[client.request as usize];
                let bytes = wire(request, client.requests_left);
                link.seal(&bytes[client.sent_bytes as usize..]);
            }
            let socket = client.socket.as_ref();
            let Ok(count) = socket.map_or(Ok(0), |socket| link.flush(socket.as_fd())) else {
                return self.not_sent(index);
            };
            let is_blocked = !link.is_flushed();
            if count > 0 {
                self.sent(index, count);
            }
            if is_blocked || self.client(index).stage != Stage::Sending {
                return;
            }
        }
    }

    /// The connection takes nothing more. The server may have said why.
    #[cold]
    fn not_sent(&mut self, index: u32) {
        let generation = self.client(index).generation;
        self.receive(index, true);
        let client = self.client(index);
        if client.generation == generation && client.has_request {
            self.fail(index, ErrorKind::Reset);
        }
    }

    /// Sends what the layer itself has to say. A connection that takes nothing during its handshake has
    /// failed.
    fn flush_link(&mut self, index: u32) {
        let is_broken = self.give_link(index).is_err();
        if is_broken && self.client(index).stage == Stage::Handshaking {
            self.not_connected(index, ErrorKind::Reset);
        }
    }

    /// Gives the socket what it takes of what waits in the layer: parts of a request are counted as sent.
    fn give_link(&mut self, index: u32) -> io::Result<()> {
        let socket = self.clients[index as usize].socket.as_ref();
        let (Some(socket), Some(link)) = (socket, self.secured.link(index)) else {
            return Ok(());
        };
        let count = link.flush(socket.as_fd())?;
        if count > 0 {
            self.sent(index, count);
        }
        Ok(())
    }

    /// Takes in what was received. Whether the same connection may go on reading.
    pub(super) fn unseal(&mut self, index: u32, stamped: Stamped, is_half_closed: bool) -> bool {
        let mut plain = std::mem::take(&mut self.secured.plain);
        plain.clear();
        let goes_on = self.take_in(index, stamped, &mut plain, is_half_closed);
        self.secured.plain = plain;
        goes_on
    }

    fn take_in(
        &mut self,
        index: u32,
        stamped: Stamped,
        plain: &mut Buffer,
        is_half_closed: bool,
    ) -> bool {
        let generation = self.clients[index as usize].generation;
        let Some(link) = self.secured.link(index) else {
            return false;
        };
        let result = link.received(&mut self.buffer[..stamped.count], plain);
        if self.clients[index as usize].stage == Stage::Handshaking {
            self.time.look_at_clock(); // its computations took long: what is sent behind it is sent now
        }
        let (handshake, has_ended) = (link.handshake(self.time.now_ns), link.has_ended());
        if result.is_err() {
            let _ = self.give_link(index); // an alert, which the peer may have no use for
            self.layer_failed(index);
            return false;
        }
        self.flush_link(index);
        if let Some(handshake) = handshake
            && self.client(index).stage == Stage::Handshaking
        {
            let phase = self.time.calendar.phase();
            self.recorder.handshake(phase, handshake);
            self.sample_in_flight(self.time.now_ns);
            self.usable(index);
        }
        if self.client(index).generation != generation {
            return false;
        }
        if !plain.is_empty() {
            let server = self.clients[index as usize].server;
            self.secured.is_proven[usize::from(server)] = true;
            let received = self.took_plain(index, plain);
            if !self.understood(index, received, stamped.age_ns, is_half_closed || has_ended) {
                return false;
            }
        }
        if has_ended {
            self.cut(index);
        }
        !has_ended
    }

    /// The peer's bytes have ended, with the layer's own end or without.
    #[cold]
    pub(super) fn cut(&mut self, index: u32) {
        let link = self.secured.link(index);
        let has_ended = link.is_some_and(|link| link.has_ended());
        let client = self.client(index);
        match (client.stage, client.has_request) {
            (Stage::Handshaking, _) => self.not_connected(index, ErrorKind::ClosedEarly),
            // The end of the connection, which anybody can make, is not that of the content.
            (_, true) if !has_ended => match client.session.received_cut() {
                Received::Fault(fault) => self.faulted(index, fault),
                Received::Reply(_) | Received::More => self.fail(index, ErrorKind::ShortBody),
            },
            _ => self.ended(index),
        }
    }

    /// The peer has broken the layer's rules, or has not been accepted.
    #[cold]
    fn layer_failed(&mut self, index: u32) {
        let Some(link) = self.secured.link(index) else {
            return;
        };
        let (kind, failure) = (link.error_kind(), link.failure().cloned());
        let client = self.client(index);
        let (server, stage, has_request) = (client.server, client.stage, client.has_request);
        if let Some(failure) = failure
            && !self.secured.is_proven[usize::from(server)]
        {
            let address = self.plan.servers[usize::from(server)];
            self.secured.unfit = UnfitServer::new(address, &failure);
        }
        match stage {
            Stage::Handshaking => self.not_connected(index, kind),
            _ if has_request => self.fail(index, kind),
            _ => {
                self.recorder.tally(self.time.calendar.phase()).error(kind);
                self.lost_while_idle(index);
            }
        }
    }

    /// The client has no more to send over this connection, and closes it.
    pub(super) fn part(&mut self, index: u32) {
        let socket = self.clients[index as usize].socket.as_ref();
        if let (Some(socket), Some(link)) = (socket, self.secured.link(index)) {
            link.part(socket.as_fd());
        }
        self.client(index).close();
    }
}
