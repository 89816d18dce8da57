//! What makes the server the limit of a small machine, where this process may: elsewhere one line says
//! why it may not, and the test is skipped.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use loadline_lab::journal::Trial;

use crate::bench::{Bench, said};
use crate::program::GRACE;

/// `/proc` counts user and kernel time in whole hundredths of a second: a difference may be one of each
/// too much.
const COUNTED_TOO_MUCH_S: f64 = 0.02;

/// A thread runs beyond its quota until the next tick of its CPU, 10 ms at most, and repays it in later
/// periods. The group may do so on two CPUs.
const BORROWED_S: f64 = 0.02;

/// A plan of one short trial after another, of servers that compute.
pub(crate) fn plan(series: &str) -> String {
    format!(
        "name = \"t\"\nfiles = {{ \"index.html\" = 93 }}\n[servers.loadline]\n\
         options = {{ architecture = \"reactor\", loops = 1, workers = 0, service_time = \"500us\", \
         service_kind = \"spin\" }}\n\
         [[series]]\nname = \"s\"\npath = \"/index.html\"\nreplicates = 1\nduration_s = 0.5\n\
         warm_up_s = 0\na_a = false\nallow = {{ client_limited = true, overflows = true, steal = 1, others = 1, \
         errors = 1 }}\n{series}"
    )
}

/// Whether a run was refused since this process may not do what it needs: printed, not hidden.
#[allow(clippy::print_stderr, reason = "a test that is skipped says so")]
fn is_refused(bench: &Bench) -> bool {
    let output = bench.run(&["--dry-run"]);
    let said = said(&output);
    if output.status.success() {
        return false;
    }
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("right would be"), "{said}");
    let _ = writeln!(std::io::stderr(), "\nskipped: {said}");
    true
}

#[test]
fn a_server_with_a_quota_is_held_back_and_the_record_says_so() {
    // Eight connections that never rest ask for a whole CPU. A quota of a millisecond is spent by
    // whoever runs at all, however busy the machine is.
    let bench = Bench::new(&plan(
        "load = { connections = 8 }\nfactors = { cpu_quota = [0.05, 0.2] }",
    ));
    if is_refused(&bench) {
        return;
    }
    for trial in bench.complete() {
        let level = trial.levels["cpu_quota"].to_string();
        assert!(trial.discarded.is_empty(), "{:?}", trial.discarded);
        let quota = trial.server.cpu_quota.unwrap();
        let period_us = if quota.cpus < 0.1 { 20_000 } else { 5_000 };
        assert_eq!(
            (quota.cpus.to_string(), quota.period_us),
            (level, period_us)
        );
        assert!(
            quota.periods_throttled > 0 && quota.throttled_s > 0.0,
            "{quota:?}"
        );
        // Whatever else the machine does, it has no more than the quota.
        let load = trial.load.unwrap();
        let seconds = load.watched[0].seconds;
        let used_s = trial.server.cpu_user_s + trial.server.cpu_kernel_s;
        let granted_s = quota.cpus * seconds + COUNTED_TOO_MUCH_S + BORROWED_S;
        assert!(
            used_s <= granted_s,
            "{used_s} of {granted_s} s in {seconds} s"
        );
    }
    bench.wait_until_nothing_runs();
}

/// Control groups that a process has made and not removed.
fn groups_of(pid: u32) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else {
            continue; // gone meanwhile, or another's
        };
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let name = entry.file_name().to_string_lossy().into_owned();
                if name.starts_with(&format!("loadline-{pid}-")) {
                    found.push(entry.path());
                }
                folders.push(entry.path());
            }
        }
    }
    found
}

#[test]
fn control_groups_go_with_the_run_however_it_ends() {
    let text = plan("duration_s = 60\nload = { connections = 8 }\ncpu_quota = 0.5").replacen(
        "duration_s = 0.5\n",
        "",
        1,
    );
    for signal in ["INT", "KILL"] {
        let bench = Bench::new(&text);
        if is_refused(&bench) {
            return;
        }
        let mut run = bench.start();
        let until = Instant::now() + GRACE;
        let holds_a_server = |group: PathBuf| {
            let members = fs::read_to_string(group.join("cgroup.procs"));
            members.is_ok_and(|members| !members.is_empty())
        };
        while !groups_of(run.pid()).into_iter().any(holds_a_server) {
            assert!(Instant::now() < until, "no server in a group");
            run.line_within(Duration::from_millis(5));
        }
        run.signal(signal);
        run.end();
        bench.wait_until_nothing_runs();
        assert_eq!(groups_of(run.pid()), Vec::<PathBuf>::new(), "{signal}");
    }
}

#[test]
fn both_sides_meet_in_namespaces_of_their_own() {
    // Of a server that is started by its name, and of a command.
    let bench = Bench::new(
        &plan("load = { connections = 8 }\nfactors = { network = [\"loopback\", \"namespaces\"] }")
            .replacen(
                "[[series]]",
                "[servers.own]\ncommand = [\"{loadline}\", \"serve\", \"{root}\", \
                 \"--listen={host}:{port}\"]\n[[series]]",
                1,
            ),
    );
    if is_refused(&bench) {
        return;
    }
    let trials = bench.complete();
    assert_eq!(trials.len(), 4);
    for trial in trials {
        assert!(trial.discarded.is_empty(), "{:?}", trial.discarded);
        let network = trial.levels["network"].to_string();
        assert_eq!(trial.server.network, network);
        let listens = |word: &&String| word.starts_with("--listen=");
        let address = trial.server.command.iter().find(listens).unwrap();
        assert_eq!(
            address.contains("127.0.0.1"),
            network == "loopback",
            "{address}"
        );
        let load = trial.load.unwrap();
        assert!(load.everything.good > 0 && load.everything.errors_total() == 0);
        // The client's own counters begin with its namespace.
        let resets = load.machine.network_before.resets_sent;
        assert!(network == "loopback" || resets == Some(0), "{resets:?}");
        if trial.server.name == "loadline" {
            assert_eq!(
                trial.server.requests_counted,
                Some(load.everything.completed)
            );
        }
    }
    bench.wait_until_nothing_runs();
}

/// The rate that a client was started with.
fn rate_of(trial: &Trial) -> f64 {
    let words = &trial.load.as_ref().unwrap().run.command;
    let rate = words.iter().find_map(|word| word.strip_prefix("--rate="));
    rate.unwrap().parse().unwrap()
}

#[test]
fn rates_are_multiples_of_what_each_server_carries() {
    let bench = Bench::new(&plan(
        "load = { connections = 8 }\nfactors = { rate_of_capacity = [0.3, 0.6], service_time = \
         { serve = \"service-time\", levels = [\"300us\", \"900us\"] } }",
    ));
    let trials = bench.complete();
    let journal = bench.journal();
    assert_eq!(trials.len(), 4);
    // Those that a busy machine has disturbed were run again.
    let undisturbed = |trial: &&Trial| trial.discarded.is_empty();
    for service_time in ["300us", "900us"] {
        let is_of = |trial: &&Trial| trial.levels["service_time"].to_string() == service_time;
        let measured = journal.capacities.iter().map(|it| &it.trial).filter(is_of);
        let mut carried: Vec<f64> = measured
            .filter(undisturbed)
            .map(|trial| {
                let load = trial.load.as_ref().unwrap();
                load.headline().unwrap().total.rates.good_per_s
            })
            .collect();
        carried.sort_by(f64::total_cmp);
        assert_eq!(carried.len(), 3);
        for trial in trials.iter().filter(is_of) {
            let multiple: f64 = trial.levels["rate_of_capacity"]
                .to_string()
                .parse()
                .unwrap();
            let rate = rate_of(trial);
            assert!(
                (rate - multiple * carried[1]).abs() <= 0.06,
                "{rate} {carried:?}"
            );
        }
    }
    // The same command has nothing left to do, and measures nothing again.
    bench.complete();
    assert_eq!(bench.journal().capacities.len(), journal.capacities.len());
}

#[test]
fn both_sides_may_have_all_cpus() {
    let bench = Bench::new(&plan(
        "load = { rate = 100, connections = 8 }\ncpus = \"shared\"",
    ));
    let trials = bench.complete();
    let [trial] = &trials[..] else {
        panic!("{trials:?}")
    };
    assert_eq!(trial.server.cpus, trial.server.client_cpus);
    let load = trial.load.as_ref().unwrap();
    assert!(load.everything.good > 0);
    // A client that never slept would take the CPU from the server.
    assert!(!load.run.command.contains(&"--spin".to_owned()));
}

/// What is decided depends on the machine; which blocks are added, on what is said to be decided.
#[test]
fn blocks_are_added_for_what_is_not_decided_and_nothing_else() {
    let bench = Bench::new(
        &plan(
            "load = { connections = 4 }\n\
             factors = { service_time = { serve = \"service-time\", levels = [\"1ms\", \"20ms\", \
             \"1001us\"] } }\n\
             compare = { metric = \"good_per_s\", with = { service_time = \"1ms\" } }",
        )
        .replacen("replicates = 1", "replicates = 2", 1),
    );
    let refused = bench.run(&["--until-decided", "--blocks-max=1"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(said(&refused).contains("--blocks-max 1: the plan has 2 blocks"));
    let words = ["--until-decided", "--blocks-max=4"];
    let output = bench.run(&words);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    // Looks at 2, 3 and 4 blocks, each with a line for either pair.
    let verdicts: Vec<&str> = text.lines().filter(|it| it.contains(" against ")).collect();
    let journal = bench.journal();
    let mut blocks = journal.blocks.iter();
    for look in verdicts.chunks(2) {
        let is_open =
            |index: usize| look[index].contains("not decided") || look[index].contains("too few");
        let cells: &[u32] = match (is_open(0), is_open(1)) {
            (false, false) => &[],
            (true, false) => &[0, 1],
            (false, true) => &[0, 2],
            (true, true) => &[0, 1, 2],
        };
        match blocks.next() {
            Some(added) => assert_eq!((added.count, &added.cells[..]), (1, cells), "{text}"),
            None => assert!(cells.is_empty() || journal.blocks.len() == 2, "{text}"),
        }
    }
    assert_eq!(verdicts.len(), 2 * (journal.blocks.len() + 1), "{text}");
    let planned: usize = journal.blocks.iter().map(|added| added.cells.len()).sum();
    let numbers: BTreeSet<u32> = journal.trials.iter().map(|trial| trial.number).collect();
    assert_eq!(numbers.len(), 6 + planned);
    // The same command has nothing left to do, and another bound would be another test.
    assert_eq!(bench.run(&words).status.code(), Some(0));
    assert_eq!(bench.journal().trials.len(), journal.trials.len());
    if !journal.blocks.is_empty() {
        let refused = said(&bench.run(&["--until-decided", "--blocks-max=9"]));
        assert!(refused.contains("right would be the same"), "{refused}");
    }
}
