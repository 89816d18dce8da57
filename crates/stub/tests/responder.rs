//! The responder over sockets: what it answers, when, and what it says about itself.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use loadline_stub::{
    Closing, ConnectionFault, Counts, Draw, Every, Fault, Framing, Latency, Malformed, Stall, Stub,
    StubOptions,
};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: stub\r\n\r\n";
const LAST: &[u8] = b"GET / HTTP/1.1\r\nHost: stub\r\nConnection: close\r\n\r\n";
const MS: u64 = 1_000_000;

/// Sends on a new connection and reads to its end; the end may be an error.
fn asked(stub: &Stub, request: &[u8]) -> (String, Result<(), ErrorKind>) {
    let mut client = TcpStream::connect(stub.address()).unwrap();
    client
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut answer = Vec::new();
    let end = client
        .write_all(request)
        .and_then(|()| client.read_to_end(&mut answer));
    let text = String::from_utf8_lossy(&answer).into_owned();
    (text, end.map(|_| ()).map_err(|error| error.kind()))
}

/// Sends one request after the other on one connection.
fn in_turn(stub: &Stub, requests: usize) {
    let mut client = TcpStream::connect(stub.address()).unwrap();
    let mut answer = vec![0; 4096];
    for _ in 0..requests {
        client.write_all(GET).unwrap();
        assert_ne!(client.read(&mut answer).unwrap(), 0);
    }
}

#[test]
fn answers_in_order_on_connections_that_stay_and_counts_them() {
    let stub = Stub::start(StubOptions::default()).unwrap();
    in_turn(&stub, 100);
    let piped = [GET, GET, LAST].concat();
    let (text, end) = asked(&stub, &piped);
    assert_eq!(end, Ok(()));
    assert_eq!(text.matches("Hello, world!").count(), 3);
    assert!(text.ends_with("Connection: close\r\n\r\nHello, world!"));
    let mut slow = TcpStream::connect(stub.address()).unwrap();
    for byte in b"POST / HTTP/1.1\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc" {
        slow.write_all(&[*byte]).unwrap();
    }
    slow.read_to_end(&mut Vec::new()).unwrap();
    let report = stub.stop().unwrap();
    let counts = Counts {
        connections: 3,
        requests: 104,
        answers: 104,
        ..Counts::default()
    };
    assert_eq!(report.counts, counts);
    let numbers: Vec<u64> = report.times.iter().map(|times| times.number).collect();
    assert_eq!(numbers, (1..=104).collect::<Vec<u64>>());
}

#[test]
fn every_nth_answer_is_wrong_as_programmed() {
    let faults = [
        (Fault::Close, "", Ok(())),
        (Fault::Reset, "", Err(ErrorKind::ConnectionReset)),
        (Fault::CutHead, "HTTP/1.1 200 OK\r\nContent-Len", Ok(())),
        (
            Fault::CutBody,
            "HTTP/1.1 200 OK\r\nContent-Length: 13\r\nConnection: close\r\n\r\nHello,",
            Ok(()),
        ),
    ];
    for (fault, text, end) in faults {
        let stub = Stub::start(StubOptions {
            faults: vec![Every { every: 3, fault }],
            ..StubOptions::default()
        });
        let stub = stub.unwrap();
        for number in 1..=9 {
            let (found, found_end) = asked(&stub, LAST);
            if number % 3 == 0 {
                let begins = text.is_empty() && found.is_empty() || found.starts_with(text);
                assert!(begins, "{fault:?}: {found:?}");
                assert_eq!(found_end, end, "{fault:?}");
            } else {
                assert!(found.ends_with("Hello, world!"), "{fault:?}: {found:?}");
            }
        }
        let counts = stub.stop().unwrap().counts;
        assert_eq!((counts.requests, counts.answers), (9, 6), "{fault:?}");
        assert_eq!(counts.faults, [3]);
    }
}

#[test]
fn what_is_malformed_closes() {
    for &malformed in Malformed::all() {
        let stub = Stub::start(StubOptions {
            faults: vec![Every {
                every: 1,
                fault: Fault::Malformed(malformed),
            }],
            ..StubOptions::default()
        });
        let (text, end) = asked(&stub.unwrap(), GET);
        assert_eq!(end, Ok(()), "{malformed:?}");
        assert!(!text.is_empty());
    }
}

#[test]
fn connections_that_come_to_nothing() {
    for (fault, end) in [
        (ConnectionFault::Close, Ok(0)),
        (ConnectionFault::Reset, Err(ErrorKind::ConnectionReset)),
    ] {
        let rule = Every { every: 2, fault };
        let stub = Stub::start(StubOptions {
            connection_faults: vec![rule],
            ..StubOptions::default()
        });
        let stub = stub.unwrap();
        for number in 1..=4 {
            let mut client = TcpStream::connect(stub.address()).unwrap();
            if number % 2 == 0 {
                let found = client.read(&mut [0]).map_err(|error| error.kind());
                assert_eq!(found, end);
            } else {
                client.write_all(LAST).unwrap();
                assert!(client.read_to_end(&mut Vec::new()).unwrap() > 0);
            }
        }
        let counts = stub.stop().unwrap().counts;
        assert_eq!((counts.connections, counts.requests), (4, 2));
        assert_eq!(counts.connection_faults, [2]);
    }
}

#[test]
fn closing_and_framing() {
    let stub = |framing, closing| {
        Stub::start(StubOptions {
            framing,
            closing,
            body: vec![b'x'; 100_000],
            ..StubOptions::default()
        })
        .unwrap()
    };
    let head_bytes = |text: &str| text.find("\r\n\r\n").unwrap() + 4;
    for closing in [Closing::Announced, Closing::Silent] {
        let (text, end) = asked(&stub(Framing::Length, closing), GET);
        assert_eq!((text.len() - head_bytes(&text), end), (100_000, Ok(())));
    }
    let (text, end) = asked(&stub(Framing::UntilClose, Closing::AsAsked), GET);
    assert_eq!((text.len() - head_bytes(&text), end), (100_000, Ok(())));
    let (text, _) = asked(&stub(Framing::Chunked, Closing::AsAsked), LAST);
    assert!(text.contains("\r\n\r\nc350\r\nxx") && text.ends_with("\r\n0\r\n\r\n"));
    // Who ignores the wish to close goes on answering.
    let ignoring = stub(Framing::Length, Closing::Ignored);
    let mut client = TcpStream::connect(ignoring.address()).unwrap();
    let mut answer = vec![0; text_bytes()];
    for _ in 0..3 {
        client.write_all(LAST).unwrap();
        client.read_exact(&mut answer).unwrap();
    }
}

/// Of an answer of 100,000 bytes that says that it closes.
fn text_bytes() -> usize {
    "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\nConnection: close\r\n\r\n".len() + 100_000
}

#[test]
fn who_does_not_wait_is_missed() {
    let stub = Stub::start(StubOptions {
        faults: vec![Every {
            every: 1,
            fault: Fault::Never,
        }],
        ..StubOptions::default()
    });
    let stub = stub.unwrap();
    let client = TcpStream::connect(stub.address()).unwrap();
    (&client).write_all(GET).unwrap();
    awaited(|| stub.counts().requests == 1);
    // With an answer unread in its way, closing is a reset; without, it only ends the request.
    rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
    drop(client);
    awaited(|| stub.counts().missed == 1);
}

fn awaited(is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(20));
        std::thread::yield_now();
    }
}

#[test]
fn nothing_is_answered_before_it_is_due_nor_in_a_stall() {
    let stall = Stall {
        length_ns: 20 * MS,
        every_ns: 50 * MS,
    };
    let stub = Stub::start(StubOptions {
        latency: Latency::Exponential { mean_ns: MS as f64 },
        draw: Draw::Stratified { strata: 100 },
        stall: Some(stall),
        faults: vec![Every {
            every: 10,
            fault: Fault::Late { by_ns: MS },
        }],
        ..StubOptions::default()
    });
    let stub = stub.unwrap();
    let begin_ns = stub.begin_ns();
    in_turn(&stub, 100);
    let report = stub.stop().unwrap();
    assert_eq!(report.times.len(), 100);
    for times in report.times {
        assert!(times.sent_ns >= times.due_ns, "{times:?}");
        assert!(times.due_ns >= times.arrived_ns, "{times:?}");
        assert_eq!(times.true_ns(), times.sent_ns - times.arrived_ns);
        let is_late = times.number % 10 == 0;
        let due_ns = times.due_ns - begin_ns - u64::from(is_late) * MS;
        let within_ns = due_ns % stall.every_ns;
        let is_stalled = due_ns > stall.every_ns && within_ns < stall.length_ns;
        assert!(!is_stalled, "{times:?}");
    }
}

#[test]
fn clients_that_begin_together_do_not_stay_together() {
    let stub = Stub::start(StubOptions {
        spread_ns: 8 * MS,
        ..StubOptions::default()
    });
    let stub = stub.unwrap();
    (0..4).for_each(|_| in_turn(&stub, 2));
    let times = stub.stop().unwrap().times;
    let delays = times.iter().map(|times| times.due_ns - times.arrived_ns);
    let delays: Vec<u64> = delays.collect();
    // Only the first of each connection is late; those are far from each other.
    assert!(delays.iter().skip(1).step_by(2).all(|ns| *ns == 0));
    let mut first: Vec<u64> = delays.into_iter().step_by(2).collect();
    first.sort_unstable();
    assert!(first.iter().all(|ns| *ns < 8 * MS), "{first:?}");
    assert!(
        first.windows(2).all(|pair| pair[1] - pair[0] > MS),
        "{first:?}"
    );
}

#[test]
fn options_that_do_not_make_sense() {
    let refused = |change: fn(&mut StubOptions)| {
        let mut options = StubOptions::default();
        change(&mut options);
        let error = Stub::start(options).err().map(|error| error.kind());
        assert_eq!(error, Some(ErrorKind::InvalidInput));
    };
    refused(|options| options.servers = Some(0));
    refused(|options| options.cpu = Some(1023)); // one that hardly any machine has
    refused(|options| options.cpu = Some(usize::MAX));
    refused(|options| options.draw = Draw::Stratified { strata: 0 });
    refused(|options| {
        options.stall = Some(Stall {
            length_ns: 10,
            every_ns: 10,
        });
    });
    refused(|options| {
        options.faults = vec![Every {
            every: 0,
            fault: Fault::Close,
        }];
    });
    refused(|options| {
        options.latency = Latency::Exponential { mean_ns: f64::NAN };
    });
    refused(|options| {
        options.faults = vec![Every {
            every: 1,
            fault: Fault::Status(99),
        }];
    });
}
