//! New orders that an authority refuses for a limit, which may be one on an account or one on a name.

use super::*;

/// Names of as many domains.
fn apart(count: usize) -> Vec<String> {
    (0..count).map(|it| format!("www.d{it}.example")).collect()
}

/// The authority makes no order for this name, since a limit is reached.
fn limited(it: &mut Schedule, name: &str, said: Option<Duration>, now: UnixTime) {
    it.ordering(name, now);
    it.order_ended(name);
    it.failed(Some(name), Reason::RateLimited, said, now);
}

fn issue(it: &mut Schedule, name: &str, now: UnixTime) {
    it.ordering(name, now);
    it.issued(name, days(now, 90), now);
    it.inquired(name, None, None, now);
}

/// Each of a hundred names got a refusal of its own, all within a few minutes.
#[test]
fn a_limit_on_an_account_is_run_into_by_few_of_its_names() {
    let mut it = Schedule::new(&apart(100), fixed(0.5));
    it.registered(true);
    let (mut now, opens) = (START, after(START, 3 * HOUR_S));
    let mut refused = Vec::new();
    while now < opens {
        match it.passed(now) {
            Step::Order(name) => {
                limited(&mut it, &name, Some(opens.since(now)), now);
                refused.push(name);
            }
            Step::Wait(until) => now = until,
            step => panic!("{step:?}"),
        }
    }
    assert_eq!(refused.len(), 11, "{refused:?}");
    // It makes orders again: nobody waits any more.
    for round in 0..80 {
        let Step::Order(name) = it.passed(now) else {
            panic!("{round}: {:?}", it.passed(now));
        };
        issue(&mut it, &name, now);
    }
}

#[test]
fn a_limit_on_a_name_holds_up_the_others_for_minutes() {
    let mut it = registered(&["a", "b", "c"]);
    let week = Duration::from_secs(7 * DAY_S);
    limited(&mut it, "a", Some(week), START);
    let kept = serde_json::to_string(&it).unwrap(); // a restart forgets nothing
    it = serde_json::from_str(&kept).unwrap();
    let later = after(START, 300);
    assert_eq!(it.passed(START), Step::Wait(later));
    assert_eq!(it.passed(later), order("b"));
    issue(&mut it, "b", later);
    assert_eq!(it.passed(later), order("c"), "at once");
    issue(&mut it, "c", later);
    assert_eq!(it.next_try(Some("a")), START.plus(week));
}

#[test]
fn each_other_name_that_is_refused_makes_the_pause_of_all_longer() {
    let mut it = registered(&["a", "b", "c", "d", "e"]);
    let mut now = START;
    for (name, pause_s) in [("a", 300), ("b", 600), ("c", 1200), ("d", 1200)] {
        assert_eq!(it.passed(now), order(name));
        limited(&mut it, name, None, now);
        assert_eq!(it.passed(now), Step::Wait(after(now, pause_s)), "{name}");
        now = after(now, pause_s);
    }
    assert_eq!(it.passed(now), order("e"));
    // One that is made ends that.
    issue(&mut it, "e", now);
    let now = after(now, DAY_S);
    limited(&mut it, "a", None, now);
    assert_eq!(it.next_try(Some("b")), after(now, 300));
}

#[test]
fn orders_under_way_and_inquiries_do_not_wait_for_new_orders() {
    let mut it = registered(&["a", "b", "c"]);
    it.ordering("b", START);
    it.issued("c", days(START, 90), START);
    limited(&mut it, "a", None, START);
    assert_eq!(it.passed(START), order("b"));
    it.issued("b", days(START, 90), START);
    it.inquired("b", None, None, START);
    assert_eq!(it.passed(START), Step::Inquire("c".into()));
}

/// It is not one on new orders.
#[test]
fn a_limit_that_an_order_under_way_runs_into_holds_up_no_other_name() {
    let mut it = registered(&["a", "b"]);
    it.ordering("a", START);
    it.failed(Some("a"), Reason::RateLimited, None, START);
    assert_eq!(it.passed(START), order("b"));
}

/// Those without a certificate come first, and would be refused again before the others have had a turn.
#[test]
fn names_that_are_always_refused_keep_no_certificate_from_its_renewal() {
    let all = [apart(10), names(&["z.example"])].concat();
    let mut it = Schedule::new(&all, fixed(0.5));
    it.registered(true);
    let certificate = days(UnixTime(START.0 - 4 * DAY_S), 6);
    it.issued("z.example", certificate, START);
    let (mut now, mut refused) = (START, 0);
    loop {
        match it.passed(now) {
            Step::Order(name) if name == "z.example" => break,
            Step::Order(name) => {
                limited(&mut it, &name, None, now);
                refused += 1;
            }
            Step::Inquire(name) => it.inquired(&name, None, None, now),
            Step::Wait(until) => now = until,
            Step::Register => panic!("there is an account"),
        }
    }
    assert_eq!(refused, 10, "each once");
    assert!(now < after(START, 4 * HOUR_S));
}
