//! What concerns all streams of a connection: the server's settings, PING, and GOAWAY from either end.

use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{Ping, Reason};
use http::Response;
use loadline_proto::{ClientEvent, StreamFault};

use super::ends::{Ends, failed, get, reply, reset};
use super::server::Gate;

/// Responds without content once the test says so.
async fn respond_behind(gate: Gate, mut respond: SendResponse<Bytes>) {
    gate.passed().await;
    let _ = respond.send_response(Response::new(()), true); // unless the connection is gone
}

/// A connection whose responses wait for the test.
fn gated(builder: &Builder, slots: u32) -> (Ends, Gate) {
    let gate = Gate::default();
    let of_handler = gate.clone();
    let ends = Ends::new(builder, slots, &[get("/")], move |_, respond| {
        respond_behind(of_handler.clone(), respond)
    });
    (ends, gate)
}

/// The client assumes 100 until the server says fewer; what was too much can be sent again.
#[test]
fn requests_beyond_the_servers_settings_are_refused() {
    let mut builder = Builder::new();
    builder.max_concurrent_streams(3);
    let (mut ends, gate) = gated(&builder, 8);
    for slot in 0..8 {
        ends.request(slot, 0, "");
    }
    let refused = [3, 4, 5, 6, 7].map(|slot| reset(slot, Reason::REFUSED_STREAM));
    assert_eq!(ends.outcomes(), refused);
    let client = &ends.client;
    assert_eq!((client.streams_max(), client.open_count()), (3, 3));
    assert!(!client.has_room() && !client.is_spent());
    gate.open();
    assert_eq!(ends.outcomes(), [0, 1, 2].map(|slot| reply(slot, 200, 0)));
    for slot in 3..8 {
        ends.request(slot, 0, "");
        assert_eq!(ends.outcomes(), [reply(slot, 200, 0)]);
    }
    ends.end();
}

#[test]
fn the_server_pings() {
    let (mut ends, _) = gated(&Builder::new(), 1);
    ends.settle();
    let mut pings = ends.server.connection().ping_pong().unwrap();
    for _ in 0..3 {
        pings.send_ping(Ping::opaque()).unwrap();
        ends.settle();
        let pong = pings.poll_pong(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(pong, Poll::Ready(Ok(_))), "{pong:?}");
    }
    ends.end();
}

/// The server says first that it will go, and how far it has come once it knows that the client has seen
/// that: what was on its way is still answered.
#[test]
fn a_drain_loses_nothing() {
    let (mut ends, gate) = gated(&Builder::new(), 4);
    for slot in 0..3 {
        ends.request(slot, 0, "");
    }
    assert!(ends.outcomes().is_empty());
    ends.server.connection().graceful_shutdown();
    ends.request(3, 0, ""); // before GOAWAY comes
    let going_away = [ClientEvent::GoingAway; 2];
    assert_eq!(ends.outcomes(), going_away);
    assert!(!ends.client.has_room() && ends.client.is_spent());
    assert_eq!(ends.client.open_count(), 4);
    assert!(!ends.is_closed());
    gate.open();
    let replies = [0, 1, 2, 3].map(|slot| reply(slot, 200, 0));
    assert_eq!(ends.outcomes(), replies);
    assert!(ends.is_closed());
    assert!(matches!(ends.server.ended(), Some(Ok(()))));
}

/// What the server has not seen can be sent again; the rest is over with the connection.
#[test]
fn an_abrupt_end_says_what_was_not_processed() {
    let (mut ends, _) = gated(&Builder::new(), 4);
    for slot in 0..2 {
        ends.request(slot, 0, "");
    }
    assert!(ends.outcomes().is_empty());
    let connection = ends.server.connection();
    connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
    for slot in 2..4 {
        ends.request(slot, 0, "");
    }
    let unprocessed = |slot| failed(slot, StreamFault::Unprocessed);
    let expected = [ClientEvent::GoingAway, unprocessed(2), unprocessed(3)];
    assert_eq!(ends.outcomes(), expected);
    assert!(ends.client.is_spent());
    assert_eq!(ends.client.open_count(), 2);
    assert!(ends.is_closed());
}
