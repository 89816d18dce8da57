//! wrk against every architecture: no error, no reset, and both sides count the same.

use std::process::Command;

use crate::util::{ARCHITECTURES, Client, Server, is_offered, small_site};

const CONNECTIONS: u64 = 32;

struct Wrk {
    requests: u64,
    text: String,
}

fn wrk(url: &str) -> Wrk {
    let output = Command::new("wrk")
        .args([
            "-t1",
            &format!("-c{CONNECTIONS}"),
            "-d1s",
            "--timeout",
            "10s",
            url,
        ])
        .output()
        .expect("wrk is installed: apt-get install wrk");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    let line = text
        .lines()
        .find(|line| line.contains(" requests in "))
        .expect("a summary");
    let requests = line.split_whitespace().next().unwrap().parse().unwrap();
    Wrk { requests, text }
}

#[test]
fn no_errors_and_the_same_count() {
    let root = small_site();
    for (name, options) in ARCHITECTURES
        .iter()
        .filter(|(name, _)| *name != "sequential" && is_offered(name))
    {
        let mut all: Vec<&str> = options.split(' ').collect();
        all.extend(["--status-path", "/-/status"]);
        let server = Server::start(root.path(), &all);
        let run = wrk(&format!("http://{}/file.html", server.addr));
        assert!(run.requests > 0, "{name}: {}", run.text);
        assert!(!run.text.contains("Socket errors"), "{name}: {}", run.text);
        assert!(!run.text.contains("Non-2xx"), "{name}: {}", run.text);

        let answer = Client::connect(server.addr).get("/-/status");
        let status: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        let served = status["total"]["answers"]["2xx"]
            .as_u64()
            .expect("total.answers.2xx");
        // wrk stops in the middle: each connection may have an answer on its way that it does not
        // count. The request for the status page counts itself only after its page was made.
        let expected = run.requests..=run.requests + CONNECTIONS;
        assert!(
            expected.contains(&served),
            "{name}: wrk {}, server {served}",
            run.requests
        );
        for class in ["4xx", "5xx"] {
            assert_eq!(
                status["total"]["answers"][class].as_u64(),
                Some(0),
                "{name}: {class}"
            );
        }
    }
}
