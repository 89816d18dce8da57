//! What is recorded of a trial, and what is refused before the first.

use loadline_lab::journal::{Level, Trial};

use crate::bench::{Bench, said};

const SERIES: &str = "[[series]]\nname = \"s\"\npath = \"/index.html\"\nreplicates = 1\n\
                      duration_s = 1\nwarm_up_s = 0\na_a = false\n\
                      load = { connections = 2, rate = 200 }\nallow = { client_limited = true, overflows = true, steal = 1, others = 1 }";

fn bench(servers: &str) -> Bench {
    Bench::new(&format!(
        "name = \"t\"\nfiles = {{ \"index.html\" = 93 }}\n{servers}\n{SERIES}"
    ))
}

fn run_one(servers: &str) -> Vec<Trial> {
    let bench = bench(servers);
    let trials = bench.complete();
    bench.wait_until_nothing_runs();
    trials
}

#[test]
fn a_trial_says_what_was_run_and_what_came_of_it() {
    let trials = run_one("[servers.loadline]\noptions = { loops = 1, workers = 0 }");
    let [trial] = &trials[..] else {
        panic!("{trials:?}")
    };
    let server = &trial.server;
    assert_eq!(trial.levels["server"], Level::Text("loadline".to_owned()));
    assert!(
        server.version.starts_with("loadline "),
        "{}",
        server.version
    );
    assert_eq!(server.command[..2], ["loadline", "serve"]);
    assert!(server.command.contains(&"--loops=1".to_owned()));
    assert!(!server.cpus.is_empty() && !server.client_cpus.is_empty());
    let load = trial.load.as_ref().unwrap();
    let completed = load.everything.completed;
    assert!(
        completed > 0 && load.everything.good == completed,
        "{:?}",
        load.everything
    );
    assert_eq!(server.requests_counted, Some(completed));
    // With those by which the lab asked for it.
    let by_loop = &server.responses_by_loop;
    assert!(by_loop.len() == 1 && by_loop[0] >= completed, "{by_loop:?}");
    assert!(server.threads_max.is_some_and(|count| count >= 2));
    assert!(trial.took_s > 1.0);
}

#[test]
fn a_trial_says_on_which_commit_it_was_measured() {
    let bench = bench("[servers.loadline]\noptions = { loops = 1, workers = 0 }");
    let commit = "0123456789ab, with changes";
    let trials = bench.complete_on(commit);
    bench.wait_until_nothing_runs();
    let commits: Vec<&str> = trials.iter().map(|trial| trial.commit.as_str()).collect();
    assert_eq!(commits, [commit]);
}

#[test]
fn a_server_of_https_is_measured_as_any_other() {
    let bench = Bench::new(
        "name = \"t\"\nfiles = { \"index.html\" = 93 }\n[servers.loadline]\n\
         options = { tls = \"self-signed\", loops = 1 }\n[[series]]\nname = \"s\"\n\
         path = \"/index.html\"\nreplicates = 1\nduration_s = 1\nwarm_up_s = 0\na_a = false\n\
         load = { connections = 2, new_connection = true, insecure = true }\n\
         factors = { tls_resume = [\"on\", \"off\"] }\n\
         allow = { client_limited = true, overflows = true, steal = 1, others = 1 }",
    );
    let trials = bench.complete();
    bench.wait_until_nothing_runs();
    assert_eq!(trials.len(), 2);
    for trial in trials {
        let all = &trial.load.as_ref().unwrap().everything;
        assert!(all.good > 2 && all.errors_total() == 0, "{all:?}");
        assert_eq!(trial.server.requests_counted, Some(all.completed));
        let is_resumed = trial.levels["tls_resume"] == Level::Text("on".to_owned());
        assert_eq!(all.handshakes_resumed > 0, is_resumed, "{all:?}");
    }
    let bench = Bench::new(
        "name = \"t\"\nfiles = { \"index.html\" = 93 }\n[servers.loadline]\n[[series]]\n\
         name = \"s\"\nload = { insecure = true }",
    );
    let output = bench.run(&["--dry-run"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(
        said(&output).contains("--insecure: it is for TLS"),
        "{}",
        said(&output)
    );
}

#[test]
fn a_server_of_http2_alone_is_asked_by_http2() {
    let bench = Bench::new(
        "name = \"t\"\nfiles = { \"index.html\" = 93 }\n[servers.loadline]\n[[series]]\n\
         name = \"s\"\npath = \"/index.html\"\nreplicates = 1\nduration_s = 1\nwarm_up_s = 0\n\
         a_a = false\nserve = { http2 = \"only\" }\n\
         load = { http2 = true, streams = 4, connections = 1 }\n\
         allow = { client_limited = true, overflows = true, steal = 1, others = 1 }",
    );
    let trials = bench.complete();
    assert_eq!(trials.len(), 1);
    let all = &trials[0].load.as_ref().expect("a load").everything;
    assert!(all.good > 2 && all.errors_total() == 0, "{all:?}");
}

#[test]
fn a_command_of_ones_own_and_what_it_leaves_behind() {
    let trials = run_one(
        "[servers.own]\ncommand = [\"sh\", \"-c\", \"tail -f {root}/index.html & tail -f \
         {configuration} & exec $0 $@\", \"{loadline}\", \"serve\", \"{root}\", \
         \"--listen=127.0.0.1:{port}\", \"--loops\", \"{loops}\"]\n\
         configuration = \"port {port}\"\noptions = { loops = 1 }\nversion = [\"echo\", \"own 1.0\"]",
    );
    let server = &trials[0].server;
    assert_eq!(server.version, "own 1.0");
    assert!(server.configuration.as_ref().unwrap().starts_with("port "));
    assert!(trials[0].load.as_ref().unwrap().everything.good > 0);
    assert_eq!(server.requests_counted, None);
}

#[test]
fn a_server_that_does_not_do_its_work_discards_trials_and_no_more() {
    for (server, reason) in [
        (
            "command = [\"false\"]",
            "The server x ended before it answered: exit status 1.",
        ),
        (
            "command = [\"sh\", \"-c\", \"echo no such device; exit 3\"]",
            "exit status 3. no such device",
        ),
        (
            "command = [\"{loadline}\", \"serve\", \"{dir}\", \"--listen=127.0.0.1:{port}\"]",
            "The response of the fresh server to /index.html is wrong: status 404",
        ),
    ] {
        let bench = bench(&format!("[servers.x]\n{server}"));
        let output = bench.run(&[]);
        // None counts: that has an exit code of its own, and its reason.
        assert_eq!(output.status.code(), Some(3), "{}", said(&output));
        assert!(said(&output).contains(reason), "{}", said(&output));
        let trials = bench.journal().trials;
        assert_eq!(trials[0].discarded.len(), 1, "{trials:?}");
        assert!(
            trials[0].discarded[0].contains(reason),
            "{:?}",
            trials[0].discarded
        );
        assert!(trials[0].load.is_none());
    }
}

#[test]
fn mistakes_are_reported_before_the_first_trial() {
    let files = "files = { \"index.html\" = 93 }";
    for (servers, series, right) in [
        ("[servers.loadline]", "a", "plan.toml:"),
        (
            "[servers.loadline]",
            "serve = { loopss = 2 }",
            "series s: server=loadline: --loopss: no such option",
        ),
        (
            "[servers.loadline]",
            "serve = { loops = 0 }",
            "series s: server=loadline: --loops 0",
        ),
        (
            "[servers.loadline]",
            "load = { rate = \"fast\" }",
            "series s: server=loadline: --rate fast",
        ),
        (
            "[servers.loadline]",
            "load = { burst = \"1s/1s\" }",
            "--burst: it goes with --rate",
        ),
        (
            "[servers.loadline]",
            "factors = { loops = [1, 2] }\nexcept = [{ loops = 3 }]",
            "plan.toml: series s: except: loops has no level 3; right would be one of 1, 2",
        ),
        (
            "[servers.x]\ncommand = [\"no-such-server\"]",
            "",
            "server x: no-such-server is not installed; right would be to install it",
        ),
    ] {
        let bench = Bench::new(&format!(
            "name = \"t\"\n{files}\n{servers}\n[[series]]\nname = \"s\"\n{series}"
        ));
        for more in [&["--dry-run"][..], &[]] {
            let output = bench.run(more);
            assert_eq!(output.status.code(), Some(2), "{}", said(&output));
            assert!(
                said(&output).contains(right),
                "{} is not {right}",
                said(&output)
            );
            assert_eq!(said(&output).lines().count(), 1, "{}", said(&output));
        }
    }
}

#[test]
fn a_dry_run_lists_what_would_be_run_and_writes_nothing() {
    let bench = Bench::new(
        "name = \"t\"\n[servers.loadline]\n[servers.gone]\ncommand = [\"no-such-server\"]\n\
         optional = true\n[[series]]\nname = \"s\"\nreplicates = 2\nduration_s = 10\n\
         warm_up_s = 0\nfactors = { loops = [1, 2] }\nservers = [\"loadline\"]\n\
         [[series]]\nname = \"other\"\nservers = [\"gone\"]",
    );
    let output = bench.run(&["--dry-run"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(
        text.starts_with("t: 2 cells, 6 trials in 2 blocks, 0 recorded, about 1 min 3 s left\n")
    );
    assert!(
        text.contains("left out: server gone is not installed\n"),
        "{text}"
    );
    assert_eq!(
        text.lines()
            .filter(|line| line.contains(" s: loops="))
            .count(),
        6
    );
    assert!(!bench.out().exists());
}
