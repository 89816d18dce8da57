//! What a loop gives to others, and what comes back by mail.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use loadline_base::Token;
use loadline_proto::{Exchange, Handler};

use super::{EventLoop, connection_at_mut};
use crate::admission::{Kind, Refusing};
use crate::config::Steps;
use crate::connection::{Blocked, offload};
use crate::shutdown::Stage;
use crate::task::TaskHome;
use crate::transport::socket::Readiness;
use crate::transport::{Driver, LoopTransport};
use crate::worker::dispatcher::{NotQueued, OnLoop};
use crate::worker::job::Message;
use crate::worker::job::{After, Served, Work};

impl<H: Handler, D: Driver> EventLoop<H, D> {
    /// Gives a connection that is ready to a worker (`--socket-io worker`).
    pub(super) fn hand_over(&mut self, token: Token) {
        let Some(slot) = self.slots.get_mut(token) else {
            return;
        };
        let Some(mut connection) = slot.connection.take() else {
            return;
        };
        let threads_share = self.site.options.threads_share();
        if threads_share {
            connection.transport_mut().unsettle(&mut self.driver);
        }
        let client = connection.client();
        let connection = match connection.over(LoopTransport::into_socket) {
            Ok(connection) => connection,
            Err(connection) => {
                slot.connection = Some(connection); // not with this driver: served here
                return self.drive_here(token);
            }
        };
        slot.missed = Readiness::default();
        self.idle.remove(token.index);
        let mut served = self.boxes.pop().unwrap_or_default();
        served.connection = Some(connection);
        // A worker counts what it leaves the connection with: that is not to count here as well.
        if threads_share || slot.footprint.is_holding() {
            let memory = &mut self.thread.memory;
            slot.footprint.set_apart(memory, &mut served.memory);
        }
        let home = || Arc::clone(&self.dispatcher.tasks) as Arc<dyn TaskHome>;
        served.home.get_or_insert_with(home);
        let work = Work::Serve(served);
        let load = &self.group.loops()[self.index].load;
        let mut placement = OnLoop::new(&self.dispatcher, token, load);
        let waited_us = self.thread.waited_unread_us();
        let submitted = placement.submit(Kind::Job, work, waited_us, client, &self.site);
        if let Err(NotQueued { work, refusing, .. }) = submitted {
            self.give_back(token, work);
            self.refuse_here(token, Some(refusing), None);
        }
    }

    /// The requests of a connection that no worker serves get a 503 here. If it was in the queue, they have waited
    /// since `ready_us`.
    fn refuse_here(&mut self, token: Token, refusing: Option<Refusing>, ready_us: Option<u64>) {
        if let Some(ready_us) = ready_us {
            self.thread.received_since(ready_us);
        }
        self.thread.refusing = refusing;
        self.drive_here(token);
        self.thread.refusing = None;
        self.thread.note_came();
    }

    /// Queues a blocking step of a connection that a worker has served (`--socket-io worker`).
    pub(super) fn queue_step(
        &mut self,
        token: Token,
        exchange: Box<Exchange>,
        steps: Arc<dyn Steps>,
    ) {
        let load = &self.group.loops()[self.index].load;
        let placement = &mut OnLoop::new(&self.dispatcher, token, load);
        let blocked = placement.block_by(steps, exchange, &mut self.thread);
        let queued = placement.queued;
        self.jobs_are_out(token, queued);
        let connection = connection_at_mut(&mut self.slots, token);
        if let (Blocked::Done(exchange) | Blocked::Refused(exchange), Some(connection)) =
            (blocked, connection)
        {
            connection.completed(exchange, &mut self.thread);
        }
    }

    /// Work is back, done or refused.
    pub(super) fn give_back(&mut self, token: Token, work: Work) {
        match (work, connection_at_mut(&mut self.slots, token)) {
            (Work::Block(exchange, _), Some(connection)) => {
                connection.completed(exchange, &mut self.thread);
            }
            // The client has gone meanwhile.
            (Work::Block(exchange, _), None) => self.thread.cx().pool.give_exchange(exchange),
            (Work::Prefetch(_), Some(connection)) => {
                connection.prefetched::<D>(&mut self.thread.cx());
            }
            (Work::Compute(computation, _), Some(connection)) => {
                connection.computed(computation, &mut self.thread.cx());
            }
            (Work::Offload(mut computation, refusing), Some(connection)) => {
                if let Some(refusing) = refusing {
                    offload::refuse(&mut *computation, refusing, &mut self.thread);
                }
                connection.computed(computation, &mut self.thread.cx());
            }
            // Of a connection that is closed: no worker has one with work out (`stays_here`).
            (Work::Prefetch(_) | Work::Compute(..) | Work::Offload(..) | Work::Task(_), _) => {}
            (Work::Serve(served), _) => self.take_back(token, served),
        }
    }

    /// A connection is here again.
    pub(super) fn take_back(&mut self, token: Token, mut served: Box<Served>) {
        let connection = served.connection.take();
        if let Some(memory) = &mut served.memory {
            memory.empty();
        }
        self.boxes.push(served);
        if let (Some(slot), Some(connection)) = (self.slots.get_mut(token), connection) {
            let missed = slot.missed;
            let back = connection.over(|socket| LoopTransport::from_socket(socket, missed));
            slot.connection = back.ok();
            if let Some(connection) = &mut slot.connection {
                connection.adopt_tasks(&self.thread.tasks);
            }
        }
    }

    /// What came by mail: results of workers, new connections.
    pub(super) fn drain_mailbox(&mut self) {
        let mut mail = std::mem::take(&mut self.mail);
        self.dispatcher.mailbox.take(&mut mail);
        for message in mail.drain(..) {
            if message.is_under_way() {
                self.load().under_way.fetch_sub(1, Relaxed);
            }
            match message {
                Message::Handoff(handoff) => {
                    self.group.received(&handoff);
                    self.take_in(handoff);
                }
                Message::Moving(moving) => self.take_in_moving(*moving),
                Message::Move { name, to } => self.begin_move_of(name, to),
                Message::MakeRoom => {
                    self.evict_oldest();
                }
                Message::MakeRoomOf { client, asking } => self.make_room_of(client, asking),
                Message::Done { token, work } => self.on_done(token, work),
                Message::Task { token, stream } => self.on_task_event(token, stream),
            }
        }
        self.mail = mail;
    }

    fn on_done(&mut self, token: Token, mut work: Work) {
        let was_out = match &work {
            Work::Block(..) | Work::Prefetch(_) | Work::Compute(..) | Work::Offload(..) => true,
            Work::Task(task) => !task.is_passed_on(),
            Work::Serve(_) => false, // the connection itself
        };
        if was_out {
            self.job_is_back(token);
        }
        let (after, ready_us, refusing) = match &mut work {
            Work::Serve(served) => (
                Some(std::mem::take(&mut served.after)),
                served.ready_us,
                served.refusing.take(),
            ),
            Work::Block(..) | Work::Prefetch(_) | Work::Compute(..) | Work::Offload(..) => {
                (None, None, None)
            }
            Work::Task(_) => return, // its answer goes its own way
        };
        self.give_back(token, work);
        if after.is_some() && self.close_for_room(token) {
            return;
        }
        let Some(slot) = self.slots.get_mut(token) else {
            return;
        };
        // Only what is new: the worker has left it with nothing to do.
        let is_ready = slot.missed.is_anything();
        match after {
            Some(After::Close) => self.close(token),
            Some(After::Start(exchange, steps)) => {
                self.judge_by(ready_us); // also others that have come with it
                self.start_task(token, exchange, steps);
                self.drive_here(token);
                self.judge_by(None);
            }
            Some(After::Block(exchange, steps)) => {
                self.judge_by(ready_us);
                self.queue_step(token, exchange, steps);
                self.drive_here(token);
                self.judge_by(None);
            }
            // It has made room for another client's, and no worker has read what it has received.
            _ if refusing.is_some() => {
                let is_draining = self.stage != Stage::Up;
                // Before the responses, so that they say that the connection ends.
                if is_draining
                    && !slot.knows_drain
                    && let Some(connection) = &mut slot.connection
                {
                    let cx = &mut self.thread.cx();
                    slot.knows_drain = connection.drain(true, &mut self.driver, cx);
                }
                self.refuse_here(token, refusing, ready_us);
                if is_draining {
                    self.begin_connection_drain(token);
                }
            }
            _ if self.stage != Stage::Up && !slot.knows_drain => self.begin_connection_drain(token),
            None => self.drive_here(token),
            Some(After::Again) => self.queue(token),
            Some(After::Wait) if self.has_tasks(token) => self.drive_here(token),
            Some(After::Wait) if is_ready => self.drive(token),
            Some(After::Wait) => self.settle(token),
        }
    }
}
