//! Trials that ask for a database: the page behind a login on each, as P2 measures it.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use loadline_lab::journal::{Level, Trial};

use crate::bench::Bench;

/// How long anything may take: database servers make their files first.
const GRACE: Duration = Duration::from_secs(120);

const SCENARIOS: [(&str, &str); 3] = [
    (
        "accounts-page.toml",
        include_str!("../../../../lab/papers/accounts-page.toml"),
    ),
    (
        "accounts-register.toml",
        include_str!("../../../../lab/papers/accounts-register.toml"),
    ),
    (
        "accounts-login.toml",
        include_str!("../../../../lab/papers/accounts-login.toml"),
    ),
];

const PLAN: &str = r#"
name = "t"
[servers.loadline]
options = { architecture = "reactor", workers = 4 }
[defaults]
path = "/accounts/"
replicates = 1
warm_up_s = 0
a_a = false
load = { users = 3, source_per_client = true, timeout = "60s" }
allow = { client_limited = true, others = 1, steal = 1, overflows = true }
"#;

const LEVELS: &str = r#"
[series.factors]
database = [
  { level = "SQLite", serve = { accounts = "sqlite:{dir}/accounts.db" } },
  { level = "MariaDB", serve = { accounts = "{mariadb}" } },
  { level = "PostgreSQL", serve = { accounts = "{postgresql}" } },
]
"#;

fn bench(series: &str) -> Bench {
    let bench = Bench::new(&format!("{PLAN}{series}"));
    for (name, text) in SCENARIOS {
        bench.write_beside(name, text);
    }
    bench
}

/// Runs it to its end, which has to be a good one, however long the databases take.
fn complete(bench: &Bench) -> Vec<Trial> {
    let (status, lines) = bench.start().end();
    assert!(status.success(), "{lines:#?}");
    bench.journal().trials
}

/// Statuses of answers, and that nothing went wrong.
fn statuses(trial: &Trial) -> Vec<u16> {
    assert_eq!(trial.discarded, [""; 0], "{:?}", trial.levels);
    let tally = &trial.load.as_ref().unwrap().everything;
    assert!(tally.completed > 0 && tally.good == tally.completed);
    let statuses = tally.status_codes.iter().map(|(status, _)| *status);
    statuses.collect()
}

/// Where the files of a database server are, by its command line.
fn folder_of(command: &[String]) -> &Path {
    let mut homes = command.iter().filter_map(|word| word.strip_prefix("HOME="));
    Path::new(homes.next().unwrap())
}

#[test]
fn the_page_behind_the_login_on_each_database() {
    let bench = bench(&format!(
        "[[series]]\nname = \"page\"\nduration_s = 0.3\n\
         load = {{ scenario = \"{{plan}}/accounts-page.toml\" }}\n{LEVELS}"
    ));
    let trials = complete(&bench);
    bench.wait_until_nothing_runs();
    assert_eq!(trials.len(), 3);
    for trial in &trials {
        // Registering and logging in redirect: none of that is counted.
        assert_eq!(statuses(trial), [200]);
        let server = &trial.server;
        let Level::Text(database) = &trial.levels["database"] else {
            panic!("{:?}", trial.levels)
        };
        let names: Vec<&str> = server
            .databases
            .iter()
            .map(|one| one.name.as_str())
            .collect();
        if database == "SQLite" {
            assert_eq!(names, [""; 0]);
            continue;
        }
        assert_eq!(names, [database.as_str()]);
        let watched = &trial.load.as_ref().unwrap().watched;
        let facts = &server.databases[0];
        assert_eq!(facts.cpus, server.cpus);
        assert!(!facts.version.is_empty());
        let is_watched = |name: &str| watched.iter().any(|one| one.name == name);
        assert!(is_watched(database) && is_watched("server"));
        assert!(!folder_of(&facts.command).exists());
    }
}

#[test]
fn registering_and_logging_in() {
    let of = |scenario: &str, serve: &str| {
        format!(
            "[[series]]\nname = \"{scenario}\"\nduration_s = 0.5\n\
             load = {{ scenario = \"{{plan}}/{scenario}.toml\" }}\n\
             serve = {{ accounts = \"sqlite:{{dir}}/accounts.db\"{serve} }}\n"
        )
    };
    let register = of("accounts-register", ", trust_proxy = \"127.0.0.0/8\"");
    let bench = bench(&(register + &of("accounts-login", "")));
    let trials = complete(&bench);
    assert_eq!(trials.len(), 2);
    for trial in &trials {
        assert_eq!(statuses(trial), [303]);
    }
}

#[test]
fn a_database_ends_with_a_run_that_is_killed() {
    let bench = bench(
        "[[series]]\nname = \"page\"\nduration_s = 3600\n\
         load = { scenario = \"{plan}/accounts-page.toml\" }\n\
         serve = { accounts = \"{postgresql}\" }",
    );
    let run = bench.start();
    let folder = first_folder(run.pid());
    wait_until(|| folder.join(".s.PGSQL.5432").exists());
    run.signal("KILL");
    bench.wait_until_nothing_runs();
    wait_until(|| !folder.exists());
}

/// The folder of the first database server that a process starts.
fn first_folder(pid: u32) -> PathBuf {
    std::env::temp_dir().join(format!("loadline-database-{pid}-0"))
}

fn wait_until(is_so: impl Fn() -> bool) {
    let until = Instant::now() + GRACE;
    while !is_so() {
        assert!(Instant::now() < until, "it does not come to that");
        thread::sleep(Duration::from_millis(2));
    }
}
