//! What the client counts is what the server counts.

use std::process::Command;

use crate::program::PROGRAM;
use crate::util::{both, counted, measured, number, record, server, text};

/// Completed requests and connections of the client, warm-up and stragglers included.
fn client_counts(record: &serde_json::Value) -> (u64, u64) {
    let all = &record["everything"];
    (number(&all["completed"]), number(&all["connections"]))
}

#[test]
fn connections_that_stay_open() {
    let (server, _site) = server(&["--loops", "2"]);
    let url = format!("http://{}/", server.address());
    let record = measured(&format!("{url} -c 16 -d 300ms --warm-up 500ms"));
    let (completed, connections) = client_counts(&record);
    assert_eq!(counted(&server), (completed, 16));
    assert_eq!(connections, 16);
    assert!(completed > 0, "{completed}");
    let clients = &record["groups"][0]["total"]["tally"];
    assert_eq!(clients["errors"].as_object().map_or(0, |it| it.len()), 0);
    assert!(
        number(&clients["completed"]) < completed,
        "the warm-up is apart"
    );
}

#[test]
fn a_number_of_requests_over_new_connections() {
    let (server, _site) = server(&[]);
    let url = format!("http://{}/", server.address());
    let record = measured(&format!("{url} -c 8 -n 1000 --new-connection"));
    assert_eq!(client_counts(&record), (1000, 1000));
    assert_eq!(counted(&server), (1000, 1000));
}

#[test]
fn with_the_requests_the_other_clients_end_too() {
    let (server, _site) = server(&[]);
    let url = format!("http://{}/", server.address());
    for more in ["", "--processes 2"] {
        let others = "--idle-connections 5 --vanishing 2 --slow-heads 2@1B/s";
        let record = measured(&format!("{url} -c 4 -n 200 {others} {more}"));
        let groups = record["groups"].as_array().unwrap();
        assert_eq!(number(&groups[0]["total"]["tally"]["completed"]), 200);
        assert_eq!(number(&groups[1]["total"]["tally"]["held"]), 5);
        assert_eq!(record["run"]["interrupted"], false);
    }
}

#[test]
fn the_client_closes_after_so_many_requests() {
    let (server, _site) = server(&[]);
    let url = format!("http://{}/", server.address());
    let record = measured(&format!("{url} -c 4 -n 400 --requests-per-connection 10"));
    let (completed, connections) = client_counts(&record);
    assert_eq!(counted(&server), (completed, connections));
    assert_eq!(completed, 400);
    // Each client's last connection may have room left.
    assert!((40..=44).contains(&connections), "{connections}");
}

#[test]
fn the_sum_over_processes_is_the_servers_count() {
    let (server, _site) = server(&["--loops", "3"]);
    let url = format!("http://{}/", server.address());
    for more in ["-c 50 -n 3000", "-c 50 -n 3000 --new-connection"] {
        let before = counted(&server);
        let record = measured(&format!("{url} {more} --processes 3"));
        let after = counted(&server);
        let (completed, connections) = client_counts(&record);
        assert_eq!(completed, 3000, "{more}");
        // Asking for the count was a request of its own.
        assert_eq!(after.0 - before.0 - 1, completed, "{more}");
        assert_eq!(after.1 - before.1 - 1, connections, "{more}");
        assert_eq!(record["run"]["processes"], 3);
    }
}

#[test]
fn more_clients_than_a_process_may_have_descriptors_share_processes() {
    let (server, _site) = server(&[]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("record.json");
    let output = Command::new("sh")
        .args(["-c", "ulimit -n 256 && exec \"$0\" load \"$@\"", PROGRAM])
        .arg(format!("http://{}/", server.address()))
        .args(["-c", "300", "-n", "3000", "--allow-client-limited"])
        .args(["--style", "weighttp", "--json"])
        .arg(&path)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", both(&output));
    let limit = "a process may have 256 descriptors: 3 processes share 300 clients";
    let noted = text(&output.stderr).matches(limit).count();
    assert_eq!(noted, 1, "{}", both(&output));
    let record = record(&path);
    assert_eq!(record["limits"][0], limit);
    assert_eq!(record["run"]["processes"], 3);
    assert_eq!(client_counts(&record), (3000, 300));
    assert_eq!(counted(&server), (3000, 300));
}

#[test]
fn an_open_loop_sends_what_is_due() {
    let (server, _site) = server(&[]);
    let url = format!("http://{}/", server.address());
    for arrivals in ["poisson", "constant"] {
        let before = counted(&server);
        let line = format!("{url} -c 20 --rate 1000 -d 500ms --arrivals {arrivals}");
        let record = measured(&line);
        let (completed, _) = client_counts(&record);
        assert_eq!(counted(&server).0 - before.0 - 1, completed);
        let tally = &record["groups"][0]["total"]["tally"];
        assert_eq!(number(&tally["offered"]), 500);
        // On a busy machine the last of them may have been due and not sent when the end came.
        assert_eq!(completed + number(&tally["unfinished"]), 500, "{arrivals}");
    }
}

/// 21 connections have 23 or 24 requests each, whatever the threads and processes.
#[test]
fn schedules_of_connections_come_to_the_whole_rate() {
    let (server, _site) = server(&[]);
    let url = format!("http://{}/", server.address());
    let own = "--schedule per-connection --arrivals constant";
    for more in ["", "--threads 2 --processes 2", "--new-connection"] {
        let record = measured(&format!("{url} -c 21 --rate 1000 -d 500ms {own} {more}"));
        let tally = &record["groups"][0]["total"]["tally"];
        assert_eq!(number(&tally["offered"]), 500, "{more}");
        let (completed, _) = client_counts(&record);
        assert_eq!(completed + number(&tally["unfinished"]), 500, "{more}");
        assert_eq!(record["run"]["own_schedules"], true);
    }
}

#[test]
fn steps_are_distinguished() {
    let (server, _site) = server(&[]);
    let url = format!("http://{}/", server.address());
    let record = measured(&format!(
        "{url} -c 20 --steps 200..600/200 --step-duration 250ms --warm-up 100ms \
         --arrivals constant"
    ));
    let phases = record["phases"].as_array().unwrap();
    let labels: Vec<&str> = phases
        .iter()
        .map(|phase| phase["label"].as_str().unwrap())
        .collect();
    assert_eq!(labels, ["warm-up", "200/s", "400/s", "600/s"]);
    let steps = record["groups"][0]["phases"].as_array().unwrap();
    let offered: Vec<u64> = steps
        .iter()
        .map(|step| number(&step["tally"]["offered"]))
        .collect();
    assert_eq!(offered, [20, 50, 100, 150]);
}

#[test]
fn several_servers_and_source_addresses() {
    let (one, _site) = server(&[]);
    let (two, _other_site) = server(&[]);
    let record = measured(&format!(
        "http://{}/ http://{}/ -c 8 -n 2000 --sources 127.0.0.2-127.0.0.5",
        one.address(),
        two.address()
    ));
    let (first, second) = (counted(&one).0, counted(&two).0);
    assert_eq!(first + second, number(&record["everything"]["completed"]));
    // Half of the connections are of each; the server that runs more often has more requests.
    assert!(first > 0 && second > 0, "{first} and {second}");
}
