//! What becomes of single streams while others go on.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;

use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream};
use http::{Request, Response};
use loadline_proto::{ClientEvent, StreamFault};

use super::ends::{Ends, failed, get, reply, request, reset};
use super::server::{Gate, send, serve, sum};
use crate::app::pattern;

#[test]
fn many_requests_share_the_streams() {
    const SLOTS: usize = 40;
    let lens: Vec<usize> = (0..300).map(|n| n * n % 7_001).collect();
    let requests: Vec<_> = lens
        .iter()
        .map(|len| get(&format!("/bytes/{len}")))
        .collect();
    for cut in [61, 4_096, usize::MAX] {
        let mut ends = Ends::new(&Builder::new(), SLOTS as u32, &requests, serve);
        ends.cut = cut;
        let mut out: [Option<usize>; SLOTS] = [None; SLOTS];
        let mut waiting = 0..lens.len();
        for _ in 0..lens.len() {
            for (slot, request) in (0..).zip(&mut out) {
                if request.is_none()
                    && ends.client.has_room()
                    && let Some(next) = waiting.next()
                {
                    ends.request(slot, next, "");
                    *request = Some(next);
                }
            }
            let event = ends.next_event();
            let ClientEvent::Reply { slot, .. } = event else {
                panic!("{event:?}");
            };
            let at = slot as usize;
            let len = lens[out[at].take().expect("it is out")];
            assert_eq!(event, reply(slot, 200, len as u64));
            assert!(ends.seen.content[at] == pattern(len), "{len}");
        }
        ends.end();
    }
}

/// Interim responses, content, and fields behind it.
async fn in_many_parts(_: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let go_on = Response::builder().status(100);
    let hints = ["</a.css>", "</b.css>"].map(|link| {
        let interim = Response::builder().status(103);
        interim.header("link", link)
    });
    for interim in [go_on].into_iter().chain(hints) {
        let interim = interim.body(()).unwrap();
        respond.send_informational(interim).unwrap();
    }
    let mut stream = respond.send_response(Response::new(()), false).unwrap();
    stream.send_data("content".into(), false).unwrap();
    stream.send_trailers(sum(7)).unwrap();
}

#[test]
fn interim_responses_and_trailers_are_parts_of_one() {
    for cut in [1, 10, usize::MAX] {
        let mut ends = Ends::new(&Builder::new(), 1, &[get("/")], in_many_parts);
        ends.cut = cut;
        for _ in 0..2 {
            ends.request(0, 0, "");
            assert_eq!(ends.outcomes(), [reply(0, 200, 7)]);
            assert_eq!(ends.seen.content[0], b"content");
            let expected = [
                "100 :status: 100",
                "103 :status: 103",
                "103 link: </a.css>",
                "103 :status: 103",
                "103 link: </b.css>",
                "200 :status: 200",
                "200 x-sum: 7",
            ];
            assert_eq!(ends.seen.fields[0], expected);
        }
        ends.end();
    }
}

/// Resets a stream before its response, or within it once the test says so, or lets go of it.
async fn break_off(gate: Gate, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let path = request.uri().path().to_owned();
    match &*path {
        "/refuse" => respond.send_reset(Reason::REFUSED_STREAM),
        "/break" => {
            let mut stream = respond.send_response(Response::new(()), false).unwrap();
            let content = pattern(1_000).into();
            stream.send_data(content, false).unwrap();
            gate.passed().await;
            stream.send_reset(Reason::INTERNAL_ERROR);
        }
        "/let-go" => {}
        _ => serve(request, respond).await,
    }
}

#[test]
fn a_reset_by_the_server_is_that_of_one_stream() {
    let gate = Gate::default();
    let of_handler = gate.clone();
    let paths = ["/refuse", "/break", "/let-go", "/bytes/70000"];
    let requests = paths.map(get);
    let mut ends = Ends::new(&Builder::new(), 4, &requests, move |request, respond| {
        break_off(of_handler.clone(), request, respond)
    });
    for slot in 0..4 {
        ends.request(slot, slot as usize, "");
    }
    let mut outcomes = ends.outcomes();
    outcomes.sort_by_key(slot_of);
    let expected = [
        reset(0, Reason::REFUSED_STREAM),
        reset(2, Reason::CANCEL),
        reply(3, 200, 70_000),
    ];
    assert_eq!(outcomes, expected);
    assert!(ends.seen.content[1] == pattern(1_000));
    gate.open();
    assert_eq!(ends.outcomes(), [reset(1, Reason::INTERNAL_ERROR)]);
    for slot in 0..4 {
        ends.request(slot, 3, "");
    }
    let mut outcomes = ends.outcomes();
    outcomes.sort_by_key(slot_of);
    assert_eq!(outcomes, [0, 1, 2, 3].map(|slot| reply(slot, 200, 70_000)));
    ends.end();
}

fn slot_of(event: &ClientEvent) -> Option<u32> {
    match event {
        ClientEvent::Reply { slot, .. } | ClientEvent::Failed { slot, .. } => Some(*slot),
        _ => None,
    }
}

/// Sends content until the stream ends, and keeps the reason for that.
async fn endless(reasons: Rc<RefCell<Vec<Reason>>>, mut respond: SendResponse<Bytes>) {
    let mut stream = respond.send_response(Response::new(()), false).unwrap();
    let piece = Bytes::from(vec![b'x'; 10_000]);
    while send(&mut stream, piece.clone()).await.is_some() {}
    let reason = poll_fn(|context| stream.poll_reset(context)).await;
    reasons.borrow_mut().push(reason.unwrap());
}

/// What is on its way of a response that was given up is not that of the next one in its slot.
#[test]
fn a_request_that_is_given_up_is_reset() {
    let reasons = Rc::<RefCell<Vec<Reason>>>::default();
    let of_handler = Rc::clone(&reasons);
    let requests = ["/endless", "/bytes/1000"].map(get);
    let mut ends = Ends::new(&Builder::new(), 2, &requests, move |request, respond| {
        let reasons = Rc::clone(&of_handler);
        async move {
            match request.uri().path() == "/endless" {
                true => endless(reasons, respond).await,
                false => serve(request, respond).await,
            }
        }
    });
    ends.cut = 20_000;
    for round in 1..4 {
        ends.request(0, 0, "");
        ends.until("much has come", |it| it.seen.content[0].len() > 100_000);
        ends.client.cancel(0);
        for slot in 0..2 {
            ends.request(slot, 1, "");
        }
        let mut outcomes = ends.outcomes();
        outcomes.sort_by_key(slot_of);
        assert_eq!(outcomes, [0, 1].map(|slot| reply(slot, 200, 1_000)));
        for content in &ends.seen.content {
            assert!(*content == pattern(1_000));
        }
        assert_eq!(*reasons.borrow(), vec![Reason::CANCEL; round]);
    }
    ends.end();
}

/// Responds at once, whatever content there is.
async fn early(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    if request.uri().path() != "/early" {
        return serve(request, respond).await;
    }
    let response = Response::builder().status(413).body(()).unwrap();
    respond.send_response(response, true).unwrap();
}

/// What was sent of it has its room given back.
#[test]
fn a_response_before_the_content_ends_that() {
    const LEN: usize = 200_000;
    let requests = ["/early", "/echo"].map(|path| request("POST", path, &[]));
    let mut ends = Ends::new(&Builder::new(), 1, &requests, early);
    for _ in 0..5 {
        ends.request(0, 0, pattern(LEN));
        assert_eq!(ends.outcomes(), [reply(0, 413, 0)]);
        ends.request(0, 1, pattern(LEN));
        assert_eq!(ends.outcomes(), [reply(0, 200, LEN as u64)]);
        assert!(ends.seen.content[0] == pattern(LEN));
    }
    ends.end();
}

/// Announces a length, and keeps to it or not.
async fn announce(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let (status, len, content): (u16, u64, Option<&str>) = match request.uri().path() {
        "/head" => (200, 1_000, None),
        "/no-content" => (204, 0, None),
        "/not-modified" => (304, 1_000, None),
        "/short" => (200, 10, Some("12345")),
        "/long" => (200, 10, Some("123456789012345")),
        _ => (200, 5, Some("12345")),
    };
    let mut head = Response::builder().status(status);
    if status != 204 {
        head = head.header("content-length", len);
    }
    let head = head.body(()).unwrap();
    let mut stream = respond.send_response(head, content.is_none()).unwrap();
    if let Some(content) = content {
        let content = Bytes::copy_from_slice(content.as_bytes());
        stream.send_data(content, true).unwrap();
    }
}

#[test]
fn a_response_is_as_long_as_it_says() {
    let mut requests = vec![request("HEAD", "/head", &[])];
    let paths = ["/no-content", "/not-modified", "/short", "/long", "/right"];
    requests.extend(paths.map(get));
    let outcomes = [
        reply(0, 200, 0),
        reply(0, 204, 0),
        reply(0, 304, 0),
        failed(0, StreamFault::Short),
        failed(0, StreamFault::Long),
        reply(0, 200, 5),
    ];
    let mut ends = Ends::new(&Builder::new(), 1, &requests, announce);
    for (at, outcome) in outcomes.into_iter().enumerate() {
        ends.request(0, at, "");
        assert_eq!(ends.outcomes(), [outcome], "{:?}", requests[at]);
    }
    ends.end();
}
