//! An app that has more requests than it can answer in time.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use loadline_proto::Limits;
use loadline_server::ServerOptions;
use loadline_tower::Tower;
use tokio::sync::Semaphore;

use crate::client::Client;
use crate::fixture::Running;
use crate::model::Model;

every_model! {
    an_app_with_a_queue_of_its_own_gets_what_it_can_answer_in_time,
}

const LEARNED: u64 = 32;
const OFFERED: u64 = 160;

/// Requests over a connection each.
fn ask(server: &Running, count: u64) -> Vec<Client> {
    let clients = (0..count).map(|_| {
        let mut client = server.connect();
        client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        client
    });
    clients.collect()
}

/// The app answers one request after the other, and its queue is its own.
pub fn an_app_with_a_queue_of_its_own_gets_what_it_can_answer_in_time(model: Model) {
    let options = model.options();
    if options.latency_goal.is_none() || !model.is_concurrent() {
        return;
    }
    let options = ServerOptions {
        latency_goal: Some(Duration::from_secs(1)),
        ..options
    };
    let turns = Arc::new(Semaphore::new(0));
    let of_app = Arc::clone(&turns);
    let app = get(move || async move {
        of_app.acquire().await.unwrap().forget();
        "done"
    });
    let app = Tower::new(Router::new().route("/", app)).unwrap();
    let server = Running::start_app(options, Limits::default(), |_| app);
    // Each of these takes the app 10 ms, or more on a crowded machine.
    let first = ask(&server, LEARNED);
    server.await_decided(LEARNED);
    for _ in 0..LEARNED {
        thread::sleep(Duration::from_millis(10));
        turns.add_permits(1);
    }
    for mut client in first {
        assert_eq!(client.answer().status, 200);
    }
    // So it could not answer all of these within a second.
    let clients = ask(&server, OFFERED);
    server.await_decided(OFFERED);
    turns.add_permits(OFFERED as usize);
    let (mut answered, mut refused) = (0, 0);
    for mut client in clients {
        let answer = client.answer();
        match answer.status {
            200 => answered += 1,
            503 => {
                assert!(answer.field("retry-after").is_some(), "{answer:?}");
                refused += 1;
            }
            status => panic!("{status}"),
        }
    }
    assert!(answered > 0 && refused > 0, "{answered} {refused}");
    server.await_in_progress(0);
}
