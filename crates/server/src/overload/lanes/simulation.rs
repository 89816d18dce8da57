//! New connections with a handshake and a request each, before two workers.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use super::{JobWait, LaneControl};
use crate::fairness::ClientKey;
use crate::fairness::lanes::{Ahead, Charge, FlowKey, Lane, Lanes};

const GOAL_US: u64 = 1_000_000;
const PATIENCE_US: u64 = 2_000_000;
const WORKERS: usize = 2;
const REQUEST_US: u64 = 10_000;
/// Until a client has computed its part of the handshake, and its request has come.
const CLIENT_US: u64 = 2_000;
/// Who is refused after so long has waited in vain.
const LONG_US: u64 = GOAL_US / 10;
/// What is before it is the beginning of the overload.
const COUNTED_FROM_US: u64 = 2_000_000;

#[derive(Clone, Copy, Debug)]
struct Job {
    lane: Lane,
    came_us: u64,
    queued_us: u64,
    before_us: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A connection: when it was accepted, and for how long its handshake was kept, if that is done.
    Comes {
        came_us: u64,
        before_us: u64,
    },
    Done(usize),
}

#[derive(Debug, Default)]
struct Seen {
    came: u64,
    refused: u64,
    /// Of those, after a wait.
    refused_late: u64,
    good: u64,
    in_goal: u64,
    last_us: u64,
}

struct Simulation {
    handshake_us: u64,
    control: LaneControl,
    waiting: Lanes<Job>,
    busy: HashMap<usize, (Job, Charge, u64)>,
    begun: usize,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    order: u64,
    counted_from_us: u64,
    seen: Seen,
}

impl Simulation {
    fn new(handshake_us: u64, counted_from_us: u64) -> Self {
        Self {
            handshake_us,
            control: LaneControl::new(Duration::from_micros(GOAL_US), WORKERS),
            waiting: Lanes::default(),
            busy: HashMap::new(),
            begun: 0,
            events: BinaryHeap::new(),
            order: 0,
            counted_from_us,
            seen: Seen::default(),
        }
    }

    fn at(&mut self, time_us: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((time_us, self.order, event)));
    }

    /// Poisson arrivals, so many a second.
    fn offer(&mut self, from_us: u64, to_us: u64, rate: f64, seed: u64) {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut time_us = from_us as f64;
        loop {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let part = (random >> 11) as f64 / (1_u64 << 53) as f64;
            time_us -= 1e6 / rate * (1.0 - part).ln();
            if time_us >= to_us as f64 {
                return;
            }
            let came_us = time_us as u64;
            let before_us = 0;
            self.at(came_us, Event::Comes { came_us, before_us });
        }
    }

    fn run(mut self) -> Seen {
        while let Some(Reverse((now_us, _, event))) = self.events.pop() {
            match event {
                Event::Comes { came_us, before_us } => self.come(now_us, came_us, before_us),
                Event::Done(worker) => self.done(now_us, worker),
            }
            self.start(now_us);
        }
        self.seen
    }

    fn come(&mut self, now_us: u64, came_us: u64, before_us: u64) {
        let is_counted = came_us >= self.counted_from_us;
        self.seen.came += u64::from(is_counted && before_us == 0);
        if now_us > came_us + PATIENCE_US {
            return;
        }
        let lane = match before_us {
            0 => Lane::Handshakes,
            _ => Lane::Files,
        };
        let job = Job {
            lane,
            came_us,
            queued_us: now_us,
            before_us,
        };
        let ahead = Ahead {
            before_us,
            ..self.waiting.ahead(flow(lane))
        };
        match self.control.offer(now_us, lane, ahead) {
            Ok(()) => self.waiting.push(flow(lane), job),
            Err(_) => self.refuse(now_us, job),
        }
    }

    fn refuse(&mut self, now_us: u64, job: Job) {
        if job.came_us >= self.counted_from_us {
            self.seen.refused += 1;
            self.seen.refused_late += u64::from(now_us - job.came_us >= LONG_US);
        }
    }

    fn start(&mut self, now_us: u64) {
        while self.busy.len() < WORKERS
            && let Some((job, charge)) = self.waiting.pop(0)
        {
            let waited = JobWait {
                here_us: now_us - job.queued_us,
                before_us: job.before_us,
            };
            let depth = self.waiting.len();
            let taken = self.control.take(now_us, &charge, waited, depth);
            let has_left = now_us > job.came_us + PATIENCE_US;
            if has_left || taken.is_err() {
                self.waiting.not_done(charge);
                if !has_left {
                    self.refuse(now_us, job);
                }
                continue;
            }
            let took_us = match job.lane {
                Lane::Handshakes => self.handshake_us,
                _ => REQUEST_US,
            };
            self.begun += 1;
            self.busy.insert(self.begun, (job, charge, took_us));
            self.at(now_us + took_us, Event::Done(self.begun));
        }
    }

    fn done(&mut self, now_us: u64, worker: usize) {
        let Some((job, charge, took_us)) = self.busy.remove(&worker) else {
            return;
        };
        (self.control).done(now_us, &charge, job.before_us, took_us);
        self.waiting.done(charge, took_us);
        let came_us = job.came_us;
        if job.lane == Lane::Handshakes {
            let before_us = now_us - job.queued_us;
            return self.at(now_us + CLIENT_US, Event::Comes { came_us, before_us });
        }
        let latency_us = now_us - came_us;
        if came_us >= self.counted_from_us && latency_us <= PATIENCE_US {
            self.seen.good += 1;
            self.seen.in_goal += u64::from(latency_us <= GOAL_US);
            self.seen.last_us = now_us;
        }
    }
}

fn flow(lane: Lane) -> FlowKey {
    let client = ClientKey::NOBODY;
    FlowKey { lane, client }
}

/// Connections a second that could be served if none were refused.
fn capacity(handshake_us: u64) -> f64 {
    WORKERS as f64 * 1e6 / (handshake_us + REQUEST_US) as f64
}

/// Short ones; such that what handshakes have of the workers' time is enough for as many as there are requests,
/// and no more; long ones.
const HANDSHAKES_US: [u64; 5] = [100, 300, 600, 1_000, 3_000];

/// Handshakes waited for the requests behind others, which nobody counted: where they are so long that few more
/// are done than requests, none was refused before it had waited for a second.
#[test]
fn new_connections_are_answered_in_time_whatever_is_offered() {
    const SECONDS: u64 = 12;
    for handshake_us in HANDSHAKES_US {
        for load in [2.0, 5.0, 10.0] {
            for seed in 1..=3 {
                let mut simulation = Simulation::new(handshake_us, COUNTED_FROM_US);
                let rate = load * capacity(handshake_us);
                simulation.offer(0, SECONDS * 1_000_000, rate, seed);
                let seen = simulation.run();
                let counted_s = (seen.last_us - COUNTED_FROM_US) as f64 / 1e6;
                let goodput = seen.good as f64 / counted_s / capacity(handshake_us);
                let in_goal = seen.in_goal as f64 / seen.good as f64;
                let which = format!("{handshake_us} us, {load} times, seed {seed}");
                assert!(in_goal >= 0.99, "{which}: {in_goal} {seen:?}");
                assert!(goodput >= 0.85, "{which}: {goodput} {seen:?}");
            }
        }
    }
}

#[test]
fn no_connection_is_refused_at_four_fifths_of_the_capacity() {
    for handshake_us in HANDSHAKES_US {
        for seed in 1..=10 {
            let mut simulation = Simulation::new(handshake_us, 0);
            simulation.offer(0, 20_000_000, 0.8 * capacity(handshake_us), seed);
            let seen = simulation.run();
            assert_eq!((seen.refused, seen.good), (0, seen.came), "{handshake_us}");
        }
    }
}

/// 500 connections within 50 ms, after a second without any.
fn burst(handshake_us: u64) -> Seen {
    let mut simulation = Simulation::new(handshake_us, 3_900_000);
    simulation.offer(0, 3_000_000, 0.5 * capacity(handshake_us), 1);
    for index in 0..500 {
        let (came_us, before_us) = (4_000_000 + index * 100, 0);
        simulation.at(came_us, Event::Comes { came_us, before_us });
    }
    simulation.run()
}

/// Where handshakes are short, many are computed before it is seen that the requests behind them cannot all be
/// answered.
#[test]
fn of_a_burst_of_connections_as_many_are_served_as_can_be_and_none_late() {
    for handshake_us in HANDSHAKES_US {
        let seen = burst(handshake_us);
        let good = seen.good as f64 / capacity(handshake_us);
        assert!((0.9..=1.05).contains(&good), "{handshake_us}: {seen:?}");
        assert_eq!(seen.in_goal, seen.good, "{handshake_us}: {seen:?}");
    }
}

/// It was seen late, since handshakes that were done counted as if they brought nothing: of 298 that were refused,
/// 214 had waited.
#[test]
fn of_a_burst_of_short_handshakes_most_that_are_refused_are_so_at_once() {
    let seen = burst(100);
    assert!(seen.refused_late * 3 <= seen.refused, "{seen:?}");
}
