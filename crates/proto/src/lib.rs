//! HTTP as pure state machines: events in, orders out.
//!
//! Sans-I/O means here: no clock, no file, no socket, no thread, no randomness. The caller reports
//! events to a [`ServerSession`] (bytes received, bytes sent, handler done, time passed) and takes the
//! next [`Action`] from it. Nothing that a peer does is an error of these calls: a bad request becomes
//! a response, a half-close, a bounded linger and [`Action::Close`].
//!
//! ```text
//!   received · ran · completed · progressed · sent · expired · draining      events
//!              answered · produced · consumed
//!                               │
//!                         ServerSession
//!                               │
//!        Run · Block · Send · Fill · Finish · Wait · Close                   orders
//!              Start · Offer · Pull · Cancel
//! ```
//!
//! The second lines are for apps, whose content streams in both directions.
//!
//! A request and its response, without a socket:
//!
//! ```
//! use std::sync::Arc;
//! use loadline_base::{Chunk, Millis};
//! use loadline_proto::{
//!     Action, Body, Counters, HttpDate, Outcome, Pool, ServerSession, SessionConfig, Context,
//! };
//!
//! let (mut pool, counters, date) = (Pool::new(), Counters::default(), HttpDate::at(784_111_777));
//! let now = Millis(0);
//! let mut cx = Context { now, came: now, date: &date, pool: &mut pool, counters: &counters, log: None };
//! let config = Arc::new(SessionConfig::default());
//! let mut session = ServerSession::new(&config, None, &mut cx);
//!
//! session.received(&mut b"GET / HTTP/1.1\r\nHost: example\r\n\r\n".to_vec(), &mut cx);
//! let Action::Run(mut exchange) = session.next_action(&mut cx) else { panic!() };
//! assert_eq!(exchange.request.path(), b"/");
//! exchange.response.body = Body::Bytes(b"hello".to_vec());
//! session.ran(exchange, Outcome::Ready, &mut cx);
//!
//! let Action::Send { mut transmit, .. } = session.next_action(&mut cx) else { panic!() };
//! let Some(Chunk::Memory(bytes)) = transmit.front() else { panic!() };
//! assert!(bytes.starts_with(b"HTTP/1.1 200 OK\r\n") && bytes.ends_with(b"\r\n\r\nhello"));
//! transmit.advance(transmit.remaining());
//! session.sent(transmit, &mut cx);
//! assert!(matches!(session.next_action(&mut cx), Action::Wait { read: true, .. }));
//! ```
#![forbid(unsafe_code)]

pub mod access_log;
pub mod action;
mod ascii;
mod borrowed;
pub mod client;
pub mod client_key;
pub mod client_session;
pub mod computation;
pub mod connection_log;
pub mod connector;
pub mod context;
pub mod counters;
pub mod date;
pub mod error_pages;
pub mod exchange;
pub mod fault;
pub mod fields;
pub mod handler;
mod handshake_time;
mod hang_up;
pub mod hpack;
pub mod http1;
pub mod http1_session;
pub mod http2;
pub mod http2_client;
pub mod http2_session;
pub mod latency;
pub mod layer;
pub mod layered;
pub mod limits;
pub mod method;
pub mod offload;
mod peer;
pub mod pool;
pub mod port;
mod progress;
pub mod request;
pub mod response;
pub mod security;
pub mod server_session;
pub mod session;
pub mod session_config;
mod session_state;
pub mod status;
mod stream;
pub mod trusted_proxies;

pub use access_log::{AccessFormat, AccessLog};
pub use action::{Action, Fill, Then};
pub use client::{Client, ForwardedField};
pub use client_key::ClientKey;
pub use client_session::{ClientSession, Received, Reply, ReplyFault, ReplyObserver};
pub use computation::Computation;
pub use connection_log::{ConnectionFormat, ConnectionLog, ConnectionRecord};
pub use connector::{ClientLayer, Connector, FailureCause, LayerFailure};
pub use context::Context;
pub use counters::{CloseReason, Counters, Http2Count};
pub use date::HttpDate;
pub use error_pages::ErrorPages;
pub use exchange::{Exchange, StreamId, spread_retry_after_s};
pub use fault::{Blame, Fault};
pub use fields::Fields;
pub use handler::{Handler, Outcome};
pub use handshake_time::HandshakeTime;
pub use hang_up::HangUp;
pub use http1_session::Http1Session;
pub use http2_client::{
    ClientEvent, Http2Client, Http2Fields, RequestBlocks, StreamFault, StreamObserver,
};
pub use http2_session::Http2Session;
pub use layer::Layer;
pub use layered::Layered;
pub use limits::{FIRST_REQUEST_GRACE_MS, Limits, Pace, RECEIVE_BYTES};
pub use method::Method;
pub use offload::{Offload, OffloadedSession};
pub use pool::Pool;
pub use port::{Courier, Gone, Piece, Port, Task, TaskOptions};
pub use request::{Field, FieldName, Request, RequestBody, Span, TargetForm, Version};
pub use response::{Body, Response};
pub use security::Security;
pub use server_session::{NewSession, Protocol, ServerSession, SharedProtocol};
pub use session::Session;
pub use session_config::{Http2, SessionConfig};
pub use status::Status;
pub use trusted_proxies::{TrustedProxies, TrustedProxy};
