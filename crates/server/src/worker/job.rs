//! What passes between loops and workers: work on its way, and what comes back.

use std::sync::Arc;

use loadline_base::{MemoryAccount, Millis, Token};
use loadline_proto::{Computation, Exchange, StreamId};
use loadline_sys::has_hung_up;

use crate::admission::{Handoff, Refusing};
use crate::config::Steps;
use crate::connection::Connection;
use crate::fairness::ClientKey;
use crate::fairness::lanes::{FlowKey, Lane};
use crate::overload::JobWait;
use crate::task::{TaskHome, WorkerTask};
use crate::transport::socket::Socket;
use crate::transport::{Detached, Range};
use crate::worker::mailbox::Mailbox;

/// What comes to a loop by mail.
#[derive(Debug)]
pub(crate) enum Message {
    /// Work is done.
    Done {
        /// Of the connection it was for.
        token: Token,
        /// As it was handed over, with its results.
        work: Work,
    },
    /// A connection to serve.
    Handoff(Handoff),
    /// The connection of this name is to go to another loop.
    Move { name: u64, to: usize },
    /// One that another loop has served.
    Moving(Box<Moving>),
    /// A task has events, or is to be polled.
    Task {
        /// Of the connection.
        token: Token,
        /// Of its request.
        stream: StreamId,
    },
    /// Another loop has run out of descriptors: close the oldest idle connection.
    MakeRoom,
    /// A client has far more connections than one that was let in elsewhere: close one of its own, or
    /// ask the next loop, if that is not `asking`.
    MakeRoomOf { client: ClientKey, asking: usize },
}

impl Message {
    /// Whether it was counted in `Load::under_way` when its work was given to a worker, or when it was sent.
    pub(crate) fn is_under_way(&self) -> bool {
        match self {
            Self::Task { .. } => false,
            Self::Done {
                work: Work::Task(task),
                ..
            } => !task.is_passed_on(), // no loop has submitted it
            _ => true,
        }
    }
}

/// Work on its way to a worker.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) work: Work,
    pub(crate) token: Token,
    pub(crate) reply: Arc<Mailbox<Message>>,
    pub(crate) queued_us: u64,
    /// How long it had waited by then until it was read: for its loop, and for a worker that serves connections.
    pub(crate) already_waited_us: u64,
    /// How long its connection was kept before, by its handshake, if this is for the first request or another
    /// step of the handshake.
    pub(crate) handshake_us: u64,
    /// Who has asked for it.
    pub(crate) client: ClientKey,
}

impl Job {
    /// The flow that it belongs to.
    pub(crate) fn flow(&self) -> FlowKey {
        FlowKey {
            lane: self.work.lane(),
            client: self.client,
        }
    }

    /// How long it has waited.
    pub(crate) fn waited(&self, now_us: u64) -> JobWait {
        JobWait {
            here_us: now_us.saturating_sub(self.queued_us),
            before_us: self.before_us(),
        }
    }

    /// Since when it has waited.
    pub(crate) fn ready_us(&self) -> u64 {
        self.queued_us.saturating_sub(self.already_waited_us)
    }

    /// How much of the latency goal was used up when it was queued.
    pub(crate) fn before_us(&self) -> u64 {
        self.already_waited_us.saturating_add(self.handshake_us)
    }
}

/// What a loop should not do itself.
#[derive(Debug)]
pub(crate) enum Work {
    /// The handler's blocking step, of the handler that took the quick one. Back for `completed`.
    Block(Box<Exchange>, Arc<dyn Steps>),
    /// Read a range of a file into the page cache. Back for `prefetched`.
    Prefetch(Range),
    /// Work that takes a processor for a while, of a handshake that was kept for so long before, in
    /// microseconds. Back for `computed`.
    Compute(Box<dyn Computation>, u64),
    /// Parse what a connection has received, and carry its requests out (`--parse worker`), or have them refused.
    /// Back for `computed`.
    Offload(Box<dyn Computation>, Option<Refusing>),
    /// Serve a connection that is ready, from reading to writing (`--socket-io worker`). Back with
    /// the connection, and what is to be done next.
    Serve(Box<Served>),
    /// Poll an app's task. Back when it has ended; its answer goes its own way.
    Task(WorkerTask),
}

impl Work {
    pub(crate) fn lane(&self) -> Lane {
        match self {
            Self::Task(_) => Lane::Apps,
            Self::Compute(..) => Lane::Handshakes,
            Self::Serve(served) => {
                let connection = served.connection.as_ref();
                match connection.is_some_and(Connection::is_before_handshake) {
                    true => Lane::Handshakes,
                    false => Lane::Files,
                }
            }
            Self::Block(..) | Self::Prefetch(_) | Self::Offload(..) => Lane::Files,
        }
    }

    /// Which requests it is about is not known before they are parsed, or whether there is one: they are counted then.
    pub(crate) fn is_unparsed(&self) -> bool {
        matches!(self, Self::Serve(_) | Self::Offload(..))
    }

    /// How long its connection was kept before, by its handshake, if that was of late.
    pub(crate) fn handshake_us(&self, now: Millis) -> u64 {
        match self {
            Self::Block(exchange, _) => exchange.handshake.counted_us(0),
            Self::Compute(_, before_us) => *before_us,
            Self::Serve(served) => {
                let connection = served.connection.as_ref();
                connection.map_or(0, |it| it.handshake_us(now))
            }
            Self::Task(task) => task.handshake_us(),
            Self::Prefetch(_) | Self::Offload(..) => 0,
        }
    }

    /// It has been in the queue for so long, and waits since `ready_us`. A connection is to know: its handshake may not
    /// be done. And a request of it may be queued once more.
    pub(crate) fn delayed(&mut self, ready_us: u64, us: u64) {
        if let Self::Serve(served) = self {
            served.ready_us = Some(ready_us);
            if let Some(connection) = &mut served.connection {
                connection.delayed(us);
            }
        }
    }

    /// Whether a worker can refuse it: it is then answered with 503, or a handshake ends.
    pub(crate) fn can_be_refused(&self) -> bool {
        match self {
            Self::Block(..) => true,
            Self::Task(task) => task.is_new(),
            Self::Serve(_) | Self::Compute(..) | Self::Offload(..) => true,
            Self::Prefetch(_) => false, // its answer has begun
        }
    }

    /// Whether its client has left: for certain, or so it seems and it has `waited_long`.
    pub(crate) fn is_abandoned(&self, waited_long: bool) -> bool {
        match self {
            Self::Block(exchange, _) => exchange.hang_up.has_left(waited_long),
            Self::Serve(served) => {
                let connection = served.connection.as_ref();
                let has_left = |it: &Connection<Socket>| has_hung_up(it.transport().fd());
                waited_long && connection.is_some_and(has_left)
            }
            Self::Task(task) => task.is_abandoned(waited_long),
            Self::Compute(computation, _) | Self::Offload(computation, _) => {
                computation.is_abandoned()
            }
            Self::Prefetch(_) => false,
        }
    }

    /// Has it answered with 503; what was not computed ends its connection.
    pub(crate) fn refuse(&mut self, retry_after_s: u32) {
        match self {
            Self::Block(exchange, _) => exchange.refuse(retry_after_s),
            Self::Task(task) => task.refuse(retry_after_s),
            Self::Serve(served) => served.refusing = Some(Refusing::late(retry_after_s)),
            Self::Offload(_, refusing) => *refusing = Some(Refusing::late(retry_after_s)),
            Self::Prefetch(_) | Self::Compute(..) => {}
        }
    }
}

/// A connection on its way to a worker and back. The box is made once and used again.
#[derive(Debug, Default)]
pub(crate) struct Served {
    /// There, but for the moments of handing over.
    pub(crate) connection: Option<Connection<Socket>>,
    /// What is to be done next.
    pub(crate) after: After,
    /// Its requests get a 503.
    pub(crate) refusing: Option<Refusing>,
    /// Since when the request of `after` has waited, in microseconds. `None`: it came later than the connection was
    /// queued, or may have.
    pub(crate) ready_us: Option<u64>,
    /// Counts what it holds while it waits for a thread of a pool, or is at a worker with more than an idle one holds;
    /// nothing at other times. Stays with the box.
    pub(crate) memory: Option<MemoryAccount>,
    /// Of the loop that it belongs to; stays with the box.
    pub(crate) home: Option<Arc<dyn TaskHome>>,
}

/// A connection on its way between two loops. It counts as one of the server all the time.
#[derive(Debug)]
pub(crate) struct Moving {
    pub(crate) connection: Connection<Detached>,
    /// Its name among those whose cost is known.
    pub(crate) name: u64,
    /// What its old loop has not read of it came after this, in microseconds of the server's clock.
    pub(crate) came_after_us: u64,
}

impl Moving {
    /// No loop takes it in.
    pub(crate) fn into_connection(self) -> Option<Connection<Socket>> {
        let attach = |detached| Ok::<_, Detached>(Socket::from_detached(detached));
        self.connection.over(attach).ok()
    }
}

/// How a worker leaves a connection.
#[derive(Debug, Default)]
pub(crate) enum After {
    /// Nothing to do before an event.
    #[default]
    Wait,
    /// More to do, others first.
    Again,
    /// An app's task is to be started for it, by the loop.
    Start(Box<Exchange>, Arc<dyn Steps>),
    /// One of its blocking steps is to be queued: others may be done at the same time.
    Block(Box<Exchange>, Arc<dyn Steps>),
    /// To be closed.
    Close,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_waited_in_both_queues_and_while_its_handshake_was_kept() {
        let reply = Arc::new(Mailbox::new().unwrap());
        let job = Job {
            queued_us: 5_000,
            already_waited_us: 300,
            handshake_us: 20,
            ..Job::of(ClientKey::NOBODY, Work::Serve(Box::default()), &reply)
        };
        let waited = job.waited(6_000);
        assert_eq!((waited.here_us, waited.before_us), (1_000, 320));
        assert_eq!(waited.in_all_us(), 1_320);
    }

    impl Job {
        /// Work for a client's connection that the test does not have.
        pub(crate) fn of(client: ClientKey, work: Work, reply: &Arc<Mailbox<Message>>) -> Self {
            Self {
                work,
                token: Token {
                    index: 0,
                    generation: 0,
                },
                reply: Arc::clone(reply),
                queued_us: 0,
                already_waited_us: 0,
                handshake_us: 0,
                client,
            }
        }
    }
}
