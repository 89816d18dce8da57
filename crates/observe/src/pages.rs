//! The pages of the server's own: in front of what it serves.

use std::io;
use std::sync::Arc;

use loadline_apps::{LivePage, Mounts, Probes, StatusPage};
use loadline_proto::Handler;
use loadline_server::{Server, ServerHandle};

use crate::status::Status;

/// Where the status page is unless chosen otherwise.
pub const STATUS_PATH: &str = "/-/status";

/// The status page, the live page and the probes, at their paths.
#[derive(Clone)]
pub struct Pages {
    status: Option<StatusPage>,
    live: Option<LivePage>,
    probes: Probes,
}

impl Pages {
    /// The status page at this path, `/-/status` for example, and in its folder the live page and the
    /// probes. Without a path there are only the probes, in `/-/`.
    #[must_use]
    pub fn new(status_path: Option<&str>, status: &Arc<Status>) -> Self {
        let page = status_path.map(|path| StatusPage::new(path, Arc::clone(status) as Arc<_>));
        let folder = page.as_ref().map_or("/-/", StatusPage::folder).to_owned();
        let live = page.is_some();
        let live = live.then(|| LivePage::new(folder.clone(), Arc::clone(status) as Arc<_>));
        let asked = Arc::clone(status);
        Self {
            status: page,
            live,
            probes: Probes::new(&folder, move || asked.is_ready()),
        }
    }

    /// Their paths.
    #[must_use]
    pub fn paths(&self) -> Vec<String> {
        let status = self.status.iter().map(|page| page.path().to_owned());
        let live = self.live.iter().flat_map(LivePage::paths);
        status.chain(live).chain(self.probes.paths()).collect()
    }

    /// Puts them in front of a site.
    pub fn in_front_of<H: Handler>(self, site: H) -> Mounts<H> {
        Mounts::new(site)
            .probes(Some(self.probes))
            .status(self.status)
            .live(self.live)
    }
}

/// Starts a server with its pages in front of what it serves.
pub trait StartWithPages {
    /// As [`Server::start`], with the status page at [`STATUS_PATH`], the live page `/-/live` and the
    /// probes `/-/health` and `/-/ready`.
    ///
    /// # Errors
    /// As [`Server::start`].
    fn start_with_pages(self) -> io::Result<ServerHandle>;
}

impl<H: Handler> StartWithPages for Server<H> {
    fn start_with_pages(self) -> io::Result<ServerHandle> {
        let status = Status::new(Vec::new());
        let pages = Pages::new(Some(STATUS_PATH), &status);
        let server = self.wrap(|site| pages.in_front_of(site)).start()?;
        status.attach(&server);
        Ok(server)
    }
}
