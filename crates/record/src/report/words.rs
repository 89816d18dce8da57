//! What is said in sentences: errors by kind, and what a form of another tool has no place for.

use loadline_base::sorting::sort_by_key;

use super::number::{count, percent, significant, span_s, time_us};
use super::parts::Fates;
use crate::distribution::{PERCENTS, samples_min};
use crate::{Distribution, ErrorKind, LittleRecord, Results, Tally, TrialRecord, Verdict};

/// From this part of the machine's CPU time on, it is noted that other guests had it.
const STEAL_SHARE_NOTED: f64 = 0.01;

/// Statuses of one kind that are listed one by one.
const STATUSES_LISTED_MAX: usize = 5;

/// The errors of a tally, each in words with its count: by kind, and those for a status by status.
pub(super) fn errors(tally: &Tally) -> Vec<(String, u64)> {
    let mut errors = Vec::new();
    for kind in ErrorKind::ALL {
        let of_kind = |one: &&(u16, u64)| ErrorKind::of_status(one.0) == kind;
        let statuses = tally.unexpected_statuses.iter();
        let mut statuses: Vec<_> = statuses.filter(of_kind).collect();
        sort_by_key(&mut statuses, |(_, count)| std::cmp::Reverse(*count));
        statuses.truncate(STATUSES_LISTED_MAX);
        let other = if statuses.is_empty() { "" } else { "other " };
        let mut rest = tally.errors_of(kind);
        for (status, count) in statuses {
            rest = rest.saturating_sub(*count);
            errors.push((format!("unexpected status {status}"), *count));
        }
        if rest > 0 {
            errors.push((format!("{other}{}", kind.words()), rest));
        }
    }
    errors
}

/// The reason phrase of a status; empty for one that has none.
pub(super) fn reason(status: u16) -> &'static str {
    let status = http::StatusCode::from_u16(status).ok();
    let reason = status.and_then(|status| status.canonical_reason());
    reason.unwrap_or_default()
}

/// What has to be known to read a result rightly, and what the form of another tool has no place
/// for: one sentence each, the gravest first. The program prints them beside such a form, on
/// standard error.
#[must_use]
pub fn notes(record: &TrialRecord) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(interrupted(record));
    let laws = record.verdict.laws().filter(|(_, law)| !law.holds);
    notes.extend(laws.filter_map(|(whose, law)| little(&whose, law)));
    if record.verdict.client_limited {
        notes.push(client(&record.verdict));
    }
    notes.extend(remarks(&record.verdict).cloned());
    if let Some(group) = record.headline() {
        notes.extend(completed_only(&group.total));
        notes.extend(unbacked(&group.total));
        notes.extend(without_a_place(&group.total.tally));
        for other in record.others(group) {
            notes.push(format!(
                "{} are not among these figures: {} requests, {} good, {} errors",
                other.name,
                count(other.total.tally.offered),
                count(other.total.tally.good),
                count(other.total.tally.errors_total())
            ));
        }
    }
    notes.extend(surroundings(record));
    notes
}

pub(super) fn interrupted(record: &TrialRecord) -> Option<String> {
    let run = &record.run;
    let planned = run.planned_s.map(span_s);
    let planned = planned.map_or_else(String::new, |planned| format!(" of {planned}"));
    let ran = span_s(run.ran_s);
    let sentence = format!("interrupted after {ran}{planned}: this is what was measured so far");
    run.interrupted.then_some(sentence)
}

/// The verdict in one sentence.
pub(super) fn client(verdict: &Verdict) -> String {
    if verdict.client_limited {
        return match verdict.reasons.is_empty() {
            true => "client-limited".to_owned(),
            false => format!("client-limited: {}", verdict.reasons.join(" ")),
        };
    }
    let busiest = verdict.busiest_share.map(|share| {
        let name = verdict.busiest_thread.as_deref().unwrap_or("of all");
        format!("busiest thread ({name}) {}", percent(share, 1.0))
    });
    let lag = verdict
        .lag_p99_us
        .map(|us| format!("schedule lag p99 {}", time_us(us as f64)));
    let facts: Vec<String> = busiest.into_iter().chain(lag).collect();
    match facts.is_empty() {
        true => "the client was not the limit".to_owned(),
        false => format!("the client was not the limit: {}", facts.join(", ")),
    }
}

/// What a verdict says besides; what was late is the reason where the client was the limit.
pub(super) fn remarks(verdict: &Verdict) -> impl Iterator<Item = &String> {
    let late = verdict.late.iter().chain(&verdict.read_late);
    let late = late.filter(move |_| !verdict.client_limited);
    late.chain(&verdict.short).chain(&verdict.notes)
}

/// Below one request in flight the law would hold whatever was measured: nothing is said then.
const IN_FLIGHT_SHOWN_MIN: f64 = 1.0;

/// `whose` stands before it.
pub(super) fn little(whose: &str, law: &LittleRecord) -> Option<String> {
    let is_little = law.in_flight.max(law.expected_max) < IN_FLIGHT_SHOWN_MIN;
    if law.holds && is_little {
        return None;
    }
    let holds = match law.holds {
        true => "Little's law holds",
        false => "MEASURING FAULT: Little's law does not hold",
    };
    let rounded = |requests: f64| significant(requests, 3);
    // Failed requests were in flight too, for a time that is known only at most.
    let expected = match law.expected_max > law.expected * 1.001 {
        true => format!("{} to {}", rounded(law.expected), rounded(law.expected_max)),
        false => rounded(law.expected),
    };
    Some(format!(
        "{whose}{holds}: {} requests in flight on average, {expected} by rate x service time \
         (tolerance {} and {} requests)",
        rounded(law.in_flight),
        percent(law.tolerance, 1.0),
        law.tolerance_requests
    ))
}

/// Where everything stayed within one machine: such figures say nothing of a network.
pub(super) fn loopback(record: &TrialRecord) -> Option<&'static str> {
    record.run.is_over_loopback().then_some(
        "over the loopback: client and server are on one machine, and no network is between them",
    )
}

/// What happened on the machine during the run that may have had a part in the figures.
pub(super) fn surroundings(record: &TrialRecord) -> Option<String> {
    let machine = &record.machine;
    let (before, after) = (&machine.network_before, &machine.network_after);
    let grown = |before: Option<u64>, after: Option<u64>| {
        let more = after?.saturating_sub(before?);
        (more > 0).then(|| count(more))
    };
    let overflows = grown(before.listen_overflows, after.listen_overflows);
    let overflows = overflows.map(|more| format!("{more} connections met a full listen queue"));
    let retransmits = grown(before.retransmits, after.retransmits);
    let retransmits = retransmits.map(|more| format!("{more} segments were sent again"));
    let steal_s = machine.steal_s.filter(|steal_s| {
        *steal_s > STEAL_SHARE_NOTED * record.counted_span_s() * f64::from(machine.cpus.max(1))
    });
    let steal = steal_s.map(|steal_s| {
        let steal = span_s(steal_s);
        format!("the hypervisor kept {steal} of CPU time for others")
    });
    let facts: Vec<String> = [overflows, retransmits, steal]
        .into_iter()
        .flatten()
        .collect();
    let facts = (!facts.is_empty()).then(|| facts.join(", "))?;
    Some(format!("on this machine during the run: {facts}"))
}

/// Of which requests the latencies are, where some have none.
pub(super) fn completed_only(results: &Results) -> Option<String> {
    let fates = Fates::of(&results.tally);
    let share = |requests: u64| {
        let share = percent(requests as f64, results.tally.offered as f64);
        format!("{} requests ({share})", count(requests))
    };
    let mut without = Vec::new();
    if fates.errored > 0 {
        let after = failed_after(&results.failure);
        without.push(format!(
            "{} without one failed{after}",
            share(fates.errored)
        ));
    }
    let untried = fates.dropped + results.tally.unfinished;
    if untried > 0 {
        let requests = share(untried);
        without.push(format!(
            "{requests} were never sent, or given up at the end"
        ));
    }
    (!without.is_empty()).then(|| {
        let without = without.join("; ");
        format!("latencies are of complete responses only: {without}")
    })
}

/// ", after 2.00 s at the median".
fn failed_after(failure: &Distribution) -> String {
    let (us, which) = match failure.percentile_us(50.0) {
        Some(us) => (Some(us), "at the median"),
        None => (failure.max_us(), "at most"),
    };
    let after = us.map(|us| format!(", after {} {which}", time_us(us as f64)));
    after.unwrap_or_default()
}

fn unbacked(results: &Results) -> Option<String> {
    let samples = results.latency.count();
    let unbacked = |percent: &&f64| samples < samples_min(**percent);
    let first = PERCENTS.iter().find(unbacked)?;
    Some(format!(
        "percentiles from p{first} on are not backed by {} samples: {} are needed",
        count(samples),
        count(samples_min(*first))
    ))
}

/// Errors that only Loadline distinguishes.
fn without_a_place(tally: &Tally) -> Vec<String> {
    let kinds = [
        ErrorKind::Dropped,
        ErrorKind::Late,
        ErrorKind::WrongContent,
        ErrorKind::LongBody,
    ];
    let there = kinds.into_iter().filter(|&kind| tally.errors_of(kind) > 0);
    let mut notes: Vec<String> = there
        .map(|kind| format!("{}: {}", kind.words(), count(tally.errors_of(kind))))
        .collect();
    if tally.unfinished > 0 {
        notes.push(format!(
            "given up because the run ended: {}",
            count(tally.unfinished)
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_leave_out_what_was_never_sent() {
        let mut results = Results::default();
        results.tally.offered = 100;
        results.tally.completed = 90;
        results.tally.good = 90;
        assert_eq!(completed_only(&results), None);
        results.tally.unfinished = 6;
        results.tally.errors[ErrorKind::Dropped as usize] = 4;
        let line = completed_only(&results).unwrap();
        assert!(
            line.ends_with("only: 10 requests (10 %) were never sent, or given up at the end"),
            "{line}"
        );
    }

    #[test]
    fn littles_law_is_shown_where_it_can_fail() {
        let law = |in_flight: f64, expected: f64, holds: bool| {
            let law = LittleRecord {
                in_flight,
                expected,
                expected_max: expected,
                tolerance: 0.05,
                tolerance_requests: 0.5,
                holds,
            };
            little("", &law)
        };
        assert_eq!(law(0.0111, 0.0128, true), None);
        let line = law(2.0, 2.2, true).unwrap();
        assert!(line.contains("(tolerance 5 % and 0.5 requests)"), "{line}");
        assert!(law(0.9, 0.1, false).unwrap().starts_with("MEASURING FAULT"));
    }
}
