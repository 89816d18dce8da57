//! What a request costs an app that is a queue: the time in which some waited behind many others, divided by what
//! was answered in it.

/// No more than so many goals of that time count: what is older counts for less and less.
const QUEUED_GOALS_MAX: u64 = 16;

/// Without such waits for so many goals, all waits of that time are compared with what is known.
const CALM_GOALS: u64 = 10;

/// Fewer answers say nothing.
const CALM_ANSWERS_MIN: u64 = 64;

/// A request that finds others takes as long as each of them costs, or longer: on average 0.85 of it at least,
/// since the first one may be half done. What is known is refuted where it is larger by this factor.
const REFUTED: f64 = 1.5;

/// What was found out so counts for so many answers.
const REFUTED_COUNT: u64 = 32;

#[derive(Debug)]
pub(super) struct Demand {
    goal_us: u64,
    /// All answers.
    answers: u64,
    /// The time in which requests waited behind many others, and the answers in it.
    queued_us: u64,
    queued_answers: u64,
    /// Until when it has been added up, and how many answers there were then.
    until_us: u64,
    until_answers: u64,
    /// Since the last such wait.
    calm: Calm,
}

/// All answers since a time: how long they took, and how many waited when they began.
#[derive(Debug, Default)]
struct Calm {
    since_us: u64,
    answers: u64,
    took_us: u64,
    numbers: u64,
}

impl Demand {
    pub(super) fn new(goal_us: u64) -> Self {
        Self {
            goal_us,
            answers: 0,
            queued_us: 0,
            queued_answers: 0,
            until_us: 0,
            until_answers: 0,
            calm: Calm::default(),
        }
    }

    pub(super) fn answers(&self) -> u64 {
        self.answers
    }

    /// What is known: a time, and how many answers the app gave in it. Both are 0 if nothing is.
    pub(super) fn queued(&self) -> (u64, u64) {
        (self.queued_us, self.queued_answers)
    }

    /// What a request costs; 0 if it is not known.
    pub(super) fn each_us(&self) -> f64 {
        self.queued_us as f64 / self.queued_answers.max(1) as f64
    }

    /// A request was answered: it took so long, and so many waited when it began, itself included.
    pub(super) fn answered(&mut self, took_us: u64, number: u32, now_us: u64) {
        self.answers += 1;
        self.calm.answers += 1;
        self.calm.took_us = self.calm.took_us.saturating_add(took_us);
        self.calm.numbers += u64::from(number);
        let calm_us = now_us.saturating_sub(self.calm.since_us);
        if calm_us > self.goal_us.saturating_mul(CALM_GOALS) {
            self.compare();
            self.begin_calm(now_us);
        }
    }

    /// The last one of them had waited behind many others since a time, when so many had been answered (modulo
    /// 2^32).
    pub(super) fn was_queued(&mut self, since_us: u64, answers: u32, now_us: u64) {
        // Where waits overlap, the time is added up once.
        let (from_us, new) = match since_us <= self.until_us {
            true => (self.until_us, self.answers - self.until_answers),
            false => {
                let new = (self.answers as u32).wrapping_sub(answers);
                (since_us, u64::from(new))
            }
        };
        self.queued_us += now_us.saturating_sub(from_us);
        self.queued_answers += new;
        if self.queued_us > self.goal_us.saturating_mul(QUEUED_GOALS_MAX) {
            self.queued_us /= 2;
            self.queued_answers /= 2;
        }
        self.until_us = self.until_us.max(now_us);
        self.until_answers = self.answers;
        self.begin_calm(now_us);
    }

    /// It is no queue.
    pub(super) fn forget(&mut self) {
        self.queued_us = 0;
        self.queued_answers = 0;
    }

    fn begin_calm(&mut self, now_us: u64) {
        self.calm = Calm {
            since_us: now_us,
            ..Calm::default()
        };
    }

    /// The app may have become faster, or have stood still for once while it was measured.
    fn compare(&mut self) {
        let calm = &self.calm;
        if calm.answers < CALM_ANSWERS_MIN {
            return;
        }
        let at_most_us = calm.took_us as f64 / calm.numbers.max(1) as f64;
        if self.each_us() > REFUTED * at_most_us {
            self.queued_us = (at_most_us * REFUTED_COUNT as f64) as u64;
            self.queued_answers = REFUTED_COUNT;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOAL_US: u64 = 1_000_000;

    /// So many at once, one answered after the other. The first few have not waited behind many.
    fn queue(demand: &mut Demand, count: u32, each_us: u64, at_us: u64) {
        let before = demand.answers() as u32;
        for number in 1..=count {
            let took_us = u64::from(number) * each_us;
            demand.answered(took_us, number, at_us + took_us);
            if number > 8 {
                demand.was_queued(at_us, before, at_us + took_us);
            }
        }
    }

    /// One after the other, for so many seconds.
    fn calm(demand: &mut Demand, each_us: u64, seconds: u64, at_us: u64) {
        for number in 0..100 * seconds {
            demand.answered(each_us, 1, at_us + number * 10_000);
        }
    }

    #[test]
    fn overlapping_waits_count_once_with_all_that_was_answered_meanwhile() {
        let mut demand = Demand::new(GOAL_US);
        assert_eq!((demand.queued(), demand.each_us()), ((0, 0), 0.0));
        queue(&mut demand, 40, 5_000, 1_000_000);
        assert_eq!(demand.queued(), (200_000, 40));
        // Time without such waits does not count.
        queue(&mut demand, 40, 5_000, 3_000_000);
        assert_eq!(demand.queued(), (400_000, 80));
        assert_eq!(demand.answers(), 80);
        demand.forget();
        assert_eq!(demand.queued(), (0, 0));
    }

    #[test]
    fn what_is_older_counts_for_less() {
        let mut demand = Demand::new(GOAL_US);
        for second in 0..40 {
            queue(&mut demand, 100, 5_000, second * 1_000_000);
        }
        for second in 40..80 {
            queue(&mut demand, 100, 8_000, second * 1_000_000);
        }
        let each_us = demand.each_us();
        assert!((7_500.0..=8_000.0).contains(&each_us), "{each_us}");
        assert!(demand.queued().0 <= 16 * GOAL_US, "{demand:?}");
    }

    #[test]
    fn it_holds_until_shorter_waits_refute_it() {
        let mut demand = Demand::new(GOAL_US);
        queue(&mut demand, 100, 5_000, 0);
        calm(&mut demand, 5_000, 25, 1_000_000);
        assert_eq!(demand.each_us(), 5_000.0);
        // More than one at a time: alone each takes longer than it costs.
        calm(&mut demand, 20_000, 25, 30_000_000);
        assert_eq!(demand.each_us(), 5_000.0);
        calm(&mut demand, 1_000, 25, 60_000_000);
        assert_eq!(demand.each_us(), 1_000.0);
        assert_eq!(demand.queued().1, REFUTED_COUNT);
    }
}
