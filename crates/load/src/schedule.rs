//! The offered rate as a function of time, and the phases, each with results of its own.
//!
//! A [`Schedule`] is a row of segments, in each of which the rate is constant or moves in a straight
//! line: steps, ramps and bursts are built of them. The number of requests due until a moment is the
//! integral of the rate, in closed form; [`Pacer`](crate::pacer::Pacer) turns that round.

use std::time::Duration;

use loadline_spec::ValueError;
use loadline_spec::load::checked_rate;
pub use loadline_spec::load::values::Arrivals;
pub use loadline_spec::load::{RATE_MAX, STEPS_MAX, Steps};

/// A stretch of time in which the rate is constant or moves in a straight line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segment {
    /// How long it lasts.
    pub len_ns: u64,
    /// Requests per second at its begin.
    pub rate_begin: f64,
    /// Requests per second at its end.
    pub rate_end: f64,
}

/// The offered rate over time, from the start on; after the last segment nothing is due.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule {
    /// One after the other.
    pub segments: Vec<Segment>,
}

/// An interval with results of its own: the warm-up, a step of `--steps`, or all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Phase {
    /// As it stands in results: "warm-up", "500/s".
    pub label: String,
    /// When it begins, from the start.
    pub begin_ns: u64,
    /// When it ends, from the start; the next one begins there.
    pub end_ns: u64,
    /// The rate that is offered in it, on average; `None` in a closed loop.
    pub rate: Option<f64>,
    /// Whether it counts: the warm-up does not.
    pub counted: bool,
}

/// What names the results of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// One phase.
    Whole,
    /// One phase for each segment.
    Segments,
}

/// The longest run: due times in nanoseconds are exact in an `f64` for 104 days.
pub const DURATION_NS_MAX: u64 = 100 * 24 * 3600 * NS_PER_S;
/// The most segments of a schedule: enough for bursts of a millisecond over minutes. Each thread
/// has a copy of 48 bytes for each.
pub const SEGMENTS_MAX: usize = 200_000;

const NS_PER_S: u64 = 1_000_000_000;

impl Segment {
    /// One rate all the time.
    fn even(len_ns: u64, rate: f64) -> Self {
        Self {
            len_ns,
            rate_begin: rate,
            rate_end: rate,
        }
    }

    /// How many requests are due in it.
    #[must_use]
    pub fn total(&self) -> f64 {
        let (begin, end) = (sound(self.rate_begin), sound(self.rate_end));
        (begin + end) / 2.0 * (self.len_ns as f64) / 1e9
    }
}

impl Schedule {
    /// One rate all the time.
    ///
    /// # Errors
    /// A rate that is not above 0 and at most [`RATE_MAX`], a duration of 0 or beyond
    /// [`DURATION_NS_MAX`], or both so small that nothing would be due; one line says which. The same
    /// holds for the other schedules.
    pub fn constant(rate: f64, duration: Duration) -> Result<Self, ValueError> {
        Self::ramp(rate, rate, duration)
    }

    /// From one rate to another in a straight line; one of the two may be 0.
    ///
    /// # Errors
    /// As [`Schedule::constant`].
    pub fn ramp(from: f64, to: f64, duration: Duration) -> Result<Self, ValueError> {
        if from != 0.0 || to == 0.0 {
            checked_rate("rate", from)?;
        }
        if to != 0.0 {
            checked_rate("rate", to)?;
        }
        let segments = vec![Segment {
            len_ns: checked_ns("duration", duration)?,
            rate_begin: from,
            rate_end: to,
        }];
        Self { segments }.with_arrivals()
    }

    /// One rate after the other.
    ///
    /// # Errors
    /// As [`Schedule::constant`]; also more than [`STEPS_MAX`] steps.
    pub fn steps(steps: Steps, step_duration: Duration) -> Result<Self, ValueError> {
        let len_ns = checked_ns("step duration", step_duration)?;
        let rates = steps.rates()?;
        if len_ns.saturating_mul(rates.len() as u64) > DURATION_NS_MAX {
            let count = rates.len();
            return Err(
                format!("{count} steps of {step_duration:?} last longer than 100 days").into(),
            );
        }
        let segments = rates
            .into_iter()
            .map(|rate| Segment::even(len_ns, rate))
            .collect();
        Self { segments }.with_arrivals()
    }

    /// `rate` for `on`, `base` (which may be 0) for `off`, and so on for `duration`, beginning with
    /// a burst; the last period may be cut short.
    ///
    /// # Errors
    /// As [`Schedule::constant`]; also more than [`SEGMENTS_MAX`] bursts and pauses.
    pub fn bursts(
        base: f64,
        rate: f64,
        on: Duration,
        off: Duration,
        duration: Duration,
    ) -> Result<Self, ValueError> {
        if base != 0.0 {
            checked_rate("rate between bursts", base)?;
        }
        checked_rate("rate of bursts", rate)?;
        let on_ns = checked_ns("length of a burst", on)?;
        let off_ns = checked_ns("time between bursts", off)?;
        let duration_ns = checked_ns("duration", duration)?;
        if 2 * (duration_ns / (on_ns + off_ns) + 1) > SEGMENTS_MAX as u64 {
            return Err(format!(
                "bursts of {on:?} every {:?} for {duration:?} are too many: at most {}",
                on + off,
                SEGMENTS_MAX / 2
            )
            .into());
        }
        let (mut segments, mut left_ns) = (Vec::new(), duration_ns);
        for (len_ns, rate) in [(on_ns, rate), (off_ns, base)].into_iter().cycle() {
            if left_ns == 0 {
                break;
            }
            let len_ns = len_ns.min(left_ns);
            left_ns -= len_ns;
            segments.push(Segment::even(len_ns, rate));
        }
        Self { segments }.with_arrivals()
    }

    /// The schedule, unless it has no arrival at all.
    fn with_arrivals(self) -> Result<Self, ValueError> {
        if self.total() > 0.5 {
            return Ok(self);
        }
        let duration = Duration::from_nanos(self.duration_ns());
        Err(format!("no request is due in {duration:?}: a higher rate, or more time").into())
    }

    /// The same after a warm-up at its first rate (that of its first moment; for a ramp from 0, the
    /// rate at its end). No warm-up: as it is.
    #[must_use]
    pub fn after_warm_up(mut self, warm_up: Duration) -> Self {
        let len_ns = ns(warm_up);
        let rates = self.segments.iter();
        let first = rates.flat_map(|segment| [segment.rate_begin, segment.rate_end]);
        if let Some(rate) = first.map(sound).find(|rate| *rate > 0.0)
            && len_ns > 0
        {
            self.segments.insert(0, Segment::even(len_ns, rate));
        }
        self
    }

    /// How long it lasts.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        let lengths = self.segments.iter().map(|segment| segment.len_ns);
        lengths.fold(0, u64::saturating_add)
    }

    /// How many requests are due in all; arrivals are this, rounded.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.segments.iter().map(Segment::total).sum()
    }

    /// The phases of this schedule when its first `warm_up` (as given to
    /// [`Schedule::after_warm_up`]) does not count.
    #[must_use]
    pub fn phases(&self, warm_up: Duration, split: Split) -> Vec<Phase> {
        let (mut phases, mut begin_ns) = (Vec::new(), 0_u64);
        let has_warm_up = !warm_up.is_zero();
        for (index, segment) in self.segments.iter().enumerate() {
            let end_ns = begin_ns.saturating_add(segment.len_ns);
            let counted = index > 0 || !has_warm_up;
            phases.push(Phase {
                label: match counted {
                    true => label(segment),
                    false => WARM_UP.to_owned(),
                },
                begin_ns,
                end_ns,
                rate: Some(mean_rate(segment.total(), segment.len_ns)),
                counted,
            });
            begin_ns = end_ns;
        }
        let first = usize::from(has_warm_up);
        if split == Split::Whole && phases.len() > first + 1 {
            phases.truncate(first + 1);
            let counted = &mut phases[first];
            let total = self.segments[first..].iter().map(Segment::total).sum();
            counted.label = ALL.to_owned();
            counted.end_ns = begin_ns;
            counted.rate = Some(mean_rate(total, begin_ns - counted.begin_ns));
        }
        phases
    }
}

/// The phases of a closed loop, which offers no rate.
#[must_use]
pub fn closed_phases(warm_up: Duration, duration: Duration) -> Vec<Phase> {
    let warm_up_ns = ns(warm_up);
    let phase = |label: &str, begin_ns, end_ns, counted| Phase {
        label: label.to_owned(),
        begin_ns,
        end_ns,
        rate: None,
        counted,
    };
    let end_ns = warm_up_ns.saturating_add(ns(duration));
    let mut phases = vec![phase(ALL, warm_up_ns, end_ns, true)];
    if warm_up_ns > 0 {
        phases.insert(0, phase(WARM_UP, 0, warm_up_ns, false));
    }
    phases
}

/// A rate as it stands in labels: "500/s", "0.25/s".
#[must_use]
pub fn rate_text(rate: f64) -> String {
    // Steps such as 0.1 add up with errors in the last places, which no label should show.
    let rounded = (rate * 1e6).round() / 1e6;
    let shown = if rounded > 0.0 { rounded } else { rate };
    format!("{shown}/s")
}

const WARM_UP: &str = "warm-up";
const ALL: &str = "all";

fn label(segment: &Segment) -> String {
    if segment.rate_begin.to_bits() == segment.rate_end.to_bits() {
        return rate_text(segment.rate_begin);
    }
    let begin = rate_text(segment.rate_begin);
    let begin = begin.trim_end_matches("/s");
    format!("{begin}..{}", rate_text(segment.rate_end))
}

fn mean_rate(total: f64, len_ns: u64) -> f64 {
    match len_ns {
        0 => 0.0,
        _ => total * 1e9 / len_ns as f64,
    }
}

/// The rate, or 0 for what is none: a schedule's fields are public.
pub(crate) fn sound(rate: f64) -> f64 {
    if rate.is_finite() && rate > 0.0 {
        rate.min(RATE_MAX)
    } else {
        0.0
    }
}

fn checked_ns(name: &str, duration: Duration) -> Result<u64, ValueError> {
    let ns = ns(duration);
    if (1..=DURATION_NS_MAX).contains(&ns) {
        return Ok(ns);
    }
    Err(format!("the {name} is {duration:?}: above 0, at most 100 days").into())
}

pub(crate) fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn steps(from: f64, to: f64, by: f64) -> Steps {
        Steps { from, to, by }
    }

    #[test]
    fn steps_include_both_ends() {
        let rates = |from, to, by| steps(from, to, by).rates().unwrap();
        assert_eq!(rates(100.0, 2500.0, 100.0).len(), 25);
        assert_eq!(rates(0.1, 0.3, 0.1).len(), 3);
        assert_eq!(rates(100.0, 250.0, 100.0), [100.0, 200.0]);
        assert_eq!(rates(300.0, 100.0, 100.0), [300.0, 200.0, 100.0]);
        assert_eq!(rates(50.0, 50.0, 10.0), [50.0]);
        for wrong in [
            steps(0.0, 10.0, 1.0),
            steps(1.0, 0.0, 1.0),
            steps(1.0, 10.0, 0.0),
            steps(1.0, 10.0, -1.0),
            steps(1.0, f64::NAN, 1.0),
            steps(1.0, f64::INFINITY, 1.0),
            steps(1.0, 1e9, 1.0),
        ] {
            assert!(wrong.rates().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_cannot_be_a_schedule_is_refused() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1.1e9] {
            assert!(Schedule::constant(rate, SECOND).is_err(), "{rate}");
            assert!(Schedule::bursts(0.0, rate, SECOND, SECOND, SECOND).is_err());
        }
        assert!(Schedule::constant(1.0, Duration::ZERO).is_err());
        assert!(Schedule::constant(1.0, 101 * 24 * 3600 * SECOND).is_err());
        assert!(Schedule::ramp(0.0, 0.0, SECOND).is_err());
        assert!(Schedule::ramp(-1.0, 5.0, SECOND).is_err());
        let refusal = Schedule::constant(0.5, SECOND).unwrap_err();
        assert_eq!(
            refusal.problem,
            "no request is due in 1s: a higher rate, or more time"
        );
        assert!(Schedule::constant(0.51, SECOND).is_ok());
        let tiny = Duration::from_nanos(1);
        assert!(Schedule::bursts(0.0, 1.0, tiny, tiny, SECOND).is_err());
        let steps = steps(1.0, 1000.0, 1.0);
        assert!(Schedule::steps(steps, 3 * 3600 * SECOND).is_err());
    }

    #[test]
    fn a_step_is_a_phase_and_the_warm_up_does_not_count() {
        let steps = steps(100.0, 300.0, 100.0);
        let schedule = Schedule::steps(steps, 10 * SECOND).unwrap();
        let schedule = schedule.after_warm_up(2 * SECOND);
        let phases = schedule.phases(2 * SECOND, Split::Segments);
        let labels: Vec<&str> = phases.iter().map(|phase| phase.label.as_str()).collect();
        assert_eq!(labels, ["warm-up", "100/s", "200/s", "300/s"]);
        let counted: Vec<bool> = phases.iter().map(|phase| phase.counted).collect();
        assert_eq!(counted, [false, true, true, true]);
        assert_eq!(phases[0].rate, Some(100.0));
        assert_eq!(
            (phases[3].begin_ns, phases[3].end_ns),
            (22 * NS_PER_S, 32 * NS_PER_S)
        );
        let all = schedule.phases(2 * SECOND, Split::Whole);
        assert_eq!(all.len(), 2);
        assert_eq!((all[1].label.as_str(), all[1].rate), ("all", Some(200.0)));
    }

    #[test]
    fn what_ramps_and_bursts_offer() {
        let ramp = Schedule::ramp(0.0, 500.0, 10 * SECOND).unwrap();
        let ramp = ramp.after_warm_up(SECOND);
        assert_eq!(ramp.total(), 3000.0);
        let phases = ramp.phases(SECOND, Split::Whole);
        assert_eq!(phases[1].label, "0..500/s");
        assert_eq!(phases[1].rate, Some(250.0));
        let length = Duration::from_millis(300);
        let bursts = Schedule::bursts(10.0, 90.0, length, length, SECOND).unwrap();
        let rates: Vec<f64> = bursts.segments.iter().map(|one| one.rate_begin).collect();
        assert_eq!(rates, [90.0, 10.0, 90.0, 10.0]);
        assert_eq!(bursts.duration_ns(), NS_PER_S);
        assert!((bursts.total() - 58.0).abs() < 1e-9);
    }

    #[test]
    fn closed_loops_offer_no_rate() {
        let phases = closed_phases(SECOND, 5 * SECOND);
        assert_eq!(phases.len(), 2);
        assert_eq!(
            (phases[1].begin_ns, phases[1].end_ns),
            (NS_PER_S, 6 * NS_PER_S)
        );
        assert_eq!((phases[1].rate, phases[0].counted), (None, false));
        assert_eq!(closed_phases(Duration::ZERO, SECOND).len(), 1);
    }

    #[test]
    fn labels_show_no_rounding() {
        assert_eq!(rate_text(500.0), "500/s");
        assert_eq!(rate_text(0.1 + 0.2), "0.3/s");
        assert_eq!(rate_text(1e-9), "0.000000001/s");
    }
}
