//! How a loop goes down: the last new connections, the last requests, the end.

use std::io;
use std::sync::Arc;

use loadline_base::{Millis, Token};
use loadline_proto::{CloseReason, Handler};

use super::loop_group::LoopGroup;
use super::{Acceptance, EventLoop};
use crate::accept::listener_set::ListenerSet;
use crate::connection::Connection;
use crate::shutdown::{FIRST_REQUEST_GRACE_MS, Stage};
use crate::site::Site;
use crate::telemetry::counters::Role;
use crate::thread::context::ThreadContext;
use crate::transport::Driver;
use crate::transport::socket::Socket;
use crate::worker::job::Message;
use crate::worker::job::Work;

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
        if self.listeners.is_some() {
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
        self.slots.is_empty() && !self.group.is_sending() && !self.dispatcher.mailbox.has_mail()
    }

    /// Takes in what has connected by now, closes the listeners, and drains every connection.
    pub(super) fn begin_to_drain(&mut self) -> io::Result<()> {
        self.stage = Stage::Draining;
        self.keep_leaving();
        self.is_room_short = true;
        self.want_connections(); // those that wait for their clients drain here
        if D::REPORTS_BEFORE_DRAIN {
            self.report_all()?;
        }
        match &mut self.listeners {
            Some(listeners) => {
                listeners.begin_drain();
                self.accept_last()?;
            }
            None => self.group.stops_sending(), // from now on it passes no connection on
        }
        for index in 0..self.slots.slot_count() {
            if let Some(token) = self.slots.token_at(index) {
                self.begin_connection_drain(token);
            }
        }
        Ok(())
    }

    /// What has come by now was accepted: it is reported before idle connections drain.
    fn report_all(&mut self) -> io::Result<()> {
        self.is_reporting = true;
        for _ in 0..2 {
            if self.sockets() {
                self.accept_batch()?;
            }
            self.driver.wait(Some(0))?;
        }
        self.sockets();
        self.is_reporting = false;
        Ok(())
    }

    /// Connections that the driver has accepted before it stopped accepting. The listeners have to
    /// stay open until then.
    fn report_rest(&mut self) -> io::Result<()> {
        self.sockets();
        self.driver.wait(Some(0))?;
        self.sockets();
        Ok(())
    }

    /// Takes in what is left in the backlog; then closes the listeners.
    pub(super) fn accept_last(&mut self) -> io::Result<()> {
        self.accept_batch()?;
        if self.listeners.as_ref().is_some_and(ListenerSet::is_drained) {
            if let Some(mut listeners) = self.listeners.take() {
                listeners.unwatch(&mut self.driver);
                if D::REPORTS_BEFORE_DRAIN {
                    self.report_rest()?;
                }
            }
            self.group.stops_sending();
        }
        Ok(())
    }

    /// Starts draining one connection. Deferred while a worker holds it or received bytes are still
    /// unreported; a new connection gets 250 ms to send its first request.
    pub(super) fn begin_connection_drain(&mut self, token: Token) {
        let Some(slot) = self.slots.get_mut(token) else {
            return;
        };
        let Some(connection) = &mut slot.connection else {
            return;
        };
        if slot.knows_drain {
            return;
        }
        if slot.acceptance == Acceptance::OverCapacity {
            return self.abort(token, CloseReason::OverCapacity);
        }
        let idle_since = slot.idle_since;
        let grace_ends = Millis(idle_since.0 + FIRST_REQUEST_GRACE_MS);
        let may_wait = slot.acceptance == Acceptance::Served && self.thread.now() < grace_ends;
        if connection.drain(may_wait, &mut self.driver, &mut self.thread.cx()) {
            slot.knows_drain = true;
            self.drive(token);
        } else {
            self.settle(token);
            self.timers.arm(token, grace_ends);
            if let Some(slot) = self.slots.get_mut(token) {
                slot.idle_since = idle_since; // its time goes on
            }
        }
    }

    /// What is left is closed now; what a worker still has, when that is done with it.
    pub(super) fn cut(&mut self) {
        let mut mail = std::mem::take(&mut self.mail);
        self.dispatcher.mailbox.take(&mut mail);
        let mut in_mail = 0;
        for message in mail {
            match message {
                Message::Handoff(_) => in_mail += 1,
                Message::Moving(moving) => self.take_in_moving(*moving),
                Message::Done {
                    token,
                    work: Work::Serve(served),
                } => self.take_back(token, served),
                Message::Done { .. } | Message::Task { .. } => {}
                Message::MakeRoom | Message::MakeRoomOf { .. } | Message::Move { .. } => {}
            }
        }
        let taken_in = self.slots.len() as u64;
        self.site.registry.cut.add(taken_in + in_mail);
        for index in 0..self.slots.slot_count() {
            if let Some(token) = self.slots.token_at(index) {
                self.abort(token, CloseReason::Drained);
            }
        }
    }
}

/// Closes the connections that were on their way when the loops were cut: at workers
/// (`--socket-io worker`), once those have left them, or to loops that had ended.
pub(super) fn close_those_on_their_way<H: Handler>(site: &Arc<Site<H>>, group: &LoopGroup) {
    let mut thread = ThreadContext::with_read_buffer(site, Role::Loop, 0);
    let mut mail = Vec::new();
    for handle in group.loops() {
        handle.mailbox.take(&mut mail);
        for message in mail.drain(..) {
            match message {
                Message::Done {
                    work: Work::Serve(mut served),
                    ..
                } => {
                    if let Some(connection) = served.connection.take() {
                        thread.stats.connections.sub(1);
                        close(connection, &mut thread);
                    }
                }
                Message::Moving(moving) => {
                    site.registry.cut.add(1);
                    if let Some(connection) = moving.into_connection() {
                        close(connection, &mut thread);
                    }
                }
                _ => {}
            }
        }
    }
}

fn close<H: Handler>(mut connection: Connection<Socket>, thread: &mut ThreadContext<H>) {
    connection.abort(CloseReason::Drained);
    let record = connection.end(&mut (), &mut thread.cx());
    thread.log_closed(record);
}
