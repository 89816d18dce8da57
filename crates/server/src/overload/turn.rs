//! Which requests a loop answers that does the work itself.

use std::time::Duration;

use loadline_proto::HandshakeTime;

use super::delay::DelayControl;
use super::retry_after::RetryAfter;

/// The part of the goal within which all connections of a loop have to be answered, one request each, if
/// no overload is to be seen in them: half, since what an answer costs is known roughly.
const ALL_DIVISOR: u64 = 2;

/// So much of the goal is kept in reserve where it is known when a request came: the kernel counts in ticks of up to
/// 10 ms.
const RESERVE_DIVISOR: u64 = 128;

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
    /// Where turns take less than there is: since when events are counted that were taken, and how many.
    counted_since_us: u64,
    counted: usize,
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
    /// When one of a new connection was refused last: more connections come than can be served, however few there
    /// are at one time.
    refused_new_us: Option<u64>,
    /// The loop computes handshakes itself: the time that it takes for one counts for the request behind it.
    counts_handshakes: bool,
}

/// A turn that begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TurnBegin {
    pub(crate) now_us: u64,
    /// When the turn before had ended.
    pub(crate) ended_us: u64,
    /// The loop has waited for an event, so that nothing is older than that.
    pub(crate) has_waited: bool,
    /// There may be more events than were taken.
    pub(crate) is_full: bool,
    /// Events that were taken.
    pub(crate) events: usize,
    /// Connections of the loop: no more events wait in the kernel at one time.
    pub(crate) connections: usize,
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
            counted_since_us: 0,
            counted: 0,
            answered: 0,
            refused_us: None,
            answer_us: 0.0,
            came_us: None,
            begun: 0,
            waited_us: 0,
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
        if turn.has_waited {
            self.oldest_us = now_us;
        } else if !self.is_full {
            self.oldest_us = self.taken_us;
        } else if self.counted >= turn.connections {
            // The kernel's queue is first in, first out: what was in it then has been taken.
            self.oldest_us = self.counted_since_us;
        }
        if is_last_whole || self.counted >= turn.connections {
            self.counted_since_us = now_us;
            self.counted = 0;
        }
        self.counted += turn.events;
        self.taken_us = now_us;
        self.is_full = turn.is_full;
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

    /// There were more events than were taken.
    pub(crate) fn has_left_some(&mut self) {
        self.is_full = true;
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

    /// A request is about to be answered, behind this handshake. `Err`: it is too old for that, and its client is to
    /// come back after this many seconds.
    #[inline]
    pub(crate) fn check(&mut self, now_us: u64, handshake: HandshakeTime) -> Result<(), u32> {
        let (mut age_us, mut before_us) = (self.age_us(now_us), 0);
        if self.counts_handshakes {
            age_us = handshake.waited_behind_us(age_us);
            before_us = handshake.counted_us(age_us);
        }
        let kept_us = age_us.saturating_add(before_us);
        if self.came_us.is_some() || before_us > 0 {
            self.check_arrived(now_us, kept_us)?;
        } else if kept_us > self.delay.accepted_us() {
            return Err(self.refuse(now_us));
        }
        self.answers(age_us);
        Ok(())
    }

    /// How old is what is judged now?
    pub(crate) fn age_us(&self, now_us: u64) -> u64 {
        // On average an event came in the middle of the time; the oldest are reported first.
        let came_us = match (self.came_us, self.is_full) {
            (Some(came_us), _) => came_us,
            (None, true) => self.oldest_us,
            (None, false) => self.oldest_us / 2 + self.taken_us / 2,
        };
        now_us.saturating_sub(came_us)
    }

    /// As `check`, for a request of which it is known when it came, or that is behind a handshake: it has waited for so
    /// long in all.
    fn check_arrived(&mut self, now_us: u64, wait_us: u64) -> Result<(), u32> {
        if !self.is_in_time(wait_us) {
            return Err(self.refuse_new(now_us));
        }
        self.delay.waited_in_no_order(wait_us, now_us);
        Ok(())
    }

    /// Whether what has waited for so long can be answered in time.
    fn is_in_time(&self, wait_us: u64) -> bool {
        let done_us = wait_us.saturating_add(self.answer_us as u64);
        let reserve_us = self.delay.goal_us() / RESERVE_DIVISOR;
        done_us.saturating_add(reserve_us) <= self.delay.accepted_us()
    }

    /// Whether the loop computes handshakes itself, and this turn has lasted for longer than this.
    #[inline]
    pub(crate) fn is_long_with_handshakes(&self, now_us: u64, longer_than_us: u64) -> bool {
        self.counts_handshakes && self.lasts_us(now_us) > longer_than_us
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
    fn answers(&mut self, waited_us: u64) {
        self.answered += u32::from(self.refused_us.is_none());
        self.begun += 1;
        self.waited_us += waited_us;
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
mod tests {
    use super::*;

    const NONE: HandshakeTime = HandshakeTime {
        kept_us: 0,
        computed_ago_us: 0,
        done_ago_us: 0,
    };

    /// A handshake that was computed before its request came.
    fn kept(kept_us: u64) -> HandshakeTime {
        HandshakeTime {
            kept_us,
            computed_ago_us: u64::MAX,
            done_ago_us: 0,
        }
    }

    /// A turn of a loop with many connections.
    fn at(now_us: u64, has_waited: bool, is_full: bool) -> TurnBegin {
        TurnBegin {
            now_us,
            ended_us: now_us,
            has_waited,
            is_full,
            events: 512,
            connections: 1_000_000,
            is_rest: false,
        }
    }

    #[test]
    fn what_waited_for_longer_than_the_goal_is_refused() {
        let mut turn = TurnControl::new(Duration::from_secs(1));
        turn.begin(at(5_000_000, true, false));
        assert_eq!(turn.check(5_000_000, NONE), Ok(()));
        assert_eq!(turn.check(6_000_000, NONE), Ok(()));
        assert!(turn.check(6_000_001, NONE).is_err());
        // Events of the next turn came while that one lasted.
        turn.begin(at(6_200_000, false, false));
        assert_eq!(turn.check(6_600_000, NONE), Ok(()));
        assert!(turn.check(6_700_000, NONE).is_err());
        turn.begin(at(6_700_000, true, false));
        assert_eq!(turn.check(7_000_000, NONE), Ok(()));
    }

    #[test]
    fn what_begins_has_waited_since_it_came() {
        let mut turn = TurnControl::new(Duration::from_secs(1));
        turn.begin(at(5_000_000, true, false));
        assert_eq!(turn.check(5_000_000, NONE), Ok(()));
        assert_eq!(turn.check(5_010_000, NONE), Ok(()));
        turn.judge_by(Some(4_990_000));
        assert_eq!(turn.check(5_020_000, NONE), Ok(()));
        turn.judge_by(None);
        assert!(turn.check(7_000_000, NONE).is_err());
        assert_eq!(turn.take_waits(), (3, 40_000));
        assert_eq!(turn.take_waits(), (0, 0));
    }

    /// Each new connection had just come, however long it had waited to be accepted: at twice the capacity of a
    /// loop that computes all answers were late, and none was refused.
    #[test]
    fn what_waited_in_the_backlog_is_judged_by_when_it_came() {
        let mut turn = TurnControl::new(Duration::from_secs(1));
        let few = |now_us| TurnBegin {
            connections: 2,
            events: 1,
            ..at(now_us, false, false)
        };
        turn.begin(few(4_000_000));
        turn.begin(few(4_900_000));
        for now_us in (5_000_000..5_300_000).step_by(10_000) {
            turn.begin(few(now_us));
            turn.has_left_some();
            turn.judge_by(Some(now_us - 1_500_000));
            assert!(turn.check(now_us, NONE).is_err());
            turn.judge_by(None);
            assert_eq!(turn.check(now_us, NONE), Ok(()));
        }
        // Overload lasts, though it has few connections at one time.
        turn.begin(few(5_300_000));
        turn.judge_by(Some(5_190_000));
        assert!(turn.check(5_300_000, NONE).is_err());
        turn.judge_by(Some(5_250_000));
        assert_eq!(turn.check(5_300_000, NONE), Ok(()));
        // Until hardly any waits, and none was refused for some time.
        turn.judge_by(Some(5_599_000));
        assert_eq!(turn.check(5_600_000, NONE), Ok(()));
        turn.judge_by(Some(5_100_000));
        assert_eq!(turn.check(5_600_000, NONE), Ok(()));
    }

    /// A handshake and its request each waited for a goal: at twice the capacity of a loop without workers no
    /// response of a new connection over TLS was in time.
    #[test]
    fn what_a_handshake_has_waited_counts_for_its_request() {
        let began = |counts_handshakes| {
            let turn = TurnControl::new(Duration::from_secs(1));
            let mut turn = turn.counting_handshakes(counts_handshakes);
            turn.begin(at(5_000_000, true, false));
            turn
        };
        let mut turn = began(true);
        assert_eq!(turn.handshake_waited_us(5_600_000), 600_000);
        assert!(!turn.refuses_handshake(5_600_000, 600_000));
        assert_eq!(turn.check(5_300_000, kept(600_000)), Ok(()));
        assert_eq!(turn.take_waits(), (1, 300_000)); // the handshake's wait is not the request's
        assert!(turn.check(5_500_000, kept(600_000)).is_err());
        turn.judge_by(Some(4_500_000));
        assert_eq!(turn.handshake_waited_us(5_600_000), 1_100_000);
        assert!(turn.refuses_handshake(5_600_000, 1_100_000));
        // Where workers compute them, their queue is where that is judged.
        let mut turn = began(false);
        assert_eq!(turn.handshake_waited_us(5_600_000), 0);
        assert!(!turn.refuses_handshake(5_600_000, 2_000_000));
        assert_eq!(turn.check(5_500_000, kept(600_000)), Ok(()));
    }

    /// Until the handshake was computed it had counted for that. It counted for the request, too.
    #[test]
    fn what_came_along_with_its_handshake_has_waited_once() {
        let turn = TurnControl::new(Duration::from_secs(1));
        let mut turn = turn.counting_handshakes(true);
        turn.begin(at(5_000_000, true, false));
        let handshake = HandshakeTime {
            kept_us: turn.handshake_waited_us(5_600_000),
            ..NONE
        };
        assert_eq!(turn.check(5_600_000, handshake), Ok(()));
        assert_eq!(turn.take_waits(), (1, 0));
        turn.judge_by(Some(5_000_000));
        let later = |computed_ago_us| HandshakeTime {
            computed_ago_us,
            done_ago_us: computed_ago_us,
            ..handshake
        };
        assert_eq!(turn.check(5_900_000, later(300_000)), Ok(()));
        assert!(turn.check(6_000_000, later(400_000)).is_err());
    }

    /// The loop's own turn counted as time that the client had let pass.
    #[test]
    fn what_a_request_has_waited_for_its_loop_its_client_has_not_rested() {
        let turn = TurnControl::new(Duration::from_secs(1));
        let mut turn = turn.counting_handshakes(true);
        turn.begin(at(5_000_000, true, false));
        let handshake = HandshakeTime {
            done_ago_us: 700_000,
            ..kept(400_000)
        };
        turn.judge_by(Some(5_600_000));
        assert_eq!(turn.check(5_700_000, handshake), Ok(()), "it has rested");
        turn.judge_by(None);
        assert!(turn.check(5_700_000, handshake).is_err());
    }

    /// A turn that refused none ended the overload: clients whose handshakes have a turn of their own waited for the
    /// whole goal then.
    #[test]
    fn overload_lasts_while_new_connections_are_refused_though_not_in_each_turn() {
        let mut turn = TurnControl::new(Duration::from_secs(1));
        let few = |now_us| TurnBegin {
            connections: 2,
            ..at(now_us, false, false)
        };
        turn.begin(few(4_990_000));
        for now_us in (5_000_000..5_400_000).step_by(20_000) {
            turn.begin(few(now_us));
            turn.judge_by(Some(now_us - 1_500_000));
            assert!(turn.check(now_us, NONE).is_err());
            turn.judge_by(None);
            turn.begin(few(now_us + 10_000));
        }
        turn.begin(few(5_400_000));
        turn.judge_by(Some(5_280_000));
        assert!(turn.check(5_400_000, NONE).is_err());
    }

    /// A new connection in each turn kept a loop in lasting overload for good.
    #[test]
    fn new_connections_that_are_in_time_change_nothing_for_others() {
        let mut turn = TurnControl::new(Duration::from_secs(1));
        let begin = |now_us| TurnBegin {
            connections: 500,
            ..at(now_us, false, false)
        };
        turn.begin(begin(0));
        turn.begin(begin(1_000));
        for _ in 0..64 {
            assert_eq!(turn.check(1_000, NONE), Ok(()));
        }
        turn.begin(begin(13_800)); // 0.2 ms each
        turn.begin(begin(1_500_000));
        for now_us in (2_600_000..2_900_000).step_by(20_000) {
            assert!(turn.check(now_us, NONE).is_err());
        }
        turn.begin(begin(2_900_000));
        turn.judge_by(Some(2_880_000));
        assert_eq!(turn.check(2_900_000, NONE), Ok(()));
        turn.judge_by(None);
        turn.begin(begin(2_967_000));
        assert_eq!(
            turn.check(3_060_000, NONE),
            Ok(()),
            "160 ms are no overload"
        );
    }

    #[test]
    fn under_lasting_overload_turns_become_short() {
        let mut turn = TurnControl::new(Duration::from_secs(1));
        turn.begin(at(0, true, false));
        turn.begin(at(1, false, false));
        for now_us in (1_000_100..1_300_000).step_by(50_000) {
            assert!(turn.check(now_us, NONE).is_err());
        }
        turn.begin(at(1_300_000, false, false));
        assert!(turn.check(1_300_000, NONE).is_err(), "from a turn of 1.3 s");
        turn.begin(at(1_301_000, false, false));
        assert_eq!(turn.check(1_380_000, NONE), Ok(()));
        assert!(turn.check(1_402_000, NONE).is_err());
        // Nothing waits any more.
        turn.begin(at(1_410_000, true, false));
        assert_eq!(turn.check(2_400_000, NONE), Ok(()));
    }

    #[test]
    fn events_that_did_not_fit_into_a_turn_are_as_old_as_the_first_of_them() {
        let mut turn = TurnControl::new(Duration::from_secs(1));
        turn.begin(at(0, true, true));
        turn.begin(at(900_000, false, true));
        assert_eq!(turn.check(1_000_000, NONE), Ok(()));
        assert!(turn.check(1_000_001, NONE).is_err());
        turn.begin(at(1_100_000, false, false));
        assert_eq!(turn.check(1_500_000, NONE), Ok(()), "the last of them");
        turn.begin(at(1_600_000, false, false));
        assert_eq!(turn.check(2_300_000, NONE), Ok(()));
    }

    #[test]
    fn what_came_while_a_batch_was_worked_off_is_as_old_as_the_batch() {
        let mut turn = TurnControl::new(Duration::from_secs(1));
        turn.begin(at(0, true, false));
        turn.begin(TurnBegin {
            is_rest: true,
            ..at(500_000, false, false)
        });
        assert_eq!(turn.lasts_us(600_000), 600_000);
        assert_eq!(turn.check(900_000, NONE), Ok(()));
        turn.begin(at(1_000_000, false, false));
        assert_eq!(
            turn.check(1_500_000, NONE),
            Ok(()),
            "half a second old when it was taken"
        );
        assert!(turn.check(1_500_001, NONE).is_err());
    }

    /// Clients that ask again as soon as they are answered, more of them than a turn takes events.
    fn closed_loop(turn: &mut TurnControl, from_us: u64, turns: u64, answer_us: u64) -> (u64, u64) {
        let (mut now_us, mut refused) = (from_us, 0);
        for _ in 0..turns {
            turn.begin(TurnBegin {
                connections: 10_000,
                ..at(now_us, false, true)
            });
            for _ in 0..512 {
                match turn.check(now_us, NONE) {
                    Ok(()) => now_us += answer_us,
                    Err(_) => {
                        refused += 1;
                        now_us += 5;
                    }
                }
            }
        }
        (now_us, refused)
    }

    #[test]
    fn turns_that_are_full_for_long_do_not_make_what_they_bring_older() {
        let mut turn = TurnControl::new(Duration::from_secs(1));
        turn.begin(at(0, true, true));
        let (ended_us, refused) = closed_loop(&mut turn, 10, 2_000, 10);
        assert!(ended_us > 10_000_000);
        assert_eq!(refused, 0, "each waits for 100 ms");
        // What takes so long that 10,000 of them cannot be answered in a second is refused.
        let (_, refused) = closed_loop(&mut turn, ended_us, 2_000, 200);
        assert!(refused > 0);
    }

    #[test]
    fn a_pause_does_not_make_an_overload_of_many_cheap_requests() {
        let mut turn = TurnControl::new(Duration::from_secs(1));
        turn.begin(at(0, true, true));
        let (mut now_us, _) = closed_loop(&mut turn, 10, 100, 10);
        for _ in 0..20 {
            now_us += 1_100_000; // the machine stands still
            now_us = closed_loop(&mut turn, now_us, 40, 10).0;
        }
        let (now_us, _) = closed_loop(&mut turn, now_us, 40, 10);
        let (_, refused) = closed_loop(&mut turn, now_us, 2_000, 10);
        assert_eq!(refused, 0);
    }
}
