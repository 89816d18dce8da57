//! The life of one thread's clients, plain ones or those with behaviour: they open connections, wait
//! for the start, run to the end of the plan, and wait for what is still out.
//!
//! What it is not: it does not wait for events, and knows nothing of requests. What a turn does is
//! each loop's own, so that the hot path of the plain clients shares nothing with the others.

use std::io;

use loadline_sys::clock::monotonic_ns;
use loadline_sys::usage;

use crate::calendar::{Boundary, Calendar};
use crate::meter::Meter;
use crate::{Control, Message, Plan, Share, ThreadReport};

/// The longest wait: how soon a stop is noticed.
pub const WAIT_NS_MAX: u64 = 20_000_000;
/// How long to wait at once for the start to be set.
const START_POLL_NS: u64 = 2_000_000;

/// Where in the run a thread is, and what is measured of it.
#[derive(Debug)]
pub struct Timeline<'p> {
    /// Nanoseconds of the monotonic clock, as of the last look.
    pub now_ns: u64,
    /// Seconds and phases.
    pub calendar: Calendar<'p>,
    /// What is measured of the thread.
    pub meter: Meter,
    /// The start has come.
    pub is_started: bool,
    /// Nothing is begun any more.
    pub is_ending: bool,
}

impl<'p> Timeline<'p> {
    /// Before the start.
    pub fn new(plan: &'p Plan) -> Self {
        Self {
            now_ns: monotonic_ns(),
            calendar: Calendar::new(plan),
            meter: Meter::default(),
            is_started: false,
            is_ending: false,
        }
    }

    /// Reads the clock.
    #[inline]
    pub fn look_at_clock(&mut self) {
        self.now_ns = monotonic_ns();
    }

    fn start(&mut self, start_ns: u64) {
        self.calendar.start(start_ns);
        self.is_started = true;
        if self.calendar.is_counted(self.calendar.phase()) {
            self.meter.begin(self.now_ns);
        }
    }

    /// Passes the next boundary, if it has come; the thread is measured in counted phases only.
    fn pass(&mut self) -> Option<Boundary> {
        let boundary = self.calendar.pass(self.now_ns)?;
        let is_end = boundary.at_ns >= self.calendar.end_ns();
        match self.calendar.is_counted(boundary.phase) && !is_end {
            true => self.meter.begin(self.now_ns),
            false => self.meter.end(self.now_ns),
        }
        Some(boundary)
    }
}

/// What differs between loops.
pub trait ClientLoop<'p>: Sized {
    /// Its time.
    fn time(&mut self) -> &mut Timeline<'p>;
    /// Goes on with what is done before the start, and says whether there is more.
    ///
    /// # Errors
    /// Why there will be no start.
    fn is_opening(&mut self) -> io::Result<bool>;
    /// How many connections are open before the start.
    fn open_count(&self) -> u64;
    /// One turn, which waits no longer than until `until_ns`, nor than [`WAIT_NS_MAX`].
    fn turn(&mut self, until_ns: u64, out: &mut dyn FnMut(Message)) -> io::Result<()>;
    /// The run has started.
    fn start(&mut self, start_ns: u64);
    /// A boundary was passed, and before it `phase` lasted.
    fn passed(&mut self, boundary: Boundary, phase: u16);
    /// Adds up the requests in flight.
    fn sample_in_flight(&mut self, now_ns: u64);
    /// Whether nothing is left to do before the end of the plan.
    fn is_done(&self, control: &Control) -> bool;
    /// Nothing is begun any more; what was due before `until_ns` was due in the run.
    fn end(&mut self, until_ns: u64);
    /// After the end: until when to wait for what is out; `None`: nothing is.
    fn rest(&self) -> Option<u64>;
    /// What is still out, after a wait for it, is unfinished.
    fn give_up_rest(&mut self, waited_ns: u64);
    /// Sends what was recorded since the last time.
    fn flush(&mut self, second: u32, phase: u16, after_end: bool, out: &mut dyn FnMut(Message));
    /// What was measured of the thread.
    fn report(self, share: Share) -> ThreadReport;

    /// Sends what was measured up to the boundaries that have been passed.
    fn pass_boundaries(&mut self, out: &mut dyn FnMut(Message)) {
        loop {
            let phase = self.time().calendar.phase();
            let Some(boundary) = self.time().pass() else {
                return;
            };
            self.passed(boundary, phase);
            self.flush(boundary.second, boundary.phase, false, out);
        }
    }
}

/// Runs clients on the calling thread, to the end of the plan or until `control` stops them.
///
/// # Errors
/// The kernel refuses what every run needs, or the clients cannot get ready.
pub fn run<'p, C: ClientLoop<'p>>(
    mut clients: C,
    share: Share,
    control: &Control,
    out: &mut dyn FnMut(Message),
) -> io::Result<()> {
    let _ = usage::sleep_precisely(); // if it fails, the lag shows it
    while clients.is_opening()? && !control.is_stopped() {
        clients.turn(u64::MAX, out)?;
    }
    let connections = clients.open_count();
    out(Message::Ready { connections });

    while !clients.time().is_started && !control.is_stopped() {
        let start_ns = control.start_ns();
        let time = clients.time();
        time.look_at_clock();
        match start_ns.filter(|ns| *ns <= time.now_ns) {
            Some(start_ns) => {
                time.start(start_ns);
                clients.start(start_ns);
            }
            None => {
                let poll_ns = time.now_ns + START_POLL_NS;
                clients.turn(start_ns.map_or(poll_ns, |ns| ns.min(poll_ns)), out)?;
            }
        }
    }

    let end_ns = clients.time().calendar.end_ns();
    let is_started = clients.time().is_started;
    if is_started {
        while clients.time().now_ns < end_ns && !control.is_stopped() && !clients.is_done(control) {
            clients.turn(end_ns, out)?;
        }
        let now_ns = clients.time().now_ns;
        clients.sample_in_flight(now_ns);
        clients.pass_boundaries(out); // the last turn may have gone on beyond some, or the end
    }
    let ended_ns = clients.time().now_ns;
    let until_ns = ended_ns.saturating_add(1).min(end_ns);
    let is_early = !std::mem::replace(&mut clients.time().is_ending, true);
    clients.time().meter.end(ended_ns);
    clients.end(until_ns);
    if is_started && is_early {
        flush(&mut clients, until_ns, false, out);
    }

    while let Some(until_ns) = clients.rest()
        && !control.is_stopped()
    {
        clients.turn(until_ns, out)?;
    }
    let now_ns = clients.time().now_ns;
    clients.give_up_rest(now_ns.saturating_sub(ended_ns));
    flush(&mut clients, now_ns, true, out);
    out(Message::Finished(Box::new(clients.report(share))));
    Ok(())
}

fn flush<'p>(
    clients: &mut impl ClientLoop<'p>,
    until_ns: u64,
    after_end: bool,
    out: &mut dyn FnMut(Message),
) {
    let calendar = &clients.time().calendar;
    let (second, phase) = (calendar.second(until_ns), calendar.phase());
    clients.flush(second, phase, after_end, out);
}
