//! Made-up studies in which nothing has an effect, and some in which much has: how often a verdict is
//! wrong, and how often it is found.
//!
//! A study has the cells and the blocks of a paper's reduced plan. What is measured in a trial is the
//! same everywhere but for noise: lognormal, of 3 to 8 % for each cell, and an effect of 5 % that all
//! trials of a block have in common.
//!
//! Where nothing has an effect, a verdict is wrong if the claim is true and "not reproduced", or untrue
//! and "reproduced". A claim whose bound is just where such studies are ("more than": at least 1.0) is
//! wrong either way. So is one about a trend or a step, since there is none to be found:
//! that it is elsewhere is as wrong. Claims of large effects are rightly "not reproduced": of these
//! there are many, and they must not ease the level of the others ([`super::family`]).

use loadline_lab::analysis::Measured;
use loadline_lab::cells::Cells;
use loadline_lab::journal::{Level, Levels, RunHead};
use loadline_lab::plan::Plan;
use loadline_lab::report::Verdict;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::*;
use crate::{Grid, Paper};

/// Of each paper: five make a thousand.
const STUDIES: u64 = 200;
/// 5 % of the thousand.
const WRONG_MAX: usize = 50;
/// 5 % of those of a paper, and three standard deviations of what is counted.
const OF_PAPER_MAX: usize = 19;
/// Of each paper with large effects.
const EFFECT_STUDIES: usize = 50;
const BLOCK_NOISE: f64 = 0.05;
/// What every server carries where nothing has an effect: within the rates of P5.
const PER_S: f64 = 1550.0;
/// The series that no claim is about, and P1's long runs, which are too short to be judged.
const NOT_JUDGED: [&str; 13] = [
    "login",
    "balance",
    "keep-alive",
    "answers",
    "bulk",
    "uploads",
    "bursts",
    "soak",
    "video",
    "reactors",
    "threads",
    "work",
    "slow-network",
];

/// By how much more is carried at these levels of a series.
type Effect = dyn Fn(&str, &dyn Fn(&str) -> String) -> f64;

struct Study {
    run: Run,
    cells: Vec<(String, Levels, u32)>,
}

impl Study {
    fn new(paper: &str) -> Self {
        let text = Paper::named(paper).unwrap().text();
        let text = Grid::default().plan_text(&text, paper).unwrap();
        let plan = Plan::parse(&text, paper, std::path::Path::new(".")).unwrap();
        let cells = Cells::of(&plan, &[0, 1], &[]).unwrap().cells.into_iter();
        let cells = cells.map(|cell| {
            let series = &plan.series[cell.series];
            (series.name.clone(), cell.levels, series.replicates)
        });
        let mut study = Self {
            run: Run::default(),
            cells: cells.collect(),
        };
        study
            .cells
            .retain(|(series, _, _)| !NOT_JUDGED.contains(&series.as_str()));
        study.run.head = RunHead {
            name: paper.to_owned(),
            ..RunHead::default()
        };
        study
    }

    /// The claims of a study with noise of its own.
    fn judged(&mut self, seed: u64, effect: &Effect) -> Vec<Claim> {
        let mut noise = Noise::new(seed);
        let blocks: Vec<f64> = (0..8).map(|_| BLOCK_NOISE * noise.drawn()).collect();
        self.run.trials.clear();
        for (series, levels, count) in &self.cells {
            let of = |factor: &str| {
                levels
                    .get(factor)
                    .map_or_else(String::new, Level::to_string)
            };
            let (more, spread) = (effect(series, &of), noise.spread());
            for block in 0..*count {
                let mut factor = || (blocks[block as usize] + spread * noise.drawn()).exp();
                let mut trial = Measured {
                    number: self.run.trials.len() as u32,
                    block,
                    series: series.clone(),
                    levels: levels.clone(),
                    offered: 10_000,
                    connections: 2000,
                    timeouts: (400.0 * factor()) as u64,
                    ..Measured::default()
                };
                let carried = PER_S * more * factor();
                let offered = match self.run.head.name.as_str() {
                    "P5" => of("rate_per_s").parse().unwrap_or(f64::INFINITY),
                    _ => carried,
                };
                let good = carried.min(offered);
                trial.values.extend([
                    (Metric::GoodPerS, good),
                    (Metric::CompletedPerS, good),
                    (Metric::ErrorShare, 1.0 - good / offered),
                    (Metric::P50Us, 1e6 * PER_S / carried),
                    (Metric::P99Us, 1e6 * PER_S / carried),
                    (Metric::MaxUs, 1e6 * PER_S / carried),
                    (Metric::ServiceP50Us, 1e3 * PER_S / carried),
                    (Metric::MeanUs, 1e6 * PER_S / carried),
                    (Metric::CpuUsPerRequest, 1e2 * factor()),
                    (Metric::LoopImbalance, factor()),
                    (Metric::ContextSwitchesPerRequest, factor() / more),
                    (Metric::MemoryBytes, 4e7 * factor()),
                    (Metric::CpuShare, 0.9 * factor()),
                    (Metric::CpuUserShare, 0.2 * factor()),
                    (Metric::CpuKernelShare, 0.7 * factor()),
                ]);
                self.run.trials.push(trial);
            }
        }
        judged(&self.run)
    }
}

struct Noise(Pcg64Mcg);

impl Noise {
    fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    /// Normally distributed, by Box and Muller.
    fn drawn(&mut self) -> f64 {
        let radius = (-2.0 * self.0.random_range(1e-300..1.0_f64).ln()).sqrt();
        radius * self.0.random_range(0.0..std::f64::consts::TAU).cos()
    }

    /// Of the trials of a cell.
    fn spread(&mut self) -> f64 {
        self.0.random_range(0.03..0.08)
    }
}

/// The verdicts on a claim that are wrong where nothing has an effect.
type Wrong = &'static [Verdict];

/// The claim is untrue.
const REPRODUCED: Wrong = &[Verdict::Reproduced];
/// It is true.
const NOT_REPRODUCED: Wrong = &[Verdict::NotReproduced];
const EITHER: Wrong = &[Verdict::Reproduced, Verdict::NotReproduced];
/// It is not judged.
const NEITHER: Wrong = &[];

/// How claims begin, in their order, and which verdict is wrong.
const P1: [(&str, Wrong); 28] = [
    ("Throughput of one reactor", EITHER),
    ("The fall is steepest", EITHER),
    ("Where requests wait", REPRODUCED),
    ("More threads help where", REPRODUCED),
    ("Beyond the optimum of threads", REPRODUCED),
    ("Too many threads lose", REPRODUCED),
    ("Beyond the optimum of reactors", REPRODUCED),
    ("The optimal number of threads", REPRODUCED),
    ("The optimal number of reactors", REPRODUCED),
    ("Several reactors with threads reach 3", REPRODUCED),
    ("The same, pooled", NEITHER),
    ("Several reactors with threads have shorter", EITHER),
    ("One reactor with threads is a bottleneck", REPRODUCED),
    ("Several reactors with threads scale better", REPRODUCED),
    ("Requests are evenly distributed", NOT_REPRODUCED),
    ("A single thread that is blocked", REPRODUCED),
    ("Requests to a single thread time out", REPRODUCED),
    ("Pools of threads cost context switches", REPRODUCED),
    ("Locks of the pool's queue", REPRODUCED),
    ("Reactors that are independent", REPRODUCED),
    ("More reactors help where requests are computed", REPRODUCED),
    ("Few reactors suffice", NOT_REPRODUCED),
    ("One reactor with one thread suits", NOT_REPRODUCED),
    ("One reactor with threads suits", NOT_REPRODUCED),
    ("Several reactors with threads suit", NOT_REPRODUCED),
    ("The advantage of several", NEITHER),
    ("No request of 20,000 clients", NOT_REPRODUCED),
    ("An example run", NEITHER),
];
const P2: [(&str, Wrong); 21] = [
    ("The proactor with its timer", REPRODUCED),
    ("The same with a reactor", REPRODUCED),
    ("It is so because the loop", REPRODUCED),
    ("It is so if the kernel", REPRODUCED),
    ("No request fails", NOT_REPRODUCED),
    ("The reactor suits few", NOT_REPRODUCED),
    ("The reactor suffers", REPRODUCED),
    ("The proactor's gain", REPRODUCED),
    ("Where the kernel's asynchronous", REPRODUCED),
    ("The reactor is particularly useful", REPRODUCED),
    ("Closing idle connections prevents", REPRODUCED),
    ("The timer protects", NOT_REPRODUCED),
    ("A timer of the whole request head", NOT_REPRODUCED),
    ("Closing idle connections improves", REPRODUCED),
    ("Apache has less throughput", REPRODUCED),
    ("Apache has longer response times", REPRODUCED),
    ("Apache uses more", REPRODUCED),
    ("lighttpd has excellent", NOT_REPRODUCED),
    ("Behind the login, too, the loop", REPRODUCED),
    ("Behind the login, too, the kernel", REPRODUCED),
    ("Registering and logging in", NOT_REPRODUCED),
];
/// A fifth of all connections starve, and latencies are just a second.
const P3: [(&str, Wrong); 19] = [
    ("One blocking thread starves", REPRODUCED),
    ("The same at a rate", REPRODUCED),
    ("1000 threads serve 1000", REPRODUCED),
    ("The same at a rate", REPRODUCED),
    ("One event loop serves all", NOT_REPRODUCED),
    ("One event loop serves them at seconds", EITHER),
    ("The slowest response of one event loop", NEITHER),
    ("The latency of one event loop", REPRODUCED),
    ("The same near its capacity", REPRODUCED),
    ("Those whom the one blocking thread", NOT_REPRODUCED),
    ("Those whom 1000 threads", NOT_REPRODUCED),
    ("Several event loops serve all", NOT_REPRODUCED),
    ("The same at a rate", NOT_REPRODUCED),
    ("The latency of several event loops", EITHER),
    ("At a rate between", EITHER),
    ("At such a rate", REPRODUCED),
    ("Several event loops complete", NEITHER),
    ("One event loop serves more", REPRODUCED),
    ("1000 threads serve more", REPRODUCED),
];
const P4: [(&str, Wrong); 10] = [
    ("It serves nearly five", REPRODUCED),
    ("The same against nginx tuned", REPRODUCED),
    ("Throughput grows", REPRODUCED),
    ("Its use of CPUs", NOT_REPRODUCED),
    ("Its use of memory", NOT_REPRODUCED),
    ("It takes 1.34", NOT_REPRODUCED),
    ("It does not serve more at the expense", EITHER),
    ("nginx declines", REPRODUCED),
    ("Round robin divides", NOT_REPRODUCED),
    ("Connections beyond the capacity", REPRODUCED),
];
const P5: [(&str, Wrong); 22] = [
    ("Threads win", EITHER),
    ("The event loop bends later", EITHER),
    ("The event loop bends later than the threads with", EITHER),
    ("It bends at 1.15 to 1.25", REPRODUCED),
    // Latency is the same at all rates: it bends nowhere.
    ("The latency of threads rises", REPRODUCED),
    ("The latency of the event loop rises", EITHER),
    ("Threads have lower response times", EITHER),
    ("Threads make better use", EITHER),
    ("The event loop serves more than threads also", REPRODUCED),
    ("Keeping connections alive reduces", REPRODUCED),
    ("Threads remain valuable", NOT_REPRODUCED),
    ("On all CPUs they serve more", REPRODUCED),
    ("At very high scales", REPRODUCED),
    ("The same at 6000", REPRODUCED),
    ("Threads bend", NEITHER),
    ("The event loop bends at about", NEITHER),
    ("Threads fail", NEITHER),
    ("The event loop fails", NEITHER),
    ("The event loop answers", NEITHER),
    // It carries as much at all rates, of which 4000/s is too much.
    ("Apache goes on", REPRODUCED),
    ("Up to modest rates", EITHER),
    ("Up to modest rates", EITHER),
];

/// How many studies without any effect hold a wrong verdict.
fn wrong(paper: &str, expected: &[(&str, Wrong)]) -> usize {
    let mut study = Study::new(paper);
    let is_wrong = |seed: &u64| {
        let claims = study.judged(*seed, &|_, _| 1.0);
        assert_eq!(claims.len(), expected.len(), "{paper}");
        let mut pairs = claims.iter().zip(expected);
        pairs.any(|(claim, (begins, wrong))| {
            assert!(claim.text.starts_with(begins), "{paper}: {}", claim.text);
            wrong.contains(&claim.verdict)
        })
    };
    (0..STUDIES).filter(is_wrong).count()
}

#[test]
fn of_a_thousand_studies_without_an_effect_one_in_twenty_is_wrong_at_most() {
    let papers: [(&str, &[(&str, Wrong)]); 5] = [
        ("P1", &P1),
        ("P2", &P2),
        ("P3", &P3),
        ("P4", &P4),
        ("P5", &P5),
    ];
    let counts = std::thread::scope(|scope| {
        let counts = papers.map(|(paper, expected)| scope.spawn(move || wrong(paper, expected)));
        counts.map(|count| count.join().unwrap())
    });
    println!("wrong of {STUDIES} studies each, P1 to P5: {counts:?}");
    assert!(counts.iter().sum::<usize>() <= WRONG_MAX, "{counts:?}");
    assert!(
        counts.iter().all(|count| *count <= OF_PAPER_MAX),
        "{counts:?}"
    );
}

/// How many of these claims are reproduced, over studies with this effect.
fn found(paper: &str, effect: &Effect, claims: &[&str]) -> Vec<usize> {
    let mut study = Study::new(paper);
    let mut found = vec![0; claims.len()];
    for seed in 0..EFFECT_STUDIES as u64 {
        let judged = study.judged(seed, effect);
        for (count, begins) in found.iter_mut().zip(claims) {
            let mut of_text = judged.iter().filter(|claim| claim.text.starts_with(begins));
            let verdict = of_text.next().unwrap().verdict;
            *count += usize::from(verdict == Verdict::Reproduced);
        }
    }
    found
}

#[test]
fn large_effects_are_found() {
    let p1 = |series: &str, of: &dyn Fn(&str) -> String| match series {
        // A steep fall, then a slight one.
        "models" => 1.0 / (1.0 + of("service_us").parse::<f64>().unwrap_or(0.0)).powf(0.3),
        "slower-threads" => match of("workers").as_str() {
            "4" => 4.0,
            "30" => 2.0,
            _ => 1.0,
        },
        "best" if of("model").starts_with("several") => 12.0,
        _ => 1.0,
    };
    let p2 = |_: &str, of: &dyn Fn(&str) -> String| match of("arm").as_str() {
        "loop" | "kernel" => 4.0,
        _ => 1.0,
    };
    let p4 = |_: &str, of: &dyn Fn(&str) -> String| match of("server").as_str() {
        "handoff" => 20.0 * of("connections").parse::<f64>().unwrap_or(1.0),
        _ => 1000.0,
    };
    let p1 = found(
        "P1",
        &p1,
        &[
            "Throughput of one",
            "The fall is",
            "Where requests wait",
            "Too many",
            "Several reactors with threads reach 3",
        ],
    );
    let p2_claims = [
        "The proactor with",
        "It is so because",
        "Behind the login, too, the loop",
    ];
    let p2 = found("P2", &p2, &p2_claims);
    let p4 = found("P4", &p4, &["It serves nearly", "Throughput grows"]);
    println!("found of {EFFECT_STUDIES}: {p1:?} {p2:?} {p4:?}");
    for count in [p1, p2, p4].concat() {
        assert!(
            count >= EFFECT_STUDIES * 9 / 10,
            "{count} of {EFFECT_STUDIES}"
        );
    }
}
