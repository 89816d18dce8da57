//! Being built.

use std::io;
use std::sync::Arc;

use loadline_proto::Handler;

use crate::Listener;
use crate::site::{Site, Started};

pub(crate) fn run<H: Handler>(
    _site: &Arc<Site<H>>,
    _listeners: Vec<Listener>,
    _started: Started,
) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
