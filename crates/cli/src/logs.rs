//! The logs of `loadline serve`: of requests, of connections. Each is a [`LineWriter`], so that serving
//! threads never wait.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use loadline_observe::{Closing, LineWriter, LineWriterOptions, Target};
use loadline_proto::{AccessFormat, ConnectionFormat};
use loadline_server::{AccessLogging, ConnectionLogging};
use loadline_spec::serve::RunningSpec;
use loadline_spec::values::FilePath;

use crate::failure::Failure;
use crate::files::why_not_written;

/// How long the end waits for the last lines of each.
const GRACE: Duration = Duration::from_secs(2);

/// Those that are written.
#[derive(Clone, Default)]
pub(crate) struct Logs {
    pub(crate) access: Option<Arc<LineWriter>>,
    pub(crate) connections: Option<Arc<LineWriter>>,
}

/// Their ends, with their names.
pub(crate) struct LogEnds(Vec<(&'static str, Closing)>);

impl Logs {
    /// Opens those that are asked for.
    pub(crate) fn open(running: &RunningSpec) -> Result<(Self, LogEnds), Failure> {
        let mut ends = Vec::new();
        let mut open = |name, path: &Option<FilePath>| {
            let Some(path) = path else {
                return Ok::<_, Failure>(None);
            };
            let (log, closing) = open_one(name, path)?;
            ends.push((name, closing));
            Ok(Some(log))
        };
        let logs = Self {
            access: open("access log", &running.access_log)?,
            connections: open("connection log", &running.connection_log)?,
        };
        Ok((logs, LogEnds(ends)))
    }

    /// For the server.
    pub(crate) fn access_logging(&self, format: Option<AccessFormat>) -> Option<AccessLogging> {
        let sink = self.access.clone()?;
        let format = format.unwrap_or(AccessFormat::Combined);
        Some(AccessLogging { format, sink })
    }

    /// For the server.
    pub(crate) fn connection_logging(
        &self,
        format: Option<AccessFormat>,
    ) -> Option<ConnectionLogging> {
        let sink = self.connections.clone()?;
        let format = match format {
            Some(AccessFormat::Json) => ConnectionFormat::Json,
            _ => ConnectionFormat::Text,
        };
        Some(ConnectionLogging { format, sink })
    }

    /// Has all of them opened again, for files that were moved away.
    pub(crate) fn reopen(&self) {
        for log in [&self.access, &self.connections].into_iter().flatten() {
            log.reopen();
        }
    }
}

impl LogEnds {
    /// Has everything written that is queued, for a moment at most.
    pub(crate) fn finish(self) {
        for (name, closing) in self.0 {
            let log = closing.finish(GRACE);
            if log.dropped > 0 {
                tracing::warn!("{} lines of the {name} were dropped", log.dropped);
            }
        }
    }
}

/// Opens a log, whose name is that of its option.
fn open_one(name: &'static str, path: &Path) -> Result<(Arc<LineWriter>, Closing), Failure> {
    let options = LineWriterOptions {
        name,
        ..LineWriterOptions::LOG
    };
    LineWriter::start(options, Target::from_path(path.to_owned())).map_err(|error| {
        let (option, why) = (name.replace(' ', "-"), why_not_written(&error));
        let right = "right would be a file that can be created or appended to, or - for standard \
                     output";
        Failure::usage(format!("--{option} {}: {why}; {right}", path.display()))
    })
}
