//! What stands in front of a site: pages of the server's own at their paths, apps at theirs.

use std::fmt;
use std::sync::Arc;

use loadline_base::sorting;
use loadline_proto::latency::UNMEASURED;
use loadline_proto::{Context, Exchange, Handler, Outcome, Port, Task};

use crate::live::LivePage;
use crate::probes::Probes;
use crate::status::StatusPage;

type App = Arc<dyn Handler<Local = ()>>;

/// A site with apps at some of its paths, and probes, a status page and a live page if it is to have
/// them.
///
/// An app at `/shop` gets `/shop` and everything below it, `/shop/cart?item=1` say, with the target
/// as it was sent. Paths are compared as they were sent, too: byte by byte, nothing decoded. Of
/// several apps, the one with the longest path has it. The pages of the server's own have their
/// own paths alone, and come before all of them.
pub struct Mounts<H> {
    probes: Option<Probes>,
    status: Option<StatusPage>,
    live: Option<LivePage>,
    /// Longest first, without slashes at their end.
    apps: Vec<(Box<[u8]>, App)>,
    site: H,
}

impl<H: fmt::Debug> fmt::Debug for Mounts<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths = self.apps.iter().map(|(path, _)| path.escape_ascii());
        let paths: Vec<String> = paths.map(|path| path.to_string()).collect();
        f.debug_struct("Mounts")
            .field("probes", &self.probes)
            .field("status", &self.status)
            .field("live", &self.live)
            .field("apps", &paths)
            .field("site", &self.site)
            .finish()
    }
}

impl<H: Handler> Mounts<H> {
    /// A site without apps.
    #[must_use]
    pub fn new(site: H) -> Self {
        Self {
            probes: None,
            status: None,
            live: None,
            apps: Vec::new(),
            site,
        }
    }

    /// Answers these probes, or none.
    #[must_use]
    pub fn probes(mut self, probes: Option<Probes>) -> Self {
        self.probes = probes;
        self
    }

    /// Shows this status page, or none.
    #[must_use]
    pub fn status(mut self, page: Option<StatusPage>) -> Self {
        self.status = page;
        self
    }

    /// Shows this live page, or none.
    #[must_use]
    pub fn live(mut self, page: Option<LivePage>) -> Self {
        self.live = page;
        self
    }

    /// Puts an app at a path, `/shop` say; at `/` it gets everything that no other app does. A second
    /// one at the same path takes its place.
    #[must_use]
    pub fn mount(mut self, path: &str, app: impl Handler<Local = ()>) -> Self {
        let path = path.trim_matches('/');
        let path = match path.is_empty() {
            true => String::new(),
            false => format!("/{path}"),
        };
        let path = path.into_bytes().into_boxed_slice();
        self.apps.retain(|(other, _)| *other != path);
        self.apps.push((path, Arc::new(app)));
        sorting::sort_by_key(&mut self.apps, |(path, _)| std::cmp::Reverse(path.len()));
        self
    }

    #[inline]
    fn app(&self, exchange: &Exchange) -> Option<(usize, &App)> {
        if self.apps.is_empty() {
            return None;
        }
        let target = exchange.request.path();
        let is_at = |path: &[u8]| {
            let rest = target.strip_prefix(path);
            rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'/')) || path.is_empty())
        };
        let mut apps = self.apps.iter().enumerate();
        let found = apps.find(|(_, (path, _))| is_at(path));
        found.map(|(index, (_, app))| (index, app))
    }

    /// Answers with a page of the server's own; `false`: it is for none of them.
    #[inline]
    fn answer_own(&self, exchange: &mut Exchange) -> bool {
        let path = exchange.request.path();
        if let Some(probes) = &self.probes
            && let Some(probe) = probes.find(path)
        {
            probes.answer(probe, exchange);
        } else if let Some(status) = &self.status
            && status.matches(exchange)
        {
            status.answer(exchange);
        } else if let Some(live) = &self.live
            && let Some(part) = live.find(path)
        {
            live.answer(part, exchange);
        } else {
            return false;
        }
        exchange.mount = UNMEASURED;
        true
    }
}

impl<H: Handler> Handler for Mounts<H> {
    type Local = H::Local;

    fn mounts(&self) -> Vec<String> {
        let apps = self.apps.iter().map(|(path, _)| match path.is_empty() {
            true => "/".to_owned(),
            false => path.escape_ascii().to_string(),
        });
        std::iter::once("/".to_owned()).chain(apps).collect()
    }

    fn local(&self) -> Self::Local {
        self.site.local()
    }

    #[inline]
    fn handle(
        &self,
        local: &mut Self::Local,
        exchange: &mut Exchange,
        cx: &mut Context<'_>,
    ) -> Outcome {
        if self.answer_own(exchange) {
            return Outcome::Ready;
        }
        match self.app(exchange) {
            Some((index, app)) => {
                exchange.mount = u8::try_from(index + 1).unwrap_or(UNMEASURED - 1);
                app.handle(&mut (), exchange, cx)
            }
            None => self.site.handle(local, exchange, cx),
        }
    }

    fn is_exempt(&self, exchange: &Exchange) -> bool {
        let path = exchange.request.path();
        let is_status = || (self.status.as_ref()).is_some_and(|status| status.matches(exchange));
        let is_probe = || (self.probes.as_ref()).is_some_and(|it| it.find(path).is_some());
        let is_live = || (self.live.as_ref()).is_some_and(|live| live.find(path).is_some());
        is_status() || is_probe() || is_live() || self.site.is_exempt(exchange)
    }

    fn handle_blocking(&self, exchange: &mut Exchange) {
        match self.app(exchange) {
            Some((_, app)) => app.handle_blocking(exchange),
            None => self.site.handle_blocking(exchange),
        }
    }

    fn start(&self, exchange: Box<Exchange>, port: Port) -> Task {
        match self.app(&exchange) {
            Some((_, app)) => app.start(exchange, port),
            None => self.site.start(exchange, port),
        }
    }

    fn release_unused(&self, cx: &Context<'_>) -> bool {
        let mut is_left = self.site.release_unused(cx);
        for (_, app) in &self.apps {
            is_left |= app.release_unused(cx);
        }
        is_left
    }
}
