//! P5: thread per connection against one event loop.

use std::collections::BTreeMap;

use loadline_capacity::stats::{self, Interval, Range};
use loadline_lab::analysis::{Measured, Metric};
use loadline_lab::report::Verdict;

use super::evidence::Evidence;
use super::finding::{Bound, ClaimFinding, Row, number};
use super::select::Select;

const THREADS: &str = "threads";
const LOOP: &str = "event-loop";
/// A rate is carried if so much of what is offered is answered well: the knee of saturation.
const CARRIED_SHARE: f64 = 0.99;
/// The bend of the loop over that of the threads: 1500 over 1300 to 1000.
const LATER: Bound = Bound::Within(1.15, 1.5);
const END_PER_S: f64 = 2500.0;
/// What the paper's loop answers more of.
const LOOP_PER_S: f64 = 1000.0;
/// Where a bend is known to lie below the lowest rate, or above the highest, it lies between these: a
/// terabyte a second is more than any machine's memory carries.
const ANYWHERE_PER_S: (f64, f64) = (1.0, 1e6);
/// Up to this rate, rates are modest.
const MODEST_PER_S: f64 = 500.0;
const APACHE_PER_S: f64 = 4000.0;
/// "Some decrease in performance" is to keep so much.
const KEPT_SHARE: f64 = 0.8;

fn server(name: &'static str) -> Select {
    Select::series("rates").is("server", name)
}

fn at(name: &'static str, rate_per_s: f64) -> Select {
    server(name).is("rate_per_s", rate_per_s)
}

pub(super) fn rows(evidence: &Evidence<'_>) -> Vec<Row> {
    let knee = |name, published| Bends::new(evidence, name)?.beside(evidence, published);
    let fails = |name| {
        let failed = |trial: &Measured| trial.value(Metric::ErrorShare);
        let measured = evidence.mean(&failed, &at(name, END_PER_S))?;
        let what = format!("{name}: share of requests that fail at 2500/s");
        Ok(ClaimFinding::not_comparable(&what, measured, "all"))
    };
    let ratio = |of, bound, published| bends_ratio(evidence, of, bound, published);
    vec![
        Row::new(
            "Threads win: they carry more than the event loop (the authors' hypothesis).",
            ratio([THREADS, LOOP], Bound::AtLeast(1.0), "0.67 to 0.87"),
        ),
        Row::new(
            "The event loop bends later than the threads (results).",
            ratio([LOOP, THREADS], Bound::AtLeast(1.0), "1.15 to 1.5"),
        ),
        Row::new(
            "It bends at 1.15 to 1.5 times the rate at which threads do (results: 1500 over 1300 to 1000).",
            ratio([LOOP, THREADS], LATER, "1.15 to 1.5"),
        ),
        Row::new(
            "Threads bend at 1000 to 1300 requests a second (results).",
            knee(THREADS, "1000 to 1300/s"),
        ),
        Row::new(
            "The event loop bends at about 1500 requests a second (results).",
            knee(LOOP, "1500/s"),
        ),
        Row::new(
            "Threads fail at 2500 requests a second (results).",
            fails(THREADS),
        ),
        Row::new(
            "The event loop fails at 2500 requests a second (results).",
            fails(LOOP),
        ),
        Row::new(
            "The event loop answers more than 1000 requests a second (results).",
            over_1000(evidence),
        ),
        Row::new(
            "Apache goes on at 4000 requests a second and beyond, with some decrease (results).",
            apache_goes_on(evidence),
        ),
        Row::new(
            "Up to modest rates the event loop is faster than nginx (results).",
            faster(evidence, "nginx"),
        ),
        Row::new(
            "Up to modest rates the event loop is faster than Apache (results).",
            faster(evidence, "apache"),
        ),
    ]
}

/// Where a server bends in each block.
struct Bends {
    name: &'static str,
    /// Between the highest rate up to which every rate was carried, and the lowest of which some was
    /// lost. The value is the former.
    by_block: BTreeMap<u32, Range>,
    /// Blocks in which every rate that counts was carried.
    without: usize,
    /// The highest rate that counts.
    highest_per_s: f64,
    /// Why higher ones do not.
    limit: String,
}

impl Bends {
    fn new(evidence: &Evidence<'_>, name: &'static str) -> Result<Self, String> {
        let select = server(name);
        let mut shares: BTreeMap<u32, BTreeMap<u64, f64>> = BTreeMap::new();
        for rate in evidence.numbers(&select, "rate_per_s") {
            for trial in evidence.trials(&at(name, rate)) {
                let good = trial.value(Metric::GoodPerS).unwrap_or_default();
                // Whole numbers in a plan.
                let of_block = shares.entry(trial.block).or_default();
                of_block.insert(rate as u64, good / rate);
            }
        }
        let rates = shares.values().flat_map(BTreeMap::keys);
        let highest_per_s = rates
            .max()
            .copied()
            .ok_or_else(|| evidence.missing(&select))? as f64;
        let mut bends = Self {
            name,
            by_block: BTreeMap::new(),
            without: 0,
            highest_per_s,
            limit: match evidence.numbers(&select, "rate_per_s").last() {
                Some(last) if *last > highest_per_s => evidence.missing(&at(name, *last)),
                _ => "No higher one was asked for.".to_owned(),
            },
        };
        for (block, of_block) in shares {
            let is_lost = |share: &f64| *share < CARRIED_SHARE;
            let lost = of_block.iter().find(|(_, share)| is_lost(share));
            bends.without += usize::from(lost.is_none());
            let below = match lost {
                None => of_block.last_key_value(),
                Some((lost, _)) => of_block.range(..lost).next_back(),
            };
            let low = below.map_or(ANYWHERE_PER_S.0, |(rate, _)| *rate as f64);
            let bend = Range {
                low,
                value: low,
                high: lost.map_or(ANYWHERE_PER_S.1, |(rate, _)| *rate as f64),
            };
            bends.by_block.insert(block, bend);
        }
        Ok(bends)
    }

    fn unseen(&self) -> String {
        format!(
            "{}: no bend is seen up to {}/s, the highest rate that counts. {}",
            self.name,
            number(self.highest_per_s),
            self.limit
        )
    }

    /// Of how many blocks it is at least the rate that is reported.
    fn note(&self) -> String {
        match self.without {
            0 => String::new(),
            count => format!(
                " ({}: in {count} of {} runs none was lost, and it is more)",
                self.name,
                self.by_block.len()
            ),
        }
    }

    /// Beside the paper's.
    fn beside(&self, evidence: &Evidence<'_>, published: &str) -> Result<ClaimFinding, String> {
        let rates: Vec<f64> = self.by_block.values().map(|bend| bend.value).collect();
        let measured = stats::center(&rates, evidence.level).ok_or_else(|| self.unseen())?;
        let what = format!(
            "{}: highest rate of which 99 % is answered well{}",
            self.name,
            self.note()
        );
        Ok(ClaimFinding::not_comparable(&what, measured, published))
    }
}

/// The rate at which one bends over that at which the other does. Between two rates that were asked
/// for, and above the highest, a bend can lie anywhere: the interval reaches as far.
fn bends_ratio(
    evidence: &Evidence<'_>,
    of: [&'static str; 2],
    bound: Bound,
    published: &str,
) -> Result<ClaimFinding, String> {
    let [this, other] = [Bends::new(evidence, of[0])?, Bends::new(evidence, of[1])?];
    let pairs = this.by_block.iter().filter_map(|(block, bend)| {
        let other = other.by_block.get(block)?;
        Some(bend.over(other))
    });
    let pairs: Vec<Range> = pairs.collect();
    let ratio = stats::compare_ranges_at(&pairs, 0.0, evidence.level)
        .ok_or_else(|| evidence.missing(&server(of[0])))?;
    let what = format!(
        "Highest rate carried by {} over that by {}{}{}",
        of[0],
        of[1],
        this.note(),
        other.note()
    );
    let (value, interval) = (ratio.ratio, ratio.interval);
    let mut finding = ClaimFinding::of_quantity(&what, value, interval, bound, published);
    let unseen = [&this, &other].into_iter().find(|it| it.without > 0);
    if let (Verdict::NotTestable, Some(unseen)) = (finding.verdict, unseen) {
        finding.why = unseen.unseen();
        finding.interval = None;
    }
    Ok(finding)
}

/// The most that it answers at any rate above. The interval holds for all rates that may be the best at
/// once.
fn over_1000(evidence: &Evidence<'_>) -> Result<ClaimFinding, String> {
    let good = |trial: &Measured| trial.value(Metric::GoodPerS);
    let mut rates = evidence.numbers(&server(LOOP), "rate_per_s");
    rates.retain(|rate| *rate > LOOP_PER_S);
    let one_of = evidence.among(rates.len());
    let means = rates
        .iter()
        .map(|rate| one_of.mean(&good, &at(LOOP, *rate)));
    let means: Vec<(f64, Option<Interval>)> = means.flatten().collect();
    let most = |ends: &mut dyn Iterator<Item = f64>| ends.reduce(f64::max);
    let value = most(&mut means.iter().map(|(value, _)| *value))
        .ok_or_else(|| evidence.missing(&at(LOOP, END_PER_S)))?;
    let intervals = || means.iter().filter_map(|(_, interval)| *interval);
    let low = most(&mut intervals().map(|interval| interval.low));
    let high = most(&mut intervals().map(|interval| interval.high));
    let interval = low.zip(high).map(|(low, high)| Interval {
        low,
        high,
        level: evidence.level,
    });
    let what = "event-loop: good answers a second, the most at any rate above 1000/s";
    Ok(ClaimFinding::not_comparable(
        what,
        (value, interval),
        "over 1000/s",
    ))
}

fn apache_goes_on(evidence: &Evidence<'_>) -> Result<ClaimFinding, String> {
    let (this, other) = (at("apache", APACHE_PER_S), at("apache", END_PER_S));
    let ratio = evidence.ratio(Metric::GoodPerS, &this, &other)?;
    let what = "Apache: good answers at 4000/s over those at 2500/s";
    Ok(ClaimFinding::of_ratio(
        what,
        &ratio,
        Bound::AtLeast(KEPT_SHARE),
        "",
    ))
}

fn faster(evidence: &Evidence<'_>, other: &'static str) -> Result<ClaimFinding, String> {
    let mut logs: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    let rates = evidence.numbers(&server(other), "rate_per_s");
    for rate in rates.into_iter().filter(|rate| *rate <= MODEST_PER_S) {
        for trial in evidence.trials(&at(LOOP, rate)) {
            let theirs = evidence.trials(&at(other, rate));
            let twin = theirs.iter().find(|one| one.block == trial.block);
            let (Some(ours), Some(theirs)) = (
                trial.value(Metric::MeanUs),
                twin.and_then(|twin| twin.value(Metric::MeanUs)),
            ) else {
                continue;
            };
            logs.entry(trial.block)
                .or_default()
                .push((ours / theirs).ln());
        }
    }
    if logs.is_empty() {
        return Err(evidence.missing(&server(other)));
    }
    let means = logs.values().map(|of_block| stats::mean(of_block));
    let ratio = evidence.compared(means, &server(other))?;
    let what = format!("Mean latency of the event loop over that of {other}, up to 500/s");
    Ok(ClaimFinding::of_ratio(
        &what,
        &ratio,
        Bound::AtMost(1.0),
        "below 1",
    ))
}
