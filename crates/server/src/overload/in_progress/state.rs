//! What is in progress and what waits to be, and who comes next. Decides, and never waits itself.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use loadline_sys::usage::ThreadUsage;

use super::{Ticket, Waited};
use crate::fairness::ClientKey;
use crate::fairness::lanes::{Charge, FlowKey, LANES, Lane, Lanes};
use crate::overload::at_once::{AtOnce, Used};
use crate::overload::delay::DelayControl;
use crate::overload::retry_after::RetryAfter;

/// One observation in so many counts for the time of a request among others.
const WEIGHT: f64 = 16.0;

/// While requests wait, those in progress are looked at so often: soon enough for a handler that sleeps
/// for longer, and rarely enough for what looking costs, some 50 us.
const LOOK_US: u64 = 20_000;

/// So much of the goal is kept in reserve at a handshake: its client has its own part of it, and others may begin
/// before its request has come.
const HANDSHAKE_RESERVE_DIVISOR: u64 = 64;

/// A handshake may bring a request to each lane to which one has come within this time.
const IN_USE_US: u64 = 10_000_000;

#[derive(Debug)]
pub(super) struct State {
    lanes: [OfLane; LANES],
    waiting: Lanes<Waiter>,
    /// How many are in progress at once; `None`: all.
    at_once: Option<AtOnce>,
    looked_us: u64,
}

/// Requests of one lane: while a slow app is refused, files are not, and the reverse.
#[derive(Debug)]
pub(super) struct OfLane {
    pub(super) all: Control,
    /// The same of requests whose clients have no other one, beside those of others.
    single: Control,
    retry_after: RetryAfter,
    /// In progress.
    count: u32,
    /// Of clients that had no other one, in progress or waiting.
    singles: u32,
    /// By client, in progress or waiting, those that have any.
    clients: HashMap<ClientKey, u32>,
    /// When one came last, in microseconds.
    came_us: Option<u64>,
}

/// How long requests may wait, and what they cost.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) delay: DelayControl,
    /// The time of a request for each that is in progress, in microseconds; 0: not known yet.
    each_us: f64,
}

impl Control {
    fn new(goal: Duration) -> Self {
        Self {
            delay: DelayControl::new(goal),
            each_us: 0.0,
        }
    }

    /// A request has ended.
    fn learn(&mut self, each_us: f64) {
        self.each_us = match self.each_us {
            0.0 => each_us,
            known => known + (each_us - known) / WEIGHT,
        };
    }
}

/// A request that waits.
#[derive(Debug)]
struct Waiter {
    ticket: Arc<Ticket>,
    is_single: bool,
    /// Since then, in microseconds, and for so long before.
    since_us: u64,
    waited: Waited,
}

impl Waiter {
    /// For a CPU.
    fn waited_us(&self, now_us: u64) -> u64 {
        now_us.saturating_sub(self.since_us) + self.waited.for_cpu_us
    }

    /// The same with its connection's handshake, which has waited for a CPU and used one.
    fn waited_with_handshake_us(&self, now_us: u64) -> u64 {
        self.waited_us(now_us) + self.waited.handshake_us
    }

    /// The same, and for others of its connection.
    fn waited_in_all_us(&self, now_us: u64) -> u64 {
        now_us.saturating_sub(self.since_us) + self.waited.in_all_us
    }
}

/// What is expected of a request.
pub(super) struct Expected {
    /// Its client has no other one, beside those of others.
    is_single: bool,
    /// How long it would take.
    pub(super) takes_us: u64,
}

/// A request in progress; to be given back with `end`.
#[derive(Debug)]
#[must_use]
pub(crate) struct Permit {
    pub(super) began_us: u64,
    flow: FlowKey,
    is_single: bool,
    /// In progress in all lanes when it began, itself included.
    count: u32,
    /// If it has waited for others.
    charge: Option<Charge>,
    waited_us: u64,
    /// Whose use of the CPU is measured.
    pub(super) measured: Option<ThreadUsage>,
    pub(super) is_to_be_measured: bool,
}

impl Permit {
    /// How long it has waited for a CPU and for others to end; 0: it began at once.
    pub(crate) fn waited_us(&self) -> u64 {
        self.waited_us
    }
}

/// What becomes of a request that would begin.
#[derive(Debug)]
pub(super) enum Begin {
    Now(Permit),
    /// Its ticket says when.
    Later(Arc<Ticket>),
    /// To come back after this many seconds.
    Never(u32),
}

impl OfLane {
    fn new(goal: Duration) -> Self {
        Self {
            all: Control::new(goal),
            single: Control::new(goal),
            retry_after: RetryAfter::new(),
            count: 0,
            singles: 0,
            clients: HashMap::new(),
            came_us: None,
        }
    }

    /// A client with a single request is judged by its like: what others send at once, and how long it
    /// takes, is nothing to go by.
    fn control(&self, is_single: bool) -> &Control {
        match self.goes_by_single(is_single) {
            true => &self.single,
            false => &self.all,
        }
    }

    fn control_mut(&mut self, is_single: bool) -> &mut Control {
        match self.goes_by_single(is_single) {
            true => &mut self.single,
            false => &mut self.all,
        }
    }

    fn goes_by_single(&self, is_single: bool) -> bool {
        is_single && self.single.each_us > 0.0
    }

    /// Whether requests of this kind have come of late.
    fn is_in_use(&self, now_us: u64) -> bool {
        let is_of_late = |came_us| now_us.saturating_sub(came_us) <= IN_USE_US;
        self.came_us.is_some_and(is_of_late)
    }

    fn forget(&mut self, client: ClientKey, is_single: bool) {
        self.singles = self.singles.saturating_sub(u32::from(is_single));
        if let Entry::Occupied(mut own) = self.clients.entry(client) {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }

    /// It would come too late for the goal. If for others of its connection alone, that is no overload of the CPUs:
    /// waiting for these, it would have been in time.
    fn refuse_late(&mut self, is_single: bool, for_cpu_us: u64, now_us: u64) -> u32 {
        let control = self.control(is_single);
        if for_cpu_us > control.delay.goal_us() {
            return self.refuse(is_single, now_us);
        }
        let each_us = control.each_us as u64;
        self.retry_after.next_s(now_us, each_us)
    }

    fn refuse(&mut self, is_single: bool, now_us: u64) -> u32 {
        let control = self.control_mut(is_single);
        control.delay.refused(now_us);
        let each_us = control.each_us as u64;
        self.retry_after.next_s(now_us, each_us)
    }
}

impl State {
    pub(super) fn new(goal: Duration, cpus: Option<f64>) -> Self {
        Self {
            lanes: Lane::ALL.map(|_| OfLane::new(goal)),
            waiting: Lanes::default(),
            at_once: cpus.map(AtOnce::new),
            looked_us: 0,
        }
    }

    /// Whether a handshake is to be computed that has waited for so long: whether a request of its client could begin
    /// then. For a file or for an app: that is not known yet.
    pub(super) fn offer_handshake(
        &mut self,
        client: ClientKey,
        waited_us: u64,
        now_us: u64,
    ) -> bool {
        let lanes = self.lanes_in_use(now_us);
        let expect = |state: &Self, lane| {
            let Expected {
                is_single,
                takes_us,
            } = state.expected(FlowKey { lane, client });
            (is_single, waited_us.saturating_add(takes_us))
        };
        let is_in_time = lanes.iter().any(|lane| {
            let (is_single, expected_us) = expect(self, *lane);
            let delay = &self.of(*lane).control(is_single).delay;
            let reserve_us = delay.goal_us() / HANDSHAKE_RESERVE_DIVISOR;
            expected_us <= delay.accepted_us().min(delay.goal_us() - reserve_us)
        });
        if is_in_time {
            return true;
        }
        for lane in lanes {
            let (is_single, expected_us) = expect(self, *lane);
            let delay = &mut self.of_mut(*lane).control_mut(is_single).delay;
            // In the reserve alone it is no overload of requests.
            if expected_us > delay.accepted_us() {
                delay.refused(now_us);
            }
        }
        false
    }

    /// A request would begin that has waited for so long.
    pub(super) fn begin(&mut self, flow: FlowKey, waited: Waited, now_us: u64) -> Begin {
        let waited_us = waited.for_cpu_us;
        if self.waiting.len() > 0 && now_us >= self.looked_us + LOOK_US {
            self.look(now_us);
        }
        let Expected {
            is_single,
            takes_us,
        } = self.expected(flow);
        let is_first = self.waiting.len_of(flow.lane) == 0;
        let lane = self.of_mut(flow.lane);
        lane.came_us = Some(now_us);
        if lane.count == 0 && is_first {
            lane.all.delay.waited_in_no_order(waited_us, now_us);
        }
        if is_single {
            lane.single.delay.waited_in_no_order(waited_us, now_us);
        }
        let delay = lane.control(is_single).delay;
        let with_handshake_us = waited_us.saturating_add(waited.handshake_us);
        if waited_us.saturating_add(takes_us) > delay.accepted_us()
            || with_handshake_us.saturating_add(takes_us) > delay.goal_us()
        {
            return Begin::Never(lane.refuse(is_single, now_us));
        }
        let is_late = waited.in_all_us.saturating_add(takes_us) > delay.goal_us();
        if is_late && takes_us > 0 {
            let would_take_us = waited_us.saturating_add(takes_us);
            return Begin::Never(lane.refuse_late(is_single, would_take_us, now_us));
        }
        *lane.clients.entry(flow.client).or_default() += 1;
        lane.singles += u32::from(is_single);
        if self.waiting.len() == 0 && self.has_room() {
            if self.at_once.is_some() {
                // It did not have to wait for its turn.
                let delay = &mut self.of_mut(flow.lane).all.delay;
                delay.waited_in_no_order(waited_us, now_us);
            }
            return Begin::Now(self.permit(flow, is_single, now_us));
        }
        if self.waiting.len() == 0 {
            self.looked_us = now_us;
        }
        let ticket = Arc::<Ticket>::default();
        let waiter = Waiter {
            ticket: Arc::clone(&ticket),
            is_single,
            since_us: now_us,
            waited,
        };
        self.waiting.push(flow, waiter);
        Begin::Later(ticket)
    }

    /// A request in progress has ended.
    pub(super) fn end(&mut self, permit: &Permit, used: Option<Used>, now_us: u64) {
        let took_us = now_us.saturating_sub(permit.began_us);
        let beside = f64::from(permit.count + self.count()) / 2.0;
        let each_us = took_us as f64 / beside.max(1.0);
        let lane = self.of_mut(permit.flow.lane);
        lane.all.learn(each_us);
        if permit.is_single {
            lane.single.learn(each_us);
        }
        if let Some(charge) = permit.charge {
            self.waiting.done(charge, took_us);
        }
        self.release(permit, used, now_us);
    }

    /// A request that may begin is not carried out. That says nothing of how long others take.
    pub(super) fn give_back(&mut self, permit: &Permit, now_us: u64) {
        if let Some(charge) = permit.charge {
            self.waiting.not_done(charge);
        }
        let lane = self.of_mut(permit.flow.lane);
        lane.control_mut(permit.is_single).delay.not_begun();
        self.release(permit, None, now_us);
    }

    fn release(&mut self, permit: &Permit, used: Option<Used>, now_us: u64) {
        let lane = self.of_mut(permit.flow.lane);
        lane.count = lane.count.saturating_sub(1);
        lane.forget(permit.flow.client, permit.is_single);
        if let (Some(at_once), Some(thread)) = (&mut self.at_once, permit.measured) {
            at_once.ended(thread, used);
        }
        self.let_begin(now_us);
    }

    /// One in progress is measured from now on.
    pub(super) fn measure(&mut self, thread: ThreadUsage, used: Used) {
        if let Some(at_once) = &mut self.at_once {
            at_once.begins(thread, used);
        }
    }

    /// Looks at what is in progress: more of them may be at once than was thought.
    pub(super) fn look(&mut self, now_us: u64) {
        self.looked_us = now_us;
        if let Some(at_once) = &mut self.at_once {
            at_once.look(|thread| Used::by(thread, now_us));
        }
        self.let_begin(now_us);
    }

    /// A request no longer waits. When its client is to come back, in seconds.
    pub(super) fn give_up(&mut self, flow: FlowKey, ticket: &Arc<Ticket>, now_us: u64) -> u32 {
        let is_mine = |waiter: &Waiter, _: bool| Arc::ptr_eq(&waiter.ticket, ticket);
        let removed = self.waiting.remove_if(flow.lane, is_mine);
        let is_single = removed.iter().any(|waiter| waiter.is_single);
        let waiter = removed.into_iter().next();
        let waited_us = waiter.map_or(0, |waiter| waiter.waited_with_handshake_us(now_us));
        let lane = self.of_mut(flow.lane);
        lane.forget(flow.client, is_single);
        lane.refuse_late(is_single, waited_us, now_us)
    }

    /// How long the last of those that wait is to wait until it looks for all of them: so one in
    /// `LOOK_US` does.
    pub(super) fn look_in_us(&self) -> u64 {
        LOOK_US * (self.waiting.len() as u64).max(1)
    }

    /// Whether none waits for others, whatever is in progress.
    pub(super) fn all_begin(&self) -> bool {
        self.at_once.is_none()
    }

    /// The time of a request of a lane for each that is in progress.
    #[cfg(test)]
    pub(super) fn each_us(&self, lane: Lane) -> u64 {
        self.of(lane).all.each_us as u64
    }

    /// Clients that have a request in progress, or one that waits, in each lane.
    #[cfg(test)]
    pub(super) fn clients(&self) -> usize {
        self.lanes.iter().map(|lane| lane.clients.len()).sum()
    }

    /// Requests of clients that had no other one.
    #[cfg(test)]
    pub(super) fn singles(&self) -> u32 {
        self.lanes.iter().map(|lane| lane.singles).sum()
    }

    /// Requests that wait for others.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn of(&self, lane: Lane) -> &OfLane {
        &self.lanes[lane as usize]
    }

    fn of_mut(&mut self, lane: Lane) -> &mut OfLane {
        &mut self.lanes[lane as usize]
    }

    /// In progress.
    fn count(&self) -> u32 {
        self.lanes.iter().map(|lane| lane.count).sum()
    }

    /// The lanes to which requests have come of late. Before the first one it is as if they were for files.
    fn lanes_in_use(&self, now_us: u64) -> &'static [Lane] {
        let are_in_use = [Lane::Files, Lane::Apps].map(|lane| self.of(lane).is_in_use(now_us));
        match are_in_use {
            [true, true] => &[Lane::Files, Lane::Apps],
            [false, true] => &[Lane::Apps],
            [_, false] => &[Lane::Files],
        }
    }

    fn has_room(&self) -> bool {
        let max = self.at_once.as_ref().map_or(u32::MAX, AtOnce::max);
        self.count() < max
    }

    /// Those who waited begin, while there is room. What has come to its turn too late for the goal is
    /// refused, unless nothing else waits in its lane.
    fn let_begin(&mut self, now_us: u64) {
        while self.waiting.len() > 0 && self.has_room() {
            let Some((waiter, charge)) = self.waiting.pop(now_us) else {
                return;
            };
            let waited_us = waiter.waited_us(now_us);
            let flow = charge.flow;
            let is_single = waiter.is_single;
            let is_last = self.waiting.len_of(flow.lane) == 0;
            let lane = self.of_mut(flow.lane);
            let control = lane.control(is_single);
            let takes_us = match is_single && lane.singles == 1 {
                true => 0,
                false => control.each_us as u64,
            };
            let in_all_us = waiter.waited_in_all_us(now_us);
            let is_late = in_all_us.saturating_add(takes_us) > control.delay.goal_us();
            let decided = match is_late && !is_last {
                true => {
                    lane.forget(flow.client, is_single);
                    let with_handshake_us = waiter.waited_with_handshake_us(now_us);
                    let would_take_us = with_handshake_us.saturating_add(takes_us);
                    let retry_after_s = lane.refuse_late(is_single, would_take_us, now_us);
                    self.waiting.not_done(charge);
                    Err(retry_after_s)
                }
                false => {
                    lane.all.delay.waited_in_no_order(waited_us, now_us);
                    Ok(Permit {
                        charge: Some(charge),
                        waited_us,
                        ..self.permit(flow, is_single, now_us)
                    })
                }
            };
            waiter.ticket.decide(decided);
        }
    }

    /// What is expected of a request that would begin now.
    pub(super) fn expected(&self, flow: FlowKey) -> Expected {
        let lane = self.of(flow.lane);
        let count = lane.count + self.waiting.len_of(flow.lane) as u32 + 1;
        // For a client with fewer than others it is as if these had no more: they are refused first.
        let own = lane.clients.get(&flow.client).copied().unwrap_or(0);
        let clients = lane.clients.len() as u32 + u32::from(own == 0);
        let shared = count.min((own + 1).saturating_mul(clients));
        // Two at least, so that none waits for the next one to begin.
        let is_single = own == 0 && clients > 1;
        // One is let in however long its like have taken, or it would never be known that they no longer do.
        let is_first_single = is_single && lane.singles == 0;
        let takes_us = match count > 2 && !is_first_single {
            true => self.takes_us(flow.lane, lane.control(is_single).each_us, shared) as u64,
            false => 0,
        };
        Expected {
            is_single,
            takes_us,
        }
    }

    /// How long so many requests of a lane take, of so long each, beside those of other lanes. These take what they
    /// need of the CPUs: in progress no more than one of this lane each, since they share the CPUs evenly; waiting no
    /// more than all of this lane, since they begin in turn. Under lasting overload that is what they take: more come.
    fn takes_us(&self, lane: Lane, each_us: f64, count: u32) -> f64 {
        let own_us = each_us * f64::from(count);
        let beside_us = lane.others().map(|other| {
            let waiting = self.waiting.len_of(other);
            let other = self.of(other);
            let need_us = match other.all.delay.is_lasting() {
                true => f64::INFINITY,
                false => other.all.each_us,
            };
            let waits_us = match waiting {
                0 => 0.0,
                _ => own_us.min(need_us * waiting as f64),
            };
            each_us.min(need_us) * f64::from(other.count) + waits_us
        });
        own_us + beside_us.sum::<f64>()
    }

    fn permit(&mut self, flow: FlowKey, is_single: bool, now_us: u64) -> Permit {
        let lane = self.of_mut(flow.lane);
        lane.count += 1;
        lane.control_mut(is_single).delay.begun(now_us);
        let count = self.count();
        let at_once = self.at_once.as_ref();
        Permit {
            began_us: now_us,
            flow,
            is_single,
            count,
            charge: None,
            waited_us: 0,
            measured: None,
            is_to_be_measured: at_once.is_some_and(|it| it.wants(now_us, count)),
        }
    }
}
