//! The page of a search for the capacity, which is plain text, in a browser.

use std::fs;
use std::io::{self, Write as _};

use loadline_capacity::search::{Limits, Search, Try};
use loadline_lab::capacity::{Capacity, Evidence, SearchObserver, Stop, Trials, measure, page};
use loadline_lab::journal::Trial;
use loadline_lab::slo::Slo;
use loadline_record::{Distribution, GroupRecord, Results, TrialRecord, latencies};

use crate::chromium::Browser;
use crate::report::how_soon;

/// A queue that carries 4000/s.
struct Queue;

impl Trials for Queue {
    fn run(&mut self, trial: &Try) -> Result<Trial, Stop> {
        let load = trial.rate_per_s / 4000.0;
        let offered = (trial.rate_per_s * trial.seconds).round();
        let completed = offered * (1.0 / load).min(1.0);
        let mut histogram = latencies();
        let latency_us = 1000.0 / (1.0 - load).max(1e-4);
        histogram.saturating_record_n(latency_us as u64, completed as u64);
        let mut total = Results {
            seconds: trial.seconds,
            latency: Distribution::new(histogram),
            ..Results::default()
        };
        total.rates.offered_per_s = trial.rate_per_s;
        total.rates.completed_per_s = completed / trial.seconds;
        (total.tally.offered, total.tally.completed) = (offered as u64, completed as u64);
        let record = TrialRecord {
            groups: vec![GroupRecord {
                total,
                ..GroupRecord::default()
            }],
            ..TrialRecord::default()
        };
        Ok(Trial {
            load: Some(Box::new(record)),
            took_s: trial.seconds,
            ..Trial::default()
        })
    }

    fn closed_loop(&mut self, _: f64) -> Result<f64, Stop> {
        Ok(4000.0)
    }
}

struct Silent;

impl SearchObserver for Silent {
    fn begins(&mut self, _: &Try, _: &Search) {}
    fn judged(&mut self, _: &Evidence, _: &Search) {}
}

/// A search with so many trials: its own, again and again.
fn found(trials: usize) -> Capacity {
    let slo: Slo = "p99 < 20ms".parse().expect("an SLO");
    let limits = Limits {
        begin_per_s: 100.0,
        rate_max_per_s: 1e6,
        budget_s: 900.0,
        short_s: 2.0,
        long_s: 10.0,
        requests_min: 1000.0,
        warm_up_s: 0.0,
        overhead_s: 0.0,
    };
    let found = measure(&slo, "made up", "", &limits, &mut Queue, &mut Silent);
    let mut capacity = found.expect("a capacity");
    let own = capacity.evidence.iter().cycle();
    capacity.evidence = own.take(trials).cloned().collect();
    capacity
}

/// `cargo test -p loadline --test browser how_soon -- --ignored --nocapture`
#[test]
#[ignore = "by hand: how soon, on a quiet machine"]
fn how_soon_the_page_of_a_capacity_of_a_thousand_trials_is_open_by_hand() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("capacity.txt");
    let url = format!("file://{}", path.display());
    let mut browser = Browser::start();
    for trials in [30, 1000] {
        let capacity = found(trials);
        fs::write(&path, page(&capacity)).expect("a file");
        let [painted, loaded, shown] = how_soon(&mut browser, &url, |browser| {
            let lines = browser.evaluate(
                "(async () => {
                    while (performance.getEntriesByName('first-contentful-paint').length === 0)
                        await new Promise(requestAnimationFrame);
                    return document.body.innerText.split('\\n').length;
                })()",
            );
            assert!(lines.as_u64() > Some(trials as u64), "{lines}");
        });
        let _ = writeln!(
            io::stderr(),
            "{trials} trials: painted after {painted} ms, loaded after {loaded} ms, \
             all lines counted after {shown} ms"
        );
    }
}
