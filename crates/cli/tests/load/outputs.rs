//! What is printed, what stands in the files, and what conditions say.

use std::process::Command;

use crate::program::{PROGRAM, until};
use crate::util::{both, load, measured, measured_to, number, record, server, text};

#[test]
fn every_style_prints_its_tools_form_on_standard_output() {
    let (server, _site) = server(&[]);
    let url = format!("http://{}/", server.address());
    for (style, lines) in [
        ("summary", &["good", "99 %", "Requests/sec:"][..]),
        (
            "webbench",
            &["Webbench - Simple Web Benchmark 1.5", "Speed=", "susceed"],
        ),
        (
            "wrk2",
            &["Detailed Percentile spectrum:", "Requests/sec:", "#[Mean"],
        ),
        ("weighttp", &["finished in ", "status codes: ", "req/s"]),
        (
            "vegeta",
            &["Requests", "[total, rate, throughput]", "Success"],
        ),
    ] {
        let line = format!("{url} -c 4 -d 200ms --style {style} --quiet --allow-client-limited");
        let output = load(&line);
        assert_eq!(output.status.code(), Some(0), "{}", both(&output));
        let out = text(&output.stdout);
        for part in lines {
            assert!(out.contains(part), "{style}: no '{part}' in:\n{out}");
        }
        assert_eq!(text(&output.stderr), "", "{style} and --quiet");
    }
}

#[test]
fn files_hold_the_same_run() {
    let (server, _site) = server(&[]);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (json, csv, hdr) = (path("a.json"), path("a.csv"), path("a.hdr"));
    let output = load(&format!(
        "http://{}/ -c 4 -d 2100ms --rate 500 --user me:secret --allow-client-limited \
         --json {} --csv {} --hdr {}",
        server.address(),
        json.display(),
        csv.display(),
        hdr.display()
    ));
    assert_eq!(output.status.code(), Some(0), "{}", both(&output));
    let record = record(&json);
    assert_eq!(record["schema"], "loadline-load/1");
    assert!(
        !record.to_string().contains("secret"),
        "passwords are masked"
    );
    let all = &record["everything"];
    assert_eq!(number(&all["offered"]), 1050);
    let completed_all = number(&all["completed"]);
    let csv = std::fs::read_to_string(csv).unwrap();
    let mut rows = csv.lines().filter(|line| !line.starts_with('#'));
    let names: Vec<&str> = rows.next().unwrap().split(',').collect();
    let column = names.iter().position(|name| *name == "completed").unwrap();
    let completed: u64 = rows
        .map(|row| row.split(',').nth(column).unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(completed, completed_all, "{csv}");
    let hdr = std::fs::read_to_string(hdr).unwrap();
    assert!(hdr.starts_with('#'), "{hdr}");
    let intervals = hdr.lines().filter(|line| line.starts_with("Tag=latency"));
    assert!((2..=4).contains(&intervals.count()), "{hdr}");
}

#[test]
fn progress_goes_to_standard_error_in_plain_lines() {
    let (server, _site) = server(&[]);
    let output = load(&format!(
        "http://{}/ -c 4 -d 1500ms --rate 100 --allow-client-limited",
        server.address()
    ));
    let err = text(&output.stderr);
    assert!(!err.is_empty() && !err.contains('\x1b'), "{err}");
    assert!(err.lines().count() <= 4, "{err}");
}

#[test]
fn conditions_decide_the_exit_code() {
    let (server, _site) = server(&[]);
    let run = |more: &str| {
        load(&format!(
            "http://{}/ -c 4 -d 300ms --quiet --allow-client-limited {more}",
            server.address()
        ))
    };
    let good = run("--assert errors<0.1% --assert rate>=1");
    assert_eq!(good.status.code(), Some(0), "{}", both(&good));
    let broken = run("--assert rate>=10000000 --assert errors<50%");
    assert_eq!(broken.status.code(), Some(3), "{}", both(&broken));
    let err = text(&broken.stderr);
    assert!(err.contains("rate>=10000000"), "{err}");
    assert!(
        !err.contains("errors<50%"),
        "what holds is not printed: {err}"
    );
    assert!(
        text(&broken.stdout).contains("99 %"),
        "the result is printed all the same"
    );
}

#[test]
fn a_run_of_wrong_answers_alone_does_not_end_well() {
    let (server, _site) = server(&[]);
    let url = format!("http://{}/nope", server.address());
    for more in ["", "--quiet", "--allow-client-limited --style wrk2"] {
        let output = load(&format!("{url} --rate 50 -d 400ms {more}"));
        assert_eq!(output.status.code(), Some(6), "{}", both(&output));
        let err = text(&output.stderr);
        assert!(err.contains("no response to the clients was good"), "{err}");
        assert!(err.contains("status 404"), "{err}");
    }
    let broken = load(&format!("{url} -n 20 -c 2 --assert errors<1% --quiet"));
    assert_eq!(broken.status.code(), Some(3), "{}", both(&broken));
    let wanted = load(&format!(
        "{url} -n 20 -c 2 --expect-status 404 --allow-client-limited"
    ));
    assert_eq!(wanted.status.code(), Some(0), "{}", both(&wanted));
}

#[test]
fn rounds_are_printed_one_by_one_and_together() {
    let (server, _site) = server(&[]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rounds.json");
    let output = load(&format!(
        "http://{}/ -c 2 -n 50 --rounds 3 --allow-client-limited --json {}",
        server.address(),
        path.display()
    ));
    assert_eq!(output.status.code(), Some(0), "{}", both(&output));
    assert!(text(&output.stdout).contains("mean"), "{}", both(&output));
    let text = std::fs::read_to_string(&path).unwrap();
    let records = serde_json::Deserializer::from_str(&text).into_iter::<serde_json::Value>();
    let rounds: Vec<u64> = records
        .map(|record| number(&record.unwrap()["run"]["round"]))
        .collect();
    assert_eq!(rounds, [1, 2, 3], "{text}");
}

#[test]
fn a_watched_server_is_in_the_record() {
    let (server, _site) = server(&[]);
    let record = measured(&format!(
        "http://{}/ -c 4 -d 1200ms --server-pid {} --watch again={}",
        server.address(),
        server.id(),
        server.id()
    ));
    let watched = record["watched"].as_array().unwrap();
    let names: Vec<&str> = watched
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["server", "again"]);
    assert!(number(&watched[0]["threads_max"]) >= 2, "{}", watched[0]);
}

#[test]
fn expectations_are_checked() {
    let (server, _site) = server(&[]);
    let url = format!("http://{}/", server.address());
    let right = "--expect-length 12 --content-sample 1 --expect-sha256 \
                 6d24a7cc09aadf7a6c2ec4fd8ee23b0bd91da1ac2f1bd1d3ab3b9d8a2c0c0a1e";
    let wrong_hash = measured_to(6, &format!("{url} -c 2 -n 100 {right}"));
    let tally = &wrong_hash["groups"][0]["total"]["tally"];
    assert_eq!(number(&tally["good"]), 0);
    assert_eq!(number(&tally["errors"]["wrong_content"]), 100, "{tally}");
    let missing = measured(&format!("{url}nothing -c 2 -n 100 --expect-status 4xx"));
    assert_eq!(number(&missing["groups"][0]["total"]["tally"]["good"]), 100);
    let unexpected = measured_to(6, &format!("{url}nothing -c 2 -n 100"));
    let tally = &unexpected["groups"][0]["total"]["tally"];
    assert_eq!(number(&tally["errors"]["status_4xx"]), 100, "{tally}");
}

#[test]
fn groups_are_reported_apart() {
    let (server, _site) = server(&[]);
    let record = measured(&format!(
        "http://{}/ -c 4 -n 100 --idle-connections 20 --slow-heads 5@10B/s --vanishing 3",
        server.address()
    ));
    let groups = record["groups"].as_array().unwrap();
    let names: Vec<&str> = groups
        .iter()
        .map(|group| group["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["clients", "idle", "slow-heads", "vanishing"]);
    assert!(number(&groups[0]["total"]["tally"]["good"]) > 0);
}

#[test]
fn users_go_through_their_scenario_from_addresses_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let (server, _site) = server(&["--access-log", log.to_str().unwrap()]);
    let scenario = folder.path().join("scenario.toml");
    let steps = "repeat = 2\n[[step]]\nname = \"home\"\npath = \"/\"\n\
                 [[step]]\nname = \"page\"\npath = \"/index.html\"\n";
    std::fs::write(&scenario, steps).unwrap();
    let record = measured(&format!(
        "http://{}/ --scenario {} --users 5 --source-per-client",
        server.address(),
        scenario.display()
    ));
    assert_eq!(record["groups"][0]["name"], "users");
    assert_eq!(number(&record["groups"][0]["total"]["tally"]["good"]), 20);
    let lines = until("the lines of the log", || {
        let text = std::fs::read_to_string(&log).unwrap();
        (text.lines().count() == 20).then_some(text)
    });
    let mut peers: Vec<&str> = lines
        .lines()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    peers.sort_unstable();
    peers.dedup();
    let own = [
        "127.0.0.2",
        "127.0.0.3",
        "127.0.0.4",
        "127.0.0.5",
        "127.0.0.6",
    ];
    assert_eq!(peers, own);
}

#[test]
fn a_step_that_fails_is_reported_in_words() {
    let (server, site) = server(&[]);
    let scenario = site.path().join("scenario.toml");
    let steps = "repeat = 1\n[[step]]\nname = \"home\"\npath = \"/\"\n\
                 [[step]]\nname = \"gone\"\npath = \"/missing\"\n";
    std::fs::write(&scenario, steps).unwrap();
    let output = load(&format!(
        "http://{}/ --scenario {} --users 3 --allow-client-limited --quiet",
        server.address(),
        scenario.display()
    ));
    assert_eq!(output.status.code(), Some(6), "{}", both(&output));
    let err = text(&output.stderr);
    assert!(err.contains("the step 'gone' never succeeded"), "{err}");
    assert!(err.contains("gone: 3 of 3 failed; first: user "), "{err}");
    assert!(err.contains("the status 404, not 200 to 299"), "{err}");
    assert!(
        !err.contains("home: "),
        "what went well is not printed: {err}"
    );
}

#[test]
fn players_ask_for_ranges() {
    let (server, site) = server(&[]);
    std::fs::write(site.path().join("video.mp4"), vec![7; 1 << 20]).unwrap();
    let record = measured(&format!(
        "http://{}/video.mp4 --player 2Mbps --players 3 -d 5s",
        server.address()
    ));
    let group = &record["groups"][0];
    assert_eq!(group["name"], "players");
    let tally = &group["total"]["tally"];
    assert!(number(&tally["good"]) >= 3, "{tally}");
    let codes = tally["status_codes"].as_array().unwrap();
    assert!(codes.iter().all(|code| code[0] == 206), "{tally}");
}

#[test]
fn steps_that_fail_are_reported_whichever_process_they_failed_in() {
    let (server, _site) = server(&[]);
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("scenario.toml");
    let steps = "repeat = 2\n[[step]]\nname = \"home\"\npath = \"/\"\n\
                 [[step]]\nname = \"missing\"\npath = \"/nothing\"\n";
    std::fs::write(&scenario, steps).unwrap();
    for more in ["", "--processes 2", "--processes 2 --rounds 2"] {
        let output = load(&format!(
            "http://{}/ --scenario {} --users 5 --allow-client-limited {more}",
            server.address(),
            scenario.display()
        ));
        assert_eq!(output.status.code(), Some(6), "{}", both(&output));
        let failed = if more.contains("rounds") { 20 } else { 10 };
        let line = format!("missing: {failed} of {failed} failed; first: ");
        let err = text(&output.stderr);
        assert!(err.contains(&line), "{more}: no '{line}' in: {err}");
        assert!(!err.contains("home:"), "{err}");
    }
}

#[test]
fn what_became_of_idle_connections_is_in_the_summary() {
    let (server, _site) = server(&[]);
    for clients in ["-c 2 -n 20", "-c 0 -d 2s"] {
        let output = load(&format!(
            "http://{}/ {clients} --idle-connections 5 --allow-client-limited --quiet",
            server.address()
        ));
        let out = text(&output.stdout);
        assert!(
            out.contains("idle: 5 held at the end, closed by the server 0 times"),
            "{}",
            both(&output)
        );
    }
}

#[test]
fn a_file_that_standard_output_goes_to_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("both");
    let file = std::fs::File::create(&path).unwrap();
    for name in ["/dev/stdout", path.to_str().unwrap()] {
        let output = Command::new(PROGRAM)
            .args(["load", "http://127.0.0.1:9/", "--json", name])
            .stdout(file.try_clone().unwrap())
            .output()
            .unwrap();
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {err}");
        assert!(
            err.contains(name) && err.contains("standard output"),
            "{err}"
        );
    }
}
