//! Where actors are played: one thread, one epoll loop, any number of connections.
//!
//! What it is not: it knows nothing of requests, and decides nothing that an actor could decide.
//!
//! ```text
//!   turn ── wait ── events ── timers ── those that had more to do ── connections to be opened
//!                      │        │          │
//!                      └────────┴──────────┴──► visit: order ─► carried out ─► fact ─► order …
//! ```
//!
//! A visit ends when the order at hand has to wait for the network or the clock, or after
//! [`STEPS_MAX`] steps: the others have their turn before it goes on. An actor that waits costs
//! nothing but its memory: sockets are watched edge-triggered and registered once, and only moments
//! that are waited for are in the heap of timers.
//!
//! While an actor sleeps, nothing is read for it; so what its peer sends fills the socket's buffer,
//! and then the peer's. The end of the connection is told all the same, once nothing lies before it
//! that could still be read.

use std::collections::VecDeque;
use std::io;

use loadline_base::Token;
use loadline_sys::clock::monotonic_ns;
use loadline_sys::{Events, Poller, usage};

mod member;
mod opening;
mod preparing;
mod presence;
mod visit;

use self::member::{Doing, Member};
use self::opening::Opening;
use self::preparing::Preparing;
use self::presence::Presence;
use super::timers::Timers;
use super::{Actor, Scene};
use crate::engine::{Calendar, Meter};
use crate::{Control, Message, Plan, Recorder, Share, ThreadReport};

/// The longest wait: how soon a stop is noticed.
const WAIT_NS_MAX: u64 = 20_000_000;
/// How long to wait at once for the start to be set.
const START_POLL_NS: u64 = 2_000_000;
/// Members that had more to do, visited in one turn: events wait no longer than these take.
const REVISITS_MAX: usize = 256;
/// What is received at once.
const RECEIVE_BYTES: usize = 64 << 10;

/// One thread's actors and all that they need.
pub(super) struct Stage<'p> {
    plan: &'p Plan,
    poller: Poller,
    events: Events,
    /// `None`: it is done.
    members: Vec<Option<Member>>,
    /// Members that are not done.
    left: usize,
    timers: Timers,
    calendar: Calendar<'p>,
    recorder: Recorder,
    presence: Presence,
    meter: Meter,
    opening: Opening,
    preparing: Preparing,
    /// Members that have more to do.
    revisits: VecDeque<u32>,
    buffer: Box<[u8]>,
    now_ns: u64,
    /// Connections that were begun, modulo 2^32: the generation of the next one.
    begun: u32,
    is_started: bool,
    is_ending: bool,
}

impl<'p> Stage<'p> {
    /// With the members of all crowds that belong to `share`.
    pub(super) fn new(plan: &'p Plan, share: Share) -> io::Result<Self> {
        let mut members = Vec::new();
        for (index, crowd) in plan.crowds.iter().enumerate() {
            if usize::from(crowd.server) >= plan.servers.len() {
                let text = format!("crowd {index} goes to server {}: no such", crowd.server);
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            let first = share.first(crowd.count);
            members.extend((first..first + share.count(crowd.count)).map(|number| {
                Some(Member {
                    actor: (crowd.cast)(number, plan.seed),
                    link: None,
                    doing: Doing::Nothing,
                    until_ns: u64::MAX,
                    number,
                    crowd: index as u16,
                    is_preparing: false,
                    is_queued: false,
                    requests_out: 0,
                })
            }));
        }
        let mut groups: Vec<u16> = plan.crowds.iter().map(|crowd| crowd.group).collect();
        groups.sort_unstable();
        groups.dedup();
        let now_ns = monotonic_ns();
        Ok(Self {
            plan,
            poller: Poller::new()?,
            events: Events::new(),
            left: members.len(),
            timers: Timers::new(members.len()),
            calendar: Calendar::new(plan),
            recorder: Recorder::new(groups.iter().copied()),
            presence: Presence::new(groups),
            meter: Meter::new(),
            opening: Opening::default(),
            preparing: Preparing::default(),
            revisits: VecDeque::new(),
            buffer: vec![0; RECEIVE_BYTES].into_boxed_slice(),
            members,
            now_ns,
            begun: 0,
            is_started: false,
            is_ending: false,
        })
    }

    /// Carries out the first orders, as far as that can be done before the start, and all of those who
    /// prepare; returns how many connections are open. An error says why there will be no start.
    pub(super) fn open_beforehand(
        &mut self,
        control: &Control,
        out: &mut dyn FnMut(Message),
    ) -> io::Result<u64> {
        for index in 0..self.member_count() {
            self.ask_beforehand(index);
        }
        loop {
            self.open_more();
            self.prepare_more();
            if let Some(why) = self.preparing.failure() {
                return Err(io::Error::other(why));
            }
            let is_done = self.opening.is_done() && self.preparing.is_done();
            if is_done || control.is_stopped() {
                break;
            }
            self.turn(u64::MAX, out)?;
        }
        let members = self.members.iter().flatten();
        let is_open = |member: &&Member| match member.doing {
            Doing::Opened(Ok(())) => true,
            Doing::Prepared => member.link.is_some(),
            _ => false,
        };
        Ok(members.filter(is_open).count() as u64)
    }

    /// Waits until the start has come; false: there will be none.
    pub(super) fn await_start(
        &mut self,
        control: &Control,
        out: &mut dyn FnMut(Message),
    ) -> io::Result<bool> {
        loop {
            if control.is_stopped() {
                return Ok(false);
            }
            let start_ns = control.start_ns();
            self.look_at_clock();
            if let Some(start_ns) = start_ns
                && start_ns <= self.now_ns
            {
                self.start(start_ns);
                return Ok(true);
            }
            let poll_ns = self.now_ns + START_POLL_NS;
            self.turn(start_ns.unwrap_or(poll_ns).min(poll_ns), out)?;
        }
    }

    fn start(&mut self, start_ns: u64) {
        self.calendar.start(start_ns);
        self.is_started = true;
        self.presence.begin(self.now_ns);
        if self.calendar.is_counted(self.calendar.phase()) {
            self.meter.begin(self.now_ns);
        }
        for index in 0..self.member_count() {
            self.revisit_later(index);
        }
    }

    /// Runs until the plan ends, the requests are done, a stop is asked for, or nobody is left.
    pub(super) fn run_to_end(
        &mut self,
        control: &Control,
        out: &mut dyn FnMut(Message),
    ) -> io::Result<()> {
        let end_ns = self.calendar.end_ns();
        let is_over = || control.is_stopped() || control.is_ended();
        while self.now_ns < end_ns && self.left > 0 && !is_over() {
            self.turn(end_ns, out)?;
        }
        self.sample_requests_out(self.now_ns);
        self.pass_boundaries(out); // the last turn may have gone on beyond some, or the end
        self.meter.end(self.now_ns);
        self.call_the_end();
        self.presence.settle(self.now_ns, &mut self.recorder);
        let until_ns = self.now_ns.saturating_add(1).min(end_ns);
        let (second, phase) = (self.calendar.second(until_ns), self.calendar.phase());
        self.recorder.flush(second, phase, false, out);
        Ok(())
    }

    /// Waits for those that want to wait, up to the timeout; with a stop, not at all.
    pub(super) fn wait_for_rest(
        &mut self,
        control: &Control,
        out: &mut dyn FnMut(Message),
    ) -> io::Result<()> {
        if !self.is_ending {
            self.call_the_end();
        }
        let until_ns = self.now_ns.saturating_add(self.plan.timeout_ns);
        while self.left > 0 && self.now_ns < until_ns && !control.is_stopped() {
            self.turn(until_ns, out)?;
        }
        for index in 0..self.member_count() {
            self.tell(index, |actor, _, scene| actor.abandoned(scene));
            self.take_off(index);
        }
        self.presence.settle(self.now_ns, &mut self.recorder);
        let second = self.calendar.second(self.now_ns);
        let phase = self.calendar.phase();
        self.recorder.flush(second, phase, true, out);
        Ok(())
    }

    /// What was measured of the thread.
    pub(super) fn report(self, share: Share) -> ThreadReport {
        ThreadReport {
            name: format!("actors {}", share.index),
            group: self
                .plan
                .crowds
                .iter()
                .map(|crowd| crowd.group)
                .min()
                .unwrap_or(0),
            ..self.meter.report(share)
        }
    }

    /// One turn, which waits no longer than until `until_ns`.
    fn turn(&mut self, until_ns: u64, out: &mut dyn FnMut(Message)) -> io::Result<()> {
        let before_ns = monotonic_ns();
        self.sample_requests_out(before_ns);
        let wait_ns = self.wait_ns(before_ns, until_ns);
        self.poller.wait_ns(&mut self.events, Some(wait_ns))?;
        self.look_at_clock();
        self.sample_requests_out(self.now_ns);
        let waited_ns = self.now_ns.saturating_sub(before_ns);
        self.meter.waited(waited_ns, self.events.len());
        self.pass_boundaries(out);
        for at in 0..self.events.len() {
            let event = self.events.get(at);
            let Token { index, generation } = Token::from_bits(event.bits);
            let member = self.members.get_mut(index as usize);
            let Some(member) = member.and_then(Option::as_mut) else {
                continue;
            };
            let Some(link) = &mut member.link else {
                continue;
            };
            if link.generation != generation {
                continue;
            }
            link.is_decided |= event.is_writable();
            link.is_writable |= event.is_writable();
            link.is_readable |= event.is_readable();
            link.is_half_closed |= event.is_half_closed();
            self.visit(index);
        }
        let woken_ns = self.now_ns; // what comes due meanwhile belongs to the next turn
        while let Some(index) = self.timers.expired(woken_ns) {
            self.note_lag(index);
            self.visit(index);
        }
        for _ in 0..self.revisits.len().min(REVISITS_MAX) {
            let Some(index) = self.revisits.pop_front() else {
                break;
            };
            if let Some(Some(member)) = self.members.get_mut(index as usize) {
                member.is_queued = false;
                self.visit(index);
            }
        }
        Ok(())
    }

    fn wait_ns(&self, now_ns: u64, until_ns: u64) -> u64 {
        if !self.revisits.is_empty() {
            return 0;
        }
        until_ns
            .min(self.timers.next_ns().unwrap_or(u64::MAX))
            .min(self.calendar.next_ns())
            .saturating_sub(now_ns)
            .min(WAIT_NS_MAX)
    }

    /// Hands out what was measured up to the boundaries that have been passed.
    fn pass_boundaries(&mut self, out: &mut dyn FnMut(Message)) {
        while let Some(boundary) = self.calendar.pass(self.now_ns) {
            self.presence.settle(boundary.at_ns, &mut self.recorder);
            let is_counted = self.calendar.is_counted(boundary.phase);
            let is_end = boundary.at_ns >= self.calendar.end_ns();
            match is_counted && !is_end {
                true => self.meter.begin(self.now_ns),
                false => self.meter.end(self.now_ns),
            }
            let (second, phase) = (boundary.second, boundary.phase);
            self.recorder.flush(second, phase, false, out);
        }
    }

    /// Asks everybody for the last orders.
    fn call_the_end(&mut self) {
        self.is_ending = true;
        for index in 0..self.member_count() {
            if let Some(member) = &mut self.members[index as usize]
                && !matches!(member.doing, Doing::Sending { .. })
            {
                let doing = std::mem::replace(&mut member.doing, Doing::Nothing);
                let is_preparing = member.is_preparing;
                self.no_longer_opening(&doing, is_preparing);
                self.no_longer_preparing(index);
                self.visit(index);
            }
        }
    }

    /// The moment that an actor slept for has come so much before now.
    fn note_lag(&mut self, index: u32) {
        let Some(member) = &self.members[index as usize] else {
            return;
        };
        if matches!(member.doing, Doing::Sleeping) {
            let lag_ns = self.now_ns.saturating_sub(member.until_ns);
            let group = self.plan.crowds[usize::from(member.crowd)].group;
            self.meter.lagged(lag_ns);
            self.recorder.group(group).lagged(lag_ns);
        }
    }

    fn sample_requests_out(&mut self, now_ns: u64) {
        let _ = self.meter.sample(now_ns, self.presence.total());
    }

    /// Calls an actor; it may look at what was received last.
    fn tell<R>(
        &mut self,
        index: u32,
        call: impl FnOnce(&mut dyn Actor, &[u8], &mut Scene<'_>) -> R,
    ) -> Option<R> {
        let member = self.members[index as usize].as_mut()?;
        let group = self.plan.crowds[usize::from(member.crowd)].group;
        let mut scene = Scene {
            now_ns: self.now_ns,
            phase: self.calendar.phase(),
            recorder: self.recorder.group(group),
            is_ending: self.is_ending,
        };
        let told = call(&mut *member.actor, &self.buffer, &mut scene);
        let requests_out = member.actor.requests_out();
        if requests_out != member.requests_out {
            let before = std::mem::replace(&mut member.requests_out, requests_out);
            let recorder = &mut self.recorder;
            self.presence
                .moved(group, before, requests_out, self.now_ns, recorder);
        }
        Some(told)
    }

    /// This member is done.
    fn take_off(&mut self, index: u32) {
        let is_preparing = self.members[index as usize].as_ref();
        let is_preparing = is_preparing.is_some_and(|member| member.is_preparing);
        self.no_longer_preparing(index);
        let Some(member) = self.members[index as usize].take() else {
            return;
        };
        self.left -= 1;
        self.timers.clear(index);
        self.no_longer_opening(&member.doing, is_preparing);
        let group = self.plan.crowds[usize::from(member.crowd)].group;
        let recorder = &mut self.recorder;
        self.presence
            .moved(group, member.requests_out, 0, self.now_ns, recorder);
    }

    fn revisit_later(&mut self, index: u32) {
        if let Some(member) = &mut self.members[index as usize]
            && !std::mem::replace(&mut member.is_queued, true)
        {
            self.revisits.push_back(index);
        }
    }

    #[inline]
    fn look_at_clock(&mut self) {
        self.now_ns = monotonic_ns();
    }

    fn member_count(&self) -> u32 {
        u32::try_from(self.members.len()).unwrap_or(u32::MAX)
    }
}

/// Runs the members of all crowds that belong to `share`.
pub(super) fn run(
    plan: &Plan,
    share: Share,
    control: &Control,
    out: &mut dyn FnMut(Message),
) -> io::Result<()> {
    let _ = usage::sleep_precisely(); // what it cannot do shows in the lag
    let mut stage = Stage::new(plan, share)?;
    let connections = stage.open_beforehand(control, out)?;
    out(Message::Ready { share, connections });
    if stage.await_start(control, out)? {
        stage.run_to_end(control, out)?;
    }
    stage.wait_for_rest(control, out)?;
    out(Message::Finished(Box::new(stage.report(share))));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_waits_takes_little_memory() {
        let timer_bytes = size_of::<u64>() * 3; // its entry and its place
        let bytes = size_of::<Option<Member>>() + super::super::idle::MEMBER_BYTES + timer_bytes;
        assert!(bytes < 256, "{bytes}");
    }
}
