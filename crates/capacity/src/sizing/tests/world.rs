//! A made-up server as a discrete-event simulation: clients, an event loop, a queue, a pool of threads,
//! CPUs that all of them share, and a station behind (a database).

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::sizing::{Measured, Waits};

/// One part of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Phase {
    /// Computes for so long, on a CPU of its own.
    Compute(f64),
    /// Waits for so long.
    Sleep(f64),
    /// Is served for so long by the station behind, after those that came before.
    Station(f64),
    Nothing,
}

/// How much a phase differs from job to job.
#[derive(Clone, Copy, Debug)]
pub(super) enum Spread {
    /// By up to a hundredth: exact times make patterns.
    Constant,
    /// By up to a third.
    Some,
    Exponential,
}

/// One kind of job.
#[derive(Clone, Debug)]
pub(super) struct Kind {
    pub(super) weight: f64,
    pub(super) phases: [Phase; 3],
    pub(super) spread: Spread,
}

/// Who sends jobs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arrivals {
    /// Each of so many clients sends its next job some time after its last was done.
    Closed { clients: usize, think_us: f64 },
    /// A Poisson process.
    Open { jobs_per_s: f64 },
}

/// What is asked of the server.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) name: String,
    pub(super) kinds: Vec<Kind>,
    pub(super) arrivals: Arrivals,
}

/// What the server is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    pub(super) cpus: usize,
    /// CPUs that other programs take of them.
    pub(super) stolen: f64,
    /// CPU time that a job takes beside its own.
    pub(super) overhead_us: f64,
    /// Work that each thread that waits for a CPU costs, as a share.
    pub(super) thrash: f64,
    /// What an event loop needs for a request, and for a response; 0: there is none.
    pub(super) loop_us: f64,
    /// What waking a thread costs that waits: a worker for a job, the loop for either.
    pub(super) wake_us: f64,
    pub(super) station_servers: usize,
    /// How much slower the station gets by each job that waits there, as a share.
    pub(super) station_slows: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct At(f64);

impl Eq for At {}

impl Ord for At {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for At {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrives { epoch: u32 },
    Sends { client: usize, epoch: u32 },
    Wakes(usize),
    Served(usize),
    HiccupBegins,
    HiccupEnds,
}

/// In place of a job: the event loop is on a CPU, or waits for one.
const LOOP: usize = usize::MAX;

/// What an event loop has to do.
#[derive(Clone, Copy, Debug)]
enum Message {
    Request { client: Option<usize>, sent_us: f64 },
    Response(Job),
}

#[derive(Clone, Copy, Debug)]
struct Job {
    sent_us: f64,
    queued_us: f64,
    client: Option<usize>,
    phases: [Phase; 3],
    at: usize,
    epoch: u32,
}

pub(super) struct World {
    machine: Machine,
    load: Load,
    /// Of the load: jobs of an earlier one are not replaced.
    epoch: u32,
    rng: Pcg64Mcg,
    now_us: f64,
    events: BinaryHeap<Reverse<(At, Event)>>,
    jobs: Vec<Job>,
    free: Vec<usize>,
    /// Of the loop.
    mail: VecDeque<Message>,
    queue: VecDeque<usize>,
    size: usize,
    busy: usize,
    /// Jobs on a CPU or waiting for one, by the work that each of them has had when it is done.
    runnable: BinaryHeap<Reverse<(At, usize)>>,
    /// Work that a thread which has been runnable all the time has had.
    attained_us: f64,
    hiccup: bool,
    station: VecDeque<usize>,
    station_busy: usize,
    measured: Tally,
    responses_us: Vec<f64>,
}

/// What adds up between two readings.
#[derive(Default)]
struct Tally {
    since_us: f64,
    jobs: u64,
    waits: Waits,
    busy_us: f64,
    cpu_us: f64,
    others_cpu_us: f64,
    ready_us: f64,
    busy_max: usize,
    present_max: usize,
}

impl World {
    pub(super) fn new(machine: Machine, load: Load, size: usize, seed: u64) -> Self {
        let mut world = Self {
            machine,
            load: load.clone(),
            epoch: 0,
            rng: Pcg64Mcg::seed_from_u64(seed),
            now_us: 0.0,
            events: BinaryHeap::new(),
            jobs: Vec::new(),
            free: Vec::new(),
            mail: VecDeque::new(),
            queue: VecDeque::new(),
            size,
            busy: 0,
            runnable: BinaryHeap::new(),
            attained_us: 0.0,
            hiccup: false,
            station: VecDeque::new(),
            station_busy: 0,
            measured: Tally::default(),
            responses_us: Vec::new(),
        };
        world.begin(load);
        world.at(1e6, Event::HiccupBegins);
        world
    }

    /// From now on something else is asked; what is under way is finished.
    pub(super) fn begin(&mut self, load: Load) {
        self.epoch += 1;
        self.load = load;
        let epoch = self.epoch;
        match self.load.arrivals {
            Arrivals::Closed { clients, think_us } => {
                for client in 0..clients {
                    let within_us = self.rng.random_range(0.0..think_us.max(1000.0));
                    self.at(within_us, Event::Sends { client, epoch });
                }
            }
            Arrivals::Open { .. } => self.at(0.0, Event::Arrives { epoch }),
        }
    }

    pub(super) fn set_size(&mut self, size: usize) {
        self.size = size;
        self.take(true);
    }

    /// Runs on; what happens later than that has not happened yet.
    pub(super) fn run_until(&mut self, until_us: f64) {
        self.run_while(until_us, usize::MAX);
    }

    /// Runs on, at most until so many jobs were done since the responses were last taken.
    pub(super) fn run_while(&mut self, until_us: f64, jobs: usize) {
        while self.responses_us.len() < jobs {
            let computed_us = self
                .runnable
                .peek()
                .map_or(f64::INFINITY, |Reverse((at, _))| {
                    self.now_us + (at.0 - self.attained_us).max(0.0) / self.rate()
                });
            let event_us = self
                .events
                .peek()
                .map_or(f64::INFINITY, |event| event.0.0.0);
            let next_us = computed_us.min(event_us);
            if next_us > until_us {
                self.pass(until_us);
                return;
            }
            self.pass(next_us);
            if computed_us <= event_us {
                let Some(Reverse((_, job))) = self.runnable.pop() else {
                    unreachable!("it has just been seen");
                };
                match job {
                    LOOP => self.run_loop(),
                    job => self.next_phase(job),
                }
            } else if let Some(Reverse((_, event))) = self.events.pop() {
                self.process(event);
            }
        }
    }

    /// What was measured since the last reading.
    pub(super) fn measure(&mut self) -> Measured {
        let tally = Tally {
            since_us: self.now_us,
            busy_max: self.busy,
            present_max: self.busy + self.queue.len(),
            ..Tally::default()
        };
        let tally = std::mem::replace(&mut self.measured, tally);
        Measured {
            interval_us: (self.now_us - tally.since_us) as u64,
            size: self.size,
            cpus: self.machine.cpus as f64,
            shared_cpus: self.machine.cpus as f64,
            jobs: tally.jobs,
            answers: tally.jobs,
            waits: tally.waits,
            busy_us: tally.busy_us as u64,
            cpu_us: tally.cpu_us as u64,
            others_cpu_us: tally.others_cpu_us as u64,
            ready_us: tally.ready_us as u64,
            loops: 0,
            loops_cpu_us: 0,
            loops_ready_us: 0,
            connections: 0,
            busy_max: tally.busy_max,
            present_max: tally.present_max,
            queue_depth: self.queue.len(),
        }
    }

    /// The times from sending to answer of what was done since this was last asked.
    pub(super) fn take_responses_us(&mut self) -> Vec<f64> {
        std::mem::take(&mut self.responses_us)
    }

    pub(super) fn now_us(&self) -> f64 {
        self.now_us
    }

    /// Work that each runnable thread gets in a microsecond.
    fn rate(&self) -> f64 {
        let Machine { cpus, thrash, .. } = self.machine;
        let waiting = self.runnable.len().saturating_sub(cpus);
        let switching = if waiting > 0 { 0.005 } else { 0.0 };
        self.share() / (1.0 + switching + thrash * waiting.min(200) as f64)
    }

    /// CPU time that each runnable thread gets in a microsecond.
    fn share(&self) -> f64 {
        let Machine { cpus, stolen, .. } = self.machine;
        let left = (cpus as f64 - stolen) * if self.hiccup { 0.5 } else { 1.0 };
        (left / self.runnable.len().max(1) as f64).min(1.0)
    }

    /// Time passes in which nothing happens.
    fn pass(&mut self, until_us: f64) {
        let passed_us = until_us - self.now_us;
        let loops = if self.mail.is_empty() { 0.0 } else { 1.0 };
        let runnable = self.runnable.len() as f64 - loops;
        let share = self.share();
        self.measured.others_cpu_us += passed_us * loops * share;
        self.attained_us += passed_us * self.rate();
        self.measured.busy_us += passed_us * self.busy as f64;
        self.measured.cpu_us += passed_us * runnable * share;
        self.measured.ready_us += passed_us * runnable * (1.0 - share);
        self.now_us = until_us;
    }

    fn process(&mut self, event: Event) {
        match event {
            Event::Arrives { epoch } if epoch == self.epoch => {
                if let Arrivals::Open { jobs_per_s } = self.load.arrivals {
                    let gap_us = self.exponential() * 1e6 / jobs_per_s;
                    self.at(gap_us, event);
                    self.send(None);
                }
            }
            Event::Sends { client, epoch } if epoch == self.epoch => self.send(Some(client)),
            Event::Arrives { .. } | Event::Sends { .. } => {}
            Event::Wakes(job) => self.next_phase(job),
            Event::Served(job) => {
                self.station_busy -= 1;
                if let Some(next) = self.station.pop_front() {
                    self.serve(next);
                }
                self.next_phase(job);
            }
            Event::HiccupBegins => {
                self.hiccup = true;
                self.at(3000.0, Event::HiccupEnds);
            }
            Event::HiccupEnds => {
                self.hiccup = false;
                let calm_us = self.exponential() * 1e6;
                self.at(calm_us, Event::HiccupBegins);
            }
        }
    }

    fn send(&mut self, client: Option<usize>) {
        let sent_us = self.now_us;
        self.mail(Message::Request { client, sent_us });
    }

    /// For the loop, which may have to be woken for it.
    fn mail(&mut self, message: Message) {
        let Machine {
            loop_us, wake_us, ..
        } = self.machine;
        if loop_us == 0.0 {
            return self.handle(message);
        }
        self.mail.push_back(message);
        if self.mail.len() == 1 {
            self.compute(LOOP, wake_us + loop_us);
        }
    }

    /// The loop has done the first of what it has to do.
    fn run_loop(&mut self) {
        if let Some(message) = self.mail.pop_front() {
            self.handle(message);
        }
        if !self.mail.is_empty() {
            self.compute(LOOP, self.machine.loop_us);
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Request { client, sent_us } => self.arrive(client, sent_us),
            Message::Response(job) => self.respond(job),
        }
    }

    fn arrive(&mut self, client: Option<usize>, sent_us: f64) {
        let phases = self.draw();
        let job = Job {
            sent_us,
            queued_us: self.now_us,
            client,
            phases,
            at: 0,
            epoch: self.epoch,
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.jobs[index] = job;
                index
            }
            None => {
                self.jobs.push(job);
                self.jobs.len() - 1
            }
        };
        self.queue.push_back(index);
        let present = self.busy + self.queue.len();
        self.measured.present_max = self.measured.present_max.max(present);
        self.take(true);
    }

    /// Threads without a job take those that wait; `woken`: they have to be woken for it.
    fn take(&mut self, woken: bool) {
        while self.busy < self.size
            && let Some(job) = self.queue.pop_front()
        {
            self.busy += 1;
            self.measured.busy_max = self.measured.busy_max.max(self.busy);
            let wait_us = self.now_us - self.jobs[job].queued_us;
            self.measured.waits.record(wait_us as u64);
            let wake_us = if woken { self.machine.wake_us } else { 0.0 };
            let overhead_us = self.machine.overhead_us + wake_us;
            self.compute(job, overhead_us);
        }
    }

    fn compute(&mut self, job: usize, work_us: f64) {
        let done = At(self.attained_us + work_us);
        self.runnable.push(Reverse((done, job)));
    }

    fn next_phase(&mut self, index: usize) {
        let job = &mut self.jobs[index];
        let phase = job.phases.get(job.at).copied().unwrap_or(Phase::Nothing);
        job.at += 1;
        match phase {
            Phase::Compute(work_us) => self.compute(index, work_us),
            Phase::Sleep(time_us) => self.at(time_us, Event::Wakes(index)),
            Phase::Station(_) if self.station_busy < self.machine.station_servers => {
                self.serve(index);
            }
            Phase::Station(_) => self.station.push_back(index),
            Phase::Nothing => self.finish(index),
        }
    }

    fn serve(&mut self, index: usize) {
        self.station_busy += 1;
        let job = &self.jobs[index];
        let Phase::Station(time_us) = job.phases[job.at - 1] else {
            unreachable!("only such jobs come here");
        };
        let slower = 1.0 + self.machine.station_slows * self.station.len() as f64;
        self.at(time_us * slower, Event::Served(index));
    }

    fn finish(&mut self, index: usize) {
        let job = self.jobs[index];
        self.free.push(index);
        self.busy -= 1;
        self.measured.jobs += 1;
        self.mail(Message::Response(job));
        self.take(false);
    }

    fn respond(&mut self, job: Job) {
        self.responses_us.push(self.now_us - job.sent_us);
        if let (Some(client), Arrivals::Closed { think_us, .. }) = (job.client, self.load.arrivals)
            && job.epoch == self.epoch
        {
            let epoch = self.epoch;
            let think_us = think_us * self.exponential();
            self.at(think_us, Event::Sends { client, epoch });
        }
    }

    fn draw(&mut self) -> [Phase; 3] {
        let total: f64 = self.load.kinds.iter().map(|kind| kind.weight).sum();
        let mut left = self.rng.random_range(0.0..total);
        let mut chosen = 0;
        for (index, kind) in self.load.kinds.iter().enumerate() {
            chosen = index;
            left -= kind.weight;
            if left < 0.0 {
                break;
            }
        }
        let Kind { phases, spread, .. } = self.load.kinds[chosen];
        phases.map(|phase| match phase {
            Phase::Compute(us) => Phase::Compute(us * self.factor(spread)),
            Phase::Sleep(us) => Phase::Sleep(us * self.factor(spread)),
            Phase::Station(us) => Phase::Station(us * self.factor(spread)),
            Phase::Nothing => Phase::Nothing,
        })
    }

    fn factor(&mut self, spread: Spread) -> f64 {
        match spread {
            Spread::Constant => self.rng.random_range(0.99..1.01),
            Spread::Some => self.rng.random_range(0.67..1.33),
            Spread::Exponential => self.exponential(),
        }
    }

    fn exponential(&mut self) -> f64 {
        -self.rng.random_range(1e-12..1.0_f64).ln()
    }

    fn at(&mut self, after_us: f64, event: Event) {
        self.events
            .push(Reverse((At(self.now_us + after_us), event)));
    }
}
