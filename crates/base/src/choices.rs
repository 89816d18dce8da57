//! What can be chosen about a server by name, and bounds of what is chosen by number.
//!
//! They are here because those who say what a server is to be (a command line, a plan of the
//! laboratory) and those who build it import nothing of each other.

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
/// One of a closed set, each with a name.
pub trait Choice: Copy + Send + Sync + 'static {
    /// Every choice.
    const CHOICES: &'static [Self];

    /// As on the command line.
    fn text(self) -> &'static str;
}

/// Declares a closed set with its names: one list for both.
#[macro_export]
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

        impl $crate::choices::Choice for $name {
            const CHOICES: &'static [Self] = Self::ALL;

            fn text(self) -> &'static str {
                self.name()
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
        /// The one with the least load; connections move to other loops by what they cost.
        Adaptive "adaptive",
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
        /// The loop.
        Loop "loop",
        /// The worker, from reading to writing (P2's reactor).
        Worker "worker",
    }
}

choice! {
    /// Who parses the requests of HTTP/1 that a loop has received.
    Parsing {
        /// The loop; workers have blocking work only.
        Loop "loop",
        /// A worker, who carries the request out and encodes the response, too (what P2 built and called proactor).
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

choice! {
    /// How made-up service time is spent.
    #[derive(Default)]
    ServiceKind {
        /// The thread sleeps, as if it waited for a disk or a database (P1).
        #[default]
        Sleep "sleep",
        /// The thread computes: it uses this much CPU time, however long that takes if others share
        /// its CPU or a quota holds it back.
        Spin "spin",
    }
}

choice! {
    /// The form of a line of the access log.
    AccessFormat {
        /// Apache's common log format.
        Common "common",
        /// Common plus Referer and User-Agent.
        Combined "combined",
        /// One JSON object a line, in UTF-8, under the names of OpenTelemetry's conventions for HTTP.
        Json "json",
    }
}

choice! {
    /// The field by which proxies say who their client is.
    #[derive(Default)]
    ForwardedField {
        /// `X-Forwarded-For`, and `X-Forwarded-Proto` with it.
        #[default]
        XForwardedFor "x-forwarded-for",
        /// `Forwarded` (RFC 7239).
        Forwarded "forwarded",
    }
}

choice! {
    /// Which versions of HTTP are served.
    #[derive(Default)]
    Http2 {
        /// HTTP/2 to clients that ask for it, HTTP/1 to others.
        #[default]
        On "on",
        /// HTTP/1 alone.
        Off "off",
        /// HTTP/2 alone.
        Only "only",
    }
}

choice! {
    /// A page that says whether the server is well.
    Probe {
        /// Does anything respond?
        Health "health",
        /// Are more requests welcome?
        Ready "ready",
    }
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
        for accept in Accept::ALL {
            assert_eq!(Accept::parse(accept.name()), Some(*accept));
        }
        assert_eq!(Balance::parse("best"), None);
    }
}
