//! What the verdict rests on: of the plain clients, and of those of HTTP/2 beside them.

use loadline_record::distribution::decompressed;
use loadline_record::verdict::{
    ClosedEvidence, Evidence, GroupEvidence, LittleEvidence, PlanEvidence,
};
use loadline_record::{Distribution, GroupRecord, HTTP2_GROUP, LoadRecord, PhaseRecord, latencies};

use super::{Ending, Merger, mean, seconds, share, thread, unsent};
use crate::ThreadReport;

impl Merger {
    /// All of it.
    pub(super) fn evidence(
        &self,
        groups: &[GroupRecord],
        phases: &[PhaseRecord],
        counted_s: f64,
        ending: &Ending,
    ) -> Evidence {
        let plain = &groups[0];
        let (mut lag, mut read_lag) = (latencies(), latencies());
        for report in &self.threads {
            let _ = lag.add(&report.lag.0); // the same bounds
            let _ = read_lag.add(&report.read_lag.0);
        }
        let lag = Distribution::new(lag);
        let headline = groups.iter().find(|group| group.total.tally.offered > 0);
        let latency_us = |percent| headline?.total.latency.percentile_us(percent);
        let max_us = |group: &GroupRecord| group.total.latency.max_us();
        let beside = (0..).zip(groups).skip(1);
        let beside = beside.filter(|(_, group)| group.name == HTTP2_GROUP);
        Evidence {
            threads: self.threads.iter().map(thread).collect(),
            spins: self.run.spins,
            lag_p99_us: lag.percentile_us(99.0),
            lag_p90_us: lag.percentile_us(90.0),
            lag_p99_9_us: lag.percentile_us(99.9),
            read_lag_p99_us: Distribution::new(read_lag).percentile_us(99.0),
            latency_p50_us: latency_us(50.0),
            latency_p99_9_us: latency_us(99.9),
            latency_max_us: groups.iter().filter_map(max_us).max(),
            plan: self.plan(0, plain, phases),
            throttled_s: ending.machine.throttled_s,
            seconds: counted_s,
            little: self.little(0, plain, phases),
            closed: self.closed(plain),
            beside: beside
                .map(|(index, group)| GroupEvidence {
                    name: group.name.clone(),
                    plan: self.plan(index, group, phases),
                    little: self.little(index, group, phases),
                })
                .collect(),
        }
    }

    /// Requests of a group's clients that could be out at one time: as many as there are connections, or
    /// streams that the servers take.
    pub(super) fn in_flight_max(&self, index: u16) -> u32 {
        let found: u64 = self.of(index).map(|report| report.in_flight_max).sum();
        match (index, self.run.streams) {
            (0, None) => self.run.connections,
            (0, Some(_)) if found == 0 => self.run.connections,
            _ => u32::try_from(found).unwrap_or(u32::MAX),
        }
    }

    /// The threads of a group.
    fn of(&self, index: u16) -> impl Iterator<Item = &ThreadReport> {
        let is_of = move |report: &&ThreadReport| report.group == index;
        self.threads.iter().filter(is_of)
    }

    /// What a group was to send; `None`: it had no plan.
    fn plan(
        &self,
        index: u16,
        group: &GroupRecord,
        phases: &[PhaseRecord],
    ) -> Option<PlanEvidence> {
        let tally = &group.total.tally;
        let has_plan = !matches!(self.run.load, LoadRecord::Closed { .. });
        let not_accepted = unsent::not_accepted(tally, self.of(index));
        (has_plan && tally.offered > 0).then(|| PlanEvidence {
            offered: tally.offered,
            sent: tally.sent,
            not_accepted,
            connections: match index {
                0 => self.run.connections,
                _ => self.in_flight_max(index),
            },
            own_schedules: self.run.own_schedules,
            held_back_share: self.held_back_share(index, group, phases, not_accepted),
            held_share: self.held_share(index),
        })
    }

    /// A closed loop that time ended.
    fn closed(&self, plain: &GroupRecord) -> Option<ClosedEvidence> {
        let LoadRecord::Closed { think_s, .. } = self.run.load else {
            return None;
        };
        self.run.requests_max.is_none().then_some(ClosedEvidence {
            clients: self.in_flight_max(0),
            completed_per_s: plain.total.rates.completed_per_s,
            think_s,
        })
    }

    /// By the seconds, or by what was left at the end: a connection that the server does not accept
    /// carries nothing, and is not free either. What is left is a part of what `not_accepted` does not
    /// account for, so that both causes together decide.
    fn held_back_share(
        &self,
        index: u16,
        group: &GroupRecord,
        phases: &[PhaseRecord],
        not_accepted: u64,
    ) -> Option<f64> {
        let by_seconds = unsent::held_back_share(group, phases, self.in_flight_max(index));
        let tally = &group.total.tally;
        let missing = tally.offered.saturating_sub(tally.sent);
        let missing = missing.saturating_sub(not_accepted).max(1);
        let left: u64 = self.of(index).map(|report| report.held_back).sum();
        let at_end = (left as f64 / missing as f64).min(1.0);
        Some(by_seconds.map_or(at_end, |share| share.max(at_end)))
    }

    /// The part of the counted time for which requests that were due waited for a connection: the
    /// threads on average, since each has connections of its own.
    fn held_share(&self, index: u16) -> f64 {
        let shares: Vec<f64> = self
            .of(index)
            .map(|report| share(report.held_ns, report.wall_ns))
            .collect();
        shares.iter().sum::<f64>() / shares.len().max(1) as f64
    }

    /// Of clients whose loops sample what is in flight.
    fn little(
        &self,
        index: u16,
        group: &GroupRecord,
        phases: &[PhaseRecord],
    ) -> Option<LittleEvidence> {
        let (service, counted_s) = (&group.total.service, group.total.seconds);
        // A thread whose requests are done has none in flight for the rest of the time.
        let over_s = |report: &ThreadReport| seconds(report.wall_ns).max(counted_s);
        let in_flight: f64 = self
            .of(index)
            .map(|report| mean(report.in_flight_ns, over_s(report)))
            .sum();
        if in_flight <= 0.0 || counted_s <= 0.0 {
            return None;
        }
        let late = decompressed(&group.after_end.service).unwrap_or_else(|_| latencies());
        let late = Distribution::new(late);
        let completed = service.count().saturating_sub(late.count());
        let completed_s = (sum_s(service) - sum_s(&late)).max(0.0);
        let unfinished = group.total.tally.unfinished;
        let unfinished = unfinished.min(u64::from(self.in_flight_max(index)));
        let out_s = unfinished as f64 * self.run.timeout_s.min(counted_s);
        // Loops look once a turn: a request that is due and sent in the turn in which the one before
        // it was answered seems to have been in flight all the time.
        let turns_s = match self.run.load {
            LoadRecord::Closed { .. } => sum_s(&group.total.latency) - sum_s(service),
            _ => 0.0,
        };
        let early_s = self.early_s_max(index, group, phases);
        let others_s = [sum_s(&late), sum_s(&group.total.failure), out_s, early_s];
        Some(LittleEvidence {
            in_flight,
            completed,
            service_mean_s: completed_s / completed.max(1) as f64,
            service_stdev_s: service.stdev_us()? / 1e6,
            others_s_max: others_s.iter().sum::<f64>() + turns_s.max(0.0),
            seconds: counted_s,
        })
    }

    /// Requests that were still in flight when the warm-up ended: for how long they can have been after
    /// it. They are the slowest of the warm-up at most.
    fn early_s_max(&self, index: u16, group: &GroupRecord, phases: &[PhaseRecord]) -> f64 {
        let counted_s = group.total.seconds;
        let mut times = latencies();
        let (mut left, mut unfinished) = (0.0, 0);
        let of_phases = group.phases.iter().zip(phases);
        for (results, _) in of_phases.filter(|(_, phase)| !phase.counted) {
            let _ = times.add(results.service.histogram()); // of one form all
            let answered = (results.rates.completed_per_s * results.seconds).round();
            left += results.tally.completed as f64 - answered;
            unfinished += results.tally.unfinished;
        }
        let mut left = left.max(0.0) as u64;
        let mut slowest: Vec<_> = times.iter_recorded().collect();
        slowest.reverse();
        let times_s = slowest.iter().map(|value| {
            let taken = value.count_at_value().min(left);
            left -= taken;
            taken as f64 * (value.value_iterated_to() as f64 / 1e6).min(counted_s)
        });
        let unfinished = unfinished.min(u64::from(self.in_flight_max(index)));
        times_s.sum::<f64>() + unfinished as f64 * counted_s
    }
}

/// The sum of all samples.
fn sum_s(times: &Distribution) -> f64 {
    times.count() as f64 * times.mean_us().unwrap_or(0.0) / 1e6
}
