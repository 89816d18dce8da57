//! Slow networks: as a factor of a plan, against their own settings, and what is left of them. Where this
//! process may not make one, a line says why, and the test is skipped.

use std::fs;
use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::bench::{Bench, said};
use crate::levers::plan;
use crate::program::{GRACE, PROGRAM, run};

/// Whether links can be made here: what is in the way is said in one line.
#[allow(clippy::print_stderr, reason = "a test that is skipped says so")]
fn is_refused() -> bool {
    let output = run(&["lab", "link", "delay=0s", "--each=100ms"]);
    let said = said(&output);
    if !said.contains("not testable here") {
        return false;
    }
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    let _ = writeln!(std::io::stderr(), "\nskipped: {said}");
    true
}

#[test]
fn a_link_is_a_factor_and_its_delay_is_in_every_response() {
    if is_refused() {
        return;
    }
    let bench = Bench::new(&plan(
        "load = { connections = 4 }\nnetwork = \"namespaces\"\nduration_s = 1\nfactors = { link = [\
         \"off\", \"delay=40ms,bandwidth=4Mbit\", { level = \"lossy\", link = { delay = \"20ms\", \
         up.loss = \"10%\" } }] }",
    )
    .replacen("duration_s = 0.5\n", "", 1));
    let trials = bench.complete();
    assert_eq!(trials.len(), 3);
    for trial in trials {
        assert!(trial.discarded.is_empty(), "{:?}", trial.discarded);
        let load = trial.load.as_ref().unwrap();
        assert!(load.everything.good > 0, "{:?}", trial.levels);
        // What the server counted was asked for beside the link.
        let counted = trial.server.requests_counted;
        assert!(counted >= Some(load.everything.completed), "{counted:?}");
        let Some(link) = &trial.server.link else {
            assert_eq!(trial.server.network, "namespaces");
            continue;
        };
        assert_eq!(trial.server.network, "relay");
        assert!(link.up.packets > 0 && link.down.packets > 0, "{link:?}");
        assert_eq!(link.down.lost, 0, "{link:?}");
        // Each response is a whole round trip behind its request.
        let least_us = match link.settings.as_str() {
            "delay=40ms,bandwidth=4Mbit" => 80_000,
            "down.delay=20ms,up.delay=20ms,up.loss=10%" => {
                assert!(link.up.lost > 0, "{link:?}");
                40_000
            }
            other => panic!("{other}"),
        };
        let latency = &load.headline().unwrap().total.latency;
        let fastest_us = latency.min_us().unwrap();
        // Histograms have three digits.
        assert!(
            fastest_us >= least_us - least_us / 500,
            "{fastest_us} {least_us}"
        );
    }
    bench.wait_until_nothing_runs();
}

/// Relays that a process has started and that run.
fn relays_of(pid: u32) -> Vec<u32> {
    let is_relay = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.ok()?.path();
        let words = fs::read(path.join("cmdline")).ok()?;
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        let status = fs::read_to_string(path.join("status")).ok()?;
        let parent = status
            .lines()
            .find_map(|line| line.strip_prefix("PPid:\t"))?;
        let is_ours = words.contains(" lab relay ") && parent.parse() == Ok(pid);
        is_ours.then(|| path.file_name()?.to_str()?.parse().ok())?
    };
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(is_relay)
        .collect()
}

fn is_there(pid: u32) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline"));
    words.is_ok_and(|words| String::from_utf8_lossy(&words).contains("relay"))
}

#[test]
fn a_relay_ends_with_the_run_however_that_ends() {
    if is_refused() {
        return;
    }
    let text = plan("duration_s = 60\nload = { connections = 4 }\nlink = \"delay=10ms\"").replacen(
        "duration_s = 0.5\n",
        "",
        1,
    );
    for signal in ["INT", "KILL"] {
        let bench = Bench::new(&text);
        let mut run = bench.start();
        let until = Instant::now() + GRACE;
        let relays = loop {
            // The check whether links can be made has one of its own, for a moment.
            let relays = relays_of(run.pid());
            if !relays.is_empty() && bench.out().join("scratch/000000/server.log").exists() {
                break relays;
            }
            assert!(Instant::now() < until, "no relay");
            run.line_within(Duration::from_millis(5));
        };
        run.signal(signal);
        run.end();
        bench.wait_until_nothing_runs();
        while relays.iter().any(|relay| is_there(*relay)) {
            assert!(Instant::now() < until, "{signal}: a relay is left");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[test]
fn a_relay_that_is_killed_discards_its_trial_alone() {
    if is_refused() {
        return;
    }
    let bench = Bench::new(
        &plan(
            "duration_s = 3\nload = { connections = 4, timeout = \"1s\" }\nfactors = { link = [\
             \"delay=10ms\", \"off\"] }",
        )
        .replacen("duration_s = 0.5\n", "", 1),
    );
    let mut run = bench.start();
    let until = Instant::now() + GRACE * 2;
    let mut killed = false;
    while !killed {
        assert!(Instant::now() < until, "no relay");
        run.line_within(Duration::from_millis(5));
        let is_under_load = |number: &str| bench.out().join(number).join("load.log").exists();
        if !["scratch/000000", "scratch/000001"]
            .into_iter()
            .any(is_under_load)
        {
            continue;
        }
        for relay in relays_of(run.pid()) {
            let status = Command::new("kill")
                .args(["-KILL", &relay.to_string()])
                .status();
            killed |= status.unwrap().success();
        }
    }
    run.end();
    let trials = bench.journal().trials;
    assert_eq!(trials.len(), 2);
    for trial in trials {
        let has_link = trial.levels["link"].to_string() != "off";
        let says_so = trial
            .discarded
            .iter()
            .any(|why| why.starts_with("The link failed"));
        assert_eq!(says_so, has_link, "{:?}", trial.discarded);
    }
    bench.wait_until_nothing_runs();
}

#[test]
fn what_is_wrong_with_a_link_is_said_with_its_line() {
    for (series, part) in [
        ("link = \"moon\"", "no link moon"),
        ("link = { delay = \"75ms\", speed = 3 }", "speed: not known"),
        (
            "factors = { link = [\"dsl\", \"delay=75\"] }",
            "the unit is missing",
        ),
        (
            "factors = { link = [\"dsl\"], network = [\"namespaces\"] }",
            "both set the network",
        ),
    ] {
        let bench = Bench::new(&plan(series));
        let output = bench.run(&["--dry-run"]);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(part), "{said}");
    }
    let output = run(&["lab", "link", "bandwidth=2MB"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("not a bandwidth; right would be"));
}

#[test]
fn links_with_a_name_are_listed_and_documented() {
    let listed = run(&["lab", "link"]);
    assert_eq!(listed.status.code(), Some(0));
    let listed = String::from_utf8_lossy(&listed.stdout);
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/links.md");
    let page = fs::read_to_string(page).unwrap();
    for preset in loadline_lab::link::PRESETS {
        assert!(listed.contains(preset.source), "{listed}");
        assert!(
            page.contains(&format!("\n| `{}` |", preset.name)),
            "{}",
            preset.name
        );
    }
}

/// A device that is none in the place of TUN: what a machine without it says.
#[test]
#[allow(clippy::print_stderr, reason = "a test that is skipped says so")]
fn where_there_are_no_links_their_trials_are_not_testable_and_all_others_run() {
    let bench = Bench::new(&plan(
        "load = { connections = 4 }\nfactors = { link = [\"off\", \"dsl\"] }",
    ));
    let script = "mount --bind /dev/null /dev/net/tun && exec \"$0\" \"$@\"";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script, PROGRAM, "lab", "run"])
        .arg(bench.beside("plan.toml"))
        .arg("--out")
        .arg(bench.out())
        .output();
    let output = match output {
        Ok(output) if bench.out().exists() => output,
        other => return drop(writeln!(std::io::stderr(), "\nskipped: {other:?}")),
    };
    let said = said(&output);
    // 3, if the machine has disturbed the other one.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{said}");
    let reason = "links are not testable here: /dev/net/tun: ";
    assert!(said.lines().any(|line| line.contains(reason)), "{said}");
    let trials = bench.journal().trials;
    assert_eq!(trials.len(), 2);
    for trial in trials {
        let reason = "Not testable here: there is no link: /dev/net/tun: ";
        if trial.levels["link"].to_string() == "off" {
            assert!(trial.load.is_some(), "{:?}", trial.discarded);
            continue;
        }
        assert_eq!(trial.discarded.len(), 1);
        assert!(
            trial.discarded[0].starts_with(reason),
            "{:?}",
            trial.discarded
        );
    }
}

/// What `loadline lab link` measures of a link, each property for a second.
fn measured(link: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("link.json");
    let json = format!("--json={}", path.display());
    let output = run(&["lab", "link", link, "--each=1s", &json]);
    let code = output.status.code();
    assert!(matches!(code, Some(0 | 3)), "{}", said(&output));
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// One property: as set, and as measured.
fn row(check: &Value, name: &str) -> (Option<f64>, f64) {
    let rows = check["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == name).unwrap();
    (row["wanted"].as_f64(), row["measured"].as_f64().unwrap())
}

/// What is measured depends on how busy the machine is; that it is measured does not.
#[test]
fn a_link_is_measured_against_its_settings() {
    if is_refused() {
        return;
    }
    let check = measured("delay=20ms,down.bandwidth=2Mbit,up.bandwidth=1Mbit,down.loss=5%");
    let (wanted_ms, median_ms) = row(&check, "ping, median");
    assert!((wanted_ms.unwrap() - 41.0).abs() < 0.1, "{wanted_ms:?}");
    assert!(median_ms >= 40.0, "{median_ms}");
    assert_eq!(row(&check, "datagrams down").0, Some(1.9));
    assert_eq!(row(&check, "bulk up").0, Some(1.0));
    assert!(row(&check, "bulk down").1 > 0.0, "{check}");
    assert!(check["link"]["down"]["lost"].as_u64() > Some(0), "{check}");
    assert_eq!(check["link"]["up"]["lost"], 0);
}

/// The slowest one of P1's slow networks. A busy machine makes a round trip longer. What has come while a
/// thread was held up is received at once: a quarter more is what a quarter of a second makes of it.
#[test]
fn a_link_of_150_ms_and_2_mbit_that_loses_packets_is_neither_quicker_nor_wider() {
    if is_refused() {
        return;
    }
    let check = measured("delay=75ms,bandwidth=2Mbit,loss=1%");
    // Both delays, and an echo request of 84 bytes in each direction.
    let (wanted_ms, median_ms) = row(&check, "ping, median");
    assert!((wanted_ms.unwrap() - 150.672).abs() < 0.001, "{check}");
    assert!(median_ms >= 150.0, "{median_ms}");
    for name in ["datagrams down", "datagrams up", "bulk down", "bulk up"] {
        let (_, megabits_per_s) = row(&check, name);
        let is_within = megabits_per_s > 0.0 && megabits_per_s <= 2.0 * 1.25;
        assert!(is_within, "{name}: {megabits_per_s}");
    }
    let lost = ["down", "up"].map(|way| check["link"][way]["lost"].as_u64().unwrap());
    assert!(lost[0] + lost[1] > 0, "{check}");
}
