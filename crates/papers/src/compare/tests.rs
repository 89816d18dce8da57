use loadline_lab::analysis::Measured;
use loadline_lab::journal::ServerFacts;

use super::*;
use crate::Grid;
use crate::tests::full;

#[test]
fn both_grids_are_plans() {
    for grid in [Grid::default(), full()] {
        let text = grid.plan_text(&plan(), "compare").unwrap();
        let plan = Plan::parse(&text, "compare", Path::new("/")).unwrap();
        for server in [BASELINE, CEILING, CEILING_OF_NEW] {
            assert!(plan.servers.contains_key(server), "{server}");
        }
        for name in SERIES.iter().map(|series| series.name) {
            assert!(plan.series.iter().any(|one| one.name == name), "{name}");
        }
        for name in plan.series.iter().map(|one| &one.name) {
            let is_shown = SERIES.iter().any(|series| series.name == *name);
            assert!(is_shown, "{name} is on no page");
        }
    }
}

/// The client offers nothing else, so that no server chooses another.
#[test]
fn servers_are_compared_with_the_same_key_exchange_and_cipher() {
    let text = Grid::default().plan_text(&plan(), "compare").unwrap();
    let plan = Plan::parse(&text, "compare", Path::new("/")).unwrap();
    for series in &plan.series {
        let offered = ["tls-key-exchange", "tls-cipher"].map(|name| series.load.get(name)?.text());
        let expected = match series.servers.iter().any(|server| server.ends_with("-tls")) {
            true => [Some("x25519"), Some("aes-128-gcm")],
            false => [None; 2],
        };
        assert_eq!(offered, expected, "{}", series.name);
    }
}

fn trial(block: u32, series: &str, levels: &[(&str, Level)], values: &[(Metric, f64)]) -> Measured {
    let levels = levels
        .iter()
        .map(|(name, level)| ((*name).to_owned(), level.clone()));
    Measured {
        block,
        series: series.to_owned(),
        levels: levels.collect(),
        values: values.iter().copied().collect(),
        server: ServerFacts {
            command: vec!["loadline".to_owned()],
            version: "h2o version 2.2.5".to_owned(),
            ..ServerFacts::default()
        },
        ..Measured::default()
    }
}

fn server(name: &str) -> (&'static str, Level) {
    ("server", Level::from(name))
}

/// Five blocks of what `of` gives.
fn run(of: impl Fn(u32, f64) -> Vec<Measured>) -> Run {
    let mut run = Run::default();
    for block in 0..5_u32 {
        for trial in of(block, 1.0 + f64::from(block) / 1000.0) {
            let number = run.trials.len() as u32;
            run.trials.push(Measured { number, ..trial });
        }
    }
    run
}

fn small() -> Run {
    let rates = [
        ("nginx-tuned", 1000.0),
        ("reactor", 1200.0),
        ("h2o", 1001.0),
        ("ceil-epoll", 2400.0),
    ];
    run(|block, noise| {
        let mut trials = Vec::new();
        for connections in [64.0, 1000.0] {
            trials.extend(rates.map(|(name, rate)| {
                let levels = [server(name), ("connections", Level::Number(connections))];
                trial(block, "small", &levels, &[(Metric::GoodPerS, rate * noise)])
            }));
        }
        trials
    })
}

/// The good requests of a server.
fn good<'l>(load: &'l Load, server: &str) -> &'l Figure {
    let result = load.servers.iter().find(|it| it.server == server);
    let figure = result.and_then(|it| it.figure(Quantity::Of(Metric::GoodPerS)));
    figure.unwrap()
}

#[test]
fn servers_are_laid_beside_nginx_tuned_and_the_bare_loop() {
    let mut run = small();
    let found = loads(&run);
    let names: Vec<&str> = found.iter().map(|load| load.name.as_str()).collect();
    // By size, not by the alphabet.
    assert_eq!(names, ["small, connections=64", "small, connections=1000"]);
    let figure = good(&found[0], "reactor");
    assert!((figure.ratio(BASELINE).unwrap().ratio - 1.2).abs() < 1e-9);
    assert!((figure.ratio(CEILING).unwrap().ratio - 0.5).abs() < 1e-9);
    assert!(good(&found[0], BASELINE).ratio(BASELINE).is_none());
    let said = text(&found, &[]);
    for part in [
        "small, connections=64: requests/s, more is better",
        "x nginx-tuned",
        "1.00 (1.00 to 1.00) alike",
        "1,202/s",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let is_other = |trial: &Measured| trial.levels["server"] != Level::from(BASELINE);
    run.trials.retain(is_other);
    let found = loads(&run);
    let figures = found
        .iter()
        .flat_map(|load| &load.servers)
        .flat_map(|it| &it.figures);
    assert!(
        figures
            .flat_map(|it| &it.ratios)
            .all(|ratio| ratio.to == CEILING)
    );
}

#[test]
fn idle_connections_cost_what_memory_grows_by() {
    let run = run(|block, noise| {
        let of = |idle: f64, bytes: f64| {
            let levels = [server("reactor"), ("idle_connections", Level::Number(idle))];
            trial(
                block,
                "idle",
                &levels,
                &[(Metric::MemoryBytes, bytes * noise)],
            )
        };
        vec![of(0.0, 4e6), of(10_000.0, 6e6)]
    });
    let found = loads(&run);
    let of = |load: &Load| load.servers[0].figure(Quantity::IdleBytes).unwrap().value;
    assert_eq!(of(&found[0]), None);
    assert!((of(&found[1]).unwrap() / 200.0 - 1.0).abs() < 0.01);
}

#[test]
fn a_crowd_and_a_second_loop_are_compared_with_going_without() {
    let run = run(|block, noise| {
        let connections = ("connections", Level::Number(64.0));
        let idle = ("idle_connections", Level::Number(10_000.0));
        let p99 = |series, name, level: &(&'static str, Level), us: f64| {
            let levels = [server(name), level.clone()];
            trial(block, series, &levels, &[(Metric::P99Us, us * noise)])
        };
        vec![
            p99("small", "reactor", &connections, 100.0),
            p99("crowd", "reactor", &idle, 150.0),
            p99("loops", "reactor", &connections, 100.0),
            p99("loops", "reactor-2-loops", &connections, 80.0),
        ]
    });
    let found = loads(&run);
    let ratio = |series: &str, server: &str, to: &str| {
        let load = found.iter().find(|load| load.series == series)?;
        let result = load.servers.iter().find(|it| it.server == server)?;
        let figure = result.figure(Quantity::Of(Metric::P99Us))?;
        figure.ratio(to).map(|it| (it.ratio * 100.0).round())
    };
    assert_eq!(ratio("crowd", "reactor", "alone"), Some(150.0));
    assert_eq!(ratio("loops", "reactor-2-loops", "one loop"), Some(80.0));
    assert_eq!(ratio("loops", "reactor", "one loop"), None);
}

#[test]
fn the_page_says_what_was_measured_where_and_how() {
    let mut run = small();
    run.head.command = ["loadline", "lab", "compare"].map(str::to_owned).into();
    run.trials[0].client_limited = true;
    let report = Report::new(&run, &[], Vec::new());
    let found = loads(&run);
    let page = page(&run, &report, &found);
    for part in [
        "`loadline lab compare`",
        ". Other servers: h2o 2.2.5. ",
        "\n## small\n\nConnections 64:\n\n| server ",
        " x nginx-tuned |",
        "| 1.20 (1.20 to 1.20) |",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let summary = summary(&run, &report, &found);
    assert!(
        summary.starts_with("| server CPU us a request | 64 connections | 1000 |"),
        "{summary}"
    );
    assert!(summary.contains("| **reactor** "), "{summary}");
    let json: serde_json::Value = serde_json::from_str(&json(&run, &report).unwrap()).unwrap();
    assert_eq!(
        json["loads"][0]["servers"][0]["figures"][0]["quantity"],
        "good_per_s"
    );
}

#[test]
fn what_many_comparisons_bring_about_by_chance_is_not_called_a_difference() {
    // All are ahead of nginx by some 5 %, in five blocks that do not agree too well: p is 0.01 for each.
    let noisy = |others: usize| {
        run(|block, _| {
            let swing = [0.975, 1.0, 1.025][block as usize % 3];
            let of = |name: &str, rate: f64| {
                let levels = [server(name), ("connections", Level::Number(64.0))];
                trial(block, "small", &levels, &[(Metric::GoodPerS, rate)])
            };
            let mut trials = vec![of(BASELINE, 1000.0), of("reactor", 1050.0 * swing)];
            trials.extend((0..others).map(|it| of(&format!("other-{it}"), 1050.0 * swing)));
            trials
        })
    };
    let difference = |run: &Run| {
        let figure = good(&loads(run)[0], "reactor").ratio(BASELINE).copied();
        figure.unwrap().difference
    };
    assert_eq!(difference(&noisy(0)), Difference::More);
    assert_eq!(difference(&noisy(9)), Difference::Unknown);
}
