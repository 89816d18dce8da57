//! What a load balancer asks: whether the server is alive, and whether it is ready.

use std::fmt;
use std::sync::Arc;

pub use loadline_base::choices::Probe;
use loadline_proto::{Body, Exchange, Status};

use crate::status::is_read;

/// Two small pages in one folder: `health` says 200 for as long as anybody answers, while the server
/// goes down too; `ready` says 200, and 503 once more requests should go elsewhere.
#[derive(Clone)]
pub struct Probes {
    folder: Box<[u8]>,
    is_ready: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl fmt::Debug for Probes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probes")
            .field("folder", &self.folder.escape_ascii().to_string())
            .finish_non_exhaustive()
    }
}

impl Probes {
    /// Pages in this folder, `/-/` say. `is_ready` is asked on a serving thread, so it must not
    /// block.
    pub fn new(folder: &str, is_ready: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        let inner = folder.trim_matches('/');
        let folder = match inner.is_empty() {
            true => "/".to_owned(),
            false => format!("/{inner}/"),
        };
        Self {
            folder: folder.into_bytes().into_boxed_slice(),
            is_ready: Arc::new(is_ready),
        }
    }

    /// The paths of all.
    #[must_use]
    pub fn paths(&self) -> Vec<String> {
        let folder = self.folder.escape_ascii();
        let path = |probe: &Probe| format!("{folder}{}", probe.name());
        Probe::ALL.iter().map(path).collect()
    }

    /// The one that a request for this path is for, if any.
    #[inline]
    #[must_use]
    pub fn find(&self, path: &[u8]) -> Option<Probe> {
        let name = path.strip_prefix(&*self.folder)?;
        let is_it = |probe: &Probe| probe.name().as_bytes() == name;
        Probe::ALL.iter().copied().find(is_it)
    }

    /// Answers a request for it.
    pub fn answer(&self, probe: Probe, exchange: &mut Exchange) {
        if !is_read(exchange) {
            return;
        }
        let response = &mut exchange.response;
        let (status, text) = match probe {
            Probe::Health => (Status::OK, "alive\n"),
            Probe::Ready if (self.is_ready)() => (Status::OK, "ready\n"),
            Probe::Ready => (Status::SERVICE_UNAVAILABLE, "not ready\n"),
        };
        response.status = status;
        response.field("Content-Type", "text/plain; charset=utf-8");
        response.field("Cache-Control", "no-store");
        response.body = Body::Bytes(text.as_bytes().to_vec());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_has_its_own_path_alone() {
        let at = |folder: &str, path: &str| Probes::new(folder, || true).find(path.as_bytes());
        for folder in ["/-/", "-", "/-"] {
            assert_eq!(at(folder, "/-/health"), Some(Probe::Health), "{folder}");
            assert_eq!(at(folder, "/-/ready"), Some(Probe::Ready), "{folder}");
            for other in ["/-/", "/-/healthy", "/-/ready/", "/health", "/-ready", "/"] {
                assert_eq!(at(folder, other), None, "{folder} and {other}");
            }
        }
        for folder in ["/", ""] {
            assert_eq!(at(folder, "/ready"), Some(Probe::Ready), "{folder}");
            assert_eq!(at(folder, "//ready"), None, "{folder}");
        }
    }
}
