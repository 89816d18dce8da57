//! Where the requests of a server are served, as a model of its capacity sees it.

use loadline_capacity::load_ratio::Station;
use loadline_server::{Architecture, Role, ServerOptions};

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
            // A pool that grows is as large as it may be before its workers are what limits the server.
            let workers = options
                .workers_range
                .map_or(options.workers, |range| range.max);
            let workers = workers * options.pools();
            let source = Source::Threads(Role::Worker);
            all.push(named("workers", workers as f64, source));
        }
        all.push(named("cpus", cpus, Source::Cpu));
        Self(all)
    }

    pub(crate) fn list(&self) -> &[Named] {
        &self.0
    }

    /// Threads that there are now at each station.
    pub(crate) fn servers(&self, now: &Reading) -> Vec<f64> {
        let servers = self.0.iter().map(|it| match it.source {
            Source::Threads(Role::Worker) => now.snapshot.threads(Role::Worker).max(1) as f64,
            _ => it.station.servers,
        });
        servers.collect()
    }

    /// The same with the measured variation of what workers do.
    pub(crate) fn with_variation(&self, scv: Option<f64>) -> Vec<Station> {
        let stations = self.0.iter().map(|it| match it.source {
            Source::Threads(Role::Worker) => Station {
                scv: scv.unwrap_or(it.station.scv),
                ..it.station
            },
            _ => it.station,
        });
        stations.collect()
    }

    /// Server-seconds for which each station was busy.
    pub(crate) fn busy_s(&self, last: &Reading, now: &Reading) -> Vec<f64> {
        // Rows keep their place; new ones come behind.
        let earlier = last.snapshot.rows.iter().map(|row| row.counts.busy_us);
        let earlier = earlier.chain(std::iter::repeat(0));
        let rows = now.snapshot.rows.iter().zip(earlier);
        let spans: Vec<(Role, u64)> = rows
            .map(|(row, then)| (row.role, row.counts.busy_us.saturating_sub(then)))
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
