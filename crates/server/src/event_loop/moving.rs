//! Connections that move to another loop: between two requests, when nothing of them is in progress.

use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering::Relaxed;

use loadline_base::{Millis, Token};
use loadline_proto::Handler;

use super::{Acceptance, EventLoop, connection_at_mut};
use crate::connection::Connection;
use crate::fairness::ClientKey;
use crate::overload::TurnControl;
use crate::shutdown::Stage;
use crate::transport::{Detached, Driver, LoopTransport};
use crate::worker::job::Moving;

/// A connection that finds no moment to leave within this time stays.
const LEAVE_MS: u64 = 500;

/// A connection that is to go to another loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaving {
    token: Token,
    to: usize,
    until: Millis,
}

/// What became of an attempt.
enum Attempt {
    /// It has left, or will not.
    Over,
    Later,
}

impl<H: Handler, D: Driver> EventLoop<H, D> {
    /// Has a connection go to another loop, at the end of the first turn in which it is idle.
    pub(crate) fn begin_move(&mut self, token: Token, to: usize) {
        let is_leaving = self.leaving.iter().any(|one| one.token == token);
        if to != self.index && !is_leaving {
            let until = Millis(self.thread.now().0 + LEAVE_MS);
            self.leaving.push(Leaving { token, to, until });
        }
    }

    /// At the end of a turn.
    pub(super) fn send_leaving(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.retain(|one| matches!(self.try_to_send(*one), Attempt::Later));
        self.leaving = leaving;
    }

    /// None leaves any more: the server goes down.
    pub(super) fn keep_leaving(&mut self) {
        for one in std::mem::take(&mut self.leaving) {
            self.keep(one.token);
        }
    }

    fn keep(&mut self, token: Token) {
        if let Some(connection) = connection_at_mut(&mut self.slots, token) {
            connection.transport_mut().stay(&mut self.driver);
        }
    }

    fn try_to_send(&mut self, one: Leaving) -> Attempt {
        let is_over = self.stage != Stage::Up
            || self.site.shutdown.is_draining()
            || self.thread.now() >= one.until
            || !self
                .group
                .has_room(one.to, self.site.options.capacity_per_loop);
        let Some(slot) = self.slots.get_mut(one.token) else {
            return Attempt::Over;
        };
        if is_over || slot.acceptance != Acceptance::Served {
            self.keep(one.token);
            return Attempt::Over;
        }
        let Some(connection) = slot.connection.take() else {
            return Attempt::Later; // a worker has it
        };
        if slot.queued || connection.has_tasks() || !connection.is_idle::<D>() {
            slot.connection = Some(connection);
            self.keep(one.token);
            return Attempt::Later;
        }
        match connection.over(|transport| transport.detach(&mut self.driver)) {
            Ok(connection) => {
                self.send(one, connection);
                Attempt::Over
            }
            Err(connection) => {
                slot.connection = Some(connection);
                Attempt::Later
            }
        }
    }

    fn send(&mut self, one: Leaving, connection: Connection<Detached>) {
        let name = self.name_of(one.token);
        self.count_for(one.token, ClientKey::NOBODY);
        if let Some(mut slot) = self.slots.remove(one.token) {
            slot.footprint.release(&mut self.thread.memory);
        }
        self.timers.disarm(one.token);
        self.idle.remove(one.token.index);
        self.served -= 1;
        self.thread.stats.connections.sub(1);
        self.thread.stats.connections_moved.add(1);
        self.load().connections.fetch_sub(1, Relaxed);
        let turn = self.thread.turn.as_ref();
        let moving = Moving {
            connection,
            name,
            came_after_us: turn.map_or(0, TurnControl::oldest_us),
        };
        self.group.send_moving(one.to, moving);
    }

    /// Takes in a connection of another loop.
    pub(super) fn take_in_moving(&mut self, moving: Moving) {
        let socket = moving.connection.transport().fd.as_fd();
        let came_after_us = moving.came_after_us;
        // At the earliest then: until another request comes, the kernel says when the last one did.
        let came_us = self.came_us(socket, Some(came_after_us));
        let came_us = came_us.map(|came_us| came_us.max(came_after_us));
        let attach = |detached| Ok::<_, Detached>(D::Transport::attach(detached));
        let Ok(connection) = moving.connection.over(attach) else {
            return; // attaching does not fail
        };
        let token = self.insert(connection, Acceptance::Served, Some(moving.name));
        self.served += 1;
        match self.stage {
            Stage::Up => {
                self.judge_by(came_us);
                self.drive(token); // something may have come on the way
                self.judge_by(None);
            }
            _ => self.begin_connection_drain(token),
        }
    }
}

#[cfg(test)]
mod tests;
