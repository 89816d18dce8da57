//! Edge-triggered epoll: one or more loops that serve many connections each, and workers for what
//! may block.
//!
//! | `--loops` | `--workers` | `--accept` | the model |
//! |---|---|---|---|
//! | 1 | 0 | shared | single reactor, single thread |
//! | 1 | M | shared | single reactor with a worker pool |
//! | N | 0 | handoff | main reactor with sub-reactors |
//! | N | M | handoff | main reactor with sub-reactors and a worker pool |
//!
//! A connection is registered with epoll once, for reading and writing, when it first has to wait.
//! From then on a request costs one receive and one send: readiness is a flag in the slot, and
//! backpressure is not reading.

use std::io;
use std::sync::Arc;

use loadline_proto::Handler;

use crate::accept::listener::Listener;
use crate::event_loop;
use crate::site::{Site, Started};
use crate::transport::socket::epoll::Epoll;

/// Serves until drained or cut.
pub(crate) fn run<H: Handler>(
    site: &Arc<Site<H>>,
    listeners: Vec<Listener>,
    started: Started,
) -> io::Result<()> {
    event_loop::run::<H, Epoll>(site, listeners, started)
}
