//! The highest rate at which a server holds an SLO, from trials with a real client: the search with
//! its evidence, the limiter, and the saturation beside it.
//!
//! What a trial is stands behind [`Trials`], so tests make servers up.

mod client;
mod fresh;
mod limiter;
mod page;
mod runs;
mod saturation;

use loadline_record::TrialRecord;
use serde::{Deserialize, Serialize};

pub use client::{Client, ClientOptions, check_load};
pub use fresh::{Fresh, FreshOptions};
pub use limiter::{Limiter, LimiterKind};
pub use page::page;
pub use runs::{OtherSearch, Runs};
pub use saturation::Saturation;

use loadline_capacity::search::{Limits, Search, SearchFinding, Step, TrialOutcome, Tried, Try};

use crate::journal::{ServerFacts, Trial};
pub use crate::runner::Stop;
use crate::slo::{Judgement, Slo};

/// Name and version of the form of [`Capacity`] as JSON.
pub const SCHEMA: &str = "loadline-capacity/1";

/// Runs single trials.
pub trait Trials {
    /// Runs one from begin to end.
    ///
    /// # Errors
    /// It did not come to its end, and none will.
    fn run(&mut self, trial: &Try) -> Result<Trial, Stop>;

    /// Answers a second of a closed loop over all connections, for `seconds`: roughly what the server
    /// can carry. 0: nothing was answered.
    ///
    /// # Errors
    /// It did not come to its end.
    fn closed_loop(&mut self, seconds: f64) -> Result<f64, Stop>;
}

/// An observer of the progress.
pub trait SearchObserver {
    /// A trial begins.
    fn begins(&mut self, trial: &Try, search: &Search);
    /// It has been judged.
    fn judged(&mut self, evidence: &Evidence, search: &Search);
}

/// What a search for the capacity comes to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    /// [`SCHEMA`].
    pub schema: String,
    /// What was asked for.
    pub slo: String,
    /// The server: a URL, or a command.
    pub target: String,
    /// Under what else the trials ran, as options of the command line: connections, network, CPUs, content,
    /// lengths, load.
    #[serde(default)]
    pub conditions: String,
    /// What the search was given.
    pub limits: Limits,
    /// What it found.
    pub finding: SearchFinding,
    /// Which thread or resource is the limit.
    pub limiter: Limiter,
    /// Up to where what is offered is completed; `None`: nowhere.
    #[serde(default)]
    pub saturation: Option<Saturation>,
    /// This search beside earlier ones.
    #[serde(default)]
    pub runs: Option<Runs>,
    /// Every trial, in order.
    pub evidence: Vec<Evidence>,
    /// Stopped before its time.
    pub interrupted: bool,
}

/// A trial, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// What was run, and whether it held.
    pub tried: Tried,
    /// Why it did not hold, or counts for nothing.
    pub reasons: Vec<String>,
    /// What was measured; `None`: nothing.
    pub measured: Option<Measured>,
    /// The server.
    pub server: ServerFacts,
}

/// What a trial measured, in short.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Measured {
    /// Requests that became due, per second.
    pub offered_per_s: f64,
    /// Complete answers, per second.
    pub completed_per_s: f64,
    /// Errors of all kinds, of what was offered.
    pub errors_share: f64,
    /// The kind of error that was most frequent.
    pub error: Option<String>,
    /// Of it, of what was offered.
    pub error_share: f64,
    /// Latency from due, mean.
    pub latency_mean_us: Option<f64>,
    /// Latency from due, half of the answers.
    pub latency_p50_us: Option<u64>,
    /// Latency from due, 99 % of the answers.
    pub latency_p99_us: Option<u64>,
    /// Time from sent, half of the answers.
    pub service_p50_us: Option<u64>,
    /// Requests in flight, on average.
    pub in_flight: Option<f64>,
    /// Connections that the client could have.
    pub connections: u32,
    /// How late the client was, for 99 % of the requests.
    pub lag_p99_us: Option<u64>,
    /// How busy the busiest thread of the client was.
    pub client_busy_share: Option<f64>,
    /// CPU time of the server, of one CPU.
    pub server_cpus: Option<f64>,
    /// Time in which threads of the server could have run and were not let, of one CPU.
    pub server_delay: Option<f64>,
    /// Of the time, the part for which the server's busiest thread ran.
    pub server_thread: Option<f64>,
    /// The part for which it could have run and was not let.
    pub server_thread_delay: Option<f64>,
    /// Most descriptors of the server.
    pub descriptors_max: Option<u64>,
    /// The largest part of its own limit of them that one process of the server had.
    pub descriptors_share_max: Option<f64>,
    /// CPUs of the machine.
    pub cpus: u32,
}

/// Searches.
///
/// # Errors
/// Limits that do not fit together, or a trial that cannot be run at all, in one line. An
/// interruption is none: what was found until then is the result.
pub fn measure(
    slo: &Slo,
    target: &str,
    conditions: &str,
    limits: &Limits,
    trials: &mut dyn Trials,
    observer: &mut dyn SearchObserver,
) -> Result<Capacity, Stop> {
    let mut search = Search::new(limits.clone()).map_err(|why| why.to_string())?;
    let mut evidence: Vec<Evidence> = Vec::new();
    let mut interrupted = false;
    while let Step::Try(trial) = search.next() {
        observer.begins(&trial, &search);
        let ran = match trials.run(&trial) {
            Ok(ran) => ran,
            Err(Stop::Interrupted) => {
                interrupted = true;
                break;
            }
            Err(stop) => return Err(stop),
        };
        let Judgement { outcome, reasons } = judge(slo, &ran);
        let shares = ran.load.as_deref().map(|load| slo.shares(load));
        let shares = shares.unwrap_or_default();
        search.record(outcome, shares.clone(), ran.took_s);
        let tried = Tried {
            trial,
            outcome,
            shares,
            spent_s: ran.took_s,
        };
        evidence.push(Evidence {
            tried,
            reasons,
            measured: ran.load.as_deref().map(measured),
            server: ran.server,
        });
        if let Some(last) = evidence.last() {
            observer.judged(last, &search);
        }
    }
    let finding = search.finding();
    Ok(Capacity {
        schema: SCHEMA.to_owned(),
        slo: slo.to_string(),
        target: target.to_owned(),
        conditions: conditions.to_owned(),
        limits: limits.clone(),
        limiter: limiter::find(&finding, &evidence),
        saturation: Saturation::of(&evidence),
        finding,
        runs: None,
        evidence,
        interrupted,
    })
}

fn judge(slo: &Slo, ran: &Trial) -> Judgement {
    match &ran.load {
        Some(record) if ran.discarded.is_empty() => slo.judge(record),
        _ => Judgement {
            outcome: TrialOutcome::Discarded,
            reasons: ran.discarded.clone(),
        },
    }
}

fn measured(record: &TrialRecord) -> Measured {
    let mut measured = Measured {
        connections: record.run.connections,
        lag_p99_us: record.verdict.lag_p99_us,
        client_busy_share: record.verdict.busiest_share,
        cpus: record.machine.cpus,
        ..Measured::default()
    };
    if let Some(group) = record.headline() {
        let (total, tally) = (&group.total, &group.total.tally);
        let share = |count: u64| count as f64 / tally.offered.max(1) as f64;
        measured.offered_per_s = total.rates.offered_per_s;
        measured.completed_per_s = total.rates.completed_per_s;
        measured.errors_share = share(tally.errors_total());
        let kinds = loadline_record::ErrorKind::ALL.iter().zip(tally.errors);
        if let Some((kind, count)) = kinds.max_by_key(|(_, count)| *count)
            && count > 0
        {
            measured.error = Some(kind.name().to_owned());
            measured.error_share = share(count);
        }
        measured.latency_mean_us = total.latency.mean_us();
        measured.latency_p50_us = total.latency.percentile_us(50.0);
        measured.latency_p99_us = total.latency.percentile_us(99.0);
        measured.service_p50_us = total.service.percentile_us(50.0);
        measured.in_flight = total.in_flight;
    }
    if let Some(server) = record.watched.iter().find(|one| one.name == "server")
        && server.seconds > 0.0
    {
        let cpu_s = server.cpu_user_s + server.cpu_kernel_s;
        measured.server_cpus = Some(cpu_s / server.seconds);
        measured.server_delay = Some(server.run_delay_s / server.seconds);
        measured.server_thread = server.busiest_share;
        measured.server_thread_delay = server.busiest_delay_share;
        measured.descriptors_max = server.descriptors_max;
        measured.descriptors_share_max = server.descriptors_share_max;
    }
    measured
}

#[cfg(test)]
mod tests {
    use loadline_record::{Distribution, GroupRecord, Results, WatchedRecord, latencies};

    use super::*;
    use loadline_capacity::search::Bound;
    use loadline_capacity::stats::Interval;

    /// A queue of one server with a known saturation: latency grows as 1 / (1 - load), and one thread
    /// is as busy as the load.
    struct Queue {
        saturation_per_s: f64,
        runs_left: usize,
    }

    impl Trials for Queue {
        fn run(&mut self, trial: &Try) -> Result<Trial, Stop> {
            if self.runs_left == 0 {
                return Err(Stop::Interrupted);
            }
            self.runs_left -= 1;
            let load = trial.rate_per_s / self.saturation_per_s;
            let latency_us = 1000.0 / (1.0 - load).max(1e-4);
            let offered = (trial.rate_per_s * trial.seconds).round();
            let completed = offered * (1.0 / load).min(1.0);
            let mut histogram = latencies();
            histogram.saturating_record_n(latency_us as u64, completed as u64);
            let mut total = Results {
                seconds: trial.seconds,
                latency: Distribution::new(histogram.clone()),
                service: Distribution::new(histogram),
                ..Results::default()
            };
            total.rates.offered_per_s = trial.rate_per_s;
            total.rates.completed_per_s = completed / trial.seconds;
            (total.tally.offered, total.tally.completed) = (offered as u64, completed as u64);
            let record = TrialRecord {
                groups: vec![GroupRecord {
                    total,
                    ..GroupRecord::default()
                }],
                watched: vec![WatchedRecord {
                    name: "server".to_owned(),
                    seconds: trial.seconds,
                    cpu_user_s: load.min(1.0) * trial.seconds,
                    busiest_share: Some(load.min(1.0)),
                    ..WatchedRecord::default()
                }],
                ..TrialRecord::default()
            };
            let mut ran = Trial {
                load: Some(Box::new(record)),
                took_s: trial.seconds + 1.0,
                ..Trial::default()
            };
            ran.server.cpus = "1".to_owned();
            Ok(ran)
        }

        fn closed_loop(&mut self, _: f64) -> Result<f64, Stop> {
            Ok(self.saturation_per_s)
        }
    }

    struct Silent;

    impl SearchObserver for Silent {
        fn begins(&mut self, _: &Try, _: &Search) {}
        fn judged(&mut self, _: &Evidence, _: &Search) {}
    }

    fn limits() -> Limits {
        Limits {
            begin_per_s: 100.0,
            rate_max_per_s: 1e6,
            budget_s: 900.0,
            short_s: 2.0,
            long_s: 10.0,
            requests_min: 1000.0,
            warm_up_s: 0.0,
            overhead_s: 1.0,
        }
    }

    fn capacity_of(saturation_per_s: f64, runs: usize) -> Capacity {
        let slo: Slo = "p99 < 20ms".parse().unwrap();
        let mut queue = Queue {
            saturation_per_s,
            runs_left: runs,
        };
        measure(&slo, "made up", "-c64", &limits(), &mut queue, &mut Silent).unwrap()
    }

    #[test]
    fn a_queue_with_a_known_capacity() {
        // 20 ms is 20 times the latency without load: at 95 % of 4000/s.
        let capacity = capacity_of(4000.0, usize::MAX);
        let interval = capacity.finding.interval.unwrap();
        assert!(
            capacity.finding.bound == Bound::Found && interval.contains(3800.0),
            "{interval:?}"
        );
        assert_eq!(capacity.limiter.kind, LimiterKind::ServerThread);
        // 99 % are completed up to 4040/s.
        let saturation = capacity.saturation.unwrap();
        let is_beyond = |rate: f64| rate > 4040.0;
        assert!(
            !is_beyond(saturation.at_per_s) && saturation.beyond_per_s.is_some_and(is_beyond),
            "{saturation:?}"
        );
        assert!(capacity.evidence.len() as u32 == capacity.finding.trials);
        let text = page(&capacity);
        assert!(text.starts_with(&capacity.headline()), "{text}");
        let line = "\n  knee       saturation (completed/offered under 0.99): ";
        assert!(text.contains(line), "{text}");
        let json = serde_json::to_string(&capacity).unwrap();
        assert_eq!(serde_json::from_str::<Capacity>(&json).unwrap(), capacity);
    }

    #[test]
    fn searches_apart_in_time() {
        let found = |low: f64, value: f64, high: f64| {
            let mut one = capacity_of(4000.0, 12);
            one.finding.capacity_per_s = Some(value);
            one.finding.interval = Some(Interval {
                low,
                high,
                level: 0.95,
            });
            one
        };
        let (first, second) = (found(990.0, 1000.0, 1010.0), found(1089.0, 1100.0, 1111.0));
        let this = found(1188.0, 1200.0, 1212.0);
        let runs = Runs::of(&[first.clone(), second], &this).unwrap();
        assert_eq!(runs.capacities_per_s, [1000.0, 1100.0, 1200.0]);
        assert!((1090.0..1100.0).contains(&runs.capacity_per_s));
        // Nine parts in a hundred between them, though each says that it knows half a part.
        assert!((0.08..0.10).contains(&runs.between), "{runs:?}");
        let interval = runs.interval.unwrap();
        assert!(
            interval.low < 900.0 && interval.high > 1300.0,
            "{interval:?}"
        );
        // No more than their intervals allow.
        let near = Runs::of(std::slice::from_ref(&first), &found(985.0, 1002.0, 1019.0));
        assert_eq!(near.unwrap().between, 0.0);
        let mut other = first;
        let check = |one: &Capacity| Runs::check(one, "p99 < 20ms", "made up", "-c64");
        let why = |one: &Capacity| check(one).unwrap_err().to_string();
        assert_eq!(check(&other), Ok(()));
        assert!(Runs::check(&other, "p99 < 20ms", "another", "-c64").is_err());
        let differs = Runs::check(&other, "p99 < 20ms", "made up", "-c65").unwrap_err();
        let text = "its set of options was '-c64', this search has '-c65'";
        assert_eq!(differs.to_string(), text);
        other.finding.interval = None;
        assert!(why(&other).contains("no capacity"));
        other.slo = "p50 < 1ms".to_owned();
        assert!(why(&other).contains("its SLO was 'p50 < 1ms'"));
    }

    #[test]
    fn an_interruption_leaves_what_was_found() {
        let capacity = capacity_of(4000.0, 12);
        assert!(capacity.interrupted);
        assert_eq!(capacity.evidence.len(), 12);
        assert!(page(&capacity).contains("interrupted"));
    }
}
