//! One trial from begin to end: the team is started together, heard, shown, stopped.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use loadline_clients::scenario::Scenario;
use loadline_load::fleet::{Crew, Event};
use loadline_load::trial::{Ending, Merger};
use loadline_load::{Message, Share};
use loadline_record::TrialRecord;
use loadline_sys::clock::monotonic_ns;

use super::plan::Planned;
use super::progress::Progress;
use super::surroundings::Surroundings;
use super::team::{Team, Told};
use crate::failure::Failure;

/// Time between the moment that the start is told and the start: for the word to reach every process.
const LEAD_NS: u64 = 20_000_000;
/// How often whoever watches is told something; the live view is drawn at most so often.
const GLANCE: Duration = Duration::from_millis(100);
/// How long the end may take beyond the time that the last answers have.
const PATIENCE_NS: u64 = 10_000_000_000;

/// What reaches the one who merges, and where it is put.
pub(super) struct Ears {
    pub(super) tell: Sender<Told>,
    pub(super) told: Receiver<Told>,
}

impl Ears {
    pub(super) fn new() -> Self {
        let (tell, told) = channel();
        Self { tell, told }
    }
}

/// Where a trial stands.
struct Standing {
    merger: Merger,
    ready: usize,
    ends: usize,
    /// Threads of plain clients that have not ended; `None`: time ends the run, not their requests.
    engines_left: Option<usize>,
    /// What is to hear how the steps fared in other processes.
    scenario: Option<Scenario>,
    is_interrupted: bool,
    /// The first thread or process that could not go on, and why.
    lost: Option<String>,
}

/// Which round of how many.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundNumber {
    pub(super) index: u32,
    pub(super) of: u32,
}

/// Runs one round of a plan.
pub(super) fn run(
    planned: &Planned,
    number: RoundNumber,
    ears: &Ears,
    progress: &mut Progress,
) -> Result<TrialRecord, Failure> {
    let mut plan = planned.plan.clone();
    plan.seed = plan.seed.wrapping_add(u64::from(number.index));
    let plan = Arc::new(plan);
    let crew = Crew {
        share: Share::WHOLE,
        engine_threads: planned.division.threads,
        extra: loadline_clients::thread(planned.crowds.clone()),
        cpus: planned.cpus.clone(),
    };
    let surroundings = Surroundings::look(&planned.watched)?;
    let team = match planned.division.processes {
        0 | 1 => Team::own(&plan, &crew, &ears.tell),
        count => Team::processes(count, &plan, &crew, &ears.tell),
    };
    let mut team = team.map_err(|error| Failure::failed(format!("the clients: {error}")))?;
    let mut standing = Standing {
        merger: Merger::new(&plan),
        ready: 0,
        ends: 0,
        engines_left: plan.requests_max.map(|_| {
            let processes = planned.division.processes.max(1);
            (crew.engine_threads(&plan) * processes) as usize
        }),
        scenario: planned.scenario.clone(),
        is_interrupted: false,
        lost: None,
    };
    standing.wait_for_ready(&mut team, &ears.told, progress);
    let start_ns = monotonic_ns() + LEAD_NS;
    let start_unix_ms = unix_ms() + LEAD_NS / 1_000_000;
    team.start_at(start_ns);
    let end_ns = start_ns + plan.duration_ns() + plan.timeout_ns + PATIENCE_NS;
    standing.wait_for_end(&mut team, &ears.told, progress, (start_ns, end_ns));
    if standing.lost.is_none() {
        team.join();
    }
    let ran_ns = monotonic_ns().saturating_sub(start_ns);
    progress.clear();
    if let Some(lost) = standing.lost {
        return Err(Failure::failed(lost));
    }
    let (machine, watched) = surroundings.end(start_ns);
    Ok(standing.merger.finish(Ending {
        command: planned.command.clone(),
        urls: planned.urls.clone(),
        processes: planned.division.processes,
        start_unix_ms,
        round: number.index + 1,
        rounds: number.of,
        is_interrupted: standing.is_interrupted,
        ran_ns: standing
            .is_interrupted
            .then(|| ran_ns.min(plan.duration_ns())),
        machine,
        limits: planned.division.limits.clone(),
        watched,
    }))
}

impl Standing {
    /// Until every thread has opened its connections, or something came between.
    fn wait_for_ready(&mut self, team: &mut Team, told: &Receiver<Told>, progress: &mut Progress) {
        let expected = team.ready_expected();
        while self.ready < expected && self.ends < team.ends_expected() && !self.is_interrupted {
            match told.recv_timeout(GLANCE) {
                Ok(told) => self.hear(told, team),
                Err(RecvTimeoutError::Timeout) => progress.opening(self.ready, expected),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Until every thread has told its end; those that hang are given up.
    fn wait_for_end(
        &mut self,
        team: &mut Team,
        told: &Receiver<Told>,
        progress: &mut Progress,
        (start_ns, end_ns): (u64, u64),
    ) {
        let expected = team.ends_expected();
        let mut patience = Patience::until(end_ns, monotonic_ns());
        while self.ends < expected {
            match told.recv_timeout(GLANCE) {
                Ok(told) => self.hear(told, team),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now_ns = monotonic_ns();
            if self.is_interrupted || self.lost.is_some() {
                patience.shorten(now_ns + PATIENCE_NS);
            }
            if patience.is_over(now_ns) {
                let missing = expected - self.ends;
                let stuck = || format!("{missing} of {expected} client threads do not end");
                self.lost.get_or_insert_with(stuck);
                return;
            }
            progress.show(&self.merger, now_ns.saturating_sub(start_ns));
        }
    }

    fn hear(&mut self, told: Told, team: &mut Team) {
        match told {
            Told::Fleet(Event::Told(message)) => {
                match &message {
                    Message::Ready { .. } => self.ready += 1,
                    Message::Finished(report) if report.group == 0 => self.engine_ended(team),
                    Message::Steps(steps) => {
                        if let Some(scenario) = &self.scenario {
                            scenario.add(steps);
                        }
                    }
                    Message::Interval(_) | Message::Finished(_) => {}
                }
                self.merger.take(message);
            }
            Told::Fleet(Event::Ended { thread, result }) => {
                self.ends += 1;
                if let Err(reason) = result {
                    self.lost
                        .get_or_insert_with(|| format!("{thread}: {reason}"));
                    team.stop();
                }
            }
            Told::Signal => {
                self.is_interrupted = true;
                team.stop();
            }
        }
    }
}

/// How long the end is waited for. Time in which this process was stopped (by a debugger, by ^Z)
/// does not count: its threads had none of it either.
#[derive(Clone, Copy, Debug)]
struct Patience {
    end_ns: u64,
    /// When the clock was looked at last.
    seen_ns: u64,
}

/// Between two glances so much time passes only for a process that was stopped.
const STOPPED_NS_MIN: u64 = 1_000_000_000;

impl Patience {
    fn until(end_ns: u64, now_ns: u64) -> Self {
        let seen_ns = now_ns;
        Self { end_ns, seen_ns }
    }

    fn shorten(&mut self, end_ns: u64) {
        self.end_ns = self.end_ns.min(end_ns);
    }

    fn is_over(&mut self, now_ns: u64) -> bool {
        let passed_ns = now_ns.saturating_sub(self.seen_ns);
        if passed_ns >= STOPPED_NS_MIN {
            self.end_ns = self.end_ns.saturating_add(passed_ns);
        }
        self.seen_ns = now_ns;
        now_ns > self.end_ns
    }
}

impl Standing {
    /// With the last of the plain clients, the requests of the run are done.
    fn engine_ended(&mut self, team: &mut Team) {
        if let Some(left) = &mut self.engines_left {
            *left = left.saturating_sub(1);
            if *left == 0 {
                team.end();
            }
        }
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn who_was_stopped_has_the_time_all_the_same() {
        let mut patience = Patience::until(2 * S, 0);
        assert!(!patience.is_over(S / 10));
        assert!(!patience.is_over(60 * S)); // it was stopped, and its threads with it
        assert!(!patience.is_over(60 * S + S / 2));
        assert!(!patience.is_over(61 * S));
        assert!(!patience.is_over(61 * S + S / 2));
        assert!(patience.is_over(62 * S));
    }

    #[test]
    fn who_is_to_end_has_less_time() {
        let mut patience = Patience::until(100 * S, 0);
        patience.shorten(S / 2);
        patience.shorten(S);
        assert!(!patience.is_over(S / 2));
        assert!(patience.is_over(S / 2 + 1));
    }
}
