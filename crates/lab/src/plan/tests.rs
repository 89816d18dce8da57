use std::path::Path;

use super::*;

/// The parts that every plan has, and what is to be tried.
fn parsed(rest: &str) -> Result<Plan, String> {
    let text = format!("name = \"t\"\n[servers.loadline]\n{rest}");
    Plan::parse(&text, "plan.toml", Path::new("/plans")).map_err(|error| error.to_string())
}

fn series(rest: &str) -> Series {
    let plan = parsed(&format!("[[series]]\nname = \"s\"\n{rest}"));
    plan.unwrap().series.remove(0)
}

#[test]
fn a_plan_that_says_little_has_defaults() {
    let plan = parsed("[[series]]\nname = \"s\"").unwrap();
    assert_eq!((plan.seed, plan.budget_s), (1, None));
    assert_eq!(plan.servers["loadline"].kind, ServerKind::Loadline);
    let series = &plan.series[0];
    assert_eq!(series.servers, ["loadline"]);
    assert_eq!((series.replicates, series.duration_s), (5, 5.0));
    assert_eq!((series.path.as_str(), series.cpus.as_str()), ("/", "split"));
    assert_eq!(
        (&series.a_a, series.allow),
        (&Repeated::First, Allow::default())
    );
}

#[test]
fn levels_of_known_factors_set_options() {
    let series = series(
        "factors = { service_us = [0, 200], rate_per_s = \"100..300/100\", keep_alive = [\"off\"], \
         idle_connections = [0, 10], file_bytes = [1024] }",
    );
    let factor = |name: &str| {
        let found = series.factors.iter().find(|factor| factor.name == name);
        &found.unwrap().levels
    };
    let load = |name: &str| -> Vec<String> {
        let levels = factor(name).iter();
        levels.map(|it| words(&it.sets.load).join(" ")).collect()
    };
    let service = &factor("service_us")[1].sets.serve;
    assert_eq!(words(service), ["--service-time=200us"]);
    let rates = ["--rate=100", "--rate=200", "--rate=300"];
    assert_eq!(load("rate_per_s"), rates);
    assert_eq!(factor("rate_per_s")[2].level, Level::Number(300.0));
    assert_eq!(load("keep_alive"), ["--new-connection"]);
    assert_eq!(load("idle_connections"), ["", "--idle-connections=10"]);
    assert_eq!(factor("file_bytes")[0].sets.file_bytes, Some(1024));
}

#[test]
fn other_factors_say_what_they_set() {
    let series = series(
        "[series.factors]\nhead = { serve = \"head_timeout\", unit = \"s\", levels = [1, 2] }\n\
         model = [{ level = \"pool\", serve = { loops = 1, workers = 8 }, load = { connections = 5, \
         header = [\"A: b\", \"C: d\"] }, path = \"/x\" }]",
    );
    let [head, model] = &series.factors[..] else {
        panic!("{:?}", series.factors)
    };
    assert_eq!(words(&head.levels[1].sets.serve), ["--head-timeout=2s"]);
    let sets = &model.levels[0].sets;
    assert_eq!(words(&sets.serve), ["--loops=1", "--workers=8"]);
    assert_eq!(
        words(&sets.load),
        ["--connections=5", "--header=A: b", "--header=C: d"]
    );
    assert_eq!(sets.path.as_deref(), Some("/x"));
}

#[test]
fn a_series_says_it_over_the_defaults() {
    let plan = parsed(
        "[defaults]\nreplicates = 3\nload = { connections = 5, timeout = \"1s\" }\n\
         allow = { errors = 0.5 }\n\
         [[series]]\nname = \"a\"\n[[series]]\nname = \"b\"\nreplicates = 7\n\
         load = { connections = 6 }\nallow = { client_limited = true }",
    );
    let plan = plan.unwrap();
    let [a, b] = &plan.series[..] else { panic!() };
    assert_eq!((a.replicates, b.replicates), (3, 7));
    assert_eq!(words(&b.load), ["--connections=6", "--timeout=1s"]);
    assert_eq!((a.allow.errors, b.allow.errors), (0.5, 0.5));
    assert_eq!(
        (a.allow.client_limited, b.allow.client_limited),
        (false, true)
    );
}

#[test]
fn placements_by_name() {
    let on = |name: &str, cpus: &[usize]| {
        let placement = Placement::named(name, cpus).unwrap();
        (placement.server, placement.client)
    };
    assert_eq!(on("split", &[0, 1]), (vec![1], vec![0]));
    assert_eq!(on("split", &[2, 3, 4, 5, 6]), (vec![5, 6], vec![2, 3, 4]));
    assert_eq!(on("one", &[0, 1, 2]), (vec![2], vec![0, 1]));
    assert_eq!(on("shared", &[0, 1]), (vec![0, 1], vec![0, 1]));
    assert_eq!(on("split", &[7]), (vec![7], vec![7]));
    let plan = parsed("[cpus.mine]\nserver = \"0,2-3\"\nclient = \"1\"\n[[series]]\nname = \"s\"");
    let mine = plan.unwrap().placement("mine", &[0]).unwrap();
    assert_eq!((mine.server, mine.client), (vec![0, 2, 3], vec![1]));
}

/// Rows of a table: what is wrong, its lines parted by "; ", and a part of the message.
fn rows(table: &str) -> impl Iterator<Item = (String, &str)> {
    let rows = table.lines().map(str::trim).filter(|row| !row.is_empty());
    rows.map(|row| {
        let (text, right) = row.split_once(" => ").unwrap();
        (text.replace("; ", "\n"), right)
    })
}

#[test]
fn a_mistake_is_one_line() {
    let check = |text: &str, right: &str| {
        let message = Plan::parse(text, "plan.toml", Path::new("/plans"));
        let message = message.unwrap_err().to_string();
        assert!(message.contains(right), "{message:?} is not {right:?}");
        assert!(!message.contains('\n'), "{message:?}");
    };
    let begin = "name = \"t\"\n[servers.loadline]\n";
    let series = "[[series]]\nname = \"s\"";
    check(begin, "plan.toml:1: nothing to measure; right would be");
    let of_series = r#"
        [[series]]; nam = "s" => plan.toml:4: unknown field `nam`
        [[series]]; name = "" => plan.toml:4: series : the name is empty"#;
    for (text, right) in rows(of_series) {
        check(&format!("{begin}{text}"), right);
    }
    let in_series = r#"
        servers = ["x"] => plan.toml:3: series s: no server x; right would be one of loadline
        cpus = "x" => plan.toml:3: series s: no cpus x; right would be one of split, one, shared
        replicates = 0 => plan.toml:5: series s: 0 replicates; right would be 1 to 1000
        duration_s = 0 => plan.toml:5: series s: 0 seconds; right would be 0.01 to 86400
        a_a = [{ loops = 1 }] => series s: except, a_a and compare name levels of factors, and loops is none
        a_a = [{ loops = 3 }]; factors = { loops = [1, 2] } => plan.toml:3: series s: a_a: loops has no level 3 in this series
        a_a = [{ loops = "1" }]; factors = { loops = [1, 2] } => series s: a_a: loops has no level 1 in this series
        a_a = [{ server = "x" }] => series s: a_a: server has no level x in this series
        path = "x" => series s: `x` is not a path; right would be /index.html
        serve = { keep_alive = true, keep-alive = false } => series s: keep_alive and another spelling of it are both given; right would be one of them
        allow = { errors = 2 } => series s: 2 is not a share"#;
    for (text, right) in rows(in_series) {
        check(&format!("{begin}{series}\n{text}"), right);
    }
    let of_factors = r#"
        lopps = [1] => plan.toml:6: series s: factor lopps: what lopps sets is not known; right would be
        loops = [] => plan.toml:6: series s: factor loops: no levels
        loops = [1, 1] => factor loops: the level 1 stands there twice
        connections = [1, inf] => factor connections: the level inf is no number; right would be
        x = [{ level = nan, load = {} }] => factor x: the level NaN is no number; right would be
        loops = "1-5" => factor loops: `1-5` is not a row of numbers; right would be 100..2500/100
        keep_alive = ["yes"] => factor keep_alive: right would be the levels on and off
        x = [{ level = 1, lood = {} }] => plan.toml:6: series s: factor x: unknown field `lood`"#;
    for (text, right) in rows(of_factors) {
        check(&format!("{begin}{series}\n[series.factors]\n{text}"), right);
    }
    let beside_series = r#"
        [servers.x] => plan.toml:3: server x: neither kind nor command is given
        [servers.x]; kind = "nginx" => server x: kind nginx is not known; right would be one of loadline, nginx-default
        [servers.x]; kind = "loadline"; options = { keep_alive = true, keep-alive = false } => plan.toml:3: server x: keep_alive and another spelling of it
        [cpus.split]; server = "0"; client = "1" => plan.toml:3: cpus split has a meaning already
        [cpus.x]; server = "3-1"; client = "1" => plan.toml:3: cpus x: `3-1` is not a list of CPUs"#;
    for (text, right) in rows(beside_series) {
        check(&format!("{begin}{text}\n{series}"), right);
    }
    let first_line = r#"
        files = { "../x" = 1 } => plan.toml:1: `../x` is not a path of plain names
        files = { x = 99999999999999 } => bytes of files; right would be
        root = "a"; files = { x = 1 } => root and files exclude each other
        budget_s = 0 => budget_s 0 is no time"#;
    for (text, right) in rows(first_line) {
        check(&format!("{text}\n{begin}{series}"), right);
    }
}

/// A level that the load or the server does not take is found with its line, before cells are made.
#[test]
fn levels_are_typed_when_they_are_read() {
    let series = "[servers.own]\ncommand = [\"own\", \"{loops}\"]\n[[series]]\nname = \"s\"\n";
    let table = r#"
        [series.factors]; connections = [1,; "many"] => plan.toml:9: series s: factor connections: level many: --connections many: not a number
        servers = ["loadline"]; factors.loops = [1, "many"] => plan.toml:8: series s: factor loops: level many: --loops many: not a number
        [series.factors]; x = [; { level = "a", load = { rate = 5 } },; { level = "b", load = { duration = "5s" } }] => plan.toml:10: series s: factor x: level b: --duration: the lab sets it itself
        factors.rate_of_capacity = [0.5, 0] => plan.toml:7: series s: factor rate_of_capacity: level 0: rate_of_capacity is no multiple
        [series.factors]; y = { load = "think", unit = "lightyears", levels = [1] } => plan.toml:8: series s: factor y: level 1: --think 1lightyears"#;
    for (rest, right) in rows(table) {
        let message = parsed(&format!("{series}{rest}")).unwrap_err();
        assert!(message.starts_with(right), "{message:?} is not {right:?}");
    }
    // One of the servers takes it: which of them is run with it, cells decide.
    parsed(&format!("{series}factors.loops = [\"many\"]")).unwrap();
}

#[test]
fn defaults_are_of_every_series() {
    let message = parsed("[defaults]\nname = \"x\"\n[[series]]\nname = \"s\"").unwrap_err();
    let right = "plan.toml:4: name is of a single series; right would be";
    assert!(message.starts_with(right), "{message}");
    let message = parsed("[defaults]\nreplicates = 0\n[[series]]\nname = \"s\"").unwrap_err();
    assert!(message.starts_with("plan.toml:4: series s: 0 replicates"));
    // Either spelling of an option is the same option.
    let plan = parsed(
        "[defaults]\nserve = { keep_alive = true }\n[[series]]\nname = \"s\"\nserve = { keep-alive = \
         false }",
    );
    let serve = plan.unwrap().series.remove(0).serve;
    assert_eq!(
        serve,
        [("keep-alive".to_owned(), loadline_spec::Value::Switch(false))].into()
    );
}

#[test]
fn charts_show_what_is_there() {
    let series = "[[series]]\nname = \"a\"\nfactors = { loops = [1, 2] }\n";
    let chart = |text: &str| parsed(&format!("{series}[[chart]]\n{text}"));
    let plan = chart("series = \"a\"\nx = \"loops\"\nlines = \"server\"").unwrap();
    assert_eq!(plan.charts[0].x, "loops");
    for (text, what) in [
        ("series = \"b\"\nx = \"loops\"", "no series `b`"),
        ("series = \"a\"\nx = \"workers\"", "workers is no factor"),
        ("series = \"a\"\nz = 1", "unknown field `z`"),
    ] {
        let message = chart(text).unwrap_err();
        assert!(
            message.contains(what) && message.starts_with("plan.toml:"),
            "{message}"
        );
    }
}
