//! One trial from begin to end: its workers are started together, observed, and stopped.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use loadline_record::{StepReport, TrialRecord};
use loadline_spec::Table;
use loadline_sys::clock::{monotonic_ns, unix_ms};

use super::RunError;
use super::division::Division;
use super::workers::Workers;
use crate::load_threads::{ExtraThread, RunEvent, ThreadSpec};
use crate::trial::{Ending, Merger, Probe};
use crate::watch::{Target, Watch};
use crate::{Message, Plan, Share};

/// Time between setting the start and the start: it has to reach every process.
const LEAD_NS: u64 = 20_000_000;
/// How often the observer is called; the live view is drawn at most so often.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How long the end may take beyond the time that the last answers have.
const GRACE_NS: u64 = 10_000_000_000;

/// A run, ready to be started.
#[derive(Clone, Debug)]
pub struct Run {
    /// The same for all threads and processes, and but for the seed for all rounds.
    pub plan: Plan,
    /// How it is divided.
    pub division: Division,
    /// A thread of each process beside those of the plain clients.
    pub extra: Option<ExtraThread>,
    /// CPUs that threads are pinned to.
    pub cpus: Vec<usize>,
    /// Processes that are watched.
    pub watched: Vec<Target>,
    /// The command line, without passwords.
    pub command: Vec<String>,
    /// The options of the load that were given, without passwords.
    pub spec: Table,
    /// Where requests go, without passwords.
    pub urls: Vec<String>,
}

impl Run {
    /// The threads of a process that has this share.
    #[must_use]
    pub fn thread_spec(&self, share: Share) -> ThreadSpec {
        ThreadSpec {
            share,
            engine_threads: self.division.threads,
            extra: self.extra.clone(),
            cpus: self.cpus.clone(),
        }
    }
}

/// Is notified while a round lasts.
pub trait RoundObserver {
    /// Connections are being opened: `ready` of the expected threads are ready.
    fn opening(&mut self, ready: usize, expected: usize);
    /// The round has lasted `elapsed_ns`; called every 100 ms.
    fn running(&mut self, merger: &Merger, elapsed_ns: u64);
    /// Results of the steps of a scenario in another process.
    fn steps(&mut self, steps: &[StepReport]);
    /// The round is over.
    fn ended(&mut self);
}

/// The channel through which the events of rounds come.
#[derive(Debug)]
pub struct RunChannel {
    /// Where threads and signal handlers put them.
    pub sender: Sender<RunEvent>,
    receiver: Receiver<RunEvent>,
}

impl Default for RunChannel {
    fn default() -> Self {
        let (sender, receiver) = channel();
        Self { sender, receiver }
    }
}

/// The state of a round.
struct RoundState {
    merger: Merger,
    ready: usize,
    ends: usize,
    /// Threads of plain clients that have not ended; `None`: time ends the run, not their requests.
    engines_left: Option<usize>,
    is_interrupted: bool,
    /// What the first thread or process that could not go on says.
    lost: Option<RunError>,
    probe: Probe,
    counted: CountedTime,
}

/// Which round of how many.
#[derive(Clone, Copy, Debug)]
pub struct RoundNumber {
    /// Which, from 0.
    pub index: u32,
    /// How many there are.
    pub of: u32,
}

/// Runs one round of a plan.
///
/// # Errors
/// A process cannot be watched, a thread or process cannot be started, or one could not go on.
pub fn run(
    run: &Run,
    number: RoundNumber,
    channel: &RunChannel,
    observer: &mut dyn RoundObserver,
) -> Result<TrialRecord, RunError> {
    let mut plan = run.plan.clone();
    plan.seed = plan.seed.wrapping_add(u64::from(number.index));
    let plan = Arc::new(plan);
    let spec = run.thread_spec(Share::WHOLE);
    let watch = Watch::begin(run.watched.clone()).map_err(RunError::Watch)?;
    let probe = Probe::begin();
    let workers = match run.division.processes {
        0 | 1 => Workers::own(&plan, &spec, &channel.sender),
        count => Workers::processes(count, &plan, &spec, &channel.sender),
    };
    let mut workers = workers.map_err(RunError::Clients)?;
    let mut state = RoundState {
        merger: Merger::new(&plan),
        ready: 0,
        ends: 0,
        engines_left: plan.requests_max.map(|_| {
            let processes = run.division.processes.max(1);
            (spec.engine_threads(&plan) * processes) as usize
        }),
        is_interrupted: false,
        lost: None,
        probe,
        counted: CountedTime::default(),
    };
    let events = &channel.receiver;
    state.wait_for_ready(&mut workers, events, observer);
    let start_ns = monotonic_ns() + LEAD_NS;
    let start_unix_ms = unix_ms() + LEAD_NS / 1_000_000;
    workers.start_at(start_ns);
    state.counted = CountedTime::of(&plan, start_ns);
    let end_ns = start_ns + plan.duration_ns() + plan.timeout_ns + GRACE_NS;
    state.wait_for_end(&mut workers, events, observer, (start_ns, end_ns));
    if state.lost.is_none() {
        workers.join();
    }
    let ran_ns = monotonic_ns().saturating_sub(start_ns);
    observer.ended();
    if let Some(lost) = state.lost {
        return Err(lost);
    }
    let watched = watch.end(start_ns);
    Ok(state.merger.finish(Ending {
        command: run.command.clone(),
        spec: run.spec.clone(),
        urls: run.urls.clone(),
        processes: run.division.processes,
        start_unix_ms,
        round: number.index + 1,
        rounds: number.of,
        is_interrupted: state.is_interrupted,
        ran_ns: state.is_interrupted.then(|| ran_ns.min(plan.duration_ns())),
        machine: state.probe.end(),
        limits: run.division.limits.clone(),
        watched,
    }))
}

impl RoundState {
    /// Until every thread has opened its connections, or something came between.
    fn wait_for_ready(
        &mut self,
        workers: &mut Workers,
        events: &Receiver<RunEvent>,
        observer: &mut dyn RoundObserver,
    ) {
        let expected = workers.ready_expected();
        while self.ready < expected && self.ends < workers.ends_expected() && !self.is_interrupted {
            match events.recv_timeout(POLL_INTERVAL) {
                Ok(event) => self.take(event, workers, observer),
                Err(RecvTimeoutError::Timeout) => observer.opening(self.ready, expected),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Until every thread has reported its end; those that hang are given up.
    fn wait_for_end(
        &mut self,
        workers: &mut Workers,
        events: &Receiver<RunEvent>,
        observer: &mut dyn RoundObserver,
        (start_ns, end_ns): (u64, u64),
    ) {
        let expected = workers.ends_expected();
        let mut grace = Grace::until(end_ns, monotonic_ns());
        while self.ends < expected {
            let wait = self.counted.look(monotonic_ns(), &mut self.probe);
            match events.recv_timeout(wait) {
                Ok(event) => self.take(event, workers, observer),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now_ns = monotonic_ns();
            if self.is_interrupted || self.lost.is_some() {
                grace.shorten(now_ns + GRACE_NS);
            }
            if grace.is_over(now_ns) {
                let missing = expected - self.ends;
                self.lost
                    .get_or_insert(RunError::Stuck { missing, expected });
                return;
            }
            observer.running(&self.merger, now_ns.saturating_sub(start_ns));
        }
    }

    fn take(&mut self, event: RunEvent, workers: &mut Workers, observer: &mut dyn RoundObserver) {
        match event {
            RunEvent::Message(message) => {
                match &message {
                    Message::Ready { .. } => self.ready += 1,
                    Message::Finished(report) if report.group == 0 => self.engine_ended(workers),
                    Message::Steps(steps) => observer.steps(steps),
                    Message::Interval(_) | Message::Finished(_) => {}
                }
                self.merger.take(message);
            }
            RunEvent::Ended { thread, result } => {
                self.ends += 1;
                if let Err(error) = result {
                    self.lost
                        .get_or_insert_with(|| RunError::lost(thread, error));
                    workers.stop();
                }
            }
            RunEvent::Interrupted => {
                self.is_interrupted = true;
                workers.stop();
            }
        }
    }

    /// With the last of the plain clients, the requests of the run are done.
    fn engine_ended(&mut self, workers: &mut Workers) {
        if let Some(left) = &mut self.engines_left {
            *left = left.saturating_sub(1);
            if *left == 0 {
                workers.end();
            }
        }
    }
}

/// When the counted phases of a plan begin and end, by the clock; `None`: that is over, or there are
/// none.
#[derive(Clone, Copy, Debug, Default)]
struct CountedTime {
    begin_ns: Option<u64>,
    end_ns: Option<u64>,
}

impl CountedTime {
    /// Of a plan that starts then.
    fn of(plan: &Plan, start_ns: u64) -> Self {
        let mut phases = plan.phases.iter().filter(|phase| phase.counted);
        let Some(first) = phases.next() else {
            return Self::default();
        };
        let last = phases.next_back().unwrap_or(first);
        Self {
            begin_ns: Some(start_ns.saturating_add(first.begin_ns)),
            end_ns: Some(start_ns.saturating_add(last.end_ns)),
        }
    }

    /// Looks at the machine if it is time to, and says for how long to wait at most until the next look.
    fn look(&mut self, now_ns: u64, probe: &mut Probe) -> Duration {
        let is_over = |at_ns: &mut u64| *at_ns <= now_ns;
        if self.begin_ns.take_if(is_over).is_some() {
            probe.count_from_now();
        }
        if self.end_ns.take_if(is_over).is_some() {
            probe.count_until_now();
        }
        let next_ns = self.begin_ns.or(self.end_ns);
        next_ns.map_or(POLL_INTERVAL, |at_ns| {
            let wait = Duration::from_nanos(at_ns.saturating_sub(now_ns));
            wait.min(POLL_INTERVAL)
        })
    }
}

/// How long the end is waited for. Time in which this process was stopped (by a debugger, by ^Z)
/// does not count: its threads had none of it either.
#[derive(Clone, Copy, Debug)]
struct Grace {
    end_ns: u64,
    /// When the clock was looked at last.
    seen_ns: u64,
}

/// Only a process that was stopped has this much time between two polls.
const STOPPED_NS_MIN: u64 = 1_000_000_000;

impl Grace {
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

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn the_machine_is_looked_at_when_what_counts_begins_and_ends() {
        let mut probe = Probe::begin();
        let mut counted = CountedTime {
            begin_ns: Some(2 * S),
            end_ns: Some(3 * S),
        };
        let mut look = |now_ns| {
            let wait = counted.look(now_ns, &mut probe);
            (wait, counted.begin_ns, counted.end_ns)
        };
        assert_eq!(look(0), (POLL_INTERVAL, Some(2 * S), Some(3 * S)));
        let soon = Duration::from_nanos(5);
        assert_eq!(look(2 * S - 5), (soon, Some(2 * S), Some(3 * S)));
        assert_eq!(look(2 * S), (POLL_INTERVAL, None, Some(3 * S)));
        assert_eq!(look(3 * S + 1), (POLL_INTERVAL, None, None));
    }

    #[test]
    fn who_was_stopped_has_the_time_all_the_same() {
        let mut grace = Grace::until(2 * S, 0);
        assert!(!grace.is_over(S / 10));
        assert!(!grace.is_over(60 * S)); // it was stopped, and its threads with it
        assert!(!grace.is_over(60 * S + S / 2));
        assert!(!grace.is_over(61 * S));
        assert!(!grace.is_over(61 * S + S / 2));
        assert!(grace.is_over(62 * S));
    }

    #[test]
    fn who_is_to_end_has_less_time() {
        let mut grace = Grace::until(100 * S, 0);
        grace.shorten(S / 2);
        grace.shorten(S);
        assert!(!grace.is_over(S / 2));
        assert!(grace.is_over(S / 2 + 1));
    }
}
