//! Tasks of a loop's connections: their events come by the mailbox.

use loadline_base::Token;
use loadline_proto::{Exchange, Handler, StreamId};

use super::EventLoop;
use crate::connection::Placement;
use crate::transport::Driver;
use crate::worker::dispatcher::OnLoop;

impl<H: Handler, D: Driver> EventLoop<H, D> {
    pub(super) fn has_tasks(&self, token: Token) -> bool {
        let slot = self.slots.get(token);
        let connection = slot.and_then(|slot| slot.connection.as_ref());
        connection.is_some_and(|connection| connection.has_tasks())
    }

    /// Starts the task of a connection that a worker has served (`--socket-io worker`).
    pub(super) fn start_task(&mut self, token: Token, exchange: Box<Exchange>) {
        let load = &self.group.members()[self.index].load;
        let placement = &mut OnLoop::new(&self.dispatcher, token, load);
        let start = placement.start(exchange, &self.site, &mut self.thread);
        let slot = self.slots.get_mut(token);
        if let Some(connection) = slot.and_then(|slot| slot.connection.as_mut()) {
            connection.started(start, &mut self.thread.cx());
        }
    }

    /// A task has events, or is to be polled.
    pub(super) fn on_task_event(&mut self, token: Token, stream: StreamId) {
        let slot = self.slots.get_mut(token);
        let Some(connection) = slot.and_then(|slot| slot.connection.as_mut()) else {
            return;
        };
        connection.notified(Some(stream));
        if connection.poll_tasks(&self.site, &mut self.thread) {
            self.serve(token);
        }
    }
}
