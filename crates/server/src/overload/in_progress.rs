//! Which requests threads begin that share the CPUs: a thread for each connection, or many of a pool.

#[cfg(test)]
mod simulation;
mod state;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use loadline_sys::usage::ThreadUsage;

use super::at_once::Used;
use crate::fairness::ClientKey;
use crate::fairness::lanes::FlowKey;
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
/// Handshakes that threads compute are not among them. What these take of the CPUs shows in the time of the requests
/// beside them, and what they wait for in `offer_handshake`; their own short times would make those of requests look
/// shorter, and a client's handshake would count as another request of it.
///
/// Of a connection's own threads only as many are at work at once as the CPUs can use (`AtOnce`); the
/// others wait for their turn: a hundred that compute in turns would all be late.
#[derive(Debug)]
pub(crate) struct InProgress {
    state: Mutex<State>,
    goal_us: u64,
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
            goal_us: state.all.delay.goal_us(),
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
        let mut state = self.lock();
        let is_wait = state.all.delay.is_wait(waited_us);
        let is_in_time = state.offer_handshake(client, waited_us, now_us);
        drop(state);
        if is_wait || !is_in_time {
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
        let mut state = self.lock();
        if state.all.delay.is_wait(waited.for_cpu_us) {
            self.press(came_us);
        }
        let begin = state.begin(flow, waited, came_us);
        drop(state);
        let begun = match begin {
            Begin::Now(permit) => Ok(permit),
            Begin::Never(retry_after_s) => Err(retry_after_s),
            Begin::Later(ticket) => {
                let left_us = self.goal_us.saturating_sub(waited.in_all_us);
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
        self.lock().all.delay.is_long(waited_us)
    }

    pub(crate) fn end(&self, now_us: u64, permit: &Permit) {
        let used = permit.measured.and_then(|thread| Used::by(thread, now_us));
        let mut state = self.lock();
        let was_long = state
            .all
            .delay
            .is_wait(now_us.saturating_sub(permit.began_us));
        // What comes to the same thread has waited for it.
        if was_long && state.all_begin() {
            self.press(now_us);
        }
        state.end(permit, used, now_us);
    }

    /// A request that may begin is not carried out: its client has left.
    pub(crate) fn give_back(&self, now_us: u64, permit: &Permit) {
        self.lock().give_back(permit, now_us);
    }

    /// What a request costs each of those in progress, as far as is known, in microseconds.
    #[cfg(test)]
    pub(crate) fn each_us(&self) -> u64 {
        self.lock().each_us()
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
        self.pressed_until_us.store(now_us + self.goal_us, Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fairness::lanes::Lane;

    const CLIENT: ClientKey = ClientKey::NOBODY;
    const GOAL: Duration = Duration::from_secs(1);

    fn flow(client: ClientKey) -> FlowKey {
        let lane = Lane::Files;
        FlowKey { lane, client }
    }

    fn begin(
        in_progress: &InProgress,
        client: ClientKey,
        waited_us: u64,
        now_us: u64,
    ) -> Result<Permit, u32> {
        in_progress.begin(flow(client), Waited::for_cpu(waited_us), || now_us)
    }

    /// Requests begin until one is refused; how many.
    fn fill(in_progress: &InProgress, now_us: u64) -> usize {
        let begun: Vec<_> = (0..10_000)
            .map_while(|_| begin(in_progress, CLIENT, 0, now_us).ok())
            .collect();
        begun.len()
    }

    #[test]
    fn work_that_computes_is_bounded_by_what_its_cpus_do_within_the_goal() {
        let in_progress = InProgress::new(GOAL, None);
        for index in 0..50 {
            let permits: Vec<_> = (0..4)
                .map(|_| begin(&in_progress, CLIENT, 0, index).unwrap())
                .collect();
            for permit in permits {
                // four of 10 ms each on one CPU; the later ones end among fewer
                in_progress.end(index + 40_000, &permit);
            }
        }
        let begun = fill(&in_progress, 100_000);
        assert!((50..=100).contains(&begun), "{begun}");
    }

    /// They counted as ones that take no time, so that more began than could be answered in time.
    #[test]
    fn requests_whose_clients_have_left_say_nothing_of_others() {
        let in_progress = InProgress::new(GOAL, None);
        let permit = begin(&in_progress, CLIENT, 0, 0).unwrap();
        in_progress.end(10_000, &permit);
        for _ in 0..100 {
            let permit = begin(&in_progress, CLIENT, 0, 20_000).unwrap();
            in_progress.give_back(20_000, &permit);
        }
        assert_eq!(in_progress.each_us(), 10_000);
        let begun = fill(&in_progress, 20_000);
        assert!((90..=110).contains(&begun), "{begun}");
    }

    #[test]
    fn handshakes_that_take_half_of_the_cpus_leave_room_for_half_of_the_requests() {
        let begun = |took_us| {
            let in_progress = InProgress::new(GOAL, None);
            let permit = begin(&in_progress, CLIENT, 0, 0).unwrap();
            in_progress.end(took_us, &permit);
            fill(&in_progress, 100_000)
        };
        let (alone, beside_handshakes) = (begun(10_000), begun(20_000));
        assert!(alone >= 50, "{alone}");
        let difference = (alone / 2).abs_diff(beside_handshakes);
        assert!(difference <= 2, "{alone}, {beside_handshakes}");
    }

    #[test]
    fn work_that_sleeps_is_bounded_by_connections_alone() {
        let in_progress = InProgress::new(GOAL, None);
        for index in 0..50 {
            let permits: Vec<_> = (0..90)
                .map(|_| begin(&in_progress, CLIENT, 0, index).unwrap())
                .collect();
            for permit in permits {
                in_progress.end(index + 10_000, &permit);
            }
        }
        assert!(fill(&in_progress, 100_000) > 3_000);
    }

    #[test]
    fn a_client_with_few_begins_though_another_has_all_that_can_be_done() {
        let in_progress = InProgress::new(GOAL, None);
        let permit = begin(&in_progress, CLIENT, 0, 0).unwrap();
        in_progress.end(10_000, &permit);
        let begun = fill(&in_progress, 20_000);
        assert!(begin(&in_progress, CLIENT, 0, 20_000).is_err());
        let other = ClientKey::of([192, 0, 2, 2].into());
        let permits: Vec<_> = (0..10)
            .map(|_| begin(&in_progress, other, 0, 20_000).unwrap())
            .collect();
        assert!(begin(&in_progress, CLIENT, 0, 20_000).is_err(), "{begun}");
        permits
            .iter()
            .for_each(|permit| in_progress.end(30_000, permit));
        assert_eq!(in_progress.lock().clients(), 1);
    }

    /// One client's long requests, of which it is refused more for a while, are nothing to clients with one.
    #[test]
    fn a_client_with_one_request_is_judged_by_its_like() {
        let in_progress = InProgress::new(GOAL, None);
        let begin = |client, now_us| begin(&in_progress, client, 0, now_us);
        let long = [0, 0].map(|now_us| begin(CLIENT, now_us).unwrap());
        long.iter().for_each(|one| in_progress.end(500_000, one));
        let other = ClientKey::of([192, 0, 2, 2].into());
        let first = begin(CLIENT, 600_000).unwrap();
        let short = begin(other, 600_000).unwrap();
        in_progress.end(610_000, &short);
        let others = std::iter::from_fn(|| begin(CLIENT, 620_000).ok());
        let held: Vec<_> = others.chain([first]).collect();
        for now_us in (620_000..920_000).step_by(10_000) {
            assert!(begin(CLIENT, now_us).is_err(), "lasting overload");
        }
        let short = begin(other, 920_000).unwrap();
        in_progress.end(930_000, &short);
        held.iter().for_each(|one| in_progress.end(940_000, one));
    }

    /// Each of them refused because one was slow, none would show that they no longer are.
    #[test]
    fn clients_with_one_request_are_let_in_again_after_a_slow_one() {
        let in_progress = InProgress::new(GOAL, None);
        let begin = |client, now_us| begin(&in_progress, client, 0, now_us);
        let other = ClientKey::of([192, 0, 2, 2].into());
        let both = [CLIENT, other].map(|client| begin(client, 0).unwrap());
        both.iter().for_each(|one| in_progress.end(2_000_000, one));
        let mut is_let_in = false;
        for now_us in (2_100_000..4_100_000).step_by(10_000) {
            let greedy = [0, 0].map(|_| begin(CLIENT, now_us).unwrap());
            let single = begin(other, now_us).ok();
            is_let_in = single.is_some();
            let all = greedy.iter().chain(&single);
            all.for_each(|one| in_progress.end(now_us + 1_000, one));
        }
        assert!(is_let_in);
        assert_eq!(in_progress.lock().singles(), 0);
    }

    #[test]
    fn two_begin_however_slow_they_are() {
        let in_progress = InProgress::new(GOAL, None);
        let permit = begin(&in_progress, CLIENT, 0, 0).unwrap();
        in_progress.end(30_000_000, &permit);
        assert_eq!(fill(&in_progress, 40_000_000), 2);
    }

    /// Many threads wait for a CPU, each of which has its request to itself once it has one.
    #[test]
    fn what_has_waited_for_a_cpu_is_refused_though_nothing_is_in_progress() {
        let in_progress = InProgress::new(GOAL, None);
        let serve = |waited_us, now_us| {
            let begun = begin(&in_progress, CLIENT, waited_us, now_us);
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
        assert!(serve(10_000, 2_500_000));
        assert!(!serve(100_001, 2_550_000), "they do not begin in order");
        assert!(serve(10_000, 2_800_001));
        assert!(serve(900_000, 2_900_000));
        let asked = (0..320).filter(|_| in_progress.wants_waits(9_000_000));
        assert_eq!(asked.count(), 10);
    }

    /// It was computed, and the request behind it came as if it had not waited.
    #[test]
    fn a_handshake_that_has_waited_too_long_for_a_cpu_is_refused() {
        let in_progress = InProgress::new(GOAL, None);
        let offer = |waited_us, now_us| in_progress.offer_handshake(CLIENT, waited_us, now_us);
        assert!(in_progress.wants_waits(0), "the first one");
        assert!(offer(0, 1_000_000), "it is not known");
        assert!(!in_progress.wants_waits(1_000_000));
        assert!(offer(900_000, 1_000_000));
        assert!(in_progress.wants_waits(1_900_000), "others may wait, too");
        assert!(!offer(984_376, 1_700_000), "1/64 is in reserve");
        assert!(offer(900_000, 1_960_000), "that is no overload");
        assert!(!offer(1_000_001, 2_000_000));
        assert!(!offer(1_000_001, 2_250_000));
        assert!(!offer(100_001, 2_300_000), "it lasts");
        assert!(offer(99_000, 2_300_000));
    }

    /// It was computed, and the request behind it was refused.
    #[test]
    fn a_handshake_is_refused_whose_request_would_find_too_many_in_progress() {
        let in_progress = InProgress::new(GOAL, None);
        let now_us = 20_000;
        let begin = || begin(&in_progress, CLIENT, 0, now_us).unwrap();
        let offer = |client, waited_us| in_progress.offer_handshake(client, waited_us, now_us);
        in_progress.end(now_us + 10_000, &begin());
        let mut held: Vec<_> = (0..97).map(|_| begin()).collect();
        assert!(offer(CLIENT, 4_000), "the 98th of 10 ms");
        assert!(!offer(CLIENT, 5_000));
        held.push(begin());
        assert!(!offer(CLIENT, 0));
        let other = ClientKey::of([192, 0, 2, 2].into());
        assert!(offer(other, 8_000), "a client with none in progress");
        held.iter().for_each(|one| in_progress.end(40_000, one));
    }

    #[test]
    fn a_request_has_waited_for_as_long_as_its_handshake_was_kept() {
        let in_progress = InProgress::new(GOAL, None);
        let begin = |handshake_us| {
            let waited = Waited::for_cpu(500_000).behind_handshake(handshake_us);
            in_progress.begin(flow(CLIENT), waited, || 2_000_000)
        };
        let permit = begin(490_000).unwrap();
        in_progress.end(2_000_000, &permit);
        assert!(begin(510_000).is_err());
    }

    #[test]
    fn what_its_connection_has_kept_too_long_is_refused_and_is_no_overload() {
        let in_progress = InProgress::new(GOAL, None);
        let begin = |in_all_us, now_us| {
            let waited = Waited {
                in_all_us,
                ..Waited::default()
            };
            in_progress.begin(flow(CLIENT), waited, || now_us)
        };
        let first = begin(0, 0).unwrap();
        in_progress.end(10_000, &first);
        let held = [0, 0].map(|in_all_us| begin(in_all_us, 20_000).unwrap());
        for now_us in (30_000..430_000).step_by(10_000) {
            assert!(begin(971_000, now_us).is_err(), "three of 10 ms");
        }
        assert!(!in_progress.lock().all.delay.is_lasting());
        let third = begin(970_000, 430_000).unwrap();
        held.iter()
            .chain([&third])
            .for_each(|permit| in_progress.end(440_000, permit));
        let alone = begin(1_100_000, 450_000).unwrap();
        in_progress.end(460_000, &alone);
    }

    /// A burst over some connections of HTTP/2 left a server in lasting overload that had none.
    #[test]
    fn what_its_connection_had_kept_is_no_overload_when_its_turn_comes_too_late_either() {
        let mut state = State::new(GOAL, Some(1.0));
        let begin = |state: &mut State, in_all_us, now_us| {
            let waited = Waited {
                in_all_us,
                ..Waited::default()
            };
            state.begin(FlowKey::default(), waited, now_us)
        };
        let now = |begun| match begun {
            Begin::Now(permit) => permit,
            _ => panic!("it begins"),
        };
        let later = |begun| match begun {
            Begin::Later(ticket) => ticket,
            _ => panic!("it waits"),
        };
        let one = now(begin(&mut state, 0, 0));
        state.end(&one, None, 10_000);
        let first = now(begin(&mut state, 0, 20_000));
        let mut held = now(begin(&mut state, 0, 20_000));
        for now_us in (30_000..630_000).step_by(60_000) {
            let both = [0, 1].map(|_| later(begin(&mut state, 950_000, now_us)));
            state.give_back(&held, now_us + 60_000);
            let [late, last] = both.map(|it| it.wait(Duration::ZERO).unwrap());
            assert!(late.is_err());
            held = last.unwrap();
        }
        let ticket = later(begin(&mut state, 970_000, 630_000));
        state.give_up(FlowKey::default(), &ticket, 661_000);
        assert!(!state.all.delay.is_lasting());
        [first, held]
            .iter()
            .for_each(|permit| state.give_back(permit, 670_000));
        assert_eq!((state.clients(), state.waiting()), (0, 0));
    }

    /// While nothing is known, two begin for each CPU. The others wait instead of being refused.
    #[test]
    fn who_waits_begins_when_one_has_ended() {
        let in_progress = InProgress::new(GOAL, Some(1.0));
        let first = [0, 1].map(|_| begin(&in_progress, CLIENT, 0, 0).unwrap());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| begin(&in_progress, CLIENT, 0, 1_000));
            while in_progress.lock().waiting() == 0 {
                std::thread::yield_now();
            }
            in_progress.end(10_000, &first[0]);
            let permit = waiting.join().unwrap().unwrap();
            in_progress.end(20_000, &permit);
        });
        in_progress.end(20_000, &first[1]);
        assert_eq!(in_progress.lock().clients(), 0);
    }

    #[test]
    fn who_gives_up_is_refused_and_leaves_nothing() {
        let mut state = State::new(GOAL, Some(1.0));
        let mut begin = |now_us| state.begin(FlowKey::default(), Waited::default(), now_us);
        let (Begin::Now(first), Begin::Now(second)) = (begin(0), begin(0)) else {
            panic!("two begin");
        };
        let (Begin::Later(one), Begin::Later(other)) = (begin(0), begin(0)) else {
            panic!("more wait");
        };
        assert!(state.give_up(FlowKey::default(), &one, 1_000_001) > 0);
        state.end(&first, None, 1_000_002);
        assert!(one.wait(Duration::ZERO).is_none());
        // Too late as well, but nothing else waits.
        let permit = other.wait(Duration::ZERO).unwrap().unwrap();
        state.end(&permit, None, 1_010_000);
        state.end(&second, None, 1_010_000);
        assert_eq!((state.clients(), state.waiting()), (0, 0));
    }
}
