//! What a loop does when the memory of the process runs short.

use loadline_base::{MemoryPressure, Token};
use loadline_proto::{CloseReason, Handler};

use super::{EventLoop, Standing};
use crate::memory::{Holding, idle_closes, latest_idle, longest_holding};
use crate::transport::Driver;

impl<H: Handler, D: Driver> EventLoop<H, D> {
    /// A connection is put aside: counts what it holds.
    #[inline]
    pub(super) fn note_memory(&mut self, token: Token) {
        let Some(slot) = self.slots.get_mut(token) else {
            return;
        };
        let Some(connection) = &slot.connection else {
            return;
        };
        let (footprint, since) = (&mut slot.footprint, &mut slot.idle_since);
        let held_bytes = connection.held_bytes();
        if self.thread.note_memory(footprint, since, held_bytes) {
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
        self.close_slow();
        self.group.nudge_others(self.index);
        // Nothing is left to be freed here: whoever would hold more is closed.
        let slot = self.slots.get(token);
        let is_to_close = slot.is_some_and(|slot| {
            let connection = slot.connection.as_ref();
            slot.footprint.is_holding()
                && connection.is_some_and(|it| it.awaits_client_since().is_some())
        });
        if is_to_close && self.thread.memory.pressure() == MemoryPressure::Full {
            self.abort(token, CloseReason::Memory);
        }
    }

    /// At the end of a turn.
    pub(super) fn relieve(&mut self) {
        if self.thread.memory.pressure() < MemoryPressure::Idle {
            return;
        }
        let latest = latest_idle(self.thread.now());
        for _ in 0..idle_closes(&self.thread.memory) {
            if !self.close_oldest_idle(latest, CloseReason::Memory) {
                break;
            }
        }
        if self.thread.memory.pressure() >= MemoryPressure::Slow {
            self.close_slow();
        }
    }

    /// Closes connections that hold memory while they wait for their clients, the longest first.
    fn close_slow(&mut self) {
        // Looking at all of them takes some 10 ns each: once in a millisecond.
        let now = self.thread.now();
        if self.relieved_at == now {
            return;
        }
        self.relieved_at = now;
        let goal_bytes = self.thread.memory.share_of_excess(MemoryPressure::Idle);
        let tokens = (0..self.slots.slot_count()).filter_map(|index| self.slots.token_at(index));
        let holding = tokens.filter_map(|token| {
            let slot = self.slots.get(token)?;
            let connection = slot.connection.as_ref()?;
            let is_slow = slot.footprint.is_holding() && connection.awaits_client_since().is_some();
            (is_slow && slot.standing == Standing::Served).then_some(Holding {
                since: slot.idle_since,
                bytes: slot.footprint.bytes(),
                connection: token,
            })
        });
        for token in longest_holding(holding.collect(), goal_bytes) {
            self.abort(token, CloseReason::Memory);
        }
    }
}
