//! Refuses connections for architectures whose threads would have to wait for that: each gets its 503
//! and a regular end.

use std::io;
use std::sync::Arc;
use std::thread::Builder;

use loadline_proto::Handler;
use loadline_sys::Accepted;

use super::EventLoop;
use super::loop_group::LoopGroup;
use crate::admission::{Handoff, Verdict};
use crate::site::Site;
use crate::thread::group::ThreadGroup;
use crate::transport::epoll::Epoll;

/// A loop on a thread of its own, until dropped and drained.
pub(crate) struct Refusals(Arc<LoopGroup>);

impl Refusals {
    /// Starts its thread, one of `threads`.
    pub(crate) fn start<H: Handler>(
        site: &Arc<Site<H>>,
        threads: &Arc<ThreadGroup>,
    ) -> io::Result<Self> {
        let group = LoopGroup::of_one(site.options.connections_max)?;
        let event_loop = EventLoop::<H, Epoll>::new(0, site, &group, None, Vec::new())?;
        let (site, member) = (Arc::clone(site), threads.enter());
        Builder::new().name("refusing".into()).spawn(move || {
            let _member = member;
            site.guarded_alone("the refusing loop", || event_loop.run());
        })?;
        Ok(Self(group))
    }

    pub(crate) fn refuse(&self, accepted: Accepted) {
        let verdict = Verdict::Refuse;
        self.0.send(0, Handoff { accepted, verdict });
    }
}

impl Drop for Refusals {
    fn drop(&mut self) {
        self.0.stops_sending();
    }
}
