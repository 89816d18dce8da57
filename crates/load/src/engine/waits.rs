//! When the thread waited, which says whether what it reads came in time.

/// The last wait, and the end of the one before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waits {
    before_ended_ns: u64,
    begun_ns: u64,
    /// When the last one ended.
    pub(super) ended_ns: u64,
}

impl Waits {
    /// Before the first one.
    pub(super) fn new(now_ns: u64) -> Self {
        Self {
            before_ended_ns: now_ns,
            begun_ns: now_ns,
            ended_ns: now_ns,
        }
    }

    /// One more.
    #[inline]
    pub(super) fn waited(&mut self, begun_ns: u64, ended_ns: u64) {
        *self = Self {
            before_ended_ns: self.ended_ns,
            begun_ns,
            ended_ns,
        };
    }

    /// Whether what is read now was still missing at this moment: it would have ended a wait, or
    /// the wait before the last would have brought it. If the thread was busy at the moment, it may
    /// have been there.
    #[inline]
    pub(super) fn came_after(&self, at_ns: u64) -> bool {
        at_ns < self.before_ended_ns || (self.begun_ns..self.ended_ns).contains(&at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_due_while_the_thread_was_busy_may_have_been_there() {
        let mut waits = Waits::new(100);
        assert!(!waits.came_after(100));
        waits.waited(110, 200);
        waits.waited(250, 300);
        // Seen by the end of the first wait; busy from 200 to 250; waiting until 300.
        for (at_ns, is_late) in [
            (150, true),
            (199, true),
            (200, false),
            (249, false),
            (250, true),
            (299, true),
            (300, false),
            (400, false),
        ] {
            assert_eq!(waits.came_after(at_ns), is_late, "{at_ns}");
        }
    }
}
