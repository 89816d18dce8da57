//! Where the requests of a server are served, as a model of its capacity sees it.

use loadline_capacity::load_ratio::{AppCounts, AppQueue, Station};
use loadline_proto::latency::{HistogramCounts, MOUNTS_MEASURED};
use loadline_server::{Architecture, Counts, Role, ServerOptions, Snapshot};

use crate::latency::name;
use crate::reading::{CpuUse, Reading};

/// What a station's busy time is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The busiest loop: a connection stays with its loop, however free others are.
    BusiestLoop,
    /// All threads of this role together.
    Threads(Role),
    /// CPU time of the process.
    Cpu,
}

/// A station and its name.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) name: &'static str,
    pub(crate) station: Station,
    source: Source,
}

/// The stations of a server.
#[derive(Clone, Debug)]
pub(crate) struct Stations {
    list: Vec<Named>,
    /// Names of the mounts: the app of each is a station if requests are known to wait for each other in it.
    mounts: Vec<String>,
}

impl Stations {
    pub(crate) fn of(options: &ServerOptions, mounts: Vec<String>, cpus: f64) -> Self {
        let named = |name, servers: f64, source| Named {
            name,
            station: Station { servers, scv: 1.0 },
            source,
        };
        let threads = |count: usize| named("threads", count as f64, Source::Threads(Role::Thread));
        let mut all = match options.architecture {
            Architecture::Sequential => vec![threads(1)],
            Architecture::ThreadPool => vec![threads(options.threads)],
            Architecture::ThreadPerConnection => vec![threads(options.connections_max)],
            Architecture::Reactor | Architecture::Proactor => {
                vec![named("loops", 1.0, Source::BusiestLoop)]
            }
        };
        if options.architecture.has_loops() && options.workers > 0 {
            let workers = options.workers * options.pools();
            let source = Source::Threads(Role::Worker);
            all.push(named("workers", workers as f64, source));
        }
        all.push(named("cpus", cpus, Source::Cpu));
        Self { list: all, mounts }
    }

    pub(crate) fn list(&self) -> &[Named] {
        &self.list
    }

    /// The name of the app of a mount, as a station.
    pub(crate) fn app_name(&self, mount: usize) -> String {
        format!("app {}", name(&self.mounts, mount, MOUNTS_MEASURED))
    }

    /// That of a station or, with a number behind these, of an app.
    pub(crate) fn name(&self, index: usize) -> String {
        match self.list.get(index) {
            Some(it) => it.name.to_owned(),
            None => self.app_name(index - self.list.len()),
        }
    }

    /// How many servers each has now.
    pub(crate) fn servers(&self, now: &Snapshot) -> Vec<f64> {
        let changes = now.workers_useful.is_some();
        let servers = self.list.iter().map(|it| match it.source {
            Source::Threads(role) if changes => now.threads(role).max(1) as f64,
            _ => it.station.servers,
        });
        servers.collect()
    }

    /// As large as they can get, with the measured variation of what requests take of them.
    pub(crate) fn at_most(&self, workers: Option<usize>, jobs: &Jobs) -> Vec<Station> {
        let stations = self.list.iter().map(|it| {
            let Station {
                servers,
                scv: usual,
            } = it.station;
            let (servers, scv) = match it.source {
                Source::BusiestLoop => (servers, None),
                Source::Threads(_) => {
                    let servers = workers.map_or(servers, |workers| workers as f64);
                    (servers, jobs.scv())
                }
                Source::Cpu => (servers, jobs.cpu_scv()),
            };
            let scv = scv.unwrap_or(usual);
            Station { servers, scv }
        });
        stations.collect()
    }

    /// What workers did between two readings, or threads that serve connections.
    pub(crate) fn jobs(&self, last: &Reading, now: &Reading) -> Jobs {
        let role = self.list.iter().find_map(|it| match it.source {
            Source::Threads(role) => Some(role),
            _ => None,
        });
        let times = now.jobs.since(&last.jobs);
        let mut jobs = Jobs {
            // Where threads serve connections, none is without a job; several may share one.
            requests: match role {
                Some(Role::Thread) => times.count(),
                _ => now.latencies.since(&last.latencies).count(),
            },
            times,
            process_cpu_s: now.cpu.saturating_sub(last.cpu).as_secs_f64(),
            ..Jobs::default()
        };
        let spans = spans(last, now);
        for span in spans.iter().filter(|span| Some(span.role) == role) {
            jobs.busy_s += span.busy_s;
            jobs.served_s += span.served_s();
            jobs.cpu_s += span.used.map_or(0.0, |used| used.cpu.as_secs_f64());
        }
        jobs
    }

    /// Server-seconds for which each station was busy.
    pub(crate) fn busy_s(&self, last: &Reading, now: &Reading) -> Vec<f64> {
        let spans = spans(last, now);
        let of_role = |role: Role| spans.iter().filter(move |span| span.role == role);
        let busy_s = self.list.iter().map(|it| match it.source {
            Source::BusiestLoop => {
                let loops = of_role(Role::Loop);
                loops.map(|span| span.busy_s).fold(0.0, f64::max)
            }
            Source::Threads(role) => of_role(role).fold(0.0, |sum, span| sum + span.served_s()),
            Source::Cpu => now.cpu.saturating_sub(last.cpu).as_secs_f64(),
        });
        busy_s.collect()
    }
}

/// What apps did between two readings, by mount.
pub(crate) fn apps(last: &Reading, now: &Reading) -> Vec<AppCounts> {
    let pairs = last.snapshot.apps.iter().zip(&now.snapshot.apps);
    let counts = pairs.map(|(last, now)| AppCounts {
        answered: now.answered.saturating_sub(last.answered) as f64,
        refused: now.refused.saturating_sub(last.refused) as f64,
    });
    counts.collect()
}

/// The queues within apps, as far as they are known, by mount.
pub(crate) fn app_queues(now: &Snapshot) -> Vec<Option<AppQueue>> {
    let apps = now.apps.iter();
    let queues =
        apps.map(|app| AppQueue::measured(app.queued_us as f64 / 1e6, app.queued_answers as f64));
    queues.collect()
}

/// What is known of single pieces of work: jobs of workers, or what requests keep a thread busy that serves one
/// connection at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Jobs {
    /// Requests in the same time.
    requests: u64,
    times: HistogramCounts,
    /// For which their threads were busy, also with waits for a CPU.
    busy_s: f64,
    /// The same without these.
    served_s: f64,
    /// CPU time of their threads.
    cpu_s: f64,
    process_cpu_s: f64,
}

impl Jobs {
    pub(crate) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.times.add(&other.times);
        self.busy_s += other.busy_s;
        self.served_s += other.served_s;
        self.cpu_s += other.cpu_s;
        self.process_cpu_s += other.process_cpu_s;
    }

    /// The squared coefficient of variation of their times. `None`: it is not known.
    fn scv(&self) -> Option<f64> {
        // A job that has ended may have begun long before: then its thread was busy with it in earlier times.
        let is_work = self.times.sum_us as f64 / 1e6 <= 2.0 * self.busy_s;
        self.times.scv().filter(|_| is_work)
    }

    /// That of the CPU time of requests: of the jobs' part as measured, if jobs compute for half of their time
    /// or more; of the rest 1, since nothing is known of it. The variances of the two add up.
    fn cpu_scv(&self) -> Option<f64> {
        let computes = self.cpu_s > 0.0 && self.cpu_s >= self.served_s / 2.0;
        let of_job = self.scv().filter(|_| computes)?;
        // Requests without a job take none of that part. Several jobs of one are taken to vary alike.
        let with_job = (self.times.count() as f64 / self.requests as f64).min(1.0);
        let scv = (1.0 + of_job) / with_job - 1.0;
        let of_jobs = (self.cpu_s / self.process_cpu_s).min(1.0);
        let of_rest = 1.0 - of_jobs;
        Some(scv * of_jobs * of_jobs + of_rest * of_rest)
    }
}

/// What a thread did between two readings.
struct Span {
    role: Role,
    busy_s: f64,
    /// Jobs, or requests.
    jobs: u64,
    /// `None`: it is not known.
    used: Option<CpuUse>,
}

impl Span {
    /// The time for which it was busy, less that in which it waited for a CPU: where threads share the CPUs,
    /// it is the CPUs that requests wait for. CPU time that it used was no wait.
    fn served_s(&self) -> f64 {
        let Some(used) = self.used else {
            return self.busy_s;
        };
        // Before each job a thread wakes and waits, too, and is not busy yet.
        let before_jobs = (self.jobs as f64 / used.waits as f64).min(1.0);
        let waited_s = used.run_delay.as_secs_f64() * (1.0 - before_jobs);
        let served_s = self.busy_s - waited_s;
        served_s.max(used.cpu.as_secs_f64()).min(self.busy_s)
    }
}

/// Of each thread.
fn spans(last: &Reading, now: &Reading) -> Vec<Span> {
    // Threads keep their place; new ones come behind.
    let threads = now.snapshot.per_thread.iter().enumerate();
    let spans = threads.map(|(index, thread)| {
        let then = last.snapshot.per_thread.get(index);
        let then_us = then.map_or(0, |then| then.counts.busy_us);
        let jobs = |counts: &Counts| counts.jobs.max(counts.requests());
        let jobs_then = then.map_or(0, |then| jobs(&then.counts));
        let is_same = then.is_some_and(|then| then.usage == thread.usage);
        let used = |reading: &Reading| reading.cpu_uses.get(index).copied().flatten();
        let used = used(now).zip(used(last)).filter(|_| is_same);
        Span {
            role: thread.role,
            busy_s: thread.counts.busy_us.saturating_sub(then_us) as f64 / 1e6,
            jobs: jobs(&thread.counts).saturating_sub(jobs_then),
            used: used.map(|(now, then)| now.since(then)),
        }
    });
    spans.collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use loadline_proto::latency::Histogram;

    use super::*;

    /// Of a thread that waited a hundred times for a CPU, in the middle of something.
    fn span(busy_s: f64, cpu_ms: u64, run_delay_ms: u64) -> Span {
        Span {
            role: Role::Worker,
            busy_s,
            jobs: 0,
            used: Some(CpuUse {
                cpu: Duration::from_millis(cpu_ms),
                run_delay: Duration::from_millis(run_delay_ms),
                waits: 100,
            }),
        }
    }

    #[test]
    fn a_thread_served_as_long_as_it_computed_at_least_and_as_it_was_busy_at_most() {
        let served_s = |busy_s, cpu_ms, run_delay_ms| span(busy_s, cpu_ms, run_delay_ms).served_s();
        assert_eq!(served_s(1.0, 500, 250), 0.75);
        assert_eq!(served_s(1.0, 500, 900), 0.5);
        assert_eq!(served_s(0.25, 500, 900), 0.25);
        assert_eq!(served_s(1.0, 0, 2_000), 0.0);
    }

    #[test]
    fn a_wait_for_a_cpu_before_a_job_is_not_taken_from_it() {
        let served_s = |jobs| {
            let span = span(1.0, 0, 800);
            Span { jobs, ..span }.served_s()
        };
        assert_eq!(served_s(50), 0.6, "every second one");
        assert_eq!(served_s(100), 1.0);
        assert_eq!(served_s(200), 1.0, "it did not sleep between them");
    }

    #[test]
    fn where_waits_are_not_counted_all_of_the_busy_time_is_service() {
        let mut span = span(1.0, 0, 0);
        span.used = span.used.map(|used| CpuUse { waits: 0, ..used });
        assert_eq!(span.served_s(), 1.0);
    }

    /// A hundred requests, with so many jobs of 10 ms, of which the threads computed for this part, as did others
    /// for so long.
    fn jobs(count: u64, computed: f64, others_s: f64) -> Jobs {
        let histogram = Histogram::default();
        histogram.add(10_000, count);
        let busy_s = count as f64 * 0.01;
        let mut jobs = Jobs {
            requests: 100,
            busy_s,
            served_s: busy_s,
            cpu_s: busy_s * computed,
            process_cpu_s: busy_s * computed + others_s,
            ..Jobs::default()
        };
        histogram.add_to(&mut jobs.times);
        jobs
    }

    fn is_near(found: Option<f64>, expected: f64) -> bool {
        found.is_some_and(|found| (found - expected).abs() < 1e-9)
    }

    #[test]
    fn cpu_time_varies_as_jobs_do_as_far_as_it_is_theirs() {
        assert!(is_near(jobs(100, 1.0, 0.0).cpu_scv(), 0.0));
        assert!(is_near(jobs(100, 1.0, 1.0).cpu_scv(), 0.25), "half of it");
        assert!(is_near(jobs(100, 0.6, 0.0).cpu_scv(), 0.0));
        assert_eq!(jobs(100, 0.4, 0.0).cpu_scv(), None, "jobs that wait");
        assert_eq!(jobs(100, 0.0, 0.0).cpu_scv(), None, "it is not known");
    }

    #[test]
    fn cpu_time_varies_more_if_few_requests_have_a_job() {
        assert!(is_near(jobs(300, 1.0, 0.0).cpu_scv(), 0.0));
        assert!(is_near(jobs(25, 1.0, 0.0).cpu_scv(), 3.0));
        assert_eq!(jobs(0, 1.0, 0.0).cpu_scv(), None);
    }

    #[test]
    fn of_jobs_that_have_begun_long_before_the_variation_is_not_known() {
        let mut long = jobs(100, 1.0, 0.0);
        long.busy_s /= 3.0;
        assert_eq!(long.scv(), None);
    }
}
