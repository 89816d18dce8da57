//! Handlers: static files, service time, the status page, and what routes between them.
//!
//! A handler sees no socket, no thread and no architecture: see `loadline_proto::Handler`.
#![forbid(unsafe_code)]

pub mod content;
pub mod router;
pub mod service_time;
pub mod status;

pub use router::Router;
pub use service_time::{ServiceKind, ServiceTime};
pub use status::{StatusPage, StatusSource};
