//! Made-up runs in which a claim holds, does not, is undecided, and cannot be tested.

mod best;
mod discarded;
mod limit;
mod p5;
mod plateau;
mod rows;
mod zeros;

use loadline_lab::analysis::{Measured, Metric, Second};
use loadline_lab::journal::Level;
use loadline_lab::report::{Undecided, Verdict};

use super::*;

/// Levels and what is measured there.
type Cell<'c> = (&'c [(&'c str, &'c str)], &'c [(Metric, f64)]);

fn level(text: &str) -> Level {
    match text.parse() {
        Ok(number) => Level::Number(number),
        Err(_) => Level::from(text),
    }
}

/// A run under construction.
struct Made {
    run: Run,
}

impl Made {
    fn new(paper: &str) -> Self {
        let run = crate::tests::begun(paper);
        Self { run }
    }

    /// Trials of a cell in five blocks, `noise` apart.
    fn cell(&mut self, series: &str, (levels, values): Cell<'_>, noise: f64) -> &mut Self {
        for block in 0..5_u32 {
            let number = self.run.trials.len() as u32;
            // The same for no two cells, and none on average.
            let cell = number / 5;
            let swing = f64::from((block * (1 + cell % 4) + cell) % 5) - 2.0;
            let factor = 1.0 + noise * swing / 2.0;
            let levels = levels
                .iter()
                .map(|(name, text)| ((*name).to_owned(), level(text)));
            self.run.trials.push(Measured {
                number,
                block,
                series: series.to_owned(),
                levels: levels.collect(),
                offered: 10_000,
                values: values
                    .iter()
                    .map(|(metric, value)| (*metric, value * factor))
                    .collect(),
                ..Measured::default()
            });
        }
        self
    }

    /// Changes the trials of the last cell.
    fn each(&mut self, change: impl Fn(&mut Measured)) -> &mut Self {
        let count = self.run.trials.len();
        self.run.trials[count - 5..].iter_mut().for_each(change);
        self
    }

    fn discard(&mut self, why: &str, is_one: impl Fn(&Measured) -> bool) {
        for trial in &mut self.run.trials {
            if is_one(trial) {
                trial.discarded.push(why.to_owned());
            }
        }
    }

    fn claim(&self, beginning: &str) -> Claim {
        let claims = judged(&self.run);
        let mut found = claims
            .into_iter()
            .filter(|claim| claim.text.starts_with(beginning));
        let claim = found
            .next()
            .unwrap_or_else(|| panic!("no claim {beginning}"));
        assert_eq!(claim.paper, self.run.head.name);
        claim
    }

    /// Verdicts on the claims that begin so.
    fn verdicts<const N: usize>(&self, beginnings: [&str; N]) -> [Verdict; N] {
        beginnings.map(|beginning| self.claim(beginning).verdict)
    }
}

use Metric::{CompletedPerS, ContextSwitchesPerRequest, ErrorShare, GoodPerS, MeanUs, MemoryBytes};
use Verdict::{NotComparable, NotReproduced, NotTestable, Reproduced};

const SINGLE: &str = "single reactor, single thread";
const SEVERAL: &str = "several reactors, threads";
const DATABASES: [&str; 3] = ["SQLite", "MariaDB", "PostgreSQL"];

#[test]
fn a_run_without_trials_can_judge_nothing() {
    for paper in ["P1", "P2", "P3", "P4", "P5"] {
        let claims = judged(&Made::new(paper).run);
        assert!(claims.len() >= 6, "{paper}");
        for claim in &claims {
            assert_eq!(claim.verdict, NotTestable, "{claim:?}");
            assert!(!claim.why.is_empty() && claim.why.len() < 1000, "{claim:?}");
        }
        let mut texts: Vec<&str> = claims.iter().map(|claim| claim.text.as_str()).collect();
        texts.retain(|text| !text.starts_with("The same"));
        let count = texts.len();
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), count);
    }
    let mut other = Made::new("P1");
    other.run.head.name = "mine".to_owned();
    assert_eq!(judged(&other.run), []);
}

fn by_service(rates: [f64; 4]) -> Made {
    let mut made = Made::new("P1");
    for (service, rate) in ["0", "100", "200", "300"].into_iter().zip(rates) {
        let levels = [("model", SINGLE), ("service_us", service)];
        made.cell("models", (&levels, &[(GoodPerS, rate)]), 0.02);
    }
    made
}

#[test]
fn throughput_falls_with_service_time() {
    let claims = ["Throughput of one reactor", "The fall is steepest"];
    for (rates, verdicts) in [
        ([9e3, 4e3, 3.5e3, 3e3], [Reproduced, Reproduced]),
        ([9e3, 8.9e3, 8e3, 2e3], [Reproduced, NotReproduced]),
        ([9e3, 4e3, 3e3, 8e3], [NotReproduced, Reproduced]),
        ([1e3, 2e3, 3e3, 4e3], [NotReproduced, NotReproduced]),
    ] {
        assert_eq!(by_service(rates).verdicts(claims), verdicts, "{rates:?}");
    }
    let Claim { why, .. } = by_service([9e3, 4e3, 3.5e3, 3e3]).claim(claims[0]);
    let conditions = "2000 clients, 20,000 under --full: Trend over service times";
    assert!(why.starts_with(conditions), "{why}");
    let mut discarded = by_service([9e3, 4e3, 3.5e3, 3e3]);
    discarded.discard("Client-limited. Too busy.", |_| true);
    let Claim { verdict, why, .. } = discarded.claim(claims[0]);
    assert_eq!(verdict, NotTestable);
    let reason = "20 are discarded, as in: Client-limited. Too busy.";
    assert!(why.ends_with(reason), "{why}");
}

fn headline(several: f64, noise: f64) -> Made {
    let mut made = Made::new("P1");
    for service_us in ["0", "1000"] {
        for (model, numbers, rate) in [
            (SINGLE, "1 x 1", 1000.0),
            (SEVERAL, "2 x 16", several),
            (SEVERAL, "2 x 50", several / 2.0),
        ] {
            let numbers = ("numbers", numbers);
            let levels = [("model", model), ("service_us", service_us), numbers];
            let values = [(GoodPerS, rate), (MeanUs, 1e6 / rate)];
            made.cell("best", (&levels, &values), noise);
        }
    }
    made
}

#[test]
fn three_times_is_held_by_the_whole_interval_or_not() {
    let claims = [
        "Several reactors with threads reach 3 times",
        "Several reactors with threads have shorter",
    ];
    for (several, noise, verdicts) in [
        (4000.0, 0.02, [Reproduced, Reproduced]),
        (2000.0, 0.02, [NotReproduced, Reproduced]),
        (3000.0, 0.2, [NotTestable, Reproduced]),
        (500.0, 0.02, [NotReproduced, NotReproduced]),
    ] {
        assert_eq!(headline(several, noise).verdicts(claims), verdicts);
    }
    let mut made = headline(4000.0, 0.02);
    let claim = made.claim(claims[0]);
    assert!(claim.interval.unwrap().contains(4.0), "{claim:?}");
    assert_eq!(claim.published, "3", "{claim:?}");
    made.discard("The server died.", |trial| {
        trial.levels["model"] == level(SEVERAL)
    });
    assert_eq!(made.verdicts(claims), [NotTestable; 2]);
}

#[test]
fn a_condition_that_lacks_a_block_does_not_shift_a_ratio() {
    let mut made = headline(4000.0, 0.02);
    // Of the trials at 1000 us, where the ratio is another, one block is left.
    let trials = made.run.trials.iter_mut();
    for trial in trials.filter(|trial| trial.levels["service_us"] == level("1000")) {
        if trial.levels["model"] == level(SEVERAL) {
            trial.values.insert(GoodPerS, 16_000.0);
        }
        if trial.block > 1 {
            trial.discarded.push("x".to_owned());
        }
    }
    let claim = made.claim("The same, pooled");
    let interval = claim.interval.unwrap();
    // The geometric mean of 4 and 16.
    let is_narrow = interval.high - interval.low < 1.6;
    assert!(interval.contains(8.0) && is_narrow, "{interval:?}");
}

fn surface(series: &str, factor: &str, by_time: &[(&str, [f64; 4])]) -> Made {
    let mut made = Made::new("P1");
    for (service_us, rates) in by_time {
        for ((text, number), rate) in [("1", 1.0), ("4", 4.0), ("16", 16.0), ("30", 30.0)]
            .into_iter()
            .zip(rates)
        {
            let levels = [(factor, text), ("service_us", *service_us)];
            let switches = (ContextSwitchesPerRequest, 1.0 + number / 10.0);
            made.cell(series, (&levels, &[(GoodPerS, *rate), switches]), 0.02);
        }
    }
    made
}

#[test]
fn optima_of_threads() {
    let claims = [
        "Beyond the optimum of threads",
        "The optimal number of threads",
        "Where requests wait",
        "Too many threads lose",
    ];
    let (yes, no, open) = (Reproduced, NotReproduced, NotTestable);
    for (by_time, verdicts) in [
        (
            [("0", [9e3, 8e3, 7e3, 6e3]), ("200", [3e3, 6e3, 9e3, 8e3])],
            [yes, yes, yes, yes],
        ),
        (
            [("100", [1e3, 2e3, 3e3, 6e3]), ("200", [1e3, 2e3, 4e3, 7e3])],
            [no, no, yes, no],
        ),
        (
            [("100", [1e3, 9e3, 6e3, 4e3]), ("200", [1e3, 8e3, 6e3, 4e3])],
            [yes, no, yes, yes],
        ),
        (
            [("100", [9e3; 4]), ("200", [9e3; 4])],
            [open, open, no, open],
        ),
    ] {
        let made = surface("slower-threads", "workers", &by_time);
        assert_eq!(made.verdicts(claims), verdicts, "{by_time:?}");
    }
    for (rates, verdict) in [([9e3, 8e3, 7e3, 6e3], no), ([3e3, 6e3, 9e3, 8e3], yes)] {
        let made = surface("slower-threads", "workers", &[("0", rates)]);
        assert_eq!(made.verdicts(["More threads help where"]), [verdict]);
    }
}

#[test]
fn few_reactors_suffice() {
    for (rates, verdict) in [
        ([5e3, 9e3, 9e3, 8.9e3], Reproduced),
        ([1e3, 2e3, 8e3, 9e3], NotReproduced),
    ] {
        let made = surface("loops", "loops", &[("200", rates)]);
        assert_eq!(made.verdicts(["Few reactors suffice"]), [verdict]);
    }
}

#[test]
fn short_runs_say_nothing_about_long_ones() {
    let lasts = "The advantage of several";
    let run = |duration_s: &str, last_per_s: f64| {
        let mut made = Made::new("P1");
        let plan = &mut made.run.head.plan_toml;
        *plan = plan.replace("duration_s = 20.0", duration_s);
        for (model, rate) in [(SINGLE, 1000.0), (SEVERAL, 4000.0)] {
            made.cell("soak", (&[("model", model)], &[(GoodPerS, rate)]), 0.02);
            made.each(|trial| {
                let second = |second| {
                    let per_s = if second < 6 { 1000.0 } else { last_per_s };
                    Second {
                        second,
                        counted: true,
                        values: [(CompletedPerS, per_s + f64::from(second % 3))].into(),
                    }
                };
                trial.seconds = (0..9).map(second).collect();
            });
        }
        made.claim(lasts)
    };
    assert_eq!(run("duration_s = 600.0", 1000.0).verdict, Reproduced);
    assert_eq!(run("duration_s = 600.0", 500.0).verdict, NotReproduced);
    let Claim { verdict, why, .. } = run("duration_s = 20.0", 1000.0);
    assert_eq!(verdict, NotTestable);
    assert!(why.starts_with("These runs are of 20 s"), "{why}");
}

#[test]
fn the_gain_of_the_proactor() {
    let claims = [
        "The proactor with its timer",
        "The proactor's gain",
        "No request fails",
    ];
    for (of_loop, of_spin, errors, verdicts) in [
        (1400.0, 500.0, 0.0, [Reproduced; 3]),
        (1100.0, 600.0, 0.01, [NotReproduced; 3]),
        (1270.0, 635.0, 0.0, [NotTestable, NotTestable, Reproduced]),
    ] {
        let mut made = Made::new("P2");
        for timer in ["with", "without"] {
            for (arm, rate) in [("workers", 1000.0), ("loop", of_loop)] {
                for connections in ["10", "1000", "10000"] {
                    let levels = [("arm", arm), ("timer", timer), ("connections", connections)];
                    let values = [(GoodPerS, rate), (ErrorShare, errors)];
                    made.cell("arms", (&levels, &values), 0.02);
                    made.cell("slower", (&levels, &values), 0.02);
                }
            }
        }
        for (work, rates) in [("none", [1000.0, of_loop]), ("computed", [500.0, of_spin])] {
            for (arm, rate) in ["workers", "loop"].into_iter().zip(rates) {
                let levels = [("arm", arm), ("work", work), ("connections", "10000")];
                made.cell("burden", (&levels, &[(GoodPerS, rate)]), 0.02);
            }
        }
        assert_eq!(made.verdicts(claims), verdicts, "{of_loop}");
    }
    // Where there is no gain, none can shrink.
    let mut made = Made::new("P2");
    for (work, rates) in [("none", [1000.0, 990.0]), ("computed", [500.0, 300.0])] {
        for (arm, rate) in ["workers", "loop"].into_iter().zip(rates) {
            let levels = [("arm", arm), ("work", work), ("connections", "10000")];
            made.cell("burden", (&levels, &[(GoodPerS, rate)]), 0.02);
        }
    }
    let claim = made.claim("The proactor's gain");
    assert_eq!(claim.undecided, Some(Undecided::NoGain), "{claim:?}");
}

#[test]
fn behind_the_login_and_logging_in() {
    let claims = [
        "Behind the login, too, the loop",
        "Registering and logging in",
    ];
    let run = |of_loop: f64, of_hash: f64| {
        let mut made = Made::new("P2");
        for database in DATABASES {
            for (arm, rate, hashed) in [
                ("workers", 1000.0, 40.0),
                ("loop", of_loop, of_hash),
                ("kernel", 1200.0, 40.0),
            ] {
                let of = |factor, level| [("arm", arm), ("database", database), (factor, level)];
                for users in ["10", "50"] {
                    made.cell("page", (&of("users", users), &[(GoodPerS, rate)]), 0.02);
                }
                for action in ["register", "log in"] {
                    let values = [(GoodPerS, hashed)];
                    made.cell("accounts", (&of("action", action), &values), 0.02);
                }
            }
        }
        made
    };
    assert_eq!(run(900.0, 60.0).verdicts(claims), [NotReproduced; 2]);
    let mut made = run(1200.0, 40.0);
    assert_eq!(made.verdicts(claims), [Reproduced; 2]);
    let Claim { why, .. } = made.claim(claims[1]);
    assert!(why.contains("log in (40 a second): kernel over workers"));
    // The reason names a database that is not there, and what the others came to.
    made.discard("MariaDB is not installed.", |trial| {
        trial.levels["database"] == level("MariaDB")
    });
    let Claim { verdict, why, .. } = made.claim(claims[0]);
    assert_eq!(verdict, NotTestable);
    for part in [
        "MariaDB is not installed.",
        "PostgreSQL: loop over workers: 1.2",
    ] {
        assert!(why.contains(part), "{why}");
    }
}

#[test]
fn each_condition_of_a_claim_is_judged_at_its_part_of_the_level() {
    let mut made = Made::new("P2");
    for database in DATABASES {
        for (arm, rate) in [("workers", 1000.0), ("loop", 1200.0)] {
            let levels = [("arm", arm), ("database", database), ("users", "10")];
            made.cell("page", (&levels, &[(GoodPerS, rate)]), 0.02);
        }
    }
    // The only claim of this run that can be judged: 1 - 0.05 / 3.
    let claim = made.claim("Behind the login, too, the loop");
    assert_eq!(claim.why.matches("98.3 % interval").count(), 3, "{claim:?}");
    let claims = judged(&headline(4000.0, 0.02).run).into_iter();
    let decided = claims.filter(|claim| ![NotTestable, NotComparable].contains(&claim.verdict));
    let levels: Vec<f64> = decided.map(|it| it.interval.unwrap().level).collect();
    // Two that can, each decided as one of two. The first is about two service times.
    let levels: Vec<String> = levels.iter().map(|level| format!("{level:.4}")).collect();
    assert_eq!(levels, ["0.9875", "0.9750"]);
}

#[test]
fn connections_that_starve() {
    let (blocking, pool) = (
        ("one blocking thread", "One blocking thread starves"),
        ("1000 threads", "1000 threads serve 1000"),
    );
    for ((model, claim), connections, timeouts, verdict) in [
        // Of 2000 connections half wait; 3 times they are given up and opened anew.
        (pool, 4000, 3000, Reproduced),
        // As many as wait, wait in vain, or none do.
        (pool, 6000, 5990, NotReproduced),
        (pool, 2000, 0, NotReproduced),
        // One is served; the kernel's queue, of 4096 and one, took no more of those that waited.
        (blocking, 4098, 4097, Reproduced),
        (blocking, 4000, 3000, NotReproduced),
    ] {
        let mut made = Made::new("P3");
        for rate in ["10000", "200000"] {
            let levels = [("model", model), ("rate_per_s", rate)];
            made.cell("rates", (&levels, &[(CompletedPerS, 5000.0)]), 0.02)
                .each(|trial| (trial.connections, trial.timeouts) = (connections, timeouts));
        }
        assert_eq!(made.verdicts([claim]), [verdict], "{model}, {timeouts}");
    }
    let mut made = Made::new("P3");
    let levels = [("model", "one event loop"), ("rate_per_s", "200000")];
    let values = [(MeanUs, 3e6), (ErrorShare, 0.0)];
    made.cell("rates", (&levels, &values), 0.02);
    let claims = [
        "One event loop serves them at seconds",
        "One event loop serves all",
    ];
    assert_eq!(made.verdicts(claims), [Reproduced; 2]);
    made.discard("Client-limited. It sent 90,000/s.", |_| true);
    let Claim { verdict, why, .. } = made.claim(claims[1]);
    assert_eq!(verdict, NotTestable);
    assert!(why.contains("It sent 90,000/s"), "{why}");
}

#[test]
fn apache_uses_more_of_each_resource() {
    for (cpu_us, memory, verdict) in [
        (60.0, 3e7, Reproduced),
        (40.0, 3e7, NotReproduced),
        (60.0, 9e6, NotReproduced),
    ] {
        let mut made = Made::new("P2");
        for (server, cpu_us, memory) in [("apache", cpu_us, memory), ("nginx", 50.0, 1e7)] {
            let levels = [("server", server), ("connections", "10000")];
            let values = [(Metric::CpuUsPerRequest, cpu_us), (MemoryBytes, memory)];
            made.cell("mainstream", (&levels, &values), 0.01);
        }
        assert_eq!(made.verdicts(["Apache uses more"]), [verdict]);
    }
}

#[test]
fn statix_and_nginx() {
    let claims = ["It serves nearly", "Throughput grows", "It takes 1.34"];
    for (at_10000, memory, verdict) in [(12e3, 1.1e7, Reproduced), (1900.0, 2e7, NotReproduced)] {
        let mut made = Made::new("P4");
        for (connections, rate) in [("1000", 2000.0), ("5000", 9000.0), ("10000", at_10000)] {
            for (server, rate, memory) in [("handoff", rate, memory), ("nginx", 2000.0, 1e7)] {
                let levels = [("server", server), ("connections", connections)];
                let values = [(CompletedPerS, rate), (MemoryBytes, memory)];
                made.cell("connections", (&levels, &values), 0.01);
            }
        }
        assert_eq!(made.verdicts(claims), [verdict; 3]);
    }
}

/// Ten cells with the same use and 3 % of noise have a largest that is 1.1 times the smallest and
/// more: no sign that it is not stable.
#[test]
fn cpu_use_is_stable_however_noisy() {
    for (growth, noise, verdicts) in [
        (1.0, 0.06, [Reproduced; 2]),
        (1.02, 0.01, [Reproduced; 2]),
        // As published: the memory of 1.68 times the connections' tenth is as stable as theirs.
        (1.68, 0.01, [NotReproduced, Reproduced]),
        (1.08, 0.06, [NotTestable, Reproduced]),
        (3.0, 0.01, [NotReproduced; 2]),
        (0.3, 0.01, [NotReproduced; 2]),
    ] {
        let mut made = Made::new("P4");
        for thousands in 1..=10 {
            let connections = format!("{}", thousands * 1000);
            let levels = [("server", "handoff"), ("connections", connections.as_str())];
            let share = f64::powf(growth, f64::from(thousands).log10());
            let values = [
                (Metric::CpuUserShare, 0.2 * share),
                (Metric::CpuKernelShare, 0.7 * share),
                (MemoryBytes, 4e7 * share),
            ];
            made.cell("connections", (&levels, &values), noise);
        }
        let found = made.verdicts(["Its use of CPUs", "Its use of memory"]);
        assert_eq!(found, verdicts, "{growth}, {noise}");
    }
}

#[test]
fn where_the_client_was_the_limit_a_claim_has_to_hold_for_what_there_was_room_for() {
    // 4.5 is asked for: 3 to 3.3, 3 to 6, 5 to 10; at the end of its CPU, the server is what it was
    // measured to be.
    let (limit, reaches) = (
        "The client was the limit in some trials",
        "Client-limited: the interval reaches",
    );
    for (busy, rate, verdict, reason) in [
        (0.9, 60_000.0, NotReproduced, limit),
        (0.5, 60_000.0, NotTestable, reaches),
        (0.5, 100_000.0, Reproduced, limit),
        (0.96, 60_000.0, NotReproduced, ""),
    ] {
        let mut made = Made::new("P4");
        for (server, rate) in [("nginx", 20_000.0), ("handoff", rate)] {
            let levels = [("server", server), ("connections", "10000")];
            made.cell("connections", (&levels, &[(CompletedPerS, rate)]), 0.01);
        }
        made.each(|trial| (trial.client_limited, trial.server_busy) = (true, Some(busy)));
        let claim = made.claim("It serves nearly");
        assert_eq!(claim.verdict, verdict, "{claim:?}");
        assert!(claim.why.contains(reason), "{claim:?}");
        let is_named = claim.why.to_lowercase().contains("client");
        assert_eq!(is_named, !reason.is_empty(), "{claim:?}");
    }
}

#[test]
fn a_trend_has_to_be_there_with_what_there_was_room_for_too() {
    let falls = |busy: f64| {
        let mut made = by_service([20e3, 21e3, 5e3, 3e3]);
        for trial in &mut made.run.trials {
            trial.client_limited = trial.levels["service_us"] == level("0");
            trial.server_busy = Some(busy);
        }
        made.claim("Throughput of one reactor")
    };
    assert_eq!(falls(1.0).verdict, NotReproduced);
    let Claim { verdict, why, .. } = falls(0.5);
    assert_eq!(verdict, NotTestable);
    assert!(why.starts_with("Client-limited. As measured: "), "{why}");
}

/// What is drawn is what was judged: with its bound, and what the paper has.
#[test]
fn a_claim_keeps_what_it_was_judged_by() {
    let mut made = Made::new("P4");
    for (server, rate) in [("handoff", 5000.0), ("nginx", 1000.0)] {
        let levels = [("server", server), ("connections", "10000")];
        made.cell("connections", (&levels, &[(CompletedPerS, rate)]), 0.01);
    }
    let claim = made.claim("It serves nearly five times");
    let [measure] = &claim.measures[..] else {
        panic!("{claim:?}");
    };
    assert!((measure.value - 5.0).abs() < 0.1, "{measure:?}");
    assert_eq!((measure.least, measure.most), (Some(4.5), None));
    assert_eq!(measure.published, [4.5]);
    assert_eq!(measure.interval, claim.interval);
    assert_eq!(claim.undecided, None);
    let missing = made.claim("Throughput grows");
    assert_eq!(missing.measures, []);
    assert_eq!(missing.undecided, Some(Undecided::NoTrials));
    let missing = made.claim("Round robin divides");
    assert_eq!(missing.undecided, Some(Undecided::NoTrials));
}
