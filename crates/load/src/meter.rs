//! Measures the thread itself: its CPU time, its waiting, and how late it was.

use loadline_sys::usage;

use crate::recorder::record;
use crate::schedule::ns;
use crate::{Share, ThreadReport};

/// Measures the thread between `begin` and `end`, and nothing outside of that; by default off.
#[derive(Debug, Default)]
pub struct Meter {
    is_on: bool,
    begun: Snapshot,
    /// Since when a request has been due and no connection free; `None`: it is not so.
    held_since_ns: Option<u64>,
    last_in_flight: u64,
    last_ns: u64,
    /// What has been measured. The engine counts in it, too, what was given up at the end.
    pub(crate) sums: ThreadReport,
}

#[derive(Clone, Copy, Debug, Default)]
struct Snapshot {
    at_ns: u64,
    cpu_ns: u64,
    run_delay_ns: u64,
}

impl Snapshot {
    fn take(now_ns: u64) -> Self {
        Self {
            at_ns: now_ns,
            cpu_ns: ns(usage::thread_cpu()),
            run_delay_ns: usage::thread_run_delay_ns().unwrap_or(0),
        }
    }
}

impl Meter {
    /// From here on it counts; no change if it does already.
    pub fn begin(&mut self, now_ns: u64) {
        if self.is_on {
            return;
        }
        self.is_on = true;
        self.begun = Snapshot::take(now_ns);
        self.held_since_ns = self.held_since_ns.map(|_| now_ns);
    }

    /// Up to here it counted.
    pub fn end(&mut self, now_ns: u64) {
        if !self.is_on {
            return;
        }
        if self.held_since_ns.is_some() {
            self.released(now_ns);
            self.held(now_ns);
        }
        self.is_on = false;
        let (begun, ended) = (self.begun, Snapshot::take(now_ns));
        self.sums.wall_ns += now_ns.saturating_sub(begun.at_ns);
        self.sums.cpu_ns += ended.cpu_ns.saturating_sub(begun.cpu_ns);
        self.sums.run_delay_ns += ended.run_delay_ns.saturating_sub(begun.run_delay_ns);
    }

    /// Requests in flight at this moment. Between two samples the number is taken to have moved in
    /// a straight line: returns for how long which number of requests would have come to the same.
    #[inline]
    pub fn sample(&mut self, now_ns: u64, in_flight: u64) -> (u64, u64) {
        let half_ns = now_ns.saturating_sub(self.last_ns) / 2;
        let doubled = self.last_in_flight + in_flight;
        (self.last_ns, self.last_in_flight) = (now_ns, in_flight);
        if self.is_on {
            self.sums.in_flight_ns += u128::from(doubled) * u128::from(half_ns);
        }
        (doubled, half_ns)
    }

    /// The thread has waited `waited_ns` for `events`.
    #[inline]
    pub fn waited(&mut self, waited_ns: u64, events: usize) {
        if self.is_on {
            self.sums.waited_ns += waited_ns;
            self.sums.turns += 1;
            self.sums.events += events as u64;
        }
    }

    /// A request was sent `lag_ns` later than it could have been.
    #[inline]
    pub fn lagged(&mut self, lag_ns: u64) {
        if self.is_on {
            record(&mut self.sums.lag, lag_ns);
        }
    }

    /// The end of an answer was read `lag_ns` after the kernel had it.
    #[inline]
    pub(crate) fn read_lagged(&mut self, lag_ns: u64) {
        if self.is_on {
            record(&mut self.sums.read_lag, lag_ns);
        }
    }

    /// From here on what is due waits for a connection; no change if it does already.
    #[inline]
    pub(crate) fn held(&mut self, now_ns: u64) {
        self.held_since_ns.get_or_insert(now_ns);
    }

    /// Up to here it did.
    #[inline]
    pub(crate) fn released(&mut self, now_ns: u64) {
        if let Some(since_ns) = self.held_since_ns.take()
            && self.is_on
        {
            self.sums.held_ns += now_ns.saturating_sub(since_ns);
        }
    }

    /// What was measured.
    pub fn report(self, share: Share) -> ThreadReport {
        ThreadReport {
            share,
            name: format!("engine {}", share.index),
            ..self.sums
        }
    }
}
