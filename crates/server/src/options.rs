//! What can be chosen about a server, every default with its reason, and what does not fit together.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

pub use loadline_base::choices::{
    Accept, Architecture, BACKLOG_MAX, Balance, CONNECTIONS_MAX, FileIo, LOOPS_MAX, Parsing,
    QUEUE_MAX, Queue, SocketIo, THREADS_MAX, WorkerPools,
};

/// Whether this machine offers what an architecture is built on.
///
/// # Errors
/// The kernel, or a sandbox, refuses io_uring to the proactor; says why.
pub fn check_offered(architecture: Architecture) -> Result<(), OptionError> {
    match architecture {
        Architecture::Proactor => loadline_sys::ring::available().map_err(|why| {
            let expected = format!("{why}; --architecture reactor does without");
            OptionError::new("--architecture", architecture.name(), expected)
        }),
        Architecture::Sequential
        | Architecture::ThreadPerConnection
        | Architecture::ThreadPool
        | Architecture::Reactor => Ok(()),
    }
}

/// Whether files are copied for a client with this address; `None`: over a Unix socket.
pub(crate) fn copies_for(how: FileIo, peer: Option<SocketAddr>) -> bool {
    match how {
        FileIo::Auto => peer.is_none_or(|peer| peer.ip().to_canonical().is_loopback()),
        FileIo::Copy => true,
        FileIo::Sendfile => false,
    }
}

/// Everything that can be chosen about a server besides the bounds of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerOptions {
    /// The architecture. The reactor: it alone carries many connections on few threads.
    pub architecture: Architecture,
    /// Loops that serve connections (reactor). 1: more than the CPUs at hand only compete.
    pub loops: usize,
    /// Workers of the pool, or of each pool (reactor). 2: slow handlers, and files that are
    /// not in the page cache, must not stop a loop, and one slow job must not stop the next.
    pub workers: usize,
    /// Between which the number of workers changes while the server runs; it begins with `workers`.
    /// `None`: it stays, as in the papers.
    pub workers_range: Option<SizeRange>,
    /// How often it is decided whether a number of threads changes. 100 ms: what the rules were tested
    /// with. With another interval all their times are longer or shorter.
    pub sizing_interval: Duration,
    /// Threads of the pool (thread-pool). 256: each idle keep-alive client holds one, and a
    /// waiting thread costs some ten KiB.
    pub threads: usize,
    /// Between which the number of threads changes (thread-pool with a latency goal); it begins with
    /// `threads`. `None`: it stays, as in the papers.
    pub threads_range: Option<SizeRange>,
    /// Shared: a pool for all is never idle while a job waits.
    pub worker_pools: WorkerPools,
    /// Shared: no thread more, no hop for a connection, and a loop that is busy does not accept.
    pub accept: Accept,
    /// Round-robin: as the papers. Used with `Accept::Handoff`.
    pub balance: Balance,
    /// Shared: as the papers, and as quick while jobs are longer than some microseconds.
    pub queue: Queue,
    /// Jobs (reactor) or connections (thread-pool) that may wait for a thread; with `Queue::WorkStealing`
    /// so many of files, of apps and of handshakes. 8192: one for each connection; the goal bounds how
    /// long they wait.
    pub queue_max: usize,
    /// Loop: a request costs no hand-over unless it blocks.
    pub socket_io: SocketIo,
    /// Loop: likewise. Of HTTP/1 in plain text; all else a loop parses in any case.
    pub parse: Parsing,
    /// Auto: a reader on this machine copies faster from memory that was just written, and a network
    /// card takes pages as they are. Threads that serve one connection each use `sendfile`.
    pub file_io: FileIo,
    /// What those are promised whose requests are accepted: a response within this time, as far as
    /// the server can know. What cannot be done by then is refused with 503. `None`: nothing is
    /// refused for its time. 1 s: what people wait for without losing the thread (Nielsen, "Response
    /// Times", 1993).
    pub latency_goal: Option<Duration>,
    /// Where something runs short, the client that holds most gives up first, and files and apps have
    /// the workers in turn. On: one client with many connections would have all there is. Off: no connection is
    /// closed for a new one, either.
    pub fairness: bool,
    /// Connections that a loop takes (P4): it closes further ones at their first read, without a
    /// response. `None`: no bound but `connections_max`.
    pub capacity_per_loop: Option<usize>,
    /// Connections of the whole server (reactor, thread-per-connection). 8192: ten thousand
    /// descriptors with a file for some of them. At the cap the oldest idle one makes room.
    pub connections_max: usize,
    /// Connections that the kernel keeps before they are accepted. 4096: its own bound
    /// (`net.core.somaxconn`) since Linux 5.4; bursts wait rather than time out.
    pub backlog: u32,
    /// What the kernel may keep for a connection in either direction, sent and not taken or received and
    /// not read. `None`: as much as the kernel finds good, which lets a window grow with the distance.
    pub socket_buffer_bytes: Option<usize>,
    /// Let the kernel complete a connection only when its first bytes came, or after some seconds
    /// (`TCP_DEFER_ACCEPT`). On: a new connection with a request costs 0.42 to 0.84 of the CPU time on
    /// some days and as much as before on others (decision 36), and one without takes nothing of the
    /// server meanwhile.
    pub defer_accept: bool,
    /// How long a drain may take before what is left is cut. 10 s: shorter than what service
    /// managers wait before they kill.
    pub grace: Duration,
}

/// Bounds of a number of threads; both belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeRange {
    /// The fewest, 1 or more.
    pub min: usize,
    /// The most.
    pub max: usize,
}

impl SizeRange {
    /// A number brought within the bounds.
    #[must_use]
    pub fn clamp(self, size: usize) -> usize {
        size.min(self.max).max(self.min)
    }
}

impl fmt::Display for SizeRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.min, self.max)
    }
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            architecture: Architecture::Reactor,
            loops: 1,
            workers: 2,
            workers_range: None,
            sizing_interval: Duration::from_millis(100),
            threads: 256,
            threads_range: None,
            worker_pools: WorkerPools::Shared,
            accept: Accept::Shared,
            balance: Balance::RoundRobin,
            queue: Queue::Shared,
            queue_max: 8192,
            socket_io: SocketIo::Loop,
            parse: Parsing::Loop,
            file_io: FileIo::Auto,
            latency_goal: Some(Duration::from_secs(1)),
            fairness: true,
            capacity_per_loop: None,
            connections_max: 8192,
            backlog: 4096,
            socket_buffer_bytes: None,
            defer_accept: true,
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

impl OptionError {
    fn new(option: &'static str, value: impl Into<String>, expected: impl Into<String>) -> Self {
        Self {
            option,
            value: value.into(),
            expected: expected.into(),
        }
    }
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.option, self.value, self.expected)
    }
}

impl std::error::Error for OptionError {}

/// Below it, what the server itself and the kernel take decides.
const LATENCY_GOAL_MIN: Duration = Duration::from_millis(1);

/// A drain of more than a day is a mistake in the unit.
const GRACE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Descriptors beside connections: standard streams, logs, the root, eventfds, cached files.
pub const DESCRIPTORS_RESERVED: usize = 64;

impl ServerOptions {
    /// Whether blocking steps run on event loops, since there are no workers.
    #[must_use]
    pub fn blocks_on_loops(&self) -> bool {
        self.architecture.has_loops() && self.workers == 0
    }

    /// Whether workers parse requests and carry them out.
    #[must_use]
    pub fn workers_parse(&self) -> bool {
        self.socket_io == SocketIo::Worker || self.parse == Parsing::Worker
    }

    /// Whether the options fit together; otherwise the first that does not, and why.
    ///
    /// # Errors
    /// Names option and value, and what would be right.
    pub fn validate(&self) -> Result<(), OptionError> {
        within("--loops", self.loops, 1, LOOPS_MAX)?;
        within_range("--workers", self.workers, 0, self.workers_range)?;
        within_range("--threads", self.threads, 1, self.threads_range)?;
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
            let value = format!("{}s", self.grace.as_secs());
            return Err(OptionError::new("--grace", value, "at most a day, 86400s"));
        }
        if let Some(goal) = self.latency_goal.filter(|goal| *goal < LATENCY_GOAL_MIN) {
            let (value, expected) = (format!("{goal:?}"), "at least 1ms, or off");
            return Err(OptionError::new("--latency-goal", value, expected));
        }
        match self.architecture.has_loops() {
            true => self.validate_workers(),
            false => Ok(()),
        }
    }

    /// The same for what loops give to workers.
    fn validate_workers(&self) -> Result<(), OptionError> {
        let workers_max = self.workers_range.map_or(self.workers, |range| range.max);
        if self.worker_pools == WorkerPools::PerLoop && self.loops * workers_max > THREADS_MAX {
            let (loops, most) = (self.loops, THREADS_MAX / self.loops);
            let expected =
                format!("with --worker-pools per-loop and --loops {loops} at most {most}");
            return Err(OptionError::new(
                "--workers",
                workers_max.to_string(),
                expected,
            ));
        }
        if self.socket_io == SocketIo::Worker && self.architecture == Architecture::Proactor {
            let expected = "the kernel reads and writes for a proactor; give --architecture reactor, \
                            or leave it out";
            return Err(OptionError::new("--socket-io", "worker", expected));
        }
        if self.socket_io == SocketIo::Worker && self.workers == 0 {
            let expected = "there are no workers; give --workers 1 or more, or --socket-io loop";
            return Err(OptionError::new("--socket-io", "worker", expected));
        }
        if self.parse == Parsing::Worker && self.workers == 0 {
            let expected = "there are no workers; give --workers 1 or more, or --parse loop";
            return Err(OptionError::new("--parse", "worker", expected));
        }
        if self.parse == Parsing::Worker && self.socket_io == SocketIo::Worker {
            let expected = "workers that read and write parse in any case; give --socket-io loop, \
                            or leave --parse out";
            return Err(OptionError::new("--parse", "worker", expected));
        }
        Ok(())
    }

    /// Bounds of the number of workers, or of the threads of a pool that share, if it changes.
    #[must_use]
    pub fn changing_sizes(&self) -> Option<SizeRange> {
        match self.architecture {
            Architecture::Reactor | Architecture::Proactor => self.workers_range,
            Architecture::ThreadPool if self.threads_share() => self.threads_range,
            _ => None,
        }
    }

    /// The most threads of a pool.
    pub(crate) fn threads_max(&self) -> usize {
        let range = self.threads_range.filter(|_| self.threads_share());
        range.map_or(self.threads, |range| range.max)
    }

    /// Whether the threads of a pool give up connections for others: not without a latency goal.
    pub(crate) fn threads_share(&self) -> bool {
        self.architecture == Architecture::ThreadPool && self.latency_goal.is_some()
    }

    /// The same with what a pool of threads that share is made of: a loop, and workers that serve whole
    /// connections.
    pub(crate) fn with_parts(self) -> Self {
        if !self.threads_share() {
            return self;
        }
        Self {
            loops: 1,
            workers: self.threads,
            workers_range: self.threads_range,
            worker_pools: WorkerPools::Shared,
            accept: Accept::Shared,
            queue: Queue::Shared,
            socket_io: SocketIo::Worker,
            parse: Parsing::Loop,
            file_io: FileIo::Sendfile, // no buffer for each of many threads
            capacity_per_loop: None,
            ..self
        }
    }

    /// How many pools of workers there are.
    #[must_use]
    pub fn pools(&self) -> usize {
        match self.worker_pools {
            WorkerPools::Shared => 1,
            WorkerPools::PerLoop => self.loops,
        }
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
            // A waker for each thread.
            Architecture::ThreadPool if self.threads_share() => (
                "--connections-max",
                self.connections_max.saturating_add(self.threads_max() + 4),
            ),
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
            Architecture::ThreadPool if !self.threads_share() => (self.threads, self.queue_max),
            _ => (self.connections_max, wanted - self.connections_max),
        };
        let files = match cached_files {
            0 => String::new(),
            files => format!(" less {files} for the file cache"),
        };
        let expected = format!(
            "the limit of {descriptors_max} open files{files} leaves room for {}; \
             raise it (ulimit -n) or ask for less",
            room.saturating_sub(overhead)
        );
        Err(OptionError::new(option, value.to_string(), expected))
    }
}

/// Whether a number of threads is right, which stays or changes within a range.
fn within_range(
    option: &'static str,
    value: usize,
    least: usize,
    range: Option<SizeRange>,
) -> Result<(), OptionError> {
    let Some(range) = range else {
        return within(option, value, least, THREADS_MAX);
    };
    within(option, range.min, 1, THREADS_MAX)?;
    within(option, range.max, range.min, THREADS_MAX)?;
    within(option, value, range.min, range.max)
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
    let expected = format!("give a number from {least} to {most}");
    Err(OptionError::new(option, value.to_string(), expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_copied_to_this_machine_and_lent_to_others() {
        let address = |text: &str| Some(SocketAddr::new(text.parse().unwrap(), 80));
        for here in [
            None,
            address("127.0.0.9"),
            address("::1"),
            address("::ffff:127.0.0.1"),
        ] {
            assert!(copies_for(FileIo::Auto, here), "{here:?}");
            assert!(!copies_for(FileIo::Sendfile, here), "{here:?}");
        }
        for there in [address("192.0.2.1"), address("2001:db8::1")] {
            assert!(!copies_for(FileIo::Auto, there), "{there:?}");
            assert!(copies_for(FileIo::Copy, there), "{there:?}");
        }
    }

    #[test]
    fn threads_of_a_pool_have_no_buffers_for_files() {
        let options = ServerOptions {
            architecture: Architecture::ThreadPool,
            ..ServerOptions::default()
        };
        assert!(options.threads_share());
        assert_eq!(options.with_parts().file_io, FileIo::Sendfile);
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
        type Change = fn(&mut ServerOptions);
        let bad: [(&str, Change); 12] = [
            ("--socket-io", |it| {
                (it.socket_io, it.workers) = (SocketIo::Worker, 0)
            }),
            ("--parse", |it| {
                (it.parse, it.workers) = (Parsing::Worker, 0)
            }),
            ("--parse", |it| {
                (it.parse, it.socket_io) = (Parsing::Worker, SocketIo::Worker)
            }),
            ("--workers", |it| {
                it.worker_pools = WorkerPools::PerLoop;
                (it.loops, it.workers) = (1000, 1000);
            }),
            ("--workers", |it| {
                it.workers_range = Some(SizeRange { min: 3, max: 9 })
            }),
            ("--workers", |it| {
                it.workers_range = Some(SizeRange { min: 0, max: 9 })
            }),
            ("--threads", |it| it.threads = 0),
            ("--queue-max", |it| it.queue_max = 0),
            ("--connections-max", |it| it.connections_max = 0),
            ("--backlog", |it| it.backlog = 0),
            ("--capacity-per-loop", |it| it.capacity_per_loop = Some(0)),
            ("--grace", |it| it.grace = Duration::from_secs(86_401)),
        ];
        for (option, change) in bad {
            let mut options = ServerOptions::default();
            change(&mut options);
            assert_eq!(options.validate().unwrap_err().option, option);
        }
        let fifty = ServerOptions {
            worker_pools: WorkerPools::PerLoop,
            loops: 50,
            workers: 50,
            ..ServerOptions::default()
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
}
