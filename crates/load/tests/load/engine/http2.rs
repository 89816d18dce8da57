//! HTTP/2: what the client counts is what the stub counts, whatever the number of streams, and each kind
//! of error is counted as what it is.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use loadline_load::{Arrivals, Control, Http2Plan, Loop, Message, Overflow, Plan, Share, engine};
use loadline_proto::Method;
use loadline_proto::http2::frame::{FrameHead, HEAD_BYTES, Kind, PREFACE, Setting, flags, frame};
use loadline_record::{ErrorKind, Tally};
use loadline_stub::{Every, Fault, Latency, Malformed, Report, Stub, StubOptions};
use loadline_sys::clock::monotonic_ns;
use sha2::{Digest, Sha256};

use crate::engine::run::{MS, SECOND, closed, get, phase, run, run_with};
use crate::engine::server::Server;
use crate::stubbed;

/// The same over HTTP/2 in the clear.
pub(super) fn http2(plan: Plan, streams: u32) -> Plan {
    Plan {
        http2: Some(Http2Plan::new(&plan.mix, streams, Vec::new())),
        ..plan
    }
}

fn run_stub(plan: Plan, stub: Stub, engine_threads: u32) -> (Tally, Report) {
    let outcome = stubbed::run_from(plan, stub, engine_threads, |ready_ns| ready_ns);
    (outcome.record.everything.clone(), outcome.report)
}

#[test]
fn all_streams_carry_all_requests() {
    for (connections, streams) in [(1, 1), (6, 1), (1, 8), (6, 8), (2, 100)] {
        for body_bytes in [0, 13, 100_000] {
            let requests = if body_bytes > 1000 { 200 } else { 1000 };
            let body = vec![b'x'; body_bytes];
            let stub = stubbed::stub(StubOptions {
                body: body.clone(),
                ..StubOptions::default()
            });
            let mut plan = http2(closed(stub.address(), connections, requests), streams);
            plan.mix.expectations[0].length = Some(body_bytes as u64);
            plan.mix.expectations[0].sha256 = Some(Sha256::digest(&body).into());
            plan.groups = vec!["clients".to_owned()];
            let threads = connections.min(2);
            let outcome = stubbed::run_from(plan, stub, threads, |ready_ns| ready_ns);
            let (tally, counts) = (&outcome.record.everything, &outcome.report.counts);
            let message = format!("{connections} x {streams}: {tally:?} {counts:?}");
            assert_eq!(
                (tally.good, tally.errors_total()),
                (requests, 0),
                "{message}"
            );
            assert_eq!(
                (tally.sent, tally.offered),
                (requests, requests),
                "{message}"
            );
            assert_eq!(
                (counts.requests, counts.answers),
                (requests, requests),
                "{message}"
            );
            let both = (tally.connections, counts.connections);
            assert_eq!(
                both,
                (u64::from(connections), u64::from(connections)),
                "{message}"
            );
            assert_eq!(tally.content_bytes, requests * body_bytes as u64);
            let results = outcome.results();
            assert_eq!(results.latency.count(), requests);
            assert_eq!(results.service.count(), requests);
            let run = &outcome.record.run;
            assert_eq!(
                (run.http.as_deref(), run.streams),
                (Some("2"), Some(streams))
            );
        }
    }
}

/// As many requests are out as there are streams: with each taking 20 ms, twenty at a time.
#[test]
fn streams_are_in_flight_together() {
    let stub = stubbed::stub(StubOptions {
        latency: Latency::Constant { ns: 20 * MS },
        ..StubOptions::default()
    });
    let plan = http2(closed(stub.address(), 2, 200), 10);
    let outcome = stubbed::run_from(plan, stub, 1, |ready_ns| ready_ns);
    let mut times = outcome.report.times;
    times.sort_unstable_by_key(|times| times.number);
    let out_together = |at: usize| {
        let now_ns = times[at].arrived_ns;
        let is_out = |one: &&loadline_stub::Times| one.arrived_ns <= now_ns && one.sent_ns > now_ns;
        times.iter().filter(is_out).count()
    };
    let most = (0..times.len()).map(out_together).max().unwrap();
    assert_eq!((times.len(), most), (200, 20));
}

#[test]
fn connections_carry_as_many_requests_as_they_may() {
    let requests = 300;
    for (per_connection, connections, streams) in [(1, 6, 1), (10, 6, 1), (10, 2, 4)] {
        let stub = stubbed::stub(StubOptions::default());
        let mut plan = http2(closed(stub.address(), connections, requests), streams);
        plan.requests_per_connection = Some(per_connection);
        let (tally, report) = run_stub(plan, stub, 1);
        let message = format!("{per_connection}: {tally:?} {:?}", report.counts);
        assert_eq!(
            (tally.good, tally.errors_total()),
            (requests, 0),
            "{message}"
        );
        assert_eq!(report.counts.requests, requests, "{message}");
        let least = requests / u64::from(per_connection);
        let opened = least..=least + u64::from(connections);
        assert!(opened.contains(&tally.connections), "{message}");
    }
}

#[test]
fn content_of_requests_waits_for_room() {
    let requests = 40;
    let body = vec![b'u'; 200_000];
    for streams in [1, 8] {
        let stub = stubbed::stub(StubOptions::default());
        let mut plan = closed(stub.address(), 2, requests);
        let head = format!(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        plan.mix.requests[0].keep = [head.as_bytes(), &body].concat().into();
        plan.mix.requests[0].method = Method::Post;
        let (tally, report) = run_stub(http2(plan, streams), stub, 1);
        assert_eq!(
            (tally.good, tally.errors_total()),
            (requests, 0),
            "{tally:?}"
        );
        assert_eq!(report.counts.requests, requests);
        assert!(tally.bytes_sent > requests * body.len() as u64, "{tally:?}");
    }
}

#[test]
fn an_open_loop_shares_connections() {
    let requests = 300;
    for (connections, streams) in [(1, 100), (6, 2)] {
        let stub = stubbed::stub(StubOptions {
            latency: Latency::Constant { ns: 2 * MS },
            ..StubOptions::default()
        });
        let duration_ns = requests * SECOND / 3000;
        let evenly = Arrivals::Constant;
        let plan = stubbed::open(stub.address(), connections, 3000.0, duration_ns, evenly);
        let (tally, report) = run_stub(http2(plan, streams), stub, 1);
        assert_eq!(
            (tally.offered, tally.sent, tally.good),
            (requests, requests, requests)
        );
        assert_eq!(tally.errors_total(), 0);
        assert_eq!(report.counts.requests, requests);
        assert_eq!(report.counts.connections, u64::from(connections));
    }
}

const REQUESTS: u64 = 300;
const EVERY: u64 = 7;
const HITS: u64 = REQUESTS / EVERY;

/// What is wrong with one response is counted as what it is, and nothing else.
#[test]
fn faults_of_a_stream_are_those_of_one_request() {
    for (fault, kind, is_complete) in [
        (Fault::Status(302), ErrorKind::OtherStatus, true),
        (Fault::Status(404), ErrorKind::Status4xx, true),
        (Fault::Status(503), ErrorKind::Status5xx, true),
        (Fault::Content, ErrorKind::WrongContent, true),
        (Fault::Longer { bytes: 1 }, ErrorKind::LongBody, true),
        (Fault::Shorter { bytes: 1 }, ErrorKind::ShortBody, true),
        (Fault::Excess { bytes: 1 }, ErrorKind::LongBody, false),
        (Fault::CutBody, ErrorKind::ShortBody, false),
        (Fault::Reset, ErrorKind::StreamReset, false),
        (
            Fault::Malformed(Malformed::Status),
            ErrorKind::Malformed,
            false,
        ),
    ] {
        for is_open in [false, true] {
            let options = StubOptions {
                faults: vec![Every {
                    every: EVERY,
                    fault,
                }],
                ..StubOptions::default()
            };
            let body = options.body.clone();
            let stub = stubbed::stub(options);
            let mut plan = match is_open {
                false => closed(stub.address(), 3, REQUESTS),
                true => {
                    let duration_ns = REQUESTS * SECOND / 3000;
                    stubbed::open(stub.address(), 3, 3000.0, duration_ns, Arrivals::Constant)
                }
            };
            plan.mix.expectations[0].length = Some(body.len() as u64);
            plan.mix.expectations[0].sha256 = Some(Sha256::digest(&body).into());
            let (tally, report) = run_stub(http2(plan, 4), stub, 1);
            let message = format!("{fault:?} {is_open}: {tally:?} {:?}", report.counts);
            assert_eq!(report.counts.requests, REQUESTS, "{message}");
            assert_eq!(tally.errors_of(kind), HITS, "{message}");
            assert_eq!(tally.errors_total(), HITS, "{message}");
            assert_eq!(tally.good, REQUESTS - HITS, "{message}");
            let incomplete = if is_complete { 0 } else { HITS };
            assert_eq!(tally.completed, REQUESTS - incomplete, "{message}");
            assert_eq!(
                (tally.connections, report.counts.connections),
                (3, 3),
                "{message}"
            );
        }
    }
}

/// A connection that the server closes takes with it what is out, and is opened again.
#[test]
fn a_closed_connection_loses_what_is_out() {
    for streams in [1, 8] {
        let stub = stubbed::stub(StubOptions {
            faults: vec![Every {
                every: 50,
                fault: Fault::Close,
            }],
            ..StubOptions::default()
        });
        let plan = http2(closed(stub.address(), 2, 1000), streams);
        let (tally, report) = run_stub(plan, stub, 1);
        let message = format!("{tally:?} {:?}", report.counts);
        let lost = tally.errors_of(ErrorKind::ClosedEarly) + tally.errors_of(ErrorKind::Reset);
        assert_eq!(tally.errors_total(), lost, "{message}");
        assert_eq!(tally.good + lost, 1000, "{message}");
        assert!(lost >= report.counts.faults[0], "{message}");
        assert!(tally.connections > 2 && tally.connections <= report.counts.connections);
    }
}

#[test]
fn a_response_that_never_comes_is_given_up_alone() {
    let stub = stubbed::stub(StubOptions {
        faults: vec![Every {
            every: 20,
            fault: Fault::Never,
        }],
        ..StubOptions::default()
    });
    let mut plan = http2(closed(stub.address(), 1, 40), 4);
    plan.timeout_ns = 1000 * MS;
    let (tally, report) = run_stub(plan, stub, 1);
    assert_eq!(tally.errors_of(ErrorKind::Timeout), 2, "{tally:?}");
    assert_eq!(
        (tally.completed, tally.errors_total()),
        (38, 2),
        "{tally:?}"
    );
    assert_eq!(report.counts.requests, 40);
}

#[test]
fn a_server_of_http_1_is_refused_with_a_reason() {
    let server = Server::answering("hello");
    for requests_per_connection in [None, Some(1)] {
        let mut plan = http2(closed(server.address, 2, 10), 1);
        plan.requests_per_connection = requests_per_connection;
        let control = Control::new();
        control.start_at(monotonic_ns());
        let error = engine::run(&plan, Share::WHOLE, &control, &mut |_| {}).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("it does not speak HTTP/2 in the clear"),
            "{text}"
        );
        assert!(text.contains("right would be"), "{text}");
    }
}

#[test]
fn a_server_that_is_not_there_is_counted() {
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let mut plan = http2(closed(address, 2, 0), 3);
    plan.requests_max = None;
    plan.phases = vec![phase(0, 100 * MS)];
    let tally = run(&plan).tally();
    assert_eq!(tally.errors_of(ErrorKind::Refused), tally.errors_total());
    // Before the start, and at 0, 10, 30 and 70 ms.
    assert!(
        (2 + 6..=2 + 6 * 4).contains(&tally.errors_total()),
        "{tally:?}"
    );
}

#[test]
fn a_plan_whose_blocks_are_others_is_refused() {
    let mut plan = http2(closed(([127, 0, 0, 1], 1).into(), 1, 1), 1);
    plan.mix.requests.push(get("/more"));
    let refused = engine::run(&plan, Share::WHOLE, &Control::new(), &mut |_| {});
    assert_eq!(
        refused.unwrap_err().kind(),
        std::io::ErrorKind::InvalidInput
    );
}

/// A server's settings: how many streams it takes at one time.
pub(super) fn settings(streams_max: u32) -> Vec<u8> {
    let mut payload = Vec::new();
    Setting {
        id: Setting::MAX_CONCURRENT_STREAMS,
        value: streams_max,
    }
    .write(&mut payload);
    frame(Kind::Settings, 0, 0, &payload)
}

/// Takes two streams at one time, answers them once both are there, and says goodbye with every tenth
/// request: it has not processed what comes behind that.
fn serve_two_at_a_time(mut stream: TcpStream, out_most: &AtomicU64) -> Option<()> {
    stream.write_all(&settings(2)).ok()?;
    stream.read_exact(&mut [0; PREFACE.len()]).ok()?;
    let (mut out, mut seen) = (Vec::new(), 0);
    loop {
        let mut head = [0; HEAD_BYTES];
        stream.read_exact(&mut head).ok()?;
        let head = FrameHead::parse(&head);
        let mut payload = vec![0; head.len];
        stream.read_exact(&mut payload).ok()?;
        if head.kind != Kind::Headers {
            continue;
        }
        out.push(head.stream);
        seen += 1;
        out_most.fetch_max(out.len() as u64, Ordering::SeqCst);
        if out.len() < 2 {
            continue;
        }
        // What lies behind two is more than two.
        stream.set_nonblocking(true).ok()?;
        let mut third = [0; HEAD_BYTES];
        let has_third = matches!(stream.peek(&mut third), Ok(HEAD_BYTES));
        if has_third && FrameHead::parse(&third).kind == Kind::Headers {
            out_most.fetch_max(3, Ordering::SeqCst);
        }
        stream.set_nonblocking(false).ok()?;
        let is_last = seen >= 10;
        for stream_id in std::mem::take(&mut out) {
            let of_both = flags::END_STREAM | flags::END_HEADERS;
            stream
                .write_all(&frame(Kind::Headers, of_both, stream_id, &[0x88]))
                .ok()?;
            if is_last {
                let mut goodbye = stream_id.to_be_bytes().to_vec();
                goodbye.extend_from_slice(&[0; 4]);
                stream
                    .write_all(&frame(Kind::GoAway, 0, 0, &goodbye))
                    .ok()?;
                return stream.read_to_end(&mut Vec::new()).ok().map(|_| ());
            }
        }
    }
}

/// A server that does this with each connection, which is given with its number.
pub(super) fn serving(
    serve: impl Fn(usize, TcpStream) -> Option<()> + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    // Ends with the test.
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || serve(number, stream));
        }
    });
    address
}

fn two_at_a_time() -> (SocketAddr, Arc<AtomicU64>) {
    let out_most = Arc::new(AtomicU64::new(0));
    let most = Arc::clone(&out_most);
    let address = serving(move |_, stream| serve_two_at_a_time(stream, &most));
    (address, out_most)
}

#[test]
fn a_server_says_how_many_streams_it_takes_and_when_it_has_enough() {
    let (address, out_most) = two_at_a_time();
    let plan = http2(closed(address, 1, 96), 5);
    let outcome = run(&plan);
    let tally = outcome.tally();
    assert_eq!(out_most.load(Ordering::SeqCst), 2);
    assert_eq!(outcome.report.in_flight_max, 2);
    // Of ten requests of a connection, the last is not processed, and sent again. It was an error.
    assert_eq!((tally.good, tally.errors_total()), (96, 0), "{tally:?}");
    assert_eq!((tally.sent, tally.retries), (96, 0), "{tally:?}");
    assert_eq!(tally.connections, 11, "{tally:?}");
}

/// Says how many streams it takes at one time, perhaps anew. A first connection is answered; another one
/// only shows signs of life, so that its requests time out and it does not.
fn serve_first(mut stream: TcpStream, answers: bool, streams_max: &[u32]) -> Option<()> {
    stream.read_exact(&mut [0; PREFACE.len()]).ok()?;
    for value in streams_max {
        stream.write_all(&settings(*value)).ok()?;
    }
    loop {
        let mut head = [0; HEAD_BYTES];
        stream.read_exact(&mut head).ok()?;
        let head = FrameHead::parse(&head);
        stream.read_exact(&mut vec![0; head.len]).ok()?;
        let of_both = flags::END_STREAM | flags::END_HEADERS;
        let response = match head.kind {
            Kind::Headers if answers => frame(Kind::Headers, of_both, head.stream, &[0x88]),
            Kind::Headers => frame(Kind::Ping, 0, 0, &[0; 8]),
            _ => continue,
        };
        stream.write_all(&response).ok()?;
    }
}

#[test]
fn a_timeout_makes_room_for_a_request_that_waits() {
    // The second connection takes one request at one time: the next ones wait for it.
    let address = serving(|number, stream| match number {
        0 => serve_first(stream, true, &[3]),
        _ => serve_first(stream, false, &[3, 1]),
    });
    let plan = stubbed::open(address, 1, 100.0, 60 * MS, Arrivals::Constant);
    let plan = Plan {
        requests_per_connection: Some(3),
        timeout_ns: 250 * MS,
        phases: vec![phase(0, 5 * SECOND)],
        ..http2(plan, 3)
    };
    let tally = run(&plan).tally();
    let counts = (tally.good, tally.errors_of(ErrorKind::Timeout));
    assert_eq!((counts, tally.unfinished), ((3, 3), 0), "{tally:?}");
}

#[test]
fn a_connection_gets_no_more_requests_than_the_one_before_it_had_streams() {
    const REQUESTS: u64 = 200;
    let address = serving(|number, stream| serve_first(stream, number == 0, &[2]));
    let duration_ns = REQUESTS * SECOND / 1000;
    let mut plan = stubbed::open(address, 1, 1000.0, duration_ns, Arrivals::Constant);
    if let Loop::Open { overflow, .. } = &mut plan.load {
        *overflow = Overflow::Drop;
    }
    let plan = Plan {
        requests_per_connection: Some(2),
        requests_max: None,
        phases: vec![phase(0, SECOND), phase(SECOND, 3600 * SECOND)],
        ..http2(plan, 20)
    };
    let outcome = run_with(&plan, &Control::new(), |message, control| {
        if matches!(message, Message::Interval(_)) {
            control.stop();
        }
    });
    let tally = outcome.tally();
    assert!(tally.unfinished <= 2, "{tally:?}");
    let others = tally.good + tally.errors_of(ErrorKind::Dropped);
    assert_eq!(others + tally.unfinished, REQUESTS, "{tally:?}");
}

/// Takes one stream at one time, with the first request three, and answers once there are three.
fn serve_three_at_last(mut stream: TcpStream) -> Option<()> {
    stream.write_all(&settings(1)).ok()?;
    stream.read_exact(&mut [0; PREFACE.len()]).ok()?;
    let mut out = Vec::new();
    while out.len() < 3 {
        let mut head = [0; HEAD_BYTES];
        stream.read_exact(&mut head).ok()?;
        let head = FrameHead::parse(&head);
        stream.read_exact(&mut vec![0; head.len]).ok()?;
        if head.kind != Kind::Headers {
            continue;
        }
        out.push(head.stream);
        if out.len() == 1 {
            stream.write_all(&settings(3)).ok()?;
        }
    }
    let of_both = flags::END_STREAM | flags::END_HEADERS;
    for id in out {
        let response = frame(Kind::Headers, of_both, id, &[0x88]);
        stream.write_all(&response).ok()?;
    }
    stream.read_to_end(&mut Vec::new()).ok().map(|_| ())
}

/// Only the first settings counted: clients beyond their bound never sent.
#[test]
fn a_server_that_takes_more_streams_later_gets_more_requests() {
    let address = serving(|_, stream| serve_three_at_last(stream));
    let mut plan = http2(closed(address, 1, 3), 3);
    plan.load = Loop::Timed {
        due_ns: [0; 3].into(),
        overflow: Overflow::Queue,
    };
    let tally = run(&plan).tally();
    assert_eq!((tally.good, tally.errors_total()), (3, 0), "{tally:?}");
}

/// Answers a first request and, with it, two that have not come.
fn answer_ahead(mut stream: TcpStream) -> Option<()> {
    stream.write_all(&frame(Kind::Settings, 0, 0, &[])).ok()?;
    stream.read_exact(&mut [0; PREFACE.len()]).ok()?;
    loop {
        let mut head = [0; HEAD_BYTES];
        stream.read_exact(&mut head).ok()?;
        let head = FrameHead::parse(&head);
        stream.read_exact(&mut vec![0; head.len]).ok()?;
        if head.kind == Kind::Headers {
            break;
        }
    }
    let of_both = flags::END_STREAM | flags::END_HEADERS;
    let responses = [1, 3, 5].map(|id| frame(Kind::Headers, of_both, id, &[0x88]));
    stream.write_all(&responses.concat()).ok()?;
    stream.read_to_end(&mut Vec::new()).ok().map(|_| ())
}

#[test]
fn a_response_to_a_request_that_has_not_left_breaks_the_rules() {
    let address = serving(|_, stream| answer_ahead(stream));
    let mut plan = http2(closed(address, 1, 4), 1);
    plan.load = Loop::Closed {
        think_ns: 0,
        coalesces: false,
    };
    let tally = run(&plan).tally();
    let malformed = tally.errors_of(ErrorKind::Malformed);
    assert_eq!((tally.good, malformed), (2, 2), "{tally:?}");
    assert_eq!((tally.completed, tally.errors_total()), (2, 2), "{tally:?}");
    assert!(tally.sent >= tally.completed, "{tally:?}");
}

#[test]
fn thinking_and_phases_are_those_of_clients() {
    let stub = stubbed::stub(StubOptions::default());
    let mut plan = http2(closed(stub.address(), 1, 40), 4);
    plan.load = Loop::Closed {
        think_ns: 10 * MS,
        coalesces: true,
    };
    let outcome = stubbed::run_from(plan, stub, 1, |ready_ns| ready_ns);
    assert_eq!(outcome.results().tally.good, 40);
    // Ten requests of each of four clients, so nine pauses.
    assert!(outcome.record.run.ran_s >= 0.09);
}
