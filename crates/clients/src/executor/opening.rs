//! Connections come to be, or do not.

use loadline_base::Token;
use loadline_load::judge::connect_fault;
use loadline_load::secure_link::UnfitServer;
use loadline_record::ErrorKind;
use loadline_sys::{Interest, connect};

use super::Executor;
use super::drive::GoesOn;
use super::preparing::EarlyConnection;
use super::user_state::{Activity, Link};
use crate::{Event, Order};

/// Connections in the making at once before the start. Listeners have room for at least 128, mostly
/// 511 or 4096; one that is full drops what comes, and the kernel tries again after a second.
const OPENING_MAX: u32 = 256;

impl Executor<'_> {
    /// Asks for a first order, before the start; a user that prepares waits for its turn.
    pub(super) fn ask_beforehand(&mut self, index: u32) {
        if let Some(user) = &mut self.users[index as usize]
            && user.virtual_user.prepares()
        {
            user.activity = Activity::Unprepared;
            return self.preparing.push(index);
        }
        let order = self.call(index, |user, context| user.next_order(context));
        let (Some(order), Some(user)) = (order, &mut self.users[index as usize]) else {
            return;
        };
        if order == Order::Connect {
            user.activity = Activity::Queued;
            self.opening.push(index);
        } else {
            user.activity = Activity::Held(order);
        }
    }

    /// Goes on opening, within the bound.
    pub(super) fn open_more(&mut self) {
        while let Some(index) = self.opening.next(OPENING_MAX) {
            let user = self.users[index as usize].as_ref();
            if user.is_some_and(|user| matches!(user.activity, Activity::Queued)) {
                self.opening.begin();
                let _ = self.connect(index); // the outcome is kept for the start
            }
        }
    }

    /// Begins to connect.
    pub(super) fn connect(&mut self, index: u32) -> Option<GoesOn> {
        self.time.look_at_clock();
        let user = self.users[index as usize].as_mut()?;
        let user_group = &self.user_groups[usize::from(user.user_group)];
        let address = self.plan.servers[usize::from(user_group.server)];
        let sources = match user_group.sources.is_empty() {
            true => &self.plan.sources,
            false => &user_group.sources,
        };
        let at = user.number % sources.len().max(1) as u64;
        let source = sources.get(at as usize).copied();
        user.activity = Activity::Connecting;
        user.link = None;
        let socket = match connect::connect(&address, source, user_group.receive_buffer_bytes) {
            Ok(socket) => socket,
            Err(error) => return self.not_connected(index, connect_fault(&error)),
        };
        let generation = self.begun;
        self.begun = self.begun.wrapping_add(1);
        let bits = Token { index, generation }.to_bits();
        if let Err(error) = self.poller.add(&socket, bits, Interest::Connection) {
            return self.not_connected(index, connect_fault(&error));
        }
        user.link = Some(Link::new(socket, generation, self.time.now_ns));
        let until_ns = self.time.now_ns.saturating_add(self.plan.timeout_ns);
        user.until_ns = until_ns;
        self.timers.set(index, until_ns);
        None
    }

    /// Looks what has become of a connection in the making.
    pub(super) fn connecting(&mut self, index: u32) -> Option<GoesOn> {
        let user = self.users[index as usize].as_mut()?;
        let link = user.link.as_ref();
        let Some(link) = link.filter(|link| link.is_decided) else {
            if user.until_ns > self.time.now_ns {
                return None;
            }
            return self.not_connected(index, ErrorKind::ConnectTimeout);
        };
        if let Err(error) = connect::outcome(link.fd()) {
            return self.not_connected(index, connect_fault(&error));
        }
        self.time.look_at_clock();
        let (phase, now_ns) = (self.time.calendar.phase(), self.time.now_ns);
        let took_ns = now_ns.saturating_sub(link.begun_ns);
        match user.virtual_user.prepares() {
            true => {
                let connection = EarlyConnection {
                    took_ns,
                    handshake: None,
                };
                self.early_connections.insert(index, connection);
            }
            false => self.recorder.group(user.group).connected(phase, took_ns),
        }
        let user_group = &self.user_groups[usize::from(user.user_group)];
        let connector = self.plan.connectors.get(usize::from(user_group.server));
        match connector.and_then(Option::as_ref) {
            None => self.usable(index),
            Some(connector) => {
                let link = user.link.as_mut()?;
                if link.secure(&**connector, now_ns).is_err() {
                    return self.not_connected(index, ErrorKind::Handshake);
                }
                user.activity = Activity::Handshaking;
                Some(GoesOn)
            }
        }
    }

    /// Goes on with the handshake of a connection's layer.
    pub(super) fn handshaking(&mut self, index: u32) -> Option<GoesOn> {
        let user = self.users[index as usize].as_mut()?;
        self.time.look_at_clock();
        let now_ns = self.time.now_ns;
        let is_late = user.until_ns <= now_ns;
        match user.link.as_mut()?.shake(&mut self.buffer, now_ns) {
            Ok(Some(handshake)) => {
                let phase = self.time.calendar.phase();
                match self.early_connections.get_mut(&index) {
                    Some(early) => early.handshake = Some(handshake),
                    None => self.recorder.group(user.group).handshake(phase, handshake),
                }
                self.usable(index)
            }
            Ok(None) if is_late => self.not_connected(index, ErrorKind::ConnectTimeout),
            Ok(None) => None,
            Err(kind) => {
                self.look_at_failure(index);
                self.not_connected(index, kind)
            }
        }
    }

    /// A layer has failed: perhaps no connection will be of use.
    pub(super) fn look_at_failure(&mut self, index: u32) {
        let user = self.users[index as usize].as_ref();
        if let Some(user) = user.filter(|_| !self.is_proven)
            && let Some(failure) = user.link.as_ref().and_then(Link::failure)
        {
            let user_group = &self.user_groups[usize::from(user.user_group)];
            let address = self.plan.servers[usize::from(user_group.server)];
            self.unfit = UnfitServer::new(address, failure);
        }
    }

    /// There is a connection now.
    fn usable(&mut self, index: u32) -> Option<GoesOn> {
        let user = self.users[index as usize].as_mut()?;
        self.timers.clear(index);
        user.until_ns = u64::MAX;
        if !self.time.is_started && !user.is_preparing {
            user.activity = Activity::Opened(Ok(()));
            self.opening.end();
            return None;
        }
        self.time.look_at_clock();
        self.notify(index, Event::Connected)
    }

    fn not_connected(&mut self, index: u32, kind: ErrorKind) -> Option<GoesOn> {
        let user = self.users[index as usize].as_ref();
        if self.time.is_started || user.is_some_and(|user| user.is_preparing) {
            return self.failed(index, kind);
        }
        self.timers.clear(index);
        if let Some(user) = &mut self.users[index as usize] {
            user.link = None;
            user.activity = Activity::Opened(Err(kind));
            self.opening.end();
        }
        None
    }

    /// A user with this activity no longer prepares, or opens a connection before the start.
    pub(super) fn end_turn(&mut self, activity: &Activity, was_preparing: bool) {
        let was_opening = matches!(activity, Activity::Connecting | Activity::Handshaking);
        if was_preparing {
            self.preparing.end();
        } else if was_opening && !self.time.is_started {
            self.opening.end();
        }
    }
}
