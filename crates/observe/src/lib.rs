//! What a server shows of itself: logs, a status page, a live page, probes.
//!
//! Two lines give them to a server that is built in code:
//!
//! ```no_run
//! use axum::{Router, routing::get};
//! use loadline_observe::{StartWithPages, access_log};
//! use loadline_server::Server;
//! use loadline_tower::Tower;
//!
//! fn main() -> std::io::Result<()> {
//!     let app = Router::new().route("/", get(|| async { "hello" }));
//!     let (log, _closing) = access_log("access.log".as_ref())?;
//!     let server = Server::new(Tower::new(app)?).access_log(log).start_with_pages()?;
//!     server.wait()?;
//!     Ok(())
//! }
//! ```
#![forbid(unsafe_code)]

mod exposition;
mod latency;
mod line_writer;
mod live;
mod object;
mod pages;
mod reading;
mod refusals;
mod sampler;
mod section;
mod stations;
mod status;

use std::io;
use std::path::Path;

use loadline_proto::AccessFormat;
use loadline_server::AccessLogging;

pub use line_writer::{
    Closing, DROP_TIMEOUT, LineWriter, LineWriterOptions, LogCounts, Losses, Target,
};
pub use pages::{Pages, STATUS_PATH, StartWithPages};
pub use section::{Figure, Section};
pub use status::Status;

/// An access log in the combined form, appended to this file; `-` is standard output. The second part
/// waits, when it is dropped, until the last lines are written.
///
/// # Errors
/// The file cannot be opened, or there is no thread to be had.
pub fn access_log(path: &Path) -> io::Result<(AccessLogging, Closing)> {
    let options = LineWriterOptions {
        name: "access log",
        ..LineWriterOptions::LOG
    };
    let (sink, closing) = LineWriter::start(options, Target::from_path(path.to_owned()))?;
    let format = AccessFormat::Combined;
    Ok((AccessLogging { format, sink }, closing))
}
