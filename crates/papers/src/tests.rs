mod grids;
mod models;
mod shown;

use std::path::Path;

use loadline_lab::analysis::{Metric, Run};
use loadline_lab::cells::Cells;
use loadline_lab::plan::{Network, Plan, Series, ServerSpec, words};
use loadline_lab::report::Report;

use super::*;

pub(crate) fn plan(paper: &Paper, grid: &Grid) -> Plan {
    let text = grid.plan_text(&paper.text(), paper.name).unwrap();
    Plan::parse(&text, paper.name, Path::new("/")).unwrap()
}

pub(crate) fn full() -> Grid {
    Grid {
        full: true,
        ..Grid::default()
    }
}

/// A run of a paper's reduced grid, in which nothing was measured yet.
pub(crate) fn begun(paper: &str) -> Run {
    let plan = Paper::named(paper).unwrap().text();
    let mut run = Run::default();
    run.head.name = paper.to_owned();
    run.head.plan_toml = Grid::default().plan_text(&plan, paper).unwrap();
    run
}

/// Levels of a factor of the first series of this name.
fn levels(plan: &Plan, series: &str, factor: &str) -> Vec<String> {
    let series = plan.series.iter().find(|one| one.name == series).unwrap();
    let factor = series
        .factors
        .iter()
        .find(|one| one.name == factor)
        .unwrap();
    let levels = factor.levels.iter();
    levels.map(|level| level.level.to_string()).collect()
}

/// The service times of all series of this name, rising.
fn service_times(plan: &Plan, series: &str) -> Vec<u32> {
    let series = plan.series.iter().filter(|one| one.name == series);
    let factors = series.flat_map(|one| &one.factors);
    let times = factors.filter(|factor| factor.name == "service_us");
    let levels = times.flat_map(|factor| &factor.levels);
    let mut times: Vec<u32> = levels
        .map(|level| level.level.to_string().parse().unwrap())
        .collect();
    times.sort_unstable();
    times
}

#[test]
fn both_grids_of_each_paper_are_plans() {
    for paper in &PAPERS {
        for grid in [Grid::default(), full()] {
            let plan = plan(paper, &grid);
            assert_eq!(plan.name, paper.name);
            let cells = Cells::of(&plan, &[0, 1], &[]).unwrap();
            assert!(cells.cells.len() > plan.series.len());
            assert!(plan.series.iter().all(|series| series.replicates >= 1));
        }
    }
}

#[test]
fn a_papers_servers_keep_their_weaknesses() {
    for paper in &PAPERS {
        let plan = plan(paper, &Grid::default());
        for server in plan.servers.values() {
            let ServerSpec::Loadline(set) = &server.spec else {
                continue;
            };
            let mut weak = set.clone();
            weak.requests.latency_goal = "off".parse().unwrap();
            weak.requests.fairness = "off".parse().unwrap();
            weak.memory.memory_max = "off".parse().unwrap();
            assert_eq!(*set, weak, "{} {}", paper.name, server.name);
        }
    }
}

/// By default they would find their sizes themselves. One level asks for that.
#[test]
fn a_papers_workers_and_threads_are_as_many_as_its_plan_says() {
    for paper in &PAPERS {
        for grid in [Grid::default(), full()] {
            let plan = plan(paper, &grid);
            for cell in Cells::of(&plan, &[0, 1], &[]).unwrap().cells {
                let ServerSpec::Loadline(set) = &cell.serve else {
                    continue;
                };
                let sizes = &set.architecture;
                let is_fixed = match sizes.architecture.0.to_string().as_str() {
                    "sequential" | "thread-per-connection" => true,
                    "thread-pool" => sizes.threads.given().is_some(),
                    _ => sizes.workers.given().is_some(),
                };
                let mut levels = cell.levels.values();
                let grows = levels.any(|level| level.to_string().ends_with("workers as needed"));
                let series = &plan.series[cell.series].name;
                let place = format!("{} {series} {:?}", paper.name, cell.levels);
                assert_eq!(is_fixed, !grows, "{place}");
            }
        }
    }
}

#[test]
fn other_plans_of_the_repository_are_plans() {
    for (name, text) in [
        ("apps", include_str!("../../../lab/apps.toml")),
        ("overload", include_str!("../../../lab/overload.toml")),
    ] {
        for grid in [Grid::default(), full()] {
            let text = grid.plan_text(text, name).unwrap();
            let plan = Plan::parse(&text, name, Path::new("/")).unwrap();
            let cells = Cells::of(&plan, &[0, 1], &[]).unwrap();
            assert!(cells.cells.len() > plan.series.len(), "{name}");
        }
    }
}

/// Scripts and configurations put paths between quotes: folders may have spaces in their names.
#[test]
fn paths_in_scripts_and_configurations_are_quoted() {
    for (name, text) in [
        ("compare", compare::plan()),
        (
            "overload",
            include_str!("../../../lab/overload.toml").to_owned(),
        ),
    ] {
        let text = Grid::default().plan_text(&text, name).unwrap();
        let plan = Plan::parse(&text, name, Path::new("/")).unwrap();
        let mut count = 0;
        for server in plan.servers.values() {
            let scripts = server.command.iter().filter(|word| word.contains(' '));
            for text in scripts.chain(&server.configuration) {
                for place in ["{dir}", "{root}", "{configuration}", "$0", "$1", "$4"] {
                    for (at, _) in text.match_indices(place) {
                        let line = text[..at].rsplit('\n').next().unwrap();
                        let is_quoted = line.matches('"').count() % 2 == 1;
                        assert!(is_quoted, "{name} {}: {line}{place}", server.name);
                        count += 1;
                    }
                }
            }
        }
        assert!(count > 5, "{name}: {count}");
    }
}

#[test]
fn goals_and_comparisons_are_of_cells_that_one_of_the_grids_has() {
    for (name, text) in [
        ("compare", compare::plan()),
        ("apps", include_str!("../../../lab/apps.toml").to_owned()),
        (
            "overload",
            include_str!("../../../lab/overload.toml").to_owned(),
        ),
    ] {
        let found = unmatched(&text, &[0, 1]);
        assert!(found.is_empty(), "{name}: {found:?}");
    }
    let text = "name = \"t\"\n[servers.loadline]\n[[series]]\nname = \"s\"\n\
                factors = { loops = [1, 2] }\nfull = { factors = { loops = [1, 2, 4] } }\n\
                except = [{ loops = 4 }, { loops = 8 }]\n";
    let found = unmatched(text, &[0, 1]);
    let problems: Vec<&str> = found.iter().map(|one| one.problem.as_str()).collect();
    assert_eq!(problems, ["series s: except: loops has no level 8"]);
}

#[test]
fn the_reduced_grid_of_p1_is_not_below_what_is_promised() {
    let plan = plan(&PAPERS[0], &Grid::default());
    assert_eq!(levels(&plan, "models", "service_us").len(), 11);
    assert_eq!(levels(&plan, "models", "model").len(), 3);
    assert_eq!(plan.series[0].replicates, 3);
    assert_eq!(
        levels(&plan, "threads", "workers"),
        ["1", "2", "4", "8", "16", "30", "60", "120"]
    );
    assert_eq!(levels(&plan, "threads", "service_us").len(), 5);
    for factor in ["loops", "workers"] {
        let numbers = levels(&plan, "reactors", factor);
        assert_eq!(numbers, ["1", "2", "4", "8", "16", "50"]);
    }
    assert_eq!(service_times(&plan, "reactors"), [0, 200, 1000]);
    let mut headline = plan.series.iter().filter(|one| one.name == "best");
    assert!(headline.all(|one| words(&one.load).contains(&"--connections=20000".to_owned())));
}

#[test]
fn the_full_grids_are_the_papers_own() {
    let p1 = plan(&PAPERS[0], &full());
    let threads = levels(&p1, "threads", "workers");
    assert!(
        ["1", "30"]
            .iter()
            .all(|it| threads.contains(&(*it).to_owned()))
    );
    for series in ["models", "threads", "reactors"] {
        let paper: Vec<u32> = (0..=10).map(|times| 100 * times).collect();
        assert_eq!(service_times(&p1, series), paper, "{series}");
    }
    for factor in ["loops", "workers"] {
        let numbers = levels(&p1, "reactors", factor);
        assert_eq!((&*numbers[0], &*numbers[numbers.len() - 1]), ("1", "50"));
    }
    assert!(words(&p1.series[0].load).contains(&"--connections=20000".to_owned()));
    assert!((p1.series[0].duration_s - 5.0).abs() < 1e-9);
    let mut soak = p1.series.iter().filter(|one| one.name == "soak");
    assert!(soak.all(|one| (one.duration_s - 240.0).abs() < 1e-9));
    let p3 = plan(&PAPERS[2], &full());
    let rates = || p3.series.iter().filter(|one| one.name == "rates");
    assert!(rates().all(|one| (one.duration_s - 30.0).abs() < 1e-9));
    let numbers = rates()
        .flat_map(|one| &one.factors)
        .flat_map(|it| &it.levels);
    assert!(numbers.clone().any(|it| it.level.to_string() == "200000"));
    let p5 = plan(&PAPERS[4], &full());
    assert_eq!(levels(&p5, "rates", "rate_per_s").len(), 25);
    let p5 = plan(&PAPERS[4], &Grid::default());
    assert!(p5.series[..3].iter().all(|series| series.replicates == 5));
}

#[test]
fn p2_has_each_database_under_each_arm_and_logging_in_apart() {
    let paper = Paper::named("P2").unwrap();
    for grid in [Grid::default(), full()] {
        let plan = plan(paper, &grid);
        for series in ["page", "accounts"] {
            let databases = levels(&plan, series, "database");
            assert_eq!(databases, ["SQLite", "MariaDB", "PostgreSQL"]);
            assert_eq!(levels(&plan, series, "arm"), ["workers", "loop", "kernel"]);
        }
        assert_eq!(levels(&plan, "accounts", "action"), ["register", "log in"]);
        // Every scenario that it names is there.
        let settings = plan.series.iter().flat_map(|series| {
            let levels = series.factors.iter().flat_map(|factor| &factor.levels);
            let of_levels = levels.map(|level| &level.sets.load);
            of_levels.chain([&series.load])
        });
        let scenarios = settings.filter_map(|load| load.get("scenario")?.text());
        let named: Vec<&str> = scenarios
            .map(|text| text.strip_prefix("{plan}/").unwrap())
            .collect();
        assert_eq!(named.len(), 3);
        for name in named {
            assert!(paper.files.iter().any(|(file, _)| *file == name), "{name}");
        }
    }
}

#[test]
fn files_that_a_plan_names_are_put_beside_it() {
    let mut count = 0;
    for paper in &PAPERS {
        let text = paper.text();
        for rest in text.split("{plan}/").skip(1) {
            let name = rest.split('"').next().unwrap();
            let is_there = paper.files.iter().any(|(file, _)| *file == name);
            assert!(is_there, "{}: {name}", paper.name);
            count += 1;
        }
    }
    assert!(count >= 6, "{count}");
}

#[test]
fn context_switches_and_response_times_stand_beside_every_curve_of_p1_and_p5() {
    let times = [Metric::MeanUs, Metric::P50Us, Metric::P99Us];
    let switches = [Metric::ContextSwitchesPerRequest];
    for name in ["P1", "P5"] {
        let plan = plan(Paper::named(name).unwrap(), &Grid::default());
        for series in &plan.series {
            for wanted in [&times[..], &switches] {
                let is_there = plan
                    .charts
                    .iter()
                    .any(|chart| chart.series == series.name && wanted.contains(&chart.metric));
                assert!(is_there, "{name}: {}: {wanted:?}", series.name);
            }
        }
    }
}

#[test]
fn a_part_can_be_chosen() {
    let grid = Grid {
        only: vec!["soak".to_owned()],
        duration_s: Some(1.0),
        replicates: Some(1),
        ..Grid::default()
    };
    let plan = plan(&PAPERS[0], &grid);
    assert_eq!(plan.series.len(), 2, "both of this name");
    for series in &plan.series {
        assert_eq!((series.duration_s, series.replicates), (1.0, 1));
    }
    assert!(!plan.charts.is_empty() && plan.charts.iter().all(|chart| chart.series == "soak"));
    let unknown = Grid {
        only: vec!["sok".to_owned()],
        ..Grid::default()
    };
    let message = unknown.plan_text(&PAPERS[0].text(), "P1").unwrap_err();
    let message = message.to_string();
    assert!(message.starts_with("P1: no series sok; right would be one of models, threads"));
}

/// Plans grow: a run of an older one, or one that was begun, has no data for some series.
#[test]
fn a_page_of_a_run_without_data_says_so_of_each_claim() {
    for paper in &PAPERS {
        let plan = plan(paper, &Grid::default());
        let run = begun(paper.name);
        let claims = claims::judged(&run);
        let count = claims.len();
        let report = Report::new(&run, &plan.charts, claims);
        assert!(report.figures.is_empty(), "{}", paper.name);
        let entry = results::Entry::new(&run, report);
        let page = results::page("The five papers", "papers-results", &[entry]);
        assert_eq!(page.matches("| not testable here |").count(), count);
        assert!(page.contains("This run has no trial of "), "{page}");
    }
}

#[test]
fn without_a_quota_the_other_series_are_left() {
    for paper in &PAPERS {
        let all = plan(paper, &Grid::default());
        let no_quota = Grid {
            no_quota: true,
            ..Grid::default()
        };
        let left = plan(paper, &no_quota);
        assert!(left.series.iter().all(|series| series.cpu_quota.is_none()));
        let with = all.series.iter().filter(|it| it.cpu_quota.is_some());
        let smallest = with.clone().filter_map(|it| it.cpu_quota).reduce(f64::min);
        assert!(smallest.is_none_or(|cpus| cpus >= 0.2), "{}", paper.name);
        assert_eq!(left.series.len(), all.series.len() - with.count());
        let is_left = |name: &String| left.series.iter().any(|series| series.name == *name);
        assert!(left.charts.iter().all(|chart| is_left(&chart.series)));
    }
}

#[test]
fn without_networks_of_each_side_the_other_series_are_left() {
    for paper in &PAPERS {
        let all = plan(paper, &Grid::default());
        let no_namespaces = Grid {
            no_namespaces: true,
            ..Grid::default()
        };
        let left = plan(paper, &no_namespaces);
        let is_plain = |series: &&Series| series.network == Network::Loopback;
        assert_eq!(
            left.series.iter().filter(is_plain).count(),
            left.series.len()
        );
        assert_eq!(
            left.series.len(),
            all.series.iter().filter(is_plain).count()
        );
        let goes = usize::from(paper.name == "P3");
        assert_eq!(all.series.len() - left.series.len(), goes, "{}", paper.name);
    }
}

#[test]
fn what_is_wrong_with_a_file_is_one_line() {
    for (text, right) in [
        ("= 1", "x: "),
        ("name = \"x\"", "x: no series; right would be"),
        (
            "full = 1\n[[series]]\nname = \"a\"",
            "x: full is not a table",
        ),
    ] {
        let message = Grid::default().plan_text(text, "x").unwrap_err();
        let message = message.to_string();
        assert!(message.starts_with(right), "{message}");
        assert!(!message.contains('\n'), "{message}");
    }
}

#[test]
fn papers_have_names() {
    assert_eq!(Paper::named("p3").unwrap().name, "P3");
    let message = Paper::named("P6").unwrap_err().to_string();
    assert_eq!(
        message,
        "no paper P6; right would be one of P1, P2, P3, P4, P5"
    );
}

/// Curves that are laid beside ours stand in the plans, so that they can be read there; they are those
/// of the table, or what threads that wait for their requests carry at most.
#[test]
fn curves_laid_beside_are_the_published_ones() {
    for paper in &PAPERS {
        let plan = plan(paper, &Grid::default());
        for reference in plan.charts.iter().flat_map(|chart| &chart.reference) {
            let threads = match reference.label.as_str() {
                "one thread at most" => 1.0,
                "16 threads at most" => 16.0,
                _ => 0.0,
            };
            for (service_us, value) in &reference.points {
                if threads > 0.0 {
                    let part = value * service_us / 1e6 / threads;
                    assert!((part - 1.0).abs() < 1e-3, "{service_us}: {value}");
                    continue;
                }
                // Milliseconds, percent and megabytes as what charts have.
                let units = [1.0, 1e3, 1e-2, 1e6];
                let is_it = |row: f64| {
                    let mut units = units.iter();
                    units.any(|unit| (row * unit - value).abs() <= 1e-6 * value)
                };
                let mut rows = published::ROWS.iter();
                let is_there = rows.any(|row| row.paper == paper.name && is_it(row.value));
                assert!(is_there, "{}: {value}", reference.label);
            }
        }
    }
}
