//! The bounds of a connection, as the command line means them.

use loadline_proto::{Limits, Pace};
use loadline_spec::SpecError;
use loadline_spec::serve::{ConnectionSpec, ServeSpec};
use loadline_spec::values::{AnyTime, OrOff, Size};

/// The head's own period of grace: shorter than a whole head may take.
const HEAD_GRACE_MS: u64 = 10_000;

/// A time in milliseconds, which must not be none.
fn time(option: &str, time: AnyTime) -> Result<u64, SpecError> {
    match u64::try_from(time.as_millis()).unwrap_or(u64::MAX) {
        0 => Err(SpecError::new(option, "too short", "at least 1ms").with_value(time)),
        ms => Ok(ms),
    }
}

/// How long an idle connection stays, and a trusted proxy's.
fn idle_timeouts(connections: &ConnectionSpec) -> Result<(u64, u64), SpecError> {
    let ms = |option, timeout: OrOff<AnyTime>| match timeout.0 {
        Some(timeout) => time(option, timeout),
        None => Ok(u64::MAX),
    };
    let idle_ms = ms("idle-timeout", *connections.idle_timeout)?;
    let Some(of_proxies) = connections.proxy_idle_timeout else {
        return Ok((idle_ms, Limits::default().proxy_idle_timeout_ms));
    };
    let proxy_idle_ms = ms("proxy-idle-timeout", of_proxies)?;
    if proxy_idle_ms < idle_ms {
        let problem = "shorter than for other connections";
        let error = SpecError::new("proxy-idle-timeout", problem, "at least --idle-timeout");
        return Err(error.with_value(of_proxies));
    }
    Ok((idle_ms, proxy_idle_ms))
}

/// A size that memory has to hold.
fn bytes<const LEAST: u64, const MOST: u64>(size: Size<LEAST, MOST>) -> usize {
    usize::try_from(*size).unwrap_or(usize::MAX)
}

pub(crate) fn limits(flags: &ServeSpec) -> Result<Limits, SpecError> {
    let defaults = Limits::default();
    let requests = &flags.requests;
    let (idle_timeout_ms, proxy_idle_timeout_ms) = idle_timeouts(&flags.connections)?;
    let head_total_ms = time("head-timeout", *requests.head_timeout)?;
    let head_bytes_max = bytes(*requests.head_max);
    let target_bytes_max = bytes(*requests.target_max);
    if target_bytes_max >= head_bytes_max {
        let right = format!("less than --head-max {head_bytes_max}");
        let error = SpecError::new("target-max", "does not fit into the head", right);
        return Err(error.with_value(target_bytes_max));
    }
    Ok(Limits {
        head_bytes_max,
        target_bytes_max,
        fields_max: requests.fields_max.get(),
        body_bytes_max: **requests.body_max,
        streams_max: u32::try_from(requests.streams_max.get()).unwrap_or(u32::MAX),
        idle_timeout_ms,
        proxy_idle_timeout_ms,
        handshake_timeout_ms: time("tls-handshake-timeout", *flags.tls.tls_handshake_timeout)?,
        head_pace: Pace {
            grace_ms: HEAD_GRACE_MS.min(head_total_ms),
            total_max_ms: head_total_ms,
            ..defaults.head_pace
        },
        body_pace: Pace {
            grace_ms: time("body-timeout", *requests.body_timeout)?,
            bytes_per_second_min: **requests.body_rate_min,
            ..defaults.body_pace
        },
        write_pace: Pace {
            grace_ms: time("write-timeout", *requests.write_timeout)?,
            bytes_per_second_min: **requests.write_rate_min,
            ..defaults.write_pace
        },
        ..defaults
    })
}
