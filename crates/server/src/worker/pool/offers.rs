//! Which jobs a pool takes in, and which it gives back before a worker comes to them.

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use super::{Workers, lock};
use crate::admission::Refusing;
use crate::fairness::ClientKey;
use crate::fairness::lanes::{Ahead, FlowKey, Lane};
use crate::overload::{LaneControl, Refusal};
use crate::worker::job::{Job, Message, Work};

/// Jobs that nobody needs are looked for after this time again: a look at some thousand jobs takes
/// less than 1 % of it.
const SWEEP_INTERVAL_US: u64 = 10_000;

impl Workers {
    /// Without fairness all requests are one flow, and all handshakes another: these do not wait as long as the
    /// requests behind them.
    pub(super) fn flow(&self, job: &Job) -> FlowKey {
        let flow = job.flow();
        match flow.lane {
            _ if self.is_fair => flow,
            Lane::Handshakes => FlowKey {
                client: ClientKey::NOBODY,
                ..flow
            },
            Lane::Files | Lane::Apps => FlowKey::default(),
        }
    }

    /// Whether a job can be done in time, if need be once those are gone that nobody needs. A refusal is to cost
    /// little: it is judged once, unless it is time to look for those.
    pub(super) fn offer(
        &self,
        control: &Mutex<LaneControl>,
        now_us: u64,
        flow: FlowKey,
        before_us: u64,
    ) -> Result<(), Refusal> {
        let ahead = || Ahead {
            before_us,
            ..self.queue.ahead(flow)
        };
        let mut ahead_now = ahead();
        let mut judge = lock(control);
        if ahead_now.jobs > 0
            && self.is_sweep_due(now_us, flow.lane)
            && !judge.is_in_time(now_us, flow.lane, ahead_now)
        {
            drop(judge);
            self.sweep(control, now_us, flow.lane);
            ahead_now = ahead();
            judge = lock(control);
        }
        judge.offer(now_us, flow.lane, ahead_now)
    }

    pub(super) fn is_sweep_due(&self, now_us: u64, lane: Lane) -> bool {
        let swept_us = self.swept_us[lane as usize].load(Ordering::Relaxed);
        now_us >= swept_us.saturating_add(SWEEP_INTERVAL_US)
    }

    /// A job is about to be queued that cannot be refused. If it is the first one, those that come after it are
    /// not to take the time before it for a stall.
    pub(super) fn note_unoffered(&self, now_us: u64, flow: FlowKey) {
        if let Some(control) = &self.control
            && self.queue.ahead(flow).jobs == 0
        {
            lock(control).comes_first(now_us, flow.lane);
        }
    }

    /// Queues a job in a queue that was full, in the place of one of the client that has most. Gives it back if
    /// none has more.
    #[cold]
    pub(super) fn push_in_the_place_of_another(&self, flow: FlowKey, job: Job) -> Result<(), Job> {
        let other = match self.is_fair {
            true => (self.queue).take_of_heaviest(flow, |job| job.work.can_be_refused()),
            false => None,
        };
        let Some(mut other) = other else {
            return Err(job);
        };
        self.stats.queue_depth.sub(1);
        let retry_after_s = self.retry_after_full_s(self.flow(&other), job.queued_us);
        let refusing = Refusing {
            is_over_share: true,
            ..Refusing::queue_full(retry_after_s)
        };
        let ready_us = other.ready_us();
        match &mut other.work {
            // Which requests it has is not known yet: its loop reads, refuses and counts them.
            Work::Serve(served) => {
                served.refusing = Some(refusing);
                served.ready_us = Some(ready_us);
            }
            Work::Offload(_, refused) => *refused = Some(refusing),
            work => {
                refusing.count(&self.stats);
                work.refuse(retry_after_s);
            }
        }
        let (token, work) = (other.token, other.work);
        other.reply.post(Message::Done { token, work });
        self.queue.push(flow, job)
    }

    /// Gives jobs back whose clients have left, or that come too late. One loop at a time does.
    #[cold]
    pub(super) fn sweep(&self, control: &Mutex<LaneControl>, now_us: u64, lane: Lane) {
        let (order, swept) = (Ordering::Relaxed, &self.swept_us[lane as usize]);
        let swept_us = swept.load(order);
        if !self.is_sweep_due(now_us, lane)
            || swept
                .compare_exchange(swept_us, now_us, order, order)
                .is_err()
        {
            return;
        }
        let mut now = *lock(control);
        let of_lane = *now.of(lane);
        let waited_us = |job: &Job| job.waited(now_us).in_all_us();
        let is_abandoned = |job: &Job| {
            let waited_long = of_lane.is_long(waited_us(job));
            job.work.is_abandoned(waited_long)
        };
        let is_late = |job: &Job, is_only| {
            now.is_late(lane, is_only, waited_us(job)) && job.work.can_be_refused()
        };
        let needless = self.queue.remove_if(lane, |job, is_only| match job.work {
            Work::Serve(_) | Work::Offload(..) => false, // only a system call could say more
            _ => is_abandoned(job) || is_late(job, is_only),
        });
        for mut job in needless {
            self.stats.queue_depth.sub(1);
            match is_abandoned(&job) {
                true => self.stats.abandoned.add(1),
                false => self.stats.refused_late.add(1),
            }
            job.work
                .refuse(lock(control).of(lane).retry_after_s(now_us));
            let (token, work) = (job.token, job.work);
            job.reply.post(Message::Done { token, work });
        }
    }
}
