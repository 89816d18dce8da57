//! From messages, in any order, to the record.

use std::collections::BTreeMap;
use std::time::Duration;

use loadline_base::sorting::{sort_by_key, to_map};
use loadline_record::verdict::judge;
use loadline_record::{
    Distribution, GroupRecord, LoadRecord, PhaseRecord, RunRecord, SCHEMA, SegmentRecord, Snapshot,
    Tally, ThreadRecord, TrialRecord,
};

use loadline_spec::Table;

use super::Ending;
use super::sums::{PhaseSums, SECONDS_MAX, Series};
use crate::{Interval, Loop, Message, Phase, Plan, Segment, ThreadReport};

mod evidence;
mod unsent;

/// A phase that ends later than this (30 years) has no end: the run ends with its requests.
const END_NS_MAX: u64 = 1_000_000_000 * 3600 * 24 * 365 * 30;

/// Seconds whose rate a snapshot gives.
const RECENT_SECONDS: u32 = 60;

/// A second counts as complete when it is over by this: threads report a little later.
const SETTLED_AFTER_NS: u64 = 100_000_000;

/// Merges what threads and processes report.
#[derive(Debug)]
pub struct Merger {
    run: RunRecord,
    phases: Vec<Phase>,
    groups: Vec<Group>,
    everything: Tally,
    threads: Vec<ThreadReport>,
    connections_ready: u64,
}

#[derive(Debug)]
struct Group {
    name: String,
    phases: Vec<PhaseSums>,
    series: Series,
    so_far: Tally,
}

impl Merger {
    /// For a plan.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let phases = if plan.phases.is_empty() {
            vec![Phase {
                end_ns: u64::MAX,
                counted: true,
                ..Phase::default()
            }]
        } else {
            plan.phases.clone()
        };
        let names = plan.groups.iter().cloned();
        let mut groups: Vec<Group> = names.map(|name| Group::new(name, phases.len())).collect();
        if groups.is_empty() {
            groups.push(Group::new("clients".to_owned(), phases.len()));
        }
        Self {
            run: describe(plan),
            phases,
            groups,
            everything: Tally::default(),
            threads: Vec::new(),
            connections_ready: 0,
        }
    }

    /// Takes a message in, from any thread, in any order.
    pub fn take(&mut self, message: Message) {
        match message {
            Message::Ready { connections } => self.connections_ready += connections,
            Message::Interval(interval) => self.take_interval(&interval),
            Message::Finished(report) => self.threads.push(*report),
            Message::Steps(_) => {} // not part of the record
        }
    }

    fn take_interval(&mut self, interval: &Interval) {
        self.everything.merge(&interval.tally);
        let index = usize::from(interval.group).min(self.groups.len() - 1);
        let group = &mut self.groups[index];
        let phases = group.phases.len();
        let place = |phase: u16| usize::from(phase).min(phases - 1);
        group.phases[place(interval.phase)].due(interval);
        group.phases[place(interval.at_phase)].add_during(interval);
        let is_counted = self.phases[place(interval.phase)].counted;
        group.series.add(interval, is_counted);
        group.so_far.merge(&interval.tally);
    }

    /// Figures of the run so far, `elapsed_ns` from the start.
    #[must_use]
    pub fn snapshot(&self, elapsed_ns: u64) -> Snapshot {
        let headline = self.headline();
        let group = &self.groups[headline];
        let settled = elapsed_ns.saturating_sub(SETTLED_AFTER_NS) / 1_000_000_000;
        let settled = u32::try_from(settled).unwrap_or(u32::MAX).min(SECONDS_MAX);
        let recent = settled.saturating_sub(RECENT_SECONDS)..settled;
        let at = self
            .phases
            .partition_point(|phase| phase.end_ns <= elapsed_ns);
        let phase = &self.phases[at.min(self.phases.len() - 1)];
        let counted = self.phases.iter().filter(|phase| phase.counted).count();
        let others = self.groups.iter().enumerate();
        Snapshot {
            elapsed_ns,
            planned_ns: self.planned_ns(),
            requests_max: self.run.requests_max,
            phase: match phase.counted && counted == 1 {
                true => String::new(),
                false => phase.label.clone(),
            },
            planned_per_s: phase.rate,
            connections: self.connections_ready,
            last: settled.checked_sub(1).map(|at| group.series.second(at)),
            recent_completed: recent.map(|at| group.series.completed(at)).collect(),
            total: group.so_far.clone(),
            others: others
                .filter(|(index, _)| *index != headline)
                .map(|(_, group)| (group.name.clone(), group.so_far.clone()))
                .collect(),
        }
    }

    /// The record.
    #[must_use]
    pub fn finish(mut self, ending: Ending) -> TrialRecord {
        let ran_s = seconds(self.ran_ns(&ending));
        sort_by_key(&mut self.threads, |report| {
            let share = report.share; // two shares with different `of` are of different kinds
            (report.group, share.of, share.index)
        });
        let phases = phase_records(&self.phases, ran_s);
        let counted_s = counted_s(&phases);
        let groups = self.group_records(ran_s);
        let evidence = self.evidence(&groups, &phases, counted_s, &ending);
        let verdict = judge(&evidence);
        let mut limits = ending.limits;
        limits.extend(self.streams_limit());
        let mut watched = ending.watched;
        let completed = |group| counted_completed(group, &phases);
        let completed: u64 = groups.iter().map(completed).sum();
        for process in &mut watched {
            process.settle(&phases, completed);
        }
        TrialRecord {
            schema: SCHEMA.to_owned(),
            run: RunRecord {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                command: ending.command,
                spec: as_json(ending.spec),
                urls: ending.urls,
                ran_s,
                processes: ending.processes.max(1),
                start_unix_ms: ending.start_unix_ms,
                round: ending.round.max(1),
                rounds: ending.rounds.max(1),
                interrupted: ending.is_interrupted,
                ..self.run
            },
            machine: ending.machine,
            phases,
            groups,
            everything: self.everything,
            threads: evidence.threads,
            verdict,
            limits,
            watched,
        }
    }

    /// The groups, each over the time that it had.
    fn group_records(&mut self, ran_s: f64) -> Vec<GroupRecord> {
        let groups = std::mem::take(&mut self.groups);
        let into_record = |(index, group): (usize, Group)| {
            let phases = phase_records(&self.phases, self.group_ran_s(index, ran_s));
            group.into_record(&phases, ran_s)
        };
        groups.into_iter().enumerate().map(into_record).collect()
    }

    /// The first group with load, as the record's headline.
    fn headline(&self) -> usize {
        let has_load = |group: &Group| group.so_far.offered > 0;
        self.groups.iter().position(has_load).unwrap_or(0)
    }

    fn planned_ns(&self) -> Option<u64> {
        let end_ns = self.phases.last().map(|phase| phase.end_ns);
        end_ns.filter(|end_ns| *end_ns < END_NS_MAX)
    }

    /// From the start to the end of the run: as given; or by the plan; or, where the requests may
    /// have ended it, by the thread that was longest at it.
    fn ran_ns(&self, ending: &Ending) -> u64 {
        let planned_ns = self.planned_ns();
        let by_plan = planned_ns.filter(|_| self.run.requests_max.is_none());
        // Virtual users notice the end a little after it, and have no bound of requests in flight.
        let has_plain = self.run.connections > 0;
        let by_threads = || self.longest_ns(|report| report.in_flight_max > 0 || !has_plain);
        let ran_ns = ending.ran_ns.or(by_plan).or_else(by_threads);
        let planned_ns = planned_ns.unwrap_or(u64::MAX);
        ran_ns.unwrap_or(0).min(planned_ns)
    }

    /// The same of one group, of a run of `ran_s`: where its own requests ended it, others may have
    /// taken longer.
    fn group_ran_s(&self, group: usize, ran_s: f64) -> f64 {
        let is_of =
            |report: &ThreadReport| usize::from(report.group) == group && report.in_flight_max > 0;
        let by_requests = self.run.requests_max.is_some();
        let longest_ns = by_requests.then(|| self.longest_ns(is_of));
        let longest_s = longest_ns.flatten().map(seconds);
        longest_s.map_or(ran_s, |longest_s| longest_s.min(ran_s))
    }

    /// From the start to the end of the one that was longest at it, of some threads.
    fn longest_ns(&self, is_wanted: impl Fn(&ThreadReport) -> bool) -> Option<u64> {
        let counted = self.phases.iter().find(|phase| phase.counted);
        let before_ns = counted.map_or(0, |phase| phase.begin_ns);
        let threads = self.threads.iter().filter(|report| is_wanted(report));
        let walls = threads.map(|report| report.wall_ns);
        walls.max().map(|wall_ns| before_ns.saturating_add(wall_ns))
    }

    /// What the server's bound of streams means for the load, if it is less than was asked for.
    fn streams_limit(&self) -> Option<String> {
        let streams = self.run.streams?;
        let (asked, found) = (
            self.run.connections.saturating_mul(streams),
            self.in_flight_max(0),
        );
        (found < asked).then(|| {
            format!(
                "the server takes fewer than {streams} streams over a connection: at most {found} \
                 requests are in flight at one time"
            )
        })
    }
}

impl Group {
    fn new(name: String, phases: usize) -> Self {
        Self {
            name,
            phases: vec![PhaseSums::default(); phases],
            series: Series::default(),
            so_far: Tally::default(),
        }
    }

    /// `phases`: as they were for this group, in a run of `ran_s`.
    fn into_record(self, phases: &[PhaseRecord], ran_s: f64) -> GroupRecord {
        let mut total = PhaseSums::default();
        for (sums, phase) in self.phases.iter().zip(phases) {
            if phase.counted {
                total.merge(sums);
            }
        }
        let results = self.phases.into_iter().zip(phases);
        GroupRecord {
            after_end: self.series.after_end(),
            warm_up_after_end: self.series.warm_up_after_end(),
            name: self.name,
            total: total.into_results(counted_s(phases)),
            phases: results
                .map(|(sums, phase)| sums.into_results(phase.len_s()))
                .collect(),
            series: self.series.into_records(whole_seconds(ran_s)),
        }
    }
}

fn describe(plan: &Plan) -> RunRecord {
    let planned_ns = Some(plan.duration_ns()).filter(|ns| *ns > 0 && *ns < END_NS_MAX);
    RunRecord {
        servers: plan.servers.iter().map(ToString::to_string).collect(),
        load: match &plan.load {
            Loop::Closed {
                think_ns,
                coalesces,
            } => LoadRecord::Closed {
                coalesces: *coalesces,
                think_s: seconds(*think_ns),
            },
            Loop::Open {
                schedule,
                arrivals,
                overflow,
            } => LoadRecord::Open {
                arrivals: arrivals.to_string(),
                overflow: overflow.to_string(),
                segments: schedule.segments.iter().map(segment).collect(),
            },
            Loop::Timed { due_ns, overflow } => LoadRecord::Timed {
                overflow: overflow.to_string(),
                requests: due_ns.len() as u64,
            },
        },
        own_schedules: plan.own_schedules,
        method: plan.mix.method().map(|method| method.as_str().to_owned()),
        http: match plan.http2.is_some() {
            true => Some("2".to_owned()),
            false => plan.mix.http().map(str::to_owned),
        },
        streams: plan.http2.as_ref().map(|http2| http2.streams),
        connections: plan.connections,
        requests_max: plan.requests_max,
        requests_per_connection: plan.requests_per_connection,
        timeout_s: seconds(plan.timeout_ns),
        deadline_s: plan.deadline_ns.map(seconds),
        latency_goal_s: plan.latency_goal_ns.map(seconds),
        retries_max: plan.retries.map_or(0, |retries| u32::from(retries.count)),
        planned_s: planned_ns.map(seconds),
        spins: plan.spins,
        seed: plan.seed,
        ..RunRecord::default()
    }
}

fn segment(segment: &Segment) -> SegmentRecord {
    SegmentRecord {
        len_s: seconds(segment.len_ns),
        begin_per_s: segment.rate_begin,
        end_per_s: segment.rate_end,
    }
}

fn phase_records(phases: &[Phase], ran_s: f64) -> Vec<PhaseRecord> {
    phases.iter().map(|phase| record(phase, ran_s)).collect()
}

/// How long the counted ones were together.
fn counted_s(phases: &[PhaseRecord]) -> f64 {
    let counted = phases.iter().filter(|phase| phase.counted);
    counted.map(PhaseRecord::len_s).sum()
}

/// As it was in a run of `ran_s`.
fn record(phase: &Phase, ran_s: f64) -> PhaseRecord {
    PhaseRecord {
        label: phase.label.clone(),
        begin_s: seconds(phase.begin_ns).min(ran_s),
        end_s: seconds(phase.end_ns).min(ran_s),
        planned_per_s: phase.rate,
        counted: phase.counted,
    }
}

fn seconds(ns: u64) -> f64 {
    Duration::from_nanos(ns).as_secs_f64()
}

fn whole_seconds(ran_s: f64) -> u32 {
    // A run of 10 s that was ended a little late has no eleventh second of a few microseconds.
    (ran_s - 0.01).ceil().max(0.0) as u32
}

fn share(part_ns: u64, wall_ns: u64) -> f64 {
    match wall_ns {
        0 => 0.0,
        _ => part_ns as f64 / wall_ns as f64,
    }
}

/// Over some seconds; 0 of no time.
fn mean(sum_ns: u128, over_s: f64) -> f64 {
    match over_s > 0.0 {
        true => sum_ns as f64 / 1e9 / over_s,
        false => 0.0,
    }
}

/// A thread that waits for events and is then kept from running takes that time for waiting: so the
/// delay comes off the wait.
fn thread(report: &ThreadReport) -> ThreadRecord {
    let idle_ns = report.waited_ns.saturating_sub(report.run_delay_ns);
    ThreadRecord {
        name: report.name.clone(),
        group: report.group,
        wall_s: seconds(report.wall_ns),
        cpu_share: share(report.cpu_ns, report.wall_ns),
        busy_share: match report.wall_ns {
            0 => 0.0,
            wall_ns => 1.0 - share(idle_ns, wall_ns).min(1.0),
        },
        run_delay_share: share(report.run_delay_ns, report.wall_ns),
        after_end_s: seconds(report.after_end_ns),
        turns: report.turns,
        batch: report.events as f64 / report.turns.max(1) as f64,
        in_flight: mean(report.in_flight_ns, seconds(report.wall_ns)),
        lag: Distribution::new(report.lag.0.clone()),
        read_lag: Distribution::new(report.read_lag.0.clone()),
    }
}

/// Complete answers of a group while the counted phases lasted.
fn counted_completed(group: &GroupRecord, phases: &[PhaseRecord]) -> u64 {
    let results = group.phases.iter().zip(phases);
    let counted = results.filter(|(_, phase)| phase.counted);
    let completed = counted.map(|(results, _)| results.rates.completed_per_s * results.seconds);
    completed.sum::<f64>().round() as u64
}

/// Options as the record has them.
fn as_json(table: Table) -> BTreeMap<String, serde_json::Value> {
    let json = |value| serde_json::to_value(value).unwrap_or_default(); // texts are always JSON
    to_map(table.into_iter().map(|(name, value)| (name, json(value))))
}

#[cfg(test)]
mod tests;
