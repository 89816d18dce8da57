//! Whether a trial counts: a pure function of what was measured and what the plan allows.
//!
//! A trial that does not count is discarded, with every reason for it; it is kept and shown. What the plan
//! allows is noted instead.

use loadline_record::{
    ErrorKind, GroupRecord, HTTP2_GROUP, LoadRecord, NetworkRecord, TrialRecord,
};

use crate::journal::{ServerFacts, Trial, cpus_of};
use crate::plan::Allow;
use crate::slo::is_late_alone;

/// Seconds that both halves of a trial need before they are compared.
const STEADY_SECONDS_MIN: usize = 2;
/// By what part of their mean the halves of a steady trial may differ in answers.
const STEADY_TOLERANCE: f64 = 0.1;
/// Segments sent again, of requests sent: beyond it, latencies are made by timers of TCP.
const RETRANSMITS_SHARE_MAX: f64 = 0.01;

/// What a trial came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Judgement {
    /// Why it does not count.
    pub(super) discarded: Vec<String>,
    /// Why its times do not, though all else does.
    pub(super) times_discarded: Vec<String>,
    /// What is worth knowing and does not decide.
    pub(super) notes: Vec<String>,
    /// Whether the client of a closed loop was at its end.
    pub(super) client_limited: bool,
    /// Whether one of the reasons lies outside of what was measured.
    pub(super) disturbed: bool,
}

impl Judgement {
    /// Stands in the journal from now on; a trial may be discarded for other reasons, too.
    pub(super) fn record_in(self, trial: &mut Trial) {
        trial.discarded.extend(self.discarded);
        trial.times_discarded = self.times_discarded;
        trial.notes = self.notes;
        trial.client_limited = self.client_limited;
        trial.disturbed = self.disturbed;
    }

    fn disturbed(&mut self, sentence: String) {
        self.discarded.push(sentence);
        self.disturbed = true;
    }

    fn say(&mut self, is_allowed: bool, sentence: String) {
        if is_allowed {
            self.notes.push(format!("Allowed by the plan: {sentence}"));
        } else {
            self.discarded.push(sentence);
        }
    }
}

/// Judges.
pub(super) fn judge(record: &TrialRecord, server: &ServerFacts, allow: &Allow) -> Judgement {
    let mut judgement = Judgement::default();
    if record.run.interrupted {
        judgement.say(false, "The client was interrupted.".to_owned());
    }
    if let Some(group) = record.headline() {
        judge_errors("", group, allow, &mut judgement);
        judge_steady(record, group, &mut judgement);
        for other in record.groups.iter().filter(|one| one.name != group.name) {
            match other.name.as_str() {
                HTTP2_GROUP => judge_errors("HTTP/2: ", other, allow, &mut judgement),
                _ => judge_side_load(other, allow, &mut judgement),
            }
        }
    }
    judge_client(record, allow, &mut judgement);
    for (whose, little) in record.verdict.laws().filter(|(_, law)| !law.holds) {
        // Rate and time are of answers: requests that failed have been in flight, too.
        let failed = |group: &GroupRecord| group.total.tally.errors_total() > 0;
        let is_allowed = allow.errors > 0.0 && record.measured_groups().any(failed);
        let sentence = format!(
            "{whose}Little's law does not hold: {:.1} requests were in flight on average, and rate times \
             time is {:.1}. {}",
            little.in_flight,
            little.expected,
            match is_allowed {
                true => "Requests that failed are in the first alone.",
                false => "Something was measured wrongly.",
            }
        );
        judgement.say(is_allowed, sentence);
    }
    if let Some(sentence) = stolen(record, allow.steal) {
        judgement.disturbed(sentence);
    }
    judge_others(record, server, allow, &mut judgement);
    judge_network(record, allow, &mut judgement);
    judge_counts(record, server, &mut judgement);
    judgement
}

/// What a closed loop carries with a client at its end is the least that the server can carry; a
/// schedule that was not kept says nothing. Where all was sent, only late, the server was offered what
/// was meant, and answered it or not: times alone are the client's.
fn judge_client(record: &TrialRecord, allow: &Allow, judgement: &mut Judgement) {
    let is_closed = matches!(record.run.load, LoadRecord::Closed { .. });
    if is_closed && !record.verdict.reasons.is_empty() {
        judgement.client_limited = true;
        judgement.notes.push(
            "The client was at its end: what was carried is the least that the server can carry."
                .to_owned(),
        );
    } else if is_late_alone(record) {
        let of_times = match allow.client_limited {
            true => &mut judgement.notes,
            false => &mut judgement.times_discarded,
        };
        let verdict = &record.verdict;
        // A closed loop lets a few answers come before it looks: it says so, and by how much.
        let read_late = verdict.read_late.iter().filter(|_| !is_closed);
        of_times.extend(verdict.late.iter().chain(read_late).cloned());
    } else {
        for reason in &record.verdict.reasons {
            judgement.say(allow.client_limited, format!("Client-limited. {reason}"));
        }
    }
    judgement
        .times_discarded
        .extend(record.verdict.short.clone());
    judgement.notes.extend(record.verdict.notes.iter().cloned());
}

/// `whose` stands before what is said.
fn judge_errors(whose: &str, group: &GroupRecord, allow: &Allow, judgement: &mut Judgement) {
    let tally = &group.total.tally;
    if tally.offered == 0 {
        return; // idle and slow clients may well be asked for alone
    }
    if tally.completed == 0 {
        let sentence = format!("{whose}Not one response came.");
        return judgement.say(allow.errors >= 1.0, sentence);
    }
    let errors = tally.errors_total();
    let share = errors as f64 / tally.offered as f64;
    if errors == 0 {
        return;
    }
    let kinds: Vec<String> = ErrorKind::ALL
        .iter()
        .zip(tally.errors)
        .filter(|(_, count)| *count > 0)
        .map(|(kind, count)| format!("{} {count}", kind.name()))
        .collect();
    let (offered, kinds) = (tally.offered, kinds.join(", "));
    let sentence = format!("{whose}{errors} of {offered} requests failed ({kinds}).");
    judgement.say(share <= allow.errors, sentence);
}

/// Beside the load that is measured others may fail, but not ask for what the server does not have: then
/// they are not the load that the plan means.
fn judge_side_load(group: &GroupRecord, allow: &Allow, judgement: &mut Judgement) {
    let tally = &group.total.tally;
    if tally.completed > 0 && tally.statuses[3] == tally.completed {
        let statuses: Vec<String> = (tally.status_codes.iter())
            .map(|(status, count)| format!("{status} {count}"))
            .collect();
        let (name, statuses) = (&group.name, statuses.join(", "));
        let sentence = format!("{name}: every response was a client error ({statuses}).");
        judgement.say(allow.errors >= 1.0, sentence);
    }
}

/// Answers in both halves of the whole seconds that count.
fn judge_steady(record: &TrialRecord, group: &GroupRecord, judgement: &mut Judgement) {
    let is_counted = |second: u32| {
        let (begin_s, end_s) = (f64::from(second), f64::from(second) + 1.0);
        let mut phases = record.phases.iter();
        phases.any(|phase| phase.counted && phase.begin_s <= begin_s && end_s <= phase.end_s)
    };
    let counts: Vec<u64> = group
        .series
        .iter()
        .filter(|second| is_counted(second.second))
        .map(|second| second.completed)
        .collect();
    let half = counts.len() / 2;
    if half < STEADY_SECONDS_MIN || record.has_steps() {
        return;
    }
    let mean = |counts: &[u64]| counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    let (first, second) = (mean(&counts[..half]), mean(&counts[counts.len() - half..]));
    if (first - second).abs() > (first + second) / 2.0 * STEADY_TOLERANCE {
        judgement.notes.push(format!(
            "No steady state was seen: {first:.0} responses a second in the first half, {second:.0} in \
             the second."
        ));
    }
}

/// That the hypervisor kept more of the machine's time than this share.
pub(crate) fn stolen(record: &TrialRecord, allowed: f64) -> Option<String> {
    let steal_s = record.machine.steal_s?;
    let all_s = record.counted_span_s() * f64::from(record.machine.cpus.max(1));
    // The kernel counts in ticks of 10 ms: in a short trial, they can be more than there was time.
    let share = (steal_s / all_s).min(1.0);
    (all_s > 0.0 && share > allowed).then(|| {
        format!(
            "The hypervisor kept {:.1} % of the machine's time; at most {:.1} % are allowed (allow.steal).",
            share * 100.0,
            allowed * 100.0
        )
    })
}

/// Threads of the client that have CPUs of their own and wait for them all the same.
fn judge_others(
    record: &TrialRecord,
    server: &ServerFacts,
    allow: &Allow,
    judgement: &mut Judgement,
) {
    let (of_server, of_client) = (cpus_of(&server.cpus), cpus_of(&server.client_cpus));
    let is_alone = !of_client.iter().any(|cpu| of_server.contains(cpu));
    if !is_alone || record.threads.len() > of_client.len() {
        return;
    }
    let shares = record.threads.iter().map(|thread| thread.run_delay_share);
    let most = shares.fold(0.0_f64, f64::max).min(1.0);
    if most > allow.others {
        judgement.disturbed(format!(
            "Others had the client's CPU for {:.0} % of the time; at most {:.0} % are allowed \
             (allow.others).",
            most * 100.0,
            allow.others * 100.0
        ));
    }
}

fn judge_network(record: &TrialRecord, allow: &Allow, judgement: &mut Judgement) {
    let (before, after) = (
        &record.machine.network_before,
        &record.machine.network_after,
    );
    let grown = |count: fn(&NetworkRecord) -> Option<u64>| {
        let (before, after) = (count(before)?, count(after)?);
        Some(after.saturating_sub(before)).filter(|grown| *grown > 0)
    };
    let dropped = grown(|network| network.listen_drops);
    if let Some(count) = grown(|network| network.listen_overflows).or(dropped) {
        judgement.say(
            allow.overflows,
            format!(
                "The queue of connections in front of the server was full {count} times: they came to \
                 be a second or more later, or not at all."
            ),
        );
    }
    let sent = record.everything.sent;
    if let Some(count) = grown(|network| network.retransmits)
        && count as f64 > sent as f64 * RETRANSMITS_SHARE_MAX
    {
        judgement.notes.push(format!(
            "{count} segments were sent again, for {sent} requests."
        ));
    }
}

/// A server that counted fewer responses than the client received is not the one under load.
fn judge_counts(record: &TrialRecord, server: &ServerFacts, judgement: &mut Judgement) {
    let completed = record.everything.completed;
    if let Some(counted) = server.requests_counted
        && counted < completed
    {
        let sentence =
            format!("The server counted {counted} responses, and the client {completed}.");
        judgement.say(false, sentence);
    }
}

#[cfg(test)]
mod tests {
    use loadline_record::{
        Distribution, LittleRecord, PhaseRecord, SecondRecord, Tally, ThreadRecord, latencies,
    };

    use super::*;

    /// Ten seconds, the first of them warm-up, a thousand answers a second.
    fn sound() -> TrialRecord {
        let mut record = TrialRecord::default();
        let phase = |begin_s: f64, end_s: f64, counted: bool| PhaseRecord {
            begin_s,
            end_s,
            counted,
            ..PhaseRecord::default()
        };
        record.phases = vec![phase(0.0, 1.0, false), phase(1.0, 10.0, true)];
        record.run.ran_s = 10.0;
        record.machine.cpus = 2;
        record.machine.steal_s = Some(0.1);
        record.run.load = LoadRecord::Open {
            arrivals: "poisson".to_owned(),
            overflow: "queue".to_owned(),
            segments: Vec::new(),
        };
        let mut group = GroupRecord::default();
        group.total.tally = Tally {
            offered: 9_000,
            sent: 9_000,
            completed: 9_000,
            good: 9_000,
            ..Tally::default()
        };
        record.everything = group.total.tally.clone();
        group.series = (0..10)
            .map(|second| SecondRecord {
                second,
                completed: if second == 0 { 10 } else { 1_000 },
                ..SecondRecord::default()
            })
            .collect();
        record.groups = vec![group];
        record
    }

    fn discarded(change: impl FnOnce(&mut TrialRecord), allow: Allow) -> Judgement {
        let mut record = sound();
        change(&mut record);
        judge(&record, &ServerFacts::default(), &allow)
    }

    fn allowing(change: impl FnOnce(&mut Allow)) -> Allow {
        let mut allow = Allow::default();
        change(&mut allow);
        allow
    }

    /// How many there are for all of it, and for its times alone.
    fn reasons(judgement: &Judgement) -> [usize; 2] {
        [&judgement.discarded, &judgement.times_discarded].map(Vec::len)
    }

    #[test]
    fn a_side_load_that_asks_for_nothing_there_discards() {
        let with = |statuses: [u64; 5]| {
            move |record: &mut TrialRecord| {
                let mut side = GroupRecord {
                    name: "users".to_owned(),
                    ..GroupRecord::default()
                };
                side.total.tally.completed = statuses.iter().sum();
                side.total.tally.statuses = statuses;
                side.total.tally.status_codes = vec![(404, statuses[3])];
                record.groups.push(side);
            }
        };
        let missing = discarded(with([0, 0, 0, 7, 0]), Allow::default());
        let said = "users: every response was a client error (404 7).";
        assert_eq!(missing.discarded, [said]);
        for statuses in [[0, 1, 0, 7, 0], [0; 5], [0, 0, 0, 0, 7]] {
            let judged = discarded(with(statuses), Allow::default());
            assert!(judged.discarded.is_empty(), "{judged:?}");
        }
    }

    #[test]
    fn a_sound_trial_counts() {
        assert_eq!(discarded(|_| {}, Allow::default()), Judgement::default());
    }

    #[test]
    fn each_reason_is_given() {
        type Change = fn(&mut TrialRecord);
        let cases: [(&str, Change); 7] = [
            ("The client was interrupted", |it| it.run.interrupted = true),
            ("Not one response came", |it| {
                it.groups[0].total.tally.completed = 0;
            }),
            ("9 of 9000 requests failed (reset 2, timeout 7)", |it| {
                let errors = &mut it.groups[0].total.tally.errors;
                errors[ErrorKind::Reset as usize] = 2;
                errors[ErrorKind::Timeout as usize] = 7;
            }),
            ("Client-limited. Too busy.", |it| {
                it.verdict.reasons.push("Too busy.".to_owned());
            }),
            ("Little's law does not hold: 5.0 requests", |it| {
                it.verdict.little = Some(LittleRecord {
                    in_flight: 5.0,
                    expected: 9.0,
                    ..LittleRecord::default()
                });
            }),
            (
                "The hypervisor kept 5.6 % of the machine's time; at most 2.0 %",
                |it| {
                    it.machine.steal_s = Some(1.0);
                },
            ),
            ("was full 3 times", |it| {
                it.machine.network_before.listen_overflows = Some(4);
                it.machine.network_after.listen_overflows = Some(7);
            }),
        ];
        for (reason, change) in cases {
            let judgement = discarded(change, Allow::default());
            assert_eq!(judgement.discarded.len(), 1, "{reason}: {judgement:?}");
            assert!(judgement.discarded[0].contains(reason), "{judgement:?}");
        }
    }

    #[test]
    fn the_share_that_speaks_http2_is_judged_too() {
        let judged = |change: fn(&mut GroupRecord)| {
            let add = |it: &mut TrialRecord| {
                let mut http2 = it.groups[0].clone();
                http2.name = "http2".to_owned();
                change(&mut http2);
                it.groups.push(http2);
            };
            discarded(add, Allow::default()).discarded
        };
        assert_eq!(judged(|_| {}), Vec::<String>::new());
        let errors = judged(|it| it.total.tally.errors[ErrorKind::Reset as usize] = 9);
        assert_eq!(errors, ["HTTP/2: 9 of 9000 requests failed (reset 9)."]);
        let nothing = judged(|it| it.total.tally.completed = 0);
        assert_eq!(nothing, ["HTTP/2: Not one response came."]);
        // It is no side load, which would be a second reason for the same.
        let missing = judged(|it| {
            it.total.tally.errors[ErrorKind::Status4xx as usize] = 9_000;
            it.total.tally.statuses[3] = 9_000;
        });
        let failed = "HTTP/2: 9000 of 9000 requests failed (status_4xx 9000).";
        assert_eq!(missing, [failed]);
    }

    #[test]
    fn times_of_a_closed_loop_that_was_too_short_are_discarded() {
        let short = |it: &mut TrialRecord| {
            it.run.load = LoadRecord::default();
            it.verdict.short = Some("One cycle of 20000 clients takes about 5 s.".to_owned());
        };
        assert_eq!(reasons(&discarded(short, Allow::default())), [0, 1]);
    }

    #[test]
    fn a_plan_that_allows_the_whole_machine_to_others_allows_all_that_can_be_counted() {
        let change = |it: &mut TrialRecord| {
            it.phases[1].end_s = it.phases[1].begin_s + 0.02;
            it.machine.steal_s = Some(0.05);
        };
        assert!(discarded(change, Allow::default()).discarded[0].contains("kept 100.0 %"));
        let allow = allowing(|it| it.steal = 1.0);
        assert_eq!(discarded(change, allow).discarded, Vec::<String>::new());
    }

    #[test]
    fn what_the_plan_allows_is_a_note() {
        let change = |it: &mut TrialRecord| {
            it.groups[0].total.tally.errors[ErrorKind::Reset as usize] = 90;
            it.verdict.reasons.push("Too busy.".to_owned());
            it.machine.network_before.listen_drops = Some(0);
            it.machine.network_after.listen_drops = Some(1);
        };
        let allow = |errors| Allow {
            errors,
            client_limited: true,
            overflows: true,
            ..Allow::default()
        };
        let judgement = discarded(change, allow(0.01));
        assert_eq!((judgement.discarded.len(), judgement.notes.len()), (0, 3));
        assert!(judgement.notes[0].starts_with("Allowed by the plan: 90 of 9000"));
        assert_eq!(discarded(change, allow(0.009)).discarded.len(), 1);
        let nothing = |it: &mut TrialRecord| it.groups[0].total.tally.completed = 0;
        let count = |errors| discarded(nothing, allow(errors)).discarded.len();
        assert_eq!([0.01, 1.0].map(count), [1, 0]);
    }

    #[test]
    fn a_closed_loop_with_a_client_at_its_end_counts_as_the_least() {
        let closed = |it: &mut TrialRecord| {
            it.run.load = LoadRecord::Closed {
                think_s: 0.0,
                coalesces: true,
            };
            it.verdict.reasons.push("Too busy.".to_owned());
        };
        let judgement = discarded(closed, Allow::default());
        assert!(judgement.client_limited && judgement.discarded.is_empty());
        assert_eq!(judgement.notes.len(), 1);
        let sound = discarded(|_| {}, Allow::default());
        assert!(!sound.client_limited && !sound.disturbed);
    }

    #[test]
    fn times_of_an_open_loop_alone_are_discarded_if_its_client_was_only_late() {
        let late = |it: &mut TrialRecord| {
            let mut histogram = latencies();
            histogram.record_n(10_000, 9_000).unwrap();
            it.groups[0].total.latency = Distribution::new(histogram);
            it.verdict.lag_p99_us = Some(1_001);
            it.verdict.reasons.push("It was late.".to_owned());
            it.verdict.late = Some("It was late.".to_owned());
        };
        let judgement = discarded(late, Allow::default());
        assert_eq!(judgement.discarded, Vec::<String>::new());
        assert_eq!(judgement.times_discarded, ["It was late."]);
        let late_and_busy = |it: &mut TrialRecord| {
            late(it);
            it.verdict.reasons.push("It was busy.".to_owned());
        };
        let judgement = discarded(late_and_busy, Allow::default());
        assert_eq!(reasons(&judgement), [2, 0]);
        let judgement = discarded(late, allowing(|it| it.client_limited = true));
        assert_eq!((judgement.notes.len(), reasons(&judgement)[1]), (1, 0));
    }

    #[test]
    fn cpus_that_others_had_disturb_unless_both_sides_share_them() {
        let judged = |cpus: &str, share: f64| {
            let mut record = sound();
            record.threads = vec![ThreadRecord {
                run_delay_share: share,
                ..ThreadRecord::default()
            }];
            let server = ServerFacts {
                cpus: cpus.to_owned(),
                client_cpus: "0".to_owned(),
                ..ServerFacts::default()
            };
            let judgement = judge(&record, &server, &Allow::default());
            assert_eq!(judgement.disturbed, !judgement.discarded.is_empty());
            judgement.discarded.first().cloned().unwrap_or_default()
        };
        assert_eq!(judged("1", 0.25), "");
        assert!(judged("1", 0.42).starts_with("Others had the client's CPU for 42 %"));
        assert_eq!(judged("0-1", 0.42), "");
    }

    #[test]
    fn requests_that_may_fail_are_in_flight_all_the_same() {
        let judged = |errors: u64, allowed: f64| {
            let change = |it: &mut TrialRecord| {
                it.groups[0].total.tally.errors[ErrorKind::Timeout as usize] = errors;
                it.verdict.little = Some(LittleRecord {
                    in_flight: 2000.0,
                    expected: 1.0,
                    ..LittleRecord::default()
                });
            };
            let allow = allowing(|it| it.errors = allowed);
            discarded(change, allow).discarded.len()
        };
        assert_eq!([judged(9, 1.0), judged(0, 1.0), judged(9, 0.0)], [0, 1, 2]);
    }

    #[test]
    fn halves_that_differ_are_noted() {
        let grow = |it: &mut TrialRecord| {
            for second in &mut it.groups[0].series {
                second.completed = 900 + 20 * u64::from(second.second);
            }
        };
        // Seconds 1 to 4 and 6 to 9: 950 and 1050.
        assert!(discarded(grow, Allow::default()).notes.is_empty());
        let leap = |it: &mut TrialRecord| {
            for second in &mut it.groups[0].series[6..] {
                second.completed = 1_200;
            }
        };
        let judgement = discarded(leap, Allow::default());
        assert!(judgement.discarded.is_empty());
        assert!(judgement.notes[0].contains("1000 responses a second in the first half, 1200"));
    }

    #[test]
    fn a_server_cannot_have_sent_less_than_was_received() {
        let counted = |requests_counted| {
            let server = ServerFacts {
                requests_counted,
                ..ServerFacts::default()
            };
            judge(&sound(), &server, &Allow::default()).discarded.len()
        };
        assert_eq!([None, Some(9_000), Some(8_999)].map(counted), [0, 0, 1]);
    }

    #[test]
    fn clients_that_ask_for_nothing_are_not_judged_by_answers() {
        let nothing = |it: &mut TrialRecord| it.groups[0].total.tally = Tally::default();
        assert_eq!(reasons(&discarded(nothing, Allow::default()))[0], 0);
    }
}
