//! What a loop does when the memory of the process runs short.

use loadline_base::{MemoryPressure, Millis, Token};
use loadline_proto::{CloseReason, Handler};

use super::shares::occupation;
use super::{EventLoop, Standing};
use crate::fairness::ClientKey;
use crate::memory::{Holding, Shortage};
use crate::transport::Driver;

/// Connections that are closed in one turn while only idle ones are: 64 take some 200 us.
const IDLE_CLOSES_MAX: usize = 64;

/// They are looked through again after this time, which takes some 10 us for a thousand of them; and after
/// the second one if there was none to be closed.
const LOOK_MS: u64 = 1;
const LOOK_IN_VAIN_MS: u64 = 10;

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
        let held_bytes = connection.held_bytes();
        if (self.thread).note_memory(&mut slot.footprint, held_bytes) {
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
        if self.thread.memory.pressure() >= MemoryPressure::Idle {
            self.close_for_memory();
        }
    }

    /// Closes this loop's share of the connections that memory is short for.
    fn close_for_memory(&mut self) {
        let now = self.thread.now();
        if now < self.relieve_after {
            return;
        }
        let shortage = Shortage {
            pressure: self.thread.memory.pressure(),
            excess_bytes: self.thread.memory.share_of_excess(MemoryPressure::Idle),
            now,
        };
        let tokens = (0..self.slots.slot_count()).filter_map(|index| self.slots.token_at(index));
        let holding = tokens.filter_map(|token| {
            let slot = self.slots.get(token)?;
            let is_fair = self.site.options.fairness;
            let client = slot.connection.as_ref()?.client();
            (slot.standing == Standing::Served).then_some(Holding {
                client: if is_fair { client } else { ClientKey::NOBODY },
                occupation: occupation::<D>(slot)?,
                bytes: slot.footprint.bytes(),
                connection: token,
            })
        });
        let chosen = shortage.first_to_close(holding.collect());
        let count_max = match shortage.pressure {
            MemoryPressure::Idle => IDLE_CLOSES_MAX,
            _ => chosen.len(),
        };
        let look_ms = if chosen.is_empty() {
            LOOK_IN_VAIN_MS
        } else {
            LOOK_MS
        };
        self.relieve_after = Millis(now.0 + look_ms);
        for token in chosen.into_iter().take(count_max) {
            let slot = self.slots.get(token);
            let connection = slot.and_then(|slot| slot.connection.as_ref());
            let may_go = connection.is_some_and(|connection| {
                !connection.is_idle::<D>() || connection.is_certainly_idle(&mut self.driver)
            });
            if may_go {
                self.abort(token, CloseReason::Memory);
            }
        }
    }
}
