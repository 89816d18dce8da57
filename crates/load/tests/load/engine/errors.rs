//! Each way in which a request can fail is counted as what it is, and once.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use loadline_base::Buffer;
use loadline_load::{
    Arrivals, Control, Expectation, Http2Plan, Loop, Overflow, Plan, Share, engine,
};
use loadline_proto::{ClientLayer, Connector, FailureCause, Fault, Layer, LayerFailure};
use loadline_record::{ErrorKind, Tally};
use loadline_stub::{Latency, Listening, Stub, StubOptions};
use loadline_sys::{ListenAddr, ListenOptions, socket};
use sha2::{Digest, Sha256};

use crate::engine::open::open;
use crate::engine::run::{MS, SECOND, closed, run};
use crate::engine::server::{Act, Server, answer};
use crate::stubbed;

const REQUESTS: u64 = 12;

fn assert_all(tally: &Tally, kind: ErrorKind, completed: u64) {
    let message = format!("{kind:?} {tally:?}");
    assert_eq!(tally.offered, REQUESTS, "{message}");
    assert_eq!(tally.errors_of(kind), REQUESTS, "{message}");
    assert_eq!(tally.errors_total(), REQUESTS, "{message}");
    assert_eq!((tally.good, tally.completed), (0, completed), "{message}");
    assert_eq!(tally.unfinished, 0, "{message}");
}

/// Every answer is this one; connections are kept, and then new for each request.
fn check(act: &Act, expected: &Expectation, kind: ErrorKind, is_complete: bool) {
    for requests_per_connection in [None, Some(1)] {
        let act = act.clone();
        let server = Server::start(move |_, _| act.clone());
        let mut plan = closed(server.address, 3, REQUESTS);
        plan.requests_per_connection = requests_per_connection;
        plan.mix.expectations = vec![expected.clone()];
        let outcome = run(&plan);
        let tally = outcome.tally();
        assert_all(&tally, kind, if is_complete { REQUESTS } else { 0 });
        assert_eq!((tally.sent, server.requests()), (REQUESTS, REQUESTS));
        assert_eq!(tally.connections, server.connections());
        let failures = outcome.histogram(|interval| &interval.failure).len();
        assert_eq!(failures, REQUESTS - tally.completed);
    }
}

#[test]
fn answers_that_are_not_complete() {
    let any = Expectation::default();
    let text = |text: &str| text.as_bytes().to_vec();
    let cut = text("HTTP/1.1 200 X\r\nContent-Length: 10\r\n\r\nabc");
    let cut_chunk = text("HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc");
    let cut_head = text("HTTP/1.1 200 X\r\nContent-Le");
    for (act, kind) in [
        (Act::SendAndClose(cut), ErrorKind::ShortBody),
        (Act::SendAndClose(cut_chunk), ErrorKind::ShortBody),
        (Act::SendAndClose(cut_head), ErrorKind::ShortBody),
        (Act::SendAndClose(Vec::new()), ErrorKind::ClosedEarly),
        (Act::Reset, ErrorKind::Reset),
        (Act::Send(text("SSH-2.0-x\r\n\r\n")), ErrorKind::Malformed),
    ] {
        check(&act, &any, kind, false);
    }
}

#[test]
fn answers_that_are_not_the_expected_ones() {
    let any = Expectation::default();
    let created = Expectation {
        statuses: vec![201],
        ..Expectation::default()
    };
    let length = |bytes| Expectation {
        length: Some(bytes),
        ..Expectation::default()
    };
    let content = |text: &str| Expectation {
        sha256: Some(Sha256::digest(text).into()),
        ..Expectation::default()
    };
    let mut excess = answer(200, "hello");
    excess.extend_from_slice(b"!");
    for (bytes, expected, kind) in [
        (answer(404, "gone"), &any, ErrorKind::Status4xx),
        (answer(500, "broken"), &any, ErrorKind::Status5xx),
        (answer(302, ""), &any, ErrorKind::OtherStatus),
        (answer(200, "hello"), &created, ErrorKind::OtherStatus),
        (answer(200, "hello"), &length(6), ErrorKind::ShortBody),
        (answer(200, "hello"), &length(4), ErrorKind::LongBody),
        (excess, &any, ErrorKind::LongBody),
        (
            answer(200, "hello"),
            &content("world"),
            ErrorKind::WrongContent,
        ),
    ] {
        check(&Act::Send(bytes), expected, kind, true);
    }
}

#[test]
fn bytes_behind_an_answer_are_its_own_however_long_it_is() {
    // Of the first nothing is thrown away unseen, of the others nearly all.
    for body_bytes in [5_000, 100_000, 2 << 20] {
        let mut bytes = answer(200, &"x".repeat(body_bytes));
        bytes.push(b'!');
        let any = Expectation::default();
        check(&Act::Send(bytes), &any, ErrorKind::LongBody, true);
    }
}

#[test]
fn content_is_checked_on_a_sample() {
    let server = Server::answering("hello");
    for (sample, errors) in [(1, 12), (4, 3), (0, 0)] {
        let mut plan = closed(server.address, 3, REQUESTS);
        plan.content_sample = sample;
        plan.mix.expectations[0].sha256 = Some([0; 32]);
        let tally = run(&plan).tally();
        assert_eq!(tally.errors_of(ErrorKind::WrongContent), errors);
        assert_eq!((tally.completed, tally.good), (12, 12 - errors));
    }
    let mut plan = closed(server.address, 3, REQUESTS);
    plan.mix.expectations[0].sha256 = Some(Sha256::digest("hello").into());
    assert_eq!(run(&plan).tally().good, 12);
}

#[test]
fn a_large_body_is_counted_whole() {
    let body: &'static str = String::from_utf8(vec![b'x'; 3 << 20]).unwrap().leak();
    let server = Server::answering(body);
    for sha256 in [None, Some(Sha256::digest(body).into())] {
        let mut plan = closed(server.address, 2, 4);
        plan.mix.expectations[0] = Expectation {
            statuses: Vec::new(),
            length: Some(3 << 20),
            sha256,
        };
        let tally = run(&plan).tally();
        assert_eq!((tally.good, tally.content_bytes), (4, 12 << 20));
        assert_eq!(tally.bytes_received, 4 * answer(200, body).len() as u64);
    }
}

#[test]
fn answers_in_time_are_good_and_others_late() {
    let server = Server::answering("hello");
    let mut plan = closed(server.address, 3, REQUESTS);
    plan.deadline_ns = Some(1);
    assert_all(&run(&plan).tally(), ErrorKind::Late, REQUESTS);
    plan.deadline_ns = Some(3600 * 1000 * MS);
    assert_eq!(run(&plan).tally().good, REQUESTS);
}

#[test]
fn no_answer_within_the_time_is_a_timeout_and_a_new_connection() {
    let server = Server::start(|_, _| Act::Hang);
    let mut plan = closed(server.address, 3, REQUESTS);
    plan.timeout_ns = 20 * MS;
    let outcome = run(&plan);
    assert_all(&outcome.tally(), ErrorKind::Timeout, 0);
    assert!(server.requests() <= REQUESTS); // a slow server sees some of them too late
    let failures = outcome.histogram(|interval| &interval.failure);
    assert!(failures.min() >= 19_900, "{} us", failures.min());
}

#[test]
fn after_a_timeout_a_connection_is_reset_or_closed_in_good_order() {
    for closes_on_timeout in [false, true] {
        let server = Server::start(|_, _| Act::Hang);
        let mut plan = closed(server.address, 3, REQUESTS);
        plan.timeout_ns = 20 * MS;
        plan.closes_on_timeout = closes_on_timeout;
        assert_all(&run(&plan).tally(), ErrorKind::Timeout, 0);
        let counts = Arc::clone(&server.counts);
        drop(server); // its threads have ended then
        let resets = counts.resets.load(Ordering::SeqCst);
        assert_eq!(resets == 0, closes_on_timeout, "{resets} resets");
    }
}

/// Timers are exact to 16 ms, so that most of these responses were good.
#[test]
fn responses_that_come_after_the_timeout_are_not_good_though_no_timer_has_come() {
    const REQUESTS: u64 = 60;
    let slow = stubbed::stub(StubOptions {
        latency: Latency::Constant { ns: 8 * MS },
        ..StubOptions::default()
    });
    let mut plan = closed(slow.address(), 3, REQUESTS);
    for http2 in [None, Some(Http2Plan::new(&plan.mix, 1, Vec::new()))] {
        plan.http2 = http2;
        plan.timeout_ns = 5 * MS;
        let tally = run(&plan).tally();
        let timeouts = tally.errors_of(ErrorKind::Timeout);
        // Where other processes keep this one from waiting in time, it does not know.
        assert!(timeouts > REQUESTS / 2, "{tally:?}");

        plan.timeout_ns = 10 * SECOND;
        let tally = run(&plan).tally();
        assert_eq!(tally.good, REQUESTS, "{tally:?}");
    }
}

#[test]
fn where_nobody_listens_clients_are_refused_and_do_not_spin() {
    let nobody = Stub::start(StubOptions {
        listening: Listening::Refusing,
        ..StubOptions::default()
    });
    let mut plan = closed(nobody.as_ref().unwrap().address(), 3, REQUESTS);
    plan.requests_per_connection = Some(1);
    let outcome = run(&plan);
    assert_all(&outcome.tally(), ErrorKind::Refused, 0);
    assert_eq!(outcome.tally().not_accepted, REQUESTS);
    // Four attempts of each client, so three pauses: 10, 20 and 40 ms.
    assert!(outcome.report.wall_ns >= 70 * MS);
    assert_eq!(outcome.tally().sent, 0);

    // Before the start each of them tries once more, without a request.
    plan.requests_per_connection = None;
    let outcome = run(&plan);
    assert_eq!(outcome.ready, 0);
    assert_eq!(outcome.tally().errors_of(ErrorKind::Refused), REQUESTS + 3);
}

#[test]
fn who_is_not_let_in_has_a_connect_timeout() {
    let anywhere = ListenAddr::Tcp(([127, 0, 0, 1], 0).into());
    let options = ListenOptions {
        backlog: 0,
        reuse_port: false,
        defer_accept: false,
        ipv6_only: false,
        buffer_bytes: None,
        unix_mode: None,
    };
    let (_listener, address) = socket::listen(&anywhere, options).unwrap();
    let ListenAddr::Tcp(address) = address else {
        unreachable!("it was asked for TCP");
    };
    let _filled = fill(address);
    let mut plan = closed(address, 3, REQUESTS);
    plan.requests_per_connection = Some(1);
    for http2 in [None, Some(Http2Plan::new(&plan.mix, 1, Vec::new()))] {
        plan.http2 = http2;
        plan.timeout_ns = 20 * MS;
        let outcome = run(&plan);
        assert_all(&outcome.tally(), ErrorKind::ConnectTimeout, 0);
        assert_eq!(outcome.tally().connections, 0);

        // What has waited for less than the timeout when the run ends is said apart.
        plan.timeout_ns = 60_000 * MS;
        let outcome = run(&open(plan.clone(), 1000.0, 50 * MS, Overflow::Queue));
        assert_eq!(outcome.tally().errors_total(), 0);
        assert_eq!(outcome.report.connecting, 3);
    }
}

/// They failed with their connection, as if nothing had accepted it, and those that were sent later failed
/// before their time.
#[test]
fn requests_to_a_server_that_sends_no_settings_have_timeouts_of_their_own() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap(); // the kernel accepts for it
    let address = silent.local_addr().unwrap();
    let mut plan = closed(address, 1, 2);
    plan.timeout_ns = 2 * SECOND;
    plan.http2 = Some(Http2Plan::new(&plan.mix, 2, Vec::new()));
    plan.load = Loop::Timed {
        due_ns: [0, 100 * MS].into(),
        overflow: Overflow::Queue,
    };
    let outcome = run(&plan);
    let tally = outcome.tally();
    assert_eq!((tally.sent, tally.not_accepted), (2, 0), "{tally:?}");
    assert_eq!(tally.errors_of(ErrorKind::Timeout), 2);
    // Connections that are kept are opened before the start: that is one more that fails.
    assert_eq!(tally.errors_of(ErrorKind::ConnectTimeout), 1);
    assert_eq!(tally.errors_total(), 3, "{tally:?}");
    let failures = outcome.histogram(|interval| &interval.failure);
    // Less than the histogram's error; with its connection the second one failed after 1.9 s.
    assert!(failures.min() >= 1_990_000, "{} us", failures.min());
}

/// Connects until the listener's queue is full.
fn fill(address: SocketAddr) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(100)) {
        streams.push(stream);
    }
    streams
}

#[test]
fn an_address_that_is_not_ours_cannot_be_a_source() {
    let server = Server::answering("hello");
    let mut plan = closed(server.address, 3, REQUESTS);
    plan.requests_per_connection = Some(1);
    plan.sources = vec!["192.0.2.1".parse().unwrap()];
    let tally = run(&plan).tally();
    assert_all(&tally, ErrorKind::ConnectFailed, 0);
    assert_eq!(tally.not_accepted, 0); // it is the client's own fault
    plan.sources = vec!["127.0.0.2".parse().unwrap(), "127.0.0.3".parse().unwrap()];
    assert_eq!(run(&plan).tally().good, REQUESTS);
}

/// Layers whose handshakes fail by what the server says, once that has closed the connection.
#[derive(Clone, Debug)]
struct Failing {
    closed: Arc<Mutex<Receiver<()>>>,
    failure: LayerFailure,
}

impl Connector for Failing {
    fn connect(&self, out: &mut Buffer) -> Result<Box<dyn ClientLayer>, Fault> {
        out.extend_from_slice(b"hello");
        Ok(Box::new(self.clone()))
    }
}

impl Layer for Failing {
    fn received(&mut self, _: &mut [u8], _: &mut Buffer, out: &mut Buffer) -> Result<(), Fault> {
        self.closed.lock().unwrap().recv().unwrap();
        out.extend_from_slice(b"alert");
        Err(Fault::bad_request("no handshake"))
    }

    fn send(&mut self, _: &[u8], _: &mut Buffer) {}

    fn finish(&mut self, _: &mut Buffer) {}

    fn is_open(&self) -> bool {
        false
    }

    fn has_ended(&self) -> bool {
        false
    }
}

impl ClientLayer for Failing {
    fn is_resumed(&self) -> Option<bool> {
        None
    }

    fn failure(&self) -> Option<&LayerFailure> {
        Some(&self.failure)
    }
}

/// A server that resets its connections, and what makes layers for it, whose handshakes fail for this cause.
fn resetting(cause: FailureCause) -> (SocketAddr, Arc<dyn Connector>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, closed) = mpsc::channel();
    // Ends with the test.
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            stream.peek(&mut [0]).unwrap(); // unread when it is closed: the connection is reset
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            drop(stream);
            if sender.send(()).is_err() {
                return;
            }
        }
    });
    let connector = Failing {
        closed: Arc::new(Mutex::new(closed)),
        failure: LayerFailure {
            cause,
            text: "no handshake".to_owned(),
        },
    };
    (address, Arc::new(connector))
}

/// The same plan over HTTP/1 and over HTTP/2, with these layers.
fn by_both_protocols(plan: &Plan, connector: &Arc<dyn Connector>) -> [Plan; 2] {
    let connectors = vec![Some(Arc::clone(connector))];
    let http2 = Http2Plan::new(&plan.mix, 1, connectors.clone());
    [
        Plan {
            connectors,
            ..plan.clone()
        },
        Plan {
            http2: Some(http2),
            ..plan.clone()
        },
    ]
}

#[test]
fn a_handshake_that_fails_on_a_connection_that_was_reset_is_one_error() {
    let (address, connector) = resetting(FailureCause::Other);
    let plan = Plan {
        requests_per_connection: Some(1),
        ..stubbed::open(address, 1, 1200.0, 10 * MS, Arrivals::Constant)
    };
    for plan in by_both_protocols(&plan, &connector) {
        let tally = run(&plan).tally();
        assert_all(&tally, ErrorKind::Handshake, 0);
        assert_eq!((tally.sent, tally.not_accepted), (0, REQUESTS));
    }
}

/// The client was said to be the limit, as if it had not tried to send them.
#[test]
fn requests_whose_connections_are_closed_in_the_handshake_were_not_accepted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // Ends with the test.
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read_exact(&mut [0; 5]); // unread, it would have the connection reset
        }
    });
    let (_, connector) = resetting(FailureCause::Other); // nothing comes to its layers
    let plan = Plan {
        requests_per_connection: Some(1),
        ..stubbed::open(address, 1, 1200.0, 10 * MS, Arrivals::Constant)
    };
    for plan in by_both_protocols(&plan, &connector) {
        let tally = run(&plan).tally();
        assert_all(&tally, ErrorKind::ClosedEarly, 0);
        assert_eq!((tally.sent, tally.not_accepted), (0, REQUESTS));
    }
}

/// The peer has no use for the alert, and the user for the reason.
#[test]
fn a_certificate_that_is_not_accepted_is_the_reason_on_a_connection_that_was_reset() {
    let (address, connector) = resetting(FailureCause::Authority);
    for plan in by_both_protocols(&closed(address, 1, REQUESTS), &connector) {
        let refused = engine::run(&plan, Share::WHOLE, &Control::new(), &mut |_| {});
        let text = refused.unwrap_err().to_string();
        let expected = format!("{address}: no handshake; right would be the certificate of its");
        assert!(text.starts_with(&expected), "{text}");
    }
}
