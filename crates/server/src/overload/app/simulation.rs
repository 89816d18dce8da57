//! Apps that wait, under more load than they can carry and under less.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use super::{AppControl, AppCounts, Wait};

const GOAL: Duration = Duration::from_secs(1);
/// Clients give up after this.
const PATIENCE_US: u64 = 2_000_000;

/// What a request of the app does.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// Has a place among so many, and takes so long then; the others wait, first in, first out.
    Limited(usize, u64),
    /// The same, for an exponentially distributed time of this mean.
    Varying(usize, u64),
    /// Only takes its time.
    Sleep(u64),
    /// The same, up to this, as chance has it.
    Random(u64),
    /// Every twentieth takes 30 s (long polling), the others have a place among two.
    Mixed(u64),
    /// Takes 10 ms in the first five seconds, then so long.
    Slower(u64),
    /// Has a place among two and takes so long in the first ten seconds, then that long.
    Changing(u64, u64),
    /// Has a place among two for 10 ms in the first ten seconds, then only takes its time, which is this.
    Freed(u64),
    /// Has the only place for so long in the first thirty seconds, then only takes as long.
    FreedLater(u64),
}

/// Which of those that wait has a place next.
#[derive(Clone, Copy, Debug)]
enum Order {
    First,
    Last,
}

struct Request {
    came_us: u64,
    wait: Wait,
    is_answered: bool,
}

#[derive(Debug, Default)]
struct Seen {
    came: usize,
    refused: usize,
    /// Answered within the goal, or only within the patience.
    in_time: usize,
    late: usize,
    /// Of those that came after the first two seconds: an app that nobody knows yet gets too many.
    late_later: usize,
    /// Answered within the goal, by second.
    by_second: Vec<usize>,
    refused_by_second: Vec<usize>,
    /// What the control has counted.
    counts: AppCounts,
}

impl Seen {
    /// What the control takes a request to cost, in microseconds, if that is known.
    fn each_us(&self) -> Option<f64> {
        let AppCounts {
            queued_us,
            queued_answers,
            ..
        } = self.counts;
        (queued_us > 0).then(|| queued_us as f64 / queued_answers as f64)
    }
}

/// Events: what happens at a time to a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Done(usize),
    GiveUp(usize),
}

struct App {
    work: Work,
    order: Order,
    busy: usize,
    queue: VecDeque<usize>,
}

struct Simulation {
    control: AppControl,
    goal_us: u64,
    patience_us: u64,
    app: App,
    requests: Vec<Request>,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    random: u64,
    seen: Seen,
}

impl Simulation {
    fn new(work: Work, seed: u64, seconds: usize) -> Self {
        Self {
            control: AppControl::new(GOAL),
            goal_us: 1_000_000,
            patience_us: PATIENCE_US,
            app: App {
                work,
                order: Order::First,
                busy: 0,
                queue: VecDeque::new(),
            },
            requests: Vec::new(),
            events: BinaryHeap::new(),
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            seen: Seen {
                by_second: vec![0; seconds + 40],
                refused_by_second: vec![0; seconds + 40],
                ..Seen::default()
            },
        }
    }

    fn with_goal(mut self, goal: Duration) -> Self {
        self.control = AppControl::new(goal);
        self.goal_us = goal.as_micros() as u64;
        self.patience_us = PATIENCE_US.max(2 * self.goal_us);
        self
    }

    fn with_patience(mut self, patience_us: u64) -> Self {
        self.patience_us = patience_us;
        self
    }

    fn in_order(mut self, order: Order) -> Self {
        self.app.order = order;
        self
    }

    /// From 0 to 1 (xorshift).
    fn uniform(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((self.random >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// Poisson arrivals at these rates, for a time each.
    fn run(mut self, phases: &[(f64, u64)]) -> Seen {
        let mut next_us = 0.0;
        let mut from_us = 0;
        for (rate, length_us) in phases {
            let to_us = from_us + length_us;
            next_us = f64::max(next_us, from_us as f64);
            loop {
                next_us += -self.uniform().ln() / rate * 1e6;
                if next_us >= to_us as f64 {
                    break;
                }
                self.until(next_us as u64);
                self.come(next_us as u64);
            }
            from_us = to_us;
        }
        self.until(u64::MAX);
        self.seen.counts = self.control.counts();
        self.seen
    }

    fn until(&mut self, until_us: u64) {
        while let Some(Reverse((at_us, event))) = self.events.peek().copied()
            && at_us <= until_us
        {
            self.events.pop();
            match event {
                Event::Done(index) => self.done(index, at_us),
                Event::GiveUp(index) => self.give_up(index, at_us),
            }
        }
    }

    fn come(&mut self, now_us: u64) {
        self.seen.came += 1;
        if self.control.offer(0, now_us).is_some() {
            self.seen.refused += 1;
            self.seen.refused_by_second[(now_us / 1_000_000) as usize] += 1;
            return;
        }
        let wait = self.control.begin(now_us);
        let index = self.requests.len();
        self.requests.push(Request {
            came_us: now_us,
            wait,
            is_answered: false,
        });
        let patience = Event::GiveUp(index);
        self.events
            .push(Reverse((now_us + self.patience_us, patience)));
        match self.app.work {
            Work::Sleep(us) => self.sleep(index, now_us, us),
            Work::Random(us) => {
                let us = self.uniform() * us as f64;
                self.sleep(index, now_us, us as u64);
            }
            Work::Slower(us) if now_us >= 5_000_000 => self.sleep(index, now_us, us),
            Work::Slower(_) => self.sleep(index, now_us, 10_000),
            Work::Freed(us) if now_us >= 10_000_000 => self.sleep(index, now_us, us),
            Work::FreedLater(us) if now_us >= 30_000_000 => self.sleep(index, now_us, us),
            Work::Mixed(_) if index.is_multiple_of(20) => self.sleep(index, now_us, 30_000_000),
            Work::Limited(..)
            | Work::Varying(..)
            | Work::Mixed(_)
            | Work::Changing(..)
            | Work::Freed(_)
            | Work::FreedLater(_) => {
                self.app.queue.push_back(index);
                self.next(now_us);
            }
        }
    }

    fn sleep(&mut self, index: usize, now_us: u64, us: u64) {
        self.events.push(Reverse((now_us + us, Event::Done(index))));
    }

    /// Those that have a place begin.
    fn next(&mut self, now_us: u64) {
        let (places, us) = match self.app.work {
            Work::Limited(places, us) | Work::Varying(places, us) => (places, us),
            Work::Mixed(us) => (2, us),
            Work::Changing(us, _) if now_us < 10_000_000 => (2, us),
            Work::Changing(_, us) => (2, us),
            Work::Freed(_) => (2, 10_000),
            Work::FreedLater(us) => (1, us),
            Work::Sleep(_) | Work::Random(_) | Work::Slower(_) => return,
        };
        while self.app.busy < places
            && let Some(index) = self.take()
        {
            if !self.requests[index].is_answered {
                self.app.busy += 1;
                let us = match self.app.work {
                    Work::Varying(..) => (-self.uniform().ln() * us as f64) as u64,
                    _ => us,
                };
                self.sleep(index, now_us, us);
            }
        }
    }

    fn take(&mut self) -> Option<usize> {
        match self.app.order {
            Order::First => self.app.queue.pop_front(),
            Order::Last => self.app.queue.pop_back(),
        }
    }

    fn done(&mut self, index: usize, now_us: u64) {
        let is_long = matches!(self.app.work, Work::Mixed(_)) && index.is_multiple_of(20);
        if !is_long && self.app.busy > 0 {
            self.app.busy -= 1;
            self.next(now_us);
        }
        let request = &mut self.requests[index];
        if std::mem::replace(&mut request.is_answered, true) {
            return; // for nobody
        }
        self.control.answered(request.wait, now_us);
        let took_us = now_us - request.came_us;
        match took_us <= self.goal_us {
            true => {
                self.seen.in_time += 1;
                self.seen.by_second[(now_us / 1_000_000) as usize] += 1;
            }
            false => {
                self.seen.late += 1;
                self.seen.late_later += usize::from(request.came_us >= 2_000_000);
            }
        }
    }

    fn give_up(&mut self, index: usize, now_us: u64) {
        let request = &mut self.requests[index];
        if !std::mem::replace(&mut request.is_answered, true) {
            self.control.left(request.wait, now_us);
        }
    }
}

fn seconds(seconds: u64) -> u64 {
    seconds * 1_000_000
}

/// 200 a second at most, as `lab/overload.toml` has them.
const LIMITED: Work = Work::Limited(2, 10_000);
const ALL_LIMITED: [Work; 5] = [
    LIMITED,
    Work::Limited(20, 100_000),
    Work::Limited(1, 2_000),
    Work::Varying(2, 10_000),
    Work::Varying(8, 20_000),
];

/// Requests a second.
fn capacity(work: Work) -> f64 {
    match work {
        Work::Limited(places, us) | Work::Varying(places, us) => places as f64 / us as f64 * 1e6,
        _ => f64::INFINITY,
    }
}

/// What was answered in time from one second to another, as a part of this rate.
fn goodput(seen: &Seen, from: usize, to: usize, rate: f64) -> f64 {
    let in_time: usize = seen.by_second[from..to].iter().sum();
    in_time as f64 / (to - from) as f64 / rate
}

/// Goodput and lateness at several times the capacity.
fn overload(goal: Duration, work: Work, seed: u64, length: usize, goodput_min: f64) {
    let capacity = capacity(work);
    for times in [1.2, 2.0, 5.0, 10.0] {
        let simulation = Simulation::new(work, seed, length).with_goal(goal);
        let seen = simulation.run(&[(times * capacity, seconds(length as u64))]);
        let goodput = goodput(&seen, 2, length, capacity);
        let what = format!("{goal:?} {work:?} {times} {seed}: {goodput} {seen:?}");
        assert!(goodput > goodput_min, "{what}");
        let late_at_first = seen.late - seen.late_later;
        assert!((late_at_first as f64) < 2.0 * capacity, "{what}");
        // Where times vary, some take longer than is to be expected.
        let late_max = match work {
            Work::Varying(..) => seen.in_time / 16,
            _ => 0,
        };
        assert!(seen.late_later <= late_max, "{what}");
    }
}

#[test]
fn goodput_stays_at_the_capacity_and_what_is_answered_is_so_in_time() {
    for work in ALL_LIMITED {
        let goodput_min = match work {
            Work::Varying(..) => 0.92,
            _ => 0.95,
        };
        (1..=20).for_each(|seed| overload(GOAL, work, seed, 20, goodput_min));
        (1..=2).for_each(|seed| overload(GOAL, work, seed, 60, goodput_min));
    }
}

#[test]
fn so_it_does_with_other_goals() {
    for seed in 1..=4 {
        for work in ALL_LIMITED {
            overload(Duration::from_secs(4), work, seed, 20, 0.9);
        }
        for work in [LIMITED, Work::Limited(1, 2_000)] {
            overload(Duration::from_millis(250), work, seed, 20, 0.95);
        }
    }
}

#[test]
fn at_four_fifths_of_the_capacity_nothing_is_refused() {
    for work in ALL_LIMITED {
        let capacity = capacity(work);
        for seed in 1..=20 {
            let simulation = Simulation::new(work, seed, 30);
            let seen = simulation.run(&[(0.8 * capacity, seconds(30))]);
            assert_eq!(seen.refused, 0, "{work:?} {seed}: {seen:?}");
        }
    }
}

#[test]
fn after_an_overload_all_is_good_within_two_seconds() {
    for work in ALL_LIMITED {
        let calm = 0.8 * capacity(work);
        for seed in 1..=4 {
            let simulation = Simulation::new(work, seed, 40);
            let phases = [
                (calm, seconds(5)),
                (6.0 * calm, seconds(5)),
                (calm, seconds(10)),
            ];
            let seen = simulation.run(&phases);
            let after: usize = seen.refused_by_second[12..].iter().sum();
            assert_eq!(after, 0, "{work:?} {seed}: {seen:?}");
        }
    }
}

/// It stays known when the load has fallen, and is not spoilt by waits at any load.
#[test]
fn what_a_request_costs_is_known_to_a_tenth_once_there_was_an_overload() {
    for work in ALL_LIMITED {
        let capacity = capacity(work);
        for (level, seed) in [(0.3, 1), (0.5, 2), (0.7, 3), (0.9, 4), (0.9, 5)] {
            let phases = [
                (0.3 * capacity, seconds(5)),
                (2.0 * capacity, seconds(10)),
                (level * capacity, seconds(25)),
            ];
            let seen = Simulation::new(work, seed, 40).run(&phases);
            let found = seen.each_us().map(|us| us * capacity / 1e6);
            let what = format!("{work:?} {level} {seed}: {found:?} {:?}", seen.counts);
            // Where times vary, a queue may be taken for none until the next overload.
            let error_max = match work {
                Work::Varying(..) => 0.1 + 3.0 / (seen.counts.queued_answers as f64).sqrt(),
                _ => 0.1,
            };
            let is_varying = matches!(work, Work::Varying(..));
            let is_near = |it: f64| (it - 1.0).abs() < error_max;
            assert!(found.map_or(is_varying, is_near), "{what}");
            assert_eq!(seen.counts.refused, seen.refused as u64, "{what}");
            let answered = seen.in_time + seen.late;
            assert_eq!(seen.counts.answered, answered as u64, "{what}");
        }
    }
}

#[test]
fn of_an_app_that_is_no_queue_nothing_is_known() {
    for us in [10_000, 300_000, 1_500_000] {
        for rate in [50.0, 500.0] {
            let simulation = Simulation::new(Work::Sleep(us), 1, 20);
            let phases = [(rate / 10.0, seconds(5)), (rate, seconds(10))];
            let seen = simulation.run(&phases);
            assert_eq!(seen.each_us(), None, "{us} {rate}: {seen:?}");
            assert!(seen.counts.answered > 0, "{us} {rate}: {seen:?}");
        }
    }
    // One that was a queue and is none any more.
    let simulation = Simulation::new(Work::Freed(1_500_000), 1, 30);
    let seen = simulation.run(&[(400.0, seconds(30))]);
    assert!(seen.counts.refused > 1_500, "{seen:?}");
    assert_eq!(seen.each_us(), None, "{seen:?}");
}

#[test]
fn a_cost_that_changes_is_followed() {
    for seed in 1..=4 {
        // 10 ms in the overload. Later 1.25 ms, which is known at a third of the capacity by short waits alone.
        let simulation = Simulation::new(Work::Changing(20_000, 2_500), seed, 50);
        let seen = simulation.run(&[(200.0, seconds(10)), (260.0, seconds(40))]);
        let each_us = seen.each_us().unwrap();
        assert!((1_000.0..2_800.0).contains(&each_us), "{seed}: {each_us}");
        // 5 ms, later 10.
        let simulation = Simulation::new(Work::Changing(10_000, 20_000), seed, 50);
        let seen = simulation.run(&[(400.0, seconds(50))]);
        let each_us = seen.each_us().unwrap();
        assert!((8_000.0..11_000.0).contains(&each_us), "{seed}: {each_us}");
    }
}

#[test]
fn a_burst_loses_nothing_that_could_be_answered_in_time() {
    for seed in 1..=20 {
        let simulation = Simulation::new(LIMITED, seed, 20);
        // 160 and 180 or so more than can be answered at once.
        let phases = [(160.0, seconds(5)), (1800.0, 100_000), (20.0, seconds(2))];
        let seen = simulation.run(&phases);
        assert!(seen.refused + seen.late <= 12, "{seed}: {seen:?}");
    }
}

#[test]
fn what_only_takes_its_time_is_not_refused() {
    let sleeps = [10_000, 300_000, 1_500_000, 1_900_000].map(Work::Sleep);
    let random = [100_000, 1_000_000, 1_900_000].map(Work::Random);
    for work in sleeps.into_iter().chain(random) {
        for (rate, seeds) in [(50.0, 20), (500.0, 10), (5_000.0, 1)] {
            for seed in 1..=seeds {
                let simulation = Simulation::new(work, seed, 20);
                let phases = [(rate / 10.0, seconds(5)), (rate, seconds(10))];
                let seen = simulation.run(&phases);
                // Chance may look like a queue for a moment.
                let refused_max = match work {
                    Work::Random(_) => seen.came / 50,
                    _ => 0,
                };
                assert!(
                    seen.refused <= refused_max,
                    "{work:?} {rate} {seed}: {seen:?}"
                );
            }
        }
    }
}

#[test]
fn nor_are_others_beside_some_that_wait_for_long() {
    for seed in 1..=20 {
        let simulation = Simulation::new(Work::Mixed(10_000), seed, 20);
        let seen = simulation.run(&[(160.0, seconds(20))]);
        assert_eq!(seen.refused, 0, "{seed}: {seen:?}");
    }
}

#[test]
fn nor_is_an_app_that_gets_slower_of_itself() {
    for us in [300_000, 900_000, 1_500_000] {
        for rate in [30.0, 300.0] {
            for seed in 1..=20 {
                let simulation = Simulation::new(Work::Slower(us), seed, 20);
                let seen = simulation.run(&[(rate, seconds(20))]);
                assert_eq!(seen.refused, 0, "{us} {rate} {seed}: {seen:?}");
            }
        }
    }
}

#[test]
fn what_has_been_a_queue_is_known_to_be_none_within_six_goals() {
    for us in [50_000, 300_000, 900_000, 1_500_000] {
        for seed in 1..=20 {
            let simulation = Simulation::new(Work::Freed(us), seed, 30);
            let seen = simulation.run(&[(400.0, seconds(30))]);
            let before: usize = seen.refused_by_second[..10].iter().sum();
            assert!(before > 1_500, "{us} {seed}: {seen:?}");
            let after: usize = seen.refused_by_second[16..].iter().sum();
            assert_eq!(after, 0, "{us} {seed}: {seen:?}");
        }
    }
}

/// One at a time was accepted for good: the number never changed, so that nothing was known of the waits.
#[test]
fn so_is_one_whose_requests_take_two_fifths_of_the_goal() {
    let mut before = 0;
    for seed in 1..=10 {
        let simulation = Simulation::new(Work::FreedLater(400_000), seed, 70);
        let seen = (simulation.with_patience(seconds(10))).run(&[(25.0, seconds(70))]);
        before += seen.refused_by_second[..30].iter().sum::<usize>();
        let after: usize = seen.refused_by_second[60..].iter().sum();
        assert_eq!(after, 0, "{seed}: {seen:?}");
    }
    assert!(before > 1_000, "{before}");
}

#[test]
fn a_capacity_that_changes_is_followed_within_three_seconds() {
    for (us, later_us) in [(10_000, 20_000), (20_000, 10_000)] {
        for seed in 1..=20 {
            let simulation = Simulation::new(Work::Changing(us, later_us), seed, 20);
            let rate = 2.0 * 2e6 / us as f64;
            let seen = simulation.run(&[(rate, seconds(20))]);
            let goodput = goodput(&seen, 13, 20, 2e6 / later_us as f64);
            assert!(goodput > 0.9, "{us} {seed}: {goodput} {seen:?}");
        }
    }
}

#[test]
fn a_queue_that_is_served_last_in_first_out_keeps_its_goodput() {
    for work in ALL_LIMITED {
        let capacity = capacity(work);
        for times in [2.0, 10.0] {
            let simulation = Simulation::new(work, 1, 20).in_order(Order::Last);
            let seen = simulation.run(&[(times * capacity, seconds(20))]);
            let goodput = goodput(&seen, 2, 20, capacity);
            assert!(goodput > 0.9, "{work:?} {times}: {goodput} {seen:?}");
        }
    }
}
