//! Made-up servers whose capacity is known, over many seeds.

mod accidents;
mod queues;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use statrs::distribution::{ContinuousCDF, Normal};

use super::*;
use crate::stats::median;

const SEEDS: u64 = 250;

/// A server: whether it holds a rate, in one trial.
trait Server {
    /// The rate at which a long trial is as likely to hold as not, hiccups apart.
    fn capacity_per_s(&self) -> f64;
    fn holds(&self, trial: &Try, luck: &mut Luck) -> bool;
}

struct Luck(Pcg64Mcg);

impl Luck {
    fn normal(&mut self) -> f64 {
        let share = self.0.random_range(1e-12..1.0 - 1e-12);
        Normal::new(0.0, 1.0).unwrap().inverse_cdf(share)
    }

    fn happens(&mut self, share: f64) -> bool {
        self.0.random_range(0.0..1.0) < share
    }

    /// Between 300 and 300,000 a second.
    fn capacity_per_s(&mut self) -> f64 {
        300.0 * 1000.0_f64.powf(self.0.random_range(0.0..1.0))
    }
}

/// It holds up to a rate that differs a little from trial to trial; now and then something else
/// decides. A short trial ends before it is found out.
#[derive(Clone, Copy)]
struct Noisy {
    capacity_per_s: f64,
    spread: f64,
    hiccups: f64,
    short_flatters: f64,
}

/// Without noise; its capacity is still to be said.
const SHARP: Noisy = Noisy {
    capacity_per_s: 0.0,
    spread: 0.0,
    hiccups: 0.0,
    short_flatters: 0.0,
};

const NOISY: Noisy = Noisy {
    spread: 0.04,
    hiccups: 0.03,
    short_flatters: 0.10,
    ..SHARP
};

impl Noisy {
    fn carrying(self, capacity_per_s: f64) -> Self {
        Self {
            capacity_per_s,
            ..self
        }
    }
}

/// A server of this kind for each seed.
fn of_kind(kind: Noisy) -> impl Fn(&mut Luck) -> Box<dyn Server> {
    move |luck| Box::new(kind.carrying(luck.capacity_per_s()))
}

impl Server for Noisy {
    fn capacity_per_s(&self) -> f64 {
        self.capacity_per_s
    }

    fn holds(&self, trial: &Try, luck: &mut Luck) -> bool {
        let (spread, factor) = match trial.length {
            Length::Short => (2.0 * self.spread, 1.0 + self.short_flatters),
            Length::Long => (self.spread, 1.0),
        };
        let capacity = self.capacity_per_s * factor * (spread * luck.normal()).exp();
        trial.rate_per_s <= capacity && !luck.happens(self.hiccups)
    }
}

/// One that also fails between two shares of its capacity.
struct WithDip {
    above: Noisy,
    dip: (f64, f64),
}

impl Server for WithDip {
    fn capacity_per_s(&self) -> f64 {
        self.above.capacity_per_s
    }

    fn holds(&self, trial: &Try, luck: &mut Luck) -> bool {
        let share = trial.rate_per_s / self.above.capacity_per_s;
        let is_in_dip = self.dip.0 < share && share < self.dip.1;
        !is_in_dip && self.above.holds(trial, luck)
    }
}

/// One whose latency grows as that of a queue, measured with noise.
struct Queue {
    saturation_per_s: f64,
    noise: f64,
}

impl Queue {
    /// Times the latency without load.
    const SLO: f64 = 8.0;
}

impl Server for Queue {
    fn capacity_per_s(&self) -> f64 {
        self.saturation_per_s * (1.0 - 1.0 / Self::SLO)
    }

    fn holds(&self, trial: &Try, luck: &mut Luck) -> bool {
        let free = 1.0 - trial.rate_per_s / self.saturation_per_s;
        let noise = match trial.length {
            Length::Short => 1.5 * self.noise,
            Length::Long => self.noise,
        };
        free > 0.0 && (noise * luck.normal()).exp() / free < Self::SLO
    }
}

fn limits() -> Limits {
    Limits {
        begin_per_s: 100.0,
        rate_max_per_s: 1e7,
        budget_s: 900.0,
        short_s: 3.0,
        long_s: 10.0,
        requests_min: 1000.0,
        warm_up_s: 1.0,
        overhead_s: 2.0,
    }
}

fn run(server: &dyn Server, limits: Limits, luck: &mut Luck) -> Search {
    run_measured(server, limits, luck, |_, _, _| Vec::new())
}

/// `shares` says what is measured of a trial that held, or did not.
fn run_measured(
    server: &dyn Server,
    limits: Limits,
    luck: &mut Luck,
    shares: impl Fn(&Try, bool, &mut Luck) -> Vec<Share>,
) -> Search {
    run_trials(limits, |trial| {
        let holds = server.holds(trial, luck);
        let outcome = match holds {
            true => TrialOutcome::Holds,
            false => TrialOutcome::Fails,
        };
        (outcome, shares(trial, holds, luck))
    })
}

/// Outcomes by rate, without chance.
fn run_with(limits: Limits, mut outcome: impl FnMut(f64) -> TrialOutcome) -> Search {
    run_trials(limits, |trial| (outcome(trial.rate_per_s), Vec::new()))
}

/// To its end; each trial comes to what `of` says.
fn run_trials(limits: Limits, mut of: impl FnMut(&Try) -> (TrialOutcome, Vec<Share>)) -> Search {
    let overhead_s = limits.overhead_s;
    let mut search = Search::new(limits).unwrap();
    while let Step::Try(trial) = search.next() {
        let (outcome, shares) = of(&trial);
        search.record(outcome, shares, trial.seconds + overhead_s);
        assert!(search.spent_s() <= search.limits.budget_s);
        assert!(search.tried().len() < 1000);
    }
    search
}

/// What came of all seeds.
#[derive(Default)]
struct Campaign {
    held: usize,
    found: usize,
    confirmed: usize,
    by_shares: usize,
    widths: Vec<f64>,
    errors: Vec<f64>,
    spent_s: Vec<f64>,
}

/// A server that falls over: what does not hold has many slow requests, what holds has nearly none.
fn of_a_step(trial: &Try, holds: bool, luck: &mut Luck) -> Vec<Share> {
    let of = trial.rate_per_s * trial.seconds;
    let share = match holds {
        true => 0.002 * luck.0.random_range(0.0..1.0_f64),
        false => luck.0.random_range(0.1..0.9),
    };
    vec![Share {
        beyond: (share * of) as u64,
        of: of as u64,
        allowed: 0.01,
        bound_s: Some(0.05),
    }]
}

fn campaign(server: impl Fn(&mut Luck) -> Box<dyn Server>) -> Campaign {
    campaign_measured(server, |_, _, _| Vec::new())
}

fn campaign_measured(
    server: impl Fn(&mut Luck) -> Box<dyn Server>,
    shares: impl Fn(&Try, bool, &mut Luck) -> Vec<Share>,
) -> Campaign {
    let mut campaign = Campaign::default();
    for seed in 0..SEEDS {
        let mut luck = Luck(Pcg64Mcg::seed_from_u64(seed));
        let server = server(&mut luck);
        let finding = run_measured(&*server, limits(), &mut luck, &shares).finding();
        campaign.add(&finding, server.capacity_per_s());
    }
    campaign
}

impl Campaign {
    fn add(&mut self, finding: &SearchFinding, truth: f64) {
        let interval = finding.interval.unwrap();
        let error = finding.capacity_per_s.map(|found| found / truth - 1.0);
        self.held += usize::from(interval.contains(truth));
        self.found += usize::from(finding.bound == Bound::Found);
        self.confirmed += usize::from(finding.confirmed.is_some());
        self.by_shares += usize::from(finding.basis == Basis::Shares);
        self.widths.push((interval.high - interval.low) / truth);
        self.errors.extend(error);
        self.spent_s.push(finding.spent_s);
    }

    fn check(&self, name: &str) {
        let width = median(&self.widths).unwrap();
        println!(
            "{name}: held {} of {SEEDS}, median width {:.1} %, found {}, confirmed {}, median time \
             {:.0} s",
            self.held,
            width * 100.0,
            self.found,
            self.confirmed,
            median(&self.spent_s).unwrap(),
        );
        assert!(
            self.held * 100 >= 93 * SEEDS as usize,
            "{name}: {}",
            self.held
        );
        assert!(width <= WIDTH_MAX, "{name}: {width}");
    }
}

#[test]
fn a_sharp_bound() {
    campaign(of_kind(SHARP)).check("sharp");
    campaign_measured(of_kind(SHARP), of_a_step).check("sharp, a step");
}

#[test]
fn a_noisy_server() {
    campaign(of_kind(NOISY)).check("noisy");
    campaign_measured(of_kind(NOISY), of_a_step).check("noisy, a step");
}

#[test]
fn a_gradual_bound() {
    let gradual = Noisy {
        spread: 0.08,
        short_flatters: 0.05,
        ..SHARP
    };
    campaign(of_kind(gradual)).check("gradual");
}

#[test]
fn hiccups() {
    let interrupted = Noisy {
        spread: 0.01,
        hiccups: 0.10,
        ..SHARP
    };
    campaign(of_kind(interrupted)).check("hiccups");
    campaign_measured(of_kind(interrupted), of_a_step).check("hiccups, a step");
}

#[test]
fn a_queue() {
    let queue = |luck: &mut Luck| -> Box<dyn Server> {
        Box::new(Queue {
            saturation_per_s: luck.capacity_per_s(),
            noise: 0.3,
        })
    };
    campaign(queue).check("queue");
}

fn with_dip(luck: &mut Luck) -> WithDip {
    WithDip {
        above: Noisy {
            capacity_per_s: luck.capacity_per_s().max(2000.0),
            spread: 0.02,
            ..SHARP
        },
        dip: (0.2, 0.45),
    }
}

#[test]
fn a_dip_below_the_capacity() {
    campaign(|luck| Box::new(with_dip(luck))).check("dip");
}

#[test]
fn a_dip_is_reported() {
    let right = (0..100).filter(|seed| {
        let mut luck = Luck(Pcg64Mcg::seed_from_u64(*seed));
        let server = with_dip(&mut luck);
        let finding = run(&server, limits(), &mut luck).finding();
        let capacity_per_s = server.above.capacity_per_s;
        let is_in_dip = |dip: &Dip| {
            dip.low_per_s > 0.2 * capacity_per_s && dip.high_per_s < 0.45 * capacity_per_s
        };
        let is_said = is_noted(&finding, "not monotone");
        !finding.dips.is_empty() && finding.dips.iter().all(is_in_dip) && is_said
    });
    assert_eq!(right.count(), 100);
}

#[test]
fn no_dips_are_made_up() {
    let made_up = (0..100).filter(|seed| {
        let mut luck = Luck(Pcg64Mcg::seed_from_u64(*seed));
        let server = NOISY.carrying(luck.capacity_per_s());
        !run(&server, limits(), &mut luck).finding().dips.is_empty()
    });
    assert!(made_up.count() <= 2);
}

fn is_noted(finding: &SearchFinding, words: &str) -> bool {
    finding.notes.iter().any(|note| note.contains(words))
}

#[test]
fn a_budget_that_is_too_small_is_said() {
    let mut luck = Luck(Pcg64Mcg::seed_from_u64(1));
    for budget_s in [6.0, 60.0, 120.0] {
        let small = Limits {
            budget_s,
            ..limits()
        };
        let finding = run(&SHARP.carrying(5000.0), small, &mut luck).finding();
        assert_eq!(finding.bound, Bound::BudgetTooSmall);
        assert!(is_noted(&finding, "budget is too small"), "{finding:?}");
        let holds_truth = finding.interval.is_none_or(|one| one.contains(5000.0));
        assert!(holds_truth && finding.spent_s <= budget_s, "{finding:?}");
    }
}

#[test]
fn a_capacity_below_the_begin() {
    let mut luck = Luck(Pcg64Mcg::seed_from_u64(1));
    let low = Limits {
        begin_per_s: 10_000.0,
        budget_s: 3600.0,
        ..limits()
    };
    let finding = run(&SHARP.carrying(217.0), low, &mut luck).finding();
    assert_eq!(finding.bound, Bound::Found);
    assert!(finding.interval.unwrap().contains(217.0));
}

#[test]
fn a_server_that_holds_nothing() {
    let mut luck = Luck(Pcg64Mcg::seed_from_u64(1));
    let patient = Limits {
        budget_s: 1e6,
        requests_min: 1.0,
        ..limits()
    };
    let finding = run(&SHARP.carrying(0.0), patient, &mut luck).finding();
    assert_eq!(finding.bound, Bound::NoneHolds);
    assert_eq!(finding.interval, None);
}

#[test]
fn rates_that_may_not_be_tried() {
    let mut luck = Luck(Pcg64Mcg::seed_from_u64(1));
    let bounded = Limits {
        rate_max_per_s: 3000.0,
        ..limits()
    };
    let search = run(&SHARP.carrying(5000.0), bounded, &mut luck);
    let finding = search.finding();
    assert_eq!(finding.bound, Bound::AtLeast);
    assert!(
        search
            .tried()
            .iter()
            .all(|one| one.trial.rate_per_s <= 3000.0)
    );
    assert!(finding.spent_s < 300.0, "{finding:?}");
    assert!(is_noted(&finding, "were not to be tried"));
}

#[test]
fn a_client_that_is_the_limit() {
    let search = run_with(limits(), |rate_per_s| match rate_per_s {
        ..4000.0 => TrialOutcome::Holds,
        _ => TrialOutcome::ClientLimited,
    });
    let finding = search.finding();
    assert_eq!(finding.bound, Bound::AtLeast);
    let low = finding.interval.unwrap().low;
    assert!((2000.0..4000.0).contains(&low), "{finding:?}");
    assert!(is_noted(&finding, "client was the limit"));
    assert!(finding.spent_s < limits().budget_s / 2.0);
}

#[test]
fn a_client_that_is_the_limit_at_the_first_rate() {
    let limits = Limits {
        begin_per_s: 20_000.0,
        ..limits()
    };
    let search = run_with(limits.clone(), |rate_per_s| match rate_per_s {
        ..4000.0 => TrialOutcome::Holds,
        _ => TrialOutcome::ClientLimited,
    });
    let finding = search.finding();
    assert_eq!(finding.bound, Bound::AtLeast);
    assert!(is_noted(&finding, "client was the limit"));
    let search = run_with(limits.clone(), |_| TrialOutcome::ClientLimited);
    let finding = search.finding();
    assert!(is_noted(&finding, "the client is the limit at every rate"));
    assert!(finding.spent_s < limits.budget_s / 2.0);
}

#[test]
fn a_client_whose_limit_is_beyond_the_capacity() {
    let search = run_with(limits(), |rate_per_s| match rate_per_s {
        ..3000.0 => TrialOutcome::Holds,
        ..4500.0 => TrialOutcome::Fails,
        _ => TrialOutcome::ClientLimited,
    });
    let finding = search.finding();
    assert_eq!(finding.bound, Bound::Found);
    assert!(finding.interval.unwrap().contains(3000.0));
    assert!(finding.confirmed.is_some());
}

#[test]
fn discarded_trials_are_repeated_and_then_given_up() {
    let search = run_with(limits(), |_| TrialOutcome::Discarded);
    assert_eq!(search.tried().len(), DISCARDED_MAX as usize);
    assert_eq!(search.finding().bound, Bound::BudgetTooSmall);
    assert!(search.finding().notes[0].contains("say nothing about the server"));
    // One now and then does no harm.
    let mut number = 0;
    let search = run_with(limits(), |rate_per_s| {
        number += 1;
        match rate_per_s {
            _ if number % 4 == 0 => TrialOutcome::Discarded,
            ..3000.0 => TrialOutcome::Holds,
            _ => TrialOutcome::Fails,
        }
    });
    assert_eq!(search.finding().bound, Bound::Found);
}

#[test]
fn what_is_proven() {
    let mut luck = Luck(Pcg64Mcg::seed_from_u64(1));
    let search = run(&SHARP.carrying(5000.0), limits(), &mut luck);
    let confirmed = search.finding().confirmed.unwrap();
    assert!(confirmed.holds_per_s <= 5000.0 && confirmed.fails_per_s > 5000.0);
    assert_eq!((confirmed.held, confirmed.failed), (5, 1));
    assert_eq!(confirmed.minute_s, Some(60.0));
    // Of five that held and many more, with what something else may decide.
    assert!((0.9..1.0).contains(&confirmed.holds_next), "{confirmed:?}");
    let of_stage = |stage| {
        search
            .tried()
            .iter()
            .filter(move |one| one.trial.stage == stage)
    };
    assert!(of_stage(Stage::Confirm).count() >= 5);
    assert!(of_stage(Stage::Above).count() >= 1);
    assert_eq!(of_stage(Stage::Minute).count(), 1);
    // A step is asked for once, and the same until it is recorded.
    assert_eq!(search.next(), Step::Done);
    // The very rates that are named were tried.
    for seed in 0..10 {
        let mut luck = Luck(Pcg64Mcg::seed_from_u64(seed));
        let server = SHARP.carrying(luck.capacity_per_s());
        let search = run(&server, limits(), &mut luck);
        let confirmed = search.finding().confirmed.unwrap();
        for (stage, rate_per_s) in [
            (Stage::Confirm, confirmed.holds_per_s),
            (Stage::Above, confirmed.fails_per_s),
        ] {
            let trials = search.tried().iter().map(|one| one.trial);
            let mut of_stage = trials.filter(|one| one.stage == stage);
            let is_tried = of_stage.any(|one| one.rate_per_s == rate_per_s);
            assert!(is_tried, "{seed}: {confirmed:?}");
        }
    }
}

#[test]
fn limits_that_do_not_fit() {
    let changes: [fn(&mut Limits); 4] = [
        |it| it.begin_per_s = 0.0,
        |it| it.begin_per_s = 1e9,
        |it| it.budget_s = f64::NAN,
        |it| it.overhead_s = -1.0,
    ];
    for change in changes {
        let mut broken = limits();
        change(&mut broken);
        assert!(Search::new(broken).is_err());
    }
}

#[test]
fn rates_have_four_digits() {
    for (rate, written) in [
        (10_485.760_000_000_002, "10480"),
        (123_456.7, "123400"),
        (99.996, "99.99"),
        (100.0, "100"),
        (0.123_46, "0.1234"),
    ] {
        let rounded = four_digits(rate);
        assert_eq!(rounded.to_string(), written);
        assert_eq!(four_digits(rounded), rounded);
    }
}

#[test]
fn lengths_are_whole_milliseconds() {
    for (length, stage, rate_per_s, seconds) in [
        (Length::Short, Stage::Sweep, 307.7, "3.25"),
        (Length::Long, Stage::Narrow, 1e5, "10"),
    ] {
        let found = limits().seconds(length, stage, rate_per_s);
        assert_eq!(found.to_string(), seconds);
    }
}
