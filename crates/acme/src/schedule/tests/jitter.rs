//! What is drawn at random moves pauses and renewals, as far as docs/acme.md says and no further.

use super::*;

/// The largest number below 1.
const LAST: f64 = 1.0 - f64::EPSILON / 2.0;

fn drawing(value: f64) -> Schedule {
    let mut it = Schedule::new(&names(&["a"]), fixed(value));
    it.registered(true);
    it
}

#[test]
fn a_pause_is_a_quarter_shorter_to_a_quarter_longer() {
    for (reason, all) in [
        (Reason::Unreachable, [45, 60, 75]),
        (Reason::Refused, [225, 300, 375]),
        (Reason::RateLimited, [2700, 3600, 4500]),
    ] {
        for (value, pause_s) in [0.0, 0.5, LAST].into_iter().zip(all) {
            let mut it = drawing(value);
            it.failed(Some("a"), reason, None, START);
            let until = after(START, pause_s);
            assert_eq!(it.next_try(Some("a")), until, "{reason:?}, {value}");
            it.failed(Some("a"), reason, None, START);
            let until = after(START, 2 * pause_s);
            assert_eq!(it.next_try(Some("a")), until, "{reason:?}, {value}: twice");
        }
    }
}

/// Whatever is drawn, the authority is not asked before the time that it has said.
#[test]
fn no_pause_is_shorter_than_the_authority_wants_it() {
    for value in [0.0, 0.5, LAST] {
        let mut it = drawing(value);
        let said = Some(Duration::from_secs(9000));
        it.failed(Some("a"), Reason::RateLimited, said, START);
        assert_eq!(it.next_try(Some("a")), after(START, 9000), "{value}");
    }
}

#[test]
fn renewal_without_a_window_is_up_to_a_fiftieth_of_the_life_after_two_thirds_of_it() {
    let fiftieth = 90 * DAY_S / 50;
    for (value, later) in [(0.0, 0), (0.25, fiftieth / 4), (LAST, fiftieth)] {
        let mut it = drawing(value);
        it.issued("a", days(START, 90), START);
        let expected = after(START, 60 * DAY_S + later);
        assert_eq!(it.renew_at("a"), Some(expected), "{value}");
    }
}

#[test]
fn renewal_is_anywhere_in_the_window_that_the_authority_suggests() {
    let window = Window {
        start: after(START, 50 * DAY_S),
        end: after(START, 54 * DAY_S),
    };
    for (value, day) in [(0.0, 50), (0.25, 51), (LAST, 54)] {
        let mut it = drawing(value);
        it.issued("a", days(START, 90), START);
        it.inquired("a", Some(window), None, START);
        let expected = after(START, day * DAY_S);
        assert_eq!(it.renew_at("a"), Some(expected), "{value}");
    }
}
