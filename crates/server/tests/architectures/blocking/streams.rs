//! Many requests of one connection at once (HTTP/2), on threads that carry out what blocks.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use loadline_proto::{Http2Count, Limits};
use loadline_server::{Architecture, ServerOptions};

use super::util::*;

/// One thread for all connections, or for each.
fn one_thread(architecture: Architecture) -> ServerOptions {
    ServerOptions {
        threads: 1,
        ..options(architecture)
    }
}

/// Streams that a client may open, from the first one on.
fn streams(count: u32) -> impl Iterator<Item = u32> + Clone {
    (0..count).map(|index| 2 * index + 1)
}

#[test]
fn streams_that_could_not_be_answered_in_time_are_refused() {
    for architecture in BLOCKING {
        refuses_what_is_late(architecture, "/work");
    }
}

/// All of them used to be begun at once, under `thread-pool` on one thread, and none was refused.
#[test]
fn apps_of_streams_that_could_not_respond_in_time_are_not_begun() {
    for architecture in BLOCKING {
        refuses_what_is_late(architecture, "/app-work");
    }
}

/// Asks a hundred times for what takes 10 ms, one after the other: a second.
fn refuses_what_is_late(architecture: Architecture, path: &str) {
    let server = start(ServerOptions {
        latency_goal: Some(Duration::from_millis(200)),
        ..one_thread(architecture)
    });
    let mut client = Http2Client::connect(server.address);
    client.ask(streams(100), path);
    let (mut answered, mut refused) = (0, 0);
    for stream in streams(100) {
        let response = client.response(stream);
        match response.status {
            200 => answered += 1,
            503 => {
                assert!(response.has_retry_after, "{response:?}");
                refused += 1;
            }
            other => panic!("{other}"),
        }
    }
    assert!(
        answered > 0 && refused > 0,
        "{architecture:?}: {answered}, {refused}"
    );
    let total = server.handle.snapshot().total;
    assert_eq!(total.refused_late, refused, "{architecture:?}");
    // The connection goes on, and what comes when all is done is answered again.
    client.ask([201], path);
    assert_eq!(client.response(201).status, 200, "{architecture:?}");
}

#[test]
fn streams_are_all_answered_without_a_goal_or_within_it() {
    for architecture in BLOCKING {
        for latency_goal in [None, Some(Duration::from_secs(60))] {
            let server = start(ServerOptions {
                latency_goal,
                ..one_thread(architecture)
            });
            let mut client = Http2Client::connect(server.address);
            client.ask(streams(100), "/nap");
            for stream in streams(100) {
                assert_eq!(client.response(stream).status, 200, "{architecture:?}");
            }
        }
    }
}

#[test]
fn a_response_does_not_wait_for_the_streams_behind_it() {
    for architecture in BLOCKING {
        let server = start(one_thread(architecture));
        let mut client = Http2Client::connect(server.address);
        client.ask([1], "/nap");
        client.ask([3], "/gate");
        assert_eq!(client.response(1).status, 200);
        server.handler.gate.open();
        assert_eq!(client.response(3).content, b"passed");
    }
}

#[test]
fn streams_that_were_reset_are_not_carried_out() {
    for architecture in BLOCKING {
        carries_out_none_that_was_reset(architecture, "/second-gate");
    }
}

#[test]
fn apps_of_streams_that_were_reset_are_not_begun() {
    for architecture in BLOCKING {
        carries_out_none_that_was_reset(architecture, "/app");
    }
}

fn carries_out_none_that_was_reset(architecture: Architecture, path: &str) {
    let server = start(one_thread(architecture));
    let mut client = Http2Client::connect(server.address);
    let behind = [3, 5, 7].map(|stream| (stream, path));
    client.ask_each([(1, "/gate")].into_iter().chain(behind));
    server.handler.gate.await_waiting(1);
    client.reset([3, 5, 7]);
    client.ask([9], "/nap");
    client.await_delivery();
    let resets = || server.handle.snapshot().total.http2[Http2Count::ClientResets as usize];
    if !ON_ONE_THREAD.contains(&architecture) {
        eventually(|| resets() == 3); // the loop receives them, beside the thread that takes the next step
    }
    server.handler.gate.open();
    assert_eq!(client.response(1).content, b"passed");
    assert_eq!(client.response(9).status, 200);
    assert_eq!(server.handler.second_gate.waiting(), 0, "{architecture:?}");
    assert_eq!(server.handler.app.begun.load(SeqCst), 0, "{architecture:?}");
    assert_eq!(resets(), 3);
    eventually(|| server.handle.snapshot().total.abandoned == 3);
}

#[test]
fn a_stream_that_comes_while_another_is_carried_out_is_next() {
    for architecture in BLOCKING {
        let server = start(one_thread(architecture));
        let mut client = Http2Client::connect(server.address);
        client.ask([1], "/gate");
        server.handler.gate.await_waiting(1);
        client.ask([3], "/nap");
        server.handler.gate.open();
        assert_eq!(client.response(3).status, 200);
        assert_eq!(client.response(1).status, 200);
    }
}

/// Architectures with one thread for all that a connection has to do.
const ON_ONE_THREAD: [Architecture; 2] =
    [Architecture::Sequential, Architecture::ThreadPerConnection];

#[test]
fn an_app_goes_on_while_steps_of_its_connection_wait() {
    for architecture in ON_ONE_THREAD {
        let server = start(one_thread(architecture));
        let mut client = Http2Client::connect(server.address);
        client.ask([1], "/app");
        server.handler.app.await_waiting();
        client.ask_each([(3, "/gate"), (5, "/second-gate")]);
        server.handler.gate.await_waiting(1);
        server.handler.app.open();
        server.handler.gate.open();
        assert_eq!(client.response(1).content, b"passed", "{architecture:?}");
        server.handler.second_gate.open();
        assert_eq!(client.response(5).status, 200, "{architecture:?}");
    }
}

/// The app has a new piece as soon as one has left, for as long as there is room.
#[test]
fn a_step_does_not_wait_for_an_app_that_is_always_ready() {
    for architecture in ON_ONE_THREAD {
        let limits = Limits {
            stream_window_bytes: 64,
            ..Limits::default()
        };
        let server = start_with(one_thread(architecture), limits);
        let mut client = Http2Client::connect(server.address);
        client.ask_each([(1, "/pieces"), (3, "/pieces-so-far")]);
        let so_far = String::from_utf8(client.response(3).content).unwrap();
        let so_far: usize = so_far.parse().unwrap();
        assert!(so_far < PIECES_MAX / 2, "{architecture:?}: {so_far}");
        assert!(client.response(1).content.len() >= PIECES_MAX);
    }
}

/// For its content, which comes while others of its connection wait for their turn, or for anything else.
#[test]
fn an_app_that_waits_holds_up_no_other_stream() {
    for architecture in BLOCKING {
        let server = start(one_thread(architecture));
        let mut client = Http2Client::connect(server.address);
        client.ask([1], "/app");
        client.announce(3, "/app-content");
        client.ask_each([(5, "/gate"), (7, "/app-work"), (9, "/app-content")]);
        server.handler.gate.await_waiting(1);
        client.send(3, b"content");
        client.ask([11], "/app-work");
        client.await_delivery();
        server.handler.gate.open();
        let [passed, worked] = [&b"passed"[..], b"worked"];
        let expected: [(u32, &[u8]); 5] =
            [(3, b"7"), (5, passed), (7, worked), (9, b"0"), (11, worked)];
        for (stream, content) in expected {
            assert_eq!(client.response(stream).content, content, "{architecture:?}");
        }
        server.handler.app.open();
        assert_eq!(client.response(1).content, b"passed", "{architecture:?}");
    }
}

#[test]
fn streams_of_one_connection_have_several_threads_of_a_pool() {
    let server = start(options(Architecture::ThreadPool));
    let mut client = Http2Client::connect(server.address);
    client.ask([1, 3, 5], "/gate");
    server.handler.gate.await_waiting(3);
    client.ask([7], "/nap");
    assert_eq!(client.response(7).status, 200);
    server.handler.gate.open();
    for stream in [1, 3, 5] {
        assert_eq!(client.response(stream).content, b"passed");
    }
}

/// Its requests would wait twice: first unread behind the jobs, and then for their own turn.
#[test]
fn streams_are_received_though_jobs_wait_for_the_threads_of_a_pool() {
    let server = start(one_thread(Architecture::ThreadPool));
    let mut client = Http2Client::connect(server.address);
    client.ask([1], "/hello");
    assert_eq!(client.response(1).content, b"hello");
    let depth = || server.handle.snapshot().total.queue_depth;
    let mut others = [server.connect(), server.connect()];
    others[0].ask("/gate");
    server.handler.gate.await_waiting(1);
    others[1].ask("/nap");
    eventually(|| depth() == 1);
    client.ask([3], "/hello");
    assert_eq!(client.response(3).content, b"hello");
    client.ask([5], "/nap");
    eventually(|| depth() == 2);
    server.handler.gate.open();
    assert_eq!(client.response(5).status, 200);
    for other in &mut others {
        assert_eq!(other.answer().unwrap().status, 200);
    }
}

#[test]
fn a_client_with_many_streams_keeps_no_other_out_of_a_pool() {
    let server = start(one_thread(Architecture::ThreadPool));
    let mut greedy = Http2Client::over(server.connect_from([127, 0, 0, 2]));
    greedy.ask([1], "/gate");
    greedy.ask(streams(100).skip(1), "/second-gate");
    server.handler.gate.await_waiting(1);
    let depth = || server.handle.snapshot().total.queue_depth;
    eventually(|| depth() == 99);
    let mut quiet = server.connect_from([127, 0, 0, 3]);
    quiet.ask("/nap");
    eventually(|| depth() == 100);
    server.handler.gate.open();
    assert_eq!(quiet.answer().unwrap().status, 200);
    server.handler.second_gate.open();
    for stream in streams(100) {
        assert_eq!(greedy.response(stream).status, 200);
    }
}
