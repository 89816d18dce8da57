//! P1: reactor models under high concurrency.

use loadline_capacity::stats::{self, Direction, Interval, Optimum};
use loadline_lab::analysis::{Measured, Metric};
use loadline_lab::report::Verdict;

use super::evidence::Evidence;
use super::finding::{Bound, ClaimFinding, Row, number};
use super::select::Select;

const SINGLE: &str = "single reactor, single thread";
const THREADS: &str = "single reactor, threads";
const SEVERAL: &str = "several reactors, threads";
const HEADLINE_CLIENTS: f64 = 20_000.0;
/// Shorter runs say nothing about long ones.
const SOAK_S: f64 = 600.0;
/// Losing less than so much is to keep the throughput.
const KEPT_SHARE: f64 = 0.95;
/// So many reactors are few: fewer than the paper's machine has threads of hardware.
const FEW_REACTORS: f64 = 4.0;
/// Differences below it are none.
const MATTERS: f64 = 0.02;

pub(super) fn rows(evidence: &Evidence<'_>) -> Vec<Row> {
    let mut rows = vec![
        Row::new(
            "Throughput of one reactor with one thread falls with the service time (Fig. 20).",
            falls(evidence),
        ),
        Row::new(
            "The fall is steepest between 0 and 100 us (Fig. 20).",
            steepest(evidence),
        ),
        Row::new(
            "Where requests wait, more threads help, up to an optimum (Fig. 21).",
            more_help(
                evidence,
                &Select::series("threads").not("service_us", 0.0),
                "workers",
            ),
        ),
        Row::new(
            "More threads help where requests do not wait, too (Fig. 21).",
            more_help(
                evidence,
                &Select::series("threads").is("service_us", 0.0),
                "workers",
            ),
        ),
        Row::new(
            "Beyond the optimum of threads, throughput falls, at each service time (Fig. 21).",
            has_optimum(evidence, "threads", "workers"),
        ),
        Row::new(
            "Too many threads lose, by context switches (Figs. 21 and 23(a)).",
            switches(evidence),
        ),
        Row::new(
            "More reactors help, up to an optimum (Fig. 23(b)).",
            more_help(evidence, &Select::series("reactors"), "loops"),
        ),
        Row::new(
            "Beyond the optimum of reactors, throughput falls, at each service time (Fig. 23(b)).",
            has_optimum(evidence, "reactors", "loops"),
        ),
        Row::new(
            "Few reactors suffice: up to 4 reach what more do (Fig. 23(b)).",
            few_suffice(evidence),
        ),
        Row::new(
            "The optimal number of threads moves with the service time (Fig. 24).",
            moves(evidence, "threads", "workers"),
        ),
        Row::new(
            "The optimal number of reactors moves with the service time (Fig. 24).",
            moves(evidence, "reactors", "loops"),
        ),
    ];
    rows.extend(models(evidence));
    rows
}

/// What is claimed of the three models.
fn models(evidence: &Evidence<'_>) -> Vec<Row> {
    let at_headline = |metric, bound, published| {
        let headline = Select::series("concurrency").is("connections", HEADLINE_CLIENTS);
        let (this, other) = (
            headline.clone().is("model", SEVERAL),
            headline.is("model", SINGLE),
        );
        let ratio = evidence.ratio(metric, &this, &other)?;
        let what = format!("{SEVERAL}, over {SINGLE}, at 20,000 clients, over all service times");
        Ok(ClaimFinding::of_ratio(&what, &ratio, bound, published))
    };
    let suits = |model, connections, service_us| suits(evidence, model, connections, service_us);
    vec![
        Row::new(
            "Several reactors with threads reach 3 times one reactor with one thread (abstract, Fig. 25).",
            at_headline(Metric::GoodPerS, Bound::AtLeast(3.0), "3"),
        ),
        Row::new(
            "Several reactors with threads have shorter response times (Section V).",
            at_headline(Metric::MeanUs, Bound::AtMost(1.0), ""),
        ),
        Row::new(
            "One reactor with one thread suits low concurrency and light work (Table V).",
            suits(SINGLE, 100.0, 0.0),
        ),
        Row::new(
            "One reactor with threads suits medium concurrency and service times (Table V).",
            suits(THREADS, 2000.0, 200.0),
        ),
        Row::new(
            "Several reactors with threads suit high concurrency and long service times (Table V).",
            suits(SEVERAL, HEADLINE_CLIENTS, 1000.0),
        ),
        Row::new(
            "The advantage of several reactors with threads lasts over long runs (Section IV).",
            lasts(evidence),
        ),
    ]
}

fn interval_of(optimum: &Optimum) -> Interval {
    Interval {
        low: optimum.low,
        high: optimum.high,
        level: optimum.level,
    }
}

fn falls(evidence: &Evidence<'_>) -> Result<ClaimFinding, String> {
    let select = Select::series("models").is("model", SINGLE);
    let steps = evidence.steps(Metric::GoodPerS, &select, "service_us")?;
    let trend = steps
        .trend(Direction::Falling, evidence.level)
        .ok_or_else(|| "Throughput does not vary, or has too few levels.".to_owned())?;
    let reversals: Vec<String> = trend.reversals.iter().map(|it| number(*it)).collect();
    let (verdict, how) = match trend.direction {
        Some(Direction::Rising) => (Verdict::NotReproduced, "it rises".to_owned()),
        _ if !reversals.is_empty() => (
            Verdict::NotReproduced,
            format!("it turns at {} us", reversals.join(", ")),
        ),
        Some(Direction::Falling) => (
            Verdict::Reproduced,
            "it falls, and rises nowhere".to_owned(),
        ),
        None => (Verdict::NotTestable, "no trend can be seen".to_owned()),
    };
    let why = format!(
        "Trend over service times: {how} (Kendall's tau {:.2}, p {}).",
        trend.trend.tau,
        Digits(trend.trend.p_falling.min(trend.trend.p_rising))
    );
    Ok(ClaimFinding::new(verdict, why))
}

/// A probability with two digits that count.
struct Digits(f64);

impl std::fmt::Display for Digits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 < 0.001 {
            return f.write_str("below 0.001");
        }
        write!(f, "{:.3}", self.0)
    }
}

fn steepest(evidence: &Evidence<'_>) -> Result<ClaimFinding, String> {
    let select = Select::series("models").is("model", SINGLE);
    let steps = evidence.steps(Metric::GoodPerS, &select, "service_us")?;
    let numbers = evidence.numbers(&select, "service_us");
    if !matches!(numbers[..], [0.0, 100.0, _, ..]) {
        return Err(
            "This run does not have the service times 0 and 100 us and a longer one.".to_owned(),
        );
    }
    let steepest = steps.steepest_fall(evidence.level);
    let verdict = match (steepest.low, steepest.high) {
        (_, 0.0) => Verdict::Reproduced,
        (low, _) if low > 0.0 => Verdict::NotReproduced,
        _ => Verdict::NotTestable,
    };
    let why = format!(
        "The steepest step, as a part of what it falls from, begins at {} us (between {} and {} us).",
        number(steepest.at),
        number(steepest.low),
        number(steepest.high)
    );
    Ok(ClaimFinding {
        interval: Some(interval_of(&steepest)),
        ..ClaimFinding::new(verdict, why)
    })
}

/// The best number over the smallest: all conditions pooled.
fn more_help(
    evidence: &Evidence<'_>,
    select: &Select,
    factor: &'static str,
) -> Result<ClaimFinding, String> {
    let few = evidence.numbers(select, factor).first().copied();
    let few = few.ok_or_else(|| evidence.missing(select))?;
    let pool = (select, factor);
    let (numbers, ratio) =
        evidence.best_over(Metric::GoodPerS, pool, &|it| it > few, &|it| it <= few)?;
    let what = format!(
        "{factor} {} (the best) over {}",
        number(numbers[0]),
        number(few)
    );
    let bound = Bound::AtLeast(1.0 + MATTERS);
    Ok(ClaimFinding::of_ratio(&what, &ratio, bound, ""))
}

/// The best number at each service time, each judged as one of all of them.
fn optima(
    evidence: &Evidence<'_>,
    series: &'static str,
    factor: &'static str,
) -> Result<Vec<(f64, Optimum)>, String> {
    let all = Select::series(series);
    let mut optima = Vec::new();
    let times = evidence.numbers(&all, "service_us");
    let level = evidence.among(times.len()).level;
    for service_us in times {
        let select = all.clone().is("service_us", service_us);
        if let Ok(steps) = evidence.steps(Metric::GoodPerS, &select, factor) {
            optima.push((service_us, steps.optimum(level)));
        }
    }
    match optima.is_empty() {
        true => Err(evidence.missing(&all)),
        false => Ok(optima),
    }
}

fn optimum_text(service_us: f64, optimum: &Optimum) -> String {
    format!(
        "{} us: best at {} ({} to {})",
        number(service_us),
        number(optimum.at),
        number(optimum.low),
        number(optimum.high)
    )
}

fn has_optimum(
    evidence: &Evidence<'_>,
    series: &'static str,
    factor: &'static str,
) -> Result<ClaimFinding, String> {
    let most = evidence.numbers(&Select::series(series), factor);
    let most = most.last().copied().unwrap_or_default();
    let conditions = optima(evidence, series, factor)?
        .into_iter()
        .map(|(service_us, optimum)| {
            let verdict = match (optimum.low, optimum.high) {
                (_, high) if high < most => Verdict::Reproduced,
                (low, _) if low >= most => Verdict::NotReproduced,
                _ => Verdict::NotTestable,
            };
            (optimum_text(service_us, &optimum), verdict)
        })
        .collect();
    let what = format!(
        "The best number of {factor} is below the largest, {}",
        number(most)
    );
    Ok(ClaimFinding::of_conditions(conditions, &what))
}

fn moves(
    evidence: &Evidence<'_>,
    series: &'static str,
    factor: &'static str,
) -> Result<ClaimFinding, String> {
    let optima = optima(evidence, series, factor)?;
    if optima.len() < 2 {
        return Err(format!(
            "Series {series} has a single service time that can be judged."
        ));
    }
    let is_apart = |one: &Optimum, other: &Optimum| one.high < other.low || other.high < one.low;
    let any_apart = optima
        .iter()
        .any(|(_, one)| optima.iter().any(|(_, other)| is_apart(one, other)));
    let is_settled = |optimum: &Optimum| optimum.low >= optimum.high;
    let verdict = match (
        any_apart,
        optima.iter().all(|(_, optimum)| is_settled(optimum)),
    ) {
        (true, _) => Verdict::Reproduced,
        (false, true) => Verdict::NotReproduced,
        (false, false) => Verdict::NotTestable,
    };
    let texts: Vec<String> = optima
        .iter()
        .map(|(service_us, optimum)| optimum_text(*service_us, optimum))
        .collect();
    let why = format!("Number of {factor}: {}.", texts.join("; "));
    Ok(ClaimFinding::new(verdict, why))
}

/// The most threads against fewer: less throughput and more switches than with any one number of them.
fn switches(evidence: &Evidence<'_>) -> Result<ClaimFinding, String> {
    let all = Select::series("threads");
    let numbers = evidence.numbers(&all, "workers");
    let Some((most, fewer)) = numbers.split_last() else {
        return Err(evidence.missing(&all));
    };
    // Each of the numbers, and less and more of each.
    let one_of = evidence.among(2 * fewer.len());
    let pool = (&all, "workers");
    let mut findings = Vec::new();
    for other in fewer {
        let judged = |metric, bound, what: &str| {
            let is_other = |it| it == *other;
            let (_, ratio) = one_of.best_over(metric, pool, &|it| it == *most, &is_other)?;
            let what = format!(
                "{what} with {} threads over {}",
                number(*most),
                number(*other)
            );
            Ok::<_, String>((
                ratio.value,
                ClaimFinding::of_ratio(&what, &ratio, bound, ""),
            ))
        };
        let less = Bound::AtMost(1.0 - MATTERS);
        let (kept, less) = judged(Metric::GoodPerS, less, "Throughput")?;
        let more = Bound::AtLeast(1.0 + MATTERS);
        let what = "Context switches for each request";
        let (_, more) = judged(Metric::ContextSwitchesPerRequest, more, what)?;
        findings.push((kept, less.and(more)));
    }
    // That with the most throughput is reported first.
    findings.sort_by(|one, other| one.0.total_cmp(&other.0));
    let findings = findings.into_iter().map(|(_, finding)| finding);
    ClaimFinding::any(findings.collect()).ok_or_else(|| evidence.missing(&all))
}

fn few_suffice(evidence: &Evidence<'_>) -> Result<ClaimFinding, String> {
    let all = Select::series("reactors");
    let is_few = |loops| loops <= FEW_REACTORS;
    let pool = (&all, "loops");
    let ([few, many], ratio) =
        evidence.best_over(Metric::GoodPerS, pool, &is_few, &|loops| !is_few(loops))?;
    let what = format!(
        "{} reactors (the best of few) over {} (the best of more), over all threads and service times",
        number(few),
        number(many)
    );
    let bound = Bound::AtLeast(KEPT_SHARE);
    Ok(ClaimFinding::of_ratio(&what, &ratio, bound, ""))
}

/// A model suits a load if no other is better by what matters.
fn suits(
    evidence: &Evidence<'_>,
    model: &'static str,
    connections: f64,
    service_us: f64,
) -> Result<ClaimFinding, String> {
    let load = Select::series("concurrency")
        .is("connections", connections)
        .is("service_us", service_us);
    let mut finding: Option<ClaimFinding> = None;
    let others = [SINGLE, THREADS, SEVERAL];
    let one_of = evidence.among(others.len() - 1);
    for other in others.into_iter().filter(|other| *other != model) {
        let (this, other_cells) = (
            load.clone().is("model", model),
            load.clone().is("model", other),
        );
        let ratio = one_of.ratio(Metric::GoodPerS, &this, &other_cells)?;
        let what = format!(
            "Over {other}, at {} clients and {} us",
            number(connections),
            number(service_us)
        );
        let one = ClaimFinding::of_ratio(&what, &ratio, Bound::AtLeast(1.0 - MATTERS), "");
        finding = Some(match finding {
            None => one,
            Some(before) => before.and(one),
        });
    }
    finding.ok_or_else(|| evidence.missing(&load))
}

/// Answers in the last third of a run over those in the first.
fn kept(trial: &Measured) -> Option<f64> {
    let counted = trial.seconds.iter().filter(|second| second.counted);
    let rates: Vec<f64> = counted
        .filter_map(|second| second.values.get(&Metric::CompletedPerS).copied())
        .collect();
    let third = rates.len() / 3;
    let of = |rates: &[f64]| stats::mean(rates);
    (third > 0).then(|| of(&rates[rates.len() - third..]) / of(&rates[..third]))
}

fn lasts(evidence: &Evidence<'_>) -> Result<ClaimFinding, String> {
    let duration_s = evidence.duration_s("soak").unwrap_or_default();
    let (several, single) = (
        Select::series("soak").is("model", SEVERAL),
        Select::series("soak").is("model", SINGLE),
    );
    let one_of = evidence.among(2);
    let (value, interval) = one_of.mean(&kept, &several)?;
    let what = format!("{SEVERAL}: last third of the run over the first");
    let steady = ClaimFinding::of_quantity(&what, value, interval, Bound::AtLeast(KEPT_SHARE), "");
    let ratio = one_of.ratio(Metric::GoodPerS, &several, &single)?;
    let what = format!("Over {SINGLE}, the whole run");
    let ahead = ClaimFinding::of_ratio(&what, &ratio, Bound::AtLeast(1.0 + MATTERS), "");
    let finding = steady.and(ahead);
    if duration_s < SOAK_S {
        return Err(format!(
            "These runs are of {} s, and long ones of {} s are run under --full. {}",
            number(duration_s),
            number(SOAK_S),
            finding.why
        ));
    }
    Ok(finding)
}
