//! Which handler a request goes to: the status page at its path, all else to the site.

use loadline_proto::{Exchange, Handler, Outcome, Port, Task, Turn};

use crate::status::StatusPage;

/// A site with a status page in front of it.
#[derive(Debug)]
pub struct Router<H> {
    status: Option<StatusPage>,
    site: H,
}

impl<H: Handler> Router<H> {
    /// Routes to `status`, if there is one, and to `site`.
    #[must_use]
    pub fn new(status: Option<StatusPage>, site: H) -> Self {
        Self { status, site }
    }
}

impl<H: Handler> Handler for Router<H> {
    type Local = H::Local;

    fn local(&self) -> Self::Local {
        self.site.local()
    }

    #[inline]
    fn handle(
        &self,
        local: &mut Self::Local,
        exchange: &mut Exchange,
        turn: &mut Turn<'_>,
    ) -> Outcome {
        match &self.status {
            Some(status) if status.matches(exchange) => {
                status.answer(exchange);
                Outcome::Ready
            }
            _ => self.site.handle(local, exchange, turn),
        }
    }

    fn handle_blocking(&self, exchange: &mut Exchange) {
        self.site.handle_blocking(exchange);
    }

    fn start(&self, exchange: Box<Exchange>, port: Port) -> Task {
        self.site.start(exchange, port)
    }
}
