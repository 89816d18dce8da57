//! What becomes of new work by how much there is already: a connection, a job for the workers, an app's
//! task. Whether there is time for it is decided in `overload`, before.

use loadline_proto::CloseReason;
use loadline_sys::Accepted;

use crate::fairness::{ClientKey, Share};
use crate::telemetry::counters::ThreadStats;

/// Connections that are answered with 503 at the same time, beside those that the cap counts. Each
/// needs a descriptor (or a thread) until its client has read the answer.
pub(crate) const REFUSALS_MAX: usize = 64;

/// Connections over the cap that wait until another one was closed for each of them. That may take some
/// turns, and until then all of them see the same one; a thread that is busy with it ends it later.
/// As many more may wait until the client with most connections has made room: they are others'.
pub(crate) const EVICTIONS_MAX: usize = 64;

/// Turns of loops, one after the other, in which an idle connection is looked for in place of one over the
/// cap; then it is refused. One with unread input is no longer idle a turn later. With io_uring, unread
/// completions of others can hide for some turns which connections are idle.
pub(crate) const EVICTION_TRIES_MAX: u32 = 32;

/// New work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A connection that was just accepted.
    Connection,
    /// A connection in the kernel's backlog, before threads with a queue of their own.
    Backlog,
    /// The blocking step of a request.
    Job,
    /// A range of a file to be read for an answer that has begun.
    Prefetch,
    /// An app's task.
    Task,
}

/// What there is besides the new work.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// Connections that count towards the cap.
    pub(crate) connections: usize,
    /// Those that are being refused.
    pub(crate) refusals: usize,
    /// An idle one could be closed.
    pub(crate) has_idle: bool,
    /// Who would make room.
    pub(crate) share: Share,
    /// The new connection holds the last descriptor.
    pub(crate) is_last_descriptor: bool,
    /// There is no memory for another connection.
    pub(crate) is_memory_full: bool,
    /// The server is going down: what has connected by now is still served.
    pub(crate) is_draining: bool,
    /// Workers; 0: what may block runs on the thread that asks.
    pub(crate) workers: usize,
    /// Their queue has no room.
    pub(crate) is_queue_full: bool,
}

/// What becomes of new work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is served, here and now.
    Admit,
    /// It is served when its turn comes.
    Queue,
    /// It is served once the oldest idle connection is closed.
    EvictIdle,
    /// It is served once a connection of this client is closed: an idle one, or any.
    EvictOf { client: ClientKey, only_idle: bool },
    /// It is answered with 503.
    Refuse,
    /// A connection is closed, with 503 only if that takes no waiting.
    Drop,
}

/// A connection on its way to the loop that will serve it.
#[derive(Debug)]
pub(crate) struct Handoff {
    pub(crate) accepted: Accepted,
    pub(crate) verdict: Verdict,
    /// Whose it is.
    pub(crate) client: ClientKey,
    /// Turns in which no idle connection could be closed for it.
    pub(crate) tries: u32,
    /// Another thread has sent it: its request came after this or shortly before, in microseconds of the server's
    /// clock, and may have waited since, in the backlog or on its way. 0: it may have waited for any time before.
    pub(crate) came_after_us: Option<u64>,
    /// There was no memory for it.
    pub(crate) is_memory_full: bool,
}

impl Handoff {
    /// Why it is closed, if it is refused.
    pub(crate) fn refused_for(&self) -> CloseReason {
        refused_for(self.is_memory_full)
    }
}

/// Why a refused connection is closed.
pub(crate) fn refused_for(is_memory_full: bool) -> CloseReason {
    match is_memory_full {
        true => CloseReason::RefusedMemory,
        false => CloseReason::Refused,
    }
}

/// Requests are answered with 503.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusing {
    /// When their clients are to come back, in seconds.
    pub(crate) retry_after_s: u32,
    /// Since a queue has no room; otherwise they come too late.
    pub(crate) is_queue_full: bool,
    /// They had a place in it, and have made room for another client's.
    pub(crate) is_over_share: bool,
}

impl Refusing {
    pub(crate) fn late(retry_after_s: u32) -> Self {
        Self {
            retry_after_s,
            is_queue_full: false,
            is_over_share: false,
        }
    }

    pub(crate) fn queue_full(retry_after_s: u32) -> Self {
        Self {
            is_queue_full: true,
            ..Self::late(retry_after_s)
        }
    }

    /// A request is refused, or the handshake before it.
    pub(crate) fn count(self, stats: &ThreadStats) {
        match self.is_queue_full {
            true => stats.queue_full.add(1),
            false => stats.refused_late.add(1),
        }
        if self.is_over_share {
            stats.queue_full_over_share.add(1);
            stats.refused_over_share.add(1);
        }
    }
}

/// The bounds of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission {
    connections_max: usize,
}

impl Admission {
    pub(crate) fn new(connections_max: usize) -> Self {
        Self { connections_max }
    }

    /// Whether there are more connections than there should be, until others are closed for some of them.
    pub(crate) fn is_over_cap(self, connections: usize) -> bool {
        connections > self.connections_max
    }

    /// What becomes of new work under this load.
    pub(crate) fn decide(self, kind: Kind, load: &Load) -> Verdict {
        match kind {
            Kind::Connection => self.connection(load),
            Kind::Backlog => match load.is_queue_full {
                true => Verdict::Queue,
                false => Verdict::Admit,
            },
            Kind::Job | Kind::Prefetch | Kind::Task if load.workers == 0 => Verdict::Admit,
            _ if !load.is_queue_full => Verdict::Queue,
            // Its answer has begun: there is nothing to refuse it with.
            Kind::Prefetch => Verdict::Admit,
            Kind::Job | Kind::Task => Verdict::Refuse,
        }
    }

    fn connection(self, load: &Load) -> Verdict {
        if load.is_draining {
            return Verdict::Admit;
        }
        if load.is_memory_full {
            return Self::refusal(load.refusals);
        }
        if load.connections < self.connections_max && !load.is_last_descriptor {
            return Verdict::Admit;
        }
        let evictions_max = match load.share {
            Share::Other(_) => 2 * EVICTIONS_MAX,
            Share::Own(_) | Share::Even => EVICTIONS_MAX,
        };
        let most = self.connections_max.saturating_add(evictions_max);
        let refusal = Self::refusal(load.refusals);
        if load.connections >= most && !load.is_last_descriptor {
            return refusal;
        }
        match load.share {
            Share::Other(client) => Verdict::EvictOf {
                client,
                only_idle: false,
            },
            Share::Own(client) => Verdict::EvictOf {
                client,
                only_idle: true,
            },
            Share::Even if load.has_idle => Verdict::EvictIdle,
            Share::Even => refusal,
        }
    }

    /// How a connection is refused while others are.
    pub(crate) fn refusal(refusals: usize) -> Verdict {
        match refusals < REFUSALS_MAX {
            true => Verdict::Refuse,
            false => Verdict::Drop,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADMISSION: Admission = Admission {
        connections_max: 10,
    };

    fn connection(load: Load) -> Verdict {
        ADMISSION.decide(Kind::Connection, &load)
    }

    #[test]
    fn a_connection_over_the_cap_evicts_an_idle_one_or_is_refused() {
        let at = |connections, has_idle| {
            connection(Load {
                connections,
                has_idle,
                ..Load::default()
            })
        };
        assert_eq!(at(9, true), Verdict::Admit);
        assert_eq!(at(10, true), Verdict::EvictIdle);
        assert_eq!(at(10, false), Verdict::Refuse);
        assert_eq!(at(10 + EVICTIONS_MAX - 1, true), Verdict::EvictIdle);
        assert_eq!(at(10 + EVICTIONS_MAX, true), Verdict::Refuse);
    }

    #[test]
    fn the_client_with_most_connections_does_not_take_all_places_over_the_cap() {
        let client = ClientKey::of([192, 0, 2, 1].into());
        let at = |connections, share| {
            connection(Load {
                connections,
                share,
                ..Load::default()
            })
        };
        let evicts = Verdict::EvictOf {
            client,
            only_idle: false,
        };
        let (full, most) = (10 + EVICTIONS_MAX, 10 + 2 * EVICTIONS_MAX);
        assert_eq!(at(full, Share::Own(client)), Verdict::Refuse);
        assert_eq!(at(full, Share::Other(client)), evicts);
        assert_eq!(at(most - 1, Share::Other(client)), evicts);
        assert_eq!(at(most, Share::Other(client)), Verdict::Refuse);
    }

    #[test]
    fn the_last_descriptor_is_for_a_connection_that_makes_room() {
        let at = |has_idle| {
            connection(Load {
                connections: 3,
                has_idle,
                is_last_descriptor: true,
                ..Load::default()
            })
        };
        assert_eq!(at(true), Verdict::EvictIdle);
        assert_eq!(at(false), Verdict::Refuse);
    }

    #[test]
    fn a_connection_without_memory_for_it_is_refused_whether_one_is_idle_or_not() {
        for has_idle in [false, true] {
            let verdict = connection(Load {
                has_idle,
                is_memory_full: true,
                ..Load::default()
            });
            assert_eq!(verdict, Verdict::Refuse);
        }
    }

    #[test]
    fn refusals_are_bounded_and_a_drain_serves_what_has_connected() {
        let load = Load {
            connections: 10,
            refusals: REFUSALS_MAX,
            ..Load::default()
        };
        assert_eq!(connection(load), Verdict::Drop);
        let is_draining = true;
        assert_eq!(
            connection(Load {
                is_draining,
                ..load
            }),
            Verdict::Admit
        );
    }

    #[test]
    fn jobs_are_queued_for_workers_and_refused_when_the_queue_is_full() {
        let at = |kind, workers, is_queue_full| {
            let load = Load {
                workers,
                is_queue_full,
                ..Load::default()
            };
            ADMISSION.decide(kind, &load)
        };
        for kind in [Kind::Job, Kind::Prefetch, Kind::Task] {
            assert_eq!(at(kind, 0, false), Verdict::Admit);
            assert_eq!(at(kind, 2, false), Verdict::Queue);
        }
        assert_eq!(at(Kind::Backlog, 2, false), Verdict::Admit);
        assert_eq!(at(Kind::Backlog, 2, true), Verdict::Queue);
        assert_eq!(at(Kind::Job, 2, true), Verdict::Refuse);
        assert_eq!(at(Kind::Task, 2, true), Verdict::Refuse);
        assert_eq!(at(Kind::Prefetch, 2, true), Verdict::Admit);
    }
}
