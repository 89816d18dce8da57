//! Which requests threads begin that share the CPUs: a thread for each connection, or many of a pool.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::delay::DelayControl;
use super::retry_after::RetryAfter;
use crate::fairness::ClientKey;

/// One observation in so many counts for the time of a request among others.
const WEIGHT: f64 = 16.0;

/// Of so many requests it is found out for one how long it has waited, while none is known to wait:
/// requests of 200 us then show a queue before the CPUs within 7 ms, and finding out costs a thirtieth of
/// a system call.
const WAITS_APART: u64 = 32;

/// Requests in progress of a server, with what each costs the others.
///
/// What waits for a CPU before its thread has read it is not in progress: that wait counts besides.
///
/// Threads wait in no queue that could be measured: they share the CPUs, so that each request takes
/// the longer the more there are. Measured is the time of a request divided by how many were in
/// progress meanwhile. For work that computes this is constant, its CPU time over the CPUs; for work
/// that waits it falls with their number, so that nothing is refused that disturbs nobody.
#[derive(Debug)]
pub(crate) struct InProgress {
    state: Mutex<State>,
    goal_us: u64,
    /// Requests that were about to begin.
    asked: AtomicU64,
    /// Until then it is found out for each, in microseconds.
    pressed_until_us: AtomicU64,
}

#[derive(Debug)]
struct State {
    delay: DelayControl,
    retry_after: RetryAfter,
    count: u32,
    /// By client, those that have any.
    clients: HashMap<ClientKey, u32>,
    /// The time of a request for each that is in progress, in microseconds; 0: not known yet.
    each_us: f64,
}

/// A request in progress; to be given back with `end`.
#[derive(Debug)]
#[must_use]
pub(crate) struct Permit {
    began_us: u64,
    client: ClientKey,
    /// In progress when it began, itself included.
    count: u32,
}

impl InProgress {
    pub(crate) fn new(goal: Duration) -> Self {
        let delay = DelayControl::new(goal);
        Self {
            goal_us: delay.goal_us(),
            asked: AtomicU64::new(0),
            pressed_until_us: AtomicU64::new(0),
            state: Mutex::new(State {
                delay,
                retry_after: RetryAfter::new(),
                count: 0,
                clients: HashMap::new(),
                each_us: 0.0,
            }),
        }
    }

    /// Whether `begin` is to know how long the request has waited for its thread.
    pub(crate) fn wants_waits(&self, now_us: u64) -> bool {
        let asked = self.asked.fetch_add(1, Relaxed);
        asked.is_multiple_of(WAITS_APART) || now_us < self.pressed_until_us.load(Relaxed)
    }

    /// A request of this client would begin that has waited for so long (0: not known). `Err`: it would
    /// not end in time, and its client is to come back after this many seconds.
    pub(crate) fn begin(
        &self,
        client: ClientKey,
        waited_us: u64,
        now_us: u64,
    ) -> Result<Permit, u32> {
        let mut state = self.lock();
        if state.delay.is_wait(waited_us) {
            self.press(now_us);
        }
        let count = state.count + 1;
        if count == 1 {
            state.delay.waited(waited_us);
        }
        // For a client with fewer than others it is as if these had no more: they are refused first.
        let own = state.clients.get(&client).copied().unwrap_or(0);
        let clients = state.clients.len() as u32 + u32::from(own == 0);
        let shared = count.min((own + 1).saturating_mul(clients));
        // Two at least, so that none waits for the next one to begin.
        let takes_us = match count > 2 {
            true => (state.each_us * f64::from(shared)) as u64,
            false => 0,
        };
        if waited_us.saturating_add(takes_us) > state.delay.accepted_us() {
            self.press(now_us);
            state.delay.refused(now_us);
            let each_us = state.each_us as u64;
            return Err(state.retry_after.next_s(now_us, each_us));
        }
        state.count = count;
        *state.clients.entry(client).or_default() += 1;
        Ok(Permit {
            began_us: now_us,
            client,
            count,
        })
    }

    pub(crate) fn end(&self, now_us: u64, permit: &Permit) {
        let mut state = self.lock();
        let took_us = now_us.saturating_sub(permit.began_us) as f64;
        let beside = f64::from(permit.count + state.count) / 2.0;
        state.count = state.count.saturating_sub(1);
        if let Entry::Occupied(mut own) = state.clients.entry(permit.client) {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
        let each_us = took_us / beside.max(1.0);
        state.each_us = match state.each_us {
            0.0 => each_us,
            known => known + (each_us - known) / WEIGHT,
        };
    }

    /// Requests wait.
    fn press(&self, now_us: u64) {
        self.pressed_until_us.store(now_us + self.goal_us, Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: ClientKey = ClientKey::NOBODY;
    const GOAL: Duration = Duration::from_secs(1);

    /// Requests begin until one is refused; how many.
    fn fill(in_progress: &InProgress, now_us: u64) -> usize {
        let begun: Vec<_> = (0..10_000)
            .map_while(|_| in_progress.begin(CLIENT, 0, now_us).ok())
            .collect();
        begun.len()
    }

    #[test]
    fn work_that_computes_is_bounded_by_what_its_cpus_do_within_the_goal() {
        let in_progress = InProgress::new(GOAL);
        for index in 0..50 {
            let permits: Vec<_> = (0..4)
                .map(|_| in_progress.begin(CLIENT, 0, index).unwrap())
                .collect();
            for permit in permits {
                // four of 10 ms each on one CPU; the later ones end among fewer
                in_progress.end(index + 40_000, &permit);
            }
        }
        let begun = fill(&in_progress, 100_000);
        assert!((50..=100).contains(&begun), "{begun}");
    }

    #[test]
    fn work_that_sleeps_is_bounded_by_connections_alone() {
        let in_progress = InProgress::new(GOAL);
        for index in 0..50 {
            let permits: Vec<_> = (0..90)
                .map(|_| in_progress.begin(CLIENT, 0, index).unwrap())
                .collect();
            for permit in permits {
                in_progress.end(index + 10_000, &permit);
            }
        }
        assert!(fill(&in_progress, 100_000) > 3_000);
    }

    #[test]
    fn a_client_with_few_begins_though_another_has_all_that_can_be_done() {
        let in_progress = InProgress::new(GOAL);
        let permit = in_progress.begin(CLIENT, 0, 0).unwrap();
        in_progress.end(10_000, &permit);
        let begun = fill(&in_progress, 20_000);
        assert!(in_progress.begin(CLIENT, 0, 20_000).is_err());
        let other = ClientKey::of([192, 0, 2, 2].into());
        let permits: Vec<_> = (0..10)
            .map(|_| in_progress.begin(other, 0, 20_000).unwrap())
            .collect();
        assert!(in_progress.begin(CLIENT, 0, 20_000).is_err(), "{begun}");
        permits
            .iter()
            .for_each(|permit| in_progress.end(30_000, permit));
        assert_eq!(in_progress.lock().clients.len(), 1);
    }

    #[test]
    fn two_begin_however_slow_they_are() {
        let in_progress = InProgress::new(GOAL);
        let permit = in_progress.begin(CLIENT, 0, 0).unwrap();
        in_progress.end(30_000_000, &permit);
        assert_eq!(fill(&in_progress, 40_000_000), 2);
    }

    /// Many threads wait for a CPU, each of which has its request to itself once it has one.
    #[test]
    fn what_has_waited_for_a_cpu_is_refused_though_nothing_is_in_progress() {
        let in_progress = InProgress::new(GOAL);
        let serve = |waited_us, now_us| {
            let begun = in_progress.begin(CLIENT, waited_us, now_us);
            let permit = begun.inspect(|permit| in_progress.end(now_us + 200, permit));
            permit.is_ok()
        };
        assert!(in_progress.wants_waits(0), "the first one");
        assert!(!in_progress.wants_waits(0));
        assert!(serve(900_000, 1_000_000));
        assert!(
            in_progress.wants_waits(1_900_000),
            "for as long as the goal"
        );
        assert!(!serve(1_000_001, 2_000_000));
        assert!(!serve(1_000_001, 2_250_000));
        // From now on a tenth of the goal is enough, until something has hardly waited.
        assert!(!serve(100_001, 2_300_000));
        assert!(serve(99_000, 2_300_000));
        assert!(serve(10_000, 2_400_000));
        assert!(serve(900_000, 2_500_000));
        let asked = (0..320).filter(|_| in_progress.wants_waits(9_000_000));
        assert_eq!(asked.count(), 10);
    }
}
