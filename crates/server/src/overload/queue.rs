//! Which jobs a queue before workers takes.

use std::time::Duration;

use super::delay::DelayControl;
use super::retry_after::RetryAfter;
use crate::fairness::lanes::{LANES, Lane};

/// Jobs that show a change: enough that one slow job does not decide.
const JOBS_OF_A_MEAN: u64 = 32;

/// Those before count as so many while the mean is about the same.
const JOBS_REMEMBERED: u64 = 256;

/// The time that a mean covers at least.
const TIME_OF_A_MEAN_US: u64 = 250_000;

/// No worker was free for so many mean intervals: what is in progress takes longer than what was
/// before. Intervals four times the mean are common (one in 55, if they are exponential).
const STALL_INTERVALS: u64 = 4;

/// What counts towards the goal of a job beside those before it: work of other lanes, which comes in turn with that
/// of its own, and what is done for it before and after.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Beside {
    /// The job's own.
    lane: Lane,
    /// What waits in each other lane, in workers' time.
    work_us: [u64; LANES],
    /// How long jobs of these, and others that run, keep a worker at most.
    service_us: u64,
    /// How long jobs of these may wait, if some do.
    accepted_us: Option<u64>,
    /// How long the job's connection was kept before, by its handshake and until the request was read.
    before_us: u64,
    /// What each job of this lane brings to the others once it is done: a handshake its request, in the mean.
    follow_up_us: u64,
}

impl Beside {
    pub(super) fn of(lane: Lane) -> Self {
        Self {
            lane,
            ..Self::default()
        }
    }

    /// The time that other lanes have while this one has so much, if they need it.
    fn others_us(&self, own_us: u64, workers: u64) -> u64 {
        let of_lane = |other: Lane| {
            let most_us = own_us.saturating_mul(self.lane.cost()) / other.cost();
            most_us.min(self.work_us[other as usize] / workers)
        };
        (self.lane.others().map(of_lane)).fold(0, u64::saturating_add)
    }

    /// The job's connection was kept for so long before.
    pub(super) fn is_after(&mut self, before_us: u64) {
        self.before_us = before_us;
    }

    /// Each job of this lane brings so much to the others.
    pub(super) fn brings(&mut self, follow_up_us: u64) {
        self.follow_up_us = follow_up_us;
    }

    /// Jobs that run keep a worker for so long.
    pub(super) fn takes_up_to(&mut self, mean_us: u64) {
        self.service_us = self.service_us.max(mean_us);
    }

    /// So many jobs of another lane. While its overload lasts as many come as are done.
    pub(super) fn add(&mut self, lane: Lane, jobs: usize, control: &QueueControl) {
        if jobs == 0 {
            return;
        }
        let (mean_us, accepted_us) = (control.mean_us(), control.delay.accepted_us());
        self.work_us[lane as usize] = match control.delay.is_lasting() {
            true => u64::MAX,
            false => mean_us.saturating_mul(jobs as u64),
        };
        self.service_us = self.service_us.max(mean_us);
        let least_us = self.accepted_us.unwrap_or(accepted_us);
        self.accepted_us = Some(least_us.min(accepted_us));
    }
}

/// Decides whether a job would be done in time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueControl {
    delay: DelayControl,
    workers: u64,
    service: MeanService,
    retry_after: RetryAfter,
    /// When a worker last took or ended a job, or a job came to an empty queue.
    moved_at_us: u64,
}

impl QueueControl {
    pub(crate) fn new(goal: Duration, workers: usize) -> Self {
        Self {
            delay: DelayControl::new(goal),
            workers: workers.max(1) as u64,
            service: MeanService::default(),
            retry_after: RetryAfter::new(),
            moved_at_us: 0,
        }
    }

    /// The same for jobs of which the first ones may take far longer than those behind them. They are no mean before
    /// they are so many, or have taken as long as one covers.
    pub(super) fn known_after(jobs: u64, goal: Duration, workers: usize) -> Self {
        let mut it = Self::new(goal, workers);
        it.service.first_jobs = jobs;
        it
    }

    /// There are so many workers now.
    pub(crate) fn set_workers(&mut self, workers: usize) {
        self.workers = workers.max(1) as u64;
    }

    /// A job comes to a queue in which `depth` jobs wait before it. `Err`: it is refused, and its client
    /// is to come back after this many seconds.
    pub(crate) fn offer(&mut self, now_us: u64, depth: usize, beside: Beside) -> Result<(), u32> {
        if depth == 0 {
            self.moved_at_us = now_us;
        }
        if self.is_in_time(now_us, depth, beside) {
            return Ok(());
        }
        let interval_us = self.interval_us(now_us, beside);
        Err(self.refuse(now_us, interval_us))
    }

    /// Whether a job would be done in time that finds so many before it. What those bring to other lanes is done
    /// before what this one brings.
    pub(crate) fn is_in_time(&self, now_us: u64, depth: usize, beside: Beside) -> bool {
        let Some(service_us) = self.service.mean_us().filter(|_| depth > 0) else {
            return true;
        };
        let own_us = (self.interval_us(now_us, beside)).saturating_mul(depth as u64);
        let brought_us = beside.follow_up_us.saturating_mul(depth as u64) / self.workers;
        let others_us = beside
            .others_us(own_us, self.workers)
            .saturating_add(brought_us);
        own_us.saturating_add(others_us) <= self.wait_max_us(service_us, beside)
    }

    /// Between two jobs that begin, all workers together.
    fn interval_us(&self, now_us: u64, beside: Beside) -> u64 {
        let stalled_us = now_us.saturating_sub(self.moved_at_us);
        let stalled_us = stalled_us.saturating_sub(beside.service_us) / STALL_INTERVALS;
        stalled_us.max(self.mean_us() / self.workers)
    }

    /// Whether more comes than can be done, and has come for some time.
    #[cfg(test)]
    pub(crate) fn is_lasting(&self) -> bool {
        self.delay.is_lasting()
    }

    /// How long a job keeps a worker, in the mean; 0: not known.
    pub(super) fn mean_us(&self) -> u64 {
        self.service.mean_us().unwrap_or(0)
    }

    /// A worker takes a job that has waited for `wait_us`; `depth` others still wait. `Err`: it is too
    /// late for it.
    pub(crate) fn take(&mut self, now_us: u64, wait_us: u64, depth: usize) -> Result<(), u32> {
        self.take_beside(now_us, wait_us, depth, Beside::default())
    }

    /// The same, with what else counts towards the goal.
    pub(super) fn take_beside(
        &mut self,
        now_us: u64,
        wait_us: u64,
        depth: usize,
        beside: Beside,
    ) -> Result<(), u32> {
        self.moved_after(now_us, wait_us, depth);
        let service_us = self.mean_us();
        // The last one keeps nobody from being in time.
        if depth == 0 || wait_us <= self.longest_wait_us(service_us, beside) {
            self.delay.begun(now_us);
            return Ok(());
        }
        Err(self.refuse(now_us, service_us / self.workers))
    }

    /// The job that was taken last is not done after all: its client has left.
    pub(crate) fn not_taken(&mut self) {
        self.delay.not_begun();
    }

    /// Whether a job that has waited for so long is done only for a client that certainly waits for it.
    pub(crate) fn is_long(&self, wait_us: u64) -> bool {
        self.delay.is_long(wait_us)
    }

    /// A worker has done a job in `took_us`.
    pub(crate) fn done(&mut self, now_us: u64, took_us: u64) {
        self.moved_at_us = self.moved_at_us.max(now_us);
        self.service.add(now_us, 1, took_us);
    }

    /// A worker has taken or done a job that is not among these.
    pub(super) fn moved(&mut self, now_us: u64) {
        self.moved_at_us = self.moved_at_us.max(now_us);
    }

    /// The same, after that job has waited for `wait_us`; `depth` others still wait. Clients have turns, so
    /// one that has hardly waited says nothing of those.
    pub(super) fn moved_after(&mut self, now_us: u64, wait_us: u64, depth: usize) {
        self.moved(now_us);
        match depth {
            0 => self.delay.waited(wait_us),
            _ => self.delay.waited_in_no_order(wait_us, now_us),
        }
    }

    /// A worker was busy with `jobs` for `took_us` in all.
    pub(crate) fn done_many(&mut self, now_us: u64, jobs: u64, took_us: u64) {
        self.service.add(now_us, jobs, took_us);
    }

    /// When the client of a job is to come back that is refused for another reason, in seconds.
    pub(crate) fn retry_after_s(&mut self, now_us: u64) -> u32 {
        let interval_us = self.mean_us() / self.workers;
        self.retry_after.next_s(now_us, interval_us)
    }

    fn refuse(&mut self, now_us: u64, interval_us: u64) -> u32 {
        self.delay.refused(now_us);
        self.retry_after.next_s(now_us, interval_us)
    }

    /// Whether a job that has waited for so long comes too late, if others wait.
    pub(crate) fn is_late(&self, wait_us: u64) -> bool {
        wait_us > self.longest_wait_us(self.mean_us(), Beside::default())
    }

    /// The goal, less the service itself and what comes after it and was before. Jobs that take longer than half of
    /// the goal may wait for half of it: they were slow before there was any queue.
    fn longest_wait_us(&self, service_us: u64, beside: Beside) -> u64 {
        let goal_us = self.delay.goal_us();
        let serves_us = service_us.saturating_add(beside.follow_up_us);
        let longest_us = goal_us.saturating_sub(serves_us).max(goal_us / 2);
        longest_us.saturating_sub(beside.before_us)
    }

    /// In overload less, but two jobs for each worker at least, so that none has to wait for the next
    /// one. A handshake's overload is that of the request that comes after it.
    fn wait_max_us(&self, service_us: u64, beside: Beside) -> u64 {
        let longest_us = self.longest_wait_us(service_us, beside);
        let own_us = self.delay.accepted_us();
        let accepted_us = match beside.lane {
            Lane::Handshakes => beside.accepted_us.unwrap_or(own_us).min(own_us),
            Lane::Files | Lane::Apps => own_us,
        };
        let two_us = 2 * service_us.saturating_add(beside.follow_up_us);
        longest_us.min(accepted_us.max(two_us))
    }
}

/// The mean of the service times of late: over many jobs, since single ones differ much, and over the
/// last ones alone where these are clearly different.
#[derive(Clone, Copy, Debug, Default)]
struct MeanService {
    /// Of all of these. It is asked for far more often than jobs end: several times for each that comes.
    mean_us: Option<u64>,
    known_us: Option<u64>,
    /// There is none of fewer, unless they take long.
    first_jobs: u64,
    since_us: u64,
    jobs: u64,
    sum_us: u64,
}

impl MeanService {
    fn add(&mut self, now_us: u64, jobs: u64, took_us: u64) {
        if self.jobs == 0 {
            self.since_us = now_us;
        }
        self.jobs += jobs;
        self.sum_us = self.sum_us.saturating_add(took_us);
        self.mean_us = self.mean_of_all_us();
        let covered_us = now_us.saturating_sub(self.since_us);
        if self.jobs >= JOBS_OF_A_MEAN && covered_us >= TIME_OF_A_MEAN_US {
            self.known_us = self.mean_us;
            self.jobs = 0;
            self.sum_us = 0;
        }
    }

    fn mean_us(&self) -> Option<u64> {
        self.mean_us
    }

    fn mean_of_all_us(&self) -> Option<u64> {
        let is_enough = self.jobs >= self.first_jobs || self.sum_us >= TIME_OF_A_MEAN_US;
        let latest_us =
            (self.sum_us.checked_div(self.jobs)).filter(|_| is_enough || self.known_us.is_some());
        let (Some(known_us), Some(latest_us)) = (self.known_us, latest_us) else {
            return self.known_us.or(latest_us);
        };
        let changed = latest_us > 2 * known_us || latest_us < known_us / 2;
        let weight = match changed {
            true => JOBS_OF_A_MEAN.saturating_sub(self.jobs),
            false => JOBS_REMEMBERED,
        };
        Some((known_us * weight + self.sum_us) / (weight + self.jobs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: Beside = Beside {
        lane: Lane::Files,
        work_us: [0; LANES],
        service_us: 0,
        accepted_us: None,
        before_us: 0,
        follow_up_us: 0,
    };
    const GOAL: Duration = Duration::from_secs(1);

    /// Two workers that have done 64 jobs of 10 ms each by half a second.
    fn after_some_jobs() -> QueueControl {
        let mut queue = QueueControl::new(GOAL, 2);
        for index in 0..64 {
            queue.done(index * 5_000, 10_000);
        }
        queue
    }

    #[test]
    fn a_job_is_taken_if_it_can_be_done_within_the_goal() {
        let mut queue = after_some_jobs();
        assert_eq!(queue.offer(500_000, 0, ALONE), Ok(()));
        // 198 jobs of 5 ms each are 990 ms of waiting, and 10 ms of service.
        assert_eq!(queue.offer(500_000, 198, ALONE), Ok(()));
        assert!(queue.offer(500_000, 199, ALONE).is_err());
    }

    #[test]
    fn with_more_workers_more_may_wait() {
        let mut queue = after_some_jobs();
        queue.set_workers(4);
        assert_eq!(queue.offer(500_000, 0, ALONE), Ok(()));
        assert_eq!(queue.offer(500_000, 390, ALONE), Ok(()));
        assert!(queue.offer(500_000, 400, ALONE).is_err());
    }

    #[test]
    fn nothing_is_refused_before_anything_is_known_or_while_nothing_waits() {
        let mut queue = QueueControl::new(GOAL, 2);
        assert_eq!(queue.offer(0, 100_000, ALONE), Ok(()));
        queue.done(9_000_000, 9_000_000);
        assert_eq!(
            queue.offer(9_000_000, 0, ALONE),
            Ok(()),
            "slower than the goal"
        );
        assert!(queue.offer(9_000_000, 1, ALONE).is_err());
    }

    #[test]
    fn a_job_that_comes_too_late_to_a_worker_is_refused_if_others_wait() {
        let mut queue = after_some_jobs();
        assert_eq!(queue.take(2_000_000, 990_000, 7), Ok(()));
        assert!(queue.take(2_000_000, 991_000, 7).is_err());
        assert_eq!(queue.take(2_000_000, 991_000, 0), Ok(()));
    }

    #[test]
    fn under_lasting_overload_little_waits_until_the_queue_was_empty() {
        let mut queue = after_some_jobs();
        for now_ms in 500..=750 {
            assert_eq!(queue.take(now_ms * 1000, 900_000, 200), Ok(()));
            assert!(queue.offer(now_ms * 1000, 200, ALONE).is_err());
        }
        assert!(queue.offer(751_000, 21, ALONE).is_err());
        assert_eq!(queue.offer(751_000, 20, ALONE), Ok(()), "100 ms");
        assert_eq!(queue.take(1_000_000, 0, 0), Ok(()));
        assert_eq!(queue.offer(1_000_000, 198, ALONE), Ok(()));
    }

    #[test]
    fn workers_that_do_not_come_back_are_seen_at_once() {
        let mut queue = after_some_jobs();
        assert_eq!(queue.take(500_000, 0, 0), Ok(()));
        assert_eq!(queue.offer(600_000, 1, ALONE), Ok(()));
        // 2 s without a free worker: half a second for each job at least.
        assert!(queue.offer(2_500_000, 3, ALONE).is_err());
        assert_eq!(queue.offer(2_500_000, 1, ALONE), Ok(()));
    }

    #[test]
    fn where_the_first_job_may_take_longer_it_alone_is_no_mean() {
        let mut queue = QueueControl::known_after(8, GOAL, 2);
        assert_eq!(queue.offer(0, 0, ALONE), Ok(()));
        queue.done(9_000, 9_000);
        assert_eq!(queue.offer(9_000, 255, ALONE), Ok(()));
        (0..7).for_each(|index| queue.done(10_000 + index * 4_500, 9_000));
        assert!(queue.offer(40_000, 255, ALONE).is_err());
        // Long ones are soon known.
        let mut slow = QueueControl::known_after(8, GOAL, 2);
        slow.done(300_000, 300_000);
        assert!(slow.offer(300_000, 7, ALONE).is_err());
    }

    #[test]
    fn the_mean_follows_a_change_within_some_jobs() {
        let mut service = MeanService::default();
        assert_eq!(service.mean_us(), None);
        for index in 0..100 {
            service.add(index * 5_000, 1, 10_000);
        }
        assert_eq!(service.mean_us(), Some(10_000));
        for index in 100..132 {
            service.add(index * 5_000, 1, 100_000);
        }
        assert!(service.mean_us() > Some(70_000), "{service:?}");
    }
}
