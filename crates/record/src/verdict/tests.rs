//! What is judged how, at the bounds.

use super::*;
use crate::{Distribution, latencies};

/// A client that is not the limit in any way.
fn sound() -> Evidence {
    Evidence {
        threads: vec![thread("engine 0", 0.4), thread("engine 1", 0.3)],
        spins: false,
        lag_p99_us: Some(60),
        lag_p90_us: Some(30),
        lag_p99_9_us: Some(80),
        read_lag_p99_us: None,
        latency_p50_us: Some(1_000),
        latency_p99_9_us: Some(4_000),
        latency_max_us: Some(9_000),
        plan: Some(PlanEvidence {
            offered: 10_000,
            sent: 9_990,
            not_accepted: 0,
            connections: 64,
            own_schedules: false,
            held_back_share: Some(0.0),
            held_share: 0.05,
        }),
        throttled_s: Some(0.0),
        seconds: 10.0,
        little: None,
        closed: None,
        beside: Vec::new(),
    }
}

/// One that knows how late it has read a response.
fn thread(name: &str, share: f64) -> ThreadRecord {
    let mut read_lag = latencies();
    read_lag.record(1).unwrap();
    ThreadRecord {
        name: name.to_owned(),
        cpu_share: share,
        busy_share: share,
        read_lag: Distribution::new(read_lag),
        ..ThreadRecord::default()
    }
}

/// A sound client but for this.
fn judged(change: impl FnOnce(&mut Evidence)) -> Verdict {
    let mut evidence = sound();
    change(&mut evidence);
    judge(&evidence)
}

#[test]
fn a_sound_client_is_not_the_limit() {
    let verdict = judge(&sound());
    assert!(!verdict.client_limited && verdict.notes.is_empty());
    assert_eq!(verdict.busiest_share, Some(0.4));
    assert_eq!(verdict.busiest_thread.as_deref(), Some("engine 0"));
    assert_eq!(verdict.sent_share, Some(0.999));
    let nothing = judge(&Evidence::default());
    assert!(!nothing.client_limited && nothing.busiest_share.is_none());
}

#[test]
fn each_bound_makes_a_reason_of_its_own() {
    type Change = fn(&mut Evidence);
    let cases: [(&str, Change); 7] = [
        ("\"engine 1\" of the client was busy 81 %", |e| {
            e.threads[1] = thread("engine 1", 0.81);
        }),
        (
            "busy 95 % of the time (CPU 20 %, kept from running 75 %)",
            |e| {
                e.threads[0].cpu_share = 0.2;
                e.threads[0].busy_share = 0.95;
                e.threads[0].run_delay_share = 0.75;
            },
        ),
        ("CPU 90 %", |e| e.threads[0].cpu_share = 0.9), // though the clock says less
        ("1001 us later than due", |e| e.lag_p99_us = Some(1_001)),
        ("Only 98.9 % of the plan was sent (9890 of 10000", |e| {
            e.plan.as_mut().unwrap().sent = 9_890;
        }),
        ("Only 50 % of the plan", |e| {
            let plan = e.plan.as_mut().unwrap();
            plan.sent = 5_000;
            plan.held_back_share = Some(0.5);
        }),
        ("control group held the client for 0.15 s of 10.0 s", |e| {
            e.throttled_s = Some(0.15);
        }),
    ];
    for (reason, change) in cases {
        let verdict = judged(change);
        assert!(verdict.client_limited, "{reason}");
        assert_eq!(verdict.reasons.len(), 1, "{:?}", verdict.reasons);
        assert!(verdict.reasons[0].contains(reason), "{:?}", verdict.reasons);
    }
}

#[test]
fn a_busy_thread_of_an_open_loop_is_judged_by_what_it_did_to_times() {
    let judged = |share, lag_us, read_lag_us, is_open: bool| {
        let verdict = judged(|e| {
            e.threads[0] = thread("engine 0", share);
            e.lag_p99_us = Some(lag_us);
            e.read_lag_p99_us = read_lag_us;
            e.plan = e.plan.filter(|_| is_open);
        });
        (verdict.client_limited, verdict.notes.len())
    };
    assert_eq!(judged(0.9, 60, Some(60), true), (false, 1));
    assert_eq!(judged(0.96, 60, Some(60), true), (true, 0));
    assert_eq!(judged(0.9, 60, Some(101), true), (true, 0)); // a tenth of 1 ms is 100
    assert_eq!(judged(0.9, 101, Some(60), true), (true, 0));
    assert_eq!(judged(0.9, 60, None, true), (true, 0)); // not known
    assert_eq!(judged(0.9, 60, Some(60), false), (true, 0)); // closed: as fast as it can
}

#[test]
fn too_few_samples_for_one_in_a_hundred_may_say_one_in_ten() {
    let verdict = judged(|e| (e.lag_p99_us, e.lag_p90_us) = (None, Some(80_000)));
    let reason = "One request in ten was sent at least 80000 us later than due";
    assert!(verdict.client_limited && verdict.reasons[0].contains(reason));
    let verdict = judged(|e| (e.lag_p99_us, e.lag_p90_us) = (None, Some(900)));
    assert!(!verdict.client_limited, "{:?}", verdict.reasons);
    let verdict = judged(|e| (e.lag_p99_us, e.lag_p90_us) = (Some(20), Some(10)));
    assert!(!verdict.client_limited && verdict.late.is_none());
}

#[test]
fn lag_is_noted_before_the_client_is_the_limit() {
    let sending = |lag_us, p50_us| {
        let verdict = judged(|e| (e.lag_p99_us, e.latency_p50_us) = (Some(lag_us), Some(p50_us)));
        (verdict.late.is_some(), verdict.client_limited)
    };
    assert_eq!(sending(50, 200), (false, false)); // the error that is stated anyway
    assert_eq!(sending(51, 200), (true, false));
    assert_eq!(sending(1_000, 200), (true, false));
    assert_eq!(sending(1_001, 200), (true, true));
    assert_eq!(sending(1_001, 20_000), (false, false));
    let reading = |lag_us, is_open: bool| {
        let verdict = judged(|e| {
            e.read_lag_p99_us = Some(lag_us);
            e.plan = e.plan.filter(|_| is_open);
        });
        (verdict.read_late.is_some(), verdict.client_limited)
    };
    assert_eq!(reading(100, true), (false, false));
    assert_eq!(reading(101, true), (true, false));
    assert_eq!(reading(1_001, true), (true, true));
    assert_eq!(reading(1_001, false), (true, false));
}

/// Nothing was said where fewer than one request in a hundred were late.
#[test]
fn lag_that_is_half_of_the_largest_times_is_noted() {
    let noted = |lag_us, latency_us| {
        let verdict = judged(|e| (e.lag_p99_9_us, e.latency_p99_9_us) = (lag_us, latency_us));
        assert!(!verdict.client_limited);
        verdict.notes.len()
    };
    assert_eq!(noted(Some(2_000), Some(4_000)), 0);
    assert_eq!(noted(Some(2_001), Some(4_000)), 1);
    assert_eq!(noted(Some(50), Some(60)), 0); // the error that is stated anyway
    assert_eq!(noted(None, Some(4_000)), 0);
    assert_eq!(noted(Some(90_000), None), 0);
    let verdict = judged(|e| (e.lag_p99_9_us, e.lag_p99_us) = (Some(9_000), Some(900)));
    assert!(verdict.late.is_some() && verdict.notes.is_empty()); // said already
}

/// They were taken for shorter ones, and nothing said so.
#[test]
fn latencies_beyond_the_histograms_are_noted() {
    for (max_us, notes) in [(None, 0), (Some(599_999_999), 0), (Some(600_000_000), 1)] {
        let verdict = judged(|e| e.latency_max_us = max_us);
        assert_eq!(verdict.notes.len(), notes, "{:?}", verdict.notes);
        assert!(!verdict.client_limited);
    }
}

#[test]
fn a_thread_that_spins_is_judged_by_what_it_does_between() {
    let spinning = |busy_share| {
        judged(|e| {
            e.spins = true;
            e.threads[0].cpu_share = 1.0;
            e.threads[0].busy_share = busy_share;
        })
    };
    assert!(!spinning(0.4).client_limited);
    assert_eq!(spinning(0.4).busiest_share, Some(0.4));
    assert!(spinning(0.81).client_limited);
}

#[test]
fn at_a_bound_is_within_it() {
    let verdict = judged(|e| {
        e.threads[0] = thread("engine 0", BUSY_SHARE_MAX);
        e.lag_p99_us = Some(LAG_LIMIT_US);
        e.plan.as_mut().unwrap().sent = 9_900;
        e.throttled_s = Some(0.1);
    });
    assert!(!verdict.client_limited);
}

#[test]
fn what_does_not_decide_is_a_note() {
    type Change = fn(&mut PlanEvidence);
    let cases: [(&str, Change); 3] = [
        ("all 64 connections were waiting", |plan| {
            (plan.sent, plan.held_back_share) = (5_000, Some(1.0));
        }),
        ("the others waited for their own connections", |plan| {
            (plan.sent, plan.held_back_share) = (5_000, Some(1.0));
            plan.own_schedules = true;
        }),
        ("All 64 connections were taken for 34 %", |plan| {
            plan.held_share = 0.34;
        }),
    ];
    for (note, change) in cases {
        let verdict = judged(|e| change(e.plan.as_mut().unwrap()));
        assert!(!verdict.client_limited);
        assert!(verdict.notes[0].contains(note), "{:?}", verdict.notes);
        assert!(verdict.sent_share == Some(0.5) || verdict.held_share == Some(0.34));
    }
    assert_eq!(judge(&sound()).notes, Vec::<String>::new());
}

fn little(in_flight: f64) -> LittleEvidence {
    LittleEvidence {
        in_flight,
        completed: 10_000,
        service_mean_s: 0.05,
        service_stdev_s: 0.05,
        others_s_max: 0.0,
        seconds: 10.0,
    }
}

#[test]
fn a_closed_loop_shorter_than_three_cycles_is_noted() {
    let cycle = |clients, completed_per_s, think_s| {
        let closed = ClosedEvidence {
            clients,
            completed_per_s,
            think_s,
        };
        judged(|e| e.closed = Some(closed))
    };
    // 10 s measured: 5 s a cycle are two of them.
    let verdict = cycle(20_000, 4_000.0, 0.0);
    assert_eq!(verdict.cycle_s, Some(5.0));
    let short = verdict.short.unwrap();
    assert!(
        short.contains("20000 clients takes about 5.00 s"),
        "{short}"
    );
    assert!(!verdict.client_limited);
    assert_eq!(cycle(20_000, 8_000.0, 0.0).short, None);
    assert_eq!(cycle(30_000, 10_000.0, 0.0).short, None); // 3 s, of 10
    let thinking = cycle(10_000, 2_000.0, 4.0);
    assert_eq!(thinking.cycle_mean_s, Some(1.0));
    assert!(thinking.short.is_some());
    assert_eq!(cycle(64, 0.0, 0.0).cycle_s, None);
    assert_eq!(judge(&sound()).cycle_s, None);
}

#[test]
fn littles_law() {
    // 1000/s times 50 ms are 50; 5 % and what is cut at the ends (0.1 s of 10 s), and a half.
    for (in_flight, holds) in [
        (50.0, true),
        (53.4, true),
        (53.6, false),
        (46.6, true),
        (46.4, false),
        (0.0, false),
    ] {
        let record = check_little(&little(in_flight));
        assert!((record.expected - 50.0).abs() < 1e-9);
        assert!((record.tolerance - 0.06).abs() < 1e-9);
        assert_eq!(record.holds, holds, "{in_flight}");
    }
}

#[test]
fn failed_requests_were_in_flight_too_for_a_time_that_is_known_by_its_bound() {
    let mut evidence = little(60.0);
    assert!(!check_little(&evidence).holds);
    evidence.others_s_max = 200.0; // 20 in flight, at most
    let record = check_little(&evidence);
    assert!(record.holds && (record.expected_max - 70.0).abs() < 1e-9);
    evidence.in_flight = 50.0;
    assert!(check_little(&evidence).holds);
}

#[test]
fn little_of_nothing_holds() {
    let record = check_little(&LittleEvidence::default());
    assert!(record.holds && record.expected == 0.0);
}

/// Requests whose connections the server did not accept are not missing.
#[test]
fn what_the_server_does_not_accept_is_not_the_clients_limit() {
    for (not_accepted, is_limited) in [(480, true), (500, false)] {
        let verdict = judged(|evidence| {
            let plan = evidence.plan.as_mut().unwrap();
            (plan.sent, plan.not_accepted) = (9_400, not_accepted);
        });
        assert_eq!(verdict.reasons.is_empty(), !is_limited, "{not_accepted}");
        assert_eq!(verdict.sent_share, Some(0.94));
    }
}
