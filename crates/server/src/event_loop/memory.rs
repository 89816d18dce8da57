//! What a loop does when the memory of the process runs short.

use std::collections::hash_map::Entry;

use loadline_base::{MemoryPressure, Token};
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
        // Whoever would hold more is closed, unless others are about to give up enough, or to say what they hold.
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
        if self.thread.memory.pressure() < MemoryPressure::Idle {
            if self.plan.rest(self.thread.now()) {
                self.group.ledger().clear(self.index);
            }
            return;
        }
        self.close_for_memory();
        let pressure = self.thread.memory.pressure();
        self.plan.end_turn(pressure >= MemoryPressure::Slow);
    }

    /// Closes this loop's part of the connections that memory is short for.
    fn close_for_memory(&mut self) {
        let now = self.thread.now();
        let (memory, ledger) = (&self.thread.memory, self.group.ledger());
        if !self.plan.is_due(ledger, self.index, memory.pressure(), now) {
            return;
        }
        // Before the budget is read: what others free meanwhile is not to be freed here as well.
        let Elsewhere { sums, missing } = ledger.elsewhere(self.index, now);
        if missing > 0 && self.plan.waits(now) {
            // What the clients here hold elsewhere is not known yet: nobody is closed for that. The others may
            // sleep, though this loop's page is good.
            let nothing = Relief::<Token>::nothing(self.holdings(), now);
            ledger.write(self.index, now, Sums::of(nothing.held));
            return self.group.nudge_others(self.index);
        }
        let excess_bytes = memory.budget().excess_bytes(MemoryPressure::Idle);
        let of_each = excess_bytes / self.group.loops().len() as u64;
        let shortage = Shortage {
            pressure: memory.pressure(),
            excess_bytes: excess_bytes - missing * of_each,
            now,
        };
        let Relief {
            chosen,
            givers,
            is_enough,
            held,
            left,
        } = shortage.choose(self.holdings(), &sums);
        let pressure = shortage.pressure;
        let count_max = match pressure {
            MemoryPressure::Idle => IDLE_CLOSES_MAX,
            _ => usize::MAX,
        };
        let look_ms = match chosen.is_empty() {
            true => LOOK_IN_VAIN_MS,
            false => LOOK_MS,
        };
        let is_shorter = self.plan.set(givers, is_enough, pressure, now, look_ms);
        // What is to be closed counts on the page until it is, as it does in the budget: others would close as
        // much of theirs instead.
        let is_news = ledger.write(self.index, now, Sums::of(held));
        if is_shorter || is_news {
            self.group.nudge_others(self.index); // they have to look, too, or may have waited for the page
        }
        if !chosen.is_empty() && self.close_all(chosen, count_max) {
            self.group.ledger().write(self.index, now, Sums::of(left));
        }
    }

    /// Closes so many at most, of those that may go. `true`: all are closed.
    fn close_all(&mut self, chosen: Vec<Token>, count_max: usize) -> bool {
        let mut are_closed = chosen.len() <= count_max;
        for token in chosen.into_iter().take(count_max) {
            let may_go = connection_at(&self.slots, token).is_some_and(|connection| {
                !connection.is_idle::<D>() || connection.is_certainly_idle(&mut self.driver)
            });
            match may_go {
                true => self.abort(token, CloseReason::Memory),
                false => are_closed = false,
            }
        }
        are_closed
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
