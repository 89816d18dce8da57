//! Jobs in lanes (files, apps, handshakes), and in each lane a line for each client.
//!
//! The lane that has had less of the workers' time comes first, and in it the client that has. Whoever
//! comes to an idle lane begins where the others are: nobody saves time up. So a lane or a client with
//! few jobs does not wait for one with many, and with one client in one lane, jobs come out as they
//! went in. (Start-time fair queueing: Goyal, Vin and Cheng, 1996, with the virtual time of weighted fair
//! queueing: Demers, Keshav and Shenker, 1989. It advances by each client's equal share of what is done.)
//!
//! A new client does not wait for all that a long job has kept from others: it begins a few jobs behind the one
//! of them that has had least.
//!
//! What a job takes is known once it is done. Until then it counts as the mean, or as the time for which
//! it has run already: long jobs of one client do not take one worker after the other.
//!
//! It is pure: jobs are anything, times are arguments.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use super::ClientKey;

/// What workers do, by what may keep them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Blocking steps of handlers, ranges of files.
    #[default]
    Files,
    /// Polls of apps' tasks.
    Apps,
    /// What comes before a connection's first request.
    Handshakes,
}

/// How many lanes there are.
pub(crate) const LANES: usize = 3;

impl Lane {
    pub(crate) const ALL: [Self; LANES] = [Self::Files, Self::Apps, Self::Handshakes];

    /// What its time counts for, where it is compared with that of other lanes. So handshakes have a
    /// seventeenth of the workers' time while requests wait: for one worker, 300 full ones a second. Most
    /// of those who come then are refused in the end, and should not cost what the others came for.
    pub(crate) fn cost(self) -> u64 {
        match self {
            Self::Files | Self::Apps => 1,
            Self::Handshakes => 16,
        }
    }

    pub(crate) fn others(self) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |lane| *lane != self)
    }
}

/// The flow of jobs that one belongs to: those of a client in a lane. The default: that of all requests where there
/// is no fairness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlowKey {
    pub(crate) lane: Lane,
    pub(crate) client: ClientKey,
}

/// A job that was taken out counts as this long until it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Charge {
    pub(crate) flow: FlowKey,
    us: u64,
    /// When the job was taken out.
    taken_us: u64,
    /// `Lanes::equal_begins` then.
    equal_begins: u64,
    /// Its client began with it.
    is_first: bool,
    /// No other job of its client waited.
    pub(crate) is_only: bool,
}

impl Charge {
    /// For a job of a deque, which has no line for each client.
    pub(crate) fn of(lane: Lane) -> Self {
        let client = ClientKey::NOBODY;
        Self {
            flow: FlowKey { lane, client },
            us: 0,
            taken_us: 0,
            equal_begins: 0,
            is_first: false,
            is_only: false,
        }
    }
}

/// What a job finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ahead {
    /// Jobs of its lane that come before it, about.
    pub(crate) jobs: usize,
    /// Those that would come before the first job of another client.
    pub(crate) jobs_of_others: usize,
    /// Jobs of each of the other lanes that wait.
    pub(crate) beside: [usize; LANES],
    /// Whether jobs of each of them run, as far as is known.
    pub(crate) runs: [bool; LANES],
    /// Other clients have jobs there, and its own has none.
    pub(crate) is_only: bool,
    /// How long its connection was kept before it came, by its handshake and until the request was read, in
    /// microseconds. Not known here.
    pub(crate) before_us: u64,
}

/// One job in so many counts for the mean.
const MEAN_WEIGHT: u64 = 8;

/// One job in so many counts for the usual time, which one long job hardly changes.
const USUAL_WEIGHT: u64 = 256;

/// A client that begins does so at most this many usual jobs behind the one that has had least, of all jobs or
/// of those that clients begin with, whichever take longer. With fewer, or by all jobs alone, a client with many
/// short ones would have less than its share while new clients come all the time.
const JOBS_BEHIND: u64 = 4;

/// Lines of clients that have left, kept for others.
const SPARE_MAX: usize = 64;

/// Jobs that wait, and their order.
#[derive(Debug)]
pub(crate) struct Lanes<J> {
    lanes: [LaneOfJobs<J>; LANES],
    /// How far the lane was that came last.
    time_us: u64,
    /// How often the lanes have begun equal.
    equal_begins: u64,
    /// They have since jobs wait.
    began_equal: bool,
}

/// One lane.
#[derive(Debug)]
struct LaneOfJobs<J> {
    /// Workers' time that it has had, times what it counts for.
    used_us: u64,
    jobs: usize,
    /// Jobs that run.
    running: usize,
    clients: HashMap<ClientKey, Line<J>>,
    /// Clients with jobs that wait.
    waiting: usize,
    /// Clients with jobs that wait or run.
    busy: usize,
    /// Clients by what they had used when they were put there, then by turn. A client is in it once, or not
    /// at all while it has only jobs that run.
    order: BinaryHeap<Reverse<(u64, u64, ClientKey)>>,
    turn: u64,
    /// Virtual time: what a client has used that always had jobs, as its equal share.
    time_us: u64,
    mean_us: u64,
    usual_us: u64,
    /// The same of jobs that clients begin with.
    usual_first_us: u64,
    spare: Vec<VecDeque<J>>,
}

/// One client's jobs.
#[derive(Debug)]
struct Line<J> {
    jobs: VecDeque<J>,
    /// None was taken out since its client began.
    begins: bool,
    /// Done, and charged for jobs that run.
    used_us: u64,
    /// Jobs that run, when they were taken out, and what they are charged for, both in all.
    running: u32,
    taken_us: u64,
    charged_us: u64,
    is_in_order: bool,
}

impl<J> Line<J> {
    fn is_busy(&self) -> bool {
        self.running > 0 || !self.jobs.is_empty()
    }

    /// What it has used by now, with jobs that have run for longer than they are charged for.
    fn used_by(&self, now_us: u64) -> u64 {
        let ran_us = u64::from(self.running).saturating_mul(now_us);
        let ran_us = ran_us.saturating_sub(self.taken_us);
        self.used_us + ran_us.saturating_sub(self.charged_us)
    }

    /// Its next job, and whether its client begins with it.
    fn take(&mut self, now_us: u64, charged_us: u64) -> Option<(J, bool)> {
        let job = self.jobs.pop_front()?;
        let is_first = std::mem::take(&mut self.begins);
        self.running += 1;
        self.taken_us += now_us;
        self.charged_us += charged_us;
        self.used_us += charged_us;
        Some((job, is_first))
    }

    fn done(&mut self, charge: Charge, took_us: u64) {
        self.running = self.running.saturating_sub(1);
        self.taken_us = self.taken_us.saturating_sub(charge.taken_us);
        self.charged_us = self.charged_us.saturating_sub(charge.us);
        self.used_us = (self.used_us + took_us).saturating_sub(charge.us);
    }
}

impl<J> Default for LaneOfJobs<J> {
    fn default() -> Self {
        Self {
            used_us: 0,
            jobs: 0,
            running: 0,
            clients: HashMap::new(),
            waiting: 0,
            busy: 0,
            order: BinaryHeap::new(),
            turn: 0,
            time_us: 0,
            mean_us: 0,
            usual_us: 0,
            usual_first_us: 0,
            spare: Vec::new(),
        }
    }
}

impl<J> Default for Lanes<J> {
    fn default() -> Self {
        Self {
            lanes: Default::default(),
            time_us: 0,
            equal_begins: 0,
            began_equal: false,
        }
    }
}

impl<J> Lanes<J> {
    pub(crate) fn push(&mut self, flow: FlowKey, job: J) {
        self.began_equal &= self.len() > 0;
        if self.is_idle() {
            self.begin_equal();
        }
        let time_us = self.time_us;
        let lane = &mut self.lanes[flow.lane as usize];
        if lane.jobs == 0 {
            lane.used_us = lane.used_us.max(time_us);
        }
        lane.push(flow.client, job);
    }

    /// Nothing was short until now: what a lane's jobs have taken is not held against it.
    pub(crate) fn begin_equal(&mut self) {
        self.began_equal = true;
        self.equal_begins += 1;
        let used_us = self.lanes.iter().map(|lane| lane.used_us);
        self.time_us = used_us.fold(self.time_us, u64::max);
        for lane in &mut self.lanes {
            lane.used_us = self.time_us;
        }
    }

    /// The same for a worker that was free until the jobs came that wait. Only the first of several such workers
    /// changes anything: otherwise what the others have taken since would not count, and all took of one lane.
    pub(crate) fn begin_equal_once(&mut self) {
        if self.len() == 0 || !self.began_equal {
            self.begin_equal();
        }
    }

    /// The next job, and what it is charged for. `now_us`: 0 if jobs that run are not to be charged for
    /// more than the mean, since they do not keep their worker all the time.
    pub(crate) fn pop(&mut self, now_us: u64) -> Option<(J, Charge)> {
        let with_jobs = Lane::ALL
            .into_iter()
            .filter(|lane| self.lanes[*lane as usize].jobs > 0);
        let lane = with_jobs.min_by_key(|lane| self.lanes[*lane as usize].used_us)?;
        let of_lane = &mut self.lanes[lane as usize];
        self.time_us = of_lane.used_us;
        let us = of_lane.mean_us;
        let (client, job, is_first) = of_lane.pop(now_us)?;
        let line = of_lane.clients.get(&client);
        let is_only = line.is_some_and(|line| line.jobs.is_empty());
        of_lane.used_us += us * lane.cost();
        let charge = Charge {
            flow: FlowKey { lane, client },
            us,
            taken_us: now_us,
            equal_begins: self.equal_begins,
            is_first,
            is_only,
        };
        Some((job, charge))
    }

    /// A job that was taken out has kept a worker for so long.
    pub(crate) fn done(&mut self, charge: Charge, took_us: u64) {
        self.give_back(charge, took_us);
        let lane = &mut self.lanes[charge.flow.lane as usize];
        let mean = |of_us: u64, weight: u64| (of_us * (weight - 1) + took_us).div_ceil(weight);
        lane.mean_us = mean(lane.mean_us, MEAN_WEIGHT);
        lane.usual_us = mean(lane.usual_us, USUAL_WEIGHT);
        if charge.is_first {
            lane.usual_first_us = mean(lane.usual_first_us, USUAL_WEIGHT);
        }
    }

    /// A job that was taken out was refused, or nobody needs it: that says nothing of how long others take.
    pub(crate) fn not_done(&mut self, charge: Charge) {
        self.give_back(charge, 0);
    }

    fn give_back(&mut self, charge: Charge, took_us: u64) {
        let cost = charge.flow.lane.cost();
        // The others have made up since for what it was charged for: of that it saves nothing up.
        let charged_us = match charge.equal_begins == self.equal_begins {
            true => charge.us,
            false => charge.us.min(took_us),
        };
        let lane = &mut self.lanes[charge.flow.lane as usize];
        lane.used_us = (lane.used_us + took_us * cost).saturating_sub(charged_us * cost);
        lane.done(charge, took_us);
    }

    /// Jobs that wait.
    pub(crate) fn len(&self) -> usize {
        self.lanes.iter().map(|lane| lane.jobs).sum()
    }

    /// Those of one lane.
    pub(crate) fn len_of(&self, lane: Lane) -> usize {
        self.lanes[lane as usize].jobs
    }

    /// Whether nothing waits or runs in any lane.
    fn is_idle(&self) -> bool {
        let mut lanes = self.lanes.iter();
        lanes.all(|lane| lane.jobs == 0 && lane.running == 0)
    }

    /// What a job would find here.
    pub(crate) fn ahead(&self, flow: FlowKey) -> Ahead {
        let lane = &self.lanes[flow.lane as usize];
        let (mut beside, mut runs) = ([0; LANES], [false; LANES]);
        for other in flow.lane.others() {
            beside[other as usize] = self.lanes[other as usize].jobs;
            runs[other as usize] = self.lanes[other as usize].running > 0;
        }
        let own = lane.clients.get(&flow.client);
        let own = own.map_or(0, |line| line.jobs.len());
        let clients = lane.waiting + usize::from(own == 0);
        // As many of each other client come before it as it has itself.
        let jobs = (own + 1).saturating_mul(clients) - 1;
        Ahead {
            jobs: jobs.min(lane.jobs),
            jobs_of_others: lane.waiting.min(lane.jobs),
            beside,
            runs,
            is_only: own == 0 && lane.waiting > 0,
            before_us: 0,
        }
    }

    /// Takes the newest job that may go out of the client with most jobs that wait; if none of its jobs may, out of
    /// the one with the next most. In the lane of `flow` such a client has at least two more than that of `flow`.
    /// Otherwise a lane with at least two more jobs makes room, there also if all of its clients have few.
    pub(crate) fn take_of_heaviest(
        &mut self,
        flow: FlowKey,
        may_go: impl Fn(&J) -> bool,
    ) -> Option<J> {
        let own_lane = &mut self.lanes[flow.lane as usize];
        let lane_min = own_lane.jobs + 2;
        let own = own_lane.clients.get(&flow.client);
        let jobs_min = own.map_or(0, |line| line.jobs.len()) + 2;
        if let Some(job) = own_lane.take_newest(jobs_min, &may_go) {
            return Some(job);
        }
        let fullest = (flow.lane.others()).max_by_key(|lane| self.lanes[*lane as usize].jobs)?;
        let other = flow.lane.others().find(|lane| *lane != fullest);
        for lane in [fullest].into_iter().chain(other) {
            let lane = &mut self.lanes[lane as usize];
            if lane.jobs < lane_min {
                return None;
            }
            let job = lane.take_newest(jobs_min.min(lane.most_jobs()), &may_go);
            if job.is_some() {
                return job;
            }
        }
        None
    }

    /// Takes jobs of a lane out that nobody needs any more. `is_needless` gets each with whether no other job of
    /// its client waits.
    pub(crate) fn remove_if(
        &mut self,
        lane: Lane,
        is_needless: impl Fn(&J, bool) -> bool,
    ) -> Vec<J> {
        let lane = &mut self.lanes[lane as usize];
        let mut removed = Vec::new();
        for line in lane.clients.values_mut() {
            let is_only = line.jobs.len() == 1;
            if !line.jobs.iter().any(|job| is_needless(job, is_only)) {
                continue;
            }
            for _ in 0..line.jobs.len() {
                match line.jobs.pop_front() {
                    Some(job) if is_needless(&job, is_only) => removed.push(job),
                    job => line.jobs.extend(job),
                }
            }
            lane.waiting -= usize::from(line.jobs.is_empty());
            lane.busy -= usize::from(!line.is_busy());
        }
        lane.jobs -= removed.len();
        lane.forget_if_idle();
        removed
    }
}

impl<J> LaneOfJobs<J> {
    fn push(&mut self, client: ClientKey, job: J) {
        self.jobs += 1;
        let before = self.clients.get(&client);
        let (mut used_us, was_busy) =
            before.map_or((0, false), |line| (line.used_us, line.is_busy()));
        if !was_busy {
            used_us = used_us.max(self.start_us());
            self.busy += 1;
        }
        let line = match self.clients.entry(client) {
            Entry::Occupied(line) => line.into_mut(),
            Entry::Vacant(vacant) => vacant.insert(Line {
                jobs: self.spare.pop().unwrap_or_default(),
                begins: false,
                used_us,
                running: 0,
                taken_us: 0,
                charged_us: 0,
                is_in_order: false,
            }),
        };
        line.used_us = used_us;
        line.begins |= !was_busy;
        if !line.is_in_order {
            line.is_in_order = true;
            self.order.push(Reverse((line.used_us, self.turn, client)));
            self.turn += 1;
        }
        self.waiting += usize::from(line.jobs.is_empty());
        line.jobs.push_back(job);
    }

    /// What a client has used that begins now: as much as one that always had jobs, but little more than those
    /// that wait. No less, so that what is reached goes up although new ones come all the time.
    fn start_us(&mut self) -> u64 {
        while self.waiting > 0
            && let Some(&Reverse((at_us, turn, client))) = self.order.peek()
        {
            let line = self.clients.get(&client);
            let (used_us, waits) =
                line.map_or((at_us, false), |line| (line.used_us, !line.jobs.is_empty()));
            if used_us <= at_us && waits {
                let usual_us = self.usual_us.max(self.usual_first_us);
                return self.time_us.min(at_us + JOBS_BEHIND * usual_us);
            }
            self.order.pop();
            match used_us > at_us {
                true => self.order.push(Reverse((used_us, turn, client))),
                false => self.leave_order(client),
            }
        }
        self.time_us
    }

    /// A client without jobs that wait is the first in the order: those that wait have had as much by now.
    fn leave_order(&mut self, client: ClientKey) {
        if let Some(line) = self.clients.get_mut(&client) {
            line.is_in_order = false;
            if !line.is_busy() {
                self.forget(client);
            }
        }
    }

    /// The next job, whose it is, and whether its client begins with it.
    fn pop(&mut self, now_us: u64) -> Option<(ClientKey, J, bool)> {
        loop {
            let Reverse((at_us, _, client)) = self.order.pop()?;
            let Some(line) = self.clients.get_mut(&client) else {
                continue;
            };
            self.turn += 1;
            let used_us = line.used_by(now_us);
            if used_us > at_us {
                self.order.push(Reverse((used_us, self.turn, client)));
                continue; // its jobs take longer than they were charged for
            }
            let Some((job, is_first)) = line.take(now_us, self.mean_us) else {
                self.leave_order(client);
                continue;
            };
            self.time_us = self.time_us.max(used_us);
            let then_us = line.used_us;
            self.order.push(Reverse((then_us, self.turn, client)));
            self.waiting -= usize::from(line.jobs.is_empty());
            self.jobs -= 1;
            self.running += 1;
            return Some((client, job, is_first));
        }
    }

    fn done(&mut self, charge: Charge, took_us: u64) {
        self.running = self.running.saturating_sub(1);
        self.time_us += took_us / self.busy.max(1) as u64;
        let client = charge.flow.client;
        let Some(line) = self.clients.get_mut(&client) else {
            return;
        };
        line.done(charge, took_us);
        if !line.is_in_order {
            line.is_in_order = true; // to be forgotten when the others have had as much
            self.order.push(Reverse((line.used_us, self.turn, client)));
            self.turn += 1;
        }
        self.busy -= usize::from(!line.is_busy());
        self.forget_if_idle();
    }

    /// Jobs that wait of the client with most.
    fn most_jobs(&self) -> usize {
        let jobs = self.clients.values().map(|line| line.jobs.len());
        jobs.max().unwrap_or(0)
    }

    /// Of clients with at least so many jobs that wait.
    fn take_newest(&mut self, jobs_min: usize, may_go: &impl Fn(&J) -> bool) -> Option<J> {
        let clients = self.clients.iter().filter_map(|(client, line)| {
            let jobs = line.jobs.len();
            let newest = (jobs >= jobs_min).then(|| line.jobs.iter().rposition(may_go))??;
            Some((jobs, *client, newest))
        });
        let (_, client, newest) = clients.max_by_key(|(jobs, ..)| *jobs)?;
        let line = self.clients.get_mut(&client)?;
        let job = line.jobs.remove(newest);
        self.jobs -= 1;
        self.waiting -= usize::from(line.jobs.is_empty());
        self.busy -= usize::from(!line.is_busy());
        self.forget_if_idle();
        job
    }

    fn forget(&mut self, client: ClientKey) {
        if let Some(line) = self.clients.remove(&client)
            && self.spare.len() < SPARE_MAX
        {
            self.spare.push(line.jobs);
        }
    }

    /// Where nothing waits or runs, nothing is short.
    fn forget_if_idle(&mut self) {
        if self.busy > 0 {
            return;
        }
        let spare = self.clients.drain().map(|(_, line)| line.jobs);
        let room = SPARE_MAX - self.spare.len();
        self.spare.extend(spare.take(room));
        self.order.clear();
        self.usual_first_us = 0; // of clients of before
    }
}

#[cfg(test)]
#[path = "lanes/tests.rs"] // found from `interleavings`, too
mod tests;
