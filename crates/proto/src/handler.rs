//! What turns requests into answers: the interface between the core and the apps.

use crate::{Context, Exchange, Port, Status, Task, TaskOptions};

/// What a handler's quick step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The answer stands in the exchange.
    Ready,
    /// Gather the request's content first (100 Continue is sent if asked for), then `handle` again
    /// with `RequestBody::Whole`. More than `bytes_max`, or more than the server's own limit
    /// (`Limits::body_bytes_max`), is answered with 413. A request without content is handled again at once, with an empty `Whole`.
    Collect {
        /// The most that the handler takes, in bytes.
        bytes_max: u64,
    },
    /// The rest may block: `handle_blocking` is to be called where blocking is allowed.
    Blocking,
    /// An app's future answers: `start` is to be called. It reads and writes content as it comes.
    Later(TaskOptions),
}

/// Turns a request into an answer. It sees no sockets, no threads and no protocol versions.
///
/// A panic in either step becomes a 500 and costs no thread.
pub trait Handler: Send + Sync + 'static {
    /// What each serving thread keeps of its own: an index of the cache, say. A hit in it takes no
    /// lock and writes no shared line.
    type Local: Send;

    /// The parts of a site whose latencies are counted apart: `Exchange::mount` is an index of it.
    fn mounts(&self) -> Vec<String> {
        vec!["/".into()]
    }

    /// A fresh `Local` for a thread that starts serving.
    fn local(&self) -> Self::Local;

    /// Called at the end of the head, on the thread that owns the connection. Must not block. A
    /// request of `Method::Other` is for apps: what is not `Later` is answered with 501.
    fn handle(
        &self,
        local: &mut Self::Local,
        exchange: &mut Exchange,
        cx: &mut Context<'_>,
    ) -> Outcome;

    /// Whether this request is answered however late it is and however much there is to do: a page that
    /// shows an operator how the server is, for instance.
    fn is_exempt(&self, _exchange: &Exchange) -> bool {
        false
    }

    /// Called after `Blocking`, on a thread that may block. Leaves the answer in the exchange.
    fn handle_blocking(&self, exchange: &mut Exchange) {
        exchange.response.error(Status::INTERNAL_SERVER_ERROR); // said `Blocking` and has no such step
    }

    /// Called after `Later`, once, on the thread that polls the task first: makes the future that
    /// answers through its port. Workers pass it on to each other between two polls. The task ends when the answer has been handed over, all of it.
    fn start(&self, mut exchange: Box<Exchange>, port: Port) -> Task {
        Box::pin(async move {
            exchange.response.error(Status::INTERNAL_SERVER_ERROR); // said `Later` and has no task
            port.answer(exchange);
        })
    }

    /// Called on event loops a minute after a request, and every minute from then on while it returns
    /// `true`: gives back what no request has asked for lately (open files, say), also if no more come.
    /// Says whether anything is left that a later call could give back. Must not block.
    fn release_unused(&self, _cx: &Context<'_>) -> bool {
        false
    }
}

/// A handler that others look into while it serves: the status page, say.
impl<H: Handler> Handler for std::sync::Arc<H> {
    type Local = H::Local;

    fn mounts(&self) -> Vec<String> {
        (**self).mounts()
    }

    fn local(&self) -> Self::Local {
        (**self).local()
    }

    #[inline]
    fn handle(
        &self,
        local: &mut Self::Local,
        exchange: &mut Exchange,
        cx: &mut Context<'_>,
    ) -> Outcome {
        (**self).handle(local, exchange, cx)
    }

    fn is_exempt(&self, exchange: &Exchange) -> bool {
        (**self).is_exempt(exchange)
    }

    fn handle_blocking(&self, exchange: &mut Exchange) {
        (**self).handle_blocking(exchange);
    }

    fn start(&self, exchange: Box<Exchange>, port: Port) -> Task {
        (**self).start(exchange, port)
    }

    fn release_unused(&self, cx: &Context<'_>) -> bool {
        (**self).release_unused(cx)
    }
}
