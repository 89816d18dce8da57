//! What is claimed of throughput along a factor: that it falls, has an optimum, and where.

use loadline_base::sorting::sort_by;
use loadline_capacity::stats::{Direction, Interval, Optimum};
use loadline_lab::analysis::Metric;
use loadline_lab::report::{Undecided, Verdict};
use serde::Deserialize;

use super::evidence::{Estimate, Evidence, Untestable};
use super::finding::{Bound, ClaimFinding, lasting, number, within};
use super::select::Select;
use super::taken::Taken;

/// A claim of throughput in some cells along a factor of theirs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Shape {
    is: ShapeKind,
    of: Select,
    factor: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ShapeKind {
    /// It falls, and rises nowhere.
    Falls,
    /// It falls most at the first step, between 0 and 100 us.
    SteepestFirst,
    /// With the largest number there is less of it than with the best of the others, at each service time.
    Optimum,
    /// Its best number is not the same at all service times.
    Moves,
    /// With the largest number there is less of it, and more context switches, than with another one, at each
    /// service time.
    TooMany,
}

/// Times that the claims of steps and of optima are about.
const SERVICE: &str = "service_us";
/// Smaller differences are none.
const MATTERS: f64 = 0.02;

/// A number that may do for all service times.
#[derive(Clone)]
struct Shared {
    number: f64,
    /// What it is compared with, and at which time.
    what: String,
    ratio: Estimate,
}

impl Shared {
    fn low(&self) -> f64 {
        let interval = self.ratio.interval;
        interval.map_or(f64::NEG_INFINITY, |interval| interval.low)
    }

    fn is_good(&self) -> bool {
        self.low() >= 1.0 - MATTERS
    }
}

/// What is found at a service time, and in words; or why nothing can be said of it.
type AtTime<T> = Result<(T, String), Untestable>;

impl Shape {
    pub(super) fn taken(&self) -> Taken {
        Taken::all(&self.of)
    }

    pub(super) fn judged(&self, evidence: &Evidence<'_>) -> Result<ClaimFinding, Untestable> {
        match self.is {
            ShapeKind::Falls => self.falls(evidence),
            ShapeKind::SteepestFirst => self.steepest_first(evidence),
            ShapeKind::Optimum => self.optimum(evidence),
            ShapeKind::Moves => self.moves(evidence),
            ShapeKind::TooMany => self.too_many(evidence),
        }
    }

    fn falls(&self, evidence: &Evidence<'_>) -> Result<ClaimFinding, Untestable> {
        let steps = evidence.steps(Metric::GoodPerS, &self.of, &self.factor)?;
        let trend = steps.trend(Direction::Falling, evidence.level);
        let none = || {
            let why = "Throughput does not vary, or has too few levels.".to_owned();
            Untestable(why, Undecided::NoTrials)
        };
        let trend = trend.ok_or_else(none)?;
        let reversals: Vec<String> = trend.reversals.iter().map(|it| number(*it)).collect();
        let turns = format!("it turns at {} us", reversals.join(", "));
        let (verdict, how) = match trend.direction {
            Some(Direction::Rising) => (Verdict::NotReproduced, "it rises"),
            _ if !reversals.is_empty() => (Verdict::NotReproduced, turns.as_str()),
            Some(Direction::Falling) => (Verdict::Reproduced, "it falls, and rises nowhere"),
            None => (Verdict::NotTestable, "no trend can be seen"),
        };
        let p = trend.trend.p_falling.min(trend.trend.p_rising);
        let p = match p < 0.001 {
            true => "below 0.001".to_owned(),
            false => format!("{p:.3}"),
        };
        let why = format!(
            "Trend over service times: {how} (Kendall's tau {:.2}, p {p}).",
            trend.trend.tau
        );
        Ok(ClaimFinding::new(verdict, why))
    }

    fn steepest_first(&self, evidence: &Evidence<'_>) -> Result<ClaimFinding, Untestable> {
        let steps = evidence.steps(Metric::GoodPerS, &self.of, &self.factor)?;
        let numbers = evidence.numbers(&self.of, &self.factor);
        if !matches!(numbers[..], [0.0, 100.0, _, ..]) {
            return Err(Untestable(
                "This run does not have the service times 0 and 100 us and a longer one."
                    .to_owned(),
                Undecided::NoTrials,
            ));
        }
        let steepest = steps.steepest_fall(evidence.level);
        let verdict = match (steepest.low, steepest.high) {
            (_, 0.0) => Verdict::Reproduced,
            (low, _) if low > 0.0 => Verdict::NotReproduced,
            _ => Verdict::NotTestable,
        };
        let [at, low, high] = [steepest.at, steepest.low, steepest.high].map(number);
        let why = format!(
            "The steepest step, as a part of what it falls from, begins at {at} us (between {low} and \
             {high} us)."
        );
        Ok(ClaimFinding {
            interval: Some(Interval {
                low: steepest.low,
                high: steepest.high,
                level: steepest.level,
            }),
            ..ClaimFinding::new(verdict, why)
        })
    }

    /// What a test finds at each service time, each judged as one of all of them; one of them can be judged at
    /// least.
    fn at_each_time<T>(
        &self,
        evidence: &Evidence<'_>,
        test: impl Fn(&Evidence<'_>, &Select) -> AtTime<T>,
    ) -> Result<Vec<AtTime<T>>, Untestable> {
        let times = evidence.numbers(&self.of, SERVICE);
        let one_of = evidence.among(times.len());
        let at = |service_us: f64| -> AtTime<T> {
            let us = number(service_us);
            let select = self.of.clone().is(SERVICE, service_us);
            match test(&one_of, &select) {
                Ok((found, text)) => Ok((found, format!("{us} us: {text}"))),
                Err(Untestable(why, undecided)) => {
                    let why = why.trim_end_matches('.');
                    Err(Untestable(format!("{us} us: {why}"), undecided))
                }
            }
        };
        let found: Vec<AtTime<T>> = times.into_iter().map(at).collect();
        match found.iter().any(Result::is_ok) {
            true => Ok(found),
            false => Err(evidence.missing(&self.of)),
        }
    }

    fn optimum_at(&self, evidence: &Evidence<'_>, select: &Select) -> AtTime<Optimum> {
        let steps = evidence.steps(Metric::GoodPerS, select, &self.factor)?;
        let optimum = steps.optimum(evidence.level);
        let [at, low, high] = [optimum.at, optimum.low, optimum.high].map(number);
        Ok((optimum, format!("best at {at} ({low} to {high})")))
    }

    /// A plateau is no fall: what is not less by what matters is as much.
    fn optimum(&self, evidence: &Evidence<'_>) -> Result<ClaimFinding, Untestable> {
        let largest = self.largest(evidence);
        let times = self.at_each_time(evidence, |evidence, select| {
            let pool = (select, self.factor.as_str());
            let (is_this, is_other) = (|it: f64| it == largest, |it: f64| it != largest);
            let ([_, other], ratio) =
                evidence.best_over(Metric::GoodPerS, pool, &is_this, &is_other)?;
            let what = self.compared_at(select, largest, other);
            let finding = ClaimFinding::of(&what, &ratio, Bound::AtMost(1.0 - MATTERS));
            let text = format!(
                "{} times that of {}, the best of the others{}",
                number(ratio.value),
                number(other),
                within(&ratio)
            );
            Ok((finding, text))
        })?;
        let what = format!(
            "Throughput with {} {}, of which the claim asks for at most {} times that of fewer",
            number(largest),
            self.factor,
            number(1.0 - MATTERS)
        );
        Ok(of_times(times, &what))
    }

    /// "At 200 us: workers 120 over 16".
    fn compared_at(&self, select: &Select, this: f64, other: f64) -> String {
        let service_us = select.level(SERVICE);
        let us = service_us.map_or_else(String::new, ToString::to_string);
        let [this, other] = [this, other].map(number);
        format!("At {us} us: {} {this} over {other}", self.factor)
    }

    fn largest(&self, evidence: &Evidence<'_>) -> f64 {
        let largest = evidence.numbers(&self.of, &self.factor).pop();
        largest.unwrap_or_default()
    }

    fn moves(&self, evidence: &Evidence<'_>) -> Result<ClaimFinding, Untestable> {
        let conditions = self.at_each_time(evidence, |evidence, select| {
            self.optimum_at(evidence, select)
        })?;
        let (found, lacking): (Vec<_>, Vec<_>) = conditions.into_iter().partition(Result::is_ok);
        let lacking = lacking.into_iter().find_map(Result::err);
        let (optima, mut texts): (Vec<_>, Vec<_>) = found.into_iter().flatten().unzip();
        let cause = lacking.map(|Untestable(why, undecided)| {
            texts.push(why);
            undecided
        });
        if optima.len() < 2 {
            let why = format!(
                "Series {} has a single service time that can be judged: {}.",
                self.of.series,
                texts.join("; ")
            );
            return Err(Untestable(why, cause.unwrap_or(Undecided::NoTrials)));
        }
        let is_apart = |one: &Optimum, other: &Optimum| one.high < other.low;
        let any_apart = (optima.iter()).any(|one| optima.iter().any(|other| is_apart(one, other)));
        // That of a service time that cannot be judged may lie anywhere.
        let are_settled =
            cause.is_none() && optima.iter().all(|optimum| optimum.low >= optimum.high);
        let shared = self.nearest_to_best(evidence);
        let good = shared.as_ref().filter(|it| it.is_good());
        let verdict = match (any_apart, are_settled || good.is_some()) {
            (true, _) => Verdict::Reproduced,
            (false, true) => Verdict::NotReproduced,
            (false, false) => Verdict::NotTestable,
        };
        let mut why = format!("Number of {}: {}.", self.factor, texts.join("; "));
        if let (Some(good), false) = (good, any_apart) {
            why += &format!(
                " {} of them are as good as any at each service time, but for {} % at most.",
                number(good.number),
                number(100.0 * MATTERS)
            );
        }
        let mut finding = ClaimFinding::new(verdict, why);
        // Optima that lie apart need no number that is worse than others.
        if let Some(shared) = shared.filter(|_| !any_apart) {
            let bound = Bound::AtMost(1.0 - MATTERS);
            let compared = ClaimFinding::of(&shared.what, &shared.ratio, bound);
            finding.measures = compared.measures;
            finding.undecided = lasting(compared.undecided, finding.undecided);
        }
        finding.undecided = lasting(cause, finding.undecided);
        Ok(finding)
    }

    /// The first number that is as good as the best of the others at each service time, but for what does not
    /// matter, or the one that comes nearest to it: where the curve is flat, the best number of each time cannot be
    /// found, and need not be. Each number is judged as one of all of them.
    fn nearest_to_best(&self, evidence: &Evidence<'_>) -> Option<Shared> {
        let numbers = evidence.numbers(&self.of, &self.factor);
        let one_of = evidence.among(numbers.len());
        let numbers = numbers.into_iter();
        let all: Vec<Shared> = numbers
            .filter_map(|wanted| self.furthest_behind(&one_of, wanted))
            .collect();
        let nearest = |one: &&Shared, other: &&Shared| one.low().total_cmp(&other.low());
        let good = all.iter().find(|it| it.is_good());
        good.or_else(|| all.iter().max_by(nearest)).cloned()
    }

    /// A number over the best of the others at the service time at which it is furthest behind; `None`: it cannot
    /// be compared at one of them.
    fn furthest_behind(&self, evidence: &Evidence<'_>, wanted: f64) -> Option<Shared> {
        let at = |service_us: f64| {
            let select = self.of.clone().is(SERVICE, service_us);
            let pool = (&select, self.factor.as_str());
            let (is_this, is_other) = (|it: f64| it == wanted, |it: f64| it != wanted);
            let found = evidence.best_over(Metric::GoodPerS, pool, &is_this, &is_other);
            let ([_, other], ratio) = found.ok()?;
            Some(Shared {
                number: wanted,
                what: self.compared_at(&select, wanted, other),
                ratio,
            })
        };
        let times = evidence.numbers(&self.of, SERVICE).into_iter();
        let all: Option<Vec<Shared>> = times.map(at).collect();
        let all = all?.into_iter();
        all.min_by(|one, other| one.low().total_cmp(&other.low()))
    }

    fn too_many(&self, evidence: &Evidence<'_>) -> Result<ClaimFinding, Untestable> {
        let times = self.at_each_time(evidence, |evidence, select| {
            self.too_many_at(evidence, select)
        })?;
        let what = format!(
            "With {} {} there is less throughput than with another number of them, and more context \
             switches",
            number(self.largest(evidence)),
            self.factor
        );
        Ok(of_times(times, &what))
    }

    /// Less throughput and more switches than with any one smaller number.
    fn too_many_at(&self, evidence: &Evidence<'_>, select: &Select) -> AtTime<ClaimFinding> {
        let numbers = evidence.numbers(select, &self.factor);
        let missing = || evidence.missing(select);
        let (most, fewer) = numbers.split_last().ok_or_else(missing)?;
        // Each of the numbers, and less and more of each.
        let one_of = evidence.among(2 * fewer.len());
        let pool = (select, self.factor.as_str());
        let mut findings = Vec::new();
        for other in fewer {
            let ratio = |metric| {
                let is_other = |it| it == *other;
                let found = one_of.best_over(metric, pool, &|it| it == *most, &is_other);
                found.map(|(_, ratio)| ratio)
            };
            let kept = ratio(Metric::GoodPerS)?;
            let switches = ratio(Metric::ContextSwitchesPerRequest)?;
            let what = self.compared_at(select, *most, *other);
            let less = ClaimFinding::of(&what, &kept, Bound::AtMost(1.0 - MATTERS));
            let what = format!("{what}, context switches");
            let more = ClaimFinding::of(&what, &switches, Bound::AtLeast(1.0 + MATTERS));
            let why = format!(
                "{} times the throughput with {}, and {} times its switches",
                number(kept.value),
                number(*other),
                number(switches.value)
            );
            findings.push((
                kept.value,
                ClaimFinding {
                    why,
                    ..less.and(more)
                },
            ));
        }
        // That with the most throughput is reported first.
        sort_by(&mut findings, |one, other| one.0.total_cmp(&other.0));
        let findings = findings.into_iter().map(|(_, finding)| finding);
        let finding = ClaimFinding::any(findings.collect()).ok_or_else(missing)?;
        let why = finding.why.clone();
        Ok((finding, why))
    }
}

/// Of a claim about each service time.
fn of_times(times: Vec<AtTime<ClaimFinding>>, what: &str) -> ClaimFinding {
    let mut cause = None;
    let mut measures = Vec::new();
    let conditions = times.into_iter().map(|at| match at {
        Ok((found, text)) => {
            measures.extend(found.measures);
            cause = lasting(cause, found.undecided);
            (text, found.verdict)
        }
        Err(Untestable(why, undecided)) => {
            cause = lasting(cause, Some(undecided));
            (why, Verdict::NotTestable)
        }
    });
    let conditions: Vec<(String, Verdict)> = conditions.collect();
    let finding = ClaimFinding::of_conditions(conditions, what);
    ClaimFinding {
        measures,
        undecided: cause.or(finding.undecided),
        ..finding
    }
}
