//! Queues before two workers under too much load, by rule: what `docs/decisions/0065` chose by.
//!
//! `cargo test -p loadline-server --lib overload::simulation -- --ignored --nocapture` prints the
//! whole table.

mod bursts;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use super::queue::{Beside, QueueControl};

const GOAL_US: u64 = 1_000_000;
const PATIENCE_US: u64 = 2_000_000;
const WORKERS: usize = 2;
const SERVICE_US: u64 = 10_000;
/// Jobs a second.
const CAPACITY: f64 = WORKERS as f64 * 1e6 / SERVICE_US as f64;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    /// First in, first out, at most 1024: as before.
    Fifo,
    /// CoDel at the head (RFC 8289): target 100 ms, interval 1 s.
    CoDel,
    /// Newest first once the queue was not empty for 100 ms; what then waits longer than 100 ms is
    /// dropped (Maurer, "Fail at Scale", ACM Queue 2015).
    NewestFirst,
    /// First in, first out; refused at once if it could not be done within the goal.
    Predict,
    /// The same, and little waits under lasting overload: `QueueControl`.
    Control,
}

#[derive(Clone, Copy, Debug)]
enum Service {
    Constant,
    Exponential,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    pushed_us: u64,
    retries: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive { retries: u32 },
    Done { pushed_us: u64, took_us: u64 },
}

#[derive(Debug, Default)]
struct Seen {
    arrived: u64,
    good: u64,
    late: u64,
    refused: u64,
    /// Accepted, and refused later.
    dropped: u64,
    /// Done for a client that had left.
    wasted: u64,
    times_us: Vec<u64>,
    /// Good ones by the second in which they ended.
    by_second: Vec<u64>,
    /// The longest time of these.
    longest_us: Vec<u64>,
    refused_by_second: Vec<u64>,
}

struct Simulation {
    rule: Rule,
    service: Service,
    random: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    order: u64,
    queue: VecDeque<Request>,
    idle: usize,
    control: QueueControl,
    emptied_us: u64,
    codel: CoDel,
    seen: Seen,
    retries_max: u32,
}

#[derive(Debug, Default)]
struct CoDel {
    first_above_us: Option<u64>,
    next_us: u64,
    count: u64,
    is_dropping: bool,
}

impl CoDel {
    const TARGET_US: u64 = 100_000;
    const INTERVAL_US: u64 = 1_000_000;

    fn drops(&mut self, now_us: u64, waited_us: u64) -> bool {
        if waited_us < Self::TARGET_US {
            self.first_above_us = None;
            self.is_dropping = false;
            return false;
        }
        let first_us = *self
            .first_above_us
            .get_or_insert(now_us + Self::INTERVAL_US);
        if !self.is_dropping && now_us >= first_us {
            self.is_dropping = true;
            self.count = 0;
            self.next_us = now_us;
        }
        if self.is_dropping && now_us >= self.next_us {
            self.count += 1;
            let gap = Self::INTERVAL_US as f64 / (self.count as f64).sqrt();
            self.next_us += gap as u64;
            return true;
        }
        false
    }
}

impl Simulation {
    fn new(rule: Rule, service: Service, retries_max: u32, seed: u64) -> Self {
        Self {
            rule,
            service,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            events: BinaryHeap::new(),
            order: 0,
            queue: VecDeque::new(),
            idle: WORKERS,
            control: QueueControl::new(Duration::from_micros(GOAL_US), WORKERS),
            emptied_us: 0,
            codel: CoDel::default(),
            seen: Seen::default(),
            retries_max,
        }
    }

    /// From 0 to 1.
    fn random(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> u64 {
        (-mean * (1.0 - self.random()).ln()) as u64
    }

    fn at(&mut self, time_us: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((time_us, self.order, event)));
    }

    /// Poisson arrivals at `load` times the capacity.
    fn offer(&mut self, from_us: u64, to_us: u64, load: f64) {
        let mut time_us = from_us;
        loop {
            time_us += self.exponential(1e6 / (CAPACITY * load));
            if time_us >= to_us {
                return;
            }
            self.at(time_us, Event::Arrive { retries: 0 });
        }
    }

    fn run(mut self) -> Seen {
        while let Some(Reverse((now_us, _, event))) = self.events.pop() {
            match event {
                Event::Arrive { retries } => self.arrive(now_us, retries),
                Event::Done { pushed_us, took_us } => {
                    self.idle += 1;
                    self.control.done(now_us, took_us);
                    if now_us - pushed_us > PATIENCE_US {
                        self.seen.wasted += 1; // the client has tried again or given up
                    } else {
                        self.seen.good += 1;
                        self.seen.late += u64::from(now_us - pushed_us > GOAL_US);
                        self.seen.times_us.push(now_us - pushed_us);
                        *of_second(&mut self.seen.by_second, now_us) += 1;
                        let longest_us = of_second(&mut self.seen.longest_us, now_us);
                        *longest_us = (*longest_us).max(now_us - pushed_us);
                    }
                    self.start(now_us);
                }
            }
        }
        self.seen.times_us.sort_unstable();
        self.seen
    }

    fn arrive(&mut self, now_us: u64, retries: u32) {
        self.seen.arrived += 1;
        let request = Request {
            pushed_us: now_us,
            retries,
        };
        let depth = self.queue.len();
        if depth == 0 {
            self.emptied_us = now_us;
        }
        let is_free = self.idle > 0 && depth == 0;
        let refused = match self.rule {
            _ if is_free => None,
            Rule::Fifo | Rule::CoDel | Rule::NewestFirst => (depth >= 1024).then_some(1),
            Rule::Predict => {
                let wait_us = depth as u64 * SERVICE_US / WORKERS as u64;
                (wait_us + SERVICE_US > GOAL_US).then_some(1)
            }
            Rule::Control => self.control.offer(now_us, depth, Beside::default()).err(),
        };
        if is_free && self.rule == Rule::Control {
            let _ = self.control.offer(now_us, 0, Beside::default());
        }
        match refused {
            Some(after_s) => {
                self.seen.refused += 1;
                self.refuse(now_us, request, after_s);
            }
            None => {
                self.queue.push_back(request);
                self.start(now_us);
            }
        }
    }

    fn refuse(&mut self, now_us: u64, request: Request, after_s: u32) {
        *of_second(&mut self.seen.refused_by_second, now_us) += 1;
        if request.retries < self.retries_max {
            let wait_us = (f64::from(after_s) * 1e6 * (0.5 + self.random() / 2.0)) as u64;
            let retries = request.retries + 1;
            self.at(now_us + wait_us, Event::Arrive { retries });
        }
    }

    fn start(&mut self, now_us: u64) {
        while self.idle > 0 {
            let newest = self.rule == Rule::NewestFirst && now_us - self.emptied_us > 100_000;
            let next = match newest {
                true => self.queue.pop_back(),
                false => self.queue.pop_front(),
            };
            let Some(request) = next else {
                self.emptied_us = now_us;
                return;
            };
            let waited_us = now_us - request.pushed_us;
            if waited_us > PATIENCE_US {
                // Its client has left; with Fifo, nobody notices.
                if self.rule != Rule::Fifo {
                    continue;
                }
            }
            let drops = match self.rule {
                Rule::Fifo | Rule::Predict => false,
                Rule::CoDel => self.codel.drops(now_us, waited_us),
                Rule::NewestFirst => newest && waited_us > 100_000,
                Rule::Control => self
                    .control
                    .take(now_us, waited_us, self.queue.len())
                    .is_err(),
            };
            if drops {
                self.seen.dropped += 1;
                self.refuse(now_us, request, 1);
                continue;
            }
            self.idle -= 1;
            let took_us = match self.service {
                Service::Constant => SERVICE_US,
                Service::Exponential => self.exponential(SERVICE_US as f64),
            };
            let pushed_us = request.pushed_us;
            self.at(now_us + took_us, Event::Done { pushed_us, took_us });
        }
    }
}

fn of_second(by_second: &mut Vec<u64>, now_us: u64) -> &mut u64 {
    let second = (now_us / 1_000_000) as usize;
    if by_second.len() <= second {
        by_second.resize(second + 1, 0);
    }
    &mut by_second[second]
}

impl Seen {
    fn percentile_ms(&self, share: f64) -> f64 {
        let index = (self.times_us.len() as f64 * share) as usize;
        self.times_us.get(index).map_or(0.0, |us| *us as f64 / 1e3)
    }

    /// Good ones a second from the third second on, as a share of the capacity.
    fn goodput(&self, seconds: usize) -> f64 {
        let later = self.by_second.iter().take(seconds).skip(2);
        later.sum::<u64>() as f64 / (seconds - 2) as f64 / CAPACITY
    }
}

fn overloaded(rule: Rule, service: Service, load: f64, retries: u32, seed: u64) -> Seen {
    let mut simulation = Simulation::new(rule, service, retries, seed);
    simulation.offer(0, 20_000_000, load);
    simulation.run()
}

const SERVICES: [Service; 2] = [Service::Constant, Service::Exponential];

#[test]
fn goodput_stays_at_capacity_whatever_is_offered() {
    for service in SERVICES {
        for (load, retries) in [(2.0, 0), (5.0, 0), (10.0, 0), (2.0, 2), (10.0, 2)] {
            for seed in 1..=5 {
                let seen = overloaded(Rule::Control, service, load, retries, seed);
                let goodput = seen.goodput(20);
                assert!(goodput > 0.95, "{service:?} {load} {seed}: {goodput}");
                let late = seen.late as f64 / seen.good as f64;
                assert!(late < 0.01, "{service:?} {load} {seed}: {late}");
                assert_eq!(seen.wasted, 0);
            }
        }
    }
}

#[test]
fn nothing_is_refused_at_four_fifths_of_the_capacity() {
    for service in SERVICES {
        for seed in 1..=20 {
            let seen = overloaded(Rule::Control, service, 0.8, 0, seed);
            assert_eq!((seen.refused, seen.dropped), (0, 0), "{service:?} {seed}");
        }
    }
}

/// Ten times the capacity for 100 ms are 180 ms of work more than two workers do meanwhile: within
/// the goal, all of it.
#[test]
fn a_burst_that_can_be_answered_in_time_is() {
    for service in SERVICES {
        for seed in 1..=20 {
            let mut simulation = Simulation::new(Rule::Control, service, 0, seed);
            simulation.offer(0, 3_000_000, 0.5);
            for index in 0..200 {
                simulation.at(3_000_000 + index * 500, Event::Arrive { retries: 0 });
            }
            simulation.offer(3_100_000, 6_000_000, 0.5);
            let seen = simulation.run();
            let lost = seen.refused + seen.dropped;
            match service {
                Service::Constant => assert_eq!((lost, seen.late), (0, 0), "{seed}"),
                Service::Exponential => {
                    assert!(lost + seen.late < 25, "{seed}: {lost} {}", seen.late)
                }
            }
        }
    }
}

/// Where the bounds of errors after bursts in `lab/overload.toml` come from: what nine of ten runs
/// lose at most, even if only what cannot be done within the goal is lost. Computing, a request
/// takes 10.3 ms with what HTTP costs, and 268 us on a thread of its own among ten thousand.
#[test]
fn what_bursts_cost_an_ideal_queue() {
    const RUNS: u64 = 100;
    for (workers, service_us, capacity_per_s, period_s, expected) in [
        (2, 10_000, 200, 5, 0.0),
        (1, 10_300, 100, 5, 0.0061),
        (1, 268, 4000, 10, 0.0),
    ] {
        let lost = |seed| lost_in_bursts(workers, service_us, capacity_per_s, period_s, seed);
        let mut shares: Vec<f64> = (1..=RUNS).map(lost).collect();
        shares.sort_by(f64::total_cmp);
        let found = shares[RUNS as usize * 9 / 10];
        let difference = (found - expected).abs();
        assert!(difference < 2e-4, "{workers} {service_us}: {found}");
    }
}

/// Ten times the capacity for 100 ms, then 0.8 of it until the period is over, for 10 s: the share
/// of requests that could not be done within the goal, first in, first out. As `loadline load` has
/// them, there are as many in each burst and between two as the rate asks for, at random times.
fn lost_in_bursts(
    workers: usize,
    service_us: u64,
    capacity_per_s: u64,
    period_s: u64,
    seed: u64,
) -> f64 {
    const BURST_US: u64 = 100_000;
    let mut simulation = Simulation::new(Rule::Predict, Service::Constant, 0, seed);
    let period_us = period_s * 1_000_000;
    let between_us = period_us - BURST_US;
    let between_count = capacity_per_s * 8 / 10 * between_us / 1_000_000;
    let mut arrivals_us = Vec::new();
    for period in 0..10 / period_s {
        let from_us = period * period_us;
        for (from_us, len_us, count) in [
            (from_us, BURST_US, capacity_per_s),
            (from_us + BURST_US, between_us, between_count),
        ] {
            for _ in 0..count {
                arrivals_us.push(from_us + (simulation.random() * len_us as f64) as u64);
            }
        }
    }
    arrivals_us.sort_unstable();
    let mut free_us = vec![0; workers];
    let mut lost = 0;
    for now_us in &arrivals_us {
        let first = free_us.iter_mut().min().unwrap();
        let done_us = (*first).max(*now_us) + service_us;
        if done_us - now_us > GOAL_US {
            lost += 1;
        } else {
            *first = done_us;
        }
    }
    f64::from(lost) / arrivals_us.len() as f64
}

#[test]
fn all_is_good_two_seconds_after_the_load_has_fallen() {
    for service in SERVICES {
        for (seed, load) in (1..=20).zip([2.0, 5.0, 10.0].into_iter().cycle()) {
            let mut simulation = Simulation::new(Rule::Control, service, 0, seed);
            simulation.offer(0, 10_000_000, load);
            simulation.offer(10_000_000, 20_000_000, 0.8);
            let seen = simulation.run();
            let refused: u64 = seen.refused_by_second.iter().skip(12).sum();
            assert_eq!(refused, 0, "{service:?} {load} {seed}");
        }
    }
}

#[test]
#[ignore = "by hand: prints a table; see docs/decisions/0065"]
fn rules_compared_by_hand() {
    println!(
        "| service | load | retries | rule | good / capacity | p50 | p99 | late | dropped after a wait | wasted |"
    );
    println!("|---|---:|---:|---|---:|---:|---:|---:|---:|---:|");
    let rules = [
        Rule::Fifo,
        Rule::CoDel,
        Rule::NewestFirst,
        Rule::Predict,
        Rule::Control,
    ];
    for service in SERVICES {
        for (load, retries) in [
            (0.8, 0),
            (1.2, 0),
            (2.0, 0),
            (5.0, 0),
            (10.0, 0),
            (2.0, 2),
            (10.0, 2),
        ] {
            for rule in rules {
                let runs: Vec<Seen> = (1..=10)
                    .map(|seed| overloaded(rule, service, load, retries, seed))
                    .collect();
                let mean = |of: &dyn Fn(&Seen) -> f64| runs.iter().map(of).sum::<f64>() / 10.0;
                println!(
                    "| {service:?} | {load} | {retries} | {rule:?} | {:.3} | {:.0} ms | {:.0} ms | {:.1} % | {:.1} % | {:.0} |",
                    mean(&|seen| seen.goodput(20)),
                    mean(&|seen| seen.percentile_ms(0.5)),
                    mean(&|seen| seen.percentile_ms(0.99)),
                    100.0 * mean(&|seen| seen.late as f64 / seen.good.max(1) as f64),
                    100.0
                        * mean(&|seen| seen.dropped as f64
                            / (seen.good + seen.wasted + seen.dropped).max(1) as f64),
                    mean(&|seen| seen.wasted as f64),
                );
            }
        }
    }
}

/// What `docs/pictures/overload-goodput.svg` is drawn from:
/// `UPDATE_DOCS=1 cargo test -p loadline-server --lib overload::simulation::goodput -- --ignored`,
/// and then `UPDATE_DOCS=1 cargo test -p loadline-lab --test report pictures`.
#[test]
#[ignore = "by hand: prints a table; see docs/overload.md"]
fn goodput_by_load_and_rule_by_hand() {
    const SEEDS: u64 = 5;
    const LOADS: [f64; 9] = [0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0];
    let rules = [
        (Rule::Fifo, "first in, first out, 1024 at most"),
        (Rule::CoDel, "CoDel at the head of the queue"),
        (Rule::NewestFirst, "newest first"),
        (Rule::Control, "a latency goal of 1 s"),
    ];
    let mut table = "retries,rule,load,goodput of 5 seeds\n".to_owned();
    for retries in [0, 2] {
        for (rule, name) in rules {
            for load in LOADS {
                let goodputs = (1..=SEEDS).map(|seed| {
                    let seen = overloaded(rule, Service::Exponential, load, retries, seed);
                    format!("{:.3}", seen.goodput(20))
                });
                let goodputs: Vec<String> = goodputs.collect();
                table += &format!("{retries},\"{name}\",{load},{}\n", goodputs.join(" "));
            }
        }
    }
    print!("{table}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let path = "../../docs/pictures/overload-goodput.csv";
        std::fs::write(path, table).unwrap();
    }
}
