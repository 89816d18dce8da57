//! A server that runs, from outside.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use loadline_base::MemoryBudget;
use loadline_proto::Handler;
use loadline_sys::{ListenAddr, wait_readable};

use crate::clock::Clock;
use crate::overload::AppRequests;
use crate::shutdown::Shutdown;
use crate::site::Site;
use crate::telemetry::counters::Registry;
use crate::telemetry::log;
use crate::{ServerOptions, Snapshot, Timings};

/// How a server came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Connections that were cut because the grace ended, or by the second stage. 0 after a clean
    /// drain.
    pub connections_cut: u64,
}

impl Ending {
    /// Whether every accepted request was finished.
    #[must_use]
    pub fn is_clean(self) -> bool {
        self.connections_cut == 0
    }
}

/// A running server. Can be shared between threads: one waits, another one drains. Dropping it
/// leaves the server running, detached.
pub struct ServerHandle {
    control: Control,
    addresses: Vec<ListenAddr>,
    main: JoinHandle<io::Result<()>>,
}

/// What can be asked of a server from any thread; cheap to clone.
#[derive(Clone)]
pub struct Control(Arc<dyn Remote>);

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Control")
    }
}

impl fmt::Debug for ServerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerHandle({:?})", self.addresses)
    }
}

/// The one place where the handler's type is forgotten; never on the path of a request.
trait Remote: Send + Sync {
    fn parts(&self) -> Parts<'_>;
    fn mounts(&self) -> Vec<String>;
    fn take_failure(&self) -> Option<io::Error>;
}

/// What does not depend on the handler's type.
struct Parts<'s> {
    options: &'s ServerOptions,
    registry: &'s Registry,
    shutdown: &'s Shutdown,
    clock: Clock,
    memory: &'s MemoryBudget,
    socket_buffer_bytes: u64,
    apps: Option<&'s AppRequests>,
}

impl<H: Handler> Remote for Site<H> {
    fn parts(&self) -> Parts<'_> {
        Parts {
            options: &self.options,
            registry: &self.registry,
            shutdown: &self.shutdown,
            clock: self.clock,
            memory: &self.memory,
            socket_buffer_bytes: self.socket_buffer_bytes,
            apps: self.apps.as_deref(),
        }
    }

    fn mounts(&self) -> Vec<String> {
        self.config.current().handler.mounts()
    }

    fn take_failure(&self) -> Option<io::Error> {
        Self::take_failure(self)
    }
}

impl Control {
    /// What was chosen when the server started.
    #[must_use]
    pub fn options(&self) -> &ServerOptions {
        self.0.parts().options
    }

    /// The counts now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let parts = self.0.parts();
        let counted = parts.registry.snapshot(parts.clock.now_us());
        let connections = counted.total.connections;
        Snapshot {
            memory_budget_bytes: parts.memory.limit_bytes(),
            memory_used_bytes: parts.memory.used_bytes(),
            socket_buffers_estimated_bytes: connections.saturating_mul(parts.socket_buffer_bytes),
            apps: parts.apps.map(AppRequests::counts).unwrap_or_default(),
            ..counted
        }
    }

    /// How long requests and jobs took so far.
    #[must_use]
    pub fn timings(&self) -> Timings {
        self.0.parts().registry.timings()
    }

    /// The names of the mounts in [`Timings::requests`].
    #[must_use]
    pub fn mounts(&self) -> Vec<String> {
        self.0.mounts()
    }

    /// Whether more requests are welcome: until `drain`, `drain_after` or `stop_now`. What a probe of
    /// readiness is to say.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.0.parts().shutdown.is_ready()
    }

    /// Whether the server is going down: from `drain` on, or from the end of the delay of
    /// `drain_after`.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.0.parts().shutdown.is_draining()
    }

    /// Going down behind a load balancer: the server is not ready from now on, and serves as ever
    /// until the delay is over; then, or at an earlier [`drain`](Self::drain), the drain begins. So
    /// whoever asks for readiness has the time to send new requests elsewhere. Returns at once.
    pub fn drain_after(&self, delay: Duration) {
        if delay.is_zero() {
            return self.drain();
        }
        self.0.parts().shutdown.announce();
        let control = self.clone();
        let wait = move || {
            if !control.await_drain(delay) {
                control.drain();
                log::say(|| tracing::info!("the delay is over: draining"));
            }
        };
        let name = "drain delay".to_owned();
        if let Err(error) = std::thread::Builder::new().name(name).spawn(wait) {
            self.drain();
            log::say(|| {
                tracing::warn!("draining without a delay: no thread to wait for it: {error}");
            });
        }
    }

    /// Waits for a drain to begin; `false` if none has after that time.
    fn await_drain(&self, delay: Duration) -> bool {
        let Parts {
            clock, shutdown, ..
        } = self.0.parts();
        let began_us = clock.now_us();
        while !shutdown.is_draining() {
            let waited = Duration::from_micros(clock.now_us().saturating_sub(began_us));
            let left = delay.saturating_sub(waited);
            if left.is_zero() {
                return false;
            }
            let left_ms = u64::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u64::MAX);
            if wait_readable(&[shutdown.drain_fd()], Some(left_ms)).is_err() {
                return false;
            }
        }
        true
    }

    /// First stage of going down: no new connections, every accepted request is finished, idle
    /// connections close at once, and after the grace what is left is cut. Returns at once.
    pub fn drain(&self) {
        let parts = self.0.parts();
        let now = parts.clock.now();
        parts.shutdown.begin_drain(now, parts.options.grace);
    }

    /// Second stage: everything is cut now. Returns at once.
    pub fn stop_now(&self) {
        let parts = self.0.parts();
        parts.shutdown.stop(parts.clock.now());
    }
}

impl ServerHandle {
    pub(crate) fn new<H: Handler>(
        site: Arc<Site<H>>,
        addresses: Vec<ListenAddr>,
        main: JoinHandle<io::Result<()>>,
    ) -> Self {
        Self {
            control: Control(site),
            addresses,
            main,
        }
    }

    /// Where it listens, in the order of the configuration; with the ports that the kernel chose.
    #[must_use]
    pub fn addresses(&self) -> &[ListenAddr] {
        &self.addresses
    }

    /// The first TCP address.
    #[must_use]
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.addresses.iter().find_map(|address| match address {
            ListenAddr::Tcp(address) => Some(*address),
            ListenAddr::Unix(_) => None,
        })
    }

    /// The same control for other threads: a signal handler's, the status page's.
    #[must_use]
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// The counts now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.control.snapshot()
    }

    /// See [`Control::drain`].
    pub fn drain(&self) {
        self.control.drain();
    }

    /// See [`Control::stop_now`].
    pub fn stop_now(&self) {
        self.control.stop_now();
    }

    /// Waits until the server has gone down (which somebody else asks for), and says how.
    ///
    /// # Errors
    /// The architecture, or a thread that it cannot do without, failed while running.
    pub fn wait(self) -> io::Result<Ending> {
        match self.main.join() {
            Ok(result) => result?,
            Err(_) => return Err(io::Error::other("a serving thread panicked")),
        }
        if let Some(failure) = self.control.0.take_failure() {
            return Err(failure);
        }
        Ok(Ending {
            connections_cut: self.control.0.parts().registry.cut.value(),
        })
    }
}
