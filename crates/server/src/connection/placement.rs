//! Where work of a connection runs that its owner may have another place for.

use std::sync::Arc;

use loadline_proto::{Computation, Exchange, Handler, StreamId};

use super::offload;
use crate::config::Steps;
use crate::fairness::ClientKey;
use crate::task::TaskHandle;
use crate::thread::context::ThreadContext;
use crate::transport::Range;

/// Where work runs that may block: on the thread that drives the connection, unless the owner has
/// another place for it.
pub(crate) trait Placement<H: Handler> {
    /// The blocking step of the handler whose quick step came before.
    fn block(
        &mut self,
        exchange: Box<Exchange>,
        steps: Arc<dyn Steps>,
        thread: &mut ThreadContext<H>,
    ) -> Blocked;

    /// Reads a range of a file into the page cache. `true`: done; otherwise `prefetched` follows.
    fn prefetch(
        &mut self,
        range: Range,
        _client: ClientKey,
        thread: &mut ThreadContext<H>,
    ) -> bool {
        range.prefetch(thread.borrow().read_buffer);
        thread.tick();
        true
    }

    /// Carries out work that takes a processor for a while, of a handshake that was kept for `before_us`.
    /// `Some`: done, or refused; `None`: it comes back by `computed`.
    fn compute(
        &mut self,
        mut computation: Box<dyn Computation>,
        _client: ClientKey,
        _before_us: u64,
        thread: &mut ThreadContext<H>,
    ) -> Option<Box<dyn Computation>> {
        if !thread.refuses_handshake() {
            computation.carry_out();
            thread.tick();
        }
        Some(computation)
    }

    /// Parses what was received, and carries requests out, where a worker is to do that (`--parse worker`).
    /// `Some`: done, or refused; `None`: it comes back by `computed`.
    fn offload(
        &mut self,
        mut computation: Box<dyn Computation>,
        _client: ClientKey,
        thread: &mut ThreadContext<H>,
    ) -> Option<Box<dyn Computation>> {
        offload::carry_out(&mut *computation, true, thread);
        Some(computation)
    }

    /// Starts an app's task, likewise.
    fn start(
        &mut self,
        exchange: Box<Exchange>,
        steps: Arc<dyn Steps>,
        thread: &mut ThreadContext<H>,
    ) -> TaskStart;

    /// The task of this stream, if it has one, is cancelled.
    fn cancelled(&mut self, _stream: StreamId, _thread: &mut ThreadContext<H>) {}
}

/// What became of a blocking step.
pub(crate) enum Blocked {
    /// It is done: the exchange has the response.
    Done(Box<Exchange>),
    /// It was not begun, and the exchange has its 503.
    Refused(Box<Exchange>),
    /// It comes back by `completed`.
    Queued,
    /// Not on this thread; by the handler whose quick step came before.
    Elsewhere(Box<Exchange>, Arc<dyn Steps>),
}

/// What came of starting a task.
pub(crate) enum TaskStart {
    /// Or prepared: it begins at its turn.
    Started(Box<TaskHandle>),
    /// Prepared, and it begins at once.
    Now(Box<TaskHandle>, Box<Exchange>, Arc<dyn Steps>),
    /// The exchange has the answer.
    Refused(Box<Exchange>),
    /// Not on this thread; by the handler whose quick step came before.
    Elsewhere(Box<Exchange>, Arc<dyn Steps>),
}
