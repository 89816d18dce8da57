//! io_uring: one or more loops that get completions, and workers for what may block.
//!
//! The reactor learns that a socket is ready, and then reads or writes. The proactor submits reads
//! and writes beforehand, and learns that they are done: bytes lie in a buffer that the kernel has
//! filled, output has left. Loops, workers, accepting and going down are those of the reactor; its
//! table of models holds here with the same numbers.
//!
//! One system call a turn submits what the last one led to, and waits. Connections are accepted and
//! bytes received by operations that go on until they are stopped; a small answer that went out
//! whole says nothing. The loop sends large files from the page cache, as far as the socket has room, and
//! waits for more room by an operation; what is not in memory is read by another one, and keeps
//! neither the loop nor a worker waiting.
//!
//! `--accept handoff` has a main loop on epoll: accepting is all that it does.

use std::io;
use std::sync::Arc;

use loadline_proto::Handler;

use crate::accept::listener::Listener;
use crate::event_loop;
use crate::site::{Site, Started};
use crate::transport::ring::driver::RingDriver;

/// Serves until drained or cut.
pub(crate) fn run<H: Handler>(
    site: &Arc<Site<H>>,
    listeners: Vec<Listener>,
    started: Started,
) -> io::Result<()> {
    event_loop::run::<H, RingDriver>(site, listeners, started)
}
