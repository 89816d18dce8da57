//! When requests are due, and which intervals have results of their own.

use std::time::Duration;

use loadline_spec::SpecError;

use loadline_load::replay::Timing;
use loadline_load::schedule::{Split, closed_phases};
use loadline_load::{Arrivals, Loop, Overflow, Phase, Retries, Schedule};
use loadline_spec::load::LoadSpec;
use loadline_spec::load::values::ScheduleOf;

/// As wrk and wrk2 have it.
const DURATION: Duration = Duration::from_secs(10);
/// How long each step takes.
const STEP_DURATION: Duration = Duration::from_secs(10);
/// For a run that is to end with its requests: it is not to go on for ever either.
const DURATION_MOST: Duration = Duration::from_secs(24 * 60 * 60);

/// Pause before the first retry: long beside a round trip, short beside a user's patience.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// The longest Retry-After that is obeyed: within the default length of a run.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(10);

/// When requests are due by the options; a replay by its log's own timing is not among them.
pub(super) fn pace(spec: &LoadSpec) -> Result<(Loop, Vec<Phase>), SpecError> {
    let (clients, pace) = (&spec.clients, &spec.pace);
    let warm_up = clients.warm_up.map_or(Duration::ZERO, |time| *time);
    let duration = match (clients.duration, clients.requests) {
        (Some(duration), _) => *duration,
        (None, None) => DURATION,
        (None, Some(_)) => DURATION_MOST,
    };
    let step_duration = pace.step_duration.map_or(STEP_DURATION, |time| *time);
    let (option, schedule, split) = match (pace.rate, pace.steps, pace.ramp) {
        (Some(rate), _, _) => {
            let schedule = match pace.burst {
                None => Schedule::constant(*rate, duration),
                Some(burst) => {
                    let base = pace.burst_base.map_or(0.0, |rate| *rate);
                    Schedule::bursts(base, *rate, *burst.on, *burst.off, duration)
                }
            };
            ("rate", schedule, Split::Whole)
        }
        (_, Some(steps), _) => {
            let schedule = Schedule::steps(steps, step_duration);
            ("steps", schedule, Split::Segments)
        }
        (_, _, Some(ramp)) => {
            let schedule = Schedule::ramp(ramp.from, ramp.to, duration);
            ("ramp", schedule, Split::Whole)
        }
        (None, None, None) => {
            let think = clients.think.map_or(Duration::ZERO, |time| *time);
            let closed = Loop::Closed {
                think_ns: nanos(think),
                coalesces: think.is_zero() && !clients.no_coalescing,
            };
            return Ok((closed, closed_phases(warm_up, duration)));
        }
    };
    let schedule = schedule.map_err(|error| SpecError::of(option, error))?;
    let schedule = schedule.after_warm_up(warm_up);
    let phases = schedule.phases(warm_up, split);
    let open = Loop::Open {
        schedule,
        arrivals: pace.arrivals.unwrap_or(Arrivals::Poisson),
        overflow: pace.overflow.unwrap_or(Overflow::Queue),
    };
    Ok((open, phases))
}

/// Whether each connection has a schedule of its own.
pub(super) fn own_schedules(spec: &LoadSpec) -> bool {
    spec.pace.schedule == Some(ScheduleOf::PerConnection)
}

/// Whether and when failed requests are tried again.
pub(super) fn retries(spec: &LoadSpec) -> Option<Retries> {
    let pace = &spec.pace;
    let count = pace.retries.map_or(0, |count| *count);
    (count > 0).then(|| Retries {
        count: u8::try_from(count).unwrap_or(u8::MAX),
        pause_ns: nanos(pace.retry_pause.map_or(RETRY_PAUSE, |time| *time)),
        retry_after_ns_max: nanos(pace.retry_after_max.map_or(RETRY_AFTER_MAX, |time| *time)),
    })
}

/// When the lines of a log say.
pub(super) fn replay_pace(spec: &LoadSpec, timing: Timing) -> (Loop, Vec<Phase>) {
    let duration = Duration::from_nanos(timing.duration_ns);
    let mut phases = closed_phases(Duration::ZERO, duration);
    for phase in &mut phases {
        phase.rate = Some(timing.due_ns.len() as f64 / duration.as_secs_f64().max(1e-9));
    }
    let timed = Loop::Timed {
        due_ns: timing.due_ns,
        overflow: spec.pace.overflow.unwrap_or(Overflow::Queue),
    };
    (timed, phases)
}

/// Whole nanoseconds.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
