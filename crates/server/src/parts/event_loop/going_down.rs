//! How a loop goes down: the last newcomers, the last requests, the end.

use std::io;

use loadline_base::{Millis, Token};
use loadline_proto::{CloseReason, Handler};

use super::driver::Driver;
use super::fleet::Fleet;
use super::{EventLoop, Standing};
use crate::kit::Kit;
use crate::options::SocketIo;
use crate::parts::counters::Role;
use crate::parts::dispatch::Work;
use crate::parts::door::Door;
use crate::parts::shutdown::Stage;
use crate::parts::workers::Message;
use crate::site::Site;

/// How long a newcomer may take with its first bytes while the server goes down: its connection
/// was complete, so its request is as good as on its way.
const LAST_PATIENCE_MS: u64 = 250;

impl<H: Handler, D: Driver> EventLoop<H, D> {
    /// Follows the stages of a shutdown. First of all, so that requests that come after it are
    /// answered with `Connection: close`.
    pub(super) fn follow_shutdown(&mut self) -> io::Result<()> {
        if self.stage == Stage::Up {
            if self.site.shutdown.is_draining() {
                self.begin_to_drain()?;
            }
            return Ok(());
        }
        if self.door.is_some() {
            self.accept_last()?;
        }
        Ok(())
    }

    /// Whether nothing is left to do here, be it that time is up.
    pub(super) fn is_finished(&mut self) -> bool {
        if self.stage == Stage::Up {
            return false;
        }
        if self.site.shutdown.is_cut(self.site.clock.now()) {
            self.cut();
            return true;
        }
        self.slots.is_empty() && !self.fleet.is_sending() && !self.dispatcher.mailbox.has_mail()
    }

    /// Takes in whoever has connected by now, closes the door, and tells every connection.
    pub(super) fn begin_to_drain(&mut self) -> io::Result<()> {
        self.stage = Stage::Draining;
        if D::HEARS_BEFORE_DRAIN {
            self.hear_all()?;
        }
        match &mut self.door {
            Some(door) => {
                door.begin_drain();
                self.accept_last()?;
            }
            None => self.fleet.stops_sending(), // from now on it keeps whom it gets
        }
        for index in 0..self.slots.slot_count() {
            if let Some(token) = self.slots.token_at(index) {
                self.tell_going_down(token);
            }
        }
        Ok(())
    }

    /// What has come by now was accepted: it is heard before idle connections are told.
    fn hear_all(&mut self) -> io::Result<()> {
        self.hearing = true;
        for _ in 0..2 {
            if self.sockets() {
                self.accept_batch()?;
            }
            self.driver.wait(Some(0))?;
        }
        self.sockets();
        self.hearing = false;
        Ok(())
    }

    /// Whom the driver has accepted before it knew that nobody is to be accepted any more. The
    /// listeners have to stay open until then.
    fn hear_rest(&mut self) -> io::Result<()> {
        self.sockets();
        self.driver.wait(Some(0))?;
        self.sockets();
        Ok(())
    }

    /// Takes in who is left in the backlog; then closes the door.
    pub(super) fn accept_last(&mut self) -> io::Result<()> {
        self.accept_batch()?;
        if self.door.as_ref().is_some_and(Door::is_drained) {
            if let Some(mut door) = self.door.take() {
                door.unwatch(&mut self.driver);
                if D::HEARS_BEFORE_DRAIN {
                    self.hear_rest()?;
                }
            }
            self.fleet.stops_sending();
        }
        Ok(())
    }

    /// Tells a connection that the server is going down, once; one that a worker has, when it is
    /// back; one that was not told all that has come to it, when it was; a newcomer, when its first
    /// bytes came or its patience is over.
    pub(super) fn tell_going_down(&mut self, token: Token) {
        let Some(slot) = self.slots.get_mut(token) else {
            return;
        };
        let Some(connection) = &mut slot.connection else {
            return;
        };
        if slot.told {
            return;
        }
        if slot.standing == Standing::OverCapacity {
            return self.abort(token, CloseReason::OverCapacity);
        }
        let idle_since = slot.idle_since;
        let patience_ends = Millis(idle_since.0 + LAST_PATIENCE_MS);
        let patient = slot.standing == Standing::Served && self.kit.now() < patience_ends;
        if connection.drain(patient, &mut self.driver, &mut self.kit.turn()) {
            slot.told = true;
            self.attend(token);
        } else {
            self.settle(token);
            self.timers.arm(token, patience_ends);
            if let Some(slot) = self.slots.get_mut(token) {
                slot.idle_since = idle_since; // the same patience goes on
            }
        }
    }

    /// What is left is closed now; what a worker still has, when that is done with it.
    pub(super) fn cut(&mut self) {
        let mut mail = std::mem::take(&mut self.mail);
        self.dispatcher.mailbox.take(&mut mail);
        let mut unseated = 0;
        for message in mail {
            match message {
                Message::Handoff(_) => unseated += 1,
                Message::Done {
                    token,
                    work: Work::Serve(served),
                } => self.take_back(token, served),
                Message::Done { .. } | Message::Task { .. } | Message::MakeRoom => {}
            }
        }
        let seated = self.slots.len() as u64;
        self.site.registry.cut.add(seated + unseated);
        for index in 0..self.slots.slot_count() {
            if let Some(token) = self.slots.token_at(index) {
                self.abort(token, CloseReason::Drained);
            }
        }
    }
}

/// Closes the connections that workers had when the loops were cut (`--socket-io worker`), once the
/// workers have left them.
pub(super) fn close_those_of_workers<H: Handler>(site: &Site<H>, fleet: &Fleet) {
    if site.options.socket_io != SocketIo::Worker {
        return;
    }
    let mut kit = Kit::with_scratch(site, Role::Loop, 0);
    let mut mail = Vec::new();
    for member in fleet.members() {
        member.mailbox.take(&mut mail);
        for message in mail.drain(..) {
            let Message::Done {
                work: Work::Serve(mut served),
                ..
            } = message
            else {
                continue;
            };
            if let Some(mut connection) = served.connection.take() {
                connection.abort(CloseReason::Drained);
                kit.row.connections.sub(1);
                let record = connection.end(&mut (), &mut kit.turn());
                kit.journal_closed(record);
            }
        }
    }
}
