//! Drives one connection: where, and what becomes of it then.

use std::sync::atomic::Ordering::Relaxed;

use loadline_base::{LogLimit, Millis, Token};
use loadline_proto::{CloseReason, Handler};

use super::{Acceptance, EventLoop, LONG_TURN_US, connection_at, connection_at_mut};
use crate::connection::Step;
use crate::fairness::ClientKey;
use crate::options::SocketIo;
use crate::overload::TurnControl;
use crate::telemetry::log;
use crate::transport::{Driver, LoopTransport};
use crate::worker::dispatcher::OnLoop;

impl<H: Handler, D: Driver> EventLoop<H, D> {
    /// Drives a connection, here or at a worker.
    #[inline]
    pub(super) fn drive(&mut self, token: Token) {
        if self.site.options.socket_io == SocketIo::Worker && !self.stays_here(token) {
            self.hand_over(token);
        } else {
            self.drive_here(token);
        }
    }

    /// Whether the loop drives it though workers serve connections: what its tasks, its blocking steps and
    /// other work come to is sent here. And while jobs wait, the loop receives what many requests of a
    /// connection are, so that none of them waits twice, and each is judged by itself. An idle connection that
    /// its client has closed needs no worker; as a job it would count before the client's next request.
    fn stays_here(&self, token: Token) -> bool {
        connection_at(&self.slots, token).is_some_and(|connection| {
            connection.has_tasks()
                || connection.has_steps()
                || connection.has_work_out::<D>()
                || (connection.is_multiplexed() && self.dispatcher.has_jobs())
                || (connection.is_idle::<D>() && connection.transport().is_at_end())
        })
    }

    /// Drives a connection here, until it waits, has had its share, or is closed.
    #[inline]
    pub(super) fn drive_here(&mut self, token: Token) {
        let now_us = self.thread.now_us();
        let computes = self.dispatcher.workers.is_none();
        let may_have_waited = self.thread.turn.as_ref().is_some_and(|turn| {
            turn.is_long_with_handshakes(now_us, LONG_TURN_US)
                || (D::REPORTS_BEFORE_DRAIN
                    && computes
                    && turn.is_long_behind(now_us, LONG_TURN_US))
        });
        match may_have_waited {
            true => self.drive_by_kernel(token, now_us),
            false => self.drive_now(token),
        }
    }

    /// In a long turn. The first request behind a handshake is judged by when it came, and on a ring each that is its
    /// connection's only one: a new connection has waited twice, to be accepted and for what it has sent.
    #[cold]
    fn drive_by_kernel(&mut self, token: Token, now_us: u64) {
        let turn = self.thread.turn.as_ref();
        let rested_until = Millis(turn.map_or(now_us, TurnControl::oldest_us) / 1000); // at least
        let came_us = connection_at(&self.slots, token).and_then(|connection| {
            let is_awaited = connection.handshake_us(rested_until) > 0
                || (D::REPORTS_BEFORE_DRAIN && !connection.is_multiplexed());
            let ago_ms =
                is_awaited.then(|| connection.transport().received_ago_ms(&self.driver))??;
            Some(now_us.saturating_sub(u64::from(ago_ms) * 1000))
        });
        match came_us {
            Some(_) => {
                self.judge_by(came_us);
                self.drive_now(token);
                self.judge_by(None);
            }
            None => self.drive_now(token),
        }
    }

    #[inline]
    fn drive_now(&mut self, token: Token) {
        let Some(slot) = self.slots.get_mut(token) else {
            return;
        };
        let Some(connection) = &mut slot.connection else {
            return;
        };
        let load = &self.group.loops()[self.index].load;
        let placement = &mut OnLoop::new(&self.dispatcher, token, load);
        let step = connection.drive(&mut self.thread, &mut self.driver, placement);
        let queued = placement.queued;
        self.jobs_are_out(token, queued);
        match step {
            Step::Wait => self.settle(token),
            Step::Again => self.queue(token),
            Step::Start(exchange, steps) => {
                self.start_task(token, exchange, steps);
                self.queue(token);
            }
            Step::Block(exchange, steps) => {
                self.queue_step(token, exchange, steps);
                self.queue(token);
            }
            Step::Close => self.close(token),
        }
        self.charge(token);
    }

    /// Nothing to do for it before an event: watches the socket and the time.
    #[inline]
    pub(super) fn settle(&mut self, token: Token) {
        let Some(slot) = self.slots.get_mut(token) else {
            return;
        };
        let Some(connection) = &mut slot.connection else {
            return;
        };
        if let Err(error) = connection.transport_mut().settle(token, &mut self.driver) {
            static LIMIT: LogLimit = LogLimit::new(log::LINES_MAX);
            log::say_within(&LIMIT, |more| {
                tracing::warn!("watching a connection: {error}{more}");
            });
            return self.abort(token, CloseReason::Failed);
        }
        if let Some(deadline) = connection.deadline::<D>() {
            self.timers.arm(token, deadline);
        }
        if connection.is_idle::<D>() && slot.acceptance == Acceptance::Served {
            if !(connection.transport_mut().rests_on() && self.idle.contains(token.index)) {
                slot.idle_since = self.thread.now();
                self.idle.push_last(token.index);
            }
        } else {
            self.idle.remove(token.index);
        }
        self.note_memory(token);
    }

    /// It has used up its share: others first. No event will come for it.
    pub(super) fn queue(&mut self, token: Token) {
        let Some(slot) = self.slots.get_mut(token) else {
            return;
        };
        if !slot.queued {
            slot.queued = true;
            self.again.push(token);
        }
        self.idle.remove(token.index);
        if let Some(connection) = &mut slot.connection {
            connection.transport_mut().queued();
            if let Some(deadline) = connection.deadline::<D>() {
                self.timers.arm(token, deadline);
            }
        }
        self.note_memory(token);
    }

    pub(super) fn abort(&mut self, token: Token, reason: CloseReason) {
        if let Some(connection) = connection_at_mut(&mut self.slots, token) {
            connection.abort(reason);
            self.close(token);
        }
    }

    pub(super) fn close(&mut self, token: Token) {
        let Some(slot) = self.slots.remove(token) else {
            return;
        };
        self.release_memory(token, slot.footprint);
        // Before the close is counted: a reader that sees all closed sees none connected.
        self.thread.stats.connections.sub(1);
        let mut client = match self.proxied.is_empty() {
            true => ClientKey::NOBODY,
            false => self.proxied.remove(&token.index).unwrap_or_default(),
        };
        if let Some(connection) = slot.connection {
            if client.is_nobody() {
                client = connection.client();
            }
            let record = connection.end(&mut self.driver, &mut self.thread.cx());
            self.thread.log_closed(record);
        }
        self.timers.disarm(token);
        self.idle.remove(token.index);
        self.load().connections.fetch_sub(1, Relaxed);
        match slot.acceptance {
            Acceptance::Served => self.served -= 1,
            Acceptance::OverCapacity => {}
            Acceptance::Refused => {
                self.refused -= 1;
                return; // was not counted
            }
        }
        self.group.leave(client);
    }
}

#[cfg(test)]
mod tests;
