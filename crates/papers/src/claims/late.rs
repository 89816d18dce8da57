//! Times of trials in which the client was late: they are discarded, and bound the server's all the same.
//!
//! A client that sends or reads late makes times longer. Where even these are at most what a claim
//! allows, it holds. Where they are more, they say nothing.
//!
//! This is so in an open loop, where latency counts from when a request is due: if it had been sent then, its
//! response would have come no later. In a closed loop a late client asks for less, and the server may be
//! quicker for that. Service times count from when a request is sent, and may be shorter if it is sent late:
//! latency, which contains them, takes their place.
//!
//! Requests that failed have no such time. The timeout begins when a request is sent, and at its end the client
//! reads what has come before it gives up: being late loses no response, except perhaps in the last moment. A
//! median would be wrong only if half of all responses came then. A mean or a tail may be wrong by a few of
//! them, and is not taken if any request failed.

use loadline_capacity::stats::Interval;
use loadline_lab::analysis::{Cell, Measured, Metric};
use loadline_lab::report::Verdict;

use super::evidence::{BLOCKS_MIN, Estimate, Evidence};
use super::finding::{Bound, ClaimFinding};
use super::quantity::Quantity;
use super::value::Value;

/// What was measured, against the most that a claim allows, with the trials whose client was late; `None`: it
/// does not hold by them.
pub(super) fn bounded(
    value: &Value,
    (what, bound): (&str, Bound),
    evidence: &Evidence<'_>,
) -> Option<ClaimFinding> {
    let (of, quantity, is_largest) = match value {
        Value::Mean { of, quantity } => (of, *quantity, false),
        Value::Largest { of, quantity } => (of, *quantity, true),
        _ => return None,
    };
    let (Quantity::Metric(metric), Bound::AtMost(_)) = (quantity, bound) else {
        return None;
    };
    let longer = longer(metric)?;
    let trials = evidence.trials(of);
    let late: Vec<&Measured> = trials.iter().copied().filter(|it| is_late(it)).collect();
    // Those without would be the slow ones.
    let have_all = late.iter().all(|trial| bounding(trial, longer).is_some());
    let are_open = evidence.cells(of).all(|cell| is_open_loop(evidence, cell));
    if late.is_empty() || !have_all || !are_open {
        return None;
    }
    let at_most = |trial: &Measured| match is_late(trial) {
        true => bounding(trial, longer),
        false => trial.value(metric),
    };
    let mean = evidence.mean(&at_most, of).ok()?;
    mean.blocks.filter(|count| *count >= BLOCKS_MIN)?;
    let values: Vec<f64> = trials.iter().filter_map(|trial| at_most(trial)).collect();
    let measured = match is_largest {
        true => largest(&values, mean)?,
        false => mean,
    };
    let what = what.replace("{count}", &values.len().to_string());
    let what = format!("{what} (at most: the client was late)");
    let mut finding = ClaimFinding::of(&what, &measured, bound);
    if finding.verdict != Verdict::Reproduced {
        return None;
    }
    finding.why += &format!(
        " In {} of {} trials the client was late, which makes times longer: the server's are at most \
         these.",
        late.len(),
        trials.len()
    );
    if longer != metric {
        finding.why += " There latency is taken for service time: it contains it, and counts from when \
                        requests are due.";
    }
    Some(finding)
}

/// What is no shorter for a late client, and no shorter than this; `None`: there is no such thing.
fn longer(metric: Metric) -> Option<Metric> {
    match metric {
        Metric::MeanUs
        | Metric::P50Us
        | Metric::P90Us
        | Metric::P99Us
        | Metric::P999Us
        | Metric::MaxUs => Some(metric),
        Metric::ServiceP50Us => Some(Metric::P50Us),
        Metric::ServiceP99Us => Some(Metric::P99Us),
        _ => None,
    }
}

/// Whether the client was late, and nothing else discards its times.
fn is_late(trial: &Measured) -> bool {
    trial.counts() && !trial.times_discarded.is_empty() && !trial.is_short
}

/// What was measured by a late client, unless it may lack responses.
fn bounding(trial: &Measured, metric: Metric) -> Option<f64> {
    let none_failed = || {
        let share = trial.measured(Metric::ErrorShare);
        share.is_some_and(|share| share <= 0.0)
    };
    let has_all = metric == Metric::P50Us || none_failed();
    trial.measured(metric).filter(|_| has_all)
}

/// Whether requests are sent at a rate, whatever becomes of those before.
fn is_open_loop(evidence: &Evidence<'_>, cell: &Cell<'_>) -> bool {
    let is_rate = |name: &String| name.starts_with("rate");
    let mut series = evidence.series(cell.series);
    cell.levels.keys().any(is_rate) || series.any(|one| one.load.keys().any(is_rate))
}

/// The interval reaches up to it, however unusual it is.
fn largest(values: &[f64], mean: Estimate) -> Option<Estimate> {
    let value = values.iter().copied().reduce(f64::max)?;
    let interval = mean.interval.map(|it| Interval { high: value, ..it });
    Some((value, interval).into())
}
