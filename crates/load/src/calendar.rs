//! The boundaries of a run: whole seconds and phases, at each of which results are handed out.

use crate::Plan;

const SECOND_NS: u64 = 1_000_000_000;

/// A boundary that was passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// When, on the monotonic clock.
    pub at_ns: u64,
    /// The second that ends here, or within which it lies.
    pub second: u32,
    /// The phase that begins here, or goes on.
    pub phase: u16,
}

/// Where in the run a moment is. All moments are of the monotonic clock.
#[derive(Debug)]
pub struct Calendar<'p> {
    plan: &'p Plan,
    start_ns: u64,
    /// The next boundary; `u64::MAX` before the start and after the end.
    next_ns: u64,
    phase: u16,
    phase_begin_ns: u64,
    phase_end_ns: u64,
}

impl<'p> Calendar<'p> {
    /// Before the start.
    pub fn new(plan: &'p Plan) -> Self {
        Self {
            plan,
            start_ns: 0,
            next_ns: u64::MAX,
            phase: plan.phase_at(0),
            phase_begin_ns: 0,
            phase_end_ns: u64::MAX,
        }
    }

    /// The run starts.
    pub fn start(&mut self, start_ns: u64) {
        self.start_ns = start_ns;
        self.enter(self.plan.phase_at(0));
        self.next_ns = self.after(start_ns);
    }

    /// Passes the next boundary, if it has come.
    pub fn pass(&mut self, now_ns: u64) -> Option<Boundary> {
        let at_ns = self.next_ns;
        if now_ns < at_ns || at_ns == u64::MAX {
            return None;
        }
        let second = self.second(at_ns);
        self.enter(self.plan.phase_at(at_ns - self.start_ns));
        self.next_ns = match at_ns >= self.end_ns() {
            true => u64::MAX,
            false => self.after(at_ns),
        };
        Some(Boundary {
            at_ns,
            second,
            phase: self.phase,
        })
    }

    fn enter(&mut self, phase: u16) {
        self.phase = phase;
        if let Some(phase) = self.plan.phases.get(usize::from(phase)) {
            self.phase_begin_ns = self.start_ns.saturating_add(phase.begin_ns);
            self.phase_end_ns = self.start_ns.saturating_add(phase.end_ns);
        }
    }

    /// The first boundary after `ns`.
    fn after(&self, ns: u64) -> u64 {
        let since_start = ns - self.start_ns;
        let second = (since_start / SECOND_NS + 1) * SECOND_NS;
        let phases = &self.plan.phases;
        let phase = phases.partition_point(|phase| phase.end_ns <= since_start);
        let phase_end = phases.get(phase).map_or(u64::MAX, |phase| phase.end_ns);
        self.start_ns.saturating_add(second.min(phase_end))
    }

    /// When the next boundary comes; `u64::MAX`: none does.
    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// When the last phase ends.
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.plan.duration_ns())
    }

    /// The second that contains the last nanosecond before `ns`; 0 before the start.
    pub fn second(&self, ns: u64) -> u32 {
        if self.start_ns == 0 {
            return 0;
        }
        let since_start = ns.min(self.end_ns()).saturating_sub(self.start_ns);
        u32::try_from(since_start.saturating_sub(1) / SECOND_NS).unwrap_or(u32::MAX)
    }

    /// The phase that lasts now.
    pub fn phase(&self) -> u16 {
        self.phase
    }

    /// The phase of a request that was due at `due_ns`.
    #[inline]
    pub fn phase_of(&self, due_ns: u64) -> u16 {
        if (self.phase_begin_ns..self.phase_end_ns).contains(&due_ns) {
            return self.phase;
        }
        self.plan.phase_at(due_ns.saturating_sub(self.start_ns))
    }

    /// Whether what is measured in a phase counts.
    pub fn is_counted(&self, phase: u16) -> bool {
        let phase = self.plan.phases.get(usize::from(phase));
        phase.is_some_and(|phase| phase.counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Phase, Prepared};

    fn plan(ends_ms: &[u64]) -> Plan {
        let mut begin_ns = 0;
        let phases = ends_ms.iter().map(|end_ms| {
            let end_ns = end_ms * 1_000_000;
            Phase {
                begin_ns: std::mem::replace(&mut begin_ns, end_ns),
                end_ns,
                counted: *end_ms != 1500,
                ..Phase::default()
            }
        });
        let server = ([127, 0, 0, 1], 80).into();
        Plan::new(server, Prepared::get("a", "/"), phases.collect())
    }

    #[test]
    fn seconds_and_phases_are_passed_in_order() {
        let (plan, start_ns) = (plan(&[1500, 3000]), 77_000_000_000);
        let mut calendar = Calendar::new(&plan);
        assert_eq!((calendar.second(start_ns), calendar.phase()), (0, 0));
        assert_eq!(calendar.pass(start_ns), None);
        calendar.start(start_ns);
        assert_eq!(calendar.pass(start_ns + 999_999_999), None);
        let mut passed = Vec::new();
        while let Some(boundary) = calendar.pass(start_ns + 9_000_000_000) {
            let at_ms = (boundary.at_ns - start_ns) / 1_000_000;
            passed.push((at_ms, boundary.second, boundary.phase));
        }
        let expected = [(1000, 0, 0), (1500, 1, 1), (2000, 1, 1), (3000, 2, 1)];
        assert_eq!(passed, expected);
        assert_eq!(calendar.next_ns(), u64::MAX);
        assert_eq!(calendar.second(start_ns + 9_000_000_000), 2);
    }

    #[test]
    fn a_request_belongs_to_the_phase_in_which_it_was_due() {
        let (plan, start_ns) = (plan(&[1500, 3000]), 77_000_000_000);
        let mut calendar = Calendar::new(&plan);
        calendar.start(start_ns);
        let phases = |calendar: &Calendar<'_>| {
            [0, 1499, 1500, 2999, 3000].map(|ms| calendar.phase_of(start_ns + ms * 1_000_000))
        };
        assert_eq!(phases(&calendar), [0, 0, 1, 1, 1]);
        while calendar.pass(start_ns + 2_000_000_000).is_some() {}
        assert_eq!(calendar.phase(), 1);
        assert_eq!(phases(&calendar), [0, 0, 1, 1, 1]);
        assert!(!calendar.is_counted(0) && calendar.is_counted(1) && !calendar.is_counted(2));
    }

    #[test]
    fn a_run_without_end_has_seconds_all_the_same() {
        let mut plan = plan(&[1]);
        plan.phases[0].end_ns = u64::MAX;
        let mut calendar = Calendar::new(&plan);
        calendar.start(5);
        assert_eq!(calendar.end_ns(), u64::MAX);
        let boundary = calendar.pass(1_000_000_005);
        assert_eq!(boundary.map(|boundary| boundary.second), Some(0));
        assert_eq!(calendar.next_ns(), 2_000_000_005);
    }
}
