//! The main loop of `--accept handoff`: accepts everything that is pending and hands it over.

use std::io;
use std::sync::Arc;

use loadline_proto::Handler;
use loadline_sys::{Accepted, Interest};

use super::driver::{Driver, Happened};
use super::epoll::Epoll;
use super::fleet::Fleet;
use crate::admission::{Handoff, Verdict};
use crate::listener::Listener;
use crate::parts::acceptor::Newcomer;
use crate::parts::balance::Balancer;
use crate::parts::counters::{Role, Row};
use crate::parts::door::Door;
use crate::site::Site;

/// Newcomers accepted before the shutdown and the back-off are looked at again.
const ACCEPTS_MAX: usize = 1024;

/// Accepts for all loops; serves nobody itself.
pub(super) struct MainLoop<H: Handler> {
    site: Arc<Site<H>>,
    fleet: Arc<Fleet>,
    driver: Epoll,
    door: Door,
    balancer: Balancer,
    row: Arc<Row>,
}

impl<H: Handler> MainLoop<H> {
    pub(super) fn new(
        site: &Arc<Site<H>>,
        fleet: &Arc<Fleet>,
        listeners: Vec<Listener>,
    ) -> io::Result<Self> {
        let mut driver = Epoll::new(&site.options)?;
        driver.watch_waker(site.shutdown.drain_fd())?;
        Ok(Self {
            door: Door::open(
                listeners,
                Interest::Listener,
                &mut driver,
                &site.descriptor_log_after,
            )?,
            driver,
            balancer: Balancer::new(site.options.balance),
            row: site.registry.row(Role::Acceptor),
            site: Arc::clone(site),
            fleet: Arc::clone(fleet),
        })
    }

    /// Accepts until a drain begins.
    pub(super) fn run(mut self) -> io::Result<()> {
        while !self.site.shutdown.is_draining() {
            let now = self.site.clock.now();
            let timeout_ms = self.door.reopens_at().map(|at| at.since(now));
            self.driver.wait(timeout_ms)?;
            self.door.reopen(self.site.clock.now(), &mut self.driver)?;
            let mut knocking = false;
            while let Some(happened) = self.driver.next() {
                knocking |= matches!(happened, Happened::Knock);
            }
            if knocking {
                self.accept_up_to(ACCEPTS_MAX)?;
            }
        }
        // Who is in the backlog by now has a connection, and is served.
        self.door.begin_drain();
        while !self.door.is_drained() && !self.site.shutdown.is_cut(self.site.clock.now()) {
            let pause = self.door.reopens_at();
            if let Some(until) = pause {
                let now = self.site.clock.now();
                self.driver.wait(Some(until.since(now)))?;
            }
            self.accept_up_to(ACCEPTS_MAX)?;
        }
        self.door.unwatch(&mut self.driver);
        drop(self.door);
        self.fleet.stops_sending();
        Ok(())
    }

    fn accept_up_to(&mut self, most: usize) -> io::Result<()> {
        for count in 0..most {
            let now = self.site.clock.now();
            match self.door.next(now, &self.row, &mut self.driver)? {
                Some(Newcomer::Serve(accepted)) => self.hand_over(accepted),
                Some(Newcomer::Refuse(accepted)) => {
                    let preferred = self.choose();
                    let (index, verdict) = self.fleet.place(preferred, true, false);
                    if verdict == Verdict::EvictIdle {
                        self.door.resume(&mut self.driver)?;
                    }
                    self.fleet.send(index, Handoff { accepted, verdict });
                }
                None => {
                    // Not even a spare descriptor: the oldest idle connection goes.
                    if count == 0
                        && self.door.reopens_at().is_some()
                        && let Some(index) = self.fleet.oldest_idle()
                    {
                        self.fleet.ask_for_room(index);
                    }
                    break;
                }
            }
        }
        Ok(())
    }

    fn hand_over(&mut self, accepted: Accepted) {
        let preferred = self.choose();
        let is_draining = self.site.shutdown.is_draining();
        let (index, verdict) = self.fleet.place(preferred, false, is_draining);
        self.fleet.send(index, Handoff { accepted, verdict });
    }

    fn choose(&mut self) -> usize {
        let loads = self.fleet.members().iter().map(|member| &member.load);
        self.balancer.choose(loads, || self.site.clock.now_us())
    }
}
