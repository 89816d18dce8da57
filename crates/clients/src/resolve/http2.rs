//! What a load that speaks HTTP/2 needs beside others.

use std::sync::Arc;

use loadline_load::load_threads::ExtraThread;
use loadline_load::requests::Destination;
use loadline_load::{Http2Plan, Loop, Mix, Phase, Plan, engine};
use loadline_record::HTTP2_GROUP;
use loadline_spec::SpecError;
use loadline_spec::load::{CLIENTS_MAX, LoadSpec};
use loadline_spec::values::Count;

use super::tls::{self, HTTP_1, HTTP_2};
use super::user_groups::Counts;

/// Streams of a connection in an open loop, unless said otherwise or it carries fewer requests: what RFC
/// 9113 section 6.5.2 asks servers to take.
const STREAMS_OPEN: u32 = 100;

/// The part of the plan that is about HTTP/2; `None`: connections speak HTTP/1.
pub(super) fn plan(
    spec: &LoadSpec,
    mix: &Mix,
    destinations: &[Destination],
    counts: Counts,
) -> Result<Option<Http2Plan>, SpecError> {
    if !spec.requests.http2 {
        return Ok(None);
    }
    let connectors = tls::connectors(&spec.tls, destinations, HTTP_2)?;
    Ok(Some(Http2Plan::new(
        mix,
        streams(spec, counts.plain)?,
        connectors,
    )))
}

/// How many requests a connection carries at one time. Each of them takes memory, wanted or not.
fn streams(spec: &LoadSpec, connections: u32) -> Result<u32, SpecError> {
    let clients = &spec.clients;
    let most = (CLIENTS_MAX as u32 / connections.max(1)).max(1);
    let by_clock = spec.is_open() || spec.requests.replay_timing.is_some();
    // By the clock more than that would wait for a connection to be opened again.
    let carried = super::requests_per_connection(clients).unwrap_or(u32::MAX);
    match clients.streams.map(Count::saturating_u32) {
        Some(given) if given > most => {
            let problem = format!(
                "{connections} connections of {given} streams are more than {CLIENTS_MAX} clients"
            );
            Err(SpecError::new("streams", problem, format!("{most} or fewer")).with_value(given))
        }
        Some(given) if by_clock => Ok(given.min(carried)),
        Some(given) => Ok(given),
        None if by_clock => Ok(STREAMS_OPEN.min(most).min(carried)),
        None => Ok(1),
    }
}

/// Draws of the clients of HTTP/2 are others than those of the clients beside them.
const SEED: u64 = 0x2;

/// Divides a plan of HTTP/2 by the share that speaks it: the rest is left, and the clients of HTTP/2 have a
/// thread of each process.
pub(super) fn divided(
    spec: &LoadSpec,
    plan: &mut Plan,
    destinations: &[Destination],
    processes: u32,
) -> Result<Option<ExtraThread>, SpecError> {
    let Some(share) = spec.requests.http2_share else {
        return Ok(None);
    };
    let (part, all) = (share.0 / 100.0, plan.connections);
    let connections = (f64::from(all) * part).round() as u32;
    let rest = all.saturating_sub(connections);
    let servers = u32::try_from(destinations.len()).unwrap_or(u32::MAX);
    let needed = processes.max(1).saturating_mul(servers);
    if connections.min(rest) < needed {
        let problem = format!("that is {connections} of {all} connections");
        let right =
            format!("{needed} or more of either protocol: one to each server in each process");
        return Err(SpecError::new("http2-share", problem, right).with_value(share));
    }
    let group = u16::try_from(plan.groups.len()).unwrap_or(u16::MAX);
    plan.groups.push(HTTP2_GROUP.to_owned());
    let own = take_part(plan, connections, part);
    plan.http2 = None;
    plan.connectors = tls::connectors(&spec.tls, destinations, HTTP_1)?;
    Ok(Some(ExtraThread {
        name: "http2",
        run: Arc::new(move |plan, share, control, out| {
            let own = Plan {
                seed: plan.seed.wrapping_add(SEED << 32),
                ..own.clone()
            };
            engine::run_in_group(&own, group, share, control, out)
        }),
    }))
}

/// Takes out of a plan these connections, and a part of its requests and of its rate. Their thread does not
/// spin: no CPU is set aside for it.
fn take_part(plan: &mut Plan, connections: u32, part: f64) -> Plan {
    let requests = plan
        .requests_max
        .map(|count| (count as f64 * part).round() as u64);
    let own = Plan {
        connections,
        requests_max: requests,
        load: part_of(&plan.load, part),
        phases: phases_at(&plan.phases, part),
        spins: false,
        ..plan.clone()
    };
    plan.connections -= connections;
    plan.requests_max = plan
        .requests_max
        .zip(requests)
        .map(|(all, part)| all - part);
    plan.load = part_of(&plan.load, 1.0 - part);
    plan.phases = phases_at(&plan.phases, 1.0 - part);
    own
}

/// The same at a part of the rate.
fn part_of(load: &Loop, part: f64) -> Loop {
    let mut load = load.clone();
    if let Loop::Open { schedule, .. } = &mut load {
        for segment in &mut schedule.segments {
            segment.rate_begin *= part;
            segment.rate_end *= part;
        }
    }
    load
}

/// The same phases at a part of the rate.
fn phases_at(phases: &[Phase], part: f64) -> Vec<Phase> {
    let mut phases = phases.to_vec();
    for phase in &mut phases {
        phase.rate = phase.rate.map(|rate| rate * part);
    }
    phases
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use loadline_load::schedule::Split;
    use loadline_load::{Arrivals, Overflow, Prepared, Schedule};

    use super::*;

    /// Eight connections.
    fn plan(load: Loop, phases: Vec<Phase>) -> Plan {
        let server = ([127, 0, 0, 1], 80).into();
        Plan {
            load,
            connections: 8,
            ..Plan::new(server, Prepared::get("a", "/"), phases)
        }
    }

    /// It was judged as a busy thread, and could share a CPU with another one that spun.
    #[test]
    fn the_thread_of_http2_does_not_spin() {
        let closed = Loop::Closed {
            think_ns: 0,
            coalesces: false,
        };
        let mut plan = plan(closed, Vec::new());
        (plan.spins, plan.requests_max) = (true, Some(1000));
        let own = take_part(&mut plan, 2, 0.25);
        assert!(plan.spins && !own.spins);
        assert_eq!((plan.connections, own.connections), (6, 2));
        let requests = (plan.requests_max, own.requests_max);
        assert_eq!(requests, (Some(750), Some(250)));
    }

    /// The rate of both was shown as planned for each.
    #[test]
    fn each_protocol_has_its_part_of_the_planned_rate() {
        let schedule = Schedule::constant(400.0, Duration::from_secs(1)).unwrap();
        let phases = schedule.phases(Duration::ZERO, Split::Whole);
        let open = Loop::Open {
            schedule,
            arrivals: Arrivals::Poisson,
            overflow: Overflow::Queue,
        };
        let mut plan = plan(open, phases);
        let own = take_part(&mut plan, 2, 0.25);
        for (plan, rate) in [(plan, 300.0), (own, 100.0)] {
            assert_eq!(plan.phases[0].rate, Some(rate));
            let Loop::Open { schedule, .. } = plan.load else {
                panic!("it is due by the clock");
            };
            assert_eq!(schedule.segments[0].rate_begin, rate);
        }
    }
}
