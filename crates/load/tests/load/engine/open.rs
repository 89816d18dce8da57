//! The open loop: requests are due by the clock, whatever the server does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use loadline_load::{
    Arrivals, Control, Loop, Message, MixOrder, Overflow, Plan, Schedule, Segment,
};
use loadline_record::ErrorKind;

use crate::engine::run::{MS, SECOND, closed, get, phase, run, run_with};
use crate::engine::server::{Act, Server, answer};

/// Constant arrivals at `rate` for `len_ns`.
pub(super) fn open(plan: Plan, rate: f64, len_ns: u64, overflow: Overflow) -> Plan {
    let segment = Segment {
        len_ns,
        rate_begin: rate,
        rate_end: rate,
    };
    Plan {
        load: Loop::Open {
            schedule: Schedule {
                segments: vec![segment],
            },
            arrivals: Arrivals::Constant,
            overflow,
        },
        phases: vec![phase(0, len_ns)],
        requests_max: None,
        ..plan
    }
}

#[test]
fn everything_that_was_due_is_sent() {
    let server = Server::answering("hello");
    for requests_per_connection in [None, Some(1)] {
        let requests = server.requests();
        let mut plan = open(
            closed(server.address, 20, 0),
            1000.0,
            300 * MS,
            Overflow::Queue,
        );
        plan.requests_per_connection = requests_per_connection;
        plan.phases = vec![phase(0, 100 * MS), phase(100 * MS, 300 * MS)];
        let outcome = run(&plan);
        let tally = outcome.tally();
        assert_eq!(tally.offered, 300);
        let connections = requests_per_connection.map_or(20, |_| tally.sent);
        assert_eq!(tally.connections, connections);
        assert_eq!(tally.sent + tally.unfinished, 300);
        assert_eq!(tally.good, tally.sent);
        assert_eq!(server.requests() - requests, tally.sent);
        let first = outcome.tally_of(|interval| interval.phase == 0);
        assert_eq!(first.offered, 100);
        assert!(outcome.report.lag.len() <= tally.sent);
    }
}

#[test]
fn what_became_due_in_the_last_turn_is_offered() {
    let server = Server::answering("hello");
    // One every 5 us: some become due while others are being sent.
    let mut plan = open(
        closed(server.address, 4, 0),
        200_000.0,
        10_000 * MS,
        Overflow::Queue,
    );
    plan.phases = vec![phase(0, 20 * MS), phase(20 * MS, 10_000 * MS)];
    let outcome = run_with(&plan, &Control::new(), |message, control| {
        if matches!(message, Message::Interval(_)) {
            control.stop();
        }
    });
    let tally = outcome.tally();
    assert!(tally.unfinished > 0);
    assert_eq!(tally.offered, tally.good + tally.unfinished);
}

#[test]
fn what_finds_no_connection_waits_and_its_latency_counts() {
    let server = Server::start(|_, _| {
        std::thread::sleep(Duration::from_millis(50));
        Act::Send(answer(200, "hello"))
    });
    // Two connections carry 40 a second, and 400 are asked for.
    let plan = open(
        closed(server.address, 2, 0),
        400.0,
        500 * MS,
        Overflow::Queue,
    );
    let outcome = run(&plan);
    let tally = outcome.tally();
    assert_eq!(tally.offered, 200);
    assert_eq!(tally.sent + tally.unfinished, 200);
    assert_eq!((tally.good, server.requests()), (tally.sent, tally.sent));
    assert!(tally.sent <= 22, "{}", tally.sent);
    let latency = outcome.histogram(|interval| &interval.latency);
    let service = outcome.histogram(|interval| &interval.service);
    assert!(service.min() >= 49_900 && latency.min() >= 49_900);
    // From the third request on (5 ms) to the end somebody waited for a connection.
    let (held_ns, wall_ns) = (outcome.report.held_ns, outcome.report.wall_ns);
    assert!(held_ns <= wall_ns && held_ns > wall_ns / 2, "{held_ns}");
    // The last ones were due early and sent late: that is the server's doing, and no lag.
    assert!(latency.max() >= service.min() + 100_000);
    assert!(
        outcome.report.lag.len() <= 4,
        "{}",
        outcome.report.lag.len()
    );
}

/// Everybody asks at once when a stalled server is back: it answers them as fast as it can, and that
/// they were late is no lag of the client's.
#[test]
fn after_a_stall_all_that_waited_is_sent_at_once() {
    // A machine that keeps the client from its CPU makes others late as well, though not in each run.
    let mut seen = Vec::new();
    let is_good = (0..5).any(|_| {
        let (waited, late) = waited_and_late_by_a_stall();
        seen.push((waited, late));
        (360..600).contains(&waited) && late < 50
    });
    assert!(is_good, "those that waited, and that were late: {seen:?}");
}

/// The server stalls for 400 of 1000 ms, with a request due in each. How many waited for longer than 20 ms, and
/// how many of those the client sent so late.
fn waited_and_late_by_a_stall() -> (u64, u64) {
    const STALL: Duration = Duration::from_millis(400);
    let began = Arc::new(OnceLock::new());
    let server = Server::start(move |_, _| {
        let began: &Instant = began.get_or_init(Instant::now);
        std::thread::sleep(STALL.saturating_sub(began.elapsed()));
        Act::Send(answer(200, "hello"))
    });
    let plan = open(
        closed(server.address, 8, 0),
        1000.0,
        1000 * MS,
        Overflow::Queue,
    );
    let outcome = run(&plan);
    let tally = outcome.tally();
    assert_eq!(tally.offered, 1000);
    assert_eq!(tally.good + tally.unfinished, 1000);
    // At twice the rate at most, the wait of 400 would be over after 800 ms, and 800 were late.
    let latency = outcome.histogram(|interval| &interval.latency);
    let waited = latency.len() - latency.count_between(0, 20_000);
    let late = outcome.report.lag.len() - outcome.report.lag.count_between(0, 20_000);
    (waited, late)
}

#[test]
fn what_finds_no_connection_is_dropped_if_asked_for() {
    let server = Server::start(|_, _| Act::Hang);
    let plan = open(
        closed(server.address, 2, 0),
        400.0,
        250 * MS,
        Overflow::Drop,
    );
    let outcome = run_with(&plan, &Control::new(), |message, control| {
        if matches!(message, Message::Interval(_)) {
            control.stop(); // what hangs is not waited for
        }
    });
    let tally = outcome.tally();
    assert_eq!((tally.offered, tally.sent), (100, 2));
    // What was due in the last moment may be too late for anything.
    let dropped = tally.errors_of(ErrorKind::Dropped);
    assert_eq!(dropped, tally.errors_total());
    assert_eq!(dropped + tally.unfinished, 100);
    assert!(dropped >= 1);
}

#[test]
fn what_waited_beyond_the_deadline_is_not_sent() {
    let is_open = Arc::new(AtomicBool::new(false));
    let server = Server::start({
        let is_open = Arc::clone(&is_open);
        move |_, _| {
            // The first one holds the only connection for longer than all others may wait.
            if !is_open.swap(true, Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(200));
            }
            Act::Send(answer(200, "hello"))
        }
    });
    let mut plan = open(
        closed(server.address, 1, 0),
        1000.0,
        300 * MS,
        Overflow::Queue,
    );
    plan.deadline_ns = Some(40 * MS);
    let tally = run(&plan).tally();
    assert_eq!(tally.offered, 300);
    let late = tally.errors_of(ErrorKind::Late);
    // The first one was answered late, and about 160 were never sent.
    assert!(late >= 150, "{late}");
    assert_eq!(tally.errors_total(), late);
    assert_eq!(server.requests(), tally.sent);
    assert_eq!(tally.completed, tally.sent);
}

#[test]
fn a_connection_that_hangs_delays_what_its_own_schedule_has() {
    // 17 are due on it at least 30 ms before it is opened again, however quick the client is.
    let own = waited_while_one_hangs(true);
    assert!(own >= 7, "{own}");
    // With one schedule for all, the other connections take them. A machine that keeps the client from its
    // CPU makes others late as well, though not in each run.
    let mut seen = Vec::new();
    let is_good = (0..5).any(|_| {
        let shared = waited_while_one_hangs(false);
        seen.push(shared);
        shared < 7
    });
    assert!(is_good, "those that waited: {seen:?}");
}

/// How many of 120 requests waited for longer than 20 ms, if one of four connections, on each of which
/// one is due every 10 ms, hangs until its first request times out after 200 ms.
fn waited_while_one_hangs(own_schedules: bool) -> u64 {
    let server = Server::start(|connection, _| match connection {
        0 => Act::Hang,
        _ => Act::Send(answer(200, "hello")),
    });
    let hour = 3600 * SECOND;
    let mut plan = open(closed(server.address, 4, 0), 400.0, hour, Overflow::Queue);
    (plan.own_schedules, plan.requests_max) = (own_schedules, Some(120));
    plan.timeout_ns = 200 * MS;
    let outcome = run(&plan);
    let tally = outcome.tally();
    assert_eq!((tally.offered, tally.sent), (120, 120));
    assert_eq!(tally.good + tally.errors_total(), 120, "{tally:?}");
    assert!(tally.errors_of(ErrorKind::Timeout) >= 1, "{tally:?}");
    let latency = outcome.histogram(|interval| &interval.latency);
    latency.len() - latency.count_between(0, 20_000)
}

#[test]
fn all_that_is_allowed_is_sent_and_then_it_ends() {
    let server = Server::answering("hello");
    let mut plan = open(
        closed(server.address, 5, 0),
        2000.0,
        3600 * 1000 * MS,
        Overflow::Queue,
    );
    plan.requests_max = Some(50);
    let tally = run(&plan).tally();
    assert_eq!((tally.offered, tally.sent, tally.good), (50, 50, 50));
    assert_eq!(server.requests(), 50);
}

#[test]
fn a_log_keeps_its_times() {
    let server = Server::answering("hello");
    let mut plan = closed(server.address, 5, 0);
    plan.requests_max = None;
    plan.phases = vec![phase(0, 100 * MS), phase(100 * MS, 300 * MS)];
    let due_ns: Vec<u64> = [0, 5, 5, 60, 110, 150, 290, 300, 400]
        .map(|ms| ms * MS)
        .to_vec();
    plan.load = Loop::Timed {
        due_ns: due_ns.into(),
        overflow: Overflow::Queue,
    };
    let outcome = run(&plan);
    let tally = outcome.tally();
    assert_eq!(tally.offered, 7); // the last two are beyond the end
    assert_eq!(outcome.tally_of(|one| one.phase == 0).offered, 4);
    assert_eq!(tally.good + tally.unfinished, 7);
}

#[test]
fn a_server_that_is_gone_fails_the_requests_and_not_the_schedule() {
    let server = Server::answering("hello");
    let address = server.address;
    let mut server = Some(server);
    let hour = 3600 * SECOND;
    let mut plan = open(closed(address, 5, 0), 500.0, hour, Overflow::Queue);
    plan.phases = vec![phase(0, 100 * MS), phase(100 * MS, hour)];
    // However long the server takes to go, there is somebody left to find it gone.
    plan.requests_max = Some(150);
    let outcome = run_with(&plan, &Control::new(), |message, _| {
        if matches!(message, Message::Interval(_)) {
            drop(server.take());
        }
    });
    let tally = outcome.tally();
    assert_eq!(tally.offered, 150);
    let settled = tally.good + tally.errors_total() + tally.unfinished;
    assert_eq!(settled, 150, "{tally:?}");
    assert!(tally.errors_of(ErrorKind::Refused) >= 1, "{tally:?}");
}

#[test]
fn requests_that_no_client_can_send_fail() {
    let server = Server::answering("hello");
    let mut plan = open(
        closed(server.address, 1, 0),
        1000.0,
        100 * MS,
        Overflow::Queue,
    );
    plan.servers.push(server.address);
    let mut second = get("/");
    second.server = 1;
    plan.mix.requests.push(second);
    plan.mix.order = MixOrder::InTurn([0, 1].into());
    let tally = run(&plan).tally();
    assert_eq!(tally.offered, 100);
    assert_eq!(
        tally.errors_of(ErrorKind::ConnectFailed),
        tally.errors_total()
    );
    assert_eq!(tally.good + tally.errors_total() + tally.unfinished, 100);
    assert!(tally.good >= 1 && tally.errors_total() >= 1, "{tally:?}");
}

#[test]
fn a_client_that_spins_sends_what_is_due() {
    let server = Server::answering("hello");
    let mut plan = open(
        closed(server.address, 20, 0),
        1000.0,
        200 * MS,
        Overflow::Queue,
    );
    plan.spins = true;
    let outcome = run(&plan);
    let tally = outcome.tally();
    assert_eq!(tally.offered, 200);
    assert_eq!(tally.sent + tally.unfinished, 200);
    assert_eq!(tally.good, tally.sent);
    // It looks far more often than something happens.
    assert!(outcome.report.waited_ns > 0 && outcome.report.cpu_ns > 0);
}

#[test]
fn what_waited_in_the_warm_up_does_not_delay_what_is_measured() {
    // One connection that answers after 10 ms: a tenth of what is asked for.
    let server = Server::start(|_, _| {
        std::thread::sleep(Duration::from_millis(10));
        Act::Send(answer(200, "hello"))
    });
    let mut plan = open(
        closed(server.address, 1, 0),
        1000.0,
        400 * MS,
        Overflow::Queue,
    );
    let mut warm_up = phase(0, 200 * MS);
    warm_up.counted = false;
    plan.phases = vec![warm_up, phase(200 * MS, 400 * MS)];
    let outcome = run(&plan);
    let before = outcome.tally_of(|interval| interval.phase == 0);
    let counted = outcome.tally_of(|interval| interval.phase == 1);
    assert!(before.unfinished >= 170, "{before:?}");
    assert!(counted.sent >= 1, "{counted:?}");
    // The only connection was taken, so what is left is not the client's fault.
    assert_eq!(outcome.report.held_back, counted.unfinished);
}
