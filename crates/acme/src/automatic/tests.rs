//! What panics, an account that stays, and certificates that come too late, without an authority.

use std::fs;
use std::path::Path;

use rcgen::{CertificateParams, KeyPair, date_time_ymd};

use super::*;
use crate::state_dir::{ACCOUNT, asides};

/// What panics, on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// What is due.
    Step,
    /// All of a turn.
    Turn,
}

/// An authority that nobody can reach.
fn unreachable(folder: &Path) -> Automatic {
    let own = loadline_tls::self_signed(&["localhost".to_owned()]).unwrap();
    let options = AcmeOptions {
        email: "ada@example.org".into(),
        names: vec!["example.org".into()],
        directory: "https://127.0.0.1:1/".into(),
        trusted: Authorities::one(own.der()).unwrap(),
        folder: folder.join("acme"),
        terms_agreed: true,
        external_account: None,
        methods: vec![Method01::Http],
        look_every: Duration::from_secs(1),
    };
    Automatic::open(options, &Arc::default(), &Tokens::default()).unwrap()
}

fn report(it: &Automatic) -> Report {
    it.report.lock().unwrap().clone()
}

#[test]
fn jitter_is_drawn_anew_each_time_from_0_up_to_1() {
    let mut draw = draw();
    let drawn: Vec<f64> = (0..64).map(|_| draw()).collect();
    let is_in_range = |it: &f64| (0.0..1.0).contains(it);
    assert!(drawn.iter().all(is_in_range), "{drawn:?}");
    let (low, high) = (|it: &f64| *it < 0.5, |it: &f64| *it > 0.5);
    let has_both = drawn.iter().any(low) && drawn.iter().any(high);
    assert!(has_both, "{drawn:?}"); // by chance neither once in 2^63
}

#[test]
fn a_step_that_panics_is_a_failure_after_which_it_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut it = unreachable(folder.path());
    it.fault = Some(Fault::Step);
    let start = UnixTime::now();
    it.turn(start);
    let after = report(&it);
    assert_eq!(after.failures, 1);
    let expected = "https://127.0.0.1:1/: a panic: on purpose";
    assert_eq!(after.last_error, expected);
    let next = it.turn(start);
    assert!(next > start, "a pause before the next try");
    it.fault = None;
    it.turn(next.plus(Duration::from_secs(1)));
    let after = report(&it);
    assert_eq!(after.failures, 2);
    assert_ne!(after.last_error, expected, "the authority was asked");
}

#[test]
fn a_step_that_panics_costs_no_certificate_that_may_exist() {
    for is_finalized in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut it = unreachable(folder.path());
        let (name, now) = ("example.org", UnixTime::now());
        it.schedule.registered(true);
        it.authority
            .state
            .write("example.org.order.json", b"{}")
            .unwrap();
        it.schedule.ordering(name, now);
        if is_finalized {
            it.schedule.finalized(name, now);
        }
        it.fault = Some(Fault::Step);
        it.turn(now);
        assert_eq!(it.authority.has_order(name), is_finalized);
    }
}

#[test]
fn a_turn_that_panics_is_not_the_last_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut it = unreachable(folder.path());
    it.fault = Some(Fault::Turn);
    assert_eq!(it.turn_guarded(), SLEEP_MOST);
    let after = report(&it);
    assert_eq!(
        (after.failures, &*after.last_error),
        (1, "a panic: on purpose")
    );
    it.fault = None;
    it.turn_guarded();
    assert_ne!(report(&it).last_error, "a panic: on purpose");
}

/// Its key would be lost.
#[test]
fn an_account_that_cannot_be_set_aside_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let mut it = unreachable(folder.path());
    let account = it.authority.state.path(ACCOUNT);
    for path in asides(&account).chain([account.clone()]) {
        fs::write(path, "cut off").unwrap();
    }
    it.schedule.registered(true);
    let now = it.turn(UnixTime::now());
    let error = report(&it).last_error;
    assert!(error.contains("the account's file"), "{error}");
    assert!(error.contains("no other account is made: "), "{error}");
    assert!(error.contains("up to account.json.old.100"), "{error}");
    let next = it.turn(now);
    assert!(next > now, "a pause");
    let order = Step::Order("example.org".into());
    assert_eq!(it.schedule.passed(next), order, "no other account");
    assert!(account.exists());
}

#[test]
fn a_certificate_that_ends_before_it_can_be_renewed_is_counted() {
    for (from, to, late) in [(2020, 2021, 1), (2020, 4000, 0)] {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(["example.org".to_owned()]).unwrap();
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(to, 1, 1);
        let key = KeyPair::generate().unwrap();
        let pem = key.serialize_pem() + &params.self_signed(&key).unwrap().pem();
        let mut it = unreachable(folder.path());
        let kept = it
            .authority
            .state
            .write(&file("example.org"), pem.as_bytes());
        kept.unwrap();
        it.load("example.org");
        it.turn(UnixTime::now());
        assert_eq!(report(&it).late, late, "{to}");
    }
}
