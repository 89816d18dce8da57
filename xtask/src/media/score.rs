//! What is played: one server with one bounded queue, and clients that become more and more.

use std::collections::VecDeque;

/// Length of the piece.
pub(crate) const SECONDS: f64 = 28.0;
/// Mean time that the server spends on a request.
const SERVICE_SECONDS: f64 = 0.025;
/// Requests per second that the server can answer at most.
pub(crate) const CAPACITY: f64 = 1.0 / SERVICE_SECONDS;
/// Requests that may wait; whoever comes later is refused.
pub(crate) const QUEUE_MAX: usize = 60;

/// The offered rate grows from the first to the second by a constant factor per second ...
const RATE_START: f64 = 2.5;
const RATE_END: f64 = 92.0;
/// ... until most clients leave.
const RUSH_ENDS: f64 = 21.5;
const RATE_AFTER: f64 = 2.5;
/// Nobody comes in the last seconds: the last notes may ring.
const DOORS_CLOSE: f64 = 26.0;

/// One request: when it came, and when it was answered (`None`: refused, since the queue was full).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) came: f64,
    pub(crate) answered: Option<f64>,
}

/// A whole run of the server.
#[derive(Debug)]
pub(crate) struct Score {
    /// In the order of their coming.
    pub(crate) requests: Vec<Request>,
}

/// Requests per second that clients send at `time`.
pub(crate) fn offered_rate(time: f64) -> f64 {
    if time < RUSH_ENDS {
        RATE_START * (RATE_END / RATE_START).powf(time / RUSH_ENDS)
    } else if time < DOORS_CLOSE {
        RATE_AFTER
    } else {
        0.0
    }
}

impl Score {
    /// Poisson arrivals, exponential service times, first come first served.
    pub(crate) fn simulate() -> Self {
        let mut random = Random(0x10AD_11FE);
        let mut requests = Vec::new();
        let mut leaving: VecDeque<f64> = VecDeque::new(); // answer times of those inside
        let mut free_at = 0.0_f64;
        let mut time = 0.4;
        // Thinning: candidates at the highest rate, each kept with the share of the present one.
        while time < DOORS_CLOSE {
            time += random.exponential(1.0 / RATE_END);
            if random.unit() * RATE_END >= offered_rate(time) {
                continue;
            }
            while leaving.front().is_some_and(|&done| done <= time) {
                leaving.pop_front();
            }
            let answered = (leaving.len() <= QUEUE_MAX).then(|| {
                free_at = free_at.max(time) + random.exponential(SERVICE_SECONDS);
                leaving.push_back(free_at);
                free_at
            });
            requests.push(Request {
                came: time,
                answered,
            });
        }
        Self { requests }
    }

    /// Requests that are inside the server at `time`, waiting or being served.
    pub(crate) fn inside(&self, time: f64) -> usize {
        let is_inside = |r: &&Request| r.came <= time && r.answered.is_some_and(|at| at > time);
        self.requests.iter().filter(is_inside).count()
    }
}

/// A small generator (splitmix64) with a fixed seed: every build plays the same piece.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Evenly spread over 0 up to but without 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_overloaded_and_recovers() {
        let score = Score::simulate();
        assert!(
            score.requests.iter().any(|r| r.answered.is_none()),
            "nobody was refused"
        );
        assert!(score.inside(5.0) < 10, "busy before the rush");
        assert!(
            score.inside(RUSH_ENDS) > QUEUE_MAX / 2,
            "no queue at the end of the rush"
        );
        assert!(score.inside(SECONDS - 1.0) == 0, "the queue did not drain");
    }

    #[test]
    fn answers_leave_in_the_order_of_coming() {
        let score = Score::simulate();
        let answered: Vec<f64> = score.requests.iter().filter_map(|r| r.answered).collect();
        assert!(answered.windows(2).all(|pair| pair[0] <= pair[1]));
        assert!(
            score
                .requests
                .iter()
                .all(|r| r.answered.is_none_or(|at| at > r.came))
        );
    }
}
