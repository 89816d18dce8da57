//! What was turned away between two readings, by reason.

use loadline_proto::{CloseReason, Http2Count};
use loadline_server::Counts;

/// What was turned away, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusals {
    /// Too late for the latency goal.
    late: u64,
    queue_full: u64,
    connections: u64,
    /// Requests that would not have been late, and requests and connections that would have had room, had their
    /// client not had more than others.
    over_share: u64,
    /// Not done, since their client had left.
    abandoned: u64,
    /// New connections, and requests for their content, since there was no memory for them.
    memory: u64,
    /// Streams of HTTP/2, beyond what is allowed at one time or because the client did not take its other responses.
    streams: u64,
    /// Connections that were being served, since memory was short.
    closed_for_memory: u64,
    /// The same, for a client with far fewer.
    closed_over_share: u64,
}

impl Refusals {
    pub(crate) fn of(counts: &Counts) -> Self {
        let closed = |reason| counts.closed_for(reason);
        let connections = closed(CloseReason::Refused) + closed(CloseReason::OverCapacity);
        let made_room = counts.queue_full_over_share.min(counts.queue_full);
        let others = counts.refused_over_share.saturating_sub(made_room);
        // Mostly requests that were late; the counts do not tell them from connections.
        let of_late = others.min(counts.refused_late);
        let of_connections = (others - of_late).min(connections);
        Self {
            late: counts.refused_late - of_late,
            queue_full: counts.queue_full - made_room,
            connections: connections - of_connections,
            over_share: made_room + of_late + of_connections,
            abandoned: counts.abandoned,
            memory: counts.content_refused_memory + closed(CloseReason::RefusedMemory),
            streams: counts.http2[Http2Count::RefusedStreams as usize],
            closed_for_memory: closed(CloseReason::Memory),
            closed_over_share: closed(CloseReason::OverShare),
        }
    }

    pub(crate) fn named(&self) -> [(&'static str, u64); 9] {
        [
            ("late", self.late),
            ("queue full", self.queue_full),
            ("connections", self.connections),
            ("over share", self.over_share),
            ("client left", self.abandoned),
            ("memory", self.memory),
            ("streams", self.streams),
            ("closed for memory", self.closed_for_memory),
            ("closed over share", self.closed_over_share),
        ]
    }

    /// Too late for the goal, and not for what their client has.
    pub(crate) fn late(&self) -> u64 {
        self.late
    }

    /// How many requests that comes to, one for each connection that was refused. Those that were closed had theirs.
    pub(crate) fn requests(&self) -> u64 {
        let all: u64 = self.named().iter().map(|(_, count)| count).sum();
        all - self.closed_for_memory - self.closed_over_share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_have_their_reasons() {
        let mut total = Counts {
            refused_late: 30,
            refused_over_share: 32,
            queue_full: 4,
            abandoned: 5,
            content_refused_memory: 6,
            ..Counts::default()
        };
        total.closed[CloseReason::Refused as usize] = 27;
        total.closed[CloseReason::OverCapacity as usize] = 3;
        total.closed[CloseReason::RefusedMemory as usize] = 7;
        total.closed[CloseReason::Memory as usize] = 8;
        total.closed[CloseReason::OverShare as usize] = 9;
        total.http2[Http2Count::RefusedStreams as usize] = 10;
        let found = Refusals::of(&total);
        let expected = [
            ("late", 0),
            ("queue full", 4),
            ("connections", 28),
            ("over share", 32),
            ("client left", 5),
            ("memory", 13),
            ("streams", 10),
            ("closed for memory", 8),
            ("closed over share", 9),
        ];
        assert_eq!(found.named(), expected);
        assert_eq!(found.requests(), 92);
    }

    /// The live page showed no late ones then.
    #[test]
    fn what_made_room_in_a_full_queue_was_not_late() {
        let total = Counts {
            refused_late: 30,
            refused_over_share: 25,
            queue_full: 40,
            queue_full_over_share: 20,
            ..Counts::default()
        };
        let found = Refusals::of(&total);
        let expected = [("late", 25), ("queue full", 20), ("connections", 0)];
        assert_eq!(found.named()[..3], expected);
        assert_eq!(found.named()[3], ("over share", 25));
        assert_eq!((found.requests(), found.late()), (70, 25));
    }
}
