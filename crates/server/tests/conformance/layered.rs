//! Connections whose bytes pass through a layer, as TLS will: files leave through memory, the layer
//! has a handshake and an end of its own. The session's own tests have its rules.

use std::sync::Arc;

use loadline_proto::{Http1Session, Layered, Protocol};

use crate::answers::parse_answers;
use crate::fixture::{FILES, Model, Server, eventually, pattern};
use crate::records::{END, Records, hello, plain, records};

every_model! {
    files_and_apps_over_a_layer,
    a_large_file_to_a_slow_reader,
    a_drain_over_a_layer,
}

fn server(model: Model) -> Server {
    let protocol = Protocol::Other(|config, peer, cx| {
        let http = Http1Session::new(config, peer, cx);
        Box::new(Layered::new(Records::default(), http, config, cx))
    });
    Server::start_speaking(model.options(), protocol)
}

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n")
}

fn files_and_apps_over_a_layer(model: Model) {
    let server = server(model);
    for _ in 0..3 {
        let mut client = server.connect();
        client.send(hello());
        let mut requests = String::new();
        for (name, _) in FILES {
            requests += &get(&format!("/{name}"));
        }
        requests += &get("/-/echo-blocking");
        requests += "POST /-/later/echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello";
        requests += "GET /-/echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        for piece in requests.as_bytes().chunks(97) {
            client.send(records(piece));
        }
        let (bytes, ended) = plain(&client.rest());
        assert!(ended, "the layer's end");
        let answers = parse_answers(&bytes, |_| false);
        for ((name, len), answer) in FILES.into_iter().zip(&answers) {
            assert!(answer.body == pattern(len), "{name}");
        }
        let rest: Vec<&[u8]> = answers[FILES.len()..].iter().map(|a| &a.body[..]).collect();
        assert_eq!(
            rest,
            [&b"GET /-/echo-blocking"[..], b"hello", b"GET /-/echo"]
        );
    }
}

fn a_large_file_to_a_slow_reader(model: Model) {
    let server = server(model);
    let mut client = server.connect();
    client.send(hello());
    client.send(records(get("/big.bin").repeat(3).as_bytes()));
    client.send(END);
    // What is sent fills both sockets before the first byte is read.
    eventually("some of it is in the sockets", || {
        server.control.snapshot().total.bytes_out > 100_000
    });
    let (bytes, ended) = plain(&client.rest());
    assert!(ended);
    let answers = parse_answers(&bytes, |_| false);
    assert_eq!(answers.len(), 3);
    assert!(
        answers
            .iter()
            .all(|answer| answer.body == pattern(3_000_001))
    );
}

fn a_drain_over_a_layer(model: Model) {
    let server = server(model);
    let mut waiting = server.connect();
    waiting.send(hello());
    waiting.send(records(get("/-/gate").as_bytes()));
    server.site.gate.await_waiting(1);
    server.control.drain();
    let site = Arc::clone(&server.site);
    site.gate.open();
    let (bytes, ended) = plain(&waiting.rest());
    assert!(ended);
    assert!(parse_answers(&bytes, |_| false)[0].closes());
    assert_eq!(server.end(), 0);
}
