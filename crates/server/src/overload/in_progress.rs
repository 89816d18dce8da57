//! Which requests threads begin that share the CPUs: a thread for each connection, or many of a pool.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::delay::DelayControl;
use super::retry_after::RetryAfter;
use crate::fairness::ClientKey;

/// One observation in so many counts for the time of a request among others.
const WEIGHT: f64 = 16.0;

/// Requests in progress of a server, with what each costs the others.
///
/// Threads wait in no queue that could be measured: they share the CPUs, so that each request takes
/// the longer the more there are. Measured is the time of a request divided by how many were in
/// progress meanwhile. For work that computes this is constant, its CPU time over the CPUs; for work
/// that waits it falls with their number, so that nothing is refused that disturbs nobody.
#[derive(Debug)]
pub(crate) struct InProgress(Mutex<State>);

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
        Self(Mutex::new(State {
            delay: DelayControl::new(goal),
            retry_after: RetryAfter::new(),
            count: 0,
            clients: HashMap::new(),
            each_us: 0.0,
        }))
    }

    /// A request of this client would begin. `Err`: it would not end in time, and its client is to come
    /// back after this many seconds.
    pub(crate) fn begin(&self, client: ClientKey, now_us: u64) -> Result<Permit, u32> {
        let mut state = self.lock();
        let count = state.count + 1;
        if count == 1 {
            state.delay.waited(0);
        }
        // For a client with fewer than others it is as if these had no more: they are refused first.
        let own = state.clients.get(&client).copied().unwrap_or(0);
        let clients = state.clients.len() as u32 + u32::from(own == 0);
        let shared = count.min((own + 1).saturating_mul(clients));
        let predicted_us = state.each_us * f64::from(shared);
        // Two at least, so that none waits for the next one to begin.
        if count > 2 && predicted_us > state.delay.accepted_us() as f64 {
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

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
            .map_while(|_| in_progress.begin(CLIENT, now_us).ok())
            .collect();
        begun.len()
    }

    #[test]
    fn work_that_computes_is_bounded_by_what_its_cpus_do_within_the_goal() {
        let in_progress = InProgress::new(GOAL);
        for index in 0..50 {
            let permits: Vec<_> = (0..4)
                .map(|_| in_progress.begin(CLIENT, index).unwrap())
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
                .map(|_| in_progress.begin(CLIENT, index).unwrap())
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
        let permit = in_progress.begin(CLIENT, 0).unwrap();
        in_progress.end(10_000, &permit);
        let begun = fill(&in_progress, 20_000);
        assert!(in_progress.begin(CLIENT, 20_000).is_err());
        let other = ClientKey::of([192, 0, 2, 2].into());
        let permits: Vec<_> = (0..10)
            .map(|_| in_progress.begin(other, 20_000).unwrap())
            .collect();
        assert!(in_progress.begin(CLIENT, 20_000).is_err(), "{begun}");
        permits
            .iter()
            .for_each(|permit| in_progress.end(30_000, permit));
        assert_eq!(in_progress.lock().clients.len(), 1);
    }

    #[test]
    fn two_begin_however_slow_they_are() {
        let in_progress = InProgress::new(GOAL);
        let permit = in_progress.begin(CLIENT, 0).unwrap();
        in_progress.end(30_000_000, &permit);
        assert_eq!(fill(&in_progress, 40_000_000), 2);
    }
}
