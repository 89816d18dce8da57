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
    /// When no connection was left to be accepted, in microseconds: those that are accepted now came after this,
    /// and may have waited for this thread since.
    none_left_us: u64,
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
            none_left_us: 0,
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
            let now_us = self.site.clock.now_us();
            let now = Millis(now_us / 1000);
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
                    if self.listeners.resumes_at().is_none() {
                        self.none_left_us = now_us;
                    } else if count == 0
                        && let Some(index) = self.group.oldest_idle()
                    {
                        // Not even a spare descriptor: the oldest idle connection goes.
                        self.group.ask_for_room(index);
                    }
                    return Ok(());
                }
            }
        }
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
        let new = New {
            preferred: self.choose(),
            client,
            is_last_descriptor,
            is_draining: !is_last_descriptor && self.site.shutdown.is_draining(),
            is_memory_full: self.group.is_memory_full(),
            now: self.site.clock.now(),
        };
        let (index, verdict) = self.group.place(new);
        let handoff = Handoff {
            accepted,
            verdict,
            client,
            tries: 0,
            came_after_us: Some(self.none_left_us),
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

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::Duration;

    use loadline_proto::Fields;
    use loadline_sys::ListenAddr;

    use super::*;
    use crate::ServerOptions;
    use crate::event_loop::EventLoop;
    use crate::event_loop::tests::{Hello, send_and_wait, status_of_response, turn_without_wait};
    use crate::site::tests::{clock, site_at};

    /// A main loop that has accepted all there was, and a client that has connected and sent a request since.
    fn main_loop_and_client(
        site: &Arc<Site<Hello>>,
        group: &Arc<LoopGroup>,
    ) -> (MainLoop<Hello>, TcpStream) {
        let any_port = ListenAddr::Tcp(([127, 0, 0, 1], 0).into());
        let listeners = Listener::bind_all(&[any_port], &site.options, None).unwrap();
        let ListenAddr::Tcp(address) = *listeners[0].address() else {
            panic!("bound to another address");
        };
        let mut main_loop = MainLoop::new(site, group, listeners).unwrap();
        main_loop.accept_up_to(ACCEPTS_MAX).unwrap(); // none
        let mut client = TcpStream::connect(address).unwrap();
        send_and_wait(&mut client);
        (main_loop, client)
    }

    /// It had just come, however late the main loop had a CPU, or descriptors.
    #[test]
    fn a_new_connection_that_waits_for_the_main_loop_has_waited_since_its_request_came() {
        for (waits_us, pauses, expected) in [
            (0, false, "HTTP/1.1 200"),
            (60_000, false, "HTTP/1.1 503"),
            (60_000, true, "HTTP/1.1 503"),
        ] {
            let now_us = clock();
            now_us.store(1_000_000, Relaxed);
            let options = ServerOptions {
                loops: 1,
                latency_goal: Some(Duration::from_millis(30)),
                ..ServerOptions::default()
            };
            let site = Arc::new(site_at(now_us, Hello(Fields::default()), options));
            let group = LoopGroup::new(&site.options, 1, &site.memory).unwrap();
            let mut event_loop = EventLoop::new(0, &site, &group, None, Vec::new()).unwrap();
            turn_without_wait(&mut event_loop);
            let (mut main_loop, mut client) = main_loop_and_client(&site, &group);
            now_us.fetch_add(waits_us, Relaxed);
            if pauses {
                let until = Millis(site.clock.now().0 + 1);
                main_loop.listeners.pause(until);
                main_loop.accept_up_to(ACCEPTS_MAX).unwrap(); // none
                now_us.fetch_add(1000, Relaxed);
            }
            main_loop.accept_up_to(ACCEPTS_MAX).unwrap();
            turn_without_wait(&mut event_loop);
            let status = status_of_response(&mut client);
            assert_eq!(status, expected, "{waits_us} us, {pauses}");
        }
    }
}
