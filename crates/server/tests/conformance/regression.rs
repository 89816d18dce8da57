//! One case for each fixed bug, named by what went wrong.

use crate::fixture::{Model, Server};

every_model! {
    pipelined_requests_were_dropped_by_a_drain,
    content_over_its_limit_was_413_or_400_by_how_it_was_cut,
}

fn pipelined_requests_were_dropped_by_a_drain(model: Model) {
    let server = Server::start(model);
    let mut client = server.connect();
    let gate = "GET /-/gate HTTP/1.1\r\nHost: h\r\n\r\n";
    client.send(gate.repeat(3));
    server.site.gate.await_waiting(1);
    server.control.drain();
    server.site.gate.open();
    let closes = [(); 3].map(|()| client.answer().closes());
    assert_eq!(closes, [false, false, true]);
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
