//! Names that are left out of the options for a while, and come back.

use super::*;

/// The same after a restart with these names.
fn restarted(it: &Schedule, all: &[&str]) -> Schedule {
    let kept = serde_json::to_string(it).unwrap();
    let kept: Schedule = serde_json::from_str(&kept).unwrap();
    kept.resumed(&names(all), fixed(0.5))
}

/// Its pause was forgotten: the authority was asked again at once.
#[test]
fn a_name_that_comes_back_waits_for_as_long_as_the_authority_has_said() {
    let mut it = registered(&["a", "b"]);
    let until = after(START, 6 * DAY_S);
    it.ordering("a", START);
    let said = Some(until.since(START));
    it.failed(Some("a"), Reason::RateLimited, said, START);
    it = restarted(&it, &["b"]);
    let later = after(START, 60);
    assert_eq!(it.passed(later), order("b"));
    assert_eq!(
        (it.failures_of("a"), it.failures()),
        (0, 0),
        "not configured"
    );
    it = restarted(&it, &["a", "b"]);
    assert_eq!(it.next_try(Some("a")), until);
    assert_eq!(it.failures_of("a"), 1);
    // Once the pause is over there is nothing to remember.
    it = restarted(&it, &["b"]);
    it.passed(after(START, 8 * DAY_S));
    assert!(it.former.is_empty());
}

/// The first refusal ended its order, and its key was lost with that.
#[test]
fn the_certificate_of_a_name_that_comes_back_may_still_exist() {
    let mut it = registered(&["a", "b"]);
    it.ordering("a", START);
    it.finalized("a", START);
    it = restarted(&it, &["b"]);
    it.passed(after(START, DAY_S));
    it = restarted(&it, &["a", "b"]);
    assert!(it.certificate_may_exist("a"));
    assert!(it.order_refused("a"), "it is asked again");
    assert!(it.order_is_overdue("a", after(START, 7 * DAY_S)));
    // As long as an order is gone on with.
    it = restarted(&it, &["b"]);
    it.passed(after(START, 7 * DAY_S - 1));
    assert_eq!(it.former.len(), 1);
    it.passed(after(START, 7 * DAY_S));
    assert!(it.former.is_empty());
}

#[test]
fn names_with_nothing_to_remember_are_forgotten() {
    let mut it = registered(&["a", "b"]);
    it.issued("a", days(START, 90), START);
    it = restarted(&it, &["b"]);
    it.passed(START);
    assert!(it.former.is_empty());
}

#[test]
fn of_many_former_names_those_with_the_longest_pauses_are_remembered() {
    let all: Vec<String> = (0..150).map(|it| format!("n{it}")).collect();
    let mut it = Schedule::new(&all, fixed(0.5));
    for (hours, name) in (1..).zip(&all) {
        let said = Some(Duration::from_secs(hours * HOUR_S));
        it.failed(Some(name), Reason::RateLimited, said, START);
    }
    let it = restarted(&it, &["a"]);
    assert_eq!(it.former.len(), limits::FORMER_NAMES_MAX);
    for (name, is_there) in [("n49", false), ("n50", true), ("n149", true)] {
        assert_eq!(it.former.contains_key(name), is_there, "{name}");
    }
}
