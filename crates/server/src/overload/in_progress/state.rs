//! What is in progress and what waits to be, and who comes next. Decides, and never waits itself.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use loadline_sys::usage::ThreadUsage;

use super::{Ticket, Waited};
use crate::fairness::ClientKey;
use crate::fairness::lanes::{Charge, FlowKey, Lanes};
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

#[derive(Debug)]
pub(super) struct State {
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
    waiting: Lanes<Waiter>,
    /// How many are in progress at once; `None`: all.
    at_once: Option<AtOnce>,
    looked_us: u64,
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
struct Expected {
    /// Its client has no other one, beside those of others.
    is_single: bool,
    /// How long it would take.
    takes_us: u64,
}

/// A request in progress; to be given back with `end`.
#[derive(Debug)]
#[must_use]
pub(crate) struct Permit {
    pub(super) began_us: u64,
    client: ClientKey,
    is_single: bool,
    /// In progress when it began, itself included.
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

impl State {
    pub(super) fn new(goal: Duration, cpus: Option<f64>) -> Self {
        Self {
            all: Control::new(goal),
            single: Control::new(goal),
            retry_after: RetryAfter::new(),
            count: 0,
            singles: 0,
            clients: HashMap::new(),
            waiting: Lanes::default(),
            at_once: cpus.map(AtOnce::new),
            looked_us: 0,
        }
    }

    /// Whether a handshake is to be computed that has waited for so long: whether a request of its client could begin
    /// then.
    pub(super) fn offer_handshake(
        &mut self,
        client: ClientKey,
        waited_us: u64,
        now_us: u64,
    ) -> bool {
        let Expected {
            is_single,
            takes_us,
        } = self.expected(client);
        let delay = &mut self.control(is_single).delay;
        let reserve_us = delay.goal_us() / HANDSHAKE_RESERVE_DIVISOR;
        let longest_us = delay.accepted_us().min(delay.goal_us() - reserve_us);
        let expected_us = waited_us.saturating_add(takes_us);
        // In the reserve alone it is no overload of requests.
        if expected_us > delay.accepted_us() {
            delay.refused(now_us);
        }
        expected_us <= longest_us
    }

    /// A request would begin that has waited for so long.
    pub(super) fn begin(&mut self, flow: FlowKey, waited: Waited, now_us: u64) -> Begin {
        let waited_us = waited.for_cpu_us;
        let client = flow.client;
        if self.waiting.len() > 0 && now_us >= self.looked_us + LOOK_US {
            self.look(now_us);
        }
        let Expected {
            is_single,
            takes_us,
        } = self.expected(client);
        if self.count == 0 && self.waiting.len() == 0 {
            self.all.delay.waited_in_no_order(waited_us, now_us);
        }
        if is_single {
            self.single.delay.waited_in_no_order(waited_us, now_us);
        }
        let control = self.control(is_single);
        let with_handshake_us = waited_us.saturating_add(waited.handshake_us);
        if waited_us.saturating_add(takes_us) > control.delay.accepted_us()
            || with_handshake_us.saturating_add(takes_us) > control.delay.goal_us()
        {
            return Begin::Never(self.refuse(is_single, now_us));
        }
        let is_late = waited.in_all_us.saturating_add(takes_us) > control.delay.goal_us();
        if is_late && takes_us > 0 {
            let would_take_us = waited_us.saturating_add(takes_us);
            return Begin::Never(self.refuse_late(is_single, would_take_us, now_us));
        }
        *self.clients.entry(client).or_default() += 1;
        self.singles += u32::from(is_single);
        if self.waiting.len() == 0 && self.has_room() {
            return Begin::Now(self.permit(client, is_single, now_us));
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
        let beside = f64::from(permit.count + self.count) / 2.0;
        let each_us = took_us as f64 / beside.max(1.0);
        self.all.learn(each_us);
        if permit.is_single {
            self.single.learn(each_us);
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
        self.release(permit, None, now_us);
    }

    fn release(&mut self, permit: &Permit, used: Option<Used>, now_us: u64) {
        self.count = self.count.saturating_sub(1);
        self.forget(permit.client, permit.is_single);
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
        self.forget(flow.client, is_single);
        let waiter = removed.into_iter().next();
        let waited_us = waiter.map_or(0, |waiter| waiter.waited_with_handshake_us(now_us));
        self.refuse_late(is_single, waited_us, now_us)
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

    /// The time of a request for each that is in progress.
    #[cfg(test)]
    pub(super) fn each_us(&self) -> u64 {
        self.all.each_us as u64
    }

    /// Clients that have a request in progress, or one that waits.
    #[cfg(test)]
    pub(super) fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Requests of clients that had no other one.
    #[cfg(test)]
    pub(super) fn singles(&self) -> u32 {
        self.singles
    }

    /// Requests that wait for others.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn has_room(&self) -> bool {
        let max = self.at_once.as_ref().map_or(u32::MAX, AtOnce::max);
        self.count < max
    }

    /// Those who waited begin, while there is room. What has come to its turn too late for the goal is
    /// refused, unless nothing else waits.
    fn let_begin(&mut self, now_us: u64) {
        while self.waiting.len() > 0 && self.has_room() {
            let Some((waiter, charge)) = self.waiting.pop(now_us) else {
                return;
            };
            let waited_us = waiter.waited_us(now_us);
            let client = charge.flow.client;
            let is_single = waiter.is_single;
            let is_only_single = is_single && self.singles == 1;
            let control = self.control(is_single);
            let takes_us = match is_only_single {
                true => 0,
                false => control.each_us as u64,
            };
            let in_all_us = waiter.waited_in_all_us(now_us);
            let is_late = in_all_us.saturating_add(takes_us) > control.delay.goal_us();
            let decided = match is_late && self.waiting.len() > 0 {
                true => {
                    self.waiting.not_done(charge);
                    self.forget(client, is_single);
                    let with_handshake_us = waiter.waited_with_handshake_us(now_us);
                    let would_take_us = with_handshake_us.saturating_add(takes_us);
                    Err(self.refuse_late(is_single, would_take_us, now_us))
                }
                false => {
                    self.all.delay.waited_in_no_order(waited_us, now_us);
                    Ok(Permit {
                        charge: Some(charge),
                        waited_us,
                        ..self.permit(client, is_single, now_us)
                    })
                }
            };
            waiter.ticket.decide(decided);
        }
    }

    /// What is expected of a request of this client that would begin now.
    fn expected(&mut self, client: ClientKey) -> Expected {
        let count = self.count + self.waiting.len() as u32 + 1;
        // For a client with fewer than others it is as if these had no more: they are refused first.
        let own = self.clients.get(&client).copied().unwrap_or(0);
        let clients = self.clients.len() as u32 + u32::from(own == 0);
        let shared = count.min((own + 1).saturating_mul(clients));
        // Two at least, so that none waits for the next one to begin.
        let is_single = own == 0 && clients > 1;
        // One is let in however long its like have taken, or it would never be known that they no longer do.
        let is_first_single = is_single && self.singles == 0;
        let takes_us = match count > 2 && !is_first_single {
            true => (self.control(is_single).each_us * f64::from(shared)) as u64,
            false => 0,
        };
        Expected {
            is_single,
            takes_us,
        }
    }

    /// A client with a single request is judged by its like: what others send at once, and how long it
    /// takes, is nothing to go by.
    fn control(&mut self, is_single: bool) -> &mut Control {
        match is_single && self.single.each_us > 0.0 {
            true => &mut self.single,
            false => &mut self.all,
        }
    }

    fn permit(&mut self, client: ClientKey, is_single: bool, now_us: u64) -> Permit {
        self.count += 1;
        let at_once = self.at_once.as_ref();
        Permit {
            began_us: now_us,
            client,
            is_single,
            count: self.count,
            charge: None,
            waited_us: 0,
            measured: None,
            is_to_be_measured: at_once.is_some_and(|it| it.wants(now_us, self.count)),
        }
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
        let control = self.control(is_single);
        control.delay.refused(now_us);
        let each_us = control.each_us as u64;
        self.retry_after.next_s(now_us, each_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It counted as if it had waited for others of its connection.
    #[test]
    fn what_comes_too_late_for_its_handshake_is_overload() {
        let behind_handshake = Waited::for_cpu(100_000).behind_handshake(800_000);
        let behind_others = Waited {
            in_all_us: 900_000,
            for_cpu_us: 100_000,
            ..Waited::default()
        };
        for (waited, gives_up, is_overload) in [
            (behind_handshake, false, true),
            (behind_handshake, true, true),
            (behind_others, false, false),
            (behind_others, true, false),
        ] {
            let mut state = State::new(Duration::from_secs(1), Some(1.0));
            let begin =
                |state: &mut State, waited, now_us| state.begin(FlowKey::default(), waited, now_us);
            let later = |begun| match begun {
                Begin::Later(ticket) => ticket,
                _ => panic!("it waits"),
            };
            let (Begin::Now(_other), Begin::Now(mut held)) = (
                begin(&mut state, Waited::default(), 0),
                begin(&mut state, Waited::default(), 0),
            ) else {
                panic!("two begin");
            };
            for now_us in (200_000..800_000).step_by(120_000) {
                let end_us = now_us + 100_001;
                let first = later(begin(&mut state, waited, now_us));
                if gives_up {
                    state.give_up(FlowKey::default(), &first, end_us);
                    continue;
                }
                let last = later(begin(&mut state, waited, now_us));
                state.give_back(&held, end_us);
                assert!(first.wait(Duration::ZERO).unwrap().is_err());
                held = last.wait(Duration::ZERO).unwrap().unwrap();
            }
            assert_eq!(state.all.delay.is_lasting(), is_overload, "{waited:?}");
        }
    }
}
