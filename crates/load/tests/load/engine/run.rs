//! Runs of the engine in tests: a plan made shortly, and what came out of it.

use std::net::SocketAddr;

use loadline_load::{
    Control, Interval, Message, Phase, Plan, Prepared, Share, ThreadReport, engine,
};
use loadline_record::{Tally, latencies};
use loadline_sys::clock::monotonic_ns;

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1000 * MS;

/// What came out.
pub(crate) struct Outcome {
    /// Connections at the time of `Ready`.
    pub(crate) ready: u64,
    pub(crate) intervals: Vec<Interval>,
    pub(crate) report: ThreadReport,
}

impl Outcome {
    /// Of all intervals.
    pub(crate) fn tally(&self) -> Tally {
        self.tally_of(|_| true)
    }

    /// Of some of them.
    pub(crate) fn tally_of(&self, is_wanted: impl Fn(&Interval) -> bool) -> Tally {
        let mut sum = Tally::default();
        for interval in self.intervals.iter().filter(|one| is_wanted(one)) {
            sum.merge(&interval.tally);
        }
        sum
    }

    /// One kind of histogram of all intervals.
    pub(crate) fn histogram(
        &self,
        which: impl Fn(&Interval) -> &hdrhistogram::Histogram<u64>,
    ) -> hdrhistogram::Histogram<u64> {
        let mut sum = latencies();
        for interval in &self.intervals {
            sum.add(which(interval)).unwrap();
        }
        sum
    }
}

/// A request for this path.
pub(crate) fn get(path: &str) -> Prepared {
    Prepared::get("a", path)
}

/// A phase that counts.
pub(crate) fn phase(begin_ns: u64, end_ns: u64) -> Phase {
    Phase {
        begin_ns,
        end_ns,
        counted: true,
        ..Phase::default()
    }
}

/// A closed loop of so many clients that ends after so many requests.
pub(crate) fn closed(server: SocketAddr, connections: u32, requests: u64) -> Plan {
    Plan {
        connections,
        requests_max: Some(requests),
        timeout_ns: 20 * SECOND,
        ..Plan::new(server, get("/"), vec![phase(0, 3600 * SECOND)])
    }
}

/// Runs a plan on this thread as the only one.
pub(crate) fn run(plan: &Plan) -> Outcome {
    run_with(plan, &Control::new(), |_, _| {})
}

/// The same with somebody who looks at each message and may stop the run.
pub(crate) fn run_with(
    plan: &Plan,
    control: &Control,
    watch: impl FnMut(&Message, &Control),
) -> Outcome {
    run_share(plan, Share::WHOLE, control, watch)
}

/// The same with a part of the plan.
pub(crate) fn run_share(
    plan: &Plan,
    share: Share,
    control: &Control,
    mut watch: impl FnMut(&Message, &Control),
) -> Outcome {
    let (mut ready, mut intervals, mut report) = (None, Vec::new(), None);
    engine::run(plan, share, control, &mut |message| {
        watch(&message, control);
        match message {
            Message::Ready { connections, .. } => {
                ready = Some(connections);
                control.start_at(monotonic_ns());
            }
            Message::Interval(interval) => intervals.push(*interval),
            Message::Finished(finished) => report = Some(*finished),
            Message::Steps(_) => {}
        }
    })
    .unwrap();
    Outcome {
        ready: ready.unwrap(),
        intervals,
        report: report.unwrap(),
    }
}
