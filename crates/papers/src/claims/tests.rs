//! Made-up runs in which a claim holds, does not, is undecided, and cannot be tested.

mod p5;

use loadline_lab::analysis::{Measured, Metric, Second};
use loadline_lab::journal::{Level, RunHead};
use loadline_lab::report::Verdict;

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
#[derive(Default)]
struct Made {
    run: Run,
}

impl Made {
    fn new(paper: &str) -> Self {
        let mut made = Self::default();
        let plan = crate::Paper::named(paper).unwrap();
        made.run.head = RunHead {
            name: paper.to_owned(),
            plan_toml: crate::Grid::default().plan_text(plan.text, paper).unwrap(),
            seed: 1,
            ..RunHead::default()
        };
        made
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
                values: values
                    .iter()
                    .map(|(metric, value)| (*metric, value * factor))
                    .collect(),
                ..Measured::default()
            });
        }
        self
    }

    /// The last cell becomes discarded.
    fn discarded(&mut self, reason: &str) -> &mut Self {
        let count = self.run.trials.len();
        for trial in &mut self.run.trials[count - 5..] {
            trial.discarded.push(reason.to_owned());
        }
        self
    }

    /// Changes the trials of the last cell.
    fn each(&mut self, change: impl Fn(&mut Measured)) -> &mut Self {
        let count = self.run.trials.len();
        self.run.trials[count - 5..].iter_mut().for_each(change);
        self
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

    fn verdict(&self, beginning: &str) -> Verdict {
        self.claim(beginning).verdict
    }
}

use Metric::{CompletedPerS, ContextSwitchesPerRequest, ErrorShare, GoodPerS, MeanUs, MemoryBytes};
use Verdict::{NotComparable, NotReproduced, NotTestable, Reproduced};

const SINGLE: &str = "single reactor, single thread";
const SEVERAL: &str = "several reactors, threads";

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
    let fall = "Throughput of one reactor";
    let steepest = "The fall is steepest";
    let falling = by_service([9000.0, 4000.0, 3500.0, 3000.0]);
    assert_eq!(
        (falling.verdict(fall), falling.verdict(steepest)),
        (Reproduced, Reproduced)
    );
    let late = by_service([9000.0, 8900.0, 8000.0, 2000.0]);
    assert_eq!(
        (late.verdict(fall), late.verdict(steepest)),
        (Reproduced, NotReproduced)
    );
    let turning = by_service([9000.0, 4000.0, 3000.0, 8000.0]);
    assert_eq!(turning.verdict(fall), NotReproduced);
    let rising = by_service([1000.0, 2000.0, 3000.0, 4000.0]);
    assert_eq!(rising.verdict(fall), NotReproduced);
    let mut discarded = by_service([9000.0, 4000.0, 3500.0, 3000.0]);
    for trial in &mut discarded.run.trials {
        trial.discarded.push("Client-limited. Too busy.".to_owned());
    }
    let claim = discarded.claim(fall);
    assert_eq!(claim.verdict, NotTestable);
    assert!(
        claim
            .why
            .ends_with("20 are discarded, as in: Client-limited. Too busy."),
        "{}",
        claim.why
    );
}

fn headline(several: f64, noise: f64) -> Made {
    let mut made = Made::new("P1");
    for service in ["0", "1000"] {
        for (model, rate) in [(SINGLE, 1000.0), (SEVERAL, several)] {
            let levels = [
                ("model", model),
                ("service_us", service),
                ("connections", "20000"),
            ];
            made.cell(
                "concurrency",
                (&levels, &[(GoodPerS, rate), (MeanUs, 1e6 / rate)]),
                noise,
            );
        }
    }
    made
}

#[test]
fn three_times_is_held_by_the_whole_interval_or_not() {
    let three = "Several reactors with threads reach 3 times";
    assert_eq!(headline(4000.0, 0.02).verdict(three), Reproduced);
    assert_eq!(headline(2000.0, 0.02).verdict(three), NotReproduced);
    assert_eq!(headline(3000.0, 0.2).verdict(three), NotTestable);
    let claim = headline(4000.0, 0.02).claim(three);
    assert!(claim.interval.unwrap().contains(4.0), "{claim:?}");
    assert_eq!(claim.published, "3", "{claim:?}");
    let mut discarded = headline(4000.0, 0.02);
    for trial in &mut discarded.run.trials {
        if trial.levels["model"] == level(SEVERAL) {
            trial.discarded.push("The server died.".to_owned());
        }
    }
    assert_eq!(discarded.verdict(three), NotTestable);
    let shorter = "Several reactors with threads have shorter";
    assert_eq!(headline(4000.0, 0.02).verdict(shorter), Reproduced);
    assert_eq!(headline(500.0, 0.02).verdict(shorter), NotReproduced);
}

#[test]
fn a_condition_that_lacks_a_block_does_not_shift_a_ratio() {
    let mut made = headline(4000.0, 0.02);
    // Of the trials at 1000 us, where the ratio is another, one block is left.
    for trial in &mut made.run.trials {
        if trial.levels["service_us"] == level("1000") {
            if trial.levels["model"] == level(SEVERAL) {
                trial.values.insert(GoodPerS, 16_000.0);
            }
            if trial.block > 1 {
                trial.discarded.push("x".to_owned());
            }
        }
    }
    let interval = made
        .claim("Several reactors with threads reach 3")
        .interval
        .unwrap();
    // The geometric mean of 4 and 16.
    assert!(
        interval.contains(8.0) && interval.high - interval.low < 1.6,
        "{interval:?}"
    );
}

fn surface(series: &str, factor: &str, by_time: &[(&str, [f64; 4])]) -> Made {
    let mut made = Made::new("P1");
    for (service, rates) in by_time {
        for (number, rate) in ["1", "4", "16", "30"].into_iter().zip(rates) {
            let levels = [(factor, number), ("service_us", *service)];
            let number: f64 = number.parse().unwrap();
            let values = [
                (GoodPerS, *rate),
                (ContextSwitchesPerRequest, 1.0 + number / 10.0),
            ];
            made.cell(series, (&levels, &values), 0.02);
        }
    }
    made
}

#[test]
fn optima_of_threads() {
    let beyond = "Beyond the optimum of threads";
    let moves = "The optimal number of threads";
    let help = "Where requests wait";
    let lose = "Too many threads lose";
    let peaked = [("0", [9e3, 8e3, 7e3, 6e3]), ("200", [3e3, 6e3, 9e3, 8e3])];
    let made = surface("threads", "workers", &peaked);
    assert_eq!(
        (made.verdict(beyond), made.verdict(moves)),
        (Reproduced, Reproduced)
    );
    assert_eq!(made.verdict(help), Reproduced);
    assert_eq!(made.verdict("More threads help where"), NotReproduced);
    let growing = [("100", [1e3, 2e3, 3e3, 6e3]), ("200", [1e3, 2e3, 4e3, 7e3])];
    let made = surface("threads", "workers", &growing);
    assert_eq!(
        (made.verdict(beyond), made.verdict(moves)),
        (NotReproduced, NotReproduced)
    );
    assert_eq!(
        (made.verdict(help), made.verdict(lose)),
        (Reproduced, NotReproduced)
    );
    let losing = [("100", [1e3, 9e3, 6e3, 4e3]), ("200", [1e3, 8e3, 6e3, 4e3])];
    let made = surface("threads", "workers", &losing);
    assert_eq!(
        (made.verdict(lose), made.verdict(moves)),
        (Reproduced, NotReproduced)
    );
    let flat = [("100", [9e3; 4]), ("200", [9e3; 4])];
    let made = surface("threads", "workers", &flat);
    assert_eq!(made.verdict(beyond), NotTestable);
    assert_eq!(made.verdict(moves), NotTestable);
}

#[test]
fn few_reactors_suffice() {
    let few = "Few reactors suffice";
    let flat = surface("reactors", "loops", &[("0", [5e3, 9e3, 9e3, 8.9e3])]);
    assert_eq!(flat.verdict(few), Reproduced);
    let growing = surface("reactors", "loops", &[("0", [1e3, 2e3, 8e3, 9e3])]);
    assert_eq!(growing.verdict(few), NotReproduced);
}

#[test]
fn short_runs_say_nothing_about_long_ones() {
    let lasts = "The advantage of several";
    let long = |duration_s: &str| {
        let mut made = Made::new("P1");
        made.run.head.plan_toml = made
            .run
            .head
            .plan_toml
            .replace("duration_s = 20.0", duration_s);
        for (model, rate) in [(SINGLE, 1000.0), (SEVERAL, 4000.0)] {
            made.cell("soak", (&[("model", model)], &[(GoodPerS, rate)]), 0.02)
                .each(|trial| {
                    trial.seconds = (0..9)
                        .map(|second| Second {
                            second,
                            counted: true,
                            values: [(CompletedPerS, 1000.0 + f64::from(second % 3))].into(),
                        })
                        .collect();
                });
        }
        made
    };
    assert_eq!(long("duration_s = 600.0").verdict(lasts), Reproduced);
    let claim = long("duration_s = 20.0").claim(lasts);
    assert_eq!(claim.verdict, NotTestable);
    assert!(
        claim.why.starts_with("These runs are of 20 s"),
        "{}",
        claim.why
    );
    let mut fading = long("duration_s = 600.0");
    fading.each(|trial| {
        for second in &mut trial.seconds[6..] {
            second.values.insert(CompletedPerS, 500.0);
        }
    });
    assert_eq!(fading.verdict(lasts), NotReproduced);
}

#[test]
fn the_gain_of_the_proactor() {
    let run = |of_loop: f64, of_spin: f64, errors: f64| {
        let mut made = Made::new("P2");
        for timer in ["with", "without"] {
            for (arm, rate) in [("workers", 1000.0), ("loop", of_loop)] {
                for connections in ["10", "1000", "10000"] {
                    let levels = [("arm", arm), ("timer", timer), ("connections", connections)];
                    let values = [(GoodPerS, rate), (ErrorShare, errors)];
                    made.cell("arms", (&levels, &values), 0.02);
                }
            }
        }
        for (arm, rate) in [("workers", 500.0), ("loop", of_spin)] {
            let levels = [("arm", arm), ("work", "spin"), ("connections", "10000")];
            made.cell("work", (&levels, &[(GoodPerS, rate)]), 0.02);
        }
        let claims = [
            "The proactor with its timer",
            "The proactor's gain",
            "No request fails",
        ];
        claims.map(|claim| made.verdict(claim))
    };
    assert_eq!(run(1400.0, 500.0, 0.0), [Reproduced; 3]);
    assert_eq!(run(1100.0, 600.0, 0.01), [NotReproduced; 3]);
    assert_eq!(
        run(1270.0, 635.0, 0.0),
        [NotTestable, NotTestable, Reproduced]
    );
    let made = Made::new("P2");
    assert_eq!(made.verdict("It is so if the kernel"), NotTestable);
}

#[test]
fn behind_the_login_and_logging_in() {
    let run = |of_loop: f64, of_hash: f64| {
        let mut made = Made::new("P2");
        for database in ["SQLite", "MariaDB", "PostgreSQL"] {
            for (arm, rate) in [("workers", 1000.0), ("loop", of_loop), ("kernel", 1200.0)] {
                for users in ["10", "50"] {
                    let levels = [("arm", arm), ("database", database), ("users", users)];
                    made.cell("page", (&levels, &[(GoodPerS, rate)]), 0.02);
                }
            }
            for (arm, rate) in [("workers", 40.0), ("loop", of_hash), ("kernel", 40.0)] {
                for action in ["register", "log in"] {
                    let levels = [("arm", arm), ("database", database), ("action", action)];
                    made.cell("accounts", (&levels, &[(GoodPerS, rate)]), 0.02);
                }
            }
        }
        made
    };
    let (more, fast) = (
        "Behind the login, too, the loop",
        "Registering and logging in",
    );
    let verdicts = |made: &Made| (made.verdict(more), made.verdict(fast));
    assert_eq!(verdicts(&run(1200.0, 40.0)), (Reproduced, Reproduced));
    assert_eq!(verdicts(&run(900.0, 60.0)), (NotReproduced, NotReproduced));
    let claim = run(1200.0, 40.0).claim(fast);
    assert!(
        claim
            .why
            .contains("log in (40 a second): kernel over workers")
    );
    // A database that is not there is said so, and what the others came to.
    let mut made = run(1200.0, 40.0);
    let of = |trial: &Measured, database| trial.levels["database"] == level(database);
    for trial in &mut made.run.trials {
        if of(trial, "MariaDB") {
            trial.discarded.push("MariaDB is not installed.".to_owned());
        }
    }
    let claim = made.claim(more);
    assert_eq!(claim.verdict, NotTestable);
    assert!(
        claim.why.contains("MariaDB is not installed."),
        "{}",
        claim.why
    );
    assert!(
        claim.why.contains("PostgreSQL: loop over workers: 1.2"),
        "{}",
        claim.why
    );
}

#[test]
fn each_condition_of_a_claim_is_judged_at_its_part_of_the_level() {
    let mut made = Made::new("P2");
    for database in ["SQLite", "MariaDB", "PostgreSQL"] {
        for (arm, rate) in [("workers", 1000.0), ("loop", 1200.0)] {
            let levels = [("arm", arm), ("database", database), ("users", "10")];
            made.cell("page", (&levels, &[(GoodPerS, rate)]), 0.02);
        }
    }
    // The only claim of this run that can be judged: 1 - 0.05 / 3.
    let claim = made.claim("Behind the login, too, the loop");
    assert_eq!(claim.why.matches("98.3 % interval").count(), 3, "{claim:?}");
    let alone = headline(4000.0, 0.02);
    let claims = judged(&alone.run).into_iter();
    let decided = claims.filter(|claim| claim.verdict != NotTestable);
    let levels: Vec<f64> = decided.map(|it| it.interval.unwrap().level).collect();
    // Two that can, each decided as one of two.
    assert_eq!(levels, [0.975, 0.975]);
}

#[test]
fn connections_that_starve() {
    let run = |model: &str, connections: u64, timeouts: u64| {
        let mut made = Made::new("P3");
        for rate in ["10000", "200000"] {
            let levels = [("model", model), ("rate_per_s", rate)];
            made.cell("rates", (&levels, &[(CompletedPerS, 5000.0)]), 0.02)
                .each(|trial| (trial.connections, trial.timeouts) = (connections, timeouts));
        }
        let begin = match model {
            "1000 threads" => "1000 threads serve 1000",
            _ => "One blocking thread starves",
        };
        made.verdict(begin)
    };
    // Of 2000 connections half wait; 3 times they are given up and opened anew.
    assert_eq!(run("1000 threads", 4000, 3000), Reproduced);
    // As many as wait, wait in vain, or none do.
    assert_eq!(run("1000 threads", 6000, 5990), NotReproduced);
    assert_eq!(run("1000 threads", 2000, 0), NotReproduced);
    // One is served; the kernel's queue, of 4096 and one, took no more of those that waited.
    assert_eq!(run("one blocking thread", 4098, 4097), Reproduced);
    assert_eq!(run("one blocking thread", 4000, 3000), NotReproduced);
    let mut made = Made::new("P3");
    let levels = [("model", "one event loop"), ("rate_per_s", "200000")];
    let values = [(MeanUs, 3e6), (ErrorShare, 0.0)];
    made.cell("rates", (&levels, &values), 0.02);
    assert_eq!(
        made.verdict("One event loop serves them at seconds"),
        Reproduced
    );
    assert_eq!(made.verdict("One event loop serves all"), Reproduced);
    made.discarded("Client-limited. It sent 90,000/s.");
    let claim = made.claim("One event loop serves all");
    assert_eq!(claim.verdict, NotTestable);
    assert!(claim.why.contains("It sent 90,000/s"), "{}", claim.why);
}

#[test]
fn statix_and_nginx() {
    let run = |at_10000: f64, memory: f64| {
        let mut made = Made::new("P4");
        for (connections, rate) in [("1000", 2000.0), ("5000", 9000.0), ("10000", at_10000)] {
            for (server, rate, memory) in [("handoff", rate, memory), ("nginx", 2000.0, 1e7)] {
                let levels = [("server", server), ("connections", connections)];
                let values = [(CompletedPerS, rate), (MemoryBytes, memory)];
                made.cell("connections", (&levels, &values), 0.01);
            }
        }
        let claims = ["It serves nearly", "Throughput grows", "It takes 1.34"];
        claims.map(|claim| made.verdict(claim))
    };
    assert_eq!(run(12_000.0, 1.1e7), [Reproduced; 3]);
    assert_eq!(run(1900.0, 2e7), [NotReproduced; 3]);
}

/// Ten cells with the same use and 3 % of noise have a largest that is 1.1 times the smallest and
/// more: no sign that it is not stable.
#[test]
fn cpu_use_is_stable_however_noisy() {
    let run = |growth: f64, noise: f64| {
        let mut made = Made::new("P4");
        for thousands in 1..=10 {
            let connections = format!("{}", thousands * 1000);
            let levels = [("server", "handoff"), ("connections", connections.as_str())];
            let share = growth.powf(f64::from(thousands).log10());
            let values = [
                (Metric::CpuUserShare, 0.2 * share),
                (Metric::CpuKernelShare, 0.7 * share),
                (MemoryBytes, 4e7 * share),
            ];
            made.cell("connections", (&levels, &values), noise);
        }
        let claims = ["Its use of CPUs", "Its use of memory"];
        claims.map(|claim| made.verdict(claim))
    };
    assert_eq!(run(1.0, 0.06), [Reproduced; 2]);
    assert_eq!(run(1.02, 0.01), [Reproduced; 2]);
    // As published: the memory of 1.68 times the connections' tenth is as stable as theirs.
    assert_eq!(run(1.68, 0.01), [NotReproduced, Reproduced]);
    assert_eq!(run(1.08, 0.06)[0], NotTestable);
    assert_eq!(run(3.0, 0.01), [NotReproduced; 2]);
    assert_eq!(run(0.3, 0.01), [NotReproduced; 2]);
}

#[test]
fn where_the_client_was_the_limit_a_claim_has_to_hold_for_what_there_was_room_for() {
    let claim = |busy: f64, rate: f64| {
        let mut made = Made::new("P4");
        for (server, rate) in [("handoff", rate), ("nginx", 20_000.0)] {
            let levels = [("server", server), ("connections", "10000")];
            let values = [(CompletedPerS, rate)];
            made.cell("connections", (&levels, &values), 0.01);
            if server == "handoff" {
                made.each(|trial| {
                    (trial.client_limited, trial.server_busy) = (true, Some(busy));
                });
            }
        }
        let claim = made.claim("It serves nearly");
        (claim.verdict, claim.why)
    };
    // 4.5 is asked for: 3 to 3.3, 3 to 6, 5 to 10.
    let (verdict, why) = claim(0.9, 60_000.0);
    assert_eq!(verdict, NotReproduced);
    assert!(
        why.contains("The client was the limit in some trials"),
        "{why}"
    );
    let (verdict, why) = claim(0.5, 60_000.0);
    assert_eq!(verdict, NotTestable);
    assert!(
        why.contains("Client-limited: the interval reaches"),
        "{why}"
    );
    assert_eq!(claim(0.5, 100_000.0).0, Reproduced);
    // At the end of its CPU, the server is what it was measured to be.
    let (verdict, why) = claim(0.96, 60_000.0);
    assert!(verdict == NotReproduced && !why.contains("client"), "{why}");
}

#[test]
fn a_trend_has_to_be_there_with_what_there_was_room_for_too() {
    let falls = |busy: f64| {
        let mut made = Made::new("P1");
        for (service, rate) in [
            ("0", 20_000.0),
            ("100", 21_000.0),
            ("200", 5_000.0),
            ("300", 3_000.0),
        ] {
            let levels = [("model", SINGLE), ("service_us", service)];
            made.cell("models", (&levels, &[(GoodPerS, rate)]), 0.002);
            if service == "0" {
                made.each(|trial| {
                    (trial.client_limited, trial.server_busy) = (true, Some(busy));
                });
            }
        }
        let claim = made.claim("Throughput of one reactor");
        (claim.verdict, claim.why)
    };
    assert_eq!(falls(1.0).0, NotReproduced);
    let (verdict, why) = falls(0.5);
    assert_eq!(verdict, NotTestable);
    assert!(why.starts_with("Client-limited. As measured: "), "{why}");
}
