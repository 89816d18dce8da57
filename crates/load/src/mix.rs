//! Which request comes next, and what its answer has to be.

use std::sync::Arc;

use loadline_proto::Method;
use rand_pcg::Pcg64Mcg;

use crate::Share;
use crate::seed::{self, Purpose};

/// What is expected of an answer. Status and length are checked on every answer, content on a
/// sample.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Expectation {
    /// Statuses that are good; empty: 200 to 299.
    pub statuses: Vec<u16>,
    /// Bytes of content.
    pub length: Option<u64>,
    /// SHA-256 of the content.
    pub sha256: Option<[u8; 32]>,
}

/// A request, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// What it says where the connection stays open.
    pub keep: Arc<[u8]>,
    /// What it says as the last one of its connection.
    pub last: Arc<[u8]>,
    /// Its method: an answer to HEAD has no content.
    pub method: Method,
    /// Index into `Mix::expectations`.
    pub expectation: u32,
    /// Index into `Plan::servers`.
    pub server: u16,
}

impl Prepared {
    /// A GET with no field but Host.
    #[must_use]
    pub fn get(host: &str, path: &str) -> Self {
        let fields = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n");
        Self {
            keep: format!("{fields}\r\n").into_bytes().into(),
            last: format!("{fields}Connection: close\r\n\r\n")
                .into_bytes()
                .into(),
            method: Method::Get,
            expectation: 0,
            server: 0,
        }
    }
}

/// In which order requests are taken.
#[derive(Clone, Debug, PartialEq)]
pub enum MixOrder {
    /// At random, by weight: number `i` is the sum of the weights up to and with that of request `i`.
    /// Strictly increasing.
    Weighted(Vec<f64>),
    /// In turn, as the lines of a replayed log; from the begin again at the end. Indexes into
    /// `Mix::requests`, one for each line.
    InTurn(Arc<[u32]>),
}

/// The requests of a run.
#[derive(Clone, Debug)]
pub struct Mix {
    /// Each different one once.
    pub requests: Vec<Prepared>,
    /// Each different one once.
    pub expectations: Vec<Expectation>,
    /// Which comes when.
    pub order: MixOrder,
}

/// The choices of one thread, repeatable by the seed.
#[derive(Clone, Debug)]
pub struct Chooser(Choice);

#[derive(Clone, Debug)]
enum Choice {
    /// There is only one.
    Only,
    Random {
        generator: Pcg64Mcg,
        total: f64,
    },
    InTurn {
        /// The next line.
        at: usize,
        step: usize,
    },
}

impl Mix {
    /// One request and no other; what is good is said by its status.
    #[must_use]
    pub fn of(request: Prepared) -> Self {
        Self {
            requests: vec![request],
            expectations: vec![Expectation::default()],
            order: MixOrder::Weighted(vec![1.0]),
        }
    }

    /// The method, if all requests have the same.
    #[must_use]
    pub fn method(&self) -> Option<Method> {
        let first = self.requests.first()?.method;
        let is_same = self.requests.iter().all(|one| one.method == first);
        is_same.then_some(first)
    }

    /// The version of HTTP that they name, "1.0" or "1.1", if all name the same.
    #[must_use]
    pub fn http(&self) -> Option<&'static str> {
        let version = |one: &Prepared| {
            let line = one.last.split(|&byte| byte == b'\r').next()?;
            ["1.0", "1.1"]
                .into_iter()
                .find(|version| line.ends_with(format!(" HTTP/{version}").as_bytes()))
        };
        let first = version(self.requests.first()?)?;
        let is_same = self.requests.iter().all(|one| version(one) == Some(first));
        is_same.then_some(first)
    }

    /// The chooser of one share: at random from the seed, or every `share.of`th line of the
    /// sequence, from line `share.index` on.
    #[must_use]
    pub fn chooser(&self, share: Share, seed: u64) -> Chooser {
        let choice = match &self.order {
            MixOrder::Weighted(cumulative) => match cumulative.as_slice() {
                [] | [_] => Choice::Only,
                [.., total] => Choice::Random {
                    generator: seed::generator(seed, Purpose::Choices, share),
                    total: *total,
                },
            },
            MixOrder::InTurn(sequence) if sequence.is_empty() => Choice::Only,
            MixOrder::InTurn(sequence) => Choice::InTurn {
                at: share.index as usize % sequence.len(),
                step: share.of.max(1) as usize % sequence.len(),
            },
        };
        Chooser(choice)
    }
}

impl Chooser {
    /// The index of the next request of `mix`, which has to be the one that made this chooser.
    #[inline]
    pub fn next(&mut self, mix: &Mix) -> u32 {
        match (&mut self.0, &mix.order) {
            (Choice::Random { generator, total }, MixOrder::Weighted(cumulative)) => {
                // Above 0 and at most the total: exactly the last sum that is not below it.
                let drawn = seed::unit_above_zero(generator) * *total;
                let index = cumulative.partition_point(|sum| *sum < drawn);
                index.min(cumulative.len().saturating_sub(1)) as u32
            }
            (Choice::InTurn { at, step }, MixOrder::InTurn(sequence)) => {
                let index = sequence.get(*at).copied().unwrap_or(0);
                *at += *step;
                if *at >= sequence.len() {
                    *at -= sequence.len();
                }
                index
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mix(count: u32, order: MixOrder) -> Mix {
        Mix {
            requests: vec![Prepared::get("a", "/"); count as usize],
            expectations: vec![Expectation::default()],
            order,
        }
    }

    #[test]
    fn requests_come_by_weight() {
        let weights = [5.0, 0.5, 3.0, 1.5];
        let mix = mix(4, MixOrder::Weighted(vec![5.0, 5.5, 8.5, 10.0]));
        let mut chooser = mix.chooser(Share::WHOLE, 7);
        let draws = 100_000;
        let mut counts = [0_u32; 4];
        for _ in 0..draws {
            counts[chooser.next(&mix) as usize] += 1;
        }
        for (count, weight) in counts.iter().zip(weights) {
            let part = weight / 10.0;
            let deviation = (part * (1.0 - part) * f64::from(draws)).sqrt();
            let expected = part * f64::from(draws);
            assert!(
                (f64::from(*count) - expected).abs() < 4.0 * deviation,
                "{counts:?}"
            );
        }
    }

    #[test]
    fn choices_repeat_by_the_seed_and_differ_by_share() {
        let cumulative: Vec<f64> = (1..=100).map(f64::from).collect();
        let mix = mix(100, MixOrder::Weighted(cumulative));
        let drawn = |index, seed| -> Vec<u32> {
            let mut chooser = mix.chooser(Share { index, of: 2 }, seed);
            (0..50).map(|_| chooser.next(&mix)).collect()
        };
        assert_eq!(drawn(0, 1), drawn(0, 1));
        assert_ne!(drawn(0, 1), drawn(1, 1));
        assert_ne!(drawn(0, 1), drawn(0, 2));
    }

    #[test]
    fn shares_take_turns_and_begin_anew_at_the_end() {
        let sequence = [10, 11, 12, 13, 14, 15, 16];
        let mix = mix(17, MixOrder::InTurn(sequence.into()));
        for of in [1, 2, 3, 7, 20] {
            let mut choosers: Vec<Chooser> = (0..of)
                .map(|index| mix.chooser(Share { index, of }, 0))
                .collect();
            for line in 0..100_usize {
                let chooser = &mut choosers[line % of as usize];
                assert_eq!(chooser.next(&mix), sequence[line % 7], "{of} {line}");
            }
        }
    }

    #[test]
    fn one_request_or_none_needs_no_choice() {
        for order in [
            MixOrder::Weighted(vec![2.5]),
            MixOrder::Weighted(vec![]),
            MixOrder::InTurn([].into()),
        ] {
            let mix = mix(1, order);
            assert_eq!(mix.chooser(Share { index: 3, of: 4 }, 1).next(&mix), 0);
        }
    }

    #[test]
    fn method_and_version_are_known_where_all_have_the_same() {
        let mut mix = mix(2, MixOrder::InTurn([0, 1].into()));
        assert_eq!((mix.method(), mix.http()), (Some(Method::Get), Some("1.1")));
        for request in &mut mix.requests {
            request.last = Arc::from(&b"GET /\r HTTP/1.0\r\n\r\n"[..]);
        }
        assert_eq!(mix.http(), None); // not in its first line
        for request in &mut mix.requests {
            request.last = Arc::from(&b"GET / HTTP/1.1\r\nhost: a HTTP/1.0\r\n\r\n"[..]);
        }
        assert_eq!(mix.http(), Some("1.1"));
        mix.requests[1].method = Method::Post;
        mix.requests[1].last = Arc::from(&b"POST / HTTP/1.0\r\n\r\n"[..]);
        assert_eq!((mix.method(), mix.http()), (None, None));
        mix.requests.clear();
        assert_eq!((mix.method(), mix.http()), (None, None));
    }
}
