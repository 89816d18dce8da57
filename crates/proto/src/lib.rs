//! HTTP as pure state machines: facts in, orders out.
//!
//! Sans-IO means here: no clock, no file, no socket, no thread, no randomness. A loop tells a
//! [`ServerSession`] what happened (bytes came, bytes left, the handler answered, time passed) and
//! asks it for the next [`Action`]. Nothing that a peer does is an error of these calls: a bad
//! request becomes an answer, a half-close, a bounded linger and [`Action::Close`].
//!
//! ```text
//!   received · ran · completed · progressed · sent · expired · draining      facts
//!                               │
//!                         ServerSession
//!                               │
//!            Run · Block · Send · Finish · Wait · Close                      orders
//! ```
#![forbid(unsafe_code)]

pub mod access_log;
pub mod counters;
pub mod error_pages;
pub mod exchange;
pub mod fault;
pub mod handler;
pub mod http1;
pub mod limits;
pub mod method;
pub mod request;
pub mod response;
pub mod server_session;
pub mod status;
pub mod turn;

pub use access_log::{AccessFormat, AccessLog};
pub use counters::{CloseReason, Counters};
pub use error_pages::ErrorPages;
pub use exchange::{Exchange, StreamId};
pub use fault::{Blame, Fault};
pub use handler::{Handler, Outcome};
pub use limits::{Limits, Pace};
pub use method::Method;
pub use request::{Field, FieldName, Request, RequestBody, Span, TargetForm, Version};
pub use response::{Body, Response};
pub use server_session::{Action, ServerSession, SessionConfig};
pub use status::Status;
pub use turn::{HttpDate, Pool, Turn};
