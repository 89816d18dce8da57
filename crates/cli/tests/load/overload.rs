//! More than a server can carry: what it refuses is no good response, and clients that try again are
//! counted by requests and by attempts.

use loadline_stub::{Every, Fault, Stub, StubOptions};
use serde_json::Value;

use crate::program::exchange;
use crate::util::{counted, measured, measured_to, number, server};

#[test]
fn what_is_refused_is_an_error_of_its_own_kind() {
    // 200 a second. Twice as many could not be answered within the latency goal, which is a second; there is
    // room in the queue for all of them.
    let busy = ["--service-time", "10ms", "--workers", "2"];
    let (server, _site) = server(&busy);
    let url = format!("http://{}/", server.address());
    let record = measured(&format!(
        "{url} -c 1000 --new-connection --rate 400 -d 3s --latency-goal 1s"
    ));
    let tally = &record["groups"][0]["total"]["tally"];
    let of_status = |class: usize| number(&tally["statuses"][class - 1]);
    let error = |kind: &str| tally["errors"].get(kind).map_or(0, number);
    assert_eq!(number(&tally["offered"]), 1200);
    assert!(of_status(5) > 0 && of_status(2) > 0, "{tally}");
    assert_eq!(error("status_5xx"), of_status(5));
    // The goal refused them, and not the length of the queue.
    let (_, status) = exchange(server.connect(), "/-/status");
    let status: Value = serde_json::from_str(&status).unwrap();
    let refused = number(&status["total"]["refused_late"]);
    assert!(refused >= of_status(5), "{refused} refused, {tally}");
    assert_eq!(number(&tally["good"]), of_status(2));
    assert!(number(&tally["in_goal"]) <= number(&tally["good"]));
    let errors: u64 = tally["errors"]
        .as_object()
        .unwrap()
        .values()
        .map(number)
        .sum();
    let settled = number(&tally["good"]) + errors + number(&tally["unfinished"]);
    assert_eq!(settled, 1200, "{tally}");
    // The server counts the same.
    let completed = number(&record["everything"]["completed"]);
    assert!(counted(&server).0 >= completed);
    let series = record["groups"][0]["series"].as_array().unwrap();
    let good: u64 = series.iter().map(|second| number(&second["good"])).sum();
    let late = number(&record["groups"][0]["total"]["after_end"]["good"]);
    assert_eq!(good + late, number(&tally["good"]));
}

#[test]
fn attempts_and_requests_are_counted_apart() {
    for (every, code) in [(1, 6), (2, 0)] {
        let fault = Fault::Status(503);
        let stub = Stub::start(StubOptions {
            faults: vec![Every { every, fault }],
            ..StubOptions::default()
        });
        let stub = stub.unwrap();
        let line = format!(
            "http://{}/ -c 20 --rate 500 -n 50 --retries 2 --retry-pause 10ms",
            stub.address()
        );
        let record = measured_to(code, &line);
        let tally = &record["groups"][0]["total"]["tally"];
        let count = |name: &str| number(&tally[name]);
        let of = |errors: &str| tally[errors].get("status_5xx").map_or(0, number);
        assert_eq!((count("offered"), count("sent")), (50, 50));
        assert_eq!(count("good") + of("errors"), 50, "{tally}");
        assert_eq!(
            (count("retries"), of("retried")),
            (of("retried"), count("retries"))
        );
        assert_eq!(count("sent") + count("retries"), stub.counts().requests);
        assert_eq!(count("completed"), stub.counts().requests);
        assert_eq!(stub.counts().faults, [of("errors") + of("retried")]);
        if every == 1 {
            assert_eq!((count("good"), count("retries")), (0, 100));
        }
        assert_eq!(record["run"]["retries_max"], 2);
    }
}

#[test]
fn between_bursts_the_rate_is_the_base() {
    let (server, _site) = server(&[]);
    let url = format!("http://{}/", server.address());
    let record = measured(&format!(
        "{url} -c 20 --rate 1000 --burst 100ms/400ms --burst-base 100 -d 1s --arrivals constant"
    ));
    let tally = &record["groups"][0]["total"]["tally"];
    assert_eq!(number(&tally["offered"]), 280);
}
