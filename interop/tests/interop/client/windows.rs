//! Windows of both ends, and of streams and the connection together.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::{Builder, SendResponse};
use http::{Request, Response};

use super::ends::{Ends, get, reply, request};
use super::server::{Gate, send, serve};
use crate::app::pattern;

/// Five requests wait for the windows of their streams, or for that of the connection.
#[test]
fn content_waits_for_the_servers_windows() {
    const LEN: usize = 100_001;
    for (of_stream, of_connection) in [(1_000, 65_535), (65_535, 65_535), (1 << 20, 70_000)] {
        let mut builder = Builder::new();
        builder.initial_window_size(of_stream);
        builder.initial_connection_window_size(of_connection);
        for cut in [4_999, usize::MAX] {
            let requests = [request("POST", "/echo", &[])];
            let mut ends = Ends::new(&builder, 5, &requests, serve);
            ends.cut = cut;
            for slot in 0..5 {
                ends.request(slot, 0, pattern(LEN + slot as usize));
            }
            let mut outcomes = ends.outcomes();
            outcomes.sort_by_key(|event| format!("{event:?}"));
            let len = |slot: u32| LEN as u64 + u64::from(slot);
            let expected = [0, 1, 2, 3, 4].map(|slot| reply(slot, 200, len(slot)));
            assert_eq!(outcomes, expected, "{of_stream} {of_connection} {cut}");
            for (slot, content) in ends.seen.content.iter().enumerate() {
                assert!(*content == pattern(LEN + slot), "{of_stream} {cut}");
                let sum = format!("200 x-sum: {}", LEN + slot);
                assert_eq!(ends.seen.fields[slot].last(), Some(&sum));
            }
            ends.end();
        }
    }
}

/// MiB of a response: more than a window can have, which are 2048.
const MIB: u64 = 2_100;

async fn huge(_: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let mut stream = respond.send_response(Response::new(()), false).unwrap();
    let piece = Bytes::from(vec![0; 1 << 20]);
    for _ in 0..MIB {
        send(&mut stream, piece.clone()).await.unwrap();
    }
    stream.send_data(Bytes::new(), true).unwrap();
}

/// The client gives room back in time, of the stream and of the connection.
#[test]
fn a_response_larger_than_the_largest_window() {
    let mut builder = Builder::new();
    builder.max_send_buffer_size(4 << 20);
    let mut ends = Ends::new(&builder, 1, &[get("/")], huge);
    ends.request(0, 0, "");
    assert_eq!(ends.outcomes(), [reply(0, 200, MIB << 20)]);
    ends.end();
}

/// Takes content once the test says so, and counts it.
async fn count(
    gate: Gate,
    len: Rc<Cell<usize>>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) {
    gate.passed().await;
    let mut body = request.into_body();
    while let Some(piece) = body.data().await {
        let taken = piece.unwrap().len();
        len.set(len.get() + taken);
        body.flow_control().release_capacity(taken).unwrap();
    }
    respond.send_response(Response::new(()), true).unwrap();
}

/// Below nothing, when the server takes back what the client has used up; and up again. The server ends the
/// connection if the client sends a byte too much.
#[test]
fn the_server_changes_the_window_while_content_is_sent() {
    const LEN: usize = 500_000;
    let (gate, len) = (Gate::default(), Rc::<Cell<usize>>::default());
    let (of_handler, counted) = (gate.clone(), Rc::clone(&len));
    let requests = [request("POST", "/", &[])];
    let mut ends = Ends::new(&Builder::new(), 2, &requests, move |request, respond| {
        count(of_handler.clone(), Rc::clone(&counted), request, respond)
    });
    let change = |ends: &mut Ends, size| {
        let connection = ends.server.connection();
        connection.set_initial_window_size(size).unwrap();
    };
    ends.request(0, 0, pattern(LEN));
    ends.settle();
    change(&mut ends, 10);
    ends.request(1, 0, pattern(20)); // before it comes
    ends.settle();
    assert_eq!(len.get(), 0);
    gate.open();
    ends.until("the window is small", |_| len.get() >= 65_535 + 100);
    assert!(len.get() < 70_000, "{}", len.get());
    assert!(ends.server.ended().is_none());
    change(&mut ends, 200_000);
    let mut outcomes = ends.outcomes();
    outcomes.sort_by_key(|event| format!("{event:?}"));
    assert_eq!(outcomes, [0, 1].map(|slot| reply(slot, 200, 0)));
    assert_eq!(len.get(), LEN + 20);
    ends.end();
}
