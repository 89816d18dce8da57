//! Whether a trial is to be trusted: was the client the limit, and does Little's law hold? A pure
//! function of what was measured; every bound has its source beside it.

use crate::histogram::LATENCY_US_MAX;
use crate::{GroupVerdict, LittleRecord, ThreadRecord, Verdict};

/// A client thread that is busier than this was, or soon would have been, the limit. Usual in
/// load testing; with random arrivals, waiting for a server that is busy four fifths of the time
/// is already four times its service time (M/M/1). In an open loop, what that does to times is
/// measured: where requests left and answers were read in time, it is not the limit yet.
pub const BUSY_SHARE_MAX: f64 = 0.8;

/// A thread that is busier than this is the limit whatever its lag: it has no room for a second in
/// which more comes.
pub const BUSY_SHARE_LIMIT: f64 = 0.95;

/// The part of the reported median by which the client itself may have delayed one request in a
/// hundred.
pub const LAG_SHARE_MAX: f64 = 0.1;

/// The part of p99.9 of the reported latency by which the client may have delayed one request in a
/// thousand before a note says that these times are its own as much as the server's.
pub const LAG_TAIL_SHARE_NOTED: f64 = 0.5;

/// Lag below this is not worth a word, however quick the server: it is the error that is stated for
/// every percentile (docs/measuring.md: 2 % or 50 us).
pub const LAG_FLOOR_US: u64 = 50;

/// Lag below this makes times longer and is said; it does not make the client the limit. A timer and
/// the wake-up of a sleeping CPU take some 100 us on a virtual machine (docs/measuring.md); above this,
/// another process kept the client from running.
pub const LAG_LIMIT_US: u64 = 1_000;

/// The part of the plan that has to be sent.
pub const SENT_SHARE_MIN: f64 = 0.99;

/// The part of the time for which the control group may have held the client: a period of 100 ms in
/// 10 s.
pub const THROTTLED_SHARE_MAX: f64 = 0.01;

/// In a second with so large a part of the connections waiting for the server, on average, what was
/// not sent was held back by them.
pub const CONNECTIONS_OUT_SHARE_MIN: f64 = 0.9;

/// Of what was not sent, so large a part has to have been held back by the connections for the
/// client not to be blamed.
pub const HELD_BACK_SHARE_MIN: f64 = 0.9;

/// If requests waited for a connection for more than this part of the time, a note says that the loop
/// was not open then. Random arrivals meet by chance; a twentieth is more than that.
pub const HELD_SHARE_NOTED: f64 = 0.05;

/// By which part the two sides of Little's law may differ: the loop takes its samples once a turn,
/// not at each event.
pub const LITTLE_TOLERANCE: f64 = 0.05;

/// Requests in flight by which the two sides may differ in any case: what is in one turn.
pub const LITTLE_REQUESTS_MAX: f64 = 0.5;

/// Cycles that a closed loop has to be measured for: in fewer, a server that does not answer in turn
/// can have left some clients without an answer, and others with many.
pub const CYCLES_MIN: f64 = 3.0;

/// What the verdict rests on, over the counted phases.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// The client's threads.
    pub threads: Vec<ThreadRecord>,
    /// Those of the plain clients wait without sleeping, so their CPU time says nothing.
    pub spins: bool,
    /// Lag of all threads together below which 99 % were; `None`: not enough samples.
    pub lag_p99_us: Option<u64>,
    /// The same for 90 %, which fewer samples say.
    pub lag_p90_us: Option<u64>,
    /// The same for 99.9 %.
    pub lag_p99_9_us: Option<u64>,
    /// Lag of reading of all threads together below which 99 % were; `None`: not enough samples.
    pub read_lag_p99_us: Option<u64>,
    /// Median of the reported latency; `None`: not enough samples.
    pub latency_p50_us: Option<u64>,
    /// p99.9 of it; `None`: not enough samples.
    pub latency_p99_9_us: Option<u64>,
    /// The largest latency of all groups; `None`: there is none.
    pub latency_max_us: Option<u64>,
    /// The plan, where there was one: not in a closed loop.
    pub plan: Option<PlanEvidence>,
    /// For how long the control group held the client; `None`: not known.
    pub throttled_s: Option<f64>,
    /// Length of the counted phases.
    pub seconds: f64,
    /// Little's law; `None`: nothing to check it on.
    pub little: Option<LittleEvidence>,
    /// A closed loop that time ended; `None`: an open one, or its requests ended it, so that each of
    /// them was waited for.
    pub closed: Option<ClosedEvidence>,
    /// Groups beside the plain clients that are measured, too: HTTP/2 beside HTTP/1.1.
    pub beside: Vec<GroupEvidence>,
}

/// Of a group beside the plain clients.
#[derive(Clone, Debug, Default)]
pub struct GroupEvidence {
    /// Its name, which stands before what is said of it.
    pub name: String,
    /// Its part of the plan, where there was one.
    pub plan: Option<PlanEvidence>,
    /// Little's law; `None`: nothing to check it on.
    pub little: Option<LittleEvidence>,
}

/// A closed loop.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClosedEvidence {
    /// Its clients.
    pub clients: u32,
    /// Complete answers a second, of all of them together.
    pub completed_per_s: f64,
    /// Time that each lets pass between an answer and its next request.
    pub think_s: f64,
}

/// What was planned and what was sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlanEvidence {
    /// Requests that became due.
    pub offered: u64,
    /// Requests that were sent.
    pub sent: u64,
    /// Requests that were not sent since the server refused their connections, did not accept them
    /// within the timeout or before the end, or ended them first.
    pub not_accepted: u64,
    /// Connections that there could be; beside the plain clients, streams.
    pub connections: u32,
    /// Whether a request waited for its own connection, and took no other one.
    pub own_schedules: bool,
    /// Of the seconds in which less was sent than due: the part of what was missing in them that
    /// was missing while (nearly) all connections waited for the server. Or, if that is more, what
    /// waited for connections at the end, as a part of what `not_accepted` leaves. `None`: not known.
    pub held_back_share: Option<f64>,
    /// The part of the time for which what was due waited for a connection.
    pub held_share: f64,
}

/// Both sides of Little's law, and how exact they can be.
#[derive(Clone, Copy, Debug, Default)]
pub struct LittleEvidence {
    /// Mean of requests in flight, sampled by the loops.
    pub in_flight: f64,
    /// Answers that were complete before the end.
    pub completed: u64,
    /// Their mean service time.
    pub service_mean_s: f64,
    /// Its standard deviation.
    pub service_stdev_s: f64,
    /// The sum of the times of other requests that were in flight, at most: of those that failed,
    /// and of those whose answers came after the end.
    pub others_s_max: f64,
    /// Time over which both were taken.
    pub seconds: f64,
}

impl PlanEvidence {
    fn sent_share(&self) -> Option<f64> {
        (self.offered > 0).then(|| self.sent as f64 / self.offered as f64)
    }

    fn held_share(&self) -> Option<f64> {
        (self.offered > 0).then_some(self.held_share)
    }
}

/// Judges.
#[must_use]
pub fn judge(evidence: &Evidence) -> Verdict {
    let mut verdict = Verdict {
        lag_p99_us: evidence.lag_p99_us,
        read_lag_p99_us: evidence.read_lag_p99_us,
        ..Verdict::default()
    };
    judge_lags(evidence, &mut verdict);
    judge_threads(evidence, &mut verdict);
    if let Some(plan) = &evidence.plan {
        verdict.sent_share = plan.sent_share();
        verdict.held_share = plan.held_share();
        judge_plan("", plan, &mut verdict);
    }
    for group in &evidence.beside {
        judge_group(group, &mut verdict);
    }
    judge_throttling(evidence, &mut verdict);
    verdict.notes.extend(beyond_histogram(evidence));
    verdict.client_limited = !verdict.reasons.is_empty();
    verdict.little = evidence.little.as_ref().map(check_little);
    if let Some(closed) = &evidence.closed {
        judge_cycle(closed, evidence.seconds, &mut verdict);
    }
    verdict
}

fn judge_threads(evidence: &Evidence, verdict: &mut Verdict) {
    let is_in_time = evidence.plan.is_some()
        && evidence.lag_p99_us.is_some()
        && evidence.read_lag_p99_us.is_some()
        && evidence.latency_p50_us.is_some()
        && verdict.late.is_none()
        && verdict.read_late.is_none();
    for thread in &evidence.threads {
        let share = match evidence.spins && thread.group == 0 {
            true => thread.busy_share,
            false => thread.busy_share.max(thread.cpu_share),
        };
        if verdict.busiest_share.is_none_or(|most| share > most) {
            verdict.busiest_share = Some(share);
            verdict.busiest_thread = Some(thread.name.clone());
        }
        if share <= BUSY_SHARE_MAX {
            continue;
        }
        let mut reason = format!(
            "Thread \"{}\" of the client was busy {} of the time (CPU {}",
            thread.name,
            percent(share),
            percent(thread.cpu_share),
        );
        if thread.run_delay_share >= 0.01 {
            let delay = percent(thread.run_delay_share);
            reason += &format!(", kept from running {delay}");
        }
        let is_in_time = is_in_time && thread.read_lag.count() > 0;
        if is_in_time && share <= BUSY_SHARE_LIMIT {
            verdict.notes.push(format!(
                "{reason}); requests were sent and responses read in time all the same."
            ));
            continue;
        }
        let most = percent(match is_in_time {
            true => BUSY_SHARE_LIMIT,
            false => BUSY_SHARE_MAX,
        });
        let sentence = format!("{reason}); more than {most} is too much.");
        verdict.reasons.push(sentence);
    }
}

/// Late in sending, and in reading. In a closed loop answers wait for a thread that is busy with
/// others: that is what it can do. In an open one, another process kept the thread from reading.
fn judge_lags(evidence: &Evidence, verdict: &mut Verdict) {
    let mut judge = |lag_p99_us, limits: bool, what: &str, since: &str| {
        let (lag_us, p50_us) = noticeable(lag_p99_us, evidence)?;
        let fact = format!(
            "{what} at least {lag_us} us {since}, more than a tenth of the median latency ({p50_us} us)"
        );
        if lag_us > LAG_LIMIT_US && limits {
            verdict.reasons.push(format!("{fact}."));
        }
        Some(format!("{fact}; latencies count it."))
    };
    let (lag_us, sent) = match evidence.lag_p99_us {
        Some(lag_us) => (Some(lag_us), "One request in a hundred was sent"),
        None => (evidence.lag_p90_us, "One request in ten was sent"),
    };
    let late = judge(
        lag_us,
        true,
        sent,
        "later than due though a connection was free",
    );
    let read = "One response in a hundred was read";
    let is_open = evidence.plan.is_some();
    let read_late = judge(evidence.read_lag_p99_us, is_open, read, "after it had come");
    (verdict.late, verdict.read_late) = (late, read_late);
    if verdict.late.is_none() {
        verdict.notes.extend(late_tail(evidence));
    }
}

/// Lag that is in the largest times alone.
fn late_tail(evidence: &Evidence) -> Option<String> {
    let (lag_us, latency_us) = evidence.lag_p99_9_us.zip(evidence.latency_p99_9_us)?;
    let is_small =
        lag_us <= LAG_FLOOR_US || lag_us as f64 <= latency_us as f64 * LAG_TAIL_SHARE_NOTED;
    (!is_small).then(|| {
        format!(
            "One request in a thousand was sent at least {lag_us} us later than due though a connection \
             was free, more than half of p99.9 of latency ({latency_us} us): from there on, times are in \
             part the client's."
        )
    })
}

/// A lag that is a noticeable part of the median, and that median.
fn noticeable(lag_p99_us: Option<u64>, evidence: &Evidence) -> Option<(u64, u64)> {
    let (lag_us, p50_us) = lag_p99_us.zip(evidence.latency_p50_us)?;
    let is_small = lag_us <= LAG_FLOOR_US || lag_us as f64 <= p50_us as f64 * LAG_SHARE_MAX;
    (!is_small).then_some((lag_us, p50_us))
}

fn judge_group(group: &GroupEvidence, verdict: &mut Verdict) {
    let plan = group.plan.as_ref();
    verdict.beside.push(GroupVerdict {
        name: group.name.clone(),
        sent_share: plan.and_then(PlanEvidence::sent_share),
        held_share: plan.and_then(PlanEvidence::held_share),
        little: group.little.as_ref().map(check_little),
    });
    if let Some(plan) = plan {
        judge_plan(&format!("{}: ", group.name), plan, verdict);
    }
}

/// `whose` stands before what is said: nothing for the plain clients.
fn judge_plan(whose: &str, plan: &PlanEvidence, verdict: &mut Verdict) {
    let Some(share) = plan.sent_share() else {
        return;
    };
    let places = match whose.is_empty() {
        true => "connections",
        false => "streams",
    };
    // What a server does not accept is no fault of the client.
    let unsent = plan.offered.saturating_sub(plan.sent);
    let accounted = plan.sent + plan.not_accepted.min(unsent);
    if accounted as f64 / plan.offered as f64 >= SENT_SHARE_MIN {
        if plan.held_share > HELD_SHARE_NOTED {
            verdict.notes.push(format!(
                "{whose}All {} {places} were taken for {} of the time while requests were due: those \
                 waited in the client, which latency counts. With more --connections the server would have had \
                 them sooner.",
                plan.connections,
                percent(plan.held_share)
            ));
        }
        return;
    }
    let fact = format!(
        "{whose}Only {} of the plan was sent ({} of {} requests)",
        percent(share),
        plan.sent,
        plan.offered
    );
    let held_back = plan.held_back_share;
    let is_held_back = held_back.is_some_and(|share| share >= HELD_BACK_SHARE_MIN);
    let refused = match plan.not_accepted.min(unsent) {
        0 => String::new(),
        count => format!(" It accepted no connection for {count} of the others."),
    };
    if is_held_back && plan.own_schedules {
        verdict.notes.push(format!(
            "{fact}: the others waited for their own {places}, which were waiting for the server.{refused}"
        ));
    } else if is_held_back {
        verdict.notes.push(format!(
            "{fact}: held back by the bound of requests in flight, since all {} {places} were \
             waiting for the server. It responds no faster, or more --connections are needed.{refused}",
            plan.connections
        ));
    } else {
        verdict.reasons.push(format!(
            "{fact}, though {places} were free; at least {} is needed.",
            percent(SENT_SHARE_MIN)
        ));
    }
}

fn judge_throttling(evidence: &Evidence, verdict: &mut Verdict) {
    if let Some(throttled_s) = evidence.throttled_s
        && throttled_s > evidence.seconds * THROTTLED_SHARE_MAX
    {
        verdict.reasons.push(format!(
            "The CPU quota of the control group held the client for {throttled_s:.2} s of {:.1} s \
             (summed over CPUs).",
            evidence.seconds
        ));
    }
}

/// In an open loop, requests may wait for longer than any timeout.
fn beyond_histogram(evidence: &Evidence) -> Option<String> {
    let is_beyond = evidence.latency_max_us? >= LATENCY_US_MAX;
    is_beyond.then(|| {
        let minutes = LATENCY_US_MAX / 60_000_000;
        format!(
            "Some latencies were {minutes} minutes or more. Histograms end there: such times count as \
             {minutes} minutes at least, and means, percentiles and the largest may be too small."
        )
    })
}

/// Each client of a closed loop is answered once a cycle, which by Little's law takes as long as all
/// of them together take to be answered: clients over throughput.
fn judge_cycle(closed: &ClosedEvidence, seconds: f64, verdict: &mut Verdict) {
    if closed.clients == 0 || closed.completed_per_s <= 0.0 {
        return;
    }
    let cycle_s = f64::from(closed.clients) / closed.completed_per_s;
    let mean_s = (cycle_s - closed.think_s).max(0.0);
    verdict.cycle_s = Some(cycle_s);
    verdict.cycle_mean_s = Some(mean_s);
    if cycle_s * CYCLES_MIN <= seconds {
        return;
    }
    verdict.short = Some(format!(
        "One cycle of {} clients takes about {cycle_s:.2} s, and {seconds:.2} s were measured: response \
         times are of those who were served first; by Little's law their mean is about {mean_s:.2} s.",
        closed.clients
    ));
}

/// The law itself is exact over a time that begins and ends with nothing in flight. Here, what is in
/// flight at either end is seen in part; the mean time of such a request is that of one met at
/// random, `(mean^2 + stdev^2) / mean`.
fn check_little(evidence: &LittleEvidence) -> LittleRecord {
    let seconds = evidence.seconds.max(f64::MIN_POSITIVE);
    let (mean_s, stdev_s) = (evidence.service_mean_s, evidence.service_stdev_s);
    let expected = evidence.completed as f64 / seconds * mean_s;
    let expected_max = expected + evidence.others_s_max / seconds;
    let met_s = match mean_s > 0.0 {
        true => (mean_s * mean_s + stdev_s * stdev_s) / mean_s,
        false => 0.0,
    };
    let tolerance = LITTLE_TOLERANCE + met_s / seconds;
    let low = expected * (1.0 - tolerance) - LITTLE_REQUESTS_MAX;
    let high = expected_max * (1.0 + tolerance) + LITTLE_REQUESTS_MAX;
    LittleRecord {
        in_flight: evidence.in_flight,
        expected,
        expected_max,
        tolerance,
        tolerance_requests: LITTLE_REQUESTS_MAX,
        holds: (low..=high).contains(&evidence.in_flight),
    }
}

/// "97 %"; one more digit near the bounds, where it matters: "98.9 %".
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if (percent - percent.round()).abs() < 0.05 {
        format!("{percent:.0} %")
    } else {
        format!("{percent:.1} %")
    }
}

#[cfg(test)]
mod tests;
