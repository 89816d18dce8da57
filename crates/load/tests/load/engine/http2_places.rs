//! Which connection of HTTP/2 a request gets in an open loop.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use loadline_load::Arrivals;
use loadline_proto::http2::frame::{FrameHead, HEAD_BYTES, Kind, PREFACE, flags, frame};

use crate::engine::http2::{http2, serving, settings};
use crate::engine::run::{MS, run};
use crate::stubbed;

/// The server's beginning: how many streams it takes at one time, perhaps several times, all at once.
fn begin(stream: &mut TcpStream, streams_max: &[u32]) -> Option<()> {
    let all: Vec<u8> = streams_max
        .iter()
        .flat_map(|value| settings(*value))
        .collect();
    stream.write_all(&all).ok()?;
    stream.read_exact(&mut [0; PREFACE.len()]).ok()
}

/// The stream of the next request.
fn next_request(stream: &mut TcpStream) -> Option<u32> {
    loop {
        let mut head = [0; HEAD_BYTES];
        stream.read_exact(&mut head).ok()?;
        let head = FrameHead::parse(&head);
        stream.read_exact(&mut vec![0; head.len]).ok()?;
        if head.kind == Kind::Headers {
            return Some(head.stream);
        }
    }
}

fn respond(stream: &mut TcpStream, id: u32) -> Option<()> {
    let of_both = flags::END_STREAM | flags::END_HEADERS;
    let response = frame(Kind::Headers, of_both, id, &[0x88]);
    stream.write_all(&response).ok()
}

/// All places of a connection were used before those of the next one.
#[test]
fn connections_of_an_open_loop_are_used_alike() {
    let requests: Arc<[AtomicU64; 4]> = Arc::default();
    let counts = Arc::clone(&requests);
    let address = serving(move |number, mut stream| {
        begin(&mut stream, &[100])?;
        loop {
            let id = next_request(&mut stream)?;
            counts[number].fetch_add(1, Ordering::SeqCst);
            respond(&mut stream, id)?;
        }
    });
    let plan = stubbed::open(address, 4, 1000.0, 40 * MS, Arrivals::Constant);
    let tally = run(&http2(plan, 100)).tally();
    assert_eq!((tally.good, tally.connections), (40, 4), "{tally:?}");
    let counts = requests
        .each_ref()
        .map(|count| count.load(Ordering::SeqCst));
    assert_eq!(counts, [10; 4]);
}
