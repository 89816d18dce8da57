//! Rows whose answer is known: each with levels and values under which it holds, and under which not.

use super::*;

/// A cell: its series, levels, and a value of one metric.
type One = (
    &'static str,
    &'static [(&'static str, &'static str)],
    Metric,
    f64,
);

fn made(paper: &str, cells: &[One]) -> Made {
    let mut made = Made::new(paper);
    for (series, levels, metric, value) in cells {
        made.cell(series, (levels, &[(*metric, *value)]), 0.01);
    }
    made
}

/// The verdict where the value of the first cell is each of two.
fn check(paper: &str, claim: &str, holds: f64, fails: f64, cells: &[One]) {
    for (value, verdict) in [(holds, Reproduced), (fails, NotReproduced)] {
        let mut cells = cells.to_vec();
        cells[0].3 = value;
        let found = made(paper, &cells).claim(claim);
        assert_eq!(found.verdict, verdict, "{value}: {found:?}");
    }
}

#[test]
fn work_is_even_among_loops_or_not() {
    use Metric::LoopImbalance;
    let levels = &[
        ("model", SEVERAL),
        ("numbers", "2 x 16"),
        ("service_us", "0"),
    ];
    let claim = "Requests are evenly distributed";
    check(
        "P1",
        claim,
        1.01,
        1.4,
        &[("best", levels, LoopImbalance, 0.0)],
    );
    let levels = &[("loops", "4"), ("connections", "1000")];
    let claim = "Round robin divides";
    check(
        "P4",
        claim,
        1.02,
        2.0,
        &[("loops", levels, LoopImbalance, 0.0)],
    );
}

#[test]
fn a_thread_that_is_blocked_delays_the_slowest() {
    use Metric::P99Us;
    const OF: [&[(&str, &str)]; 3] = [
        &[("model", SINGLE), ("rate_per_s", "500")],
        &[("model", "single reactor, threads"), ("rate_per_s", "500")],
        &[("model", SEVERAL), ("rate_per_s", "500")],
    ];
    let cells = OF.map(|levels| ("obstruction", levels, P99Us, 1500.0));
    check(
        "P1",
        "A single thread that is blocked",
        6000.0,
        1400.0,
        &cells,
    );
}

#[test]
fn a_single_thread_times_out_where_several_do_not() {
    const OF: [&[(&str, &str)]; 2] = [
        &[("model", SINGLE), ("rate_per_s", "1500")],
        &[("model", SEVERAL), ("rate_per_s", "1500")],
    ];
    let cells = OF.map(|levels| ("obstruction", levels, ErrorShare, 0.0));
    check(
        "P1",
        "Requests to a single thread time out",
        0.3,
        0.0,
        &cells,
    );
}

#[test]
fn scaling_is_what_clients_cost() {
    const OF: [&[(&str, &str)]; 4] = [
        &[
            ("model", SEVERAL),
            ("connections", "20000"),
            ("service_us", "100"),
        ],
        &[
            ("model", SEVERAL),
            ("connections", "100"),
            ("service_us", "100"),
        ],
        &[
            ("model", SINGLE),
            ("connections", "20000"),
            ("service_us", "100"),
        ],
        &[
            ("model", SINGLE),
            ("connections", "100"),
            ("service_us", "100"),
        ],
    ];
    // One thread serves as much to 20,000 as to 100.
    let cells = OF.map(|levels| ("shared", levels, GoodPerS, 1000.0));
    check(
        "P1",
        "Several reactors with threads scale better",
        2000.0,
        900.0,
        &cells,
    );
}

#[test]
fn one_reactor_with_threads_is_a_bottleneck_or_not() {
    const OF: [&[(&str, &str)]; 2] = [
        &[
            ("model", SEVERAL),
            ("connections", "20000"),
            ("service_us", "100"),
        ],
        &[
            ("model", "single reactor, threads"),
            ("connections", "20000"),
            ("service_us", "100"),
        ],
    ];
    let cells = OF.map(|levels| ("shared", levels, GoodPerS, 1000.0));
    let claim = "One reactor with threads is a bottleneck";
    check("P1", claim, 1500.0, 950.0, &cells);
}

/// What the full grid has at other service times is not part of it.
#[test]
fn other_service_times_are_not_judged() {
    let cells = |others: f64| {
        let mut made = Made::new("P1");
        for (service_us, several) in [("0", 4000.0), ("100", others), ("1000", 4000.0)] {
            for (model, numbers, rate) in [(SINGLE, "1 x 1", 1000.0), (SEVERAL, "2 x 16", several)]
            {
                let numbers = ("numbers", numbers);
                let levels = [("model", model), ("service_us", service_us), numbers];
                made.cell("best", (&levels, &[(GoodPerS, rate)]), 0.01);
            }
        }
        made.claim("Several reactors with threads reach 3")
    };
    let claim = cells(100.0);
    assert_eq!(claim.verdict, Reproduced, "{claim:?}");
    assert_eq!(claim, cells(9000.0));
    let each = "over 0 and 1000 us (4 with service_us=0, 4 with service_us=1000)";
    assert!(claim.why.contains(each), "{claim:?}");
}

#[test]
fn pools_locks_and_threads_of_their_own() {
    const MODELS: [&[(&str, &str)]; 3] = [
        &[("model", SEVERAL), ("service_us", "0")],
        &[("model", "single reactor, threads"), ("service_us", "0")],
        &[("model", SINGLE), ("service_us", "0")],
    ];
    let mut cells = MODELS.map(|levels| ("models", levels, ContextSwitchesPerRequest, 1.0));
    cells[1].3 = 2.0;
    check("P1", "Pools of threads cost", 3.0, 0.9, &cells);
    const OTHERS: [&[(&str, &str)]; 2] = [
        &[("model", "work stealing"), ("service_us", "0")],
        &[("model", SEVERAL), ("service_us", "0")],
    ];
    let cells = OTHERS.map(|it| ("others", it, Metric::CpuUsPerRequest, 50.0));
    check("P1", "Locks of the pool's queue", 40.0, 50.0, &cells);
    const OWN: [&[(&str, &str)]; 2] = [
        &[("model", "threads of each reactor"), ("connections", "100")],
        &[("model", SEVERAL), ("connections", "100")],
    ];
    let cells = OWN.map(|it| ("shared", it, GoodPerS, 1000.0));
    check(
        "P1",
        "Reactors that are independent",
        1200.0,
        1000.0,
        &cells,
    );
}

#[test]
fn timers_and_clients_that_do_not_ask() {
    const IDLE: [&[(&str, &str)]; 2] = [
        &[("clients", "idle"), ("timer", "with")],
        &[("clients", "idle"), ("timer", "without")],
    ];
    let mut cells = IDLE.map(|levels| ("idle", levels, ErrorShare, 0.0));
    cells[1].3 = 0.99;
    check("P2", "Closing idle connections prevents", 0.0, 0.5, &cells);
    const SLOW: &[(&str, &str)] = &[("clients", "slow"), ("timer", "with")];
    check(
        "P2",
        "The timer protects",
        0.0,
        0.9,
        &[("idle", SLOW, ErrorShare, 0.0)],
    );
    const CROWD: [&[(&str, &str)]; 2] = [
        &[("idle_connections", "0")],
        &[("idle_connections", "5000")],
    ];
    let cells = CROWD.map(|levels| ("crowd", levels, Metric::CpuUsPerRequest, 50.0));
    let claim = "Closing idle connections improves";
    check("P2", claim, 40.0, 50.0, &cells);
}

#[test]
fn the_same_reactor_with_a_timer_is_not_a_proactor() {
    const OF: [&[(&str, &str)]; 2] = [
        &[("arm", "loop"), ("connections", "10000"), ("timer", "with")],
        &[
            ("arm", "loop"),
            ("connections", "10000"),
            ("timer", "without"),
        ],
    ];
    let cells = OF.map(|levels| ("slower", levels, GoodPerS, 1000.0));
    check(
        "P2",
        "The same with a reactor whose main thread",
        1400.0,
        1000.0,
        &cells,
    );
}

#[test]
fn more_connections_than_threads_and_an_older_kernel() {
    const POOL: [&[(&str, &str)]; 2] = [
        &[("arm", "workers"), ("server", "loadline")],
        &[
            ("arm", "a thread for each connection"),
            ("server", "loadline"),
        ],
    ];
    let cells = POOL.map(|levels| ("threads", levels, GoodPerS, 1000.0));
    check(
        "P2",
        "The reactor is particularly useful",
        2000.0,
        1000.0,
        &cells,
    );
    const RING: [&[(&str, &str)]; 2] = [
        &[("arm", "kernel, older"), ("server", "plain-ring")],
        &[("arm", "workers"), ("server", "loadline")],
    ];
    let cells = RING.map(|levels| ("threads", levels, Metric::CpuUsPerRequest, 50.0));
    check("P2", "Where the kernel's asynchronous", 60.0, 45.0, &cells);
}

#[test]
fn latency_by_connections_and_of_those_that_are_served() {
    const BY: [&[(&str, &str)]; 2] = [&[("connections", "2000")], &[("connections", "100")]];
    let cells = BY.map(|levels| ("connections", levels, MeanUs, 100.0));
    check("P3", "The latency of one event loop", 300.0, 110.0, &cells);
    const SERVED: &[(&str, &str)] = &[("model", "1000 threads"), ("rate_per_s", "10000")];
    let cells = [("rates", SERVED, Metric::ServiceP50Us, 0.0)];
    check("P3", "Those whom 1000 threads", 900.0, 30_000.0, &cells);
}

#[test]
fn one_loop_and_several_at_a_rate_between_what_they_carry() {
    const OF: [&[(&str, &str)]; 2] = [
        &[("model", "one event loop")],
        &[("model", "several event loops")],
    ];
    let mut cells = OF.map(|levels| ("computing", levels, MeanUs, 2e4));
    check("P3", "At a rate between", 4e6, 5e5, &cells);
    cells[1].3 = 3e6;
    let found = made("P3", &[("computing", OF[0], MeanUs, 4e6), cells[1]]);
    assert_eq!(found.claim("At a rate between").verdict, NotReproduced);
    let cells = [OF[1], OF[0]].map(|levels| ("computing", levels, GoodPerS, 4300.0));
    check("P3", "At such a rate", 7000.0, 4300.0, &cells);
}

#[test]
fn one_thread_for_light_work() {
    const OF: [&[(&str, &str)]; 3] = [
        &[("model", SINGLE)],
        &[("model", "single reactor, threads")],
        &[("model", SEVERAL)],
    ];
    let cells = OF.map(|levels| ("light", levels, GoodPerS, 5000.0));
    check(
        "P1",
        "One reactor with one thread suits",
        6000.0,
        4000.0,
        &cells,
    );
}

#[test]
fn resources_beside_nginx_and_its_decline() {
    const AT: [&[(&str, &str)]; 2] = [
        &[("server", "handoff"), ("connections", "10000")],
        &[("server", "nginx"), ("connections", "10000")],
    ];
    let cells = AT.map(|levels| ("connections", levels, Metric::CpuUsPerRequest, 134.6));
    let claim = "It does not serve more at the expense";
    check("P4", claim, 27.8, 200.0, &cells);
    const NGINX: [&[(&str, &str)]; 3] = [
        &[("server", "nginx"), ("connections", "10000")],
        &[("server", "nginx"), ("connections", "1000")],
        &[("server", "nginx"), ("connections", "3000")],
    ];
    let mut cells = NGINX.map(|levels| ("connections", levels, CompletedPerS, 23_786.0));
    cells[2].3 = 38_987.0;
    check("P4", "nginx declines", 25_480.0, 39_500.0, &cells);
}

#[test]
fn architecture_and_keep_alive_crossed() {
    const OF: [&[(&str, &str)]; 4] = [
        &[
            ("server", "event-loop"),
            ("connections_are", "kept"),
            ("asked", "as fast as possible"),
        ],
        &[
            ("server", "event-loop"),
            ("connections_are", "closed"),
            ("asked", "as fast as possible"),
        ],
        &[
            ("server", "threads"),
            ("connections_are", "kept"),
            ("asked", "as fast as possible"),
        ],
        &[
            ("server", "threads"),
            ("connections_are", "closed"),
            ("asked", "as fast as possible"),
        ],
    ];
    let cells = OF.map(|levels| ("crossed", levels, GoodPerS, 1000.0));
    check(
        "P5",
        "The event loop serves more than threads also",
        2000.0,
        900.0,
        &cells,
    );
    check("P5", "Keeping connections alive", 2000.0, 900.0, &cells);
}
