//! The threads of an architecture of event loops: one for each loop, one that accepts for all.

use std::io;
use std::sync::Arc;
use std::thread::{Builder, ScopedJoinHandle};
use std::time::Duration;

use loadline_proto::Handler;

use super::EventLoop;
use super::drain::close_those_on_their_way;
use super::loop_group::LoopGroup;
use super::main_loop::MainLoop;
use crate::accept::listener::Listener;
use crate::options::{Accept, SocketIo};
use crate::site::{Site, Started};
use crate::telemetry::log;
use crate::thread::group::LEAVE_MS;
use crate::transport::Driver;
use crate::worker::pool::Workers;
use crate::worker::resizer::Resizer;

/// Serves until drained or cut.
pub(crate) fn run<H: Handler, D: Driver>(
    site: &Arc<Site<H>>,
    listeners: Vec<Listener>,
    started: Started,
) -> io::Result<()> {
    let options = &site.options;
    let handoff = options.accept == Accept::Handoff;
    // Loops pass on connections that they cannot make room for, also loops that do not accept.
    let senders = options.loops + usize::from(handoff);
    let group = LoopGroup::new(options, senders, &site.memory)?;
    let pools = Pools(start_pools(site)?);
    let mut loops = Vec::with_capacity(options.loops);
    for index in 0..options.loops {
        let own = if handoff {
            Vec::new()
        } else {
            let again = listeners.iter().map(Listener::again);
            again.collect::<io::Result<_>>()?
        };
        loops.push(EventLoop::<H, D>::new(
            index,
            site,
            &group,
            pools.of(index),
            own,
        )?);
    }
    let main = if handoff {
        Some(MainLoop::new(site, &group, listeners)?)
    } else {
        drop(listeners); // each loop has its own
        None
    };
    let resizer = Resizer::start(site, &pools.0)?;
    let result = run_threads(site, main, loops, started);
    drop(resizer);
    pools.end(site);
    close_those_on_their_way(site, &group);
    result
}

/// One thread for each loop; the calling one accepts, or is the only loop.
fn run_threads<H: Handler, D: Driver>(
    site: &Arc<Site<H>>,
    main: Option<MainLoop<H>>,
    loops: Vec<EventLoop<H, D>>,
    started: Started,
) -> io::Result<()> {
    std::thread::scope(|scope| {
        let mut loops = loops;
        let here = if main.is_none() { loops.pop() } else { None };
        let mut threads = Vec::with_capacity(loops.len());
        for (index, event_loop) in loops.into_iter().enumerate() {
            let run = move || site.guarded("a loop", || event_loop.run());
            match Builder::new()
                .name(format!("loop {index}"))
                .spawn_scoped(scope, run)
            {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    site.shutdown.stop(site.clock.now());
                    join(threads)?;
                    return Err(error);
                }
            }
        }
        started.notify();
        let result = match (main, here) {
            (Some(main), _) => site.guarded("the accepting thread", || main.run()),
            (None, Some(event_loop)) => site.guarded("a loop", || event_loop.run()),
            (None, None) => Ok(()),
        };
        join(threads).and(result)
    })
}

fn join(threads: Vec<ScopedJoinHandle<'_, io::Result<()>>>) -> io::Result<()> {
    let mut first = Ok(());
    for thread in threads {
        let result = thread.join();
        let result = result.unwrap_or_else(|panic| {
            let text = log::panic_text(panic.as_ref());
            Err(io::Error::other(format!("a loop panicked: {text}")))
        });
        first = first.and(result); // all are joined, whatever one of them says
    }
    first
}

/// No pool, one for all loops, or one for each. Dropped, the workers go when they are idle.
struct Pools(Vec<Arc<Workers>>);

fn start_pools<H: Handler>(site: &Arc<Site<H>>) -> io::Result<Vec<Arc<Workers>>> {
    let options = &site.options;
    let pools = match options.workers {
        0 => 0,
        _ => options.pools(),
    };
    let mut started = Pools(Vec::with_capacity(pools));
    for pool in 0..pools {
        started.0.push(Workers::start(site, options.workers, pool)?);
    }
    Ok(std::mem::take(&mut started.0))
}

impl Pools {
    fn of(&self, index: usize) -> Option<Arc<Workers>> {
        let last = self.0.len().checked_sub(1)?;
        self.0.get(index.min(last)).cloned()
    }

    /// Lets the workers go, and waits for them as long as the grace allows; a moment longer if they
    /// have connections to give back. A handler that hangs is left behind.
    fn end<H: Handler>(&self, site: &Site<H>) {
        for pool in &self.0 {
            pool.close();
        }
        for pool in &self.0 {
            let now = site.clock.now();
            let leave_ms = match site.options.socket_io {
                SocketIo::Worker => LEAVE_MS,
                SocketIo::Loop => 0,
            };
            let left_ms = site.shutdown.cut_at().map_or(0, |at| at.since(now)) + leave_ms;
            if !pool.wait(Duration::from_millis(left_ms)) {
                log::say(|| {
                    tracing::warn!(
                        "a worker is still busy with a request whose connection has ended"
                    );
                });
            }
        }
    }
}

impl Drop for Pools {
    fn drop(&mut self) {
        for pool in &self.0 {
            pool.close();
        }
    }
}
