//! Handshakes, which bring requests to other lanes.

use super::tests::{GOAL, after_some_jobs, ahead, waited};
use super::*;

#[test]
fn handshakes_are_refused_by_what_they_take() {
    let mut control = after_some_jobs();
    let now_us = 500_000;
    (0..64).for_each(|index| control.of(Lane::Handshakes).done(index * 5_000, 200));
    assert_eq!(control.of(Lane::Handshakes).take(now_us, 0, 0), Ok(()));
    let mut offer = |jobs, apps| {
        let offered = control.offer(now_us, Lane::Handshakes, ahead(jobs, apps));
        offered.is_ok()
    };
    // 9,000 of 0.1 ms each wait for 900 ms.
    assert!(offer(9_000, 0));
    assert!(!offer(11_000, 0));
    // While apps wait they have 16 times as much time: 500 take 50 and 800 ms.
    assert!(offer(500, 1_000));
    assert!(!offer(700, 1_000));
    // Three that wait need 150 ms.
    assert!(offer(7_000, 3));
}

/// Few handshakes that take little time themselves promised a short wait.
#[test]
fn a_handshake_waits_for_the_requests_behind_those_before_it() {
    let mut control = LaneControl::new(GOAL, 2);
    let [first, then] = [Lane::Handshakes, Lane::Files].map(Charge::of);
    for index in 0..2_000 {
        control.done(index * 5_000, &first, 0, 500);
        control.done(index * 5_000, &then, 700, 9_500);
    }
    let now_us = 10_000_000;
    assert_eq!(control.take(now_us, &first, waited(0), 0), Ok(()));
    let mut offer = |jobs| control.offer(now_us, Lane::Handshakes, ahead(jobs, 0));
    // 5 ms each. 1/64 of the goal is kept in reserve, and 10 ms are for its own.
    assert_eq!(offer(191), Ok(()));
    assert!(offer(197).is_err());
    let mut take = |wait_us| control.take(now_us, &first, waited(wait_us), 5);
    assert_eq!(take(962_000), Ok(()));
    assert!(take(977_000).is_err());
}

/// Each of them counted as one that brings nothing, until its request was done.
#[test]
fn handshakes_of_a_burst_are_done_before_the_requests_behind_them() {
    let mut control = LaneControl::new(GOAL, 2);
    let [first, then] = [Lane::Handshakes, Lane::Files].map(Charge::of);
    for index in 0..2_000 {
        control.done(index * 5_000, &first, 0, 100);
        control.done(index * 5_000, &then, 700, 9_900);
    }
    (0..100).for_each(|index| control.done(10_000_000 + index * 50, &first, 0, 100));
    let now_us = 10_005_000;
    assert_eq!(control.take(now_us, &first, waited(0), 0), Ok(()));
    let mut offer = |jobs| control.offer(now_us, Lane::Handshakes, ahead(jobs, 0));
    // Of 4.5 ms each.
    assert_eq!(offer(200), Ok(()));
    assert!(offer(225).is_err());
}

/// It would be computed in vain.
#[test]
fn a_handshake_may_wait_no_longer_than_the_requests_that_wait() {
    let mut control = after_some_jobs();
    (0..64).for_each(|index| control.of(Lane::Handshakes).done(index * 5_000, 200));
    for now_us in (500_000..=750_000).step_by(10_000) {
        assert!(control.offer(now_us, Lane::Apps, ahead(1_000, 0)).is_err());
        for _ in 0..4 {
            assert_eq!(control.of(Lane::Apps).take(now_us, 800_000, 5), Ok(()));
        }
        assert_eq!(control.of(Lane::Handshakes).take(now_us, 0, 0), Ok(()));
    }
    // 0.1 ms each, and 150 ms for three apps. A tenth of 250 ms is less than the goal by now.
    let mut offer = |jobs| control.offer(750_000, Lane::Handshakes, ahead(jobs, 3));
    assert_eq!(offer(8_150), Ok(()));
    assert!(offer(8_220).is_err());
}

/// It was taken for one: a server that had just started refused up to one in seven of a burst of handshakes.
#[test]
fn while_another_lane_has_its_turn_there_is_no_stall() {
    let mut control = LaneControl::new(GOAL, 2);
    let [first, then] = [Lane::Handshakes, Lane::Files].map(Charge::of);
    (0..40).for_each(|index| control.done(index * 300, &first, 0, 600));
    for index in 0..20 {
        let took = control.take(12_000 + index * 5_000, &then, waited(0), 50);
        assert_eq!(took, Ok(()));
    }
    let mut offer = |now_us| control.offer(now_us, Lane::Handshakes, ahead(120, 0));
    assert_eq!(offer(112_000), Ok(()));
    assert!(offer(150_000).is_err(), "no worker was free for 43 ms");
}

/// Of 256 clients that connected to a server that had just started, 47 were refused.
#[test]
fn clients_that_connect_are_not_refused_since_the_first_handshake_took_long() {
    let mut control = LaneControl::new(GOAL, 2);
    let first = Charge::of(Lane::Handshakes);
    assert_eq!(control.offer(0, Lane::Handshakes, ahead(0, 0)), Ok(()));
    assert_eq!(control.take(0, &first, waited(0), 0), Ok(()));
    control.done(9_000, &first, 0, 9_000);
    let offered = control.offer(9_000, Lane::Handshakes, ahead(255, 0));
    assert_eq!(offered, Ok(()));
}
