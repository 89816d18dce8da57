//! What each handshake brings to the other lanes.

/// One job in so many counts for what those behind handshakes take.
const JOB_WEIGHT: f64 = 64.0;

/// One handshake in so many counts for how many jobs each brings, once as many were done: far more than a burst has of
/// them before the first request behind one is done.
const HANDSHAKES_MAX: f64 = 1024.0;

/// So many handshakes that bring nothing are taken to have been before the first one. A request that is refused has
/// its 503, a handshake that is refused only a connection that ends: so it takes some requests until handshakes are
/// refused for those that they would bring.
const HANDSHAKES_BEFORE: f64 = 16.0;

/// The most jobs that a handshake is taken to bring: its end and the request may come one after the other. A request
/// that comes in many small parts is not to count as many long ones.
const JOBS_MAX: f64 = 2.0;

/// How long a job behind a handshake takes, and how many of them a handshake brings. They are learned apart: in a
/// burst many handshakes are done before the requests behind them, which take no less for that.
///
/// A request that comes long after its handshake counts as none that it brings. What waits for a handshake waits for
/// the requests that come while it does: a late one comes at another time, as those of connections that stay open
/// do, and is seen in its own lane then. Nor does the time that its handshake has waited count for it. If late ones
/// counted, handshakes of a burst of clients that connect early would be refused for requests that do not come yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct FollowUp {
    /// The mean of those that were done, of the last ones if they are many.
    job_us: f64,
    /// Those that were done, up to `JOB_WEIGHT`.
    known: f64,
    /// For each step of a handshake: less than one if some clients ask for nothing, or for what takes no worker.
    jobs: f64,
    /// Steps that were done, from `HANDSHAKES_BEFORE` up to `HANDSHAKES_MAX`.
    handshakes: f64,
}

impl FollowUp {
    pub(super) fn new() -> Self {
        Self {
            job_us: 0.0,
            known: 0.0,
            jobs: 0.0,
            handshakes: HANDSHAKES_BEFORE,
        }
    }

    /// A step of a handshake was done.
    pub(super) fn handshake_done(&mut self) {
        self.handshakes = (self.handshakes + 1.0).min(HANDSHAKES_MAX);
        self.jobs -= self.jobs / self.handshakes;
    }

    /// A job was done that comes behind a handshake.
    pub(super) fn job_done(&mut self, took_us: u64) {
        self.jobs = (self.jobs + 1.0 / self.handshakes).min(JOBS_MAX);
        self.known = (self.known + 1.0).min(JOB_WEIGHT);
        self.job_us += (took_us as f64 - self.job_us) / self.known;
    }

    /// For each step of a handshake, in microseconds; 0: not known.
    pub(super) fn mean_us(&self) -> u64 {
        (self.job_us * self.jobs) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_of_handshakes_hardly_changes_what_each_brings() {
        let mut follow_up = FollowUp::new();
        follow_up.handshake_done();
        assert_eq!(follow_up.mean_us(), 0, "nothing is known");
        for _ in 0..2_000 {
            follow_up.handshake_done();
            follow_up.job_done(10_000);
        }
        (0..100).for_each(|_| follow_up.handshake_done());
        let mean_us = follow_up.mean_us();
        assert!((9_000..=9_100).contains(&mean_us), "{mean_us}");
    }

    /// One that had just started refused clients that connect early for requests like its first one.
    #[test]
    fn one_request_says_little_of_what_handshakes_bring() {
        let mut follow_up = FollowUp::new();
        follow_up.handshake_done();
        follow_up.job_done(10_000);
        assert!(follow_up.mean_us() < 600);
        for _ in 0..48 {
            follow_up.handshake_done();
            follow_up.job_done(10_000);
        }
        assert!(follow_up.mean_us() > 7_000);
    }

    #[test]
    fn where_clients_ask_for_nothing_handshakes_bring_nothing() {
        let mut follow_up = FollowUp::new();
        follow_up.job_done(10_000);
        (0..10_000).for_each(|_| follow_up.handshake_done());
        assert_eq!(follow_up.mean_us(), 0);
    }

    #[test]
    fn of_clients_that_ask_late_only_the_others_requests_are_brought() {
        let mut follow_up = FollowUp::new();
        for _ in 0..10_000 {
            // Of three of them the request comes much later.
            (0..4).for_each(|_| follow_up.handshake_done());
            follow_up.job_done(10_000);
        }
        let mean_us = follow_up.mean_us();
        assert!((2_400..=2_600).contains(&mean_us), "{mean_us}");
    }

    #[test]
    fn a_request_that_comes_in_parts_counts_as_all_of_them_within_a_bound() {
        let mut follow_up = FollowUp::new();
        for _ in 0..10_000 {
            follow_up.handshake_done();
            follow_up.job_done(9_900);
            follow_up.job_done(100);
        }
        let mean_us = follow_up.mean_us();
        assert!((9_000..=11_000).contains(&mean_us), "{mean_us}");
        (0..10_000).for_each(|_| follow_up.job_done(100));
        assert!((190..=200).contains(&follow_up.mean_us()));
    }
}
