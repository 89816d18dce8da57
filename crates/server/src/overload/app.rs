//! Whether an app can answer in time: by how long requests wait within it, for a database, a lock or another
//! server, where no queue of the server shows them.
//!
//! In a queue a request waits the longer the more came before it; one that merely sleeps does not. So whenever the
//! number of requests that wait has changed by a good part, their waits are compared with those before. Where these
//! grow with the number, each request costs the next one the same time, and one is refused that would have to wait for
//! too long behind the others. While requests are refused, the number that is accepted goes up and down: where waits
//! do not follow, there is no queue, and nothing is refused any more.

use std::time::Duration;

use super::delay::DelayControl;
use super::retry_after::RetryAfter;
use demand::Demand;
use young::Young;

mod demand;
mod young;

/// Waits and numbers are compared as means of about so many requests.
const SMOOTHED: f64 = 4.0;

/// Two numbers that are compared differ by this factor at least, two that are the same by the other one at most.
const SWING: f64 = 1.4;
const SAME: f64 = 1.05;

/// They are no more than so many goals apart.
const COMPARED_WITHIN: u64 = 10;

/// With fewer requests chance decides.
const NUMBER_MIN: f64 = 8.0;

/// Waits that are shorter than this multiple of the usual ones say nothing: an app that serves several requests at
/// a time has no queue before it serves so many.
const QUEUED: f64 = 1.5;

/// Of the last answers so many were in order, where there is a queue.
const IN_ORDER_MIN: f64 = 0.3;

/// Under lasting overload so many requests are accepted at least, since times vary.
const LASTING_NUMBER: f64 = 12.0;

/// What a request costs is measured behind so much of a long wait.
const MEASURED: f64 = 0.75;

/// What one counts for in means.
const WEIGHT_MIN: f64 = 1.0 / 16.0;

/// So much of the goal is kept in reserve, since waits vary.
const RESERVE_DIVISOR: u64 = 8;

/// The usual wait is the shortest one within so many goals.
const USUAL_WITHIN: u64 = 5;

/// Decides which requests an app takes.
#[derive(Debug)]
pub(crate) struct AppControl {
    delay: DelayControl,
    retry_after: RetryAfter,
    young: Young,
    /// When the latest one of those began to wait that were answered. What began before has been overtaken and
    /// says nothing of a queue.
    overtaken_us: u64,
    /// The part of the answers that were in order.
    in_order: f64,
    usual: Usual,
    recent: Mean,
    compared: Mean,
    growth: Growth,
    /// Whether waits are those of a queue, until the contrary is shown.
    is_queue: bool,
    /// What each request that waits costs the next one, in a queue.
    each_us: f64,
    each_count: u32,
    /// The same as it is measured, for those who want to know what the app can do: `each_us` is low after calm times.
    demand: Demand,
    refused: u64,
}

/// What the app of a mount did with the requests that waited within it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppCounts {
    /// Requests that were answered after a wait.
    pub answered: u64,
    /// Requests that were refused, since they would have waited for too long.
    pub refused: u64,
    /// Where waits are those of a queue: a time in which requests waited behind many others, in microseconds. What is
    /// long ago counts for less. 0: no queue is known.
    pub queued_us: u64,
    /// What was answered in that time.
    pub queued_answers: u64,
}

/// A request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    since_us: u64,
    /// So many waited when it began, itself included.
    number: u32,
    /// So many others had been answered, modulo 2^32.
    answers: u32,
}

impl AppControl {
    pub(crate) fn new(goal: Duration) -> Self {
        let delay = DelayControl::new(goal);
        Self {
            young: Young::new(delay.goal_us()),
            usual: Usual::new(delay.goal_us()),
            demand: Demand::new(delay.goal_us()),
            delay,
            retry_after: RetryAfter::new(),
            overtaken_us: 0,
            in_order: 1.0,
            recent: Mean::default(),
            compared: Mean::default(),
            growth: Growth::new(),
            is_queue: false,
            each_us: 0.0,
            each_count: 0,
            refused: 0,
        }
    }

    pub(crate) fn counts(&self) -> AppCounts {
        let (queued_us, queued_answers) = self.demand.queued();
        AppCounts {
            answered: self.demand.answers(),
            refused: self.refused,
            queued_us,
            queued_answers,
        }
    }

    /// A request begins to wait.
    pub(crate) fn begin(&mut self, now_us: u64) -> Wait {
        self.young.add(now_us);
        Wait {
            since_us: now_us,
            number: self.young.count(now_us),
            answers: self.demand.answers() as u32,
        }
    }

    /// It is answered.
    pub(crate) fn answered(&mut self, wait: Wait, now_us: u64) {
        self.left(wait, now_us);
        let took_us = now_us.saturating_sub(wait.since_us);
        self.demand.answered(took_us, wait.number, now_us);
        let is_in_order = wait.since_us >= self.overtaken_us;
        self.in_order += WEIGHT_MIN * (f64::from(is_in_order) - self.in_order);
        if !is_in_order {
            return;
        }
        self.overtaken_us = wait.since_us;
        self.young.forget_before(wait.since_us);
        self.usual.add(took_us, self.is_queue, now_us);
        self.recent
            .add(took_us, wait.number, now_us, self.delay.goal_us());
        self.compare(now_us);
        self.learn(took_us, wait.number);
        self.measure(wait, took_us, now_us);
        let waited_us = took_us.saturating_sub(self.usual.us);
        self.delay.waited_in_no_order(waited_us, now_us);
    }

    /// It is no longer awaited.
    pub(crate) fn left(&mut self, wait: Wait, now_us: u64) {
        self.young.remove(wait.since_us, now_us);
    }

    /// A request has come, and `admitted` others that do not wait yet: `Some` if it could not be answered in time,
    /// with the seconds after which its client is to come back.
    pub(crate) fn offer(&mut self, admitted: u32, now_us: u64) -> Option<u32> {
        let number = self.young.count(now_us) + admitted + 1;
        let expected_us = self.each_us * f64::from(number);
        if !self.is_queue || number < 2 || expected_us <= self.accepted_us(now_us) as f64 {
            return None;
        }
        self.delay.refused(now_us);
        self.refused += 1;
        Some(self.retry_after.next_s(now_us, self.each_us as u64))
    }

    /// How long a request may take. One that takes three eighths of the goal or more anyway may wait for half of the
    /// goal besides. Under lasting overload it is twice as long every other goal, to see whether waits follow: two are
    /// accepted then, if they can be answered in time, since the number of one never changes.
    fn accepted_us(&self, now_us: u64) -> u64 {
        let goal_us = self.delay.goal_us();
        let lasting_us = self.lasting_us();
        match self.delay.is_lasting() {
            true if (now_us / goal_us).is_multiple_of(2) => lasting_us,
            true => {
                let two_us = (2.0 * self.each_us).ceil() as u64;
                (2 * lasting_us)
                    .min(goal_us - goal_us / 4)
                    .max(two_us.min(goal_us))
            }
            false => {
                (goal_us - goal_us / RESERVE_DIVISOR).max(self.usual.us.saturating_add(goal_us / 2))
            }
        }
    }

    /// How long a request may wait under lasting overload.
    fn lasting_us(&self) -> u64 {
        let some_us = (LASTING_NUMBER * self.each_us) as u64;
        let slow_us = self.usual.us.saturating_mul(3).max(some_us);
        let lasting_us = self.delay.lasting_us().max(slow_us);
        lasting_us.min(self.delay.goal_us() / 2)
    }

    /// Whether waits have followed the number of requests, since it was another one.
    fn compare(&mut self, now_us: u64) {
        let (recent, before) = (self.recent, self.compared);
        let within_us = self.delay.goal_us().saturating_mul(COMPARED_WITHIN);
        let ratio = recent.number / before.number;
        let swing = ratio.max(1.0 / ratio);
        if before.count == 0 || now_us.saturating_sub(before.last_us) > within_us {
            self.compared = recent;
        } else if swing <= SAME {
            self.compared = Mean {
                number: before.number,
                ..recent
            };
        } else if swing >= SWING {
            self.compared = recent;
            if self.says_something(&recent, &before) {
                self.growth.add(&recent, &before, self.is_queue);
                self.conclude();
            }
        }
    }

    /// Few requests or short waits are much the same with a queue and without one.
    fn says_something(&self, one: &Mean, other: &Mean) -> bool {
        let number = one.number.max(other.number);
        let took_us = one.took_us.max(other.took_us);
        match self.is_queue {
            true => number * self.each_us >= self.lasting_us() as f64,
            false => {
                number >= NUMBER_MIN
                    && self.in_order >= IN_ORDER_MIN
                    && took_us >= QUEUED * self.usual.us as f64
            }
        }
    }

    fn conclude(&mut self) {
        if !self.is_queue {
            self.is_queue = self.growth.is_queue();
        } else if self.growth.is_none() {
            self.is_queue = false;
            self.each_count = 0;
            self.growth = Growth::new();
            self.demand.forget();
        }
    }

    /// What each one costs is less than it seems while some of several places are free, so few requests and short
    /// waits do not raise it.
    fn learn(&mut self, took_us: u64, number: u32) {
        let lasting_us = self.lasting_us();
        let known_us = self.each_us * f64::from(number);
        let is_long = took_us >= lasting_us || known_us >= (lasting_us / 2) as f64;
        let is_queued = took_us / 2 >= self.usual.us && (is_long || !self.is_queue);
        let each_us = took_us as f64 / f64::from(number);
        if is_queued || each_us < self.each_us {
            self.each_count = self.each_count.saturating_add(1);
            let weight = (1.0 / f64::from(self.each_count)).max(WEIGHT_MIN);
            self.each_us += weight * (each_us - self.each_us);
        }
    }

    /// Behind so many others that all places are taken. That is known when a request begins to wait: if long waits
    /// were chosen, those times would be that in which the app happens to be slow.
    fn measure(&mut self, wait: Wait, took_us: u64, now_us: u64) {
        let number = f64::from(wait.number);
        let expected_us = number * self.each_us.max(self.demand.each_us());
        let is_behind_many =
            number >= NUMBER_MIN && expected_us >= MEASURED * self.lasting_us() as f64;
        if self.is_queue && is_behind_many && took_us / 2 >= self.usual.us {
            self.demand.was_queued(wait.since_us, wait.answers, now_us);
        }
    }
}

/// The last waits, and how many waited when these began: means.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    count: u32,
    took_us: f64,
    number: f64,
    last_us: u64,
}

impl Mean {
    fn add(&mut self, took_us: u64, number: u32, now_us: u64, stale_us: u64) {
        if now_us.saturating_sub(self.last_us) > stale_us {
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        let weight = 1.0 / f64::from(self.count).min(SMOOTHED);
        self.took_us += weight * (took_us.max(1) as f64 - self.took_us);
        self.number += weight * (f64::from(number) - self.number);
        self.last_us = now_us;
    }
}

/// How waits follow the number of requests: a linear regression, through the origin, of the changes of their
/// logarithms. In a queue its slope is 1; where nothing waits for others it is 0.
#[derive(Debug)]
struct Growth {
    xx: f64,
    xy: f64,
    yy: f64,
}

impl Growth {
    /// What the last comparison counts for.
    const WEIGHT: f64 = 0.4;
    const WEIGHT_IN_QUEUE: f64 = 0.3;

    /// There is a queue from this slope on, with this correlation, and none below the last slope. A steeper slope is
    /// that of an app which has got slower.
    const QUEUE: f64 = 0.4;
    const STEEP: f64 = 1.5;
    const CORRELATION: f64 = 0.8;
    const NO_QUEUE: f64 = 0.25;

    /// As if one comparison had shown no growth.
    fn new() -> Self {
        let xx = SWING.ln() * SWING.ln();
        Self {
            xx,
            xy: 0.0,
            yy: xx / 10.0,
        }
    }

    fn add(&mut self, recent: &Mean, before: &Mean, is_queue: bool) {
        let x = (recent.number / before.number).ln();
        let most = 2.0 * x.abs();
        let y = (recent.took_us / before.took_us).ln().clamp(-most, most);
        let weight = match is_queue {
            true => Self::WEIGHT_IN_QUEUE,
            false => Self::WEIGHT,
        };
        self.xx += weight * (x * x - self.xx);
        self.xy += weight * (x * y - self.xy);
        self.yy += weight * (y * y - self.yy);
    }

    fn slope(&self) -> f64 {
        self.xy / self.xx
    }

    fn is_queue(&self) -> bool {
        let correlation = self.xy / (self.xx * self.yy).sqrt();
        (Self::QUEUE..Self::STEEP).contains(&self.slope()) && correlation > Self::CORRELATION
    }

    fn is_none(&self) -> bool {
        self.slope() < Self::NO_QUEUE
    }
}

/// What a request takes that hardly waits for others: the shortest wait of the last time.
#[derive(Debug)]
struct Usual {
    us: u64,
    /// Of this period.
    next_us: u64,
    since_us: u64,
    period_us: u64,
}

impl Usual {
    fn new(goal_us: u64) -> Self {
        Self {
            us: u64::MAX,
            next_us: u64::MAX,
            since_us: 0,
            period_us: goal_us.saturating_mul(USUAL_WITHIN),
        }
    }

    /// In a queue all may wait: what was known before is kept.
    fn add(&mut self, us: u64, is_queue: bool, now_us: u64) {
        if now_us.saturating_sub(self.since_us) > self.period_us {
            if !is_queue {
                self.us = self.next_us;
            }
            self.next_us = u64::MAX;
            self.since_us = now_us;
        }
        self.us = self.us.min(us);
        self.next_us = self.next_us.min(us);
    }
}

#[cfg(test)]
mod simulation;

#[cfg(test)]
mod tests {
    use super::*;

    const GOAL: Duration = Duration::from_secs(1);

    /// So many requests at once, answered one after the other.
    fn queue(control: &mut AppControl, count: u64, each_us: u64, at_us: u64) {
        let waits: Vec<Wait> = (0..count).map(|_| control.begin(at_us)).collect();
        for (index, wait) in waits.into_iter().enumerate() {
            control.answered(wait, at_us + (index as u64 + 1) * each_us);
        }
    }

    /// So many requests at once, all answered after the same time.
    fn sleep(control: &mut AppControl, count: u64, us: u64, at_us: u64) {
        let waits: Vec<Wait> = (0..count).map(|_| control.begin(at_us)).collect();
        for wait in waits {
            control.answered(wait, at_us + us);
        }
    }

    #[test]
    fn what_waits_grow_by_decides_until_they_do_not() {
        let mut control = AppControl::new(GOAL);
        queue(&mut control, 40, 10_000, 0);
        assert_eq!(control.offer(80, 1_000_000), None, "81 take 0.81 s");
        let seconds = control.offer(120, 1_000_000);
        assert!(seconds.is_some_and(|seconds| (1..=60).contains(&seconds)));
        assert_eq!(control.offer(0, 1_000_000), None, "nothing waits");
        assert!(control.offer(120, 91_000_000).is_some());
        sleep(&mut control, 80, 600_000, 100_000_000);
        assert_eq!(control.offer(100_000, 101_000_000), None);
    }

    #[test]
    fn what_a_request_costs_is_known_as_long_as_there_is_a_queue() {
        let mut control = AppControl::new(GOAL);
        assert_eq!(control.counts(), AppCounts::default());
        queue(&mut control, 40, 10_000, 0);
        let AppCounts {
            answered,
            refused,
            queued_us,
            queued_answers,
        } = control.counts();
        assert_eq!((answered, refused), (40, 0));
        assert!(queued_answers >= 30, "{:?}", control.counts());
        assert_eq!(queued_us, queued_answers * 10_000);
        assert!(control.offer(120, 1_000_000).is_some());
        assert_eq!(control.counts().refused, 1);
        sleep(&mut control, 80, 600_000, 100_000_000);
        let AppCounts {
            answered,
            queued_us,
            ..
        } = control.counts();
        assert_eq!((answered, queued_us), (120, 0));
    }

    #[test]
    fn waits_that_do_not_grow_refuse_nobody() {
        let mut control = AppControl::new(GOAL);
        for number in [1, 4, 16, 64, 256] {
            (0..8).for_each(|_| sleep(&mut control, number, 700_000, 0));
        }
        assert_eq!(control.offer(100_000, 700_000), None);
    }

    #[test]
    fn those_that_were_overtaken_say_nothing_of_a_queue() {
        let mut control = AppControl::new(GOAL);
        queue(&mut control, 40, 100, 0);
        let slow: Vec<Wait> = (0..40).map(|_| control.begin(100_000)).collect();
        queue(&mut control, 40, 100, 110_000);
        for wait in slow {
            control.answered(wait, 900_000);
        }
        assert_eq!(control.offer(2_000, 900_000), None);
    }
}
