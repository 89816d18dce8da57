//! Signals, children without a parent, servers that are not there.

use loadline_stub::{Listening, Stub, StubOptions};
use tempfile::TempDir;

use crate::program::{Server, until};
use crate::util::{Running, both, counted, load, record, server, signal};

/// A run of a minute that has had its first answers, with its server and the server's site.
fn under_way(more: &str) -> (Running, Server, TempDir) {
    let (server, site) = server(&[]);
    let address = server.address();
    let running = Running::start(&format!("http://{address}/ -c 4 -d 60s {more}"));
    until("the first answers", || {
        let (answers, accepted) = counted(&server);
        // Each look before this one was an answer, too, and a connection.
        (answers > accepted + 100).then_some(())
    });
    (running, server, site)
}

fn children(running: &Running) -> Vec<u32> {
    let path = format!("/proc/{0}/task/{0}/children", running.id());
    let ids = std::fs::read_to_string(path).unwrap();
    ids.split_ascii_whitespace()
        .map(|id| id.parse().unwrap())
        .collect()
}

#[test]
fn an_interrupted_run_prints_what_was_measured_so_far() {
    for (signal, more) in [("INT", ""), ("TERM", "--processes 2")] {
        let folder = tempfile::tempdir().unwrap();
        let json = folder.path().join("record.json");
        let more = format!("--json {} --assert rate<1 {more}", json.display());
        let (mut running, _server, _site) = under_way(&more);
        running.signal(signal);
        let (status, out, err) = running.end();
        assert_eq!(status.code(), Some(130), "{out}{err}");
        assert!(out.contains("nterrupted"), "{out}");
        assert!(err.contains("interrupted"), "{err}");
        assert!(!err.contains("hold"), "conditions are not judged: {err}");
        let record = record(&json);
        assert_eq!(record["run"]["interrupted"], true);
        assert!(record["everything"]["completed"].as_u64().unwrap() > 50);
        assert!(record["run"]["ran_s"].as_f64().unwrap() < 30.0);
    }
}

#[test]
fn a_second_signal_ends_at_once() {
    // Nobody accepts, and the queue of one is full soon: there is nothing but waiting.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut running = Running::start(&format!("http://{address}/ -c 4 -d 60s --timeout 10m"));
    let (_first, _) = listener.accept().unwrap();
    running.signal("INT");
    running.signal("TERM");
    let (status, out, err) = running.end();
    assert_eq!(status.code(), Some(130), "{out}{err}");
}

#[test]
fn children_end_with_their_parent() {
    let (mut running, _server, _site) = under_way("--processes 2");
    let children = children(&running);
    assert_eq!(children.len(), 2);
    running.signal("KILL");
    running.end();
    for child in children {
        until("the end of a child", || {
            // What is left of it until its new parent has looked is no process any more.
            let status = std::fs::read_to_string(format!("/proc/{child}/status"));
            status.map_or(Some(()), |text| text.contains("State:\tZ").then_some(()))
        });
    }
}

#[test]
fn a_child_that_dies_fails_the_run_and_leaves_files_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let (json, csv) = (
        folder.path().join("new.json"),
        folder.path().join("old.csv"),
    );
    std::fs::write(&csv, "before").unwrap();
    let (mut running, _server, _site) = under_way(&format!(
        "--processes 2 --json {} --csv {}",
        json.display(),
        csv.display()
    ));
    signal(children(&running)[0], "KILL");
    let (status, out, err) = running.end();
    assert_eq!(status.code(), Some(1), "{out}{err}");
    assert!(
        err.contains("process 1 of 2") || err.contains("process 2 of 2"),
        "{err}"
    );
    assert!(!json.exists());
    assert_eq!(std::fs::read_to_string(&csv).unwrap(), "before");
}

#[test]
fn a_server_that_is_not_there_is_a_failure() {
    let nobody = Stub::start(StubOptions {
        listening: Listening::Refusing,
        ..StubOptions::default()
    });
    let address = nobody.as_ref().unwrap().address();
    let output = load(&format!("http://{address}/ -c 2 -d 100ms --quiet"));
    assert_eq!(output.status.code(), Some(1), "{}", both(&output));
    assert!(
        both(&output).contains("no response came"),
        "{}",
        both(&output)
    );
}
