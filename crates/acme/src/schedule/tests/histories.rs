//! Years of an authority's behaviour in seconds.

use proptest::prelude::*;
use rand::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

use super::*;

/// Of certificates: those of an organisation, and those that everybody can get.
const LIVES_S: [u64; 7] = [
    6 * HOUR_S,
    DAY_S,
    3 * DAY_S,
    6 * DAY_S,
    45 * DAY_S,
    90 * DAY_S,
    398 * DAY_S,
];

/// An authority that counts what it is asked, and the server's whole life with it.
struct World {
    random: Pcg64Mcg,
    schedule: Schedule,
    all: Vec<String>,
    now: UnixTime,
    /// Of the certificate in service.
    valid: BTreeMap<String, Validity>,
    /// Orders under way, as their files would have them, each with what was issued.
    orders: BTreeMap<String, Option<Validity>>,
    is_up: bool,
    /// One in so many answers is a refusal.
    refuses_one_in: u64,
    /// One in so many answers to an order that is finalized does not arrive.
    stops_one_in: u64,
    life_s: u64,
    asked: Vec<(UnixTime, &'static str, String)>,
}

impl World {
    fn new(seed: u64) -> Self {
        let count = Pcg64Mcg::seed_from_u64(seed).random_range(1..=6);
        let names = (0..count).map(|it| format!("n{it}.d{}.example", it % 2));
        Self::with(names.collect(), seed)
    }

    fn with(all: Vec<String>, seed: u64) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let schedule = Schedule::new(&all, jitter(random.random()));
        Self {
            schedule,
            all,
            now: START,
            valid: BTreeMap::new(),
            orders: BTreeMap::new(),
            is_up: true,
            refuses_one_in: random.random_range(1..40),
            stops_one_in: random.random_range(2..40),
            life_s: LIVES_S[random.random_range(0..LIVES_S.len())],
            asked: Vec::new(),
            random,
        }
    }

    /// Does what is due; then time passes.
    fn turn(&mut self) {
        match self.schedule.passed(self.now) {
            Step::Register => {
                self.schedule.registering(self.now);
                self.ask("registration", "");
                match self.answer() {
                    None => self.schedule.registered(true),
                    Some(reason) => self.schedule.failed(None, reason, None, self.now),
                }
            }
            Step::Order(name) => self.order(&name),
            Step::Inquire(name) => match self.is_up {
                true => {
                    let window = self.window(&name);
                    self.schedule.inquired(&name, window, None, self.now);
                }
                false => {
                    let reason = Reason::Unreachable;
                    self.schedule.inquiry_failed(&name, reason, None, self.now);
                }
            },
            Step::Wait(until) => {
                assert!(until > self.now, "to wait is to wait");
                self.now = until;
            }
        }
        self.now = after(self.now, self.random.random_range(0..30));
        if self.random.random_range(0..50) == 0 {
            self.restart();
        }
        if self.random.random_range(0..60) == 0 {
            self.is_up = !self.is_up;
        }
    }

    fn order(&mut self, name: &str) {
        if !self.orders.contains_key(name) {
            self.schedule.order_ended(name);
        }
        self.schedule.ordering(name, self.now);
        let Err(reason) = self.go_on(name) else {
            return;
        };
        let is_kept = match reason {
            Reason::Unreachable | Reason::RateLimited => true,
            Reason::Refused => self.schedule.order_refused(name),
            Reason::Invalid => {
                self.ask("failed validation", name);
                false
            }
        };
        if !is_kept {
            self.orders.remove(name);
        }
        if !self.orders.contains_key(name) {
            self.schedule.order_ended(name);
        }
        self.schedule.failed(Some(name), reason, None, self.now);
    }

    /// Makes an order, or goes on with it, as far as the authority lets it.
    fn go_on(&mut self, name: &str) -> Result<(), Reason> {
        if self.is_up && !self.orders.contains_key(name) {
            self.ask("order", name);
        }
        if let Some(reason) = self.answer() {
            // What is issued does not become invalid.
            let is_issued = matches!(self.orders.get(name), Some(Some(_)));
            return Err(match reason {
                Reason::Invalid if is_issued => Reason::Refused,
                reason => reason,
            });
        }
        let issued = *self.orders.entry(name.to_owned()).or_default();
        self.schedule.finalized(name, self.now);
        self.arrives()?;
        let validity = match issued {
            Some(validity) => validity,
            None => self.issue(name),
        };
        self.schedule.granted(name, self.now);
        self.arrives()?;
        self.orders.remove(name);
        self.valid.insert(name.to_owned(), validity);
        self.schedule.issued(name, validity, self.now);
        Ok(())
    }

    fn issue(&mut self, name: &str) -> Validity {
        let validity = lasting(self.now, self.life_s);
        self.ask("certificate", name);
        self.orders.insert(name.to_owned(), Some(validity));
        validity
    }

    /// Whether an answer about a finalized order arrives.
    fn arrives(&mut self) -> Result<(), Reason> {
        match self.random.random_range(0..self.stops_one_in) {
            0 => Err(Reason::Unreachable),
            _ => Ok(()),
        }
    }

    fn answer(&mut self) -> Option<Reason> {
        if !self.is_up {
            return Some(Reason::Unreachable);
        }
        let refuses = self.random.random_range(0..self.refuses_one_in) == 0;
        let reasons = [Reason::Invalid, Reason::Refused, Reason::RateLimited];
        refuses.then(|| reasons[self.random.random_range(0..3)])
    }

    /// Sensible, past, or none.
    fn window(&mut self, name: &str) -> Option<Window> {
        let validity = self.valid.get(name)?;
        let life = validity.to.since(validity.from);
        let (start, end) = match self.random.random_range(0..40) {
            0 => (UnixTime(0), UnixTime(9)), // revoked
            1..30 => (
                validity.from.plus(life / 2),
                validity.from.plus(life * 3 / 4),
            ),
            _ => return None,
        };
        Some(Window { start, end })
    }

    fn ask(&mut self, what: &'static str, name: &str) {
        self.asked.push((self.now, what, name.to_owned()));
    }

    fn restart(&mut self) {
        let kept = serde_json::to_string(&self.schedule).unwrap();
        let kept: Schedule = serde_json::from_str(&kept).unwrap();
        self.schedule = kept.resumed(&self.all, jitter(self.random.random()));
        for name in &self.all {
            self.schedule.loaded(name, self.valid.get(name).copied());
        }
    }

    /// The most of these in any such time.
    fn most(&self, what: &str, name: Option<&str>, window_s: u64) -> usize {
        let is_it =
            |it: &&(UnixTime, &str, String)| it.1 == what && name.is_none_or(|name| it.2 == name);
        let times: Vec<u64> = self.asked.iter().filter(is_it).map(|it| it.0.0).collect();
        assert!(times.is_sorted(), "{what}: {times:?}");
        let of = |(index, from): (usize, &u64)| {
            times[index..].partition_point(|time| *time < from + window_s)
        };
        times.iter().enumerate().map(of).max().unwrap_or(0)
    }
}

fn jitter(seed: u64) -> Draw {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    Box::new(move || random.random())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    /// Whatever an authority does, and however often the server is started: the limits of docs/acme.md are kept,
    /// which are below those that Let's Encrypt publishes, and waiting ends.
    #[test]
    fn no_limit_is_exceeded(seed: u64) {
        let mut world = World::new(seed);
        for _ in 0..400 {
            world.turn();
        }
        prop_assert!(world.most("registration", None, 3 * HOUR_S) <= 5);
        prop_assert!(world.most("order", None, 3 * HOUR_S) <= 200);
        // 5 where they live for six days, as many as Let's Encrypt allows; 4 where they live for longer.
        let by_limit = (14 * DAY_S / world.life_s).max(4);
        let by_life = 7 * DAY_S * 3 / (2 * world.life_s);
        for name in &world.all {
            let most = world.most("certificate", Some(name), 7 * DAY_S) as u64;
            prop_assert!(most <= by_limit + by_life, "{most}");
            prop_assert!(world.most("failed validation", Some(name), HOUR_S) <= 4);
        }
    }

    /// A clock that jumps back and forth leads to no panic and to no endless wait.
    #[test]
    fn clocks_may_jump(seed: u64, jumps in prop::collection::vec(any::<u32>(), 1..20)) {
        let mut world = World::new(seed);
        for jump in jumps {
            world.now = UnixTime(u64::from(jump));
            for _ in 0..20 {
                if let Step::Wait(until) = world.schedule.passed(world.now) {
                    prop_assert!(until <= world.now.plus(limits::PAUSE_MAX + Duration::from_secs(1)));
                }
                world.turn();
            }
        }
    }
}

/// With an authority that grants everything at once, the limits alone keep names waiting.
#[test]
fn many_names_wait_for_the_limits_of_an_account_and_of_a_domain() {
    fn after_hours(names: Vec<String>, hours: u64) -> World {
        let mut world = World::with(names, 1);
        world.life_s = 90 * DAY_S;
        (world.refuses_one_in, world.stops_one_in) = (u64::MAX, u64::MAX);
        while world.now < after(START, hours * HOUR_S) {
            world.is_up = true;
            world.turn();
        }
        world
    }
    let apart = (0..300).map(|it| format!("www.d{it}.example")).collect();
    assert_eq!(after_hours(apart, 6).most("order", None, 3 * HOUR_S), 200);
    let of_one_domain = (0..60).map(|it| format!("n{it}.example.org")).collect();
    assert_eq!(after_hours(of_one_domain, 24).valid.len(), 40);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))] // a year each, or fifty short lives

    /// With an authority that is well, or is not for some days of a year, no certificate ends before it is renewed.
    #[test]
    fn no_certificate_ends(
        seed: u64,
        down_days in 0_u64..20,
        life_s in prop::sample::select(vec![6 * HOUR_S, DAY_S, 90 * DAY_S]),
    ) {
        let mut world = World::new(seed);
        world.life_s = life_s;
        (world.refuses_one_in, world.stops_one_in) = (u64::MAX, 100);
        let down = after(START, 55 * DAY_S)..after(START, (55 + down_days) * DAY_S);
        while world.now < after(START, (50 * life_s).min(400 * DAY_S)) {
            world.is_up = !down.contains(&world.now);
            world.turn();
            if world.now > after(START, DAY_S) {
                for name in &world.all {
                    let valid = world.valid.get(name);
                    prop_assert!(valid.is_some_and(|it| it.to > world.now), "{name}");
                }
            }
        }
        // And no more than needed: revocations apart, each is renewed at half of its life or later.
        let count = world.asked.iter().filter(|it| it.1 == "certificate").count();
        prop_assert!(count >= 4 * world.all.len());
    }
}
