//! What is wrong with content that nobody asked for ends the connection, but is not answered: its
//! request has its answer already.

use std::sync::Arc;

use loadline_base::{Chunk, Millis};
use loadline_proto::{
    Action, Counters, HttpDate, Outcome, Pool, ServerSession, SessionConfig, Status, Turn,
};

#[test]
fn a_request_with_malformed_content_gets_one_answer() {
    let head = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    for content in [&b"x\r\n"[..], b"5\r\nhello", b"1\r\nab"] {
        for together in [true, false] {
            let (mut pool, counters) = (Pool::new(), Counters::default());
            let (date, now) = (HttpDate::at(0), Millis(0));
            let mut turn = Turn {
                now,
                date: &date,
                pool: &mut pool,
                counters: &counters,
                log: None,
            };
            let config = Arc::new(SessionConfig::default());
            let mut session = ServerSession::new(&config, None, &mut turn);
            let mut first = head.to_vec();
            if together {
                first.extend_from_slice(content);
            }
            session.received(&mut first, &mut turn);
            let mut wire = Vec::new();
            drive(&mut session, &mut wire, &mut turn);
            if !together {
                session.received(&mut content.to_vec(), &mut turn);
                drive(&mut session, &mut wire, &mut turn);
            }
            // Never a chunk, or not one that ends: what comes next cannot be a request either.
            session.received(
                &mut b"GET / HTTP/1.1\r\nHost: h\r\n\r\n".to_vec(),
                &mut turn,
            );
            drive(&mut session, &mut wire, &mut turn);
            let wire = String::from_utf8(wire).unwrap();
            assert_eq!(wire.matches("HTTP/1.1 ").count(), 1, "{wire}");
            assert!(wire.starts_with("HTTP/1.1 405 "), "{wire}");
        }
    }
}

fn drive(session: &mut ServerSession, wire: &mut Vec<u8>, turn: &mut Turn<'_>) {
    loop {
        match session.next_action(turn) {
            Action::Run(mut exchange) => {
                exchange.response.error(Status::METHOD_NOT_ALLOWED);
                session.ran(exchange, Outcome::Ready, turn);
            }
            Action::Send(mut transmit) => {
                while let Some(Chunk::Memory(bytes)) = transmit.front() {
                    wire.extend_from_slice(bytes);
                    let len = bytes.len() as u64;
                    transmit.advance(len);
                }
                session.sent(transmit, turn);
            }
            Action::Finish => {}
            Action::Wait { .. } | Action::Close => return,
            action => unreachable!("{action:?}"),
        }
    }
}
