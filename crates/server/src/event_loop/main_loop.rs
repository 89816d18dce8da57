//! The main loop of `--accept handoff`: accepts everything that is pending and hands it over.

use std::io;
use std::sync::Arc;

use loadline_base::Millis;
use loadline_proto::Handler;
use loadline_sys::{Accepted, Interest};

use super::loop_group::{LoopGroup, New};
use crate::accept::acceptor::NewConnection;
use crate::accept::balance::Balancer;
use crate::accept::listener::Listener;
use crate::accept::listener_set::ListenerSet;
use crate::admission::{Handoff, Verdict};
use crate::site::Site;
use crate::telemetry::counters::{Role, ThreadStats};
use crate::transport::socket::epoll::Epoll;
use crate::transport::{Driver, DriverEvent};

/// Connections accepted before the shutdown and the back-off are checked again.
const ACCEPTS_MAX: usize = 1024;

/// Accepts for all loops; serves no connection itself.
pub(super) struct MainLoop<H: Handler> {
    site: Arc<Site<H>>,
    group: Arc<LoopGroup>,
    driver: Epoll,
    listeners: ListenerSet,
    /// More connections were there to be accepted than were accepted last.
    has_backlog: bool,
    balancer: Balancer,
    stats: Arc<ThreadStats>,
}

impl<H: Handler> MainLoop<H> {
    pub(super) fn new(
        site: &Arc<Site<H>>,
        group: &Arc<LoopGroup>,
        listeners: Vec<Listener>,
    ) -> io::Result<Self> {
        let mut driver = Epoll::new()?;
        driver.watch_waker(site.shutdown.drain_fd())?;
        Ok(Self {
            listeners: ListenerSet::open(
                listeners,
                Interest::Listener,
                &mut driver,
                &site.descriptor_log_after,
            )?,
            driver,
            has_backlog: false,
            balancer: Balancer::new(site.options.balance),
            stats: site.registry.thread_stats(Role::Acceptor),
            site: Arc::clone(site),
            group: Arc::clone(group),
        })
    }

    /// Accepts until a drain begins.
    pub(super) fn run(mut self) -> io::Result<()> {
        while !self.site.shutdown.is_draining() {
            let now = self.site.clock.now();
            let timeout_ms = self.listeners.resumes_at().map(|at| at.since(now));
            self.driver.wait(timeout_ms)?;
            self.listeners
                .resume_due(self.site.clock.now(), &mut self.driver)?;
            let mut is_accept_ready = false;
            while let Some(event) = self.driver.next() {
                is_accept_ready |= matches!(event, DriverEvent::AcceptReady);
            }
            if is_accept_ready {
                self.accept_up_to(ACCEPTS_MAX)?;
            }
        }
        // Who is in the backlog by now has a connection, and is served.
        self.listeners.begin_drain();
        while !self.listeners.is_drained() && !self.site.shutdown.is_cut(self.site.clock.now()) {
            let pause = self.listeners.resumes_at();
            if let Some(until) = pause {
                let now = self.site.clock.now();
                self.driver.wait(Some(until.since(now)))?;
            }
            self.accept_up_to(ACCEPTS_MAX)?;
        }
        self.listeners.unwatch(&mut self.driver);
        drop(self.listeners);
        self.group.stops_sending();
        Ok(())
    }

    fn accept_up_to(&mut self, most: usize) -> io::Result<()> {
        for count in 0..most {
            let now = self.site.clock.now();
            match self.listeners.next(now, &self.stats, &mut self.driver)? {
                Some(NewConnection::Regular(accepted)) => self.hand_over(accepted),
                Some(NewConnection::LastDescriptor(accepted)) => {
                    let (index, handoff) = self.place(accepted, true);
                    if let Verdict::EvictIdle | Verdict::EvictOf { .. } = handoff.verdict {
                        self.listeners.resume(&mut self.driver)?;
                    }
                    self.send(index, handoff);
                }
                None => {
                    // Not even a spare descriptor: the oldest idle connection goes.
                    if count == 0
                        && self.listeners.resumes_at().is_some()
                        && let Some(index) = self.group.oldest_idle()
                    {
                        self.group.ask_for_room(index);
                    }
                    self.has_backlog = self.listeners.resumes_at().is_some();
                    return Ok(());
                }
            }
        }
        self.has_backlog = true;
        Ok(())
    }

    fn hand_over(&mut self, accepted: Accepted) {
        let (index, handoff) = self.place(accepted, false);
        self.send(index, handoff);
    }

    /// One that is dropped is closed here: loops have enough others to refuse.
    fn send(&self, index: usize, handoff: Handoff) {
        if handoff.verdict == Verdict::Drop {
            self.stats.core.accepted.add(1);
            self.stats.core.close(handoff.refused_for());
            return;
        }
        self.group.send(index, handoff);
    }

    /// Which loop takes it, and how.
    fn place(&mut self, accepted: Accepted, is_last_descriptor: bool) -> (usize, Handoff) {
        let config = self.site.config.current();
        let client = config.client(accepted.listener, accepted.peer);
        let now_us = self.site.clock.now_us();
        let new = New {
            preferred: self.choose(),
            client,
            is_last_descriptor,
            is_draining: !is_last_descriptor && self.site.shutdown.is_draining(),
            is_memory_full: self.group.is_memory_full(),
            now: Millis(now_us / 1000),
        };
        let (index, verdict) = self.group.place(new);
        let handoff = Handoff {
            accepted,
            verdict,
            client,
            tries: 0,
            came_after_us: Some(if self.has_backlog { 0 } else { now_us }),
            is_memory_full: new.is_memory_full,
        };
        (index, handoff)
    }

    fn choose(&mut self) -> usize {
        if let Some(adaptive) = self.group.adaptive() {
            return adaptive.place();
        }
        let loads = self.group.loops().iter().map(|handle| &handle.load);
        self.balancer.choose(loads, || self.site.clock.now_us())
    }
}
