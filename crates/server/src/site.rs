//! What every architecture is given, shared by all threads of a server.

use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{self, Poll};

use loadline_base::MemoryBudget;
use loadline_proto::{AccessFormat, Exchange, ForwardedField, Handler, Task};

use crate::accept::acceptor::LogAfter;
use crate::clock::Clock;
use crate::config::SharedConfig;
use crate::overload::{AppRequests, InProgress};
use crate::shutdown::Shutdown;
use crate::telemetry::connection_log::SharedConnectionLog;
use crate::telemetry::counters::Registry;
use crate::telemetry::log::{self, drop_panic, log_panic, panic_text};
use crate::transport::local_address::LocalAddresses;
use crate::{AccessSink, ServerOptions};

/// What every architecture is given.
pub(crate) struct Site<H: Handler> {
    pub(crate) config: Arc<SharedConfig<H>>,
    pub(crate) options: ServerOptions,
    pub(crate) clock: Clock,
    /// What all threads may use.
    pub(crate) memory: Arc<MemoryBudget>,
    /// What the kernel may keep for a new connection; of the listener that grants most.
    pub(crate) socket_buffer_bytes: u64,
    /// Requests on threads that share the CPUs, if there is a latency goal.
    pub(crate) in_progress: Option<InProgress>,
    /// Requests that apps have, if there is a latency goal.
    pub(crate) apps: Option<Arc<AppRequests>>,
    pub(crate) descriptor_log_after: LogAfter,
    pub(crate) shutdown: Shutdown,
    pub(crate) registry: Arc<Registry>,
    pub(crate) local_addresses: LocalAddresses,
    /// Whether it was said that a proxy on this machine is not trusted.
    pub(crate) warned_of_unnamed_proxy: AtomicBool,
    pub(crate) access: Option<(AccessFormat, Arc<dyn AccessSink>)>,
    pub(crate) connection_log: Option<Arc<SharedConnectionLog>>,
    /// Why the server ends though nobody has asked it to: the first reason.
    pub(crate) failure: Mutex<Option<io::Error>>,
}

impl<H: Handler> Site<H> {
    /// Says so if a request has come through a proxy that nobody has named.
    #[inline]
    pub(crate) fn check_proxy(&self, exchange: &Exchange) {
        if let Some(field) = exchange.unnamed_proxy() {
            self.warn_of_unnamed_proxy(exchange.peer, field);
        }
    }

    /// Says once which option is missing, when a request has come through a proxy of this machine.
    #[cold]
    fn warn_of_unnamed_proxy(&self, peer: Option<SocketAddr>, field: ForwardedField) {
        if self.warned_of_unnamed_proxy.swap(true, Ordering::Relaxed) {
            return;
        }
        let proxy = peer.map_or_else(
            || "unix".to_owned(),
            |peer| peer.ip().to_canonical().to_string(),
        );
        let (name, option) = match field {
            ForwardedField::XForwardedFor => ("X-Forwarded-For", ""),
            ForwardedField::Forwarded => ("Forwarded", " --trust-proxy-field forwarded"),
        };
        log::say(|| {
            tracing::warn!(
                "a request came with {name} through a proxy on this machine that is not trusted, so all its \
                 clients count as one, in logs, limits and accounts; right would be \
                 --trust-proxy {proxy}{option}"
            );
        });
    }

    /// Runs what the server cannot do without: if that ends in an error or a panic, all of the server
    /// ends. One that serves some of its connections would look alive.
    pub(crate) fn guarded(
        &self,
        who: &str,
        run: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let result = caught(who, run);
        if result.is_err() {
            self.shutdown.stop(self.clock.now());
        }
        result
    }

    /// The same on a thread whose result nobody awaits: the handle says why the server has ended.
    pub(crate) fn guarded_alone(&self, who: &str, run: impl FnOnce() -> io::Result<()>) {
        if let Err(error) = caught(who, run) {
            // Before the stop: whoever waits for the end asks for the reason then.
            self.lock_failure().get_or_insert(error);
            self.shutdown.stop(self.clock.now());
        }
    }

    /// Why the server has ended though nobody has asked it to.
    pub(crate) fn take_failure(&self) -> Option<io::Error> {
        self.lock_failure().take()
    }

    fn lock_failure(&self) -> std::sync::MutexGuard<'_, Option<io::Error>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs this; a panic is an error.
fn caught(who: &str, run: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = format!("{who} panicked: {}", panic_text(panic.as_ref()));
        drop_panic(panic);
        Err(io::Error::other(text))
    })
}

/// Polls an app's task; a panic ends it.
pub(crate) fn poll_guarded(task: &mut Task, context: &mut task::Context<'_>) -> Poll<()> {
    // It is dropped next, so that nobody sees what a panic has left half done but its author.
    let poll = AssertUnwindSafe(|| task.as_mut().poll(context));
    catch_unwind(poll).unwrap_or_else(|panic| {
        log_panic("an app", panic.as_ref());
        Poll::Ready(())
    })
}

/// Drops a task, whatever its own parts do then.
pub(crate) fn drop_guarded(task: Option<Task>) {
    if let Some(task) = task
        && let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(task)))
    {
        log_panic("an app that was dropped", panic.as_ref());
    }
}

/// To be notified once set-up is done; dropped before that, the start has failed.
pub(crate) struct Started(pub(crate) SyncSender<()>);

impl Started {
    /// From here on connections are served; errors are no longer those of the start.
    pub(crate) fn notify(self) {
        let _ = self.0.send(()); // an error: nothing waits any more
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::AtomicU64;

    use loadline_proto::{Context, Exchange, Outcome};
    use loadline_sys::ListenAddr;

    use super::*;
    use crate::config::Config;
    use crate::shutdown::Stage;

    pub(crate) struct Quiet;

    impl Handler for Quiet {
        type Local = ();

        fn local(&self) {}

        fn handle(&self, (): &mut (), _: &mut Exchange, _: &mut Context<'_>) -> Outcome {
            Outcome::Ready
        }
    }

    /// All of its steps may block.
    pub(crate) struct Blocks;

    impl Handler for Blocks {
        type Local = ();

        fn local(&self) {}

        fn handle(&self, (): &mut (), _: &mut Exchange, _: &mut Context<'_>) -> Outcome {
            Outcome::Blocking
        }

        fn handle_blocking(&self, _: &mut Exchange) {}
    }

    /// This handler, with default limits, at no address that anybody listens at.
    pub(crate) fn config_of<H: Handler>(handler: H) -> Arc<SharedConfig<H>> {
        let nowhere = ListenAddr::Tcp(([127, 0, 0, 1], 0).into());
        Config::new(Arc::new(handler), Arc::default(), [nowhere]).into()
    }

    /// Of a server that nobody asks anything.
    pub(crate) fn quiet_site() -> Arc<Site<Quiet>> {
        site_of(config_of(Quiet), ServerOptions::default())
    }

    /// Of a server that is not started.
    pub(crate) fn site_of<H: Handler>(
        config: Arc<SharedConfig<H>>,
        options: ServerOptions,
    ) -> Arc<Site<H>> {
        Arc::new(Site {
            config,
            options,
            clock: Clock::new(),
            in_progress: None,
            apps: None,
            memory: MemoryBudget::new(None),
            socket_buffer_bytes: 0,
            descriptor_log_after: LogAfter::default(),
            shutdown: Shutdown::new().unwrap(),
            registry: Arc::default(),
            local_addresses: LocalAddresses::default(),
            warned_of_unnamed_proxy: AtomicBool::default(),
            access: None,
            connection_log: None,
            failure: Mutex::default(),
        })
    }

    /// A time that the test moves, in microseconds.
    pub(crate) fn clock() -> &'static AtomicU64 {
        Box::leak(Box::new(AtomicU64::new(0)))
    }

    /// Of a server that is not started, and goes by such a clock.
    pub(crate) fn site_at<H: Handler>(
        now_us: &'static AtomicU64,
        handler: H,
        options: ServerOptions,
    ) -> Site<H> {
        let site = site_of(config_of(handler), options);
        Site {
            clock: Clock::simulated(now_us),
            ..Arc::into_inner(site).unwrap()
        }
    }

    #[test]
    fn what_the_server_cannot_do_without_ends_it_and_says_why() {
        let site = quiet_site();
        site.guarded_alone("a worker", || Ok(()));
        assert_eq!(site.shutdown.stage(), Stage::Up);
        site.guarded_alone("a worker", || panic!("on purpose"));
        assert_eq!(site.shutdown.stage(), Stage::Stopping);
        site.guarded_alone("another", || panic!("because of that"));
        let why = site.take_failure().map(|error| error.to_string());
        assert_eq!(why.as_deref(), Some("a worker panicked: on purpose"));
    }
}
