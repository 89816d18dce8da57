//! Tasks of a loop's connections: their events come by the mailbox.

use std::sync::Arc;

use loadline_base::Token;
use loadline_proto::{Exchange, Handler, StreamId};

use super::{EventLoop, connection_at, connection_at_mut};
use crate::config::Steps;
use crate::connection::Connection;
use crate::task::Polled;
use crate::transport::Driver;
use crate::worker::dispatcher::OnLoop;

impl<H: Handler, D: Driver> EventLoop<H, D> {
    pub(super) fn has_tasks(&self, token: Token) -> bool {
        connection_at(&self.slots, token).is_some_and(Connection::has_tasks)
    }

    /// Starts the task of a connection that a worker has served (`--socket-io worker`).
    pub(super) fn start_task(
        &mut self,
        token: Token,
        exchange: Box<Exchange>,
        steps: Arc<dyn Steps>,
    ) {
        let load = &self.group.loops()[self.index].load;
        let placement = &mut OnLoop::new(&self.dispatcher, token, load);
        let start = placement.start_by(steps, exchange, &mut self.thread);
        let queued = placement.queued;
        self.jobs_are_out(token, queued);
        if let Some(connection) = connection_at_mut(&mut self.slots, token) {
            connection.started(start, &mut self.thread);
        }
    }

    /// A task has events, or is to be polled. Where the loop polls them itself, those of a connection have
    /// their share of its time together, once all mail is read.
    pub(super) fn on_task_event(&mut self, token: Token, stream: StreamId) {
        let Some(connection) = connection_at_mut(&mut self.slots, token) else {
            return;
        };
        connection.notified(Some(stream));
        if self.dispatcher.workers.is_none() {
            self.queue(token);
        } else if connection.poll_tasks(&mut self.thread) != Polled::Nothing {
            self.drive_here(token);
        }
    }
}

#[cfg(test)]
mod tests;
