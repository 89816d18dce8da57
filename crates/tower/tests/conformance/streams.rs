//! Content that streams in either direction, and backpressure.

use std::io::Write as _;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::app::pattern;
use crate::fixture::{Running, eventually};
use crate::model::Model;

every_model! {
    events_arrive_as_they_are_written,
    an_echo_of_more_than_all_buffers,
    an_upload_is_read_as_the_app_reads_it,
    a_reader_that_stops_stops_the_app,
}

pub fn events_arrive_as_they_are_written(model: Model) {
    let server = Running::start_notifying(model);
    let mut client = server.connect();
    client.send("GET /events HTTP/1.1\r\nHost: h\r\n\r\n");
    for n in 0..20 {
        server.shared.events.send(n.to_string()).unwrap();
        client.await_bytes(format!("data: {n}\n\n\r\n").as_bytes());
    }
    drop(client);
    // Nothing is written to it any more, and yet it is seen that it has gone.
    server.await_hanging(0);
}

pub fn an_echo_of_more_than_all_buffers(model: Model) {
    const LEN: usize = 8_000_000;
    let server = Running::start(model);
    let content = pattern(LEN);
    let mut client = server.connect();
    client.send("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    let mut chunked = Vec::new();
    for piece in content.chunks(99_999) {
        write!(chunked, "{:x}\r\n", piece.len()).unwrap();
        chunked.extend_from_slice(piece);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    assert!(client.send_much(chunked).answer().body == content);
}

pub fn an_upload_is_read_as_the_app_reads_it(model: Model) {
    const LEN: usize = 3_000_000;
    let server = Running::start(model);
    let mut client = server.connect();
    client.send(format!(
        "POST /swallow HTTP/1.1\r\nHost: h\r\nContent-Length: {LEN}\r\n\r\n"
    ));
    let mut sent = 0;
    for piece in pattern(LEN).chunks(500_000) {
        client.send(piece);
        sent += piece.len() as u64;
        eventually("it is read", || {
            client.take_in(); // with room for more
            server.shared.read.load(SeqCst) == sent
        });
    }
    assert_eq!(client.answer().body, LEN.to_string().as_bytes());
    assert_eq!(
        client.get("/hello", "").body,
        b"hello",
        "and the connection goes on"
    );
}

fn a_reader_that_stops_stops_the_app(model: Model) {
    // The app reads only what it can write: what it has read says how much it was let to write.
    let server = Running::start(model);
    let mut client = server.connect();
    client
        .stream
        .set_write_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    client.send("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    let mut piece = b"10000\r\n".to_vec();
    piece.extend([b'x'; 65_536]);
    piece.extend(b"\r\n");
    let mut taken = 0;
    while let Ok(count @ 1..) = client.stream.write(&piece) {
        taken += count;
        if count < piece.len() {
            break; // the framing does not matter: it is not read any more
        }
    }
    // Socket buffers of both directions, some of them grown to 6 MiB; without backpressure it goes
    // on for ever.
    assert!(taken < 64 << 20, "{taken} bytes were taken");
}
