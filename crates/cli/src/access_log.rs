//! The logs of requests and of connections: each a [`LineWriter`], so that serving threads never wait.

use std::io;
use std::sync::Arc;

use crate::line_writer::{Kind, LineWriter, Losses};

pub(crate) use crate::line_writer::{Closing, Target};

/// Bounds of each: some fifty thousand lines, a tenth of a second at full speed.
pub(crate) const ACCESS_LOG: Kind = Kind {
    name: "log",
    batches_max: 16 * 1024,
    queued_bytes_max: 8 << 20,
    losses: Losses::Reported,
};

/// A log that is being written.
pub(crate) type AccessLogWriter = LineWriter;

/// Opens the target and starts the thread.
pub(crate) fn start(
    name: &'static str,
    target: Target,
) -> io::Result<(Arc<AccessLogWriter>, Closing)> {
    let kind = Kind { name, ..ACCESS_LOG };
    LineWriter::start(kind, target)
}
