//! The connections of one server that can be given a request, in an open loop.

use loadline_base::IndexList;

/// Free connections, the one that was used longest ago first, so that all are used alike. Each has the
/// number of its client, or of HTTP/2, where it stays among them while it has a free place, its own.
#[derive(Debug, Default)]
pub(super) struct IdleConnections {
    order: IndexList,
    /// Since when there has been at least one, without a break.
    since_ns: u64,
    has_members: bool,
}

impl IdleConnections {
    /// A connection became free.
    #[inline]
    pub(super) fn put(&mut self, index: u32, now_ns: u64) {
        if self.order.first().is_none() {
            self.since_ns = now_ns;
            self.has_members = true;
        }
        self.order.push_last(index);
    }

    /// One that was given a request can be given another one, after all others.
    #[inline]
    pub(super) fn move_last(&mut self, index: u32) {
        self.order.push_last(index);
    }

    /// A connection is not free any more, if it was.
    #[inline]
    pub(super) fn remove(&mut self, index: u32) {
        self.order.remove(index);
    }

    /// The one that was used longest ago.
    #[inline]
    pub(super) fn first(&self) -> Option<u32> {
        self.order.first()
    }

    /// Whether this one is free.
    #[inline]
    pub(super) fn contains(&self, index: u32) -> bool {
        self.order.contains(index)
    }

    /// Whether there is any connection, free or not: each has been free before the start.
    #[inline]
    pub(super) fn has_members(&self) -> bool {
        self.has_members
    }

    /// Whether one was free at `due_ns`, and there has been one ever since: then a request that
    /// is still to be sent was not kept waiting by the server.
    #[inline]
    pub(super) fn was_one_at(&self, due_ns: u64) -> bool {
        self.since_ns <= due_ns && self.order.first().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_idle_comes_first_and_a_break_is_noticed() {
        let mut idle = IdleConnections::default();
        assert!(!idle.was_one_at(9) && !idle.has_members());
        idle.put(4, 10);
        idle.put(2, 20);
        assert_eq!(idle.first(), Some(4));
        assert!(idle.was_one_at(10) && !idle.was_one_at(9));
        idle.remove(4);
        idle.put(4, 30);
        assert_eq!(idle.first(), Some(2));
        assert!(idle.was_one_at(10));
        idle.remove(2);
        idle.remove(4);
        assert!(!idle.was_one_at(30) && idle.has_members());
        idle.put(2, 40);
        assert!(idle.was_one_at(40) && !idle.was_one_at(39));
        idle.move_last(2);
        assert!(idle.was_one_at(40));
        idle.put(4, 50);
        idle.move_last(2);
        assert_eq!(idle.first(), Some(4));
    }
}
