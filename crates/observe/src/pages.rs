//! The pages of the server's own: in front of what it serves, or at a listener of their own.

use std::io;
use std::sync::Arc;

use loadline_apps::{LivePage, Mounts, Probes, StatusPage};
use loadline_proto::{
    Context, Exchange, Handler, Outcome, Protocol, SessionConfig, Status as Code,
};
use loadline_server::{
    Architecture, Config, ListenAddr, ListenerConfig, Server, ServerConfig, ServerHandle,
    ServerOptions, serve,
};

use crate::status::Status;

/// Where the status page is unless chosen otherwise.
pub const STATUS_PATH: &str = "/-/status";

/// Connections of a listener of its own: probes, scrapes and some people.
const ADMIN_CONNECTIONS_MAX: usize = 256;

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

    /// Serves them, and nothing else, at addresses of their own: by a thread, connections and limits
    /// that nothing else uses. So they respond however much load the server has, whatever it refuses,
    /// and while it drains. To be stopped by [`ServerHandle::drain`] once the server has ended.
    ///
    /// # Errors
    /// As [`serve`].
    pub fn serve_alone(
        self,
        addresses: Vec<(ListenAddr, Protocol)>,
        unix_mode: Option<u32>,
    ) -> io::Result<ServerHandle> {
        let session = Arc::new(SessionConfig {
            error_pages: loadline_apps::error_pages(),
            ..SessionConfig::default()
        });
        let listener = |(address, protocol)| ListenerConfig {
            address,
            session: Arc::clone(&session),
            protocol,
        };
        let options = ServerOptions {
            architecture: Architecture::Reactor,
            loops: 1,
            workers: 0,
            connections_max: ADMIN_CONNECTIONS_MAX,
            latency_goal: None,
            ..ServerOptions::default()
        };
        let config = ServerConfig {
            options,
            unix_mode,
            ..ServerConfig::default()
        };
        let served = Config {
            handler: Arc::new(self.in_front_of(Nothing)),
            listeners: addresses.into_iter().map(listener).collect(),
        };
        serve(served, config)
    }
}

/// A site without content.
struct Nothing;

impl Handler for Nothing {
    type Local = ();

    fn local(&self) {}

    fn handle(&self, (): &mut (), exchange: &mut Exchange, _: &mut Context<'_>) -> Outcome {
        exchange.response.error(Code::NOT_FOUND);
        Outcome::Ready
    }

    fn handle_blocking(&self, _: &mut Exchange) {}
}

/// Starts a server with its pages in front of what it serves.
pub trait StartWithPages {
    /// As [`Server::start`], with the status page at [`STATUS_PATH`], the live page `/-/live` and the
    /// probes `/-/health` and `/-/ready`.
    ///
    /// # Errors
    /// As [`serve`].
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
