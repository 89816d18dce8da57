//! Which jobs workers take that serve files, apps and handshakes in turn.
//!
//! Each lane has its own mean and its own overload: a slow app is refused, and files that have to be read from the
//! disk are still served.
//!
//! Handshakes are different: each brings a request to another lane. What waits for a handshake waits for the
//! requests behind those before it, too, and a request has waited for as long as its handshake has.

#[cfg(test)]
mod busy_tests;
mod follow_up;
#[cfg(test)]
mod handshake_tests;
#[cfg(test)]
mod simulation;

use std::time::Duration;

use super::queue::{Beside, QueueControl};
use crate::fairness::lanes::{Ahead, Charge, LANES, Lane};
use follow_up::FollowUp;

/// So much of the goal is kept in reserve: where the CPUs are taken, a loop reads a request and sends its response
/// some milliseconds late, which no queue sees.
const RESERVE_DIVISOR: u32 = 128;

/// So much more of it is kept in reserve at a handshake: its client has its own part of it, and its request
/// waits in another lane then. Without it the last ones of a burst would be refused after their handshakes.
const HANDSHAKE_RESERVE_DIVISOR: u64 = 64;

/// What the first ones take is nothing to go by before they are so many: a server that has just started takes 10 ms or
/// more for the first one, and less than 1 ms for those behind it.
const FIRST_HANDSHAKES: u64 = 8;

/// Decides for each lane whether a job would be done in time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneControl {
    lanes: [QueueControl; LANES],
    /// The same of jobs whose clients have no other one that waits.
    single: [QueueControl; LANES],
    /// When one of those was last done, or taken to see how long they take now.
    single_tried_us: [u64; LANES],
    goal_us: u64,
    /// What each handshake brings to the other lanes.
    follow_up: FollowUp,
}

/// How long a job has waited, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct JobWait {
    /// In the queue.
    pub(crate) here_us: u64,
    /// Its connection, before: until the request was read, and while its handshake waited, and was computed.
    pub(crate) before_us: u64,
}

impl JobWait {
    pub(crate) fn in_all_us(self) -> u64 {
        self.here_us.saturating_add(self.before_us)
    }
}

/// A job is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// When its client is to come back, in seconds.
    pub(crate) retry_after_s: u32,
    /// A client with no job there would not have been refused.
    pub(crate) is_over_share: bool,
}

impl LaneControl {
    pub(crate) fn new(goal: Duration, workers: usize) -> Self {
        let in_queue = goal - goal / RESERVE_DIVISOR;
        let of_lane = |lane| match lane {
            Lane::Handshakes => QueueControl::known_after(FIRST_HANDSHAKES, in_queue, workers),
            Lane::Files | Lane::Apps => QueueControl::new(in_queue, workers),
        };
        let new = || Lane::ALL.map(of_lane);
        Self {
            lanes: new(),
            single: new(),
            single_tried_us: [0; LANES],
            goal_us: u64::try_from(goal.as_micros()).unwrap_or(u64::MAX),
            follow_up: FollowUp::new(),
        }
    }

    /// There are so many workers now.
    pub(crate) fn set_workers(&mut self, workers: usize) {
        (self.lanes.iter_mut())
            .chain(&mut self.single)
            .for_each(|lane| lane.set_workers(workers));
    }

    /// A job comes to a lane that is empty: a stall may begin now, and did not when the last job was taken.
    pub(crate) fn comes_first(&mut self, now_us: u64, lane: Lane) {
        self.lanes[lane as usize].moved(now_us);
        self.single[lane as usize].moved(now_us);
    }

    /// A worker was free. What waits in other lanes than the one whose job it takes waits for its turn, which is no stall.
    fn all_moved(&mut self, now_us: u64) {
        let all = self.lanes.iter_mut().chain(&mut self.single);
        all.for_each(|lane| lane.moved(now_us));
    }

    /// A job comes to a lane. `Err`: it is refused.
    pub(crate) fn offer(&mut self, now_us: u64, lane: Lane, ahead: Ahead) -> Result<(), Refusal> {
        if ahead.jobs == 0 {
            self.comes_first(now_us, lane);
        }
        let beside = self.beside(lane, ahead);
        let is_single = self.is_single(lane, ahead);
        if is_single && self.is_to_be_tried(now_us, lane) {
            self.single_tried_us[lane as usize] = now_us;
            return Ok(());
        }
        let control = match is_single {
            true => &mut self.single[lane as usize],
            false => &mut self.lanes[lane as usize],
        };
        let offered = control.offer(now_us, ahead.jobs, beside);
        // Behind as many jobs or more it would not be in time, either: that need not be worked out.
        let others = ahead.jobs_of_others;
        offered.map_err(|retry_after_s| Refusal {
            retry_after_s,
            is_over_share: others < ahead.jobs && control.is_in_time(now_us, others, beside),
        })
    }

    /// Whether it would be taken.
    pub(crate) fn is_in_time(&self, now_us: u64, lane: Lane, ahead: Ahead) -> bool {
        let beside = self.beside(lane, ahead);
        let control = match self.is_single(lane, ahead) {
            true if self.is_to_be_tried(now_us, lane) => return true,
            true => &self.single[lane as usize],
            false => &self.lanes[lane as usize],
        };
        control.is_in_time(now_us, ahead.jobs, beside)
    }

    /// A worker takes a job that has waited for so long; `depth` others still wait. `Err`: it is too late for it.
    pub(crate) fn take(
        &mut self,
        now_us: u64,
        charge: &Charge,
        waited: JobWait,
        depth: usize,
    ) -> Result<(), u32> {
        self.all_moved(now_us);
        let index = charge.flow.lane as usize;
        let wait_us = waited.here_us;
        let beside = self.alone(charge.flow.lane, waited.before_us);
        if charge.is_only {
            // Judged by its like alone: the others' overload is not its own.
            self.lanes[index].moved_after(now_us, wait_us, depth);
            return self.single[index].take_beside(now_us, wait_us, depth, beside);
        }
        self.lanes[index].take_beside(now_us, wait_us, depth, beside)
    }

    /// A job that was taken is not done after all: its client has left.
    pub(crate) fn not_taken(&mut self, charge: &Charge) {
        let of_lane = match charge.is_only {
            true => &mut self.single,
            false => &mut self.lanes,
        };
        of_lane[charge.flow.lane as usize].not_taken();
    }

    /// A worker takes a job that is carried out however long it has waited: its answer has begun, or its task.
    pub(crate) fn take_begun(
        &mut self,
        now_us: u64,
        charge: &Charge,
        waited: JobWait,
        depth: usize,
    ) {
        self.all_moved(now_us);
        let index = charge.flow.lane as usize;
        self.lanes[index].moved_after(now_us, waited.here_us, depth);
        if charge.is_only {
            self.single[index].moved_after(now_us, waited.here_us, depth);
        }
    }

    /// A worker has done a job in `took_us`, whose connection was kept for `before_us` by its handshake.
    pub(crate) fn done(&mut self, now_us: u64, charge: &Charge, before_us: u64, took_us: u64) {
        self.followed(charge.flow.lane, before_us, took_us);
        let index = charge.flow.lane as usize;
        self.lanes[index].done(now_us, took_us);
        match charge.is_only {
            true => {
                self.single_tried_us[index] = now_us;
                self.single[index].done(now_us, took_us);
            }
            false => self.single[index].moved(now_us),
        }
    }

    /// The same of so many jobs of a connection, which took so long in all. One was the first behind the
    /// handshake; what it took is not known.
    pub(crate) fn done_many(
        &mut self,
        now_us: u64,
        charge: &Charge,
        before_us: u64,
        (jobs, took_us): (u64, u64),
    ) {
        self.followed(charge.flow.lane, before_us, took_us / jobs.max(1));
        let index = charge.flow.lane as usize;
        self.lanes[index].done_many(now_us, jobs, took_us);
        if charge.is_only {
            self.single_tried_us[index] = now_us;
            self.single[index].done_many(now_us, jobs, took_us);
        }
    }

    /// A handshake was done, or the first request behind one, or another step of it, where that is not known.
    fn followed(&mut self, lane: Lane, before_us: u64, took_us: u64) {
        match lane {
            Lane::Handshakes => self.follow_up.handshake_done(),
            Lane::Files | Lane::Apps if before_us > 0 => self.follow_up.job_done(took_us),
            Lane::Files | Lane::Apps => {}
        }
    }

    /// Whether a job comes alone to those of other clients: then what these send at once, and how long it
    /// takes, is nothing to go by. Jobs like itself come before it, one of each client.
    fn is_single(&self, lane: Lane, ahead: Ahead) -> bool {
        ahead.is_only && self.single[lane as usize].mean_us() > 0
    }

    /// Whether a job that comes alone is taken whatever is known of its like: they may take less time by now,
    /// and if all were refused, nobody would know.
    fn is_to_be_tried(&self, now_us: u64, lane: Lane) -> bool {
        now_us.saturating_sub(self.single_tried_us[lane as usize]) >= self.goal_us
    }

    /// Whether a job that has waited for so long comes too late, if others wait. `is_only`: none of its client does.
    pub(crate) fn is_late(&self, lane: Lane, is_only: bool, wait_us: u64) -> bool {
        let of_lane = match is_only {
            true => &self.single,
            false => &self.lanes,
        };
        of_lane[lane as usize].is_late(wait_us)
    }

    /// Of one lane.
    pub(crate) fn of(&mut self, lane: Lane) -> &mut QueueControl {
        &mut self.lanes[lane as usize]
    }

    /// What counts towards the goal besides what waits.
    fn alone(&self, lane: Lane, before_us: u64) -> Beside {
        let mut beside = Beside::of(lane);
        match lane {
            Lane::Handshakes => {
                beside.is_after(before_us.saturating_add(self.goal_us / HANDSHAKE_RESERVE_DIVISOR));
                beside.brings(self.follow_up.mean_us());
            }
            Lane::Files | Lane::Apps => beside.is_after(before_us),
        }
        beside
    }

    /// The same, and what the other lanes have to do.
    fn beside(&self, lane: Lane, ahead: Ahead) -> Beside {
        let mut beside = self.alone(lane, ahead.before_us);
        if self.is_single(lane, ahead) {
            // All workers may be busy with the long jobs of one client, which is no stall.
            beside.takes_up_to(self.lanes[lane as usize].mean_us());
        }
        for other in lane.others() {
            let jobs = ahead.beside[other as usize];
            let lane = &self.lanes[other as usize];
            beside.add(other, jobs, lane);
            if ahead.runs[other as usize] {
                beside.takes_up_to(lane.mean_us());
            }
        }
        beside
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    pub(super) const GOAL: Duration = Duration::from_secs(1);

    pub(super) fn ahead(jobs: usize, beside: usize) -> Ahead {
        Ahead {
            jobs,
            jobs_of_others: 1,
            beside: [0, beside, 0], // apps
            runs: [false; LANES],
            is_only: false,
            before_us: 0,
        }
    }

    pub(super) fn waited(here_us: u64) -> JobWait {
        JobWait {
            here_us,
            before_us: 0,
        }
    }

    /// Two workers that have done files of 1 ms and apps' requests of 100 ms.
    pub(super) fn after_some_jobs() -> LaneControl {
        let mut control = LaneControl::new(GOAL, 2);
        for index in 0..64 {
            control.of(Lane::Files).done(index * 5_000, 1_000);
            control.of(Lane::Apps).done(index * 5_000, 100_000);
        }
        let now_us = 500_000;
        for lane in Lane::ALL {
            assert_eq!(control.of(lane).take(now_us, 0, 0), Ok(()));
        }
        control
    }

    #[test]
    fn a_full_lane_refuses_nobody_in_the_other() {
        let mut control = after_some_jobs();
        let now_us = 500_000;
        // 17 of 50 ms each wait for 850 ms, as long as no file does.
        assert_eq!(control.offer(now_us, Lane::Apps, ahead(17, 0)), Ok(()));
        let refused = control.offer(now_us, Lane::Apps, ahead(18, 0));
        assert!(refused.is_err_and(|refusal| refusal.is_over_share));
        // Files have half of the time: 800 of 0.5 ms take 400 ms, and apps as long.
        assert_eq!(control.offer(now_us, Lane::Files, ahead(400, 18)), Ok(()));
        assert!(
            control
                .offer(now_us, Lane::Files, ahead(1_100, 18))
                .is_err()
        );
        assert_eq!(control.offer(now_us, Lane::Files, ahead(1_100, 0)), Ok(()));
    }

    /// Where the CPUs are taken, its response would come some milliseconds after the goal.
    #[test]
    fn a_job_that_would_take_all_of_the_goal_is_refused() {
        let mut control = after_some_jobs();
        let now_us = 500_000;
        // Of 0.5 ms each: 985 ms, and 992 ms.
        assert_eq!(control.offer(now_us, Lane::Files, ahead(1_970, 0)), Ok(()));
        let refused = control.offer(now_us, Lane::Files, ahead(1_984, 0));
        assert!(refused.is_err());
        let charge = Charge::of(Lane::Files);
        assert_eq!(control.take(now_us, &charge, waited(990_000), 10), Ok(()));
        assert!(control.take(now_us, &charge, waited(993_000), 10).is_err());
    }

    /// It was judged as if it had just come.
    #[test]
    fn a_request_has_waited_for_as_long_as_its_handshake_was_kept() {
        let mut control = after_some_jobs();
        let now_us = 500_000;
        let mut offer = |before_us| {
            let ahead = Ahead {
                before_us,
                ..ahead(800, 0) // 400 ms
            };
            control.offer(now_us, Lane::Files, ahead)
        };
        assert_eq!(offer(590_000), Ok(()));
        assert!(offer(610_000).is_err());
        let mut take = |before_us, depth| {
            let here_us = 500_000;
            let waited = JobWait { here_us, before_us };
            control.take(now_us, &Charge::of(Lane::Files), waited, depth)
        };
        assert_eq!(take(490_000, 5), Ok(()));
        assert!(take(510_000, 5).is_err());
        assert_eq!(take(510_000, 0), Ok(()), "nothing else waits");
    }

    /// Long jobs of one client, which is refused what is more for some time, are nothing to a client with one.
    #[test]
    fn a_job_that_comes_alone_is_judged_by_its_like() {
        let mut control = LaneControl::new(GOAL, 8);
        let charge = |is_only| {
            let mut charge = Charge::of(Lane::Files);
            charge.is_only = is_only;
            charge
        };
        (0..64).for_each(|index| control.done(index * 5_000, &charge(true), 0, 10_000));
        (0..64)
            .for_each(|index| control.done(400_000 + index * 30_000, &charge(false), 0, 500_000));
        let now_us = 2_400_000;
        assert_eq!(control.take(now_us, &charge(false), waited(0), 0), Ok(()));
        let many = |jobs| ahead(jobs, 0);
        for later_us in (0..300_000).step_by(10_000) {
            assert!(
                control
                    .offer(now_us + later_us, Lane::Files, many(100))
                    .is_err()
            );
        }
        // No worker has come back for 0.3 s: that is less than the long ones take.
        let alone = |jobs| Ahead {
            is_only: true,
            ..ahead(jobs, 0)
        };
        let now_us = now_us + 300_000;
        assert_eq!(control.offer(now_us, Lane::Files, alone(600)), Ok(()));
        assert!(control.offer(now_us, Lane::Files, alone(900)).is_err());
        assert!(control.offer(now_us, Lane::Files, many(10)).is_err());
        // Where nothing is known of those that come alone, all count.
        let mut new = LaneControl::new(GOAL, 8);
        (0..64).for_each(|index| new.done(index * 30_000, &charge(false), 0, 500_000));
        assert!(new.offer(1_900_000, Lane::Files, alone(600)).is_err());
    }

    /// Two workers that have done short jobs of clients that had one each.
    fn after_single_jobs() -> LaneControl {
        let mut control = LaneControl::new(GOAL, 2);
        let mut charge = Charge::of(Lane::Files);
        charge.is_only = true;
        (0..64).for_each(|index| control.done(index * 5_000, &charge, 0, 1_000));
        control
    }

    fn is_burst_taken(control: &mut LaneControl, now_us: u64, mut of: Range<usize>) -> bool {
        of.all(|jobs| {
            let alone = Ahead {
                is_only: true,
                ..ahead(jobs, 0)
            };
            control.offer(now_us, Lane::Files, alone).is_ok()
        })
    }

    #[test]
    fn a_burst_of_many_clients_at_an_idle_server_is_no_stall() {
        let mut control = after_single_jobs();
        for now_us in [700_000, 3_600_000_000] {
            assert_eq!(control.offer(now_us, Lane::Files, ahead(0, 0)), Ok(()));
            assert!(is_burst_taken(&mut control, now_us, 1..60), "{now_us}");
        }
    }

    #[test]
    fn a_burst_behind_a_job_that_is_not_offered_is_no_stall() {
        let mut control = after_single_jobs();
        for now_us in [700_000, 3_600_000_000] {
            control.comes_first(now_us, Lane::Files);
            assert_eq!(control.offer(now_us, Lane::Files, ahead(20, 0)), Ok(()));
            assert!(is_burst_taken(&mut control, now_us, 21..60), "{now_us}");
        }
    }

    /// If each were refused because its like were slow, none would show that they no longer are.
    #[test]
    fn one_that_comes_alone_is_tried_once_in_a_while() {
        let mut control = LaneControl::new(GOAL, 1);
        let mut charge = Charge::of(Lane::Files);
        charge.is_only = true;
        control.done(0, &charge, 0, 700_000);
        let alone = Ahead {
            is_only: true,
            ..ahead(2, 0)
        };
        let offers = (10_000..3_000_000).step_by(10_000);
        let taken = offers.filter(|now_us| control.offer(*now_us, Lane::Files, alone).is_ok());
        assert_eq!(taken.collect::<Vec<u64>>(), [1_000_000, 2_000_000]);
    }

    #[test]
    fn a_job_that_is_done_is_no_refusal() {
        let mut control = LaneControl::new(GOAL, 1);
        let charge = |is_only| {
            let mut charge = Charge::of(Lane::Files);
            charge.is_only = is_only;
            charge
        };
        (0..64).for_each(|index| control.done(index * 5_000, &charge(true), 0, 1_000));
        (0..64).for_each(|index| control.done(400_000 + index * 5_000, &charge(false), 0, 600_000));
        // In time for a short one, too late for a long one.
        for now_us in (1_000_000..2_000_000).step_by(50_000) {
            assert_eq!(
                control.take(now_us, &charge(true), waited(900_000), 10),
                Ok(())
            );
        }
        assert!(!control.of(Lane::Files).is_lasting());
        for now_us in (2_000_000..3_000_000).step_by(50_000) {
            assert!(
                control
                    .take(now_us, &charge(false), waited(900_000), 10)
                    .is_err()
            );
        }
        assert!(control.of(Lane::Files).is_lasting());
        // One that came alone, and has hardly waited, says that it is over if no other waits.
        assert_eq!(
            control.take(3_000_000, &charge(true), waited(1_000), 10),
            Ok(())
        );
        assert!(control.of(Lane::Files).is_lasting());
        assert_eq!(
            control.take(3_000_000, &charge(true), waited(1_000), 0),
            Ok(())
        );
        assert!(!control.of(Lane::Files).is_lasting());
    }

    /// A lane that is short because it refuses what is more does not run empty.
    #[test]
    fn what_waits_in_a_lane_under_lasting_overload_counts_as_long_as_the_own_lane() {
        let mut control = after_some_jobs();
        (0..64).for_each(|index| control.of(Lane::Handshakes).done(index * 5_000, 200));
        // 5,000 handshakes of 0.1 ms, and 3 apps' requests of 50 ms.
        let offered = control.offer(500_000, Lane::Handshakes, ahead(5_000, 3));
        assert_eq!(offered, Ok(()));
        for now_us in (500_000..800_000).step_by(10_000) {
            assert!(control.offer(now_us, Lane::Apps, ahead(1_000, 0)).is_err());
            assert_eq!(control.of(Lane::Handshakes).take(now_us, 0, 0), Ok(()));
        }
        // 5 ms, and 16 times as much. The request that comes then has to wait, too: so no longer than a tenth
        // of the goal.
        let mut offer = |jobs| control.offer(800_000, Lane::Handshakes, ahead(jobs, 3));
        assert_eq!(offer(50), Ok(()));
        assert!(offer(70).is_err());
    }

    #[test]
    fn workers_that_are_busy_with_the_other_lane_are_no_stall() {
        let control = after_some_jobs();
        let later_us = 590_000;
        assert!(control.is_in_time(later_us, Lane::Files, ahead(100, 18)));
        assert!(!control.is_in_time(later_us, Lane::Files, ahead(100, 0)));
    }
}
