//! An answer that was encoded in the quick step waits for the blocking step; what was answered
//! before it does not.

use std::sync::Arc;

use loadline_base::{Chunk, Millis};
use loadline_proto::{
    Action, Counters, HttpDate, Outcome, Pool, ServerSession, SessionConfig, Status, Turn,
};

fn sent(session: &mut ServerSession, turn: &mut Turn<'_>) -> String {
    let Action::Send(mut transmit) = session.next_action(turn) else {
        panic!("no output")
    };
    let Some(Chunk::Memory(bytes)) = transmit.front() else {
        panic!("no memory")
    };
    let text = String::from_utf8(bytes.to_vec()).expect("an answer is text here");
    transmit.advance(transmit.remaining());
    session.sent(transmit, turn);
    text
}

#[test]
fn an_encoded_answer_waits_for_its_blocking_step() {
    let (mut pool, counters, date) = (Pool::new(), Counters::default(), HttpDate::at(0));
    let now = Millis(0);
    let mut turn = Turn {
        now,
        date: &date,
        pool: &mut pool,
        counters: &counters,
        log: None,
    };
    let mut session = ServerSession::new(&Arc::new(SessionConfig::default()), None, &mut turn);
    let mut two = b"GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n".to_vec();
    session.received(&mut two, &mut turn);

    let Action::Run(mut first) = session.next_action(&mut turn) else {
        panic!()
    };
    first.answer_borrowed(Status::OK, b"", b"one", &mut turn);
    session.ran(first, Outcome::Ready, &mut turn);
    let Action::Run(mut second) = session.next_action(&mut turn) else {
        panic!()
    };
    second.answer_borrowed(Status::OK, b"", b"two", &mut turn);
    session.ran(second, Outcome::Blocking, &mut turn);

    let before = sent(&mut session, &mut turn);
    assert!(
        before.ends_with("one") && !before.contains("two"),
        "{before}"
    );
    let Action::Block(second) = session.next_action(&mut turn) else {
        panic!()
    };
    assert!(matches!(
        session.next_action(&mut turn),
        Action::Wait { read: false }
    ));
    session.completed(second, &mut turn);
    let after = sent(&mut session, &mut turn);
    assert!(
        after.starts_with("HTTP/1.1 200") && after.ends_with("two"),
        "{after}"
    );
}

#[test]
fn a_drain_that_begins_meanwhile_is_announced() {
    for (version, fields) in [("1.1", ""), ("1.0", "Connection: keep-alive\r\n")] {
        let (mut pool, counters, date) = (Pool::new(), Counters::default(), HttpDate::at(0));
        let now = Millis(0);
        let mut turn = Turn {
            now,
            date: &date,
            pool: &mut pool,
            counters: &counters,
            log: None,
        };
        let mut session = ServerSession::new(&Arc::new(SessionConfig::default()), None, &mut turn);
        let mut request = format!("GET / HTTP/{version}\r\nHost: h\r\n{fields}\r\n").into_bytes();
        session.received(&mut request, &mut turn);
        let Action::Run(mut exchange) = session.next_action(&mut turn) else {
            panic!()
        };
        let content = b"Connection: keep-alive\r\n";
        exchange.answer_borrowed(Status::OK, b"A: b\r\n", content, &mut turn);
        session.ran(exchange, Outcome::Blocking, &mut turn);
        let Action::Block(exchange) = session.next_action(&mut turn) else {
            panic!()
        };
        session.draining(&mut turn);
        session.completed(exchange, &mut turn);
        let text = sent(&mut session, &mut turn);
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(
            head.starts_with("HTTP/1.1 200 OK\r\nConnection: close\r\n"),
            "{text}"
        );
        assert!(
            !head.contains("keep-alive") && head.contains("A: b"),
            "{text}"
        );
        assert_eq!(body.as_bytes(), content);
        assert!(matches!(session.next_action(&mut turn), Action::Close));
    }
}

#[test]
fn an_encoded_answer_that_is_replaced_by_an_error_never_leaves() {
    for outcome in [Outcome::Ready, Outcome::Blocking] {
        let (mut pool, counters, date) = (Pool::new(), Counters::default(), HttpDate::at(0));
        let mut turn = Turn {
            now: Millis(0),
            date: &date,
            pool: &mut pool,
            counters: &counters,
            log: None,
        };
        let mut session = ServerSession::new(&Arc::new(SessionConfig::default()), None, &mut turn);
        let mut requests =
            b"GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n".to_vec();
        session.received(&mut requests, &mut turn);
        let Action::Run(mut first) = session.next_action(&mut turn) else {
            panic!()
        };
        first.answer_borrowed(Status::OK, b"", b"one", &mut turn);
        session.ran(first, Outcome::Ready, &mut turn);
        let Action::Run(mut second) = session.next_action(&mut turn) else {
            panic!()
        };
        second.answer_borrowed(Status::OK, b"", b"two", &mut turn);
        if outcome == Outcome::Ready {
            second.response.error(Status::INTERNAL_SERVER_ERROR);
        }
        session.ran(second, outcome, &mut turn);
        let mut all = sent(&mut session, &mut turn);
        if outcome == Outcome::Blocking {
            let Action::Block(mut second) = session.next_action(&mut turn) else {
                panic!()
            };
            second.response.error(Status::SERVICE_UNAVAILABLE);
            session.completed(second, &mut turn);
            all += &sent(&mut session, &mut turn);
        }
        assert!(all.contains("one") && !all.contains("two"), "{all}");
        assert_eq!(all.matches("HTTP/1.1 ").count(), 2, "{all}");
        assert_eq!(all.matches("HTTP/1.1 50").count(), 1, "{all}");
    }
}
