//! What is served, as a snapshot: listeners, their limits, the handler. Replaced as a whole while the
//! server runs; every thread takes the new one up at the start of its next turn.
//!
//! A connection keeps the limits that it was accepted with. A request is answered by one handler from
//! beginning to end, also where its blocking step or its task runs on another thread, or later. One whose
//! content is gathered for the handler begins again with that (`Outcome::Collect`), perhaps at the next one.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::{any::Any, fmt};

use loadline_proto::{
    Context, Exchange, Handler, Outcome, Port, Protocol, ServerSession, SessionConfig, Status, Task,
};
use loadline_sys::ListenAddr;

use crate::fairness::ClientKey;
use crate::telemetry::log::log_panic;

/// What is served, and how.
#[derive(Debug)]
pub struct Config<H> {
    /// Turns requests into responses.
    pub handler: Arc<H>,
    /// Where connections come from; at least one.
    pub listeners: Vec<ListenerConfig>,
}

/// A listener, and what its connections have in common.
#[derive(Clone, Debug)]
pub struct ListenerConfig {
    /// Where it listens. `[::]` takes IPv4 too, unless an IPv4 address of its port stands beside it.
    pub address: ListenAddr,
    /// Limits, error pages, trusted proxies.
    pub session: Arc<SessionConfig>,
    /// What its connections speak.
    pub protocol: Protocol,
}

impl<H> Config<H> {
    /// This handler at these addresses, all with the same limits.
    pub fn new(
        handler: Arc<H>,
        session: Arc<SessionConfig>,
        addresses: impl IntoIterator<Item = ListenAddr>,
    ) -> Self {
        let listener = |address| ListenerConfig {
            address,
            session: Arc::clone(&session),
            protocol: Protocol::Http,
        };
        Self {
            handler,
            listeners: addresses.into_iter().map(listener).collect(),
        }
    }

    /// Each listener's connections know its number.
    fn numbered(mut self) -> Self {
        for (number, listener) in (0..).zip(&mut self.listeners) {
            if listener.session.listener != number {
                let session = SessionConfig::clone(&listener.session);
                listener.session = Arc::new(SessionConfig {
                    listener: number,
                    ..session
                });
            }
        }
        self
    }

    /// Workers parse what connections in plain text have received (`--parse worker`).
    fn offloaded(mut self) -> Self {
        for listener in &mut self.listeners {
            if let Protocol::Http = listener.protocol {
                listener.protocol = Protocol::OFFLOADED;
            }
        }
        self
    }

    /// Where its listeners listen, in their order.
    pub(crate) fn addresses(&self) -> Vec<ListenAddr> {
        let addresses = self.listeners.iter().map(|it| it.address.clone());
        addresses.collect()
    }

    fn listener(&self, number: u32) -> &ListenerConfig {
        let index = (number as usize).min(self.listeners.len().saturating_sub(1));
        &self.listeners[index]
    }

    /// Whose a connection is that this listener has just accepted. Proxies that are trusted stand for
    /// many clients, and have no share.
    pub(crate) fn client(&self, listener: u32, peer: Option<SocketAddr>) -> ClientKey {
        let proxies = &self.listener(listener).session.trusted_proxies;
        match peer {
            Some(peer) if !proxies.trusts(Some(peer)) => ClientKey::of(peer.ip()),
            _ => ClientKey::NOBODY,
        }
    }

    /// Requests that a connection which this listener has accepted may have at one time.
    pub(crate) fn streams_max(&self, listener: u32) -> u32 {
        self.listener(listener).session.limits.streams_max
    }

    /// A connection that this listener has just accepted.
    pub(crate) fn session(
        &self,
        listener: u32,
        peer: Option<SocketAddr>,
        cx: &mut Context<'_>,
    ) -> ServerSession {
        let listener = self.listener(listener);
        listener.protocol.session(&listener.session, peer, cx)
    }
}

/// A configuration that cannot take the place of the one that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    serves: Vec<ListenAddr>,
    wants: Vec<ListenAddr>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |addresses: &[ListenAddr]| {
            let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            texts.join(", ")
        };
        let (serves, wants) = (list(&self.serves), list(&self.wants));
        write!(
            f,
            "listeners cannot change while the server runs: it has {serves}, not {wants}"
        )
    }
}

impl std::error::Error for ConfigError {}

/// A configuration that may be replaced while it is served.
#[derive(Debug)]
pub struct SharedConfig<H> {
    current: Mutex<Arc<Config<H>>>,
    /// Goes up with every replacement.
    generation: AtomicU64,
    /// See `Config::offloaded`.
    is_offloaded: AtomicBool,
}

impl<H> From<Config<H>> for Arc<SharedConfig<H>> {
    fn from(config: Config<H>) -> Self {
        Self::new(SharedConfig {
            current: Mutex::new(Arc::new(config.numbered())),
            generation: AtomicU64::new(0),
            is_offloaded: AtomicBool::new(false),
        })
    }
}

impl<H> SharedConfig<H> {
    /// What new requests are served by.
    pub fn current(&self) -> Arc<Config<H>> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Serves this from now on: a thread that is in the middle of a turn, from its next one on.
    ///
    /// # Errors
    /// Its listeners are others.
    pub fn replace(&self, config: Config<H>) -> Result<(), ConfigError> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let (serves, wants) = (current.addresses(), config.addresses());
        if serves != wants {
            return Err(ConfigError { serves, wants });
        }
        *current = Arc::new(self.completed(config));
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// With what the server itself knows of connections.
    fn completed(&self, config: Config<H>) -> Config<H> {
        let config = config.numbered();
        match self.is_offloaded.load(Ordering::Relaxed) {
            true => config.offloaded(),
            false => config,
        }
    }

    /// Before anything is served: workers are to parse, also by what this is replaced with.
    pub(crate) fn offload(&self) {
        self.is_offloaded.store(true, Ordering::Relaxed);
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let config = Config {
            handler: Arc::clone(&current.handler),
            listeners: current.listeners.clone(),
        };
        *current = Arc::new(config.offloaded());
    }
}

/// What one thread serves.
pub(crate) struct ThreadConfig<H: Handler> {
    shared: Arc<SharedConfig<H>>,
    generation: u64,
    pub(crate) config: Arc<Config<H>>,
    /// What the handler keeps on this thread.
    pub(crate) local: H::Local,
}

impl<H: Handler> ThreadConfig<H> {
    pub(crate) fn new(shared: &Arc<SharedConfig<H>>) -> Self {
        let generation = shared.generation.load(Ordering::Acquire);
        let config = shared.current();
        Self {
            shared: Arc::clone(shared),
            generation,
            local: config.handler.local(),
            config,
        }
    }

    /// Takes up the current one; to be called between two turns.
    #[inline]
    pub(crate) fn refresh(&mut self) {
        if self.shared.generation.load(Ordering::Acquire) != self.generation {
            self.take_up();
        }
    }

    #[cold]
    fn take_up(&mut self) {
        let shared = Arc::clone(&self.shared);
        *self = Self::new(&shared);
    }
}

/// The steps of a handler that another thread may take, without its type.
pub(crate) trait Steps: Send + Sync {
    /// The blocking step, on a thread that may block; a panic becomes a 500.
    fn handle_blocking(&self, exchange: &mut Exchange);

    /// An app's task for this request; `None` if making it has panicked.
    fn start(&self, exchange: Box<Exchange>, port: Port) -> Option<Task>;
}

impl fmt::Debug for dyn Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Steps")
    }
}

impl<H: Handler> Steps for Config<H> {
    fn handle_blocking(&self, exchange: &mut Exchange) {
        let run = AssertUnwindSafe(|| self.handler.handle_blocking(exchange));
        if let Err(panic) = catch_unwind(run) {
            answer_panic(exchange, panic.as_ref());
        }
    }

    fn start(&self, exchange: Box<Exchange>, port: Port) -> Option<Task> {
        let start = AssertUnwindSafe(|| self.handler.start(exchange, port));
        catch_unwind(start)
            .inspect_err(|panic| log_panic("an app", panic.as_ref()))
            .ok()
    }
}

impl<H: Handler> Config<H> {
    /// The handler's quick step; a panic becomes a 500.
    #[inline]
    pub(crate) fn handle(
        &self,
        local: &mut H::Local,
        exchange: &mut Exchange,
        cx: &mut Context<'_>,
    ) -> Outcome {
        // What a panic leaves half done is the exchange, which is started over, and the handler's
        // own `local`, for which its author answers as with any shared state.
        let run = AssertUnwindSafe(|| self.handler.handle(local, exchange, cx));
        match catch_unwind(run) {
            Ok(outcome) => outcome,
            Err(panic) => {
                answer_panic(exchange, panic.as_ref());
                Outcome::Ready
            }
        }
    }

    /// Whether a request is answered however much there is to do.
    #[cold]
    pub(crate) fn is_exempt(&self, exchange: &Exchange) -> bool {
        let ask = AssertUnwindSafe(|| self.handler.is_exempt(exchange));
        catch_unwind(ask)
            .inspect_err(|panic| log_panic("a handler", panic.as_ref()))
            .unwrap_or(false)
    }

    /// The handler gives back what no request has asked for lately; whether anything is left.
    #[cold]
    pub(crate) fn release_unused(&self, cx: &Context<'_>) -> bool {
        let release = AssertUnwindSafe(|| self.handler.release_unused(cx));
        catch_unwind(release)
            .inspect_err(|panic| log_panic("a handler", panic.as_ref()))
            .unwrap_or(false)
    }
}

#[cold]
fn answer_panic(exchange: &mut Exchange, panic: &(dyn Any + Send)) {
    log_panic("a handler", panic);
    exchange.response.error(Status::INTERNAL_SERVER_ERROR);
}
