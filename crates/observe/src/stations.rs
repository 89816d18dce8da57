//! Where the requests of a server are served, as a model of its capacity sees it.

use loadline_capacity::load_ratio::Station;
use loadline_server::{Architecture, Role, ServerOptions, Snapshot};

use crate::reading::Reading;

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
        // Threads keep their place; new ones come behind.
        let earlier = last.snapshot.per_thread.iter();
        let earlier = earlier.map(|thread| thread.counts.busy_us);
        let earlier = earlier.chain(std::iter::repeat(0));
        let threads = now.snapshot.per_thread.iter().zip(earlier);
        let spans: Vec<(Role, u64)> = threads
            .map(|(thread, then)| (thread.role, thread.counts.busy_us.saturating_sub(then)))
            .collect();
        let busy_us = |role: Role| {
            let of_role = spans.iter().filter(move |(of, _)| *of == role);
            of_role.map(|(_, us)| *us)
        };
        let busy_s = self.0.iter().map(|it| match it.source {
            Source::BusiestLoop => busy_us(Role::Loop).max().unwrap_or(0) as f64 / 1e6,
            Source::Threads(role) => busy_us(role).sum::<u64>() as f64 / 1e6,
            Source::Cpu => now.cpu.saturating_sub(last.cpu).as_secs_f64(),
        });
        busy_s.collect()
    }
}
