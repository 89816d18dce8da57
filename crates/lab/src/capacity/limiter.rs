//! Which thread or resource is the limit: by what was at its bound in the trial that failed nearest to
//! the capacity. A pure function of the evidence.

use loadline_base::choice;
use serde::{Deserialize, Serialize};

use super::{Evidence, Measured};
use crate::journal::cpus_of;
use loadline_capacity::search::{Bound, SearchFinding, TrialOutcome};

/// From this share on, a thread or a set of CPUs is at its bound: what is left goes to interrupts and
/// to looking away.
const BUSY_SHARE_MIN: f64 = 0.9;
/// Threads of the server that wait for a CPU for so much of one: others have it.
const DELAY_SHARE_MIN: f64 = 0.3;
/// The share of connections that, busy on average, counts as all of them.
const OUT_SHARE_MIN: f64 = 0.9;
/// The share of a process's descriptors that counts as all of them.
const DESCRIPTORS_SHARE_MIN: f64 = 0.95;
/// Errors of one kind are the reason from this share on.
const ERRORS_SHARE_MIN: f64 = 0.001;
/// A server that answers by so much slower than without load has a queue of its own.
const QUEUE_FACTOR: f64 = 2.0;

/// What is the limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limiter {
    /// Which.
    pub kind: LimiterKind,
    /// What shows it, in a sentence.
    pub why: String,
}

choice! {
    /// Which thread or resource, each with its name on a page.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    LimiterKind {
        /// The CPU of one thread of the server.
        ServerThread "CPU of one thread of the server",
        /// The CPUs of the server, all of them.
        ServerCpus "CPUs of the server",
        /// The CPU quota of the server.
        CpuQuota "CPU quota of the server",
        /// CPUs that the server has to share with others.
        SharedCpus "CPUs that the server shares with others",
        /// Descriptors of the server.
        Descriptors "descriptors of the server",
        /// The server turns requests away, or connections.
        Refusals "the server turns requests away",
        /// Requests wait inside the server for something other than its CPUs: workers that sleep or
        /// block.
        Workers "workers of the server, or what they wait for",
        /// The client's bound of connections: more of them would carry more.
        Connections "connections of the client",
        /// The client.
        Client "the client",
        /// Nothing is at its bound, as far as is seen.
        Unknown "not known",
    }
}

/// Finds it.
pub(super) fn find(finding: &SearchFinding, evidence: &[Evidence]) -> Limiter {
    let limiter = |kind, why: String| Limiter { kind, why };
    if finding.bound == Bound::AtLeast {
        let limited = |one: &&Evidence| one.tried.outcome == TrialOutcome::ClientLimited;
        return match evidence.iter().rfind(limited) {
            Some(one) => limiter(LimiterKind::Client, one.reasons.join(" ")),
            None => limiter(
                LimiterKind::Unknown,
                "Every rate that was to be tried was held.".to_owned(),
            ),
        };
    }
    let capacity_per_s = finding.capacity_per_s.unwrap_or(0.0);
    let failed = |one: &&Evidence| one.tried.outcome == TrialOutcome::Fails;
    let distance = |one: &&Evidence| {
        let rate_per_s = one.tried.trial.rate_per_s;
        // One below the capacity failed by chance, or in a dip.
        let penalty = if rate_per_s < capacity_per_s {
            10.0
        } else {
            0.0
        };
        (rate_per_s / capacity_per_s.max(1e-9)).ln().abs() + penalty
    };
    let nearest = evidence
        .iter()
        .filter(failed)
        .filter_map(|one| Some((one, one.measured.as_ref()?)))
        .min_by(|(one, _), (other, _)| distance(one).total_cmp(&distance(other)));
    let Some((nearest, measured)) = nearest else {
        return limiter(LimiterKind::Unknown, "No trial failed.".to_owned());
    };
    let unloaded = evidence
        .iter()
        .filter(|one| one.tried.holds() == Some(true));
    let unloaded_us = unloaded
        .filter_map(|one| one.measured.as_ref()?.service_p50_us)
        .min();
    let (kind, why) = by_errors(measured)
        .or_else(|| by_quota(nearest, measured))
        .or_else(|| by_cpu(nearest, measured))
        .or_else(|| by_waiting(measured, unloaded_us))
        .unwrap_or_else(|| {
            let why = "No thread, CPU, queue or connection was at its bound, as far as is seen.";
            (LimiterKind::Unknown, why.to_owned())
        });
    let rate_per_s = nearest.tried.trial.rate_per_s;
    limiter(kind, format!("At {rate_per_s:.0}/s: {why}"))
}

fn by_errors(measured: &Measured) -> Option<(LimiterKind, String)> {
    if let Some(share) = measured.descriptors_share_max
        && share >= DESCRIPTORS_SHARE_MIN
    {
        let why = format!(
            "a process of the server had {:.0} % of the descriptors open that it may have.",
            share * 100.0
        );
        return Some((LimiterKind::Descriptors, why));
    }
    let error = measured.error.as_deref()?;
    let turns_away = [
        "refused",
        "connect_timeout",
        "handshake",
        "reset",
        "closed_early",
        "stream_reset",
        "status_5xx",
    ];
    (measured.error_share >= ERRORS_SHARE_MIN && turns_away.contains(&error)).then(|| {
        let why = format!(
            "{:.2} % of the requests ended as {error}.",
            measured.error_share * 100.0
        );
        (LimiterKind::Refusals, why)
    })
}

/// It uses nearly all that it may, and is held back.
fn by_quota(evidence: &Evidence, measured: &Measured) -> Option<(LimiterKind, String)> {
    let quota = evidence.server.cpu_quota.as_ref()?;
    let throttled = quota.throttled_share().filter(|share| *share > 0.0)?;
    let used = measured.server_cpus?;
    (used >= quota.cpus * BUSY_SHARE_MIN).then(|| {
        let why = format!(
            "the server used {used:.2} of the {} CPUs that it may use, and was throttled in {:.0} % of \
             the periods.",
            quota.cpus,
            throttled * 100.0
        );
        (LimiterKind::CpuQuota, why)
    })
}

fn by_cpu(evidence: &Evidence, measured: &Measured) -> Option<(LimiterKind, String)> {
    let cpus = match cpus_of(&evidence.server.cpus).len() as u32 {
        0 => measured.cpus.max(1),
        count => count,
    };
    let used = measured.server_cpus.unwrap_or(0.0);
    let thread = measured.server_thread.unwrap_or(0.0);
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    if used >= f64::from(cpus) * BUSY_SHARE_MIN {
        let share = percent(used / f64::from(cpus));
        let why = format!("the server used {share} of the {cpus} CPUs that it has.");
        // With one CPU, the two are the same; a thread that has it to itself is the better answer.
        let is_one_thread = thread >= BUSY_SHARE_MIN && thread >= used * BUSY_SHARE_MIN;
        if !is_one_thread {
            return Some((LimiterKind::ServerCpus, why));
        }
    }
    if thread >= BUSY_SHARE_MIN {
        let share = percent(thread);
        let why = format!("one thread of the server ran for {share} of the time.");
        return Some((LimiterKind::ServerThread, why));
    }
    // Whatever other CPUs there are, one thread can use no more than its own.
    let thread_delay = measured.server_thread_delay.unwrap_or(0.0);
    if thread + thread_delay >= BUSY_SHARE_MIN && thread_delay >= DELAY_SHARE_MIN {
        let why = format!(
            "one thread of the server ran for {} of the time and waited for a CPU, which others had, \
             for {}.",
            percent(thread),
            percent(thread_delay)
        );
        return Some((LimiterKind::SharedCpus, why));
    }
    let delay = measured.server_delay.unwrap_or(0.0);
    (delay >= DELAY_SHARE_MIN && used + delay >= f64::from(cpus) * BUSY_SHARE_MIN).then(|| {
        let why = format!(
            "threads of the server waited for a CPU for {} of one; it used {}, and others had the \
             rest.",
            percent(delay),
            percent(used)
        );
        (LimiterKind::SharedCpus, why)
    })
}

fn by_waiting(measured: &Measured, unloaded_us: Option<u64>) -> Option<(LimiterKind, String)> {
    let service_us = measured.service_p50_us? as f64;
    let unloaded_us = unloaded_us? as f64;
    let out = measured.in_flight?;
    let are_all_out = out >= f64::from(measured.connections) * OUT_SHARE_MIN;
    if service_us >= unloaded_us * QUEUE_FACTOR {
        let why = format!(
            "a response took {:.1} ms, {:.1} ms without load, and no CPU of the server was at its \
             bound.",
            service_us / 1e3,
            unloaded_us / 1e3
        );
        return Some((LimiterKind::Workers, why));
    }
    are_all_out.then(|| {
        let why = format!(
            "all {} connections were waiting, though the server answered as quickly as without load.",
            measured.connections
        );
        (LimiterKind::Connections, why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{self, ServerFacts};
    use loadline_capacity::search::{Basis, Length, Stage, Tried, Try};

    fn evidence(outcome: TrialOutcome, rate_per_s: f64, measured: Measured) -> Evidence {
        Evidence {
            tried: Tried {
                trial: Try {
                    rate_per_s,
                    seconds: 10.0,
                    length: Length::Long,
                    stage: Stage::Narrow,
                },
                outcome,
                shares: Vec::new(),
                spent_s: 10.0,
            },
            reasons: Vec::new(),
            measured: Some(measured),
            server: ServerFacts {
                cpus: "0-1".to_owned(),
                ..ServerFacts::default()
            },
        }
    }

    fn healthy() -> Measured {
        Measured {
            service_p50_us: Some(1000),
            in_flight: Some(5.0),
            connections: 64,
            cpus: 4,
            server_cpus: Some(0.5),
            server_delay: Some(0.01),
            ..Measured::default()
        }
    }

    fn quota(cpus: f64, periods_throttled: u64) -> Option<journal::CpuQuota> {
        Some(journal::CpuQuota {
            cpus,
            periods: 100,
            periods_throttled,
            ..journal::CpuQuota::default()
        })
    }

    fn found(change: impl FnOnce(&mut Evidence)) -> LimiterKind {
        let mut failed = evidence(TrialOutcome::Fails, 1100.0, healthy());
        change(&mut failed);
        let all = [evidence(TrialOutcome::Holds, 100.0, healthy()), failed];
        let finding = SearchFinding {
            bound: Bound::Found,
            capacity_per_s: Some(1000.0),
            basis: Basis::Outcomes,
            interval: None,
            confirmed: None,
            spread: None,
            dips: Vec::new(),
            rows: Vec::new(),
            notes: Vec::new(),
            trials: 2,
            spent_s: 20.0,
        };
        find(&finding, &all).kind
    }

    #[test]
    fn each_is_named() {
        use LimiterKind::*;
        type Change = fn(&mut Evidence, &mut Measured);
        let cases: [(LimiterKind, Change); 15] = [
            (Unknown, |_, _| {}),
            (ServerThread, |_, it| it.server_thread = Some(0.97)),
            (CpuQuota, |one, _| one.server.cpu_quota = quota(0.5, 63)),
            // It is never at its quota, or far from it.
            (Unknown, |one, _| one.server.cpu_quota = quota(0.5, 0)),
            (Unknown, |one, _| one.server.cpu_quota = quota(1.0, 5)),
            (ServerCpus, |_, it| it.server_cpus = Some(1.9)),
            (SharedCpus, |_, it| {
                (it.server_cpus, it.server_delay) = (Some(1.0), Some(0.9));
            }),
            (Descriptors, |_, it| it.descriptors_share_max = Some(0.96)),
            // Of many processes, together: each has a limit of its own.
            (Unknown, |_, it| {
                (it.descriptors_max, it.descriptors_share_max) = (Some(1 << 30), Some(0.4));
            }),
            (Refusals, |_, it| {
                (it.error, it.error_share) = (Some("status_5xx".to_owned()), 0.02);
            }),
            (Workers, |_, it| it.service_p50_us = Some(9000)),
            (Connections, |_, it| it.in_flight = Some(63.0)),
            (ServerThread, |one, it| {
                // One thread on one CPU: the thread.
                one.server.cpus = "1".to_owned();
                (it.server_thread, it.server_cpus) = (Some(0.98), Some(0.99));
            }),
            (ServerCpus, |one, it| {
                // Nearly all of one CPU, a part of it by other threads: none of them is at its bound.
                one.server.cpus = "1".to_owned();
                (it.server_thread, it.server_cpus) = (Some(0.85), Some(0.92));
                it.service_p50_us = Some(9000);
            }),
            (SharedCpus, |_, it| {
                // One thread, which others keep from the one CPU that it can use of two.
                (it.server_cpus, it.server_delay) = (Some(0.59), Some(0.40));
                (it.server_thread, it.server_thread_delay) = (Some(0.59), Some(0.40));
                it.service_p50_us = Some(9000);
            }),
        ];
        for (index, (kind, change)) in cases.into_iter().enumerate() {
            let found = found(|evidence| {
                let mut measured = evidence.measured.take().unwrap();
                change(evidence, &mut measured);
                evidence.measured = Some(measured);
            });
            assert_eq!(found, kind, "case {index}");
        }
    }
}
