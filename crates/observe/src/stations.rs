//! Where the requests of a server are served, as a model of its capacity sees it.

use loadline_capacity::load_ratio::Station;
use loadline_server::{Architecture, Role, ServerOptions, Snapshot};

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
pub(crate) struct Stations(Vec<Named>);

impl Stations {
    pub(crate) fn of(options: &ServerOptions, cpus: f64) -> Self {
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
        Self(all)
    }

    pub(crate) fn list(&self) -> &[Named] {
        &self.0
    }

    /// How many servers each has now.
    pub(crate) fn servers(&self, now: &Snapshot) -> Vec<f64> {
        let changes = now.workers_useful.is_some();
        let servers = self.0.iter().map(|it| match it.source {
            Source::Threads(role) if changes => now.threads(role).max(1) as f64,
            _ => it.station.servers,
        });
        servers.collect()
    }

    /// As large as they can get, with the measured variation of what workers do.
    pub(crate) fn at_most(&self, workers: Option<usize>, scv: Option<f64>) -> Vec<Station> {
        let stations = self.0.iter().map(|it| {
            let Station {
                servers,
                scv: usual,
            } = it.station;
            match it.source {
                Source::Threads(role) => Station {
                    servers: workers.map_or(servers, |workers| workers as f64),
                    scv: scv.filter(|_| role == Role::Worker).unwrap_or(usual),
                },
                _ => it.station,
            }
        });
        stations.collect()
    }

    /// Server-seconds for which each station was busy.
    pub(crate) fn busy_s(&self, last: &Reading, now: &Reading) -> Vec<f64> {
        let spans = spans(last, now);
        let of_role = |role: Role| spans.iter().filter(move |span| span.role == role);
        let busy_s = self.0.iter().map(|it| match it.source {
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

/// What a thread did between two readings.
struct Span {
    role: Role,
    busy_s: f64,
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
        let served_s = self.busy_s - used.run_delay.as_secs_f64();
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
        let is_same = then.is_some_and(|then| then.usage == thread.usage);
        let used = |reading: &Reading| reading.cpu_uses.get(index).copied().flatten();
        let used = used(now).zip(used(last)).filter(|_| is_same);
        Span {
            role: thread.role,
            busy_s: thread.counts.busy_us.saturating_sub(then_us) as f64 / 1e6,
            used: used.map(|(now, then)| now.since(then)),
        }
    });
    spans.collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_thread_served_as_long_as_it_computed_at_least_and_as_it_was_busy_at_most() {
        let served_s = |busy_s, cpu_ms, run_delay_ms| {
            let used = Some(CpuUse {
                cpu: Duration::from_millis(cpu_ms),
                run_delay: Duration::from_millis(run_delay_ms),
            });
            let role = Role::Worker;
            Span { role, busy_s, used }.served_s()
        };
        assert_eq!(served_s(1.0, 500, 250), 0.75);
        assert_eq!(served_s(1.0, 500, 900), 0.5);
        assert_eq!(served_s(0.25, 500, 900), 0.25);
        assert_eq!(served_s(1.0, 0, 2_000), 0.0);
    }
}
