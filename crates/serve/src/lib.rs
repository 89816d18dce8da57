//! The server of `loadline serve`: one type of handler for all that the program serves.
//!
//! The architectures are generic over the handler, so the compiler translates them where that type is
//! known: here, once, and for speed. The program's crate is translated for size (Cargo.toml, decision 79).
#![forbid(unsafe_code)]

use std::io;
use std::sync::Arc;

use loadline_acme::{HttpChallenges, Tokens};
use loadline_apps::{HttpsPort, HttpsRedirect, Mounts, ServiceTime, StaticFiles};
use loadline_observe::Pages;
use loadline_proto::{Context, Exchange, Handler, Outcome, Protocol, SessionConfig, Status};
use loadline_server::{
    Architecture, Config, ListenAddr, ListenerConfig, ServerConfig, ServerHandle, ServerOptions,
};

/// Connections of a listener for pages alone: probes, scrapes and some people.
const ADMIN_CONNECTIONS_MAX: usize = 256;

/// What is served, behind redirects and challenges.
pub struct Site {
    /// Files, with apps and pages in front of them.
    pub mounts: Mounts<Content>,
    /// Where plain requests are redirected to; `None`: they are served.
    pub https_port: Option<HttpsPort>,
    /// Responses to an authority's challenges.
    pub tokens: Option<Tokens>,
}

impl Site {
    /// Starts the server.
    ///
    /// # Errors
    /// As [`loadline_server::serve`].
    pub fn serve(
        self,
        listeners: Vec<ListenerConfig>,
        config: ServerConfig,
    ) -> io::Result<ServerHandle> {
        let handler = HttpsRedirect::new(self.mounts, self.https_port);
        let served = Config {
            handler: Arc::new(HttpChallenges::new(handler, self.tokens)),
            listeners,
        };
        loadline_server::serve(served, config)
    }
}

/// Serves pages, and nothing else, at addresses of their own: by a thread, connections and limits that
/// nothing else uses. So they respond however much load the server has, whatever it refuses, and while
/// it drains. To be stopped by [`ServerHandle::drain`] once the server has ended.
///
/// # Errors
/// As [`loadline_server::serve`].
pub fn serve_pages(
    pages: Pages,
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
    let site = Site {
        mounts: pages.in_front_of(Content::Nothing),
        https_port: None,
        tokens: None,
    };
    site.serve(addresses.into_iter().map(listener).collect(), config)
}

/// What stands at the paths that no app and no page has.
pub enum Content {
    /// Nothing: 404.
    Nothing,
    /// Files.
    Files(Arc<StaticFiles>),
    /// Files, each of whose responses takes longer.
    SlowFiles(ServiceTime<Arc<StaticFiles>>),
}

/// A thread's own part of [`Content`]; `None` where there are no files.
type Local = Option<<StaticFiles as Handler>::Local>;

impl Handler for Content {
    type Local = Local;

    fn local(&self) -> Local {
        match self {
            Self::Nothing => None,
            Self::Files(files) => Some(files.local()),
            Self::SlowFiles(files) => Some(files.local()),
        }
    }

    #[inline]
    fn handle(&self, local: &mut Local, exchange: &mut Exchange, cx: &mut Context<'_>) -> Outcome {
        match (self, local) {
            (Self::Files(files), Some(local)) => files.handle(local, exchange, cx),
            (Self::SlowFiles(files), Some(local)) => files.handle(local, exchange, cx),
            _ => {
                exchange.response.error(Status::NOT_FOUND);
                Outcome::Ready
            }
        }
    }

    fn is_exempt(&self, exchange: &Exchange) -> bool {
        match self {
            Self::Nothing => false,
            Self::Files(files) => files.is_exempt(exchange),
            Self::SlowFiles(files) => files.is_exempt(exchange),
        }
    }

    fn handle_blocking(&self, exchange: &mut Exchange) {
        match self {
            Self::Nothing => exchange.response.error(Status::NOT_FOUND),
            Self::Files(files) => files.handle_blocking(exchange),
            Self::SlowFiles(files) => files.handle_blocking(exchange),
        }
    }

    fn release_unused(&self, cx: &Context<'_>) -> bool {
        match self {
            Self::Nothing => false,
            Self::Files(files) => files.release_unused(cx),
            Self::SlowFiles(files) => files.release_unused(cx),
        }
    }
}
