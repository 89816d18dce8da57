//! How long requests take, counted in buckets by the thread that serves them.
//!
//! From when the request came, as far as the server knows that when its head is complete, to the turn in which the
//! response was encoded (or, with a file in it, was handed to the kernel). The clock is read at the beginning and at
//! the end of a turn of the loop. So a request that is answered in the turn in which it was read counts until the end
//! of that turn: somewhat too long. One that is answered in a later turn counts until the beginning of that turn:
//! somewhat too short.
//!
//! An addition takes no lock, and once a bucket's table exists, no memory.

use core::fmt;
use std::sync::OnceLock;

use loadline_base::Counter;

use crate::Exchange;

/// Listeners that are counted apart; the last one stands for all further ones.
pub const LISTENERS_MEASURED: usize = 4;

/// Mounts that are counted apart; the last one stands for all further ones.
pub const MOUNTS_MEASURED: usize = 4;

pub use crate::exchange::UNMEASURED;

const SERIES: usize = LISTENERS_MEASURED * MOUNTS_MEASURED;

/// Times at which the requests of one turn came, and their series, that are kept apart until the turn ends: mostly all
/// of a turn have come at one time, and are of one series.
const KINDS_MAX: usize = 16;

/// Buckets of equal width in each power of two: a value is known to within an eighth.
const PARTS: usize = 8;
const PARTS_BITS: u32 = PARTS.ilog2();

/// What takes longer than 2^27 us, two minutes, is in the last bucket: the limits of connections end
/// most requests before.
const EXPONENT_MAX: u32 = 27;

/// Buckets of a histogram.
pub const BUCKETS: usize = (EXPONENT_MAX - PARTS_BITS + 1) as usize * PARTS + 1;

/// Times in microseconds. One writer.
pub struct Histogram {
    buckets: [Counter; BUCKETS],
    sum_us: Counter,
}

/// A histogram's counts at one moment, or their sum over threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramCounts {
    /// By bucket.
    pub buckets: Vec<u64>,
    /// All times together.
    pub sum_us: u64,
}

/// The latencies of one serving thread.
#[derive(Debug, Default)]
pub struct Latencies {
    /// When the present turn began.
    now_us: Counter,
    /// How long what is received now had waited before, about.
    waited_us: Counter,
    /// Responses to requests that were read in the present turn, and how many of these are in use.
    same_turn: [SameTurn; KINDS_MAX],
    kinds: Counter,
    series: [OnceLock<Box<Histogram>>; SERIES],
}

/// Responses of one series, to requests that have come at one time.
#[derive(Debug, Default)]
struct SameTurn {
    series: Counter,
    came_us: Counter,
    count: Counter,
}

/// Which request, when it came, and when its head was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    came_us: u64,
    began_us: u64,
    series: u8,
}

impl Timing {
    pub(crate) fn of(exchange: &Exchange) -> Option<Self> {
        if exchange.mount == UNMEASURED {
            return None;
        }
        let listener = (exchange.listener as usize).min(LISTENERS_MEASURED - 1);
        let mount = usize::from(exchange.mount).min(MOUNTS_MEASURED - 1);
        Some(Self {
            came_us: exchange.came_us,
            began_us: exchange.began_us,
            series: (listener * MOUNTS_MEASURED + mount) as u8,
        })
    }
}

impl Latencies {
    /// A turn begins. What is received in it has not waited, unless `has_waited` says so.
    #[inline]
    pub fn begin_turn(&self, now_us: u64) {
        self.settle(now_us);
        self.now_us.set(now_us);
        self.waited_us.set(0);
    }

    /// What is received from now on had waited for so long when the turn began, about, until this is called again.
    #[inline]
    pub fn has_waited(&self, us: u64) {
        self.waited_us.set(us);
    }

    /// A turn ends; to be called before waiting.
    #[inline]
    pub fn settle(&self, now_us: u64) {
        if self.kinds.value() != 0 {
            self.settle_kinds(now_us);
        }
    }

    fn settle_kinds(&self, now_us: u64) {
        for kind in self.kinds_in_use() {
            let took_us = now_us.saturating_sub(kind.came_us.value());
            let histogram = self.histogram(kind.series.value() as usize);
            histogram.add(took_us, kind.count.value());
        }
        self.kinds.set(0);
    }

    fn kinds_in_use(&self) -> impl Iterator<Item = &SameTurn> {
        self.same_turn.iter().take(self.kinds.value() as usize)
    }

    /// When the present turn began.
    #[inline]
    pub(crate) fn now_us(&self) -> u64 {
        self.now_us.value()
    }

    /// How long what is received now had waited before.
    #[inline]
    pub(crate) fn waited_us(&self) -> u64 {
        self.waited_us.value()
    }

    /// A response is complete.
    #[inline]
    pub(crate) fn record(&self, timing: Timing) {
        let now_us = self.now_us.value();
        if timing.began_us == now_us && self.is_kept_for_its_end(timing) {
            return;
        }
        let took_us = now_us.saturating_sub(timing.came_us);
        self.histogram(usize::from(timing.series)).add(took_us, 1);
    }

    /// A request was read in this turn: it counts when that ends, if there is room for its kind.
    #[inline]
    fn is_kept_for_its_end(&self, timing: Timing) -> bool {
        let (series, came_us) = (u64::from(timing.series), timing.came_us);
        let is_alike =
            |kind: &&SameTurn| kind.came_us.value() == came_us && kind.series.value() == series;
        if let Some(kind) = self.kinds_in_use().find(is_alike) {
            kind.count.add(1);
            return true;
        }
        let Some(kind) = self.same_turn.get(self.kinds.value() as usize) else {
            return false;
        };
        kind.series.set(series);
        kind.came_us.set(came_us);
        kind.count.set(1);
        self.kinds.add(1);
        true
    }

    fn histogram(&self, series: usize) -> &Histogram {
        self.series[series].get_or_init(Box::default)
    }

    /// Adds the counts to those of other threads: one entry for each listener and mount that was used.
    pub fn add_to(&self, all: &mut Vec<(usize, usize, HistogramCounts)>) {
        for (index, series) in self.series.iter().enumerate() {
            let Some(histogram) = series.get() else {
                continue;
            };
            let (listener, mount) = (index / MOUNTS_MEASURED, index % MOUNTS_MEASURED);
            let known = all
                .iter_mut()
                .find(|(of, at, _)| (*of, *at) == (listener, mount));
            match known {
                Some((_, _, counts)) => histogram.add_to(counts),
                None => {
                    let mut counts = HistogramCounts::default();
                    histogram.add_to(&mut counts);
                    all.push((listener, mount, counts));
                }
            }
        }
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: core::array::from_fn(|_| Counter::default()),
            sum_us: Counter::default(),
        }
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Histogram")
    }
}

impl Histogram {
    /// Counts `count` times of `us`.
    #[inline]
    pub fn add(&self, us: u64, count: u64) {
        self.buckets[bucket(us)].add(count);
        self.sum_us.add(us.saturating_mul(count));
    }

    /// Adds the counts to those of other threads.
    pub fn add_to(&self, counts: &mut HistogramCounts) {
        for (to, from) in counts.buckets.iter_mut().zip(&self.buckets) {
            *to += from.value();
        }
        counts.sum_us = counts.sum_us.wrapping_add(self.sum_us.value());
    }
}

impl Default for HistogramCounts {
    fn default() -> Self {
        Self {
            buckets: vec![0; BUCKETS],
            sum_us: 0,
        }
    }
}

impl HistogramCounts {
    /// How many times were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// What was counted since an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let pairs = self.buckets.iter().zip(&earlier.buckets);
        Self {
            buckets: pairs.map(|(now, then)| now.saturating_sub(*then)).collect(),
            sum_us: self.sum_us.wrapping_sub(earlier.sum_us),
        }
    }

    /// Adds the counts of another.
    pub fn add(&mut self, other: &Self) {
        for (to, from) in self.buckets.iter_mut().zip(&other.buckets) {
            *to += from;
        }
        self.sum_us = self.sum_us.wrapping_add(other.sum_us);
    }

    /// The time that this share of all takes at most, in microseconds: the end of its bucket. `None`:
    /// nothing was counted.
    #[must_use]
    pub fn quantile_us(&self, share: f64) -> Option<u64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = ((share * count as f64).ceil() as u64).clamp(1, count);
        let mut seen = 0;
        let found = self.buckets.iter().position(|bucket| {
            seen += bucket;
            seen >= rank
        });
        found.map(end_us)
    }

    /// How many took about so many microseconds: the middle of each bucket, and its count.
    pub fn times_us(&self) -> impl Iterator<Item = (u64, u64)> {
        let middle_us = |index| u64::midpoint(begin_us(index), end_us(index) - 1);
        let buckets = self.buckets.iter().enumerate();
        buckets.map(move |(index, count)| (middle_us(index), *count))
    }

    /// Buckets that are not empty: the end of each in microseconds, and its count.
    pub fn filled_buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let filled = self.buckets.iter().enumerate().filter(|(_, n)| **n > 0);
        filled.map(|(index, count)| (end_us(index), *count))
    }

    /// The squared coefficient of variation: 0 if all times are equal, 1 if they are exponential.
    #[must_use]
    pub fn scv(&self) -> Option<f64> {
        let count = self.count() as f64;
        let middle = |index: usize| f64::midpoint(begin_us(index) as f64, end_us(index) as f64);
        let weighted = |power: i32| -> f64 {
            let buckets = self.buckets.iter().enumerate();
            let terms = buckets.map(|(index, n)| *n as f64 * middle(index).powi(power));
            terms.sum::<f64>() / count
        };
        let (mean, square) = (weighted(1), weighted(2));
        (count > 1.0 && mean > 0.0).then(|| (square / (mean * mean) - 1.0).max(0.0))
    }

    /// How many took less than each power of two microseconds, from 2^`first` on, every `step`th; the
    /// last one with all of them is not among them.
    pub fn below_powers(&self, first: u32, step: usize) -> impl Iterator<Item = (u64, u64)> {
        let powers = (first..=EXPONENT_MAX).step_by(step);
        powers.map(|power| {
            let end = bucket(1 << power);
            (1 << power, self.buckets[..end].iter().sum())
        })
    }
}

/// The bucket of a time.
#[inline]
fn bucket(us: u64) -> usize {
    if us < PARTS as u64 {
        return us as usize;
    }
    let exponent = us.ilog2();
    if exponent >= EXPONENT_MAX {
        return BUCKETS - 1;
    }
    let part = (us >> (exponent - PARTS_BITS)) as usize & (PARTS - 1);
    (exponent - PARTS_BITS + 1) as usize * PARTS + part
}

/// The least time of a bucket.
fn begin_us(bucket: usize) -> u64 {
    if bucket < PARTS {
        return bucket as u64;
    }
    let exponent = (bucket / PARTS) as u32 + PARTS_BITS - 1;
    (PARTS + bucket % PARTS) as u64 * (1 << (exponent - PARTS_BITS))
}

/// The end of a bucket: the least time of the next one.
fn end_us(bucket: usize) -> u64 {
    begin_us((bucket + 1).min(BUCKETS - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_have_no_gap_and_are_an_eighth_wide() {
        for us in (0..5_000).chain((1 << 20)..(1 << 20) + 5_000) {
            let index = bucket(us);
            assert!(begin_us(index) <= us && us < end_us(index), "{us}: {index}");
            let width = end_us(index) - begin_us(index);
            assert!(width == 1 || width * 8 <= us, "{us}: {width}");
        }
        assert_eq!(bucket((1 << 27) - 1), BUCKETS - 2);
        for us in [1 << 27, u64::MAX] {
            assert_eq!(bucket(us), BUCKETS - 1);
        }
    }

    #[test]
    fn quantiles_and_powers() {
        let histogram = Histogram::default();
        histogram.add(10, 90);
        histogram.add(1_000, 9);
        histogram.add(1_000_000, 1);
        let mut counts = HistogramCounts::default();
        assert_eq!(counts.quantile_us(0.5), None);
        histogram.add_to(&mut counts);
        assert_eq!((counts.count(), counts.sum_us), (100, 1_009_900));
        assert_eq!(counts.quantile_us(0.5), Some(11));
        assert_eq!(counts.quantile_us(0.99), Some(1024));
        let last = counts.quantile_us(0.999).unwrap();
        assert!((1_000_000..1_125_000).contains(&last), "{last}");
        let times: Vec<_> = counts.times_us().filter(|(_, count)| *count > 0).collect();
        let [ten, thousand, million] = times[..] else {
            panic!("{times:?}");
        };
        assert_eq!((ten, thousand), ((10, 90), (991, 9)));
        assert!(million.0.abs_diff(1_000_000) < 125_000 && million.1 == 1);
        let below: Vec<_> = counts.below_powers(4, 6).collect();
        assert_eq!(below, [(16, 90), (1024, 99), (65536, 99), (4_194_304, 100)]);
        let filled: Vec<_> = counts.filled_buckets().collect();
        assert_eq!(filled, [(11, 90), (1024, 9), (last, 1)]);
        let twice = {
            let mut twice = counts.clone();
            twice.add(&counts);
            twice
        };
        assert_eq!(twice.since(&counts), counts);
    }

    #[test]
    fn variation() {
        let of = |times: &[(u64, u64)]| {
            let histogram = Histogram::default();
            times
                .iter()
                .for_each(|(us, count)| histogram.add(*us, *count));
            let mut counts = HistogramCounts::default();
            histogram.add_to(&mut counts);
            counts.scv()
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[(5_000, 10)]), Some(0.0));
        // Half at nothing, half at twice the mean.
        let scv = of(&[(1, 1000), (100_000, 1000)]).unwrap();
        assert!((scv - 1.0).abs() < 0.01, "{scv}");
    }

    fn exchange(began_us: u64, listener: u32, mount: u8) -> Exchange {
        Exchange {
            came_us: began_us,
            began_us,
            listener,
            mount,
            ..Exchange::default()
        }
    }

    #[test]
    fn a_turn_counts_until_its_end_and_an_earlier_request_until_its_beginning() {
        let latencies = Latencies::default();
        latencies.begin_turn(1_000);
        let now = Timing::of(&exchange(1_000, 0, 0)).unwrap();
        latencies.record(now);
        latencies.record(now);
        latencies.record(Timing::of(&exchange(900, 0, 1)).unwrap());
        latencies.settle(1_005);
        latencies.begin_turn(9_000); // waiting is no part of it
        latencies.record(Timing::of(&exchange(1_000, 9, 200)).unwrap());
        let mut all = Vec::new();
        latencies.add_to(&mut all);
        let seen: Vec<_> = all
            .iter()
            .map(|(listener, mount, counts)| (*listener, *mount, counts.count(), counts.sum_us))
            .collect();
        assert_eq!(seen, [(0, 0, 2, 10), (0, 1, 1, 100), (3, 3, 1, 8_000)]);
        assert_eq!(Timing::of(&exchange(0, 0, UNMEASURED)), None);
    }

    /// The count and the sum of all series.
    fn counted(latencies: &Latencies) -> (u64, u64) {
        let mut all = Vec::new();
        latencies.add_to(&mut all);
        let counts = all.iter().map(|(_, _, counts)| counts);
        counts.fold((0, 0), |sum, it| (sum.0 + it.count(), sum.1 + it.sum_us))
    }

    #[test]
    fn what_had_waited_before_its_turn_counts_with_the_wait_and_until_the_end_of_the_turn() {
        let latencies = Latencies::default();
        let had_waited = |us: u64| {
            let exchange = Exchange {
                came_us: 9_000 - us,
                ..exchange(9_000, 0, 0)
            };
            latencies.record(Timing::of(&exchange).unwrap());
        };
        latencies.begin_turn(9_000);
        for us in [0, 700, 0, 700, 20] {
            had_waited(us);
        }
        assert_eq!(counted(&latencies), (0, 0));
        latencies.begin_turn(9_050);
        assert_eq!(counted(&latencies), (5, 5 * 50 + 1_420));
        had_waited(700); // answered in a later turn than it was read in
        assert_eq!(counted(&latencies), (6, 5 * 50 + 1_420 + 750));
    }

    #[test]
    fn no_response_is_lost_of_a_turn_with_many_kinds() {
        let (latencies, count) = (Latencies::default(), 2 * KINDS_MAX as u64);
        latencies.begin_turn(9_000);
        for waited_us in 0..count {
            let exchange = Exchange {
                came_us: 9_000 - waited_us,
                ..exchange(9_000, 0, 0)
            };
            latencies.record(Timing::of(&exchange).unwrap());
        }
        latencies.settle(9_100);
        let waits_us: u64 = (0..count).sum();
        let in_turn_us = 100 * KINDS_MAX as u64;
        assert_eq!(counted(&latencies), (count, waits_us + in_turn_us));
    }
}
