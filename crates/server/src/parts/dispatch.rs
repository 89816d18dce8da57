//! Work that may block: handed to a worker, or done here for want of one.

use std::sync::Arc;

use loadline_base::Token;
use loadline_proto::{Exchange, Handler, Status};

use crate::parts::connection::{Connection, Range};
use crate::parts::counters::Row;
use crate::parts::errand::WorkerTask;
use crate::parts::mailbox::Mailbox;
use crate::parts::workers::{Job, Message, Workers};
use crate::site::Site;

/// What a loop should not do itself.
#[derive(Debug)]
pub(crate) enum Work {
    /// The handler's blocking step. Back for `completed`.
    Block(Box<Exchange>),
    /// Bring a range of a file into memory. Back for `warmed`.
    Warm(Range),
    /// Serve a connection that is ready, from reading to writing (`--socket-io worker`). Back with
    /// the connection, and whether it is to be closed.
    Serve(Box<Served>),
    /// Carry an app's task out. Back when it has ended; its answer goes its own way.
    Errand(WorkerTask),
}

/// A connection on its way to a worker and back. The box is made once and used again.
#[derive(Debug, Default)]
pub(crate) struct Served {
    /// There, but for the moments of handing over.
    pub(crate) connection: Option<Connection>,
    /// What the visit ended with.
    pub(crate) after: After,
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
    Start(Box<Exchange>),
    /// To be closed.
    Close,
}

/// Where a loop's work goes, and where it comes back to.
pub(crate) struct Desk {
    /// `None`: there are no workers.
    pub(crate) workers: Option<Arc<Workers>>,
    /// Of the loop.
    pub(crate) mailbox: Arc<Mailbox<Message>>,
    /// Of the loop.
    pub(crate) row: Arc<Row>,
}

impl Desk {
    /// Hands work over. `None`: it comes back through the mailbox. `Some`: it is here again, done
    /// because there are no workers, or answered with 503 because their queue is full (a whole
    /// connection comes back untouched then, and so does a task).
    pub(crate) fn dispatch<H: Handler>(
        &self,
        work: Work,
        token: Token,
        site: &Site<H>,
        scratch: &mut [u8],
    ) -> Option<Work> {
        let Some(workers) = &self.workers else {
            return Some(self.do_here(work, site, scratch));
        };
        let job = Job {
            work,
            token,
            reply: Arc::clone(&self.mailbox),
            queued_us: site.clock.now_us(),
        };
        let Err(job) = workers.submit(job) else {
            return None;
        };
        Some(match job.work {
            Work::Block(mut exchange) => {
                exchange.response.error(Status::SERVICE_UNAVAILABLE);
                exchange.response.field("Retry-After", "1");
                Work::Block(exchange)
            }
            // The answer has begun, so there is nothing to refuse it with.
            Work::Warm(range) => self.do_here(Work::Warm(range), site, scratch),
            work @ (Work::Serve(_) | Work::Errand(_)) => work,
        })
    }

    /// The honest weakness of a loop without workers: everybody waits. Counted and timed.
    fn do_here<H: Handler>(&self, mut work: Work, site: &Site<H>, scratch: &mut [u8]) -> Work {
        let began_us = site.clock.now_us();
        match &mut work {
            Work::Block(exchange) => site.handle_blocking(exchange),
            Work::Warm(range) => range.read(scratch),
            Work::Serve(_) | Work::Errand(_) => return work,
        }
        self.row.blocked_in_place.add(1);
        let took_us = site.clock.now_us().saturating_sub(began_us);
        self.row.blocked_in_place_us.add(took_us);
        work
    }
}
