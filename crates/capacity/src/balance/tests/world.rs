//! A made-up server of event loops, each on a CPU of its own, as a discrete-event simulation.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::balance::{Balancer, ConnectionCost, INTERVAL_MS, LoopMeasured, TOP};

const INTERVAL_US: u64 = INTERVAL_MS * 1000;
/// CPU time that a move takes of either loop.
const MOVE_US: f64 = 20.0;
/// The weight of a request beside busy time, where loops are chosen by how busy they are.
const REQUEST_WEIGHT_US: f64 = 1000.0;
/// How long a burst of a part of the connections lasts; then it is another part's turn.
const BURST_US: f64 = 3e6;
/// One part of so many.
const BURST_PARTS: usize = 10;
/// So many requests more, of each connection in the burst: nine tenths of all work are theirs.
const BURST_MORE: f64 = 80.0;

/// How the loop of a connection is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// By the kernel's hash: at random.
    Share,
    RoundRobin,
    LeastConnections,
    LeastPending,
    LeastBusy,
    Adaptive,
}

pub(super) const FIXED: [Rule; 5] = [
    Rule::Share,
    Rule::RoundRobin,
    Rule::LeastConnections,
    Rule::LeastPending,
    Rule::LeastBusy,
];

/// What connections ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Skew {
    /// All the same.
    Even,
    /// A tenth of the connections makes nine tenths of the work.
    Tenth,
    /// Each connection asks for one file; sizes are by a Zipf law.
    Zipf,
    /// All the same, and half of one loop's CPU is somebody else's.
    Neighbour,
    /// All the same, and a tenth of them at a time makes nine tenths of the work.
    Bursts,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Scenario {
    pub(super) skew: Skew,
    pub(super) loops: usize,
    pub(super) connections: usize,
    /// Of all loops' time.
    pub(super) utilisation: f64,
    pub(super) service_us: f64,
    /// How long a connection lives on average.
    pub(super) life_s: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Opens(usize),
    /// A connection asks; for more than otherwise, if it is in this burst.
    Asks(u64, Option<usize>),
    Burst,
    Done(usize),
    Measures,
}

struct Connection {
    /// Its place among those that are open: one that closes is followed by another like it.
    slot: usize,
    at: usize,
    closes_us: f64,
}

#[derive(Default)]
struct Loop {
    queue: VecDeque<(f64, f64, u64)>,
    speed: f64,
    connections: usize,
    busy_since_us: Option<f64>,
    busy_us: f64,
    cpu_us: f64,
    handled: u64,
    costs: HashMap<u64, f64>,
    /// Busy time of the interval before, for the rule that looks at it.
    before_us: f64,
}

pub(super) struct World {
    scenario: Scenario,
    rule: Rule,
    rng: Pcg64Mcg,
    now_us: f64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    loops: Vec<Loop>,
    open: HashMap<u64, Connection>,
    next_connection: u64,
    /// Requests a second, and service time of each, by slot.
    slots: Vec<(f64, f64)>,
    /// Which burst it is.
    burst: usize,
    turn: usize,
    balancer: Balancer,
    pub(super) responses_us: Vec<f64>,
    pub(super) moves: Vec<(u64, usize, usize)>,
    measured_from_us: f64,
}

impl World {
    pub(super) fn new(scenario: Scenario, rule: Rule, seed: u64) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let slots = slots(&scenario, &mut rng);
        let loops = (0..scenario.loops).map(|index| Loop {
            speed: match scenario.skew {
                Skew::Neighbour if index == 0 => 0.5,
                _ => 1.0,
            },
            ..Loop::default()
        });
        let mut world = Self {
            loops: loops.collect(),
            rule,
            rng,
            now_us: 0.0,
            events: BinaryHeap::new(),
            sequence: 0,
            open: HashMap::new(),
            next_connection: 0,
            slots,
            burst: 0,
            turn: 0,
            balancer: Balancer::new(scenario.loops),
            responses_us: Vec::new(),
            moves: Vec::new(),
            measured_from_us: 0.0,
            scenario,
        };
        for slot in 0..world.slots.len() {
            let within_us = world.rng.random_range(0.0..200_000.0); // they come in a burst
            world.at(within_us, Event::Opens(slot));
        }
        world.at(INTERVAL_US as f64, Event::Measures);
        if scenario.skew == Skew::Bursts {
            world.at(BURST_US, Event::Burst);
        }
        world
    }

    /// Runs for so long; responses and moves are kept from some time on.
    pub(super) fn run(&mut self, run_s: f64, measured_from_s: f64) {
        self.measured_from_us = measured_from_s * 1e6;
        while let Some(Reverse((at_us, _, event))) = self.events.pop() {
            self.now_us = at_us as f64;
            if self.now_us > run_s * 1e6 {
                break;
            }
            match event {
                Event::Opens(slot) => self.open(slot),
                Event::Asks(connection, burst) => self.ask(connection, burst),
                Event::Burst => self.burst(),
                Event::Done(index) => self.done(index),
                Event::Measures => {
                    self.measure();
                    self.at(INTERVAL_US as f64, Event::Measures);
                }
            }
        }
    }

    fn open(&mut self, slot: usize) {
        let at = self.choose();
        self.loops[at].connections += 1;
        let life_us = self.exponential() * self.scenario.life_s * 1e6;
        let id = self.next_connection;
        self.next_connection += 1;
        let connection = Connection {
            slot,
            at,
            closes_us: self.now_us + life_us,
        };
        self.open.insert(id, connection);
        self.next_request(id, slot, None);
        if self.is_in_burst(slot) {
            self.next_request(id, slot, Some(self.burst));
        }
    }

    fn next_request(&mut self, id: u64, slot: usize, burst: Option<usize>) {
        let more = if burst.is_some() { BURST_MORE } else { 1.0 };
        let gap_us = self.exponential() * 1e6 / (self.slots[slot].0 * more);
        self.at(gap_us, Event::Asks(id, burst));
    }

    /// Another part of the connections asks for more.
    fn burst(&mut self) {
        self.burst += 1;
        let open = self.open.iter().map(|(id, one)| (*id, one.slot));
        let mut those: Vec<_> = open.filter(|(_, slot)| self.is_in_burst(*slot)).collect();
        those.sort_unstable(); // the table has them in any order
        for (id, slot) in those {
            self.next_request(id, slot, Some(self.burst));
        }
        self.at(BURST_US, Event::Burst);
    }

    fn is_in_burst(&self, slot: usize) -> bool {
        self.scenario.skew == Skew::Bursts && slot % BURST_PARTS == self.burst % BURST_PARTS
    }

    fn ask(&mut self, id: u64, burst: Option<usize>) {
        if burst.is_none_or(|burst| burst == self.burst)
            && let Some(slot) = self.request(id)
        {
            self.next_request(id, slot, burst);
        }
    }

    /// A request of a connection; `None`: its time is over, and another one like it has opened.
    fn request(&mut self, id: u64) -> Option<usize> {
        let connection = self.open.get(&id)?;
        let (slot, at, closes_us) = (connection.slot, connection.at, connection.closes_us);
        if self.now_us > closes_us {
            self.open.remove(&id);
            self.loops[at].connections -= 1;
            self.open(slot);
            return None;
        }
        let service_us = self.slots[slot].1 * (0.5 + 0.5 * self.exponential());
        self.push(at, (self.now_us, service_us, id));
        Some(slot)
    }

    fn push(&mut self, at: usize, request: (f64, f64, u64)) {
        self.loops[at].queue.push_back(request);
        if self.loops[at].queue.len() == 1 {
            self.begin(at);
        }
    }

    fn begin(&mut self, at: usize) {
        let one = &mut self.loops[at];
        let Some((_, service_us, _)) = one.queue.front() else {
            one.busy_since_us = None;
            return;
        };
        one.busy_since_us = Some(self.now_us);
        let took_us = service_us / one.speed;
        self.at(took_us, Event::Done(at));
    }

    fn done(&mut self, at: usize) {
        let one = &mut self.loops[at];
        let Some((since_us, service_us, id)) = one.queue.pop_front() else {
            return;
        };
        one.account(self.now_us);
        one.handled += 1;
        if id != u64::MAX {
            *one.costs.entry(id).or_default() += service_us;
            if self.now_us >= self.measured_from_us {
                self.responses_us.push(self.now_us - since_us);
            }
        }
        self.begin(at);
    }

    fn choose(&mut self) -> usize {
        let count = self.loops.len();
        self.turn = (self.turn + 1) % count;
        let turn = self.turn;
        let least = |key: &dyn Fn(&Loop) -> f64| {
            (0..count)
                .map(|step| (turn + step) % count)
                .min_by(|a, b| key(&self.loops[*a]).total_cmp(&key(&self.loops[*b])))
                .unwrap_or(0)
        };
        match self.rule {
            Rule::Share => self.rng.random_range(0..count),
            Rule::RoundRobin => turn,
            Rule::LeastConnections => least(&|one| one.connections as f64),
            Rule::LeastPending => least(&|one| one.queue.len() as f64),
            Rule::LeastBusy => least(&|one| {
                let pending = one.queue.len() as f64;
                one.before_us.max(one.busy_us) + pending * REQUEST_WEIGHT_US
            }),
            Rule::Adaptive => self.balancer.place(),
        }
    }

    fn measure(&mut self) {
        let now_us = self.now_us;
        let measured: Vec<_> = self
            .loops
            .iter_mut()
            .map(|one| {
                one.account(now_us);
                one.measure()
            })
            .collect();
        if self.rule != Rule::Adaptive {
            return;
        }
        let decision = self.balancer.decide(INTERVAL_US, &measured);
        for one in decision.moves {
            let Some(connection) = self.open.get_mut(&one.connection) else {
                continue; // it has been closed meanwhile
            };
            if connection.at != one.from {
                continue;
            }
            connection.at = one.to;
            self.loops[one.from].connections -= 1;
            self.loops[one.to].connections += 1;
            for at in [one.from, one.to] {
                self.push(at, (now_us, MOVE_US, u64::MAX));
            }
            if now_us >= self.measured_from_us {
                self.moves.push((one.connection, one.from, one.to));
            }
        }
    }

    fn exponential(&mut self) -> f64 {
        -self.rng.random_range(1e-12..1.0_f64).ln()
    }

    fn at(&mut self, after_us: f64, event: Event) {
        self.sequence += 1;
        let at_us = (self.now_us + after_us).round() as u64;
        self.events.push(Reverse((at_us, self.sequence, event)));
    }
}

impl Loop {
    /// Counts the time until now.
    fn account(&mut self, now_us: f64) {
        if let Some(since_us) = self.busy_since_us {
            self.busy_us += now_us - since_us;
            self.cpu_us += (now_us - since_us) * self.speed;
            self.busy_since_us = Some(now_us);
        }
    }

    fn measure(&mut self) -> LoopMeasured {
        self.before_us = self.busy_us;
        let mut top: Vec<_> = std::mem::take(&mut self.costs)
            .into_iter()
            .map(|(connection, cpu_us)| ConnectionCost {
                connection,
                cpu_us: cpu_us as u64,
            })
            .collect();
        top.sort_unstable_by_key(|cost| (Reverse(cost.cpu_us), cost.connection));
        top.truncate(TOP);
        LoopMeasured {
            busy_us: std::mem::take(&mut self.busy_us) as u64,
            cpu_us: std::mem::take(&mut self.cpu_us) as u64,
            handled: std::mem::take(&mut self.handled),
            ready: self.queue.len().saturating_sub(1) as u64,
            connections: self.connections,
            top,
        }
    }
}

/// Requests a second and their service time, for each connection.
fn slots(scenario: &Scenario, rng: &mut Pcg64Mcg) -> Vec<(f64, f64)> {
    let count = scenario.connections;
    let mut weights: Vec<(f64, f64)> = match scenario.skew {
        Skew::Even | Skew::Neighbour | Skew::Bursts => vec![(1.0, 1.0); count],
        Skew::Tenth => (0..count)
            .map(|slot| (if slot * 10 < count { 81.0 } else { 1.0 }, 1.0))
            .collect(),
        Skew::Zipf => (0..count)
            .map(|slot| (1.0, count as f64 / (slot + 1) as f64))
            .collect(),
    };
    for index in (1..count).rev() {
        weights.swap(index, rng.random_range(0..=index));
    }
    let lost = if scenario.skew == Skew::Neighbour {
        0.5
    } else {
        0.0
    };
    let cpus = scenario.utilisation * (scenario.loops as f64 - lost);
    let size: f64 = weights.iter().map(|(_, size)| size).sum::<f64>() / count as f64;
    let work: f64 = weights.iter().map(|(rate, size)| rate * size).sum();
    let work = match scenario.skew {
        Skew::Bursts => work * (1.0 + BURST_MORE / BURST_PARTS as f64),
        _ => work,
    };
    weights
        .iter()
        .map(|(rate, own)| {
            let service_us = scenario.service_us * own / size;
            // The work of all slots together takes `cpus`.
            let rate_per_s = rate * cpus * 1e6 / (work * scenario.service_us / size);
            (rate_per_s, service_us)
        })
        .collect()
}
