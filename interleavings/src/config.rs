//! As `src/config.rs` of the server, for one app. A panic is not caught: it is the checker's.

use std::fmt;

use loadline_proto::{Exchange, Port, Task};

pub(crate) trait Steps: Send + Sync {
    fn start(&self, exchange: Box<Exchange>, port: Port) -> Option<Task>;
}

impl fmt::Debug for dyn Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Steps")
    }
}

/// An app: a function that makes a task of a request.
pub(crate) struct App(Box<dyn Fn(Box<Exchange>, Port) -> Task + Send + Sync>);

impl App {
    pub(crate) fn new<F>(start: impl Fn(Box<Exchange>, Port) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self(Box::new(move |exchange, port| {
            Box::pin(start(exchange, port))
        }))
    }
}

impl Steps for App {
    fn start(&self, exchange: Box<Exchange>, port: Port) -> Option<Task> {
        Some((self.0)(exchange, port))
    }
}
