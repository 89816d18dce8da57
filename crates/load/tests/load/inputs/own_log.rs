//! The lines that Loadline's own server writes, in all their forms, are read back as what was sent.

use std::sync::Arc;

use loadline_load::replay::{Log, Wanted};
use loadline_proto::{
    AccessFormat, AccessLog, Action, Body, Context, Counters, HttpDate, Method, Outcome, Pool,
    ServerSession, SessionConfig,
};

const REQUESTS: [(&str, Method, &str); 4] = [
    ("GET / HTTP/1.1\r\nHost: h\r\n\r\n", Method::Get, "/"),
    (
        "HEAD /a?b=%20c&d HTTP/1.0\r\n\r\n",
        Method::Head,
        "/a?b=%20c&d",
    ),
    (
        "GET /q\"uo\\te'd HTTP/1.1\r\nHost: h\r\nUser-Agent: \"GET /no HTTP/1.1\"\r\n\r\n",
        Method::Get,
        "/q\"uo\\te'd",
    ),
    (
        "GET http://h:81/x?y HTTP/1.1\r\nHost: h:81\r\nReferer: \\\r\n\r\n",
        Method::Get,
        "/x?y",
    ),
];

/// The log of a server that was asked for all of them.
fn log(format: AccessFormat) -> Vec<u8> {
    let (mut pool, counters, date) = (Pool::new(), Counters::default(), HttpDate::at(784_111_777));
    let mut log = AccessLog::new(format);
    log.tick(0, 784_111_777_000_250);
    let config = Arc::new(SessionConfig::default());
    for (bytes, _, _) in REQUESTS {
        let mut turn = Context {
            now: loadline_base::Millis(0),
            came: loadline_base::Millis(0),
            date: &date,
            pool: &mut pool,
            counters: &counters,
            log: Some(&mut log),
        };
        let mut session = ServerSession::new(&config, None, &mut turn);
        session.received(&mut bytes.as_bytes().to_vec(), &mut turn);
        let Action::Run(mut exchange) = session.next_action(&mut turn) else {
            panic!("{bytes:?} is not taken");
        };
        exchange.response.body = Body::Bytes(b"hello".to_vec());
        session.ran(exchange, Outcome::Ready, &mut turn);
        let Action::Send { mut transmit, .. } = session.next_action(&mut turn) else {
            panic!("no answer");
        };
        transmit.advance(transmit.remaining());
        session.sent(transmit, &mut turn);
    }
    std::mem::take(log.lines())
}

#[test]
fn every_form_says_what_was_sent() {
    for format in [
        AccessFormat::Common,
        AccessFormat::Combined,
        AccessFormat::Json,
    ] {
        let text = log(format);
        let wanted = Wanted {
            all_methods: false,
            times: true,
            lines_max: 100,
        };
        let log = Log::read(text.as_slice(), wanted).unwrap();
        assert_eq!(log.report.lines, 4, "{format:?}");
        assert_eq!(log.report.unparsable, 0, "{format:?} {}", log.report);
        assert_eq!(log.sequence, [0, 1, 2, 3]);
        for ((method, target), (_, sent_method, sent_target)) in log.requests.iter().zip(REQUESTS) {
            assert_eq!(*method, sent_method);
            assert_eq!(String::from_utf8_lossy(target), sent_target, "{format:?}");
        }
        let is_json = format == AccessFormat::Json;
        assert_eq!(log.is_whole_seconds, !is_json);
        let fraction_ns = if is_json { 250_000 } else { 0 };
        assert_eq!(log.times_ns, [784_111_777_000_000_000 + fraction_ns; 4]);
    }
}
