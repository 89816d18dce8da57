//! One case for each fixed bug, named by what went wrong.

use std::sync::atomic::Ordering::SeqCst;

use loadline_proto::Limits;
use loadline_server::ServerOptions;

use crate::client::Client;
use crate::fixture::{Model, Server, eventually, limits};

every_model! {
    pipelined_requests_were_dropped_by_a_drain,
    content_over_its_limit_was_413_or_400_by_how_it_was_cut,
    a_task_that_was_woken_waited_for_idle_connections,
}

pub fn pipelined_requests_were_dropped_by_a_drain(model: Model) {
    let server = Server::start(model);
    let mut client = server.connect();
    let gate = "GET /-/gate HTTP/1.1\r\nHost: h\r\n\r\n";
    client.send(gate.repeat(3));
    server.site.gate.await_waiting(1);
    server.control.drain();
    server.site.gate.open();
    let closes = [(); 3].map(|()| client.answer().closes());
    assert_eq!(closes, [false, false, !client.is_http2]);
    client.end();
}

fn content_over_its_limit_was_413_or_400_by_how_it_was_cut(model: Model) {
    let server = Server::start(model);
    let mut client = server.connect();
    client.send("POST /-/echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    let chunk = format!("{:x}\r\n{}\r\n", 65_536, "x".repeat(65_536));
    client.send(chunk.repeat(16));
    client.send_in_vain("2\r\nxx\r\nGET / HTTP/1.1\r\n\r\n");
    assert_eq!(client.answer().status, 413);
    client.end();
}

/// While every thread of a pool kept a connection that waited for its client's next request.
pub fn a_task_that_was_woken_waited_for_idle_connections(model: Model) {
    if !model.is_concurrent() || model == Model::ThreadPoolWithoutGoal {
        return; // a thread has its connection to the end
    }
    const THREADS: usize = 2;
    let options = ServerOptions {
        threads: THREADS,
        threads_range: None,
        ..model.options()
    };
    let limits = Limits {
        idle_timeout_ms: u64::MAX, // none goes by itself
        ..limits()
    };
    let server = Server::start_with(options, limits);
    let mut upload = server.connect();
    upload.send("POST /-/later/collect HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    eventually("the task has begun", || {
        server.site.at_work.load(SeqCst) == 1
    });
    let mut idle: Vec<Client> = (0..THREADS).map(|_| server.connect()).collect();
    for _ in 0..3 {
        for client in &mut idle {
            assert_eq!(client.get("/-/echo", "").status, 200);
        }
    }
    upload.send("5\r\nhello\r\n0\r\n\r\n");
    assert_eq!(upload.answer().body, b"5");
    for client in &mut idle {
        assert_eq!(client.get("/-/echo", "").status, 200);
    }
}
