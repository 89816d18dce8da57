//! Everything a run is, decided before it begins.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use loadline_proto::Connector;

use crate::http2::Http2Plan;
use crate::{Arrivals, Mix, Overflow, Phase, Prepared, Schedule};

/// When the clients send.
#[derive(Clone, Debug, PartialEq)]
pub enum Loop {
    /// Each client sends when its last answer has come (and `think_ns` has passed).
    Closed {
        /// Time between an answer and the next request.
        think_ns: u64,
        /// Whether a thread may let a few answers come before it looks, where they come thick:
        /// cheaper, and up to 50 us or a hundredth of an answer's time late.
        coalesces: bool,
    },
    /// Requests are due by the clock, whatever the server does.
    Open {
        /// The rate over time.
        schedule: Schedule,
        /// How arrivals are spread around it.
        arrivals: Arrivals,
        /// What happens to a request that is due while no connection is free.
        overflow: Overflow,
    },
    /// Requests are due when a log says so: nanoseconds from the start, in order, one for each
    /// line of the mix's sequence.
    Timed {
        /// Due times.
        due_ns: Arc<[u64]>,
        /// What happens to a request that is due while no connection is free.
        overflow: Overflow,
    },
}

/// Whether and when an open loop tries failed requests again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// Attempts after the first, at most.
    pub count: u8,
    /// Pause before the first of them; it doubles, and half of it is drawn at random.
    pub pause_ns: u64,
    /// The longest pause that a `Retry-After` can ask for.
    pub retry_after_ns_max: u64,
}

/// A run: the same for all threads and processes; each takes its share.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where requests go; at least one.
    pub servers: Vec<SocketAddr>,
    /// By server: what makes the layer of its connections; `None`, or missing: they have none.
    pub connectors: Vec<Option<Arc<dyn Connector>>>,
    /// What HTTP/2 needs; `None`: connections speak HTTP/1.
    pub http2: Option<Http2Plan>,
    /// What is sent.
    pub mix: Mix,
    /// When.
    pub load: Loop,
    /// Intervals with results of their own; they follow each other, the first begins at 0.
    pub phases: Vec<Phase>,
    /// Of the plain clients: the bound of requests in flight, as many over each as there are streams.
    pub connections: u32,
    /// Requests in all, after which the run ends; `None`: the end of the last phase ends it.
    pub requests_max: Option<u64>,
    /// Requests after which a connection is closed by the client; 1: a new connection for each.
    pub requests_per_connection: Option<u32>,
    /// Time from sent to the last byte after which a request has failed, and time to connect.
    pub timeout_ns: u64,
    /// Whether a connection is then closed in good order, and not reset. Over HTTP/1 alone.
    pub closes_on_timeout: bool,
    /// Time from due to the last byte beyond which an answer is not good.
    pub deadline_ns: Option<u64>,
    /// Time from when an attempt was due to the last byte within which a good answer meets the goal.
    pub latency_goal_ns: Option<u64>,
    /// Whether each connection has a schedule of its own, an equal part of the whole: what is due on one
    /// waits for it alone, and nothing is dropped or tried again. Of `Loop::Open` over HTTP/1 alone.
    pub own_schedules: bool,
    /// `None`: each request has one attempt. Of an open loop alone.
    pub retries: Option<Retries>,
    /// Of how many answers the content is checked: every n-th.
    pub content_sample: u32,
    /// Whether the threads of the plain clients look for answers and for what is due without ever
    /// sleeping: each takes a whole CPU, and none has to be woken.
    pub spins: bool,
    /// Addresses that connections come from, in turn; empty: the kernel's choice.
    pub sources: Vec<IpAddr>,
    /// Groups of clients that are reported apart, by their names in results; group 0 is the plain
    /// clients, the others are of clients with behaviour.
    pub groups: Vec<String>,
    /// Repeats every choice made at random.
    pub seed: u64,
}

impl Plan {
    /// The plainest run: one request over and over, to one server, over one connection, in a closed
    /// loop without time to think, until the phases end. Timeout of 10 s; every content is checked.
    #[must_use]
    pub fn new(server: SocketAddr, request: Prepared, phases: Vec<Phase>) -> Self {
        Self {
            servers: vec![server],
            connectors: Vec::new(),
            http2: None,
            mix: Mix::of(request),
            load: Loop::Closed {
                think_ns: 0,
                coalesces: true,
            },
            phases,
            connections: 1,
            requests_max: None,
            requests_per_connection: None,
            timeout_ns: 10_000_000_000,
            closes_on_timeout: false,
            deadline_ns: None,
            latency_goal_ns: None,
            own_schedules: false,
            retries: None,
            content_sample: 1,
            spins: false,
            sources: Vec::new(),
            groups: Vec::new(),
            seed: 1,
        }
    }

    /// From the start to the end of the last phase.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.phases.last().map_or(0, |phase| phase.end_ns)
    }

    /// The phase at `at_ns` from the start; the last one for whatever comes after.
    #[must_use]
    pub fn phase_at(&self, at_ns: u64) -> u16 {
        let index = self.phases.partition_point(|phase| phase.end_ns <= at_ns);
        u16::try_from(index.min(self.phases.len().saturating_sub(1))).unwrap_or(u16::MAX)
    }
}
