//! Requests cost the engine's thread no allocation: what is allocated is for the start, for a
//! connection's timers, and once a second.

use loadline_load::{Arrivals, Loop, Overflow, Plan, Schedule, Segment};

use crate::engine::run::{MS, closed, phase, run};
use crate::engine::server::Server;

/// What a run allocates on this thread, without the seconds it was handed out in, and its requests.
fn allocated(plan: &Plan) -> (u64, u64) {
    let mut counted = (0, 0);
    let allocations = allocation_counter::measure(|| {
        let outcome = run(plan);
        counted = (outcome.tally().good, outcome.intervals.len() as u64);
    });
    let (requests, intervals) = counted;
    (
        allocations.count_total.saturating_sub(intervals * 20),
        requests,
    )
}

#[test]
fn a_closed_loop_allocates_nothing_per_request() {
    let server = Server::answering("hello");
    for requests_per_connection in [None, Some(1), Some(100)] {
        let mut plan = closed(server.address, 8, 100);
        plan.requests_per_connection = requests_per_connection;
        let (few, _) = allocated(&plan);
        plan.requests_max = Some(3_000);
        let (many, requests) = allocated(&plan);
        assert_eq!(requests, 3_000);
        assert!(many < few + 100, "{few} for 100 requests, {many} for 3000");
    }
}

#[test]
fn streams_allocate_nothing_per_request() {
    for streams in [1, 8] {
        let allocated_for = |requests| {
            let stub = crate::stubbed::stub(loadline_stub::StubOptions::default());
            let mut plan = closed(stub.address(), 8, requests);
            plan.http2 = Some(loadline_load::Http2Plan::new(
                &plan.mix,
                streams,
                Vec::new(),
            ));
            plan.mix.expectations[0].sha256 = Some([0; 32]);
            allocated(&plan).0
        };
        let (few, many) = (allocated_for(200), allocated_for(3_000));
        assert!(many < few + 100, "{few} for 200 requests, {many} for 3000");
    }
}

#[test]
fn a_checked_answer_allocates_nothing() {
    let server = Server::answering("hello");
    let mut plan = closed(server.address, 8, 100);
    plan.mix.expectations[0].sha256 = Some([0; 32]);
    let (few, _) = allocated(&plan);
    plan.requests_max = Some(3_000);
    let (many, _) = allocated(&plan);
    assert!(many < few + 100, "{few} for 100 requests, {many} for 3000");
}

#[test]
fn an_open_loop_allocates_nothing_per_request() {
    let server = Server::answering("hello");
    let mut plan = closed(server.address, 8, 100);
    let segment = Segment {
        len_ns: 3_600_000 * MS,
        rate_begin: 10_000.0,
        rate_end: 10_000.0,
    };
    plan.load = Loop::Open {
        schedule: Schedule {
            segments: vec![segment],
        },
        arrivals: Arrivals::Poisson,
        overflow: Overflow::Queue,
    };
    plan.phases = vec![phase(0, segment.len_ns)];
    for own_schedules in [false, true] {
        plan.own_schedules = own_schedules;
        plan.requests_max = Some(100);
        let (few, _) = allocated(&plan);
        plan.requests_max = Some(3_000);
        let (many, requests) = allocated(&plan);
        assert_eq!(requests, 3_000);
        assert!(many < few + 100, "{few} for 100 requests, {many} for 3000");
    }
}
