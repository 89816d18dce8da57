//! Which requests threads begin that share the CPUs: a thread for each connection, or many of a pool.

#[cfg(test)]
mod simulation;
mod state;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use loadline_sys::usage::ThreadUsage;

use super::at_once::Used;
use super::delay::DelayControl;
use crate::fairness::ClientKey;
use crate::fairness::lanes::FlowKey;
#[cfg(test)]
use crate::fairness::lanes::Lane;
pub(crate) use state::Permit;
use state::{Begin, State};

/// Of so many requests it is found out for one how long it has waited, while none is known to wait:
/// requests of 200 us then show a queue before the CPUs within 7 ms, and finding out costs a thirtieth of
/// a system call.
const WAITS_APART: u64 = 32;

/// Requests in progress of a server, with what each costs the others.
///
/// Two things are looked at:
///
/// - how long a request has waited for a CPU until its thread has read it: nobody counts those
/// - how many are in progress, times what each costs the others: the time of a request divided by how
///   many were in progress meanwhile. For work that computes this is constant, its CPU time over the
///   CPUs; for work that waits it falls with their number, so that nothing is refused that disturbs
///   nobody.
///
/// Files and apps are judged each by what they cost themselves, and an overload of one is none of the other. They
/// share the CPUs: those in progress evenly, and those that wait in turn.
///
/// Handshakes that threads compute are not among them. What these take of the CPUs shows in the time of the requests
/// beside them, and what they wait for in `offer_handshake`; their own short times would make those of requests look
/// shorter, and a client's handshake would count as another request of it.
///
/// Of a connection's own threads only as many are at work at once as the CPUs can use (`AtOnce`); the
/// others wait for their turn: a hundred that compute in turns would all be late.
#[derive(Debug)]
pub(crate) struct InProgress {
    state: Mutex<State>,
    /// What is a long wait by the goal alone. It knows of no overload, which is that of a lane.
    goal: DelayControl,
    /// Requests that were about to begin.
    asked: AtomicU64,
    /// Until then it is found out for each how long it has waited, in microseconds.
    pressed_until_us: AtomicU64,
}

/// How long a request has waited before it would begin, in microseconds; 0: not known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waited {
    pub(crate) in_all_us: u64,
    /// Of it, until its thread had a CPU. What waits for others of its connection says nothing of the CPUs.
    pub(crate) for_cpu_us: u64,
    /// Of it, while its connection's handshake waited for a CPU, and was computed.
    pub(crate) handshake_us: u64,
    /// Of it, what is kept in reserve: it has not waited for that long.
    pub(crate) reserve_us: u64,
}

impl Waited {
    /// For nothing but a CPU.
    pub(crate) fn for_cpu(us: u64) -> Self {
        Self {
            in_all_us: us,
            for_cpu_us: us,
            ..Self::default()
        }
    }

    /// Its connection's handshake has taken so long before.
    pub(crate) fn behind_handshake(self, us: u64) -> Self {
        Self {
            in_all_us: self.in_all_us.saturating_add(us),
            handshake_us: us,
            ..self
        }
    }
}

/// What a thread waits for whose request is to begin later.
#[derive(Debug, Default)]
struct Ticket {
    decided: Mutex<Option<Result<Permit, u32>>>,
    changed: Condvar,
}

impl InProgress {
    /// `cpus`: as many are at work at once as these can use; `None`: as many as begin.
    pub(crate) fn new(goal: Duration, cpus: Option<f64>) -> Self {
        // Who sleeps and who computes is known only where the kernel counts what threads wait for CPUs.
        let counts = || Used::by(ThreadUsage::of_this_thread(), 0).is_some();
        let state = State::new(goal, cpus.filter(|_| counts()));
        Self {
            goal: DelayControl::new(goal),
            asked: AtomicU64::new(0),
            pressed_until_us: AtomicU64::new(0),
            state: Mutex::new(state),
        }
    }

    /// Whether `begin` is to know how long the request has waited for its thread.
    pub(crate) fn wants_waits(&self, now_us: u64) -> bool {
        let asked = self.asked.fetch_add(1, Relaxed);
        asked.is_multiple_of(WAITS_APART) || now_us < self.pressed_until_us.load(Relaxed)
    }

    /// Whether a handshake is to be computed that has waited for a CPU for so long; 0: not known.
    pub(crate) fn offer_handshake(&self, client: ClientKey, waited_us: u64, now_us: u64) -> bool {
        let is_in_time = self.lock().offer_handshake(client, waited_us, now_us);
        if self.goal.is_wait(waited_us) || !is_in_time {
            self.press(now_us);
        }
        is_in_time
    }

    /// A request would begin that has waited for so long. This thread waits until it may.
    /// `Err`: it would not end in time, and its client is to come back after this many seconds.
    pub(crate) fn begin(
        &self,
        flow: FlowKey,
        waited: Waited,
        now_us: impl Fn() -> u64,
    ) -> Result<Permit, u32> {
        let came_us = now_us();
        if self.goal.is_wait(waited.for_cpu_us) {
            self.press(came_us);
        }
        let begin = self.lock().begin(flow, waited, came_us);
        let begun = match begin {
            Begin::Now(permit) => Ok(permit),
            Begin::Never(retry_after_s) => Err(retry_after_s),
            Begin::Later(ticket) => {
                let left_us = self.goal.goal_us().saturating_sub(waited.in_all_us);
                let last_us = came_us.saturating_add(left_us);
                self.wait(flow, &ticket, last_us, &now_us)
            }
        };
        match begun {
            Ok(permit) if permit.is_to_be_measured => Ok(self.measure(permit, now_us())),
            Ok(permit) => Ok(permit),
            Err(retry_after_s) => {
                self.press(came_us);
                Err(retry_after_s)
            }
        }
    }

    /// Whether a request that has waited for so long is done only for a client that certainly waits for it.
    pub(crate) fn is_long(&self, waited_us: u64) -> bool {
        self.goal.is_long(waited_us)
    }

    pub(crate) fn end(&self, now_us: u64, permit: &Permit) {
        let used = permit.measured.and_then(|thread| Used::by(thread, now_us));
        let mut state = self.lock();
        let took_us = now_us.saturating_sub(permit.began_us);
        // What comes to the same thread has waited for it.
        if self.goal.is_wait(took_us) && state.all_begin() {
            self.press(now_us);
        }
        state.end(permit, used, now_us);
    }

    /// A request that may begin is not carried out: its client has left.
    pub(crate) fn give_back(&self, now_us: u64, permit: &Permit) {
        self.lock().give_back(permit, now_us);
    }

    /// What a request of a lane costs each of those in progress, as far as is known, in microseconds.
    #[cfg(test)]
    pub(crate) fn each_us(&self, lane: Lane) -> u64 {
        self.lock().each_us(lane)
    }

    /// Requests that wait for others.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting()
    }

    /// Until its turn has come, or until it would be too late.
    fn wait(
        &self,
        flow: FlowKey,
        ticket: &Arc<Ticket>,
        last_us: u64,
        now_us: &impl Fn() -> u64,
    ) -> Result<Permit, u32> {
        let mut look_in_us = self.lock().look_in_us();
        loop {
            let left_us = last_us.saturating_sub(now_us()) + 1;
            if let Some(decided) = ticket.wait(Duration::from_micros(look_in_us.min(left_us))) {
                return decided;
            }
            let now_us = now_us();
            let mut state = self.lock();
            state.look(now_us);
            if let Some(decided) = ticket.wait(Duration::ZERO) {
                return decided;
            }
            if now_us > last_us {
                return Err(state.give_up(flow, ticket, now_us));
            }
            look_in_us = state.look_in_us();
        }
    }

    /// What the request uses of the CPU is known when it has ended.
    #[cold]
    fn measure(&self, mut permit: Permit, now_us: u64) -> Permit {
        let thread = ThreadUsage::of_this_thread();
        if let Some(used) = Used::by(thread, now_us) {
            self.lock().measure(thread, used);
            permit.measured = Some(thread);
        }
        permit
    }

    /// Requests wait.
    fn press(&self, now_us: u64) {
        let until_us = now_us + self.goal.goal_us();
        self.pressed_until_us.store(until_us, Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticket {
    fn decide(&self, decided: Result<Permit, u32>) {
        *self.decided.lock().unwrap_or_else(PoisonError::into_inner) = Some(decided);
        self.changed.notify_one();
    }

    /// For this long at most; `None`: nothing is decided yet.
    fn wait(&self, at_most: Duration) -> Option<Result<Permit, u32>> {
        let decided = self.decided.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = |decided: &mut Option<_>| decided.is_none();
        let waited = self.changed.wait_timeout_while(decided, at_most, is_open);
        let (mut decided, _) = waited.unwrap_or_else(PoisonError::into_inner);
        decided.take()
    }
}
