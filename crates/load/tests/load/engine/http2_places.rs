//! Which connection of HTTP/2 a request gets in an open loop, and who waits for room on it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

use loadline_load::{Arrivals, Loop, Overflow, Plan};
use loadline_proto::http2::frame::{FrameHead, HEAD_BYTES, Kind, PREFACE, flags, frame};
use loadline_record::ErrorKind;

use crate::engine::http2::{http2, serving, settings};
use crate::engine::run::{MS, SECOND, closed, phase, run};
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

/// So many requests that are all due at the start.
fn due_at_once(plan: Plan, requests: u64) -> Plan {
    Plan {
        load: Loop::Timed {
            due_ns: vec![0; requests as usize].into(),
            overflow: Overflow::Queue,
        },
        requests_max: Some(requests),
        ..plan
    }
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

/// Requests beyond those that a connection carries waited for it to be opened again, one connection after
/// the other, while another one was free.
#[test]
fn no_request_waits_for_a_connection_to_be_opened_again_while_another_is_free() {
    for per_connection in [1_u32, 3] {
        let both = Barrier::new(2);
        let address = serving(move |_, mut stream| {
            begin(&mut stream, &[100])?;
            let ids: Option<Vec<u32>> = (0..per_connection)
                .map(|_| next_request(&mut stream))
                .collect();
            both.wait(); // two connections have all that they carry
            for id in ids? {
                respond(&mut stream, id)?;
            }
            stream.read_to_end(&mut Vec::new()).ok().map(|_| ())
        });
        let requests = 2 * 2 * u64::from(per_connection);
        let mut plan = due_at_once(http2(closed(address, 2, 0), 100), requests);
        plan.requests_per_connection = Some(per_connection);
        let outcome = run(&plan);
        let tally = outcome.tally();
        assert_eq!((tally.good, tally.connections), (requests, 4), "{tally:?}");
        let in_flight_max = 2 * u64::from(per_connection);
        assert_eq!(outcome.report.in_flight_max, in_flight_max);
    }
}

/// Requests that a connection had no room for any more waited for it while another one was free.
#[test]
fn a_server_that_takes_fewer_streams_later_gets_fewer_requests() {
    const REQUESTS: u64 = 6;
    let (others, all_others) = (AtomicU64::new(0), Barrier::new(2));
    let address = serving(move |number, mut stream| {
        begin(&mut stream, &[3, 1])?;
        if number == 0 {
            let id = next_request(&mut stream)?;
            all_others.wait();
            respond(&mut stream, id)?;
            return stream.read_to_end(&mut Vec::new()).ok().map(|_| ());
        }
        loop {
            let id = next_request(&mut stream)?;
            respond(&mut stream, id)?;
            if others.fetch_add(1, Ordering::SeqCst) + 1 == REQUESTS - 1 {
                all_others.wait();
            }
        }
    });
    let outcome = run(&due_at_once(http2(closed(address, 2, 0), 3), REQUESTS));
    let tally = outcome.tally();
    let counts = (tally.good, tally.errors_total());
    assert_eq!(counts, (REQUESTS, 0), "{tally:?}");
    assert_eq!(outcome.report.in_flight_max, 2);
}

/// Takes three streams at one time until there are as many, and one from then on. It only shows signs of
/// life, so that requests time out and the connection does not.
fn serve_nothing(mut stream: TcpStream) -> Option<()> {
    begin(&mut stream, &[3])?;
    for seen in 1.. {
        next_request(&mut stream)?;
        let sign = frame(Kind::Ping, 0, 0, &[0; 8]);
        stream.write_all(&sign).ok()?;
        if seen == 3 {
            stream.write_all(&settings(1)).ok()?;
        }
    }
    None
}

#[test]
fn a_timeout_makes_room_for_a_client_that_waits() {
    let address = serving(|_, stream| serve_nothing(stream));
    let plan = Plan {
        timeout_ns: 400 * MS,
        phases: vec![phase(0, 15 * SECOND)],
        ..http2(closed(address, 1, 6), 3)
    };
    let tally = run(&plan).tally();
    let timeouts = tally.errors_of(ErrorKind::Timeout);
    assert_eq!((timeouts, tally.unfinished), (6, 0), "{tally:?}");
}

/// Processes no request at all.
fn serve_goodbye(mut stream: TcpStream) -> Option<()> {
    begin(&mut stream, &[3])?;
    next_request(&mut stream)?;
    let goodbye = frame(Kind::GoAway, 0, 0, &[0; 8]);
    stream.write_all(&goodbye).ok()?;
    stream.read_to_end(&mut Vec::new()).ok().map(|_| ())
}

/// Requests are not sent to it again and again.
#[test]
fn a_server_that_only_says_goodbye_fails_requests() {
    let address = serving(|_, stream| serve_goodbye(stream));
    let tally = run(&http2(closed(address, 1, 3), 1)).tally();
    let failed = tally.errors_of(ErrorKind::ClosedEarly);
    assert_eq!((failed, tally.errors_total()), (3, 3), "{tally:?}");
    assert_eq!(tally.connections, 3, "{tally:?}");
}
