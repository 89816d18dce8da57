//! Requests that apps' tasks have: who polls them, and what passes to and fro.
//!
//! With workers a task goes to one of them and holds it until it ends. Without, the loop polls it,
//! woken by its mailbox: an event stream must never hold a lone loop up.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use loadline_base::Token;
use loadline_proto::{Exchange, Handler, Status};

use super::EventLoop;
use super::driver::{Driver, Link};
use crate::parts::connection::Pause;
use crate::parts::dispatch::Work;
use crate::parts::errand::{Bell, Told, WorkerTask};

/// Orders for one task in a row: some pieces of 64 KiB in either direction, then others.
pub(super) const STEPS_MAX: u32 = 16;

impl<H: Handler, D: Driver> EventLoop<H, D> {
    pub(super) fn has_errand(&self, token: Token) -> bool {
        self.slots
            .get(token)
            .is_some_and(|slot| slot.errand.is_some())
    }

    /// Carries an order out that concerns a task.
    pub(super) fn follow_errand(&mut self, token: Token, order: Pause) {
        if let Pause::Start(exchange) = order {
            return self.start(token, exchange);
        }
        let Some(slot) = self.slots.get_mut(token) else {
            return;
        };
        match (order, &slot.errand) {
            (Pause::Offer(piece), Some(held)) => held.offer(piece),
            (Pause::Pull(room), Some(held)) => held.pull(room),
            (Pause::Cancel, _) => {
                if let Some(held) = slot.errand.take() {
                    self.kit.errands.end(held);
                }
            }
            _ => {}
        }
    }

    /// Begins a task, here or at a worker.
    pub(super) fn start(&mut self, token: Token, exchange: Box<Exchange>) {
        let bell = Bell::Loop {
            mailbox: Arc::clone(&self.desk.mailbox),
            token,
        };
        let Some(slot) = self.slots.get_mut(token) else {
            return;
        };
        if self.desk.workers.is_none() {
            slot.errand = Some(self.kit.errands.here(exchange, bell, &self.site));
            self.go_on(token);
            return;
        }
        let (held, task) = self.kit.errands.away(exchange, bell, &self.site);
        slot.errand = Some(held);
        let scratch = self.kit.lend().scratch;
        let work = Work::Errand(task);
        match self.desk.dispatch(work, token, &self.site, scratch) {
            None => {
                self.load().under_way.fetch_add(1, Relaxed);
            }
            Some(work) => self.give_back(token, work),
        }
    }

    /// The queue of the workers is full.
    pub(super) fn refuse_errand(&mut self, token: Token, task: WorkerTask) {
        let (Some(slot), Some(mut exchange)) = (self.slots.get_mut(token), task.exchange) else {
            return;
        };
        slot.errand = None;
        exchange.response.error(Status::SERVICE_UNAVAILABLE);
        exchange.response.field("Retry-After", "1");
        if let Some(connection) = &mut slot.connection {
            let session = connection.session();
            session.answered(exchange, &mut self.kit.turn());
        }
    }

    /// A task has said something, or is to be polled.
    pub(super) fn on_errand(&mut self, token: Token) {
        if self.go_on(token) {
            self.serve(token);
        }
    }

    /// Polls a task if that is due, and tells its connection what it has said; `false`: nothing.
    pub(super) fn go_on(&mut self, token: Token) -> bool {
        let Some(slot) = self.slots.get_mut(token) else {
            return false;
        };
        let (Some(held), Some(connection)) = (&mut slot.errand, &mut slot.connection) else {
            return false;
        };
        let session = connection.session();
        let mut turn = self.kit.turn();
        if self.site.shutdown.is_draining() {
            session.draining(&mut turn); // shows in a head that is still to come
        }
        let told = held.go_on(session, &mut turn);
        if told == Told::Last
            && let Some(held) = slot.errand.take()
        {
            self.kit.errands.end(held);
        }
        told != Told::Nothing
    }
}
