//! The bounds of a connection, as the command line means them.

use std::time::Duration;

use loadline_proto::{Limits, Pace};

use super::defs::{ConnectionFlags, RequestFlags};
use super::values::Timeout;
use crate::failure::Failure;

/// The head's own period of grace: shorter than a whole head may take.
const HEAD_GRACE_MS: u64 = 10_000;

/// A time in milliseconds, which must not be none.
fn time(option: &str, time: Duration) -> Result<u64, Failure> {
    match u64::try_from(time.as_millis()).unwrap_or(u64::MAX) {
        0 => Err(Failure::usage(format!(
            "{option} {time:?}: too short; right would be at least 1ms"
        ))),
        ms => Ok(ms),
    }
}

/// How long an idle connection stays, and a trusted proxy's.
fn idle_timeouts(connections: &ConnectionFlags) -> Result<(u64, u64), Failure> {
    let ms = |option, timeout: Timeout| match timeout.0 {
        Some(timeout) => time(option, timeout),
        None => Ok(u64::MAX),
    };
    let idle_ms = ms("--idle-timeout", connections.idle_timeout)?;
    let Some(of_proxies) = connections.proxy_idle_timeout else {
        return Ok((idle_ms, Limits::default().proxy_idle_timeout_ms));
    };
    let proxy_idle_ms = ms("--proxy-idle-timeout", of_proxies)?;
    if proxy_idle_ms < idle_ms {
        return Err(Failure::usage(format!(
            "--proxy-idle-timeout {proxy_idle_ms}ms: shorter than that of others; right would be at \
             least --idle-timeout"
        )));
    }
    Ok((idle_ms, proxy_idle_ms))
}

pub(crate) fn limits(
    requests: &RequestFlags,
    connections: &ConnectionFlags,
) -> Result<Limits, Failure> {
    let defaults = Limits::default();
    let positive = |option: &str, value: u64| match value {
        0 => Err(Failure::usage(format!(
            "{option} 0: out of range; right would be at least 1"
        ))),
        _ => Ok(value),
    };
    let bytes = |option: &str, value: u64, least: u64, most: u64| {
        if (least..=most).contains(&value) {
            return Ok(usize::try_from(value).unwrap_or(usize::MAX));
        }
        let right = format!("right would be {least} to {most} bytes");
        Err(Failure::usage(format!(
            "{option} {value}: out of range; {right}"
        )))
    };
    let (idle_timeout_ms, proxy_idle_timeout_ms) = idle_timeouts(connections)?;
    let head_total_ms = time("--head-timeout", requests.head_timeout)?;
    let head_bytes_max = bytes("--head-max", requests.head_max, 256, 16 << 20)?;
    let target_bytes_max = bytes("--target-max", requests.target_max, 16, 16 << 20)?;
    if target_bytes_max >= head_bytes_max {
        return Err(Failure::usage(format!(
            "--target-max {target_bytes_max}: does not fit into the head; right would be less than \
             --head-max {head_bytes_max}"
        )));
    }
    Ok(Limits {
        head_bytes_max,
        target_bytes_max,
        fields_max: requests.fields_max,
        body_bytes_max: requests.body_max,
        idle_timeout_ms,
        proxy_idle_timeout_ms,
        head_pace: Pace {
            grace_ms: HEAD_GRACE_MS.min(head_total_ms),
            total_max_ms: head_total_ms,
            ..defaults.head_pace
        },
        body_pace: Pace {
            grace_ms: time("--body-timeout", requests.body_timeout)?,
            bytes_per_second_min: positive("--body-rate-min", requests.body_rate_min)?,
            ..defaults.body_pace
        },
        write_pace: Pace {
            grace_ms: time("--write-timeout", requests.write_timeout)?,
            bytes_per_second_min: positive("--write-rate-min", requests.write_rate_min)?,
            ..defaults.write_pace
        },
        ..defaults
    })
}
