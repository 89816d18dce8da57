//! Which requests a loop answers that does the work itself.

use std::time::Duration;

use loadline_base::Millis;
use loadline_proto::{Exchange, HandshakeTime};

use super::delay::DelayControl;
use super::retry_after::RetryAfter;

/// The part of the goal within which all connections of a loop have to be answered, one request each, if
/// no overload is to be seen in them: half, since what an answer costs is known roughly.
const ALL_DIVISOR: u64 = 2;

/// So much of the goal is kept in reserve where it is known when a request came: the kernel counts in ticks of up to
/// 10 ms.
const RESERVE_DIVISOR: u64 = 128;

/// The part of the goal from which on it matters how old the events are that the kernel has left.
const MARK_DIVISOR: u64 = 64;

/// Answers that take longer than this are long: a look at the kernel takes less than a microsecond.
const LONG_ANSWER_US: f64 = 50.0;

/// A turn counts for so much of what is known of the cost of an answer.
const WEIGHT: f64 = 1.0 / 8.0;

/// Decides by the age of what a loop finds: an event of this turn came after the last turn began that
/// has reported all there was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TurnControl {
    delay: DelayControl,
    retry_after: RetryAfter,
    /// When this turn began.
    began_us: u64,
    /// When its events were taken from the kernel, and when those before.
    taken_us: u64,
    /// Its events came after this.
    oldest_us: u64,
    /// There may be more events than were taken.
    is_full: bool,
    /// When its events came, about.
    came: Millis,
    /// Where turns take less than there is: since when events are counted that were taken, and how many.
    counted_since_us: u64,
    counted: usize,
    /// When a mark was put behind what waited in the kernel, if it has not come back.
    marked_us: Option<u64>,
    /// What the kernel has left came after this, by the last mark that has come back.
    passed_us: u64,
    /// Requests answered in this turn.
    answered: u32,
    /// When it refused the first one.
    refused_us: Option<u64>,
    /// What an answer takes.
    answer_us: f64,
    /// When the request came that is judged now, where the kernel says.
    came_us: Option<u64>,
    /// What has begun since somebody asked: how many, and how long they had waited in all.
    begun: u64,
    waited_us: u64,
    /// How the request counts in those three that was checked last.
    last: Option<Counted>,
    /// When one was refused last that is judged by when it came, of a new connection or a stream for instance: more come
    /// than can be served, however few connections there are at one time.
    refused_new_us: Option<u64>,
    /// The loop does what workers would do, and so computes handshakes itself: the time that it takes for one counts for
    /// the request behind it.
    counts_handshakes: bool,
}

/// How a request counts.
#[derive(Clone, Copy, Debug)]
struct Counted {
    answered: u32,
    waited_us: u64,
}

/// By what a request is too old to be answered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TooOld {
    /// By its turn.
    ByTurn,
    /// By when it came, or behind its handshake.
    ByItself,
}

/// A turn that begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TurnBegin {
    pub(crate) now_us: u64,
    /// When the turn before had ended.
    pub(crate) ended_us: u64,
    /// The loop has waited for an event, or might have, so that nothing is older than that.
    pub(crate) has_waited: bool,
    /// There may be more events than were taken.
    pub(crate) is_full: bool,
    /// Events that were taken: one of a connection at most.
    pub(crate) events: usize,
    /// Connections of the loop: no more events wait in the kernel at one time.
    pub(crate) connections: usize,
    /// The mark has come back with these events.
    pub(crate) has_mark: bool,
    /// It goes on with events that the turn before has left.
    pub(crate) is_rest: bool,
}

impl TurnControl {
    pub(crate) fn new(goal: Duration) -> Self {
        Self {
            delay: DelayControl::new(goal),
            retry_after: RetryAfter::new(),
            began_us: 0,
            taken_us: 0,
            oldest_us: 0,
            is_full: false,
            came: Millis(0),
            counted_since_us: 0,
            counted: 0,
            marked_us: None,
            passed_us: 0,
            answered: 0,
            refused_us: None,
            answer_us: 0.0,
            came_us: None,
            begun: 0,
            waited_us: 0,
            last: None,
            refused_new_us: None,
            counts_handshakes: false,
        }
    }

    /// Of a loop that computes handshakes itself.
    pub(crate) fn counting_handshakes(self, counts_handshakes: bool) -> Self {
        Self {
            counts_handshakes,
            ..self
        }
    }

    /// A turn begins.
    pub(crate) fn begin(&mut self, turn: TurnBegin) {
        if !turn.is_rest {
            self.take(turn);
        }
        let has_refused = self.refused_us.is_some();
        self.learn(turn.ended_us);
        self.began_us = turn.now_us;
        let is_recent = |at_us| turn.now_us.saturating_sub(at_us) <= self.delay.onset_us();
        if self.refused_new_us.is_some_and(is_recent) {
            return;
        }
        // A turn that refuses is short for that reason.
        if !has_refused || turn.has_waited {
            self.delay.waited(self.began_us - self.oldest_us);
        }
        // A client waits for its answer before it asks again: with answers as cheap as these, however
        // soon it asks, there is no lasting overload, and refusing would save nothing.
        let all_us = turn.connections as f64 * self.answer_us;
        if all_us > 0.0 && all_us <= (self.delay.goal_us() / ALL_DIVISOR) as f64 {
            self.delay.waited(0);
        }
    }

    /// Events were taken: how old may the oldest of them be?
    fn take(&mut self, turn: TurnBegin) {
        let now_us = turn.now_us;
        let is_last_whole = turn.has_waited || !self.is_full;
        let is_round = self.counted >= turn.connections;
        if turn.has_waited {
            self.oldest_us = now_us;
        } else if !self.is_full {
            self.oldest_us = self.taken_us;
        } else {
            // The kernel's queue is first in, first out: what was in it then has been taken.
            let since_us = if is_round { self.counted_since_us } else { 0 };
            self.oldest_us = self.oldest_us.max(since_us).max(self.passed_us);
        }
        if is_last_whole || is_round {
            self.counted_since_us = now_us;
            self.counted = 0;
        }
        self.counted += turn.events;
        if turn.has_mark
            && let Some(marked_us) = self.marked_us.take()
        {
            self.passed_us = marked_us; // some of the events of this turn were before it
        }
        self.taken_us = now_us;
        self.is_full = turn.is_full;
        self.came = Millis(self.events_came_us() / 1000);
    }

    /// What an answer took in the turn that has ended.
    fn learn(&mut self, ended_us: u64) {
        let until_us = self.refused_us.take().unwrap_or(ended_us);
        let answered = std::mem::take(&mut self.answered);
        if answered > 0 {
            let took_us = until_us.saturating_sub(self.began_us) as f64;
            let answer_us = took_us / f64::from(answered);
            let weight = if self.answer_us == 0.0 { 1.0 } else { WEIGHT };
            self.answer_us += weight * (answer_us - self.answer_us);
        }
    }

    /// Whether to put a mark behind what the kernel has left: it may be old, and no mark is there. To count takes
    /// long where most connections are idle, or busy with long responses.
    pub(crate) fn marks(&mut self) -> bool {
        let age_us = self.taken_us.saturating_sub(self.oldest_us);
        let is_old = age_us > self.delay.goal_us() / MARK_DIVISOR;
        let marks = self.is_full && is_old && self.marked_us.is_none();
        if marks {
            self.marked_us = Some(self.taken_us);
        }
        marks
    }

    /// There were more events than were taken.
    pub(crate) fn has_left_some(&mut self) {
        self.is_full = true;
        self.came = Millis(self.events_came_us() / 1000);
    }

    /// How long ago its events were taken from the kernel.
    pub(crate) fn lasts_us(&self, now_us: u64) -> u64 {
        now_us.saturating_sub(self.taken_us)
    }

    /// Its events came after this.
    pub(crate) fn oldest_us(&self) -> u64 {
        self.oldest_us
    }

    /// What is checked until this is called again came then. `None`: as its turn says.
    pub(crate) fn judge_by(&mut self, came_us: Option<u64>) {
        self.came_us = came_us;
    }

    /// A request is about to be answered. `Err`: it is too old for that, which does not count before it is refused.
    #[inline]
    pub(crate) fn judge(&mut self, now_us: u64, exchange: &Exchange) -> Result<(), TooOld> {
        self.last = None;
        match self.is_by_itself(exchange) {
            true => self.judge_by_itself(now_us, exchange),
            false => self.judge_read(now_us, exchange.handshake),
        }
    }

    /// A request is refused: its client is to come back after this many seconds.
    #[cold]
    pub(crate) fn refuse_too_old(&mut self, now_us: u64, too_old: TooOld) -> u32 {
        match too_old {
            TooOld::ByTurn => self.refuse(now_us),
            TooOld::ByItself => self.refuse_new(now_us),
        }
    }

    /// A request that is too old is answered all the same. It counts only for what an answer takes.
    #[cold]
    pub(crate) fn answers_exempt(&mut self) {
        self.answered += u32::from(self.refused_us.is_none());
    }

    /// The request of a stream that was checked last is not answered yet. If this loop carries it out, it is checked
    /// again before, and counts then.
    pub(crate) fn put_off(&mut self) {
        if self.counts_handshakes
            && let Some(counted) = self.last.take()
        {
            self.answered -= counted.answered;
            self.begun -= 1;
            self.waited_us -= counted.waited_us;
            self.delay.not_begun();
        }
    }

    /// The same as `judge` once more, before what may block: of many requests of a connection, one may have waited for
    /// others since it was judged. `Err`: it is refused, and its client is to come back after this many seconds.
    pub(crate) fn check_again(&mut self, now_us: u64, exchange: &Exchange) -> Result<(), u32> {
        if !exchange.is_multiplexed() {
            return Ok(());
        }
        let judged = self.judge_by_itself(now_us, exchange);
        judged.map_err(|too_old| self.refuse_too_old(now_us, too_old))
    }

    /// Whether it was read in a turn before this one, or its client asks for more without waiting for its response.
    #[inline]
    fn is_by_itself(&self, exchange: &Exchange) -> bool {
        exchange.is_multiplexed() || exchange.ready < self.came
    }

    /// By when it came, whatever its turn is.
    fn judge_by_itself(&mut self, now_us: u64, exchange: &Exchange) -> Result<(), TooOld> {
        let came_us = exchange.ready.0 * 1000;
        let of_connection_us = self.came_us;
        self.came_us = Some(of_connection_us.map_or(came_us, |us| us.min(came_us)));
        let judged = self.judge_read(now_us, exchange.handshake);
        self.came_us = of_connection_us;
        judged
    }

    /// A request that was read in this turn, behind this handshake.
    #[inline]
    fn judge_read(&mut self, now_us: u64, handshake: HandshakeTime) -> Result<(), TooOld> {
        let (mut age_us, mut before_us) = (self.age_us(now_us), 0);
        if self.counts_handshakes {
            age_us = handshake.waited_behind_us(age_us);
            before_us = handshake.counted_us(age_us);
        }
        let kept_us = age_us.saturating_add(before_us);
        if self.came_us.is_some() || before_us > 0 {
            self.judge_arrived(now_us, kept_us)?;
        } else if kept_us > self.delay.accepted_us() {
            return Err(TooOld::ByTurn);
        }
        self.answers(now_us, age_us);
        Ok(())
    }

    /// How old is what is judged now?
    pub(crate) fn age_us(&self, now_us: u64) -> u64 {
        now_us.saturating_sub(self.came_us())
    }

    /// How long has this request waited? It may have been read in an earlier turn.
    pub(crate) fn request_age_us(&self, now_us: u64, exchange: &Exchange) -> u64 {
        let age_us = self.age_us(now_us);
        match exchange.ready < self.came {
            true => age_us.max(now_us.saturating_sub(exchange.ready.0 * 1000)),
            false => age_us,
        }
    }

    /// When did the events of this turn come?
    fn events_came_us(&self) -> u64 {
        // On average one came in the middle of the time; the oldest are reported first.
        match self.is_full {
            true => self.oldest_us,
            false => u64::midpoint(self.oldest_us, self.taken_us),
        }
    }

    /// The same as `came`, in microseconds.
    pub(crate) fn came_us(&self) -> u64 {
        self.came_us.unwrap_or_else(|| self.events_came_us())
    }

    /// When did what is received now come?
    #[inline]
    pub(crate) fn came(&self) -> Millis {
        self.came_us.map_or(self.came, |us| Millis(us / 1000))
    }

    /// As `judge`, for a request of which it is known when it came, or that is behind a handshake: it has waited for so
    /// long in all.
    fn judge_arrived(&mut self, now_us: u64, wait_us: u64) -> Result<(), TooOld> {
        if !self.is_in_time(wait_us) {
            return Err(TooOld::ByItself);
        }
        self.delay.waited_in_no_order(wait_us, now_us);
        Ok(())
    }

    /// Whether what has waited for so long can be answered in time. What takes too long for that may wait all the same,
    /// as before workers: if all were refused, it would never be seen that an answer takes less by now.
    fn is_in_time(&self, wait_us: u64) -> bool {
        let (goal_us, answer_us) = (self.delay.goal_us(), self.answer_us as u64);
        let answered_us = answer_us.saturating_add(goal_us / RESERVE_DIVISOR);
        let longest_us = goal_us.saturating_sub(answered_us).max(goal_us / 2);
        let accepted_us = self.delay.accepted_us().saturating_sub(answered_us);
        wait_us <= longest_us.min(accepted_us.max(answer_us.saturating_mul(2)))
    }

    /// Whether the loop computes handshakes itself, and this turn has lasted for longer than this.
    #[inline]
    pub(crate) fn is_long_with_handshakes(&self, now_us: u64, longer_than_us: u64) -> bool {
        self.counts_handshakes && self.lasts_us(now_us) > longer_than_us
    }

    /// Whether its events may have come longer ago than this, and answers take long.
    #[inline]
    pub(crate) fn is_long_behind(&self, now_us: u64, longer_than_us: u64) -> bool {
        self.answers_take_long() && now_us.saturating_sub(self.oldest_us) > longer_than_us
    }

    /// Whether answers take so long that looking at the kernel and at other events before each of them is nothing
    /// beside that.
    #[inline]
    pub(crate) fn answers_take_long(&self) -> bool {
        self.answer_us >= LONG_ANSWER_US
    }

    /// How long a message of a handshake has waited for this loop that is to be computed now.
    pub(crate) fn handshake_waited_us(&self, now_us: u64) -> u64 {
        match self.counts_handshakes {
            true => self.age_us(now_us),
            false => 0,
        }
    }

    /// Whether a handshake is not to be computed that the server has kept for so long: the request behind it would be
    /// too late.
    pub(crate) fn refuses_handshake(&mut self, now_us: u64, handshake_us: u64) -> bool {
        if !self.counts_handshakes || self.is_in_time(handshake_us) {
            return false;
        }
        self.refuse_new(now_us);
        true
    }

    /// What is answered behind a refusal is not in the time that is learned from.
    fn answers(&mut self, now_us: u64, waited_us: u64) {
        self.delay.begun(now_us);
        let answered = u32::from(self.refused_us.is_none());
        self.answered += answered;
        self.begun += 1;
        self.waited_us += waited_us;
        self.last = Some(Counted {
            answered,
            waited_us,
        });
    }

    /// How many requests have begun since this was called last, and how long they had waited in all.
    pub(crate) fn take_waits(&mut self) -> (u64, u64) {
        let begun = std::mem::take(&mut self.begun);
        (begun, std::mem::take(&mut self.waited_us))
    }

    fn refuse_new(&mut self, now_us: u64) -> u32 {
        self.refused_new_us = Some(now_us);
        self.refuse(now_us)
    }

    #[cold]
    fn refuse(&mut self, now_us: u64) -> u32 {
        self.refused_us.get_or_insert(now_us);
        self.delay.refused(now_us);
        self.retry_after.next_s(now_us, self.answer_us as u64)
    }
}

#[cfg(test)]
mod tests;
