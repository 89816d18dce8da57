//! A service level objective, `p99 < 50ms, errors < 0.1%`, and whether a trial holds it.
//!
//! A trial holds a rate if every condition holds, at least 99 % of what was offered was completed,
//! the client kept to its schedule, and what waited did not grow while the rate stayed the same. A
//! trial whose client was the limit says nothing about the server, with one exception: if it holds
//! all the same, it would hold with a better client, too, since latency counts from when a request
//! was due.

use std::fmt;
use std::str::FromStr;

use loadline_capacity::search::{Share, TrialOutcome};
use loadline_capacity::stats::{kendall, median};
use loadline_record::assertion::{AssertionError, Beyond};
use loadline_record::verdict::{LAG_FLOOR_US, LAG_LIMIT_US, LAG_SHARE_MAX};
use loadline_record::{Assertion, TrialRecord};
use serde::{Deserialize, Serialize};

/// The part of what was offered that has to be completed: below it, the server is saturated.
pub const COMPLETED_SHARE_MIN: f64 = 0.99;

/// The share of what was offered during a trial by which what waits may grow: half of what the
/// completed share would notice.
pub const GROWTH_SHARE_MAX: f64 = 0.005;

/// And by this number of requests in any case.
const GROWTH_REQUESTS_MAX: f64 = 10.0;

/// How likely such a rise may be where nothing grows.
const GROWTH_P_MAX: f64 = 0.01;

/// Conditions of an SLO: more are no objective any more.
const CONDITIONS_MAX: usize = 16;

/// Conditions that have to hold, all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Slo {
    conditions: Vec<Assertion>,
}

impl FromStr for Slo {
    type Err = AssertionError;

    fn from_str(text: &str) -> Result<Self, AssertionError> {
        let conditions = text.split(',').map(str::parse);
        let conditions = conditions.collect::<Result<Vec<Assertion>, _>>()?;
        if conditions.len() > CONDITIONS_MAX {
            let count = conditions.len();
            let right = format!("right would be at most {CONDITIONS_MAX}");
            return Err(format!("{count} conditions are too many; {right}").into());
        }
        Ok(Self { conditions })
    }
}

impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<&str> = self.conditions.iter().map(Assertion::text).collect();
        f.write_str(&texts.join(", "))
    }
}

/// What a trial says about the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// Whether the rate was held.
    pub outcome: TrialOutcome,
    /// Why it was not, or why nothing can be said; what is noteworthy though it was. In sentences.
    pub reasons: Vec<String>,
}

impl Slo {
    /// Requests that a trial needs for every condition to be known.
    #[must_use]
    pub fn requests_min(&self) -> u64 {
        let needed = self.conditions.iter().map(Assertion::samples_min);
        needed.max().unwrap_or(1)
    }

    /// By how much the client may have been late with one request in a hundred: a tenth of the
    /// shortest time that the SLO names. `None`: it names none.
    #[must_use]
    pub fn lag_us_max(&self) -> Option<f64> {
        let times = self.conditions.iter().filter_map(Assertion::time_us);
        let shortest = times.min_by(f64::total_cmp)?;
        Some((shortest * LAG_SHARE_MAX).max(LAG_FLOOR_US as f64))
    }

    /// How many requests were beyond the bound of each percentile.
    #[must_use]
    pub fn shares(&self, record: &TrialRecord) -> Vec<Share> {
        let beyond = self.conditions.iter().filter_map(|one| one.beyond(record));
        let share = |beyond: Beyond| Share {
            beyond: beyond.count,
            of: beyond.of,
            allowed: beyond.allowed,
            bound_s: Some(beyond.bound_us / 1e6),
        };
        beyond.map(share).collect()
    }

    /// Judges a trial at a constant open-loop rate.
    #[must_use]
    pub fn judge(&self, record: &TrialRecord) -> Judgement {
        let (mut broken, mut unknown) = (Vec::new(), Vec::new());
        if record.run.interrupted {
            unknown.push("The trial was interrupted.".to_owned());
        }
        for condition in &self.conditions {
            let finding = condition.check(record);
            if finding.holds {
                continue;
            }
            match finding.is_known {
                true => broken.push(format!("{}.", finding.line)),
                false => unknown.push(format!("{}.", finding.line)),
            }
        }
        let overloaded: Vec<String> = saturated(record)
            .into_iter()
            .chain(growing(record))
            .collect();
        let is_overloaded = !overloaded.is_empty();
        broken.extend(overloaded);
        let late = self.late(record);
        let outcome = match (broken.is_empty(), unknown.is_empty()) {
            (true, true) if late.is_none() => TrialOutcome::Holds,
            // It is disturbed, at this rate as at others: that says nothing of what it can do.
            (true, _) => TrialOutcome::Discarded,
            // One that was only late is not at its limit; it was disturbed.
            (false, _) if record.verdict.client_limited && !is_late_alone(record) => {
                TrialOutcome::ClientLimited
            }
            // Being late delays answers; it does not leave requests behind.
            (false, _) if late.is_some() && !is_overloaded => TrialOutcome::Discarded,
            (false, _) => TrialOutcome::Fails,
        };
        let mut reasons = broken;
        reasons.extend(unknown);
        if outcome != TrialOutcome::Holds && outcome != TrialOutcome::Fails {
            reasons.extend(late);
            reasons.extend(record.verdict.reasons.iter().cloned());
        }
        Judgement { outcome, reasons }
    }

    /// That the client did not keep to its schedule, as a sentence.
    fn late(&self, record: &TrialRecord) -> Option<String> {
        let verdict = &record.verdict;
        let lag_us = verdict.lag_p99_us.max(verdict.read_lag_p99_us)? as f64;
        let max_us = self.lag_us_max()?;
        (lag_us > max_us).then(|| {
            format!(
                "The client was late: one request in a hundred by at least {lag_us:.0} us, more than \
                 {max_us:.0} us, a tenth of the SLO."
            )
        })
    }
}

/// Whether nothing is wrong with the client but that it was late, in sending or in reading: it was not
/// busy, nobody held it back, and it sent the plan.
#[must_use]
pub fn is_late_alone(record: &TrialRecord) -> bool {
    let verdict = &record.verdict;
    let is_reason = |late: &Option<String>, lag_us: Option<u64>| {
        late.is_some() && lag_us.is_some_and(|us| us > LAG_LIMIT_US)
    };
    let of_lag = usize::from(is_reason(&verdict.late, verdict.lag_p99_us))
        + usize::from(is_reason(&verdict.read_late, verdict.read_lag_p99_us));
    let is_late = verdict.late.is_some() || verdict.read_late.is_some();
    is_late && verdict.reasons.len() == of_lag
}

fn saturated(record: &TrialRecord) -> Option<String> {
    // While it lasted: what is answered after the end has been waiting.
    let total = &record.headline()?.total;
    let offered = total.rates.offered_per_s;
    // An answer that is followed by another attempt completes no request.
    let retried_per_s = total.tally.answers_retried() as f64 / total.seconds.max(f64::MIN_POSITIVE);
    let completed = (total.rates.completed_per_s - retried_per_s).max(0.0);
    let missing = (offered - completed) * total.seconds;
    let is_saturated = completed < offered * COMPLETED_SHARE_MIN && missing > GROWTH_REQUESTS_MAX;
    is_saturated.then(|| {
        format!(
            "Only {:.1} % of what was offered was completed ({completed:.0} of {offered:.0} a second).",
            completed / offered * 100.0
        )
    })
}

/// That more and more requests were waiting, as a sentence: by the trend of the backlog at the end
/// of each whole second.
fn growing(record: &TrialRecord) -> Option<String> {
    let group = record.headline()?;
    let mut waiting = 0.0;
    let mut points = Vec::new();
    for second in &group.series {
        waiting += second.offered as f64 - second.good as f64 - second.errors as f64;
        let end_s = f64::from(second.second) + 1.0;
        let is_counted = (record.phase_of(second.second))
            .is_some_and(|phase| phase.counted && end_s <= phase.end_s + 0.01);
        if is_counted {
            points.push((end_s, waiting));
        }
    }
    let trend = kendall(&points)?;
    let slopes: Vec<f64> = (points.iter().enumerate())
        .flat_map(|(index, (x, y))| {
            let before = points[..index].iter();
            before.map(move |(other_x, other_y)| (y - other_y) / (x - other_x))
        })
        .collect();
    let growth = median(&slopes)? * group.total.seconds;
    let offered = group.total.tally.offered as f64;
    let bound = (offered * GROWTH_SHARE_MAX).max(GROWTH_REQUESTS_MAX);
    (trend.p_rising < GROWTH_P_MAX && growth > bound).then(|| {
        format!(
            "More and more requests were waiting: {growth:.0} more at the end than at the begin."
        )
    })
}

#[cfg(test)]
mod tests {
    use loadline_record::{
        Distribution, ErrorKind, GroupRecord, PhaseRecord, Results, SecondRecord, latencies,
    };

    use super::*;

    /// 10 s at 1000/s, every answer after 5 ms.
    fn record(change: impl FnOnce(&mut TrialRecord)) -> TrialRecord {
        let mut total = Results {
            seconds: 10.0,
            ..Results::default()
        };
        (total.tally.offered, total.tally.sent) = (10_000, 10_000);
        (total.tally.completed, total.tally.good) = (10_000, 10_000);
        (total.rates.offered_per_s, total.rates.completed_per_s) = (1000.0, 1000.0);
        let series = (0..10).map(|second| SecondRecord {
            second,
            offered: 1000,
            good: if second == 0 { 995 } else { 1000 },
            ..SecondRecord::default()
        });
        let mut record = TrialRecord {
            groups: vec![GroupRecord {
                name: "clients".to_owned(),
                total,
                series: series.collect(),
                ..GroupRecord::default()
            }],
            phases: vec![PhaseRecord {
                end_s: 10.0,
                counted: true,
                ..PhaseRecord::default()
            }],
            ..TrialRecord::default()
        };
        took(&mut record, &[(5_000, 10_000)]);
        record.verdict.lag_p99_us = Some(100);
        change(&mut record);
        record
    }

    /// Latencies in microseconds, each with how often it occurs.
    fn took(record: &mut TrialRecord, times: &[(u64, u64)]) {
        let mut histogram = latencies();
        for (us, count) in times {
            histogram.saturating_record_n(*us, *count);
        }
        record.groups[0].total.latency = Distribution::new(histogram);
    }

    fn slo() -> Slo {
        "p99 < 50ms, errors < 0.1%".parse().unwrap()
    }

    fn outcome(change: impl FnOnce(&mut TrialRecord)) -> TrialOutcome {
        slo().judge(&record(change)).outcome
    }

    #[test]
    fn conditions_are_read() {
        assert_eq!(slo().to_string(), "p99 < 50ms, errors < 0.1%");
        assert_eq!(slo().requests_min(), 1000);
        assert_eq!(slo().lag_us_max(), Some(5000.0));
        assert_eq!("errors == 0".parse::<Slo>().unwrap().lag_us_max(), None);
        let tight: Slo = "p99.9 < 200us".parse().unwrap();
        assert_eq!(
            (tight.requests_min(), tight.lag_us_max()),
            (10_000, Some(50.0))
        );
        for (text, part) in [
            ("", "no comparison"),
            ("p99 < 50ms,", "no comparison"),
            ("p99 < 50", "a unit is missing"),
            ("speed > 3", "unknown quantity"),
        ] {
            let error = text.parse::<Slo>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        let many = vec!["errors == 0"; 17].join(",");
        assert!(many.parse::<Slo>().is_err());
    }

    #[test]
    fn held_and_not() {
        assert_eq!(outcome(|_| ()), TrialOutcome::Holds);
        type Change = fn(&mut TrialRecord);
        let broken: [Change; 5] = [
            |record| took(record, &[(60_000, 10_000)]),
            |record| took(record, &[(5_000, 9_890)]), // others were never answered
            |record| record.groups[0].total.tally.errors[0] = 11,
            |record| record.groups[0].total.rates.completed_per_s = 989.0, // saturated
            |record| record.groups[0].total.tally.retried = [100; ErrorKind::ALL.len()], // likewise
        ];
        for change in broken {
            assert_eq!(outcome(change), TrialOutcome::Fails);
        }
    }

    #[test]
    fn shares_beyond_the_bounds() {
        let slo: Slo = "p99 < 50ms, errors < 0.1%, service p50 <= 1ms, p90 > 1ms"
            .parse()
            .unwrap();
        let slow = |record: &mut TrialRecord| {
            took(record, &[(5_000, 9_800), (60_000, 200)]);
        };
        let shares = slo.shares(&record(slow));
        // Those of percentiles with an upper bound, in their order.
        let [latency, service] = shares[..] else {
            panic!("{shares:?}");
        };
        assert_eq!((latency.beyond, latency.of), (200, 10_000));
        assert!((latency.allowed - 0.01).abs() < 1e-9);
        assert_eq!(latency.bound_s, Some(0.05));
        // Sent, and without any service time: never answered.
        assert_eq!((service.beyond, service.of), (10_000, 10_000));
        // Who never got an answer waited longer than any bound.
        let unanswered = |record: &mut TrialRecord| {
            slow(record);
            record.groups[0].total.tally.offered = 10_300;
        };
        let latency = slo.shares(&record(unanswered))[0];
        assert_eq!((latency.beyond, latency.of), (500, 10_300));
    }

    #[test]
    fn a_backlog_that_grows() {
        let growing = |share: u64| {
            move |record: &mut TrialRecord| {
                for second in &mut record.groups[0].series {
                    second.good = 1000 - share;
                }
            }
        };
        assert_eq!(outcome(growing(0)), TrialOutcome::Holds);
        assert_eq!(outcome(growing(4)), TrialOutcome::Holds); // less than what matters
        assert_eq!(outcome(growing(7)), TrialOutcome::Fails);
        // It comes and goes: no trend.
        let wavy = |record: &mut TrialRecord| {
            for (index, second) in record.groups[0].series.iter_mut().enumerate() {
                second.good = if index % 2 == 0 { 900 } else { 1100 };
            }
        };
        assert_eq!(outcome(wavy), TrialOutcome::Holds);
    }

    #[test]
    fn what_says_nothing() {
        let few = |record: &mut TrialRecord| {
            took(record, &[(5_000, 900)]);
            let total = &mut record.groups[0].total;
            (total.tally.offered, total.tally.completed) = (900, 900);
            (total.rates.offered_per_s, total.rates.completed_per_s) = (90.0, 90.0);
        };
        assert_eq!(outcome(few), TrialOutcome::Discarded);
        let interrupted = |record: &mut TrialRecord| record.run.interrupted = true;
        assert_eq!(outcome(interrupted), TrialOutcome::Discarded);
        let late = |record: &mut TrialRecord| record.verdict.lag_p99_us = Some(5_001);
        assert_eq!(outcome(late), TrialOutcome::Discarded);
        let late_and_slow = |record: &mut TrialRecord| {
            late(record);
            took(record, &[(60_000, 10_000)]);
        };
        assert_eq!(outcome(late_and_slow), TrialOutcome::Discarded);
        let late_and_saturated = |record: &mut TrialRecord| {
            late_and_slow(record);
            record.groups[0].total.rates.completed_per_s = 900.0;
        };
        assert_eq!(outcome(late_and_saturated), TrialOutcome::Fails);
    }

    #[test]
    fn a_client_at_its_limit() {
        let busy = |record: &mut TrialRecord| {
            record.verdict.client_limited = true;
            record.verdict.busiest_share = Some(0.9);
            record.verdict.reasons = vec!["busy".to_owned()];
        };
        // It holds all the same: a better client could not make it fail.
        assert_eq!(outcome(busy), TrialOutcome::Holds);
        let busy_and_broken = |record: &mut TrialRecord| {
            busy(record);
            record.groups[0].total.rates.completed_per_s = 500.0;
        };
        assert_eq!(outcome(busy_and_broken), TrialOutcome::ClientLimited);
        // Late by more than a tenth of the median, but not by what this SLO can notice.
        let a_little_late = |record: &mut TrialRecord| {
            record.verdict.lag_p99_us = Some(900);
            record.verdict.late = Some("late".to_owned());
            record.groups[0].total.rates.completed_per_s = 500.0;
        };
        assert_eq!(outcome(a_little_late), TrialOutcome::Fails);
    }
}
