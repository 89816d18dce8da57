//! What the command line and the configuration of a server may depend on.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};

use super::network::Link;
use crate::cells::Cell;

/// unix(7): 108 bytes, with the zero behind them.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// What a command line or a configuration may depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaunchContext<'a> {
    pub(super) port: u16,
    pub(super) link: &'a Link,
    pub(super) root: &'a Path,
    /// What is asked for.
    pub(super) path: &'a str,
    /// A folder of the trial's own, empty.
    pub(super) scratch: &'a Path,
    /// The folder of the plan.
    pub(super) plan: &'a Path,
    /// CPUs that the server may use.
    pub(super) cpu_count: usize,
    /// Paths of large files below the root, which some servers treat differently.
    pub(super) large_files: &'a [String],
    /// Whether servers are started as root, and need to know the user to switch to.
    pub(super) is_root: bool,
    /// Descriptors that they may have.
    pub(super) descriptors: u64,
    /// Addresses of the trial's databases, by placeholder.
    pub(super) databases: &'a BTreeMap<String, String>,
}

impl LaunchContext<'_> {
    /// Where the server listens.
    pub(super) fn address(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.link.server_address(), self.port)
    }

    /// What the client asks for.
    pub(super) fn url(&self, cell: &Cell) -> String {
        format!("{}://{}{}", cell.scheme(), self.address(), cell.path)
    }

    /// Where a Loadline server that listens by https alone is asked for its counters; `None`: the path is
    /// too long for a socket.
    pub(super) fn status_socket(&self) -> Option<PathBuf> {
        let path = self.scratch.join("status");
        (path.as_os_str().len() <= SOCKET_PATH_BYTES_MAX).then_some(path)
    }

    /// The file that a configuration is written to.
    pub(super) fn configuration_file(&self) -> PathBuf {
        self.scratch.join("configuration")
    }
}
