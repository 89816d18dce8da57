//! What can be chosen about a server, every default with its reason, and what does not fit together.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// Every choice.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// As on the command line.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }

            /// The choice of this name.
            #[must_use]
            pub fn parse(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|choice| choice.name() == name)
            }
        }
    };
}
choice! {
    /// Which thread carries out each order of a session, and how it waits.
    Architecture {
        /// One blocking thread, one connection at a time (P3's first).
        Sequential "sequential",
        /// A blocking thread for each connection, up to a cap (P5).
        ThreadPerConnection "thread-per-connection",
        /// A fixed number of blocking threads with a bounded queue before them (P3's second).
        ThreadPool "thread-pool",
        /// Edge-triggered epoll: 1..n loops, 0..m workers (P1, P2, P4).
        Reactor "reactor",
        /// io_uring: 1..n loops, 0..m workers (P2, P4).
        Proactor "proactor",
    }
}

impl Architecture {
    /// Whether event loops serve: with loops, workers and all that belongs to them.
    #[must_use]
    pub fn has_loops(self) -> bool {
        matches!(self, Self::Reactor | Self::Proactor)
    }

    /// Whether this machine offers what it is built on.
    ///
    /// # Errors
    /// The kernel, or a sandbox, refuses io_uring to the proactor; says why.
    pub fn check_offered(self) -> Result<(), OptionError> {
        match self {
            Self::Proactor => loadline_sys::ring::available().map_err(|why| OptionError {
                option: "--architecture",
                value: self.name().into(),
                expected: format!("{why}; --architecture reactor does without"),
            }),
            Self::Sequential | Self::ThreadPerConnection | Self::ThreadPool | Self::Reactor => {
                Ok(())
            }
        }
    }
}

choice! {
    /// Whether the loops share a pool of workers.
    WorkerPools {
        /// One pool of M workers for all loops.
        Shared "shared",
        /// Each loop has M workers of its own.
        PerLoop "per-loop",
    }
}

choice! {
    /// How connections reach the loops of a reactor.
    Accept {
        /// A main loop accepts everything and hands over, by `Balance` (P1, P3, P4).
        Handoff "handoff",
        /// The loops share one listener with exclusive wake-ups; a single loop accepts for itself.
        Shared "shared",
        /// A listener for each loop; the kernel spreads connections by hash.
        ReusePort "reuse-port",
    }
}

choice! {
    /// To which loop an accepting main loop hands a connection.
    Balance {
        /// Each in turn.
        RoundRobin "round-robin",
        /// The one with the fewest connections.
        LeastConnections "least-connections",
        /// The one with the least queued and running requests and busy time of the last 100 ms.
        LeastBusy "least-busy",
    }
}

choice! {
    /// How jobs reach the workers of a pool.
    Queue {
        /// One queue under a mutex, with a condition variable (as in the papers).
        Shared "shared",
        /// A lock-free deque for each worker; idle ones steal.
        WorkStealing "work-stealing",
    }
}

choice! {
    /// Who reads and writes the sockets of a reactor with workers.
    SocketIo {
        /// The loop; workers only compute (what P2 built and called proactor).
        Loop "loop",
        /// The worker, from reading to writing (P2's reactor).
        Worker "worker",
    }
}

choice! {
    /// How loops send large files.
    FileIo {
        /// By copies to clients of this machine, which read what they are sent; by `sendfile` to others.
        Auto "auto",
        /// Through a buffer of the loop.
        Copy "copy",
        /// From the page cache, without passing through user memory.
        Sendfile "sendfile",
    }
}

impl FileIo {
    /// Whether it copies for a client with this address; `None`: over a Unix socket.
    pub(crate) fn copies_for(self, peer: Option<SocketAddr>) -> bool {
        match self {
            Self::Auto => peer.is_none_or(|peer| peer.ip().to_canonical().is_loopback()),
            Self::Copy => true,
            Self::Sendfile => false,
        }
    }
}

choice! {
    /// What happens to a new connection of a loop that is at its capacity.
    AtCapacity {
        /// Closed at its first read, without an answer (P4).
        Close "close",
    }
}

/// Everything that can be chosen about a server besides the bounds of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerOptions {
    /// The architecture. The reactor: it alone carries many connections on few threads.
    pub architecture: Architecture,
    /// Loops that serve connections (reactor). 1: more than the CPUs at hand only compete.
    pub loops: usize,
    /// Workers of the pool, or of each pool (reactor). 2: cold files and slow handlers must not
    /// stop a loop, and one slow job must not stop the next.
    pub workers: usize,
    /// Threads of the pool (thread-pool). 256: each idle keep-alive client holds one, and a
    /// waiting thread costs some ten KiB.
    pub threads: usize,
    /// Shared: a pool for all is never idle while a job waits.
    pub worker_pools: WorkerPools,
    /// Shared: no thread more, no hop for a connection, and a loop that is busy does not accept.
    pub accept: Accept,
    /// Round-robin: as the papers. Used with `Accept::Handoff`.
    pub balance: Balance,
    /// Shared: as the papers, and as quick while jobs are longer than some microseconds.
    pub queue: Queue,
    /// Jobs (reactor) or connections (thread-pool) that may wait for a thread. 1024: with 1 ms of
    /// work each and two workers, half a second of waiting.
    pub queue_max: usize,
    /// Loop: a request costs no hand-over unless it blocks.
    pub socket_io: SocketIo,
    /// Auto: a reader on this machine copies faster from memory that was just written, and a network
    /// card takes pages as they are. Threads that serve one connection each use `sendfile`.
    pub file_io: FileIo,
    /// Connections that a loop takes; `None`: no bound but `connections_max`.
    pub capacity_per_loop: Option<usize>,
    /// What a loop at its capacity does.
    pub at_capacity: AtCapacity,
    /// Connections of the whole server (reactor, thread-per-connection). 8192: ten thousand
    /// descriptors with a file for some of them. At the cap the oldest idle one makes room.
    pub connections_max: usize,
    /// Connections that the kernel keeps before they are accepted. 4096: its own bound
    /// (`net.core.somaxconn`) since Linux 5.4; bursts wait rather than time out.
    pub backlog: u32,
    /// Let the kernel complete a connection only when its first bytes came (`TCP_DEFER_ACCEPT`).
    /// Off: a client that sends nothing would be invisible to every limit.
    pub defer_accept: bool,
    /// How long a drain may take before what is left is cut. 10 s: shorter than what service
    /// managers wait before they kill.
    pub grace: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            architecture: Architecture::Reactor,
            loops: 1,
            workers: 2,
            threads: 256,
            worker_pools: WorkerPools::Shared,
            accept: Accept::Shared,
            balance: Balance::RoundRobin,
            queue: Queue::Shared,
            queue_max: 1024,
            socket_io: SocketIo::Loop,
            file_io: FileIo::Auto,
            capacity_per_loop: None,
            at_capacity: AtCapacity::Close,
            connections_max: 8192,
            backlog: 4096,
            defer_accept: false,
            grace: Duration::from_secs(10),
        }
    }
}

/// An option whose value cannot be: names both, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionError {
    /// As on the command line, with its dashes.
    pub option: &'static str,
    /// What was given.
    pub value: String,
    /// What would be right.
    pub expected: String,
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.option, self.value, self.expected)
    }
}

impl std::error::Error for OptionError {}

/// Loops: an epoll instance, a thread and 64 KiB each; no machine has more CPUs for them.
pub const LOOPS_MAX: usize = 1024;
/// Threads of any kind in one server: below the usual limit of 32768 process ids.
pub const THREADS_MAX: usize = 16_384;
/// Waiting jobs: no client waits for a million others.
pub const QUEUE_MAX: usize = 1 << 20;
/// Connections: what a process can have descriptors for at most, by the kernel's default.
pub const CONNECTIONS_MAX: usize = 1 << 20;
/// Backlog: the kernel keeps it in 32 bits but bounds it by `net.core.somaxconn`.
pub const BACKLOG_MAX: u32 = 1 << 20;
/// A drain of more than a day is a mistake in the unit.
const GRACE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Descriptors beside connections: standard streams, logs, the root, eventfds, cached files.
pub const DESCRIPTORS_RESERVED: usize = 64;

impl ServerOptions {
    /// Whether the options fit together; otherwise the first that does not, and why.
    ///
    /// # Errors
    /// Names option and value, and what would be right.
    pub fn validate(&self) -> Result<(), OptionError> {
        within("--loops", self.loops, 1, LOOPS_MAX)?;
        within("--workers", self.workers, 0, THREADS_MAX)?;
        within("--threads", self.threads, 1, THREADS_MAX)?;
        within("--queue-max", self.queue_max, 1, QUEUE_MAX)?;
        within(
            "--connections-max",
            self.connections_max,
            1,
            CONNECTIONS_MAX,
        )?;
        within("--backlog", self.backlog, 1, BACKLOG_MAX)?;
        if let Some(capacity) = self.capacity_per_loop {
            within("--capacity-per-loop", capacity, 1, CONNECTIONS_MAX)?;
        }
        if self.grace > GRACE_MAX {
            return Err(OptionError {
                option: "--grace",
                value: format!("{}s", self.grace.as_secs()),
                expected: "at most a day, 86400s".into(),
            });
        }
        if !self.architecture.has_loops() {
            return Ok(());
        }
        if self.worker_pools == WorkerPools::PerLoop && self.loops * self.workers > THREADS_MAX {
            return Err(OptionError {
                option: "--workers",
                value: self.workers.to_string(),
                expected: format!(
                    "with --worker-pools per-loop and --loops {} at most {}",
                    self.loops,
                    THREADS_MAX / self.loops
                ),
            });
        }
        if self.socket_io == SocketIo::Worker && self.architecture == Architecture::Proactor {
            return Err(OptionError {
                option: "--socket-io",
                value: "worker".into(),
                expected:
                    "the kernel reads and writes for a proactor; give --architecture reactor, \
                           or leave it out"
                        .into(),
            });
        }
        if self.socket_io == SocketIo::Worker && self.workers == 0 {
            return Err(OptionError {
                option: "--socket-io",
                value: "worker".into(),
                expected: "there are no workers; give --workers 1 or more, or --socket-io loop"
                    .into(),
            });
        }
        Ok(())
    }

    /// Whether the connections fit into a limit of `descriptors_max` open files, of which a file cache
    /// has `cached_files`.
    ///
    /// # Errors
    /// Names the option that asks for too many, and how many would fit.
    pub fn validate_descriptors(
        &self,
        descriptors_max: usize,
        cached_files: usize,
    ) -> Result<(), OptionError> {
        let (option, wanted) = match self.architecture {
            Architecture::Sequential => return Ok(()),
            Architecture::ThreadPool => ("--threads", self.threads + self.queue_max),
            Architecture::ThreadPerConnection => ("--connections-max", self.connections_max),
            Architecture::Reactor | Architecture::Proactor => (
                "--connections-max",
                self.connections_max.saturating_add(4 * self.loops),
            ),
        };
        let room = descriptors_max.saturating_sub(cached_files + DESCRIPTORS_RESERVED);
        if wanted <= room {
            return Ok(());
        }
        let (value, overhead) = match self.architecture {
            Architecture::ThreadPool => (self.threads, self.queue_max),
            _ => (self.connections_max, wanted - self.connections_max),
        };
        let files = match cached_files {
            0 => String::new(),
            files => format!(" less {files} for the file cache"),
        };
        Err(OptionError {
            option,
            value: value.to_string(),
            expected: format!(
                "the limit of {descriptors_max} open files{files} leaves room for {}; \
                 raise it (ulimit -n) or ask for less",
                room.saturating_sub(overhead)
            ),
        })
    }
}

fn within<N: PartialOrd + fmt::Display>(
    option: &'static str,
    value: N,
    least: N,
    most: N,
) -> Result<(), OptionError> {
    if value >= least && value <= most {
        return Ok(());
    }
    Err(OptionError {
        option,
        value: value.to_string(),
        expected: format!("give a number from {least} to {most}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_back() {
        for architecture in Architecture::ALL {
            assert_eq!(
                Architecture::parse(architecture.name()),
                Some(*architecture)
            );
        }
        assert_eq!(Architecture::parse("actor"), None);
    }

    #[test]
    fn files_are_copied_to_this_machine_and_lent_to_others() {
        let address = |text: &str| Some(SocketAddr::new(text.parse().unwrap(), 80));
        for here in [
            None,
            address("127.0.0.9"),
            address("::1"),
            address("::ffff:127.0.0.1"),
        ] {
            assert!(FileIo::Auto.copies_for(here), "{here:?}");
            assert!(!FileIo::Sendfile.copies_for(here), "{here:?}");
        }
        for there in [address("192.0.2.1"), address("2001:db8::1")] {
            assert!(!FileIo::Auto.copies_for(there), "{there:?}");
            assert!(FileIo::Copy.copies_for(there), "{there:?}");
        }
    }

    #[test]
    fn the_defaults_fit() {
        let options = ServerOptions::default();
        assert_eq!(options.validate(), Ok(()));
        assert_eq!(options.validate_descriptors(20_000, 0), Ok(()));
    }

    #[test]
    fn an_error_names_option_value_and_what_would_be_right() {
        let options = ServerOptions {
            loops: 0,
            ..ServerOptions::default()
        };
        let error = options.validate().unwrap_err();
        assert_eq!(error.to_string(), "--loops 0: give a number from 1 to 1024");
    }

    #[test]
    fn what_contradicts_is_refused() {
        let good = ServerOptions::default();
        let bad = [
            ServerOptions {
                socket_io: SocketIo::Worker,
                workers: 0,
                ..good
            },
            ServerOptions {
                worker_pools: WorkerPools::PerLoop,
                loops: 1000,
                workers: 1000,
                ..good
            },
            ServerOptions { threads: 0, ..good },
            ServerOptions {
                queue_max: 0,
                ..good
            },
            ServerOptions {
                connections_max: 0,
                ..good
            },
            ServerOptions { backlog: 0, ..good },
            ServerOptions {
                capacity_per_loop: Some(0),
                ..good
            },
            ServerOptions {
                grace: Duration::from_secs(86_401),
                ..good
            },
        ];
        let options: Vec<_> = bad.map(|bad| bad.validate().unwrap_err().option).into();
        let named = [
            "--socket-io",
            "--workers",
            "--threads",
            "--queue-max",
            "--connections-max",
            "--backlog",
            "--capacity-per-loop",
            "--grace",
        ];
        assert_eq!(options, named);
        let fifty = ServerOptions {
            worker_pools: WorkerPools::PerLoop,
            loops: 50,
            workers: 50,
            ..good
        };
        assert_eq!(fifty.validate(), Ok(()));
    }

    #[test]
    fn too_many_for_the_descriptor_limit() {
        let options = ServerOptions::default();
        let error = options.validate_descriptors(1024, 0).unwrap_err();
        assert_eq!(
            (error.option, error.value.as_str()),
            ("--connections-max", "8192")
        );
        assert!(
            error.expected.contains("room for 956"),
            "{}",
            error.expected
        );
    }

    #[test]
    fn names_parse_back() {
        for accept in Accept::ALL {
            assert_eq!(Accept::parse(accept.name()), Some(*accept));
        }
        assert_eq!(Balance::parse("best"), None);
    }
}
