//! Rows whose answer is known: each with levels and values under which it holds, and under which not.

use super::*;

/// Each is a claim of a paper; a series with what is measured in it; and cells, each with its value and
/// its levels. The first cell has one value after the other: the claim holds under it, or does not. In
/// "scale better" one thread serves as much to 20,000 as to 100.
const CASES: &str = "
P1: Requests are evenly distributed
best, loop_imbalance
1.01, not 1.4: model=several reactors, threads; numbers=2 x 16; service_us=0

P4: Round robin divides
loops, loop_imbalance
1.02, not 2: loops=4; connections=1000

P1: A single thread that is blocked
obstruction, p99_us
6000, not 1400: model=single reactor, single thread; rate_per_s=500
1500: model=single reactor, threads; rate_per_s=500
1500: model=several reactors, threads; rate_per_s=500

P1: Requests to a single thread time out
obstruction, error_share
0.3, not 0: model=single reactor, single thread; rate_per_s=1500
0: model=several reactors, threads; rate_per_s=1500

P1: Several reactors with threads scale better
shared, good_per_s
2000, not 900: model=several reactors, threads; connections=20000; service_us=100
1000: model=several reactors, threads; connections=100; service_us=100
1000: model=single reactor, single thread; connections=20000; service_us=100
1000: model=single reactor, single thread; connections=100; service_us=100

P1: Pools of threads cost
concurrency, context_switches_per_request
3, not 0.9: model=several reactors, threads; connections=2000; service_us=200
2: model=single reactor, threads; connections=2000; service_us=200
1: model=single reactor, single thread; connections=2000; service_us=200

P1: Locks of the pool's queue
others, cpu_us_per_request
40, not 50: model=work stealing; service_us=0
50: model=several reactors, threads; service_us=0

P1: Reactors that are independent
shared, good_per_s
1200, not 1000: model=threads of each reactor; connections=100
1000: model=several reactors, threads; connections=100

P1: One reactor with one thread suits
light, good_per_s
6000, not 4000: model=single reactor, single thread
5000: model=single reactor, threads
5000: model=several reactors, threads

P1: No request of 20,000 clients
best, error_share
0, not 0.01: model=single reactor, single thread; numbers=1 x 1; service_us=0

P2: Closing idle connections prevents
idle, error_share
0, not 0.5: clients=idle; timer=with
0.99: clients=idle; timer=without

P2: The timer protects
idle, error_share
0, not 0.9: clients=slow; timer=with

P2: Closing idle connections improves
crowd, cpu_us_per_request
40, not 50: idle_connections=0
50: idle_connections=5000

P2: The same with a reactor whose main thread
slower, good_per_s
1400, not 1000: arm=loop; connections=10000; timer=with
1000: arm=loop; connections=10000; timer=without

P2: The reactor is particularly useful
threads, good_per_s
2000, not 1000: arm=workers; server=loadline
1000: arm=a thread for each connection; server=loadline

P2: Where the kernel's asynchronous
threads, cpu_us_per_request
60, not 45: arm=kernel, older; server=plain-ring
50: arm=workers; server=loadline
50: arm=kernel; server=loadline

P3: The latency of one event loop
connections, mean_us
300, not 110: connections=2000
100: connections=100

P3: Those whom 1000 threads
rates, service_p50_us
900, not 30000: model=1000 threads; rate_per_s=10000

P3: At a rate between
computing, mean_us
4e6, not 5e5: server=one-loop
2e4: server=several-loops

P3: At a rate between
computing, mean_us
not 4e6: server=one-loop
3e6: server=several-loops

P3: At such a rate
computing, good_per_s
7000, not 4300: server=several-loops
4300: server=one-loop

P3: The same near its capacity
near-capacity, mean_us
300, not 110: connections=2000
100: connections=100

P4: It does not serve more at the expense
connections, cpu_us_per_request
27.8, not 200: server=handoff; connections=10000
134.6: server=nginx; connections=10000

P4: nginx declines
connections, completed_per_s
25480, not 39500: server=nginx; connections=10000
38987: server=nginx; connections=3000

P5: The event loop serves more than threads also
crossed, good_per_s
2000, not 900: server=event-loop; connections_are=kept; asked=as fast as possible
1500: server=event-loop; connections_are=closed; asked=as fast as possible
1000: server=threads; connections_are=kept; asked=as fast as possible
1000: server=threads; connections_are=closed; asked=as fast as possible

P5: The same at 6000 requests
rates, good_per_s
6000, not 2800: server=apache; rate_per_s=6000
3000: server=threads; rate_per_s=6000
3000: server=event-loop; rate_per_s=6000
3000: server=nginx; rate_per_s=6000

P5: Keeping connections alive
crossed, good_per_s
2000, not 900: server=event-loop; connections_are=kept; asked=as fast as possible
1000: server=event-loop; connections_are=closed; asked=as fast as possible
1000: server=threads; connections_are=kept; asked=as fast as possible
1000: server=threads; connections_are=closed; asked=as fast as possible
";

#[test]
fn a_claim_holds_or_does_not_by_the_value_of_a_cell() {
    for case in CASES.trim().split("\n\n") {
        let mut lines = case.lines();
        let mut pair = |between: &str| {
            let line = lines.next().unwrap();
            line.split_once(between).unwrap()
        };
        let (paper, claim) = pair(": ");
        let (series, metric) = pair(", ");
        let metric = *Metric::ALL.iter().find(|it| it.name() == metric).unwrap();
        let cells: Vec<(&str, &str)> = lines.map(|line| line.split_once(": ").unwrap()).collect();
        for first in cells[0].0.split(", ") {
            let (value, verdict) = match first.strip_prefix("not ") {
                Some(value) => (value, NotReproduced),
                None => (first, Reproduced),
            };
            let mut made = Made::new(paper);
            for (index, (own, levels)) in cells.iter().enumerate() {
                let levels = levels.split("; ").map(|it| it.split_once('=').unwrap());
                let levels: Vec<(&str, &str)> = levels.collect();
                let value = if index == 0 { value } else { *own };
                let values = [(metric, value.parse().unwrap())];
                made.cell(series, (&levels, &values), 0.01);
            }
            let found = made.claim(claim);
            assert_eq!(found.verdict, verdict, "{first}: {found:?}");
        }
    }
}

/// What the full grid has at other service times is not part of it.
#[test]
fn other_service_times_are_not_judged() {
    let cells = |others: f64, claim: &str| {
        let mut made = Made::new("P1");
        for (service_us, several) in [("0", 4000.0), ("100", others), ("1000", 4000.0)] {
            for (model, numbers, rate) in [(SINGLE, "1 x 1", 1000.0), (SEVERAL, "2 x 16", several)]
            {
                let numbers = ("numbers", numbers);
                let levels = [("model", model), ("service_us", service_us), numbers];
                made.cell("best", (&levels, &[(GoodPerS, rate)]), 0.01);
            }
        }
        made.claim(claim)
    };
    let reaches = "Several reactors with threads reach 3";
    assert_eq!(cells(100.0, reaches).verdict, Reproduced);
    assert_eq!(cells(100.0, reaches), cells(9000.0, reaches));
    let claim = cells(100.0, "The same, pooled");
    let each = "over 0 and 1000 us (4 with service_us=0, 4 with service_us=1000)";
    assert!(claim.why.contains(each), "{claim:?}");
}
