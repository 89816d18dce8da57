//! What a loop does when the memory of the process runs short.

use std::collections::hash_map::Entry;

use loadline_base::{MemoryPressure, Millis, Token};
use loadline_proto::{CloseReason, Handler};

use super::shares::occupation;
use super::{Acceptance, EventLoop, connection_at};
use crate::connection::Connection;
use crate::fairness::ClientKey;
use crate::memory::{Elsewhere, Footprint, Holding, Relief, Shortage, Sums};
use crate::transport::Driver;

/// Connections that are closed in one turn while only idle ones are: 64 take some 200 us.
const IDLE_CLOSES_MAX: usize = 64;

/// They are looked through again after this time, which takes some 10 us for a thousand of them; and after
/// the second one if there was none to be closed.
const LOOK_MS: u64 = 1;
const LOOK_IN_VAIN_MS: u64 = 10;

/// Jobs of a connection that workers have or will have, beside the connection itself.
#[derive(Debug, Default)]
pub(super) struct JobsOut {
    count: u32,
    /// What the connection held, if it is closed: that counts until the last job is back, since workers still have
    /// its requests.
    left_behind: Footprint,
}

impl<H: Handler, D: Driver> EventLoop<H, D> {
    /// So many jobs of a connection were queued for workers.
    pub(super) fn jobs_are_out(&mut self, token: Token, queued: u32) {
        if queued > 0 {
            self.jobs_out.entry(token).or_default().count += queued;
        }
    }

    /// Workers are done with one of them.
    pub(super) fn job_is_back(&mut self, token: Token) {
        let Entry::Occupied(mut jobs) = self.jobs_out.entry(token) else {
            return;
        };
        jobs.get_mut().count -= 1;
        if jobs.get().count == 0 {
            jobs.remove().left_behind.release(&mut self.thread.memory);
        }
    }

    /// A connection is closed: what it held is free, unless jobs of it are out.
    pub(super) fn release_memory(&mut self, token: Token, mut footprint: Footprint) {
        match self.jobs_out.get_mut(&token) {
            Some(jobs) => jobs.left_behind = footprint,
            None => footprint.release(&mut self.thread.memory),
        }
    }

    /// A connection is put aside: counts what it holds.
    #[inline]
    pub(super) fn note_memory(&mut self, token: Token) {
        let Some(slot) = self.slots.get_mut(token) else {
            return;
        };
        let Some(connection) = &slot.connection else {
            return;
        };
        let held_bytes = connection.held_bytes();
        let proxied_client = connection.proxied_client();
        let is_served = slot.acceptance != Acceptance::Refused;
        let is_short = (self.thread).note_memory(&mut slot.footprint, held_bytes);
        if let Some(client) = proxied_client.filter(|_| is_served) {
            self.count_for(token, client);
        }
        if is_short {
            self.relieve_at_once(token);
        }
    }

    /// This loop has just taken more of the budget.
    #[cold]
    fn relieve_at_once(&mut self, token: Token) {
        let pressure = self.thread.memory.pressure();
        if pressure < MemoryPressure::Slow {
            return; // the end of the turn is soon enough
        }
        self.close_for_memory();
        self.group.nudge_others(self.index);
        if self.thread.memory.pressure() < MemoryPressure::Full {
            return;
        }
        // Whoever would hold more is closed, unless others are about to give up enough.
        let Some(slot) = self.slots.get(token) else {
            return;
        };
        let is_to_close = slot.footprint.is_holding()
            && slot.connection.as_ref().is_some_and(|connection| {
                let client = self.client_of(connection);
                let is_spared = self.plan.spares(client, self.thread.now());
                connection.awaits_client_since::<D>().is_some()
                    && (self.thread.memory.budget().is_used_up() || !is_spared)
            });
        if is_to_close {
            self.abort(token, CloseReason::Memory);
        }
    }

    /// Has the threads of a pool give back connections that wait, if some of them may have to be closed.
    pub(super) fn want_connections(&self) {
        if let Some(workers) = &self.dispatcher.workers {
            let is_memory_short = self.thread.memory.pressure() >= MemoryPressure::Slow;
            workers.want_connections(self.is_room_short || is_memory_short);
        }
    }

    /// At the end of a turn.
    pub(super) fn relieve(&mut self) {
        self.want_connections();
        match self.thread.memory.pressure() >= MemoryPressure::Idle {
            true => self.close_for_memory(),
            false => self.plan.rest(),
        }
    }

    /// Closes this loop's part of the connections that memory is short for.
    fn close_for_memory(&mut self) {
        let now = self.thread.now();
        let ledger = self.group.ledger();
        if !self.plan.is_due(ledger, self.index, now) {
            return;
        }
        let Elsewhere { sums, is_partial } = ledger.elsewhere(self.index, now);
        if is_partial && self.plan.waits(now) {
            // What the clients here hold elsewhere is not known yet: nobody is closed for that.
            let nothing = Relief::<Token>::nothing(self.holdings(), now);
            return self.write_page(nothing, now);
        }
        let memory = &self.thread.memory;
        let shortage = Shortage {
            pressure: memory.pressure(),
            excess_bytes: memory.budget().excess_bytes(MemoryPressure::Idle),
            now,
        };
        let mut relief = shortage.choose(self.holdings(), &sums);
        let count_max = match shortage.pressure {
            MemoryPressure::Idle => IDLE_CLOSES_MAX,
            _ => usize::MAX,
        };
        let look_ms = match relief.chosen.is_empty() {
            true => LOOK_IN_VAIN_MS,
            false => LOOK_MS,
        };
        let chosen = std::mem::take(&mut relief.chosen);
        let givers = std::mem::take(&mut relief.givers);
        self.plan.set(givers, relief.is_enough, now, look_ms);
        self.write_page(relief, now);
        for token in chosen.into_iter().take(count_max) {
            let may_go = connection_at(&self.slots, token).is_some_and(|connection| {
                !connection.is_idle::<D>() || connection.is_certainly_idle(&mut self.driver)
            });
            if may_go {
                self.abort(token, CloseReason::Memory);
            }
        }
    }

    /// Says what clients hold here from now on. The others take a turn if they may have waited for it, and
    /// write theirs.
    fn write_page(&self, relief: Relief<Token>, now: Millis) {
        let ledger = self.group.ledger();
        if ledger.write(self.index, now, Sums::of(relief.left)) {
            self.group.nudge_others(self.index);
        }
    }

    /// What the end of each connection would free.
    fn holdings(&self) -> Vec<Holding<Token>> {
        let tokens = (0..self.slots.slot_count()).filter_map(|index| self.slots.token_at(index));
        let holding = tokens.filter_map(|token| {
            let slot = self.slots.get(token)?;
            let client = self.client_of(slot.connection.as_ref()?);
            (slot.acceptance == Acceptance::Served).then_some(Holding {
                client,
                occupation: occupation::<D>(slot)?,
                bytes: slot.footprint.bytes(),
                connection: token,
            })
        });
        holding.collect()
    }

    /// For whose request it holds what it holds; nobody's in particular, with `--fairness off`.
    fn client_of(&self, connection: &Connection<D::Transport>) -> ClientKey {
        match self.site.options.fairness {
            true => connection.holder(),
            false => ClientKey::NOBODY,
        }
    }
}

#[cfg(test)]
mod tests;
