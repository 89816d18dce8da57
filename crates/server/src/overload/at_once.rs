//! How many requests may be at work at once on threads that share the CPUs.

use loadline_sys::usage::ThreadUsage;

/// So many times what keeps the CPUs busy: while one of them waits for something short, another has
/// the CPU.
const SPARE: f64 = 2.0;

/// Requests that are measured at one time: each costs some 15 us.
const MEASURED_MAX: usize = 4;

/// The time between two that begin to be measured: little of the CPU, and enough of them in a second.
const MEASURED_APART_US: u64 = 5_000;

/// One that has ended counts for so much of what is known.
const WEIGHT: f64 = 1.0 / 8.0;

/// What a thread had used at a moment, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Used {
    /// The moment.
    pub(super) at_us: u64,
    pub(super) cpu_us: u64,
    /// Time that it had waited for a CPU.
    pub(super) ready_us: u64,
}

impl Used {
    /// `None`: the thread has ended, or the kernel does not count.
    pub(super) fn by(thread: ThreadUsage, at_us: u64) -> Option<Self> {
        let cpu = thread.cpu()?;
        Some(Self {
            at_us,
            cpu_us: u64::try_from(cpu.as_micros()).ok()?,
            ready_us: thread.run_delay_ns()? / 1000,
        })
    }
}

/// CPUs x (1 + blocked / computing), and some to spare: the rule by which pools have their size, too.
///
/// More of those that compute would only take turns, and all of them end late. Until something was
/// measured all are taken to compute.
#[derive(Debug)]
pub(super) struct AtOnce {
    cpus: f64,
    /// Of those that have ended, the last ones first: time in which they neither computed nor waited
    /// for a CPU, and time in which they computed.
    known: Share,
    /// The same of those that have not.
    under_way: Share,
    measured: Vec<(ThreadUsage, Used)>,
    measured_us: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Share {
    blocked_us: f64,
    cpu_us: f64,
}

impl Share {
    fn add(&mut self, from: Used, to: Used) {
        let wall_us = to.at_us.saturating_sub(from.at_us);
        let cpu_us = to.cpu_us.saturating_sub(from.cpu_us);
        let ready_us = to.ready_us.saturating_sub(from.ready_us);
        self.blocked_us += wall_us.saturating_sub(cpu_us).saturating_sub(ready_us) as f64;
        self.cpu_us += cpu_us.max(1) as f64;
    }
}

impl AtOnce {
    pub(super) fn new(cpus: f64) -> Self {
        Self {
            cpus,
            known: Share::default(),
            under_way: Share::default(),
            measured: Vec::with_capacity(MEASURED_MAX),
            measured_us: None,
        }
    }

    /// How many may be at work.
    pub(super) fn max(&self) -> u32 {
        let blocked_us = self.known.blocked_us + self.under_way.blocked_us;
        let cpu_us = self.known.cpu_us + self.under_way.cpu_us;
        let blocked = match cpu_us > 0.0 {
            true => blocked_us / cpu_us,
            false => 0.0,
        };
        // Two at least, so that none waits for the next one to begin. `as` bounds what is larger.
        (SPARE * self.cpus * (1.0 + blocked)).max(2.0) as u32
    }

    /// Whether a request is to be measured that begins with so many at work, itself included: while
    /// there is a CPU for each, their number matters to nobody.
    pub(super) fn wants(&self, now_us: u64, count: u32) -> bool {
        let last_us = self.measured_us;
        f64::from(count) > self.cpus
            && self.measured.len() < MEASURED_MAX
            && last_us.is_none_or(|last_us| now_us >= last_us + MEASURED_APART_US)
    }

    /// A request begins on this thread.
    pub(super) fn begins(&mut self, thread: ThreadUsage, used: Used) {
        self.measured.push((thread, used));
        self.measured_us = Some(used.at_us);
    }

    /// It has ended; `None`: nobody knows what it has used.
    pub(super) fn ended(&mut self, thread: ThreadUsage, used: Option<Used>) {
        let mine = |(of, _): &(ThreadUsage, Used)| *of == thread;
        let Some(index) = self.measured.iter().position(mine) else {
            return;
        };
        let (_, began) = self.measured.swap_remove(index);
        if let Some(used) = used {
            self.known.blocked_us *= 1.0 - WEIGHT;
            self.known.cpu_us *= 1.0 - WEIGHT;
            self.known.add(began, used);
        }
        if self.measured.is_empty() {
            self.under_way = Share::default();
        }
    }

    /// Looks at those that are under way: what takes long would otherwise be known too late.
    pub(super) fn look(&mut self, used: impl Fn(ThreadUsage) -> Option<Used>) {
        self.under_way = Share::default();
        for (thread, began) in &self.measured {
            if let Some(now) = used(*thread) {
                self.under_way.add(*began, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(at_us: u64, cpu_us: u64, ready_us: u64) -> Used {
        Used {
            at_us,
            cpu_us,
            ready_us,
        }
    }

    /// One after the other, each of which has used this when it ends.
    fn after(at_once: &mut AtOnce, count: u64, of_each: Used) {
        let thread = ThreadUsage::of_this_thread();
        for _ in 0..count {
            at_once.begins(thread, used(0, 0, 0));
            at_once.ended(thread, Some(of_each));
        }
    }

    #[test]
    fn those_that_compute_are_two_for_each_cpu_however_long_they_waited_for_it() {
        let mut at_once = AtOnce::new(4.0);
        assert_eq!(at_once.max(), 8, "before anything is known");
        after(&mut at_once, 20, used(100_000, 10_000, 90_000));
        assert_eq!(at_once.max(), 8);
        assert_eq!(AtOnce::new(0.5).max(), 2);
    }

    #[test]
    fn those_that_sleep_are_as_many_as_the_cpus_can_carry() {
        let mut at_once = AtOnce::new(1.0);
        after(&mut at_once, 1, used(10_000, 20, 0));
        assert!(at_once.max() > 900, "{at_once:?}");
        // They begin to compute.
        after(&mut at_once, 60, used(20_000, 10_000, 10_000));
        assert_eq!(at_once.max(), 2);
        // And sleep again.
        after(&mut at_once, 60, used(10_000, 20, 0));
        assert!(at_once.max() > 100, "{at_once:?}");
    }

    #[test]
    fn what_is_under_way_counts_before_it_has_ended() {
        let mut at_once = AtOnce::new(1.0);
        assert!(!at_once.wants(0, 1) && at_once.wants(0, 2));
        let thread = ThreadUsage::of_this_thread();
        at_once.begins(thread, used(0, 0, 0));
        assert!(!at_once.wants(4_999, 2) && at_once.wants(5_000, 2));
        at_once.look(|_| Some(used(20_000, 10, 0)));
        assert!(at_once.max() > 1_000);
        at_once.look(|_| Some(used(2_000_000, 1_000_010, 0)));
        assert_eq!(at_once.max(), 3);
        at_once.ended(thread, None);
        assert_eq!(at_once.max(), 2);
    }
}
