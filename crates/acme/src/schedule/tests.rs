//! Years of an authority's behaviour in seconds: the clock is an argument.

use proptest::prelude::*;
use rand::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

use super::*;

const HOUR_S: u64 = 3600;
const DAY_S: u64 = 24 * HOUR_S;
const START: UnixTime = UnixTime(1_800_000_000);

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|it| (*it).to_owned()).collect()
}

fn fixed(value: f64) -> Draw {
    Box::new(move || value)
}

fn days(from: UnixTime, count: u64) -> Validity {
    lasting(from, count * DAY_S)
}

fn lasting(from: UnixTime, life_s: u64) -> Validity {
    let to = after(from, life_s);
    Validity { from, to }
}

fn after(time: UnixTime, seconds: u64) -> UnixTime {
    UnixTime(time.0 + seconds)
}

/// One that has an account.
fn registered(all: &[&str]) -> Schedule {
    let mut it = Schedule::new(&names(all), fixed(0.5));
    it.registered(true);
    it
}

fn order(name: &str) -> Step {
    Step::Order(name.to_owned())
}

#[test]
fn first_an_account_then_an_order_then_an_inquiry_then_a_renewal() {
    let mut it = Schedule::new(&names(&["a.example"]), fixed(0.0));
    assert_eq!(it.passed(START), Step::Register);
    it.registering(START);
    it.registered(true);
    assert_eq!(it.passed(START), order("a.example"));
    it.ordering("a.example", START);
    it.issued("a.example", days(START, 90), START);
    assert_eq!(it.passed(START), Step::Inquire("a.example".into()));
    it.inquired("a.example", None, None, START);
    assert_eq!(it.passed(START), Step::Wait(after(START, 6 * HOUR_S)));
    // The authority has no such service: at two thirds of the life.
    assert_eq!(it.renew_at("a.example"), Some(after(START, 60 * DAY_S)));
    assert_eq!(it.passed(after(START, 60 * DAY_S)), order("a.example"));
}

#[test]
fn renewal_is_in_the_window_that_the_authority_suggests_and_drawn_once() {
    let mut it = registered(&["a"]);
    it.issued("a", days(START, 90), START);
    let window = Window {
        start: after(START, 50 * DAY_S),
        end: after(START, 52 * DAY_S),
    };
    it.inquired("a", Some(window), Some(Duration::from_secs(5)), START);
    assert_eq!(it.renew_at("a"), Some(after(START, 51 * DAY_S)));
    it.draw = fixed(0.9);
    it.inquired("a", Some(window), None, START);
    assert_eq!(it.renew_at("a"), Some(after(START, 51 * DAY_S)));
    // Whatever it says about when to ask again is bounded.
    it.inquired("a", Some(window), Some(Duration::from_secs(5)), START);
    assert_eq!(it.passed(START), Step::Wait(after(START, 600)));
    it.inquired("a", Some(window), Some(Duration::from_secs(1 << 40)), START);
    assert_eq!(it.passed(START), Step::Wait(after(START, DAY_S)));
}

#[test]
fn what_counts_towards_a_limit_is_remembered_though_the_clock_was_not_set_for_a_moment() {
    let mut ledger = Ledger::default();
    for _ in 0..limits::ORDERS.count {
        ledger.add(Event::Order, "a", START);
    }
    let allows = |ledger: &Ledger| ledger.allows(limits::ORDERS, Event::Order, |_| true);
    let at = allows(&ledger);
    assert!(at > START);
    ledger.passed(UnixTime(60)); // the machine has started, and does not know the time yet
    ledger.passed(START);
    assert_eq!(allows(&ledger), at);
}

#[test]
fn a_revoked_certificate_is_replaced_at_once_and_a_late_window_is_not_obeyed_to_the_end() {
    let mut it = registered(&["a"]);
    it.issued("a", days(START, 90), START);
    let past = Window {
        start: UnixTime(START.0 - 2 * DAY_S),
        end: UnixTime(START.0 - DAY_S),
    };
    it.inquired("a", Some(past), None, START);
    assert_eq!(it.passed(START), order("a"));
    let late = Window {
        start: after(START, 90 * DAY_S),
        end: after(START, 99 * DAY_S),
    };
    it.inquired("a", Some(late), None, START);
    assert_eq!(it.renew_at("a"), Some(after(START, 81 * DAY_S)));
}

/// As those of an organisation's own authority, which allows as many as anybody wants.
#[test]
fn certificates_of_a_day_are_renewed_for_weeks() {
    let mut it = registered(&["a"]);
    let mut now = START;
    for _ in 0..40 {
        assert_eq!(it.passed(now), order("a"));
        it.ordering("a", now);
        it.issued("a", days(now, 1), now);
        it.inquired("a", None, Some(limits::INQUIRY_MOST), now);
        let Step::Wait(until) = it.passed(now) else {
            panic!("nothing is due");
        };
        assert!(until < after(now, DAY_S), "it would end");
        now = until;
    }
    // One that is lost is ordered anew, though there were ten in a week.
    it.loaded("a", None);
    assert_eq!(it.passed(now), order("a"));
}

#[test]
fn the_limit_on_certificates_holds_while_the_last_one_has_a_third_of_its_life() {
    let past = Window {
        start: UnixTime(START.0 - 2 * DAY_S),
        end: UnixTime(START.0 - DAY_S),
    };
    let long_ago = UnixTime(START.0 - 99 * DAY_S);
    for (certificate, next) in [
        (days(START, 90), 7 * DAY_S + 1),
        (days(START, 6), 4 * DAY_S),
        (days(long_ago, 6), 3 * DAY_S + 1), // the clock is wrong
    ] {
        let mut it = registered(&["a"]);
        for _ in 0..4 {
            it.issued("a", certificate, START);
        }
        it.inquired("a", Some(past), None, START); // they are revoked
        assert_eq!(it.next_try(Some("a")), after(START, next));
    }
}

#[test]
fn a_certificate_that_ends_before_another_one_may_be_ordered() {
    let mut it = registered(&["a"]);
    let certificate = days(START, 1);
    it.issued("a", certificate, START);
    assert_eq!(it.ends_unrenewed("a", START), None);
    let late = after(START, 20 * HOUR_S);
    let said = Some(Duration::from_secs(5 * HOUR_S));
    it.failed(Some("a"), Reason::RateLimited, said, late);
    assert_eq!(it.ends_unrenewed("a", late), Some(certificate.to));
}

#[test]
fn an_authority_that_is_down_is_asked_less_and_less_for_all_names() {
    let mut it = registered(&["a", "b"]);
    let (mut now, mut pauses) = (START, Vec::new());
    for _ in 0..8 {
        assert!(matches!(it.passed(now), Step::Order(_)));
        it.ordering("a", now);
        it.failed(Some("a"), Reason::Unreachable, None, now);
        let Step::Wait(until) = it.passed(now) else {
            panic!("both names wait");
        };
        pauses.push(until.since(now).as_secs());
        now = until;
    }
    assert_eq!(pauses, [60, 120, 240, 480, 960, 1920, 3600, 3600]);
    it.issued("a", days(now, 90), now);
    assert_eq!(it.passed(now), order("b"), "it is back");
}

/// The authority has a fault at the order of one name, or at what it says of one certificate.
#[test]
fn a_name_at_which_the_authority_always_fails_keeps_no_other_from_its_certificate() {
    let mut it = registered(&["a", "b", "c"]);
    let mut now = START;
    let (mut ends, mut asked) = (BTreeMap::new(), BTreeMap::new());
    while now < after(START, 100 * DAY_S) {
        match it.passed(now) {
            Step::Order(name) if name == "a" => {
                it.ordering("a", now);
                it.failed(Some("a"), Reason::Unreachable, None, now);
            }
            Step::Order(name) => {
                it.ordering(&name, now);
                it.issued(&name, days(now, 6), now);
                ends.insert(name, after(now, 6 * DAY_S));
            }
            Step::Inquire(name) if name == "b" => {
                it.inquiry_failed("b", Reason::Unreachable, None, now);
            }
            Step::Inquire(name) => {
                it.inquired(&name, None, None, now);
                asked.insert(name, now);
            }
            Step::Wait(until) => now = until,
            Step::Register => panic!("there is an account"),
        }
        if now > after(START, DAY_S) {
            assert!(ends["b"] > now && ends["c"] > now, "none ends");
            assert!(now.since(asked["c"]).as_secs() < DAY_S, "c is asked for");
        }
    }
}

#[test]
fn a_name_that_is_refused_holds_up_itself_alone() {
    let mut it = registered(&["a", "b"]);
    it.ordering("a", START);
    it.failed(Some("a"), Reason::Refused, None, START);
    assert_eq!(it.passed(START), order("b"));
    it.ordering("b", START);
    it.issued("b", days(START, 90), START);
    it.inquired("b", None, None, START);
    assert_eq!(it.passed(START), Step::Wait(after(START, 300)));
    assert_eq!((it.failures_of("a"), it.failures_of("b")), (1, 0));
    assert_eq!(it.next_try(Some("a")), after(START, 300));
    assert_eq!(it.next_try(None), UnixTime(0), "the authority has answered");
}

#[test]
fn what_the_authority_says_about_when_to_try_again_holds() {
    for (reason, said, waits) in [
        (Reason::RateLimited, Some(9000), 9000),
        (Reason::RateLimited, None, HOUR_S),
        (Reason::RateLimited, Some(1), HOUR_S),
        (Reason::Unreachable, Some(500), 500),
        (Reason::Refused, Some(1 << 40), 7 * DAY_S),
    ] {
        let mut it = registered(&["a"]);
        it.ordering("a", START);
        it.failed(Some("a"), reason, said.map(Duration::from_secs), START);
        assert_eq!(
            it.passed(START),
            Step::Wait(after(START, waits)),
            "{reason:?}"
        );
    }
}

#[test]
fn an_order_that_is_gone_on_with_is_no_new_one() {
    let mut it = registered(&["a"]);
    for round in 0..limits::ORDERS.count as u64 + 10 {
        it.ordering("a", after(START, round));
        it.failed(
            Some("a"),
            Reason::Unreachable,
            None,
            UnixTime(START.0 - 9999),
        );
    }
    assert_eq!(it.passed(after(START, 999)), order("a"));
}

#[test]
fn a_clock_that_is_set_back_stops_nothing_for_longer_than_a_limit() {
    let mut it = registered(&["a"]);
    let future = after(START, 10_000 * DAY_S);
    for _ in 0..4 {
        it.ordering("a", future);
        it.failed(Some("a"), Reason::Invalid, None, future);
    }
    let Step::Wait(until) = it.passed(START) else {
        panic!("it waits");
    };
    assert!(until <= after(START, 7 * DAY_S));
    assert_eq!(it.passed(after(START, 7 * DAY_S + 1)), order("a"));
}

#[test]
fn a_restart_forgets_nothing() {
    let mut it = registered(&["a"]);
    for round in 0..4 {
        let now = after(START, round * 60);
        it.ordering("a", now);
        it.order_ended("a");
        it.failed(Some("a"), Reason::Invalid, None, now);
    }
    let kept = serde_json::to_string(&it).unwrap();
    let mut other: Schedule = serde_json::from_str(&kept).unwrap();
    other = other.resumed(&names(&["a", "b"]), fixed(0.5));
    other.loaded("a", None);
    let now = after(START, 200);
    assert_eq!(other.passed(now), order("b"));
    other.ordering("b", now);
    other.failed(Some("b"), Reason::Refused, None, now);
    assert!(matches!(other.passed(now), Step::Wait(_)));
}

#[test]
fn names_of_a_domain() {
    for (name, of) in [
        ("www.example.org", "example.org"),
        ("a.b.example.org", "example.org"),
        ("example.org", "example.org"),
        ("localhost", "localhost"),
    ] {
        assert_eq!(domain(name), of);
    }
}

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
    is_up: bool,
    /// One in so many answers is a refusal.
    refuses_one_in: u64,
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
            is_up: true,
            refuses_one_in: random.random_range(1..40),
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
        self.schedule.ordering(name, self.now);
        if self.is_up {
            self.ask("order", name);
        }
        match self.answer() {
            None => {
                let validity = lasting(self.now, self.life_s);
                self.ask("certificate", name);
                self.valid.insert(name.to_owned(), validity);
                self.schedule.issued(name, validity, self.now);
            }
            Some(reason) => {
                if reason == Reason::Invalid {
                    self.ask("failed validation", name);
                }
                self.schedule.order_ended(name);
                self.schedule.failed(Some(name), reason, None, self.now);
            }
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
        let times: Vec<_> = self.asked.iter().filter(is_it).map(|it| it.0.0).collect();
        let of = |from: &u64| {
            let inside = |time: &&u64| (*from..from + window_s).contains(*time);
            times.iter().filter(inside).count()
        };
        times.iter().map(of).max().unwrap_or(0)
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
        (world.life_s, world.refuses_one_in) = (90 * DAY_S, u64::MAX);
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
        world.refuses_one_in = u64::MAX;
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
