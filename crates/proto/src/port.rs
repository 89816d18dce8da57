//! How an app's task speaks with the connection that its request came from.
//!
//! ```text
//!   task ── Port ── Courier ···· the thread that owns the connection ── ServerSession
//!           answer · produce                 answered · produced · consumed
//!           content · trailers · room        Offer · Pull · Cancel
//! ```
//!
//! The courier is the server's: a mailbox with a lock, perhaps. Nothing in here locks or waits.

use core::fmt;
use core::future::poll_fn;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;

use loadline_base::Buffer;

use crate::{Exchange, Fields};

/// An app's work for one request. Whoever polls it lends no runtime: a task that needs one enters it
/// itself.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What an app's task asks of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskOptions {
    /// The most content that it takes, in bytes. Where the head announces more, or more comes with
    /// it, the answer is 413 and the task never starts; where it grows beyond that later, the task
    /// is dropped, and the answer is 413 or, if it has begun, cut by the end of the connection.
    pub body_bytes_max: u64,
    /// A client that closes its end of the connection (a half-close, or all of a close that can be
    /// seen before something is sent) has left: the task is dropped. Otherwise it gets its answer.
    pub cancel_on_half_close: bool,
}

impl Default for TaskOptions {
    /// Any length of content, since it streams; and an answer after a half-close.
    fn default() -> Self {
        Self {
            body_bytes_max: u64::MAX,
            cancel_on_half_close: false,
        }
    }
}

/// A piece of streamed content, in either direction.
#[derive(Debug)]
pub enum Piece {
    /// Bytes; at least one.
    Data(Buffer),
    /// Fields that follow the content. Those of an answer are sent if the client said `TE: trailers` and
    /// the answer is chunked, else dropped; of a request they come right before the end.
    Trailers(Fields),
    /// The content is complete.
    End,
    /// It will never be: what was promised cannot be kept.
    Abort,
}

/// The client is gone, or time is up: the answer is no longer awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the client is gone, or the time for its request is up")
    }
}

impl std::error::Error for Gone {}

/// Carries between a task and the owner of its connection, from any thread.
pub trait Courier: Send + Sync + 'static {
    /// See [`Port::answer`].
    fn answer(&self, exchange: Box<Exchange>);
    /// See [`Port::produce`].
    fn produce(&self, piece: Piece);
    /// See [`Port::poll_content`].
    fn poll_content(&self, context: &mut Context<'_>) -> Poll<Result<Option<Buffer>, Gone>>;
    /// See [`Port::take_trailers`].
    fn take_trailers(&self) -> Option<Fields>;
    /// See [`Port::poll_room`].
    fn poll_room(&self, context: &mut Context<'_>) -> Poll<Result<usize, Gone>>;
}

/// A task's end of its request. Cheap to clone: one half may read while another one writes.
#[derive(Clone)]
pub struct Port(Arc<dyn Courier>);

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Port")
    }
}

impl Port {
    /// A port over this courier.
    #[must_use]
    pub fn new(courier: Arc<dyn Courier>) -> Self {
        Self(courier)
    }

    /// Gives the exchange back with an answer in it, once. With `Body::Stream` its content follows by
    /// `produce`; any other body is the whole of it.
    pub fn answer(&self, exchange: Box<Exchange>) {
        self.0.answer(exchange);
    }

    /// Passes a piece of the answer on. Data beyond the room that `poll_room` returned is taken, but
    /// is a mistake: it is memory without a bound.
    pub fn produce(&self, piece: Piece) {
        self.0.produce(piece);
    }

    /// The next content of the request, some bytes of it; `None` at its end. The first call asks the
    /// client to go on if it waits for that (100 Continue). One reader at a time.
    ///
    /// # Errors
    /// [`Gone`]: no more will come.
    pub fn poll_content(&self, context: &mut Context<'_>) -> Poll<Result<Option<Buffer>, Gone>> {
        self.0.poll_content(context)
    }

    /// The fields that came behind the content of the request, if there were any: once, when
    /// `poll_content` has said that the content is over. They are no part of the head, and have names that
    /// a request may have there (RFC 9110 section 6.5.1).
    #[must_use]
    pub fn take_trailers(&self) -> Option<Fields> {
        self.0.take_trailers()
    }

    /// Ready when there is room for content of the answer, with how many bytes. One writer at a
    /// time.
    ///
    /// # Errors
    /// [`Gone`]: it is no longer awaited.
    pub fn poll_room(&self, context: &mut Context<'_>) -> Poll<Result<usize, Gone>> {
        self.0.poll_room(context)
    }

    /// [`poll_content`](Self::poll_content) as a future.
    ///
    /// # Errors
    /// [`Gone`]: no more will come.
    pub async fn content(&self) -> Result<Option<Buffer>, Gone> {
        poll_fn(|context| self.poll_content(context)).await
    }

    /// [`poll_room`](Self::poll_room) as a future.
    ///
    /// # Errors
    /// [`Gone`]: it is no longer awaited.
    pub async fn room(&self) -> Result<usize, Gone> {
        poll_fn(|context| self.poll_room(context)).await
    }
}
