//! Requests that are out, by group, summed over time.

use loadline_load::Recorder;

/// One group's.
#[derive(Debug)]
struct GroupInFlight {
    group: u16,
    count: u64,
    /// Up to when it has been added up; `u64::MAX`: nothing is, before the start.
    since_ns: u64,
}

/// All groups'.
#[derive(Debug)]
pub(super) struct InFlight(Vec<GroupInFlight>);

impl InFlight {
    pub(super) fn new(groups: Vec<u16>) -> Self {
        let present = |group| GroupInFlight {
            group,
            count: 0,
            since_ns: u64::MAX,
        };
        Self(groups.into_iter().map(present).collect())
    }

    /// Adds up from here on.
    pub(super) fn begin(&mut self, now_ns: u64) {
        self.0.iter_mut().for_each(|one| one.since_ns = now_ns);
    }

    /// One user of a group has `now` requests out, and had `before`.
    pub(super) fn moved(
        &mut self,
        group: u16,
        before: u32,
        now: u32,
        now_ns: u64,
        recorder: &mut Recorder,
    ) {
        if before == now {
            return;
        }
        if let Some(one) = self.0.iter_mut().find(|one| one.group == group) {
            one.settle(now_ns, recorder);
            one.count = (one.count + u64::from(now)).saturating_sub(u64::from(before));
        }
    }

    /// Brings all sums up to this moment.
    pub(super) fn settle(&mut self, now_ns: u64, recorder: &mut Recorder) {
        self.0
            .iter_mut()
            .for_each(|one| one.settle(now_ns, recorder));
    }

    /// Of all groups, at this moment.
    pub(super) fn total(&self) -> u64 {
        self.0.iter().map(|one| one.count).sum()
    }
}

impl GroupInFlight {
    fn settle(&mut self, now_ns: u64, recorder: &mut Recorder) {
        if self.since_ns < now_ns {
            let for_ns = now_ns - self.since_ns;
            recorder.group(self.group).in_flight(self.count, for_ns);
            self.since_ns = now_ns;
        }
    }
}
