//! Field blocks: tables of every size, and blocks of several frames.

use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream};
use http::{Request, Response};
use loadline_proto::{ClientEvent, Http2Fields};

use super::ends::{Ends, get, reply, request};

/// Says what the request says.
async fn mirror(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let mut response = Response::builder().header("x-path", request.uri().path());
    for (name, value) in request.headers() {
        response = response.header(format!("x-{name}"), value);
    }
    let response = response.body(()).unwrap();
    respond.send_response(response, true).unwrap();
}

/// What the mirror says of a request.
fn mirrored(request: &Http2Fields) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut lines = vec![
        "200 :status: 200".to_owned(),
        format!("200 x-path: {}", text(&request.path)),
    ];
    let fields = request.fields.iter();
    lines.extend(fields.map(|(name, value)| format!("200 x-{}: {}", text(name), text(value))));
    lines.sort();
    lines
}

#[test]
fn the_table_is_as_large_as_the_server_says() {
    let common = ("accept-language", "en");
    let requests = [
        request("GET", "/a", &[common]),
        request("GET", "/b", &[common, ("authorization", "Basic Zm9v")]),
        request("GET", "/c", &[common, ("x-empty", ""), ("x-number", "3")]),
    ];
    for size in [0, 31, 100, 4_096, 65_536] {
        let mut builder = Builder::new();
        builder.header_table_size(size);
        for is_settled in [false, true] {
            let mut ends = Ends::new(&builder, 3, &requests, mirror);
            if is_settled {
                ends.settle();
            }
            for round in 0..3 {
                for slot in 0..3 {
                    let which = (slot as usize + round) % 3;
                    ends.request(slot, which, "");
                }
                let replies = [0, 1, 2].map(|slot| reply(slot, 200, 0));
                assert_eq!(ends.outcomes(), replies, "{size}");
                for (slot, seen) in ends.seen.fields.iter_mut().enumerate() {
                    seen.sort();
                    let asked = &requests[(slot + round) % 3];
                    assert_eq!(*seen, mirrored(asked), "{size}");
                }
            }
            ends.end();
        }
    }
}

/// A character that Huffman's code makes neither shorter nor longer.
fn value(len: usize) -> String {
    "X".repeat(len)
}

/// More than a frame holds, in both directions.
#[test]
fn blocks_of_several_frames() {
    let mut builder = Builder::new();
    builder.max_header_list_size(1 << 20);
    let long = value(24_000);
    let requests = [request("GET", "/", &[("x-long", &long)]), get("/short")];
    for cut in [1_000, usize::MAX] {
        let mut ends = Ends::new(&builder, 2, &requests, mirror);
        ends.cut = cut;
        for _ in 0..2 {
            for slot in 0..2 {
                ends.request(slot, slot as usize, "");
            }
            let replies = [0, 1].map(|slot| reply(slot, 200, 0));
            assert_eq!(ends.outcomes(), replies);
            for (seen, asked) in ends.seen.fields.iter_mut().zip(&requests) {
                seen.sort();
                assert_eq!(*seen, mirrored(asked));
            }
        }
        ends.end();
    }
}

/// Fields of as many bytes as the request says, all of them in one block.
async fn as_long(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let len = request.uri().path()[1..].parse().unwrap();
    let response = Response::builder().header("x-long", value(len));
    let response = response.body(()).unwrap();
    respond.send_response(response, true).unwrap();
}

/// A client of measurements has a bound, too; and says so.
#[test]
fn a_block_beyond_the_bound_ends_the_connection() {
    let requests = ["/32000", "/33000"].map(get);
    let mut ends = Ends::new(&Builder::new(), 1, &requests, as_long);
    ends.request(0, 0, "");
    assert_eq!(ends.outcomes(), [reply(0, 200, 0)]);
    ends.request(0, 1, "");
    let outcomes = ends.outcomes();
    assert_eq!(outcomes, [ClientEvent::Fault("more than a client takes")]);
    let Some(Err(error)) = ends.server.ended() else {
        panic!("{:?}", ends.server.ended());
    };
    assert!(error.is_remote() && error.is_go_away(), "{error:?}");
    assert_eq!(error.reason(), Some(Reason::ENHANCE_YOUR_CALM));
}
