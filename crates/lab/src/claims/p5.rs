//! P5: thread per connection against one event loop.

use std::collections::BTreeMap;

use super::evidence::Evidence;
use super::finding::{Bound, Finding, Row, number};
use super::select::Select;
use crate::analysis::Metric;
use loadline_capacity::stats;

const THREADS: &str = "threads";
const LOOP: &str = "event-loop";
/// A rate is carried if so much of what is offered is answered well: the knee of saturation.
const CARRIED_SHARE: f64 = 0.99;
/// Where the paper has the bends; "about 1500" is a step of its grid to either side.
const THREADS_BEND: (f64, f64) = (1000.0, 1300.0);
const LOOP_BEND: (f64, f64) = (1400.0, 1600.0);
const END_PER_S: f64 = 2500.0;
/// "Fails to connect any clients": nearly every request fails.
const FAILS_SHARE: f64 = 0.99;
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
    let knee = |name, range, published: &str| {
        let bends = Bends::new(evidence, name)?;
        let what = format!("{name}: highest rate of which 99 % is answered well");
        bends.finding(&what, range, published)
    };
    let fails = |name| {
        let failed = |trial: &crate::analysis::Measured| trial.value(Metric::ErrorShare);
        let (value, interval) = evidence.mean(&failed, &at(name, END_PER_S))?;
        let what = format!("{name}: share of requests that fail at 2500/s");
        Ok(Finding::of_quantity(
            &what,
            value,
            interval,
            Bound::AtLeast(FAILS_SHARE),
            "all",
        ))
    };
    vec![
        Row::new(
            "Threads win: they carry more than the event loop (the authors' hypothesis).",
            threads_win(evidence, Bound::AtLeast(1.0)),
        ),
        Row::new(
            "The event loop bends later than the threads (results).",
            threads_win(evidence, Bound::AtMost(1.0)),
        ),
        Row::new(
            "Threads bend at 1000 to 1300 requests a second (results).",
            knee(THREADS, THREADS_BEND, "1000 to 1300/s"),
        ),
        Row::new(
            "The event loop bends at about 1500 requests a second (results).",
            knee(LOOP, LOOP_BEND, "1500/s"),
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
    /// The highest rate up to which every rate was carried; 0 if not even the lowest was. Where none was
    /// lost it is the highest that counts: the bend lies there or above.
    by_block: BTreeMap<u32, f64>,
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
            let carried = below.map_or(0.0, |(rate, _)| *rate as f64);
            bends.by_block.insert(block, carried);
        }
        Ok(bends)
    }

    fn unseen(&self, name: &str) -> String {
        format!(
            "{name}: no bend is seen up to {}/s, the highest rate that counts. {}",
            number(self.highest_per_s),
            self.limit
        )
    }

    /// Bends that lie above what counts can still lie above what is claimed.
    fn finding(
        &self,
        what: &str,
        (least, most): (f64, f64),
        said: &str,
    ) -> Result<Finding, String> {
        let values: Vec<f64> = self.by_block.values().copied().collect();
        let (mean, interval) = stats::center(&values).ok_or_else(|| self.unseen(what))?;
        let is_above = interval.as_ref().is_some_and(|it| it.low > most);
        if self.without > 0 && !is_above {
            return Err(self.unseen(what));
        }
        let what = match self.without {
            0 => what.to_owned(),
            count => format!(
                "{what} (in {count} of {} runs none was lost, and it is more)",
                values.len()
            ),
        };
        let bound = Bound::Within(least, most);
        Ok(Finding::of_quantity(&what, mean, interval, bound, said))
    }
}

/// The rate at which threads bend over that at which the loop does. If the loop was not seen to bend,
/// it is at most what is measured.
fn threads_win(evidence: &Evidence<'_>, bound: Bound) -> Result<Finding, String> {
    let (threads, events) = (Bends::new(evidence, THREADS)?, Bends::new(evidence, LOOP)?);
    if threads.without > 0 {
        return Err(threads.unseen(THREADS));
    }
    let pairs = threads.by_block.iter().filter_map(|(block, rate)| {
        let other = events.by_block.get(block)?;
        Some((rate / other).ln())
    });
    let ratio = evidence.compared(pairs, &server(THREADS))?;
    let is_below = ratio.comparison.interval.is_some_and(|it| it.high < 1.0);
    if events.without > 0 && !is_below {
        return Err(events.unseen(LOOP));
    }
    let what = match events.without {
        0 => "Highest rate carried by threads over that by the event loop",
        _ => {
            "Highest rate carried by threads over that by the event loop, which lost none (so at most)"
        }
    };
    Ok(Finding::of_ratio(what, &ratio, bound, "0.67 to 0.87"))
}

fn over_1000(evidence: &Evidence<'_>) -> Result<Finding, String> {
    let good = |trial: &crate::analysis::Measured| trial.value(Metric::GoodPerS);
    let mut best: Option<Finding> = None;
    let rates = evidence.numbers(&server(LOOP), "rate_per_s");
    for rate in rates.into_iter().filter(|rate| *rate > 1000.0) {
        let Ok((value, interval)) = evidence.mean(&good, &at(LOOP, rate)) else {
            continue;
        };
        let what = format!("Good answers at {}/s", number(rate));
        let one = Finding::of_quantity(
            &what,
            value,
            interval,
            Bound::AtLeast(1000.0),
            "over 1000/s",
        );
        let is_better = |best: &Finding| {
            let low = |finding: &Finding| finding.interval.map_or(0.0, |it| it.low);
            low(&one) > low(best)
        };
        if best.as_ref().is_none_or(is_better) {
            best = Some(one);
        }
    }
    best.ok_or_else(|| evidence.missing(&at(LOOP, END_PER_S)))
}

fn apache_goes_on(evidence: &Evidence<'_>) -> Result<Finding, String> {
    let (this, other) = (at("apache", APACHE_PER_S), at("apache", END_PER_S));
    let ratio = evidence.ratio(Metric::GoodPerS, &this, &other)?;
    let what = "Apache: good answers at 4000/s over those at 2500/s";
    Ok(Finding::of_ratio(
        what,
        &ratio,
        Bound::AtLeast(KEPT_SHARE),
        "",
    ))
}

fn faster(evidence: &Evidence<'_>, other: &'static str) -> Result<Finding, String> {
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
    Ok(Finding::of_ratio(
        &what,
        &ratio,
        Bound::AtMost(1.0),
        "below 1",
    ))
}
