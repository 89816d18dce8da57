//! How the levels of factors become cells, and what is refused.

use std::path::Path;

use super::*;
use crate::plan::in_place;
use loadline_spec::{table_words, words};

fn plan(text: &str) -> Result<Plan, PlanError> {
    let text = format!("name = \"t\"\n{text}");
    Plan::parse(&text, "plan.toml", Path::new("/"))
}

fn cells(text: &str) -> Result<Cells, String> {
    let cells = plan(text).and_then(|plan| Cells::of(&plan, &[0, 1], &[]));
    cells.map_err(|error| error.to_string())
}

const SERVERS: &str = "[servers.loadline]\noptions = { loops = 1 }\n[servers.nginx-tuned]\n\
                       [servers.own]\ncommand = [\"own\", \"{port}\", \"{worker_pools}\"]\n";

#[test]
fn each_level_meets_each() {
    let all = cells(&format!(
        "files = {{ \"a.html\" = 5 }}\n{SERVERS}\
         [[series]]\nname = \"s\"\nservers = [\"loadline\"]\nserve = {{ backlog = 9 }}\n\
         load = {{ connections = 7 }}\n\
         factors = {{ loops = [1, 2], file_bytes = [10, 20] }}\n\
         except = [{{ loops = 2, file_bytes = 10 }}]"
    ));
    let all = all.unwrap();
    let texts: Vec<String> = all.cells.iter().map(|it| levels_text(&it.levels)).collect();
    assert_eq!(
        texts,
        [
            "file_bytes=10, loops=1, server=loadline",
            "file_bytes=20, loops=1, server=loadline",
            "file_bytes=20, loops=2, server=loadline",
        ]
    );
    let last = &all.cells[2];
    let serve = table_words(&last.serve.table());
    assert_eq!(serve, ["--backlog=9", "--log-level=warn", "--loops=2"]);
    assert_eq!(words(&last.load), ["--connections=7"]);
    assert_eq!(last.path, "/20-bytes.bin");
    assert_eq!(
        (&last.placement.server, &last.placement.client),
        (&vec![1], &vec![0])
    );
    let repeated: Vec<bool> = all.cells.iter().map(|it| it.is_repeated).collect();
    assert_eq!(repeated, [true, false, false]);
    assert_eq!(all.files.len(), 3);
}

#[test]
fn servers_are_a_factor_and_may_be_missing() {
    let plan = plan(&format!(
        "{SERVERS}[[series]]\nname = \"s\"\nservers = [\"nginx-tuned\", \"loadline\"]\n\
         a_a = [{{ server = \"loadline\" }}]"
    ))
    .unwrap();
    let all = Cells::of(&plan, &[0, 1], &[]).unwrap();
    let repeated: Vec<bool> = all.cells.iter().map(|it| it.is_repeated).collect();
    assert_eq!(repeated, [false, true]);
    let left_out = ["nginx-tuned".to_owned()];
    let left = Cells::of(&plan, &[0, 1], &left_out).unwrap();
    assert_eq!(left.cells.len(), 1);
    // The first cell is that of the first server that is there.
    let text = plan.text.replace("a_a = [{ server = \"loadline\" }]", "");
    let first = Plan::parse(&text, "plan.toml", Path::new("/")).unwrap();
    let left = Cells::of(&first, &[0, 1], &left_out).unwrap();
    let repeated: Vec<bool> = left.cells.iter().map(|it| it.is_repeated).collect();
    assert_eq!(repeated, [true]);
    let none = ["nginx-tuned".to_owned(), "loadline".to_owned()];
    assert!(Cells::of(&plan, &[0, 1], &none).is_err());
}

#[test]
fn levels_may_name_the_server() {
    let all = cells(&format!(
        "{SERVERS}[[series]]\nname = \"s\"\n\
         factors = {{ server = [\"loadline\", \"nginx-tuned\"], connections = [1, 2] }}"
    ));
    assert_eq!(all.unwrap().cells.len(), 4);
}

#[test]
fn what_does_not_fit_is_refused() {
    // A series' lines, parted by "; ", and a part of the message.
    let table = r#"
        servers = ["loadline"]; load = { duration = "5s" } => series s: server=loadline: --duration: the lab sets it itself; right would be duration_s
        servers = ["loadline"]; load = { replay = "log", replay_timing = 1 } => --replay-timing: the lab sets it itself; right would be duration_s
        servers = ["loadline"]; load = { json = "x" } => series s: server=loadline: --json: no such option
        servers = ["loadline"]; load = { connections = "many" } => server=loadline: --connections many: not a number
        servers = ["loadline"]; serve = { listen = "x" } => --listen: the lab sets it itself; right would be nothing: a free port is taken
        servers = ["loadline"]; serve = { loops = "many" } => server=loadline: --loops many: not a number; right would be
        servers = ["loadline"]; serve = { loopss = 1 } => server=loadline: --loopss: no such option; right would be loops
        servers = ["nginx-tuned"]; factors = { loops = [1] } => factor loops: level 1: nginx-tuned has no option loops here
        servers = ["own"]; factors = { workers = [1] } => nothing in the command of own asks for workers; right would be {workers}
        servers = ["own"]; serve = { port = 8080 } => server=own: {port} has a meaning already; right would be an option with another name
        servers = ["loadline"]; factors = { file_bytes = [8589934592, 1] } => series s: 8589934593 bytes of files; right would be 8589934592 at most
        servers = ["loadline"]; factors = { path = ["/a"], file_bytes = [1] } => the factors file_bytes and path both set the path
        servers = ["loadline"]; load = { rate = 5, rate_of_capacity = 0.5 } => load rate and rate_of_capacity exclude each other
        servers = ["loadline"]; factors = { rate_of_capacity = [0.5, 0] } => factor rate_of_capacity: level 0: rate_of_capacity is no multiple
        servers = ["loadline"]; [[series]]; name = "s"; servers = ["loadline"] => series s: the cell server=loadline is there twice"#;
    for row in table.lines().skip(1) {
        let (series, right) = row.trim().split_once(" => ").unwrap();
        let series = series.replace("; ", "\n");
        let message = cells(&format!("{SERVERS}[[series]]\nname = \"s\"\n{series}"));
        let message = message.unwrap_err();
        assert!(message.contains(right), "{message:?} is not {right:?}");
    }
    let cpus = "[cpus.mine]\nserver = \"5\"\nclient = \"0\"\n";
    let message = cells(&format!(
        "{cpus}[servers.loadline]\n[[series]]\nname = \"s\"\ncpus = \"mine\""
    ));
    assert!(
        message
            .unwrap_err()
            .contains("CPU 5 is not one of this process (0-1)")
    );
}

#[test]
fn loads_of_the_plans_in_the_repository_are_typed() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/examples"));
    let mut count = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        if path.extension().is_none_or(|it| it != "toml") || !text.contains("[[series]]") {
            continue;
        }
        let plan = Plan::read(&path).unwrap();
        let all = Cells::of(&plan, &[0, 1], &[]).unwrap();
        let names = [("{plan}".to_owned(), "/plans".to_owned())].into();
        for cell in &all.cells {
            let load = in_place(&cell.load, &names).unwrap();
            assert!(!words(&load).concat().contains('{'), "{}", path.display());
        }
        count += 1;
    }
    assert!(count >= 4, "{count}");
}

#[test]
fn options_of_commands_and_switches() {
    let all = cells(&format!(
        "{SERVERS}[[series]]\nname = \"s\"\nservers = [\"own\"]\n\
         factors = {{ worker_pools = [\"shared\"] }}\n\
         [[series]]\nname = \"t\"\nservers = [\"loadline\"]\nserve = {{ keep_alive = false }}"
    ));
    let all = all.unwrap();
    assert_eq!(
        table_words(&all.cells[1].serve.table()),
        ["--keep-alive=off", "--log-level=warn", "--loops=1"]
    );
}
