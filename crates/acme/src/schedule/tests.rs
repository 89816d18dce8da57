//! What is asked of an authority, and when: the clock is an argument.

mod former;
mod histories;
mod jitter;
mod limited;

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

/// The machine has started, and does not know the time yet.
const NOT_SET: UnixTime = UnixTime(60);

#[test]
fn what_counts_towards_a_limit_is_remembered_though_the_clock_was_not_set_for_a_moment() {
    let mut it = registered(&["a"]);
    for _ in 0..limits::ORDERS.count {
        it.ledger.add(Event::Order, "a", START);
    }
    let at = it.next_try(Some("a"));
    assert!(at > START);
    it.passed(NOT_SET);
    it.passed(START);
    assert_eq!(it.next_try(Some("a")), at);
}

#[test]
fn a_pause_is_no_longer_because_the_clock_was_ahead() {
    let ahead = after(START, 10_000 * DAY_S);
    for (reason, waits) in [(Reason::Unreachable, 60), (Reason::Refused, 300)] {
        let mut it = registered(&["a"]);
        it.failed(Some("a"), reason, None, ahead);
        let until = after(START, waits);
        assert_eq!(it.passed(START), Step::Wait(until), "{reason:?}");
        assert_eq!(it.passed(after(START, 9)), Step::Wait(until), "{reason:?}");
        assert_eq!(it.passed(until), order("a"), "{reason:?}");
    }
}

#[test]
fn a_pause_is_no_shorter_because_the_clock_was_not_set() {
    let said = Some(Duration::from_secs(9000));
    let until = after(START, 9000);
    // It was not set when the authority said it.
    let mut it = registered(&["a"]);
    it.failed(Some("a"), Reason::RateLimited, said, NOT_SET);
    assert_eq!(it.passed(START), Step::Wait(until));
    assert_eq!(it.passed(after(START, 9)), Step::Wait(until));
    assert_eq!(it.passed(until), order("a"));
    // It was not set for a moment after that, and the pause is longer than a week of that time.
    let mut it = registered(&["a"]);
    it.failed(Some("a"), Reason::RateLimited, said, START);
    assert!(matches!(it.passed(NOT_SET), Step::Wait(_)));
    assert_eq!(it.passed(after(START, 9)), Step::Wait(until));
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

/// They are lost, or cannot be used: the authority has counted them all the same.
#[test]
fn certificates_that_are_issued_and_do_not_arrive_count_once_for_each_order() {
    let mut it = registered(&["a"]);
    for round in 0..4 {
        let now = after(START, round * HOUR_S);
        it.ordering("a", now);
        it.finalized("a", now);
        it.granted("a", now);
        // A restart goes on with the order. What it has got does not hold it up.
        let kept = serde_json::to_string(&it).unwrap();
        it = serde_json::from_str(&kept).unwrap();
        it.finalized("a", after(now, 60));
        it.granted("a", after(now, 60));
        assert_eq!(it.passed(after(now, 60)), order("a"));
        it.order_ended("a");
    }
    assert_eq!(it.next_try(Some("a")), after(START, 7 * DAY_S + 1));
}

#[test]
fn first_certificates_that_do_not_arrive_count_for_their_domain() {
    let count = limits::FIRST_CERTIFICATES_OF_DOMAIN.count;
    let all: Vec<_> = (0..=count).map(|it| format!("n{it}.example.org")).collect();
    let mut it = Schedule::new(&all, fixed(0.5));
    it.registered(true);
    for name in &all[..count] {
        it.ordering(name, START);
        it.granted(name, START);
        it.order_ended(name);
    }
    assert_eq!(it.next_try(Some(&all[0])), UnixTime(0), "it had its first");
    let last = it.next_try(Some(&all[count]));
    assert_eq!(last, after(START, 7 * DAY_S + 1));
}

#[test]
fn an_order_whose_certificate_may_exist_is_gone_on_with_for_some_refusals() {
    let mut it = registered(&["a"]);
    it.ordering("a", START);
    assert!(!it.order_refused("a"), "there is no certificate yet");
    for _ in 0..2 {
        it.order_ended("a");
        it.ordering("a", START);
        it.finalized("a", START);
        let mut refusals = 1;
        while it.order_refused("a") {
            refusals += 1;
        }
        assert_eq!(refusals, limits::REFUSALS_OF_ORDER);
    }
}

#[test]
fn an_order_is_overdue_a_week_after_it_was_finalized_by_a_clock_that_is_set() {
    for (finalized, seen, until) in [
        (START, START, 7 * DAY_S),
        (NOT_SET, START, 7 * DAY_S),
        (after(START, 99 * DAY_S), START, 7 * DAY_S), // the clock was ahead
        (START, after(START, DAY_S), 6 * DAY_S),
    ] {
        let mut it = registered(&["a"]);
        it.ordering("a", finalized);
        it.finalized("a", finalized);
        it.passed(seen);
        it.granted("a", seen); // it is gone on with
        let overdue = after(seen, until);
        assert!(!it.order_is_overdue("a", UnixTime(overdue.0 - 1)));
        assert!(it.order_is_overdue("a", overdue));
        it.order_ended("a");
        assert!(!it.order_is_overdue("a", overdue));
    }
}

#[test]
fn an_order_that_is_not_finalized_is_overdue_a_week_after_it_was_made_by_a_clock_that_is_set() {
    for (ordered, seen, until) in [
        (START, START, 7 * DAY_S),
        (NOT_SET, START, 7 * DAY_S),
        (after(START, 99 * DAY_S), START, 7 * DAY_S), // the clock was ahead
        (START, after(START, DAY_S), 6 * DAY_S),
    ] {
        let mut it = registered(&["a"]);
        it.ordering("a", ordered);
        it.passed(seen);
        it.ordering("a", seen); // it is gone on with
        let overdue = after(seen, until);
        assert!(!it.order_is_overdue("a", UnixTime(overdue.0 - 1)));
        assert!(it.order_is_overdue("a", overdue));
        it.finalized("a", overdue);
        assert!(!it.order_is_overdue("a", overdue), "it has another week");
        it.order_ended("a");
        it.ordering("a", overdue);
        assert!(!it.order_is_overdue("a", overdue), "another one");
    }
}

/// Those of six days would end while a week is waited for.
#[test]
fn an_order_is_overdue_after_a_part_of_the_life_of_the_certificate_that_it_replaces() {
    for (certificate, until) in [
        (lasting(START, 8 * HOUR_S), HOUR_S),
        (days(START, 6), 18 * HOUR_S),
        (days(START, 90), 7 * DAY_S),
    ] {
        let mut it = registered(&["a"]);
        it.issued("a", certificate, START);
        for is_finalized in [false, true] {
            it.ordering("a", START);
            if is_finalized {
                it.finalized("a", START);
            }
            let overdue = after(START, until);
            assert!(!it.order_is_overdue("a", UnixTime(overdue.0 - 1)));
            assert!(it.order_is_overdue("a", overdue));
        }
    }
}

/// Its file says nothing of when it was made.
#[test]
fn an_order_of_an_earlier_version_is_gone_on_with_for_a_week() {
    let mut it = registered(&["a"]);
    it.ordering("a", START);
    let mut kept = serde_json::to_value(&it).unwrap();
    let all = kept.as_object_mut().unwrap();
    for member in ["new_orders", "former"] {
        assert!(all.remove(member).is_some(), "{member}");
    }
    let name = kept["names"]["a"].as_object_mut().unwrap();
    for member in ["ordered_at", "faults"] {
        assert!(name.remove(member).is_some(), "{member}");
    }
    let mut it: Schedule = serde_json::from_value(kept).unwrap();
    let now = after(START, 99 * DAY_S);
    assert!(!it.order_is_overdue("a", now));
    it.passed(now);
    let overdue = after(now, 7 * DAY_S);
    assert!(!it.order_is_overdue("a", UnixTime(overdue.0 - 1)));
    assert!(it.order_is_overdue("a", overdue));
}

#[test]
fn how_often_an_authority_has_failed_at_a_name_counts_since_its_last_certificate() {
    let mut it = registered(&["a", "b"]);
    for failures in 1..=4 {
        it.ordering("a", START);
        it.failed(Some("a"), Reason::Unreachable, None, START);
        it.issued("b", days(START, 90), START);
        it.order_ended("a");
        let kept = serde_json::to_string(&it).unwrap();
        it = serde_json::from_str(&kept).unwrap();
        assert_eq!(it.has_failed_often("a"), failures >= 3, "{failures}");
        assert!(!it.has_failed_often("b"));
    }
    it.issued("a", days(START, 90), START);
    assert!(!it.has_failed_often("a"));
}

/// With two hours left, one of twelve would be too long.
#[test]
fn pauses_of_a_certificate_of_hours_are_a_part_of_its_life() {
    for (certificate, longest) in [
        (lasting(START, 6 * HOUR_S), 2700),
        (lasting(START, 1800), 300),
        (days(START, 90), 12 * HOUR_S),
    ] {
        let mut it = registered(&["a"]);
        it.issued("a", certificate, START);
        for failures in 0..12 {
            it.failed(Some("a"), Reason::Refused, None, START);
            let pause = Duration::from_secs((300 << failures).min(longest));
            assert_eq!(it.names["a"].attempts.pause, pause);
        }
    }
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
