//! What a load that speaks HTTP/2 needs beside others.

use loadline_load::requests::Destination;
use loadline_load::{Http2Plan, Mix};
use loadline_spec::SpecError;
use loadline_spec::load::{CLIENTS_MAX, LoadSpec};
use loadline_spec::values::Count;

use super::tls::{self, HTTP_2};
use super::user_groups::Counts;

/// Streams of a connection in an open loop, unless said otherwise: what RFC 9113 section 6.5.2 asks
/// servers to take.
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
    match clients.streams.map(Count::saturating_u32) {
        Some(given) if given > most => {
            let problem = format!(
                "{connections} connections of {given} streams are more than {CLIENTS_MAX} clients"
            );
            Err(SpecError::new("streams", problem, format!("{most} or fewer")).with_value(given))
        }
        Some(given) => Ok(given),
        None if by_clock && !clients.new_connection => Ok(STREAMS_OPEN.min(most)),
        None => Ok(1),
    }
}
